"""``Finding`` and ``Findings``: what ``cap.findings`` is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...hlo import Instruction, StackFrame
from ...hlo.changes import Changes
from ...hlo.parts import printable
from ...hlo.texts.places import short_line, whole_place
from ..text.results import Row, Rows, plain
from ..text.units import duration, marked, printed, size
from . import limits
from .proof import Proof


@dataclass(frozen=True, slots=True, repr=False)
class Finding(Row):
    """One sentence worth acting on, with its evidence. Figures are per device and step.

    ``seconds`` (modelled) and ``bytes`` are what is at stake, None where unknown;
    ``bytes_of`` says what the bytes are: "wire", "memory traffic", "peak memory", "the program".
    ``share`` is the part of the modelled step or of the peak, 0 to 1: what findings are ranked
    by. ``instructions`` are the evidence, the heaviest first. ``advice`` is "" where nothing is
    known that would gain half of what is at stake.
    """

    rule: str  # "gathered-twice"
    title: str
    evidence: str
    advice: str
    share: float
    seconds: float | None = None
    bytes: int | None = None
    bytes_of: str = ""
    instructions: tuple[Instruction, ...] = ()
    frame: StackFrame | None = None  # the Python line it is about
    inferred: bool = False  # the line is inferred (``base.lines``)
    code: str = ""  # the line's text, where the capture kept the file
    scope: str = ""  # "decoder/embed", where the line is unknown or a library's
    changes: tuple[Changes, ...] = ()  # each is a way to follow the advice: ``cap.what_if(**way)``
    proofs: tuple[Proof, ...] = ()  # ways that were tried, the best first

    @property
    def line(self) -> str:
        """``train.py:31``; "" when unknown."""
        return f"{self.frame.file}:{self.frame.line}" if self.frame is not None else ""

    @property
    def at_stake(self) -> str:
        """``1.2 ms, 12.5 MiB on the wire``."""
        parts = []
        if self.seconds is not None:
            parts.append(f"{duration(self.seconds)} modelled")
        if self.bytes is not None:
            of = {"wire": " on the wire"}.get(self.bytes_of, f" of {self.bytes_of}")
            parts.append(f"{size(self.bytes)}{of}")
        return ", ".join(parts)

    def __str__(self) -> str:
        head = f"{self.title} [{self.at_stake}]" if self.at_stake else self.title
        at = []
        if self.line or self.scope:
            code = f": {self.code}" if self.code else ""
            place = " · ".join(filter(None, (self.scope, whole_place(self.line))))
            at = [f"    at {place}{' (inferred)' if self.inferred else ''}{code}"]
        tried = [f"    Try: {self.advice}"] if self.advice else []
        proved = []
        for n, p in enumerate(self.proofs):
            proved.append(f"    {p}")
            if n == 0 and p.is_proved:
                proved += [f"        {line}" for line in p.code_lines()]
        return printed([head, *at, f"    {self.evidence}", *tried, *proved])

    @property
    def is_refuted(self) -> bool:
        """Whether its advice was tried in all ways and gained nothing."""
        tried = [p for p in self.proofs if not p.error]
        return bool(tried) and not any(p.is_proved for p in tried)

    def to_dict(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "title": self.title,
            "evidence": self.evidence,
            "advice": self.advice,
            "share": self.share,
            "seconds": self.seconds,
            "bytes": self.bytes,
            "bytes_of": self.bytes_of or None,
            "line": self.line or None,
            "line_inferred": self.inferred,
            "code": self.code or None,
            "scope": self.scope or None,
            "instructions": [i.name for i in self.instructions],
            "proofs": [p.to_dict() for p in self.proofs],
        }


# Categories of memory as words for many of them.
_MANY = {
    name: f"{name}s"
    for name in (
        "parameter", "argument", "output", "gradient", "collective buffer", "constant",
        "copied argument",
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class Costliest(Row):
    """The kind of work on one line that takes most modelled time in a step, of one device.

    ``what`` is such as "all-reduce", "matmul" or "copy"; "" if the line does several things, which
    are in ``operations``, as the program calls them. ``line`` is None where it is unknown.
    """

    what: str
    operations: tuple[str, ...]
    share: float  # of the modelled step, 0 to 1
    seconds: float
    number: int
    line: str | None
    inferred: bool  # the line

    def __str__(self) -> str:
        return self.in_words("time")

    def in_words(self, of_what: str) -> str:
        """``61 % of the time in one all-reduce at train.py:41``."""
        word = self.what or "operation"
        noun, of, rest = word.partition(" of ")  # of what: "calls of kernel"
        many = (f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s") + of + rest
        it = f"one {word}" if self.number == 1 else f"{self.number:,} {many}"
        at = f" at {short_line(self.line)}" if self.line else " without a line"
        guess = "line inferred" if self.inferred and self.line else ""
        more = "; ".join(filter(None, (", ".join(self.operations), guess)))
        return f"{percent(self.share)} of the {of_what} in {it}{at}{f' ({more})' if more else ''}"


@dataclass(frozen=True, slots=True, repr=False)
class Headline(Row):
    """The program in figures; None is unknown. Times are per step and device.

    ``mfu`` is FLOPs of matmuls and kernels over what the chip could do in that time (Chowdhery
    et al. 2022, "PaLM", appendix B, with the FLOPs that are compiled): measured if the step is,
    else an upper bound, as the modelled time is a lower one. A type that is faster than bf16
    counts at its own rate; what devices compute several times over counts once (``redundant``).
    It is None where FLOPs are unknown: of a kernel, or because a loop's trips are.
    ``mfu_without_recomputed`` leaves out what the backward pass computes again, as that paper's
    definition does; None where nothing is.
    """

    hardware: str | None
    seconds: float | None
    seconds_are: str  # "measured", "modelled", "unknown"
    is_optimised: bool  # else neither time nor traffic means anything yet
    mfu: float | None
    bound_by: str  # "compute", "memory", "communication", "copies to and from the host", ""
    bound_share: float
    peak_bytes: int | None
    memory_bytes: float | None  # of the device
    largest: str  # the category with the most bytes at the peak
    largest_bytes: int
    is_least: bool = False  # the time of something or the trips of a loop are unknown
    is_one_trip: bool = False  # a loop counts once that may run 0 times: no bound
    unknown: int = 0  # the number of operations whose time is unknown
    redundant: float = 0.0  # part of the FLOPs that another device computes too
    mfu_without_recomputed: float | None = None
    at_most: tuple[int, ...] = ()  # trips of loops that count once, where all have a limit
    costliest: Costliest | None = None  # the kind of work on one line that takes most of the time
    # if each conditional takes its quickest branch; ``seconds`` if each takes its slowest
    seconds_least: float | None = None

    def parts(self) -> list[str]:
        """The figures in words, one each."""
        parts = []
        if not self.is_optimised:
            parts.append("not optimised yet: no step time")
        is_measured = self.seconds_are == "measured"
        if self.seconds is not None:
            step = duration(self.seconds)
            if self.is_range:
                step = f"{duration(self.seconds_least or 0.0)} – {step}"
            if not is_measured:
                step = marked(step, is_least=self.is_least, is_one_trip=self.is_one_trip)
            left = "" if is_measured else self._left_open()
            parts.append(f"step {step} {self.seconds_are} on {self.hardware}{left}")
        elif self.is_optimised and self.hardware is not None and self.unknown:
            parts.append(f"step time unknown{self._left_open()}")
        if self.mfu is not None:
            most = "" if is_measured else "≤ "
            again = ""
            if self.redundant:
                again = f", without the {percent(self.redundant)} of its FLOPs that other devices"
                again += " compute too"
            share = percent(self.mfu) if is_measured else _at_most(self.mfu)
            parts.append(f"MFU {most}{share}{again}" if self.mfu else "no matmuls")
            without = self.mfu_without_recomputed
            if without is not None and percent(without) != percent(self.mfu):
                parts[-1] += f", {most}{percent(without)} without recomputed work"
        if self.bound_by:
            of = "modelled time" if self.seconds_are == "measured" else "time"
            parts.append(f"bound by {self.bound_by} ({100 * self.bound_share:.0f} % of the {of})")
        if self.costliest is not None:
            parts.append(self.costliest.in_words("modelled time" if is_measured else "time"))
        if self.peak_bytes is not None and self.is_optimised:
            of = f" of {size(self.memory_bytes)}" if self.memory_bytes else ""
            what = _MANY.get(self.largest, self.largest)
            most = f", most of it {what}" if self.largest_bytes * 2 > self.peak_bytes else ""
            parts.append(f"peak memory {size(self.peak_bytes)}{of}{most}")
        return parts

    @property
    def is_range(self) -> bool:
        """Whether the modelled step depends on branches by more than does not matter to anybody."""
        if self.seconds is None or self.seconds_least is None or self.seconds_are != "modelled":
            return False
        return self.seconds_least < (1 - limits.WORTH_SAYING) * self.seconds

    def _left_open(self) -> str:
        """`` (the time of 2 operations is unknown)``; "" where all is known."""
        if not self.unknown:
            return ""
        many = f"{self.unknown:,} operations" if self.unknown > 1 else "one operation"
        return f" (the time of {many} is unknown)"

    def __str__(self) -> str:
        return " · ".join(self.parts())

    def to_dict(self) -> dict[str, Any]:
        return {name: plain(getattr(self, name)) for name in self.__slots__}


@dataclass(frozen=True, eq=False, repr=False)
class Findings(Rows[Finding]):
    """What ``cap.findings`` is: most at stake first. Iterate it for ``Finding``."""

    rows: tuple[Finding, ...]
    headline: Headline
    rules: tuple[str, ...]  # all rules
    failed: tuple[str, ...]  # rules that failed, and why
    unasked: tuple[str, ...] = ()  # rules that need the optimised program, if this one is not
    wireless: tuple[str, ...] = ()  # rules that need times on the wire, if there are none …
    no_wire: str = ""  # … and why: "no chip is known"
    prover: Callable[[Any], Findings] | None = field(default=None, repr=False)
    were_proved: bool = False  # each advice that hloscope can carry out was tried

    def __getstate__(self) -> dict[str, Any]:
        """Without the program that could be changed, which stays in its process."""
        return {**self.__dict__, "prover": None}

    def prove(self, options: Any = None) -> Findings:
        """The same findings, with each advice that hloscope can carry out tried and compiled.

        ``options``: ``hs.ProofOptions``. What gains nothing comes last, and says so. The proofs
        stay in the capture, its views and its pages. Raises ``ValueError`` for findings of a
        program that cannot be changed: a dump, or a capture of another process.

        >>> for finding in cap.findings.prove():
        ...     print(finding.title, *finding.proofs, sep="\n")
        """
        if self.prover is None:
            raise ValueError(
                "these findings are of a program that cannot be changed: capture the function"
            )
        return self.prover(options)

    def with_proofs(self, proofs: Mapping[tuple[str, str], tuple[Proof, ...]]) -> Findings:
        """The findings with proofs by rule and title; refuted ones last, and without advice."""
        if not proofs:
            return self
        rows = [replace(f, proofs=proofs.get((f.rule, f.title), ())) for f in self.rows]
        rows = [replace(f, advice="") if f.is_refuted else f for f in rows]
        rows.sort(key=lambda f: f.is_refuted)
        return replace(self, rows=tuple(rows))

    def with_step(self, seconds: float) -> Findings:
        """The same findings with a measured step time in the headline."""
        h = self.headline
        modelled = h.seconds_least or h.seconds  # what MFU was worked out with
        factor = modelled / seconds if modelled and seconds else None

        def scaled(mfu: float | None) -> float | None:
            return None if mfu is None or factor is None else mfu * factor

        step = replace(
            h,
            seconds=seconds,
            seconds_are="measured",
            seconds_least=None,
            mfu=scaled(h.mfu),
            mfu_without_recomputed=scaled(h.mfu_without_recomputed),
        )
        return replace(self, headline=step)

    def of(self, rule: str) -> tuple[Finding, ...]:
        """The findings of one rule. Raises ``ValueError`` for an unknown rule."""
        if rule not in self.rules:
            raise ValueError(f"no rule {rule!r}; there are: {', '.join(self.rules)}")
        return tuple(f for f in self.rows if f.rule == rule)

    COLUMNS = (
        "rule", "title", "evidence", "advice", "share", "seconds", "bytes", "bytes_of", "line",
        "line_inferred", "code", "scope", "instructions", "proofs",
    )  # fmt: skip

    def _totals(self) -> dict[str, Any]:
        return {
            "headline": self.headline.to_dict(),
            "failed": list(self.failed),
            "unasked": list(self.unasked),
            "wireless": list(self.wireless),
        }

    @property
    def ran(self) -> int:
        """The number of rules that ran."""
        return len(self.rules) - len(self.unasked) - len(self.wireless)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Sentences: what shares are of if not all is known, and why rules did not run."""
        out = []
        h = self.headline
        if any(f.seconds for f in self.rows) and h.seconds_are == "modelled":
            if h.is_one_trip:
                out.append(
                    "Shares are of a step in which a loop of unknown trip count runs once"
                    f"{_of_at_most(h)}."
                )
            elif h.is_least:
                longer = (
                    f", and loops that count once run at most {most}" if (most := _most(h)) else ""
                )
                out.append(
                    f"Shares are of the step as far as it is known: it takes longer{longer}."
                )
        if h.is_range:
            out.append("Shares are of a step in which each conditional takes its slowest branch.")
        if self.unasked:
            out.append(
                f"{len(self.unasked)} rules need the optimised program and were not run: this is"
                " the program before optimisation."
            )
        if self.wireless:
            out.append(
                f"{len(self.wireless)} rules about waiting for communication were not run:"
                f' {self.no_wire}. Model a chip: hardware="tpu-v5e", or any other.'
            )
        by_hand = [n for n, f in enumerate(self.rows, 1) if f.advice and not f.changes]
        if self.were_proved and by_hand:
            one = len(by_hand) == 1
            out.append(
                f"Not tried: {'finding' if one else 'findings'} {', '.join(map(str, by_hand))},"
                f" whose advice is {'a change' if one else 'changes'} of the program that prove()"
                " cannot write."
            )
        return tuple(out)

    def __str__(self) -> str:
        lines = [printable(str(self.headline))]
        if not self.rows:
            lines.append(f"Nothing to report: {self.ran} rules ran, and none applied.")
        lines += [f"{n}. {f}" for n, f in enumerate(self.rows, 1)]
        lines += [f"not worked out: {reason}" for reason in self.failed]
        return "\n".join([*lines, *self.left_out])


def _most(h: Headline) -> str:
    """``127 times``, ``100 to 600 times``; "" where nothing limits the loops."""
    if not h.at_most:
        return ""
    least, most = min(h.at_most), max(h.at_most)
    return f"{least:,} to {most:,} times" if least < most else f"{most:,} times"


def _of_at_most(h: Headline) -> str:
    return f", of at most {most}" if (most := _most(h)) else ""


def names(instructions: Sequence[Instruction], limit: int = 3) -> str:
    """``%a, %b and 4 more``."""
    shown = ", ".join(f"%{i.name}" for i in instructions[:limit])
    more = len(instructions) - limit
    return f"{shown} and {more} more" if more > 0 else shown


def _at_most(share: float) -> str:
    """A share rounded up, so that it is a bound still."""
    digits = 1 if share < 0.1 else 0
    step = 10**digits
    return f"{min(100.0, math.ceil(100 * share * step - 1e-9) / step):.{digits}f} %"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.1 else f"{100 * share:.0f} %"


__all__ = ["Finding", "Findings", "Headline", "names", "percent"]
