"""How often everything runs, against an interpreter that runs the program step by step.

Programs are loops in loops, branches in loops and loops in branches; some loops do not say how
often they run, and some counts are set by hand.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import hloscope as hs
from hloscope.analysis.base.loops.trips import multiplicity
from hypothesis import assume, given, settings
from hypothesis import strategies as st

STATE = "(s32[], f32[1024])"


@dataclass(eq=False)
class Op:
    """Some multiplications of 1,024 numbers each: loops and branches weigh nothing beside."""

    weight: int


@dataclass(eq=False)
class Loop:
    """``for i in range(start, bound, step)``; with ``hidden`` the bound is not in the text."""

    start: int
    bound: int
    step: int
    hidden: bool
    body: Block
    given: int | None = None  # a trip count set by hand

    @property
    def trips(self) -> int:
        """As told: by hand, by the text, else counted once."""
        if self.given is not None:
            return self.given
        return 1 if self.hidden else len(range(self.start, self.bound, self.step))


@dataclass(eq=False)
class Fork:
    branches: list[Block]


Block = list["Op | Loop | Fork"]


def blocks(depth: int) -> st.SearchStrategy[Block]:
    ops = st.builds(Op, st.integers(1, 5))
    if depth == 0:
        return st.lists(ops, min_size=1, max_size=2)
    inner = blocks(depth - 1)
    loops = st.builds(
        Loop,
        st.integers(-3, 3),
        st.integers(-3, 7),
        st.integers(1, 4),
        st.booleans(),
        inner,
        st.one_of(st.none(), st.none(), st.integers(0, 5)),
    )
    forks = st.builds(Fork, st.lists(inner, min_size=2, max_size=3))
    return st.lists(st.one_of(ops, loops, forks), min_size=1, max_size=3)


@dataclass
class Text:
    """HLO text of a program; names of what each of its parts became."""

    computations: list[str] = field(default_factory=list)
    ops: dict[int, str] = field(default_factory=dict)  # an Op's first multiplication
    loops: dict[int, int] = field(default_factory=dict)  # a Loop's number
    forks: int = 0

    def write(self, block: Block, value: str, lines: list[str]) -> str:
        """Appends a block to a computation; the name of what it makes of ``value``."""
        for part in block:
            k = len(self.ops) + len(self.computations)
            if isinstance(part, Op):
                for n in range(part.weight):
                    lines.append(f"  m{k}.{n} = f32[1024] multiply({value}, {value})")
                    value = f"m{k}.{n}"
                self.ops[id(part)] = f"m{k}.0"
            elif isinstance(part, Loop):
                value = self.loop(part, value, lines)
            else:
                value = self.fork(part, value, lines)
        return value

    def loop(self, part: Loop, value: str, lines: list[str]) -> str:
        k = len(self.loops)
        self.loops[id(part)] = k
        body = [
            f"  c{k} = {STATE} parameter(0)",
            f"  i{k} = s32[] get-tuple-element(c{k}), index=0",
            f"  v{k} = f32[1024] get-tuple-element(c{k}), index=1",
            f"  step{k} = s32[] constant({part.step})",
            f"  next{k} = s32[] add(i{k}, step{k})",
        ]
        last = self.write(part.body, f"v{k}", body)
        body.append(f"  ROOT r{k} = {STATE} tuple(next{k}, {last})")
        bound = 'custom-call(j{k}), custom_call_target="Pin"' if part.hidden else "constant({b})"
        condition = [
            f"  d{k} = {STATE} parameter(0)",
            f"  j{k} = s32[] get-tuple-element(d{k}), index=0",
            f"  bound{k} = s32[] " + bound.format(k=k, b=part.bound),
            f"  ROOT less{k} = pred[] compare(j{k}, bound{k}), direction=LT",
        ]
        self.computations += [computation(f"body{k}", body), computation(f"cond{k}", condition)]
        lines += [
            f"  from{k} = s32[] constant({part.start})",
            f"  in{k} = {STATE} tuple(from{k}, {value})",
            f"  w{k} = {STATE} while(in{k}), condition=cond{k}, body=body{k}",
            f"  out{k} = f32[1024] get-tuple-element(w{k}), index=1",
        ]
        return f"out{k}"

    def fork(self, part: Fork, value: str, lines: list[str]) -> str:
        k = self.forks
        self.forks += 1
        names = []
        for branch in part.branches:
            n = f"branch{k}.{len(names)}"
            inside = [f"  p{n} = f32[1024] parameter(0)"]
            last = self.write(branch, f"p{n}", inside)
            inside.append(f"  ROOT t{n} = f32[1024] bitcast({last})")
            self.computations.append(computation(n, inside))
            names.append(n)
        lines += [
            f"  which{k} = s32[] constant(0)",
            f"  f{k} = f32[1024] conditional(which{k}, {', '.join([value] * len(names))}), "
            f"branch_computations={{{', '.join(names)}}}",
        ]
        return f"f{k}"


def computation(name: str, lines: list[str]) -> str:
    return f"{name} {{\n" + "\n".join(lines) + "\n}\n"


def text_of(program: Block) -> Text:
    text = Text()
    entry = ["  x = f32[1024] parameter(0)"]
    last = text.write(program, "x", entry)
    entry.append(f"  ROOT end = f32[1024] exponential({last})")
    head = "HloModule m, is_scheduled=true\n"
    text.computations = [head, *text.computations, "ENTRY " + computation("main", entry)]
    return text


def work(block: Block) -> int:
    """Multiplications of one execution, every one carried out."""
    done = 0
    for part in block:
        if isinstance(part, Op):
            done += part.weight
        elif isinstance(part, Loop):
            for _ in range(part.trips):
                done += work(part.body)
        else:
            done += max(work(b) for b in part.branches)
    return done


def run(block: Block, counts: Counter[object], doubtful: set[object], doubt: bool) -> None:
    """Counts executions of ops and of loops' bodies and conditions; of forks, the dearest branch.

    ``doubtful`` collects what runs in a branch or in a loop whose count the text does not say.
    """
    for part in block:
        if isinstance(part, Op):
            counts[id(part)] += 1
            if doubt:
                doubtful.add(id(part))
        elif isinstance(part, Loop):
            for _ in range(part.trips):
                run(part.body, counts, doubtful, doubt or part.hidden)
            counts[id(part), "condition"] += 1 + (
                0 if part.hidden and part.given is None else part.trips
            )
        else:
            totals = sorted(work(b) for b in part.branches)
            assume(totals[-1] > totals[-2])  # of equals, any may be taken
            for b in part.branches:
                if work(b) == totals[-1]:
                    run(b, counts, doubtful, True)


@settings(max_examples=150, deadline=None)
@given(blocks(3))
def test_everything_runs_as_often_as_the_interpreter_runs_it(program: Block) -> None:
    text = text_of(program)
    by_hand = {f"w{k}": loop.given for loop, k in loops_in(program, text) if loop.given is not None}
    counts: Counter[object] = Counter()
    run(program, counts, set(), doubt=False)
    cap = hs.read("".join(text.computations))
    cost = cap.cost("cpu", trips=by_hand)
    find = cap.module.find
    for op, name in text.ops.items():
        assert cost.row(find(name).index).runs == counts[op], name
    for loop, k in loops_in(program, text):
        assert cost.row(find(f"less{k}").index).runs == counts[id(loop), "condition"], k
    # and what a step itself adds: an addition and a comparison
    assert cost.total_flops >= 1024 * work(program)
    unknown = {f"w{k}" for loop, k in loops_in(program, text) if loop.hidden}
    reached = {n for n in unknown - by_hand.keys() if cost.row(find(n).index).runs}
    assert reached <= set(cost.unknown_trip_counts) <= unknown - by_hand.keys()


@settings(max_examples=100, deadline=None)
@given(blocks(3))
def test_what_nobody_can_know_is_unknown_and_the_rest_is_counted(program: Block) -> None:
    for loop, _ in loops_in(program, text := text_of(program)):
        loop.given = None
    counts: Counter[object] = Counter()
    doubtful: set[object] = set()
    every_branch(program, counts, doubtful, doubt=False)
    module = hs.read("".join(text.computations)).module
    runs = multiplicity(module)
    for op, name in text.ops.items():
        wanted = None if op in doubtful else counts[op]
        assert runs[module.find(name).computation.index] == wanted, name


def every_branch(block: Block, counts: Counter[object], doubtful: set[object], doubt: bool) -> None:
    """Like ``run``, through every branch: which one is taken is not known."""
    for part in block:
        if isinstance(part, Op):
            run([part], counts, doubtful, doubt)
        elif isinstance(part, Loop):
            for _ in range(part.trips):
                every_branch(part.body, counts, doubtful, doubt or part.hidden)
        else:
            for b in part.branches:
                every_branch(b, counts, doubtful, True)


def loops_in(block: Block, text: Text) -> list[tuple[Loop, int]]:
    out: list[tuple[Loop, int]] = []
    for part in block:
        if isinstance(part, Loop):
            out += [(part, text.loops[id(part)]), *loops_in(part.body, text)]
        elif isinstance(part, Fork):
            for b in part.branches:
                out += loops_in(b, text)
    return out
