"""What each tool answers: a few rows of what a capture says already, and what to ask next.

Every figure is that of the capture's own results (``to_dict``); nothing is worked out here. These
classes are the tools' output schemas, so a field that may be unknown is ``None``, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...analysis.diff.text import LIMIT
from ...analysis.findings.finding import Finding, Findings
from ...hlo.parts import printable

if TYPE_CHECKING:
    from ...analysis.provenance.trace_line import LineTrace
    from ...api.capture import Capture
    from ...api.compared import Comparison

# Characters of one text in an answer; longer ones are cut: an agent reads all of it.
WIDTH = 400


@dataclass(frozen=True)
class Opened:
    program: str  # its name in other calls, such as "p1"
    title: str
    stage: str
    instructions: int
    devices: int | None
    headline: str
    warnings: list[str]
    next: str


@dataclass(frozen=True)
class SummaryAnswer:
    headline: str
    hardware: str | None  # the chip that time is modelled on
    step_seconds: float | None
    seconds_are: str  # "measured", "modelled" or "unknown"
    peak_bytes: int | None  # of one device
    memory_bytes: float | None  # that one device has
    wire_bytes: int | None  # sent by one device
    text: str  # what ``hloscope summary`` prints
    next: str


@dataclass(frozen=True)
class FindingAnswer:
    number: int
    rule: str
    title: str
    evidence: str
    advice: str | None  # None where nothing is known that would gain half of what is at stake
    share: float  # of the modelled step or of the peak, 0 to 1
    seconds: float | None  # modelled
    bytes: int | None
    bytes_of: str | None
    line: str | None
    line_inferred: bool
    code: str | None
    scope: str | None
    instructions: list[str]
    can_be_tried: bool  # by the tool prove
    proofs: list[str]


@dataclass(frozen=True)
class FindingsAnswer:
    headline: str
    findings: list[FindingAnswer]  # most at stake first
    more: int  # that were left out
    notes: list[str]
    next: str


@dataclass(frozen=True)
class CollectiveAnswer:
    example: str  # an instruction of them, to ask ``why`` of
    kind: str
    axes: str | None
    element_types: str | None  # "bf16"
    line: str | None
    number: int
    payload_bytes: int
    wire_bytes: int | None  # sent by one device in a step; None if unknown


@dataclass(frozen=True)
class CollectivesAnswer:
    collectives: list[CollectiveAnswer]  # most wire bytes first
    more: int
    wire_bytes: int | None
    next: str


@dataclass(frozen=True)
class WhyAnswer:
    collective: str
    is_known: bool
    text: str  # the card: what needs it, what moves, what set the shardings
    line: str | None
    operand: str | None
    had: str | None
    needs: str | None
    unknown: str | None  # what could not be found
    next: str


@dataclass(frozen=True)
class InstructionAnswer:
    name: str
    opcode: str
    computation: str
    made_by: str | None  # the compiler pass that first had it


@dataclass(frozen=True)
class LineAnswer:
    line: str
    instructions: list[InstructionAnswer]
    fates: list[str]  # what became of each operation of the line, where all passes are known
    more: int
    next: str


@dataclass(frozen=True)
class ValueAnswer:
    name: str
    category: str
    shape: str
    bytes: int
    line: str | None


@dataclass(frozen=True)
class MemoryAnswer:
    peak_bytes: int
    peak_source: str  # whose figure it is
    peak_instruction: str | None
    by_category: dict[str, int]
    values: list[ValueAnswer]  # largest live at the peak first
    more: int
    next: str


@dataclass(frozen=True)
class CostAnswer:
    instruction: str
    opcode: str
    seconds: float | None  # modelled, all its runs in a step
    share: float | None  # of the modelled step
    flops: float | None
    bytes_accessed: float | None
    runs: float
    line: str | None


@dataclass(frozen=True)
class CostsAnswer:
    hardware: str | None
    step_seconds: float | None  # modelled
    costs: list[CostAnswer]  # most time first
    more: int
    next: str


@dataclass(frozen=True)
class DiffAnswer:
    is_different: bool
    matched: int
    removed: int
    added: int
    changed: int
    totals: list[str]
    text: str
    next: str


@dataclass(frozen=True)
class ChangeAnswer:
    words: str
    code: str  # to put into the source
    line: str | None


@dataclass(frozen=True)
class TriedAnswer:
    """Figures before and after; seconds are modelled, bytes are of one device."""

    program: str
    changes: list[ChangeAnswer]
    step_seconds: list[float | None]
    peak_bytes: list[float | None]
    wire_bytes: list[float | None]
    same_values: str | None  # None where it was not asked
    headline: str
    next: str


def said(text: object, width: int = WIDTH) -> str:
    """One line of data, cut."""
    line = " ".join(printable(part.strip()) for part in str(text).splitlines() if part.strip())
    return line if len(line) <= width else line[: width - 1] + "…"


def block(text: object, lines: int) -> str:
    """Several lines of data, cut."""
    rows = [printable(row)[:WIDTH] for row in str(text).splitlines()]
    return "\n".join(rows if len(rows) <= lines else [*rows[:lines], "…"])


def ask(tool: str, **arguments: str) -> str:
    """``why(program="p1", collective="all-reduce.3")``: the next question."""
    return f"{tool}({', '.join(f'{k}={_quoted(v)}' for k, v in arguments.items())})"


def _quoted(text: str) -> str:
    import json

    return json.dumps(said(text))


def headline(cap: Capture) -> str:
    """The findings' headline; "" for a stage that has none."""
    try:
        return said(cap.findings.headline)
    except (ValueError, LookupError):
        return ""


