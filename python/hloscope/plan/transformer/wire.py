"""Bytes that a transformer's layers send, by formulas and in the program, and why they differ.

    formulas   exchanges of layers ─────────┐
                                            ├─ layer, pass, what is sent ─▶ a line, with its reason
    program    collectives, each array of ──┘
               a combined one by itself, with the card of ``cap.why``

Every byte of either side is in one line, so that what XLA added has a line of its own, with
the op that needs it and what set the sharding of its operand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...analysis.comms.collective import Collective
from ...analysis.text.units import size
from ...analysis.why.provenance import Provenance
from ...analysis.why.provenance_card import Why
from ...analysis.why.provenance_origins import AxisOrigin
from ...api.capture import Capture
from ...hlo.collective_kinds import kind_of
from ...hlo.shape import ELEMENT_BITS
from . import volumes
from .lines import ComparedLine
from .model import AnalyticModel

ACTIVATIONS, PARAMETERS = "", "gradients of parameters"
Key = tuple[str, str, str]  # layer, pass, what is sent


@dataclass(frozen=True, slots=True)
class Sent:
    """Bytes that one device sends in a step, for one array. ``card``: why, in the program."""

    layer: str
    phase: str  # "forward", "backward"
    what: str
    kind: str
    axes: str
    bytes: float | None  # None: no formula
    card: Why | None = None
    type: str = ""  # of the elements, in the program

    @property
    def key(self) -> Key:
        return self.layer, self.phase, self.what

    @property
    def how(self) -> tuple[str, str]:
        """(kind, axes)."""
        return self.kind, self.axes


def wire_lines(model: AnalyticModel, cap: Capture) -> list[ComparedLine]:
    """Lines by kind and axes, then by layer; both halves add up to the same."""
    ours, theirs = list(_formulas(model)), list(_counted(model, cap))
    out = []
    for how in sorted({x.how for x in (*ours, *theirs)}):
        a, b = ([x for x in side if x.how == how] for side in (ours, theirs))
        why = "equal" if _same(_sum(a), _sum(b)) else f"formulas: {_by(a)}; program: {_by(b)}"
        out.append(ComparedLine("wire", " over ".join(how), "B", _sum(a), _sum(b), why))
    out.append(ComparedLine("wire", "all", "B", _sum(ours), _sum(theirs), "the lines above"))
    for key in dict.fromkeys(x.key for x in (*ours, *theirs)):
        a, b = ([x for x in side if x.key == key] for side in (ours, theirs))
        layer, phase, what = key
        name = ", ".join(x for x in (layer, phase, what) if x)
        why = _reason(a, b, model.sizes.element_bytes)
        out.append(ComparedLine("layer", name, "B", _sum(a), _sum(b), why))
    return out


def _formulas(model: AnalyticModel) -> Iterator[Sent]:
    s = model.sizes
    m, depth, width = s.size("tensor"), s.depth, s.element_bytes
    layers = [x for half in model.blocks.values() for x in half]
    d = s.size("data")
    for layer in layers:
        for phase, found in (("forward", layer.exchanges_fwd), ("backward", layer.exchanges_bwd)):
            for e in found:
                yield Sent(layer.name, phase, ACTIVATIONS, e.kind, e.axis, depth * e.wire_bytes)
        whole = layer.whole_parameters
        both = "+".join(a for a, n in (("data", d), ("tensor", m)) if n > 1)
        for parameters, axes, n in ((layer.parameters - whole, "data", d), (whole, both, d * m)):
            held = depth * parameters * width
            for e in volumes.data_parallel(held, n)[1] if held else ():
                yield Sent(layer.name, "backward", PARAMETERS, e.kind, axes, e.wire_bytes)


def _counted(model: AnalyticModel, cap: Capture) -> Iterator[Sent]:
    names = [x.name for half in model.blocks.values() for x in half]
    tokens = f"[{model.sizes.batch},{model.sizes.seq},"
    answers = Provenance(cap.target, cap.collectives)
    for row in cap.collectives:
        cards = answers.parts(row) if row.inserted is not False else []
        whole = cap.why(row)
        axes = row.axes if row.axes is not None else "devices"
        phase = "forward" if row.phase == "forward" else "backward"
        for n, share in enumerate(_shares(row)):
            card = cards[n] if len(cards) == len(row.parts) else whole
            layer = _layer(names, row, n, card)
            sums = card.needs.startswith("summed over")
            of_tokens = not sums or tokens in card.shape
            what = ACTIVATIONS if of_tokens else PARAMETERS
            kind = row.parts[n].shape.partition("[")[0] if len(row.parts) > n else ""
            yield Sent(layer, phase, what, row.kind, axes, share, card, kind)


def _shares(row: Collective) -> list[float | None]:
    """Wire bytes of every array of a collective, in all executions."""
    sent = row.total_wire_bytes
    total = sum(p.bytes for p in row.parts)
    if sent is None or not total:
        return [sent] if sent is None or len(row.parts) < 2 else [sent / len(row.parts)]
    return [sent * p.bytes / total for p in row.parts]


def _layer(names: Sequence[str], row: Collective, n: int, card: Why) -> str:
    """The layer by the op that needs it, else by the array, else by the collective's own name."""
    operands = row.instruction.operands
    own = operands[n].op_name if n < len(operands) else ""
    for op_name in (card.op_name, own, row.op_name):
        found = [x for x in names if re.search(rf"(?:^|[/(:]){x}(?:[/):]|$)", op_name)]
        if len(found) == 1:
            return found[0]
    return "outside the layers"


