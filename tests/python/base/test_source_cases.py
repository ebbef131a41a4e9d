"""Where values come from at the ends of the rules, and in dumps of which something is missing."""

from __future__ import annotations

import hloscope as hs
import pytest
from hloscope.analysis.base.operands import short_op_name, source_of
from hloscope.analysis.base.table import NO_TARGET

F, T = "f32[8]", "(f32[8], f32[8])"
ARGUMENTS = ["x = f32[8] parameter(0)", "y = f32[8] parameter(1)"]


def told(name: str, *rows: str, before: str = "", given: list[str] = ARGUMENTS) -> str:
    """``kind name`` of a value in ENTRY of these rows, or in what it calls."""
    lines = "\n".join(f"  {row}" for row in [*given, *rows, f"ROOT end = {F} add(x, y)"])
    module = hs.read(f"HloModule m\n{before}\nENTRY main {{\n{lines}\n}}\n").module
    found = source_of(module.find(name), NO_TARGET)
    return f"{found.kind} {found.name}"


SUB = f"""sub {{
  s0 = {F} parameter(0)
  s1 = {F} parameter(1)
  ROOT s2 = {F} copy(s1)
}}
"""


@pytest.mark.parametrize("op", ["call", "fusion", "call-start", "async-start"])
def test_a_parameter_is_what_its_caller_gives(op: str) -> None:
    how = "to_apply" if op == "call" else "calls"
    rows = (f"c = {F} {op}(x, y), {how}=sub",)
    assert told("s0", *rows, before=SUB) == "argument %x"
    assert told("s1", *rows, before=SUB) == "argument %y"
    # the second operand was cut off
    assert told("s1", f"c = {F} {op}(x), {how}=sub", before=SUB) == "value %s1"
    assert told("s2", before=SUB) == "value %s1"  # nothing calls it


def test_the_caller_may_be_the_first_row_of_all() -> None:
    text = f"HloModule m\nENTRY main {{\n  c = {F} call(x), to_apply=sub\n  x = {F} parameter(0)\n"
    text += f"  ROOT n = {F} negate(c)\n}}\nsub {{\n  ROOT s = {F} parameter(0)\n}}\n"
    module = hs.read(text).module
    assert source_of(module.find("s"), NO_TARGET).name == "%x"


def test_a_fusion_passes_on_what_it_does_not_compute() -> None:
    assert told("f", f"f = {F} fusion(x, y), kind=kLoop, calls=sub", before=SUB) == "argument %y"
    assert told("f", f"f = {F} fusion(x), kind=kLoop, calls=sub", before=SUB) == "value %f"
    assert told("f", f"f = {F} fusion(x), kind=kLoop") == "value %f"
    pair = f"pair {{\n  p = {F} parameter(0)\n  ROOT q = ({F}) tuple(p)\n}}\n"
    rows = (f"f = {T} fusion(x), kind=kLoop, calls=pair", f"g = {F} get-tuple-element(f), index=")
    assert told("g", rows[0], f"{rows[1]}0", before=pair) == "argument %x"
    assert told("g", rows[0], f"{rows[1]}1", before=pair) == "value %f"


@pytest.mark.parametrize(
    ("operands", "left", "right"),
    [("i, x, y", "argument %x", "argument %y"), ("i, x", "argument %x", "value %r")],
)
def test_a_branch_has_an_operand_of_its_own(operands: str, left: str, right: str) -> None:
    before = "".join(f"b{n} {{\n  ROOT {n} = {F} parameter(0)\n}}\n" for n in "lr")
    rows = ("i = s32[] constant(0)",
            f"c = {F} conditional({operands}), branch_computations={{bl, br}}")  # fmt: skip
    assert told("l", *rows, before=before) == left
    assert told("r", *rows, before=before) == right


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("tuple(x, y)", "argument %y"),
        ("tuple(x)", "value %t"),
        ("custom-call(x, y)", "value %t"),
        ("copy(u)", "argument %x"),
        ("opt-barrier(u)", "argument %x"),
    ],
)
def test_an_element_is_what_its_tuple_holds(value: str, kind: str) -> None:
    rows = [f"u = {T} tuple(y, x)", f"t = {T} {value}", f"g = {F} get-tuple-element(t), index=1"]
    assert told("g", *rows) == kind
    assert told("h", *rows, f"h = {F} get-tuple-element(t)") == "value %h"


def test_a_broadcast_that_repeats_nothing_is_its_operand() -> None:
    two = ["x = f32[2] parameter(0)", "y = f32[8] parameter(1)"]
    assert told("b", "b = f32[2,1] broadcast(x), dimensions={0}", given=two) == "argument %x"
    assert told("b", "b = f32[2,2] broadcast(x), dimensions={0}", given=two) == "value %b"
    zero = "k = f32[] constant(0)"
    assert told("b", zero, "b = f32[1] broadcast(k), dimensions={}") == "constant constant"
    assert told("b", "b = f32[1] broadcast()") == "value %b"


