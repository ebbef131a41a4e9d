"""Differences as one offline page: tables, no script, nothing from the network."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from ...hlo.texts.places import whole_place
from .differences import CollectiveItem, Delta, Differences, Item, Place
from .text import amount, change_parts, donated_text, place_parts, signed

LIMIT = 2000  # rows of a table; browsers lay out longer ones slowly

# Longer tables are folded after this many rows.
SHOWN = 12
BAR = 60  # CSS pixels

STYLE = """
:root{color-scheme:light dark;--page:#f3f5f8;--card:#fff;--line:#dfe4ea;--dim:#57636f;
--first:#8a95a1;--second:#0b63b5;--gone:#a3261c;--new:#146c2e}
@media(prefers-color-scheme:dark){:root{--page:#12161b;--card:#1a2027;--line:#2e3742;--dim:#9aa5b1;
--first:#76828f;--second:#6db3ff;--gone:#ff9b8f;--new:#7fd396}}
body{font:14px/1.45 system-ui,sans-serif;margin:0 auto;padding:24px;max-width:1360px;
background:var(--page)}
h1{font-size:20px;margin:0 0 4px;overflow-wrap:anywhere}h2{font-size:15px;margin:0 0 6px}
p{margin:4px 0;overflow-wrap:anywhere}
.sides{color:var(--dim)}.sides b{color:CanvasText}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,520px),1fr));gap:16px;
margin-top:18px;align-items:start}.column{display:grid;gap:16px;min-width:0}
section{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:14px 16px;
min-width:0}
section.all{grid-column:1/-1}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;min-width:100%}
th,td{text-align:left;padding:3px 14px 3px 0;border-bottom:1px solid var(--line);
vertical-align:top}td:first-child{min-width:8em;overflow-wrap:break-word}
tr:last-child>td{border-bottom:0}
th{font-weight:600;color:var(--dim);font-size:12px}td{overflow-wrap:break-word}
section.all td:last-child{min-width:9em}
td.n,th.n{text-align:right;white-space:nowrap}
code{font:13px ui-monospace,monospace;overflow-wrap:anywhere}
del{color:var(--gone)}ins{color:var(--new)}ins,del{text-decoration:none}
del::before{content:"- "}ins::before{content:"+ "}
td svg{display:block;margin-top:5px}.first{fill:var(--first)}.second{fill:var(--second)}
details{margin-top:8px}summary{cursor:pointer;color:var(--dim)}
"""


def page(diff: Differences) -> str:
    """The page as a string. Names are escaped; the policy allows this style, and no script."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    title = f"{escape(diff.title_a)} ↔ {escape(diff.title_b)}"
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title} · hloscope</title><style>{STYLE}</style></head><body><main>",
            tables(diff),
            "</main></body></html>\n",
        ]
    )


def tables(diff: Differences, index: Sequence[Mapping[str, int]] = ({}, {})) -> str:
    """The body as HTML. ``index``: the instructions of each side that a click can select."""
    title = f"{escape(diff.title_a)} ↔ {escape(diff.title_b)}"
    if diff:
        said = (
            f"{diff.matched:,} instructions match, {len(diff.changed):,} of them changed; "
            f"{len(diff.removed):,} only in the first, {len(diff.added):,} only in the second"
            + (f"; {diff.plumbing:,} more in tuples and their elements." if diff.plumbing else ".")
        )
    else:
        said = f"No difference: {diff.matched:,} instructions match."
    for sentence in donated_text(diff, ("in the first", "in the second")):
        said += f" {sentence[0].upper()}{escape(sentence[1:])}."
    sides = "".join(
        f'<p class="sides"><svg width="10" height="10"><rect class="{which}" width="10" '
        f'height="10"/></svg> {which}: <b>{escape(name)}</b></p>'
        for which, name in (("first", diff.title_a), ("second", diff.title_b))
    )
    a, b = index
    body = [
        f'<h1>{title}</h1><p>{said}</p>{sides}<div class="grid"><div class="column">',
        _deltas("Totals", [d for d in diff.totals if not diff or d.change != 0]),
        '</div><div class="column">',
        _places("By source line", diff.lines),
        _places("By scope", diff.scopes),
        _deltas("Collectives: wire bytes per device", diff.collectives),
        _deltas("Memory live at the peak", diff.memory),
        "</div>",
        _changes(diff, a, b),
        _items("Only in the first", diff.removed, a, "first"),
        _items("Only in the second", diff.added, b, "second"),
        _changed_collectives(diff),
        _collectives(diff),
        _deltas("Opcodes", diff.opcodes),
        _deltas("Fusions", diff.fusions),
        "</div>",
    ]
    return "\n".join(filter(None, body))


def _places(title: str, places: Sequence[Place]) -> str:
    rows = (
        (f"<code>{escape(p.name)}</code>", "<br>".join(map(escape, place_parts(p)))) for p in places
    )
    return _table(title, ("where", "first → second"), rows, across=False)


def _named(name: str, index: Mapping[str, int], side: str) -> str:
    """%name, which a click selects in its picture if there is one."""
    shown = f"<code>%{escape(name)}</code>"
    if name not in index:
        return shown
    return f'<span data-side="{side}" data-instruction="{index[name]}">{shown}</span>'


