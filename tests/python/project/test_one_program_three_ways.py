"""Text, proto and capture of one program: equal Modules, and equal figures of all kinds."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import hloscope as hs
import pytest
from corpus.programs import PROGRAMS
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
        (x["file"], x["line"]): {
            k: v for k, v in x.items() if k != "text" and (timed or "seconds" not in k)
        }
        for x in cap.source.to_dict()["rows"]
    }


@pytest.mark.some(12)
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_on_cpu(compiled, name, tmp_path):
    three_ways(compiled(name), tmp_path)


@pytest.mark.some(8)
@pytest.mark.parametrize("name", sorted(n for n, p in PROGRAMS.items() if "tpu" in p.platforms))
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


@functools.cache
def splash_attention() -> Any:
    """JAX's own splash attention and its gradient, heads one to a device."""
    import jax
    import jax.numpy as jnp
    from corpus.build import topology_devices
    from jax.experimental.pallas.ops.tpu.splash_attention import (
        splash_attention_kernel as splash,
    )
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    mesh = Mesh(topology_devices("v5e:2x2"), ("heads",))
    causal = masks.MultiHeadMask([masks.CausalMask((512, 512)) for _ in range(4)])
    kernel = splash.make_splash_mha(mask=causal, head_shards=4, q_seq_shards=1)
    spec = P("heads", None, None)
    of_kernel = kernel.manual_sharding_spec(NamedSharding(mesh, P("heads", None)))
    attend = jax.shard_map(
        lambda kernel, q, k, v: kernel(q, k, v),
        mesh=mesh,
        in_specs=(of_kernel, spec, spec, spec),
        out_specs=spec,
        check_vma=False,
    )
    x = jax.ShapeDtypeStruct((4, 512, 128), jnp.bfloat16, sharding=NamedSharding(mesh, spec))
    loss = lambda q, k, v: attend(kernel, q, k, v).astype(jnp.float32).sum()  # noqa: E731
    return jax.jit(jax.grad(loss, argnums=(0, 1, 2))), [x, x, x]


def compile_and_capture(fn: Any, shapes: list[Any]) -> Any:
    compiled = fn.lower(*shapes).compile()
    (module,) = compiled.runtime_executable().hlo_modules()
    return SimpleNamespace(
        text=compiled.as_text(),
        proto=module.as_serialized_hlo_module_proto(),
        capture=hs.capture(compiled),
    )


@pytest.mark.parametrize("program", [kernel_and_offload, splash_attention])
def test_kernels_and_host_offload_on_tpu(libtpu, program, tmp_path):
    built = compile_and_capture(*program())
    assert "tpu_custom_call" in built.text
    assert ("S(5)" in built.text) == (program is kernel_and_offload)
    three_ways(built, tmp_path)


def partitioned_by_hand() -> Any:
    """An op whose partitioning the program itself decides. For a TPU that is not there jax cannot
    compile one: libtpu does not call back into Python."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental.custom_partitioning import custom_partitioning
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    mesh = Mesh(np.array(jax.devices("cpu")[:8]).reshape(2, 4), ("data", "model"))

    @custom_partitioning
    def normal(x: Any) -> Any:
        return x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True))

    def rows(shape: Any) -> Any:
        return NamedSharding(mesh, P(shape.sharding.spec[0], None))

    def infer(mesh: Any, arguments: Any, result: Any) -> Any:
        return rows(arguments[0])

    def partition(mesh: Any, arguments: Any, result: Any) -> Any:
        return mesh, normal.fun, rows(arguments[0]), (rows(arguments[0]),)

    normal.def_partition(
        infer_sharding_from_operands=infer, partition=partition, sharding_rule="i j -> i j"
    )

    def loss(w: Any, x: Any) -> Any:
        return jnp.sum(jnp.tanh(normal(jnp.tanh(x @ w)) @ w.T))

    shapes = [
        jax.ShapeDtypeStruct(s, jnp.float32, sharding=NamedSharding(mesh, spec))
        for s, spec in (((64, 128), P(None, "model")), ((32, 64), P("data", None)))
    ]
    return jax.jit(loss), shapes


def test_an_op_that_partitions_itself(tmp_path):
    built = compile_and_capture(*partitioned_by_hand())
    three_ways(built, tmp_path)
    gathers = [r for r in built.capture.collectives if r.kind == "all-gather"]
    assert [r.axes for r in gathers] == ["model"]  # it takes rows whole
