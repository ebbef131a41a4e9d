"""Elements of tuples are called by their value: an argument's path, what makes it, a counter."""

# ruff: noqa: E501

from __future__ import annotations

import hloscope as hs
from hloscope.analysis.base.labels.labels import labels

LOOP = """HloModule m, is_scheduled=true

fused_cast {
  fp = bf16[4,8,8]{2,1,0} parameter(0)
  ROOT fc = f32[4,8,8]{2,1,0} convert(fp)
}

put {
  pp = f32[4,8]{1,0} parameter(0)
  pv = f32[1,8]{1,0} parameter(1)
  pi = s32[] parameter(2)
  pz = s32[] constant(0)
  ROOT pd = f32[4,8]{1,0} dynamic-update-slice(pp, pv, pi, pz)
}

two {
  tx = f32[8]{0} parameter(0)
  t1 = f32[8]{0} negate(tx)
  t2 = f32[8]{0} tanh(tx)
  ROOT tt = (f32[8]{0}, f32[8]{0}) tuple(t1, t2)
}

body {
  b = (s32[], f32[1,8]{1,0}, f32[4,8]{1,0}, f32[4,8,8]{2,1,0}) parameter(0)
  bi = s32[] get-tuple-element(b), index=0
  bx = f32[1,8]{1,0} get-tuple-element(b), index=1
  bs = f32[4,8]{1,0} get-tuple-element(b), index=2
  bw = f32[4,8,8]{2,1,0} get-tuple-element(b), index=3
  one = s32[] constant(1)
  next = s32[] add(bi, one)
  act = f32[1,8]{1,0} tanh(bx)
  stored = f32[4,8]{1,0} fusion(bs, act, bi), kind=kLoop, calls=put
  ROOT out = (s32[], f32[1,8]{1,0}, f32[4,8]{1,0}, f32[4,8,8]{2,1,0}) tuple(next, act, stored, bw)
}

condition {
  c = (s32[], f32[1,8]{1,0}, f32[4,8]{1,0}, f32[4,8,8]{2,1,0}) parameter(0)
  ci = s32[] get-tuple-element(c), index=0
  four = s32[] constant(4)
  ROOT less = pred[] compare(ci, four), direction=LT
}

ENTRY main {
  w = bf16[4,8,8]{2,1,0} parameter(0), metadata={op_name="params[\\'w\\']"}
  x = f32[1,8]{1,0} parameter(1), metadata={op_name="x"}
  cast = f32[4,8,8]{2,1,0} fusion(w), kind=kLoop, calls=fused_cast
  zero = s32[] constant(0)
  none = f32[] constant(0)
  blank = f32[4,8]{1,0} broadcast(none), dimensions={}
  begin = (s32[], f32[1,8]{1,0}, f32[4,8]{1,0}, f32[4,8,8]{2,1,0}) tuple(zero, x, blank, cast)
  loop = (s32[], f32[1,8]{1,0}, f32[4,8]{1,0}, f32[4,8,8]{2,1,0}) while(begin), condition=condition, body=body
  last = f32[1,8]{1,0} get-tuple-element(loop), index=1
  kept = f32[4,8]{1,0} get-tuple-element(loop), index=2
  flat = f32[8]{0} bitcast(last)
  both = (f32[8]{0}, f32[8]{0}) fusion(flat), kind=kLoop, calls=two
  left = f32[8]{0} get-tuple-element(both), index=0
  ROOT right = f32[8]{0} get-tuple-element(both), index=1
}
"""


def test_elements_are_called_by_their_value():
    module = hs.read(LOOP).module
    said = dict(zip((i.name for i in module.instructions), labels(module), strict=True))
    assert said["bi"] == said["ci"] == "counter"
    assert said["bx"] == said["last"] == "x"
    assert said["bs"] == said["kept"] == "stack of tanh"
    assert said["bw"] == "params['w']"  # cast once before the loop
    assert (said["left"], said["right"]) == ("negate", "tanh")


