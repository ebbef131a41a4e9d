"""A ``Diff`` as one offline page: tables, no script, nothing from the network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from .diff_text import amount, signed

if TYPE_CHECKING:
    from .diff_result import Delta, Diff, Item

LIMIT = 2000  # rows of a table; browsers lay out longer ones slowly

_STYLE = """
:root{color-scheme:light dark}
body{font:14px/1.45 system-ui,sans-serif;margin:0 auto;padding:24px;max-width:1200px}
h1{font-size:20px;margin:0 0 4px}h2{font-size:15px;margin:28px 0 8px}
p{margin:4px 0;overflow-wrap:anywhere}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:3px 16px 3px 0;border-bottom:1px solid rgba(128,128,128,.3);
vertical-align:top;overflow-wrap:anywhere}
th{font-weight:600}td:first-child{min-width:9em}td.n,th.n{text-align:right;white-space:nowrap}
code{font:13px ui-monospace,monospace}
del{text-decoration-color:#b3261e}ins{text-decoration-color:#146c2e}
"""


def page(diff: Diff) -> str:
    """The page as a string. Names are escaped; the policy allows the one style and no script."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    title = f"{escape(diff.title_a)} ↔ {escape(diff.title_b)}"
    if diff:
        said = (
            f"{diff.matched:,} instructions match, {len(diff.changed):,} of them changed; "
            f"{len(diff.removed):,} only in the first, {len(diff.added):,} only in the second."
        )
    else:
        said = f"No difference: {diff.matched:,} instructions match."
    body = [
        f"<h1>{title}</h1><p>{said}</p>",
        _deltas("Totals", diff.totals),
        _deltas("Collectives: wire bytes of one device", diff.collectives),
        _collectives(diff),
        _deltas("Memory live at the peak", diff.memory),
        _deltas("Fusions", diff.fusions),
        _deltas("Opcodes", diff.opcodes),
        _changes(diff),
        _items("Only in the first", diff.removed),
        _items("Only in the second", diff.added),
    ]
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title} · hloscope</title><style>{_STYLE}</style></head><body><main>",
            *filter(None, body),
            "</main></body></html>\n",
        ]
    )


def _table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], right: str = "") -> str:
    """``heads`` are text, ``rows`` HTML; ``right`` has an "n" for each column of numbers."""
    found = list(rows)
    if not found:
        return ""
    kinds = [' class="n"' if k == "n" else "" for k in right.ljust(len(heads))]
    out = [f'<h2>{escape(title)}</h2><div class="wide"><table><thead><tr>']
    out += [f'<th scope="col"{k}>{escape(h)}</th>' for h, k in zip(heads, kinds, strict=True)]
    out.append("</tr></thead><tbody>")
    for row in found[:LIMIT]:
        cells = (f"<td{k}>{cell}</td>" for cell, k in zip(row, kinds, strict=True))
        out.append(f"<tr>{''.join(cells)}</tr>")
    out.append("</tbody></table></div>")
    if len(found) > LIMIT:
        out.append(f"<p>and {len(found) - LIMIT:,} more</p>")
    return "".join(out)


def _deltas(title: str, deltas: Iterable[Delta]) -> str:
    rows = ((escape(d.name), amount(d.a, d.unit), amount(d.b, d.unit), signed(d)) for d in deltas)
    return _table(title, ("", "first", "second", "change"), rows, " nnn")


def _collectives(diff: Diff) -> str:
    rows = [
        (
            where,
            escape(c.kind),
            escape(c.axes),
            amount(c.payload_bytes, "B"),
            amount(c.wire_bytes, "B"),
            amount(c.executions, ""),
            f"<code>{escape(c.line)}</code>",
        )
        for where, side in (
            ("first", diff.removed_collectives),
            ("second", diff.added_collectives),
        )
        for c in side
    ]
    heads = ("only in", "kind", "axes", "payload", "wire bytes", "executions", "line")
    return _table("Collectives of one side only", heads, rows, "   nnn")


def _changes(diff: Diff) -> str:
    rows = []
    for change in diff.changed:
        name = f"<code>%{escape(change.a.name)}</code>"
        if change.b.name != change.a.name:
            name += f" (<code>%{escape(change.b.name)}</code>)"
        fields = "<br>".join(
            f"{escape(k)}: <del><code>{escape(a)}</code></del> <ins><code>{escape(b)}</code></ins>"
            for k, a, b in change.fields
        )
        where = escape(change.b.line or change.a.line)
        rows.append((name, escape(change.a.opcode), fields, f"<code>{where}</code>"))
    return _table("Changed", ("instruction", "opcode", "what", "line"), rows)


def _items(title: str, items: Iterable[Item]) -> str:
    rows = (
        (
            f"<code>%{escape(i.name)}</code>",
            escape(i.opcode) + (f" with {i.inside:,} inside" if i.inside else ""),
            f"<code>{escape(i.shape)}</code>",
            amount(i.bytes, "B"),
            f"<code>{escape(i.computation)}</code>",
            f"<code>{escape(i.line or i.op_name)}</code>",
        )
        for i in items
    )
    heads = ("instruction", "opcode", "shape", "output", "computation", "line or op_name")
    return _table(title, heads, rows, "   n")
