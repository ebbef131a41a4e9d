"""``hloscope FILE``: the explorer in the browser, or the summary where there is none."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import webbrowser
from pathlib import Path

from ..text import summary_text
from .shared import add_hardware, add_source, load

NAME = "open"
HELP = "open the explorer in the browser (what hloscope FILE alone does)"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    add_hardware(parser)
    parser.add_argument(
        "--no-browser", action="store_true", help="print the summary and open nothing"
    )


def run(arguments: argparse.Namespace) -> None:
    capture = load(arguments)
    browser = None if arguments.no_browser else _browser()
    if browser is None:
        print(summary_text(capture))
        return
    name = re.sub(r"[^\w.-]+", "_", capture.title)[:60] or "module"
    folder = Path(tempfile.mkdtemp(prefix="hloscope-"))
    path = folder / f"{name}.html"
    capture.to_html(path)
    print(path)
    if not browser.open(path.as_uri()):
        print(summary_text(capture))
        print("no browser could be opened; the page is at the path above", file=sys.stderr)


def _browser() -> webbrowser.BaseBrowser | None:
    try:
        return webbrowser.get()
    except webbrowser.Error:
        return None
