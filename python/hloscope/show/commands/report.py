"""``hloscope report A [B]``: a program, or what differs between two, as Markdown."""

from __future__ import annotations

import argparse

from .shared import SOURCE, add_output, add_timing, load, write

NAME = "report"
HELP = "print findings and tables as Markdown, or what differs from A in B"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="A", help=SOURCE)
    parser.add_argument("b", metavar="B", nargs="?", help="another program: what differs in it")
    parser.add_argument("--module", metavar="NAME|N", help="which module of A (and of B)")
    parser.add_argument("--stage", metavar="STAGE", help="which stage of a dump directory")
    add_timing(parser)
    add_output(parser)


def run(arguments: argparse.Namespace) -> None:
    capture = load(arguments)
    if arguments.b is None:
        write(capture.to_markdown(), arguments.output)
        return
    from ...api.compared import diff

    other = load(argparse.Namespace(**{**vars(arguments), "file": arguments.b, "profile": None}))
    found = diff(capture, other)
    write(f"{found.to_markdown()}\n{other.to_markdown()}", arguments.output)
