"""HLO as people write it: every habit that XLA's parser takes gives the same Module."""

from __future__ import annotations

import math

import pytest
from hlo_snippets import SNIPPETS
from hlo_styles import styles, write
from hloscope import diff, read
from hloscope.hlo import Module
from hloscope.hlo.compare import differences
from hloscope.hlo.shape import parse_shape
from hloscope.hlo.shardings.sharding_text import parse_sharding
from hloscope.readers import read_modules
from xla_oracle import Refused, ask_xla, compare


def one(text: str) -> Module:
    (found,) = read_modules(text)
    return found


@pytest.mark.parametrize("name", SNIPPETS)
def test_every_way_to_write_a_program_is_the_same_program(name: str) -> None:
    """Some 40 habits each; what XLA's parser refuses of them is not asked of ours."""
    plain = one(SNIPPETS[name])
    for n, style in enumerate(styles()):
        text = write(plain, style, n)
        found = one(text)
        assert found.warnings == (), (style, found.warnings, text)
        assert differences(plain, found) == [], (style, text)


@pytest.mark.parametrize("name", ["basic", "coll", "math"])
def test_those_ways_agree_with_xla(name: str) -> None:
    plain = one(SNIPPETS[name])
    taken = 0
    for n, style in enumerate(styles()):
        text = write(plain, style, n)
        try:
            theirs = ask_xla(text)
        except Refused:
            continue
        taken += 1
        assert compare(one(text), theirs) == [], (style, text)
    assert taken >= 15


# name → (text, operands of the root, opcodes in ENTRY)
ODD: dict[str, tuple[str, list[str], list[str]]] = {
    "an operand with and one without percent": (
        "ENTRY e { a = f32[4]{0} parameter(0)\n %b = f32[4]{0} parameter(1)\n"
        " ROOT r = f32[4]{0} add(%b, a) }",
        ["b", "a"],
        ["parameter", "parameter", "add"],
    ),
    "a constant in place": (
        "ENTRY e {\n a = f32[] parameter(0)\n ROOT r = f32[] multiply(a, f32[] constant(2))\n}",
        ["a", "constant.anon"],
        ["parameter", "constant", "multiply"],
    ),
    "parameters in place": (
        "ENTRY e {\n ROOT r = f32[4]{0} add(f32[4]{0} parameter(0), f32[4]{0} parameter(1))\n}",
        ["parameter.anon", "parameter.anon.1"],
        ["parameter", "parameter", "add"],
    ),
    "operations in place, several deep, without shapes": (
        "ENTRY e {\n a = f32[2]{0} parameter(0)\n ROOT r = negate(add(multiply(a, a), a))\n}",
        ["add.anon"],
        ["parameter", "multiply", "add", "negate"],
    ),
    "a computation in place": (
        "ENTRY e {\n a = f32[8]{0} parameter(0)\n z = f32[] constant(0)\n"
        " ROOT r = f32[] reduce(a, z), dimensions={0}, to_apply={\n  x = f32[] parameter(0)\n"
        "  y = f32[] parameter(1)\n  ROOT s = f32[] add(x, y)\n }\n}",
        ["a", "z"],
        ["parameter", "constant", "reduce"],
    ),
    "computations in place, a list of them, one in another": (
        "ENTRY e {\n k = s32[] parameter(0)\n a = f32[8]{0} parameter(1)\n"
        " ROOT r = f32[8]{0} conditional(k, a, a), branch_computations={\n {\n"
        "  x = f32[8]{0} parameter(0)\n  ROOT s = f32[8]{0} fusion(x), kind=kLoop, calls=\n  {\n"
        "   y = f32[8]{0} parameter(0)\n   ROOT n = f32[8]{0} negate(y)\n  }\n },\n {\n"
        "  ROOT x = f32[8]{0} parameter(0)\n }\n }\n}",
        ["k", "a", "a"],
        ["parameter", "parameter", "conditional"],
    ),
    "ROOT, name, shape and opcode each on a line": (
        "ENTRY\ne\n{\na\n=\nf32[4]{0}\nparameter(0)\nROOT\nr\n=\nf32[4]{0}\nadd(a\n,\na)\n}\n",
        ["a", "a"],
        ["parameter", "add"],
    ),
    "all on one line": (
        "ENTRY e { a = f32[4]{0} parameter(0), sharding={replicated} "
        "ROOT r = f32[4]{0} add(a, a) }",
        ["a", "a"],
        ["parameter", "add"],
    ),
    "a dynamic shape with blanks": (
        "ENTRY e {\n a = s32[2, <=2, 3] parameter(0)\n ROOT r = s32[2, <=2, 3] negate(a)\n}",
        ["a"],
        ["parameter", "negate"],
    ),
    "comments that look like code": (
        "// ENTRY x {\nENTRY e { /* ROOT q = */\n a = f32[4]{0} parameter(0) // , b = f32[] add(\n"
        " /* r = f32[4]{0} add(a, a)\n } */ ROOT r = f32[4]{0} negate(a)\n}",
        ["a"],
        ["parameter", "negate"],
    ),
    "metadata over several lines": (
        'ENTRY e {\n a = f32[4]{0} parameter(0)\n ROOT r = f32[4]{0} custom-call(a),\n'
        ' custom_call_target="k", frontend_attributes={kernel={\n"a": "}{",\n"b": {\n}\n}},\n'
        ' metadata={op_name="f"\n source_file="a.py"}\n}',
        ["a"],
        ["parameter", "custom-call"],
    ),
    "operands with types of many commas": (
        "ENTRY e {\n %t = (f32[2,2]{1,0}, (s32[], pred[3]{0})) parameter(0)\n"
        " ROOT %r = (s32[], pred[3]{0}) get-tuple-element((f32[2,2]{1,0}, (s32[], pred[3]{0})) %t),"
        " index=1\n}",
        ["t"],
        ["parameter", "get-tuple-element"],
    ),
    "elements of a tuple": (
        "ENTRY e {\n t = (f32[2]{0}, f32[2]{0}) parameter(0)\n"
        " ROOT r = f32[2]{0} add(%t#0, %t#1)\n}",
        ["t_0", "t_1"],
        ["parameter", "get-tuple-element", "get-tuple-element", "add"],
    ),
    "no layouts, and a shape that follows": (
        "ENTRY e {\n a = f32[2,3] parameter(0)\n b = f32[3,4] parameter(1)\n"
        " ROOT d = dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}",
        ["a", "b"],
        ["parameter", "parameter", "dot"],
    ),
}  # fmt: skip


