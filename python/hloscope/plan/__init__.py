"""Choosing sizes, pipeline stages and shardings. Results are frozen, with a view.

================  ============================================================================
``search/``       ``hs.search_shardings``: what it chooses from, in what order, and the result
``stages/``       ``hs.plan_stages``, pipeline schedules, logs of Alpa's stage construction
``transformer/``  ``hs.transformer``: an analytic model
``running/``      candidates on any executor, what they cost, results on disk
================  ============================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .running.running import ray_executor as ray_executor
    from .stages.schedules import schedule as schedule
    from .transformer.volumes import METHODS as METHODS

__all__ = ["METHODS", "ray_executor", "schedule"]

_LAZY = {
    "METHODS": "transformer.volumes",
    "ray_executor": "running.running",
    "schedule": "stages.schedules",
}


def __getattr__(name: str) -> Any:
    """The public names, imported lazily: child processes of a search import this and need none."""
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
