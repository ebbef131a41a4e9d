"""``hloscope html FILE -o OUT``: one offline page with the explorer."""

from __future__ import annotations

import argparse

from .shared import add_hardware, add_output, add_source, load, write

NAME = "html"
HELP = "write one self-contained offline page with the explorer"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    add_hardware(parser)
    add_output(parser, required=True)


def run(arguments: argparse.Namespace) -> None:
    write(str(load(arguments).to_html()), arguments.output)
