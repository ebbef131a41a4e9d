"""``hloscope mcp``: what a coding agent asks, over standard input and output."""

from __future__ import annotations

import argparse

from .shared import CommandError

NAME = "mcp"
HELP = "answer a coding agent's questions about programs (Model Context Protocol, stdio)"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow-run",
        action="store_true",
        help="also import, trace and compile your code, which captures and tried changes need",
    )


def run(arguments: argparse.Namespace) -> None:
    try:
        from ..agents.server import server
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "pydantic"):
            raise
        raise CommandError(
            'hloscope mcp needs the package mcp, 2.1 or newer: pip install "hloscope[mcp]"'
        ) from error
    server(allow_run=arguments.allow_run).run("stdio")
