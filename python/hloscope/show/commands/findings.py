"""``hloscope findings FILE``: what is worth acting on, with evidence, line and what to try."""

from __future__ import annotations

import argparse
import json

from ...hlo.parts import printable
from ..terminal import BOLD, DIM
from .shared import CommandError, add_output, add_source, add_timing, load, write

NAME = "findings"
HELP = "say what is worth acting on, and where"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    add_timing(parser)
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    add_output(parser)


def run(arguments: argparse.Namespace) -> None:
    capture = load(arguments)
    try:
        found = capture.findings
    except ValueError as error:
        raise CommandError(f"{arguments.file}: {error}") from error
    if arguments.json:
        write(json.dumps(found.to_dict(), indent=2), arguments.output)
        return
    text = "\n".join(printable(line) for line in str(found).splitlines())
    write(f"{printable(capture.title)} · {text}", arguments.output, _style)


def _style(line: str) -> str:
    if line.startswith("    "):
        return DIM
    return BOLD