def opened(name: str, cap: Capture) -> Opened:
    has_findings = bool(headline(cap))
    return Opened(
        name,
        said(cap.title),
        cap.stage,
        len(cap.module.instructions),
        len(cap.target.devices) or None,
        headline(cap) or said(cap.does_not_fit),
        [said(w) for w in cap.warnings[:3]],
        ask("findings" if has_findings else "summary", program=name),
    )


def summary(name: str, cap: Capture) -> SummaryAnswer:
    from ..text import summary_text

    if cap.module.dialect != "hlo" or cap.module.entry is None:
        return SummaryAnswer(
            "", None, None, "unknown", None, None, None, block(summary_text(cap), 25),
            ask("summary", program=name),
        )  # fmt: skip
    h = cap.findings.headline
    return SummaryAnswer(
        said(h),
        h.hardware,
        h.seconds,
        h.seconds_are,
        h.peak_bytes,
        h.memory_bytes,
        cap.summary["wire_bytes"],
        block(summary_text(cap), 25),
        ask("findings", program=name),
    )


def findings(name: str, cap: Capture, limit: int) -> FindingsAnswer:
    found = cap.findings
    rows = [_finding(n, f, found) for n, f in enumerate(found[:limit], 1)]
    notes = [said(s) for s in (*found.left_out, *found.failed)]
    if not rows:
        notes.insert(0, f"nothing to report: {found.ran} rules ran, and none applied")
    return FindingsAnswer(
        said(found.headline),
        rows,
        max(0, len(found) - limit),
        notes,
        _after_findings(name, found),
    )


def _finding(number: int, f: Finding, found: Findings) -> FindingAnswer:
    d = f.to_dict()
    return FindingAnswer(
        number,
        f.rule,
        said(f.title),
        said(f.evidence),
        said(f.advice) or None,
        f.share,
        f.seconds,
        f.bytes,
        d["bytes_of"],
        d["line"] and said(d["line"]),
        f.inferred,
        d["code"] and said(d["code"]),
        d["scope"] and said(d["scope"]),
        [said(i) for i in d["instructions"][:3]],
        bool(f.changes) and found.prover is not None,
        [said(p) for p in f.proofs[:3]],
    )


def _after_findings(name: str, found: Findings) -> str:
    """What to ask about the first finding."""
    for f in found[:1]:
        if f.changes and found.prover is not None and not f.proofs:
            return ask("prove", program=name)
        if f.bytes_of == "peak memory":
            return ask("memory", program=name)
        if f.bytes_of == "wire":
            return ask("collectives", program=name)
        if f.line:
            return ask("line", program=name, line=f.line)
    return ask("costs", program=name)


def collectives(name: str, cap: Capture, limit: int) -> CollectivesAnswer:
    found = cap.collectives
    totals = found.totals(("kind", "axes_or_groups", "element_types", "line"))
    first: dict[tuple[str | None, ...], str] = {}
    for c in found:
        first.setdefault((c.kind, str(c.axes_or_groups), c.element_types, c.line), c.name)
    rows = [
        CollectiveAnswer(
            said(first[t.key]),
            str(t.key[0]),
            t.key[1] and said(t.key[1]),
            t.key[2] and said(t.key[2]),
            t.key[3] and said(t.key[3]),
            t.count,
            t.payload_bytes,
            t.known_wire_bytes,
        )
        for t in totals[:limit]
    ]
    then = ask("why", program=name, collective=rows[0].example) if rows else ""
    return CollectivesAnswer(
        rows, max(0, len(totals) - limit), found.wire_bytes, then or ask("costs", program=name)
    )


