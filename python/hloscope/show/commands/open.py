"""``hloscope FILE``: the explorer in the browser, or the summary if there is none."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import webbrowser
from pathlib import Path

from ..terminal import working
from ..text import is_large, summary_text
from .shared import add_source, add_timing, load, write

NAME = "open"
HELP = "open the explorer in the browser (what hloscope FILE alone does)"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    add_timing(parser)
    parser.add_argument(
        "--no-browser", action="store_true", help="print the summary and open nothing"
    )


def run(arguments: argparse.Namespace) -> None:
    capture = load(arguments)
    browser = None if arguments.no_browser else _browser()
    if browser is None:
        write(summary_text(capture), None)
        return
    name = re.sub(r"[^\w.-]+", "_", capture.title)[:60] or "module"
    folder = Path(tempfile.mkdtemp(prefix="hloscope-"))
    path = folder / f"{name}.html"
    large = is_large(capture)
    with working("working out cost, memory and collectives …" if large else ""):
        capture.to_html(path)
    write(str(path), None)
    if not browser.open(path.as_uri()):
        write(summary_text(capture), None)
        print("no browser could be opened; the page is at the path above", file=sys.stderr)


# Terminal browsers: they run no scripts, so there the summary says more.
_TEXT_ONLY = {"www-browser", "links", "elinks", "lynx", "w3m"}


def _browser() -> webbrowser.BaseBrowser | None:
    try:
        found = webbrowser.get()
    except webbrowser.Error:
        return None
    return None if getattr(found, "name", "") in _TEXT_ONLY else found
