"""``capture``: what it takes, what it fills in, what it says when it cannot."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hloscope.analysis.report.summary import summarize
from hloscope.capturing.dumps.messages import compiler_lines, stderr_kept
from hloscope.hlo import Mesh as TargetMesh
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))


def sds(mesh: Mesh | None, shape: tuple[int, ...], *spec: Any) -> jax.ShapeDtypeStruct:
    sharding = NamedSharding(mesh, P(*spec)) if mesh is not None else None
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)


def mlp(params: dict[str, jax.Array], x: jax.Array, unused: Any, *, scale: float) -> Any:
    return {"y": jnp.tanh(x @ params["w1"]) @ params["w2"] * scale}


@pytest.fixture(scope="module")
def mlp_args(mesh: Mesh) -> tuple[Any, ...]:
    params = {"w1": sds(mesh, (64, 128), None, "model"), "w2": sds(mesh, (128, 64), "model")}
    return params, sds(mesh, (16, 64), "data"), sds(None, (3,))


@pytest.fixture(scope="module")
def captured(mlp_args: tuple[Any, ...]) -> hs.Capture:
    return hs.capture(jax.jit(mlp, donate_argnums=1), *mlp_args, scale=2.0)


def test_arguments_are_named_shaped_and_numbered(captured: hs.Capture) -> None:
    rows = [(a.name, a.shape, a.dtype, a.spec, a.donated, a.parameter)
            for a in captured.target.arguments]  # fmt: skip
    assert rows == [
        ("params['w1']", (64, 128), "float32", ((), ("model",)), False, 0),
        ("params['w2']", (128, 64), "float32", (("model",), ()), False, 1),
        ("x", (16, 64), "float32", (("data",), ()), True, 2),
        ("unused", (3,), "float32", None, False, None),
        ("scale", (), "float32", (), False, 3),
    ]
    assert captured.target.arguments[0].sharding == "P(None, 'model')"
    assert [r.name for r in captured.target.results] == ["['y']"]
    assert captured.target.results[0].shape == (16, 64)


def test_parameter_numbers_point_at_the_parameters(captured: hs.Capture) -> None:
    entry = captured.module.entry
    assert entry is not None
    for argument in captured.target.arguments:
        if argument.parameter is not None:
            parameter = entry.parameters[argument.parameter]
            assert parameter.op_name == argument.name


def test_devices_mesh_and_figures(captured: hs.Capture) -> None:
    target = captured.target
    assert [d.partition for d in target.devices] == list(range(8))
    assert target.platform == "cpu"
    assert target.mesh == TargetMesh(("data", "model"), (2, 4), tuple(range(8)))
    assert target.jax_version == jax.__version__
    assert target.cost_analysis["flops"] > 0
    assert target.memory_stats["peak_memory_in_bytes"] > 0
    assert captured.module.buffer_assignment is not None
    assert captured.module.buffer_assignment.total_bytes > 0


def test_devices_are_in_partition_order() -> None:
    """A mesh over reversed devices: partition 0 is device 7, and the mesh says so."""
    reverse = Mesh(np.array(jax.devices()[::-1]).reshape(4, 2), ("a", "b"))
    swapped = Mesh(np.array(jax.devices()[::-1]).reshape(4, 2).T, ("b", "a"))
    cap = hs.capture(lambda x: x * 2, sds(reverse, (8, 8), "a", "b"))
    assert [d.id for d in cap.target.devices] == [7, 6, 5, 4, 3, 2, 1, 0]
    assert cap.target.mesh == TargetMesh(("a", "b"), (4, 2), tuple(range(8)))
    cap = hs.capture(lambda x: x * 2, sds(swapped, (8, 8), "a", "b"))
    mesh = cap.target.mesh
    assert mesh is not None
    ids = [cap.target.devices[p].id for p in mesh.partitions]
    assert ids == [d.id for d in swapped.devices.flat]


def test_mesh_of_a_shard_map_without_sharded_arguments(mesh: Mesh) -> None:
    body = jax.shard_map(
        lambda x: jax.lax.psum(x, "model"), mesh=mesh, in_specs=P("data", "model"),
        out_specs=P("data", None),
    )  # fmt: skip
    cap = hs.capture(jax.jit(body).lower(sds(None, (8, 8))))
    assert cap.target.mesh == TargetMesh(("data", "model"), (2, 4), tuple(range(8)))


def test_every_form_gives_the_same_program(mlp_args: tuple[Any, ...], mesh: Mesh) -> None:
    jitted = jax.jit(mlp)
    traced = jitted.trace(*mlp_args, scale=2.0)
    lowered = traced.lower()
    compiled = lowered.compile()
    forms = [
        hs.capture(mlp, *mlp_args, scale=2.0, provenance=False),
        hs.capture(jitted, *mlp_args, scale=2.0, provenance=False),
        hs.capture(traced, provenance=False),
        hs.capture(lowered, provenance=False),
        hs.capture(compiled),
    ]
    opcodes = [sorted(i.opcode for i in c.module.instructions) for c in forms]
    assert all(o == opcodes[0] for o in opcodes)
    kept = [a.name for a in forms[0].target.arguments if a.parameter is not None]
    for form in forms:
        assert [a.name for a in form.target.arguments if a.parameter is not None] == kept
        assert form.target.mesh == forms[0].target.mesh


def test_dumping_changes_names_only(captured: hs.Capture, mlp_args: tuple[Any, ...]) -> None:
    plain = hs.capture(jax.jit(mlp, donate_argnums=1), *mlp_args, scale=2.0, provenance=False)
    shape = [(i.opcode, i.shape.text) for i in plain.module.instructions]
    assert shape == [(i.opcode, i.shape.text) for i in captured.module.instructions]
    assert plain.target.dumps == {}


def test_dumps_hold_the_shardings_and_the_program_before_partitioning(
    captured: hs.Capture,
) -> None:
    dumps = captured.target.dumps
    assert "sdy.sharding_origins" in dumps["shardy/02.after_propagation"]
    assert "HloModule jit_mlp" in dumps["after_shardy-xla"]
    assert "all-reduce" in dumps["after_spmd-partitioning"]


def test_one_device_needs_no_dump() -> None:
    assert hs.capture(jnp.sin, jnp.ones(3)).target.dumps == {}


def test_nothing_is_run_and_arrays_may_be_anything() -> None:
    ran = []

    def f(x: jax.Array, y: Any, n: int) -> jax.Array:
        jax.debug.callback(lambda: ran.append(1))
        return x + y * n

    cap = hs.capture(f, np.ones((4, 4), np.float32), jnp.ones((4,)), 3, static_argnums=2)
    assert [a.name for a in cap.target.arguments] == ["x", "y"]
    huge = jax.ShapeDtypeStruct((1 << 20, 1 << 20), jnp.float32)  # 4 TiB
    assert hs.capture(lambda x: x + 1, huge).module.entry is not None
    jax.effects_barrier()
    assert ran == []


def test_in_shardings_of_a_plain_function(mesh: Mesh) -> None:
    cap = hs.capture(lambda x: x + 1, sds(None, (8, 8)), mesh=mesh, in_shardings=P("data"))
    assert cap.target.arguments[0].spec == (("data",), ())
    assert cap.target.mesh is not None


def test_compile_options_reach_the_compiler() -> None:
    options = {"xla_cpu_enable_fast_math": True}
    assert hs.capture(jnp.sin, jnp.ones(3), compiler_options=options).module.entry is not None
    with pytest.raises(hs.CaptureError, match="No such compile option: 'xla_bogus'"):
        hs.capture(jnp.sin, jnp.ones(3), compiler_options={"xla_bogus": 1})


def test_sources_are_the_users_files(captured: hs.Capture) -> None:
    assert set(captured.target.sources) == {__file__}
    assert "def mlp" in captured.target.sources[__file__]


def test_sources_of_a_notebook_cell() -> None:
    import linecache

    code = "def cell_function(x):\n    return x * 3\n"
    name = "/nowhere/ipykernel_1/123.py"
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    namespace: dict[str, Any] = {}
    exec(compile(code, name, "exec"), namespace)
    cap = hs.capture(namespace["cell_function"], jnp.ones(4))
    assert cap.target.sources[name] == code


@pytest.mark.parametrize("own", ["bare", "other mesh"])
def test_shardings_given_to_jit_move_onto_the_mesh(mesh: Mesh, own: str) -> None:
    """What jax.jit was given for four devices, or for any mesh, holds on eight."""
    four = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("data", "model"))

    def spec(*axes: str | None) -> Any:
        return P(*axes) if own == "bare" else NamedSharding(four, P(*axes))

    def step(w: jax.Array, x: jax.Array, scale: int) -> tuple[jax.Array, jax.Array]:
        return w * scale, x @ w

    jitted = jax.jit(
        step,
        in_shardings=(spec(None, "model"), spec("data", None)),
        out_shardings=(None, spec("data", "model")),
        static_argnums=2,
        donate_argnums=0,
    )
    w, x = jax.ShapeDtypeStruct((32, 16), jnp.float32), jax.ShapeDtypeStruct((16, 32), jnp.float32)
    cap = hs.capture(jitted, w, x, 3, mesh={"data": 2, "model": 4})
    assert cap.module.num_partitions == 8
    assert [a.spec for a in cap.target.arguments] == [((), ("model",)), (("data",), ())]
    assert [i.shape.dimensions for i in cap.module.entry.parameters] == [(32, 4), (8, 32)]
    assert cap.module.input_output_alias
    assert cap.target.mesh is not None
    assert cap.target.mesh.axis_sizes == (2, 4)
    with pytest.raises(hs.CaptureError, match="axis 'model', which the target mesh lacks"):
        hs.capture(jitted, w, x, 3, mesh={"data": 8})


def test_options_of_jit_are_told_from_the_functions_own() -> None:
    with pytest.raises(hs.CaptureError, match=r"capture\(jax\.jit\(both, donate_argnums=…\), …\)"):
        hs.capture(both, jnp.ones(3), jnp.ones(3), donate_argnums=0)

    def f(x: jax.Array, donate_argnums: int) -> jax.Array:
        return x * donate_argnums

    assert hs.capture(f, jnp.ones(3), donate_argnums=2).module.entry is not None


# -- what the compiler says ---------------------------------------------------------------

REMATERIALIZATION = (
    "W1121 10:02:44.286759   12078 spmd_partitioner.cc:656] [SPMD] Involuntary full "
    "rematerialization. The compiler cannot go from sharding {x} to {y}"
)


def test_partitioner_warnings_are_kept(compiled: Callable[..., Any], capfd: Any) -> None:
    made = compiled("three_axes").made
    cap = hs.capture(made.fn, *made.args)
    said = [m for m in cap.target.compiler_messages if "Involuntary full remat" in m]
    shown = capfd.readouterr().err.count("Involuntary full rematerialization")
    if not shown and jax.__version_info__ >= (0, 11):
        pytest.skip(f"the XLA of jax {jax.__version__} partitions this program without a warning")
    assert said
    assert shown
    assert not any(m.startswith("W1") for m in said)


def test_stderr_is_kept_and_still_shown(capfd: Any) -> None:
    with stderr_kept() as kept:
        os.write(2, (REMATERIALIZATION + "\nhello\n").encode())
        subprocess.run(["sh", "-c", "echo from a child >&2"], check=True)
    assert kept == [REMATERIALIZATION.split("] ", 1)[1]]
    assert capfd.readouterr().err == REMATERIALIZATION + "\nhello\nfrom a child\n"
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n"


def test_a_full_stderr_does_not_block(capfd: Any) -> None:
    with stderr_kept() as kept:
        for _ in range(300):
            os.write(2, b"x" * 1000 + b"\n")
    assert kept == []
    assert len(capfd.readouterr().err) == 300 * 1001


def test_compiler_lines_drop_noise_and_repeats() -> None:
    noise = "W1121 10:00:00.000000 1 x.cc:1] could not determine TPU accelerator type"
    info = "I1121 10:00:00.000000 1 y.cc:2] all is well"
    text = "\n".join([REMATERIALIZATION, noise, info, REMATERIALIZATION.replace("12078", "9")])
    assert compiler_lines(text) == [REMATERIALIZATION.split("] ", 1)[1]]


# -- jax's caches -------------------------------------------------------------------------


def test_the_users_own_compile_is_untouched(mesh: Mesh) -> None:
    """Capturing leaves no executable with dump options behind in the Lowered."""
    lowered = jax.jit(lambda x: x @ x.T).lower(sds(mesh, (16, 16), "data"))
    hs.capture(lowered)
    assert lowered.compile() is not None
    first = lowered.compile().runtime_executable()
    assert first is lowered.compile().runtime_executable()


def test_a_disk_cache_neither_hides_dumps_nor_grows(tmp_path: Any) -> None:
    program = inspect.cleandoc("""
        import os, sys, jax, jax.numpy as jnp, numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
        import hloscope as hs
        mesh = Mesh(np.array(jax.devices()), ("x",))
        x = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=NamedSharding(mesh, P("x")))
        f = jax.jit(lambda x: jnp.sum(x @ x.T))
        f.lower(x).compile()
        before = sorted(os.listdir(sys.argv[1]))
        caps = [hs.capture(f, x) for _ in range(2)]
        print(len(before), sorted(os.listdir(sys.argv[1])) == before)
        print([len(c.target.dumps) > 3 for c in caps])
        g = jax.jit(lambda x: jnp.sum(x @ x))
        g.lower(x).compile()
        print(len(os.listdir(sys.argv[1])) > len(before))
    """)
    env = {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[0].endswith("True")
    assert not done.stdout.startswith("0 ")
    assert done.stdout.splitlines()[1:] == ["[True, True]", "True"]


# -- errors -------------------------------------------------------------------------------


def test_the_functions_own_error_passes_unchanged() -> None:
    class Mine(Exception):
        pass

    def f(x: jax.Array) -> jax.Array:
        raise Mine("my own")

    with pytest.raises(Mine, match="my own") as caught:
        hs.capture(f, jnp.ones(3))
    assert any("hloscope traced f" in note for note in caught.value.__notes__)
    assert caught.traceback[-1].frame.code.name == "f"


def both(x: jax.Array, w: jax.Array) -> jax.Array:
    return x @ w


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda m: hs.capture(3), "cannot capture an object of type int; give a function"),
        (lambda m: hs.capture(both, stage="opt"), "unknown stage 'opt'; stages are jaxpr, stab"),
        (lambda m: hs.capture(both, 1, 2, mesh=3), "a mesh cannot be of type int"),
        (lambda m: hs.capture(both, 1, 2, mesh={}), "the mesh has no axes"),
        (lambda m: hs.capture(both, 1, 2, mesh={"a": 0}), "axis 'a' has size 0"),
        (lambda m: hs.capture(both, 1, 2, mesh={"a": 99}), "needs 99 devices and this process"),
        (
            lambda m: hs.capture(jax.jit(both), 1, 2, static_argnums=1),
            "jitted already: give static_argnums to jax.jit",
        ),
        (
            lambda m: hs.capture(jax.jit(jnp.sin).lower(1.0), 2.0),
            "a Lowered has its arguments already; call capture(lowered) without any",
        ),
        (
            lambda m: hs.capture(jax.jit(jnp.sin).lower(1.0), mesh={"a": 1}),
            "a Lowered is for its own devices already, mesh cannot change them",
        ),
        (
            lambda m: hs.capture(jax.jit(jnp.sin).lower(1.0), stage="jaxpr"),
            "a Lowered no longer has the jaxpr stage: capture the function itself",
        ),
        (
            lambda m: hs.capture(jax.jit(jnp.sin).lower(1.0).compile(), stage="hlo"),
            "a Compiled no longer has the hlo stage",
        ),
        (
            lambda m: hs.capture(both, sds(None, (8, 8)), in_shardings=P("a")),
            "in_shardings holds a PartitionSpec and there is no mesh",
        ),
        (
            lambda m: hs.capture(both, sds(m, (8, 8), "data"), 1, mesh={"a": 8}),
            "x is sharded over axis 'data', which the target mesh lacks (it has a)",
        ),
        (
            lambda m: hs.capture(lambda x: x, sds(m, (6, 8), "data"), mesh={"data": 8}),
            "cannot be split evenly over the mesh",
        ),
    ],
)
def test_errors_say_what_to_do(call: Callable[[Mesh], Any], says: str, mesh: Mesh) -> None:
    with pytest.raises(hs.CaptureError) as caught:
        call(mesh)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_importing_hloscope_imports_no_jax() -> None:
    code = (
        "import sys, hloscope; "
        "print([m for m in ('jax', 'IPython', 'anywidget') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_only_capturing_imports_jax(repo: Any) -> None:
    package = repo / "python" / "hloscope"
    offenders = [
        str(path.relative_to(package))
        for path in sorted(package.rglob("*.py"))
        if path.parts[len(package.parts)] != "capturing"
        and any(
            name.partition(".")[0] in ("jax", "jaxlib")
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in [getattr(node, "module", None) or "", *(a.name for a in node.names)]
            if not getattr(node, "level", 0)
        )
    ]
    # a reader's child process parses bytecode with jax's MLIR; plan/ compiles candidates
    allowed = ("plan/", "readers/stablehlo/child.py")
    assert [o for o in offenders if not o.startswith(allowed)] == []


def test_hloscopes_own_frames_are_left_out() -> None:
    cap = hs.capture(lambda x: jnp.tanh(x) @ x, jax.ShapeDtypeStruct((8, 8), jnp.float32))
    own = str(Path(hs.__file__).parent)
    files = {frame.file for i in cap.module.instructions for frame in i.frames}
    assert any(file.endswith("test_capture.py") for file in files)
    assert not [file for file in files if file.startswith(own)]


def test_shapes_of_a_shard_map_are_global_until_it_is_partitioned(mesh: Mesh) -> None:
    """Its body has collectives and local shapes before; what is around it is global."""
    names = mesh.axis_names
    body = jax.shard_map(
        lambda x: jax.lax.psum(jnp.sin(x), names[0]), mesh=mesh, in_specs=P(names[0]), out_specs=P()
    )
    cap = hs.capture(lambda x: body(x) * 2, sds(mesh, (64, 64), names[0]))
    shapes = {s: cap.at(s).summary["shapes"] for s in ("jaxpr", "stablehlo", "hlo", "optimized")}
    assert shapes.pop("optimized") == "local"
    assert set(shapes.values()) == {"global"}
    before = cap.target.before_partitioning
    assert before is not None
    assert summarize(before(), cap.target)["shapes"] == "global"
    assert "before partitioning" in str(cap.at("hlo").cost()).splitlines()[0]
    assert "one device" in str(cap.cost()).splitlines()[0]
