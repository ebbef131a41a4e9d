"""Groups by calls that a capture knows: which calls become groups, and what is in each."""

from __future__ import annotations

from types import SimpleNamespace

import hloscope as hs
import numpy as np
import pytest
from hloscope.analysis.base.lines.op_name import BACKWARD, FORWARD, LAYER, Path
from hloscope.analysis.grouping.functions import calls
from hloscope.analysis.grouping.layers.true_calls import own_calls, with_true_calls
from hloscope.analysis.grouping.scopes import Scopes
from hloscope.hlo import Module
from hloscope.hlo.origins.python_calls import PythonCall, PythonCalls
from stacked import Stack, Stacks, chain_of

Calls = list[tuple[str, int]]  # function and the number of its caller
Row = tuple[int, str, str]  # call, scope before layers, and with those found by repetition
NO = -1  # no call is known


def program(
    rows: list[Row], calls: Calls, late: int = -1, ops: dict[int, str] | None = None
) -> Module:
    """A chain of boxes; from the row ``late`` on they are of the backward pass by name."""
    lines = ["HloModule m", "ENTRY main {", "  x = f32[8] parameter(0)"]
    for k in range(len(rows)):
        at = f"i{k - 1}" if k else "x"
        op = (ops or {}).get(k, "sine(AT)").replace("AT", at)
        name = "transpose(jvp())" if 0 <= late <= k else "jvp()"
        meta = f', metadata={{op_name="jit(f)/{name}/sin"}}' if late >= 0 else ""
        lines.append(f"  {'ROOT ' if k == len(rows) - 1 else ''}i{k} = f32[8] {op}{meta}")
    module = hs.read("\n".join([*lines, "}"])).module
    python = PythonCalls(
        tuple(PythonCall(k, f, "f.py", 1 + len(f), at, 1) for k, (f, at) in enumerate(calls)),
        lambda origin: origin.operation, lambda _: (),
    )  # fmt: skip
    of = [[] if row[0] == NO else [SimpleNamespace(operation=row[0])] for row in rows]
    object.__setattr__(module, "origins", SimpleNamespace(python=python, of=[[], *of]))
    return module


def scopes_of(texts: list[str]) -> Scopes:
    """``a/h 0*`` is a scope in which a layer was found; "" none, "?" an unknown one."""
    paths: list[Path] = [()]
    scope = [-1]
    for text in texts:
        path = tuple(p.replace("*", LAYER) for p in text.split("/") if p)
        if text != "?" and path not in paths:
            paths.append(path)
        scope.append(-1 if text == "?" else paths.index(path))
    return Scopes(tuple(paths), np.array(scope), np.zeros(len(scope), bool))


def told(rows: list[Row], calls: Calls, late: int = -1) -> list[str]:
    """The scope of each row, with ``*`` for a layer."""
    module = program(rows, calls, late)
    before = scopes_of([row[1] for row in rows])
    found = with_true_calls(module, before, scopes_of([row[2] for row in rows]))
    paths = ["/".join(p) for p in found.paths]
    return ["?" if s < 0 else paths[s].replace(LAYER, "*") for s in found.scope[1:].tolist()]


def each(counts: list[int], before: str = "", found: str = "", first: int = 1) -> list[Row]:
    """So many boxes of each call."""
    return [(first + k, before, found) for k, n in enumerate(counts) for _ in range(n)]


TWO = [("step", -1), ("layer", 0), ("layer", 0)]
LAYERS = [*["layer 0*"] * 3, *["layer 1*"] * 3]


def test_calls_of_one_function_are_a_group_each() -> None:
    assert told(each([3, 3]), TWO) == LAYERS
    named = [("step", -1), *[("f.<locals>.layer.__call__", 0)] * 2]
    assert told(each([3, 3]), named) == LAYERS
    assert told(each([3, 3]), [("step", -1), ("layer", 0), ("other", 0)]) == [""] * 6
    assert told(each([3, 3]), [("layer", -1)] * 3) == [  # by nobody
        *["layer 0*"] * 3, *["layer 1*"] * 3,
    ]  # fmt: skip


def test_calls_have_three_boxes_on_average() -> None:
    assert told(each([2, 4]), TWO) == [*["layer 0*"] * 2, *["layer 1*"] * 4]
    assert told(each([2, 3]), TWO) == [""] * 5


def test_calls_are_two_fifths_of_what_calls_them() -> None:
    """Six of fifteen, and of sixteen; the caller's own are in no group."""
    for own, said in ((9, LAYERS), (10, [""] * 6)):
        assert told([*each([3, 3]), *[(0, "", "")] * own], TWO) == [*said, *[""] * own]


