"""The space of a sharding search: groups of arguments, specs of each, meshes.

arguments   params/layers/0/wq, params/layers/1/wq, …        batch
groups      params/layers/*/wq                               batch
choices     (), ("data",), (None, "model"), …                (), ("data",)
candidate   one mesh and one choice per group
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .same_sharding import sharded_alike

Spec = tuple[Any, ...]  # one entry per dimension: None, an axis, or a tuple of axes
Axes = Mapping[str, int]

# Up to this many arguments get a group each; beyond it, those of layers become one.
OWN_GROUPS = 12


@dataclass(frozen=True, slots=True)
class Group:
    """Arguments that are sharded alike. ``leaves`` are their positions among all arrays."""

    pattern: str
    leaves: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    bytes: int  # of all of them, unsharded
    choices: tuple[Spec, ...]
    is_data: bool  # not among the first argument's arrays: a batch rather than parameters
    given: bool = False  # the choices are the user's: those that do not divide are errors


@dataclass(frozen=True, slots=True)
class Selection:
    """A candidate before it is compiled: a mesh and the index of a choice for each group."""

    mesh: int
    picks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Space:
    """Everything that can be chosen. ``notes`` say what was left out of it and why."""

    groups: tuple[Group, ...]
    meshes: tuple[Axes, ...]
    notes: tuple[str, ...] = ()

    def choices(self, mesh: int, group: int) -> tuple[int, ...]:
        """Of a group's choices, those that differ from one another on that mesh."""
        sizes = self.meshes[mesh]
        seen: dict[Spec, int] = {}
        g = self.groups[group]
        for n, spec in enumerate(g.choices):
            if g.given or all(divides(spec, shape, sizes) for shape in g.shapes):
                seen.setdefault(canonical(spec, sizes), n)
        return tuple(seen.values())

    def count(self) -> int:
        """Number of candidates."""
        return sum(
            math.prod(len(self.choices(m, g)) for g in range(len(self.groups)))
            for m in range(len(self.meshes))
        )

    def every(self) -> Iterator[Selection]:
        """All candidates, the first mesh first, the last group fastest."""
        for m in range(len(self.meshes)):
            options = [self.choices(m, g) for g in range(len(self.groups))]
            for picks in itertools.product(*options):
                yield Selection(m, picks)

    def specs(self, choice: Selection) -> dict[str, Spec]:
        """Group pattern → spec."""
        return {g.pattern: g.choices[n] for g, n in zip(self.groups, choice.picks, strict=True)}

    def leaf_specs(self, choice: Selection) -> dict[int, Spec]:
        """Position of an array → spec, replicated ones left out."""
        return {
            leaf: g.choices[n]
            for g, n in zip(self.groups, choice.picks, strict=True)
            for leaf in g.leaves
            if any(e is not None for e in g.choices[n])
        }

    def key(self, choice: Selection) -> tuple[Any, ...]:
        """Equal for candidates that are the same program: size-1 axes shard nothing."""
        sizes = self.meshes[choice.mesh]
        return (
            tuple(sizes.items()),
            tuple(canonical(s, sizes) for s in self.specs(choice).values()),
        )


def canonical(spec: Spec, sizes: Axes) -> Spec:
    """A spec without axes of one device and without trailing empty dimensions."""
    out: list[Any] = []
    for entry in spec:
        axes = entry if isinstance(entry, tuple) else (entry,) if entry is not None else ()
        kept = tuple(a for a in axes if sizes.get(a, 2) != 1)
        out.append(kept if len(kept) > 1 else kept[0] if kept else None)
    while out and out[-1] is None:
        out.pop()
    return tuple(out)


def spec_code(spec: Spec) -> str:
    """``P(None, "model")``."""
    entries = []
    for entry in spec:
        if isinstance(entry, tuple):
            entries.append("(" + ", ".join(map(quoted, entry)) + ")")
        else:
            entries.append("None" if entry is None else quoted(entry))
    return "P(" + ", ".join(entries) + ")"


def quoted(text: str) -> str:
    """A Python literal, in double quotes unless the text contains any."""
    return repr(text) if '"' in text else f'"{repr(chr(39) + text)[2:]}'


