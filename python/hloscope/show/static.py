"""The built renderer, ``static/explorer.js`` and ``static/plan.js``, made by ``npm run build``.

A bundle is one classic script that leaves its functions in ``hloscope``: what a saved page and a
widget run differs in its last line only, so the wheel holds each renderer once.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

STATIC = Path(__file__).resolve().parent.parent / "static"


class RendererMissing(FileNotFoundError):
    """The renderer was not built; only a source checkout can be in this state."""


def page_script(name: str) -> str:
    """The bundle ``static/<name>.js`` as the script of a page: it looks for its data blocks.

    Raises ``RendererMissing`` saying how to build it.
    """
    return _bundle(name) + "hloscope.start();\n"


def widget_module(name: str) -> str:
    """The bundle ``static/<name>.js`` as the ES module that anywidget loads.

    Raises ``RendererMissing`` saying how to build it.
    """
    return _bundle(name) + "export default { render: hloscope.render };\n"


@cache
def _bundle(name: str) -> str:
    path = STATIC / f"{name}.js"
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RendererMissing(
            f"hloscope's renderer {path.name} is not built: run `npm ci && npm run build` in the "
            f"checkout that holds {STATIC.parent}, or install a released wheel"
        ) from None
