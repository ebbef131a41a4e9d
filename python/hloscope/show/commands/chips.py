"""``hloscope chips``: the chips that time can be modelled on, with their peak figures."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from ...analysis.text.units import grid, quantity, size
from ...hardware import HardwareError, load
from ..terminal import BOLD
from .shared import CommandError, add_output, write

NAME = "chips"
HELP = "list the chips to model time on, with their figures and sources"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as one JSON object, with sources")
    add_output(parser)


def run(arguments: argparse.Namespace) -> None:
    try:
        chips = load()
    except HardwareError as error:
        raise CommandError(str(error)) from error
    if arguments.json:
        found = {name: asdict(chip) for name, chip in chips.items()}
        write(json.dumps(found, indent=2, default=dict), arguments.output)
        return
    rows = [
        (
            chip.id,
            chip.label,
            size(chip.memory_bytes),
            quantity(chip.memory_bandwidth, "B/s"),
            quantity(chip.matmul_rate("bf16"), "FLOP/s"),
            quantity(chip.links[0].bytes_per_second, "B/s") if chip.links else "none",
        )
        for chip in chips.values()
    ]
    head = ("id", "per device", "memory", "bandwidth", "bf16 matmul", "a link, one way")
    text = "\n".join(grid(head, rows))
    write(text, arguments.output, lambda line: BOLD if line.startswith("id") else "")
