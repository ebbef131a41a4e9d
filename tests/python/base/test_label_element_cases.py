"""What elements of tuples are called, case by case: how far is looked, and what ends the search."""

from __future__ import annotations

import hloscope as hs
import pytest
from hloscope.analysis.base.labels.labels import labels

PAIR = "(f32[8], f32[8])"


def said(text: str) -> dict[str, str]:
    """The label of every instruction, by name."""
    module = hs.read(text).module
    return dict(zip((i.name for i in module.instructions), labels(module), strict=True))


def entry(*lines: str, before: str = "") -> dict[str, str]:
    """Labels of a program of these lines, after ``x`` and ``y``, which are arguments."""
    head = ["HloModule m", before, "ENTRY main {"]
    head += [
        f'  {n} = f32[8] parameter({k}), metadata={{op_name="{n}"}}' for k, n in enumerate("xy")
    ]
    return said(
        "\n".join([*head, *(f"  {line}" for line in lines), "  ROOT r = f32[8] add(x, y)", "}"])
    )


def loop(init: str, made: str, *before: str, inside: str = "", kind: str = "f32[8]") -> str:
    """What a loop's element is called: first ``init``, then ``made`` of itself, ``b0``."""
    both = f"({kind}, f32[8])"
    body = f"""{inside}
body {{
  b = {both} parameter(0)
  b0 = {kind} get-tuple-element(b), index=0
  b1 = f32[8] get-tuple-element(b), index=1
  one = {kind} constant(1)
  made = {kind} {made}
  ROOT out = {both} tuple(made, b1)
}}
condition {{
  c = {both} parameter(0)
  ROOT go = pred[] constant(true)
}}
"""
    lines = [*before, f"begin = {both} tuple({init}, y)"]
    lines += [f"loop = {both} while(begin), condition=condition, body=body"]
    found = entry(*lines, f"got = {kind} get-tuple-element(loop), index=0", before=body)
    assert found["b0"] == found["got"]
    return found["got"]


# -- how far ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("copies", "name"), [(37, "x"), (38, "copy")])
def test_a_name_is_looked_for_through_forty_steps(copies: int, name: str) -> None:
    """The element, its tuple, the copies and the argument: three more than the copies."""
    lines = [f"c{k} = f32[8] copy({f'c{k - 1}' if k else 'x'})" for k in range(copies)]
    lines += [f"t = {PAIR} tuple(y, c{copies - 1})", "g = f32[8] get-tuple-element(t), index=1"]
    lines += ["h = f32[8] get-tuple-element(t), index=0"]
    # what was looked for before makes no difference
    others = [f"t{k} = {PAIR} tuple(x, y)" for k in range(9)]
    others += [f"g{k} = f32[8] get-tuple-element(t{k}), index=1" for k in range(9)]
    found = entry(*others, *lines)
    assert [found[n] for n in ("g", "h", "g8")] == [name, "y", "y"]


@pytest.mark.parametrize(("copies", "name"), [(39, "sort"), (40, "element 1")])
def test_a_tuple_is_looked_for_through_forty_steps(copies: int, name: str) -> None:
    lines = [f"c0 = {PAIR} sort(x, y), dimensions={{0}}"]
    lines += [f"c{k} = {PAIR} copy(c{k - 1})" for k in range(1, copies + 1)]
    found = entry(*lines, f"g = f32[8] get-tuple-element(c{copies}), index=1")
    assert found["g"] == name


# -- fusions and calls -----------------------------------------------------------------------

FUSED = """fused {
  p = f32[8] parameter(0)
  ROOT q = f32[8] OP(p)
}
"""


@pytest.mark.parametrize(
    ("op", "name"), [("copy", "x"), ("transpose", "x"), ("negate", "fusion negate")]
)
def test_a_fusion_that_only_moves_its_operand_has_its_name(op: str, name: str) -> None:
    found = entry(
        "f = f32[8] fusion(x), kind=kLoop, calls=fused",
        f"t = {PAIR} tuple(y, f)",
        "g = f32[8] get-tuple-element(t), index=1",
        before=FUSED.replace("OP", op),
    )
    assert found["g"] == name


def test_the_first_computation_of_a_module_may_be_such_a_fusion() -> None:
    """Its root is the first row of all."""
    found = entry(
        "f = f32[8] fusion(x), kind=kLoop, calls=fused",
        f"t = {PAIR} tuple(y, f)",
        "g = f32[8] get-tuple-element(t), index=1",
        before="fused {\n  ROOT p = f32[8] parameter(0)\n}",
    )
    assert found["g"] == "x"


