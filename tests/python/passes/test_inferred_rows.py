"""What tells equal operations apart from one pass to the next, in modules written by hand."""

from __future__ import annotations

from functools import partial

from hloscope.analysis.passes.identity.follow import follow_identity
from hloscope.analysis.passes.identity.walk import IdentityWalk


def walk(*texts: str) -> IdentityWalk:
    return follow_identity([partial(str, f"HloModule jit_f\n\n{text}\n") for text in texts])


def origins(found: IdentityWalk) -> dict[str, list[str]]:
    """Name in the last row → names of the first instructions that it is from."""
    nodes, versions = found.steps.nodes, found.steps.versions
    return {
        found.present(n).name: [versions[nodes[k].versions[0]].line.name for k in found.of(n)]
        for n in found.how
        if nodes[n].last == found.steps.rows
    }


def named(name: str, frame: int = 0) -> str:
    return f'metadata={{op_name="{name}"' + (f" stack_frame_id={frame}" if frame else "") + "}"


def test_a_call_without_an_op_name_is_called_as_what_holds_it_is() -> None:
    """jax.random's rounds: what is inlined from there has the op name of the outer call."""
    found = walk(
        f"""rounds (p: f32[8]) -> f32[8] {{
  p = f32[8] parameter(0)
  a = f32[8] add(p, p), {named("add")}
  ROOT b = f32[8] add(a, p), {named("add")}
}}

uniform (q: f32[8]) -> f32[8] {{
  q = f32[8] parameter(0)
  c = f32[8] call(q), to_apply=%rounds
  ROOT d = f32[8] add(c, c), {named("add")}
}}

ENTRY main {{
  x = f32[8] parameter(0)
  ROOT r = f32[8] call(x), to_apply=%uniform, {named("jit(f)/jit(uniform)")}
}}""",
        f"""ENTRY main {{
  x = f32[8] parameter(0)
  e = f32[8] add(x, x), {named("jit(f)/jit(uniform)/add")}
  g = f32[8] add(e, x), {named("jit(f)/jit(uniform)/add")}
  ROOT h = f32[8] add(g, g), {named("jit(f)/jit(uniform)/add")}
}}""",
    )
    known = origins(found)
    assert (known["e"], known["g"], known["h"]) == (["a"], ["b"], ["d"])


def test_a_loop_keeps_its_identity_where_all_its_calls_are_inlined() -> None:
    """Half of all names go at once then, as where a module is written anew."""
    layer = "\n".join(
        f"  m{k} = f32[8] multiply({f'm{k - 1}' if k else 'p'}, p), {named('mul')}"
        for k in range(12)
    )
    inlined = "\n".join(
        f"  n{k} = f32[8] multiply({f'n{k - 1}' if k else 'u'}, u), {named('f/while/layer/mul')}"
        for k in range(12)
    )
    head = """body (s: (s32[], f32[8])) -> (s32[], f32[8]) {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  u = f32[8] get-tuple-element(s), index=1
"""
    cond = """cond (t: (s32[], f32[8])) -> pred[] {
  t = (s32[], f32[8]) parameter(0)
  j = s32[] get-tuple-element(t), index=0
  ROOT lt = pred[] compare(j, j), direction=LT
}

ENTRY main {
  x = (s32[], f32[8]) parameter(0)
  ROOT w = (s32[], f32[8]) while(x), condition=%cond, body=%body, metadata={op_name="f/while"}
}"""
    found = walk(
        f"layer (p: f32[8]) -> f32[8] {{\n  p = f32[8] parameter(0)\n{layer}\n"
        f"  ROOT m = f32[8] negate(m11), {named('neg')}\n}}\n\n{head}"
        f"  c = f32[8] call(u), to_apply=%layer, {named('f/while/layer')}\n"
        f"  ROOT o = (s32[], f32[8]) tuple(i, c)\n}}\n\n{cond}",
        f"{head}{inlined}\n  n = f32[8] negate(n11), {named('f/while/layer/neg')}\n"
        f"  ROOT o = (s32[], f32[8]) tuple(i, n)\n}}\n\n{cond}",
    )
    known = origins(found)
    assert {k: known[f"n{k}"] for k in range(12)} == {k: [f"m{k}"] for k in range(12)}


def test_marks_of_shardings_are_looked_past() -> None:
    """Shardy writes the module anew; its marks of how a result lies are gone then."""
    mark = 'custom_call_target="xla.sdy.FuncResultSharding", custom_call_has_side_effect=true'
    found = walk(
        f"""ENTRY main {{
  x = f32[8] parameter(0)
  a = f32[8] multiply(x, x), {named("f/mul", 1)}
  b = f32[8] multiply(x, x), {named("f/mul", 1)}
  p = f32[8] custom-call(a), {mark}
  q = f32[8] custom-call(b), {mark}
  ROOT t = (f32[8], f32[8]) tuple(p, q)
}}""",
        f"""ENTRY main {{
  x.1 = f32[8] parameter(0)
  b.1 = f32[8] multiply(x.1, x.1), {named("f/mul", 1)}
  a.1 = f32[8] multiply(x.1, x.1), {named("f/mul", 1)}
  ROOT t.1 = (f32[8], f32[8]) tuple(a.1, b.1)
}}""",
    )
    known = origins(found)
    assert (known["a.1"], known["b.1"]) == (["a"], ["b"])


def test_a_fusion_named_by_what_is_heaviest_in_it_is_of_that() -> None:
    dots = [named("f/dot", 1), named("f/dot", 1)]
    found = walk(
        f"""ENTRY main {{
  x = f32[8,8] parameter(0)
  y = f32[8,8] parameter(1)
  a = f32[8,8] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {dots[0]}
  b = f32[8,8] dot(y, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {dots[1]}
  n = f32[8,8] negate(a), {named("f/neg")}
  m = f32[8,8] negate(b), {named("f/neg")}
  ROOT t = (f32[8,8], f32[8,8]) tuple(m, n)
}}""",
        f"""one (p: f32[8,8], q: f32[8,8]) -> f32[8,8] {{
  p = f32[8,8] parameter(0)
  q = f32[8,8] parameter(1)
  a.1 = f32[8,8] dot(p, q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {dots[0]}
  ROOT n.1 = f32[8,8] negate(a.1), {named("f/neg")}
}}

two (r: f32[8,8], s: f32[8,8]) -> f32[8,8] {{
  r = f32[8,8] parameter(0)
  s = f32[8,8] parameter(1)
  b.1 = f32[8,8] dot(s, r), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {dots[1]}
  ROOT m.1 = f32[8,8] negate(b.1), {named("f/neg")}
}}

ENTRY main {{
  x = f32[8,8] parameter(0)
  y = f32[8,8] parameter(1)
  g = f32[8,8] fusion(x, y), kind=kOutput, calls=%two, {dots[1]}
  f = f32[8,8] fusion(x, y), kind=kOutput, calls=%one, {dots[0]}
  ROOT t = (f32[8,8], f32[8,8]) tuple(g, f)
}}""",
    )
    known = origins(found)
    assert (known["a.1"], known["b.1"]) == (["a"], ["b"])
    assert (known["f"], known["g"]) == (["a"], ["b"])
