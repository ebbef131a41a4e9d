"""``hloscope list FILE|DIR``: the modules in a file or dump directory."""

from __future__ import annotations

import argparse

from ...hlo.parts import printable
from .shared import SOURCE, CommandError, content, reason, write

NAME = "list"
HELP = "list the modules in a file or dump directory"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE|DIR", help=SOURCE)


def run(arguments: argparse.Namespace) -> None:
    from ...readers import list_modules

    try:
        found = list_modules(content(arguments.file))
    except (ValueError, OSError) as error:
        raise CommandError(reason(error)) from error
    rows = [
        (str(e.index), e.name, e.stage, "" if e.instructions is None else f"{e.instructions:,}")
        for e in found
    ]
    rows.insert(0, ("N", "module", "stage", "instructions"))
    used = [k for k in range(4) if any(row[k] for row in rows[1:])]
    widths = {k: max(len(printable(row[k])) for row in rows) for k in used}
    lines = ("  ".join(printable(row[k]).ljust(widths[k]) for k in used).rstrip() for row in rows)
    write("\n".join(lines), None)
