"""A program, or what differs between two, as Markdown for a pull request or an issue.

GitHub's dialect (https://github.github.com/gfm/): tables, and ``<details>`` for what is long. Names
of a dump are data: ``code`` and ``words`` leave nothing of them that acts as Markdown, HTML, a
mention, a link or a reference to an issue.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from textwrap import indent
from typing import TYPE_CHECKING, Any

from ..analysis.diff.text import (
    amount,
    change_text,
    donated_text,
    item_text,
    place_parts,
    signed,
)
from ..analysis.findings.finding import Finding, Findings, percent
from ..analysis.text.units import count, duration, quantity, size
from ..hlo.parts import printable
from ..hlo.texts.listed import and_more
from ..hlo.texts.places import short_line, whole_place

if TYPE_CHECKING:
    from ..analysis.diff.differences import Delta
    from ..api.capture import Capture
    from ..api.compared import Comparison

# Findings that are not folded, and rows of each table.
OPEN, ROWS = 5, 10
# Characters of a name or a line of code; longer ones are cut.
WIDTH = 100
# Characters that act as nothing in a code span, also in a table.
_PLAIN = re.compile(r"[\w %.,:;/=<>()\[\]{}+*#@'\"!?&^~$…→×·-]*")
_NAME = re.compile(r"(`[^`]+`|%[\w.-]*\w)")
# What acts in a sentence, what does only where a line begins, and where a link, a mention or a
# reference to an issue is broken.
_ACTS = re.compile(r"([\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_]))")
_BEGINS = re.compile(r"^([-+#=>]|\d+(?=[.)]\s))")
_LINKS = re.compile(r"(?<=@)|(?<=:)(?=//)|(?<=[wW]{3})(?=\.)|(?<=#)(?=\d)|(?<=GH)(?=-)")


def code(text: str) -> str:
    """A name or a line of code as a code span."""
    text = printable(text).strip()
    text = text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"
    if not text:
        return ""
    if _PLAIN.fullmatch(text):
        return f"`{text}`"
    inside = re.sub(r"[^\w ]|_", lambda m: f"&#{ord(m[0])};", text)
    return f"<code>{inside}</code>"


def words(text: str) -> str:
    """A sentence: names of instructions and quoted ones as code, the rest as nothing but text."""
    parts = _NAME.split(printable(text).strip())
    made = "".join(code(p.strip("`")) if k % 2 else _inert(p) for k, p in enumerate(parts))
    return _BEGINS.sub(lambda m: f"{m[1]}\\" if m[1].isdigit() else f"\\{m[1]}", made)


def _inert(text: str) -> str:
    """Text of which nothing acts. An empty comment breaks mentions, links and references."""
    pieces = re.split(_LINKS, text)
    return "<!-- -->".join(_ACTS.sub(r"\\\1", escape(p, quote=False)) for p in pieces)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are Markdown already; the first column is on the left, the others on the right."""
    marks = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, marks, *rows))


def folded(summary: str, inside: str) -> str:
    """``<details>``; the empty lines let Markdown inside be read."""
    return f"<details>\n<summary>{summary}</summary>\n\n{inside}\n\n</details>"


def report(cap: Capture) -> str:
    """Headline, findings with their lines, then tables, folded."""
    parts = [f"### {words(cap.title)}", words(_of(cap))]
    if cap.does_not_fit:
        parts.append(f"**{words(cap.does_not_fit)}**")
    parts += _findings(cap)
    for section in (_collectives, _memory, _costs) if cap.module.dialect == "hlo" else ():
        try:
            parts += section(cap)
        except (ValueError, LookupError) as error:  # a dump that was cut off
            parts.append(words(str(error)))
    parts += [f"Warning: {words(w)}" for w in cap.warnings[:OPEN]]
    return "\n\n".join(p for p in parts if p) + "\n"


def _of(cap: Capture) -> str:
    """``8 × TPU v5 lite · train.hlo · optimized``."""
    target = cap.target
    devices = f"{len(target.devices)} × {target.device_kind or target.platform}"
    mesh = ""
    if target.mesh is not None:
        axes = zip(target.mesh.axis_names, target.mesh.axis_sizes, strict=True)
        mesh = "mesh " + ", ".join(f"{a} {n}" for a, n in axes)
    changes = [f"changed: {c.words}" for c in cap.changes]
    parts = [devices if target.devices else "", mesh, cap.file, cap.stage, *changes]
    return " · ".join(filter(None, parts))


