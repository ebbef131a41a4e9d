"""``Programs``: all programs of one run side by side, with the calls in a trace."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from ..text.results import Row, Rows, columns
from ..text.units import ONE_TRIP, UNKNOWN, duration, grid, printed, quantity, size

_MOST_CALLS = 12  # runs of calls of one program that are printed


@dataclass(frozen=True, slots=True, repr=False)
class ProgramRow(Row):
    """Figures of one call of one program, on one device unless ``shapes`` says "global".

    ``number`` is what ``read(module=)`` takes, None if the program is only in a trace. Other
    values are None if unknown. ``runs`` counts calls on a device during a trace, ``seconds`` is
    the mean length of one, ``op_seconds`` the time of its operations in the whole trace, the
    mean over the devices that ran some. FLOPs and bytes are lower bounds if ``is_lower_bound``
    (a loop's trip count is unknown), upper bounds if ``is_upper_bound`` (branches differ), and
    no bound if ``is_one_trip`` (of a loop that may run 0 times).
    """

    name: str
    number: int | None = None
    stage: str = ""
    instructions: int | None = None
    flops: float | None = None  # FLOP
    bytes_accessed: float | None = None
    wire_bytes: float | None = None
    peak_bytes: int | None = None
    modelled_seconds: float | None = None
    shapes: str = "local"
    is_lower_bound: bool = False
    is_upper_bound: bool = False
    runs: int | None = None
    seconds: float | None = None
    op_seconds: float | None = None
    problem: str = ""
    is_one_trip: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Call(Row):
    """One execution of a program on the device whose calls are listed; ``start_seconds`` is since
    the start of the first call."""

    name: str
    row: int  # into rows
    start_seconds: float
    seconds: float


@dataclass(frozen=True, repr=False)
class Programs(Rows[ProgramRow]):
    """What ``read_programs`` returns: ``rows`` in order of compilation, ``calls`` by their start.

    ``chosen`` is the row that ``read`` takes by default and ``why`` gives the reason. ``device`` is
    the one whose calls these are. ``notes`` say what is not known.
    """

    rows: tuple[ProgramRow, ...]
    chosen: int = 0
    why: str = ""
    calls: tuple[Call, ...] = ()
    device: str = ""
    notes: tuple[str, ...] = ()
    origin: str = ""

    def total(self, figure: str) -> tuple[float | None, str]:
        """(sum over all calls of the trace of "flops", "bytes_accessed", "wire_bytes" or
        "seconds"; "≥", "≤" or "": a bound or exact).

        None if no trace shows what ran, or if it would be a bound in both directions.
        """
        ran = [(r, r.runs) for r in self.rows if r.runs]
        if any(r.runs is None for r in self.rows):
            return None, ""
        known = [runs * v for r, runs in ran if (v := getattr(r, figure)) is not None]
        measured = figure == "seconds"
        low = len(known) < len(ran) or (not measured and any(r.is_lower_bound for r, _ in ran))
        high = not measured and any(r.is_upper_bound for r, _ in ran)
        once = not measured and any(r.is_one_trip for r, _ in ran)
        if not known or (low and high) or once:
            return None, ""
        return sum(known), "≥" if low else "≤" if high else ""

    COLUMNS = columns(ProgramRow)

    def _totals(self) -> dict[str, Any]:
        totals = {}
        for figure in ("flops", "bytes_accessed", "wire_bytes", "seconds"):
            value, bound = self.total(figure)
            totals[figure] = {"value": value, "bound": bound}
        return {
            "chosen": self.chosen,
            "why": self.why,
            "totals": totals,
            "device": self.device,
            "calls": [asdict(c) for c in self.calls],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        ran = any(r.runs is not None for r in self.rows)
        timed = any(r.op_seconds is not None for r in self.rows)
        header = ["program", "N", "stage", "instructions", "FLOPs", "accessed", "wire", "peak"]
        header += ["modelled"] if any(r.modelled_seconds is not None for r in self.rows) else []
        header += ["calls", "a call"] if ran else []
        header += ["all ops"] if timed else []
        what = "program" if len(self.rows) == 1 else "programs"
        lines = [f"{len(self.rows)} {what}" + (f" · {self.origin}" if self.origin else "")]
        lines += grid(header, [self._cells(k, header) for k in range(len(self.rows))])
        lines += [f"{r.name}: {r.problem}" for r in self.rows if r.problem]
        if any(r.shapes == "global" for r in self.rows):
            lines.append("(global): of all devices together, before partitioning")
        if self.rows and self.why:
            lines.append(f"* {self.why}")
        said = [
            f"{bound} {write(value)}{what}".lstrip()
            for figure, what, write in _TOTALS
            for value, bound in (self.total(figure),)
            if value is not None
        ]
        if said:
            lines.append("all calls on a device: " + ", ".join(said))
        if self.calls:
            lines.append(f"calls on {self.device} in order: {self._order()}")
        return printed([*lines, *self.notes])

    def _cells(self, k: int, header: list[str]) -> list[str]:
        r = self.rows[k]
        of = globally = " (global)" if r.shapes == "global" else ""
        bound = "≥ " * r.is_lower_bound + "≤ " * r.is_upper_bound
        once = f" {ONE_TRIP}" * r.is_one_trip
        of = once + of
        cells = {
            "program": r.name + (" *" if k == self.chosen else ""),
            "N": UNKNOWN if r.number is None else str(r.number),
            "stage": r.stage,
            "instructions": UNKNOWN if r.instructions is None else f"{r.instructions:,}",
            "FLOPs": bound + quantity(r.flops, "FLOP") + of,
            "accessed": bound + size(r.bytes_accessed) + of,
            "wire": bound * bool(r.wire_bytes) + size(r.wire_bytes) + once * bool(r.wire_bytes),
            "peak": size(r.peak_bytes) + globally,
            "modelled": duration(r.modelled_seconds),
            "calls": UNKNOWN if r.runs is None else f"{r.runs:,}",
            "a call": duration(r.seconds),
            "all ops": duration(r.op_seconds),
        }
        return [cells[h] for h in header]

    def _order(self) -> str:
        stretches = [(name, len(list(of))) for name, of in groupby(c.name for c in self.calls)]
        said = [f"{name} × {n}" if n > 1 else name for name, n in stretches[:_MOST_CALLS]]
        more = sum(n for _, n in stretches[_MOST_CALLS:])
        return ", ".join(said) + (f", and {more:,} more" if more else "")


_TOTALS = (
    ("seconds", " of programs", duration),
    ("flops", "", lambda v: quantity(v, "FLOP")),
    ("bytes_accessed", " accessed", size),
    ("wire_bytes", " sent", size),
)
