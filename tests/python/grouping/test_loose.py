"""What is small beside the parts of a program is gathered, in their order."""

from __future__ import annotations

import hloscope as hs
import pytest
from hloscope.analysis.grouping.groups import KINDS, group_tree
from hloscope.analysis.grouping.loose import FLAT

OPCODES = ("cosine", "sine", "negate", "sqrt", "abs", "exponential")


def _program(loose: int, layers: int = 2) -> str:
    """Layers between loose chains of scalars: before, between and after them."""
    lines = ["HloModule m", "", "ENTRY main {", "  x = f32[64,64] parameter(0)"]

    def chain(name: str, start: str) -> str:
        for k in range(loose):
            meta = f'metadata={{op_name="jit(f)/{OPCODES[k]}"}}'
            lines.append(f"  {name}{k} = f32[64,64] {OPCODES[k]}({start}), {meta}")
            start = f"{name}{k}"
        return start

    def layer(k: int, at: str) -> str:
        meta = f'metadata={{op_name="jit(f)/part_{k}/dot_general"}}'
        lines.append(f"  d{k} = f32[64,64] dot({at}, {at}), lhs_contracting_dims={{1}}, "
                     f"rhs_contracting_dims={{0}}, {meta}")  # fmt: skip
        before = f"d{k}"
        for n in range(6):
            lines.append(f"  t{k}.{n} = f32[64,64] tanh({before}), {meta}")
            before = f"t{k}.{n}"
        return f"t{k}.5"

    at = chain("a", "x")
    for k in range(layers):
        at = layer(k, at)
        at = chain("bcdefg"[k], at)
    lines += [f"  ROOT r = f32[64,64] negate({at})", "}"]
    return "\n".join(lines)


def _first_level(text: str) -> tuple[list[str], int]:
    module = hs.read(text).module
    tree = group_tree(module)
    entry = next(g for g, k in enumerate(tree.kind) if KINDS[k] == "entry")
    labels = [tree.label[g] for g in tree.children()[entry]]
    return labels, int((tree.group == entry).sum())


def test_small_operations_are_gathered_by_what_stands_before():
    labels, loose = _first_level(_program(6))
    small = "6 small operations"
    assert labels == [small, "part_0", small, "part_1", "7 small operations"]
    assert loose == 1  # the parameter


def test_two_operations_beside_parts_stay():
    text = _program(1, layers=2).replace("  ROOT r = f32[64,64] negate(c0)\n", "")
    text = text.replace("  c0 =", "  ROOT c0 =").replace("(a0, a0)", "(x, x)")
    labels, loose = _first_level(text)
    assert labels == ["part_0", "part_1"]
    assert loose == 4  # between the parts, after them, one that nothing uses, and the parameter


def test_what_does_much_of_the_work_is_seen_though_it_is_one_operation():
    for width, loose in ((64, 1), (512, 2)):
        text = _program(6).replace("a3 = f32[64,64]", f"a3 = f32[{width},{width}]")
        small, boxes = _first_level(text.replace("(a3)", "(a2)"))
        assert small[0] == "6 small operations" if width == 64 else "5 small operations"
        assert boxes == loose


def test_more_products_than_can_be_read_are_gathered_when_they_are_small():
    """A head is seen, a crowd of projections that do nothing of the work is one box."""
    product = "dot(s, s), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    for heads, loose in ((4, 4 + 4), (20, 4)):
        text = _program(1).replace("  ROOT r = ", "  s = f32[4,4] slice(x), slice={[0:4], [0:4]}\n")
        lines = text.splitlines()[:-1]
        lines[-1:] = [lines[-1].partition(" negate(")[0]]
        lines += [f"  h{k} = f32[4,4] {product}" for k in range(heads)]
        names = ", ".join(f"h{k}" for k in range(heads))
        shape = ", ".join("f32[4,4]" for _ in range(heads))
        lines += [f"  ROOT r = ({shape}) tuple({names})", "}"]
        assert _first_level("\n".join(lines))[1] == loose


def test_what_serves_one_of_several_independent_parts_is_not_drawn_as_if_it_served_all():
    """Two networks side by side, each with its own operations after it."""
    lines = ["HloModule m", "", "ENTRY main {", "  x = f32[64,64] parameter(0)"]
    ends = []
    for net in ("policy", "critic"):
        meta = f'metadata={{op_name="jit(f)/{net}/dot_general"}}'
        lines.append(f"  {net} = f32[64,64] dot(x, x), lhs_contracting_dims={{1}}, "
                     f"rhs_contracting_dims={{0}}, {meta}")  # fmt: skip
        at = net
        for n in range(6):
            lines.append(f"  {net}.{n} = f32[64,64] tanh({at}), {meta}")
            at = f"{net}.{n}"
        for k in range(6):
            meta = f'metadata={{op_name="jit(f)/{OPCODES[k]}"}}'
            lines.append(f"  {net}.after{k} = f32[64,64] {OPCODES[k]}({at}), {meta}")
            at = f"{net}.after{k}"
        ends.append(at)
    lines += [f"  ROOT r = (f32[64,64], f32[64,64]) tuple({', '.join(ends)})", "}"]
    module = hs.read("\n".join(lines)).module
    tree = group_tree(module)
    of = {i.name: int(tree.group[i.index]) for i in module.instructions}
    assert of["policy.after0"] == of["policy.after5"] != of["policy"]
    assert of["critic.after0"] == of["critic.after5"] != of["critic"]
    assert of["policy.after0"] != of["critic.after0"]


