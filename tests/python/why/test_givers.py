"""What a value is computed from, one step back."""

from __future__ import annotations

import hloscope as hs
from hloscope.analysis.why.givers import givers

BRANCHES = """HloModule m
%same (p: f32[4]) -> f32[4] {
  %p = f32[4] parameter(0)
  ROOT %n = f32[4] negate(%p)
}
ENTRY %main (which: pred[], a: f32[4], b: f32[4]) -> f32[4] {
  %which = pred[] parameter(0)
  %a = f32[4] parameter(1)
  %b = f32[4] parameter(2)
  ROOT %c = f32[4] conditional(%which, %a, %b), true_computation=%same, false_computation=%same
}
"""
STEP = """%body (p: (f32[4])) -> (f32[4]) {
  %p = (f32[4]) parameter(0)
  %x = f32[4] get-tuple-element(%p), index=0
  %y = f32[4] tanh(%x)
  ROOT %r = (f32[4]) tuple(%y)
}
%on (p: (f32[4])) -> pred[] {
  %q = (f32[4]) parameter(0)
  ROOT %t = pred[] constant(false)
}
"""


def names(module: hs.Module, of: str) -> list[str]:
    (value,) = (i for i in module.instructions if i.name == of)
    return [i.name for i in givers(value)]


def test_a_computation_of_two_branches_is_given_what_both_are_handed() -> None:
    module = hs.read(BRANCHES).module
    assert names(module, "p") == ["a", "b"]
    assert set(names(module, "c")) == {"n"}
    assert names(module, "a") == []


def test_loops_one_after_the_other_are_followed_however_many() -> None:
    loops = 3000
    bodies = "".join(
        STEP.replace("%body", f"%body{k}").replace("%on", f"%on{k}") for k in range(loops)
    )
    rows = "".join(
        f"  %w{k} = (f32[4]) while(%w{k - 1}), condition=%on{k}, body=%body{k}\n"
        for k in range(loops)
    )
    text = (
        f"HloModule m\n{bodies}ENTRY %main (a: f32[4]) -> f32[4] {{\n  %a = f32[4] parameter(0)\n"
    )
    text += f"  %w-1 = (f32[4]) tuple(%a)\n{rows}"
    text += f"  ROOT %out = f32[4] get-tuple-element(%w{loops - 1}), index=0\n}}\n"
    found = names(hs.read(text).module, "out")
    assert found[0] == "a"
    assert len(found) == loops + 1
