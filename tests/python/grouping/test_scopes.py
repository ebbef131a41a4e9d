"""op_name → scopes, with and without metadata; the tree of groups."""

from __future__ import annotations

import numpy as np
import pytest
from hloscope.analysis.base.labels.flags import QUIET, flags
from hloscope.analysis.base.lines.op_name import parse_op_name, relative
from hloscope.analysis.grouping.components import WIDE
from hloscope.analysis.grouping.groups import KINDS, group_tree
from hloscope.analysis.grouping.loose import FLAT
from hloscope.analysis.grouping.scopes import scopes
from hloscope.readers import read_modules
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("op_name", "path"),
    [
        ("jit(step)/transpose(jvp(layer_0))/mlp/dot_general", ("backward", "layer_0", "mlp")),
        ("jit(step)/jvp(layer_0)/mlp/add", ("forward", "layer_0", "mlp")),
        ("jit(step)/mul", ()),
        ("jit(f)/jit(main)/jvp(M)/h/3/3/attn/bld,bmd->blm/mul", ("forward", "M", "h/3", "attn")),
        ("jit(step)/(a/mul:a/b/add)", ("a",)),
        ("jit(step)/a/mul;jit(step)/a/b/add", ("a",)),
        ("jit(f)/jvp(loss)/jit(log_softmax)/sub", ("forward", "loss", "log_softmax()")),
        ("xmap(f)/dot_general[ dimension_numbers=(((1,), (0,)), ((), ())) a/b ]", ()),
        ("parallelize(f)/jit(main)/transpose(jvp(M))/layer/5/remat(core)/5/out/mul",
         ("backward", "M", "layer/5", "out")),
        ("jit(f)/transpose(jvp(jvp()))/checkpoint/rematted_computation/layer_1/mlp/mul",
         ("backward", "layer_1", "rematted_computation", "mlp")),
        ("jit(f)/transpose(jvp())/while/body/closed_call/layer/add",
         ("backward", "while", "body", "layer")),
        (
            "jit(f)/transpose(jvp())/while/body/closed_call/checkpoint/rematted_computation/mlp/add",
            ("backward", "while", "body", "rematted_computation", "mlp"),
        ),
        ("broadcast.29", None),
        ("reduce_sum", None),
        ("", None),
    ],
)  # fmt: skip
def test_op_names(op_name, path):
    assert parse_op_name(op_name) == path


def test_inside_a_loop_the_callers_words_are_left_out():
    base = ("backward",)
    assert relative(("backward", "while", "body", "layer", "mlp"), base) == ("layer", "mlp")
    assert relative(("cond", "branch_1_fun", "expert"), ()) == ("expert",)
    assert relative(("other", "x"), ("layer",)) == ("other", "x")


@given(st.text(alphabet="ab/()[];:->jvptranse{}\"'\\ \n", max_size=60))
def test_any_text_is_a_scope_or_none(text):
    path = parse_op_name(text)
    assert path is None or all(isinstance(c, str) and c for c in path)


def names_to(module, values):
    return dict(zip((i.name for i in module.instructions), values, strict=True))


HERITAGE = """HloModule m

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  %a = f32[4]{0} tanh(%x), metadata={op_name="jit(f)/first/tanh"}
  %copied = f32[4]{0} copy(%a)
  %early = f32[4]{0} reverse(%x), dimensions={0}
  %c = f32[] constant(2)
  %b = f32[4]{0} add(%copied, %early), metadata={op_name="jit(f)/second/add"}
  %wide = f32[4]{0} broadcast(%c), dimensions={}
  %d = f32[4]{0} multiply(%b, %wide), metadata={op_name="jit(f)/second/mul"}
  ROOT %e = f32[4]{0} multiply(%a, %wide), metadata={op_name="jit(f)/first/mul"}
}
"""


def test_instructions_without_a_name_inherit_from_neighbours():
    module = read_modules(HERITAGE)[0]
    found = scopes(module)
    path = names_to(module, [found.paths[s] for s in found.scope])
    assert path["copied"] == ("first",)  # its operand's
    assert path["early"] == ("second",)  # a parameter says nothing: its user's
    assert path["wide"] == ()  # shared by both scopes
    assert names_to(module, found.inherited)["copied"]
    assert not names_to(module, found.inherited)["a"]


