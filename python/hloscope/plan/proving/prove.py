"""``cap.findings.prove()``: each advice carried out, compiled, and shown with what it gained.

findings ─▶ ways to follow each ─▶ running ─▶ Proof per way ─▶ findings with proofs
            (``Finding.changes``)   executor,   before, after    in the capture, its views
                                    store                        and its pages
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

from ...analysis.findings.finding import Finding, Findings
from ...analysis.findings.proof import Proof, measure_of
from ...api.capture import Capture
from ...hlo.changes import Changes, ProgramChange, described
from ..running.candidate_figures import CandidateFigures, figures, from_plain
from ..running.compiling import environment
from ..running.options import ProofOptions
from ..running.running import Job, Runner, SearchCancelled
from ..running.store import key_of


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
        key: tuple(sorted(rows, key=lambda p: (bool(p.error), p.may_alter, -p.gain)))
        for key, rows in proofs.items()
    }
    cap.for_hosts.keep_proofs(kept)
    return cap.findings


def tried(cap: Capture, ways: list[Changes], options: ProofOptions) -> list[dict[str, Any] | None]:
    """The answer to each way; None for those that were cancelled. Equal ways are one job."""
    jobs = make_jobs(cap, ways, options)
    unique = list({key: job for job in jobs for key in (job[0],)}.values())
    runner = Runner(options)
    answers: list[dict[str, Any] | None] = [None] * len(unique)
    try:
        answers = list(runner.run(unique))
    except SearchCancelled:
        answers = list(runner.partial)
    finally:
        runner.close()
    by_key = {job[0]: answer for job, answer in zip(unique, answers, strict=True)}
    return [by_key[job[0]] for job in jobs]


def make_jobs(cap: Capture, ways: list[Changes], options: ProofOptions) -> list[Job]:
    """A job for each way. Raises ``ValueError`` for a program that cannot be sent."""
    from ...capturing.changing import again
    from ...capturing.planning import sharded

    options_of = again.call_of(cap).options
    in_process = not options.isolate and options.executor is None
    topology = options_of.get("topology")
    about = {
        "program": hashlib.sha256(cap.at("stablehlo").text.encode()).hexdigest(),
        "platform": sharded.platform_wanted(),
        "topology": topology,
        "hardware": cap.hardware,
        "compiler_options": options_of.get("compiler_options"),
        "versions": sharded.versions(),
    }
    if in_process:
        program: dict[str, Any] = {"live": cap}
    else:
        program = {"program": again.packed(cap), "function": about["program"]}
    devices = max(1, len(cap.target.devices))
    out: list[Job] = []
    for way in ways:
        said = [[c.kind, c.words, c.code] for c in described(way)]
        whole = {**about, "changes": said}
        task = {
            "job": {**program, "changes": way, "want": "figures"},
            "isolate": options.isolate,
            "environment": environment(sharded.platform_wanted(), topology, devices),
            "path": [p for p in sys.path if p],
            "timeout": options.timeout,
            "memory_limit": options.memory_limit,
        }
        out.append((key_of(whole), whole, task))
    return out


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
    )
