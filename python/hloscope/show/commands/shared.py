"""What commands share: reading a capture with clear errors, writing a result."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..._capture import Capture


class CommandError(Exception):
    """One line for a person; exit status 2."""


def add_source(parser: argparse.ArgumentParser) -> None:
    """FILE, --module and --stage."""
    parser.add_argument("file", metavar="FILE", help="HLO text, .pb, .gz, or a dump directory")
    parser.add_argument(
        "--module", metavar="NAME|N", help="which module, by name or number from 0 (see list)"
    )
    parser.add_argument("--stage", metavar="STAGE", help="which stage of a dump directory")


def add_hardware(parser: argparse.ArgumentParser) -> None:
    """--hardware."""
    parser.add_argument(
        "--hardware", metavar="CHIP", help="chip to model time on, such as tpu-v5e or h100"
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
    source = existing(arguments.file)
    from ...readers import read

    module = arguments.module
    if module is not None and module.lstrip("-").isdigit():
        module = int(module)
    try:
        return read(
            source,
            module=module,
            stage=arguments.stage,
            hardware=getattr(arguments, "hardware", None),
        )
    except (ValueError, LookupError, OSError) as error:
        raise CommandError(reason(error)) from error


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


def write(text: str, output: str | None) -> None:
    """To ``output``, or to standard output when it is absent or ``-``."""
    if output is None or output == "-":
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        return
    try:
        Path(output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(reason(error)) from error
    print(os.fspath(output))
