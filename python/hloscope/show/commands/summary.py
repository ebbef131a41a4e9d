"""``hloscope summary FILE``: counts and sizes, as text or JSON."""

from __future__ import annotations

import argparse
import json

from ..terminal import BOLD, YELLOW
from ..text import summary_text
from .shared import add_output, add_source, add_timing, load, write

NAME = "summary"
HELP = "print counts and sizes of a module"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    add_timing(parser)
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    add_output(parser)


def run(arguments: argparse.Namespace) -> None:
    capture = load(arguments)
    if arguments.json:
        write(json.dumps(capture.summary, indent=2), arguments.output)
    else:
        write(summary_text(capture), arguments.output, _style)


def _style(line: str) -> str:
    if not line.startswith(" "):
        return BOLD
    return YELLOW if line.startswith("  warning:") else ""