def test_computations_in_place_are_called_in_their_order() -> None:
    m = one(f"HloModule m\n{ODD['computations in place, a list of them, one in another'][0]}\n")
    assert m.entry is not None
    assert m.entry.root is not None
    first, second = m.entry.root.called_computations
    assert [i.opcode for i in first.instructions] == ["parameter", "fusion"]
    assert [i.opcode for i in second.instructions] == ["parameter"]
    assert first.root is not None
    (fused,) = first.root.called_computations
    assert [i.opcode for i in fused.instructions] == ["parameter", "negate"]


def test_a_brace_too_many_in_a_computation_in_place_is_said() -> None:
    text = (
        "HloModule m\nENTRY e {\n a = f32[8]{0} parameter(0)\n z = f32[] constant(0)\n"
        " ROOT r = f32[] reduce(a, z), dimensions={0}, to_apply={\n  x = f32[] parameter(0)\n {\n"
        " }\n  y = f32[] parameter(1)\n  ROOT s = f32[] add(x, y)\n }\n}\n"
    )
    m = one(text)
    assert m.entry is not None
    assert [i.opcode for i in m.entry.instructions] == ["parameter", "constant", "reduce"]
    assert [w.line for w in m.warnings if "a brace too many" in w.message] == [8]


@pytest.mark.parametrize("name", ODD)
def test_odd_but_right(name: str) -> None:
    text, operands, opcodes = ODD[name]
    m = one(f"HloModule m\n{text}\n")
    assert m.warnings == ()
    assert m.entry is not None
    assert m.entry.root is not None
    assert [o.name for o in m.entry.root.operands] == operands
    assert [i.opcode for i in m.entry.instructions] == opcodes
    assert all(i.shape.text for i in m.instructions)
    assert [i.index for i in m.instructions] == list(range(len(m.instructions)))


