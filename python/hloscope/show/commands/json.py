"""``hloscope json FILE``: the View as JSON, for other programs."""

from __future__ import annotations

import argparse
import json

from .shared import add_hardware, add_output, add_source, load, write

NAME = "json"
HELP = "write the View (graph, groups, folds, labels) as JSON"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    add_hardware(parser)
    add_output(parser)


def run(arguments: argparse.Namespace) -> None:
    from ...view.schema import joined

    capture = load(arguments)
    header, columns = joined(capture.view_bytes, capture.analyses_bytes)
    header.pop("columns")
    strings = columns.pop("strings")
    tables = {name: values.tolist() for name, values in columns.items()}
    write(json.dumps({"header": header, "strings": strings, "columns": tables}), arguments.output)
