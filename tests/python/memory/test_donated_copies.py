"""A donated argument whose output is in its memory, and yet copied: which copy, and why."""

from __future__ import annotations

from typing import Any

import hloscope as hs
import jax
import pytest

HEAD = "HloModule m, is_scheduled=true, input_output_alias={ALIAS}\n\n"
LOOP = """%cond (c: (s32[], f32[4,64], f32[4,64])) -> pred[] {
  %c = (s32[], f32[4,64]{1,0}, f32[4,64]{1,0}) parameter(0)
  %n = s32[] get-tuple-element(%c), index=0
  %four = s32[] constant(4)
  ROOT %less = pred[] compare(%n, %four), direction=LT
}

%body (b: (s32[], f32[4,64], f32[4,64])) -> (s32[], f32[4,64], f32[4,64]) {
  %b = (s32[], f32[4,64]{1,0}, f32[4,64]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%b), index=0
  %read = f32[4,64]{1,0} get-tuple-element(%b), index=1
  %stack = f32[4,64]{1,0} get-tuple-element(%b), index=2
  %zero = s32[] constant(0)
  %one = s32[] constant(1)
  %row = f32[1,64]{1,0} dynamic-slice(%read, %i, %zero), dynamic_slice_sizes={1,64}
  %new = f32[1,64]{1,0} tanh(%row)
  %put = f32[4,64]{1,0} dynamic-update-slice(%stack, %new, %i, %zero)
  %next = s32[] add(%i, %one)
  ROOT %out = (s32[], f32[4,64]{1,0}, f32[4,64]{1,0}) tuple(%next, %read, %put)
}

"""
STACKED = (
    HEAD.replace("ALIAS", " {}: (0, {}, may-alias) ")
    + LOOP
    + """ENTRY %main (cache: f32[4,64]) -> f32[4,64] {
  %cache = f32[4,64]{1,0} parameter(0)
  %begin = s32[] constant(0)
  %room = f32[4,64]{1,0} custom-call(), custom_call_target="AllocateBuffer"
  %t = (s32[], f32[4,64]{1,0}, f32[4,64]{1,0}) tuple(%begin, %cache, %room)
  %w = (s32[], f32[4,64]{1,0}, f32[4,64]{1,0}) while(%t), condition=%cond, body=%body
  %made = f32[4,64]{1,0} get-tuple-element(%w), index=2
  ROOT %back = f32[4,64]{1,0} copy(%made)
}
"""
)
# the loop updates the argument's own memory
IN_PLACE = (
    STACKED.replace("custom-call(), custom_call_target=", "copy(%cache), was=")
    .replace("%room = f32[4,64]{1,0} copy(%cache)", "%room = f32[4,64]{1,0} bitcast(%cache)")
    .replace("copy(%made)", "bitcast(%made)")
)
# all of it is read again after a row was written: the row goes into a copy
STILL_READ = (
    HEAD.replace("ALIAS", " {0}: (0, {}, may-alias) ")
    + """ENTRY %main (cache: f32[4,64], row: f32[1,64]) -> (f32[4,64], f32[4,64]) {
  %cache = f32[4,64]{1,0} parameter(0)
  %row = f32[1,64]{1,0} parameter(1)
  %zero = s32[] constant(0)
  %kept = f32[4,64]{1,0} copy(%cache)
  %put = f32[4,64]{1,0} dynamic-update-slice(%kept, %row, %zero, %zero)
  %later = f32[4,64]{1,0} reverse(%cache), dimensions={0}
  ROOT %out = (f32[4,64]{1,0}, f32[4,64]{1,0}) tuple(%put, %later)
}
"""
)
TURNED = STILL_READ.replace(
    "reverse(%cache), dimensions={0}", "reverse(%put), dimensions={0}"
).replace("%kept = f32[4,64]{1,0} copy", "%kept = f32[4,64]{0,1} copy")
SWAPPED = (
    HEAD.replace("ALIAS", " {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) ")
    + """ENTRY %main (a: f32[4,64], b: f32[4,64]) -> (f32[4,64], f32[4,64]) {
  %a = f32[4,64]{1,0} parameter(0)
  %b = f32[4,64]{1,0} parameter(1)
  %x = f32[4,64]{1,0} copy(%b)
  %y = f32[4,64]{1,0} copy(%a)
  ROOT %out = (f32[4,64]{1,0}, f32[4,64]{1,0}) tuple(%x, %y)
}
"""
)
TWICE = (
    HEAD.replace("ALIAS", " {0}: (0, {}, may-alias) ")
    + """ENTRY %main (a: f32[4,64]) -> (f32[4,64], f32[4,64]) {
  %a = f32[4,64]{1,0} parameter(0)
  %new = f32[4,64]{1,0} tanh(%a)
  %x = f32[4,64]{1,0} copy(%new)
  ROOT %out = (f32[4,64]{1,0}, f32[4,64]{1,0}) tuple(%x, %new)
}
"""
)
OTHER = (
    HEAD.replace("ALIAS", " {0}: (0, {}, may-alias) ")
    + """%add (p: f32[], q: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  %q = f32[] parameter(1)
  ROOT %s = f32[] add(%p, %q)
}

ENTRY %main (a: f32[4,64], b: f32[4,64]) -> (f32[4,64], f32[]) {
  %a = f32[4,64]{1,0} parameter(0)
  %b = f32[4,64]{1,0} parameter(1)
  %zero = f32[] constant(0)
  %new = f32[4,64]{1,0} tanh(%b)
  %sum = f32[] reduce(%a, %zero), dimensions={0,1}, to_apply=%add
  %x = f32[4,64]{1,0} copy(%new)
  ROOT %out = (f32[4,64]{1,0}, f32[]) tuple(%x, %sum)
}
"""
)
THROUGH_VMEM = """HloModule m, is_scheduled=true, input_output_alias={ {}: (0, {}, may-alias) }

ENTRY %main (a: f32[64]) -> f32[64] {
  %a = f32[64]{0:T(128)} parameter(0)
  %in = f32[64]{0:T(128)S(1)} copy(%a)
  %new = f32[64]{0:T(128)S(1)} tanh(%in)
  ROOT %out = f32[64]{0:T(128)} copy(%new)
}
"""


