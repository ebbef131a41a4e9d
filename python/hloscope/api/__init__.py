"""What a user starts from: ``Capture``, ``read``, ``read_programs``."""
