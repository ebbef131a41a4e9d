"""How results are shown: functions of ``show/``, found by name when they are asked for.

Captures know nothing of hosts, and hosts all about captures: ``hloscope/__init__.py``, which may
know both, says where each host is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

_PLACES: dict[str, str] = {}


def register(places: Mapping[str, str]) -> None:
    """Adds hosts: name → ``module:function``, the module below ``hloscope``."""
    _PLACES.update(places)


def host(name: str) -> Callable[..., Any]:
    """The function of that name, imported now."""
    module, _, function = _PLACES[name].partition(":")
    found: Callable[..., Any] = getattr(import_module(f"hloscope.{module}"), function)
    return found
