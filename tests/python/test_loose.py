"""A crowded first level: what lies loose beside the parts is gathered, in their order."""

from __future__ import annotations

import hloscope as hs
from hloscope.analysis.grouping.groups import KINDS, group_tree

OPCODES = ("cosine", "sine", "negate", "sqrt", "abs", "exponential")


def _program(loose: int) -> str:
    """Two layers between loose chains of scalars: before, between and after them."""
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
    at = layer(0, at)
    at = chain("b", at)
    at = layer(1, at)
    at = chain("c", at)
    lines += [f"  ROOT r = f32[64,64] negate({at})", "}"]
    return "\n".join(lines)


def _first_level(text: str) -> tuple[list[str], int]:
    module = hs.read(text).module
    tree = group_tree(module)
    entry = next(g for g, k in enumerate(tree.kind) if KINDS[k] == "entry")
    labels = [tree.label[g] for g in tree.children()[entry]]
    return labels, int((tree.group == entry).sum())


def test_a_crowded_first_level_is_gathered_by_what_stands_before():
    labels, _ = _first_level(_program(6))
    assert "inputs" in labels
    assert "outputs" in labels
    assert len(labels) == len(set(labels))
    assert len(labels) <= 6
    assert labels.index("inputs") < labels.index("outputs")


def test_a_first_level_that_can_be_read_stays():
    labels, _ = _first_level(_program(1))
    assert "inputs" not in labels
    assert "outputs" not in labels
