"""See what XLA made of a JAX function.

    >>> import hloscope as hs
    >>> cap = hs.capture(step, params, batch)     # jitted or plain function, Lowered, Compiled
    >>> cap                                       # the explorer, in a notebook
    >>> cap.to_html("step.html")                  # one offline file
    >>> hs.read("module_0001.jit_step.txt")       # a dump

Importing hloscope imports neither jax nor IPython nor anywidget, nor anything else of weight: every
name is imported when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .api import hosts

if TYPE_CHECKING:
    from . import results
    from .analysis.check.check import check
    from .analysis.check.result import BudgetError
    from .api.baseline import write_baseline
    from .api.capture import CannotAnswer, Capture
    from .api.compared import diff
    from .api.live import live
    from .api.programs import read_programs
    from .api.read import read
    from .capturing import CaptureError, capture, run, watch
    from .hardware import HardwareError
    from .hlo.changes import CannotChange
    from .plan.comparing.compare import compare
    from .plan.comparing.largest import largest
    from .plan.running.options import ProofOptions, SearchOptions, StageOptions
    from .plan.running.store import StoreError
    from .plan.search.search import search_shardings
    from .plan.stages.read import read_stage_log
    from .plan.stages.stages import plan_stages
    from .plan.transformer.transformer import transformer
    from .readers import ReadError, list_modules
    from .readers.alpa_log import StageLogError
    from .show.dot import DotFailed, DotMissing
    from .show.static import RendererMissing

__version__ = "0.1.0"

__all__ = [
    "BudgetError",
    "CannotAnswer",
    "CannotChange",
    "Capture",
    "CaptureError",
    "DotFailed",
    "DotMissing",
    "HardwareError",
    "ProofOptions",
    "ReadError",
    "RendererMissing",
    "SearchOptions",
    "StageLogError",
    "StageOptions",
    "StoreError",
    "capture",
    "check",
    "compare",
    "diff",
    "largest",
    "list_modules",
    "live",
    "plan_stages",
    "read",
    "read_programs",
    "read_stage_log",
    "results",
    "run",
    "search_shardings",
    "transformer",
    "watch",
    "write_baseline",
]

_LAZY = {
    "CannotAnswer": "api.capture",
    "CannotChange": "hlo.changes",
    "Capture": "api.capture",
    "BudgetError": "analysis.check.result",
    "HardwareError": "hardware",
    "StageLogError": "readers.alpa_log",
    "ProofOptions": "plan.running.options",
    "SearchOptions": "plan.running.options",
    "StageOptions": "plan.running.options",
    "StoreError": "plan.running.store",
    "DotMissing": "show.dot",
    "DotFailed": "show.dot",
    "RendererMissing": "show.static",
    "results": "results",
    "capture": "capturing",
    "check": "analysis.check.check",
    "diff": "api.compared",
    "CaptureError": "capturing",
    "read": "api.read",
    "read_programs": "api.programs",
    "read_stage_log": "plan.stages.read",
    "list_modules": "readers",
    "live": "api.live",
    "ReadError": "readers",
    "compare": "plan.comparing.compare",
    "largest": "plan.comparing.largest",
    "plan_stages": "plan.stages.stages",
    "search_shardings": "plan.search.search",
    "transformer": "plan.transformer.transformer",
    "run": "capturing",
    "watch": "capturing",
    "write_baseline": "api.baseline",
}


# How a capture and other results are shown: what is in ``show/`` knows them, and not the reverse.
_HOSTS = {
    "summary": "show.text:summary_text",
    "page": "show.html:page",
    "dot": "show.dot:digraph",
    "svg": "show.dot:svg",
    "live arrays": "capturing.live:live_arrays",
    "leaves": "capturing.live:leaves",
    "perfetto": "show.perfetto:to_perfetto",
    "reproducer": "show.reproducer:to_reproducer",
    "markdown": "show.markdown:report",
    "compared markdown": "show.markdown:compared",
    "mimebundle": "show.notebook.widget:mimebundle",
    "marimo": "show.notebook.hosts:for_marimo",
    "panel": "show.notebook.hosts:for_panel",
    "compared page": "show.pages.compared:page",
    "compared frame": "show.pages.compared:frame",
    "watched page": "show.pages.watch_view:page_of",
    "remat options": "plan.comparing.compare:remat_options",
    "option sweep": "plan.comparing.compare:option_sweep",
    "prove": "plan.proving.prove:prove",
    "same values": "capturing.changing.same_values:same_values",
    "what if": "capturing.changing.what_if:what_if",
    "watched bundle": "show.pages.watch_view:bundle",
    "result page": "show.pages.results_view:page_of",
    "result bundle": "show.pages.results_view:bundle",
    "progress": "show.status_line:StatusLine",
}
hosts.register(_HOSTS)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        module = import_module(f".{_LAZY[name]}", __name__)
        value = module if name == _LAZY[name] else getattr(module, name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, for tab completion."""
    return [*__all__, "__version__"]


def load_ipython_extension(ipython: Any) -> None:
    """``%load_ext hloscope``: registers the ``%hlo`` magic."""
    from .show.notebook.magic import load

    load(ipython)
