"""Labels, collectives, names of PyTorch, bytes of tiles and tables: each rule at its limit."""

from __future__ import annotations

import hloscope as hs
import numpy as np
import pytest
from hloscope.analysis.base.collectives.async_opcodes import produced
from hloscope.analysis.base.collectives.find import find, payload
from hloscope.analysis.base.labels.labels import labels, words_of_mask
from hloscope.analysis.base.lines.frames import FrameFinder
from hloscope.analysis.base.lines.lines import lines
from hloscope.analysis.base.loops.branches import branches
from hloscope.analysis.base.memory_spaces import platform
from hloscope.analysis.base.memory_tiling import padding_bytes, storage_bytes
from hloscope.analysis.base.table import per_target, table
from hloscope.hlo import Module, Target
from hloscope.hlo.shape import parse_shape
from stacked import Stacks

F = "f32[8,8]"
SUM = (
    "sum {\n  s0 = f32[] parameter(0)\n  s1 = f32[] parameter(1)\n  ROOT s = f32[] add(s0, s1)\n}\n"
)


def read(*rows: str, before: str = "") -> Module:
    """ENTRY of these rows after an argument ``x``."""
    body = "\n".join(f"  {row}" for row in (f"x = {F} parameter(0)", *rows))
    return hs.read(f"HloModule m, num_partitions=4\n{before}\nENTRY main {{\n{body}\n}}\n").module


def labelled(*rows: str, before: str = "") -> dict[str, str]:
    module = read(*rows, before=before)
    return dict(zip((i.name for i in module.instructions), labels(module), strict=True))


# -- labels ----------------------------------------------------------------------------------


def test_a_label_has_three_words_at_most() -> None:
    assert len(words_of_mask((1 << 40) - 1)) == 3
    frob = "frob {\n  p = f32[8,8] parameter(0)\n" + "".join(
        f"  {'ROOT ' if k == 3 else ''}o{k} = {F} odd{k}({f'o{k - 1}' if k else 'p'})\n"
        for k in range(4)
    )
    found = labelled(f"ROOT f = {F} fusion(x), kind=kLoop, calls=frob", before=frob + "}\n")
    assert found["f"] == "fusion odd0·odd1·odd2"


def test_a_product_says_the_shapes_of_its_two_arrays() -> None:
    target = 'custom_call_target="__cublas$gemm"'
    found = labelled(
        f"t = ({F}) tuple(x)", f"a = {F} custom-call(x, x, x), {target}",
        f"b = {F} custom-call(t, x, x), {target}", f"ROOT c = {F} custom-call(x), {target}",
    )  # fmt: skip
    assert [found[n] for n in "abc"] == ["matmul [8×8]·[8×8]", "matmul", "matmul"]


def test_a_call_that_only_marks_a_sharding_says_nothing() -> None:
    marked = f"""marked {{
  p = {F} parameter(0)
  m = {F} custom-call(p), custom_call_target="TARGET"
  ROOT n = {F} tanh(m)
}}
"""
    row = f"ROOT f = {F} fusion(x), kind=kLoop, calls=marked"
    for target, label in (("Sharding", "fusion tanh"), ("kernel", "fusion custom-call·tanh")):
        assert labelled(row, before=marked.replace("TARGET", target))["f"] == label


def test_what_calls_one_piece_of_work_has_its_label() -> None:
    works = f"""one {{
  p = {F} parameter(0)
  c = {F} bitcast(p)
  ROOT n = {F} tanh(c)
}}
two {{
  q = {F} parameter(0)
  r = {F} tanh(q)
  ROOT s = {F} sine(r)
}}
"""
    pair = f"(({F}), {F}, u32[])"
    found = labelled(
        f"a = {F} call(x), to_apply=one", f"b = {F} call(x), to_apply=two", f"c = {F} call(x)",
        f"d = {pair} async-start(x), calls=one", f"e = {pair} async-update(d)",
        f"f = {F} async-done(e)", f"g = {pair} async-start(x), calls=two",
        f"h = {F} async-done(g)", f"ROOT i = {F} async-done()", before=works,
    )  # fmt: skip
    assert [found[n] for n in "abc"] == ["tanh", "call two", "call"]
    assert [found[n] for n in "def"] == ["tanh-start", "tanh-update", "tanh-done"]
    assert [found[n] for n in "ghi"] == ["async-start", "async-done", "async-done"]


