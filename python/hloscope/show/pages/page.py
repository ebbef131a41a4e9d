"""Planning results as one offline page, and in a notebook: the same data for both.

::

    PlanView (js/plan/view.ts) ─▶ JSON ─┬─▶ page: script by its hash, no network, text within
                                        └─▶ widget: the same, and a kernel that answers
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from html import escape
from typing import Any

from ..notebook.widget import WIDGET, someone_is_there
from ..static import page_script
from .front_end import Answers, json_data

_STYLE = (
    "html,body{margin:0;min-height:100%}body{font:14px system-ui,sans-serif;"
    "color-scheme:light dark}pre{padding:16px;white-space:pre-wrap}"
    "@media(prefers-color-scheme:dark){body{background:#14181d}}"
)


def page(title: str, view: Mapping[str, Any], text: str) -> str:
    """The whole page; ``text`` is shown in it where scripts do not run."""
    code = page_script("plan")
    policy = (
        f"default-src 'none'; script-src '{_hash(code)}'; style-src '{_hash(_STYLE)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    # an escaped "<" cannot close the element
    data = _json(view).replace("<", "\\u003c")
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="generator" content="hloscope">',
            f"<title>{escape(title)} · hloscope</title><style>{_STYLE}</style></head>",
            f'<body><main id="hloscope"><pre>{escape(text)}</pre></main>',
            f'<script type="application/json" id="hloscope-plan">{data}</script>',
            f"<script>{code}</script></body></html>\n",
        ]
    )


def mimebundle(
    title: str, view: Mapping[str, Any], text: str, answers: Answers | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(data, metadata): the page in a frame, the text, and a widget where a front end is there."""
    made = page(title, view, text)
    attribute = made.replace("&", "&amp;").replace('"', "&quot;")
    data: dict[str, Any] = {
        "text/plain": text,
        "text/html": (
            f'<iframe title="{escape(f"hloscope: {title}")}" sandbox="allow-scripts '
            'allow-downloads" referrerpolicy="no-referrer" width="100%" height="760" '
            'style="display:block;width:100%;border:1px solid rgba(128,128,128,.4);'
            f'border-radius:6px;box-sizing:border-box" srcdoc="{attribute}"></iframe>'
        ),
    }
    if someone_is_there():
        with suppress(ImportError):  # without anywidget the page shows the same
            from .widget import PlanWidget

            found = PlanWidget(view, answers)._repr_mimebundle_()
            bundle = found[0] if isinstance(found, tuple) else found
            if bundle and WIDGET in bundle:
                data[WIDGET] = bundle[WIDGET]
    return data, {}


def _json(view: Any) -> str:
    return json.dumps(json_data(view), allow_nan=False, separators=(",", ":"))


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")
