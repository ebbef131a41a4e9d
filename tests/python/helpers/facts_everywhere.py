"""Every fact of a capture that is *said* in more than one place: ``said(capture)``.

Figures as numbers are in ``figures_everywhere``; here is what people read: the headline, printed
tables, cards and the page. {"step": {"headline": "6.26 µs", "cost": "6.26 µs", …}, …}
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import hloscope as hs
from hloscope.analysis.text.units import duration, size
from hloscope.hardware import find
from hloscope.show import blocks
from hloscope.show.text import summary_text
from hloscope.view.schema import joined

Places = dict[str, Any]


def said(cap: Any) -> dict[str, Places]:
    """Fact → place → what is said; places that say nothing are left out."""
    header, columns = joined(blocks.view(cap), blocks.analyses(cap))
    facts = {
        "chip": _chip(cap),
        "step": _step(cap, header),
        "peak": _peak(cap, header),
        "wire": _wire(cap, header),
        "collectives by kind": _kinds(cap, header),
        **_of_each_collective(cap, columns),
    }
    return {f: {p: v for p, v in of.items() if v is not None} for f, of in facts.items()}


def differing(facts: dict[str, Places]) -> dict[str, Places]:
    """Facts of which two places say different things."""
    return {f: of for f, of in facts.items() if len({repr(v) for v in of.values()}) > 1}


def _found(pattern: str, text: str) -> str | None:
    m = re.search(pattern, text, re.MULTILINE)
    return m[1] if m else None


def _chip(cap: Any) -> Places:
    head, cost = cap.findings.headline, cap.cost()
    named = cap.summary["hardware"]
    return {
        "headline": head.hardware,
        "cost": cost.hardware.label if cost.hardware else None,
        "summary": find(named).label if named else None,
        "printed": _found(r"modelled on ([^:]+):", str(cost)),
        "printed headline": _found(r"modelled on (.+?)(?: \(the| · )", f"{head} · "),
    }


def _step(cap: Any, header: Any) -> Places:
    head, cost = cap.findings.headline, cap.cost()
    if cost.roofline is None or head.seconds is None:
        return {}
    seconds = cap.summary["modelled_seconds"]
    whole = "total_least" not in seconds  # of a range the summary prints both ends
    return {
        "headline": duration(head.seconds),
        "printed headline": _found(r"^step (?:≥ )?(?:\S+ \S+ – )?(\S+ \S+)", str(head)),
        "summary": duration(seconds["total"]),
        "printed summary": _found(r"modelled +(?:≥ )?(\S+ \S+) .*on ", summary_text(cap))
        if whole and cap.summary["shapes"] == "local"
        else None,
        "cost": duration(cost.roofline.total_seconds),
        "printed cost": _found(r"modelled on [^:]+: (?:≥ )?(\S+ \S+)", str(cost)),
        "timeline": duration(cost.timeline.seconds),
        "page": duration(header["summary"]["modelled_seconds"]["total"]),
    }


def _peak(cap: Any, header: Any) -> Places:
    memory, head = cap.memory, cap.findings.headline
    found = hs.check(cap, max_peak="1PiB")
    kept = next((k for k in found.kept if k.startswith("max_peak: ")), "")
    return {
        "memory": size(memory.peak_bytes),
        "printed memory": _found(r"peak of .*? ([\d.,]+ [A-Z]\w*) \(", str(memory)),
        "space": size(memory.spaces[0].peak_bytes),
        "headline": size(head.peak_bytes),
        "printed headline": _found(r"peak memory ([\d.,]+ \w+)", str(head)),
        "summary": size(cap.summary["peak_live_bytes"]),
        "printed summary": _found(r"peak +([\d.,]+ [A-Z]\w*)", summary_text(cap)),
        "check": _found(r"max_peak: ([\d.,]+ \w+)", kept),
        "page": size(header["extras"]["memory"]["peakBytes"]),
    }


def _wire(cap: Any, header: Any) -> Places:
    rows, total = cap.collectives, cap.collectives.total
    if not rows or total.is_range or total.wire_is_unknown:
        return {}
    found = hs.check(cap, max_wire_bytes="1PiB")
    kept = next((k for k in found.kept), "")
    return {
        "total": size(total.wire_bytes),
        "summary": size(cap.summary["wire_bytes"]),
        "printed summary": _found(r"wire +(?:≥ )?([\d.,]+ \w+)", summary_text(cap)),
        "diff": size({d.name: d.a for d in hs.diff(cap, cap).totals}["wire bytes"]),
        "check": _found(r"max_wire_bytes\[total\]: ([\d.,]+ \w+)", kept),
        "page": size(header["summary"]["wire_bytes"]),
    }


def _kinds(cap: Any, header: Any) -> Places:
    def counted(pairs: Any) -> list[tuple[str, int]]:
        out: Counter[str] = Counter()
        for kind, n in pairs:
            out[kind] += n
        return sorted(out.items())

    rows = [re.split(r"\s{2,}", line) for line in str(cap.collectives).splitlines()[2:]]
    table = [(r[0], int(r[3])) for r in rows if len(r) == 7]
    return {
        "rows": counted((r.kind, 1) for r in cap.collectives),
        "plain": counted((r["kind"], 1) for r in cap.collectives.to_dict()["rows"]),
        "totals": counted((t.key[0], t.count) for t in cap.collectives.totals(("kind",))),
        "summary": counted((r["kind"], r["count"]) for r in cap.summary["collectives"]),
        "page": counted((r["kind"], r["count"]) for r in header["summary"]["collectives"]),
        "printed": counted(table) if len(cap.collectives) else None,
    }


def _of_each_collective(cap: Any, columns: Any) -> dict[str, Places]:
    """The line and the number of executions of every collective."""
    out: dict[str, Places] = {}
    plain = cap.collectives.to_dict()["rows"]
    cost = cap.cost()
    for k, row in enumerate(cap.collectives):
        out[f"line of %{row.name}"] = {
            "row": row.line,
            "plain": plain[k]["line"],
            "card": cap.why(row).line or None,
            "cost": cost.row(row.anchor).line if row.anchor is row.instruction else None,
        }
        if row.executions is not None and not row.branches and not row.is_of_permutes:
            out[f"executions of %{row.name}"] = {
                "row": float(row.executions),
                "plain": float(plain[k]["executions"]),
                "cost": float(cost.runs[row.anchor.index]),
                "columns": float(columns["collective.executions"][k]),
            }
    return out


def card_lines(cap: Any) -> dict[str, tuple[str, str]]:
    """Collective → (line in tables, line on its card), where the card has one."""
    cards = ((r, cap.why(r).line) for r in cap.collectives)
    return {r.name: (r.line, line) for r, line in cards if line}
