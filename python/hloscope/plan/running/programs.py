"""Captured programs, changed or as they are, as jobs for any executor.

capture ─▶ make_jobs ─▶ Runner ─▶ answers      in this process: the capture itself
           key, task    executor,              elsewhere: its function, shapes and sources
                        store
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from typing import Any

from ...api.capture import Capture
from ...hlo.changes import Changes, described, spec_text
from .compiling import environment
from .options import CandidateOptions
from .running import Job, Runner, SearchCancelled
from .store import key_of


def make_jobs(
    cap: Capture, ways: Sequence[Changes], options: CandidateOptions, *, want: str = "figures"
) -> list[Job]:
    """A job for each way to change a program; ``{}`` is the program as it is.

    want: "figures", or "live": also what is live at the peak, and whether XLA says that it does
        not fit. Raises ``ValueError`` for a program that cannot be sent.
    """
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
    if want != "figures":
        about["want"] = want
    if in_process:
        program: dict[str, Any] = {"live": cap}
    else:
        packed = again.packed(cap, explains=any(ways))
        program = {"program": packed, "function": about["program"]}
    devices = max(1, len(cap.target.devices))
    out: list[Job] = []
    for way in ways:
        said = [[c.kind, c.words, c.code] for c in described(way)]
        whole = {**about, "changes": said, "shardings": _every_sharding(way)}
        task = {
            "job": {**program, "changes": way, "want": want},
            "isolate": options.isolate,
            "environment": environment(sharded.platform_wanted(), topology, devices),
            "path": [p for p in sys.path if p],
            "timeout": options.timeout,
            "memory_limit": options.memory_limit,
        }
        out.append((key_of(whole), whole, task))
    return out


def _every_sharding(way: Changes) -> dict[str, dict[str, str]]:
    """Each array's own, which words count together."""
    given: dict[str, Any] = {
        "in": way.get("in_shardings", {}),
        "out": way.get("out_shardings", {}),
        "of": way.get("constrain", {}),
    }
    return {k: {str(p): spec_text(s) for p, s in of.items()} for k, of in given.items() if of}


def run_jobs(jobs: Sequence[Job], options: CandidateOptions) -> list[dict[str, Any] | None]:
    """The answer to each job; None for those that were cancelled. Equal jobs run once."""
    unique = list({job[0]: job for job in jobs}.values())
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
