"""``hloscope html FILE [-o OUT]``: one offline page with the explorer."""

from __future__ import annotations

import argparse
import html
import re
import sys
from pathlib import Path

from ..terminal import working
from ..text import is_large
from .shared import CommandError, add_output, add_source, add_timing, load, write

NAME = "html"
HELP = "write one self-contained offline page with the explorer"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    add_timing(parser)
    parser.add_argument(
        "--passes",
        action="store_true",
        help="include what every compiler pass did; FILE is a folder with a dump of every pass",
    )
    add_output(parser)


def run(arguments: argparse.Namespace) -> None:
    output = arguments.output or _beside(arguments.file)
    capture = load(arguments)
    if arguments.passes and not capture.has_passes:
        raise CommandError(
            f"{arguments.file} holds no passes: give a folder dumped with "
            "--xla_dump_hlo_as_text --xla_dump_hlo_pass_re=.*"
        )
    large = is_large(capture)
    with working("working out cost, memory and collectives …" if large else ""):
        page = capture.html(passes=arguments.passes)
    write(page, output)
    if arguments.passes:
        print(_told(page), file=sys.stderr)


def _told(page: str) -> str:
    """How much of the page the passes take, or why they are not in it."""
    from ...analysis.text.units import size

    found = re.search(r'id="hloscope-passes">([^<]*)<', page)
    if found is not None:
        return f"hloscope: the passes take {size(len(found[1]))} of {size(len(page))}"
    why = re.search(r'data-no-passes="([^"]*)"', page)
    return f"hloscope: the passes are left out: {html.unescape(why[1]) if why else ''}"


def _beside(file: str) -> str:
    """``step.html`` in this folder for ``dumps/step.hlo.pb``; never over an existing page."""
    name = "module" if file == "-" else Path(file).resolve().name
    path = f"{name.partition('.')[0] or 'module'}.html"
    if Path(path).exists():
        raise CommandError(f"{path} exists; -o {path} writes over it, -o OUT elsewhere")
    return path
