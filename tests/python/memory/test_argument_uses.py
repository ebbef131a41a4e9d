"""Roles of the arguments of steps written by hand: by what reads them, else by their names."""

# ruff: noqa: E501
from __future__ import annotations

import hloscope as hs
import pytest

DIMS = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
COLUMNS = "lhs_contracting_dims={0}, rhs_contracting_dims={0}"
SQUARE = "f32[64,64]"
MOVED = """%moved (a: f32[64,64]) -> f32[64,64] {
  %a = f32[64,64] parameter(0)
  ROOT %turned = f32[64,64] transpose(%a), dimensions={1,0}
}
%worked (b: f32[64,64]) -> f32[64,64] {
  %b = f32[64,64] parameter(0)
  ROOT %twice = f32[64,64] add(%b, %b)
}
%times (c: f32[64,64]) -> f32[64,64] {
  %c = f32[64,64] parameter(0)
  ROOT %sq = f32[64,64] dot(%c, %c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
UPDATED = """%updated (d: f32[8,64], e: f32[8,64], m: f32[64,64]) -> f32[64,64] {
  %d = f32[8,64] parameter(0)
  %e = f32[8,64] parameter(1)
  %m = f32[64,64] parameter(2)
  %gr = f32[64,64] dot(%d, %e), lhs_contracting_dims={0}, rhs_contracting_dims={0}, metadata={op_name="jit(step)/transpose(jvp())/dot_general"}
  ROOT %new = f32[64,64] add(%m, %gr), metadata={op_name="jit(step)/add"}
}
"""
FORWARD, BACKWARD, UPDATE = "jit(step)/jvp()/", "jit(step)/transpose(jvp())/", "jit(step)/"


def named(name: str) -> str:
    return f'metadata={{op_name="{name}"}}'


def roles(arguments: dict[str, str], lines: str) -> dict[str, tuple[str, str]]:
    """Category of each argument and how it was found; lines end in ``# name``."""
    body = [
        f"%{n} = {shape} parameter({k}), {named(label)}"
        for k, (label, shape) in enumerate(arguments.items())
        for n in [f"p{k}"]
    ]
    for line in lines.strip().splitlines():
        code, _, name = line.strip().partition("  # ")
        body.append(f"{code}, {named(name)}" if name else code)
    entry = "\n  ".join(body)
    called = MOVED + UPDATED if "%updated" in lines else MOVED
    cap = hs.read(f"HloModule step, is_scheduled=true\n\n{called}\nENTRY %main {{\n  {entry}\n}}\n")
    assert not cap.warnings, cap.warnings
    found = {v.name: (v.category, v.category_source) for v in cap.memory.values()}
    return {name: found[name] for name in arguments}


HALF = "f32[32,64]"
SLICE = f"({SQUARE}, {HALF}, u32[]) "
SLICES = "slice-start(%p1), slice={[0:32], [0:64]}"
STEP = f"""
%h = f32[8,64] dot(%p2, %p0), {DIMS}  # {FORWARD}dot_general
%l = f32[8,64] tanh(%h)  # {FORWARD}tanh
%g = {SQUARE} dot(%p2, %l), {COLUMNS}  # {BACKWARD}dot_general
%m = {SQUARE} add(%p1, %g)  # {UPDATE}add
%w = {SQUARE} subtract(%p0, %m)  # {UPDATE}sub
ROOT %t = ({SQUARE}, {SQUARE}) tuple(%w, %m)
"""
GIVEN = {"a": SQUARE, "b": SQUARE, "c": "f32[8,64]"}


USE, NAME = "data flow", "name"
# XLA:TPU fuses the update into the product that makes the gradient, and prefetches in slices
FUSED = STEP.replace(
    f"%m = {SQUARE} add(%p1, %g)  # {UPDATE}add\n",
    f"%s = {SLICE}{SLICES}\n%u = {SLICE}{SLICES.replace('0:32', '32:64')}\n"
    f"%v = {HALF} slice-done(%s)\n%x = {HALF} slice-done(%u)\n"
    f'%joined = {SQUARE} custom-call(%v, %x), custom_call_target="ConcatBitcast"\n'
    f"%m = {SQUARE} fusion(%p2, %l, %joined), kind=kOutput, calls=%updated  # {BACKWARD}dot_general\n",
).replace(f"%g = {SQUARE} dot(%p2, %l), {COLUMNS}  # {BACKWARD}dot_general\n", "")
LOSS = f"""
%h = f32[8,64] dot(%p1, %p0), {DIMS}  # {FORWARD}dot_general
%l = f32[8,64] tanh(%h)  # {FORWARD}tanh
"""
GRADIENT = f"%g = {SQUARE} dot(%p1, %l), {COLUMNS}  # {BACKWARD}dot_general\n"
TEACHER = f"%f = f32[8,64] dot(%p1, %p2), {DIMS}  # {FORWARD}dot_general\n"


