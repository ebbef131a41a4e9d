"""Passes: what each changed; origins and lines; ``hloscope passes`` and ``hloscope trace``."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from hloscope.capturing.dumps import dumping
from hloscope.show.cli import main


def step(w: Any, x: Any) -> Any:
    h = jnp.tanh(x @ w)
    return jnp.sum(h @ w.T)


@pytest.fixture(scope="module")
def cap() -> hs.Capture:
    w = jnp.ones((64, 64))
    return hs.capture(jax.grad(step), w, w, passes=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("dump")
    w = jnp.ones((64, 64))
    jax.jit(jax.grad(step)).lower(w, w).compile(
        compiler_options={
            "xla_dump_to": str(place),
            "xla_dump_hlo_pass_re": ".*",
            "xla_dump_hlo_as_text": True,
        }
    )
    return place


def test_counts_add_up_from_pass_to_pass(cap: hs.Capture) -> None:
    rows = list(cap.passes())
    assert rows[0].title == "before any pass"
    assert {"fusion", "transpose-folding"} <= {r.name for r in rows}
    for a, b in pairwise(rows):
        for what, n in b.change.items():
            assert a.counts[what] + n == b.counts[what]
    for row in rows:
        module = cap.passes().module(row)
        assert row.counts["instructions"] == len(module.instructions)
        assert row.counts["fusions"] == sum(i.opcode == "fusion" for i in module.instructions)
    assert rows[-1].counts["instructions"] == len(cap.module.instructions)
    assert cap.passes()["fusion"].change["fusions"] > 0
    with pytest.raises(LookupError, match="no pass 'nope'"):
        cap.passes()["nope"]
    assert len(cap.passes().to_pandas()) == len(rows)
    json.dumps(cap.passes().to_dict())


def test_cost_of_a_pass_says_what_is_unknown(cap: hs.Capture) -> None:
    first, last = cap.passes().cost(0), cap.passes().cost(len(cap.passes()) - 1)
    assert first["peak_bytes"] is None, "nothing is scheduled yet"
    assert last["peak_bytes"]
    assert first["flops"]
    assert last["flops"]


def test_passes_are_had_later_too() -> None:
    later = hs.capture(lambda x: jnp.sin(x) @ x, jnp.eye(8))
    assert len(later.passes()) > 2
    assert later.fates().counts
    with pytest.raises(ValueError, match="no record of its passes"):
        _ = hs.read(later.text).passes()


def test_without_room_for_a_dump_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dumping, "_make", lambda need: (None, "the dump was left out: no room"))
    found = hs.capture(lambda x: jnp.sin(x) * 1.0, jnp.eye(8), passes=True)
    assert str(found.passes()).endswith("the dump was left out: no room")
    assert len(found.passes()) == 0
    assert found.fates().counts["unknown"] > 0


def test_every_instruction_tells_its_origin(cap: hs.Capture) -> None:
    dot = next(i for i in cap.module.instructions if i.opcode == "dot")
    card = cap.origins(dot.name)
    assert card[0].operation.opcode == "dot_general"
    source = card[0].source
    assert source is not None
    assert source.file == __file__
    assert f"test_passes.py:{source.line}" in str(card)
    json.dumps(card.to_dict())
    with pytest.raises(LookupError, match="no instruction 'nope'"):
        cap.origins("nope")
    with pytest.raises(ValueError, match="exact=True"):
        hs.capture(lambda x: x + 1, jnp.ones(2), exact=False).origins("add.0")


def test_a_source_line_tells_its_fates(cap: hs.Capture) -> None:
    line = step.__code__.co_firstlineno + 1
    found = cap.fates(f"test_passes.py:{line}")
    assert {"dot_general", "tanh"} <= {f.operation.opcode for f in found}
    assert cap.fates(0).rows[0].operation.number == 0
    with pytest.raises(LookupError, match="no operation of this program is at"):
        cap.fates("test_passes.py:1")
    with pytest.raises(ValueError, match="not a line"):
        cap.fates("nonsense")


def test_the_command_lists_passes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["passes", str(folder)]) == 0
    table = capsys.readouterr().out
    assert "transpose-folding" in table
    assert main(["passes", str(folder), "--json", "--costs"]) == 0
    found = json.loads(capsys.readouterr().out)["rows"]
    assert [r["pass"] for r in found].count("fusion") == 1
    assert found[-1]["flops"] > 0
    assert found[0]["lost_operations"] == [], "a dump from elsewhere has no marks"


def test_the_command_says_what_it_cannot_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["passes", str(tmp_path)]) == 2
    assert "holds no HLO dump" in capsys.readouterr().err
    (tmp_path / "module_0000.jit_f.before_optimizations.txt").write_text("HloModule jit_f\n")
    assert main(["passes", str(tmp_path)]) == 2
    assert "xla_dump_hlo_pass_re" in capsys.readouterr().err
    assert main(["passes", str(tmp_path / "nope")]) == 2
    assert "not a folder" in capsys.readouterr().err


def test_a_dump_tells_what_a_line_became(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = step.__code__.co_firstlineno + 1
    assert main(["trace", str(folder), f"test_passes.py:{line}"]) == 0
    out = capsys.readouterr().out
    assert "by XLA's stack frames" in out
    assert "tanh" in out
    assert "since fusion" in out
    assert main(["trace", str(folder), "test_passes.py:1"]) == 2
    assert "its files are" in capsys.readouterr().err
    assert main(["trace", str(folder), "elsewhere"]) == 2
    assert "not a line" in capsys.readouterr().err
