"""What each pass changed, counted by hand: ``passes.py``, ``passes_row.py`` and
``passes_text.py``. Dumps are written as in ``pass_dumps.py``."""

from __future__ import annotations

from typing import Any

import pytest
from hloscope.analysis.passes.passes import Passes, passes, ran
from hloscope.hlo import Target
from hloscope.hlo.snapshots import Snapshot
from hloscope.readers.hlo.text import read_hlo_text
from pass_dumps import dump


def snapshot(
    text: str,
    passed: str = "",
    pipeline: str = "",
    upcoming: str = "",
    operations: set[int] | None = None,
    number: int = 0,
) -> Snapshot:
    text = text if text.startswith("HloModule") else dump(text)
    kept = None if operations is None else frozenset(operations)
    return Snapshot(
        number, pipeline, passed, upcoming, len(text), lambda: text,
        lambda: read_hlo_text(text)[0], kept,
    )  # fmt: skip


FIRST = "p = f32[4] parameter(0); a = f32[4] tanh(p)@f; ROOT r = f32[4] negate(a)"
SECOND = (
    "p = f32[4] parameter(0); ROOT g = f32[4] fusion(p), kind=kLoop; c = f32[4] copy(p);"
    " d = f32[4] copy-start(p); t = f32[4] transpose(p); s = f32[4] all-reduce-start(p);"
    " e = f32[4] all-reduce-done(s); x = f32[4] all-to-all(p)"
)


def found() -> Passes:
    return passes(
        [
            snapshot(FIRST, number=2, operations={0, 1, 2}),
            snapshot(FIRST, "same", number=3, operations={0, 1}),
            snapshot(SECOND, "fuse", "main", number=5, operations={0}),
            snapshot(FIRST, "back", "main", number=7),
            snapshot(FIRST.replace("@f", "@g"), "rename", "main", number=9, operations={5}),
        ],
        "some are missing",
    )


def test_rows() -> None:
    rows = found().rows
    assert [(r.index, r.number, r.name, r.pipeline) for r in rows] == [
        (0, 2, "", ""), (1, 5, "fuse", "main"), (2, 7, "back", "main"), (3, 9, "rename", "main"),
    ]  # fmt: skip
    assert rows[0].counts == {
        "instructions": 3, "fusions": 0, "copies": 0, "transposes": 0, "collectives": 0,
    }  # fmt: skip
    assert rows[1].counts == {
        "instructions": 8, "fusions": 1, "copies": 2, "transposes": 1, "collectives": 2,
    }  # fmt: skip
    assert [r.change.get("instructions") for r in rows] == [None, 5, -5, 0]
    assert [r.change.get("copies") for r in rows] == [None, 2, -2, 0]
    assert [r.appeared for r in rows] == [
        (), ("g", "c", "d", "t", "s", "e", "x"), ("a", "r"), (),
    ]  # fmt: skip
    assert [r.gone for r in rows] == [(), ("a", "r"), ("g", "c", "d", "t", "s", "e", "x"), ()]
    assert [r.lost for r in rows] == [(), (1, 2), (), ()], "unknown where one side is"
    assert [r.only_metadata for r in rows] == [False, False, False, True]


def test_what_is_asked_of_all() -> None:
    every = found()
    assert (len(every), [*every], every.note) == (4, list(every.rows), "some are missing")
    assert (every[1], every["back"]) == (every.rows[1], every.rows[2])
    with pytest.raises(LookupError, match=r"no pass 'dce' .* there are fuse, back, rename"):
        every["dce"]
    assert [every.at(n) for n in (0, 2, 4, 5, 6, 9, 99)] == [0, 0, 0, 1, 1, 3, 3]
    assert (every.made("%c"), every.made("a")) == (every.rows[1], every.rows[2])
    assert every.made("p") is None
    assert every.text(1) == every.text(every.rows[1]) == dump(SECOND)
    assert every.module(every.rows[1]).find("g") is not None
    assert every.module(0).find("g") is None
    assert every.steps is every.steps
    assert every.follow() is every.steps
    assert every.to_dict()["rows"][1] == {
        "number": 5, "pipeline": "main", "pass": "fuse", "seconds": None,
        "instructions": 8, "fusions": 1, "copies": 2, "transposes": 1, "collectives": 2,
        "change": every.rows[1].change,
        "appeared": 7, "gone": 2, "lost_operations": [1, 2],
    }  # fmt: skip