@pytest.mark.parametrize(
    ("pieces", "kind"),
    [
        (["slice-done(sx)", "slice-done(tx)"], "argument %x"),
        (["slice-done(sx)", "slice-done(sy)"], "value %c"),  # of two arrays
        (["negate(n)", "negate(n)"], "argument %x"),
        (["slice-done(sx)", "slice-done()"], "value %c"),
        (["slice-done(sx)", "slice-done(lost)"], "value %c"),
    ],
)
def test_pieces_of_one_array_are_that_array(pieces: list[str], kind: str) -> None:
    pair = f"(({F}), f32[4], u32[])"
    rows = [f"s{v} = {pair} slice-start({v})" for v in "xy"]
    rows += [f"tx = {pair} slice-start(x)", f"lost = {pair} slice-start()", f"n = {F} negate(x)"]
    rows += [f"p{k} = f32[4] {piece}" for k, piece in enumerate(pieces)]
    joined = f'c = {F} custom-call(p0, p1), custom_call_target="ConcatBitcast"'
    assert told("c", *rows, joined) == kind


def test_padding_that_is_removed_leaves_the_array() -> None:
    row = f'c = {F} custom-call(x), custom_call_target="TARGET"'
    assert told("c", row.replace("TARGET", "ZeroCrop")) == "argument %x"
    assert told("c", row.replace("TARGET", "other")) == "value %c"


# -- loops -----------------------------------------------------------------------------------

LOOP = f"""body {{
  b = {T} parameter(0)
  b0 = {F} get-tuple-element(b), index=0
  b1 = {F} get-tuple-element(b), index=1
  made = {F} tanh(b1), metadata={{op_name="jit(f)/jvp(mlp)/tanh"}}
  ROOT o = {T} ROOT_ROW
}}
condition {{
  c = {T} parameter(0)
  ROOT go = pred[] constant(true)
}}
"""


def looped(name: str, root: str, start: str = "tuple(x, z)", operand: str = "begin") -> str:
    rows = [
        f"z = {F} sine(y)",
        f"begin = {T} {start}",
        f"w = {T} while({operand}), condition=condition, body=body",
        f"g0 = {F} get-tuple-element(w), index=0",
        f"g1 = {F} get-tuple-element(w), index=1",
    ]
    return told(name, *rows, before=LOOP.replace("ROOT_ROW", root))


def test_what_a_loop_passes_on_unchanged_is_what_it_starts_with() -> None:
    kept = "tuple(b0, made)"
    assert looped("g0", kept) == looped("b0", kept) == "argument %x"
    # exchanged, or with nothing of its own
    swapped = "tuple(b1, b0)"
    assert looped("g0", swapped) == looped("b0", swapped) == "loop %x carried by a loop"
    for root in ("tuple(made)", "tuple(get, made)", "sort(b0, b1)"):
        assert looped("b1", root).startswith("loop "), root


def test_a_value_that_a_loop_carries_is_called_by_its_start_or_what_makes_it() -> None:
    assert looped("b1", "tuple(b0, made)") == "loop mlp/tanh carried by a loop"
    assert looped("g1", "tuple(b0, made)") == "loop mlp/tanh carried by a loop"
    assert looped("b1", "tuple(b0, made)", "tuple(x, y)") == "loop %y carried by a loop"
    # of what was cut off only the place is known
    at = "loop value carried by a loop (element 1)"
    assert looped("b1", "tuple(b0)") == looped("g1", "tuple(b0)") == at
    assert looped("b1", "sort(b0, b1)") == at
    assert looped("b1", "tuple(b0, b0)") == at
    assert looped("b1", "tuple(b0, made)", operand="") == "loop mlp/tanh carried by a loop"
    assert looped("b", "tuple(b0, made)") == "loop value carried by a loop"


# -- transfers -------------------------------------------------------------------------------


def test_what_is_received_is_what_was_sent_under_one_name() -> None:
    def mark(name: str) -> str:
        return f'frontend_attributes={{_xla_host_transfer_rendezvous="{name}"}}'

    shape = f"({F}, u32[], token[])"
    rows = [
        "t = token[] after-all()",
        f"lost = {shape} send(), {mark('b')}",
        f"s = {shape} send(x, t), {mark('a')}",
        f"n = {shape} send(y, t)",
        f"r = {shape} recv(t), {mark('a')}",
        f"d = ({F}, token[]) recv-done(r)",
        f"g = {F} get-tuple-element(d), index=0",
        f"q = {shape} recv(t), {mark('c')}",
        f"e = ({F}, token[]) recv-done(q)",
        f"h = {F} get-tuple-element(e), index=0",
        f"u = {shape} recv(t)",
        f"v = ({F}, token[]) recv-done(u)",
        f"k = {F} get-tuple-element(v), index=0",
    ]
    assert [told(name, *rows) for name in "ghk"] == [
        "argument %x", "value %e", "value %v",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("jit(step)/jvp(layer_0)/mlp/dot_general", "layer_0/mlp/dot_general"),
        ("jit(step)/transpose(jvp(layer_0))/dot_general[a=(1,)]", "layer_0/dot_general"),
        ("jvp(layer)/add", "layer/add"),
        ("transpose(jvp(layer))/add", "layer/add"),
        ("parallelize(step)/add", "add"),
        ("jit(step)/jit(main)/add", "add"),
        ("jit(step)/vmap(jit(norm))/add", "add"),
        ("jit(step)/jit(vmap(norm))/add", "norm/add"),
        ("jit(step)/f(x)/add", "f(x)/add"),
        ("step/while/body/closed_call/add", "step/add"),
        ("jit(step)//add", "add"),
        ("jit(step)/add;jit(step)/mul", "add"),
        ("jit(step)", ""),
        ("", ""),
    ],
)
def test_a_name_is_shortened_to_the_users_own_words(name: str, short: str) -> None:
    assert short_op_name(name) == short
