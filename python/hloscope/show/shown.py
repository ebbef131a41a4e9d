"""Captures that were shown in this process, for JupyterLab's side panel.

    mimebundle ── mark(capture) ──▶ marker in the output: what the panel lists, kernel or none
                        │
                        ▼
                 weak references ◀── listing(), page(id), comparison(a, b): asked by the panel
                                     when the kernel is idle, as user_expressions

Being listed keeps no capture alive. Identifiers are of this process, so those of a kernel
that has ended match nothing.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from math import isfinite
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from .text import quick_summary

if TYPE_CHECKING:
    from ..api.capture import Capture

VERSION = 1

_shown: WeakValueDictionary[str, Capture] = WeakValueDictionary()


class Json:
    """A value that IPython sends as ``application/json``."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"application/json": self.value}


def mark(capture: Capture) -> dict[str, Any]:
    """Remembers the capture and describes it: plain values, sizes in bytes per device.

    None if a figure is not known; ``wire_bytes`` is a lower bound where ``wire_is_least``, and
    counts one trip of a loop that may run 0 times where ``wire_is_one_trip``.
    """
    summary = quick_summary(capture)  # a large module is shown before it is analysed
    devices = capture.target.devices
    transfers = summary.get("collectives")
    rows = transfers or []
    return {
        "version": VERSION,
        "id": _remember(capture),
        "name": _names([capture]).get(id(capture), ""),
        "title": capture.title,
        "module": capture.module.name,
        "stage": capture.stage,
        "origin": capture.file,
        "devices": f"{len(devices)} × {capture.target.device_kind}" if devices else "",
        "instructions": summary["instructions"],
        "peak_bytes": _known(summary.get("peak_live_bytes")),
        "collectives": None if transfers is None else sum(row["count"] for row in rows),
        "wire_bytes": None if transfers is None else _known(summary.get("wire_bytes")),
        "wire_is_least": any(row.get("lower_bound") for row in rows)
        and not any(row.get("one_trip") for row in rows),
        "wire_is_one_trip": any(row.get("one_trip") for row in rows),
        "shown": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def listing() -> Json:
    """Identifier → name of the variable that holds it, or "", of captures that are alive."""
    alive = dict(_shown)
    names = _names(alive.values())
    return Json({key: names.get(id(capture), "") for key, capture in alive.items()})


def page(key: str) -> Json:
    """The capture as one offline page. Raises ``LookupError`` when it is gone."""
    return Json(_find(key).html())


def comparison(key: str, other: str) -> Json:
    """What differs between two captures, as a page. Raises ``LookupError`` when one is gone."""
    from ..api.compared import diff

    return Json(diff(_find(key), _find(other)).html())


def _find(key: str) -> Capture:
    found = _shown.get(key)
    if found is None:
        raise LookupError("this capture is gone: run its cell again")
    return found


def _remember(capture: Capture) -> str:
    for key, known in _shown.items():
        if known is capture:
            return key
    key = uuid.uuid4().hex[:12]
    _shown[key] = capture
    return key


def _names(captures: Iterable[Capture]) -> dict[int, str]:
    """id of a capture → its variable in the notebook; the first one that is not ``_…``."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    variables = dict(getattr(shell, "user_ns", None) or {})
    wanted = set(map(id, captures))
    return {
        id(value): name
        for name, value in reversed(variables.items())
        if id(value) in wanted and not name.startswith("_")
    }


def _known(value: float | None) -> int | None:
    return None if value is None or not isfinite(value) else int(value)
