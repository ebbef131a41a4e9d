"""``hloscope search MODULE:FUNCTION``: which sharding of its arguments is cheapest."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

from .shared import CommandError, add_output, reason, write

NAME = "search"
HELP = "compile ways to shard a function's arguments and rank them; nothing runs"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "function", metavar="MODULE:FUNCTION", help="train:step, or path/to/train.py:step"
    )
    parser.add_argument(
        "--args",
        metavar="NAME",
        help="in the same module, a tuple of arguments (shapes will do) or a function that gives "
        "one; FUNCTION_args by default",
    )
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
    fn, args = _function(arguments.function, arguments.args)
    from ...capturing import CaptureError
    from ...plan.running.options import SearchOptions
    from ...plan.search.search import search_shardings

    try:
        found = search_shardings(
            fn,
            *args,
            mesh=[_axes(m) for m in arguments.mesh],
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


def _axes(text: str) -> dict[str, int]:
    axes = {}
    for part in text.split(","):
        axis, _, size = part.partition("=")
        if not axis.strip().isidentifier() or not size.strip().isdigit():
            raise CommandError(f"--mesh is axis=size pairs such as data=2,model=4, not {text!r}")
        axes[axis.strip()] = int(size)
    return axes


def _function(text: str, args_name: str | None) -> tuple[Any, tuple[Any, ...]]:
    """The function and its arguments. Raises ``CommandError``."""
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name:
        raise CommandError(f"give MODULE:FUNCTION, such as train:step, not {text!r}")
    from ...hardware.platforms import choose_cpu_before_jax

    choose_cpu_before_jax()
    module = _module(place)
    names = [n for n in vars(module) if not n.startswith("_")]
    if not hasattr(module, name):
        raise CommandError(f"{place} has no {name}{_near(name, names)}")
    wanted = args_name or f"{name}_args"
    if not hasattr(module, wanted):
        raise CommandError(
            f"{place} has no {wanted}: a tuple of {name}'s arguments, or a function that gives "
            f"one; name another with --args{_near(wanted, names)}"
        )
    args = getattr(module, wanted)
    args = args() if callable(args) else args
    if not isinstance(args, tuple):
        raise CommandError(f"{wanted} is a {type(args).__name__}, not a tuple of arguments")
    return getattr(module, name), args


def _near(name: str, names: list[str]) -> str:
    from difflib import get_close_matches

    found = get_close_matches(name, names, 1)
    return f"; did you mean {found[0]}?" if found else ""


def _module(place: str) -> Any:
    try:
        if place.endswith(".py") or os.sep in place:
            path = Path(place)
            if not path.is_file():
                raise CommandError(f"{place}: no such file")
            sys.path.insert(0, str(path.resolve().parent))
            return importlib.import_module(path.stem)
        if "" not in sys.path:
            sys.path.insert(0, "")
        return importlib.import_module(place)
    except CommandError:
        raise
    except Exception as error:  # whatever the user's module raises
        first = (str(error).splitlines() or [""])[0]
        raise CommandError(f"{place} cannot be imported: {type(error).__name__}: {first}") from None
