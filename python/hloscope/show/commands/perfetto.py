"""``hloscope perfetto FILE -o OUT``: the step as a trace for Perfetto's UI."""

from __future__ import annotations

import argparse

from .shared import CommandError, add_source, add_timing, load, reason, write

NAME = "perfetto"
HELP = "write the modelled and measured step as a trace that Perfetto's UI opens"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    add_timing(parser)
    parser.add_argument("-o", "--output", metavar="OUT", required=True, help="such as step.json.gz")


def run(arguments: argparse.Namespace) -> None:
    capture = load(arguments)
    try:
        path = capture.to_perfetto(arguments.output)
    except (ValueError, OSError) as error:
        raise CommandError(reason(error)) from error
    write(str(path), None)
