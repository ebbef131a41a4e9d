"""A block for another chip, over the analyses, says what the analyses of that chip say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hloscope as hs
import numpy as np
import pytest
from hloscope.analysis.cost.chip import likely_chips
from hloscope.analysis.findings import rules
from hloscope.hlo import Target
from hloscope.view import build_analyses, build_for_chip
from hloscope.view.schema import decode

STEP = """HloModule jit_step, is_scheduled=true, num_partitions=16

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

ENTRY %main (x: f32[512,1024], w: f32[1024,1024]) -> f32[512,1024] {
  %x = f32[512,1024]{1,0} parameter(0)
  %w = f32[1024,1024]{1,0} parameter(1)
  %dot = f32[512,1024]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %reduced = f32[512,1024]{1,0} all-reduce(%dot), replica_groups=[2,8]<=[16], use_global_device_ids=true, channel_id=1, to_apply=%sum
  ROOT %tanh = f32[512,1024]{1,0} tanh(%reduced)
}
"""  # noqa: E501


# Of two branches the product takes longest on a chip of few FLOPs per byte, the other on the rest.
BRANCHED = """HloModule jit_step, is_scheduled=true, num_partitions=16

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

%product (p: (bf16[4096,4096], f32[130000000])) -> f32[4096,4096] {
  %p = (bf16[4096,4096]{1,0}, f32[130000000]{0}) parameter(0)
  %m = bf16[4096,4096]{1,0} get-tuple-element(%p), index=0
  ROOT %dot = f32[4096,4096]{1,0} dot(%m, %m), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(step)/dot" source_file="step.py" source_line=7}
}

%stream (q: (bf16[4096,4096], f32[130000000])) -> f32[4096,4096] {
  %q = (bf16[4096,4096]{1,0}, f32[130000000]{0}) parameter(0)
  %v = f32[130000000]{0} get-tuple-element(%q), index=1
  %zero = f32[] constant(0)
  %total = f32[] reduce(%v, %zero), dimensions={0}, to_apply=%sum, metadata={op_name="jit(step)/sum" source_file="step.py" source_line=9}
  %all = f32[] all-reduce(%total), replica_groups=[2,8]<=[16], use_global_device_ids=true, channel_id=1, to_apply=%sum
  ROOT %full = f32[4096,4096]{1,0} broadcast(%all), dimensions={}
}

ENTRY %main (which: pred[], x: bf16[4096,4096], y: f32[130000000]) -> f32[4096,4096] {
  %which = pred[] parameter(0)
  %x = bf16[4096,4096]{1,0} parameter(1)
  %y = f32[130000000]{0} parameter(2)
  %both = (bf16[4096,4096]{1,0}, f32[130000000]{0}) tuple(%x, %y)
  ROOT %either = f32[4096,4096]{1,0} conditional(%which, %both, %both), true_computation=%product, false_computation=%stream
}
"""  # noqa: E501


def figures(block: bytes) -> dict[str, Any]:
    """Columns, with texts as texts, and the keys of extras and summary."""
    header, columns = decode(block)
    texts = columns.pop("strings")
    out: dict[str, Any] = {f"extras.{k}": v for k, v in header["extras"].items()}
    out |= {f"summary.{k}": v for k, v in header["summary"].items()}
    for name, values in columns.items():
        is_text = header["columns"][name].get("text")
        out[name] = [texts[n] for n in values] if is_text else values.tolist()
    return out


@pytest.mark.parametrize("chip", ["tpu-v5e", "tpu-v5p", "h100", "cpu"])
@pytest.mark.parametrize("own", ["", "tpu-v6e"])
@pytest.mark.parametrize("program", [STEP, BRANCHED], ids=["step", "branched"])
def test_a_chips_block_over_the_analyses_is_the_analyses_of_that_chip(
    chip: str, own: str, program: str
) -> None:
    module = hs.read(program).module
    target = Target(hardware=own)
    shown = figures(build_analyses(module, target))
    block = build_for_chip(module, target, chip)
    for name in decode(block)[0]["without"]:
        shown.pop(name, None)
        shown.pop(f"extras.{name}", None)
    shown |= figures(block)
    wanted = figures(build_analyses(module, replace(target, hardware=chip)))
    assert shown.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_equal(shown[name], values, err_msg=name)
    assert len(block) < len(build_analyses(module, target))


def test_a_page_of_several_chips_works_out_the_findings_of_each_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []
    real = rules.headline

    def counted(facts: Any) -> Any:
        made.append(facts.target.hardware)
        return real(facts)

    monkeypatch.setattr(rules, "headline", counted)
    cap = hs.read(STEP)
    print(cap.summary)
    made.clear()
    cap.html()
    others = [chip for chip in made if chip]
    assert len(others) == len(set(others)) > 4
    assert len(made) - len(others) <= 1  # those of the capture as it is


def test_another_chip_takes_the_branch_that_takes_longest_there() -> None:
    module = hs.read(BRANCHED).module
    own = figures(build_analyses(module, Target(hardware="tpu-v6e")))
    other = figures(build_for_chip(module, Target(hardware="tpu-v6e"), "tpu-v5p"))
    named = {i.name: i.index for i in module.instructions}
    for name, runs in (("dot", (0, 1)), ("total", (1, 0))):
        assert (own["cost.runs"][named[name]], other["cost.runs"][named[name]]) == runs


def test_likely_chips_are_of_the_programs_platform_and_link_all_its_devices() -> None:
    module = hs.read(STEP).module
    assert likely_chips(module, Target(device_kind="TPU v5e", platform="tpu"))[0] == "tpu-v5e"
    gpus = likely_chips(module, Target(platform="gpu"))
    assert "h100" in gpus
    assert not any(chip.startswith("tpu") for chip in gpus)
    assert {"cpu", "h100", "tpu-v5p"} <= set(likely_chips(module, Target()))
    tiled = hs.read(STEP.replace("{1,0} ", "{1,0:T(8,128)} ")).module
    assert {c[:3] for c in likely_chips(tiled, Target())} == {"tpu"}