def test_a_loop_that_feeds_itself_and_an_element_that_is_not_there_end():
    text = """HloModule m
body {
  b = (f32[8], f32[8]) parameter(0)
  p = f32[8] get-tuple-element(b), index=0
  q = f32[8] get-tuple-element(b), index=1
  ROOT out = (f32[8], f32[8]) tuple(q, p)
}
condition {
  c = (f32[8], f32[8]) parameter(0)
  ROOT no = pred[] constant(false)
}
ENTRY main {
  x = f32[8] parameter(0)
  y = f32[8] negate(x)
  t = (f32[8], f32[8]) tuple(y, y)
  w = (f32[8], f32[8]) while(t), condition=condition, body=body
  ROOT z = f32[8] get-tuple-element(w), index=7
}
"""
    module = hs.read(text).module
    said = dict(zip((i.name for i in module.instructions), labels(module), strict=True))
    assert said["p"] == "negate"
    assert said["z"] == "element 7"


def test_what_is_far_away_keeps_its_own_label() -> None:
    """Names are looked for through a few dozen copies, tuples and loops, and no farther."""
    for copies, name in ((30, "x"), (60, "copy"), (20_000, "copy")):
        lines = ["HloModule m", "ENTRY e {", '  c0 = f32[8] parameter(0), metadata={op_name="x"}']
        lines += [f"  c{k} = f32[8] copy(c{k - 1})" for k in range(1, copies)]
        lines += [f"  t = (f32[8], f32[8]) tuple(c0, c{copies - 1})"]
        lines += ["  ROOT g = f32[8] get-tuple-element(t), index=1", "}"]
        module = hs.read("\n".join(lines)).module
        assert labels(module)[module.find("g").index] == name, copies
    for levels in (15, 200):
        lines = ["HloModule m", "ENTRY e {", '  g0 = f32[8] parameter(0), metadata={op_name="x"}']
        for k in range(1, levels):
            lines += [f"  t{k} = (f32[8], f32[8]) tuple(g0, g{k - 1})"]
            lines += [f"  g{k} = f32[8] get-tuple-element(t{k}), index=1"]
        module = hs.read("\n".join([*lines, f"  ROOT r = f32[8] copy(g{levels - 1})", "}"])).module
        assert labels(module)[module.find(f"g{levels - 1}").index] == "x", levels