HOISTED = """HloModule m

ENTRY %main (x: f32[4]) -> (f32[4], f32[4]) {
  %x = f32[4]{0} parameter(0)
  %early = f32[4]{0} cosine(%x), metadata={op_name="jit(f)/layers/cos"}
  %a = f32[4]{0} multiply(%x, %early), metadata={op_name="jit(f)/jvp(net)/decoder/mul"}
  %g = f32[4]{0} multiply(%a, %early), metadata={op_name="jit(f)/transpose(jvp(net))/decoder/mul"}
  %late = f32[4]{0} sine(%g), metadata={op_name="jit(f)/averages/sin"}
  ROOT %r = (f32[4], f32[4]) tuple(%g, %late)
}
"""


def test_what_a_loop_over_layers_computes_once_is_of_the_forward_pass():
    module = read_modules(HOISTED)[0]
    found = scopes(module)
    path = names_to(module, [found.paths[s] for s in found.scope])
    assert path["early"] == ("forward", "layers")
    assert path["late"][0] != "forward"


def test_a_loop_has_what_it_computes_once_beside_it():
    text = HOISTED.replace("jvp(net)/decoder/mul", "jvp(net)/decoder/layers.wrapped/mul")
    module = read_modules(text)[0]
    found = scopes(module)
    path = names_to(module, [found.paths[s] for s in found.scope])
    assert path["early"] == ("forward", "net", "decoder", "layers.wrapped")


def test_markers_of_shardings_are_plumbing():
    text = """HloModule m

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  %s = f32[4]{0} custom-call(%x), custom_call_target="Sharding", sharding={replicated}
  ROOT %k = f32[4]{0} custom-call(%s), custom_call_target="my_kernel"
}
"""
    module = read_modules(text)[0]
    quiet = names_to(module, (flags(module) & QUIET) != 0)
    assert quiet["s"]
    assert not quiet["k"]


COMBINED = """HloModule m

%sum (p: f32[], q: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  %q = f32[] parameter(1)
  ROOT %s = f32[] add(%p, %q)
}

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  %a = f32[4]{0} tanh(%x), metadata={op_name="jit(f)/net/layer_0/tanh"}
  %b = f32[4]{0} exponential(%a), metadata={op_name="jit(f)/net/layer_1/exp"}
  %all = (f32[4], f32[4]) all-reduce(%a, %b), metadata={op_name="jit(f)/net/layer_1/psum"}
  %a1 = f32[4]{0} get-tuple-element(%all), index=0
  %b1 = f32[4]{0} get-tuple-element(%all), index=1
  %a2 = f32[4]{0} negate(%a1), metadata={op_name="jit(f)/net/layer_0/neg"}
  ROOT %b2 = f32[4]{0} add(%b1, %a2), metadata={op_name="jit(f)/net/layer_1/add"}
}
"""


def test_a_combined_collective_is_above_the_scopes_it_combines():
    module = read_modules(COMBINED)[0]
    found = scopes(module)
    path = names_to(module, [found.paths[s] for s in found.scope])
    assert path["all"] == ("net",)
    assert path["a1"] == ("net", "layer_0")
    assert path["b1"] == ("net", "layer_1")


def test_seed_004_leaves_two_without_a_scope(seeds):
    module = read_modules(next(seeds.glob("004_*")).read_bytes())[0]
    entry = module.entry.instructions
    assert sum(not i.op_name for i in entry) == 887
    found = scopes(module).scope[[i.index for i in entry]]
    assert int((found < 0).sum()) == 2


def groups_of(module):
    tree = group_tree(module)
    return tree, {label: g for g, label in enumerate(tree.label)}


def test_layers_forward_and_backward_are_sibling_blocks(compiled):
    tree, at = groups_of(compiled("gpt_unrolled").module)
    passes = [next(g for x, g in at.items() if x.startswith(p)) for p in ("forward", "backward")]
    assert [KINDS[tree.kind[tree.parent[g]]] for g in passes] == ["entry", "entry"]
    layers = [g for g, s in enumerate(tree.label) if s == "layer_1"]
    around = [(tree.parent[g], tree.parent[tree.parent[g]]) for g in layers]
    assert len(layers) == 2
    assert all(set(found) & set(passes) for found in around)
    assert "(none)" not in tree.label
    assert "" not in tree.label[1:]


PROGRAMS = """gpt_scan gpt_remat cond_branches loops_and_branches sorting hostile_names trivial
nested_loops""".split()


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_tree_holds_everything_once(compiled, name):
    module = compiled(name).module
    tree = group_tree(module)
    check_tree(module, tree)


