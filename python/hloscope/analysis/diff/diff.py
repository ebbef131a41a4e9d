"""What differs between two programs: totals, and instruction by instruction.

    a, b ─▶ match.sides ─▶ pairs of computations, from ENTRY on ─▶ match.match
                             ▲                                         │
                             └──── what matched instructions call ◀────┤
                                                                       ▼
                                                   removed, added, changed, and the totals

Names, numbers in names, order and metadata are not differences. Layouts are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...hlo import Computation, Instruction, Module, opcodes
from ...hlo.texts.listed import shortened
from ..base.captured import Captured
from ..base.lines.frames import own_line
from ..base.operands import given_name
from ..comms.collective import Collective, total_of
from ..comms.collectives import collectives
from ..memory.memory import analysed
from ..report.summary import summarize
from .differences import Change, CollectiveChange, CollectiveItem, Delta, Item
from .match import Side, match, meaning, sides
from .places import by_line, by_scope
from .result import Diff

# Instructions that hold values together and do nothing: only the number that differ is given.
PLUMBING = opcodes.BUNDLES | {"bitcast"}


def diff(a: Captured, b: Captured) -> Diff:
    """Compares two captures by structure, whatever the names of their instructions.

    >>> print(hs.diff(hs.read("before.hlo"), hs.read("after.hlo")))
    """
    return compare(a, b)[0]


def compare(a: Captured, b: Captured) -> tuple[Diff, tuple[tuple[int, int], ...]]:
    """The diff, and the pairs of matching instructions of ``a`` and ``b``, by index."""
    # 1. Instructions.
    matched = _Instructions(a.module, b.module)
    # 2. Totals of each side.
    sums = [summarize(p.module, p.target) for p in (a, b)]
    rows = [collectives(p.module, p.target).rows for p in (a, b)]
    collective = _Collectives(rows[0], rows[1], matched.pairs)
    differences = Diff(
        title_a=a.title,
        title_b=b.title,
        totals=(*_modelled(sums), *_totals(sums, rows)),
        opcodes=_counted("", sums[0]["opcodes"], sums[1]["opcodes"]),
        fusions=_counted("", sums[0]["fusions"], sums[1]["fusions"]),
        collectives=_counted("B", _wire(rows[0]), _wire(rows[1])),
        memory=_counted("B", _categories(a), _categories(b)),
        matched=matched.matched,
        removed=tuple(i for i in matched.removed if i.opcode not in PLUMBING),
        added=tuple(i for i in matched.added if i.opcode not in PLUMBING),
        changed=tuple(c for c in matched.changed if c.a.opcode not in PLUMBING),
        removed_collectives=collective.removed,
        added_collectives=collective.added,
        changed_collectives=collective.changed,
        lines=by_line(a, b, matched.pairs),
        scopes=by_scope(a, b, matched.pairs),
        plumbing=sum(i.opcode in PLUMBING for i in (*matched.removed, *matched.added))
        + sum(c.a.opcode in PLUMBING for c in matched.changed),
        donated=_donated(a, b),
    )
    return differences, tuple(matched.pairs)


class _Instructions:
    """Walks pairs of computations from ENTRY on."""

    def __init__(self, a: Module, b: Module) -> None:
        self.sides_a, self.sides_b = sides(a), sides(b)
        self.removed: list[Item] = []
        self.added: list[Item] = []
        self.changed: list[Change] = []
        self.matched = 0
        self.pairs: list[tuple[int, int]] = []
        self._seen_a: set[str] = set()
        self._seen_b: set[str] = set()
        self._waiting: list[tuple[Computation, Computation]] = []
        if a.entry is not None and b.entry is not None:
            self._add(a.entry, b.entry)
        self._run()
        for c, d in _uncalled(a, b, self.sides_a, self.sides_b, self._seen_a, self._seen_b):
            self._add(c, d)
        self._run()
        self._inside(a, b)

    def _add(self, c: Computation, d: Computation) -> None:
        if c.name not in self._seen_a and d.name not in self._seen_b:
            self._seen_a.add(c.name)
            self._seen_b.add(d.name)
            self._waiting.append((c, d))

    def _run(self) -> None:
        while self._waiting:
            c, d = self._waiting.pop()
            self._compare(self.sides_a[c.name], self.sides_b[d.name])

    def _compare(self, a: Side, b: Side) -> None:
        to_b = match(a, b)
        taken = set(to_b)
        to_a = {j: i for i, j in enumerate(to_b) if j >= 0}
        for i, j in enumerate(to_b):
            x = a.instructions[i]
            if j < 0:
                self.removed.append(_item(x))
                continue
            self.matched += 1
            y = b.instructions[j]
            self.pairs.append((x.index, y.index))
            fields = _fields(x, y)
            if not fields and _rewired(a, b, i, j, to_b, to_a):
                fields = (("operands", _names(x), _names(y)),)
            if fields:
                self.changed.append(Change(_item(x), _item(y), fields))
            for (_, c), (_, d) in zip(x.called, y.called, strict=False):
                self._add(c, d)
        self.added += [_item(y) for j, y in enumerate(b.instructions) if j not in taken]

    def _inside(self, a: Module, b: Module) -> None:
        """Sets ``inside`` of removed and added callers: what went or came with them."""
        for module, items, seen in (
            (a, self.removed, self._seen_a),
            (b, self.added, self._seen_b),
        ):
            for k, item in enumerate(items):
                caller = module.find_computation(item.computation)
                found = caller.find(item.name) if caller is not None else None
                if found is not None and found.called:
                    count = _reachable(found, seen)
                    items[k] = replace(item, inside=count)


def _reachable(caller: Instruction, seen: set[str]) -> int:
    """Counts instructions of computations under ``caller`` not counted yet; marks them counted."""
    count = 0
    waiting = list(caller.called_computations)
    while waiting:
        c = waiting.pop()
        if c.name not in seen:
            seen.add(c.name)
            count += len(c.instructions)
            for i in c.instructions:
                waiting += i.called_computations
    return count


def _uncalled(
    a: Module,
    b: Module,
    sides_a: Mapping[str, Side],
    sides_b: Mapping[str, Side],
    seen_a: set[str],
    seen_b: set[str],
) -> Iterator[tuple[Computation, Computation]]:
    """Pairs of equal computations that nothing calls (cut dumps)."""
    called = {c.name for m in (a, b) for i in m.instructions for c in i.called_computations}
    waiting: dict[int, list[Computation]] = {}
    for d in b.computations:
        if d.name not in seen_b and d.name not in called:
            waiting.setdefault(sides_b[d.name].hash, []).append(d)
    for c in a.computations:
        if c.name not in seen_a and c.name not in called:
            found = waiting.get(sides_a[c.name].hash)
            if found:
                yield c, found.pop(0)


def _item(i: Instruction) -> Item:
    frame = own_line(i.frames)
    return Item(
        i.name,
        i.opcode,
        i.shape.dense_text,
        i.computation.name,
        i.op_name,
        f"{frame.file}:{frame.line}" if frame is not None else "",
        i.shape.byte_size,
    )


def _fields(x: Instruction, y: Instruction) -> tuple[tuple[str, str, str], ...]:
    out: list[tuple[str, str, str]] = []
    if x.opcode != y.opcode:
        out.append(("opcode", x.opcode, y.opcode))
    if x.shape.dense_text != y.shape.dense_text:
        out.append(("shape", x.shape.dense_text, y.shape.dense_text))
    elif x.shape.text != y.shape.text:
        out.append(("layout", x.shape.text, y.shape.text))
    if x.opcode == y.opcode:
        if x.literal != y.literal:
            out.append(("value", x.literal or "", y.literal or ""))
        p, q = meaning(x), meaning(y)
        out += [(k, p.get(k, ""), q.get(k, "")) for k in {**p, **q} if p.get(k, "") != q.get(k, "")]
    return tuple((k, shortened(u), shortened(v)) for k, u, v in out)


def _names(i: Instruction) -> str:
    return shortened(", ".join(f"%{o.name}" for o in i.operands))


def _rewired(a: Side, b: Side, i: int, j: int, to_b: list[int], to_a: dict[int, int]) -> bool:
    """Whether a pair uses different values, apart from what was removed, added or replaced."""
    p, q = a.operands[i], b.operands[j]
    if len(p) != len(q):
        ours = Counter(b.up[to_b[o]] for o in p if to_b[o] >= 0)
        return ours != Counter(b.up[o] for o in q if o in to_a)
    for x, y in zip(p, q, strict=True):
        if to_b[x] < 0 or y not in to_a or to_b[x] == y:
            continue
        if b.up[to_b[x]] != b.up[y]:  # if equal: the same value twice in the program
            return True
    return False


def _totals(sums: list[dict[str, Any]], rows: list[tuple[Collective, ...]]) -> tuple[Delta, ...]:
    def total(name: str, unit: str, key: str) -> Delta:
        return Delta(name, unit, sums[0].get(key), sums[1].get(key))

    wire = [total_of((), list(side)).known_wire_bytes for side in rows]
    return (
        total("instructions", "", "instructions"),
        total("computations", "", "computations"),
        Delta("fusions", "", *(sum(s["fusions"].values()) for s in sums)),
        Delta("collectives", "", len(rows[0]), len(rows[1])),
        Delta("wire bytes", "B", *wire),
        total("FLOPs", "FLOP", "flops"),
        total("bytes accessed", "B", "bytes_accessed"),
        total("peak live bytes", "B", "peak_live_bytes"),
        total("parameter bytes", "B", "parameter_bytes"),
        total("output bytes", "B", "output_bytes"),
    )


def _donated(a: Captured, b: Captured) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Arguments whose memory results take in one program only."""
    first, second = (_reused(p) for p in (a, b))
    return (
        tuple(n for n in first if n not in second),
        tuple(n for n in second if n not in first),
    )


