"""All output of a capture as texts: results, blocks, unpacked pages, every command."""

from __future__ import annotations

import base64
import contextlib
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import hloscope as hs
from hloscope.show import blocks
from hloscope.show.cli import main
from hloscope.show.notebook.pass_job import PassJobs

MARK = re.compile(r"~+\d+~+")
_PACKED = re.compile(r"[A-Za-z0-9+/]{64,}={0,2}")


def marks_in(said: dict[str, str]) -> dict[str, list[str]]:
    """What looks like a mark, by the place of the text."""
    found = {where: [text[m.start() - 60 : m.end() + 60] for m in MARK.finditer(text)]
             for where, text in said.items()}  # fmt: skip
    return {where: some[:3] for where, some in found.items() if some}


def unpacked(text: str, depth: int = 3) -> str:
    """A text and what is packed in it: blocks of pages, in base64 and compressed."""
    out = [text]
    for m in _PACKED.finditer(text):
        with contextlib.suppress(ValueError, OSError, EOFError, zlib.error):
            raw = base64.b64decode(m[0] + "=" * (-len(m[0]) % 4))
            raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
            inner = raw.decode("latin-1")
            out.append(unpacked(inner, depth - 1) if depth else inner)
    return "\n".join(out)


def everything_said(cap: hs.Capture, folder: Path) -> dict[str, str]:
    """Place → text; ``cap`` has its passes. Files are written into ``folder``."""
    # the Source pane shows the user's files, which may contain what looks like a mark
    cap.target = replace(cap.target, sources={})
    said = dict(_results(cap))
    said |= dict(_stages(cap))
    said |= dict(_blocks(cap))
    said["html"] = unpacked(cap.html(passes=True))
    said["dot"] = cap.to_dot().source
    said["mime bundle"] = unpacked(json.dumps(cap._repr_mimebundle_()[0], default=str))
    sent: list[str] = []

    def send(content: dict[str, Any], buffers: list[bytes]) -> None:
        sent.extend((str(content), *(gzip.decompress(b).decode("latin-1") for b in buffers)))

    PassJobs(cap, send).start(1).join(120)
    said["what a widget is sent"] = "\n".join(sent)
    said |= dict(_commands(cap, folder))
    return said


def _results(cap: hs.Capture) -> Iterator[tuple[str, str]]:
    results = {
        "fates": cap.fates(), "passes": cap.passes(), "collectives": cap.collectives,
        "memory": cap.memory, "cost": cap.cost(), "findings": cap.findings,
        "source": cap.source, "shardings": cap.shardings,
    }  # fmt: skip
    for name, result in results.items():
        said = [str(result), repr(result), str(result.to_dict()), result.to_pandas().to_csv()]
        yield name, "\n".join(said)
    cards = [cap.origins(i) for i in cap.module.instructions]
    yield "origins", "\n".join([*map(str, cards), *(str(c.to_dict()) for c in cards)])
    whys = [cap.why(c) for c in cap.collectives]
    yield "why", "\n".join([*map(str, whys), *map(repr, whys)])
    yield "summary", f"{cap.summary} {cap!r} {cap.warnings}"
    messages = [str(x) for x in (*cap.target.compiler_messages, *cap.target.dumps.values())]
    yield "compiler messages and dumps", "\n".join(messages)


def _stages(cap: hs.Capture) -> Iterator[tuple[str, str]]:
    yield "text", cap.text
    yield "op names", "\n".join(cap.module.op_names())
    for stage in cap.stages[1:]:
        other = cap.at(stage)
        names = (*other.module.op_names(), *other.module.frames.functions)
        yield stage, "\n".join((other.text, *names))
    for row in cap.passes():
        module = cap.passes().module(row)
        yield f"pass {row.index}", "\n".join((cap.passes().text(row), *module.op_names()))
    yield "operations", str([o.name for o in cap.module.origins.operations])


def _blocks(cap: hs.Capture) -> Iterator[tuple[str, str]]:
    made = {
        "view": blocks.view(cap), "text block": blocks.text(cap), "analyses": blocks.analyses(cap),
        "linked panes": blocks.stages(cap), "passes block": blocks.passes(cap),
    }  # fmt: skip
    for name, block in made.items():
        yield name, gzip.decompress(block).decode("latin-1")


def _commands(cap: hs.Capture, folder: Path) -> Iterator[tuple[str, str]]:
    """Every command that takes a file, run on files written from the capture."""
    file, dump = folder / "module.hlo", folder / "dump"
    file.write_text(cap.text)
    dump.mkdir()
    for k, row in enumerate(cap.passes()):
        name = f"module_0001.m.{k:04}.{row.pipeline or 'all'}.after_{row.name or 'pipeline-start'}"
        (dump / f"{name}.before_x.txt").write_text(cap.passes().text(row))
    runs: dict[str, list[str]] = {
        "summary": [str(file)], "summary --json": [str(file)], "findings": [str(file)],
        "json": [str(file)], "dot": [str(file)], "list": [str(file)],
        "html": [str(file), "-o", str(folder / "page.html")],
        "diff": [str(file), str(file)], "diff --html": [str(file), str(file)],
        "check": [str(file), "--max-peak", "1GiB"], "passes": [str(dump)],
        "passes --json": [str(dump)],
    }  # fmt: skip
    lines = {f.line for i in cap.module.instructions for f in i.frames[:1]}
    if lines:
        runs["trace"] = [str(dump), str(min(lines))]
    # a dump shows the user's files as well
    without_files = patch("hloscope.api.read.sources_as_dumped", return_value={})
    for name, arguments in runs.items():
        out, err = io.StringIO(), io.StringIO()
        command, *options = name.split()
        if options == ["--html"]:
            options = ["--html", str(folder / "diff.html")]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), without_files:
            main([command, *arguments, *options])
        yield f"hloscope {name}", out.getvalue() + err.getvalue()
    for page in folder.glob("*.html"):
        yield page.name, unpacked(page.read_text())
