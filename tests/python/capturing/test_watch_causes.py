"""More causes of a recompile, made one by one: each is named, and said in a sentence."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


class Config:
    """A static value that is told by its hash alone."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __hash__(self) -> int:
        return hash(self.n)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and other.n == self.n


def on(devices: int, *spec: Any) -> Any:
    mesh = Mesh(np.array(jax.devices()[:devices]), ("d",))
    return jax.device_put(jnp.ones((8, 8)), NamedSharding(mesh, P(*spec)))


def twice(fn: Callable[..., Any], *calls: tuple[Any, ...]) -> None:
    for arguments in calls:
        fn(*arguments)


def closures() -> None:
    for k in range(2):
        jax.jit(lambda x, k=k: x + k)(jnp.ones(8))


def partials() -> None:
    def scale(n: int, x: Any) -> Any:
        return x * n

    for k in range(2):
        jax.jit(functools.partial(scale, k))(jnp.ones(8))


def donated() -> None:
    def add(x: Any) -> Any:
        return x + 5

    jax.jit(add)(jnp.ones(8))
    jax.jit(add, donate_argnums=0)(jnp.ones(8))


def setting(**changed: Any) -> None:
    fn = jax.jit(lambda x: x * 2)
    fn(np.ones(3, np.float32))
    (name, value), = changed.items()  # fmt: skip
    with getattr(jax, name)(value):
        fn(np.ones(3, np.float32))


CAUSES: dict[str, tuple[Callable[[], None], str, str]] = {
    "static by hash": (
        lambda: twice(
            jax.jit(lambda x, c: x * c.n, static_argnums=1),
            (jnp.ones(8), Config(1)),
            (jnp.ones(8), Config(2)),
        ),
        "static value",
        "c is another Config",
    ),
    "lambda in a loop": (closures, "function identity", "define it once"),
    "partial in a loop": (partials, "function identity", "define it once"),
    "donation": (donated, "donation", "is donated now"),
    "x64": (lambda: setting(enable_x64=True), "config", "jax_enable_x64 was False, is True"),
    "precision": (
        lambda: setting(default_matmul_precision="highest"),
        "config",
        "is 'highest'",
    ),
    "another tree": (
        lambda: twice(
            jax.jit(lambda p: sum(jax.tree.leaves(p))),
            ({"a": jnp.ones(2)},),
            ({"a": jnp.ones(2), "b": jnp.ones(2)},),
        ),
        "structure",
        "p['b'] is new",
    ),
    "None before": (
        lambda: twice(
            jax.jit(lambda x, m: x if m is None else x * m),
            (jnp.ones(8), None),
            (jnp.ones(8), jnp.ones(8)),
        ),
        "structure",
        "m was None, is float32[8]",
    ),
    "None now": (
        lambda: twice(
            jax.jit(lambda x, m: x if m["b"] is None else x * m["b"]),
            (jnp.ones(8), {"b": jnp.ones(8)}),
            (jnp.ones(8), {"b": None}),
        ),
        "structure",
        "m['b'] was float32[8], is None",
    ),
    "None before, arrays within now": (
        lambda: twice(
            jax.jit(lambda x, m: x if m is None else x * m["b"] + m["c"]),
            (jnp.ones(8), None),
            (jnp.ones(8), {"b": jnp.ones(8), "c": jnp.ones(8)}),
        ),
        "structure",
        "m was None, holds arrays now",
    ),
    "the last batch": (
        lambda: twice(jax.jit(lambda a: a.sum()), (jnp.ones((32, 4)),), (jnp.ones((17, 4)),)),
        "shape",
        "was float32[32,4], is float32[17,4]",
    ),
    "promoted": (
        lambda: twice(jax.jit(lambda a: a + 1), (jnp.arange(3),), (jnp.arange(3.0),)),
        "dtype",
        "a was int32[3], is float32[3]",
    ),
    "a scalar of Python": (
        lambda: twice(
            jax.jit(lambda a, b: a + b), (jnp.ones(8), jnp.float32(1)), (jnp.ones(8), 1.0)
        ),
        "weak type",
        "b is now weakly typed",
    ),
    "sharding": (
        lambda: twice(jax.jit(lambda a: a * 3), (on(8, "d"),), (on(8, None, "d"),)),
        "sharding",
        "a was on P('d',)",
    ),
    "another mesh": (
        lambda: twice(jax.jit(lambda a: a * 4), (on(8, "d"),), (on(4, "d"),)),
        "mesh",
        "is on P('d',) on d=4",
    ),
    "another device": (
        lambda: twice(
            jax.jit(lambda a: a * 7),
            *((jax.device_put(jnp.ones(8), jax.devices()[k]),) for k in (0, 3)),
        ),
        "sharding",
        "a was on device 0, is on device 3",
    ),
    "a key of the other kind": (
        lambda: twice(
            jax.jit(lambda k: jax.random.bits(k)), (jax.random.key(0),), (jax.random.PRNGKey(0),)
        ),
        "dtype",
        "k was key<fry>[], is uint32[2]",
    ),
}


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_is_named_in_a_sentence(name: str) -> None:
    run, cause, words = CAUSES[name]
    with hs.watch() as session:
        run()
    found = [c for c in session.recompiles if not c.of_library]
    assert len(found) == 1, [str(c) for c in session]
    assert found[0].causes == (cause,)
    assert words in found[0].changed
    assert __file__.rpartition("/")[2] in found[0].caller
