"""``hloscope html FILE [-o OUT]``: one offline page with the explorer."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..terminal import working
from .shared import CommandError, add_output, add_source, add_timing, load, write

NAME = "html"
HELP = "write one self-contained offline page with the explorer"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    add_timing(parser)
    add_output(parser)


def run(arguments: argparse.Namespace) -> None:
    output = arguments.output or _beside(arguments.file)
    capture = load(arguments)
    large = capture.is_large
    with working("working out cost, memory and collectives …" if large else ""):
        page = str(capture.to_html())
    write(page, output)


def _beside(file: str) -> str:
    """``step.html`` in this folder for ``dumps/step.hlo.pb``; never over a page that is there."""
    name = "module" if file == "-" else Path(file).resolve().name
    path = f"{name.partition('.')[0] or 'module'}.html"
    if Path(path).exists():
        raise CommandError(f"{path} exists; -o {path} writes over it, -o OUT elsewhere")
    return path
