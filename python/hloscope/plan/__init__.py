"""Choosing sizes, pipeline stages and shardings. Results are frozen, with a view.

========================  =======================================================================
``search*.py``            ``hs.search_shardings``; ``space.py`` what it chooses from,
``strategy.py``
                          in what order, ``figures.py`` what it ranks by, ``constraints.py``
``running.py``            candidates on any executor; ``children.py``, ``child.py`` their processes,
                          ``store.py`` results on disk
``stages.py``             ``hs.plan_stages``
``transformer*.py``       ``hs.transformer``: analytic model; ``volumes.py``, ``rates.py`` with it
``alpa_log.py``           reads a log of Alpa's stage construction; ``stage_log.py`` its result
``stage_*.py``            pipeline stages: choices, exact solver, plan, text and view
``schedules.py``          GPipe, 1F1B, interleaved, zero-bubble
``page.py``, ``widget.py``  results as an offline page and as a widget; drawn by ``js/plan/``
========================  =======================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .running import ray_executor as ray_executor
    from .schedules import schedule as schedule
    from .volumes import METHODS as METHODS

__all__ = ["METHODS", "ray_executor", "schedule"]

_LAZY = {"METHODS": "volumes", "ray_executor": "running", "schedule": "schedules"}


def __getattr__(name: str) -> Any:
    """The public names, imported lazily: child processes of a search import this and need none."""
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
