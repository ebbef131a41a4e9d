"""Subcommands, in the order ``hloscope --help`` lists them.

A command is a module of its name with ``NAME``, ``HELP``, ``arguments(parser)`` and
``run(arguments)``, which returns the exit status or raises ``CommandError``. It is imported when
it is asked for.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Protocol, cast

NAMES = (
    "open",
    "summary",
    "findings",
    "html",
    "dot",
    "svg",
    "json",
    "perfetto",
    "list",
    "diff",
    "compare",
    "report",
    "reproducer",
    "check",
    "passes",
    "trace",
    "live",
    "search",
    "prove",
    "mcp",
    "stages",
    "chips",
    "completion",
)


class Command(Protocol):
    NAME: str
    HELP: str

    def arguments(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, arguments: argparse.Namespace) -> int | None: ...


def command(name: str) -> Command:
    """The command of ``NAMES``."""
    return cast(Command, import_module(f".{name}", __name__))