def all_specs(rank: int, axes: Sequence[str]) -> tuple[Spec, ...]:
    """Every way to give each mesh axis a dimension or none, unsharded first."""
    out: list[Spec] = []
    for places in itertools.product((None, *range(rank)), repeat=len(axes)):
        dims: list[tuple[str, ...]] = [()] * rank
        for axis, dim in zip(axes, places, strict=True):
            if dim is not None:
                dims[dim] = (*dims[dim], axis)
        spec = tuple(d if len(d) > 1 else d[0] if d else None for d in dims)
        out.append(canonical(spec, {}))
    out.sort(key=lambda s: sum(len(e) if isinstance(e, tuple) else e is not None for e in s))
    return tuple(dict.fromkeys(out))


def divides(spec: Spec, shape: Sequence[int], sizes: Axes) -> bool:
    """Whether a spec divides a shape evenly."""
    for dim, entry in enumerate(spec):
        axes = entry if isinstance(entry, tuple) else (entry,) if entry is not None else ()
        if shape[dim] % math.prod(sizes.get(a, 1) for a in axes):
            return False
    return True


def matches(pattern: str, path: str) -> bool:
    """``layers/*/wq`` matches any path with that end; ``*`` is one or more parts of a path."""
    inside = "".join(".+" if c == "*" else re.escape(c) for c in pattern)
    return re.fullmatch(rf"(?:.*/)?{inside}", path) is not None


def _to_try(pattern: str, given: Any) -> tuple[Spec, ...] | None:
    """The specs that a user wants tried for a pattern; None for all."""
    if given is None:
        return None
    if isinstance(given, list):
        return tuple(dict.fromkeys(tuple(spec) for spec in given))
    spec = tuple(given)
    if any(entry is not None and not isinstance(entry, str | tuple) for entry in spec):
        raise ValueError(f"{pattern}: a tuple is one spec; give specs to try as a list")
    return (spec,)


def make_space(
    leaves: Sequence[Any],
    meshes: Sequence[Axes],
    groups: Mapping[str, Any] | Sequence[str] | None,
) -> Space:
    """Groups of the leaves (objects with ``path``, ``shape``, ``bytes``, ``argument``).

    ``groups``: pattern → a list of specs to try, the one spec, or None for all; or patterns. Arrays
    that none matches get groups of their own. Raises ``ValueError`` for a pattern that matches
    nothing and for arrays of one group that differ in rank.
    """
    notes: list[str] = []
    given_of = groups if isinstance(groups, Mapping) else dict.fromkeys(groups or ())
    wanted = {pattern: _to_try(pattern, given) for pattern, given in given_of.items()}
    members: dict[str, list[int]] = {p: [] for p in wanted}
    rest: list[int] = []
    for n, leaf in enumerate(leaves):
        hit = next((p for p in wanted if matches(p, leaf.path)), None)
        if hit is not None:
            members[hit].append(n)
        elif len(leaf.shape):
            rest.append(n)
    for pattern, found in members.items():
        if not found:
            known = ", ".join(leaf.path for leaf in leaves[:8])
            raise ValueError(f"no argument is called {pattern!r}; there are {known}")
    for pattern, found in sharded_alike(leaves, rest, fold=len(rest) > OWN_GROUPS).items():
        members.setdefault(pattern, []).extend(found)
    if "" in members:
        raise ValueError("an argument has no name")
    axes = list(dict.fromkeys(a for m in meshes for a in m))
    out = []
    for pattern, found in members.items():
        shapes = tuple(leaves[n].shape for n in found)
        if len({len(s) for s in shapes}) > 1:
            raise ValueError(f"arrays of {pattern!r} differ in rank: {sorted(set(shapes))}")
        given = wanted.get(pattern)
        if given is not None:
            choices = given
        else:
            every = all_specs(len(shapes[0]), axes)
            choices = tuple(
                c for c in every if any(all(divides(c, s, m) for s in shapes) for m in meshes)
            )
            if len(choices) < len(every):
                notes.append(
                    f"{pattern}: {len(every) - len(choices)} of {len(every)} specs divide on no "
                    "mesh"
                )
        out.append(
            Group(
                pattern, tuple(found), shapes, sum(leaves[n].bytes for n in found), choices,
                all(leaves[n].argument != leaves[0].argument for n in found), given is not None,
            )
        )  # fmt: skip
    return Space(tuple(out), tuple(dict(m) for m in meshes), tuple(notes))
