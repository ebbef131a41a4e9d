"""One table says what opcodes do to a value, and no other file keeps a list of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from hloscope.hlo import opcodes
from hloscope.hlo.opcodes import OPCODES, Effect, async_half, data_operands

# Files that may name three opcodes or more in a literal, and why.
MAY_LIST = {
    "hlo/opcodes.py": "the table",
    "hlo/columns.py": "opcodes that name no computation",
    "readers/hlo/infer.py": "rules by which a result's shape follows from the operands'",
    "readers/hlo/checks.py": "how many computations an opcode has to name",
    "readers/proto/opcodes.py": "the spelling of attributes in protos",
    "readers/proto/attributes.py": "the spelling of attributes in protos",
    "readers/proto/proto.py": "the suffixes of asynchronous halves",
    "readers/stablehlo/text.py": "StableHLO's spelling",
    "analysis/flops/elementwise.py": "FLOPs per element",
    "analysis/flops/rules.py": "FLOPs of each opcode",
    "analysis/base/lines/lines.py": "a noun for each opcode",
    "analysis/base/labels/families.py": "the family of each opcode",
    "analysis/base/labels/labels.py": "opcodes in order of how much they tell in a label",
}
# Still to ask the table: take a file out of here when its lists are replaced.
NOT_YET = {
    "analysis/cost/bytes_accessed.py",
    "analysis/memory/argument_roles.py",
    "analysis/memory/liveness/values.py",
    "analysis/memory/peaks.py",
    "analysis/passes/identity/walk.py",
    "analysis/provenance/fates/fates.py",
    "analysis/provenance/fates/removed.py",
    "analysis/provenance/linked/equations.py",
    "analysis/provenance/linked/nouns.py",
    "capturing/marks/marks.py",
}
# Move data or only carry it: the opcodes that lists of "what to look through" are made of.
FOLLOWED = (
    opcodes.MOVES | opcodes.BUNDLES | opcodes.CONTROL | opcodes.FUSIONS | opcodes.LITERALS
    | {"parameter"}
)  # fmt: skip


def literals(tree: ast.AST) -> Iterator[tuple[int, list[str]]]:
    """Line and words of each list, set, tuple, dictionary and split text in a file."""
    for node in ast.walk(tree):
        held: list[ast.expr | None] = []
        if isinstance(node, ast.Set | ast.Tuple | ast.List):
            held = list(node.elts)
        elif isinstance(node, ast.Dict):
            held = list(node.keys)
        words = [n.value for n in held if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            text = node.func.value
            if node.func.attr == "split" and isinstance(text, ast.Constant):
                words = str(text.value).split()
        if words:
            yield node.lineno, words


def test_no_other_file_lists_opcodes_that_move_values(repo: Path) -> None:
    """Three or more in one literal are a list of its own, which will disagree with the table."""
    root = repo / "python" / "hloscope"
    found = {}
    for path in sorted(root.rglob("*.py")):
        where = path.relative_to(root).as_posix()
        if where in MAY_LIST or where in NOT_YET:
            continue
        for line, words in literals(ast.parse(path.read_text())):
            own = FOLLOWED & set(words)
            if len(own) > 2:
                found[f"{where}:{line}"] = sorted(own)
    assert found == {}


def test_classes_contain_one_another_as_their_names_say() -> None:
    assert opcodes.SAME_VALUE < opcodes.SAME_SHAPE < opcodes.SAME_NUMBERS
    assert opcodes.SAME_VALUE < opcodes.SAME_ORDER < opcodes.SAME_ELEMENTS < opcodes.SAME_NUMBERS
    assert opcodes.SAME_NUMBERS < opcodes.PART_OF_ONE < opcodes.MOVES
    assert opcodes.SAME_NUMBERS < opcodes.REPEATED < opcodes.MOVES
    assert not opcodes.MOVES & (opcodes.ELEMENTWISE | opcodes.PRODUCTS | opcodes.COMMUNICATION)
    assert "transpose" not in opcodes.SAME_ORDER  # a dimension is elsewhere afterwards
    assert "convert" not in opcodes.SAME_ELEMENTS
    assert {"copy-start", "slice-done", "opt-barrier"} <= opcodes.PART_OF_ONE


def test_every_effect_has_an_opcode_and_every_opcode_one_effect() -> None:
    assert {o.effect for o in OPCODES.values()} == set(Effect)
    assert sum(len(opcodes.that(e)) for e in Effect) == len(opcodes.ANYTHING)


def test_offsets_and_predicates_are_not_data() -> None:
    assert list(data_operands("dynamic-slice", 3)) == [0]
    assert list(data_operands("dynamic-update-slice", 4)) == [0, 1]
    assert list(data_operands("select", 3)) == [1, 2]
    assert list(data_operands("add", 2)) == [0, 1]
    assert list(data_operands("a-new-opcode", 2)) == [0, 1]


def test_halves_are_known_by_their_suffix() -> None:
    assert async_half("all-reduce-done") == ("all-reduce", "done")
    assert async_half("slice-start") == ("slice", "start")
    assert async_half("get-tuple-element") is None


def test_classes_hold_what_their_names_say() -> None:
    assert {"rng", "rng-bit-generator"} <= opcodes.RANDOM
    assert {"partition-id", "replica-id"} <= opcodes.DEVICE_IDS
    assert {"dot", "convolution", "ragged-dot"} <= opcodes.PRODUCTS
    assert {"reduce", "reduce-window"} <= opcodes.REDUCTIONS
    assert {"dynamic-update-slice", "scatter"} <= opcodes.UPDATES
    assert {"slice", "dynamic-slice", "slice-start"} <= opcodes.SLICES
    assert {"parameter", "constant", "iota"} <= opcodes.GIVEN
    assert {"all-gather", "all-gather-start", "all-to-all"} <= opcodes.RESHARDS
    assert "all-reduce" not in opcodes.RESHARDS
    assert set(opcodes.BARRIERS) <= opcodes.SAME_VALUE
