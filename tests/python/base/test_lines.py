"""Every instruction has a line: its own, or that of what it serves, and then it is said."""

from __future__ import annotations

import hloscope as hs
import numpy as np
import pytest
from hloscope.analysis.base.lines.lines import lines

HEAD = """HloModule m, is_scheduled=true

FileNames
1 "train.py"

FunctionNames
1 "step"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3}
2 {file_name_id=1 function_name_id=1 line=8}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}

"""


def found(tmp_path, body):
    path = tmp_path / "m.hlo"
    path.write_text(HEAD + body)
    capture = hs.read(path)
    return capture, lines(capture.module)


def said(known, capture, name):
    i = capture.module.find(name)
    at = known.of(i)
    return (at.line if at is not None else None), known.why(i)


BY = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
ROW = 'metadata={op_name="jit(step)/%s" stack_frame_id=%d}'

DECODE = f"""
%fused (p: f32[8,1024]) -> f32[8,1024] {{
  %p = f32[8,1024]{{1,0}} parameter(0)
  %b = f32[8,1024]{{1,0}} bitcast(%p), {ROW % ("dot_general", 1)}
  ROOT %e = f32[8,1024]{{1,0}} exponential(%b), {ROW % ("exp", 2)}
}}

ENTRY %main (a: f32[8,64], w: f32[1024,64]) -> f32[8,1024] {{
  %a = f32[8,64]{{1,0}} parameter(0)
  %w = f32[1024,64]{{1,0}} parameter(1)
  %copy.1 = f32[64,1024]{{1,0}} transpose(%w), dimensions={{1,0}}
  %dot.1 = f32[8,1024]{{1,0}} dot(%a, %copy.1), {BY}
  ROOT %f = f32[8,1024]{{1,0}} fusion(%dot.1), kind=kLoop, calls=%fused, {ROW % ("exp", 2)}
}}
"""


def test_a_matmul_without_a_line_has_that_of_the_reshape_which_bears_its_name(tmp_path):
    capture, known = found(tmp_path, DECODE)
    assert said(known, capture, "dot.1") == (3, "named by `b`")
    assert said(known, capture, "copy.1") == (3, "layout for `dot.1`")
    assert said(known, capture, "w") == (None, "")  # an argument is the caller's
    assert said(known, capture, "f") == (8, "")
    source = capture.source
    by_line = {x.line: x for x in source}
    assert by_line[3].own.flops == by_line[3].inferred.flops == 2 * 8 * 64 * 1024
    assert source.unattributed.flops == 0
    assert "100 %" in repr(source)
    assert "no line known" in repr(source)
    assert source.to_dict()["unattributed"]["flops"] == 0


LOOP = f"""
%body (t: (f32[8,8], f32[8,8])) -> (f32[8,8], f32[8,8]) {{
  %t = (f32[8,8], f32[8,8]) parameter(0)
  %x = f32[8,8] get-tuple-element(%t), index=0
  %w = f32[8,8] get-tuple-element(%t), index=1
  %d = f32[8,8] dot(%x, %w), {BY}, {ROW % ("dot_general", 2)}
  %odd = f32[8,8] custom-call(), custom_call_target="AllocateBuffer"
  ROOT %r = (f32[8,8], f32[8,8]) tuple(%d, %w)
}}

%cond (t.1: (f32[8,8], f32[8,8])) -> pred[] {{
  %t.1 = (f32[8,8], f32[8,8]) parameter(0)
  ROOT %go = pred[] constant(true)
}}

%sum (l: f32[], r.2: f32[]) -> f32[] {{
  %l = f32[] parameter(0)
  %r.2 = f32[] parameter(1)
  ROOT %plus = f32[] add(%l, %r.2), {ROW % ("reduce_sum", 1)}
}}

ENTRY %main (a: f32[8,8], k: f32[8,8]) -> (f32[8,8], f32[8,8]) {{
  %a = f32[8,8] parameter(0)
  %k = f32[8,8] parameter(1)
  %copy.2 = f32[8,8] copy(%k)
  %tuple.1 = (f32[8,8], f32[8,8]) tuple(%a, %copy.2)
  %while.1 = (f32[8,8], f32[8,8]) while(%tuple.1), condition=%cond, body=%body
  %out = f32[8,8] get-tuple-element(%while.1), index=0
  %all = f32[8,8] all-reduce(%out), replica_groups={{}}, to_apply=%sum
  ROOT %both = (f32[8,8], f32[8,8]) tuple(%all, %out)
}}
"""


KEPT = f"""
%cast (p: bf16[8,64]) -> f32[512] {{
  %p = bf16[8,64]{{1,0}} parameter(0)
  %c = f32[8,64]{{1,0}} convert(%p)
  ROOT %b = f32[512]{{0}} bitcast(%c)
}}

ENTRY %main (a: f32[8,64], w: bf16[8,64]) -> f32[512] {{
  %a = f32[8,64]{{1,0}} parameter(0)
  %w = bf16[8,64]{{1,0}} parameter(1)
  %same = f32[8,64]{{1,0}} copy(%a)
  %moved = f32[8,64]{{1,0:S(1)}} copy(%same)
  %turned = f32[8,64]{{0,1}} copy(%moved)
  %flat = f32[512]{{0}} bitcast(%turned)
  %wide = f32[512]{{0}} fusion(%w), kind=kLoop, calls=%cast
  ROOT %sum = f32[512]{{0}} add(%flat, %wide), {ROW % ("add", 2)}
}}
"""


def test_a_copy_is_for_another_layout_only_if_it_has_one(tmp_path):
    capture, known = found(tmp_path, KEPT)
    assert said(known, capture, "same") == (8, "copy for `sum`")
    assert said(known, capture, "moved") == (8, "move for `sum`")
    assert said(known, capture, "turned") == (8, "layout for `sum`")
    assert said(known, capture, "wide") == (8, "conversion for `sum`")
    words, names = known.phrases()
    instructions = capture.module.instructions
    assert [names[w] for w in words] == [known.why(i).partition(" `")[0] for i in instructions]


def test_lines_go_through_loops_element_by_element(tmp_path):
    capture, known = found(tmp_path, LOOP)
    assert said(known, capture, "copy.2") == (8, "copy for `d`")
    assert said(known, capture, "while.1") == (8, "its heaviest part is `d`")
    # a partial sum is finished for what made it, and its reducer is no part of it
    assert said(known, capture, "all") == (8, "made from `d`")
    assert said(known, capture, "odd") == (8, "inside `while.1`")


def test_phrases_say_the_same_as_why(tmp_path):
    for body in (DECODE, LOOP):
        capture, known = found(tmp_path, body)
        column, words = known.phrases()
        for i in capture.module.instructions:
            other = known.serves(i)
            phrase = words[column[i.index]]
            assert known.why(i) == (f"{phrase} `{other.name}`" if other is not None else "")


@pytest.mark.parametrize("name", ["cnn_step", "lstm_scan", "scan_gradient", "sorting"])
def test_every_computed_instruction_of_compiled_programs_has_a_line(compiled, name):
    module = compiled(name).capture.module
    known = lines(module)
    free = {"parameter", "constant", "tuple", "get-tuple-element"}
    lost = [i for i in module.instructions if known.frame[i.index] == 0 and i.opcode not in free]
    assert not lost
    own = np.array(module.source_frames()[1]) > 0
    assert not known.inferred[own].any()
