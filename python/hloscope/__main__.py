"""``python -m hloscope``, and the ``hloscope`` command."""

import sys
from collections.abc import Sequence

from .show import interrupts


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command, returns its status; an interrupt while it is imported is one line."""
    interrupts.watch()
    try:
        from .show.cli import main as run
    except BaseException as error:
        if not interrupts.were_seen() and not isinstance(error, KeyboardInterrupt):
            raise
        print("hloscope: interrupted", file=sys.stderr)
        return 130
    return run(argv)


if __name__ == "__main__":
    sys.exit(main())
