"""A program that does not fit is shown as far as XLA got with it."""

from __future__ import annotations

from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from hloscope.capturing.dumps.oom import is_out_of_memory, sentence
from hloscope.readers import read_modules
from hloscope.show import blocks
from hloscope.view.schema import decode


def too_big(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.sort(jnp.tanh(x @ w), 0) @ jnp.sort(jnp.sin(x @ w.T), 1)


@pytest.mark.parametrize("provenance", [True, False])
def test_what_does_not_fit_is_captured_and_says_so(libtpu: None, provenance: bool) -> None:
    a = jax.ShapeDtypeStruct((40_000, 40_000), jnp.float32)
    capture = hs.capture(too_big, a, a, topology="v5e:2x2", provenance=provenance)
    assert capture.does_not_fit.startswith("does not fit: 29.85 of 15.75 GiB: 5.97 GiB %")
    assert "test_oom.py:" in capture.does_not_fit
    assert capture.does_not_fit in capture.warnings
    assert capture.module.is_scheduled
    assert capture.memory.peak_bytes > 16 * 2**30
    header, _ = decode(blocks.view(capture))
    assert "does not fit" in header["title"]
    with pytest.raises(ValueError, match="profile"):
        capture.profile()
    assert capture.at("hlo").does_not_fit == ""


def test_small_programs_fit(libtpu: None) -> None:
    a = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    assert hs.capture(too_big, a, a, topology="v5e:2x2").does_not_fit == ""


@pytest.mark.parametrize(
    ("said", "begins"),
    [
        (
            "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total "
            "memory required for HLO temporaries (29.85G) exceeds available HBM (15.75G).",
            "does not fit: 29.85 of 15.75 GiB",
        ),
        (
            "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.96G of 15.75G hbm",
            "does not fit: 20.96 of 15.75 GiB",
        ),
        ("RESOURCE_EXHAUSTED: no more hbm", "does not fit: RESOURCE_EXHAUSTED: no more hbm"),
    ],
)
def test_the_words_of_several_versions(said: str, begins: str) -> None:
    (module,) = read_modules("HloModule m\nENTRY %e {\n  ROOT %p = f32[] parameter(0)\n}\n")
    error: Any = RuntimeError(said)
    assert is_out_of_memory(error)
    assert sentence(error, module) == begins


def test_other_errors_are_no_lack_of_memory() -> None:
    assert not is_out_of_memory(RuntimeError("INVALID_ARGUMENT: hbm"))
    assert not is_out_of_memory(RuntimeError("RESOURCE_EXHAUSTED: Ran out of memory in vmem"))
