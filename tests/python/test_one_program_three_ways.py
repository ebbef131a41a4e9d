"""Text, proto and capture of one program: equal Modules, and equal figures of all kinds."""

from __future__ import annotations

import functools
from typing import Any

import hloscope as hs
import pytest
from figures_everywhere import differing, told
from hloscope.hlo.compare import differences

SAME = ("FLOPs", "bytes", "wire", "payload", "live at the peak", "arguments", "collectives")
SAME += ("instructions", "parameter bytes", "output bytes", "estimated cycles", "seconds")


def three_ways(built: Any, tmp_path: Any) -> None:
    """Fails unless text, proto and capture say the same."""
    (tmp_path / "m.hlo").write_text(built.text)
    (tmp_path / "m.hlo.pb").write_bytes(built.proto)
    cap = built.capture
    text, proto = (hs.read(tmp_path / n, hardware=cap.hardware) for n in ("m.hlo", "m.hlo.pb"))
    assert not text.warnings
    assert differences(text.module, proto.module) == []
    assert differences(text.module, cap.module) == []
    of_text, of_proto = told(text), told(proto)
    assert differing(of_text) == {}
    assert of_text == of_proto
    assert repr(text.source) == repr(proto.source)
    assert text.source.to_dict() == proto.source.to_dict()
    # Where devices are on the torus a dump does not say: its time assumes a slice, and says so.
    on_cpu = cap.target.platform == "cpu"
    timed = on_cpu or all(t.torus_is_known for t in text.cost().transfers)
    assert timed or "assumed" in repr(text.cost())
    assert by_line(text, timed) == by_line(cap, timed)
    assert text.collectives.wire_bytes == cap.collectives.wire_bytes
    for name, places in told(cap).items():
        if name in SAME and (timed or name != "seconds"):
            assert places == of_text[name], name


def by_line(cap: Any, timed: bool) -> dict[Any, dict[str, float]]:
    """The figures of each source line, without time unless ``timed``."""
    return {
        (x["file"], x["line"]): {k: v for k, v in x.items() if timed or "seconds" not in k}
        for x in cap.source.to_dict()
    }


@pytest.mark.parametrize("name", ["pallas_interpret", "callbacks", "ring_attention"])
def test_on_cpu(compiled, name, tmp_path):
    three_ways(compiled(name), tmp_path)


@pytest.mark.parametrize("name", ["gpt_remat", "fsdp_tp"])
def test_on_tpu(compiled, libtpu, name, tmp_path):
    three_ways(compiled(name, "v5e:2x4"), tmp_path)


@functools.cache
def kernel_and_offload() -> Any:
    """A Pallas kernel in a loop, and weights that stay on the host, compiled for a TPU."""
    import jax
    import jax.numpy as jnp
    from corpus.build import topology_devices
    from jax.experimental import pallas as pl
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(topology_devices("v5e:2x2")[:1], ("x",))
    here = NamedSharding(mesh, PartitionSpec())
    host = here.with_memory_kind("pinned_host")

    def double(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * 2.0

    def step(w: Any, x: Any) -> Any:
        w = jax.device_put(w, here)
        kernel = pl.pallas_call(double, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))
        return jax.lax.fori_loop(0, 3, lambda i, v: kernel(jnp.tanh(v @ w)), x)

    shapes = [jax.ShapeDtypeStruct((256, 256), jnp.float32, sharding=s) for s in (host, here)]
    return jax.jit(step), shapes


def test_pallas_and_host_offload_on_tpu(libtpu, tmp_path):
    from types import SimpleNamespace

    fn, shapes = kernel_and_offload()
    compiled = fn.lower(*shapes).compile()
    (module,) = compiled.runtime_executable().hlo_modules()
    built = SimpleNamespace(
        text=compiled.as_text(),
        proto=module.as_serialized_hlo_module_proto(),
        capture=hs.capture(compiled),
    )
    assert "tpu_custom_call" in built.text
    assert "S(5)" in built.text
    three_ways(built, tmp_path)
