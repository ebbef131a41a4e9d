"""Hosts that display a value in their own way, rather than by ``_repr_mimebundle_``.

marimo calls ``_display_``, Panel ``__panel__``; Google Colab shows third-party widgets only after a
call. None of them is imported here unless it is running already.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...api.capture import Capture


def for_marimo(capture: Capture) -> Any:
    """The live widget; the offline page where anywidget is not installed."""
    try:
        from .explorer_widget import HloscopeWidget

        return HloscopeWidget(capture, **capture.display)
    except ImportError:
        import marimo

        return marimo.Html(_frame(capture))


def for_panel(capture: Capture) -> Any:
    """A pane with the offline page: it needs no comm between the page and this process."""
    import panel

    height = capture.display.get("height", 640)
    return panel.pane.HTML(_frame(capture), sizing_mode="stretch_width", min_height=height + 8)


def _frame(capture: Capture) -> str:
    from ..html import frame

    return frame(capture, height_px=capture.display.get("height", 640))


def allow_widgets_in_colab() -> None:
    """Enables third-party widgets in Colab, where a notebook has to ask; elsewhere does nothing."""
    colab = sys.modules.get("google.colab")
    if colab is not None:
        with suppress(Exception):  # an older Colab: the page is shown instead
            colab.output.enable_custom_widget_manager()