INNER = """inner {
  i0 = f32[8] parameter(0)
  i1 = (f32[8], f32[8]) parameter(1)
  e = f32[8] get-tuple-element(i1), index=1
  n = f32[8] negate(e)
  it = (f32[8], f32[8]) tuple(n, i0)
  eg = f32[8] get-tuple-element(it), index=1
  eh = f32[8] get-tuple-element(it), index=2
  ROOT o = (f32[8], f32[8]) tuple(i0, n)
}
"""


def test_what_a_call_is_given_keeps_its_name_in_it_and_behind_it() -> None:
    found = entry(
        f"t = {PAIR} tuple(x, y)",
        f"called = {PAIR} call(x, t), to_apply=inner",
        "g = f32[8] get-tuple-element(called), index=0",
        "h = f32[8] get-tuple-element(called), index=1",
        "k = f32[8] get-tuple-element(called), index=2",
        before=INNER,
    )
    assert (found["e"], found["eg"], found["eh"]) == ("y", "x", "element 2")
    assert (found["g"], found["h"], found["k"]) == ("x", "negate", "element 2")


def test_a_call_without_its_operands_gives_no_names() -> None:
    """As in a dump that was cut; nor has what nothing calls."""
    found = entry(
        f"called = {PAIR} call(x), to_apply=inner",
        "g = f32[8] get-tuple-element(called), index=0",
        before=INNER,
    )
    assert (found["e"], found["eg"], found["g"]) == ("element 1", "x", "x")
    found = entry(
        f"called = {PAIR} call(), to_apply=inner",
        "g = f32[8] get-tuple-element(called), index=0",
        before=INNER,
    )
    assert (found["e"], found["eg"], found["g"]) == ("element 1", "element 1", "element 0")
    found = entry(before=INNER)
    assert (found["e"], found["eg"]) == ("element 1", "element 1")


def test_the_parameter_of_a_branch_is_not_the_first_operand() -> None:
    """Which one it is, is not looked for: it could be called by several."""
    branch = """one {
  p1 = (f32[8], f32[8]) parameter(0)
  ROOT e1 = f32[8] get-tuple-element(p1), index=0
}
two {
  p2 = (f32[8], f32[8]) parameter(0)
  ROOT e2 = f32[8] get-tuple-element(p2), index=0
}
"""
    found = entry(
        f"t = {PAIR} tuple(x, y)",
        f"u = {PAIR} tuple(y, x)",
        "i = s32[] constant(0)",
        "c = f32[8] conditional(i, t, u), branch_computations={one, two}",
        before=branch,
    )
    assert (found["e1"], found["e2"]) == ("element 0", "element 0")


@pytest.mark.parametrize("root", ["tuple(x, x)", "sort(x, x)"])
def test_what_calls_nothing_makes_its_elements_itself(root: str) -> None:
    found = said(f"""HloModule m
ENTRY main {{
  x = f32[8] parameter(0), metadata={{op_name="x"}}
  k = {PAIR} custom-call(x), custom_call_target="kernel"
  g = f32[8] get-tuple-element(k), index=0
  ROOT r = {PAIR} {root}
}}
""")
    assert found["g"] == found["k"]


def test_a_parameter_without_a_number_has_no_name() -> None:
    inner = INNER.replace("parameter(0)", "parameter()").replace("parameter(1)", "parameter()")
    found = entry(f"t = {PAIR} tuple(x, y)", f"c = {PAIR} call(x, t), to_apply=inner", before=inner)
    assert (found["e"], found["eg"]) == ("element 1", "element 1")


# -- loops -----------------------------------------------------------------------------------


def test_an_argument_keeps_its_name_whatever_the_loop_makes_of_it() -> None:
    assert loop("x", "tanh(b0)") == "x"
    assert loop("s0", "tanh(b0)", f"s = {PAIR} parameter(2), metadata={{op_name=\"s\"}}",
                "s0 = f32[8] get-tuple-element(s), index=0") == "s[0]"  # fmt: skip


@pytest.mark.parametrize(
    "init",
    [
        ("z = f32[8] negate(x)",),
        ("z0 = f32[8] negate(x)", "z = f32[8] copy(z0)"),
        (f"z0 = {PAIR} sort(x, y), dimensions={{0}}", "z = f32[8] get-tuple-element(z0), index=0"),
        ("z0 = f32[8] negate(x)", f"z1 = {PAIR} tuple(z0, x)",
         "z = f32[8] get-tuple-element(z1), index=0"),
    ],
)  # fmt: skip
def test_anything_else_has_the_name_of_what_the_loop_makes(init: tuple[str, ...]) -> None:
    assert loop("z", "tanh(b0)", *init) == "tanh"


