"""Which results may take their operands' places, and what a loop stores: rule by rule."""

# ruff: noqa: E501
from __future__ import annotations

from typing import Any

import hloscope as hs
import pytest
from hloscope.analysis.memory.liveness.sharing import Sharing

BODY = """HloModule m, is_scheduled=true

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %ab = f32[] add(%a, %b)
}
%less (c: f32[], d: f32[], c2: f32[], d2: f32[]) -> pred[] {
  %c = f32[] parameter(0)
  %d = f32[] parameter(1)
  %c2 = f32[] parameter(2)
  %d2 = f32[] parameter(3)
  ROOT %cd = pred[] compare(%c, %d), direction=LT
}
%all (e: f32[8,8], f: f32[8,8]) -> f32[8,8] {
  %e = f32[8,8] parameter(0)
  %f = f32[8,8] parameter(1)
  %turned = f32[8,8] transpose(%f), dimensions={1,0}
  %kept = f32[8,8] copy(%e)
  ROOT %ef = f32[8,8] add(%kept, %turned)
}
%product (g: f32[8,8], h: f32[8,8], k: f32[8,8]) -> f32[8,8] {
  %g = f32[8,8] parameter(0)
  %h = f32[8,8] parameter(1)
  %k = f32[8,8] parameter(2)
  %gh = f32[8,8] dot(%g, %h), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %ghk = f32[8,8] add(%k, %gh)
}
%twice (l: f32[8,8], m: f32[8,8]) -> f32[8,8] {
  %l = f32[8,8] parameter(0)
  %m = f32[8,8] parameter(1)
  %lm = f32[8,8] dot(%l, %m), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %lml = f32[8,8] add(%lm, %l)
}
%cut (n: f32[8,8], o: s32[]) -> f32[1,8] {
  %n = f32[8,8] parameter(0)
  %o = s32[] parameter(1)
  %flat = f32[8,8] bitcast(%n)
  ROOT %row = f32[1,8] dynamic-slice(%flat, %o, %o), dynamic_slice_sizes={1,8}
}
ENTRY %main {
  %x = f32[8,8] parameter(0)
  %y = f32[8,8] parameter(1)
  %z = f32[8,8] parameter(2)
  %w = f32[8,8] parameter(3)
  %u = f32[2,8] parameter(4)
  %i = s32[2,1] parameter(5)
  %at = s32[] parameter(6)
  %v = f32[64] parameter(7)
  %const = f32[8,8] constant({...})
  %neg = f32[8,8] negate(%x)
  %both = f32[8,8] add(%x, %const)
  %turn = f32[8,8] transpose(%x), dimensions={1,0}
  %low = bf16[8,8] convert(%x)
  %sorted = f32[64] sort(%v), dimensions={0}, to_apply=%less
  %two = (f32[8,8], f32[8,8]) sort(%y, %z), dimensions={0}, to_apply=%less
  %again = (f32[8,8], f32[8,8]) sort(%x, %w), dimensions={0}, to_apply=%less
  %loop = f32[8,8] fusion(%x, %w), kind=kLoop, calls=%all
  %in = f32[8,8] fusion(%x, %w), kind=kInput, calls=%all
  %odd = f32[8,8] fusion(%x, %w), kind=kCustom, calls=%all
  %out = f32[8,8] fusion(%x, %w, %u), kind=kOutput, calls=%product
  %out2 = f32[8,8] fusion(%x, %w), kind=kOutput, calls=%twice
  %one = f32[1,8] fusion(%x, %at), kind=kLoop, calls=%cut
  %bits = f32[2,8] bitcast(%u)
  %put = f32[8,8] dynamic-update-slice(%x, %bits, %at, %at)
  %scattered = f32[8,8] scatter(%x, %i, %bits), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%sum
  %pair = (f32[8,8], f32[8,8]) scatter(%x, %w, %i, %u, %u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%sum
  %lonely = f32[8,8] dynamic-update-slice(%x)
  ROOT %t = (f32[8,8], f32[8,8]) tuple(%put, %scattered)
}
"""


def module() -> Any:
    return hs.read(BODY).module


@pytest.mark.parametrize(
    ("user", "operand", "leaf", "may"),
    [
        ("neg", 0, 0, True),
        ("both", 0, 0, True),
        ("both", 1, 0, False),  # a constant stays
        ("turn", 0, 0, False),  # elements change places
        ("low", 0, 0, False),  # smaller
        # a sort works in place, each array in its own, if nothing else reads it
        ("sorted", 0, 0, True),
        ("two", 0, 0, True),
        ("two", 1, 1, True),
        ("two", 0, 1, False),
        ("again", 0, 0, False),
        # of a fusion what is only combined element by element
        ("loop", 0, 0, True),
        ("loop", 1, 0, False),
        ("in", 0, 0, True),
        ("in", 1, 0, False),
        ("odd", 0, 0, False),
        # beside a product what is added to it
        ("out", 0, 0, False),
        ("out", 1, 0, False),
        ("out2", 0, 0, False),  # the product reads it too
        ("out2", 1, 0, False),
    ],
)
def test_what_may_be_written_over(user: str, operand: int, leaf: int, may: bool) -> None:
    live: Any = None
    assert Sharing(live).share(module().find(user), operand, leaf) is may


