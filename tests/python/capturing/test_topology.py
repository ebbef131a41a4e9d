"""Pods from a laptop: topologies, meshes over them, and what is said when they do not fit."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hloscope.capturing import topology
from hloscope.capturing.placing import target_mesh
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

pytestmark = pytest.mark.usefixtures("libtpu")


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))


@pytest.fixture(scope="module")
def args(mesh: Mesh) -> tuple[Any, ...]:
    def sds(shape: tuple[int, ...], *spec: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    return sds((64, 128), "data"), sds((128, 256), None, "model")


def step(x: jax.Array, w: jax.Array) -> jax.Array:
    y = jax.lax.with_sharding_constraint(x @ w, P("data", "model"))
    return jnp.sum(jax.nn.gelu(y))


def test_shardings_move_by_axis_name(args: tuple[Any, ...]) -> None:
    cap = hs.capture(step, *args, topology="v5e:4x4", mesh={"data": 2, "model": 8})
    target = cap.target
    assert target.platform == "tpu"
    assert target.device_kind == "TPU v5 lite"
    assert len(target.devices) == 16
    assert {d.coords for d in target.devices} == {(i, j, 0) for i in range(4) for j in range(4)}
    assert target.mesh is not None
    assert (target.mesh.axis_names, target.mesh.axis_sizes) == (("data", "model"), (2, 8))
    assert sorted(target.mesh.partitions) == list(range(16))
    assert [a.spec for a in target.arguments] == [(("data",), ()), ((), ("model",))]
    assert cap.module.num_partitions == 16
    shapes = {p.shape.dense_text for p in cap.module.entry.parameters}  # type: ignore[union-attr]
    assert shapes == {"f32[32,128]", "f32[128,32]"}
    assert "sdy.sharding_origins" in target.dumps["shardy/02.after_propagation"]
    assert cap.module.buffer_assignment is not None


def test_a_pod_of_256_chips(args: tuple[Any, ...]) -> None:
    cap = hs.capture(step, *args, topology="v5e:16x16", mesh={"data": 16, "model": 16})
    assert len(cap.target.devices) == 256
    assert {d.coords for d in cap.target.devices} == {
        (i, j, 0) for i in range(16) for j in range(16)
    }


def test_the_arguments_mesh_is_the_default(args: tuple[Any, ...]) -> None:
    cap = hs.capture(step, *args, topology="v5e:2x4")
    assert cap.target.mesh is not None
    assert cap.target.mesh.axis_sizes == (2, 4)


def test_a_mesh_object_gives_its_axes(args: tuple[Any, ...], mesh: Mesh) -> None:
    cap = hs.capture(step, *args, topology="v6e:2x4", mesh=mesh)
    assert cap.target.device_kind == "TPU v6 lite"
    assert cap.target.mesh is not None
    assert cap.target.mesh.axis_sizes == (2, 4)


def test_unsharded_arguments_go_to_one_chip_or_are_replicated() -> None:
    x, y = np.ones((16, 16), np.float32), jnp.ones((16, 16))
    assert len(hs.capture(jnp.dot, x, y, topology="v5e:2x2").target.devices) == 1
    cap = hs.capture(jnp.dot, x, y, topology="v5e:2x2", mesh={"x": 4})
    assert len(cap.target.devices) == 4
    assert [a.spec for a in cap.target.arguments] == [((), ()), ((), ())]


@pytest.mark.parametrize(
    ("name", "axes", "devices", "kind"),
    [
        ("v4:2x2x1", {"a": 2, "b": 2}, 4, "TPU v4"),  # megacore: one device a chip
        ("v3:2x2", {"a": 8}, 8, "TPU v3"),  # two devices a chip
        ("tpu7x:2x2x1", {"a": 2, "b": 4}, 8, "TPU7x"),  # two devices a chip
        ("v5p:2x2x2", {"a": 2, "b": 4}, 8, "TPU v5"),
        ("v5p:4x4x4", {"a": 8, "b": 8}, 64, "TPU v5"),  # splits a physical axis
        ("v5litepod-8", {"a": 8}, 8, "TPU v5 lite"),
        ("v5p-8", {"a": 4}, 4, "TPU v5"),  # eight cores are four chips
        ("V5E:2X2", {"a": 4}, 4, "TPU v5 lite"),
    ],
)
def test_kinds_and_spellings(name: str, axes: dict[str, int], devices: int, kind: str) -> None:
    x = np.ones((64, 64), np.float32)
    cap = hs.capture(lambda v: v @ v, x, topology=name, mesh=axes, in_shardings=P("a"))
    assert (len(cap.target.devices), cap.target.device_kind) == (devices, kind)
    assert all(d.coords is not None for d in cap.target.devices)


@pytest.mark.parametrize(
    ("name", "axes", "says"),
    [
        ("v5e:16x17", {"a": 4}, "unknown TPU topology 'v5e:16x17'"),
        ("v5e:16x17", {"a": 4}, "did you mean v5e:16x16"),
        ("v5e", {"a": 4}, "did you mean v5e:"),
        ("v9:4x4", {"a": 4}, "did you mean v"),
        ("nonsense", {"a": 4}, "did you mean v"),
        ("", {"a": 4}, "the topology has no name"),
        ("v5e:2x4", {"a": 4}, "mesh a=4 needs 4 devices and v5e:2x4 has 8"),
        ("v5e:2x4", {"a": 4, "b": 4}, "mesh a=4 × b=4 needs 16 devices and v5e:2x4 has 8"),
        ("v3:2x2", {"a": 4}, "v3:2x2 has 8 (2 on each of 4 chips)"),
    ],
)
def test_what_does_not_fit_is_said(name: str, axes: dict[str, int], says: str) -> None:
    with pytest.raises(hs.CaptureError) as caught:
        hs.capture(jnp.sin, jnp.ones(8), topology=name, mesh=axes)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def closes_over_constraint(mesh: Mesh) -> Callable[..., Any]:
    return lambda x, w: jax.lax.with_sharding_constraint(x @ w, NamedSharding(mesh, P("data")))


def closes_over_shard_map(mesh: Mesh) -> Callable[..., Any]:
    body = jax.shard_map(
        lambda x, w: jax.lax.psum(x @ w, "model"), mesh=mesh,
        in_specs=(P("data", "model"), P("model", None)), out_specs=P("data", None),
    )  # fmt: skip
    return lambda x, w: body(x, w)


def jits_inside(mesh: Mesh) -> Callable[..., Any]:
    inner = jax.jit(lambda x: x * 2, out_shardings=NamedSharding(mesh, P(None, "model")))
    return lambda x, w: inner(x @ w)


def puts_on_devices(mesh: Mesh) -> Callable[..., Any]:
    return lambda x, w: jax.device_put(x @ w, NamedSharding(mesh, P("data", "model")))


@pytest.mark.parametrize(
    "make", [closes_over_constraint, closes_over_shard_map, jits_inside, puts_on_devices]
)
@pytest.mark.parametrize(
    "where", [{"topology": "v5e:2x4"}, {"topology": "v5e:4x4", "mesh": "data=4,model=4"},
              {"mesh": {"data": 4, "model": 2}}],
)  # fmt: skip
def test_a_mesh_that_is_closed_over_becomes_the_one_to_capture_for(
    make: Any, where: dict[str, Any], mesh: Mesh, args: tuple[Any, ...]
) -> None:
    plainly: dict[str, Any] = {"exact": False, "provenance": False}
    function = make(mesh)
    moved = hs.capture(function, *args, **where, **plainly)
    to = target_mesh(where.get("topology"), where.get("mesh"), [mesh])
    written_for_it = hs.capture(
        make(to),
        *(jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(to, a.sharding.spec))
          for a in args),
        **plainly,
    )  # fmt: skip
    assert _without_metadata(moved.text) == _without_metadata(written_for_it.text)
    # and nothing of it stays: the function still runs on its own mesh
    here = [jax.device_put(np.ones(a.shape, a.dtype), a.sharding) for a in args]
    assert set(jax.jit(function)(*here).devices()) == set(mesh.devices.flat)


def _without_metadata(text: str) -> list[str]:
    return [line.partition(", metadata=")[0] for line in text.splitlines() if " = " in line]


def test_a_program_tells_its_mesh_where_the_arguments_do_not(mesh: Mesh) -> None:
    shapes = jnp.ones((256, 512)), jnp.ones((512, 128))
    cap = hs.capture(
        closes_over_shard_map(mesh), *shapes, topology="v5e:2x4", exact=False, provenance=False
    )
    assert cap.target.mesh is not None
    assert cap.target.mesh.axis_names == ("data", "model")


def test_a_mesh_of_other_axes_that_is_closed_over_is_said(
    mesh: Mesh, args: tuple[Any, ...]
) -> None:
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in args]
    with pytest.raises(hs.CaptureError, match="give mesh= the axis names of its own mesh"):
        hs.capture(closes_over_shard_map(mesh), *shapes, topology="v5e:2x4", mesh="x=2,y=4")


def test_shard_map_that_takes_the_current_mesh(args: tuple[Any, ...]) -> None:
    body = jax.shard_map(
        lambda x, w: jax.lax.psum(x @ w, "model"),
        in_specs=(P("data", "model"), P("model", None)), out_specs=P("data", None),
    )  # fmt: skip
    cap = hs.capture(body, *args, topology="v5e:4x4", mesh={"data": 4, "model": 4})
    assert any(i.opcode.startswith("all-reduce") for i in cap.module.instructions)


def test_known_topologies_are_known_to_libtpu() -> None:
    for name in topology.KNOWN:
        if len(name.split("x")) > 3 or "16x16x" in name:
            continue
        assert topology.topology_devices(name), name


def test_out_of_memory_is_one_clear_line() -> None:
    big = jax.ShapeDtypeStruct((100_000, 100_000), jnp.float32)
    cap = hs.capture(big_product, big, topology="v5e:1x1")
    assert cap.does_not_fit.startswith("does not fit: ")
    assert "\n" not in cap.does_not_fit
    assert "~" not in cap.does_not_fit


def big_product(a: jax.Array) -> jax.Array:
    return (a @ a) @ (a + 1)


def test_a_module_xla_cannot_print_comes_from_its_dump(
    compiled: Callable[..., Any], capfd: Any
) -> None:
    """libtpu's text and proto both fail a check on async-update with several operands."""
    built = compiled("indexing", "v5p:2x2x2")
    printed = True
    try:
        built.compiled.as_text()
    except Exception:
        printed = False
    capfd.readouterr()
    for provenance in (True, False):
        cap = hs.capture(built.made.fn, *built.made.args, provenance=provenance)
        assert cap.module.entry is not None
        assert len(cap.module.instructions) > 50
    assert "RET_CHECK" not in capfd.readouterr().err
    if not printed:
        with pytest.raises(hs.CaptureError, match="capture the function itself, or dump it"):
            hs.capture(built.compiled)


