"""Operands of HLO text in every spelling: for ``readers/hlo_operands.py``.

Each row is what is between the brackets of one instruction, its operands, and what is said.
"""

from __future__ import annotations

import hloscope as hs
import pytest
from hloscope.readers.hlo import operands as hlo_operands
from hloscope.readers.hlo.text import read_hlo_text

BEFORE = """HloModule m

ENTRY e {
  a = f32[] parameter(0)
  b = f32[4]{0} parameter(1)
  t = (f32[], (f32[2], s32[])) parameter(2)
  t_0.1 = s32[] constant(3)
  constant.anon.1 = f32[] constant(9)
"""
MISSING = "has an operand that is not here: "
KEPT = [
    ("%a, %b", "a b"),
    ("a, b", "a b"),
    ("a", "a"),
    ("%a,%b", "a b"),
    ("a, %b", "a b"),
    ("%a, b", "a b"),
    ("f32[] %a, f32[4]{0} %b", "a b"),
    ("f32[] %a, /*index=1*/f32[4]{0} %b", "a b"),
    ("f32[] a, f32[4] b", "a b"),
    ("f32[]  %a ,f32[4] %b ", "a b"),
    ("(f32[], (f32[2], s32[])) %t", "t"),
    ("(f32[], (f32[2], s32[])) %t, f32[] %a", "t a"),
    ("token %a", "a"),
    ("a /*index=1*/", "a"),
    ("", ""),
    # written out
    ("a, f32[] constant(2)", "a constant.anon"),
    ("f32[] constant(2), f32[] constant(3)", "constant.anon constant.anon.2"),
    ("f32[] add(%a, f32[] constant(2)), b", "add.anon b"),
    # elements of a tuple, one made for each
    ("t#0, t#0", "t_0 t_0"),
    ("%t#1, a", "t_1 a"),
    ("t#1#1", "t_1_1"),
]
LOST = [
    ("a, %x", "a", "'x'"),
    ("%x, f32[] %y, a", "a", "'x'"),
    ("f32[] %y", "", "'y'"),
    ("%a %b", "", "'%a %b'"),
    ("a b", "", "'a b'"),
    ("b, %a b", "b", "'%a b'"),
    ("f32[] %a f32[] %b", "", "'f32[] %a f32[] %b'"),
    ("t#2", "", "'t#2'"),
    ("x#0", "", "'x'"),
    ("a#0", "", "'a#0'"),
    ("a, ?", "a", "'?'"),
    ("f32[4]%b", "", "'f32[4]%b'"),
]


def read(between: str) -> tuple[hs.hlo.Module, hs.hlo.Instruction]:
    (module,) = read_hlo_text(f"{BEFORE}  ROOT r = f32[] custom-call({between})\n}}\n")
    root = module.entry and module.entry.root
    assert root
    return module, root


@pytest.mark.parametrize(("between", "names"), KEPT)
def test_operands(between: str, names: str) -> None:
    module, root = read(between)
    assert [o.name for o in root.operands] == names.split()
    assert not module.warnings
    order = [i.name for i in module.instructions]
    assert [i.index for i in module.instructions] == list(range(len(order)))
    for i in module.instructions:
        assert all(order.index(o.name) < order.index(i.name) for o in i.operands)
    added = set(order[5:]) - {"r"}
    assert all(m.computation is module.entry for m in module.instructions)
    assert added == {n for n in order if ".anon" in n or n.startswith("t_")} - {
        "t_0.1", "constant.anon.1",
    }  # fmt: skip


@pytest.mark.parametrize(("between", "names", "said"), LOST)
def test_operands_that_are_not_there(between: str, names: str, said: str) -> None:
    module, root = read(between)
    assert [o.name for o in root.operands] == names.split()
    assert [(w.line, w.message) for w in module.warnings] == [(9, f"%r {MISSING}{said}")]


def test_what_is_written_out_is_an_instruction() -> None:
    _, root = read("a, f32[] multiply(%b, f32[4] constant({1, 2, 3, 4})), dimensions={0}")
    product = root.operands[1]
    assert (product.opcode, product.shape.text) == ("multiply", "f32[]")
    assert [o.name for o in product.operands] == ["b", "constant.anon"]
    literal = product.operands[1]
    assert (literal.literal, literal.operands, literal.is_root) == ("{1, 2, 3, 4}", (), False)
    assert literal.text_span == product.text_span == root.text_span
    _, root = read("t#1#0")
    element = root.operands[0]
    assert (element.opcode, element.shape.text) == ("get-tuple-element", "f32[2]")
    assert (element.attribute("index"), element.operands[0].name) == ("0", "t_1")


def test_a_shape_that_is_left_out_follows_or_is_missed() -> None:
    module, root = read("negate(b), mystery(a)")
    assert [o.shape.dense_text for o in root.operands] == ["f32[4]", ""]
    assert [(w.line, w.message) for w in module.warnings] == [
        (9, "%mystery.anon has no shape, and none follows from its operands")
    ]
    module, _ = read("f2[3] constant({1, 2, 3})")
    assert [w.line for w in module.warnings] == [9], "an element type nobody knows"


@pytest.mark.parametrize("most", [0, 1, 2, 3])
def test_how_many_are_written_out_has_a_limit(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hlo_operands, "MAX_NESTED", most)
    module, root = read("f32[] constant(1), f32[] constant(2), a")
    assert len(root.operands) == min(most, 2) + 1
    assert bool(module.warnings) == (most < 2)
