"""Phases against data flow: merged operations, names written from a loop's body, unnamed rows."""

from __future__ import annotations

import hloscope as hs
import numpy as np
import pytest
from hloscope.analysis.base.phases.phases import PHASES, phases
from hloscope.analysis.base.table import table

FORWARD = PHASES.index("forward")
BACKWARD = PHASES.index("backward")
OPTIMISER = PHASES.index("optimiser")
PLUMBING = (
    "tuple",
    "get-tuple-element",
    "opt-barrier",
    "while",
    "conditional",
    "call",
    "parameter",
)


def of(text: str) -> dict[str, str]:
    module = hs.read(text).module
    found = phases(module)
    return {i.name: PHASES[found[i.index]] for i in module.instructions}


REMAT = "transpose(jvp())/checkpoint/rematted_computation"


def named(op_name: str) -> str:
    return f'metadata={{op_name="jit(step)/{op_name}"}}'


def test_what_both_passes_share_is_forward_whatever_its_name():
    found = of(f"""HloModule step, is_scheduled=true
ENTRY %main (w: f32[8], x: f32[8]) -> f32[8] {{
  %w = f32[8] parameter(0)
  %x = f32[8] parameter(1)
  %shared = f32[8] exponential(%w), {named(f"{REMAT}/exp")}
  %mul = f32[8] multiply(%shared, %x), {named("jvp()/mul")}
  %tanh = f32[8] tanh(%mul), {named("jvp()/tanh")}
  %again = f32[8] multiply(%shared, %mul), {named(f"{REMAT}/mul")}
  %grad = f32[8] multiply(%again, %tanh), {named("transpose(jvp())/mul")}
  ROOT %late = f32[8] add(%grad, %x), {named("jvp()/add")}
}}
""")
    assert found["shared"] == "forward"
    assert found["again"] == "rematerialised"
    assert found["grad"] == "backward"
    assert found["late"] == "backward"  # made from a gradient, so no part of the forward pass


def test_a_fusion_without_a_name_that_takes_a_gradient_is_of_the_backward_pass() -> None:
    """XLA merges what both passes broadcast and keeps its first name, in the backward pass too."""
    scale = named("jvp()/mul")

    def product(name: str, op_name: str) -> str:
        return f"""%{name} {{
  %a.{name} = f32[8] parameter(0)
  %b.{name} = f32[] parameter(1)
  %one.{name} = f32[8] broadcast(%b.{name}), dimensions={{}}, {scale}
  %two.{name} = f32[8] negate(%one.{name}), {scale}
  ROOT %product.{name} = f32[8] multiply(%a.{name}, %two.{name}), {op_name}
}}
"""

    found = of(f"""HloModule step, is_scheduled=true
{product("late", named("transpose(jvp())/mul"))}
{product("early", named("transpose(jvp())/mul"))}
{product("plain", named("jvp()/mul"))}
ENTRY %main (x: f32[8], b: f32[]) -> f32[8] {{
  %x = f32[8] parameter(0)
  %b = f32[] parameter(1)
  %sin = f32[8] sine(%x), {named("jvp()/sin")}
  %scaled = f32[8] fusion(%sin, %b), kind=kLoop, calls=%plain
  %merged = f32[8] fusion(%scaled, %b), kind=kLoop, calls=%early
  %tanh = f32[8] tanh(%merged), {named("jvp()/tanh")}
  %grad = f32[8] cosine(%tanh), {named("transpose(jvp())/cos")}
  %turned = f32[8] copy(%grad)
  %back = f32[8] fusion(%turned, %b), kind=kLoop, calls=%late
  ROOT %end = f32[8] add(%back, %grad), {named("transpose(jvp())/add")}
}}
""")
    assert found["scaled"] == "forward"
    assert found["merged"] == "forward"  # most of it is, and no gradient goes in
    assert found["back"] == "backward"


BACKWARD_LOOP = named("transpose(jvp(model))/while")
COMBINED = named("(reduce_sum:jvp()/reduce_sum)")


def test_names_written_from_a_loop_on_are_of_the_loops_pass():
    body = """
%body{n} (p{n}: (s32[], f32[8])) -> (s32[], f32[8]) {{
  %p{n} = (s32[], f32[8]) parameter(0)
  %i{n} = s32[] get-tuple-element(%p{n}), index=0
  %v{n} = f32[8] get-tuple-element(%p{n}), index=1
  %one{n} = s32[] constant(1)
  %next{n} = s32[] add(%i{n}, %one{n})
  %again{n} = f32[8] sine(%v{n}), metadata={{op_name="checkpoint/rematted_computation/layers/sin"}}
  %mul{n} = f32[8] multiply(%again{n}, %v{n}), metadata={{op_name="checkpoint/layers/mul"}}
  ROOT %t{n} = (s32[], f32[8]) tuple(%next{n}, %mul{n})
}}
%cond{n} (q{n}: (s32[], f32[8])) -> pred[] {{
  %q{n} = (s32[], f32[8]) parameter(0)
  %j{n} = s32[] get-tuple-element(%q{n}), index=0
  %end{n} = s32[] constant(4)
  ROOT %lt{n} = pred[] compare(%j{n}, %end{n}), direction=LT
}}
"""
    found = of(
        "HloModule step\n"
        + body.format(n=1)
        + body.format(n=2)
        + f"""
ENTRY %main (x: f32[8]) -> f32[8] {{
  %x = f32[8] parameter(0)
  %zero = s32[] constant(0)
  %in1 = (s32[], f32[8]) tuple(%zero, %x)
  %w1 = (s32[], f32[8]) while(%in1), condition=%cond1, body=%body1, {named("jvp(model)/while")}
  %y = f32[8] get-tuple-element(%w1), index=1
  %in2 = (s32[], f32[8]) tuple(%zero, %y)
  %w2 = (s32[], f32[8]) while(%in2), condition=%cond2, body=%body2, {BACKWARD_LOOP}
  ROOT %g = f32[8] get-tuple-element(%w2), index=1
}}
"""
    )
    assert found["mul1"] == "forward"
    assert found["mul2"] == "backward"
    assert found["again2"] == "rematerialised"