ENDS = """HloModule m

update {
  ua = f32[4,8] parameter(0)
  ub = f32[1,8] parameter(1)
  ui = s32[] parameter(2)
  uz = s32[] constant(0)
  ROOT uu = f32[4,8] dynamic-update-slice(ua, ub, ui, uz)
}

flip { fx = f32[8,4] parameter(0) ROOT ft = f32[4,8] transpose(fx) , dimensions={1,0} }
half { hx = f32[8,4] parameter(0) hy = f32[8,4] parameter(1) ROOT hb = f32[8,4] bitcast(hx) }
alone { ap = f32[8] parameter(0) aq = (f32[8], f32[8]) parameter(1) a0 = f32[8] get-tuple-element(aq), index=0 ROOT an = f32[8] negate(a0) }

body {
  b = (s32[], f32[8], f32[4,8], s32[2], f32[4,8], f32[4,8], s32[], u32[]) parameter(0)
  b0 = s32[] get-tuple-element(b), index=0
  b1 = f32[8] get-tuple-element(b), index=1
  b2 = f32[4,8] get-tuple-element(b), index=2
  b3 = s32[2] get-tuple-element(b), index=3
  b4 = f32[4,8] get-tuple-element(b), index=4
  b5 = f32[4,8] get-tuple-element(b), index=5
  b6 = s32[] get-tuple-element(b), index=6
  b7 = u32[] get-tuple-element(b), index=7
  one = s32[] constant(1)
  uone = u32[] constant(1)
  two = s32[2] constant({1, 2})
  next = s32[] multiply(b0, one)
  zero = f32[] constant(0)
  blank = f32[1,8] broadcast(zero), dimensions={}
  row = f32[1,8] bitcast(b1)
  put = f32[4,8] dynamic-update-slice(b2, blank, b0, b0)
  putc = f32[4,8] copy(put)
  twice = s32[2] add(b3, two)
  rows = f32[4,8] fusion(b4, row, b0), kind=kLoop, calls=update
  sum = s32[] add(b6, b0)
  step = u32[] add(b7, uone)
  ROOT out = (s32[], f32[8], f32[4,8], s32[2], f32[4,8], f32[4,8], s32[], u32[]) tuple(next, b1, putc, twice, rows, b4, sum, step)
}

condition {
  c = (s32[], f32[8], f32[4,8], s32[2], f32[4,8], f32[4,8], s32[], u32[]) parameter(0)
  c0 = s32[] get-tuple-element(c), index=0
  c9 = f32[8] get-tuple-element(c), index=9
  ROOT less = pred[] constant(true)
}

ENTRY main {
  x = f32[8] parameter(0), metadata={op_name="x"}
  w = f32[8,4] parameter(1), metadata={op_name="w"}
  z = s32[] constant(0)
  uz0 = u32[] constant(0)
  z2 = s32[2] constant({0, 0})
  f = f32[] constant(0)
  mat = f32[4,8] broadcast(f), dimensions={}
  begin = (s32[], f32[8], f32[4,8], s32[2], f32[4,8], f32[4,8], s32[], u32[]) tuple(z, x, mat, z2, mat, mat, z, uz0)
  loop = (s32[], f32[8], f32[4,8], s32[2], f32[4,8], f32[4,8], s32[], u32[]) while(begin), condition=condition, body=body
  l0 = s32[] get-tuple-element(loop), index=0
  l1 = f32[8] get-tuple-element(loop), index=1
  l2 = f32[4,8] get-tuple-element(loop), index=2
  l3 = s32[2] get-tuple-element(loop), index=3
  l4 = f32[4,8] get-tuple-element(loop), index=4
  l5 = f32[4,8] get-tuple-element(loop), index=5
  l6 = s32[] get-tuple-element(loop), index=6
  l7 = u32[] get-tuple-element(loop), index=7
  turned = f32[4,8] fusion(w), kind=kLoop, calls=flip
  halved = f32[8,4] fusion(w, w), kind=kLoop, calls=half
  pair = (f32[4,8], f32[8,4]) tuple(turned, halved)
  p0 = f32[4,8] get-tuple-element(pair), index=0
  p1 = f32[8,4] get-tuple-element(pair), index=1
  arg = (f32[8], f32[8]) tuple(x, x)
  called = f32[8] call(x, arg), to_apply=alone
  inner = (f32[8], (f32[8], f32[8])) tuple(x, arg)
  i1 = (f32[8], f32[8]) get-tuple-element(inner), index=1
  i10 = f32[8] get-tuple-element(i1), index=0
  sorted = (f32[8], f32[8]) sort(x, x), dimensions={0}
  s1 = f32[8] get-tuple-element(sorted), index=1
  ROOT r = f32[8] copy(called)
}
"""


def test_every_way_that_a_name_is_found_ends() -> None:
    module = hs.read(ENDS).module
    found = labels(module)
    want = {
        "l0": "multiply", "b0": "multiply", "c0": "multiply", "c9": "element 9",
        "l1": "x", "b1": "x",  # carried as it is
        "l2": "stack of 0", "l3": "add", "l4": "stack of x", "l5": "broadcast", "l6": "add", "l7": "counter",
        "p0": "w", "p1": "fusion bitcast", "a0": "x", "i10": "element 0", "i1": "tuple", "s1": "sort",
    }  # fmt: skip
    assert {n: found[module.find(n).index] for n in want} == want
