"""Switches: what a program may do without, each known by the line on which it is asked for.

    def program(s):
        def f(x, w):
            y = s.keep(x @ w, "data")        # a sharding constraint, or none
            return s.each(jnp.tanh, y)       # an elementwise operation, or its operand
        return Program(f, dict(x=A(64, 32, spec=("data",)), w=A(32, 64, spec=(None, "model"))))

The keys of switches: ``"line 7"`` for what is asked for on that line, ``("x", "data")`` for one
mesh axis in the sharding of an argument, ``"out"`` for the sharding of the results. jax leaves the
functions of this file out of the frames that it gives to XLA, so a line is the program's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax._src import source_info_util
from jax.sharding import Mesh, NamedSharding, PartitionSpec

source_info_util.register_exclusion(__file__)

Key = str | tuple[str, str]


@dataclass(frozen=True)
class A:
    """An argument: its dimensions, how it is sharded, its type."""

    dims: tuple[int, ...]
    spec: tuple[Any, ...]
    dtype: Any = jnp.float32

    def __init__(self, *dims: int, spec: tuple[Any, ...] = (), dtype: Any = jnp.float32):
        object.__setattr__(self, "dims", dims)
        object.__setattr__(self, "spec", spec)
        object.__setattr__(self, "dtype", dtype)


@dataclass(frozen=True)
class Program:
    """A function, its arguments by name (trees of ``A``), and the sharding of its one result."""

    function: Callable[..., Any]
    arguments: dict[str, Any]
    out: tuple[Any, ...] | None = None


@dataclass
class Switches:
    """What is ``off`` is left out; ``lines`` says what kind of switch each line has."""

    mesh: Mesh
    off: frozenset[Key] = frozenset()
    lines: dict[int, str] = field(default_factory=dict)
    alive: list[Any] = field(default_factory=list)

    def sharding(self, spec: tuple[Any, ...]) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(*spec))

    def is_on(self, kind: str) -> bool:
        line = sys._getframe(2).f_lineno
        self.lines[line] = kind
        return f"line {line}" not in self.off

    def keep(self, x: Any, *spec: Any) -> Any:
        """A sharding constraint, or ``x`` as it is."""
        if not self.is_on("constraint"):
            return x
        return lax.with_sharding_constraint(x, self.sharding(spec))

    def each(self, f: Callable[..., Any], x: Any, *others: Any) -> Any:
        """``f`` of each element of ``x`` and ``others``, or ``x`` as it is."""
        return f(x, *others) if self.is_on("elementwise") else x

    def shift(self, f: Callable[..., Any], x: Any) -> Any:
        """``f(x)``, which moves elements to other places, or ``x`` as it is."""
        return f(x) if self.is_on("shift") else x

    def named(self, f: Callable[..., Any], x: Any, otherwise: Callable[..., Any]) -> Any:
        """A collective that the program writes, or something local."""
        return f(x) if self.is_on("named") else otherwise(x)

    def swap(self, f: Callable[..., Any], *xs: Any) -> Any:
        """``f(*xs)``, or a literal of its dimensions; its operands stay among the results.

        Not inside loops, branches and derivatives.
        """
        if self.is_on("operation"):
            return f(*xs)
        self.alive += xs
        made = jax.eval_shape(f, *xs)
        return jax.tree.map(lambda m: jnp.full(m.shape, 0.5, m.dtype), made)


def keys_of(name: str, tree: Any) -> dict[Key, None]:
    """The switches of an argument: one for each mesh axis in the shardings of its arrays."""
    found: dict[Key, None] = {}
    for path, a in jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda x: isinstance(x, A)):
        for axis in _axes(a.spec):
            found[name + jax.tree_util.keystr(path), axis] = None
    return found


def _axes(spec: tuple[Any, ...]) -> list[str]:
    return [a for dim in spec for a in (dim if isinstance(dim, tuple) else (dim,)) if a]


def given(s: Switches, name: str, tree: Any) -> Any:
    """The argument as jax takes it, without the axes that are off."""

    def one(path: Any, a: A) -> jax.ShapeDtypeStruct:
        full = name + jax.tree_util.keystr(path)
        spec = tuple(_without(dim, full, s.off) for dim in a.spec)
        return jax.ShapeDtypeStruct(a.dims, a.dtype, sharding=s.sharding(spec))

    return jax.tree_util.tree_map_with_path(one, tree, is_leaf=lambda x: isinstance(x, A))


def _without(dim: Any, name: str, off: frozenset[Key]) -> Any:
    if isinstance(dim, tuple):
        return tuple(a for a in dim if (name, a) not in off) or None
    return None if (name, dim) in off else dim
