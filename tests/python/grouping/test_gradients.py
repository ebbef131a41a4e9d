"""The backward pass is in layers by the weights it shares with those of the forward pass."""

from __future__ import annotations

import hloscope as hs
from hloscope.analysis.grouping.folds import folds
from hloscope.analysis.grouping.groups import group_tree
from hloscope.analysis.grouping.layers.layers import layers
from hloscope.hlo import Module

A = "f32[8,64]"
W = "f32[64,64]"


def step(count: int = 5, passes: int = 1) -> str:
    """Layers of two products; each gradient is of a line, shape and fusion of its own."""
    lines = [f'  x = {A} parameter(0), metadata={{op_name="x"}}']
    for k in range(count):
        lines += [
            f"  {n}{k} = {W} parameter({1 + 2 * k + p}), metadata={{op_name=\"p[{k}]['{n}']\"}}"
            for p, n in enumerate(("up", "down"))
        ]

    def where(path: str, line: int) -> str:
        return f'metadata={{op_name="jit(f)/{path}" source_file="m.py" source_line={line}}}'

    def dot(name: str, of: str, weight: str, path: str, line: int, axis: int) -> str:
        meta = where(f"{path}/dot_general", line)
        lines.append(
            f"  {name} = {A} dot({of}, {weight}), lhs_contracting_dims={{1}}, "
            f"rhs_contracting_dims={{{axis}}}, {meta}"
        )
        return name

    def one(name: str, opcode: str, *of: str, path: str, line: int) -> str:
        meta = (
            f'metadata={{op_name="jit(f)/{path}/{opcode}" source_file="m.py" source_line={line}}}'
        )
        lines.append(f"  {name} = {A} {opcode}({', '.join(of)}), {meta}")
        return name

    results = []
    for turn in range(passes):
        at = "x"
        if turn:
            at = one(f"other{turn}", "negate", "x", path="jvp()", line=3)
        for k in range(count):
            h = dot(f"h{turn}_{k}", at, f"up{k}", "jvp()", 10 + 30 * turn, 0)
            h = one(f"t{turn}_{k}", "tanh", h, path="jvp()", line=11 + 30 * turn)
            h = dot(f"o{turn}_{k}", h, f"down{k}", "jvp()", 12 + 30 * turn, 0)
            at = one(f"s{turn}_{k}", "add", at, h, path="jvp()", line=13 + 30 * turn)
        results.append(one(f"loss{turn}", "cosine", at, path="jvp()", line=20))
    for turn in range(passes):
        at = one(f"d{turn}", "sine", f"loss{turn}", path="transpose(jvp())", line=20)
        for k in reversed(range(count)):
            # nothing repeats: each layer's gradient has a line of its own
            path, line = "transpose(jvp())", 100 + 10 * k + turn
            g = dot(f"gd{turn}_{k}", at, f"down{k}", path, line, 1)
            g = one(f"gt{turn}_{k}", "multiply", g, f"t{turn}_{k}", path=path, line=line + 1)
            g = dot(f"gu{turn}_{k}", g, f"up{k}", path, line + 2, 1)
            at = one(f"gs{turn}_{k}", "add", at, g, path=path, line=line + 3)
        results.append(at)
    shapes = ", ".join([A] * len(results))
    lines.append(f"  ROOT r = ({shapes}) tuple({', '.join(results)})")
    return "\n".join(["HloModule m", "", "ENTRY main {", *lines, "}", ""])


def backward(module: Module) -> list[dict[str, int]]:
    """A stack of gradients each: product → layer."""
    found = layers(module)
    by_name = {i.name: i.index for i in module.instructions}
    out = []
    for run in found.runs:
        if not run.recedes:
            continue
        lowest = min(run.identity)
        rows = {r for spine in run.stack.spine for r in spine}
        out.append(
            {name: int(found.layer[row]) - lowest for name, row in by_name.items() if row in rows}
        )
    return out


def test_gradients_that_nothing_repeats_are_in_the_layer_of_their_weights():
    module = hs.read(step()).module
    (placed,) = backward(module)
    assert placed == {f"{n}0_{k}": k for k in range(5) for n in ("gd", "gu")}


def test_the_layers_of_the_gradients_fold_like_those_of_the_model():
    module = hs.read(step()).module
    tree = group_tree(module)
    found = folds(module, tree)
    assert sorted(len(f.members) for f in found.folds) == [5, 5]
    by_name = {i.name: i.index for i in module.instructions}
    for f in found.folds:
        for k, g in enumerate(f.members):
            inside = {n for n, row in by_name.items() if tree.group[row] == g}
            assert {f"gu0_{k}", f"gd0_{k}"} <= inside or {f"h0_{k}", f"o0_{k}"} <= inside


def test_weights_used_twice_have_two_stacks_of_gradients():
    module = hs.read(step(passes=2)).module
    placed = backward(module)
    assert len(placed) == 2
    for turn, one in enumerate(sorted(placed, key=min)):
        assert one == {f"{n}{turn}_{k}": k for k in range(5) for n in ("gd", "gu")}
    tree = group_tree(module)
    assert sorted(len(f.members) for f in folds(module, tree).folds) == [5] * 4


def test_a_product_with_the_weights_of_two_layers_says_nothing():
    text = step().replace("gu0_3 = f32[8,64] dot(gt0_3, up3)", "gu0_3 = f32[8,64] dot(up2, up3)")
    module = hs.read(text).module
    for placed in backward(module):
        assert all(placed[name] == int(name[-1]) for name in placed)