def test_a_norm_reduced_with_the_loss_waits_for_the_gradients():
    found = of(f"""HloModule step
%sum (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}}
ENTRY %main (x: f32[8]) -> f32[8] {{
  %x = f32[8] parameter(0)
  %zero = f32[] constant(0)
  %loss = f32[] reduce(%x, %zero), dimensions={{0}}, to_apply=%sum, {named("jvp()/reduce_sum")}
  %grad = f32[8] multiply(%x, %x), {named("transpose(jvp())/mul")}
  %norm = f32[] reduce(%grad, %zero), dimensions={{0}}, to_apply=%sum, {named("reduce_sum")}
  %both = (f32[], f32[]) all-reduce(%loss, %norm), to_apply=%sum, {COMBINED}
  %total = f32[] get-tuple-element(%both), index=1
  %scale = f32[8] broadcast(%total), dimensions={{}}
  ROOT %new = f32[8] multiply(%grad, %scale), {named("mul")}
}}
""")
    assert found["both"] == found["norm"] == found["new"] == "optimiser"
    assert found["loss"] == "forward"


def held_back(module) -> int:
    """Uses of a value by an earlier phase: forward made from backward or optimiser.

    Within fusions both may stand side by side, and a bundle is as late as its latest part.
    """
    t, phase = table(module), phases(module)
    plumbing = t.by_opcode(lambda o: o in PLUMBING or o.startswith("all-reduce"), bool)
    _, roles = t.caller()
    fused = np.array([r == "calls" for r in roles])[t.computation]
    rows, values = t.operands.rows, t.operands.values
    early = (phase[rows] == FORWARD) & np.isin(phase[values], (BACKWARD, OPTIMISER))
    return int((early & ~plumbing[rows] & ~plumbing[values] & ~fused[rows]).sum())


PROGRAMS = ("gpt_unrolled", "gpt_remat", "gpt_scan", "fsdp_tp", "fsdp_scan", "moe_einsum")


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_forward_is_made_from_what_is_not(compiled, name):
    module = compiled(name).module
    uses = len(table(module).operands.values)
    # Clones of index arithmetic keep the name of a later use: a handful a program.
    assert held_back(module) <= max(2, uses // 1000)


def test_and_in_other_peoples_training_steps(real):
    wrong = {}
    for path in sorted((real / "programs").glob("*train*.hlo.gz")):
        n = held_back(hs.read(path).module)
        if n:
            wrong[path.name] = n
    assert not wrong


def test_a_loop_over_batches_is_of_neither_pass():
    found = of(f"""HloModule step
%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {{
  %p = (s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %w = f32[8] get-tuple-element(%p), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %sin = f32[8] sine(%w), {named("while/body/jvp()/sin")}
  %grad = f32[8] multiply(%sin, %w), {named("while/body/transpose(jvp())/mul")}
  %new = f32[8] subtract(%w, %grad), {named("while/body/sub")}
  ROOT %t = (s32[], f32[8]) tuple(%next, %new)
}}
%cond (q: (s32[], f32[8])) -> pred[] {{
  %q = (s32[], f32[8]) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  %end = s32[] constant(4)
  ROOT %lt = pred[] compare(%j, %end), direction=LT
}}
ENTRY %main (x: f32[8]) -> f32[8] {{
  %x = f32[8] parameter(0)
  %zero = s32[] constant(0)
  %in = (s32[], f32[8]) tuple(%zero, %x)
  %batches = (s32[], f32[8]) while(%in), condition=%cond, body=%body, {named("while")}
  ROOT %y = f32[8] get-tuple-element(%batches), index=1
}}
""")
    assert (found["sin"], found["grad"], found["new"]) == ("forward", "backward", "optimiser")
    assert found["batches"] == ""


def test_what_an_unnamed_update_alone_uses_is_the_optimisers():
    found = of(f"""HloModule step
ENTRY %main (n: f32[], x: f32[8]) -> (f32[], f32[8]) {{
  %n = f32[] parameter(0)
  %x = f32[8] parameter(1)
  %one = f32[] constant(1)
  %count = f32[] add(%n, %one), {named("add")}
  %rate = f32[] divide(%one, %count), {named("div")}
  %spread = f32[8] broadcast(%rate), dimensions={{}}
  %sin = f32[8] sine(%x), {named("jvp()/sin")}
  %grad = f32[8] multiply(%sin, %x), {named("transpose(jvp())/mul")}
  %new = f32[8] multiply(%grad, %spread)
  ROOT %out = (f32[], f32[8]) tuple(%count, %new)
}}
""")
    assert found["rate"] == found["count"] == "optimiser"