def test_a_constant_of_up_to_sixteen_characters_is_shown() -> None:
    found = labelled(
        "a = s64[] constant(1234567890123456)", "b = s64[] constant(12345678901234567)",
        "c = s64[9] constant({...})", "ROOT d = pred[] constant(true)",
    )  # fmt: skip
    assert [found[n] for n in "abcd"] == ["1234567890123456", "constant", "constant", "true"]


def test_a_transfer_says_the_array_it_moves() -> None:
    """Of a start with an operand and a result the result; of more the operands."""
    ids = "replica_groups={{0,1,2,3}}, to_apply=sum"
    found = labelled(
        f"a = {F} all-reduce(x), {ids}", f"b = ({F}, f32[4]) all-reduce(x, x), {ids}",
        f"c = ({F}, f32[32,8]) all-gather-start(x), dimensions={{0}}",
        f"ROOT d = ({F}, f32[2], u32[], u32[]) collective-permute-start(x)", before=SUM,
    )  # fmt: skip
    assert [found[n] for n in "abcd"] == [
        "all-reduce f32[8,8]", "all-reduce f32[8,8] +1", "all-gather-start f32[32,8]",
        "collective-permute-start f32[8,8]",
    ]  # fmt: skip


def test_a_dialect_is_no_part_of_a_label() -> None:
    found = labelled(f"a = {F} stablehlo.tanh(x)", f"ROOT b = {F} a.b.sine(a)")
    assert (found["a"], found["b"]) == ("tanh", "sine")


# -- collectives -----------------------------------------------------------------------------


def told(*rows: str, before: str = "") -> list[str]:
    """``kind of bytes: members`` of each collective."""
    module = read(*rows, before=SUM + before)
    names = [i.name for i in module.instructions]
    return [
        f"{f.kind} {payload(f)[0]}: {' '.join(names[m] for m in sorted(f.members))}"
        for f in find(module)
    ]


def fused(name: str, *rows: str) -> str:
    return "\n".join([f"{name} {{", f"  {name}p = {F} parameter(0)", *rows, "}", ""])


AR = "replica_groups={{0,1,2,3}}, to_apply=sum"


def test_a_reduction_fused_with_its_slice_is_a_reduce_scatter() -> None:
    at = "all-reduce-scatter"
    rows = [f"  ROOT g = {F} OP(NAMEp), channel_id=1, {AR}"]
    for name, op, kind in (
        (f"{at}.1", "all-reduce", "reduce-scatter"),
        ("plain", "all-reduce", "all-reduce"),
        (f"{at}.2", "all-gather", "all-gather"),
    ):
        inside = fused(name, *(r.replace("OP", op).replace("NAME", name) for r in rows))
        (one,) = told(f"ROOT f = {F} fusion(x), kind=kLoop, calls={name}", before=inside)
        assert one == f"{kind} 256: g f"


def test_one_transfer_printed_twice_in_a_fusion_is_one() -> None:
    gather = f"{F} all-gather(wp), channel_id=5, replica_groups={{{{0,1,2,3}}}}, dimensions={{0}}"
    inside = fused("w", f"  g1 = {gather}", f"  g2 = {gather}", f"  ROOT a = {F} add(g1, g2)")
    module = read(f"ROOT f = {F} fusion(x), kind=kLoop, calls=w", before=inside)
    (one,) = find(module)
    assert (one.op.name, len(one.members)) == ("g1", 3)


@pytest.mark.parametrize(
    ("row", "size"),
    [
        (f"all-reduce(x, x), {AR}", 512),
        ("ragged-all-to-all(x, x, x, x, x, x)", 256),  # only the first is sent
        ("collective-permute(x, y, i, j), slice_sizes={{2,8},{1,8}}", (16 + 8) * 4),
        ("collective-permute(x, y, i, j)", 512 + 8),
        ("collective-permute(x, y), slice_sizes={{2,8},{1,8}}", 512),
        ("all-to-all(x), slice_sizes={{2,8}}", 256),
        ("all-gather()", 256),  # its operands were cut off: the result is left
    ],
)
def test_the_payload_is_what_is_sent(row: str, size: int) -> None:
    rows = [f"y = {F} negate(x)", "i = s32[] constant(0)", "j = s32[] constant(0)"]
    (one,) = told(*rows, f"ROOT c = {F} {row}")
    assert one.split(":")[0].split()[1] == str(size)


