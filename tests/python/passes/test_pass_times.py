"""How long each pass took: from a dump that says it, and compiles for a TPU that are measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from corpus.by_hand import write_passes
from hloscope.show.cli import main

# (pipeline, pass, begin, end) in milliseconds; cleanup is a pipeline that layout-assignment runs
RAN = [
    ("simplification", "pipeline-start", 0, 1),
    ("simplification", "algsimp", 1, 3),
    ("simplification", "dce", 3, 4),
    ("partitioner", "pipeline-start", 5, 6),
    ("partitioner", "shardy-xla", 6, 16),
    ("partitioner", "something-else", 16, 18),
    ("partitioner", "layout-assignment", 20, 50),
    ("cleanup", "pipeline-start", 22, 23),
    ("cleanup", "dce", 23, 30),
    ("partitioner", "fusion", 50, 90),
    ("nothing changed", "pipeline-start", 90, 91),
    ("nothing changed", "copy-insertion", 91, 191),
]


def timed(folder: Path, ran: list[tuple[str, str, int, int]], number: int = 1) -> Path:
    """A dump of every pass by hand, and when each ran, as XLA writes it."""
    write_passes(folder)
    text = "".join(
        f'pass_metadata {{\n  pass_id: {k}\n  pass_name: "{name}"\n  pipeline_name: "{pipeline}"\n'
        f"  module_changed: true\n  start_timestamp_usec: {1_000_000_000_000 + begin * 1000}\n"
        f"  end_timestamp_usec: {1_000_000_000_000 + end * 1000}\n}}\n"
        for k, (pipeline, name, begin, end) in enumerate(ran, 1)
    )
    (folder / f"module_{number:04d}.metadata.textproto").write_text(text)
    return folder


def milliseconds(passes: Any) -> dict[str, float | None]:
    return {r.title: None if r.seconds is None else pytest.approx(r.seconds * 1e3) for r in passes}


def test_the_passes_of_a_dump_have_the_time_that_they_took_themselves(tmp_path: Path) -> None:
    passes = hs.read(timed(tmp_path / "dump", RAN)).passes()
    assert milliseconds(passes) == {
        "before any pass": None,
        "algsimp": 2,
        "dce": 1,
        "shardy-xla": 10,
        "layout-assignment": 22,  # 30 without the 8 of the pipeline inside
        "fusion": 40,
    }
    assert sum(s for _, s in passes.parts()) == pytest.approx(0.188)  # 191 without 3 between
    assert [(s.name, s.times, s.row) for s in passes.slowest()][:3] == [
        ("copy-insertion", 1, -1), ("fusion", 1, 5), ("layout-assignment", 1, 4),
    ]  # fmt: skip
    assert passes.elsewhere_seconds == pytest.approx(0.101)
    others = {r.title: o for r, o in zip(passes, passes.others, strict=True)}
    assert others["layout-assignment"] == pytest.approx(0.008), "of the pipeline inside"
    assert others["shardy-xla"] == pytest.approx(0.001 + 0.002), "of its pipeline, next to it"
    told = str(passes)
    assert "passes, measured once: 75 ms passes of this list, 113 ms other passes" in told
    assert "with the time of writing it" in told
    assert list(passes.to_pandas()["seconds"].dropna()) == pytest.approx(
        [0.002, 0.001, 0.01, 0.022, 0.04]
    )


def test_which_of_equal_runs_left_the_dump_is_unknown(tmp_path: Path) -> None:
    twice = [
        *RAN[:3],
        ("simplification", "algsimp", 4, 5),
        ("simplification", "dce", 5, 6),
        *((p, n, a + 10, b + 10) for p, n, a, b in RAN[3:]),
    ]
    passes = hs.read(timed(tmp_path / "dump", twice)).passes()
    assert passes["algsimp"].seconds is None
    assert passes["dce"].seconds == pytest.approx(0.001), "the one after which the pipeline ends"
    assert passes["fusion"].seconds == pytest.approx(0.04)
    assert sum(s for _, s in passes.parts()) == pytest.approx(0.19), "nothing is left out"


def test_a_coarse_clock_does_not_mix_up_the_order(tmp_path: Path) -> None:
    """Many passes begin and end within one tick, one inside of the other too."""
    coarse = [(p, n, a // 10 * 10, b // 10 * 10) for p, n, a, b in RAN]
    passes = hs.read(timed(tmp_path / "dump", coarse)).passes()
    known = {r.title: round(r.seconds * 1e3) for r in passes if r.seconds is not None}
    assert known == {
        "algsimp": 0, "dce": 0, "shardy-xla": 10, "layout-assignment": 20, "fusion": 40,
    }  # fmt: skip


def test_a_dump_of_another_compile_gives_no_pass_a_time(tmp_path: Path) -> None:
    passes = hs.read(timed(tmp_path / "a", RAN[::-1])).passes()
    assert passes.times is not None
    backwards = [(p, n, 200 - b, 200 - a) for p, n, a, b in RAN]
    passes = hs.read(timed(tmp_path / "b", backwards)).passes()
    assert {r.seconds for r in passes} == {None}
    passes = hs.read(timed(tmp_path / "c", RAN, number=7)).passes()
    assert (passes.times, passes.parts(), passes.slowest()) == (None, (), ())
    assert "measured" not in str(passes)
    broken = timed(tmp_path / "d", RAN)
    (broken / "module_0001.metadata.textproto").write_bytes(b"pass_metadata {\n  pass_id: \xff 1")
    assert hs.read(broken).passes().times is None


def test_the_command_has_the_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = timed(tmp_path / "dump", RAN)
    main(["passes", str(folder)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("passes, measured once: 75 ms")
    assert any(line.split()[:2] == ["fusion", "40"] for line in lines)
    main(["passes", str(folder), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [r["seconds"] for r in found["rows"]][:2] == [None, pytest.approx(0.002)]
    assert found["parts"]["other passes"] == pytest.approx(0.113)


def test_a_compile_for_a_tpu_is_timed_by_the_compiler_itself(libtpu: None) -> None:
    def f(w: Any, x: Any) -> Any:
        return jnp.sum(jnp.tanh(x @ w) @ w.T)

    w = jnp.ones((256, 256))
    cap = hs.capture(jax.grad(f), w, w, topology="v5e:2x2", passes=True)
    before = cap.passes()
    assert before.times is None
    told = cap.compile_time()
    assert sum(row.seconds for row in told) == pytest.approx(told.total_seconds)
    assert {"tpu_fusion", "layout-assignment"} <= {row.name for row in told}
    passes = cap.passes()
    assert cap.passes() is passes
    assert sum(s for _, s in passes.parts()) == pytest.approx(told.total_seconds)
    ran = {run.name for run in told.runs if run.name}
    assert [r.title for r in passes if r.name in ran and r.seconds is None] == []
    assert sum(r.name in ran for r in passes) > len(passes) / 2
    fused = [r.seconds for r in told.runs if (r.pipeline, r.name) == ("Main fusion", "tpu_fusion")]
    assert [r.seconds for r in passes if r.pipeline == "Main_fusion"] == fused
