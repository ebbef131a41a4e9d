"""``hloscope svg FILE``: the grouped graph as SVG."""

from __future__ import annotations

import argparse

from .shared import CommandError, add_output, add_picture, add_source, load, write

NAME = "svg"
HELP = "write the grouped graph as SVG (needs Graphviz)"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    add_output(parser)
    add_picture(parser)


def run(arguments: argparse.Namespace) -> None:
    from ..dot import DotFailed, DotMissing, svg

    capture = load(arguments)
    try:
        text = svg(capture, max_nodes=arguments.max_nodes, open=arguments.open)
    except (DotMissing, DotFailed) as error:
        raise CommandError(str(error)) from error
    write(text, arguments.output)