@pytest.mark.parametrize("moved", ["copy(p)", "fusion(p), kind=kLoop, calls=fused"])
def test_what_has_no_name_has_that_of_what_the_loop_makes(moved: str) -> None:
    """The parameter of a branch has none."""
    before = f"""{FUSED.replace("OP", "copy").replace(" p ", " fp ").replace("(p)", "(fp)")}
body {{
  b = {PAIR} parameter(0)
  b0 = f32[8] get-tuple-element(b), index=0
  made = f32[8] tanh(b0)
  ROOT out = {PAIR} tuple(made, b0)
}}
condition {{
  c = {PAIR} parameter(0)
  ROOT go = pred[] constant(true)
}}
branch {{
  p = f32[8] parameter(0)
  moved = f32[8] {moved}
  begin = {PAIR} tuple(moved, moved)
  loop = {PAIR} while(begin), condition=condition, body=body
  ROOT got = f32[8] get-tuple-element(loop), index=0
}}
"""
    choose = "ch = f32[8] conditional(i, x, y), branch_computations={branch, branch}"
    found = entry("i = s32[] constant(0)", choose, before=before)
    assert found["got"] == "tanh"


def test_what_one_loop_made_is_made_anew_by_the_next() -> None:
    """Each kind of name that a loop gives: a stack, a counter, an opcode."""
    first = """first {
  f = (s32[], f32[4,8], f32[8]) parameter(0)
  f0 = s32[] get-tuple-element(f), index=0
  f1 = f32[4,8] get-tuple-element(f), index=1
  f2 = f32[8] get-tuple-element(f), index=2
  fone = s32[] constant(1)
  fnext = s32[] add(f0, fone)
  fsin = f32[8] sine(f2)
  frow = f32[1,8] bitcast(fsin)
  fzero = s32[] constant(0)
  fput = f32[4,8] dynamic-update-slice(f1, frow, f0, fzero)
  ROOT fo = (s32[], f32[4,8], f32[8]) tuple(fnext, fput, fsin)
}
second {
  s = (s32[], f32[4,8], f32[8]) parameter(0)
  s0 = s32[] get-tuple-element(s), index=0
  s1 = f32[4,8] get-tuple-element(s), index=1
  s2 = f32[8] get-tuple-element(s), index=2
  sx = s32[] multiply(s0, s0)
  sy = f32[4,8] tanh(s1)
  sz = f32[8] cosine(s2)
  ROOT so = (s32[], f32[4,8], f32[8]) tuple(sx, sy, sz)
}
condition {
  c = (s32[], f32[4,8], f32[8]) parameter(0)
  ROOT go = pred[] constant(true)
}
"""
    kind = "(s32[], f32[4,8], f32[8])"
    zero = ["i = s32[] constant(0)", "f = f32[] constant(0)", "z = f32[8] broadcast(f)",
            "zz = f32[4,8] broadcast(f)", f"t = {kind} tuple(i, zz, z)"]  # fmt: skip
    found = entry(
        *zero,
        f"one = {kind} while(t), condition=condition, body=first",
        "g0 = s32[] get-tuple-element(one), index=0",
        "g1 = f32[4,8] get-tuple-element(one), index=1",
        "g2 = f32[8] get-tuple-element(one), index=2",
        f"u = {kind} tuple(g0, g1, g2)",
        f"two = {kind} while(u), condition=condition, body=second",
        "h0 = s32[] get-tuple-element(two), index=0",
        "h1 = f32[4,8] get-tuple-element(two), index=1",
        "h2 = f32[8] get-tuple-element(two), index=2",
        before=first,
    )
    assert [found[f"g{k}"] for k in range(3)] == ["counter", "stack of sine", "sine"]
    assert [found[f"h{k}"] for k in range(3)] == ["multiply", "tanh", "cosine"]


FUSED_COUNTS = """next {
  n0 = s32[] parameter(0)
  n1 = s32[] MORE
  ROOT n2 = s32[] OP(n0, n1)
}
"""


