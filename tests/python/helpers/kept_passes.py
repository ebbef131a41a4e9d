"""All passes of small programs as files, so that tests need not compile.

    GROUP.dump.xz     XLA's dumps of each, without marked operations
    GROUP.marked.xz   a capture of each: marks, StableHLO and its jaxpr

``python tests/python/helpers/kept_passes.py`` makes them again.
"""

from __future__ import annotations

import json
import lzma
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import hloscope as hs
from hloscope.api.capture import PassRecord
from hloscope.hlo.module import Module
from hloscope.hlo.origins.operations import Origin
from hloscope.hlo.origins.origins import Origins
from hloscope.hlo.snapshots import Snapshot
from hloscope.hlo.target import Target
from kept_captures import KeptStages, _operation

FOLDER = Path(__file__).resolve().parents[2] / "golden" / "passes"


def write(path: Path, made: Any) -> None:
    text = json.dumps(made).replace(str(FOLDER.parents[1] / "python" / "provenance"), "/w")
    path.write_bytes(lzma.compress(text.encode(), preset=9))


def parsed(path: Path) -> Any:
    return json.loads(lzma.decompress(path.read_bytes()))


def unpack(texts: dict[str, str], folder: Path) -> Path:
    """The folder that XLA dumped to."""
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder


def load(made: Any, *, marked: bool = True) -> hs.Capture:
    """A capture with its passes, from what ``kept`` made; ``marked=False`` leaves the marks out."""
    operations = tuple(map(_operation, made["operations"]))

    def module(part: dict[str, Any]) -> Module:
        found = hs.read(part["text"]).module
        if marked and part["of"] is not None:
            rows = (tuple(Origin(n, tuple(c)) for n, c in of) for of in part["of"])
            found.origins = Origins(operations, tuple(rows))
        return found

    def snapshot(part: dict[str, Any]) -> Snapshot:
        known = marked and part["operations"] is not None
        still = frozenset(part["operations"]) if known else None
        words = {k: part[k] for k in ("number", "pipeline", "passed", "upcoming", "size")}
        return Snapshot(
            **words, text=lambda: part["text"], module=lambda: module(part), operations=still
        )

    stages: dict[str, Callable[[], hs.Capture]] = {
        "jaxpr": lambda: hs.Capture(_jaxpr(made["jaxpr"]), stage="jaxpr"),
        "stablehlo": lambda: hs.Capture(module(made["stablehlo"]), stage="stablehlo"),
    }
    found = tuple(map(snapshot, made["snapshots"])), ""
    return hs.Capture(
        module(made["last"]),
        Target(sources=made["sources"]),
        title="kept",
        program=KeptStages(stages) if marked else None,
        passes=PassRecord(lambda: found, is_kept=True),
    )


def _jaxpr(text: str) -> Module:
    module = hs.read(text).module
    vars(module)["dialect"] = "jaxpr"
    return module


def _with_lines(jaxpr: hs.Capture) -> str:
    """Its text after a table of the innermost line of each equation, as XLA writes one."""
    table, ids = jaxpr.module.source_frames()
    tops = {k: table.stack(k)[0] for k in sorted(set(ids)) if k}
    files = list(dict.fromkeys(f.file for f in tops.values()))
    lines = ["FileNames", *(f'{n} "{file}"' for n, file in enumerate(files, 1)), ""]
    lines += ["FunctionNames", '1 "f"', "", "FileLocations"]
    for k, f in tops.items():
        where = f"line={f.line} end_line={f.end_line} column={f.column} end_column={f.end_column}"
        number = files.index(f.file) + 1
        lines.append(f"{k} {{file_name_id={number} function_name_id=1 {where}}}")
    lines += ["", "StackFrames", *(f"{k} {{file_location_id={k}}}" for k in tops), ""]
    head, _, rest = jaxpr.text.partition("\n")
    return "\n".join([head.replace("jaxpr ", "HloModule "), "", *lines, rest])


def kept(cap: hs.Capture) -> Any:
    def plain(module: Module, text: str) -> dict[str, Any]:
        known = module.origins
        of = None if known is None else [[[o.operation, o.calls] for o in x] for x in known.of]
        return {"text": text, "of": of}

    assert cap.for_hosts.record is not None
    assert cap.module.origins is not None
    rows = [
        {
            "number": s.number, "pipeline": s.pipeline, "passed": s.passed,
            "upcoming": s.upcoming, "size": s.size,
            "operations": None if s.operations is None else sorted(s.operations),
            **plain(s.module(), s.text()),
        }
        for s in cap.for_hosts.record.read()[0]
    ]  # fmt: skip
    return {
        "operations": [asdict(o) for o in cap.module.origins.operations],
        "last": plain(cap.module, cap.text),
        "snapshots": rows,
        "stablehlo": plain(cap.at("stablehlo").module, cap.at("stablehlo").text),
        "jaxpr": _with_lines(cap.at("jaxpr")),
        "sources": dict(cap.target.sources),
    }


def main() -> None:
    os.environ |= {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    }
    import jax
    from hloscope.capturing.dumps import every_pass
    from kept_passes_programs import made

    sys.path.insert(0, str(FOLDER.parents[1] / "python" / "provenance"))
    from test_fates import PROGRAMS

    FOLDER.mkdir(exist_ok=True)
    small = {name: (jax.jit(f), arguments) for name, (f, arguments, _) in PROGRAMS.items()}
    for group, programs in {**{k: {k: v} for k, v in made().items()}, "small": small}.items():
        marked, dumped = {}, {}
        for name, (function, arguments) in programs.items():
            marked[name] = kept(hs.capture(function, *arguments, passes=True))
            with tempfile.TemporaryDirectory() as folder:
                lowered = function.lower(*arguments)
                lowered.compile(compiler_options=every_pass.options(folder))
                files = sorted(Path(folder).glob("*.txt"))
                dumped[name] = {f.name: f.read_text() for f in files}
        write(FOLDER / f"{group}.marked.xz", marked)
        write(FOLDER / f"{group}.dump.xz", dumped)


if __name__ == "__main__":
    sys.path.insert(0, str(FOLDER.parents[2] / "python"))
    main()
