"""``hloscope prove MODULE:FUNCTION``: the advice of findings, tried and compiled."""

from __future__ import annotations

import argparse
import json

from .functions import add_function, axes_of, function_of
from .shared import CommandError, add_output, reason, write

NAME = "prove"
HELP = "compile what findings advise, and say what each gains; nothing runs"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_function(parser)
    parser.add_argument("--mesh", metavar="AXES", help="axis sizes such as data=2,model=4")
    parser.add_argument("--topology", metavar="NAME", help="a TPU topology, such as v5e:2x4")
    parser.add_argument("--hardware", metavar="CHIP", help="chip to model time on, such as h100")
    parser.add_argument(
        "--workers", type=int, metavar="N", help="processes that compile; without, this one does"
    )
    parser.add_argument("--timeout", type=float, default=600, metavar="S", help="of each")
    parser.add_argument("--store", metavar="FILE", help="keeps results; goes on from them")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as one JSON object")
    form.add_argument("--html", action="store_true", help="the explorer, as one offline page")
    add_output(parser)


def run(arguments: argparse.Namespace) -> None:
    fn, args = function_of(arguments.function, arguments.args)
    from ...capturing import CaptureError, capture
    from ...plan.running.options import ProofOptions

    try:
        cap = capture(
            fn,
            *args,
            mesh=axes_of(arguments.mesh) if arguments.mesh else None,
            topology=arguments.topology,
            hardware=arguments.hardware,
        )
        found = cap.findings.prove(
            ProofOptions(
                workers=arguments.workers,
                isolate=arguments.workers is not None,
                timeout=arguments.timeout,
                store=arguments.store,
            )
        )
        if arguments.html:
            text = cap.html()
        elif arguments.json:
            text = json.dumps(found.to_dict(), indent=2)
        else:
            text = str(found)
            if not any(f.changes for f in found):
                text += "\n\nNothing was tried: hloscope can make none of the changes advised here"
    except (CaptureError, ValueError, OSError) as error:
        raise CommandError(reason(error)) from error
    write(text, arguments.output)
