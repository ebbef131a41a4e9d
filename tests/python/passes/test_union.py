"""All instructions that were ever in a module, as one: each rule of ``pass_union.py``.

Dumps are written as in ``pass_dumps.py``.
"""

from __future__ import annotations

import pytest
from hloscope.analysis.passes.follow import follow
from hloscope.analysis.passes.union import _shape, union
from hloscope.hlo import Instruction, Module
from pass_dumps import dump


def whole(*dumps: str, partitions: int = 1) -> Module:
    texts = [d if d.startswith("HloModule") else dump(d) for d in dumps]
    steps = follow([lambda text=text: text for text in texts])
    module, order = union(steps, "m", partitions)
    assert [i.index for i in module.instructions] == list(range(len(order)))
    assert [i.name for i in module.instructions] == [steps.name(steps.nodes[n]) for n in order]
    assert [c.index for c in module.computations] == list(range(len(module.computations)))
    return module


def named(module: Module, name: str) -> Instruction:
    found = module.find(name)
    assert found is not None
    return found


def test_each_is_there_once_as_in_its_last_line() -> None:
    module = whole(
        "p = f32[4] parameter(0); a = f32[4] tanh(p)@f; ROOT r = f32[4] log(a)",
        "p = f32[4] parameter(0); b = f32[8] sine(p)@g; ROOT r = f32[8] log(b), x=1",
        partitions=4,
    )
    assert [(i.name, i.opcode, i.shape.text) for i in module.instructions] == [
        ("p", "parameter", "f32[4]"), ("b", "sine", "f32[8]"), ("a", "tanh", "f32[4]"),
        ("r", "log", "f32[8]"),
    ]  # fmt: skip
    assert [o.name for o in named(module, "r").operands] == ["b"]
    assert [o.name for o in named(module, "a").operands] == ["p"]
    assert named(module, "r").attribute_text == "x=1"
    assert named(module, "b").op_name == "g"
    assert named(module, "p").argument_text == "0"
    assert (module.num_partitions, module.name) == (4, "m")
    assert whole("p = f32[4] parameter(0)").num_partitions == 1
    assert module.entry is not None
    assert (module.entry.name, module.entry.is_entry) == ("e", True)


def test_attributes_and_op_names_stand_beside_each_other() -> None:
    module = whole(
        "p = f32[4] parameter(0); a = f32[4] tanh(p), x=1@f;"
        " ROOT b = f32[4] sine(a), control-predecessors={%p}, y=2"
    )
    assert named(module, "a").attribute_text == 'x=1, metadata={op_name="f"}'
    assert named(module, "b").attribute_text.strip(", ") == "y=2", "it may be gone"


# dumps, name of the result
ROOTS = {
    "the only one": (["p = f32[] parameter(0); ROOT a = f32[] tanh(p)"], "a"),
    "the last one": (
        ["p = f32[] parameter(0); ROOT a = f32[] tanh(p)",
         "p = f32[] parameter(0); ROOT b = f32[] sine(p)"], "b"),
    "the last one stands first": (
        ["p = f32[] parameter(0); q = f32[] parameter(1); ROOT a = f32[] tanh(p)",
         "p = f32[] parameter(0); ROOT b = f32[] sine(p); q = f32[] parameter(1)"], "b"),
    "none": (["p = f32[] parameter(0)"], ""),
}  # fmt: skip


@pytest.mark.parametrize("what", ROOTS)
def test_results(what: str) -> None:
    dumps, name = ROOTS[what]
    module = whole(*dumps)
    assert module.entry is not None
    root = module.entry.root
    assert (root.name if root is not None else "") == name
    assert [i.name for i in module.instructions if i.is_root] == [name] * bool(name)


def test_operands_come_first_if_possible() -> None:
    module = whole(
        "p = f32[] parameter(0); a = f32[] tanh(p); b = f32[] sine(p); ROOT r = f32[] add(a, b)",
        "p = f32[] parameter(0); a = f32[] tanh(b); b = f32[] sine(p); ROOT r = f32[] add(a, b)",
    )
    assert [i.name for i in module.instructions] == ["p", "b", "a", "r"]
    circle = whole("a = f32[] tanh(b); b = f32[] sine(a); ROOT r = f32[] add(b, b)")
    assert [i.name for i in circle.instructions] == ["b", "a", "r"]


CALL = "p = f32[] parameter(0); ROOT c = f32[] {}(p), to_apply=%{}"
BODY = "x = f32[] parameter(0); ROOT y = f32[] {}(x)"


def test_a_later_computation_of_a_name_that_was_taken() -> None:
    """``f`` was inlined, and another of its name made later."""
    module = whole(
        dump(CALL.format("call", "f"), f=BODY.format("tanh")),
        dump("p = f32[] parameter(0); ROOT c = f32[] negate(p)"),
        dump(CALL.format("map", "f"), f="u = f32[] parameter(0); ROOT v = f32[] sine(u)"),
    )
    assert [c.name for c in module.computations] == ["f", "f'", "e"]
    assert named(module, "c").attribute_text == "to_apply=%f', called_computations={%f}"
    assert [c.name for c in named(module, "c").called_computations] == ["f'", "f"]


