"""Comparing and the largest that fits say the same wherever the programs are compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from hloscope.results.planning import Largest, Variants
from test_plan_executors import dask, ipyparallel, processes, ray

W = jax.ShapeDtypeStruct((128, 128), jnp.float32)


def step(w: Any, x: Any) -> Any:
    return w - 0.1 * jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).sum())(w)


def twice(w: Any, x: Any) -> Any:
    return step(step(w, x), x)


def wrong(w: Any, x: Any) -> Any:
    return w @ x


def args_of(n: int) -> tuple[Any, ...]:
    return W, jax.ShapeDtypeStruct((n, 128), jnp.float32)


PROGRAMS = {"as is": step, "wrong": wrong, "jitted": jax.jit(twice)}


def compared(options: hs.ProofOptions | None = None) -> Variants:
    return hs.compare(PROGRAMS, *args_of(64), options=options, hardware="tpu-v5e")


def found(options: hs.ProofOptions | None = None) -> Largest:
    return hs.largest(step, args_of, fits="1MiB", multiple_of=64, options=options)


def figures(rows: Variants) -> list[Any]:
    return [(v.name, v.figures, bool(v.error)) for v in rows]


@pytest.mark.parametrize("cluster", [processes, dask, ray, ipyparallel])
def test_every_executor_says_what_this_process_says(cluster: Callable[[], Any]) -> None:
    here, most = compared(), found()
    assert [v.error == "" for v in here] == [True, False, True]
    with cluster() as executor:
        options = hs.ProofOptions(executor=executor, workers=2)
        there = compared(options)
        assert figures(there) == figures(here)
        other = found(options)
    assert there.capture("jitted").text == here.capture("jitted").text
    assert (other.number, other.live, other.compiled_for) == (
        most.number, most.live, most.compiled_for
    )  # fmt: skip
    assert most.number > 0
    assert other.number + 64 in {r.number for r in other.rows if not r.fits}
    assert most.capture is not None
    assert other.capture is None


def test_a_store_goes_on_where_it_ended(tmp_path: Path) -> None:
    seen: list[Any] = []
    options = hs.ProofOptions(store=tmp_path / "kept.db", progress=seen.append)
    first, most = compared(options), found(options)
    seen.clear()
    assert figures(compared(options)) == figures(first)
    assert seen[-1].from_store == seen[-1].done == 2
    assert found(options).number == most.number
    assert seen[-1].from_store == seen[-1].done == len(most.rows)


def test_a_cancel_keeps_what_is_finished() -> None:
    def twice_only(now: Any) -> bool:
        return bool(now.done < 2)

    most = found(hs.ProofOptions(progress=twice_only))
    assert most.cancelled
    assert most.to_dict()["cancelled"]
    assert most.number == 64
    assert f"at least {most.number}" in str(most)
    rows = compared(hs.ProofOptions(progress=lambda now: now.done < 1))
    assert rows.cancelled
    assert [v.name for v in rows] == ["as is", "wrong"]


def test_a_program_that_its_process_does_not_survive_is_a_row() -> None:
    options = hs.ProofOptions(isolate=True, workers=1, timeout=0.01)
    rows = hs.compare({"as is": step}, *args_of(64), options=options)
    assert rows[0].figures is None
    assert rows[0].error
    with pytest.raises(hs.CaptureError, match="64: "):
        found(options)