def test_a_lambda_hands_calls_on() -> None:
    through = [("step", -1), ("<lambda>", 0), ("layer", 1), ("f.<locals>.<lambda>", 0)]
    through.append(("layer", 3))
    rows = [*[(2, "", "")] * 3, *[(4, "", "")] * 3]
    assert told(rows, through) == LAYERS
    # around all of them it is nobody, however much more there is
    outer = [("<lambda>", -1), ("layer", 0), ("layer", 0)]
    assert told([*each([3, 3]), *[(0, "", "")] * 10], outer) == [*LAYERS, *[""] * 10]
    lambdas = [("step", -1), *[("f.<locals>.<lambda>", 0)] * 2]
    assert told(each([3, 3]), lambdas) == [""] * 6


def test_scopes_that_are_the_calls_stay() -> None:
    apart = [*each([4], "h_0", "h_0"), *each([4], "h_1", "h_1", 2)]
    assert told(apart, TWO) == [*["h_0"] * 4, *["h_1"] * 4]
    # all but one of five boxes are in its own scope
    mixed = [*each([4], "h_0", "h_0"), (1, "", ""), *each([4], "h_1", "h_1", 2), (2, "", "")]
    assert told(mixed, TWO) == [*["h_0"] * 4, "", *["h_1"] * 4, ""]
    within = [*each([3], "h", "h"), *each([3], "h/a", "h/a", 2)]
    assert told(within, TWO) == [*["h/layer 0*"] * 3, *["h/layer 1*/a"] * 3]


def test_a_group_is_where_the_scopes_of_all_calls_are() -> None:
    rows = [(k, f"net/dec/{part}", "") for k in (1, 2) for part in ("a", "b", "b")]
    assert told(rows, TWO) == [
        f"net/dec/layer {k}*/{part}" for k in (0, 1) for part in ("a", "b", "b")
    ]
    # what is elsewhere by name is in the group all the same
    rows[0] = (1, "odd", "")
    rows += [(1, "net/dec/b", "")] * 4
    assert told(rows, TWO)[0] == "layer 0*/odd"


def test_calls_within_calls_are_groups_within_groups() -> None:
    calls = [("step", -1)]
    for at in (1, 4):
        calls += [("layer", 0), ("norm", at), ("norm", at)]
    rows = [(k, "", "") for k in (2, 3, 5, 6) for _ in range(3)]
    assert told(rows, calls) == [
        f"layer {a}*/norm {b}*" for a in (0, 1) for b in (0, 1) for _ in range(3)
    ]


def test_passes_are_apart_and_the_optimiser_stays() -> None:
    rows = each([2, 2], "forward/a", "forward/a") + each([2, 2], "backward/a", "backward/a")
    said = told(rows, TWO, late=4)
    first = [f"{FORWARD}/a/layer {k}*" for k in (0, 0, 1, 1)]
    assert said == first + [f"{BACKWARD}/a/layer {k}*" for k in (0, 0, 1, 1)]
    rows[-1] = (2, "backward/a", "optimizer · adam/a")
    assert told(rows, TWO, late=4)[-1] == "optimizer · adam/a/layer 1*"


def test_parts_that_take_turns_leave_layers_as_they_are() -> None:
    def of(*order: str) -> list[str]:
        calls = [("step", -1), *((name, 0) for name in order)]
        return told([(1 + k, "", "l 0*") for k in range(len(order)) for _ in range(3)], calls)

    assert of("a", "b", "a", "b") == ["l 0*"] * 12
    said = of("a", "a", "b", "b", "b")  # one after the other
    assert said[::3] == ["a 0*", "a 1*", "b 0*", "b 1*", "b 2*"]
    assert of("a", "b", "b", "a")[:3] == ["a 0*"] * 3  # twice round is not in turn
    # without layers there is nothing else to show
    calls = [("step", -1), ("a", 0), ("b", 0), ("a", 0), ("b", 0)]
    rows = [(k, "", "") for k in (1, 2, 3, 4) for _ in range(3)]
    assert told(rows, calls)[0] == "a 0*"


