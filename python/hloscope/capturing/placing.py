"""Moves a call's arguments onto another mesh: shapes only, shardings by axis name."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..hlo.mesh import mesh_axes
from . import topology
from .compat import jax_api as _compat
from .errors import CaptureError


def target_mesh(
    topology_name: str | None, mesh: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Mesh:
    """The mesh to compile for: the topology's devices, or local ones, with the wanted axes.

    ``mesh`` is "data=2,model=4", a dict of axis sizes, a jax Mesh (its axes and sizes are taken),
    or None: then the arguments' own mesh if it fits, or a single device.
    """
    if isinstance(mesh, str):
        mesh = axes_of(mesh)
    if mesh is not None and not isinstance(mesh, Mapping) and not hasattr(mesh, "axis_names"):
        raise CaptureError(
            f"a mesh cannot be of type {type(mesh).__name__}; give axis sizes such as "
            '{"data": 2, "model": 4}, or a jax.sharding.Mesh'
        )
    if topology_name is None:
        if isinstance(mesh, Mesh):
            return mesh
        return topology.make_mesh(jax.devices(), _axes(mesh), "this process", exact=False)
    devices = topology.topology_devices(topology_name)
    if isinstance(mesh, Mesh) and set(mesh.devices.flat) <= set(devices):
        return mesh
    axes = _axes(mesh) if mesh is not None else _axes_of_arguments(args, kwargs)
    if axes is None:
        return topology.make_mesh(devices[:1], {"device": 1}, topology_name, exact=True)
    return topology.make_mesh(devices, axes, topology_name, exact=True)


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


def _axes_of_arguments(args: Any, kwargs: Any) -> dict[str, int] | None:
    for leaf in jax.tree.leaves((args, dict(kwargs))):
        sharding = getattr(leaf, "sharding", None)
        if isinstance(sharding, NamedSharding) and sharding.mesh.axis_names:
            return _axes(sharding.mesh)
    current = _compat.current_mesh()
    return _axes(current) if current is not None else None


def positional_names(fn: Any, count: int) -> list[str]:
    """The function's own names for its positional arguments, for messages."""
    names: list[str] = []
    with contextlib.suppress(TypeError, ValueError):
        for p in inspect.signature(fn).parameters.values():
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
                names.append(p.name)
    return [names[i] if i < len(names) else f"args[{i}]" for i in range(count)]


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
        spec = sharding.spec if own and isinstance(sharding, NamedSharding) else None
        where = name + jax.tree_util.keystr(path)
        keep = sharded or spec is not None
        return jax.ShapeDtypeStruct(
            aval.shape,
            aval.dtype,
            sharding=named(mesh, spec or PartitionSpec(), where) if keep else None,
            weak_type=getattr(aval, "weak_type", False),
        )

    return jax.tree_util.tree_map_with_path(one, value)


def named(mesh: Mesh, spec: PartitionSpec, where: str) -> NamedSharding:
    """``NamedSharding(mesh, spec)``; the error for an unknown axis names the argument."""
    used = [a for entry in spec if entry is not None for a in _names(entry)]
    for axis in used:
        if axis not in mesh.axis_names:
            have = ", ".join(map(str, mesh.axis_names))
            raise CaptureError(
                f"{where} is sharded over axis {axis!r}, which the target mesh lacks (it has "
                f"{have}); name the mesh axes as the arguments do"
            )
    return NamedSharding(mesh, spec)


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
