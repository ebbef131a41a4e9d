"""``hloscope compare A B C``: any number of programs beside each other."""

from __future__ import annotations

import argparse
import json

from .shared import SOURCE, CommandError, add_output, reason, write

NAME = "compare"
HELP = "a table of any number of programs: step, peak, wire, FLOPs"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", help=SOURCE)
    parser.add_argument("--hardware", metavar="CHIP", help="chip to model time on, such as h100")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as one JSON object")
    form.add_argument("--html", action="store_true", help="as one offline page")
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    from ...hardware import HardwareError
    from ...plan.comparing.compare import compare

    names = {f: f for f in arguments.files}
    try:
        found = compare(names, hardware=arguments.hardware)
    except (HardwareError, ValueError, OSError) as error:
        raise CommandError(reason(error)) from error
    if all(v.error for v in found):
        raise CommandError(f"{found[0].name}: {found[0].error}")
    if arguments.html:
        text = found.html()
    elif arguments.json:
        text = json.dumps(found.to_dict(), indent=2)
    else:
        text = repr(found)
    write(text, arguments.output)
    return 2 if any(v.error for v in found) else 0
