"""``hloscope stages LOG``: a log of Alpa's stage construction, and the choices it weighed."""

from __future__ import annotations

import argparse
import json

from .shared import CommandError, add_output, content, reason, write

NAME = "stages"
HELP = "show the log of a planner of pipeline stages (Alpa), and what it weighed"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="LOG", help="text with Alpa's lines result[…], or -")
    parser.add_argument(
        "--microbatches", type=int, metavar="B", help="where the text does not say how many"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as one JSON object")
    form.add_argument("--html", action="store_true", help="as one offline page")
    add_output(parser)


def run(arguments: argparse.Namespace) -> None:
    from dataclasses import replace

    from ...plan.stages.read import read_stage_log

    try:
        log = read_stage_log(content(arguments.file))
        if arguments.microbatches is not None:
            log = replace(log, microbatches=arguments.microbatches)
        if arguments.html:
            text = log.html()
        elif arguments.json:
            found = log.to_dict()
            if log.microbatches is not None:
                found["plan"] = log.plan().to_dict()
            text = json.dumps(found, indent=2)
        else:
            text = repr(log)
    except (ValueError, OSError) as error:
        raise CommandError(reason(error)) from error
    write(text, arguments.output)