def check_tree(module, tree):
    n = len(tree.parent)
    assert tree.parent[0] == -1
    assert (tree.parent[1:] < np.arange(1, n)).all()
    assert (tree.parent[1:] >= 0).all()
    assert tree.size[0] == len(module.instructions)
    assert (tree.of_computation >= 0).all()
    for g in range(n):
        owner = int(tree.owner[g])
        kind = KINDS[tree.kind[g]]
        if owner >= 0:
            called = module.instructions[owner].called_computations
            assert module.computations[tree.computation[g]] in called
            assert tree.parent[g] == tree.group[owner]
        else:
            in_one = {"scope", "component", "section", "entry", "module", "unreachable"}
            assert kind in in_one
    for i in module.instructions:
        g = int(tree.group[i.index])
        assert tree.computation[g] == i.computation.index


CUT = """HloModule cut

%used (p: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  ROOT %n = f32[] negate(%p)
}

%loop (q: f32[]) -> f32[] {
  %q = f32[] parameter(0)
  ROOT %c = f32[] call(%q), to_apply=%used
}

%self (r: f32[]) -> f32[] {
  %r = f32[] parameter(0)
  ROOT %s = f32[] call(%r), to_apply=%self
}
"""


def test_a_dump_without_entry_and_one_that_calls_itself():
    module = read_modules(CUT)[0]
    tree = group_tree(module)
    check_tree(module, tree)
    kinds = {tree.label[g]: KINDS[k] for g, k in enumerate(tree.kind)}
    assert kinds["used"] == "call"
    assert "unreachable" in kinds.values()


def flat(pieces: int, chain: int) -> str:
    """``pieces`` equal chains, and one long chain through everything else."""
    lines = ["  %x = f32[8]{0} parameter(0)"]
    for k in range(pieces):
        lines += [
            f"  %a{k} = f32[8]{{0}} tanh(%x)",
            f"  %b{k} = f32[8]{{0}} multiply(%a{k}, %a{k})",
        ]
    before = "x"
    for k in range(chain):
        op = ["negate", "sqrt", "floor"][k % 3]
        lines.append(f"  %c{k} = f32[8]{{0}} {op}(%{before})")
        before = f"c{k}"
    lines.append(f"  ROOT %r = f32[8]{{0}} negate(%{before})")
    body = "\n".join(lines)
    return f"HloModule wide\n\nENTRY %main (x: f32[8]) -> f32[8] {{\n{body}\n}}\n"


def test_equal_pieces_of_a_wide_group_become_components():
    tree, _ = groups_of(read_modules(flat(40, 0))[0])
    found = [g for g, k in enumerate(tree.kind) if KINDS[k] == "component"]
    assert len(found) == 40
    assert {tree.label[g] for g in found} == {"tanh·multiply"}
    assert {tree.size[g] for g in found} == {2}
    assert len({tree.hint[g] for g in found}) == 1


@pytest.mark.parametrize("length", [WIDE, 400, 9000])
def test_a_long_chain_is_cut_into_consecutive_sections(length):
    module = read_modules(flat(0, length))[0]
    tree = group_tree(module)
    check_tree(module, tree)
    quiet = (flags(module) & QUIET) != 0
    children = tree.children()
    for g in range(len(tree.parent)):
        loose = [i for i in range(len(quiet)) if tree.group[i] == g and not quiet[i]]
        assert len(loose) + len(children[g]) <= WIDE
    sections = [g for g, k in enumerate(tree.kind) if KINDS[k] == "section"]
    assert sections
    for g in sections:  # consecutive: no other section's instruction in between
        inside = np.flatnonzero(tree.group == g)
        if len(inside):
            between = tree.group[inside.min() : inside.max() + 1]
            assert set(between.tolist()) == {g}


