"""``hs.watch``: each compile is there, and what changed is named right."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from ways import WAYS


def scale(x: Any, by: Any = 2.0) -> Any:
    return x * by


def fresh(**options: Any) -> Any:
    """The function jitted anew, so that no other test has compiled it."""
    return jax.jit(scale, **options)


def placed(x: Any, *spec: Any) -> Any:
    mesh = Mesh(np.array(jax.devices()), ("d",))
    return jax.device_put(x, NamedSharding(mesh, P(*spec)))


def shape() -> None:
    f = fresh()
    f(jnp.ones(3))
    f(jnp.ones(4))


def rank() -> None:
    f = fresh()
    f(jnp.ones(3))
    f(jnp.ones((3, 1)))


def dtype() -> None:
    f = fresh()
    f(jnp.ones(3))
    f(jnp.ones(3, jnp.int32))


def weak_type() -> None:
    f = fresh()
    f(jnp.ones(3), jnp.float32(2))
    f(jnp.ones(3), 2.0)


def static_value() -> None:
    f = fresh(static_argnums=1)
    f(jnp.ones(3), 2.0)
    f(jnp.ones(3), 3.0)


def static_name() -> None:
    f = fresh(static_argnames="by")
    f(jnp.ones(3), by=2.0)
    f(jnp.ones(3), by=4.0)


def sharding() -> None:
    f = fresh()
    f(placed(jnp.ones(8), "d"))
    f(placed(jnp.ones(8)))


def donation() -> None:
    fresh(donate_argnums=())(jnp.ones(3))
    fresh(donate_argnums=0)(jnp.ones(3))


def function_identity() -> None:
    for _ in range(2):
        jax.jit(lambda x: x - 1)(jnp.ones(3))


def config() -> None:
    f = jax.jit(lambda x: x @ x)
    f(jnp.ones((3, 3)))
    with jax.default_matmul_precision("float32"):
        f(jnp.ones((3, 3)))


def structure() -> None:
    f = jax.jit(lambda tree: sum(jax.tree.leaves(tree)))
    f({"a": jnp.ones(3)})
    f({"a": jnp.ones(3), "b": jnp.ones(3)})


def not_given() -> None:
    f = fresh()
    f(jnp.ones(3))
    f(jnp.ones(3), by=jnp.float32(3))


def cleared() -> None:
    f = fresh()
    f(jnp.ones(3))
    f.clear_cache()
    jax.clear_caches()
    f(jnp.ones(3))


CASES: dict[Callable[[], None], tuple[str, str]] = {
    shape: ("shape", "x was float32[3], is float32[4]"),
    rank: ("shape", "x was float32[3], is float32[3,1]"),
    dtype: ("dtype", "x was float32[3], is int32[3]"),
    weak_type: ("weak type", "by is now weakly typed"),
    static_value: ("static value", "by was 2.0, is 3.0"),
    static_name: ("static value", "by was 2.0, is 4.0"),
    sharding: ("sharding", "x was on P('d',) on d=8, is on P() on d=8"),
    donation: ("donation", "argument 0 is donated now"),
    function_identity: ("function identity", "a different function object"),
    config: ("config", "jax_default_matmul_precision was None, is 'float32'"),
    structure: ("structure", "tree['b'] is new"),
    not_given: ("structure", "by is new"),
    cleared: ("the same", "no longer have had the first"),
}


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_the_cause_is_named(case: Callable[[], None]) -> None:
    jax.clear_caches()
    with hs.watch() as session:
        case()
    first, again = session.compiles
    assert first.causes == ("first",)
    kind, words = CASES[case]
    assert again.causes == (kind,)
    assert words in again.changed
    assert __file__ in again.caller
    assert again.compile_seconds > 0
    assert first.trace_seconds > 0
    assert "2 times" in str(session)


def test_a_compile_opens_as_a_capture() -> None:
    with hs.watch() as session:
        partial(jax.jit(lambda a, b: a @ b), jnp.ones((8, 4)))(jnp.ones((4, 2)))
    (only,) = session
    assert only.place.startswith(__file__)
    cap = only.capture()
    assert any(i.opcode == "dot" for i in cap.module.instructions)
    assert len(session) == 1, "capturing is not watched"
    json.dumps(session.to_dict())
    assert len(session.to_pandas()) == len(session)


def test_jax_own_functions_stand_apart() -> None:
    jax.clear_caches()
    with hs.watch() as session:
        jnp.ones(7) + 1
    assert len(session) == 0
    assert session.everything
    assert "of jax's own small functions" in str(session)


def test_it_stops_and_nests() -> None:
    with hs.watch() as outer:
        with hs.watch() as inner:
            fresh()(jnp.ones(11))
        fresh()(jnp.ones(12))
    fresh()(jnp.ones(13))
    assert len(inner) == 1
    assert len(outer) == 2
    assert str(hs.watch().__enter__()) == "nothing was compiled"


def test_the_same_spec_on_another_mesh_is_a_change_of_mesh() -> None:
    double = jax.jit(lambda x: x * 2)
    with hs.watch() as session:
        for shape in ((2, 4), (4, 2)):
            mesh = Mesh(np.array(jax.devices()).reshape(shape), ("a", "b"))
            double(jax.device_put(jnp.ones((8, 8)), NamedSharding(mesh, P("a"))))
    (again,) = session.recompiles
    assert again.causes == ("mesh",)
    assert "x was on P('a',) on a=2, b=4, is on P('a',) on a=4, b=2" in str(again)


def test_a_mesh_of_other_devices_or_another_order_is_a_change_of_mesh() -> None:
    double, triple = jax.jit(lambda x: x * 2), jax.jit(lambda x: x * 3)
    devices = jax.devices()
    with hs.watch() as session:
        for order in (devices[:4], devices[3::-1], devices[4:]):
            mesh = Mesh(np.array(order), ("a",))
            double(jax.device_put(jnp.ones((8, 8)), NamedSharding(mesh, P("a"))))
        for order in (devices, devices[::-1]):
            mesh = Mesh(np.array(order), ("a",))
            jax.jit(triple, out_shardings=NamedSharding(mesh, P("a")))(np.ones((8, 8)))
    again = [c for c in session.recompiles if c.causes != ("first",)]
    assert [c.causes for c in again[:2]] == [("mesh",), ("mesh",)]
    order = "in another order: [0, 1, 2, 3] before, [3, 2, 1, 0] now"
    assert f"x is on the same mesh with its devices {order}" in str(again[0])
    assert "x is on a mesh of the same axes over other devices: [4, 5, 6, 7]" in str(again[1])


def test_the_option_of_jit_that_changed_is_named() -> None:
    def shifted(x: jax.Array) -> jax.Array:
        return x - 1

    mesh = Mesh(np.array(jax.devices()), ("a",))
    back = Mesh(np.array(jax.devices()[::-1]), ("a",))
    with hs.watch() as session:
        for m in (mesh, back):
            jax.jit(shifted, out_shardings=NamedSharding(m, P("a")))(np.ones((8, 8)))
        jax.jit(shifted, compiler_options={"xla_cpu_enable_fast_math": True})(np.ones((8, 8)))
    said = [str(c) for c in session.recompiles if "shifted" in c.function]
    assert "out_shardings was …" in said[0]
    assert "[0, 1, 2" in said[0]
    assert "compiler_options" in said[1]


def test_a_static_object_is_not_told_by_its_address() -> None:
    class Model:
        @partial(jax.jit, static_argnums=0)
        def step(self, x: jax.Array) -> jax.Array:
            return x + 1

    with hs.watch() as session:
        Model().step(np.ones(3))
        Model().step(np.ones(3))
    (again,) = session.recompiles
    assert again.causes == ("static value",)
    assert "0x" not in again.changed
    assert "self is another Model than before" in again.changed


def test_the_line_that_calls_a_library_function_is_the_persons_own() -> None:
    way = WAYS["nnx_jit"]()
    with hs.watch() as session:
        way.function(*way.arguments)
    (compiled,) = session.compiles
    assert compiled.caller.rpartition(":")[0] == __file__


CACHED = """
import sys
import hloscope as hs, jax, jax.numpy as jnp
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
jax.config.update("jax_persistent_cache_min_compile_time_secs", float(sys.argv[2]))
def step(x):
    return jnp.sin(x) @ x
