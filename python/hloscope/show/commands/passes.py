"""``hloscope passes DIR``: what each pass of the compiler changed, as a table or JSON.

With the time of each, where XLA wrote when it ran (``--xla_dump_module_metadata``).
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from ..terminal import BOLD, working
from .shared import CommandError, add_output, reason, write

NAME = "passes"
HELP = "list what each compiler pass changed, from a dump of every pass"

# Up to this many bytes of text, instructions are followed by default: some 10 s.
_FOLLOWED = 50_000_000

_NOT_FOLLOWED = "Instructions were not followed through these passes; --identity does."


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        metavar="DIR",
        help="what XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_as_text "
        "--xla_dump_hlo_pass_re=.*' wrote",
    )
    parser.add_argument(
        "--module", metavar="NAME|N", help="which module, by name or number (see list)"
    )
    parser.add_argument(
        "--costs",
        action="store_true",
        help="also FLOPs, bytes and peak after each pass, which takes longer",
    )
    parser.add_argument(
        "--identity",
        action="store_true",
        help="also how instructions were followed through the passes, and how sure that is; "
        f"said without asking for dumps under {_FOLLOWED / 1e6:,.0f} MB",
    )
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    add_output(parser)


def run(arguments: argparse.Namespace) -> None:
    from ...analysis.passes.passes import passes
    from ...analysis.passes.times import times_of_dump
    from ...analysis.provenance.inferred import infer
    from ...readers.files.pass_dump import list_passes, read_passes
    from ...readers.files.pass_times import read_times

    module = arguments.module
    if module is not None and module.lstrip("-").isdigit():
        module = int(module)
    try:
        snapshots = read_passes(arguments.folder, module)
        number = list_passes(arguments.folder, module)[0].index
        size = sum(s.size for s in snapshots)
        slow = f"reading {len(snapshots)} passes, {size / 1e6:,.0f} MB …" if size > 2e7 else ""
        with working(slow):
            found = passes(snapshots)
            times = times_of_dump(read_times(arguments.folder, number))
            found = found if times is None else found.timed(times)
            costs = [found.cost(r) for r in found.rows] if arguments.costs else []
            wanted = arguments.identity or size <= _FOLLOWED
            identity = infer(found) if wanted else None
            how_sure = "" if identity is None else str(identity)
    except (ValueError, LookupError, OSError) as error:
        raise CommandError(reason(error)) from error
    if arguments.json:
        whole = found.to_dict()
        for row, cost in zip(whole["rows"], costs, strict=False):
            row.update(cost)
        whole["identity"] = None if identity is None else identity.to_dict()
        write(json.dumps(whole, indent=2), arguments.output)
        return
    lines = str(found)
    if costs:
        lines += "\n\n" + "\n".join(
            _cost(r.title, c) for r, c in zip(found.rows, costs, strict=True)
        )
    lines += "\n\n" + (how_sure or _NOT_FOLLOWED)
    write(lines, arguments.output, lambda line: "" if line.startswith(" ") else BOLD)


def _cost(title: str, cost: dict[str, Any]) -> str:
    named = {"flops": "FLOPs", "bytes_accessed": "bytes accessed", "peak_bytes": "bytes at peak"}
    said = [f"{v:,.0f} {what}" for key, what in named.items() if (v := cost[key]) is not None]
    whole = " (of all devices together)" if cost["shapes"] == "global" else ""
    return f"  {title}: " + (", ".join(said) + whole if said else "not known")