def why(name: str, cap: Capture, collective: str) -> WhyAnswer:
    found = cap.why(collective)
    line = found.line or found.listed
    return WhyAnswer(
        said(found.collective or collective),
        found.is_known,
        block(found, 30),
        said(line) or None,
        said(found.operand) or None,
        said(found.had) or None,
        said(found.needs) or None,
        said(found.unknown) or None,
        ask("line", program=name, line=line) if found.line else ask("findings", program=name),
    )


def line(name: str, found: LineTrace, limit: int) -> LineAnswer:
    rows = [
        InstructionAnswer(said(i.name), i.opcode, said(i.computation.name), said(by) or None)
        for i, by in zip(found.instructions[:limit], found.made_by[:limit], strict=True)
    ]
    fates = [] if found.fates is None else [said(f) for f in found.fates[:limit]]
    return LineAnswer(
        said(found.place),
        rows,
        fates,
        max(0, len(found.instructions) - limit),
        ask("costs", program=name),
    )


def memory(name: str, cap: Capture, limit: int) -> MemoryAnswer:
    found = cap.memory
    at = found.peak_instruction
    values = [
        ValueAnswer(
            said(v.name), v.category, said(v.shape.dense_text), v.bytes, said(v.line) or None
        )
        for v in found[:limit]
    ]
    lines = [v.line for v in values if v.line]
    return MemoryAnswer(
        found.peak_bytes,
        found.peak_source,
        said(at.name) if at is not None else None,
        {said(k): b for k, b in found.by_category.items() if b},
        values,
        max(0, len(found) - limit),
        ask("line", program=name, line=lines[0]) if lines else ask("findings", program=name),
    )


def costs(name: str, cap: Capture, limit: int) -> CostsAnswer:
    found = cap.cost()
    total = found.roofline.total_seconds if found.roofline is not None else None
    rows = []
    for r in found[:limit]:
        seconds = r.step_seconds if found.roofline is not None else None
        rows.append(
            CostAnswer(
                said(r.instruction.name),
                r.instruction.opcode,
                _known(seconds),
                _known(seconds / total if seconds is not None and total else None),
                _known(r.flops),
                _known(r.bytes_accessed),
                r.runs,
                said(r.line) or None,
            )
        )
    lines = [r.line for r in rows if r.line]
    return CostsAnswer(
        found.hardware.label if found.hardware is not None else None,
        _known(total),
        rows,
        max(0, len(found) - limit),
        ask("line", program=name, line=lines[0]) if lines else ask("findings", program=name),
    )


def _known(value: float | None) -> float | None:
    """The number, None for NaN."""
    return None if value is None or value != value else float(value)


def diff(b: str, found: Comparison, limit: int = LIMIT) -> DiffAnswer:
    from ...analysis.diff.text import amount, signed

    totals = [
        said(f"{d.name}: {amount(d.a, d.unit)} → {amount(d.b, d.unit)} ({signed(d)})")
        for d in found.totals
        if d.change != 0
    ]
    return DiffAnswer(
        bool(found),
        found.matched,
        len(found.removed),
        len(found.added),
        len(found.changed),
        totals,
        block(found.as_text(limit), 60),
        ask("findings", program=b),
    )


def tried(
    name: str, base: tuple[str, Capture], cap: Capture, same_values: str | None
) -> TriedAnswer:
    """``base``: its name, and the program before."""
    sides = zip(_figures(base[1]), _figures(cap), strict=True)
    pairs = [[_known(a), _known(b)] for a, b in sides]
    return TriedAnswer(
        name,
        changes(cap.changes),
        pairs[0],
        pairs[1],
        pairs[2],
        same_values,
        headline(cap),
        ask("diff", a=base[0], b=name),
    )


def changes(made: Iterable[Any]) -> list[ChangeAnswer]:
    return [ChangeAnswer(said(c.words), block(c.code, 12), said(c.line) or None) for c in made]


def _figures(cap: Capture) -> tuple[float | None, ...]:
    """Modelled seconds, peak and wire bytes, as proofs have them."""
    from ...plan.running.candidate_figures import figures

    found = figures(cap)
    return found.seconds, found.peak_bytes, found.wire_bytes
