"""The rules, and what ``cap.findings`` runs. A new rule is a function and one line here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ...hlo import Module, Target
from ..base.pause import uncollected
from ..base.table import NO_TARGET, per_target
from . import (
    activation_rules,
    attention_rules,
    collective_gathers,
    collective_repeats,
    collective_slices,
    collective_sums,
    collective_waits,
    compile_rules,
    compute_rules,
    index_products,
    layout_rules,
    limits,
    loop_rules,
    memory_rules,
    program_rules,
    replicated_weights,
    residual_rules,
    saved_values,
    tile_rules,
)
from .facts import Facts
from .finding import Finding, Findings
from .headline import headline

Rule = Callable[[Facts], Iterable[Finding]]

# What a rule needs: the program's memory traffic and schedule, those and times on the wire between
# its devices, or just its operations.
OPTIMISED, ANY_STAGE, WIRE = "optimised", "any stage", "wire"

RULES: tuple[tuple[str, Rule, str], ...] = (
    ("exposed-collective", collective_waits.exposed, WIRE),
    ("reduced-twice", collective_repeats.reduced_twice, ANY_STAGE),
    ("gathered-twice", collective_repeats.gathered_twice, ANY_STAGE),
    ("collective-of-constant", collective_repeats.of_constant, ANY_STAGE),
    ("gathered-then-sliced", collective_slices.gathered_then_sliced, OPTIMISED),
    ("gathered-for-one", collective_gathers.gathered_for_one, OPTIMISED),
    ("reduced-then-sliced", collective_slices.reduced_then_sliced, OPTIMISED),
    ("narrow-sums", collective_sums.narrow_sums, OPTIMISED),
    ("tiny-collectives", collective_waits.tiny, WIRE),
    ("full-rematerialization", program_rules.full_rematerialization, ANY_STAGE),
    ("layout-copies", layout_rules.copies_and_transposes, OPTIMISED),
    ("whole-copies", layout_rules.whole_copies, OPTIMISED),
    ("update-copies", layout_rules.update_copies, OPTIMISED),
    ("repeated-converts", layout_rules.converts, OPTIMISED),
    ("wide-matmul", compute_rules.wide_matmuls, ANY_STAGE),
    ("wide-values", compute_rules.wide_values, OPTIMISED),
    ("redundant-work", compute_rules.redundant_work, OPTIMISED),
    ("idle-matmul", compute_rules.idle_matmuls, OPTIMISED),
    ("matrix-vector", index_products.matrix_vector, OPTIMISED),
    ("one-hot-product", index_products.one_hot_products, OPTIMISED),
    ("unfilled-matmul", tile_rules.unfilled_products, OPTIMISED),
    ("wide-activations", activation_rules.wide_activations, OPTIMISED),
    ("scores-in-memory", attention_rules.scores_in_memory, OPTIMISED),
    ("product-in-a-loop", loop_rules.hoistable_products, OPTIMISED),
    ("repeated-operand", compute_rules.repeated_operands, OPTIMISED),
    ("batched-branches", compute_rules.batched_branches, OPTIMISED),
    ("looped-updates", loop_rules.looped_updates, OPTIMISED),
    ("batched-loop", loop_rules.batched_loops, OPTIMISED),
    ("rematerialisation", compute_rules.rematerialisation, ANY_STAGE),
    ("not-donated", memory_rules.not_donated, OPTIMISED),
    ("donated-in-vain", memory_rules.donated_in_vain, ANY_STAGE),
    ("does-not-fit", memory_rules.does_not_fit, OPTIMISED),
    ("waiting-values", memory_rules.waiting_values, OPTIMISED),
    ("peak-of-a-line", memory_rules.peak_of_a_line, OPTIMISED),
    ("padding", memory_rules.padding, OPTIMISED),
    ("padded-traffic", tile_rules.padded_traffic, OPTIMISED),
    ("residuals", residual_rules.residuals, OPTIMISED),
    ("saved-values", saved_values.saved_values, OPTIMISED),
    ("stored-larger", residual_rules.stored_larger, OPTIMISED),
    ("offloads-nothing", residual_rules.offloads_nothing, OPTIMISED),
    ("names-nothing", residual_rules.names_nothing, ANY_STAGE),
    ("replicated-state", memory_rules.replicated_state, OPTIMISED),
    ("replicated-weights", replicated_weights.replicated_weights, OPTIMISED),
    ("narrow-copies", memory_rules.narrow_copies, OPTIMISED),
    ("large-constant", program_rules.large_constants, ANY_STAGE),
    ("unrolled", program_rules.unrolled, ANY_STAGE),
    ("host-callback", program_rules.host_callbacks, ANY_STAGE),
    ("host-copies", program_rules.host_copies, OPTIMISED),
    ("slow-to-compile", compile_rules.slow_to_compile, ANY_STAGE),
)


def findings(module: Module, target: Target | None = None) -> Findings:
    """Every finding of an optimised module, most at stake first.

    Raises ``ValueError`` for what is not HLO, or has no ENTRY.
    """
    if module.dialect != "hlo":
        raise ValueError(f"findings need HLO, and this is {module.dialect}: cap.at('optimized')")
    if module.entry is None:
        raise ValueError("findings need an ENTRY computation, and this dump has none")
    return _made(module, target if target is not None else NO_TARGET)


def _is_nothing(f: Finding) -> bool:
    """Whether it is too little however small the program: a microsecond, a megabyte."""
    is_short = f.seconds is not None and f.seconds < limits.LEAST_SECONDS
    if f.bytes_of == "peak memory" and f.bytes is not None:
        return f.bytes < limits.LEAST_PEAK_BYTES and (f.seconds is None or is_short)
    return is_short


@per_target
@uncollected()
def _made(module: Module, target: Target) -> Findings:
    facts = Facts(module, target)
    rows: list[Finding] = []
    failed: list[str] = []
    unasked: list[str] = []
    wireless: list[str] = []
    no_wire = facts.no_wire
    for name, rule, needs in RULES:
        if needs != ANY_STAGE and not facts.is_optimised:
            unasked.append(name)
            continue
        if needs == WIRE and no_wire:
            wireless.append(name)
            continue
        try:
            rows += [
                replace(f, code=facts.code(f.frame), scope=facts.scope(f))
                for f in rule(facts)
                if f.share >= limits.WORTH_SAYING and not _is_nothing(f)
            ]
        except Exception as error:  # one rule that fails leaves the others
            failed.append(f"{name}: {type(error).__name__}: {error}")
    order = [name for name, *_ in RULES]
    rows.sort(key=lambda f: (-round(f.share, 6), order.index(f.rule), f.title))
    return Findings(
        tuple(rows), headline(facts), tuple(order), tuple(failed), tuple(unasked),
        tuple(wireless), no_wire if wireless else "",
    )  # fmt: skip
