"""Every way of writing JAX × everything asked of a capture × CPU and TPU topologies: a table.

    python benchmarks/ways_of_writing.py [--only explicit] [--topologies v5e:2x4,v5p:2x2x2]

A cell is "·" for an answer, "refused" for one clear sentence (printed below), "FAILED" for
anything else. Exit status 1 when one failed. Ways of packages that are not installed are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "python"), str(REPO / "tests" / "python" / "helpers")]
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import hloscope as hs  # noqa: E402
from ways import LIBRARIES, WAYS  # noqa: E402

_REFUSALS = (hs.CannotAnswer, hs.CaptureError)


def questions(cap: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What a person may ask of a capture, by name."""
    yield "html", cap.html
    yield "notebook", cap._repr_mimebundle_
    yield "passes", lambda: str(cap.passes())
    yield "why", lambda: [str(cap.why(c)) for c in cap.collectives]
    yield "memory", lambda: str(cap.memory)
    yield "findings", lambda: str(cap.findings)
    yield "stablehlo", lambda: cap.at("stablehlo").html()
    yield "jaxpr", lambda: cap.at("jaxpr").html()


COLUMNS = tuple("capture html notebook passes why memory findings stablehlo jaxpr".split())


def row(name: str, topology: str) -> tuple[dict[str, str], list[str]]:
    """Cells by column, and the sentences of what was refused or failed."""
    cells, said = dict.fromkeys(COLUMNS, "-"), []

    def ask(column: str, question: Callable[[], Any]) -> Any:
        try:
            answer = question()
            cells[column] = "·"
            return answer
        except _REFUSALS as error:
            cells[column] = "refused"
            said.append(f"{name} {topology} {column}: {error}")
        except Exception as error:
            cells[column] = "FAILED"
            said.append(f"{name} {topology} {column}: {type(error).__name__}: {error}")
        return None

    way = WAYS[name]()
    where = {} if topology == "cpu" else {"topology": topology}
    with way.context() if way.context else contextlib.nullcontext():
        cap = ask(
            "capture", lambda: hs.capture(way.function, *way.arguments, **way.options, **where)
        )
    for column, question in questions(cap) if cap is not None else ():
        if column in ("stablehlo", "jaxpr") and column not in cap.stages:
            continue  # a Lowered or Compiled no longer has it, and its page has no such tab
        ask(column, question)
    return cells, said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of the names of ways")
    parser.add_argument("--topologies", default="v5e:2x4,v5p:2x2x2")
    asked = parser.parse_args()
    places = ["cpu", *filter(None, asked.topologies.split(","))]
    print(f"{'':32} {'':10} {' '.join(f'{c:9}' for c in COLUMNS)}")
    failed, sentences = 0, []
    for name in WAYS:
        library = LIBRARIES.get(name, "jax")
        if asked.only not in name:
            continue
        if importlib.util.find_spec(library) is None:
            print(f"{name:32} {library} is not installed")
            continue
        for place in places:
            cells, said = row(name, place)
            failed += sum(c == "FAILED" for c in cells.values())
            sentences += said
            print(f"{name:32} {place:10} {' '.join(f'{cells[c]:9}' for c in COLUMNS)}", flush=True)
    print(*sentences, sep="\n")
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
