"""A dump of each pass, written by hand: small enough to know what each pass did."""

from __future__ import annotations

from pathlib import Path

_META = ', metadata={{op_name="jit(step)/{}" stack_frame_id=0}}'


def _module(*lines: str, before: str = "") -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return (
        f"HloModule jit_step\n\n{before}ENTRY %main (x: f32[8,8], w: f32[8,8]) -> f32[8,8] {{\n"
        f"{body}\n}}\n"
    )


def _at(scope: str) -> str:
    return _META.format(scope)


X = "%x = f32[8,8]{1,0} parameter(0)"
W = "%w = f32[8,8]{1,0} parameter(1)"
START = _module(
    X, W,
    "%one = f32[] constant(1)",
    "%ones = f32[8,8]{1,0} broadcast(%one), dimensions={}",
    "%scaled = f32[8,8]{1,0} multiply(%x, %ones)" + _at("mul"),
    "%dot.1 = f32[8,8]{1,0} dot(%scaled, %w), lhs_contracting_dims={1}, "
    "rhs_contracting_dims={0}" + _at("dot_general"),
    "%tanh.1 = f32[8,8]{1,0} tanh(%dot.1)" + _at("tanh"),
    "ROOT %neg.1 = f32[8,8]{1,0} negate(%tanh.1)" + _at("neg"),
)  # fmt: skip
# x · 1 is x
ALGSIMP = START.replace("dot(%scaled, %w)", "dot(%x, %w)")
DCE = "\n".join(
    line for line in ALGSIMP.split("\n") if not line.startswith(("  %one", "  %scaled"))
)
# the whole module written anew: other names, the same instructions, a sharding
ANEW = _module(
    "%x.0 = f32[8,8]{1,0} parameter(0)",
    "%w.0 = f32[8,8]{1,0} parameter(1)",
    "%dot_general.5 = f32[8,8]{1,0} dot(%x.0, %w.0), lhs_contracting_dims={1}, "
    "rhs_contracting_dims={0}" + _at("dot_general"),
    "%tanh.7 = f32[8,8]{1,0} tanh(%dot_general.5)" + _at("tanh"),
    "ROOT %neg.9 = f32[8,8]{1,0} negate(%tanh.7)" + _at("neg"),
)
# the dot writes another layout, and a copy converts it back
LAYOUT = ANEW.replace("%dot_general.5 = f32[8,8]{1,0}", "%dot_general.5 = f32[8,8]{0,1}").replace(
    "  %tanh.7 = f32[8,8]{1,0} tanh(%dot_general.5)",
    "  %copy.3 = f32[8,8]{1,0} copy(%dot_general.5)\n  %tanh.7 = f32[8,8]{1,0} tanh(%copy.3)",
)
FUSED = """%fused_computation (param_0: f32[8,8]) -> f32[8,8] {
  %param_0 = f32[8,8]{1,0} parameter(0)
  %tanh.20 = f32[8,8]{1,0} tanh(%param_0)""" + _at("tanh") + """
  ROOT %neg.21 = f32[8,8]{1,0} negate(%tanh.20)""" + _at("neg") + """
}

"""  # fmt: skip
FUSION = _module(
    *[line.strip() for line in LAYOUT.split("\n")[3:7]],
    "ROOT %tanh_neg_fusion = f32[8,8]{1,0} fusion(%copy.3), kind=kLoop, "
    "calls=%fused_computation" + _at("neg"),
    before=FUSED,
).replace("HloModule jit_step", "HloModule jit_step, is_scheduled=true")

STAGES = {
    "before_optimizations": START,
    "0000.simplification.after_pipeline-start.before_algsimp": START,
    "0001.simplification.after_algsimp.before_dce": ALGSIMP,
    "0002.simplification.after_dce.before_pipeline-end": DCE,
    "0003.partitioner.after_shardy-xla.before_something-else": ANEW,
    # a pass that runs a pipeline of its own: the first dump there shows that pass's work
    "0004.cleanup.after_pipeline-start.before_dce": LAYOUT,
    "0005.partitioner.after_layout-assignment.before_fusion": LAYOUT,
    "0006.partitioner.after_fusion.before_pipeline-end": FUSION,
    "cpu_after_optimizations": FUSION,
}


def write_passes(folder: Path) -> Path:
    """Writes the dump as XLA would."""
    folder.mkdir(parents=True, exist_ok=True)
    for stage, text in STAGES.items():
        (folder / f"module_0001.jit_step.{stage}.txt").write_text(text)
    return folder
