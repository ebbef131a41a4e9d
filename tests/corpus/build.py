"""Compiles corpus programs, each once per process: ``build(name)``, ``build(name, "v5e:2x4")``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from quickly import as_users_do

from .programs import PROGRAMS
from .registry import Made, Program


@dataclass(frozen=True)
class Built:
    """A compiled program; ``text`` and ``proto`` are XLA's, ``module`` is what we read."""

    program: Program
    topology: str | None
    made: Made
    lowered: jax.stages.Lowered
    compiled: jax.stages.Compiled

    @property
    def name(self) -> str:
        return self.program.name

    @cached_property
    def text(self) -> str:
        return str(self.compiled.as_text())

    @cached_property
    def proto(self) -> bytes:
        """Serialised HloModuleProto."""
        module = self.compiled.runtime_executable().hlo_modules()[0]
        return bytes(module.as_serialized_hlo_module_proto())

    @cached_property
    def capture(self) -> Any:
        """``hloscope.capture`` of the compiled program."""
        import hloscope

        return hloscope.capture(self.compiled, title=self.name)

    @property
    def recaptured(self) -> Any:
        """``recaptured`` of the same program."""
        return recaptured(self.name, self.topology)

    @property
    def module(self) -> Any:
        return self.capture.module

    @property
    def target(self) -> Any:
        return self.capture.target


@cache
def topology_devices(name: str) -> tuple[Any, ...]:
    """Compile-only devices of a TPU topology; libtpu must be installed."""
    from jax.experimental import topologies

    return tuple(topologies.get_topology_desc(platform="tpu", topology_name=name).devices)


def mesh_for(program: Program, topology: str | None = None) -> Mesh | None:
    """The program's mesh over the first devices; None for one device."""
    if program.mesh is None and topology is None:
        return None
    shape = program.mesh or {"x": 1}
    devices = jax.devices("cpu") if topology is None else list(topology_devices(topology))
    count = math.prod(shape.values())
    grid = np.array(devices[:count], dtype=object).reshape(tuple(shape.values()))
    return Mesh(grid, tuple(shape))


@cache
def build(name: str, topology: str | None = None) -> Built:
    """Lowers and compiles; a program without a mesh goes to one chip of the topology."""
    made = make(name, topology)
    lowered = made.lower()
    options = as_users_do(tpu=topology is not None)
    compiled = lowered.compile(compiler_options=options)
    return Built(PROGRAMS[name], topology, made, lowered, compiled)


@cache
def recaptured(name: str, topology: str | None = None) -> Any:
    """``hloscope.capture`` of the function: with dumps, and the fallback if XLA cannot print
    its module."""
    import hloscope

    made = make(name, topology)
    options = as_users_do(tpu=True) if topology else None
    return hloscope.capture(
        made.fn, *made.args, title=name, compiler_options=options, **made.kwargs
    )


def make(name: str, topology: str | None = None) -> Made:
    """The jitted function and its argument shapes, neither traced nor compiled."""
    program = PROGRAMS[name]
    mesh = mesh_for(program, topology)
    made = program.make(mesh if program.mesh else None)
    return made if topology is None or program.mesh else _on_one_device(made, mesh)


def _on_one_device(made: Made, mesh: Mesh | None) -> Made:
    assert mesh is not None
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    def place(leaf: Any) -> Any:
        if isinstance(leaf, jax.ShapeDtypeStruct):
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
        return leaf

    return Made(made.fn, jax.tree.map(place, made.args), jax.tree.map(place, dict(made.kwargs)))
