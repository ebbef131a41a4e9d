# ruff: noqa: E501
"""Which of a trace's programs a module is, in traces written by hand."""

from __future__ import annotations

from typing import Any

from hloscope.readers.proto.proto import read_proto
from hloscope.readers.xplane.match import match, same_programs
from hloscope.readers.xplane.xplane import OpTime, Trace, TracedProgram
from test_xplane_rows import NONE, module_proto


def op(key: Any, name: str, seconds: float, device: int = 0) -> OpTime:
    return OpTime(key[0], name, device, seconds, 1, seconds, key[1])


def trace_of(
    ops: list[OpTime], programs: dict[Any, bytes], runs: dict[Any, int] | None = None
) -> Trace:
    runs = runs or {}
    return Trace(
        tuple(ops), tuple(TracedProgram(*k, p) for k, p in programs.items()), runs, {}, {},
        spans={k: 0.5 * n for k, n in runs.items()},
    )  # fmt: skip


def test_a_module_is_the_program_that_is_most_alike() -> None:
    """Of programs 1 to 4: the same compile, half of it, of no HLO, and under another name."""
    module = read_proto(module_proto("jit_a", "x y"))
    p1, p2, p3, p4 = ("jit_a", 1), ("jit_a", 2), ("jit_a", 3), ("jit_z", 4)
    same, half = module_proto("jit_a", "x y"), module_proto("jit_a", "x z")
    both = [op(p1, "x", 1.0), op(p2, "x", 9.0), op(NONE, "y", 2.0), op(p4, "x", 5.0, 1)]
    found = match(
        trace_of(both, {p1: same, p2: half}, {(p1, 0): 3, (p2, 0): 8, (NONE, 0): 1}), module
    )
    assert found.rows == {(*p1, 0), (*NONE, 0)}
    assert found.by_device == {0: 4}
    assert found.executions == 4
    assert found.spans == {0: 2.0}
    assert found.notes == ()
    assert both[0] in found
    assert both[1] not in found
    assert same_programs(trace_of(both, {p1: same, p2: half}), module) == {p1}
    # none is the same: on each device the one that is nearest
    far = module_proto("jit_a", "u v")
    found = match(trace_of([op(p1, "x", 9.0), op(p2, "x", 1.0)], {p1: far, p2: half}), module)
    assert found.rows == {(*p2, 0)}
    assert found.executions is None
    assert found.by_device == {}
    assert found.notes == (
        "the trace is of another compile of jit_a (program 2): 50 % of the instructions have the same name, "
        "opcode and shape in both; times are joined by name",
    )  # fmt: skip
    assert same_programs(trace_of([op(p2, "x", 1.0)], {p2: half}), module) == {p2}
    # no HLO: the one more of whose time has a name here, then the one with more of it
    rows_ = [
        op(p1, "x", 1.0),
        op(p1, "?", 1.0),
        op(p2, "x", 3.0),
        op(p2, "?", 1.0),
        op(p3, "x", 1.5),
        op(p3, "?", 0.5),
    ]
    found = match(trace_of(rows_, {}, {(p2, 0): 2}), module)
    assert found.rows == {(*p2, 0)}
    assert found.executions == 2
    assert found.notes == (
        "the trace does not carry the HLO of jit_a: times are joined by name, and whether it ran this very "
        "compile cannot be checked",
    )
    # the same under another name, on two devices
    other = module_proto("jit_z", "x y")
    rows_ = [op(p4, "x", 1.0), op(p4, "x", 1.0, 1), op(("jit_q", 5), "x", 1.0)]
    found = match(
        trace_of(rows_, {p4: other, ("jit_q", 5): b"broken"}, {(p4, 0): 3, (p4, 1): 6}), module
    )
    assert found.rows == {(*p4, 0), (*p4, 1)}
    assert found.by_device == {0: 3, 1: 6}
    assert found.executions == 4
    assert found.notes == ("the trace calls this program jit_z",)
    assert match(trace_of([], {}), module).rows == frozenset()
    nothing = match(trace_of([op(("jit_q", 5), "x", 1.0)], {}), module)
    assert nothing.rows == frozenset()
    assert nothing.notes == ()
    assert same_programs(trace_of([op(NONE, "x", 1.0)], {}), module) == set()
