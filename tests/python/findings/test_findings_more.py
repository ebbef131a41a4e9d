"""What was said wrongly, or not at all, of ordinary programs: state, halves of a vmap, repeats."""

from __future__ import annotations

from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from findings_programs import shaped
from jax import lax

BF16 = jnp.bfloat16


def not_donated(cap: hs.Capture) -> set[str]:
    """The arguments that are said to be replaced without being donated."""
    assert cap.findings.failed == ()
    said = {i.name for f in cap.findings.of("not-donated") for i in f.instructions}
    entry = cap.module.entry
    assert entry is not None
    numbers = {p.parameter_number for p in entry.parameters if p.name in said}
    return {d.argument for d in cap.memory.donations if d.parameter in numbers}


def test_weights_that_a_loop_hands_on_are_replaced_too() -> None:
    """XLA updates what the loop over layers returns, which is the argument as it was."""
    text = """HloModule m, is_scheduled=true
body { p = (s32[], f32[64,512,512], f32[512,512]) parameter(0)
  k = s32[] get-tuple-element(p), index=0
  w = f32[64,512,512] get-tuple-element(p), index=1
  x = f32[512,512] get-tuple-element(p), index=2
  one = s32[] constant(1)
  n = s32[] add(k, one)
  y = f32[512,512] tanh(x)
  ROOT t = (s32[], f32[64,512,512], f32[512,512]) tuple(n, w, y) }
cond { q = (s32[], f32[64,512,512], f32[512,512]) parameter(0)
  j = s32[] get-tuple-element(q), index=0
  b = s32[] constant(5)
  ROOT c = pred[] compare(j, b), direction=LT }
ENTRY e { ws = f32[64,512,512] parameter(0)
  x = f32[512,512] parameter(1)
  z = s32[] constant(0)
  t0 = (s32[], f32[64,512,512], f32[512,512]) tuple(z, ws, x)
  l = (s32[], f32[64,512,512], f32[512,512]) while(t0), condition=cond, body=body
  w = f32[64,512,512] get-tuple-element(l), index=1
  y = f32[512,512] get-tuple-element(l), index=2
  sum = f32[64,512,512] add(w, w)
  ROOT new = (f32[64,512,512], f32[512,512]) tuple(sum, y)
}
"""
    cap = hs.read(text)
    cap.hardware = "tpu-v5e"
    assert not_donated(cap) == {"ws"}


def test_state_that_one_branch_keeps_is_replaced_too() -> None:
    """A delayed update: every other step returns the state as it is."""

    def step(state: Any, x: Any) -> Any:
        grads = jax.grad(lambda w: jnp.tanh(x @ w).mean())(state["actor"])
        return lax.cond(
            state["n"] % 2 == 0,
            lambda s: {"actor": s["actor"] - 0.1 * grads, "n": s["n"] + 1},
            lambda s: {"actor": s["actor"], "n": s["n"] + 1},
            state,
        )

    state = {"actor": shaped((512, 512)), "n": shaped((), jnp.int32)}
    cap = hs.capture(jax.jit(step), state, shaped((64, 512)), hardware="tpu-v5e")
    assert "state['actor']" in not_donated(cap)


def test_caches_that_tpu_fetches_in_pieces_are_replaced_too() -> None:
    pytest.importorskip("libtpu")

    def decode(cache: Any, token: Any) -> Any:
        def one(carried: Any, _: Any) -> Any:
            cache, x, n = carried
            cache = [lax.dynamic_update_slice(c, x[:, None], (0, n, 0)) for c in cache]
            for c in cache:
                weights = jax.nn.softmax(jnp.einsum("bd,btd->bt", x, c))
                x = x + jnp.einsum("bt,btd->bd", weights, c)
            return (cache, x, n + 1), None

        return lax.scan(one, (cache, token, 0), None, length=16)[0][0]

    cache = [shaped((8, 2048, 256), BF16)] * 3
    cap = hs.capture(jax.jit(decode), cache, shaped((8, 256), BF16), topology="v5e:1x1")
    assert not_donated(cap) == {"cache[0]", "cache[1]", "cache[2]"}


def test_both_values_of_a_select_in_a_loop_are_computed() -> None:
    """What the loop carries is made by both in the trip before; it is not made for either."""

    def step(w: Any, states: Any) -> Any:
        def env(s: Any) -> Any:
            return lax.cond(s[0] > 0, lambda s: jnp.tanh(s @ w[0]), lambda s: s @ w[1], s)

        return lax.scan(lambda s, _: (jax.vmap(env)(s), None), states, None, length=8)[0]

    w = [shaped((256, 256))] * 2
    cap = hs.capture(jax.jit(step), w, shaped((512, 256)), hardware="tpu-v5e")
    (found,) = cap.findings.of("batched-branches")
    assert found.share > 0.5


def test_what_autodiff_spreads_for_the_gradient_of_a_sum_is_no_repeated_operand() -> None:
    def loss(theta: Any, x: Any) -> Any:
        return jnp.exp(-((x[:, None] - x[None]) ** 2 * theta).sum(-1)).sum()

    cap = hs.capture(jax.jit(jax.grad(loss)), shaped((16,)), shaped((512, 16)), hardware="tpu-v5e")
    assert cap.findings.failed == ()
    assert cap.findings.of("repeated-operand") == ()


def test_both_repeated_operands_are_named() -> None:
    pytest.importorskip("libtpu")

    def attend(q: Any, k: Any, v: Any) -> Any:
        k, v = (jnp.repeat(x, 8, axis=2) for x in (k, v))
        weights = jax.nn.softmax(jnp.einsum("bqhe,bthe->bhqt", q, k))
        return jnp.einsum("bhqt,bthe->bqhe", weights, v)

    given = [shaped((8, n, h, 128), BF16) for n, h in ((1, 32), (1024, 4), (1024, 4))]
    cap = hs.capture(jax.jit(attend), *given, topology="v5e:1x1")
    (found,) = cap.findings.of("repeated-operand")
    assert "`k`" in found.title
    assert "`v`" in found.title


def test_values_in_64_bits_are_said_of_a_tpu_that_has_none() -> None:
    pytest.importorskip("libtpu")
    with jax.enable_x64(True):
        scale = np.float64(0.3)
        wide = jax.jit(lambda x: jnp.tanh(x * jnp.asarray(scale)).sum())
        found = hs.capture(wide, shaped((512, 512)), topology="v5e:1x1").findings
        narrow = jax.jit(lambda x: jnp.tanh(x * 0.3).sum())
        healthy = hs.capture(narrow, shaped((512, 512)), topology="v5e:1x1").findings
    assert "pairs of 32-bit" in found.of("wide-values")[0].title
    assert healthy.of("wide-values") == ()


def test_memory_traffic_of_a_copy_into_vmem_is_what_it_reads() -> None:
    text = """HloModule m, is_scheduled=true
ENTRY e { x = f32[1024,1024]{1,0} parameter(0)
  turned = f32[1024,1024]{0,1:S(1)} copy(x)
  ROOT y = f32[1024,1024]{0,1} tanh(turned)
}
"""
    cap = hs.read(text)
    cap.hardware = "tpu-v5e"
    (found,) = cap.findings.of("layout-copies")
    assert found.bytes == 1024 * 1024 * 4