def _table(
    title: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: str = "",
    *,
    across: bool = True,
) -> str:
    """A card. ``heads`` are text, ``rows`` HTML; ``right`` has an "n" for a column of numbers."""
    found = list(rows)
    if not found:
        return ""
    kinds = [' class="n"' if k == "n" else "" for k in right.ljust(len(heads))]
    top = "".join(f'<th scope="col"{k}>{escape(h)}</th>' for h, k in zip(heads, kinds, strict=True))

    def table(some: Sequence[Sequence[str]]) -> str:
        lines = (
            "".join(f"<td{k}>{cell}</td>" for cell, k in zip(row, kinds, strict=True))
            for row in some
        )
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return (
            f'<div class="wide"><table><thead><tr>{top}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )

    count = f" ({len(found):,})" if across else ""
    out = [f"<section{' class=all' if across else ''}><h2>{escape(title)}{count}</h2>"]
    cut = SHOWN if len(found) > SHOWN + 2 else len(found)
    out.append(table(found[:cut]))
    if len(found) > cut:
        out.append(f"<details><summary>{len(found) - cut:,} more</summary>")
        out.append(table(found[cut:LIMIT]))
        if len(found) > LIMIT:
            out.append(f"<p>and {len(found) - LIMIT:,} more</p>")
        out.append("</details>")
    return "".join([*out, "</section>"])


def _deltas(title: str, deltas: Iterable[Delta]) -> str:
    rows = (
        (
            escape(d.name),
            amount(d.a, d.unit),
            amount(d.b, d.unit),
            signed(d) or "same",
            _bars(d.a, d.b),
        )
        for d in deltas
    )
    return _table(title, ("", "first", "second", "change", ""), rows, " nnn", across=False)


def _bars(a: float | None, b: float | None) -> str:
    """Both amounts as bars; the table has the figures."""
    most = max(a or 0, b or 0)
    if not most:
        return ""
    first, second = (round(BAR * (v or 0) / most, 1) for v in (a, b))
    return (
        f'<svg width="{BAR}" height="10" aria-hidden="true">'
        f'<rect class="first" width="{first}" height="4"/>'
        f'<rect class="second" y="5" width="{second}" height="4"/></svg>'
    )


def _collectives(diff: Differences) -> str:
    rows = [
        (
            where,
            f"{count:,}",
            escape(c.kind),
            escape(c.axes),
            amount(c.payload_bytes, "B"),
            amount(c.wire_bytes, "B"),
            amount(c.executions, ""),
            f"<code>{escape(whole_place(c.line))}</code>",
        )
        for where, side in (
            ("first", diff.removed_collectives),
            ("second", diff.added_collectives),
        )
        for c, count in Counter(side).items()
    ]
    heads = ("only in", "count", "kind", "axes", "payload", "wire bytes", "executions", "line")
    return _table("Collectives on one side only, equal ones grouped", heads, rows, " n  nnn")


def _changed_collectives(diff: Differences) -> str:
    rows = [
        (
            f"{count:,}",
            escape(f"{c.a.kind} over {c.a.axes}")
            + ("" if _kind(c.a) == _kind(c.b) else escape(f" → {c.b.kind} over {c.b.axes}")),
            "<br>".join(map(escape, change_parts(c))),
            f"<code>{escape(whole_place(c.b.line or c.a.line))}</code>",
        )
        for c, count in Counter(diff.changed_collectives).items()
    ]
    heads = ("count", "collective", "first → second", "line")
    return _table("Collectives that changed, equal ones grouped", heads, rows, "n")


def _kind(c: CollectiveItem) -> tuple[str, str]:
    return c.kind, c.axes


def _changes(diff: Differences, a: Mapping[str, int], b: Mapping[str, int]) -> str:
    rows = []
    for change in diff.changed:
        name = _named(change.a.name, a, "first")
        if change.b.name != change.a.name:
            name += f" ({_named(change.b.name, b, 'second')})"
        fields = "<br>".join(
            f"{escape(k)}: <del><code>{escape(before)}</code></del>"
            f" <ins><code>{escape(after)}</code></ins>"
            for k, before, after in change.fields
        )
        where = escape(whole_place(change.b.line or change.a.line))
        rows.append((name, escape(change.a.opcode), fields, f"<code>{where}</code>"))
    return _table("Changed", ("instruction", "opcode", "what", "line"), rows)


def _items(title: str, items: Iterable[Item], index: Mapping[str, int], side: str) -> str:
    rows = (
        (
            _named(i.name, index, side),
            escape(i.opcode) + (f" with {i.inside:,} inside" if i.inside else ""),
            f"<code>{escape(i.shape)}</code>",
            amount(i.bytes, "B"),
            f"<code>{escape(i.computation)}</code>",
            f"<code>{escape(whole_place(i.line) or i.op_name)}</code>",
        )
        for i in items
    )
    heads = ("instruction", "opcode", "shape", "output", "computation", "line or op_name")
    return _table(title, heads, rows, "   n")
