"""``hloscope diff A B``: what differs between two programs, as text, JSON or a page."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from .shared import CommandError, load, reason, write

NAME = "diff"
HELP = "compare two modules by structure; status 1 when they differ"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="HLO text, .pb, .gz, or a dump directory")
    parser.add_argument("b", metavar="B", help="the other one")
    parser.add_argument("--module", metavar="NAME|N", help="which module of A (and of B)")
    parser.add_argument("--module-b", metavar="NAME|N", help="which module of B, if another")
    parser.add_argument("--stage", metavar="STAGE", help="which stage of a dump directory")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as one JSON object")
    form.add_argument("--html", metavar="OUT", help="write one offline page instead of text")
    parser.add_argument(
        "--limit", type=int, default=40, metavar="N", help="rows of each list (%(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    from ...analysis.diff import diff
    from ...analysis.diff_text import text

    sides = [
        load(argparse.Namespace(file=file, module=module, stage=arguments.stage))
        for file, module in (
            (arguments.a, arguments.module),
            (arguments.b, arguments.module_b or arguments.module),
        )
    ]
    found = diff(*sides)
    if arguments.json:
        write(json.dumps(found.to_dict(), indent=2), None)
    elif arguments.html:
        try:
            print(found.to_html(Path(arguments.html)))
        except OSError as error:
            raise CommandError(reason(error)) from error
    else:
        write(text(found, max(0, arguments.limit)), None)
    return 1 if found else 0
