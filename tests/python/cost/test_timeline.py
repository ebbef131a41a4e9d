"""The timeline ends where the modelled total says, and waits as long as the roofline's split."""

from __future__ import annotations

import hloscope as hs
import numpy as np
import pytest
from hloscope.analysis.cost.timeline import COPIES


def check(cap: hs.Capture, chip: str) -> None:
    cost = cap.cost(chip)
    found = cost.timeline
    r = cost.roofline
    assert found.seconds == pytest.approx(r.total_seconds, rel=1e-9, abs=1e-15)
    assert found.total("waiting") == pytest.approx(r.exposed_seconds, rel=1e-9, abs=1e-15)
    assert found.total("compute") == pytest.approx(
        r.compute_seconds + r.memory_seconds + r.least_seconds, rel=1e-9, abs=1e-15
    )
    wires = sum(found.total(lane) for lane in found.lanes[2:] if lane != COPIES)
    assert wires == pytest.approx(r.collective_seconds, rel=1e-9, abs=1e-15)
    # What instructions add to the step is the step: nothing counts twice.
    assert np.nansum(r.step_seconds) == pytest.approx(r.total_seconds, rel=1e-9, abs=1e-15)
    # Nothing of one lane overlaps in one computation.
    for c in np.unique(found.computation):
        for lane in range(2):
            rows = np.flatnonzero((found.computation == c) & (found.lane == lane))
            ends = found.start[rows] + found.duration[rows]
            assert (found.start[rows][1:] >= ends[:-1] * (1 - 1e-12)).all()


def names():
    from corpus.programs import PROGRAMS as corpus

    return sorted(name for name, p in corpus.items() if "cpu" in p.platforms)[::4]


@pytest.mark.parametrize("name", names())
def test_it_ends_where_the_modelled_total_says(compiled, name):
    check(compiled(name).capture, "tpu-v5e")


def test_of_a_tpu_program_with_copies_beside(compiled):
    check(compiled("gpt_scan", "v5e:2x4").capture, "tpu-v5e")


def test_of_a_dump(seeds):
    check(hs.read(next(seeds.glob("004_*"))), "h100")
    check(hs.read(next(seeds.glob("001_*"))), "tpu-v5e")


def test_a_loop_is_one_event_with_its_iterations_inside():
    import jax
    import jax.numpy as jnp

    def f(x):
        return jax.lax.fori_loop(0, 12, lambda i, v: jnp.tanh(v @ v), x)

    cost = hs.capture(f, jax.ShapeDtypeStruct((512, 512), jnp.float32)).cost("tpu-v5e")
    found = cost.timeline
    loops = np.flatnonzero(found.times == 12)
    assert len(loops) == 1
    body = found.inside[loops[0]]
    inside = found.duration[(found.computation == body) & (found.lane < 2)].sum()
    assert found.duration[loops[0]] == pytest.approx(12 * inside)


def test_without_a_chip_there_is_none(seeds):
    assert hs.read(next(seeds.glob("004_*"))).cost().timeline is None
