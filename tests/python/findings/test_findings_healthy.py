"""Programs written well have nothing to report, but for what is said here and why it is true."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest

HEALTHY = (
    "fori_matmul", "nested_loops", "cond_branches", "switch_four", "loops_and_branches",
    "lstm_scan", "scan_gradient", "associative_scan", "mapped", "batched_while", "inner_jits",
    "custom_rule", "cnn_step", "conv_variants", "windows", "fourier", "mixed_precision",
    "normalisations", "data_parallel", "map_psum", "ring_attention", "fsdp_scan", "gpt_scan",
    "gpt_single",
)  # fmt: skip
# What is said of them, and why it is worth saying.
TRUE = {
    # the embedding is used twice, and its two gradients are each summed over the devices
    ("gpt_scan", "reduced-twice"),
}


def test_healthy_programs_have_nothing_to_report(compiled: Any) -> None:
    said = set()
    for name in HEALTHY:
        found = compiled(name).capture.findings
        assert found.failed == ()
        said |= {(name, f.rule) for f in found}
    assert said == TRUE


# The same for v5e:2x4, where they are far too small for eight chips.
TRUE_ON_TPU = {
    # A layer of 64×64 sums its gradient in 12 µs of latency, 16 times: nothing can hide that.
    ("fsdp_scan", "exposed-collective"),
    # And sums all of it where each device keeps an eighth: XLA makes no reduce-scatter so small.
    ("fsdp_scan", "reduced-then-sliced"),
    # Two sums over the model axis in each layer of microseconds.
    ("gpt_scan", "exposed-collective"),
    # The gradient of its tied embedding: XLA sums that of the logits, adds that of the lookup, and
    # sums again.
    ("gpt_scan", "reduced-twice"),
}


@pytest.mark.usefixtures("libtpu")
def test_healthy_programs_have_nothing_to_report_on_tpu_either(compiled: Any) -> None:
    from corpus.programs import PROGRAMS

    said, asked = set(), 0
    for name in HEALTHY:
        if "tpu" not in PROGRAMS[name].platforms:
            continue
        asked += 1
        found = compiled(name, "v5e:2x4").capture.findings
        assert found.failed == ()
        said |= {(name, f.rule) for f in found}
    assert asked >= 20
    assert said == TRUE_ON_TPU


def layers_of_decoding(layers: int, batch: int, heads: int, each: int, length: int) -> hs.Capture:
    """One token for every sequence of a batch, with a cache per layer as people lay it out."""
    width = heads * each

    def attend(p: Any, x: Any, keys: Any, values: Any, at: Any) -> Any:
        q, k, v = ((x @ p[n]).reshape(batch, 1, heads, each) for n in ("q", "k", "v"))
        keys = jax.lax.dynamic_update_slice(keys, k, (0, at, 0, 0))
        values = jax.lax.dynamic_update_slice(values, v, (0, at, 0, 0))
        scores = jnp.einsum("bhd,bshd->bhs", q[:, 0], keys) / each**0.5
        scores = jnp.where(jnp.arange(length) <= at, scores, -1e9)
        weights = jax.nn.softmax(scores.astype(jnp.float32)).astype(x.dtype)
        out = jnp.einsum("bhs,bshd->bhd", weights, values).reshape(batch, width)
        return out @ p["o"], (keys, values)

    def step(params: Any, cache: Any, x: Any, at: Any) -> Any:
        new = []
        for p, (keys, values) in zip(params, cache, strict=True):
            out, kept = attend(p, x, keys, values, at)
            x = x + out
            new.append(kept)
        return x, new

    def s(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16)

    params = [{n: s(width, width) for n in "qkvo"} for _ in range(layers)]
    cache = [(s(batch, length, heads, each),) * 2 for _ in range(layers)]
    at = jax.ShapeDtypeStruct((), jnp.int32)
    return hs.capture(jax.jit(step, donate_argnums=1), params, cache, s(batch, width), at)


def the_turned_cache(cap: hs.Capture) -> Any:
    rows = [f for f in cap.findings.of("layout-copies") if "`cache`" in f.title]
    assert rows, cap.findings
    return rows[0]


def test_a_decode_step_turns_its_cache_once_for_each_operand() -> None:
    found = the_turned_cache(layers_of_decoding(8, 4, 4, 64, 1024))
    assert found.title.startswith("16 transposes or layout copies")
    assert len(found.instructions) == 16
    assert found.line
    assert found.share > 0.05


def test_somebodys_decode_step_turns_its_cache_16_times(real: Path) -> None:
    if len(jax.devices()) < 8:  # asked here: asking starts jax's threads
        pytest.skip("needs 8 devices")
    lines = (real / "models" / "decode.py").read_text().splitlines()
    kept = [x for x in lines if not x.startswith(("cap=", "import common", "import sys", "os."))]
    source = "import jax, jax.numpy as jnp, numpy as np, functools\n" + "\n".join(kept)
    scope: dict[str, Any] = {}
    exec(source, scope)
    cap = hs.capture(scope["f"], *scope["args"](scope["mesh"]))
    found = the_turned_cache(cap)
    assert found.title.startswith("16 transposes or layout copies")
    # a third of the modelled step: 80 of 241 ms
    assert found.share == pytest.approx(80 / 241, abs=0.05)
