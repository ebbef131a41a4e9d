# ruff: noqa: E501
"""Where values come from: through copies, tuples, fusions, calls and loops, by a table."""

from __future__ import annotations

import hloscope as hs
from hloscope.analysis.base.operands import source_of
from hloscope.analysis.base.table import NO_TARGET
from hloscope.hlo import Argument, Target

TEXT = """HloModule m

cast {
  cp = f32[8] parameter(0)
  cb = f32[8] bitcast(cp)
  ROOT cc = bf16[8] convert(cb)
}

second {
  sx = f32[8] parameter(0)
  sy = f32[8] parameter(1)
  ROOT sn = f32[8] copy(sy)
}

sums {
  ux = f32[8] parameter(0)
  uy = f32[8] parameter(1)
  us = f32[8] add(ux, uy)
  ROOT uc = f32[8] copy(us)
}

pair {
  px = f32[8] parameter(0)
  py = f32[8] parameter(1)
  pn = f32[8] copy(py)
  ps = f32[8] add(px, py)
  ROOT pt = (f32[8], f32[8]) tuple(pn, ps)
}

called {
  kx = f32[8] parameter(0)
  ky = f32[8] parameter(1)
  kc = f32[8] copy(ky)
  ROOT kn = f32[8] negate(kc)
}

body {
  bp = (f32[8], f32[8], f32[8], f32[8]) parameter(0)
  b0 = f32[8] get-tuple-element(bp), index=0
  b1 = f32[8] get-tuple-element(bp), index=1
  b2 = f32[8] get-tuple-element(bp), index=2
  b3 = f32[8] get-tuple-element(bp), index=3
  bs = f32[8] add(b0, b1), metadata={op_name="jit(f)/jvp(layer)/add"}
  bc = f32[8] copy(bs)
  bn = f32[8] tanh(b2)
  ROOT bt = (f32[8], f32[8], f32[8], f32[8]) tuple(b0, bc, bn, b2)
}

condition {
  dp = (f32[8], f32[8], f32[8], f32[8]) parameter(0)
  d0 = f32[8] get-tuple-element(dp), index=0
  ROOT dt = pred[] constant(true)
}

left { lx = f32[8] parameter(0) ROOT ln = f32[8] copy(lx) }
right { rx = f32[8] parameter(0) ROOT rn = f32[8] copy(rx) }
applied { ax = f32[] parameter(0) ay = f32[] parameter(1) ROOT as = f32[] add(ax, ay) }
nobody { ox = f32[8] parameter(0) ROOT on = f32[8] copy(ox) }

ENTRY e {
  a = f32[8] parameter(0), metadata={op_name="params['a']"}
  b = f32[8] parameter(1)
  n = s32[] parameter(2)
  h = (f32[8], (f32[8], f32[8])) parameter(3), metadata={op_name="h"}
  zero = f32[] constant(0)
  io = s32[8] iota(), iota_dimension=0
  wide = f32[8] broadcast(zero), dimensions={}
  wide1 = f32[1] broadcast(zero), dimensions={}
  same = f32[1,8] broadcast(a), dimensions={1}
  more = f32[2,8] broadcast(a), dimensions={1}
  copied = f32[8] copy(a)
  cut = f32[4] slice(copied), slice={[0:4]}
  turned = f32[4] transpose(cut), dimensions={0}
  t = (f32[8], f32[8]) tuple(a, b)
  t0 = f32[8] get-tuple-element(t), index=0
  t1 = f32[8] get-tuple-element(t), index=1
  t2 = f32[8] get-tuple-element(t), index=2
  tx = f32[8] get-tuple-element(t), index=x
  nest = ((f32[8], f32[8]), f32[8]) tuple(t, a)
  nest0 = (f32[8], f32[8]) get-tuple-element(nest), index=0
  nest01 = f32[8] get-tuple-element(nest0), index=1
  h1 = (f32[8], f32[8]) get-tuple-element(h), index=1
  h10 = f32[8] get-tuple-element(h1), index=0
  fcast = bf16[8] fusion(b), kind=kLoop, calls=cast
  fsecond = f32[8] fusion(a, b), kind=kLoop, calls=second
  fsums = f32[8] fusion(a, b), kind=kLoop, calls=sums, metadata={op_name="jit(f)/mlp/add"}
  fpair = (f32[8], f32[8]) fusion(a, b), kind=kLoop, calls=pair
  fpair0 = f32[8] get-tuple-element(fpair), index=0
  fpair1 = f32[8] get-tuple-element(fpair), index=1
  k = f32[8] call(a, b), to_apply=called
  ag = f32[16] all-gather(copied), dimensions={0}
  ar = f32[8] all-reduce(a), to_apply=applied
  ag2 = (f32[16], f32[16]) all-gather(a, b), dimensions={0}
  begin = (f32[8], f32[8], f32[8], f32[8]) tuple(a, b, wide, b)
  loop = (f32[8], f32[8], f32[8], f32[8]) while(begin), condition=condition, body=body
  w0 = f32[8] get-tuple-element(loop), index=0
  w1 = f32[8] get-tuple-element(loop), index=1
  w2 = f32[8] get-tuple-element(loop), index=2
  w3 = f32[8] get-tuple-element(loop), index=3
  c = f32[8] conditional(n, a, b), branch_computations={left, right}
  s1 = ((f32[8]), f32[4], s32[]) slice-start(a), slice={[0:4]}
  s1d = f32[4] slice-done(s1)
  s2 = ((f32[8]), f32[4], s32[]) slice-start(a), slice={[4:8]}
  s2d = f32[4] slice-done(s2)
  s3 = ((f32[8]), f32[4], s32[]) slice-start(b), slice={[4:8]}
  s3d = f32[4] slice-done(s3)
  pieces = f32[8] custom-call(s1d, s2d), custom_call_target="ConcatBitcast"
  mixed = f32[8] custom-call(s1d, s3d), custom_call_target="ConcatBitcast"
  odd = f32[8] custom-call(s1d, a), custom_call_target="ConcatBitcast"
  crop = f32[4] custom-call(b), custom_call_target="ZeroCrop"
  kernel = f32[8] custom-call(b), custom_call_target="kernel"
  tok = token[] after-all()
  snd = (f32[8], u32[], token[]) send(b, tok), channel_id=1, is_host_transfer=true, frontend_attributes={_xla_host_transfer_rendezvous="r1"}
  rcv = (f32[8], u32[], token[]) recv(tok), channel_id=2, is_host_transfer=true, frontend_attributes={_xla_host_transfer_rendezvous="r1"}
  rcvd = (f32[8], token[]) recv-done(rcv), channel_id=2
  got = f32[8] get-tuple-element(rcvd), index=0
  rcv2 = (f32[8], u32[], token[]) recv(tok), channel_id=3, is_host_transfer=true, frontend_attributes={_xla_host_transfer_rendezvous="r2"}
  rcvd2 = (f32[8], token[]) recv-done(rcv2), channel_id=3
  got2 = f32[8] get-tuple-element(rcvd2), index=0
  red = f32[] reduce(a, zero), dimensions={0}, to_apply=applied
  ROOT r = (f32[8], f32[]) tuple(k, red)
}
"""

