"""Nothing of the marks is left anywhere: every public result, text, page and block is searched."""

from __future__ import annotations

import base64
import contextlib
import gzip
import html
import inspect
import io
import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from corpus.build import make
from hloscope.capturing.marks.marks import HELPERS, Marked
from hloscope.hlo import Operation
from hloscope.show.cli import main

MARK = re.compile(r"~\d+~")
_BLOCK = re.compile(r"[A-Za-z0-9+/=]{2000,}")


def texts(value: Any, at: str, seen: set[int], depth: int = 0) -> Iterator[tuple[str, str]]:
    """Every text that can be come to from a value by what is public, and how."""
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, bytes):
        with contextlib.suppress(OSError, EOFError):
            value = gzip.decompress(value)
        yield at, value.decode("latin-1")
    elif value is None or isinstance(value, int | float) or id(value) in seen or depth > 6:
        return
    elif isinstance(value, dict):
        seen.add(id(value))
        for k, v in value.items():
            yield from texts(k, f"{at} key", seen, depth + 1)
            yield from texts(v, f"{at}[{k!r:.40}]", seen, depth + 1)
    elif isinstance(value, list | tuple | set | frozenset):
        seen.add(id(value))
        for v in value:
            yield from texts(v, f"{at}[]", seen, depth + 1)
    elif type(value).__module__.startswith("hloscope"):
        seen.add(id(value))
        yield f"str of {at}", str(value)
        yield f"repr of {at}", repr(value)
        for name in dir(value):
            if name.startswith("_") or name in ("profile", "show"):
                continue
            with contextlib.suppress(Exception), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = getattr(value, name)
                if name in ("to_dict", "to_json", "to_csv", "to_markdown", "to_dot", "to_text"):
                    found = found()
                    if name == "to_dict":
                        yield f"{at}.to_dict", json.dumps(found, default=str)
                        continue
                if not inspect.isroutine(found):
                    yield from texts(found, f"{at}.{name}", seen, depth + 1)


def everything(cap: hs.Capture, folder: Path) -> Iterator[tuple[str, str]]:
    seen: set[int] = set()
    yield from texts(cap, "cap", seen)
    for stage in cap.stages:
        yield from texts(cap.at(stage), f"cap.at({stage})", seen)
    for k, snapshot in enumerate(cap.passes().snapshots):
        yield f"pass {k}", snapshot.text()
    for i in cap.module.instructions:
        yield "a card", str(cap.origins(i)) + json.dumps(cap.origins(i).to_dict())
    yield "the bundle", json.dumps(cap._repr_mimebundle_(), default=str)
    page = folder / "page.html"
    cap.to_html(page, passes=True)
    yield from parts("the page", page.read_text())


def parts(at: str, page: str) -> Iterator[tuple[str, str]]:
    """A page, and what is packed in it."""
    yield at, page
    blocks = 0
    for found in _BLOCK.findall(page):
        with contextlib.suppress(Exception):
            unpacked = gzip.decompress(base64.b64decode(found)).decode("latin-1")
            blocks += 1
            yield f"a block of {at}", unpacked
    assert blocks, at


def exports(cap: hs.Capture, other: hs.Capture, folder: Path) -> Iterator[tuple[str, str]]:
    """What leaves by other doors: tables, notebooks, diffs, pictures, files, commands, errors."""
    for name in ("cost", "memory", "source", "passes", "fates"):
        found = getattr(cap, name)
        found = found() if callable(found) else found
        yield f"{name} as CSV", found.to_pandas().to_csv()
    for mime, data in cap._repr_mimebundle_()[0].items():
        said = html.unescape(data) if isinstance(data, str) else json.dumps(data)
        yield f"{mime} of a saved notebook", said
        if mime == "text/html":
            yield from parts("a saved notebook", said)
    changed = hs.diff(cap, other)
    yield "a diff", str(changed) + json.dumps(changed.to_dict(), default=str)
    changed.to_html(folder / "diff.html")
    yield from parts("the page of a diff", (folder / "diff.html").read_text())
    yield "the picture as DOT", str(cap.to_dot())
    for what in (cap.origins, cap.fates, cap.passes().__getitem__):
        with pytest.raises(Exception) as caught:
            what("no-such-thing")
        yield "an error", str(caught.value)
    file = folder / "step.hlo"
    file.write_text(cap.text)
    for command in ("summary", "dot", "json"):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            main([command, str(file)])
        yield f"hloscope {command}", out.getvalue()


@pytest.mark.parametrize(("name", "topology"), [("scan_gradient", None), ("inner_jits", "v5e:2x4")])
def test_nothing_of_a_mark_is_left_anywhere(
    name: str, topology: str | None, tmp_path: Path
) -> None:
    if topology:
        pytest.importorskip("libtpu")
    cap = hs.capture(make(name, topology).lower(), passes=True)
    assert cap.module.origins is not None
    assert cap.module.origins.known
    searched = 0
    for at, text in everything(cap, tmp_path):
        searched += 1
        found = MARK.search(text)
        assert not found, (at, text[max(0, found.start() - 80) : found.end() + 80])
    assert searched > 100


def test_nothing_of_a_mark_leaves_by_another_door(tmp_path: Path) -> None:
    cap, other = (
        hs.capture(make(name, None).lower(), passes=True) for name in ("inner_jits", "custom_rule")
    )
    found = {at: MARK.search(text) for at, text in exports(cap, other, tmp_path)}
    assert not any(found.values()), found
    assert len(found) > 15


def test_nothing_of_a_mark_is_in_what_is_watched(tmp_path: Path) -> None:
    with hs.watch() as session:
        fn = jax.jit(lambda x: jnp.sin(x) @ x)
        fn(jnp.ones((8, 8)))
        fn(jnp.ones((4, 4)))
    session.to_html(tmp_path / "watched.html")
    opened = session[len(session) - 1].capture(passes=True)
    assert opened.module.origins is not None
    for text in (
        str(session),
        session.to_pandas().to_csv(),
        json.dumps(session._repr_mimebundle_(), default=str),
        (tmp_path / "watched.html").read_text(),
        opened.text + str(opened) + str(opened.fates()),
    ):
        assert not MARK.search(text)


def test_a_helper_that_is_left_alone_does_not_stand_for_its_operation() -> None:
    """``max(x, 0)``: both share a mark, and only the broadcast is still there."""
    assert HELPERS["broadcast_in_dim"] == "broadcast"
    rows = (Operation(0, "broadcast_in_dim"), Operation(1, "maximum"), Operation(2, "atan2"))
    marked = Marked(None, rows, "~", {0: 1})

    def line(opcode: str, number: int) -> bytes:  # no mark stands in this file: pages quote it
        return f'  %b = f32[8] {opcode}(%c), metadata={{op_name="~{number}~/f"}}\n'.encode()

    assert marked.numbers(line("broadcast", 1)) == {0}
    assert marked.numbers(line("maximum", 1)) == {1}
    assert marked.numbers(line("broadcast", 1) + line("add", 1) + line("atan2", 2)) == {0, 1, 2}
