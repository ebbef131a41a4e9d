"""The rules, and what ``cap.findings`` runs. A new rule is a function and one line here."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...hlo import Module, Target
from ..base.table import NO_TARGET, per_target
from ..cost.cost_pause import uncollected
from . import collective_rules, compute_rules, layout_rules, memory_rules, program_rules
from .facts import WORTH_SAYING, Facts
from .finding import Finding, Findings
from .headline import headline

Rule = Callable[[Facts], Iterable[Finding]]

RULES: tuple[tuple[str, Rule], ...] = (
    ("exposed-collective", collective_rules.exposed),
    ("reduced-twice", collective_rules.reduced_twice),
    ("gathered-twice", collective_rules.gathered_twice),
    ("collective-of-constant", collective_rules.of_constant),
    ("gathered-then-sliced", collective_rules.gathered_then_sliced),
    ("reduced-then-sliced", collective_rules.reduced_then_sliced),
    ("tiny-collectives", collective_rules.tiny),
    ("full-rematerialization", program_rules.full_rematerialization),
    ("layout-copies", layout_rules.copies_and_transposes),
    ("update-copies", layout_rules.update_copies),
    ("repeated-converts", layout_rules.converts),
    ("wide-matmul", compute_rules.wide_matmuls),
    ("narrow-matmul", compute_rules.narrow_matmuls),
    ("rematerialisation", compute_rules.rematerialisation),
    ("not-donated", memory_rules.not_donated),
    ("donated-in-vain", memory_rules.donated_in_vain),
    ("does-not-fit", memory_rules.does_not_fit),
    ("padding", memory_rules.padding),
    ("residuals", memory_rules.residuals),
    ("replicated-state", memory_rules.replicated_state),
    ("large-constant", program_rules.large_constants),
    ("host-callback", program_rules.host_callbacks),
)


def findings(module: Module, target: Target | None = None) -> Findings:
    """Every finding of an optimised module, most at stake first.

    Raises ``ValueError`` for what is no HLO, or has no ENTRY.
    """
    if module.dialect != "hlo":
        raise ValueError(f"findings need HLO, and this is {module.dialect}: cap.at('optimized')")
    if module.entry is None:
        raise ValueError("findings need an ENTRY computation, and this dump has none")
    return _made(module, target if target is not None else NO_TARGET)


@per_target
@uncollected
def _made(module: Module, target: Target) -> Findings:
    facts = Facts(module, target)
    rows: list[Finding] = []
    failed: list[str] = []
    for name, rule in RULES:
        try:
            rows += [f for f in rule(facts) if f.share >= WORTH_SAYING]
        except Exception as error:  # one rule that fails leaves the others
            failed.append(f"{name}: {type(error).__name__}: {error}")
    order = [name for name, _ in RULES]
    rows.sort(key=lambda f: (-round(f.share, 6), order.index(f.rule), f.title))
    return Findings(tuple(rows), headline(facts), tuple(order), tuple(failed))