def donation(text: str, argument: int = 0) -> Any:
    return next(d for d in hs.read(text).memory.donations if d.parameter == argument)


@pytest.mark.parametrize(
    ("text", "reason", "because", "why"),
    [
        (STACKED, "loop", "w",
         "%back copies all of it once: the loop %w stacks its results in memory of its own"),
        (STILL_READ, "live value", "later",
         "%kept copies all of it once: %later reads the value that was there"),
        (TURNED, "layout", None,
         "%kept copies all of it once: the argument and the output have different layouts"),
        (OTHER, "live value", "sum",
         "%x copies all of it once: %sum reads the value that was there"),
        (TWICE, "alias", "new",
         "%x copies all of it once: %new has the same value in memory of its own"),
    ],
    ids=["loop", "live value", "layout", "made of another", "returned twice"],
)  # fmt: skip
def test_why_it_is_copied(text: str, reason: str, because: str | None, why: str) -> None:
    found = donation(text)
    assert found.outcome == "aliased, but copied"
    (copy,) = found.copies
    assert copy.reason == reason
    assert (copy.because.name if copy.because else None) == because
    assert (copy.bytes, copy.runs) == (1024, 1)
    assert found.why == why


def test_arguments_that_change_places() -> None:
    for argument, other in ((0, "b"), (1, "a")):
        found = donation(SWAPPED, argument)
        assert found.outcome == "aliased, but copied"
        (copy,) = found.copies
        assert (copy.reason, copy.because.name) in (("alias", other), ("live value", "y"))


def test_what_is_updated_in_place_is_aliased() -> None:
    found = donation(IN_PLACE)
    assert (found.outcome, found.copies, found.why) == ("aliased", (), "")


def test_a_value_that_is_worked_on_in_vmem_is_aliased() -> None:
    found = donation(THROUGH_VMEM)
    assert found.outcome == "aliased"
    assert {c.reason for c in found.copies} == {"memory space"}


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda a: a.T @ a, "live value"),  # no product is made in place
        (lambda a: jax.lax.fori_loop(0, 9, lambda i, a: a + a.T, a), "live value"),
        (lambda a: jax.lax.scan(lambda c, r: (c + r.sum(), r * 2), 0.0, a), "loop"),
        (lambda a: a.at[0].set(1.0), None),
        (lambda a: jax.lax.fori_loop(0, 9, lambda i, a: a.at[i].set(a[i - 1] * 2), a), None),
    ],
    ids=["product", "carried and turned", "stacked", "updated", "updated in a loop"],
)
def test_programs_compiled_for_cpu(function: Any, reason: str | None) -> None:
    x = jax.ShapeDtypeStruct((64, 64), "float32")
    (found,) = hs.capture(jax.jit(function, donate_argnums=0), x).memory.donations
    assert found.outcome == ("aliased, but copied" if reason else "aliased")
    assert {c.reason for c in found.copies} == ({reason} if reason else set())


def test_elements_of_a_loop_that_change_places() -> None:
    def f(a: Any, b: Any) -> Any:
        return jax.lax.fori_loop(0, 9, lambda i, c: (c[1], c[0]), (a, b))

    x = jax.ShapeDtypeStruct((64, 64), "float32")
    for found in hs.capture(jax.jit(f, donate_argnums=(0, 1)), x, x).memory.donations:
        assert found.outcome == "aliased, but copied"
        assert "alias" in {c.reason for c in found.copies}