def test_a_few_operations_moved_out_of_a_call_do_not_have_its_name():
    """A mask that all turns of a loop use: XLA makes it once, before the loop."""

    product = "dot({0}, {0}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"

    def program(made_in: str) -> str:
        lines = ["HloModule m", "", "ENTRY main {", "  x = f32[64,64] parameter(0)"]

        def add(name: str, operation: str, scope: str) -> str:
            meta = f'metadata={{op_name="jit(f)/{scope}/op"}}'
            lines.append(f"  {name} = f32[64,64] {operation}, {meta}")
            return name

        at = add("mask", "negate(x)", made_in)
        for k in range(4):
            at = add(f"d{k}", product.format(at), "net/encoder")
            for opcode in OPCODES[:3]:
                at = add(f"{opcode}{k}", f"{opcode}({at})", "net/encoder")
        add("ROOT r", f"add({at}, mask)", "loss")
        return "\n".join([*lines, "}"])

    assert "encoder" not in _first_level(program("encoder"))[0]
    assert "make_mask" in _first_level(program("make_mask"))[0]  # a call of its own


def _flat(boxes: int, reduce_at: tuple[int, ...] = ()) -> str:
    """A chain of different operations on one array, all-reduces in some places."""
    add = ("  p = f32[] parameter(0)", "  q = f32[] parameter(1)", "  ROOT s = f32[] add(p, q)")
    lines = [
        "HloModule m",
        "",
        "sum {",
        *add,
        "}",
        "",
        "ENTRY main {",
        "  x = f32[64] parameter(0)",
    ]
    at = "x"
    for k in range(boxes):
        op = "all-reduce" if k in reduce_at else OPCODES[k * k % len(OPCODES)]
        more = ", replica_groups={}, to_apply=sum" if k in reduce_at else ""
        lines.append(f"  {'ROOT ' if k == boxes - 1 else ''}i{k} = f32[64] {op}({at}){more}")
        at = f"i{k}"
    return "\n".join([*lines, "}"])


@pytest.mark.parametrize("boxes", [16, 22, 40, 63, 200])
def test_a_program_of_boxes_alone_becomes_parts_that_can_be_read(boxes: int):
    labels, left = _first_level(_flat(boxes))
    assert 1 < len(labels) <= FLAT
    assert left <= 1 + FLAT  # the parameter


def test_what_stands_between_landmarks_is_a_part():
    labels, left = _first_level(_flat(30, reduce_at=(10, 20)))
    parts = [label for label in labels if label != "sum"]
    assert len(parts) == 3
    assert (parts[0], parts[-1]) == ("inputs", "outputs")
    assert left == 3  # two all-reduces and the parameter


def test_a_few_boxes_stay_as_they_are():
    assert _first_level(_flat(FLAT)) == ([], FLAT + 1)


def _step(loose: int, parts: bool) -> str:
    """A forward pass with and without parts, and what lies loose in it."""
    rows = ["HloModule m", "", "ENTRY main {", "  x = f32[64,64] parameter(0)"]
    at = "x"
    for part in ("embed", "block", "head"):
        scope = f"{part}/" if parts else ""
        for k in range(4):
            meta = f'metadata={{op_name="jit(f)/jvp()/{scope}tanh"}}'
            dims = ", lhs_contracting_dims={1}, rhs_contracting_dims={0}"
            work = f"dot({at}, {at}){dims}" if k == 0 else f"tanh({at})"
            rows.append(f"  {part}{k} = f32[64,64] {work}, {meta}")
            at = f"{part}{k}"
    for k in range(loose):
        meta = f'metadata={{op_name="jit(f)/jvp()/{OPCODES[k % 3]}"}}'
        rows.append(f"  l{k} = f32[64,64] {OPCODES[k % 3]}(x), {meta}")
    for k in range(8):
        meta = 'metadata={op_name="jit(f)/transpose(jvp())/abs"}'
        rows.append(f"  b{k} = f32[64,64] abs({at}), {meta}")
        at = f"b{k}"
    names = [at, *(f"l{k}" for k in range(loose))]
    shape = ", ".join("f32[64,64]" for _ in names)
    return "\n".join([*rows, f"  ROOT r = ({shape}) tuple({', '.join(names)})", "}"])


def _in_forward(text: str) -> tuple[list[str], int]:
    tree = group_tree(hs.read(text).module)
    (forward,) = (g for g, label in enumerate(tree.label) if label == "forward")
    labels = [tree.label[g] for g in tree.children()[forward]]
    return labels, int((tree.group == forward).sum())


def test_what_lies_loose_in_a_crowded_pass_is_gathered():
    labels, loose = _in_forward(_step(9, parts=True))
    assert {"embed", "block", "head"} < set(labels)
    assert loose == 0


