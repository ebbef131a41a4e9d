"""Edges of values through tuples, loops, branches, fusions and collectives, program by program."""

from __future__ import annotations

import hloscope as hs
import numpy as np
import pytest
from hloscope.analysis.base.lines.flow import Flow, flow, is_move, nearest, stacks, weights
from hloscope.analysis.base.table import table

F = "f32[8,8]"
T = f"({F}, {F})"
SUM = """sum {
  s0 = f32[] parameter(0)
  s1 = f32[] parameter(1)
  ROOT s2 = f32[] add(s0, s1)
}

"""


def read(entry: str, before: str = "") -> hs.Module:
    """``before``: computations that it calls; both have an instruction a line."""
    rows = [f"  {row.strip()}" for row in entry.strip().splitlines()]
    head = "HloModule m\n\naside {\n  z0 = f32[] parameter(0)\n  ROOT z1 = f32[] negate(z0)\n}\n\n"
    module = hs.read(f"{head}{before}ENTRY main {{\n" + "\n".join(rows) + "\n}\n").module
    assert module.warnings == ()
    return module


def edges(module: hs.Module) -> list[str]:
    """``from>to``, but for what is before the program's own computations."""
    found = flow(module)
    assert found.size == len(module.instructions)
    names = [i.name for i in module.instructions]
    pairs = [f"{names[a]}>{names[b]}" for a, b in zip(found.src, found.dst, strict=True)]
    return sorted(p for p in pairs if p[0] not in "zs")


def test_a_value_goes_to_its_users() -> None:
    module = read(f"""a = {F} parameter(0)
        b = {F} negate(a)
        c = {F} add(a, b)
        ROOT d = {F} add(c, c)""")
    assert edges(module) == ["a>b", "a>c", "b>c", "c>d", "c>d"]
    found = flow(module)
    at = {i.name: i.index for i in module.instructions}
    assert found.users(at["a"]) == [at["b"], at["c"]]
    assert found.makers(at["c"]) == [at["a"], at["b"]]
    assert (found.users(at["d"]), found.makers(at["a"])) == ([], [])


LOOP = f"""body {{
  p = {T} parameter(0)
  p0 = {F} get-tuple-element(p), index=0
  p1 = {F} get-tuple-element(p), index=1
  q = {F} negate(p0)
  ROOT o = {T} tuple(p1, q)
}}

condition {{
  c = {T} parameter(0)
  ROOT n = pred[] constant(false)
}}

"""


def test_elements_go_round_a_loop() -> None:
    module = read(f"""a = {F} parameter(0)
        b = {F} negate(a)
        t = {T} tuple(a, b)
        l = {T} while(t), condition=condition, body=body
        l0 = {F} get-tuple-element(l), index=0
        l1 = {F} get-tuple-element(l), index=1
        ROOT r = {F} add(l0, l1)""", LOOP)  # fmt: skip
    assert edges(module) == [
        "a>b", "a>p0", "b>p1",  # into the first iteration
        "l0>r", "l1>r", "l>l0", "l>l1",
        "p0>q", "p1>l0", "p1>p0", "p>p0", "p>p1", "q>l1", "q>p1",  # into the next, and out
    ]  # fmt: skip
    after = flow(module)
    at = {i.name: i.index for i in module.instructions}
    assert after.makers(at["l0"]) == [at["p1"], at["l"]]  # its element tells more than the loop


def test_a_tuple_that_is_not_taken_apart_is_a_value() -> None:
    module = read(f"""t = {T} parameter(0)
        l = {T} while(t), condition=condition, body=body
        ROOT l1 = {F} get-tuple-element(l), index=1""", LOOP)  # fmt: skip
    assert [e for e in edges(module) if e[0] in "tl"] == ["l>l1", "t>p"]


def test_branches_take_a_value_each() -> None:
    branches = "".join(
        f"b{k} {{\n  v{k} = {F} parameter(0)\n  ROOT w{k} = {F} {op}(v{k})\n}}\n\n"
        for k, op in enumerate(("negate", "cosine"))
    )
    module = read(f"""i = s32[] parameter(0)
        a = {F} parameter(1)
        b = {F} negate(a)
        ROOT r = {F} conditional(i, a, b), branch_computations={{b0, b1}}""", branches)  # fmt: skip
    assert edges(module) == ["a>b", "a>v0", "b>v1", "v0>w0", "v1>w1", "w0>r", "w1>r"]


def test_what_a_barrier_holds_back_goes_on() -> None:
    module = read(f"""a = {F} parameter(0)
        b = {F} negate(a)
        t = {T} tuple(a, b)
        h = {T} opt-barrier(t)
        g = {F} get-tuple-element(h), index=1
        k = {F} opt-barrier(g)
        ROOT r = {F} negate(k)""")
    assert edges(module) == ["a>b", "b>g", "g>k", "h>g", "k>r"]


FUSED = f"""f {{
  p = {F} parameter(1)
  q = {F} parameter(0)
  r = {F} negate(q)
  ROOT u = {F} subtract(p, r)
}}

"""


def test_an_operand_of_a_fusion_is_its_parameter() -> None:
    text = f"""a = {F} parameter(0)
        b = {F} negate(a)
        h = {F} fusion(a, b), kind=kLoop, calls=f
        ROOT d = {F} negate(h)"""
    found = ["a>b", "a>q", "b>p", "h>d", "p>u", "q>r", "r>u", "u>h"]
    assert edges(read(text, FUSED)) == found