def test_in_a_loop_each_run_counts() -> None:
    text = STACKED.replace(
        "%put = f32[4,64]{1,0} dynamic-update-slice(%stack",
        "%own = f32[4,64]{1,0} copy(%stack)\n  %put = f32[4,64]{1,0} dynamic-update-slice(%own",
    )
    copies = {c.instruction.name: c.runs for c in donation(text).copies}
    assert copies == {"back": 1, "own": 4}
    assert "%own copies all of it 4 times" in donation(text).why
    assert donation(text).why.endswith("; 1 more copy")


def test_a_cache_that_a_scan_returns_on_tpu(libtpu: None) -> None:
    jnp = jax.numpy

    def layer(x: Any, both: Any) -> Any:
        w, k = both
        k = jax.lax.dynamic_update_slice_in_dim(k, (x @ w)[:, None], 5, 1)
        return x + jnp.einsum("bs,bsd->bd", jnp.einsum("bd,bsd->bs", x, k), k), k

    def of(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, "bfloat16")

    step = jax.jit(lambda w, c, x: jax.lax.scan(layer, x, (w, c)), donate_argnums=1)
    given = of(8, 512, 512), of(8, 8, 2048, 512), of(8, 512)
    cap = hs.capture(step, *given, topology="v5e:1x1", provenance=False)
    found = next(d for d in cap.memory.donations if d.argument == "c")
    assert found.outcome == "aliased, but copied"
    assert [c.reason for c in found.copies] == ["loop"]


# The update reads mu, in no order with what writes the new mu.
UPDATES = """HloModule m, is_scheduled=true

ENTRY e {
  w = f32[1048576] parameter(0)
  mu = f32[1048576] parameter(1)
  g = f32[1048576] parameter(2)
  w1 = f32[1048576] subtract(w, mu)
  mu1 = f32[1048576] add(READ, g)
  ROOT out = (f32[1048576], f32[1048576]) tuple(w1, mu1)
}
"""


def test_what_is_copied_before_there_is_a_schedule_gains_nothing_by_donation() -> None:
    for read, gained in (("mu", 1), ("w1", 2)):
        memory = hs.read(UPDATES.replace("READ", read)).memory
        assert memory.gain_if_donated({0, 1}) == 8 << 20
        assert memory.gain_if_donated({0, 1}, before_schedule=True) == gained << 22


@pytest.mark.parametrize("way", ["norm of the old mean", "a second mean"])
def test_what_donation_gains_on_cpu_counts_the_copies_that_it_costs(way: str) -> None:
    """The old mean is read in no order with what writes the new one: donated, it is copied when the
    program begins, and some copies lie in arguments that are copied already."""
    jnp = jax.numpy

    def step(ws: Any, mean: Any, x: Any) -> Any:
        def loss(ws: Any) -> Any:
            y = x
            for w in ws:
                y = jnp.tanh(y @ w)
            return (y * y).sum()

        grads = jax.grad(loss)(ws)
        updates = new = [0.9 * m + g for m, g in zip(mean, grads, strict=True)]
        if way == "a second mean":
            new = [0.99 * m + g for m, g in zip(mean, grads, strict=True)]
            updates = jax.lax.optimization_barrier(updates)
        norm = jnp.sqrt(sum((m * m).sum() for m in (mean if updates is new else updates)))
        return [w - 0.1 * m / norm for w, m in zip(ws, updates, strict=True)], new

    ws = [jax.ShapeDtypeStruct((256, 256), "float32")] * 6
    given = ws, ws, jax.ShapeDtypeStruct((1024, 256), "float32")
    plain = hs.capture(jax.jit(step), *given)
    donated = hs.capture(jax.jit(step, donate_argnums=(0, 1)), *given)
    copied = donated.text.count(" copy(")
    assert copied >= 6
    gained = plain.memory.simulated_bytes - donated.memory.simulated_bytes
    assert gained == pytest.approx({6: 2, 11: 1.5}[copied] * 2**20, rel=0.1)
    said = plain.memory.gain_if_donated(range(12), before_schedule=True)
    assert said == pytest.approx(gained, rel=0.1)
    assert said < 0.8 * plain.memory.gain_if_donated(range(12))
    # the advice says so, and so does the audit of what is donated
    (advice,) = plain.findings.of("not-donated")
    assert f"once donated, XLA:CPU copies {copied} of them first" in advice.evidence
    rows = [d for d in donated.memory.donations if d.outcome == "aliased, but copied"]
    assert len(rows) == copied
    assert all(c.reason == "live value" for d in rows for c in d.copies)
