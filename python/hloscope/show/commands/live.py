"""``hloscope live FILE [LATER]``: a memory profile by line, or what a later one adds."""

from __future__ import annotations

import argparse
import json

from .shared import CommandError, add_output, content, reason, write

NAME = "live"
HELP = "print what a device memory profile (memory.prof) holds, or what a later one has more of"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="memory.prof, or - for stdin")
    parser.add_argument("later", metavar="LATER", nargs="?", help="a later one, to compare")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as one JSON object")
    form.add_argument("--html", metavar="OUT", help="write one offline page, not text")
    add_output(parser)


def run(arguments: argparse.Namespace) -> None:
    from ...api.live import live

    try:
        found = live(content(arguments.file))
        shown = found if arguments.later is None else found.diff(live(content(arguments.later)))
    except (ValueError, OSError) as error:
        raise CommandError(reason(error)) from error
    if arguments.html:
        write(shown.html(), arguments.html)
        return
    text = json.dumps(shown.to_dict(), indent=2) if arguments.json else str(shown)
    write(text, arguments.output)
