"""Policies of ``jax.checkpoint`` that would offload values, and offload none.

A traced program that is differentiated has the policy with each backward pass, and what it
offloads as a transfer from the named value:

    q = name[name=residual] p        a scan's body hands q on: the next trip's checkpoint keeps it
    d = name[name=carry] a           as its argument, on the device, and asks no policy
    e:f32<host> = device_put d       this is offloaded
"""

from __future__ import annotations

from typing import Any

from ..hlo import StackFrame, Unoffloaded
from .cells import Cells
from .compat import jax_api as _compat

HANDED_ON, UNUSED, UNNAMED = "handed on", "unused", "unnamed"


def unoffloaded(traced: Any, cells: Cells) -> tuple[Unoffloaded, ...]:
    """The names that policies would offload, if no value of them is; () where one may be."""
    wanted: dict[str, Any] = {}
    named: dict[str, list[tuple[Any, bool]]] = {}
    for eqn, inner in _compat.equations(getattr(traced, "jaxpr", None)):
        name = _compat.value_name(eqn)
        if name:
            moved, handed_on = _kept(eqn, inner)
            if moved:
                return ()
            named.setdefault(name, []).append((eqn, handed_on))
        for offloaded in _compat.offloaded_names(eqn):
            wanted.setdefault(offloaded, eqn)
    found = []
    for name, at in sorted(wanted.items()):
        rows = named.get(name, [])
        carried = next((eqn for eqn, handed_on in rows if handed_on), None)
        why = UNNAMED if not rows else HANDED_ON if carried is not None else UNUSED
        eqn = carried if carried is not None else rows[0][0] if rows else at
        found.append(Unoffloaded(name, why, _frame(eqn, cells)))
    return tuple(found)


def _kept(eqn: Any, inner: Any) -> tuple[bool, bool]:
    """Whether a named value is transferred, and whether the jaxpr that it is in returns it."""
    out = eqn.outvars[0]
    users = (e for e in inner.eqns if any(v is out for v in e.invars))
    moved = any(e.primitive.name == "device_put" for e in users)
    return moved, any(v is out for v in inner.outvars)


def _frame(eqn: Any, cells: Cells) -> StackFrame | None:
    for at in _compat.user_frames(eqn.source_info):
        return StackFrame(cells.file(at.file_name), at.start_line, at.function_name)
    return None
