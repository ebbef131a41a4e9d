"""Names by which policies of ``jax.checkpoint`` would keep values, and keep none.

A traced program that is differentiated has the policy with each backward pass, and what it
offloads as a transfer from the named value:

    q = name[name=residual] p        a scan's body hands q on: the next trip's checkpoint keeps it
    d = name[name=carry] a           as its argument, on the device, and asks no policy
    e:f32<host> = device_put d       this is offloaded

A name that a policy lists and no value has may be meant for another model; it is taken for a
mistake where the policy then keeps nothing at all, or where the program has one that is almost
the same and that the policy does not list.
"""

from __future__ import annotations

import difflib
from typing import Any

from ..hlo import StackFrame, UnmetName
from ..hlo.texts.places import is_library, own_line
from .cells import Cells
from .compat import jax_api as _compat

HANDED_ON, UNUSED, UNNAMED = "handed on", "unused", "unnamed"
SAVE, OFFLOAD = "save", "offload"

# Of difflib's ratio, 0 to 1: "atn_out" and "attn_out" have 0.93, "q_proj" and "k_proj" 0.83.
ALMOST_THE_SAME = 0.85


def unmet_names(traced: Any, cells: Cells) -> tuple[UnmetName, ...]:
    """The names by which the policies of a program keep nothing; () where each keeps some."""
    policies: dict[tuple[frozenset[str], frozenset[str], bool], Any] = {}
    named: dict[str, list[tuple[Any, bool]]] = {}
    offloads = False
    for eqn, inner in _compat.equations(getattr(traced, "jaxpr", None)):
        name = _compat.value_name(eqn)
        if name:
            moved, handed_on = _kept(eqn, inner)
            offloads = offloads or moved
            named.setdefault(name, []).append((eqn, handed_on))
        listed = _compat.policy_names(eqn)
        if listed is not None:
            saved, offloaded, alone = listed
            policies.setdefault((frozenset(saved), frozenset(offloaded), alone), eqn)
    known = tuple(sorted(named))
    found: dict[tuple[str, str], UnmetName] = {}
    for (to_save, to_offload, alone), eqn in policies.items():
        every = to_save | to_offload
        nothing = alone and not any(name in named for name in every)
        # the backward pass of a scan has no line of its own: that of a value with a name
        places = [eqn, *(rows[0][0] for rows in named.values())]
        frame = next((f for f in (_frame(e, cells) for e in places) if f is not None), None)
        if nothing and not every and known:
            found[SAVE, ""] = UnmetName("", SAVE, UNNAMED, known, "", True, frame)
        for how, names in ((SAVE, to_save), (OFFLOAD, to_offload)):
            for name in sorted(names - set(named)):
                near = _near(name, known, every)
                if near or nothing:
                    row = UnmetName(name, how, UNNAMED, known, near, nothing, frame)
                    found.setdefault((how, name), row)
        if not offloads:
            for name in sorted(to_offload & set(named)):
                rows = named[name]
                carried = next((e for e, handed_on in rows if handed_on), None)
                why = UNUSED if carried is None else HANDED_ON
                at = _frame(rows[0][0] if carried is None else carried, cells)
                found.setdefault((OFFLOAD, name), UnmetName(name, OFFLOAD, why, known, frame=at))
    return tuple(found.values())


def _near(name: str, known: tuple[str, ...], listed: frozenset[str]) -> str:
    """The name of the program that was likely meant; "" if there is none, or it is listed too."""
    others = [k for k in known if k not in listed]
    folded = {k.lower().replace("-", "_"): k for k in others}
    close = difflib.get_close_matches(
        name.lower().replace("-", "_"), list(folded), 1, ALMOST_THE_SAME
    )
    return folded[close[0]] if close else ""


def _kept(eqn: Any, inner: Any) -> tuple[bool, bool]:
    """Whether a named value is transferred, and whether the jaxpr that it is in returns it."""
    out = eqn.outvars[0]
    users = (e for e in inner.eqns if any(v is out for v in e.invars))
    moved = any(e.primitive.name == "device_put" for e in users)
    return moved, any(v is out for v in inner.outvars)


def _frame(eqn: Any, cells: Cells) -> StackFrame | None:
    """The person's line of an equation; None where all frames are libraries'."""
    own = own_line(
        [
            StackFrame(cells.file(at.file_name), at.start_line, at.function_name)
            for at in _compat.user_frames(eqn.source_info)
        ]
    )
    return None if own is None or is_library(own.file) else own