SHAPES = {
    "compare(a, a), direction=LT": "pred[2,3]",
    "transpose(a), dimensions={1,0}": "f32[3,2]",
    "concatenate(a, a), dimensions={1}": "f32[2,6]",
    "reduce(a, z), dimensions={0}, to_apply=s": "f32[3]",
    "pad(a, z), padding=1_2x0_1_1": "f32[5,6]",
    "tuple(a, z)": "(f32[2,3], f32[])",
    "dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={1}": "f32[2,2]",
    "complex(a, a)": "c64[2,3]",
    "is-finite(a)": "pred[2,3]",
    "call(z, z), to_apply=s": "f32[]",
    "map(a, a), to_apply=s": "f32[2,3]",
    "reduce-window(a, z), window={size=1x2 stride=1x2 pad=0_0x0_1}, to_apply=s": "f32[2,2]",
    "get-dimension-size(a), dimensions={0}": "s32[]",
    "fft(a), fft_type=RFFT, fft_length={3}": "c64[2,2]",
    "partition-id()": "u32[]",
    "reverse(a), dimensions={0}": "f32[2,3]",
    "sort(a), dimensions={1}, to_apply=lt": "f32[2,3]",
    "imag(complex(a, a))": "f32[2,3]",
    "abs(complex(a, a))": "f32[2,3]",
    "clamp(z, a, z)": "f32[2,3]",
    "shift-left(i, i)": "s32[5]",
    "replica-id()": "u32[]",
    "after-all()": "token[]",
    "gather(a, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
    "index_vector_dim=1, slice_sizes={1,3}": "f32[5,3]",
}


@pytest.mark.parametrize("expression", SHAPES)
def test_shapes_that_are_left_out_follow_from_the_operands(expression: str) -> None:
    text = (
        "HloModule m\ns { x = f32[] parameter(0) y = f32[] parameter(1) ROOT n = add(x, y) }\n"
        "lt { x = f32[] parameter(0) y = f32[] parameter(1) "
        "ROOT n = compare(x, y), direction=LT }\n"
        "ENTRY e {\n a = f32[2,3]{1,0} parameter(0)\n z = f32[] constant(0)\n"
        f" i = s32[5]{{0}} parameter(1)\n ROOT r = {expression}\n}}\n"
    )
    m = one(text)
    assert m.warnings == ()
    assert m.entry is not None
    assert m.entry.root is not None
    assert m.entry.root.shape.dense_text == SHAPES[expression]
    try:
        theirs = ask_xla(text)
    except Refused:
        return  # this parser does not know the opcode's short form
    (root,) = [row for row in theirs["computations"]["e"] if row[5]]
    assert parse_shape(root[2]).dense_text == SHAPES[expression]


LOST = {
    "an operand that is nothing": ("add(a, !b!)", "operand that is not here"),
    "a word among the attributes": ("negate(a), kind=kLoop what is this", "what is this"),
    "an attribute without a value": ("negate(a), sharding=", "not an attribute"),
    "a brace that is never closed": ("negate(a), sharding={devices=[2", "not an attribute"),
    "a quote that is never closed": ('negate(a), metadata={op_name="x}', "not an attribute"),
    "arguments that are never closed": ("add(a, a", "not closed"),
    "a shape that cannot follow": ("broadcast-in-some-way(a)", ""),
}


@pytest.mark.parametrize("name", LOST)
def test_what_is_lost_is_said_with_its_line(name: str) -> None:
    wrong, said = LOST[name]
    m = one(
        "HloModule m\n\nENTRY %e (a: f32[4]) -> f32[4] {\n  %a = f32[4]{0} parameter(0)\n"
        f"  %b = f32[4]{{0}} {wrong}\n  ROOT %r = f32[4]{{0}} negate(%a)\n}}\n"
    )
    assert [i.name for i in m.instructions] == ["a", "b", "r"]
    assert [w.line for w in m.warnings] == ([5] * len(m.warnings) or [])
    assert bool(m.warnings) == bool(said)
    assert all(said in str(w) for w in m.warnings[:1])


def test_the_computation_after_a_damaged_line_is_whole() -> None:
    m = one(
        "HloModule m\n\n%f (a: f32[4]) -> f32[4] {\n  %a = f32[4]{0} parameter(0)\n"
        "  ROOT %b = f32[4]{0} negate(%a), frontend_attributes={x={\n}\n\n"
        "ENTRY %e (c: f32[4]) -> f32[4] {\n  %c = f32[4]{0} parameter(0)\n"
        "  ROOT %d = f32[4]{0} call(%c), to_apply=%f\n}\n"
    )
    assert [i.name for i in m.instructions] == ["a", "b", "c", "d"]
    assert m.entry is not None
    assert m.warnings[0].line == 5


def test_a_dump_cut_before_its_entry_has_no_totals() -> None:
    """XLA prints ENTRY last; what is left must not pass for the program."""
    small = (
        "HloModule jit_f, is_scheduled=true, "
        "entry_computation_layout={(f32[9]{0}, f32[9]{0})->f32[]}\n\n"
        "%add (x: f32[], y: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n"
        "  %y = f32[] parameter(1)\n  ROOT %s = f32[] add(%x, %y)\n}\n\n"
    )
    for text in (
        small,
        small + "%other (x: f32[]) -> f32[] {\n  ROOT %x = f32[] parameter(0)\n}\n",
        small + "%other (x: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n  ROOT %y = f32[] neg",
    ):
        m = one(text)
        assert m.entry is None
        assert "totals are unknown" in m.warnings[-1].message
        assert m.instructions