@pytest.mark.parametrize(("others", "follows"), [(2, True), (3, False)])
def test_what_has_no_call_goes_with_most_of_its_layer(others: int, follows: bool) -> None:
    """Three of five boxes of the layer are one call's, or three of six."""
    rows = [*each([3], "", "l 3*"), (NO, "", "l 3*/part"), *each([others], "", "l 3*", 2)]
    rows += each([4], "", "", 2)
    # a call would be inherited along the chain, so the box stands alone
    module = program(rows, TWO, ops={3: "iota()", 4: "sine(i2)"})
    before = scopes_of([row[1] for row in rows])
    found = with_true_calls(module, before, scopes_of([row[2] for row in rows]))
    assert own_calls(module)[1 + 3] == NO
    said = "/".join(found.paths[found.scope[1 + 3]]).replace(LAYER, "*")
    assert said == ("layer 0*/part" if follows else "l 3*/part")


# -- calls of instructions -------------------------------------------------------------------


def test_the_call_of_an_instruction_is_that_of_its_first_origin() -> None:
    """But of a collective that XLA combined, and of nothing that every call may share."""
    calls: Calls = [("step", -1), ("layer", 0), ("layer", 0), ("other", -1)]
    ops = {1: "constant({...})", 2: "all-reduce(i0, i1), to_apply=s"}
    ops[3] = "all-reduce(i0), to_apply=s"
    module = program([(1, "", "")] * 6, calls, ops=ops)
    two = [SimpleNamespace(operation=k) for k in (1, 2)]
    module.origins.of[1:] = [two, two, two, two, [], [SimpleNamespace(operation=3), two[0]]]
    assert own_calls(module).tolist() == [NO, 1, NO, 0, 1, NO, 3]


def test_functions_are_told_by_their_calls_where_these_are_known() -> None:
    """A number instead of the line; the caller's rows have its call alone."""
    inner: Calls = [("step", -1), ("g.<locals>.layer.__call__", 0), ("layer", 0), ("<lambda>", 2)]
    module = program([(1, "", "")] * 2 + [(3, "", "")] * 2 + [(0, "", "")], inner)
    found = calls(module)
    assert found.chains[found.chain[1]] == ((-1, "step"), (-2, "layer"), (0, ""))
    assert found.chains[found.chain[3]] == ((-1, "step"), (-3, "layer"), (0, ""))
    assert found.chains[found.chain[5]] == ((-1, "step"), (0, ""))


def test_the_line_of_an_instruction_is_that_of_its_stack() -> None:
    """The first stack of all as well."""
    stacks = Stacks()
    steps: list[Stack | None] = [[("step", 3)], [("step", 3), ("layer", 8)], [("step", 4)], None]
    module = hs.read(chain_of(stacks, steps)).module
    python = program([], TWO).origins.python
    said = {"i0": 0, "i1": 1, "i2": 0, "i3": 0}
    of = [[SimpleNamespace(operation=said[i.name])] if i.name in said else []
          for i in module.instructions]  # fmt: skip
    object.__setattr__(module, "origins", SimpleNamespace(python=python, of=of))
    found = calls(module)
    rows = [module.find(name).index for name in said]
    assert [found.chains[found.chain[r]][-1] for r in rows] == [(n, "") for n in (3, 8, 4, 0)]


def test_what_a_fusion_holds_is_counted_once() -> None:
    """Two boxes a call in ENTRY: the three that each has in a fusion's computation are in it."""
    fused = "f {\n  p = f32[8] parameter(0)\n"
    fused += "".join(f"  q{k} = f32[8] sine({f'q{k - 1}' if k else 'p'})\n" for k in range(6))
    rows = "".join(f"  i{k} = f32[8] cosine({f'i{k - 1}' if k else 'x'})\n" for k in range(4))
    end = "  ROOT e = f32[8] fusion(i3), kind=kLoop, calls=f\n}\n"
    text = f"HloModule m\n{fused}}}\nENTRY main {{\n  x = f32[8] parameter(0)\n{rows}{end}"
    module = hs.read(text).module
    said = {**{f"q{k}": 1 + k // 3 for k in range(6)}, **{f"i{k}": 1 + k // 2 for k in range(4)}}
    python = program([], TWO).origins.python
    of = [[SimpleNamespace(operation=said[i.name])] if i.name in said else []
          for i in module.instructions]  # fmt: skip
    object.__setattr__(module, "origins", SimpleNamespace(python=python, of=of))
    nothing = scopes_of([""] * (len(module.instructions) - 1))
    assert with_true_calls(module, nothing, nothing) is nothing


def test_without_calls_scopes_are_as_they_were() -> None:
    module = hs.read("HloModule m\nENTRY e {\n  ROOT x = f32[] parameter(0)\n}\n").module
    assert own_calls(module).tolist() == [NO]
    before = Scopes(((),), np.array([-1]), np.zeros(1, bool))
    assert with_true_calls(module, before, before) is before
    assert told([(NO, "", "a")] * 6, TWO) == ["a"] * 6
