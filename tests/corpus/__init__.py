"""Programs compiled by the tests themselves: ``programs.PROGRAMS``, built by ``build.build``."""