def test_a_group_that_reads_well_is_left_alone():
    tree, _ = groups_of(read_modules(flat(FLAT // 2, 0))[0])
    assert len(tree.parent) == 2


def test_recomputation_is_called_so_in_plain_words():
    rows = ["HloModule m", "", "ENTRY main {", "  x = f32[64,64] parameter(0)"]
    at = "x"
    for scope in ("jvp()/block", "transpose(jvp())/rematted_computation", "transpose(jvp())/block"):
        for k in range(8):
            meta = f'metadata={{op_name="jit(f)/{scope}/tanh"}}'
            name = f"{scope[:4].strip('(')}{len(rows)}.{k}"
            rows.append(f"  {name} = f32[64,64] tanh({at}), {meta}")
            at = name
    text = "\n".join([*rows, f"  ROOT r = f32[64,64] negate({at})", "}"])
    labels = group_tree(read_modules(text.encode())[0]).label
    assert "recomputed" in labels
    assert not any("remat" in label for label in labels)


def test_a_cast_of_weights_that_the_optimizer_uses_too_is_in_its_layer() -> None:
    def name(scope: str) -> str:
        return f'metadata={{op_name="jit(step)/{scope}"}}'

    def dot(a: str, b: str, scope: str, of_b: int = 0) -> str:
        dims = f"lhs_contracting_dims={{1}}, rhs_contracting_dims={{{of_b}}}"
        return f"f32[8,8] dot({a}, {b}), {dims}, {name(scope + '/dot_general')}"

    (module,) = read_modules(f"""HloModule step, is_scheduled=true
widen {{
  p = bf16[8,8] parameter(0)
  ROOT wide = f32[8,8] convert(p)
}}
ENTRY main {{
  x = f32[8,8] parameter(0)
  w = bf16[8,8] parameter(1)
  v = bf16[8,8] parameter(2)
  both = bf16[8,8] parameter(3)
  cast = f32[8,8] fusion(w), kind=kLoop, calls=widen
  turned = f32[8,8] copy(cast)
  other = f32[8,8] convert(v)
  shared = f32[8,8] convert(both)
  size = f32[8,8] multiply(cast, other), {name("adafactor/mul")}
  all = f32[8,8] multiply(size, shared), {name("adafactor/mul")}
  one = {dot("x", "turned", "jvp(layer_0)")}
  half = f32[8,8] add(one, shared), {name("jvp(layer_0)/add")}
  two = {dot("half", "other", "jvp(layer_1)")}
  end = f32[8,8] add(two, shared), {name("jvp(layer_1)/add")}
  g = {dot("end", "other", "transpose(jvp(layer_1))", 1)}
  h = {dot("g", "cast", "transpose(jvp(layer_0))", 1)}
  ROOT new = f32[8,8] subtract(h, all), {name("adafactor/sub")}
}}
""")
    found = scopes(module)
    of = {i.name: found.paths[found.scope[i.index]] for i in module.entry.instructions}
    assert of["cast"] == of["turned"] == ("forward", "layer_0")
    assert of["other"] == ("forward", "layer_1")
    assert of["shared"] == ("forward",)  # of both layers
    assert of["size"] == of["all"] == ("adafactor",)


def test_a_cast_without_a_name_that_both_passes_use_is_in_the_forward_pass() -> None:
    body = """{name} {{
  p = (s32[], f32[8,8], bf16[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8,8] get-tuple-element(p), index=1
  w = bf16[8,8] get-tuple-element(p), index=2
  y = f32[8,8] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, metadata={{op_name="jit(f)/{path}/while/body/dot_general"}}
  ROOT r = (s32[], f32[8,8], bf16[8,8]) tuple(i, y, w)
}}

{name}_more {{
  p = (s32[], f32[8,8], bf16[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT less = pred[] compare(i, n), direction=LT
}}

"""  # noqa: E501
    text = f"""HloModule m

{body.format(name="on", path="jvp()")}{body.format(name="back", path="transpose(jvp())")}ENTRY e {{
  x = f32[8,8] parameter(0)
  w = f32[8,8] parameter(1)
  zero = s32[] constant(0)
  cast = bf16[8,8] convert(w)
  before = (s32[], f32[8,8], bf16[8,8]) tuple(zero, x, cast)
  forth = (s32[], f32[8,8], bf16[8,8]) while(before), condition=on_more, body=on, metadata={{op_name="jit(f)/jvp()/while"}}
  h = f32[8,8] get-tuple-element(forth), index=1
  g = f32[8,8] tanh(h), metadata={{op_name="jit(f)/transpose(jvp())/tanh"}}
  after = (s32[], f32[8,8], bf16[8,8]) tuple(zero, g, cast)
  ROOT whence = (s32[], f32[8,8], bf16[8,8]) while(after), condition=back_more, body=back, metadata={{op_name="jit(f)/transpose(jvp())/while"}}
}}
"""  # noqa: E501
    (module,) = read_modules(text)
    found = scopes(module)
    of = {i.name: found.paths[found.scope[i.index]][:1] for i in module.instructions}
    assert {of[name] for name in ("cast", "before", "forth")} == {("forward",)}
    assert {of[name] for name in ("g", "after", "whence")} == {("backward",)}
