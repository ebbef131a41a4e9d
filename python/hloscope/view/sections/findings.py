"""``extras.findings``: the headline and the ranked sentences of the Findings panel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...analysis.findings.finding import Finding, Findings
from ...analysis.findings.proof import Proof
from ...analysis.findings.rules import findings
from ...hlo.changes import described
from ..builder import Builder
from ..context import Context

if TYPE_CHECKING:
    from ..header import Finding as Row
    from ..header import Findings as Extras
    from ..header import Proof as ProofRow

EVIDENCE = 500  # at most this many instructions of a finding are in the page


def add(builder: Builder, context: Context) -> None:
    """Writes nothing for a module that is not HLO, or has no ENTRY."""
    module = context.module
    if module.dialect != "hlo" or module.entry is None:
        return
    found = findings(module, context.target)
    measured = context.given.measured
    if measured is not None and measured.total_seconds:
        found = found.with_step(measured.total_seconds)
    found = found.with_proofs(context.given.proofs)
    context.extras["findings"] = as_in_the_view(found)


def as_in_the_view(found: Findings) -> Extras:
    """Findings as the View's JSON has them."""
    return {
        "headline": found.headline.parts(),
        "rules": found.ran,
        "leftOut": list(found.left_out),
        "failed": list(found.failed),
        "rows": [_row(f) for f in found],
    }


def _row(f: Finding) -> Row:
    row: Row = {
        "rule": f.rule,
        "title": f.title,
        "evidence": f.evidence,
        "advice": f.advice,
        "share": f.share,
        "atStake": f.at_stake,
        "line": f.line,
        "inferred": f.inferred,
        "code": f.code,
        "scope": f.scope,
        "count": len(f.instructions),
        "instructions": [i.index for i in f.instructions[:EVIDENCE]],
    }
    if f.changes:
        row["ways"] = ["; ".join(c.words for c in described(way)) for way in f.changes]
    if f.proofs:
        row["proofs"] = [_proof(p) for p in f.proofs]
    return row


def _proof(p: Proof) -> ProofRow:
    row: ProofRow = {
        "words": str(p),
        "isProved": p.is_proved,
        "code": [c.code for c in p.changes],
        "lines": [c.line for c in p.changes],
        "compiled": not p.error,
        "figures": [[f.name, *f.words] for f in p.figures],
    }
    if p.diff:
        row["diff"] = p.diff
    return row