def test_figures_of_a_cut_dump_are_of_what_is_there() -> None:
    m = (
        "HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[9]{0})->f32[]}\n\n"
        "%body (a: f32[8,8]) -> f32[8,8] {\n  %a = f32[8,8]{1,0} parameter(0)\n"
        "  ROOT %d = f32[8,8]{1,0} dot(%a, %a), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0}\n}\n\n%next (b: f32[8,8]) -> f32[8,8] {\n  %b = f32[8,8]{1,0} par"
    )
    cap = read(m)
    cost = cap.cost("tpu-v5e")
    assert math.isnan(cost.total_flops)
    assert cost.to_dict()["flops"] is None
    assert "modelled_seconds" not in cost.to_dict()
    (row,) = [r for r in cost if r.flops > 0]
    assert row.flops == 2 * 8**3
    assert cap.summary["parameter_bytes"] is None
    assert cap.summary["output_bytes"] is None
    assert "flops" not in cap.summary
    assert "parameters    unknown" in str(cap)
    assert "nothing" not in str(diff(cap, cap)).split("\n")[0]
    with pytest.raises(ValueError, match="needs an ENTRY"):
        _ = cap.memory


@pytest.mark.parametrize(
    ("text", "kind", "tiles"),
    [
        ('{replicated metadata={op_name="a"}}', "replicated", ()),
        ('{devices=[2,2,2]<=[8] metadata={op_name="a"}}', "tiled", (2, 2, 2)),
        (
            '{devices=[2,1,2]<=[4] last_tile_dim_replicate metadata={{op_name="}"}, {}}}',
            "tiled",
            (2, 1),
        ),
        ('{maximal device=1 metadata={op_name="a"}}', "maximal", ()),
    ],
)
def test_shardings_with_metadata_are_read(text: str, kind: str, tiles: tuple[int, ...]) -> None:
    found = parse_sharding(text)
    assert (found.kind, found.tiles) == (kind, tiles)


def test_attributes_that_mean_nothing_are_said() -> None:
    m = one(
        "HloModule m, num_partitions=4\n\nENTRY %e (a: f32[4]) -> f32[4] {\n"
        "  %a = f32[4]{0} parameter(0), sharding={devices=[2,?]<=[4]}\n"
        "  %b = f32[4]{0} all-reduce(%a), replica_groups={what}, to_apply=%gone\n"
        "  ROOT %c = f32[4]{0} negate(%b), sharding={unknown}\n}\n"
    )
    assert [(w.line, w.message.split(":")[0]) for w in m.warnings] == [
        (4, "the sharding of %a is not understood"),
        (5, "the groups of %b are not understood"),
        (5, "%b has to_apply=%gone, which is not here"),
    ]


def test_braces_in_comments_within_attributes_open_nothing() -> None:
    m = one(
        "HloModule m\n\nENTRY %e (a: f32[8,8]) -> f32[8,8] {\n  %a = f32[8,8]{1,0} parameter(0)\n"
        "  ROOT %d = f32[8,8]{1,0} dot(%a, %a), lhs_contracting_dims={ /* x = { */ 1}, "
        'rhs_contracting_dims={0 /* , } */}, frontend_attributes={k="/* { */"}\n}\n'
    )
    assert m.warnings == ()
    root = m.instructions[-1]
    assert list(root.attributes) == [
        "lhs_contracting_dims",
        "rhs_contracting_dims",
        "frontend_attributes",
    ]
    assert root.attribute("frontend_attributes") == '{k="/* { */"}'


def test_comments_that_xla_prints_stay() -> None:
    layout = "{(f32[], f32[], f32[], f32[], f32[], /*index=5*/f32[])->f32[]}"
    m = one(
        f"HloModule m, entry_computation_layout={layout}\n\n"
        "ENTRY e {\n  ROOT a = f32[] parameter(0)\n}\n"
    )
    assert m.attributes["entry_computation_layout"] == layout


def test_a_transpose_without_a_shape_has_the_layout_that_xla_gives_it() -> None:
    text = (
        "HloModule m\n\nENTRY e {\n a = f32[2,3,4] parameter(0)\n"
        " ROOT r = transpose(a), dimensions={2,0,1}\n}\n"
    )
    (root,) = [r for r in ask_xla(text)["computations"]["e"] if r[5]]
    assert one(text).instructions[-1].shape.text == root[2]
