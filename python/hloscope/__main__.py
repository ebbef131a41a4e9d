"""``python -m hloscope``: the same as the ``hloscope`` command."""

import sys

from .show.cli import main

if __name__ == "__main__":
    sys.exit(main())