@pytest.mark.parametrize(
    ("arguments", "lines", "found"),
    [
        (GIVEN, STEP, {"a": ("parameter", USE), "b": ("optimiser state", USE), "c": ("argument", USE)}),
        (GIVEN, FUSED, {"a": ("parameter", USE), "b": ("optimiser state", USE), "c": ("argument", USE)}),
        # misleading names change nothing
        ({"opt_state": SQUARE, "params": SQUARE, "mu": "f32[8,64]"}, STEP,
         {"opt_state": ("parameter", USE), "params": ("optimiser state", USE), "mu": ("argument", USE)}),
        # what the optimiser reads, but does not return, is data: a rate for each weight
        (GIVEN, STEP.replace(f"({SQUARE}, {SQUARE}) tuple(%w, %m)", f"({SQUARE}) tuple(%w)").replace("subtract(%p0, %m)", "subtract(%p0, %g)")
         .replace("%m = f32[64,64] add(%p1, %g)", "%m = f32[8,64] dot(%p2, %p1), " + DIMS),
         {"a": ("parameter", USE), "b": ("argument", USE), "c": ("argument", USE)}),
        # only differentiated: the gradient that is returned has its shape
        ({"a": SQUARE, "c": "f32[8,64]"}, LOSS + GRADIENT + f"ROOT %t = ({SQUARE}) tuple(%g)",
         {"a": ("parameter", USE), "c": ("argument", USE)}),
        # of two with one gradient the one that is named so, else the first
        ({"teacher": SQUARE, "c": "f32[8,64]", "params['w']": SQUARE}, LOSS + TEACHER + GRADIENT + f"ROOT %t = ({SQUARE}) tuple(%g)",
         {"teacher": ("argument", USE), "c": ("argument", USE), "params['w']": ("parameter", NAME)}),
        ({"teacher": SQUARE, "c": "f32[8,64]", "student": SQUARE}, LOSS + TEACHER + GRADIENT + f"ROOT %t = ({SQUARE}) tuple(%g)",
         {"teacher": ("parameter", NAME), "c": ("argument", USE), "student": ("argument", USE)}),
        # two gradients: both
        ({"teacher": SQUARE, "c": "f32[8,64]", "student": SQUARE},
         LOSS + TEACHER + GRADIENT + GRADIENT.replace("%g", "%g2").replace("%l", "%f") + f"ROOT %t = ({SQUARE}, {SQUARE}) tuple(%g, %g2)",
         {"teacher": ("parameter", USE), "c": ("argument", USE), "student": ("parameter", USE)}),
        # frozen weights are known by their names alone
        ({"a": SQUARE, "c": "f32[8,64]", "weights": "f32[64,32]", "other": "f32[64,32]"},
         LOSS + f"%f = f32[8,32] dot(%p1, %p2), {DIMS}  # {FORWARD}dot_general\n%k = f32[8,32] dot(%p1, %p3), {DIMS}  # {FORWARD}dot_general\n"
         + GRADIENT + f"ROOT %t = ({SQUARE}) tuple(%g)",
         {"a": ("parameter", USE), "c": ("argument", USE), "weights": ("parameter", NAME), "other": ("argument", USE)}),
        # copies and layouts say nothing of a use: what reads them does
        ({"a": SQUARE, "c": "f32[8,64]", "b": SQUARE},
         LOSS.replace("%p0)", "%again)").replace("%h =", f"%again = {SQUARE} fusion(%p0), kind=kLoop, calls=%moved  # {UPDATE}t\n%h =")
         + GRADIENT + f"%kept = {SQUARE} copy(%p2)  # {FORWARD}copy\n%m = {SQUARE} add(%kept, %g)  # {UPDATE}add\n"
         f"%w = {SQUARE} subtract(%p0, %m)  # {UPDATE}sub\nROOT %t = ({SQUARE}, {SQUARE}) tuple(%w, %m)",
         {"a": ("parameter", USE), "c": ("argument", USE), "b": ("optimiser state", USE)}),
    ],
)  # fmt: skip
def test_roles_by_use(
    arguments: dict[str, str], lines: str, found: dict[str, tuple[str, str]]
) -> None:
    assert roles(arguments, lines) == found


@pytest.mark.parametrize(
    ("line", "label", "found"),
    [
        ("add(%p0, %p0)", "exp_avg", "optimiser state"),
        ("add(%p0, %p0)", "state.opt[0]", "optimiser state"),
        ("add(%p0, %p0)", "m", "argument"),  # m alone may be any matrix
        # the state of a simulation, where nothing says what else it could belong to
        ("add(%p0, %p0)", "mu", "argument"),
        ("add(%p0, %p0)", "velocity", "argument"),
        ("add(%p0, %p0)", "state.u", "argument"),
        ("add(%p0, %p0)", "state['momentum']", "argument"),
        ("add(%p0, %p0)", "q", "argument"),
        ("add(%p0, %p0)", "params['w']", "parameter"),
        ("add(%p0, %p0)", "nothing.adam_cat", "optimiser state"),
        ("fusion(%p0), kind=kLoop, calls=%worked", "opt_state.mu", "optimiser state"),
        # what is multiplied is no state, whatever its name
        (f"dot(%p0, %p0), {DIMS}", "opt", "argument"),
        ("fusion(%p0), kind=kOutput, calls=%times", "opt", "argument"),
    ],
)
def test_without_a_backward_pass_names_decide(line: str, label: str, found: str) -> None:
    lines = f"%r = {SQUARE} {line}  # jit(f)/op\nROOT %t = ({SQUARE}) tuple(%r)"
    assert roles({label: SQUARE}, lines) == {label: (found, NAME)}
    smaller = "%r = f32[64] slice(%p0), slice={[0:64]}\nROOT %t = (f32[64]) tuple(%r)"
    kept = found if found == "parameter" else "argument"  # not returned updated
    assert roles({label: SQUARE}, smaller) == {label: (kept, NAME)}
