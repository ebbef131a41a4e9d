"""``hs.plan_stages``: layers given or marked, each stage compiled, what does not fit left out."""

from __future__ import annotations

from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hloscope.capturing import CaptureError
from hloscope.capturing.planning.layers import from_functions, from_marks, programs
from jax.ad_checkpoint import checkpoint_name


def layer(p: Any, x: Any) -> Any:
    return x + jnp.tanh(x @ p["w1"]) @ p["w2"]


def array(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


PARAMS = {"w1": array(64, 128), "w2": array(128, 64)}


def marked(params: Any, tokens: Any) -> Any:
    """An embedding, two layers and a head; the embedding's output is used again at the end."""
    x = first = params["embed"][tokens]
    x = checkpoint_name(x, "stage")
    for p in params["layers"]:
        x = checkpoint_name(layer(p, x), "stage")
    return jnp.mean((x + first) @ params["embed"].T)


MARKED = {"embed": array(32, 64), "layers": [PARAMS, PARAMS]}
TOKENS = jax.ShapeDtypeStruct((8, 4), jnp.int32)


def values(tree: Any) -> Any:
    rng = np.random.default_rng(0)

    def one(a: Any) -> Any:
        if jnp.issubdtype(a.dtype, jnp.integer):
            return jnp.asarray(rng.integers(0, 32, a.shape), a.dtype)
        return jnp.asarray(rng.standard_normal(a.shape) * 0.1, a.dtype)

    return jax.tree.map(one, tree)


def test_pieces_between_marks_are_the_function() -> None:
    pieces = from_marks(marked, (MARKED, TOKENS))
    assert len(pieces) == 4
    params, tokens = values(MARKED), values(TOKENS)
    flat = dict(zip(map(id, jax.tree.leaves(MARKED)), jax.tree.leaves(params), strict=False))
    assert flat
    leaves = jax.tree.leaves(params)
    by_piece = [[leaves[0]], leaves[1:3], leaves[3:5], [leaves[0]]]
    given: Any = (tokens,)
    for piece, own in zip(pieces, by_piece, strict=True):
        assert [v.shape for v in piece.values] == [v.shape for v in given]
        given = piece.run(tuple(own), given)
    np.testing.assert_allclose(given[0], marked(params, tokens), rtol=1e-5)


def test_both_passes_give_the_gradients() -> None:
    pieces = from_functions([(layer, PARAMS), (layer, PARAMS)], [array(4, 64)])
    forward, f_args, both, b_args = programs(pieces)
    params, x = values(f_args)
    out = forward(params, x)
    _, (d_params, d_x) = both(params, x, [jnp.ones_like(out[0])])

    def total(params: Any, x: Any) -> Any:
        return layer(params[1], layer(params[0], x)).sum()

    wanted = jax.grad(total, (0, 1))(params, x[0])
    for ours, theirs in zip(jax.tree.leaves((d_params, d_x)), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    assert len(b_args) == 3


HERE = hs.StageOptions(isolate=False)


def test_a_plan_of_layers() -> None:
    plan = hs.plan_stages(
        [(layer, PARAMS)] * 3, array(16, 64), devices=2, microbatches=4, hardware="a100",
        options=HERE,
    )  # fmt: skip
    # 6 spans: 1 device, and 2 with the batch or the parameters split
    assert len(plan.choices) == 6 * 3
    assert plan.failed == ()
    assert plan.best is not None
    assert plan.best.devices == 2
    least = min(s.objective.value for s in plan.solutions)
    assert plan.best.objective.value == pytest.approx(least)
    # alike layers make alike stages
    one = [c for c in plan.choices if c.start == c.end and c.submesh == (1,)]
    assert len({c.seconds.value for c in one}) == 1
    assert one[0].fixed_bytes == 4 * 2 * 64 * 128 * 4
    halves = [c for c in plan.choices if c.start == c.end and c.option == "model 2"]
    assert halves[0].fixed_bytes == one[0].fixed_bytes / 2
    assert plan.schedule("1f1b").bubble_share > 0
    assert "modelled on a100" in repr(plan)
    changed = plan.with_changes(microbatches=64)
    assert changed.best is not None
    tight = hs.plan_stages(
        [(layer, PARAMS)] * 2, array(16, 64), devices=1, microbatches=4, hardware="a100",
        options=HERE, memory=1000.0,
    )  # fmt: skip
    assert tight.best is None
    assert "no pipeline uses these devices within the memory limit" in repr(tight)


def test_a_plan_of_a_marked_model() -> None:
    plan = hs.plan_stages(
        marked, MARKED, TOKENS, devices=2, microbatches=4, hardware="a100", options=HERE,
        submeshes=[1],
    )  # fmt: skip
    assert [len(plan.layers), len(plan.choices)] == [4, 10]
    assert plan.best is not None
    assert len(plan.best.stages) == 2


def test_the_answer_to_figures_changed_by_hand() -> None:
    from hloscope.plan.stages.plan import answer, stage_data

    plan = hs.plan_stages(
        [(layer, PARAMS)] * 2, array(16, 64), devices=2, microbatches=4, hardware="a100",
        options=HERE, submeshes=[1],
    )  # fmt: skip
    gantt = next(s for s in stage_data(plan)["sections"] if s["type"] == "gantt")
    fields = {f["name"]: f["value"] for f in gantt["edit"]}
    assert fields["microbatches"] == 4
    found = answer(plan)("change", {**fields, "microbatches": 8})
    gantt = next(s for s in found["view"]["sections"] if s["type"] == "gantt")
    assert {f["name"]: f["value"] for f in gantt["edit"]}["microbatches"] == 8
    with pytest.raises(ValueError, match="no answer to 'open'"):
        answer(plan)("open", {})


def test_a_cancelled_plan_lists_the_stages_that_were_not_compiled() -> None:
    """A cancel left the call with an error of our own."""
    plan = hs.plan_stages(
        [(layer, PARAMS)] * 2, array(16, 64), devices=1, microbatches=4, hardware="a100",
        options=hs.StageOptions(isolate=False, progress=lambda now: False),
    )  # fmt: skip
    assert plan.best is None
    assert len(plan.failed) == 3
    assert all(said.endswith(": cancelled") for said in plan.failed)


def test_models_that_cannot_be_cut() -> None:
    with pytest.raises(CaptureError, match="the function has no marks"):
        hs.plan_stages(layer, PARAMS, array(4, 64), devices=2, microbatches=2)
    with pytest.raises(CaptureError, match="layer 1 cannot be traced on what comes before it"):
        hs.plan_stages(
            [(layer, PARAMS), (layer, {"w1": array(3, 3), "w2": array(3, 3)})], array(4, 64),
            devices=2, microbatches=2,
        )  # fmt: skip
    with pytest.raises(CaptureError, match="layer 0 is not a pair"):
        hs.plan_stages([layer], array(4, 64), devices=2, microbatches=2)
    with pytest.raises(ValueError, match="give devices="):
        hs.plan_stages([(layer, PARAMS)], array(4, 64), microbatches=2)
    with pytest.raises(ValueError, match="does not fit 2 devices"):
        hs.plan_stages([(layer, PARAMS)], array(4, 64), devices=2, microbatches=2, submeshes=[4])
