"""``extras.findings``: the headline and the ranked sentences of the Findings panel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...analysis.findings.finding import Finding
from ...analysis.findings.rules import findings
from ..builder import Builder
from ..context import Context

if TYPE_CHECKING:
    from ..header import Finding as Row

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
    context.extras["findings"] = {
        "headline": found.headline.parts(),
        "rules": found.ran,
        "leftOut": list(found.left_out),
        "failed": list(found.failed),
        "rows": [_row(f) for f in found],
    }


def _row(f: Finding) -> Row:
    return {
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