def test_gradients_end_at_the_second_layer_where_the_first_has_none():
    text = step()
    for k in range(5):
        text = text.replace(f"dot(gt0_{k}, up{k})", f"multiply(gt0_{k}, gt0_{k})")
    at = text.index("  gd0_0 =")
    text = text[:at] + text[at:].replace("dot(gs0_1, down0)", "multiply(gs0_1, gs0_1)")
    (placed,) = backward(hs.read(text).module)
    assert placed == {f"gd0_{k}": k - 1 for k in range(1, 5)}


def loops(count: int = 5) -> str:
    """A loop of the model's layers and another of their gradients, each with a line of its own."""
    types = ", ".join(["s32[]", A, *[W] * count])

    def body(name: str, path: str, layers: list[int], lines: list[int]) -> list[str]:
        out = [f"{name} {{", f"  p = ({types}) parameter(0)"]
        out += ["  n = s32[] get-tuple-element(p), index=0"]
        out += [f"  at = {A} get-tuple-element(p), index=1"]
        out += [f"  w{k} = {W} get-tuple-element(p), index={k + 2}" for k in range(count)]
        at = "at"
        for k, line in zip(layers, lines, strict=True):
            for op in ("dot", "tanh", "abs"):
                of, more = at, ""
                if op == "dot":
                    of, more = f"{at}, w{k}", ", lhs_contracting_dims={1}, rhs_contracting_dims={0}"
                meta = f'op_name="jit(f)/{path}/{op}" source_file="m.py" source_line={line}'
                out.append(f"  {op}{k} = {A} {op}({of}){more}, metadata={{{meta}}}")
                at = f"{op}{k}"
        out += [f"  {x} = s32[] add(n, n)" for x in ("n1", "n2", "n3")]
        weights = ", ".join(f"w{k}" for k in range(count))
        return [*out, f"  ROOT r = ({types}) tuple(n3, {at}, {weights})", "}", ""]

    rows = range(count)
    # the loop of the gradients is printed first
    text = ["HloModule m", ""]
    text += body("back", "transpose(jvp())/while/body", list(rows)[::-1], [50 + k for k in rows])
    text += body("there", "jvp()/while/body", list(rows), [10] * count)
    text += [
        "until {",
        f"  p = ({types}) parameter(0)",
        "  n = s32[] get-tuple-element(p), index=0",
    ]
    text += ["  ROOT r = pred[] compare(n, n), direction=LT", "}", ""]
    text += ["ENTRY main {", "  n = s32[] constant(0)", f"  x = {A} parameter(0)"]
    text += [f"  w{k} = {W} parameter({k + 1}), metadata={{op_name=\"p[{k}]['w']\"}}" for k in rows]
    weights = ", ".join(f"w{k}" for k in rows)
    for name, of, path in (("there", "x", "jvp()"), ("back", "g0", "transpose(jvp())")):
        text += [f"  t{name} = ({types}) tuple(n, {of}, {weights})"]
        meta = f'metadata={{op_name="jit(f)/{path}/while"}}'
        text += [f"  l{name} = ({types}) while(t{name}), condition=until, body={name}, {meta}"]
        text += [f"  g{int(name == 'back')} = {A} get-tuple-element(l{name}), index=1"]
    return "\n".join([*text, f"  ROOT r = {A} negate(g1)", "}", ""])


def test_gradients_in_a_loop_of_their_own_are_in_the_layers_of_the_other_loop():
    module = hs.read(loops()).module
    model, gradients = layers(module).runs
    assert not model.recedes
    assert gradients.recedes
    assert gradients.identity == model.identity[::-1]
    assert gradients.name == model.name
    tree = group_tree(module)
    assert [len(f.members) for f in folds(module, tree).folds] == [5, 5]


def forces(count: int = 4) -> str:
    """The gradient of a gradient: four passes over the layers, two of them from the first on."""
    lines = [f'  x = {A} parameter(0), metadata={{op_name="x"}}']
    lines += [
        f"  w{k} = {W} parameter({1 + k}), metadata={{op_name=\"p[{k}]['w']\"}}"
        for k in range(count)
    ]
    passes = (
        ("jvp(jvp())", 0, range(count)),
        ("jvp(transpose(jvp()))", 1, range(count - 1, -1, -1)),
        ("transpose(jvp(transpose(jvp())))", 0, range(count)),
        ("transpose(jvp(jvp()))", 1, range(count - 1, -1, -1)),
    )
    at = "x"
    for turn, (path, axis, layers_of_it) in enumerate(passes):
        for k in layers_of_it:
            # forward repeats; each gradient is compiled unlike the last
            line = 10 if turn == 0 else 100 * turn + k
            meta = f'metadata={{op_name="jit(f)/{path}/%s" source_file="m.py" source_line={line}}}'
            lines.append(
                f"  d{turn}_{k} = {A} dot({at}, w{k}), lhs_contracting_dims={{1}}, "
                f"rhs_contracting_dims={{{axis}}}, {meta % 'dot_general'}"
            )
            lines.append(f"  t{turn}_{k} = {A} tanh(d{turn}_{k}), {meta % 'tanh'}")
            at = f"a{turn}_{k}"
            lines.append(f"  {at} = {A} add(t{turn}_{k}, x), {meta % 'add'}")
    lines.append(f"  ROOT r = ({A}) tuple({at})")
    return "\n".join(["HloModule m", "", "ENTRY main {", *lines, "}", ""])


def test_every_pass_of_a_gradient_of_a_gradient_is_a_stack_of_all_layers() -> None:
    module = hs.read(forces()).module
    said = [{f"d{turn}_{k}": k for k in range(4)} for turn in (1, 2, 3)]
    assert sorted(backward(module), key=min) == said
    tree = group_tree(module)
    names = [fold.label.partition(" [")[0] for fold in folds(module, tree).folds]
    assert len(set(names)) == 3  # forward and one of its gradients share theirs
    assert sorted(len(fold.members) for fold in folds(module, tree).folds) == [4] * 4
