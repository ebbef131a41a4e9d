"""What commands share: reading a capture with clear errors, writing a result."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..terminal import colored, paint, working

if TYPE_CHECKING:
    from ...api.capture import Capture


# Bytes; reading and analysing more takes long enough to say so.
SLOW = 3_000_000
SOURCE = "HLO text, .pb, .gz, StableHLO, a profiler trace, a dump directory, or - for stdin"


class CommandError(Exception):
    """One line for the user; exit status 2."""


def add_source(parser: argparse.ArgumentParser) -> None:
    """FILE, --module and --stage."""
    parser.add_argument("file", metavar="FILE", help=SOURCE)
    parser.add_argument(
        "--module", metavar="NAME|N", help="which module, by name or number from 0 (see list)"
    )
    parser.add_argument("--stage", metavar="STAGE", help="which stage of a dump directory")


def add_timing(parser: argparse.ArgumentParser) -> None:
    """--hardware and --profile."""
    parser.add_argument(
        "--hardware", metavar="CHIP", help="chip to model time on, such as tpu-v5e or h100"
    )
    parser.add_argument(
        "--profile",
        metavar="TRACE",
        help="a profiler trace (.xplane.pb, or XProf's folder) whose measured times are joined",
    )


def add_output(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    parser.add_argument(
        "-o", "--output", metavar="OUT", required=required, help="file to write, - for stdout"
    )


def add_picture(parser: argparse.ArgumentParser) -> None:
    """--max-nodes and --open."""
    from ..dot import MAX_NODES

    parser.add_argument(
        "--max-nodes", type=int, default=MAX_NODES, metavar="N", help="boxes at most (%(default)s)"
    )
    parser.add_argument(
        "--open",
        action="append",
        default=[],
        metavar="GROUP",
        help="a group, fold or instruction to open whatever the limit; may be repeated",
    )


def load(arguments: argparse.Namespace) -> Capture:
    """Reads FILE as the options say. Raises ``CommandError``."""
    source = content(arguments.file)
    from ...api.read import StageLogGiven, read
    from ...readers.entries import name_or_number

    try:
        with working(f"reading {arguments.file} …" if _is_slow(source) else ""):
            found = read(
                source,
                module=name_or_number(arguments.module),
                stage=arguments.stage,
                hardware=getattr(arguments, "hardware", None),
                profile=getattr(arguments, "profile", None),
            )
    except StageLogGiven as error:
        raise CommandError(
            f"{arguments.file} is a log of pipeline stages: hloscope stages {arguments.file}"
        ) from error
    except (ValueError, LookupError, OSError) as error:
        raise CommandError(reason(error)) from error
    if isinstance(source, bytes):
        found.file = "stdin"
    return found


def content(name: str) -> Path | bytes:
    """The path, or what comes on standard input for ``-``. Raises ``CommandError``."""
    if name != "-":
        return existing(name)
    if sys.stdin is None:
        raise CommandError("-: standard input is closed")
    return sys.stdin.buffer.read()


def _is_slow(source: Path | bytes) -> bool:
    try:
        size = len(source) if isinstance(source, bytes) else source.stat().st_size
    except OSError:
        return False
    return size > SLOW


def existing(name: str) -> Path:
    path = Path(name)
    if not path.exists():
        raise CommandError(f"{name}: no such file or directory")
    return path


def reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or ''}: {error.strerror}".lstrip(": ")
    if isinstance(error, LookupError) and len(error.args) == 1:
        return str(error.args[0]) or type(error).__name__
    return str(error) or type(error).__name__


def write(text: str, output: str | None, style: Callable[[str], str] | None = None) -> None:
    """Writes to ``output``, or to standard output when it is absent or ``-``.

    ``style`` formats each line for a terminal. A reader that has gone, such as
    ``| head``, is not an error: the command goes on to its exit status.
    """
    if output is None or output == "-":
        if sys.stdout is None:
            raise CommandError("standard output is closed")
        if style is not None and colored(sys.stdout):
            text = "\n".join(paint(line, style(line)) for line in text.splitlines())
        try:
            sys.stdout.write(text if text.endswith("\n") else text + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            nobody_reads()
        except OSError as error:
            nobody_reads()
            raise CommandError(f"standard output: {reason(error)}") from error
        return
    from ...api.files import written

    try:
        written(output, text)
    except FileNotFoundError as error:
        raise CommandError(f"{output}: there is no folder {Path(output).parent}") from error
    except OSError as error:
        raise CommandError(f"{output}: {error.strerror or error}") from error
    write(os.fspath(output), None)


def nobody_reads() -> None:
    """Discards what is printed from now on, including what Python flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
