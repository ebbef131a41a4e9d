"""Logs of Alpa's stage construction: rows, identities, what was chosen and from what."""

from __future__ import annotations

from pathlib import Path

import hloscope as hs
import pytest
from hloscope.plan.stages.log import StageLog
from hloscope.show.cli import main

ROW = (
    "result[({a}, {b}, {m}, {c}), {p}] = ModuleProfileResult(compute_cost={t}, "
    "peak_memory=0.252 GB, invar_size=0.250 GB, outvar_size=0.002 GB, "
    "temp_buffer_size=0.000 GB, available_memory=13.664 GB)"
)


@pytest.fixture(scope="module")
def log(seeds: Path) -> StageLog:
    return hs.read_stage_log(next(seeds.glob("002_*")))


def test_rows_and_times(log: StageLog) -> None:
    assert len(log.rows) == 64
    by_submesh = [sum(r.submesh == n for r in log.rows) for n in range(4)]
    assert by_submesh == [12, 18, 24, 10]
    assert log.submeshes == ((1, 1), (1, 2), (1, 4), (1, 8))
    assert sum(log.profiling_seconds.values()) == pytest.approx(120.99)
    assert log.warnings == ()


def test_identities(log: StageLog) -> None:
    assert [(i.formula, i.holds, i.rows) for i in log.identities] == [
        ("peak = in + out + temp", 32, 32),
        ("peak = in + temp", 32, 32),
    ]


def test_the_chosen_solution_with_its_interval(log: StageLog) -> None:
    plan = log.plan()
    assert plan.microbatches == 16
    assert plan.given is not None
    assert [(c.submesh, c.option) for c in plan.given.stages] == [
        ((1, 4), "(4, 1)"),
        ((1, 4), "(1, 4) batch"),
    ]
    o = plan.given.objective
    assert (o.value, o.low, o.high) == pytest.approx((0.034, 0.017, 0.051))
    assert plan.best is not None
    o = plan.best.objective
    assert (o.value, o.low, o.high) == pytest.approx((0.032, 0.016, 0.048))
    assert plan.best.stages[0].submesh == (1, 8)


def test_how_many_can_be_optimal(log: StageLog) -> None:
    plan = log.plan()
    assert len(plan.solutions) == 21
    assert len(plan.possibly_optimal) == 21


def test_times_with_more_digits_leave_one() -> None:
    rows = [
        ROW.format(a=a, b=b, m=m, c=c, p=p, t=t)
        for a, b, m, t in ((0, 1, 1, "2.0000"), (0, 0, 0, "1.5000"), (1, 1, 0, "1.5001"))
        for c in range(2)
        for p in range(2)
    ]
    head = "num_micro_batches=4\nsubmesh_choices: ((1, 1), (1, 2))\n"
    log = hs.read_stage_log(head + "\n".join(rows))
    plan = log.plan()
    assert log.microbatches == 4
    assert len(plan.possibly_optimal) == 4
    assert all(len(s.stages) == 2 for s in plan.possibly_optimal)


def test_a_cut_log_says_so() -> None:
    text = ROW.format(a=0, b=0, m=0, c=0, p=0, t="0.001")
    log = hs.read_stage_log(
        "submesh_choices: ((1, 1),)\n" + text + "\nresult[(0, 0, 0, 0), 1] = ModuleProfileResult("
    )
    assert log.warnings == ("1 result line(s) are damaged or cut off",)
    with pytest.raises(ValueError, match="does not say how many microbatches"):
        log.plan()
    assert log.plan(microbatches=2).failed == ("1 stage(s) without a usable row of each pass",)


def test_no_submesh_is_guessed() -> None:
    with pytest.raises(hs.ReadError, match="nothing says what submesh 3 is"):
        hs.read_stage_log("x\n" + ROW.format(a=0, b=0, m=3, c=0, p=0, t="0.001"))


def test_a_program_beside_such_rows_is_read_as_a_program(seeds: Path) -> None:
    hlo = next(seeds.glob("000_*")).read_text()
    cap = hs.read(hlo + "\n" + ROW.format(a=0, b=0, m=0, c=0, p=0, t="0.001"))
    assert isinstance(cap, hs.Capture)


def test_a_log_is_no_program_and_a_program_no_log(seeds: Path) -> None:
    with pytest.raises(hs.ReadError, match=r"hs\.read_stage_log reads it"):
        hs.read(next(seeds.glob("002_*")))
    with pytest.raises(hs.ReadError):
        hs.read_stage_log(next(seeds.glob("000_*")))


def test_shown_everywhere(seeds: Path, log: StageLog, tmp_path: Path, capsys) -> None:
    file = str(next(seeds.glob("002_*")))
    assert main(["stages", file]) == 0
    text = capsys.readouterr().out
    assert "32 of 32" in text
    assert "21 pipelines can be optimal" in text
    assert main(["stages", file, "--html", "-o", str(tmp_path / "log.html")]) == 0
    assert main(["stages", file, "--json"]) == 0
    assert main(["summary", file]) == 2
    assert "hloscope stages" in capsys.readouterr().err
    assert len(log.to_pandas()) == 64
    assert "text/html" in log._repr_mimebundle_()[0]
