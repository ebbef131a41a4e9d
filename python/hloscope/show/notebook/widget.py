"""How a capture shows itself as the last line of a cell.

===========================================  ==================================================
``application/vnd.jupyter.widget-view+json``  the live explorer, while the kernel is there
``text/html``                                 the same explorer, offline: exports, saved files
``text/plain``                                a summary
``application/vnd.hloscope.view+json``        for our JupyterLab renderer and its side panel
===========================================  ==================================================

nbconvert takes the widget when its state was saved with the notebook, and then needs the
network; else text/html. Its own runs (``--execute``, papermill, documentation builders) always
save the state, so there the bundle has no widget: see ``someone_is_there``.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...api.capture import Capture
    from .explorer_widget import HloscopeWidget

MARKER = "application/vnd.hloscope.view+json"
WIDGET = "application/vnd.jupyter.widget-view+json"


def widget(capture: Capture, **options: Any) -> HloscopeWidget:
    """A live widget of the capture. Raises ``ImportError`` without anywidget."""
    from .explorer_widget import HloscopeWidget

    return HloscopeWidget(capture, **options)


def mimebundle(capture: Capture) -> tuple[dict[str, Any], dict[str, Any]]:
    """(data, metadata) for ``_repr_mimebundle_``; without a front end or anywidget, no widget."""
    from ..html import frame
    from ..shown import mark
    from ..text import quick_summary, summary_text
    from .hosts import allow_widgets_in_colab

    data: dict[str, Any] = {
        "text/plain": summary_text(capture, quick_summary(capture)),
        "text/html": frame(
            capture,
            height_px=capture.display.get("height", 640),
            at_once=someone_is_there(),
        ),
        MARKER: mark(capture),
    }
    if someone_is_there():
        allow_widgets_in_colab()
        with suppress(ImportError):  # without anywidget the page is the same explorer
            data |= _view_only(widget(capture, **capture.display))
    return data, {}


def _view_only(made: HloscopeWidget) -> dict[str, Any]:
    found = made._repr_mimebundle_()
    bundle = found[0] if isinstance(found, tuple) else found
    return {WIDGET: bundle[WIDGET]} if bundle and WIDGET in bundle else {}


def someone_is_there() -> bool:
    """Whether a front end that can talk to a widget runs this cell.

    Needs a Jupyter kernel, and a request that allows input: Jupyter, VS Code and Colab do,
    nbclient (so nbconvert, papermill, sphinx and quarto builds) does not.
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    kernel = getattr(shell, "kernel", None)
    return kernel is not None and bool(getattr(kernel, "_allow_stdin", True))
