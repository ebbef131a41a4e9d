"""One self-contained offline page of a capture, and the same page as a frame for notebooks.

::

    <meta CSP: two scripts by their hashes (loader, renderer); no network>
    <main><h1>…</h1><div id="hloscope"><pre>summary</pre></div></main>
    <script type="application/octet-stream;base64" id="hloscope-view">…   data, never run
    <script type="application/octet-stream;base64" id="hloscope-analyses">…   (-text as well)
    <script type="application/octet-stream;base64" data-chip="tpu-v5e">…   figures for other chips
    <script type="application/octet-stream;base64" id="hloscope-code">…   gzip'd renderer
    <script type="application/json" id="hloscope-bookmarks">…
    <script>loader</script>        inflates the renderer, which replaces the summary

The renderer repeats in each output of a notebook: gzip'd it is a third of its size.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from html import escape
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..analysis.text.units import size
from . import blocks
from .static import page_script
from .text import quick_summary, summary_text

if TYPE_CHECKING:
    from ..api.capture import Capture

# Raw HLO text beyond this stays out of a page: browsers open bigger files slowly or not at all.
TEXT_LIMIT_BYTES = 64 * 2**20
# Texts of other stages beyond this, compressed, stay out of a page.
STAGES_LIMIT_BYTES = 8 * 2**20
# A frame sits in the notebook's JSON once per output; a 10k-instruction module fits in this.
FRAME_LIMIT_BYTES = 1_150_000
# Without the text a 250k-instruction module takes this; beyond it a notebook keeps a summary.
FRAME_MOST_BYTES = 4_000_000
# Up to this many instructions linking the stages takes a fraction of a second, so that what a
# notebook keeps of a cell has them at once.
LINKED_AT_ONCE = 2_000
# Figures for other chips, compressed, beyond this stay out of a page.
CHIPS_LIMIT_BYTES = 2 * 2**20
# Passes, compressed, beyond this stay out of a page.
PASSES_LIMIT_BYTES = 32_000_000
# Above this many instructions the analyses take a second and more: the cell shows
# the picture first, and a frame with what was made so far.
ANALYSED_FIRST = 50_000

# Passes of a page that was made without them: none, and no reason to give.
NONE_ASKED: tuple[bytes | None, str] = (None, "")

_STYLE = (
    "html,body,main{margin:0;height:100%}"
    "body{font:14px system-ui,sans-serif;color-scheme:light dark}"
    "#hloscope{height:100%}"
    "pre{margin:0;padding:16px;white-space:pre-wrap}"
    "h1{position:absolute;width:1px;height:1px;margin:0;overflow:hidden;"
    "clip-path:inset(50%);white-space:nowrap}"
)


# The renderer's text is hashed into the policy as it is; the loader only unpacks it.
LOADER = (
    '(async()=>{const t=document.getElementById("hloscope-code").textContent,'
    "b=Uint8Array.from(atob(t),c=>c.charCodeAt(0)),"
    's=document.createElement("script");'
    "s.textContent=await new Response(new Blob([b]).stream()"
    '.pipeThrough(new DecompressionStream("gzip"))).text();document.body.append(s)})()'
)


def page(
    capture: Capture,
    *,
    options: Mapping[str, Any] | None = None,
    text_limit_bytes: int = TEXT_LIMIT_BYTES,
    passes: bool = False,
    passes_limit_bytes: int = PASSES_LIMIT_BYTES,
) -> str:
    """The whole page as a string; it opens from ``file://`` and makes no network requests.

    ``options`` are Options of js/view.ts: ``theme``, ``colorBy``, ``panel``; they
    override ``capture.display``. HLO text over
    ``text_limit_bytes`` (raw, in bytes) is left out, and the page says so; so are the texts of
    other stages over ``STAGES_LIMIT_BYTES`` (compressed).
    ``passes`` adds every compiler pass, up to ``passes_limit_bytes`` compressed.
    Raises ``RendererMissing`` in a checkout whose renderer was not built.
    """
    text: bytes | None = None
    why = ""
    length = len(capture.text)
    if length > text_limit_bytes:
        why = (
            f"it has {size(length)}, over this page's limit of "
            f"{size(text_limit_bytes)}. Save the dump beside it."
        )
    else:
        text = blocks.text(capture)
    stages: bytes | None = blocks.stages(capture)
    if stages is not None and len(stages) > STAGES_LIMIT_BYTES:
        stages = None
    steps = _passes(capture, passes_limit_bytes) if passes else NONE_ASKED
    chosen = {**capture.display, **(options or {})}
    chips = blocks.chips(capture, CHIPS_LIMIT_BYTES)
    return _page(capture, chosen, text, why, stages=stages, passes=steps, chips=chips)


def _passes(capture: Capture, limit: int) -> tuple[bytes | None, str]:
    """The passes block with its figures, or None and why it is left out."""
    from ..view.passes import TooLarge, build_passes, work_out

    try:
        passes = capture.passes()
        note = work_out(passes, capture.target)
        block = build_passes(
            passes,
            capture.module,
            capture.target,
            title=capture.title,
            note=note,
            shown=blocks.shown_pass(capture),
        )
    except TooLarge as error:
        return None, str(error)
    if len(block) > limit:
        return None, f"they take {size(len(block))}, over this page's limit of {size(limit)}."
    return block, ""


def frame(capture: Capture, *, height_px: int = 640, at_once: bool = False) -> str:
    """The page in a sandboxed ``<iframe srcdoc>``: text/html for notebooks and their exports.

    The text block is included while the frame stays under ``FRAME_LIMIT_BYTES``, and after it
    the texts of other stages; a frame over
    ``FRAME_MOST_BYTES`` becomes the summary with a sentence. ``at_once``, for when someone waits
    for the picture, leaves out the analyses of a large module, unless they are made already.
    """
    large = len(capture.module.instructions) > ANALYSED_FIRST
    analyses = not (at_once and large) or blocks.is_made(capture, "analyses")
    why = (
        "it would make this notebook too large. Run the cell again, or save it with "
        'capture.to_html("module.html").'
    )
    small = _page(capture, capture.display, None, why, analyses=analyses)
    if len(small) > FRAME_MOST_BYTES:
        return _too_large(capture, len(small))
    # base64 grows by 4/3; the compressed text cannot be much under a fifteenth of the raw one.
    room = (FRAME_LIMIT_BYTES - len(small)) * 3 / 4
    inner = small
    if len(capture.text) / 40 < room and len(blocks.text(capture)) < room:
        room -= len(blocks.text(capture))
        few = len(capture.module.instructions) <= LINKED_AT_ONCE
        stages = None
        if few or not at_once or blocks.is_made(capture, "stages"):
            stages = blocks.stages(capture) if len(blocks.stages(capture)) < room else None
        room -= len(stages or b"")
        inner = _page(
            capture,
            capture.display,
            blocks.text(capture),
            "",
            analyses=analyses,
            stages=stages,
            # A cell is shown at once, and its widget asks the kernel for other chips.
            chips={} if at_once else blocks.chips(capture, room),
        )
    return (
        f'<iframe title="{escape(f"hloscope: {capture.title}")}" '
        'sandbox="allow-scripts allow-downloads" allow="fullscreen; clipboard-write" '
        'referrerpolicy="no-referrer" width="100%" '
        f'height="{height_px}" style="display:block;width:100%;height:{height_px}px;'
        'border:1px solid rgba(128,128,128,.4);border-radius:6px;box-sizing:border-box" '
        f'srcdoc="{_attribute(inner)}"></iframe>'
    )


def _too_large(capture: Capture, length: int) -> str:
    return (
        f"<p>The explorer of this module takes {size(length)}, too much for a notebook to "
        "keep: this is its summary. Run the cell again to explore it, or save it as a page: "
        '<code>capture.to_html("module.html")</code>.</p>\n'
        f"<pre>{escape(summary_text(capture, quick_summary(capture)))}</pre>"
    )


def _page(
    capture: Capture,
    options: Mapping[str, Any],
    text: bytes | None,
    why: str,
    *,
    analyses: bool = True,
    stages: bytes | None = None,
    passes: tuple[bytes | None, str] = NONE_ASKED,
    chips: Mapping[str, bytes] = MappingProxyType({}),
) -> str:
    code = page_script("explorer")
    policy = (
        f"default-src 'none'; script-src '{csp_hash(LOADER)}' '{csp_hash(code)}'; "
        f"style-src '{csp_hash(_STYLE)}'; "
        "worker-src blob:; base-uri 'none'; form-action 'none'"
    )
    code_bytes = gzip.compress(code.encode("utf-8"), mtime=0)
    data = [
        block("hloscope-code", code_bytes),
        block("hloscope-view", blocks.view(capture)),
    ]
    no_analyses = ""
    if analyses:
        data.append(block("hloscope-analyses", blocks.analyses(capture)))
    else:
        no_analyses = (
            "this output was saved before they were worked out. Show the capture again, "
            'or save it with capture.to_html("module.html").'
        )
    summary = capture.summary if analyses else quick_summary(capture)
    if text is not None:
        data.append(block("hloscope-text", text))
    no_stages = ""
    if stages is not None:
        data.append(block("hloscope-stages", stages))
    else:
        no_stages = (
            "they would make this file too large, or were not worked out yet. Run the cell again, "
            'or save the capture with capture.to_html("module.html").'
        )
    steps, no_passes = passes
    if steps is not None:
        data.append(block("hloscope-passes", steps))
    data += [
        block(f"hloscope-chip-{k}", made, chip) for k, (chip, made) in enumerate(chips.items())
    ]
    title = escape(capture.title)
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="generator" content="hloscope">',
            f"<title>{title} · hloscope</title>",
            f"<style>{_STYLE}</style></head>",
            f"<body><main><h1>{title}</h1>",
            f'<div id="hloscope" data-options="{escape(json.dumps(dict(options)))}" '
            f'data-no-text="{escape(why)}" data-no-analyses="{escape(no_analyses)}" '
            f'data-no-stages="{escape(no_stages)}" '
            f'data-no-passes="{escape(no_passes)}" '
            f'data-name="{title}" data-place="{escape(capture.for_hosts.place)}">',
            "<noscript><p>The interactive view needs JavaScript; this is its summary.</p>"
            "</noscript>",
            f"<pre>{escape(summary_text(capture, summary))}</pre></div></main>",
            *data,
            *([_bookmarks(capture.bookmarks)] if capture.bookmarks else []),
            f"<script data-loader>{LOADER}</script></body></html>\n",
        ]
    )


def block(name: str, data: bytes, chip: str = "") -> str:
    """A data block of a page, found by its id; those of chips also by ``data-chip``."""
    # base64 has no "<": the block cannot close its own element.
    text = base64.b64encode(data).decode("ascii")
    more = f' data-chip="{escape(chip)}"' if chip else ""
    return f'<script type="application/octet-stream;base64" id="{name}"{more}>{text}</script>'


def _bookmarks(rows: Sequence[Mapping[str, str]]) -> str:
    # JSON may hold "<": as an escape it cannot close the element.
    text = json.dumps(list(rows)).replace("<", "\\u003c")
    return f'<script type="application/json" id="hloscope-bookmarks">{text}</script>'


def csp_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")


def _attribute(text: str) -> str:
    # Inside double quotes only & and " end or change anything; < and > stay, and stay short.
    return text.replace("&", "&amp;").replace('"', "&quot;")