def test_results_of_a_fusion_are_taken_element_by_element() -> None:
    inside = f"""f {{
  p = {F} parameter(0)
  q = {F} negate(p)
  r = {F} cosine(p)
  ROOT u = {T} tuple(q, r)
}}

"""
    head = f"a = {F} parameter(0)\n h = {T} fusion(a), kind=kLoop, calls=f\n"
    taken = f"{head} g = {F} get-tuple-element(h), index=1\n ROOT d = {F} negate(g)"
    found = ["a>p", "g>d", "h>g", "p>q", "p>r", "r>g", "u>h"]
    assert edges(read(taken, inside)) == found
    whole = f"{head} g = {F} get-tuple-element(h), index=1\n ROOT d = ({T}) tuple(h)"
    assert edges(read(whole, inside)) == sorted(
        ["a>p", "h>g", "p>q", "p>r", "r>g", "u>h", "q>h", "r>h"]
    )
    alone = f"a = {F} parameter(0)\n ROOT h = {T} fusion(a), kind=kLoop, calls=f"
    assert edges(read(alone, inside)) == ["a>p", "p>q", "p>r", "q>h", "r>h", "u>h"]


def test_arrays_of_a_combined_collective_go_past_it() -> None:
    pair = f"""a = {F} parameter(0)
        b = {F} negate(a)
        r = {T} all-reduce(a, b), to_apply=sum
        g = {F} get-tuple-element(r), index=1
        ROOT d = {F} negate(g)"""
    assert edges(read(pair, SUM)) == ["a>b", "a>r", "b>g", "b>r", "g>d", "r>g"]
    one = f"""a = {F} parameter(0)
        r = {F} all-reduce(a), to_apply=sum
        ROOT d = {F} negate(r)"""
    assert edges(read(one, SUM)) == ["a>r", "r>d"]


# -- kinds and weights of rows ---------------------------------------------------------------


def test_fusions_of_moves_are_moves() -> None:
    kinds = f"""moving {{
  m0 = {F} parameter(0)
  ROOT m1 = {F} transpose(m0), dimensions={{1,0}}
}}

making {{
  n0 = {F} parameter(0)
  n1 = {F} negate(n0)
  ROOT n2 = {F} copy(n1)
}}

writing {{
  k0 = {F} parameter(0)
  k1 = s32[] constant(0)
  ROOT k2 = {F} dynamic-update-slice(k0, k0, k1, k1)
}}

"""
    module = read(f"""a = {F} parameter(0)
        b = {F} copy(a)
        c = {F} fusion(b), kind=kLoop, calls=moving
        d = {F} fusion(c), kind=kLoop, calls=making
        e = {F} fusion(d), kind=kLoop, calls=writing
        f = {F} call(e), to_apply=moving
        ROOT g = ({F}, {F}) tuple(d, f)""", kinds)  # fmt: skip
    t = table(module)
    names = np.array([i.name for i in module.instructions])
    assert names[is_move(t)].tolist() == ["m1", "n2", "b", "c"]
    assert names[stacks(t)].tolist() == ["k2", "e"]


def test_products_weigh_their_flops_and_moves_next_to_nothing() -> None:
    module = read("""a = f32[4,16] parameter(0)
        b = f32[16,8] parameter(1)
        c = f32[4,8] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        d = f32[4,8] negate(c)
        z = f32[] constant(0)
        e = f32[4] reduce(d, z), dimensions={1}, to_apply=sum
        f = f32[2,2] copy(z)
        ROOT g = f32[4] negate(e)""", SUM)  # fmt: skip
    found = dict(zip((i.name for i in module.instructions), weights(table(module)), strict=True))
    assert found["c"] == pytest.approx(2 * 4 * 16 * 8)
    assert (found["d"], found["e"], found["g"]) == (32, 32, 4)
    assert (found["f"], found["a"]) == pytest.approx((4e-6, 64e-6))


def test_scalars_that_say_where_are_no_edges_of_arrays() -> None:
    module = read("""a = f32[8] parameter(0)
        i = s32[] parameter(1)
        j = s32[] negate(i)
        b = f32[2] dynamic-slice(a, j), dynamic_slice_sizes={2}
        ROOT c = f32[1] slice(b), slice={[0:1]}""")
    names = [i.name for i in module.instructions]
    found = flow(module).of_arrays(table(module))
    pairs = [names[a] + names[b] for a, b in zip(found.src, found.dst, strict=True)]
    assert sorted(p for p in pairs if p[0] != "z") == ["ab", "bc", "ij"]
    assert found.size == len(names)


def test_the_nearest_known_row_along_edges() -> None:
    src, dst = np.array([0, 1, 2, 0, 5]), np.array([1, 2, 3, 4, 0])
    found = Flow(src, dst, 7)

    def near(*known: int) -> list[int]:
        mask = np.zeros(7, bool)
        mask[list(known)] = True
        return [int(row) for row in nearest(found.src, found.dst, mask)]

    assert near(3) == [3, 3, 3, -1, -1, 3, -1]
    assert near(3, 4) == [4, 3, 3, -1, -1, 4, -1]
    assert near(3, 1) == [1, -1, 3, -1, -1, 1, -1]
    assert near(0) == [-1, -1, -1, -1, -1, 0, -1]
    assert near(2, 4) == [4, 2, -1, -1, -1, 4, -1]
    assert near() == [-1] * 7
    both = nearest(np.array([1, 1]), np.array([2, 0]), np.array([True, False, True]))
    assert both.tolist() == [-1, 2, -1]  # of several the first
