"""What a corpus program is, and the list that ``@program`` fills.

A program is a function of a mesh (or None) that returns a jitted function and the shapes of
its arguments: nothing is allocated or run, and the same program compiles for 8 CPU devices
and for a TPU topology with as many chips as its mesh needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec


@dataclass(frozen=True)
class Made:
    """A jitted function with the arguments to lower it with."""

    fn: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def lower(self) -> jax.stages.Lowered:
        return self.fn.lower(*self.args, **self.kwargs)


@dataclass(frozen=True)
class Program:
    """One program: ``shows`` says what its module must contain.

    ``contains``: opcodes that its optimised module has on each of its platforms.
    ``platforms``: "cpu", "tpu", or both.
    """

    name: str
    shows: str
    make: Callable[[Mesh | None], Made]
    mesh: Mapping[str, int] | None
    contains: tuple[str, ...]
    platforms: tuple[str, ...]

    @property
    def devices(self) -> int:
        return math.prod(self.mesh.values()) if self.mesh else 1


PROGRAMS: dict[str, Program] = {}


def program(
    shows: str,
    *,
    mesh: Mapping[str, int] | None = None,
    contains: tuple[str, ...] = (),
    platforms: tuple[str, ...] = ("cpu", "tpu"),
) -> Callable[[Callable[[Any], Made]], Callable[[Any], Made]]:
    """Registers ``def name(mesh) -> Made`` under its own name."""

    def register(make: Callable[[Any], Made]) -> Callable[[Any], Made]:
        name = make.__name__
        if name in PROGRAMS:
            raise ValueError(f"two corpus programs are called {name}")
        PROGRAMS[name] = Program(name, shows, make, mesh, contains, platforms)
        return make

    return register


def array(
    mesh: Mesh | None, shape: tuple[int, ...], *spec: Any, dtype: Any = jnp.float32
) -> jax.ShapeDtypeStruct:
    """The shape of an argument, sharded by ``spec`` over ``mesh`` (or not at all)."""
    if mesh is None:
        return jax.ShapeDtypeStruct(shape, dtype)
    sharding = NamedSharding(mesh, PartitionSpec(*spec))
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)
