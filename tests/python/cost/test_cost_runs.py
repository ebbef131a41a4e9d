"""How often things run and how long loop values live, against loops run by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import hloscope as hs
from hypothesis import given, settings
from hypothesis import strategies as st

STATE = "(s32[], f32[4])"


@dataclass
class Loop:
    """``for i in range(start, bound, step)``: an op of its own, then the loops inside."""

    start: int
    bound: int
    step: int
    inside: list[Loop] = field(default_factory=list)


def loops(depth: int) -> st.SearchStrategy[Loop]:
    inside = st.lists(loops(depth - 1), max_size=2) if depth else st.just([])
    return st.builds(Loop, st.integers(-3, 3), st.integers(-3, 9), st.integers(1, 4), inside)


def program(top: list[Loop]) -> tuple[str, dict[int, str]]:
    """HLO text, and by id of each Loop the name of the op that each of its steps runs."""
    computations: list[str] = []
    ops: dict[int, str] = {}

    def whiles(level: list[Loop], value: str, lines: list[str]) -> str:
        for loop in level:
            k = len(ops)
            ops[id(loop)] = f"op{k}"
            body = [
                f"  c{k} = {STATE} parameter(0)",
                f"  i{k} = s32[] get-tuple-element(c{k}), index=0",
                f"  v{k} = f32[4] get-tuple-element(c{k}), index=1",
                f"  step{k} = s32[] constant({loop.step})",
                f"  next{k} = s32[] add(i{k}, step{k})",
                f"  op{k} = f32[4] tanh(v{k})",
            ]
            last = whiles(loop.inside, f"op{k}", body)
            body.append(f"  ROOT r{k} = {STATE} tuple(next{k}, {last})")
            computations.append(
                f"body{k} {{\n" + "\n".join(body) + "\n}\n"
                f"cond{k} {{\n  d{k} = {STATE} parameter(0)\n"
                f"  j{k} = s32[] get-tuple-element(d{k}), index=0\n"
                f"  bound{k} = s32[] constant({loop.bound})\n"
                f"  ROOT less{k} = pred[] compare(j{k}, bound{k}), direction=LT\n}}"
            )
            lines += [
                f"  from{k} = s32[] constant({loop.start})",
                f"  in{k} = {STATE} tuple(from{k}, {value})",
                f"  w{k} = {STATE} while(in{k}), condition=cond{k}, body=body{k}",
                f"  out{k} = f32[4] get-tuple-element(w{k}), index=1",
            ]
            value = f"out{k}"
        return value

    entry = ["  x = f32[4] parameter(0)"]
    result = whiles(top, "x", entry)
    entry.append(f"  ROOT end = f32[4] exponential({result})")
    head = "HloModule m, is_scheduled=true\n"
    return head + "\n".join([*computations, "ENTRY main {", *entry, "}"]), ops


def run(level: list[Loop], counts: Counter[int]) -> None:
    for loop in level:
        for _ in range(loop.start, loop.bound, loop.step):
            counts[id(loop)] += 1
            run(loop.inside, counts)


@settings(max_examples=60, deadline=None)
@given(st.lists(loops(2), min_size=1, max_size=2))
def test_executions_of_nested_loops_are_the_loops_run_by_hand(top: list[Loop]) -> None:
    text, ops = program(top)
    counts: Counter[int] = Counter()
    run(top, counts)
    cap = hs.read(text)
    cost = cap.cost("cpu")
    for loop, name in ops.items():
        assert cost.row(cap.module.find(name).index).runs == counts[loop], text
    # 4 lanes of tanh or exponential each
    assert cost.total_transcendentals == 4 * (sum(counts.values()) + 1)
    assert cost.unknown_trip_counts == ()


@settings(max_examples=60, deadline=None)
@given(st.lists(loops(2), min_size=1, max_size=2))
def test_live_ranges_hold_every_use(top: list[Loop]) -> None:
    """A value is live from where it is made to its last reader, at whatever depth of loops."""
    text, _ = program(top)
    cap = hs.read(text)
    memory = cap.memory
    at = {n: t for t, n in enumerate(memory.liveness.schedule.tolist())}
    for v in memory.values():
        made = v.instruction
        if made.index not in at:
            continue
        uses = [at[u.index] for u in made.users if u.index in at]
        assert v.end >= max([v.start, *uses]), (v.name, text)
    # the state is carried in place: argument, result, the counters and at most a copy or two
    arrays = sum(v.bytes for v in memory.live_at_peak if v.instruction.shape.rank == 1)
    assert arrays <= 4 * 16


UNKNOWN = """HloModule m

%inner_body (b: f32[4]) -> f32[4] {
  %b = f32[4]{0} parameter(0)
  ROOT %inner_op = f32[4]{0} negate(%b)
}

%inner_condition (a: f32[4]) -> pred[] {
  %a = f32[4]{0} parameter(0)
  %inner_sine = f32[4]{0} sine(%a)
  ROOT %inner_go = pred[] custom-call(%inner_sine), custom_call_target="ask"
}

%body (d: f32[4]) -> f32[4] {
  %d = f32[4]{0} parameter(0)
  ROOT %inner = f32[4]{0} while(%d), condition=%inner_condition, body=%inner_body
}

%condition (c: f32[4]) -> pred[] {
  %c = f32[4]{0} parameter(0)
  %sine = f32[4]{0} sine(%c)
  ROOT %go = pred[] custom-call(%sine), custom_call_target="ask"
}

ENTRY %main (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %outer = f32[4]{0} while(%p), condition=%condition, body=%body
}
"""


@given(st.integers(2, 50), st.integers(2, 50))
def test_the_views_columns_give_the_executions_for_counts_set_by_hand(n: int, m: int) -> None:
    """What the browser multiplies: runs × the loops around × trips, one more in conditions."""
    cap = hs.read(UNKNOWN)
    found = cap.cost().execution
    names = [i.name for i in found.unknown]
    trips = {"outer": n, "inner": m}
    want = cap.cost(trips=trips).execution.runs
    for computation, row in enumerate(found.loop.tolist()):
        expected = found.runs[computation]
        if row >= 0:
            expected *= trips[names[row]] + bool(found.condition[computation])
            parent = found.unknown_parent[row]
            while parent >= 0:
                expected *= trips[names[parent]]
                parent = found.unknown_parent[parent]
        assert expected == want[computation]
