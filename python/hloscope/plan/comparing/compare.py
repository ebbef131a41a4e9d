"""``hs.compare``: any number of programs beside each other; sweeps of one program's changes.

captures, files ───────────────────────────────────▶ figures ─┐
functions ─▶ captures before they are compiled ─┐             │
cap.remat_options(), cap.option_sweep()         ├─▶ running ──┴─▶ Variants
            ─▶ changes of a capture ────────────┘   executor, store
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...api.capture import Capture
from ...hardware import HardwareError
from ...hlo.changes import CannotChange, Changes, ProgramChange
from ..running.candidate_figures import CandidateFigures, figures, from_plain
from ..running.compiling import line_of_error
from ..running.options import ProofOptions
from ..running.programs import make_jobs, run_jobs
from ..running.running import Job
from .layers import layer_functions
from .variants import Variant, Variants


def compare(
    programs: Mapping[str, Any], *args: Any, options: ProofOptions | None = None, **given: Any
) -> Variants:
    """Any number of programs beside each other: step, peak, wire, FLOPs, bytes, instructions.

    programs: name → a function, which is captured with ``args``; a ``Capture``, ``Lowered`` or
        ``Compiled``; or a file or folder that ``hs.read`` reads, of any version of jax.
    options: ``hs.ProofOptions``: where functions are compiled, by default one after another in
        this process; what keeps the results.
    given: of ``hs.capture`` for the functions, such as ``topology`` and ``mesh``; ``hardware``
        is for all. Keywords of the functions go into the functions.

    A program that cannot be compiled or read is a row that says why. Measured times are there for
    captures that were profiled. Ctrl+C, or a ``progress`` that returns False, ends it: what is
    finished is kept. Raises ``ValueError`` without programs, ``HardwareError`` for an unknown chip.

        >>> print(hs.compare({"as is": step, "two at once": step2}, params, batch))
    """
    if not programs:
        raise ValueError('give programs by name: {"as is": step, "in bf16": step2}')
    options = options or ProofOptions()
    found: dict[str, Capture] = {}
    rows: dict[str, Variant] = {}
    jobs: dict[str, Job] = {}
    is_cut = False
    for name, program in programs.items():
        try:
            cap = found[name] = _captured(program, args, given)
            if cap.stage == "optimized":
                measured = cap.measured.total_seconds if cap.measured is not None else None
                code = "\n".join(c.code for c in cap.changes)
                took = cap.target.compile_seconds
                rows[name] = Variant(
                    name, figures(cap), "", code, compile_seconds=took, measured_seconds=measured
                )
            else:
                (jobs[name],) = make_jobs(cap, [Changes()], options)
        except KeyboardInterrupt:
            is_cut = True
            break
        except HardwareError:
            raise
        except Exception as error:
            rows[name] = Variant(name, error=line_of_error(error))
    answers = run_jobs(list(jobs.values()), options) if jobs and not is_cut else []
    for name, answer in zip(jobs, answers, strict=False):
        if answer is not None:
            rows[name] = _variant(name, answer)

    def opened(name: str) -> Capture:
        return found[name].at("optimized")

    in_order = tuple(rows[name] for name in programs if name in rows)
    return Variants(in_order, _title(programs), len(in_order) < len(programs), opened)


def _variant(name: str, answer: Mapping[str, Any]) -> Variant:
    error = str(answer.get("error", ""))
    made: CandidateFigures | None = None if error else from_plain(answer["figures"])
    code = "" if error else "\n".join(ProgramChange(*c).code for c in answer["changes"])
    # XLA's alone, as of a capture; results of an older store have only the time of all of it
    took = answer.get("compiler_seconds") or answer.get("compile_seconds")
    return Variant(name, made, error, code, took)


def _title(programs: Mapping[str, Any]) -> str:
    return " · ".join(programs) if len(programs) < 4 else f"{len(programs)} programs"


def _captured(given: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> Capture:
    """A program; functions before they are compiled."""
    hardware = options.get("hardware")
    if isinstance(given, Capture):
        if hardware is not None:
            given.hardware = hardware
        return given
    if isinstance(given, str | Path):
        from ...api.read import read

        return read(given, hardware=hardware)
    from ...capturing import capture

    if hasattr(given, "as_text"):  # a Lowered or Compiled
        return capture(given, hardware=hardware)
    if options.get("profile"):  # which runs the program, here
        return capture(given, *args, **options)
    return capture(given, *args, **{**options, "stage": "stablehlo"})


def changed(
    cap: Capture, ways: Mapping[str, Changes], title: str, options: ProofOptions | None
) -> Variants:
    """A capture as it is and with each of the changes, by name."""
    options = options or ProofOptions()
    rows = [Variant("as is", figures(cap), compile_seconds=cap.target.compile_seconds)]
    answers = run_jobs(make_jobs(cap, list(ways.values()), options), options)
    for name, answer in zip(ways, answers, strict=True):
        if answer is not None:
            rows.append(_variant(name, answer))

    def opened(name: str) -> Capture:
        return cap if name == "as is" else cap.what_if(**ways[name])

    return Variants(tuple(rows), title, None in answers, opened)


def remat_options(
    cap: Capture, functions: str | Sequence[str] = (), options: ProofOptions | None = None
) -> Variants:
    """The policies of ``jax.checkpoint`` for functions, for the checkpoints, or for the layers.

    Raises ``CannotChange`` for a function that the program does not call, and where there is
    neither a checkpoint nor a layer.
    """
    from ...capturing.changing import again

    names = (functions,) if isinstance(functions, str) else tuple(functions)
    if not names and not again.has_checkpoints(cap):
        names = layer_functions(cap)
        if not names:
            raise CannotChange(
                "this program has no checkpoint whose policy could change, and its derivative goes"
                ' through no function of yours several times; name one: remat_options("block")'
            )
    ways: dict[str, Changes] = {}
    for policy in POLICIES:
        label = "nothing saved" if policy is None else policy
        ways[label] = {"remat": dict.fromkeys(names or ("*",), policy)}
    title = f"Policies of {', '.join(names) or 'the checkpoints'}"
    found = changed(cap, ways, title, options)
    refused = {row.error for row in found.rows[1:]}
    if len(refused) == 1 and len(found) == len(POLICIES) + 1 and all(refused):
        raise CannotChange(f"{refused.pop()}, whatever the policy")
    return found


POLICIES = (
    None,
    "dots_with_no_batch_dims_saveable",
    "dots_saveable",
    "everything_saveable",
)


def option_sweep(
    cap: Capture, wanted: Sequence[Mapping[str, Any] | str] | Mapping[str, Any],
    options: ProofOptions | None = None,
) -> Variants:  # fmt: skip
    """Compiler options, or named sets of them, one at a time: what each changes."""
    each: list[Mapping[str, Any] | str] = (
        [{k: v} for k, v in wanted.items()] if isinstance(wanted, Mapping) else list(wanted)
    )
    ways: dict[str, Changes] = {}
    for one in each:
        if isinstance(one, str) and not one.startswith("xla_"):
            ways[one] = {"compiler_options": one}
            continue
        if not isinstance(one, Mapping) or not one:
            raise ValueError(f'an option has a value: {{"{one}": True}}')
        ways[", ".join(f"{k}={v}" for k, v in one.items())] = {"compiler_options": dict(one)}
    return changed(cap, ways, "Compiler options", options)