@pytest.mark.parametrize(
    ("kind", "made", "inside", "name"),
    [
        ("s32[]", "add(b0, one)", "", "counter"),
        ("u32[]", "add(b0, one)", "", "counter"),
        ("s64[]", "add(b0, one)", "", "counter"),
        ("u64[]", "add(one, b0)", "", "counter"),
        ("f32[]", "add(b0, one)", "", "add"),
        ("s32[1]", "add(b0, one)", "", "add"),
        ("s32[]", "add(b0, b0)", "", "add"),
        ("s32[]", "fusion(b0), kind=kLoop, calls=next", ("constant(1)", "add"), "counter"),
        ("s32[]", "fusion(b0, one), kind=kLoop, calls=next", ("parameter(1)", "add"), "counter"),
        ("s32[]", "fusion(b0), kind=kLoop, calls=next", ("negate(n0)", "add"), "fusion add"),
        (
            "s32[]", "fusion(b0), kind=kLoop, calls=next", ("constant(2)", "multiply"),
            "fusion multiply",
        ),
    ],
)  # fmt: skip
def test_a_counter_is_an_integer_that_grows_by_a_constant(
    kind: str, made: str, inside: tuple[str, str] | str, name: str
) -> None:
    fused = FUSED_COUNTS.replace("MORE", inside[0]).replace("OP", inside[1]) if inside else ""
    assert loop("z", made, f"z = {kind} constant(0)", inside=fused, kind=kind) == name


@pytest.mark.parametrize(
    ("made", "name"),
    [
        ("dynamic-update-slice(b0, row, one0, one0)", "stack of y"),
        ("dynamic-update-slice(b0, wide, one0, one0)", "stack of y"),
        ("dynamic-update-slice(b0, row)", "stack of y"),
        ("dynamic-update-slice(b0)", "dynamic-update-slice"),  # cut off
        ("tanh(b0)", "tanh"),
    ],
)
def test_what_is_written_slice_by_slice_is_a_stack(made: str, name: str) -> None:
    text = f"""HloModule m
body {{
  b = (f32[4,8], f32[8]) parameter(0)
  b0 = f32[4,8] get-tuple-element(b), index=0
  b1 = f32[8] get-tuple-element(b), index=1
  row = f32[1,8] bitcast(b1)
  wide = f32[1,8] broadcast(b1), dimensions={{1}}
  one0 = s32[] constant(0)
  made = f32[4,8] {made}
  ROOT out = (f32[4,8], f32[8]) tuple(made, b1)
}}
condition {{
  c = (f32[4,8], f32[8]) parameter(0)
  ROOT go = pred[] constant(true)
}}
ENTRY main {{
  y = f32[8] parameter(0), metadata={{op_name="y"}}
  zero = f32[] constant(0)
  z = f32[4,8] broadcast(zero), dimensions={{}}
  begin = (f32[4,8], f32[8]) tuple(z, y)
  loop = (f32[4,8], f32[8]) while(begin), condition=condition, body=body
  ROOT got = f32[4,8] get-tuple-element(loop), index=0
}}
"""
    found = said(text)
    assert found["got"] == found["b0"] == name


def test_a_loop_whose_body_or_operand_was_cut_off_has_the_names_that_are_left() -> None:
    """No operand: nothing; no such element in its root: what it starts with."""
    short = """body {
  b = (f32[8], f32[8]) parameter(0)
  b0 = f32[8] get-tuple-element(b), index=0
  b1 = f32[8] get-tuple-element(b), index=1
  ROOT out = (f32[8]) tuple(b0)
}
condition {
  c = (f32[8], f32[8]) parameter(0)
  ROOT go = pred[] constant(true)
}
"""
    lines = ["z = f32[8] tanh(x)", f"begin = {PAIR} tuple(x, z)"]
    loop = f"loop = {PAIR} while(begin), condition=condition, body=body"
    got = "g = f32[8] get-tuple-element(loop), index=1"
    found = entry(*lines, loop, got, before=short)
    assert (found["g"], found["b0"], found["b1"]) == ("tanh", "x", "tanh")
    found = entry(*lines, loop.replace("begin)", ")"), got, before=short)
    assert (found["b0"], found["b1"], found["g"]) == ("element 0", "element 1", "while")
    whole = short.replace("(f32[8]) tuple(b0)", f"{PAIR} sort(b0, b1)")
    found = entry(*lines, loop, got, before=whole)
    assert (found["g"], found["b1"]) == ("tanh", "tanh")


def test_an_element_without_a_number_has_its_own_label() -> None:
    found = entry(f"t = {PAIR} tuple(x, y)", "g = f32[8] get-tuple-element(t)")
    assert found["g"] == entry("g = f32[8] get-tuple-element(q)")["g"]