# value → kind and name of its source, and the instruction where that is not of the same name
SOURCES = {
    "a": "argument params['a'] a",
    "b": "argument %b b",
    "zero": "constant constant zero", "io": "constant iota io", "wide": "constant broadcast wide",
    "wide1": "constant constant zero", "same": "argument params['a'] a", "more": "value %more more",
    "copied": "argument params['a'] a", "turned": "argument params['a'] a",
    "t": "value %t t", "t0": "argument params['a'] a", "t1": "argument %b b", "t2": "value %t t",
    "tx": "value %tx tx", "nest0": "value %t t", "nest01": "argument %b b",
    "h10": "argument h h", "fcast": "argument %b b", "fsecond": "argument %b b",
    "fsums": "value mlp/add fsums", "fpair0": "argument %b b", "fpair1": "value %fpair fpair",
    "cb": "argument %b b", "sy": "argument %b b", "sx": "argument params['a'] a",
    "us": "value %us us", "pn": "argument %b b",
    "k": "argument %b b", "kc": "argument %b b", "kn": "argument %b b",
    "ag": "argument params['a'] a", "ar": "value %ar ar", "ag2": "value %ag2 ag2",
    "w0": "argument params['a'] a", "b0": "argument params['a'] a", "d0": "argument params['a'] a",
    "w1": "loop %b carried by a loop loop", "b1": "loop %b carried by a loop bp",
    "w2": "loop value carried by a loop (element 2) loop", "b2": "loop value carried by a loop (element 2) bp",
    "w3": "loop %b carried by a loop loop", "loop": "loop value carried by a loop loop",
    "bs": "value layer/add bs",
    "lx": "argument params['a'] a", "rn": "argument %b b", "c": "value %c c",
    "pieces": "argument params['a'] a", "mixed": "value %mixed mixed", "odd": "argument params['a'] a",
    "crop": "argument %b b", "kernel": "value %kernel kernel",
    "got": "argument %b b", "got2": "value %rcvd2 rcvd2",
    "ax": "value %ax ax", "on": "value %ox ox", "s1d": "argument params['a'] a",
}  # fmt: skip


def test_every_source() -> None:
    module = hs.read(TEXT).module
    assert [w.message for w in module.warnings] == []
    for name, want in SOURCES.items():
        found = source_of(module.find(name), NO_TARGET)
        assert f"{found.kind} {found.name} {found.instruction.name}" == want, name
        assert found.parameter == ({"a": 0, "b": 1, "h": 3}.get(found.instruction.name)), name


def test_arguments_have_the_names_of_the_call() -> None:
    module = hs.read(TEXT).module
    target = Target(arguments=(Argument("x", (8,), "f32"), Argument("y", (8,), "f32", parameter=1)))
    assert source_of(module.find("fcast"), target).name == "y"
    assert source_of(module.find("copied"), target).name == "params['a']"


def test_what_a_loop_begins_with_no_name_is_called_by_what_its_steps_make() -> None:
    text = TEXT.replace("tuple(a, b, wide, b)", "tuple(a, more0, wide, b)").replace(
        "  begin =", "  more0 = f32[8] tanh(a)\n  begin ="
    )
    module = hs.read(text).module
    assert source_of(module.find("w1"), NO_TARGET).name == "layer/add carried by a loop"
    assert source_of(module.find("w2"), NO_TARGET).name == "value carried by a loop (element 2)"


def test_chains_without_an_end_have_one() -> None:
    for length, name in ((150, "a"), (250, "a")):
        lines = ["HloModule m", "ENTRY e {", "  a = f32[8] parameter(0)", "  c0 = f32[8] copy(a)"]
        lines += [f"  c{k} = f32[8] copy(c{k - 1})" for k in range(1, length)]
        module = hs.read("\n".join([*lines, f"  ROOT r = f32[8] copy(c{length - 1})", "}"])).module
        assert source_of(module.entry.root, NO_TARGET).instruction.name == name