@pytest.mark.parametrize(
    ("row", "size"),
    [
        (f"{F} all-reduce-start(x), {AR}", 256),
        (f"({F}, {F}) all-reduce-start(x, x), {AR}", 512),  # a tuple of results, not (x, result)
        (f"({F}, f32[32,8]) all-gather-start(x), dimensions={{0}}", 1024),
        ("(f32[32,8]) all-gather-start(x), dimensions={0}", 1024),
        ("f32[32,8] all-gather-start(x), dimensions={0}", 1024),
        (f"({F}, f32[2,8]) reduce-scatter(x, x), {AR}", 512),
    ],
)
def test_the_result_of_a_start_is_in_its_tuple(row: str, size: int) -> None:
    (one,) = told(f"ROOT c = {row}")
    assert one.split(":")[0].split()[1] == str(size)


def test_starts_wrap_one_operation() -> None:
    assert produced(read("ROOT s = ((f32[8,8]), f32[2]) slice-start(x)").find("s")).text == "f32[2]"
    for shape in ("((f32[8,8]))", "f32[2]"):
        assert produced(read(f"ROOT s = {shape} slice-start(x)").find("s")).text == shape


# -- PyTorch ---------------------------------------------------------------------------------


def torch(*metadata: str) -> list[str]:
    """Places of an addition for each, of which the last has a stack."""
    rows = [f"i{k} = {F} add(x, x), metadata={{{m}}}" for k, m in enumerate(metadata)]
    module = read(*rows, f'ROOT r = {F} negate(x), metadata={{op_name="jit(f)/neg"}}')
    t = table(module)
    found = [t.places[t.place[module.find(f"i{k}").index]] for k in range(len(metadata))]
    assert t.places[t.place[module.find("r").index]] == "jit(f)/neg"
    return found


def mm(more: str, op: str = "aten__mm", file: str = "") -> str:
    said = f' source_file="{file}"' if file else ""
    return f'op_type="{op}" op_name="{more}{op}"{said}'


def test_passes_of_pytorch_are_told_by_lines_and_names() -> None:
    back = mm("", "aten__tanh_backward")
    model, frame = mm("M[a]/", file="/m.py"), mm("", file="/m.py") + " stack_frame_id=1"
    for given, with_gradients, without in (
        (model, "jit(graph)/jvp()/a/aten__mm", "jit(graph)/a/aten__mm"),
        (mm("", file="/m.py"), "jit(graph)/jvp()/aten__mm", "aten__mm"),
        (mm(""), "jit(graph)/transpose(jvp())/aten__mm", "aten__mm"),
        (mm("", file="@No Python Frames"), "jit(graph)/transpose(jvp())/aten__mm", "aten__mm"),
        (mm("M[a]/"), "jit(graph)/transpose(jvp())/a/aten__mm", "jit(graph)/a/aten__mm"),
        # with frames data flow identifies the update
        (frame, "aten__mm", "aten__mm"),
        (mm("M[a]/") + " stack_frame_id=1", "jit(graph)/jvp()/a/aten__mm", "jit(graph)/a/aten__mm"),
        (mm("", "xla__device_data"), "xla__device_data", "xla__device_data"),
        (mm("", file="/torch/optim/sgd.py"), "jit(graph)/sgd/aten__mm", "jit(graph)/sgd/aten__mm"),
        (mm("", file="/my/adamw2.py"), "jit(graph)/adamw2/aten__mm", "jit(graph)/adamw2/aten__mm"),
    ):  # fmt: skip
        assert torch(given) == [without]
        assert torch(given, back)[0] == with_gradients
    assert torch(back) == ["jit(graph)/transpose(jvp())/aten__tanh_backward"]


@pytest.mark.parametrize(
    ("module", "part"),
    [
        ("Linear[q]", "q"), ("Layer[layers.3]", "layers.3"), ("Layer[.layers]", "layers"),
        ("Linear[]", "Linear"), ("Linear[3]", "Linear"), ("scope", "scope"),
    ],
)  # fmt: skip
def test_a_module_of_pytorch_has_the_name_of_its_attribute(module: str, part: str) -> None:
    assert torch(mm(f"{module}/")) == [f"jit(graph)/{part}/aten__mm"]


