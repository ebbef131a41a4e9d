"""Counterfactuals: is what ``why`` blames needed, and what it does not blame not?

    python benchmarks/counterfactual.py [--on cpu v5e:2x4 v5p:2x2x2 v5e:2x4*2] [--only words …] [-v]

Each program of ``counterfactuals/`` has switches (``switches.py``): sharding constraints, mesh axes
of arguments and results, elementwise operations, shifts, collectives written by name. For every
collective of a program, what its card blames is looked up among them by line and by name, and the
program is compiled again:

    without all the sources that the card names     the collective goes, or changes
    without the operation that the card names       the same
    without any one other source or operation       it stays
    without one source, and without the others      one that does nothing should not be named

It prints, for each platform, how many cards are right, wrong, unnamed (the card says that it does
not know, or names no source) and not testable (nothing that it names has a switch), and each
wrong one with what was tried.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
)
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "python")]

import hloscope as hs
import jax
import numpy as np
from counterfactuals import programs
from counterfactuals.switches import Key, Program, Switches, given, keys_of
from jax.sharding import AxisType, Mesh

REDUCES = ("all-reduce", "reduce-scatter")
_MESHES: dict[tuple[str, tuple[tuple[str, int], ...]], Mesh] = {}


def mesh_for(platform: str, axes: dict[str, int]) -> Mesh:
    """A mesh of CPU devices or of a TPU topology, ``v5e:2x4*2`` for two slices of it.

    Over slices the first axis lies across them.
    """
    known = _MESHES.get((platform, tuple(axes.items())))
    if known is not None:
        return known
    devices: list[Any] = list(jax.devices())
    if platform != "cpu":
        from jax.experimental import topologies

        name, _, slices = platform.partition("*")
        more = {"num_slices": int(slices)} if slices else {}
        found = topologies.get_topology_desc(name, "tpu", **more).devices
        devices = sorted(found, key=lambda d: (getattr(d, "slice_index", 0), d.id))
    sizes = list(axes.values())
    if "*" in platform:  # twice as many devices: the first axis is twice as long
        sizes[0] *= int(platform.partition("*")[2])
    count = int(np.prod(sizes))
    types = (AxisType.Auto,) * len(sizes)
    made = Mesh(np.array(devices[:count]).reshape(sizes), tuple(axes), axis_types=types)
    _MESHES[platform, tuple(axes.items())] = made
    return made


class Compiled:
    """One program on one platform: its captures by what is off."""

    def __init__(self, name: str, platform: str) -> None:
        self.name, self.platform = name, platform
        made = programs.PROGRAMS[name]
        self.mesh = mesh_for(platform, made.mesh)
        self.make = made.make
        self._known: dict[frozenset[Key], Any] = {}
        self.lines: dict[int, str] = {}
        self.keys: dict[Key, None] = {}
        self.base = self.without(frozenset())

    def without(self, off: frozenset[Key]) -> Any:
        """The capture with these switches off; None if it does not compile."""
        if off not in self._known:
            s = Switches(self.mesh, off)
            program: Program = self.make(s)
            arguments = [given(s, n, tree) for n, tree in program.arguments.items()]

            def whole(*xs: Any) -> Any:
                s.alive.clear()
                out = program.function(*xs)
                return (out, tuple(s.alive)) if s.alive else out

            whole.__signature__ = None  # type: ignore[attr-defined]
            asked = {}
            if program.out is not None and "out" not in off:
                asked["out_shardings"] = s.sharding(program.out)
            try:
                cap = hs.capture(jax.jit(_named(whole, program), **asked), *arguments)
                cap.rows = list(cap.collectives)
            except Exception as error:  # a variant need not make sense
                if not off:
                    raise
                self._known[off] = None
                print(f"    {self.name} without {_said(off)}: {str(error)[:120]}")
                return None
            self._known[off] = cap
            if not off:
                self.lines = dict(s.lines)
                for n, tree in program.arguments.items():
                    self.keys |= keys_of(n, tree)
                self.keys |= {f"line {n}": None for n in s.lines}
                if program.out is not None:
                    self.keys["out"] = None
        return self._known[off]


def _named(whole: Any, program: Program) -> Any:
    """The function with the program's parameter names, by which ``why`` names arguments."""
    names = ", ".join(program.arguments)
    scope: dict[str, Any] = {"whole": whole}
    exec(compile(f"def f({names}): return whole({names})", "<frozen f>", "exec"), scope)
    return scope["f"]