def test_progress() -> None:
    told: list[tuple[int, int]] = []
    passes([snapshot(FIRST), snapshot(FIRST, "x")], progress=lambda k, n: told.append((k, n)))
    assert told == [(0, 2), (1, 2)]
    assert len(passes([])) == 0


@pytest.mark.parametrize(
    ("name", "pipeline", "title"),
    [
        ("dce", "main", "dce"), ("after_optimizations", "main", "after all passes"),
        ("", "main", "start of main"), ("", "", "before any pass"),
    ],
)  # fmt: skip
def test_titles(name: str, pipeline: str, title: str) -> None:
    row = passes([snapshot(FIRST, name, pipeline)]).rows[0]
    assert row.title == title
    assert str(row) == f"{title}: same counts"
    assert str(found().rows[1]) == (
        "fuse: +5 instructions, +1 fusions, +2 copies, +1 transposes, +2 collectives"
    )


# (pipeline, passed, upcoming) of each dump → the passes whose work they show
RAN: dict[str, tuple[list[tuple[str, str, str]], list[str]]] = {
    "nothing": ([], []),
    "what has run": ([("m", "", "a"), ("m", "a", "b"), ("m", "b", "")], ["", "a", "b"]),
    "a pipeline within a pass": (
        [("o", "x", "y"), ("i", "", "a"), ("i", "a", ""), ("o", "z", "")],
        ["x", "z", "a", "z"]),
    "a pipeline after the end of another": (
        [("o", "x", "pipeline-end"), ("i", "", "a"), ("i", "a", ""), ("o", "z", "")],
        ["x", "", "a", "z"]),
    "after the end of one within another": (
        [("o", "x", "y"), ("i", "a", "pipeline-end"), ("j", "", "b"), ("o", "z", "")],
        ["x", "a", "z", "z"]),
    "none ends later": ([("o", "x", "y"), ("i", "", "a"), ("i", "a", "")], ["x", "", "a"]),
    "another pipeline": ([("o", "x", "y"), ("i", "", "a"), ("k", "z", "")], ["x", "", "z"]),
    "of no pipeline": ([("", "x", "y"), ("i", "", "a"), ("", "z", "")], ["x", "", "z"]),
    "the first one": ([("o", "", "x"), ("o", "z", "")], ["", "z"]),
}  # fmt: skip


@pytest.mark.parametrize("what", RAN)
def test_whose_work_a_dump_shows(what: str) -> None:
    dumps, names = RAN[what]
    assert ran([snapshot(FIRST, p, line, up) for line, p, up in dumps]) == names


def test_lines_that_are_counted() -> None:
    text = (
        "HloModule m\n\nFileNames\n1 a.py\n\n\nENTRY e {\n"
        "  %p = f32[4]{0:T(8,128)} parameter(0)\n"
        '  %q = (f32[4]{0:T(8,128)(2,1)}, s32[]) custom-call(%p), backend_config="a = copy("\n'
        '  ROOT r = f32[4] copy(p), metadata={op_name="x = y tanh(z)"}\n'
        "no = f32[4] tanh(p)\n}\n"
    )
    [row] = passes([snapshot(text)]).rows
    assert row.counts["instructions"] == 3
    assert row.counts["copies"] == 1
    other = text.replace("1 a.py", "1 b.py")
    assert passes([snapshot(text), snapshot(other, "x")]).rows[1].only_metadata
    assert not passes([snapshot(text), snapshot(text.replace("f32[4] copy", "f32[8] copy"), "x")]
                      ).rows[1].only_metadata  # fmt: skip


def test_costs_are_computed_once_for_each_target() -> None:
    text = dump("p = f32[4] parameter(0); ROOT a = f32[4] add(p, p)")
    reads: list[int] = []

    def module() -> Any:
        reads.append(0)
        return read_hlo_text(text)[0]

    every = passes([Snapshot(0, "", "", "", 0, lambda: text, module)])
    assert every.known_cost(0) is None
    cost = every.cost(0)
    assert (cost["flops"], cost["bytes_accessed"], cost["peak_bytes"]) == (4, 48, None)
    assert every.cost(every.rows[0], Target()) == every.known_cost(0) == cost
    assert len(reads) == 1
    every.cost(0, Target(device_kind="TPU v5e"))
    assert len(reads) == 2
    assert every.known_cost(1) is None
    scheduled = dump("p = f32[4] parameter(0); ROOT a = f32[4] add(p, p)").replace(
        "HloModule m", "HloModule m, is_scheduled=true"
    )
    assert passes([snapshot(scheduled)]).cost(0)["peak_bytes"] == 32