# -- bytes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ("f32[5,100]", 2000),
        ("f32[5,100]{1,0:T(8,128)}", 8 * 128 * 4),
        ("f32[5,100]{0,1:T(8,128)}", 104 * 128 * 4),
        ("f32[100]{0:T(8,128)}", 8 * 128 * 4),  # one row
        ("f32[]{:T(8,128)}", 8 * 128 * 4),
        ("f32[3,5,100]{2,1,0:T(8,128)}", 3 * 8 * 128 * 4),
        ("bf16[5,100]{1,0:T(8,128)(2,1)}", 2048),
        ("f32[300]{0:T(256)}", 512 * 4),
        ("pred[5]{0:T(8)}", 8),
        ("s8[9]{0:T(8)}", 16),
        ("s4[16]{0:T(8)E(4)}", 8),
        ("s4[16]{0:T(8)}", 16),  # a byte each unless packed
        ("s4[9]{0:T(1)E(4)}", 5),
        ("f32[5,100]{1,0:T(*,128)}", 2000),
        ("(f32[100]{0:T(8,128)}, f32[2])", 4096 + 8),
    ],
)
def test_tiles_are_stored_whole(shape: str, size: int) -> None:
    at = parse_shape(shape)
    assert storage_bytes(at) == size
    assert padding_bytes(at) == size - at.byte_size


@pytest.mark.parametrize(
    ("row", "on"),
    [
        ('custom-call(x), custom_call_target="__cublas$gemm"', "gpu"),
        ('custom-call(x), custom_call_target="triton_kernel_call"', "gpu"),
        ('custom-call(x), custom_call_target="tpu_custom_call"', ""),
        ("custom-call(x)", ""),
        ('fusion(x), kind=kLoop, calls=f, backend_config={"fusion_backend_config":{}}', "gpu"),
        ("fusion(x), kind=kLoop, calls=f", ""),
        ('copy(x), backend_config={"fusion_backend_config":{}}', ""),
        ('copy(x), frontend_attributes={custom_call_target="__cublas"}', ""),
    ],
)
def test_a_platform_is_told_by_what_only_it_has(row: str, on: str) -> None:
    before = f"f {{\n  p = {F} parameter(0)\n  ROOT n = {F} negate(p)\n}}\n"
    assert platform(read(f"ROOT c = {F} {row}", before=before), Target()) == on
    assert platform(read("ROOT c = f32[8,8]{1,0:T(8,128)} negate(x)"), Target()) == "tpu"
    assert platform(read(f"ROOT c = {F} {row}", before=before), Target(platform="cpu")) == "cpu"


# -- tables ----------------------------------------------------------------------------------


def test_columns_of_a_module() -> None:
    before = f"aside {{\n  p = {F} parameter(0)\n  i = s32[] iota()\n  ROOT n = {F} negate(p)\n}}\n"
    module = read(
        f"k = {F} constant({{...}})", f"a = {F} add(x, k)", f"b = {F} call(a), to_apply=aside",
        f"c = {F} call(b), to_apply=aside", f"ROOT d = (f32[], {F}) tuple(c)",
        before=before,
    )  # fmt: skip
    t = table(module)
    assert table(module) is t
    names = [i.name for i in module.instructions]
    at = {n: k for k, n in enumerate(names)}
    assert [names[r] for r in t.roots] == ["n", "d"]
    assert [names[r] for r in np.flatnonzero(t.silent)] == ["p", "i", "x", "k"]
    assert [names[r] for r in t.where("negate", "add")] == ["n", "a"]
    pairs = zip(t.operands.rows, t.operands.values, strict=True)
    assert [(names[u], names[v]) for u, v in pairs] == [
        ("n", "p"), ("a", "x"), ("a", "k"), ("b", "a"), ("c", "b"), ("d", "c"),
    ]  # fmt: skip
    callers, roles = t.caller()
    assert (callers.tolist(), roles) == ([at["b"], -1], ["to_apply", ""])  # the first of two
    assert t.reduce_by_computation(np.add, np.ones(len(names), np.int64), 0).tolist() == [3, 6]
    assert (t.first.tolist(), t.size.tolist()) == ([0, 3], [3, 6])
    assert t.shapes[t.shape[at["d"]]].text == f"(f32[], {F})"
    assert len(t.shapes) == 3