@dataclass
class Verdict:
    """What was found of one collective's card."""

    program: str
    row: Any
    card: Any
    verdict: str  # right, wrong, unnamed, untestable
    blamed: frozenset[Key]
    reasons: list[str] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)


def blamed_by(card: Any, c: Compiled) -> tuple[set[Key], set[Key]]:
    """The sources that a card blames, and the switches of the operations that it names."""
    sources: set[Key] = set()
    operations: set[Key] = set()
    for one in (card, *card.parts):
        line = _line(c, one.line, *one.callers)
        fixed = any(o.of == "result" and not o.axis for o in one.origins)  # its line is another's
        if line is not None and (one.by_user or not fixed):
            operations.add(line)
        for o in one.origins:
            if o.kind == "argument":
                sources.add((o.name, o.axis))
            elif o.kind == "constraint":
                found = _line(c, o.line, *o.stack)
                if found is not None:
                    sources.add(found)
            elif o.kind == "output":
                sources.add("out")
    return sources & set(c.keys), operations


def _line(c: Compiled, *places: str) -> Key | None:
    for place in places:
        file, _, number = place.rpartition(":")
        if file.endswith("programs.py") and int(number) in c.lines:
            return f"line {number}"
    return None


def same(a: Any, b: Any, strictly: bool) -> bool:
    """Whether two collectives of two variants are the same one.

    Strictly: of one kind and size. Else what sums may do it otherwise, and sizes may differ.
    """
    kinds = {a.kind, b.kind}
    if a.axes != b.axes or not (len(kinds) == 1 or (not strictly and kinds <= set(REDUCES))):
        return False
    if strictly and (a.payload_bytes, a.executions) != (b.payload_bytes, b.executions):
        return False
    if strictly:
        return bool(a.line == b.line)
    names = [set(_names(r)) for r in (a, b)]
    return bool(names[0] & names[1]) or a.line == b.line


def _names(row: Any) -> Iterable[str]:
    from hloscope.analysis.base.lines.op_name import merged_names

    return (n for n in merged_names(row.op_name) if n)


def stays(c: Compiled, row: Any, off: frozenset[Key], strictly: bool) -> bool | None:
    cap = c.without(off)
    if cap is None:
        return None
    return any(same(row, other, strictly) for other in cap.rows)


def judge(c: Compiled, row: Any) -> Verdict:
    card = c.base.why(row)
    sources, operations = blamed_by(card, c)
    blamed = frozenset(sources | (operations if card.by_user else set()))
    out = Verdict(c.name, row, card, "right", blamed)
    if card.unknown or (not card.by_user and not any(o.kind != "unknown" for o in _origins(card))):
        out.verdict = "unnamed"
        return out
    if not blamed:
        out.verdict = "untestable"
        return out
    every = _substitutes(c, row, blamed)
    if stays(c, row, every, True):
        out.reasons.append(f"stays without all that is blamed: {_said(every)}")
    named = frozenset(k for k in operations if c.lines[int(str(k)[5:])] in ("shift", "elementwise"))
    for key in named - blamed:
        if len(operations) == 1 and stays(c, row, frozenset({key}), True):
            out.reasons.append(f"stays without the operation that is named: {_said([key])}")
    for key in c.keys:
        if key in blamed or key in operations or not _is_source(c, key):
            continue
        off = frozenset({key})
        if stays(c, row, off, False) is False and not _laid_out_otherwise(c, row, off):
            out.reasons.append(f"goes without what is not named: {_said([key])}")
    if out.reasons:
        out.verdict = "wrong"
    elif len(blamed) > 1:
        for key in sorted(blamed, key=str):
            alone, others = frozenset({key}), blamed - {key}
            if stays(c, row, alone, True) and stays(c, row, others, True) is False:
                out.idle.append(f"named, but nothing changes without it: {_said(alone)}")
    return out


