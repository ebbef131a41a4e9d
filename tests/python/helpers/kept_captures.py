"""Captures as files, with what capturing knows besides the text, so that tests need not compile.

    save(path, capture)       the module's text, its target, the origins of its instructions
    load(path)                the same Capture, without a compiler

``python tests/python/helpers/kept_captures.py NAME@TOPOLOGY …`` makes them again from
``tests/corpus/``; with ``--dump`` before the names, text and proto of these programs instead.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import hloscope as hs
from hloscope.hlo.mesh import Mesh
from hloscope.hlo.module import Module
from hloscope.hlo.origins.operations import Frame, Operation, Origin
from hloscope.hlo.origins.origins import Origins
from hloscope.hlo.target import Argument, Device, Target

FOLDER = Path(__file__).resolve().parents[2] / "golden" / "programs"
READERS = ("before_partitioning", "after_partitioning")
WORKED_OUT = ("asked_lines",)  # a capture puts them in again
TIMED = ("slow_to_compile", "compile_seconds")  # other in every compile
TRACED = ("unmet_names",)  # of the traced program; no kept one has any


def save(path: Path, capture: hs.Capture, replaced: dict[str, str]) -> None:
    """``replaced``: folders of this machine, and what replaces them in the file."""
    target, known = capture.target, capture.module.origins
    said = {k: v for k in READERS if (v := _text(getattr(target, k))) is not None}
    plain = asdict(replace(target, **dict.fromkeys((*READERS, *WORKED_OUT))))
    made = {
        "text": capture.text,
        "target": {k: v for k, v in plain.items() if k not in (*READERS, *TIMED, *TRACED)},
        "modules": said,
        "stablehlo": capture.at("stablehlo").text,
        "origins": None
        if known is None
        else {
            "operations": [asdict(o) for o in known.operations],
            "of": [[[o.operation, o.calls] for o in of] for of in known.of],
        },
    }
    text = json.dumps(made)
    for folder, stands in replaced.items():
        text = text.replace(folder, stands)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def _text(reader: Any) -> str | None:
    found = reader() if reader is not None else None
    return found.text if found is not None else None


def load(path: Path) -> hs.Capture:
    kept = json.loads(gzip.decompress(path.read_bytes()))
    module = hs.read(kept["text"]).module
    if kept["origins"] is not None:
        module.origins = Origins(
            tuple(_operation(o) for o in kept["origins"]["operations"]),
            tuple(tuple(Origin(n, tuple(c)) for n, c in of) for of in kept["origins"]["of"]),
        )
    target = _target(kept["target"])
    read = {k: _reader(text) for k, text in kept["modules"].items()}
    title = path.name.partition(".")[0]
    stages = {"stablehlo": lambda: hs.read(kept["stablehlo"])}
    return hs.Capture(module, replace(target, **read), title=title, program=KeptStages(stages))


class KeptStages:
    """The other stages of a kept program, as a live one makes them."""

    def __init__(self, made: dict[str, Callable[[], hs.Capture]]) -> None:
        self.made = made
        self.stages = list(made)

    def at(self, stage: str) -> hs.Capture:
        return self.made[stage]()

    def profile(self, args: Any, kwargs: Any, steps: int) -> Any:
        raise AssertionError("a kept program cannot run")


def _reader(text: str) -> Any:
    def read() -> Module:
        return hs.read(text).module

    return read


def _operation(kept: dict[str, Any]) -> Operation:
    frames = tuple(Frame(**_tuples(f)) if isinstance(f, dict) else f for f in kept["frames"])
    return Operation(**{**kept, "frames": frames})


def _target(kept: dict[str, Any]) -> Target:
    made: dict[str, Any] = {k: v for k, v in kept.items() if not isinstance(v, list)}
    for name, cls in (("devices", Device), ("arguments", Argument), ("results", Argument)):
        made[name] = tuple(cls(**_tuples(d)) for d in kept[name])
    made["mesh"] = Mesh(**_tuples(kept["mesh"])) if kept["mesh"] else None
    made["compiler_messages"] = tuple(kept["compiler_messages"])
    assert made.keys() | {*READERS, *WORKED_OUT, *TIMED, *TRACED} == {
        f.name for f in fields(Target)
    }
    return Target(**made)


def _tuples(value: Any) -> Any:
    """Turns lists from JSON back into tuples."""
    if isinstance(value, list):
        return tuple(_tuples(v) for v in value)
    return {k: _tuples(v) for k, v in value.items()} if isinstance(value, dict) else value


def main() -> None:
    os.environ |= {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_HOSTNAMES": "localhost",
    }
    repo = FOLDER.parents[2]
    sys.path.insert(0, str(repo / "tests"))
    from corpus.build import build

    replaced = {f"{repo}/": "/src/", sys.prefix: "/python"}
    dumps = "--dump" in sys.argv
    for spec in sys.argv[2 if dumps else 1 :]:
        name, _, topology = spec.partition("@")
        built = build(name, topology or None)
        stem = f"{name}-{topology.partition(':')[0]}" if topology else name
        if dumps:
            dump(stem, built.text.encode(), built.proto, str(repo))
        else:
            save(FOLDER / f"{stem}.capture.gz", built.recaptured, replaced)
        print(stem, len(built.module.instructions), "instructions")


def dump(stem: str, text: bytes, proto: bytes, repo: str) -> None:
    """Replaces this machine's folder by one of the same length: a proto counts its bytes."""
    other = "/home/programs".ljust(len(repo), "_")[: len(repo)]
    for suffix, data in (("hlo", text), ("pb", proto)):
        plain = data.replace(repo.encode(), other.encode())
        (FOLDER / f"{stem}.{suffix}.gz").write_bytes(gzip.compress(plain, 9, mtime=0))


if __name__ == "__main__":
    main()
