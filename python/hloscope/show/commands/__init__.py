"""Subcommands, in the order ``hloscope --help`` lists them.

A command is a module with ``NAME``, ``HELP``, ``arguments(parser)`` and ``run(arguments)``,
which returns the exit status or raises ``CommandError``.
"""

from __future__ import annotations

import argparse
from typing import Protocol

from . import (
    check,
    chips,
    compare,
    completion,
    diff,
    dot,
    findings,
    html,
    json,
    list,
    live,
    mcp,
    open,
    passes,
    perfetto,
    prove,
    report,
    reproducer,
    search,
    stages,
    summary,
    svg,
    trace,
)


class Command(Protocol):
    NAME: str
    HELP: str

    def arguments(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, arguments: argparse.Namespace) -> int | None: ...


COMMANDS: tuple[Command, ...] = (
    open,
    summary,
    findings,
    html,
    dot,
    svg,
    json,
    perfetto,
    list,
    diff,
    compare,
    report,
    reproducer,
    check,
    passes,
    trace,
    live,
    search,
    prove,
    mcp,
    stages,
    chips,
    completion,
)
