"""Which optimiser it is called, and what follows a gradient and is no update."""

from __future__ import annotations

import hloscope as hs
from hloscope.analysis.base.phases.phases import OPTIMISER, phases
from hloscope.analysis.grouping.optimisers import after_updates

CONTRACTS = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
BACK = "lhs_contracting_dims={0}, rhs_contracting_dims={0}"
CHAIN = "chain.<locals>.update_fn"


def _named_op(name: str, shape: str, op: str, op_name: str) -> str:
    return f'  {name} = f32[{shape}]{{1,0}} {op}, metadata={{op_name="{op_name}"}}'


def _step(guess: str = "dot(new, up), lhs_contracting_dims={1}, rhs_contracting_dims={0}") -> str:
    body = [
        _named_op("w", "64,64", "parameter(0)", "w"),
        _named_op("x", "8,64", "parameter(1)", "x"),
        _named_op("new", "16,64", "parameter(2)", "new"),
        _named_op("y", "8,64", f"dot(x, w), {CONTRACTS}", "jit(step)/jvp()/dot_general"),
        _named_op("g", "64,64", f"dot(x, y), {BACK}", "jit(step)/transpose(jvp())/dot_general"),
        _named_op("up", "64,64", "subtract(w, g)", "jit(step)/sub"),
        _named_op("guess", "16,64", guess, "jit(step)/dot_general"),
        _named_op("told", "16,32", "slice(guess), slice={[0:16], [0:32]}", "jit(step)/slice"),
        "  ROOT out = (f32[64,64]{1,0}, f32[16,32]{1,0}) tuple(up, told)",
    ]
    return "HloModule jit_step\n\nENTRY main {\n" + "\n".join(body) + "\n}\n"


def _apart(text: str) -> set[str]:
    module = hs.read(text.encode()).module
    phase = phases(module)
    assert phase[module.entry.find("up").index] == OPTIMISER
    return {i.name for i in module.instructions if after_updates(module, phase)[i.index]}


def test_what_an_updated_model_predicts_is_not_the_optimisers() -> None:
    assert _apart(_step()) == {"guess", "told"}


def test_small_figures_of_an_update_that_are_reported_stay_with_it() -> None:
    assert _apart(_step("slice(up), slice={[0:16], [0:64]}")) == set()


def test_where_nothing_is_replaced_all_may_be_updates() -> None:
    """Weights that are kept narrow and given back wide."""
    assert _apart(_step().replace("w = f32", "w = bf16")) == set()