def test_what_is_added_to_a_product_gives_it_its_place() -> None:
    live: Any = None
    found = hs.read(BODY.replace("fusion(%x, %w, %u)", "fusion(%x, %w, %z)")).module.find("out")
    assert found is not None
    assert [Sharing(live).share(found, k, 0) for k in range(3)] == [False, False, True]


# A loop that fills an array and reads another one; what its trips do with them.
TRIPS = """HloModule m, is_scheduled=true

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  ROOT %b = f32[] parameter(1)
}
%row (n: f32[4,8], o: s32[]) -> f32[1,8] {
  %n = f32[4,8] parameter(0)
  %o = s32[] parameter(1)
  %flat = f32[4,8] bitcast(%n)
  ROOT %r = f32[1,8] dynamic-slice(%flat, %o, %o), dynamic_slice_sizes={1,8}
}
%all (n2: f32[4,8]) -> f32[1,8] {
  %n2 = f32[4,8] parameter(0)
  ROOT %r2 = f32[1,8] slice(%n2), slice={[0:1],[0:8]}
}
%put (s3: f32[4,8], v3: f32[8], o3: s32[]) -> f32[4,8] {
  %s3 = f32[4,8] parameter(0)
  %v3 = f32[8] parameter(1)
  %o3 = s32[] parameter(2)
  %c3 = f32[1,8] reshape(%v3)
  ROOT %d3 = f32[4,8] dynamic-update-slice(%s3, %c3, %o3, %o3)
}
%body (p: (s32[], f32[4,8], f32[4,8], f32[8])) -> (s32[], f32[4,8], f32[4,8], f32[8]) {
  %p = (s32[], f32[4,8], f32[4,8], f32[8]) parameter(0)
  %k = s32[] get-tuple-element(%p), index=0
  %stack = f32[4,8] get-tuple-element(%p), index=1
  %read = f32[4,8] get-tuple-element(%p), index=2
  %x = f32[8] get-tuple-element(%p), index=3
  %one = s32[] constant(1)
  %next = s32[] add(%k, %one)
  READ
  %u = f32[8] reshape(%got)
  %y = f32[8] multiply(%x, %u)
  STORE
  ROOT %t = (s32[], f32[4,8], f32[4,8], f32[8]) tuple(%next, %stored, %read, %y)
}
%cond (q: (s32[], f32[4,8], f32[4,8], f32[8])) -> pred[] {
  %q = (s32[], f32[4,8], f32[4,8], f32[8]) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  %four = s32[] constant(4)
  ROOT %c = pred[] compare(%j, %four), direction=LT
}
ENTRY %main {
  %z = s32[] constant(0)
  %v = f32[8] parameter(0)
  %m = f32[4,8] parameter(1)
  %zero = f32[] constant(0)
  %new = f32[4,8] broadcast(%zero), dimensions={}
  %init = (s32[], f32[4,8], f32[4,8], f32[8]) tuple(%z, %new, %m, %v)
  %loop = (s32[], f32[4,8], f32[4,8], f32[8]) while(%init), condition=%cond, body=%body
  ROOT %out = f32[4,8] get-tuple-element(%loop), index=1
}
"""
SLICED = "%got = f32[1,8] dynamic-slice(%read, %k, %k), dynamic_slice_sizes={1,8}"
PUT = "%w = f32[1,8] reshape(%y)\n  %stored = f32[4,8] dynamic-update-slice(%stack, %w, %k, %k)"


def carried(read: str = SLICED, store: str = PUT) -> dict[int, Any]:
    cap = hs.read(TRIPS.replace("READ", read).replace("STORE", store))
    assert not cap.module.warnings
    (loop,) = cap.memory.loops
    return {c.index: c for c in loop.carries}


@pytest.mark.parametrize(
    ("store", "value"),
    [
        (PUT, "y"),
        # the loop's own state is what the trip before left
        (PUT.replace("reshape(%y)", "reshape(%x)"), "y"),
        ("%w = f32[8] copy(%y)\n  %stored = f32[4,8] fusion(%stack, %w, %k), kind=kLoop, calls=%put", "y"),
        ("%w = f32[1,8] reshape(%y)\n  %at = s32[1,1] reshape(%k)\n"
         "  %stored = f32[4,8] scatter(%stack, %at, %w), update_window_dims={1}, inserted_window_dims={0}, "
         "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%sum", "y"),
    ],
)  # fmt: skip
def test_what_a_loop_stores(store: str, value: str) -> None:
    stack = carried(store=store)[1]
    assert stack.role == "stacked"
    assert stack.stored is not None
    assert stack.stored.name == value


@pytest.mark.parametrize(
    ("read", "role"),
    [
        (SLICED, "read by slices"),
        ("%got = f32[1,8] fusion(%read, %k), kind=kLoop, calls=%row", "read by slices"),
        ("%got = f32[1,8] fusion(%read), kind=kLoop, calls=%all", "passed through"),
    ],
)
def test_which_trips_read_a_slice(read: str, role: str) -> None:
    assert carried(read=read)[2].role == role