def _reused(p: Captured) -> dict[str, None]:
    """By name, where the person gave one: instructions have other names in another program."""
    entry = p.module.entry
    if entry is None:
        return {}
    known = {a.parameter: a.name for a in p.target.arguments if a.parameter is not None}
    by_number = {i.parameter_number or 0: i for i in entry.parameters}
    out: dict[str, None] = {}
    for number in sorted({a.parameter_number for a in p.module.input_output_alias}):
        instruction = by_number.get(number)
        named = known.get(number) or (given_name(instruction) if instruction is not None else "")
        out[named or f"argument {number}"] = None
    return out


def _modelled(sums: list[dict[str, Any]]) -> tuple[Delta, ...]:
    """The modelled step, if a chip is known on both sides."""
    found = [s.get("modelled_seconds") for s in sums]
    if not all(found) or any(s["shapes"] != "local" for s in sums):
        return ()
    parts = (("modelled step", "total"), ("exposed communication", "exposed"))
    return tuple(Delta(name, "s", *(f[key] for f in found if f is not None)) for name, key in parts)


def _counted(
    unit: str, a: Mapping[str, float | None], b: Mapping[str, float | None]
) -> tuple[Delta, ...]:
    """Differences, the largest first; those known on one side only come last."""
    rows = [Delta(n, unit, a.get(n, 0), b.get(n, 0)) for n in {**a, **b}]
    rows = [d for d in rows if d.a != d.b]
    return tuple(sorted(rows, key=lambda d: (-abs(d.change or 0), d.name)))


