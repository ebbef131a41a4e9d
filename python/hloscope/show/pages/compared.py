"""Two programs compared, as pictures: how the result of ``hs.diff`` is displayed.

::

    <meta CSP: two scripts by their hashes, the style by its own; no network>
    <div.tables>    totals, lines, scopes, lists: rows name instructions, a click selects them
    <div#hloscope>  the first program     <div#hloscope-second>  the second

Each View has two more columns: what is the same, changed or only here, and which instruction of
the other program each is (``diff.of``, ``diff.pair``). Where two Views are too
much for a page, it has the tables alone.
"""

from __future__ import annotations

import gzip
import json
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from ...analysis.base.captured import Captured
from ...analysis.diff.page import STYLE, tables
from ...analysis.diff.page import page as tables_page
from ...api.capture import Capture
from ...api.compared import Comparison
from ...view import build_analyses, build_text, build_view
from .. import blocks
from ..html import LOADER, block, csp_hash
from ..static import page_script

if TYPE_CHECKING:
    from ...view.builder import Builder
    from ...view.context import Context

# Beyond this many instructions of both sides together, a page has the tables alone.
LIMIT = 120_000
# Raw HLO text of a side beyond this is left out of the page.
TEXT_LIMIT_BYTES = 16 * 2**20
# A frame sits in the notebook's JSON once per output.
FRAME_LIMIT_BYTES = 4_000_000
_SAME, _CHANGED, _ONLY = 0, 1, 2

_LAYOUT = """
html,body{height:100%}body.pictures{margin:0;max-width:none;padding:0;display:grid;
grid-template:minmax(0,1fr)/minmax(280px,22%) minmax(0,1fr) minmax(0,1fr)}
.pictures main{overflow:auto;padding:14px 16px;box-sizing:border-box}
.pictures .grid{grid-template-columns:minmax(0,1fr);gap:10px;margin-top:10px}
.pictures section{padding:8px 10px;overflow-wrap:anywhere}.pictures td svg{display:none}
.pictures th,.pictures td{padding:2px 7px 2px 0;font-size:12px}.pictures code{font-size:11.5px}
.pictures td:first-child{min-width:5em}.pictures section.all td:last-child{min-width:4em}
.pictures h1{font-size:15px}
.side{display:grid;grid-template-rows:auto minmax(0,1fr);border-left:1px solid var(--line);
min-width:0}
.side h2{margin:0;padding:5px 10px;font-size:13px;overflow:hidden;text-overflow:ellipsis;
white-space:nowrap;border-bottom:1px solid var(--line);background:var(--card)}
.side{grid-template-columns:minmax(0,1fr)}.side>div{min-height:0;min-width:0}[data-side]{cursor:pointer}[data-side]:hover{text-decoration:underline}
@media(max-width:1250px){body.pictures{grid-template:max(70vh,420px) auto/repeat(2,minmax(0,1fr))}
.pictures main{grid-row:2;grid-column:1/-1;overflow:visible}}
@media(max-width:640px){body.pictures{grid-template:none;grid-auto-rows:70vh}
.pictures main{grid-row:auto;grid-column:auto}}
"""


def frame(made: Comparison, height: int) -> str:
    """The page in a sandboxed frame, for a notebook; its tables alone if it is too large."""
    inner = page(made)
    if len(inner) > FRAME_LIMIT_BYTES:
        inner = tables_page(made)
    text = inner.replace("&", "&amp;").replace('"', "&quot;")
    title = escape(f"hloscope: {made.title_a} ↔ {made.title_b}")
    return (
        f'<iframe title="{title}" sandbox="allow-scripts allow-downloads" '
        f'referrerpolicy="no-referrer" style="display:block;width:100%;height:{height}px;'
        f'border:1px solid rgba(128,128,128,.4);border-radius:6px" srcdoc="{text}"></iframe>'
    )


def page(made: Comparison) -> str:
    """Tables and pictures; the tables alone where there is no View or it is too large."""
    a, b, pairs = made.sides
    sizes = [len(p.module.instructions) for p in (a, b)]
    if sum(sizes) > LIMIT or not all(sizes):
        return tables_page(made)
    changed = {(x.name, y.name) for x, y in ((c.a, c.b) for c in made.changed)}
    of = [np.full(n, _ONLY, np.uint8) for n in sizes]
    pair = [np.full(n, -1, np.int32) for n in sizes]
    for i, j in pairs:
        names = (a.module.instructions[i].name, b.module.instructions[j].name)
        of[0][i] = of[1][j] = _CHANGED if names in changed else _SAME
        pair[0][i], pair[1][j] = j, i
    code = page_script("explorer")
    style = STYLE + _LAYOUT
    policy = (
        f"default-src 'none'; script-src '{csp_hash(LOADER)}' '{csp_hash(code)}'; "
        f"style-src '{csp_hash(style)}'; worker-src blob:; base-uri 'none'; form-action 'none'"
    )
    data = [block("hloscope-code", gzip.compress(code.encode(), mtime=0))]
    sides = []
    titles = (made.title_a, made.title_b)
    for k, (p, suffix, name) in enumerate(((a, "", "first"), (b, "-other", "second"))):
        data += _blocks(p, suffix, of[k], pair[k])
        identifier = "hloscope" if k == 0 else "hloscope-second"
        options = {"colorBy": "difference"}
        sides.append(
            f'<div class="side"><h2><svg width="10" height="10"><rect class="{name}" width="10"'
            f' height="10"/></svg> {escape(titles[k])}</h2><div id="{identifier}"'
            f' data-options="{escape(json.dumps(options))}" data-name="{escape(p.title)}"'
            f' data-no-text="it is too long for this page."></div></div>'
        )
    index = [{i.name: i.index for i in p.module.instructions} for p in (a, b)]
    title = f"{escape(made.title_a)} ↔ {escape(made.title_b)}"
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title} · hloscope</title><style>{style}</style></head>",
            f'<body class="pictures"><main>{tables(made, index)}</main>',
            *sides,
            *data,
            f"<script>{LOADER}</script></body></html>\n",
        ]
    )


def _blocks(p: Captured, suffix: str, of: Any, pair: Any) -> list[str]:
    def columns(builder: Builder, context: Context) -> None:
        builder.column("diff.of", of)
        builder.column("diff.pair", pair)

    view = build_view(p.module, p.target, title=p.title, subtitle="")
    given = blocks.given(p) if isinstance(p, Capture) else None
    out = [
        block(f"hloscope-view{suffix}", view),
        block(f"hloscope-analyses{suffix}", build_analyses(p.module, p.target, columns, given)),
    ]
    text = build_text(p.module)
    if len(text) < TEXT_LIMIT_BYTES:
        out.append(block(f"hloscope-text{suffix}", text))
    return out
