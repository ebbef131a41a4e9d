"""``hloscope search MODULE:FUNCTION``: which sharding of its arguments is cheapest."""

from __future__ import annotations

import argparse
import json

from .functions import add_function, axes_of, function_of
from .shared import CommandError, add_output, reason, write

NAME = "search"
HELP = "compile ways to shard a function's arguments and rank them; nothing runs"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_function(parser)
    parser.add_argument(
        "--mesh",
        metavar="AXES",
        action="append",
        required=True,
        help="axis sizes such as data=2,model=4; several times to choose among meshes",
    )
    parser.add_argument("--topology", metavar="NAME", help="a TPU topology, such as v5e:2x4")
    parser.add_argument("--hardware", metavar="CHIP", help="chip to model time on, such as h100")
    parser.add_argument(
        "--cost", choices=("time", "wire", "memory", "log"), default="time", help="what ranks"
    )
    parser.add_argument(
        "--keep",
        metavar="CONSTRAINT",
        action="append",
        default=[],
        help='"fits 16 GiB", "no all-to-all", "no all-gather over model"; may be repeated',
    )
    parser.add_argument(
        "--group",
        metavar="PATTERN",
        action="append",
        default=[],
        help="arguments to shard alike, such as layers/*/wq; may be repeated",
    )
    parser.add_argument("--budget", type=int, default=200, metavar="N", help="compiled at most")
    parser.add_argument("--workers", type=int, metavar="N", help="processes that compile")
    parser.add_argument("--timeout", type=float, default=600, metavar="S", help="of a candidate")
    parser.add_argument("--store", metavar="FILE", help="keeps results; goes on from them")
    parser.add_argument(
        "--measure", type=int, default=0, metavar="K", help="run the best K on devices at hand"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as one JSON object")
    form.add_argument("--html", action="store_true", help="as one offline page")
    form.add_argument("--code", action="store_true", help="the best one's PartitionSpecs")
    add_output(parser)


def run(arguments: argparse.Namespace) -> None:
    fn, args = function_of(arguments.function, arguments.args)
    from ...capturing import CaptureError
    from ...plan.running.options import SearchOptions
    from ...plan.search.search import search_shardings

    try:
        found = search_shardings(
            fn,
            *args,
            mesh=[axes_of(m) for m in arguments.mesh],
            topology=arguments.topology,
            hardware=arguments.hardware,
            cost=arguments.cost,
            constraints=arguments.keep,
            groups=arguments.group or None,
            options=SearchOptions(
                budget=arguments.budget,
                workers=arguments.workers,
                timeout=arguments.timeout,
                store=arguments.store,
                measure=arguments.measure,
            ),
        )
        if arguments.code:
            text = found.code()
        elif arguments.html:
            text = found.html()
        elif arguments.json:
            text = json.dumps(found.to_dict(), indent=2)
        else:
            text = repr(found)
    except (CaptureError, ValueError, OSError) as error:
        raise CommandError(reason(error)) from error
    write(text, arguments.output)