def _wire(rows: tuple[Collective, ...]) -> Mapping[str, float | None]:
    """Wire bytes by kind and axes; None if those of one collective are unknown."""
    found: dict[str, list[int | None]] = {}
    for r in rows:
        found.setdefault(f"{r.kind} over {r.axes_or_groups}", []).append(r.total_wire_bytes)
    return {
        name: None if None in wire else sum(w for w in wire if w is not None)
        for name, wire in found.items()
    }


def _categories(p: Captured) -> Mapping[str, float]:
    if p.module.dialect != "hlo" or p.module.entry is None:
        return {}  # unknown in a dump that was cut before its ENTRY
    return analysed(p.module, p.target).by_category


class _Collectives:
    """Pairs collectives: by their instructions, then equal ones, then those of one line.

    What only changed its size is one collective that changed, not one removed and one added.
    """

    def __init__(
        self,
        a: tuple[Collective, ...],
        b: tuple[Collective, ...],
        pairs: Sequence[tuple[int, int]],
    ) -> None:
        self._a, self._b = dict(enumerate(a)), dict(enumerate(b))  # those without a partner
        self._pairs: list[tuple[Collective, Collective]] = []
        to_b = dict(pairs)
        row_of = {member: n for n, r in enumerate(b) for member in r.members}
        for n, r in enumerate(a):
            found = (row_of.get(to_b.get(member, -1)) for member in r.members)
            partner = next((m for m in found if m in self._b), None)
            if partner is not None:
                self._pair(n, partner)
        self._by(_collective_key)
        self._by(lambda r: (r.kind, r.axes_or_groups, r.line) if r.line else None)
        changed = [(x, y) for x, y in self._pairs if _collective_key(x) != _collective_key(y)]
        self.changed = tuple(CollectiveChange(_collective(x), _collective(y)) for x, y in changed)
        self.removed = tuple(_collective(r) for r in self._a.values())
        self.added = tuple(_collective(r) for r in self._b.values())

    def _pair(self, n: int, m: int) -> None:
        self._pairs.append((self._a.pop(n), self._b.pop(m)))

    def _by(self, key: Callable[[Collective], Hashable]) -> None:
        """Pairs those with equal keys, in order; not those with the key None."""
        waiting: dict[Hashable, list[int]] = {}
        for m in reversed(self._b):
            waiting.setdefault(key(self._b[m]), []).append(m)
        waiting.pop(None, None)
        for n in list(self._a):
            if found := waiting.get(key(self._a[n])):
                self._pair(n, found.pop())


def _collective_key(r: Collective) -> tuple[str, str, int, int | None, int | None]:
    return (r.kind, r.axes_or_groups, r.payload_bytes, r.wire_bytes, r.executions)


def _collective(r: Collective) -> CollectiveItem:
    return CollectiveItem(*_collective_key(r), r.line)
