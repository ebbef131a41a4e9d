"""``hloscope reproducer FILE NAME… -o OUT``: a part of a program as a file that runs alone."""

from __future__ import annotations

import argparse

from .shared import CommandError, add_source, load, reason, write

NAME = "reproducer"
HELP = "write instructions or groups as a Python file that runs them alone, for a bug report"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    parser.add_argument("what", metavar="NAME", nargs="+", help="instructions or groups")
    parser.add_argument("-o", "--output", metavar="OUT", required=True, help="such as bug.py")


def run(arguments: argparse.Namespace) -> None:
    capture = load(arguments)
    try:
        path = capture.to_reproducer(arguments.output, *arguments.what)
    except (ValueError, LookupError, OSError) as error:
        raise CommandError(reason(error)) from error
    write(str(path), None)
