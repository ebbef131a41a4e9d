"""``hloscope diff A B``: what differs between two programs, as text, JSON or a page."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ..terminal import BOLD
from .shared import SOURCE, CommandError, load, write

NAME = "diff"
HELP = "compare two modules by structure; status 1 when they differ"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help=SOURCE)
    parser.add_argument("b", metavar="B", help="the other one")
    parser.add_argument("--module", metavar="NAME|N", help="which module of A (and of B)")
    parser.add_argument("--module-b", metavar="NAME|N", help="which module of B, if another")
    parser.add_argument("--stage", metavar="STAGE", help="which stage of a dump directory")
    parser.add_argument(
        "--stage-b",
        metavar="STAGE",
        help="which stage of B, if another: shows what the passes in between do",
    )
    parser.add_argument(
        "--profile",
        metavar="TRACE",
        action="append",
        default=[],
        help="a profiler trace of A, and again one of B: compares measured time",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as one JSON object")
    form.add_argument(
        "-o", "--html", metavar="OUT", help="write one offline page with both pictures, not text"
    )
    parser.add_argument(
        "--limit", type=int, default=40, metavar="N", help="rows of each list (%(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    from ...api.compared import diff

    if len(arguments.profile) not in (0, 2):
        raise CommandError("--profile is given twice: a trace of A, then one of B")
    traces = arguments.profile or [None, None]
    sides = [
        load(argparse.Namespace(file=file, module=module, stage=stage, profile=profile))
        for file, module, stage, profile in (
            (arguments.a, arguments.module, arguments.stage, traces[0]),
            (
                arguments.b,
                arguments.module_b or arguments.module,
                arguments.stage_b or arguments.stage,
                traces[1],
            ),
        )
    ]
    for side, file in zip(sides, (arguments.a, arguments.b), strict=True):
        stage = f" · {side.stage}" if Path(file).is_dir() else ""
        side.title = f"{side.title} · {_short(file)}{stage}"
    found = diff(*sides)
    if arguments.json:
        write(json.dumps(found.to_dict(), indent=2), None)
    elif arguments.html:
        write(found.html(), arguments.html)
    else:
        write(found.as_text(max(0, arguments.limit)), None, _style)
    return 1 if found else 0


def _short(file: str) -> str:
    """Enough of a path to distinguish the sides: the folder matters if names are equal."""
    path = Path(file)
    return file if len(file) <= 40 else str(Path("…", *path.parts[-2:]))


def _style(line: str) -> str:
    """Bold headings; their text says what only one side has."""
    if line and not line.startswith(" "):
        return BOLD
    return ""