def _findings(cap: Capture) -> list[str]:
    try:
        found = cap.findings
    except (ValueError, LookupError) as error:
        return [words(str(error))]
    out = [f"**{words(str(found.headline))}**"] if str(found.headline) else []
    out += listed(found, found.rows)
    return out + [words(sentence) for sentence in (*found.left_out, *found.failed)]


def listed(found: Findings, rows: Sequence[Finding]) -> list[str]:
    """The first few open, the others folded."""
    if not rows:
        return [f"Nothing to report: {found.ran} rules ran, and none applied."]
    items = [f"{n}. {_finding(f)}" for n, f in enumerate(rows, 1)]
    out = ["\n".join(items[:OPEN])]
    if len(items) > OPEN:
        out.append(folded(f"{len(items) - OPEN} more findings", "\n".join(items[OPEN:])))
    return out


def _finding(f: Finding) -> str:
    at_stake = f" ({words(f.at_stake)}; {percent(f.share)})" if f.at_stake else ""
    lines = [f"**{words(f.title)}**{at_stake}"]
    place = [code(f.scope) if f.scope else "", code(whole_place(f.line)) if f.line else ""]
    if any(place):
        inferred = " (inferred)" if f.inferred else ""
        text = f": {code(f.code)}" if f.code else ""
        lines.append(f"at {' · '.join(filter(None, place))}{inferred}{text}")
    lines.append(words(f.evidence))
    if f.advice:
        lines.append(f"Try: {words(f.advice)}")
    lines += [words(str(p)) for p in f.proofs]
    # two spaces break the line, three hold it in its item
    return "  \n   ".join(filter(None, lines)) + _proved(f)


def _proved(f: Finding) -> str:
    """What the best way changes: code to paste, figures, and the difference where it is known."""
    best = next(iter(f.proofs), None)
    if best is None or not best.is_proved:
        return ""
    parts = [_block("\n".join(best.code_lines()))]
    if best.diff:
        parts.append(folded("What differs", _block(best.diff)))
    elif len(best.figures) > 1:  # the sentence has the one it is about
        parts.append(words(", ".join(map(str, best.figures))))
    return "\n\n" + indent("\n\n".join(parts), "   ") + "\n"


def _collectives(cap: Capture) -> list[str]:
    found = cap.collectives
    if not len(found):
        return []
    rows = found.totals(("kind", "axes", "element_types", "written_by", "line"))
    body = [
        (
            code(str(t.key[0])),
            words(str(t.key[1])),
            words(str(t.key[2] or "unknown")),
            count(t.count),
            size(t.payload_bytes),
            size(t.known_wire_bytes),
            str(t.key[3]),
            _line(str(t.key[4] or "")),
        )
        for t in rows[:ROWS]
    ]
    head = ("collective", "over", "type", "number", "moves", "on the wire", "asked for by", "line")
    wire = found.wire_bytes
    least = "at least " if found.total.is_lower_bound else ""
    summary = f"{len(found):,} collectives, {least}{size(wire)} on the wire per device"
    return [folded(summary, table(head, body) + _more(len(rows) - ROWS))]


def _memory(cap: Capture) -> list[str]:
    found = cap.memory
    held = sorted(found.by_category.items(), key=lambda pair: -pair[1])
    body = [(words(name), size(held_bytes)) for name, held_bytes in held if held_bytes]
    values = [
        (code(v.name), words(v.category), code(v.shape.dense_text), size(v.bytes), _line(v.line))
        for v in found[:ROWS]
    ]
    parts = [table(("live at the simulated peak", "per device"), body)]
    if values:
        largest = table(("largest values there", "what", "shape", "bytes", "line"), values)
        parts.append(largest + _more(len(found) - ROWS))
    summary = f"Peak memory {size(found.peak_bytes)} per device ({escape(found.peak_source)})"
    return [folded(summary, "\n\n".join(parts))]


