"""``hloscope dot FILE``: the grouped graph as DOT."""

from __future__ import annotations

import argparse

from .shared import add_output, add_picture, add_source, load, write

NAME = "dot"
HELP = "write the grouped graph as DOT text"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    add_output(parser)
    add_picture(parser)


def run(arguments: argparse.Namespace) -> None:
    from ..dot import digraph

    graph = digraph(load(arguments), max_nodes=arguments.max_nodes, open=arguments.open)
    write(graph.source, arguments.output)
