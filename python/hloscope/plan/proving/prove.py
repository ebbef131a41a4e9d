"""``cap.findings.prove()``: each advice carried out, compiled, and shown with what it gained.

findings ─▶ ways to follow each ─▶ running ─▶ Proof per way ─▶ findings with proofs
            (``Finding.changes``)   executor,   before, after    in the capture, its views
                                    store                        and its pages
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...analysis.findings.finding import Finding, Findings
from ...analysis.findings.proof import FigureChange, Proof, measure_of
from ...api.capture import Capture
from ...hlo.changes import Changes, ProgramChange, described
from ..running.candidate_figures import CandidateFigures, figures, from_plain
from ..running.options import ProofOptions
from ..running.programs import make_jobs, run_jobs


def prove(
    cap: Capture, options: ProofOptions | None = None, *, only: tuple[str, str] | None = None
) -> Findings:
    """The findings with a proof for each way that hloscope can follow; kept in the capture.

    ``only``: of this finding, by rule and title.
    Ctrl+C, or a ``progress`` that returns False, ends it: ways that were tried are kept.
    Raises ``ValueError`` for a program that cannot be changed.
    """
    options = options or ProofOptions()
    found = cap.findings
    wanted = [f for f in found if only in (None, (f.rule, f.title))]
    ways = [(f, way) for f in wanted for way in f.changes]
    jobs = tried(cap, [way for _, way in ways], options)
    before = figures(cap)
    proofs: dict[tuple[str, str], list[Proof]] = {}
    for (finding, way), answer in zip(ways, jobs, strict=True):
        if answer is not None:
            made = _proof(finding, way, before, answer)
            proofs.setdefault((finding.rule, finding.title), []).append(made)
    kept = {
        key: tuple(sorted(rows, key=lambda p: (bool(p.error), p.may_alter, -p.net)))
        for key, rows in proofs.items()
    }
    cap.for_hosts.keep_proofs(kept)
    return replace(cap.findings, were_proved=only is None)


def tried(cap: Capture, ways: list[Changes], options: ProofOptions) -> list[dict[str, Any] | None]:
    """The answer to each way; None for those that were cancelled. Equal ways are one job."""
    return run_jobs(make_jobs(cap, ways, options), options)


def _proof(
    finding: Finding, way: Changes, before: CandidateFigures, answer: dict[str, Any]
) -> Proof:
    seconds = answer.get("compile_seconds")
    gains = measure_of(finding.bytes_of)
    error = str(answer.get("error", ""))
    if error:
        return Proof(way, described(way), gains, error=error, compile_seconds=seconds)
    after = from_plain(answer["figures"])
    return Proof(
        way,
        tuple(ProgramChange(*c) for c in answer["changes"]),
        gains,
        (before.seconds, after.seconds),
        (before.peak_bytes, after.peak_bytes),
        (before.wire_bytes, after.wire_bytes),
        compile_seconds=seconds,
        figures=_figures(before, after, gains),
    )


def _figures(
    before: CandidateFigures, after: CandidateFigures, gains: str
) -> tuple[FigureChange, ...]:
    """What differs, and the figure that the finding is about."""
    known = {
        "peak": FigureChange("peak memory", "B", before.peak_bytes, after.peak_bytes),
        "step": FigureChange("step, modelled", "s", before.seconds, after.seconds),
        "wire": FigureChange("on the wire", "B", before.wire_bytes, after.wire_bytes),
    }
    counts = [_collectives(f) for f in (before, after)]
    rows = [
        *known.values(),
        FigureChange("FLOPs", "FLOP", before.flops, after.flops),
        FigureChange("bytes accessed", "B", before.bytes_accessed, after.bytes_accessed),
        FigureChange("instructions", "", before.instructions, after.instructions),
        *(
            FigureChange(name, "", counts[0].get(name, 0), counts[1].get(name, 0))
            for name in {**counts[0], **counts[1]}
        ),
    ]
    return tuple(r for r in rows if r.words[0] != r.words[1] or r is known[gains])


def _collectives(f: CandidateFigures) -> dict[str, int]:
    return {f"{kind} over {axes}": count for kind, axes, count, _ in f.collectives}
