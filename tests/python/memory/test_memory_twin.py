"""Live bytes at every point of the schedule against an interpreter that runs the program.

The interpreter walks the module as a machine would, loops step by step and branches by choice,
and notes when each value is made and last read. The bytes alive each time an instruction runs,
at most, must be what the analysis says for it without running anything.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import hloscope as hs
from hypothesis import given, settings
from hypothesis import strategies as st

STEPS = 3  # of each loop: a first, a middle and a last one
PASSES_ON = {"tuple", "get-tuple-element", "bitcast", "parameter"}


@dataclass
class Value:
    """A run-time array: made and last read at these ticks; ``place`` is -1 for what is free."""

    bytes: int
    made: int
    read: int


@dataclass
class Machine:
    """Runs a module; ``choices`` says which branch each conditional takes."""

    choices: dict[str, int]
    ticks: list[Any] = field(default_factory=list)  # the instruction at each
    values: list[Value] = field(default_factory=list)

    def make(self, i: Any) -> Value:
        value = Value(i.shape.byte_size, len(self.ticks), len(self.ticks))
        self.values.append(value)
        return value

    def run(self, computation: Any, given: list[Any]) -> Any:
        """What the root holds: a Value, or a list of what a tuple holds."""
        held: dict[int, Any] = {}
        for i in computation.instructions:
            operands = [held[o.index] for o in i.operands]
            held[i.index] = self.step(i, operands, given)
            if i.opcode not in PASSES_ON | {"while"}:
                self.read(operands)
            if i.opcode in ("while", "conditional"):
                self.read([held[i.index]])  # what it gives is there when it is done
            self.ticks.append(i)
        root = held[computation.root.index]
        self.read([root], len(self.ticks) - 1)  # what it returns is there when it returns
        return root

    def read(self, found: list[Any], tick: int | None = None) -> None:
        for x in found:
            if isinstance(x, list):
                self.read(x, tick)
            else:
                x.read = max(x.read, len(self.ticks) if tick is None else tick)

    def step(self, i: Any, operands: list[Any], given: list[Any]) -> Any:
        if i.opcode == "parameter":
            return given[i.parameter_number]
        if i.opcode == "tuple":
            return operands
        if i.opcode == "get-tuple-element":
            return operands[0][int(i.attribute("index"))]
        if i.opcode == "bitcast":
            return operands[0]
        called = dict(i.called)
        if i.opcode == "while":
            state = operands[0]
            for _ in range(STEPS):
                self.run(called["condition"], [state])
                state = self.run(called["body"], [state])
            return state
        if i.opcode == "conditional":
            taken = self.choices[i.name]
            return self.run(i.called_computations[taken], [operands[1 + taken]])
        return self.make(i)


def most_alive(module: Any) -> dict[int, int]:
    """Instruction index → bytes of temporaries alive when it runs, the most over all runs."""
    entry = module.entry
    forks = [i.name for i in module.instructions if i.opcode == "conditional"]
    most: dict[int, int] = defaultdict(int)
    for taken in itertools.product((0, 1), repeat=len(forks)):
        machine = Machine(dict(zip(forks, taken, strict=True)))
        arguments = [Value(0, 0, 0) for _ in entry.parameters]  # held throughout, not counted
        result = machine.run(entry, arguments)
        for tick, i in enumerate(machine.ticks):
            alive = {id(v): v.bytes for v in machine.values if v.made <= tick <= v.read}
            alive.pop(id(result), None)  # the output's place is held throughout
            most[i.index] = max(most[i.index], sum(alive.values()))
    return most


@dataclass
class Writer:
    """Draws a program; arrays as (name, elements). Nothing in it may share by rule.

    ``reverse`` and ``concatenate`` never write over what they read, no array fits the output,
    and what a loop carries is its own before and after, as in any module after copy insertion.
    """

    draw: Any
    computations: list[str] = field(default_factory=list)
    names: int = 0

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def pick(self, arrays: list[tuple[str, int]]) -> tuple[str, int]:
        return arrays[self.draw(st.integers(0, len(arrays) - 1))]

    def reverse(self, of: tuple[str, int], lines: list[str]) -> tuple[str, int]:
        made = self.name("r")
        lines.append(f"  {made} = f32[{of[1]}] reverse({of[0]}), dimensions={{0}}")
        return made, of[1]

    def block(self, arrays: list[tuple[str, int]], lines: list[str], depth: int) -> None:
        """Appends a few statements; what they make joins ``arrays``."""
        kinds = ["reverse", "concatenate", "slice"] + ["loop", "fork"] * (depth > 0)
        for kind in self.draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=4)):
            a, b = self.pick(arrays), self.pick(arrays)
            made = self.name("v")
            if kind == "reverse":
                arrays.append(self.reverse(a, lines))
            elif kind == "concatenate" and a[1] + b[1] <= 512:
                total = a[1] + b[1]
                lines.append(
                    f"  {made} = f32[{total}] concatenate({a[0]}, {b[0]}), dimensions={{0}}"
                )
                arrays.append((made, total))
            elif kind == "slice":
                lines.append(f"  {made} = f32[8] slice({a[0]}), slice={{[0:8]}}")
                arrays.append((made, 8))
            elif kind == "loop":
                self.loop(arrays, lines, depth)
            elif kind == "fork":
                arrays.append(self.fork(a, b, lines, depth))

    def loop(self, arrays: list[tuple[str, int]], lines: list[str], depth: int) -> None:
        count = self.draw(st.integers(1, 3))
        carried = [self.reverse(self.pick(arrays), lines) for _ in range(count)]
        n = self.name("loop")
        state = "(" + ", ".join(f"f32[{size}]" for _, size in carried) + ")"
        body = [f"  p{n} = {state} parameter(0)"]
        inside = []
        for k, (_, size) in enumerate(carried):
            body.append(f"  g{n}.{k} = f32[{size}] get-tuple-element(p{n}), index={k}")
            inside.append((f"g{n}.{k}", size))
        mine = list(inside)
        self.block(mine, body, depth - 1)
        made = [x for x in mine if x not in inside]
        results = []
        for own in inside:
            same = [x for x in made if x[1] == own[1]]
            if self.draw(st.booleans()):
                results.append(own[0])  # passed through
            elif same and self.draw(st.booleans()):
                results.append(self.reverse(self.pick(same), body)[0])
            else:  # twice: nothing is written while what lies there is read
                results.append(self.reverse(self.reverse(own, body), body)[0])
        body.append(f"  ROOT t{n} = {state} tuple({', '.join(results)})")
        condition = [f"  q{n} = {state} parameter(0)", f"  ROOT more{n} = pred[] constant(true)"]
        self.computations += [f"body{n} {{", *body, "}", f"cond{n} {{", *condition, "}"]
        lines.append(f"  i{n} = {state} tuple({', '.join(name for name, _ in carried)})")
        lines.append(f"  w{n} = {state} while(i{n}), condition=cond{n}, body=body{n}")
        for k, (_, size) in enumerate(carried):
            lines.append(f"  o{n}.{k} = f32[{size}] get-tuple-element(w{n}), index={k}")
            arrays.append((f"o{n}.{k}", size))

    def fork(self, a: Any, b: Any, lines: list[str], depth: int) -> tuple[str, int]:
        n = self.name("fork")
        for k in range(2):
            inside = [(f"x{n}.{k}", a[1]), (f"y{n}.{k}", b[1])]
            state = f"(f32[{a[1]}], f32[{b[1]}])"
            branch = [
                f"  p{n}.{k} = {state} parameter(0)",
                f"  x{n}.{k} = f32[{a[1]}] get-tuple-element(p{n}.{k}), index=0",
                f"  y{n}.{k} = f32[{b[1]}] get-tuple-element(p{n}.{k}), index=1",
            ]
            arrays = list(inside)
            self.block(arrays, branch, depth - 1)
            same = [x for x in arrays if x[1] == a[1]]
            last, size = self.reverse(self.pick(same), branch)
            branch.append(f"  ROOT z{n}.{k} = f32[{size}] bitcast({last})")
            self.computations += [f"branch{n}.{k} {{", *branch, "}"]
        lines.append(f"  t{n} = {state} tuple({a[0]}, {b[0]})")
        lines.append(f"  c{n} = pred[] constant(false)")
        lines.append(
            f"  {n} = f32[{a[1]}] conditional(c{n}, t{n}, t{n}), "
            f"branch_computations={{branch{n}.0, branch{n}.1}}"
        )
        return n, a[1]


@st.composite
def programs(draw: st.DrawFn) -> str:
    writer = Writer(draw)
    lines = ["  a = f32[8] parameter(0)", "  b = f32[24] parameter(1)"]
    arrays = [("a", 8), ("b", 24)]
    writer.block(arrays, lines, 2)
    last = writer.pick(arrays)
    lines.append(f"  ROOT end = f32[1] slice({last[0]}), slice={{[0:1]}}")
    head = ["HloModule m, is_scheduled=true"]
    return "\n".join([*head, *writer.computations, "ENTRY main {", *lines, "}", ""])


@settings(max_examples=200, deadline=None)
@given(programs())
def test_live_bytes_are_those_of_the_interpreter(text: str) -> None:
    cap = hs.read(text)
    memory, most = cap.memory, most_alive(cap.module)
    held = sum(v.bytes for v in memory.values() if v.kind in ("argument", "output"))
    flags = sum(i.shape.byte_size for i in cap.module.instructions if i.opcode == "constant")
    for point, index in enumerate(memory.schedule.tolist()):
        name = cap.module.instructions[index].name
        assert 0 <= most[index] + held - int(memory.timeline[point]) <= flags, (name, text)
    alive = max(most.values())
    assert 0 <= alive + held - int(memory.timeline.max()) <= flags
