"""What each pass of the compiler did to a module: counts before and after, and which instructions.

Counting is a scan of text, not a reading of modules: 25 MB in half a second. FLOPs, bytes and
peak need the module read and are worked out only when asked for (``Passes.cost``).

    number  pipeline        pass            instructions  fusions  copies  collectives
         4  simplification  algsimp          −120 → 1,041
         9  Main_fusion     tpu_fusion       +310 → 1,351      +96      −3
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...hlo.collective_kinds import KINDS
from ...hlo.snapshots import Snapshot
from .pass_steps import Steps, follow
from .passes_row import COUNTED, Pass
from .passes_text import table

if TYPE_CHECKING:
    import pandas

    from ...hlo import Module, Target

# name and opcode of an instruction line; a shape holds no word before an opening bracket but
# the tiles of layouts, which stand after a colon
_LINE = re.compile(r"^ +(?:ROOT )?%?([^\s=(){}]+) = [^\n]*? ([a-z][a-z0-9\-]*)\(", re.M)
_METADATA = re.compile(r', metadata=\{(?:[^"{}]|"(?:[^"\\]|\\.)*")*\}')
_TABLES = re.compile(r"\n\n(?:FileNames.*?\n\n\n?)(?=%|ENTRY)", re.S)


@dataclass(frozen=True, eq=False)
class Passes:
    """Every pass that changed the module, in order; the first row is where it began.

    ``note`` says what is missing, such as passes that took too much memory to keep.
    """

    rows: tuple[Pass, ...]
    snapshots: tuple[Snapshot, ...] = field(repr=False)
    note: str = ""
    _costs: dict[Any, dict[str, Any]] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Pass]:
        return iter(self.rows)

    def __getitem__(self, key: int | str) -> Pass:
        """A pass by position, or the first one of a name. Raises ``LookupError``."""
        if isinstance(key, int):
            return self.rows[key]
        found = [r for r in self.rows if r.name == key]
        if not found:
            names = ", ".join(dict.fromkeys(r.name for r in self.rows if r.name))
            raise LookupError(f"no pass {key!r} changed this module; there are {names[:400]}")
        return found[0]

    def text(self, row: Pass | int) -> str:
        """The module as HLO text after a pass."""
        return self.snapshots[row if isinstance(row, int) else row.index].text()

    def module(self, row: Pass | int) -> Module:
        """The module after a pass, read."""
        return self.snapshots[row if isinstance(row, int) else row.index].module()

    def cost(self, row: Pass | int, target: Target | None = None) -> dict[str, Any]:
        """FLOPs and bytes accessed after a pass, of one device, and the peak where scheduled.

        ``shapes`` is "global" before the program was cut over its devices: then the figures are
        of all of them together.
        A figure is None where it is not known: a peak before scheduling, FLOPs of custom calls
        nobody models. Raises ``ReadError`` when the dump is gone.
        """
        from ...hlo import Target as Unknown
        from ..comms.partitions import shapes
        from .cost_summary import costs, peaks

        target = target or Unknown()
        at = row if isinstance(row, int) else row.index
        key = at, target.device_kind, target.hardware, len(target.devices)
        known = self._costs.get(key)
        if known is None:
            module = self.module(row)
            found = costs(module, target)
            peak = peaks(module, target).get("peak_live_bytes") if module.is_scheduled else None
            known = self._costs[key] = {
                "flops": found.get("flops"),
                "bytes_accessed": found.get("bytes_accessed"),
                "peak_bytes": peak,
                "shapes": shapes(module, target),
            }
        return dict(known)

    def known_cost(self, row: int) -> dict[str, Any] | None:
        """``cost`` of a row where it was worked out before, for whatever target."""
        return next((dict(c) for key, c in self._costs.items() if key[0] == row), None)

    def at(self, number: int) -> int:
        """The row that shows the module as the dump of this number has it."""
        return max((r.index for r in self.rows if r.number <= number), default=0)

    def made(self, name: str) -> Pass | None:
        """The pass in which an instruction of this name first appeared; None if in none."""
        return self._made.get(name.lstrip("%"))

    @cached_property
    def steps(self) -> Steps:
        """Every instruction through all passes; made when first asked for."""
        return self.follow()

    def follow(self, progress: Callable[[int, int], None] | None = None) -> Steps:
        """``steps``, telling how many of how many passes are done; ``progress`` may raise."""
        known: Steps | None = self.__dict__.get("steps")
        if known is None:
            known = follow([s.text for s in self.snapshots], progress)
            self.__dict__["steps"] = known
        return known

    @cached_property
    def _made(self) -> dict[str, Pass]:
        out: dict[str, Pass] = {}
        for row in self.rows:
            for name in row.appeared:
                out.setdefault(name, row)
        return out

    def to_dict(self) -> dict[str, Any]:
        return {"passes": [r.to_dict() for r in self.rows], "note": self.note}

    def to_pandas(self) -> pandas.DataFrame:
        """A row a pass: counts, changes in columns named ``+instructions`` and so on."""
        import pandas

        return pandas.DataFrame(
            [
                {
                    "pipeline": r.pipeline,
                    "pass": r.title,
                    **r.counts,
                    **{f"+{k}": v for k, v in r.change.items()},
                }
                for r in self.rows
            ]
        )

    def __str__(self) -> str:
        return table(self.rows, self.note)


def passes(
    snapshots: Sequence[Snapshot],
    note: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> Passes:
    """Compares each snapshot with the one before; what did not change is left out.

    ``progress`` is called with how many of how many are done, and may raise to stop.
    """
    rows: list[Pass] = []
    kept: list[Snapshot] = []
    before: dict[str, str] = {}
    counts = dict.fromkeys(COUNTED, 0)
    text_before = bare_before = ""
    operations: frozenset[int] | None = None
    names = ran(snapshots)
    for k, snapshot in enumerate(snapshots):
        if progress is not None:
            progress(k, len(snapshots))
        text = snapshot.text()
        if rows and text == text_before:
            continue
        bare = _bare(text)
        name = names[k]
        found = dict(_LINE.findall(text))
        now = _counts(_LINE.findall(text))
        lost: tuple[int, ...] = ()
        if operations is not None and snapshot.operations is not None:
            lost = tuple(sorted(operations - snapshot.operations))
        operations = snapshot.operations
        rows.append(
            Pass(
                len(rows),
                snapshot.number,
                snapshot.pipeline,
                name,
                now,
                {what: now[what] - counts[what] for what in COUNTED} if rows else {},
                tuple(n for n in found if n not in before) if rows else (),
                tuple(n for n in before if n not in found),
                lost,
                bool(rows) and bare == bare_before,
            )
        )
        kept.append(snapshot)
        before, counts, text_before, bare_before = found, now, text, bare
    return Passes(tuple(rows), tuple(kept), note)


def ran(snapshots: Sequence[Snapshot]) -> list[str]:
    """The pass that each snapshot shows the work of; "" where it began, or nothing tells.

    A pass that runs a pipeline of its own has changed the module before that pipeline starts:

        outer: after_shardy-xla.before_some-pass          passes that change nothing leave no dump
        inner: after_pipeline-start.before_dce            what changed here, the pass did that
        inner: after_dce.…                                is still running: not some-pass but
        outer: after_spmd-partitioning.…                  the one that ends next in its pipeline
    """
    out = []
    for k, s in enumerate(snapshots):
        name = s.passed
        if not name and k > 0:
            before = snapshots[k - 1]
            outer = {x.pipeline for x in snapshots[:k]} - {s.pipeline, ""}
            if before.upcoming == "pipeline-end":
                outer.discard(before.pipeline)
            else:
                outer = {before.pipeline} - {""}
            later = (x.passed for x in snapshots[k + 1 :] if x.passed and x.pipeline in outer)
            name = next(later, "")
        out.append(name)
    return out


def _bare(text: str) -> str:
    return _METADATA.sub("", _TABLES.sub("\n", text, count=1))


def _counts(found: list[tuple[str, str]]) -> dict[str, int]:
    opcodes = Counter(opcode for _, opcode in found)
    kinds = {k for kind in KINDS for k in (kind, f"{kind}-start")}
    return {
        "instructions": len(found),
        "fusions": opcodes["fusion"],
        "copies": opcodes["copy"] + opcodes["copy-start"],
        "transposes": opcodes["transpose"],
        "collectives": sum(n for o, n in opcodes.items() if o in kinds),
    }
