"""``python -m hloscope``, and the ``hloscope`` command."""

import os
import sys
from collections.abc import Sequence

from .show import interrupts

# numpy's BLAS starts a thread for each core when it is imported, which takes as long as the rest of
# numpy. These commands run a person's program, which may multiply matrices with it; others do not.
_BLAS_THREADS, _RUN_PROGRAMS = "OPENBLAS_NUM_THREADS", ("search", "prove")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command, returns its status; an interrupt while it is imported is one line."""
    interrupts.watch()
    words = sys.argv[1:] if argv is None else argv
    needs_one = _BLAS_THREADS not in os.environ and not set(_RUN_PROGRAMS).intersection(words[:1])
    if needs_one:
        os.environ[_BLAS_THREADS] = "1"
    try:
        from .show.cli import main as run
    except BaseException as error:
        if not interrupts.were_seen() and not isinstance(error, KeyboardInterrupt):
            raise
        print("hloscope: interrupted", file=sys.stderr)
        return 130
    finally:
        if needs_one:
            del os.environ[_BLAS_THREADS]  # for the processes that it starts
    status = run(argv)
    if argv is None and interrupts.were_seen():
        interrupts.end(status)
    return status


if __name__ == "__main__":
    sys.exit(main())
