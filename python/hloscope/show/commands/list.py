"""``hloscope list FILE|DIR``: the modules in a file or dump directory."""

from __future__ import annotations

import argparse
import json

from ...hlo.parts import printable
from ..terminal import BOLD
from .shared import SOURCE, CommandError, add_timing, content, reason, write

NAME = "list"
HELP = "list the modules in a file or dump directory"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE|DIR", help=SOURCE)
    parser.add_argument(
        "--figures",
        action="store_true",
        help="also FLOPs, bytes and peak of each, and how often it ran where a trace says so",
    )
    add_timing(parser)
    parser.add_argument("--json", action="store_true", help="as one JSON object")


def run(arguments: argparse.Namespace) -> None:
    if arguments.figures or arguments.profile or arguments.hardware:
        return _figures(arguments)
    from ...readers import list_modules

    try:
        found = list_modules(content(arguments.file))
    except (ValueError, OSError) as error:
        raise CommandError(reason(error)) from error
    if arguments.json:
        entries = [
            {"name": e.name, "number": e.index, "stage": e.stage, "instructions": e.instructions}
            for e in found
        ]
        return write(json.dumps({"modules": entries}, indent=2), None)
    rows = [
        (str(e.index), e.name, e.stage, "" if e.instructions is None else f"{e.instructions:,}")
        for e in found
    ]
    rows.insert(0, ("N", "module", "stage", "instructions"))
    used = [k for k in range(4) if any(row[k] for row in rows[1:])]
    widths = {k: max(len(printable(row[k])) for row in rows) for k in used}
    lines = ("  ".join(printable(row[k]).ljust(widths[k]) for k in used).rstrip() for row in rows)
    write("\n".join(lines), None)


def _figures(arguments: argparse.Namespace) -> None:
    from ...api.programs import read_programs

    try:
        found = read_programs(
            content(arguments.file), profile=arguments.profile, hardware=arguments.hardware
        )
    except (ValueError, LookupError, OSError) as error:
        raise CommandError(reason(error)) from error
    if arguments.json:
        write(json.dumps(found.to_dict(), indent=2), None)
    else:
        write(str(found), None, lambda line: BOLD if line.startswith("program ") else "")
