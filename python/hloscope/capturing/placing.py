"""Moves a call's arguments onto another mesh: shapes only, shardings by axis name."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.sharding import PartitionSpec as P

from ..hlo.mesh import mesh_axes
from . import topology
from .compat import jax_api as _compat
from .compat import meshes
from .errors import CaptureError


def target_mesh(topology_name: str | None, mesh: Any, known: Sequence[Any] = ()) -> Mesh:
    """The mesh to compile for: the topology's devices, or local ones, with the wanted axes.

    ``mesh`` is "data=2,model=4", a dict of axis sizes, a jax Mesh (its axes and sizes are taken),
    or None: then the first of the meshes ``known`` from the program, or a single device. Those
    also say which axes are explicit.
    """
    if isinstance(mesh, str):
        mesh = axes_of(mesh)
    if mesh is not None and not isinstance(mesh, Mapping) and not hasattr(mesh, "axis_names"):
        raise CaptureError(
            f"a mesh cannot be of type {type(mesh).__name__}; give axis sizes such as "
            '{"data": 2, "model": 4}, or a jax.sharding.Mesh'
        )
    devices: Sequence[Any]
    if topology_name is None:
        if isinstance(mesh, Mesh):
            return mesh
        devices, where = jax.devices(), "this process"
    else:
        devices, where = topology.topology_devices(topology_name), topology_name
    if isinstance(mesh, Mesh) and set(mesh.devices.flat) <= set(devices):
        return mesh
    if mesh is None:
        mesh = next(iter(known), None)
    if mesh is None:
        return topology.make_mesh(devices[:1], {ONE_DEVICE: 1}, where, exact=True)
    axes = _axes(mesh)
    types = _axis_types(axes, [mesh, *known])
    exact = topology_name is not None
    return topology.make_mesh(devices, axes, where, exact=exact, types=types)


ONE_DEVICE = "device"  # the axis of the mesh for a program that knows no mesh


def known_meshes(fn: Any, args: Any, kwargs: Any) -> list[Any]:
    """Meshes that a call is written for: its arguments', its jit's, and jax's current one."""
    leaves = jax.tree.leaves((args, dict(kwargs)))
    shardings = [getattr(leaf, "sharding", None) for leaf in leaves]
    options = _compat.jit_options(fn) or {}
    for name in ("in_shardings", "out_shardings"):
        shardings += jax.tree.leaves(options.get(name))
    meshes = [s.mesh for s in shardings if isinstance(s, NamedSharding) and s.mesh.axis_names]
    return list(dict.fromkeys([*meshes, *filter(None, [_compat.current_mesh()])]))


def _axis_types(axes: Mapping[str, int], meshes: Sequence[Any]) -> tuple[Any, ...] | None:
    """The type of each axis, by name; None if no mesh tells, as jax's default then holds."""
    types: dict[str, Any] = {}
    for mesh in meshes:
        for name, kind in zip(
            getattr(mesh, "axis_names", ()), getattr(mesh, "axis_types", None) or (), strict=False
        ):
            types.setdefault(str(name), kind)
    if not types.keys() & axes.keys():
        return None
    return tuple(types.get(axis, jax.sharding.AxisType.Auto) for axis in axes)


def axes_of(text: str) -> dict[str, int]:
    """``data=2,model=4`` as axis sizes. Raises ``CaptureError``."""
    try:
        return mesh_axes(text)
    except ValueError as error:
        raise CaptureError(str(error)) from None


def _axes(mesh: Any) -> dict[str, int]:
    items = dict(mesh) if isinstance(mesh, Mapping) else dict(mesh.shape)
    for axis, size in items.items():
        if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 1:
            raise CaptureError(
                f"mesh axis {axis!r} has size {size!r}; sizes are whole numbers of at least 1"
            )
    if not items:
        raise CaptureError('the mesh has no axes; give for example {"data": 2, "model": 4}')
    return {str(a): int(n) for a, n in items.items()}


def positional_names(fn: Any, count: int) -> list[str]:
    """The function's own names for its positional arguments, for messages."""
    names: list[str] = []
    with contextlib.suppress(TypeError, ValueError):
        for p in inspect.signature(fn).parameters.values():
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
                names.append(p.name)
    return [names[i] if i < len(names) else f"args[{i}]" for i in range(count)]


