"""The arrays of this process and the memory of its devices."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import jax

from ..api.live import DeviceMemory, Live, LiveArray, LiveArrays, line_of
from ..hlo import StackFrame
from .jaxpr import element_type

# A variable with more elements than this is not searched for arrays.
_MOST_LEAVES = 100_000


def live_arrays(variables: Mapping[str, Any]) -> Live:
    """What is on the devices; ``variables`` of the caller name what they hold."""
    arrays = [a for a in jax.live_arrays() if not a.is_deleted()]
    names = _names(variables)
    seen: set[tuple[str, int]] = set()
    rows: dict[tuple[str, str, str], list[Any]] = {}
    held: Counter[str] = Counter({str(d): 0 for d in jax.local_devices()})
    each = []
    # arrays over several devices first: the parts of them that were looked at are arrays as well
    for array in sorted(arrays, key=lambda a: -len(a.sharding.device_set)):
        on = _new_bytes(array, seen)
        if not on and array.nbytes:
            continue
        held.update(on)
        frames = _frames(array)
        key = (line_of(frames), _shape(array), _sharding(array))
        row = rows.setdefault(key, [0, Counter(), [], frames])
        row[0] += 1
        row[1].update(on)
        row[2] += names.get(id(array), ())
        each.append(LiveArray(weakref.ref(array), tuple(names.get(id(array), ())), key[0], on))
    made = [
        LiveArrays(
            *key,
            count,
            sum(by.values()),
            max(by.values(), default=0),
            tuple(dict.fromkeys(found)),
            frames,
            tuple(sorted(by.items())),
        )
        for key, (count, by, found, frames) in rows.items()
    ]
    ordered = sorted(made, key=lambda row: (-row.bytes, row.key))
    stats = {str(d): _stats(d) for d in jax.local_devices()}
    devices = tuple(
        DeviceMemory(
            name,
            bytes_held,
            *(
                stats.get(name, {}).get(key)
                for key in (
                    "bytes_in_use", "peak_bytes_in_use", "bytes_limit", "largest_free_block_bytes",
                )
            ),
        )
        for name, bytes_held in sorted(held.items())
    )  # fmt: skip
    return Live(tuple(ordered), devices, _each=tuple(each))


def leaves(arguments: Any) -> list[Any]:
    """The arrays of a call's arguments."""
    return list(jax.tree.leaves(arguments))


def _new_bytes(array: Any, seen: set[tuple[str, int]]) -> dict[str, int]:
    """Bytes by device of the buffers that no array before had."""
    on: dict[str, int] = {}
    for shard in array.addressable_shards:
        device = str(shard.device)
        part = shard.data
        try:
            buffer = (device, part.unsafe_buffer_pointer())
        except Exception:  # a kind of array without one buffer
            buffer = (device, -id(part))
        if buffer in seen and part.nbytes:
            continue
        seen.add(buffer)
        on[device] = on.get(device, 0) + part.nbytes
    return on


def _frames(array: Any) -> tuple[StackFrame, ...]:
    """The Python stack that made it, innermost first; () where jax kept none."""
    found: Any = getattr(array, "traceback", None)
    try:
        return tuple(StackFrame(f.file_name, f.line_num, f.function_name) for f in found.frames)
    except AttributeError:
        return ()


def _shape(array: Any) -> str:
    return f"{element_type(array.dtype)}[{','.join(map(str, array.shape))}]"


def _sharding(array: Any) -> str:
    devices = array.sharding.device_set
    if len(devices) == 1:
        return str(next(iter(devices)))
    spec = getattr(array.sharding, "spec", None)
    return str(spec) if spec is not None else f"over {len(devices)} devices"


def _stats(device: Any) -> Mapping[str, int]:
    try:
        return device.memory_stats() or {}
    except Exception:  # a platform that has none
        return {}


def _names(variables: Mapping[str, Any]) -> dict[int, list[str]]:
    """id of an array → the variables that hold it, also in containers that jax knows."""
    found: dict[int, list[str]] = {}
    for name, value in variables.items():
        if name.startswith("_") or isinstance(value, str | bytes | type):
            continue
        if isinstance(value, list | tuple | dict | set) and len(value) > _MOST_LEAVES:
            continue
        for leaf in _arrays(value):
            found.setdefault(id(leaf), []).append(name)
    return found


def _arrays(value: Any) -> Iterable[Any]:
    try:
        return [x for x in jax.tree.leaves(value) if isinstance(x, jax.Array)]
    except Exception:  # a container that cannot be flattened, such as a dict of mixed keys
        return ()
