"""The built renderer, ``static/widget.js`` and ``snapshot.js``, made by ``npm run build``."""

from __future__ import annotations

from functools import cache
from pathlib import Path

STATIC = Path(__file__).resolve().parent.parent / "static"


class RendererMissing(FileNotFoundError):
    """The renderer was not built; only a source checkout can be in this state."""


@cache
def script(name: str) -> str:
    """Text of ``static/<name>``. Raises ``RendererMissing`` saying how to build it."""
    path = STATIC / name
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RendererMissing(
            f"hloscope's renderer {name} is not built: run `npm ci && npm run build` in the "
            f"checkout that holds {STATIC.parent}, or install a released wheel"
        ) from None