def test_what_called_a_computation_until_it_was_gone() -> None:
    module = whole(
        dump(CALL.format("call", "f"), f=BODY.format("tanh")),
        dump("p = f32[] parameter(0); ROOT c = f32[] negate(p), x=1"),
    )
    assert named(module, "c").attribute_text == "x=1, called_computations={%f}"
    bare = whole(
        dump(CALL.format("call", "f"), f=BODY.format("tanh")),
        dump("p = f32[] parameter(0); ROOT c = f32[] negate(p)"),
    )
    assert named(bare, "c").attribute_text == "called_computations={%f}"


def test_a_computation_under_several_names() -> None:
    """``c`` calls it ``g`` at the end; ``d`` is gone by then, and called it ``f``."""
    both = "p = f32[] parameter(0); {}ROOT c = f32[] call(p), to_apply=%{}"
    d = "d = f32[] call(p), to_apply=%f; "
    module = whole(
        dump(both.format(d, "f"), f=BODY.format("tanh")),
        dump(both.format("", "g"), g=BODY.format("tanh")),
    )
    assert [c.name for c in module.computations] == ["g", "e"]
    assert named(module, "c").attribute_text == "to_apply=%g"
    assert named(module, "d").attribute_text == "to_apply=%g"


def test_two_that_have_one_name_one_after_the_other() -> None:
    """The call stays as it is, but what it calls is another computation from the second on."""
    module = whole(
        dump(CALL.format("call", "f"), f="x = f32[] parameter(0); ROOT y = f32[] tanh(x)@f/tanh"),
        dump(CALL.format("call", "f"), f="u = f32[] parameter(0); ROOT v = f32[] sine(u)@f/sin"),
    )
    assert [c.name for c in module.computations] == ["f", "f'", "e"]
    assert named(module, "c").attribute_text == "to_apply=%f', called_computations={%f}"


def test_a_call_is_of_those_that_had_the_name_meanwhile() -> None:
    """``f`` is replaced by another of its name as ``c`` turns to ``g``, and as ``k`` is made."""
    text = "p = f32[] parameter(0); {}ROOT r = f32[] add(p, p)"
    old, new = "x = f32[] parameter(0); ROOT y = f32[] tanh(x)@f/tanh", "ROOT v = f32[] rng()@f/v"
    module = whole(
        dump(text.format("c = f32[] call(p), to_apply=%f; d = f32[] call(p), to_apply=%f; "),
             f=old, g=BODY.format("sine")),
        dump(text.format("c = f32[] call(p), to_apply=%g; k = f32[] call(p), to_apply=%f; "),
             f=new, g=BODY.format("sine")),
    )  # fmt: skip
    assert {i.name: i.attribute_text for i in module.instructions if i.opcode == "call"} == {
        "c": "to_apply=%g, called_computations={%f}", "d": "to_apply=%f", "k": "to_apply=%f'",
    }  # fmt: skip


def test_what_nothing_ever_called_is_left_out() -> None:
    module = whole(dump(CALL.format("call", "f"), f=BODY.format("tanh"), g=BODY.format("sine")))
    assert [c.name for c in module.computations] == ["f", "e"]
    assert [i.name for i in module.instructions] == ["x", "y", "p", "c"]
    twice = whole(
        dump(
            "p = f32[] parameter(0); a = f32[] call(p), to_apply=%g; ROOT c = f32[] call(a),"
            " to_apply=%g",
            f=BODY.format("tanh"),
            g="u = f32[] parameter(0); ROOT v = f32[] call(u), to_apply=%f",
        )
    )
    assert [c.name for c in twice.computations] == ["f", "g", "e"]


def test_without_an_entry_all_are_shown() -> None:
    """Another computation is the entry at the end, so that the first one is none."""
    text = dump(CALL.format("call", "f"), f=BODY.format("tanh"), g=BODY.format("sine"))
    module = whole(text.replace("ENTRY e", "e"))
    assert module.entry is None
    assert [c.name for c in module.computations] == ["f", "g", "e"]


def test_an_entry_that_is_gone_is_none() -> None:
    first = dump("p = f32[] parameter(0); ROOT a = f32[] tanh(p)@f")
    second = "HloModule m\n\nmain {\n  u = s32[4] parameter(0)\n  ROOT v = s32[4] floor(u)\n}\n"
    assert whole(first, second).entry is None


def test_shapes_that_are_not_understood() -> None:
    assert _shape("f32[4]").element_type == "f32"
    assert (_shape("f32[4").text, _shape("f32[4").element_type) == ("f32[4", "opaque")