def _sum(found: Sequence[Sent]) -> float | None:
    """Bytes; None where any are unknown."""
    known = [x.bytes for x in found if x.bytes is not None]
    return sum(known, 0.0) if len(known) == len(found) else None


def _same(a: float | None, b: float | None) -> bool:
    return a is not None and b is not None and abs(a - b) <= 1e-9 * max(a, b)


def _by(found: Sequence[Sent]) -> str:
    """ "fc2 12 MiB, v_proj 12 MiB"."""
    of: dict[str, float] = {}
    for x in found:
        of[x.layer] = of.get(x.layer, 0.0) + (x.bytes or 0.0)
    if not of:
        return "none"
    ordered = sorted(of.items(), key=lambda x: -x[1])
    reasons = [f"{name} {size(round(v))}" for name, v in ordered[:5]]
    rest = sum(v for _, v in ordered[5:])
    return ", ".join([*reasons, f"others {size(round(rest))}"] if rest else reasons)


def _reason(ours: Sequence[Sent], theirs: Sequence[Sent], width: float) -> str:
    """Why the sides of a line are equal or differ; ``width``: bytes of the formulas' elements."""
    if not theirs:
        return f"the formulas' {_kinds(ours)}; the program has none"
    planned = {x.how for x in ours}
    made = {x.how for x in theirs}
    if _same(_sum(ours), _sum(theirs)) and planned == made:
        return f"equal: {_kinds(ours)}"
    reasons = []
    types = sorted({x.type for x in theirs if ELEMENT_BITS.get(x.type, 8 * width) != 8 * width})
    if types:
        reasons.append(
            f"XLA sends {' and '.join(types)} where the formulas count {width:g} bytes an element"
        )
        if planned == made:
            return f"{reasons[0]}: {_kinds(theirs)}: {_causes(theirs)}"
    left = [x for x in theirs if x.how not in planned]
    scattered = [x for x in ours if kind_of(x.kind).scatters]
    summed = [
        x for x in left if kind_of(x.kind).reduces_whole and ("reduce-scatter", x.axes) in planned
    ]
    if scattered and summed:
        n = len(summed)
        reasons.append(
            f"XLA sums whole arrays by {'an' if n == 1 else n} all-reduce{'s' * (n > 1)}, twice "
            "the bytes of the formulas' reduce-scatter"
            + (" each" if n > 1 else "") + f": {_causes(summed)}"
        )  # fmt: skip
        if n > 1 and all("dot" in x.card.opcode for x in summed if x.card):
            reasons.append("the formulas add the products first and send their sum once")
        left = [x for x in left if x not in summed]
    apart = [x for x in left if any(_is_part(x, y) for y in ours if y.how not in made)]
    if apart:
        axes = " and over ".join(dict.fromkeys(x.axes for x in theirs if x.what == PARAMETERS))
        reasons.append(f"XLA sums over {axes} one after the other, the formulas over all at once")
        left = [x for x in left if x not in apart]
    extra = [x for x in left if x.what == PARAMETERS]
    if extra:
        axes = " and ".join(dict.fromkeys(x.axes for x in extra))
        reasons.append(
            f"XLA added {_kinds(extra)}: each device has the sum over its own tokens of what is "
            f"whole on all, so it is summed over {axes}: {_causes(extra)}"
        )
        left = [x for x in left if x not in extra]
    if left:
        reasons.append(f"XLA added {_kinds(left)}: {_causes(left)}")
    missing = [
        x
        for x in ours
        if x.how not in made
        and not (x in scattered and summed)
        and not any(_is_part(y, x) for y in apart)
    ]
    if missing and reasons:
        reasons.append(f"in place of the formulas' {_kinds(missing)}")
    elif missing:
        reasons.append(f"the program has no {_kinds(missing)}")
    if not reasons:
        reasons.append(f"formulas: {_kinds(ours)}; program: {_kinds(theirs)}: {_causes(theirs)}")
    return "; ".join(reasons)


def _is_part(theirs: Sent, ours: Sent) -> bool:
    """Whether it sums over some of the axes that one of the formulas' sums is over."""
    some, all_ = set(theirs.axes.split("+")), set(ours.axes.split("+"))
    return theirs.kind == ours.kind and some < all_


def _kinds(found: Sequence[Sent]) -> str:
    """ "all-gather over tensor"."""
    return ", ".join(dict.fromkeys(" over ".join(x.how) for x in found))


def _causes(found: Sequence[Sent]) -> str:
    """Causes from the cards: "dot of result of max as P(…) is summed over tensor"."""
    reasons: dict[tuple[str, str], dict[str, None]] = {}
    for x in found:
        card = x.card
        if card is None or not card.is_known:
            lost = card.unknown if card is not None else "it was not looked for"
            reasons[f"why is unknown ({lost})", ""] = {}
        elif card.by_user:
            reasons[f"the program asks for it at {card.line}", ""] = {}
        else:
            key = f"{card.opcode} of {card.operand} as {card.had}", f" is {card.needs}"
            origins = reasons.setdefault(key, {})
            origins |= dict.fromkeys(_origin(o) for o in card.origins if o.kind != "unknown")
    return "; ".join(
        before + (f" (cut so by {', '.join(origins)})" if origins else "") + after
        for (before, after), origins in reasons.items()
    )


def _origin(o: AxisOrigin) -> str:
    return o.name if o.kind == "argument" and o.name else f"a {o.kind}"