def test_a_pass_without_parts_or_of_few_boxes_stays():
    labels, loose = _in_forward(_step(2, parts=True))
    assert sorted(labels) == ["block", "embed", "head"]
    assert loose == 2
    labels, loose = _in_forward(_step(9, parts=False))
    assert labels == []


def _loops(scopes: int, between: int) -> str:
    """Scopes with a crowd of boxes and a loop each, and as many boxes of none after each."""
    rows = ["HloModule m", "", "body {", "  ROOT b = f32[64] parameter(0)", "}", ""]
    rows += ["condition {", "  c = f32[64] parameter(0)", "  ROOT t = pred[] constant(true)", "}"]
    rows += ["", "ENTRY main {", "  x = f32[64] parameter(0)"]
    at = "x"
    for scope in range(scopes):
        meta = f'metadata={{op_name="jit(f)/part_{scope}/work"}}'
        for k in range(8):
            rows.append(f"  s{scope}.{k} = f32[64] {OPCODES[k % 6]}({at}), {meta}")
            at = f"s{scope}.{k}"
        rows.append(f"  w{scope} = f32[64] while({at}), condition=condition, body=body, {meta}")
        at = f"w{scope}"
        for k in range(between):
            plain = 'metadata={op_name="jit(f)/negate"}'
            rows.append(f"  z{scope}.{k} = f32[64] negate({at}), {plain}")
            at = f"z{scope}.{k}"
    return "\n".join([*rows, f"  ROOT r = f32[64] negate({at})", "}"])


def test_many_loops_in_a_large_computation_are_each_told_from_what_stands_before():
    scopes = 50
    tree = group_tree(hs.read(_loops(scopes, between=100)).module)
    parts = [g for g, label in enumerate(tree.label) if label.startswith("part_")]
    assert len(parts) == scopes
    children = tree.children()
    # the eight boxes before the loop are one group
    assert all(8 in [int(tree.size[g]) for g in children[part]] for part in parts)


def test_what_is_loose_around_a_loop_in_a_loop_is_gathered() -> None:
    pair = "(s32[], f32[64,64])"
    enter = f"""  p = {pair} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[64,64] get-tuple-element(p), index=1
"""
    limit = "  n = s32[] constant(4)\n  ROOT less = pred[] compare(i, n), direction=LT\n"
    chain = [
        f"  a{k} = f32[64,64] {OPCODES[k % 6]}({f'a{k - 1}' if k else 'x'}), "
        f'metadata={{op_name="jit(f)/while/body/{OPCODES[k % 6]}"}}\n'
        for k in range(18)
    ]
    module = hs.read(f"""HloModule m

more {{
{enter}{limit}}}

fewer {{
{enter}{limit}}}

step {{
{enter}  y = f32[64,64] dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT r = {pair} tuple(i, y)
}}

outer {{
{enter}{"".join(chain)}  t = {pair} tuple(i, a17)
  w = {pair} while(t), condition=fewer, body=step
  ROOT r = {pair} tuple(i, x)
}}

ENTRY main {{
  x = f32[64,64] parameter(0)
  zero = s32[] constant(0)
  t = {pair} tuple(zero, x)
  ROOT w = {pair} while(t), condition=more, body=outer
}}
""").module
    tree = group_tree(module)
    (body,) = {int(tree.of_computation[c.index]) for c in module.computations if c.name == "outer"}
    boxes = [i for i in module.instructions if tree.group[i.index] == body]
    assert not any(i.opcode in OPCODES for i in boxes)
    (small,) = [g for g in tree.children()[body] if KINDS[tree.kind[g]] == "section"]
    assert tree.size[small] == 18
    assert tree.label[small] == "18 small operations"


@pytest.mark.parametrize("callee_is", ["before", "after"])
def test_a_function_called_twice_is_small_nowhere(callee_is: str) -> None:
    """Its work is done for each call, and files that are not XLA's have callers first."""
    heavy = """heavy {
  h = f32[64,64] parameter(0)
  wide = f32[4096,64] broadcast(h), dimensions={0,1}
  e = f32[4096,64] exponential(wide)
  ROOT s = f32[64,64] slice(e), slice={[0:64], [0:64]}
}
"""
    rows, at = [], "x"
    for k in range(17):
        call = f"call({at}), to_apply=heavy" if k in (5, 11) else f"{OPCODES[k % 6]}({at})"
        rows.append(f"  {'ROOT ' if k == 16 else ''}r{k} = f32[64,64] {call}")
        at = f"r{k}"
    entry = "\n".join(["ENTRY main {", "  x = f32[64,64] parameter(0)", *rows, "}", ""])
    parts = [heavy, entry] if callee_is == "before" else [entry, heavy]
    module = hs.read("\n".join(["HloModule m", "", *parts])).module
    tree = group_tree(module)
    group = {i.name: tree.label[int(tree.group[i.index])] for i in module.instructions}
    assert group["r5"] == group["r11"] == "main"
    assert {group[f"r{k}"] for k in range(17) if k not in (5, 11)} == {"5 small operations"}