def _is_source(c: Compiled, key: Key) -> bool:
    """Whether it decides shardings, or moves elements: without an operation others may go."""
    return key not in {f"line {n}" for n, kind in c.lines.items() if kind in _LOCAL}


_LOCAL = ("elementwise", "operation", "named")


def _substitutes(c: Compiled, row: Any, blamed: frozenset[Key]) -> frozenset[Key]:
    """What is blamed, and what takes its place where that is off: another operand may shard x.

    As long as the collective stays, its card there must name something else.
    """
    for _ in range(4):
        cap = c.without(blamed)
        left = [r for r in cap.rows if same(row, r, True)] if cap is not None else []
        more = set(blamed)
        for r in left:
            sources, operations = blamed_by(cap.why(r), c)
            more |= sources | (operations if cap.why(r).by_user else set())
        if more == blamed:
            break
        blamed = frozenset(more)
    return blamed


def _laid_out_otherwise(c: Compiled, row: Any, off: frozenset[Key]) -> bool:
    """Whether a sum gave way to other moves over its axes, or a move to other steps of it."""
    cap = c.without(off)
    if cap is None:
        return False
    if row.kind not in REDUCES:
        left = (r for r in cap.rows if r.kind not in REDUCES and r.line == row.line)
        return any(r.moves and row.moves and r.moves.name == row.moves.name for r in left)
    axes = set((row.axes or "").split("+"))
    before = Counter(r.kind for r in c.base.rows if axes & set((r.axes or "").split("+")))
    after = Counter(r.kind for r in cap.rows if axes & set((r.axes or "").split("+")))
    return bool(after - before)


def _origins(card: Any) -> Iterable[Any]:
    return (o for one in (card, *card.parts) for o in one.origins)


def _said(keys: Iterable[Key]) -> str:
    said = (k if isinstance(k, str) else f"{k[1]} of {k[0]}" for k in keys)
    return ", ".join(sorted(said)) or "nothing"


def run(platform: str, only: list[str], verbose: bool) -> list[Verdict]:
    found: list[Verdict] = []
    for name in programs.PROGRAMS:
        if only and not any(word in name for word in only):
            continue
        try:
            c = Compiled(name, platform)
            for row in c.base.rows:
                found.append(judge(c, row))
        except Exception:
            print(f"{name} on {platform}:", traceback.format_exc(limit=-3))
            continue
        for v in found:
            if v.program == name and (verbose or v.verdict != "right" or v.idle):
                row = v.row
                size = f"{row.payload_bytes} B, {row.executions_text} times"
                print(f"\n{v.verdict}: {name}, {platform}: {row.kind} over {row.axes}, {size}")
                print(f"      at {row.line}")
                print("\n".join(f"    {line}" for line in str(v.card).splitlines()[1:]))
                print("\n".join(f"  ✗ {r}" for r in (*v.reasons, *v.idle)))
    return found


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    p.add_argument("--on", nargs="+", default=["cpu", "v5e:2x4", "v5p:2x2x2", "v5e:2x4*2"])
    p.add_argument("--only", nargs="+", default=[])
    p.add_argument("-v", action="store_true", dest="verbose")
    a = p.parse_args()
    table: dict[str, Counter[str]] = {}
    for platform in a.on:
        begun = time.time()
        found = run(platform, a.only, a.verbose)
        table[platform] = Counter(v.verdict for v in found)
        print(f"\n{platform}: {time.time() - begun:.0f} s")
    table["all"] = sum(table.values(), Counter())
    words = ("right", "wrong", "unnamed", "untestable")
    print(f"\n{'platform':<12}{'collectives':>12}" + "".join(f"{w:>12}" for w in words))
    for platform, counts in table.items():
        total = counts.total()
        cells = (f"{counts[w]:>6}{counts[w] / max(1, total):>6.1%}" for w in words)
        print(f"{platform:<12}{total:>12}" + "".join(cells))


if __name__ == "__main__":
    main()
