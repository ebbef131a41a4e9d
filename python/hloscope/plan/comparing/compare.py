"""``hs.compare``: any number of programs beside each other; sweeps of one program's changes.

functions, captures, files ─▶ captures ─▶ figures ─┐
cap.remat_options(), cap.option_sweep() ─▶ changes ─┴─▶ Variants
                                           tried on an executor, with a store: see ``proving``
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...api.capture import Capture
from ...hlo.changes import Changes, ProgramChange
from ..proving.prove import tried
from ..running.candidate_figures import CandidateFigures, figures, from_plain
from ..running.compiling import line_of_error
from ..running.options import ProofOptions
from .variants import Variant, Variants


def compare(programs: Mapping[str, Any], *args: Any, **options: Any) -> Variants:
    """Any number of programs beside each other: step, peak, wire, FLOPs, bytes, instructions.

    programs: name → a function, which is captured with ``args``; a ``Capture``, ``Lowered`` or
        ``Compiled``; or a file or folder that ``hs.read`` reads, of any version of jax.
    options: of ``hs.capture`` for the functions, such as ``topology`` and ``mesh``; ``hardware``
        is for all. Keywords of the functions go into the functions.

    A program that cannot be compiled or read is a row that says why. Measured times are there for
    captures that were profiled. Raises ``ValueError`` without programs, ``HardwareError`` for an
    unknown chip.

        >>> print(hs.compare({"as is": step, "two at once": step2}, params, batch))
    """
    if not programs:
        raise ValueError('give programs by name: {"as is": step, "in bf16": step2}')
    found: dict[str, Capture] = {}
    rows: list[Variant] = []
    for name, given in programs.items():
        start = time.perf_counter()
        try:
            cap = _captured(given, args, options)
            made = figures(cap)
        except KeyboardInterrupt:
            return Variants(tuple(rows), _title(programs), True, found.__getitem__)
        except Exception as error:
            if type(error).__name__ == "HardwareError":
                raise
            rows.append(Variant(name, error=line_of_error(error)))
            continue
        found[name] = cap
        took = time.perf_counter() - start if callable(given) else None
        measured = cap.measured.total_seconds if cap.measured is not None else None
        rows.append(Variant(name, made, compile_seconds=took, measured_seconds=measured))
    return Variants(tuple(rows), _title(programs), False, found.__getitem__)


def _title(programs: Mapping[str, Any]) -> str:
    return " · ".join(programs) if len(programs) < 4 else f"{len(programs)} programs"


def _captured(given: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> Capture:
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
    return capture(given, *args, **options)


def changed(
    cap: Capture, ways: Mapping[str, Changes], title: str, options: ProofOptions | None
) -> Variants:
    """A capture as it is and with each of the changes, by name."""
    options = options or ProofOptions()
    rows = [Variant("as is", figures(cap))]
    answers = tried(cap, list(ways.values()), options)
    for name, answer in zip(ways, answers, strict=True):
        if answer is None:
            continue
        error = str(answer.get("error", ""))
        made: CandidateFigures | None = None if error else from_plain(answer["figures"])
        code = "" if error else "\n".join(ProgramChange(*c).code for c in answer["changes"])
        rows.append(Variant(name, made, error, code, answer.get("compile_seconds")))

    def opened(name: str) -> Capture:
        return cap if name == "as is" else cap.what_if(**ways[name])

    return Variants(tuple(rows), title, None in answers, opened)


def remat_options(
    cap: Capture, functions: str | Sequence[str] = (), options: ProofOptions | None = None
) -> Variants:
    """The policies of ``jax.checkpoint`` for functions, or for the checkpoints there are.

    Raises ``CannotChange`` for a function that the program does not call.
    """
    names = (functions,) if isinstance(functions, str) else tuple(functions)
    ways: dict[str, Changes] = {}
    for policy in POLICIES:
        label = "nothing saved" if policy is None else policy
        ways[label] = {"remat": dict.fromkeys(names or ("*",), policy)}
    return changed(cap, ways, f"Policies of {', '.join(names) or 'the checkpoints'}", options)


POLICIES = (
    None,
    "dots_with_no_batch_dims_saveable",
    "dots_saveable",
    "everything_saveable",
)


def option_sweep(
    cap: Capture, wanted: Sequence[Mapping[str, Any]] | Mapping[str, Any],
    options: ProofOptions | None = None,
) -> Variants:  # fmt: skip
    """Compiler options one at a time: what each changes."""
    each: list[Mapping[str, Any]] = (
        [{k: v} for k, v in wanted.items()] if isinstance(wanted, Mapping) else list(wanted)
    )
    ways: dict[str, Changes] = {}
    for one in each:
        if not isinstance(one, Mapping) or not one:
            near = difflib.get_close_matches(str(one), ["xla_"], 1)
            raise ValueError(f'an option has a value: {{"{near[0] if near else one}": True}}')
        ways[", ".join(f"{k}={v}" for k, v in one.items())] = {"compiler_options": dict(one)}
    return changed(cap, ways, "Compiler options", options)
