"""``hloscope list FILE|DIR``: the modules in a file or dump directory."""

from __future__ import annotations

import argparse

from ..text import printable
from .shared import CommandError, existing, reason

NAME = "list"
HELP = "list the modules in a file or dump directory"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE|DIR", help="HLO text, .pb, .gz, or a dump directory")


def run(arguments: argparse.Namespace) -> None:
    from ...readers import list_modules

    try:
        found = list_modules(existing(arguments.file))
    except (ValueError, OSError) as error:
        raise CommandError(reason(error)) from error
    rows = [
        (str(e.index), e.name, e.stage, "" if e.instructions is None else f"{e.instructions:,}")
        for e in found
    ]
    rows.insert(0, ("N", "module", "stage", "instructions"))
    used = [k for k in range(4) if any(row[k] for row in rows[1:])]
    widths = {k: max(len(printable(row[k])) for row in rows) for k in used}
    for row in rows:
        print("  ".join(printable(row[k]).ljust(widths[k]) for k in used).rstrip())