x = jnp.ones((8, 8))
with hs.watch() as session:
    jax.jit(step)(x)
    jax.jit(lambda v: v - 2)(x)
    jax.jit(step)(jnp.ones((4, 4)))
for c in session.compiles:
    print(c.cache, "|", c.cache_why)
print(session.cache_hits, session.cache_misses)
assert ("not in the persistent cache" in str(session)) == (session.cache_misses > 0)
"""


def test_hits_and_misses_of_the_persistent_cache(tmp_path: Path) -> None:
    def ran(folder: Path, least: float) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", CACHED, str(folder), str(least)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.splitlines()

    kept = tmp_path / "kept"
    first, other, second, counts = ran(kept, 0)
    new = "miss | no program of this name was in its folder; it is kept now"
    assert (first, other, counts) == (new, new, "0 3")
    assert second == (
        "miss | one of this name was in its folder, of other content, options, devices or jax; "
        "it is kept now"
    )
    assert len([p for p in kept.iterdir() if "step" in p.name and p.name.endswith("-cache")]) == 2
    assert ran(kept, 0) == ["hit | "] * 3 + ["3 0"]
    quick = ran(tmp_path / "quick", 1000)
    assert "nor is it kept now: it compiles in less than the 1000 s of" in quick[0]
    assert ran(tmp_path / "quick", 1000)[-1] == "0 3"


def test_without_a_persistent_cache_nothing_is_said() -> None:
    with hs.watch() as session:
        fresh()(jnp.ones(7))
    assert (session.compiles[0].cache, session.compiles[0].cached) == ("", "")
    assert "persistent" not in str(session)