def _costs(cap: Capture) -> list[str]:
    found = cap.cost()
    rows = [r for r in found[: 4 * ROWS] if r.seconds or r.flops or r.bytes_accessed][:ROWS]
    if not rows:
        return []
    is_timed = found.hardware is not None
    body: list[tuple[str, ...]] = [
        (
            code(r.instruction.name),
            duration(r.step_seconds) if is_timed else "",
            quantity(r.flops, "FLOP"),
            size(r.bytes_accessed),
            count(r.runs),
            _line(r.line),
        )
        for r in rows
    ]
    chip = f" modelled on {escape(found.hardware.label)}" if found.hardware is not None else ""
    head: tuple[str, ...] = (
        "instruction",
        "in the step",
        "FLOPs",
        "bytes accessed",
        "runs",
        "line",
    )
    if not is_timed:
        head, body = (head[0], *head[2:]), [(b[0], *b[2:]) for b in body]
    summary = f"Largest costs{chip}: {len(rows)} of {len(found):,} instructions"
    return [folded(summary, table(head, body))]


def _line(line: str) -> str:
    """``train.py:31``, without folders: a column is narrow."""
    return code(short_line(line)) if line else ""


def _more(left: int) -> str:
    return f"\n\n…{and_more(left)}" if left > 0 else ""


def compared(found: Comparison, limit: int = ROWS) -> str:
    """What differs: totals, collectives, lines, findings; instructions folded."""
    out = [f"### {words(found.title_a)} → {words(found.title_b)}"]
    if not found:
        out.append(f"No difference: {found.matched:,} instructions match.")
    else:
        out.append(
            f"{found.matched:,} instructions match, {len(found.changed):,} of them changed; "
            f"{len(found.removed):,} removed, {len(found.added):,} added."
        )
        of = donated_text(found, ("before", "after"))
        out += [f"{words(s[0].upper() + s[1:])}." for s in of]
    totals = [d for d in found.totals if d.change != 0]
    out += _deltas("", totals) or (["All totals are equal."] if found else [])
    out += _new_findings(found)
    out += _deltas("Collectives, wire bytes per device", found.collectives)
    out += _sentences(
        "Changed collectives", [change_text(c) for c in found.changed_collectives], limit
    )
    out += _deltas("Memory live at the peak", found.memory)
    out += _sentences(
        "By source line", [f"{p.name}: {', '.join(place_parts(p))}" for p in found.lines], limit
    )
    if found.measured is not None:
        out.append(folded("Measured time", _block(str(found.measured))))
    for title, items in (("Removed", found.removed), ("Added", found.added)):
        out += _sentences(f"{title} instructions", [item_text(i) for i in items], limit)
    return "\n\n".join(p for p in out if p) + "\n"


def _deltas(title: str, deltas: Sequence[Delta]) -> list[str]:
    if not deltas:
        return []
    body = [(words(d.name), amount(d.a, d.unit), amount(d.b, d.unit), signed(d)) for d in deltas]
    made = table(("", "before", "after", "change"), body)
    return [folded(title, made) if title else made]


def _sentences(title: str, sentences: Sequence[str], limit: int) -> list[str]:
    if not sentences:
        return []
    inside = "\n".join(f"- {words(s)}" for s in sentences[:limit])
    return [folded(f"{title} ({len(sentences):,})", inside + _more(len(sentences) - limit))]


def _block(text: str) -> str:
    """Lines as they are printed; indented code, which nothing in a line can end."""
    return "\n".join(f"    {printable(line)}" for line in text.splitlines())


def _new_findings(found: Comparison) -> list[str]:
    """Findings of one side only: matched by rule and line of code."""
    a, b, _ = found.sides
    try:
        before, after = (side.findings for side in (a, b))  # type: ignore[attr-defined]
    except (AttributeError, ValueError, LookupError):
        return []
    known, kept = ({_key(f) for f in side} for side in (before, after))
    new = [f for f in after if _key(f) not in known]
    gone = [f for f in before if _key(f) not in kept]
    out = []
    if new:
        out += [f"**New findings ({len(new)})**", *listed(after, new)]
    if gone:
        out += [f"**No longer found ({len(gone)})**"]
        out.append("\n".join(f"- {words(f.title)}" for f in gone[:ROWS]) + _more(len(gone) - ROWS))
    return out


def _key(f: Finding) -> tuple[Any, ...]:
    return f.rule, f.code or f.line or f.scope or f.title
