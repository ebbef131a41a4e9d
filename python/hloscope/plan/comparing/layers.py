"""The functions of the person's that are layers: what a checkpoint would go around.

    step ─ loss ─┬─ embed
                 ├─ Block.__call__ ─ attention      the derivative goes through it twelve times:
                 ├─ Block.__call__ ─ attention      a layer; attention is inside of one
                 └─ head

A layer is called several times in what is differentiated, or is in a loop there. Most of what it
does is differentiated: an optimiser's function is none. Of functions in one another it is the
outermost that has a name.
"""

from __future__ import annotations

from collections import defaultdict

from ...api.capture import Capture
from ...hlo.origins.operations import Operation
from ...hlo.origins.python_calls import PythonCall

# Of the operations that are differentiated. Less are helpers beside the layers: a norm at the end.
LEAST_SHARE = 0.1

# Of the operations of a function: constants in it, such as a mask, are not.
MOST_OF_IT = 0.5

_Key = tuple[str, str, int]  # function, file, line


def layer_functions(cap: Capture) -> tuple[str, ...]:
    """Their names, those with most operations first; () where there are none or it is unknown."""
    origins = cap.module.origins
    if origins is None:
        return ()
    operations = origins.operations
    derived = _within(operations, [_is_differentiated(o) for o in operations])
    if not derived:
        return ()
    looped = _within(
        operations, [o.opcode == "while" and _is_differentiated(o) for o in operations]
    )
    looped -= {o.number for o in operations if o.opcode == "while" and o.owner not in looped}
    rows = {o.number: _stacks(cap, o) for o in operations}
    every: dict[_Key, list[int]] = defaultdict(list)
    for number, stacks in rows.items():
        for key in {_key(c) for stack in stacks for c in stack}:
            every[key].append(number)

    def is_layer(call: PythonCall) -> bool:
        own = every[_key(call)]
        is_again = call.of > 1 or all(n in looped for n in own if n in derived)
        return _is_named(call) and is_again and len(derived & set(own)) >= MOST_OF_IT * len(own)

    holds: dict[_Key, int] = defaultdict(int)
    inside: set[_Key] = set()
    for number in derived:
        for stack in rows[number]:
            layers = [_key(c) for c in stack if is_layer(c)]
            if layers:
                holds[layers[0]] += 1
                inside |= set(layers[1:]) - {layers[0]}
    least = LEAST_SHARE * len(derived)
    kept = [k for k, n in holds.items() if n >= least and k not in inside]
    kept.sort(key=lambda k: -holds[k])
    return tuple(name.replace("<locals>.", "") for name, _, _ in kept)


def _is_differentiated(o: Operation) -> bool:
    return "jvp(" in o.name or "transpose(" in o.name


def _within(operations: tuple[Operation, ...], chosen: list[bool]) -> set[int]:
    """The chosen ones, what their regions hold, and what is in functions called there."""
    found: set[int] = set()
    called: set[str] = set()
    before = -1
    while len(called) > before:
        before = len(called)
        for o, is_chosen in zip(operations, chosen, strict=True):
            if is_chosen or o.owner in found or o.function in called:
                found.add(o.number)  # an owner is printed before what it owns
                called |= {o.callee} - {""}
    return found


def _stacks(cap: Capture, o: Operation) -> list[tuple[PythonCall, ...]]:
    """The calls around an operation, outermost first, for each way to it."""
    assert cap.module.origins is not None
    python = cap.module.origins.python
    return [python.stack(call) for call in python.of_operation(o.number)]


def _key(call: PythonCall) -> _Key:
    return call.function, call.file, call.begins


def _is_named(call: PythonCall) -> bool:
    return not call.name.rpartition(".")[2].startswith("<")
