"""``hloscope json FILE``: the View as JSON, for other programs."""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .shared import add_output, add_source, add_timing, load, write

NAME = "json"
HELP = "write the View (graph, groups, folds, labels) as JSON"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    add_timing(parser)
    add_output(parser)


def run(arguments: argparse.Namespace) -> None:
    from ...view.schema import joined
    from .. import blocks

    capture = load(arguments)
    header, columns = joined(blocks.view(capture), blocks.analyses(capture))
    header.pop("columns")
    strings = columns.pop("strings")
    tables = {name: _plain(values) for name, values in columns.items()}
    found = {"header": header, "strings": strings, "columns": tables}
    write(json.dumps(found, allow_nan=False), arguments.output)


def _plain(values: NDArray[Any]) -> list[Any]:
    """Values for JSON: null where a figure is unknown, for which columns hold NaN."""
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return list(values.tolist())
    return [v if math.isfinite(v) else None for v in values.tolist()]
