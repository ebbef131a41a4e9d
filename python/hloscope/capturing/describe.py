"""Traced, Lowered, Compiled → hlo.Target: devices, mesh, arguments, XLA's own figures."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding

from ..hlo import Argument, Device, Mesh, Module, Target
from .compat import jax_api as _compat
from .placing import positional_names


def describe(
    *,
    traced: Any = None,
    lowered: Any = None,
    compiled: Any = None,
    module: Module | None = None,
    fn: Callable[..., Any] | None = None,
    messages: Iterable[str] = (),
    sources: Mapping[str, str] | None = None,
    dumps: Mapping[str, str] | None = None,
) -> Target:
    """Everything known about a program's target; what is not known stays empty."""
    raw = _compat.partition_devices(lowered, compiled)
    arguments, in_shardings = _arguments(traced, lowered, compiled, fn, module)
    results, out_shardings = _results(traced, lowered, compiled)
    return Target(
        platform=str(getattr(raw[0], "platform", "")) if raw else "",
        device_kind=str(getattr(raw[0], "device_kind", "")) if raw else "",
        devices=tuple(_device(d, i) for i, d in enumerate(raw)),
        mesh=_mesh([*in_shardings, *out_shardings], raw, lowered),
        arguments=arguments,
        results=results,
        memory_stats=_memory_stats(compiled),
        cost_analysis=_cost_analysis(compiled),
        compiler_messages=tuple(messages),
        jax_version=jax.__version__,
        sources=dict(sources or {}),
        dumps=dict(dumps or {}),
    )


def _device(device: Any, partition: int) -> Device:
    coords = getattr(device, "coords", None)
    core = getattr(device, "core_on_chip", None)
    return Device(
        id=int(device.id),
        partition=partition,
        kind=str(getattr(device, "device_kind", "")),
        coords=tuple(int(c) for c in coords) if coords is not None else None,
        core=int(core) if core is not None else None,
        process=int(getattr(device, "process_index", 0)),
        slice=int(getattr(device, "slice_index", 0) or 0),
    )


def _mesh(shardings: Sequence[Any], devices: Sequence[Any], lowered: Any) -> Mesh | None:
    """The mesh most arguments and results are on; else the one StableHLO names."""
    if len(devices) < 2:
        return None
    seen: dict[Any, int] = {}
    for s in shardings:
        if isinstance(s, NamedSharding) and getattr(s.mesh, "devices", None) is not None:
            seen[s.mesh] = seen.get(s.mesh, 0) + 1
    position = {d.id: i for i, d in enumerate(devices)}
    for mesh in sorted(seen, key=lambda m: (m.devices.size, seen[m]), reverse=True):
        ids = [d.id for d in mesh.devices.flat]
        if all(i in position for i in ids):
            partitions = tuple(position[i] for i in ids)
            return Mesh(tuple(map(str, mesh.axis_names)), tuple(mesh.devices.shape), partitions)
    return _stablehlo_mesh(lowered, len(devices))


_SDY_MESH = re.compile(r"sdy\.mesh @\w+ = <\[([^\]]+)\](?:, device_ids=\[([\d, ]+)\])?>")
_SDY_AXIS = re.compile(r'"([^"]+)"=(\d+)')


def _stablehlo_mesh(lowered: Any, count: int) -> Mesh | None:
    """``sdy.mesh @mesh = <["data"=2, "model"=4]>``: the only mesh when shard_map made it."""
    if lowered is None:
        return None
    with contextlib.suppress(Exception):
        for axes, ids in _SDY_MESH.findall(lowered.as_text("stablehlo")):
            named = _SDY_AXIS.findall(axes)
            sizes = tuple(int(n) for _, n in named)
            if math.prod(sizes) == count:
                order = tuple(int(i) for i in ids.split(",")) if ids else tuple(range(count))
                return Mesh(tuple(a for a, _ in named), sizes, order)
    return None


def _arguments(
    traced: Any,
    lowered: Any,
    compiled: Any,
    fn: Callable[..., Any] | None,
    module: Module | None,
) -> tuple[tuple[Argument, ...], list[Any]]:
    stage = compiled if compiled is not None else lowered if lowered is not None else traced
    leaves, _ = jax.tree_util.tree_flatten_with_path(stage.args_info)
    names = list(_compat.debug_names(traced)[0])
    if len(names) != len(leaves):
        names = [_path_name(path, fn) for path, _ in leaves]
    kept = _compat.kept_arguments(lowered, compiled)
    indices = kept if kept is not None else list(range(len(leaves)))
    shardings = _input_shardings(lowered, compiled, indices, len(leaves))
    parameter = {index: number for number, index in enumerate(indices)}
    if traced is None and fn is None:
        names = _names_in_module(names, parameter, module)
    out = []
    for i, ((_, info), name, sharding) in enumerate(zip(leaves, names, shardings, strict=True)):
        text, spec = _spec(sharding, len(info.shape))
        out.append(
            Argument(
                name,
                tuple(info.shape),
                str(info.dtype),
                text,
                bool(getattr(info, "donated", False)),
                spec,
                parameter.get(i),
            )
        )
    return tuple(out), shardings


