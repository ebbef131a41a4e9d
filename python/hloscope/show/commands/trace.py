"""``hloscope trace FILE LINE``: which instructions a source line became, and in which pass."""

from __future__ import annotations

import argparse
import contextlib
import json
from typing import TYPE_CHECKING

from ..terminal import BOLD
from .shared import CommandError, add_output, add_source, load, reason, write

if TYPE_CHECKING:
    from ...analysis.provenance.trace_line import LineTrace
    from ...api.capture import Capture

NAME = "trace"
HELP = "list the instructions that a source line became"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    parser.add_argument("line", metavar="LINE", help="a source line, such as model.py:42")
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    add_output(parser)


def run(arguments: argparse.Namespace) -> None:
    capture = load(arguments)
    try:
        found = traced(capture, arguments.line)
    except (ValueError, LookupError, OSError) as error:
        raise CommandError(reason(error)) from error
    text = json.dumps(found.to_dict(), indent=2) if arguments.json else str(found)
    write(text, arguments.output, lambda line: "" if line.startswith((" ", "{", "}")) else BOLD)


def traced(capture: Capture, line: str) -> LineTrace:
    """What became of a line, with the passes and the fates of its operations where they are known.

    Raises ``LookupError`` and ``ValueError``.
    """
    from ...analysis.provenance.trace_line import trace_line

    passes = capture.passes() if capture.has_passes else None
    fates = None
    if passes is not None:
        with contextlib.suppress(LookupError):  # the line may have instructions even so
            fates = capture.fates(line)
    return trace_line(capture.module, line, passes, fates)