def run(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "TPU_", "ALLOW_"))}
    return subprocess.run(
        [sys.executable, "-c", inspect.cleandoc(code)],
        env={**clean, **env}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip


def test_nothing_has_to_be_set_and_nothing_is_left_set() -> None:
    """In a fresh process with no variables: no hang, jax on the CPU, and it says so."""
    done = run("""
        import os, time
        begin = time.monotonic()
        import jax.numpy as jnp, hloscope as hs
        before = dict(os.environ)
        cap = hs.capture(jnp.sin, 1.0, topology="v5e:1x1")
        cap = hs.capture(jnp.dot, jnp.ones((8, 8)), jnp.ones((8, 8)), topology="v5e:2x4")
        changed = {k for k in before | os.environ if before.get(k) != os.environ.get(k)}
        import jax
        print(cap.target.device_kind, sorted(changed), jax.devices()[0].platform)
    """)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "TPU v5 lite [] cpu"
    assert "no TPU is attached: jax uses the CPU" in done.stderr


def test_without_libtpu_it_says_what_to_install() -> None:
    done = run("""
        import sys
        sys.modules["libtpu"] = None
        import importlib.util
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda n, *a: None if n == "libtpu" else find(n, *a)
        import jax.numpy as jnp, hloscope as hs
        try:
            hs.capture(jnp.sin, 1.0, topology="v5e:2x4")
        except hs.CaptureError as error:
            print(error)
    """, JAX_PLATFORMS="cpu")  # fmt: skip
    assert 'libtpu is not installed; pip install "hloscope[tpu]"' in done.stdout
