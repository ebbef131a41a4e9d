"""Replica groups and source-target pairs, expanded to the devices that really communicate.

This is hard because the numbers alone do not say what they number. XLA (GetCollectiveOpGroupMode,
xla/service/collective_ops_utils) reads them by channel id and use_global_device_ids:

    channel_id   use_global_device_ids   numbers are      all-reduce channel_id=1 {{0}}
    no           –                       replicas         of 4 partitions means {{0,1,2,3}}:
    yes          false                   replicas, with   replica 0 with all its partitions
                                         all partitions
    yes          true                    flattened: replica × partitions + partition
    yes          op lacks the attribute  partitions       (all-to-all, collective-permute, …)

No groups at all means everyone. Devices here are flattened numbers; with one replica (all
jit programs) those are partition numbers.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from weakref import WeakKeyDictionary

import numpy as np

from ..collective_kinds import KINDS
from ..limits import MOST_DEVICES
from ..mesh import Mesh
from ..module import Instruction, Module
from ..target import Target
from .axes import axis_groups, group_axes
from .mesh_text import Array, AxisRef, mesh_from_text, parse_iota
from .shardy import header_meshes

# Opcodes whose use_global_device_ids attribute means something; the others' ids are partitions.
_HAS_GLOBAL_IDS = frozenset(o for k in KINDS.values() if k.has_global_ids for o in k.opcodes)


@dataclass(frozen=True, eq=False)
class DeviceGroups:
    """Who talks to whom: ``groups`` (rows of equal length) or ``pairs`` (source, target).

    Groups of unequal size are kept in ``ragged``; then ``groups`` is None. ``text`` is the
    attribute as printed.
    """

    text: str
    groups: Array | None = None
    pairs: Array | None = None
    ragged: tuple[tuple[int, ...], ...] = ()

    @cached_property
    def key(self) -> tuple[str, object]:
        """Equal for equal groups. ``text`` will not do: pairs print as groups of two do, and ids
        mean other devices where they are replicas."""
        if self.groups is not None:
            return f"groups {self.groups.shape}", self.groups.tobytes()
        if self.pairs is not None:
            return "pairs", self.pairs.tobytes()
        return "ragged", self.ragged

    @property
    def group_size(self) -> int:
        """Devices in a group; the largest where they differ; 0 for pairs."""
        if self.groups is not None:
            return int(self.groups.shape[1])
        return max(map(len, self.ragged), default=0)

    @property
    def num_groups(self) -> int:
        return int(self.groups.shape[0]) if self.groups is not None else len(self.ragged)

    def rows(self) -> list[list[int]]:
        """Groups as lists of devices; pairs as lists of two."""
        if self.groups is not None:
            found: list[list[int]] = self.groups.tolist()
            return found
        if self.pairs is not None:
            found = self.pairs.tolist()
            return found
        return [list(g) for g in self.ragged]

    def axes(self, mesh: Mesh | None) -> tuple[AxisRef, ...] | None:
        """Mesh axes the groups run over, () for groups of one, None if no axes explain them.

        For pairs: the axes along which every transfer stays.
        """
        if mesh is None:
            return None
        if self.groups is not None:
            return group_axes(self.groups, mesh)
        if self.pairs is not None:
            return _pair_axes(self.pairs, mesh)
        return None


def axes_text(axes: tuple[AxisRef, ...] | None) -> str | None:
    """``"model"``, ``"data+fsdp"``, ``"model:(1)2"``; None if no axes are known."""
    if not axes:
        return None
    return "+".join(map(str, axes))


def _pair_axes(pairs: Array, mesh: Mesh) -> tuple[AxisRef, ...] | None:
    moving = pairs[pairs[:, 0] != pairs[:, 1]]
    place = np.full((max(mesh.partitions) + 1, len(mesh.axis_sizes)), -1, dtype=np.int64)
    grid = np.indices(mesh.axis_sizes).reshape(len(mesh.axis_sizes), -1).T
    place[np.asarray(mesh.partitions)] = grid
    if moving.size and (moving.min() < 0 or moving.max() >= len(place)):
        return None
    differs = (place[moving[:, 0]] != place[moving[:, 1]]).any(axis=0)
    return tuple(AxisRef(n) for n, d in zip(mesh.axis_names, differs, strict=True) if d)


_GROUP = re.compile(r"\{([\d,\s]*)\}")


@lru_cache(maxsize=4096)
def parse_groups(text: str) -> DeviceGroups | None:
    """Replica groups in any of the four spellings, numbers as printed; None if unreadable.

    ``{{0,4},{1,5}}``, ``[4,2]<=[2,4]T(1,0)``, ``mesh['a'=2,'b'=4] {'b'}`` with or without
    ``device_ids=([2,4]T(1,0))``, and ``{}`` for everyone.
    """
    bare = text.strip()
    if bare.startswith("["):
        array = parse_iota(bare)
        if array is None or array.ndim != 2:
            return None
        return DeviceGroups(text, array)
    if "mesh[" in bare:
        found = mesh_from_text(bare)
        if found is None:
            return None
        array = axis_groups(found[0], bare[found[1] :])
        return None if array is None else DeviceGroups(text, array)
    if not (bare.startswith("{") and bare.endswith("}")):
        return None
    if re.search(r"[^\d,\s{}]|\d{10}", bare):  # no device number has ten digits
        return None
    rows = [tuple(map(int, g.replace(",", " ").split())) for g in _GROUP.findall(bare[1:-1])]
    rows = [r for r in rows if r]
    if not rows:
        return DeviceGroups(text, np.zeros((0, 0), dtype=np.int64))
    if len({len(r) for r in rows}) > 1:
        return DeviceGroups(text, ragged=tuple(rows))
    return DeviceGroups(text, np.asarray(rows, dtype=np.int64))


_PAIR = re.compile(r"\{\s*(\d{1,9})\s*,\s*(\d{1,9})\s*\}")


@lru_cache(maxsize=4096)
def parse_pairs(text: str) -> Array:
    """``{{0,1},{1,2}}`` as an array of (source, target) rows."""
    rows = [(int(a), int(b)) for a, b in _PAIR.findall(text)]
    return np.asarray(rows, dtype=np.int64).reshape(-1, 2)


def group_mode(instruction: Instruction) -> str:
    """``cross_replica``, ``cross_partition``, ``cross_replica_and_partition`` or ``flattened``."""
    if not instruction.attribute("channel_id"):
        return "cross_replica"
    if instruction.opcode not in _HAS_GLOBAL_IDS:
        return "cross_partition"
    if instruction.attribute("use_global_device_ids") == "true":
        return "flattened"
    return "cross_replica_and_partition"


def groups_text(instruction: Instruction) -> str | None:
    """``replica_groups`` as printed, with its ``device_ids``, which follow after a comma."""
    raw = instruction.attribute("replica_groups")
    if raw is not None and raw.startswith("mesh[") and raw.endswith("]"):
        ids = instruction.attribute("device_ids")
        return raw if ids is None else f"{raw}, device_ids={ids}"
    return raw


def device_groups(instruction: Instruction, replicas: int, partitions: int) -> DeviceGroups | None:
    """The devices a collective runs over, flattened; None when its groups cannot be read."""
    pairs = instruction.attribute("source_target_pairs")
    mode = group_mode(instruction)
    if pairs is not None:
        return _flat_pairs(pairs, mode, replicas, partitions)
    raw = groups_text(instruction)
    printed = parse_groups(raw if raw is not None else "{}")
    if printed is None:
        return None
    return _expand(printed, mode, replicas, partitions)


def names_nobody(instruction: Instruction) -> bool:
    """Whether a collective runs over all devices or partitions, however many there are."""
    if instruction.attribute("source_target_pairs") is not None:
        return False
    everyone = groups_text(instruction) in (None, "", "{}")
    return everyone or group_mode(instruction) == "cross_replica_and_partition"


# The expansions made so far: the same few groups repeat thousands of times in a module.
_EXPANDED: dict[tuple[str, str, int, int], DeviceGroups] = {}


def _expand(printed: DeviceGroups, mode: str, replicas: int, partitions: int) -> DeviceGroups:
    key = (printed.text, mode, replicas, partitions)
    found = _EXPANDED.get(key)
    if found is None:
        if len(_EXPANDED) > 4096:
            _EXPANDED.clear()
        found = _EXPANDED[key] = _expanded(printed, mode, replicas, partitions)
    return found


def _expanded(printed: DeviceGroups, mode: str, replicas: int, partitions: int) -> DeviceGroups:
    if printed.ragged:
        rows = [_flat(np.asarray([r]), mode, replicas, partitions) for r in printed.ragged]
        return DeviceGroups(printed.text, ragged=tuple(tuple(r) for a in rows for r in a.tolist()))
    groups = printed.groups
    assert groups is not None
    if groups.size == 0:
        everyone = {"cross_partition": partitions, "flattened": replicas * partitions}
        groups = np.arange(everyone.get(mode, replicas), dtype=np.int64)[None]
    return DeviceGroups(printed.text, _flat(groups, mode, replicas, partitions))


def _flat(groups: Array, mode: str, replicas: int, partitions: int) -> Array:
    """Rows of printed numbers → rows of flattened devices."""
    if mode == "flattened":
        return groups
    if mode == "cross_partition":  # the same among the partitions of every replica
        base = np.arange(replicas, dtype=np.int64)[:, None, None] * partitions
        return (base + groups[None]).reshape(-1, groups.shape[1])
    every = np.arange(partitions, dtype=np.int64)
    if mode == "cross_replica":  # the same among the replicas of every partition
        return (every[:, None, None] + groups[None] * partitions).reshape(-1, groups.shape[1])
    both = groups[:, :, None] * partitions + every
    return both.reshape(groups.shape[0], -1)


def _flat_pairs(text: str, mode: str, replicas: int, partitions: int) -> DeviceGroups:
    pairs = parse_pairs(text)
    if replicas > 1 and partitions > 1:
        pairs = (
            np.concatenate([pairs * partitions + p for p in range(partitions)])
            if (mode == "cross_replica")
            else np.concatenate([pairs + r * partitions for r in range(replicas)])
        )
    return DeviceGroups(text, pairs=pairs)


_SHARDING_DEVICES = re.compile(r"devices=\[([\d,]+)\]")


def device_counts(module: Module, target: Target | None = None) -> tuple[int, int]:
    """(replicas, partitions): from the header, else the target, else the shardings' devices."""
    replicas, partitions = module.replica_count, module.num_partitions
    if partitions > 1 or "num_partitions" in module.attributes:
        return replicas, partitions
    if target is not None and len(target.devices) > 1:
        return replicas, max(1, len(target.devices) // replicas)
    found = _NAMED.get(module)
    if found is None:
        found = _NAMED[module] = _named_counts(module, replicas)
    return found


# What texts name, which takes a walk over the module.
_NAMED: WeakKeyDictionary[Module, tuple[int, int]] = WeakKeyDictionary()


def _named_counts(module: Module, replicas: int) -> tuple[int, int]:
    """(replicas, partitions) by the meshes, shardings and groups of the module."""
    named = 1
    for text in header_meshes(module.attributes).values():
        mesh = mesh_from_text(text) if text.startswith("mesh[") else None
        named = max(named, len(mesh[0].partitions) if mesh else 1)
    if module.entry is not None:
        for i in module.entry.instructions:
            text = (i.sharding_text if "sharding=" in i.attribute_text else None) or ""
            for dims in _SHARDING_DEVICES.findall(text):
                named = max(named, _believed(math.prod(int(n) for n in dims.split(",") if n)))
            if "mesh[" in text and (mesh := mesh_from_text(text)) is not None:
                named = max(named, len(mesh[0].partitions))
    of_groups = _counts_of_groups(module)
    counts = max(replicas, of_groups[0]), max(named, of_groups[1])
    return counts if math.prod(counts) <= MOST_DEVICES else (1, 1)


def _believed(count: int) -> int:
    """The count, or 1: a damaged number is not one."""
    return count if count <= MOST_DEVICES else 1


def _computations_that_run(module: Module) -> set[int] | None:
    """Indices of those reachable from the entry computation; None without one."""
    if module.entry is None:
        return None
    found, waiting = {module.entry.index}, [module.entry]
    offsets, callees, _ = module.called_csr()
    for c in waiting:
        if c.instructions:
            begin, end = offsets[[c.instructions[0].index, c.instructions[-1].index + 1]]
            new = set(callees[begin:end].tolist()) - found
            found |= new
            waiting += [module.computations[n] for n in new]
    return found


def _counts_of_groups(module: Module) -> tuple[int, int]:
    """At least this many (replicas, partitions), by the numbers in groups: texts written by hand
    have no counts in their header, and ``replica_groups={}`` beside explicit groups means all of
    those devices.

    Only of what runs: a computation that nothing calls may belong to another program."""
    found = {True: 1, False: 1}  # True: replicas, False: partitions
    some = [
        i for i in module.instructions
        if "replica_groups=" in i.attribute_text or "source_target_pairs=" in i.attribute_text
    ]  # fmt: skip
    runs = _computations_that_run(module) if some else None
    for i in some:
        if runs is not None and i.computation.index not in runs:
            continue
        if "replica_groups=" in i.attribute_text:
            groups = parse_groups(groups_text(i) or "")
            ids = [] if groups is None else [n for row in groups.rows() for n in row]
        else:
            ids = parse_pairs(i.attribute("source_target_pairs") or "").reshape(-1).tolist()
        replicas = group_mode(i) in ("cross_replica", "cross_replica_and_partition")
        found[replicas] = max(found[replicas], _believed(max(ids, default=0) + 1))
    return found[True], found[False]