class _NoValues(jax.Array):
    """The shape of an array, which libraries that look for ``jax.Array`` take for one."""

    def __init__(self, of: jax.ShapeDtypeStruct) -> None:
        self.of = of

    shape = property(lambda self: self.of.shape)
    dtype = property(lambda self: self.of.dtype)
    ndim = property(lambda self: self.of.ndim)
    size = property(lambda self: self.of.size)
    sharding = property(lambda self: self.of.sharding)
    weak_type = property(lambda self: self.of.weak_type)


def without_values(leaf: Any) -> Any:
    """What ``as_arrays`` was given for this leaf."""
    return leaf.of if isinstance(leaf, _NoValues) else leaf


_compat.register_array(_NoValues, without_values)


def as_arrays(value: Any) -> Any:
    """A pytree with each ``ShapeDtypeStruct`` as what passes for a ``jax.Array``."""

    def one(leaf: Any) -> Any:
        return _NoValues(leaf) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf

    return jax.tree.map(one, value)


def place(value: Any, mesh: Mesh, name: str, *, sharded: bool = True, own: bool = True) -> Any:
    """Every array in a pytree as a ShapeDtypeStruct on ``mesh``, with its own PartitionSpec.

    Arrays without a NamedSharding are replicated. What is not an array is kept as it is (static
    arguments). ``sharded=False`` leaves arrays without one to ``in_shardings``, ``own=False`` all
    of them.
    """

    def one(path: Any, leaf: Any) -> Any:
        if not _is_array(leaf):
            return leaf
        aval = jax.api_util.shaped_abstractify(leaf)
        sharding = getattr(leaf, "sharding", None)
        spec, kind = None, None
        if own and isinstance(sharding, NamedSharding):
            spec, kind = sharding.spec, meshes.memory_kind(sharding)
        where = name + jax.tree_util.keystr(path)
        keep = sharded or spec is not None
        return jax.ShapeDtypeStruct(
            aval.shape,
            aval.dtype,
            sharding=named(mesh, P() if spec is None else spec, where, kind) if keep else None,
            weak_type=getattr(aval, "weak_type", False),
        )

    return jax.tree_util.tree_map_with_path(one, value)


def named(
    mesh: Mesh, spec: PartitionSpec, where: str, memory_kind: str | None = None
) -> NamedSharding:
    """``NamedSharding(mesh, spec)``; the error for an unknown axis names the argument."""
    used = [a for entry in _compat.entries(spec) if entry is not None for a in _names(entry)]
    for axis in used:
        if axis not in mesh.axis_names:
            have = ", ".join(map(str, mesh.axis_names))
            raise CaptureError(
                f"{where} is sharded over axis {axis!r}, which the target mesh lacks (it has "
                f"{have}); name the mesh axes as the arguments do"
            )
    return NamedSharding(mesh, spec, memory_kind=memory_kind)


def _names(entry: Any) -> tuple[str, ...]:
    return entry if isinstance(entry, tuple) else (entry,) if isinstance(entry, str) else ()


def place_jit(jitted: Any, mesh: Mesh) -> Any:
    """A function jitted with shardings, jitted again with them on ``mesh``; None if it has none."""
    given = _compat.jit_options(jitted)
    if given is None:
        return None
    for name in ("in_shardings", "out_shardings"):
        if name in given:
            given[name] = place_shardings(given[name], mesh, name)
    return jax.jit(jitted.__wrapped__, **given)


def place_shardings(shardings: Any, mesh: Mesh | None, name: str = "in_shardings") -> Any:
    """Shardings for ``jax.jit``: bare PartitionSpecs and those of other meshes put on ``mesh``."""

    def one(s: Any) -> Any:
        if isinstance(s, PartitionSpec):
            if mesh is None:
                raise CaptureError(
                    f'{name} holds a PartitionSpec and there is no mesh; give mesh={{"data": 8}}'
                )
            return named(mesh, s, name)
        if isinstance(s, NamedSharding) and mesh is not None:
            return named(mesh, s.spec, name)
        return s

    leaf = (PartitionSpec, jax.sharding.Sharding)
    return jax.tree.map(one, shardings, is_leaf=lambda s: isinstance(s, leaf))


def _is_array(leaf: Any) -> bool:
    # Python numbers stay as they are: they may be static arguments, and jax replicates them
    return isinstance(leaf, np.ndarray | np.generic | jax.Array | jax.ShapeDtypeStruct)