def test_a_computation_without_instructions_has_what_is_given_for_it() -> None:
    module = hs.read(
        f"HloModule m\nnone {{\n}}\nENTRY e {{\n  ROOT x = {F} parameter(0)\n}}\n"
    ).module
    t = table(module)
    assert t.size.tolist() == [0, 1]
    assert t.reduce_by_computation(np.add, np.array([5]), 7).tolist() == [7, 5]
    assert t.roots.tolist() == [-1, 0]
    empty = table(hs.read("HloModule m\nENTRY e {\n}\n").module)
    assert empty.roots.tolist() == [-1]
    assert empty.reduce_by_computation(np.add, np.zeros(0, np.int64), 7).tolist() == [7]


def test_an_analysis_for_a_target_is_made_once_for_it() -> None:
    made: list[Target] = []

    @per_target
    def count(module: Module, target: Target) -> int:
        made.append(target)
        return len(made)

    module, one, other = read(), Target(), Target(platform="tpu")
    assert [count(module, t) for t in (one, one, other, other, one)] == [1, 1, 2, 2, 3]
    assert made == [one, other, one]


def test_branches_around_branches() -> None:
    def of(name: str, row: str) -> str:
        return f"{name} {{\n  {name}p = {F} parameter(0)\n  ROOT {name}r = {F} {row}\n}}\n"

    inner = of("low", "negate(lowp)") + of("high", "tanh(highp)")
    choose = "branch_computations={low, high}"
    outer = of("one", f"conditional(i, onep, onep), {choose}") + of(
        "two", "call(twop), to_apply=sub"
    )
    module = read(
        "i = s32[] constant(0)",
        f"ROOT c = {F} conditional(i, x, x), branch_computations={{one, two}}",
        before=inner + of("sub", "sine(subp)") + outer,
    )
    names = [i.name for i in module.instructions]
    said = {
        c.name: [(names[b.conditional], b.number, b.of) for b in path]
        for c, path in zip(module.computations, branches(module), strict=True)
    }
    assert said == {
        "low": [("c", 0, 2), ("oner", 0, 2)], "high": [("c", 0, 2), ("oner", 1, 2)],
        "sub": [("c", 1, 2)], "one": [("c", 0, 2)], "two": [("c", 1, 2)], "main": [],
    }  # fmt: skip


# -- lines -----------------------------------------------------------------------------------


def test_stacks_are_found_once_and_a_frame_that_is_not_there_is_none() -> None:
    stacks = Stacks()
    frame = stacks.frame([("step", 3), ("layer", 8)])
    meta = "metadata={stack_frame_id=%d}"
    rows = [f"a = {F} tanh(x), {meta % frame}", f"b = {F} sine(a), {meta % frame}",
            f"c = {F} sine(x), {meta % 99}", f"ROOT r = ({F}, {F}) tuple(b, c)"]  # fmt: skip
    body = "\n".join(f"  {row}" for row in (f"x = {F} parameter(0)", *rows))
    module = hs.read(f"{stacks.head()}ENTRY main {{\n{body}\n}}\n").module
    finder = FrameFinder(module)
    stack = [(f.function, f.line) for f in finder.of(module.find("a"))]
    assert stack == [("layer", 8), ("step", 3)]
    assert finder.of(module.find("b")) == finder.of(module.find("a"))
    assert finder.of(module.find("x")) == ()
    found = lines(module)
    assert [found.text(module.find(n)) for n in "abc"] == ["step.py:8", "step.py:8", ""]


def test_the_part_of_a_part_is_named_even_where_it_is_the_first_row_of_all() -> None:
    stacks = Stacks()
    meta = f"metadata={{stack_frame_id={stacks.frame([('step', 3)])}}}"
    text = f"""inner {{
  ROOT k = {F} custom-call(), custom_call_target="k", {meta}
}}
outer {{
  p = {F} parameter(0)
  of = {F} fusion(), kind=kLoop, calls=inner
  ROOT n = {F} add(p, of)
}}
ENTRY main {{
  x = {F} parameter(0)
  ROOT f = {F} fusion(x), kind=kLoop, calls=outer
}}
"""
    module = hs.read(stacks.head() + text).module
    found = lines(module)
    assert [found.text(module.find(name)) for name in ("k", "of", "f")] == [
        "step.py:3", *["step.py:3, inferred: its heaviest part is `k`"] * 2,
    ]  # fmt: skip
