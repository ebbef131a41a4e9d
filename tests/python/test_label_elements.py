"""Elements of tuples are called by their value: an argument's path, what makes it, a counter."""

from __future__ import annotations

import hloscope as hs
from hloscope.analysis.base.labels import labels

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
"""  # noqa: E501


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
