"""The ``hloscope`` command.

Exit status 0: done; 2: it could not be done, with one line on standard error. Commands
add 1 for "done, and the answer is no". Adding a command is one file in ``commands/`` and
one line in its list.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext

from ..hlo.parts import printable
from ..processes.limits import LimitReached, within_limits
from . import interrupts
from .commands import NAMES, command
from .commands.shared import CommandError, nobody_reads

OK, FAILED, INTERRUPTED = 0, 2, 130  # as shells report signals: 128 + SIGINT
# A search compiles, in processes with limits of their own; a server limits each call.
_UNLIMITED = ("mcp", "search")


class _Parser(argparse.ArgumentParser):
    """Errors in one line, without the usage block."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise CommandError(f"{message} (see {self.prog} --help)")


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """The whole command line; or one command alone, which is quicker."""
    from .. import __version__

    top = _Parser(
        prog="hloscope",
        description="See what XLA made of a program: HLO text, protos, xla_dump_to directories.",
        epilog="hloscope FILE alone opens the explorer in the browser. Exit status: 0 done; "
        "1 done, and the answer is no (diff, check); 2 it could not be done.",
    )
    top.add_argument("-V", "--version", action="version", version=f"hloscope {__version__}")
    sub = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in NAMES if only is None else (only,):
        made = command(name)
        add = sub.add_parser(name, help=made.HELP, description=made.HELP)
        made.arguments(add)
        add.set_defaults(run=made.run, is_limited=name not in _UNLIMITED, parser=top)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8
    try:
        words = _with_command(words)
        lists_all = words[0] not in NAMES or words[0] == "completion"
        arguments = parser(None if lists_all else words[0]).parse_args(words)
        reads = within_limits(arguments.command) if arguments.is_limited else nullcontext()
        with reads:
            status = int(arguments.run(arguments) or OK)
            if interrupts.were_seen():  # it printed what was finished until then
                raise KeyboardInterrupt
            return status
    except LimitReached as error:
        return _fail(str(error))
    except CommandError as error:
        return _fail(str(error))
    except BrokenPipeError:  # | head
        nobody_reads()
        return OK
    except KeyboardInterrupt:
        _fail("interrupted")
        return INTERRUPTED
    except MemoryError:
        return _fail("there is not enough memory for this file")
    except Exception as error:
        if interrupts.were_seen():
            _fail("interrupted")
            return INTERRUPTED
        if os.environ.get("HLOSCOPE_TRACEBACK"):
            raise
        return _fail(
            f"{type(error).__name__}: {error} (a bug in hloscope; HLOSCOPE_TRACEBACK=1 shows where)"
        )


def _with_command(words: list[str]) -> list[str]:
    """``hloscope FILE`` means ``hloscope open FILE``, unless FILE is a command's name."""
    first = next((w for w in words if w == "-" or not w.startswith("-")), None)
    asks = any(w in ("-h", "--help", "-V", "--version") for w in words)
    if first is None or first in NAMES or (asks and words[0].startswith("-")):
        return words or ["--help"]
    if first != "-" and not os.path.exists(first) and first.isalpha():
        from difflib import get_close_matches

        near = get_close_matches(first, sorted(NAMES), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise CommandError(f"{first} is neither a command nor a file{hint}")
    return ["open", *words]


def _fail(message: str) -> int:
    line = " ".join(printable(part.strip()) for part in message.splitlines() if part.strip())
    print(f"hloscope: {line}", file=sys.stderr)
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