def _names_in_module(
    names: list[str], parameter: Mapping[int, int], module: Module | None
) -> list[str]:
    """Without the function, jax's names are still the op names of ENTRY's parameters."""
    entry = module.entry if module is not None and module.dialect == "hlo" else None
    found = {p.parameter_number: p.op_name for p in entry.parameters} if entry else {}
    if len(found) != len(parameter):
        return names
    return [found.get(parameter.get(i), "") or name for i, name in enumerate(names)]


def _input_shardings(lowered: Any, compiled: Any, kept: Sequence[int], count: int) -> list[Any]:
    """One sharding (or None) for each flat argument, dropped ones included."""
    if compiled is not None:
        with contextlib.suppress(Exception):
            flat = jax.tree.leaves(compiled.input_shardings, is_leaf=lambda s: s is None)
            if len(flat) == count:
                return list(flat)
    out: list[Any] = [None] * count
    for index, sharding in zip(kept, _compat.argument_shardings(lowered, len(kept)), strict=False):
        out[index] = sharding
    return out


def _results(traced: Any, lowered: Any, compiled: Any) -> tuple[tuple[Argument, ...], list[Any]]:
    info = None
    for stage in (compiled, lowered, traced):
        with contextlib.suppress(Exception):
            info = stage.out_info if stage is not None else None
        if info is not None:
            break
    if info is None:
        return (), []
    leaves, _ = jax.tree_util.tree_flatten_with_path(info)
    shardings: list[Any] = []
    if compiled is not None:
        with contextlib.suppress(Exception):
            shardings = jax.tree.leaves(compiled.output_shardings)
    if len(shardings) != len(leaves):
        shardings = [None] * len(leaves)
    out = []
    for (path, leaf), sharding in zip(leaves, shardings, strict=True):
        text, spec = _spec(sharding, len(leaf.shape))
        name = jax.tree_util.keystr(path)
        out.append(Argument(name, tuple(leaf.shape), str(leaf.dtype), text, False, spec))
    return tuple(out), shardings


def _spec(sharding: Any, rank: int) -> tuple[str | None, tuple[tuple[str, ...], ...] | None]:
    """A sharding as text, and mesh axes for each dimension when it names them."""
    if sharding is None or type(sharding).__name__ == "UnspecifiedValue":
        return None, None
    if not isinstance(sharding, NamedSharding):
        hlo = getattr(sharding, "_hlo_sharding", None)
        return (str(hlo) if hlo is not None else type(sharding).__name__), None
    entries = _compat.entries(sharding.spec)
    dims = [
        () if a is None or not isinstance(a, str | tuple) else (a,) if isinstance(a, str) else a
        for a in entries[:rank]
    ]
    dims += [()] * (rank - len(dims))
    return _compat.spec_text(sharding.spec), tuple(tuple(str(a) for a in d) for d in dims)


def _path_name(path: Sequence[Any], fn: Callable[..., Any] | None) -> str:
    """``((args), {kwargs})`` path → "params['w1']", by the function's own parameter names."""
    if len(path) < 2:
        return jax.tree_util.keystr(tuple(path))
    group, first, *rest = path
    tail = jax.tree_util.keystr(tuple(rest))
    if getattr(group, "idx", 0) == 1:
        return str(getattr(first, "key", first)) + tail
    position = getattr(first, "idx", 0)
    head = positional_names(fn, position + 1)[position]
    return head + tail


def _memory_stats(compiled: Any) -> dict[str, int]:
    """Fields of CompiledMemoryStats, bytes per device; ``peak_memory_in_bytes`` included."""
    out: dict[str, int] = {}
    if compiled is None:
        return out
    with contextlib.suppress(Exception):
        stats = compiled.runtime_executable().get_compiled_memory_stats()
        out |= _numbers(stats)
    if not out:
        with contextlib.suppress(Exception):
            out |= _numbers(compiled.memory_analysis())
    return out


def _numbers(stats: Any) -> dict[str, int]:
    names = [n for n in dir(stats) if n.endswith("_in_bytes")]
    return {n: int(getattr(stats, n)) for n in names if isinstance(getattr(stats, n), int)}


def _cost_analysis(compiled: Any) -> dict[str, float]:
    if compiled is None:
        return {}
    with contextlib.suppress(Exception):
        found = compiled.cost_analysis()
        if isinstance(found, list | tuple):
            found = found[0]
        return {str(k): float(v) for k, v in (found or {}).items()}
    return {}
