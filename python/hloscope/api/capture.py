"""``Capture``: one program (compiled, lowered or read) and the analyses of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..hlo import Instruction, Module, StackFrame, Target

if TYPE_CHECKING:
    import graphviz

    from ..analysis.comms.collective import Collective
    from ..analysis.comms.collectives import Collectives
    from ..analysis.comms.sharding import Shardings
    from ..analysis.cost.cost import Cost
    from ..analysis.findings.finding import Findings
    from ..analysis.measured.measured import Measured
    from ..analysis.memory.memory import Memory
    from ..analysis.passes.passes import Passes
    from ..analysis.provenance.fates.fate import Fates
    from ..analysis.provenance.inferred import Inferred
    from ..analysis.provenance.linked.linked import Linked
    from ..analysis.provenance.origin_card import OriginCard
    from ..analysis.report.source import Source
    from ..analysis.why.provenance_card import Why
    from ..hardware import Hardware
    from ..hlo.snapshots import Snapshot

STAGES = ("jaxpr", "stablehlo", "hlo", "optimized")
# Up to this many instructions the analyses take no noticeable time.
AT_ONCE = 20_000
# Cached attributes of a capture that depend on the chip.
_MODELLED = ("summary", "source", "findings", "analyses_bytes")


class Capture:
    """What ``capture``, ``read`` and ``%hlo`` return. Shows itself as the last line of a cell.

    ``module`` is the chosen stage's Module, ``target`` the devices it is for. Other stages of
    a live capture are made on demand: ``cap.at("stablehlo")`` is a Capture of that stage.
    ``display`` holds display options: ``colorBy``, ``panel``, ``theme`` ("auto", "light",
    "dark") and ``height`` in CSS pixels.
    """

    def __init__(
        self,
        module: Module,
        target: Target | None = None,
        *,
        title: str | None = None,
        stage: str = "optimized",
        stages: Mapping[str, Callable[[], Capture]] | None = None,
        origin: str = "",
    ) -> None:
        self.module = module
        self.target = _with_reader(target if target is not None else Target())
        self.title = title or module.name
        self.stage = stage
        self.origin = origin  # file name it was read from, or ""
        # display options: Options of js/view.ts, such as colorBy and height
        self.display: dict[str, Any] = {}
        # bookmarks made in its widgets (name, note and place), for pages saved from now on
        self.bookmarks: list[dict[str, str]] = []
        self._place = ""  # where its last widget was left; see js/state/place.ts
        self._stages = dict(stages or {})
        # "does not fit: 20.96 of 15.75 GiB: …" of a program that ran out of memory, else ""
        self.does_not_fit = ""
        # the jax.stages.Compiled of a live capture, for ``profile``
        self._run: Any = None
        # returns the snapshots of every pass and a note on what is missing; None if there are none
        self._snapshots: Callable[[], tuple[tuple[Snapshot, ...], str]] | None = None
        self._has_passes = False  # whether that needs no further compile
        # number of this dump among those of all passes; None for the final module
        self._pass_number: int | None = None

    def at(self, stage: str) -> Capture:
        """The same program at another stage: jaxpr, stablehlo, hlo or optimized.

        Raises ``ValueError`` for an unknown stage or one this capture cannot make.
        """
        if stage == self.stage:
            return self
        if stage not in self._stages:
            have = ", ".join([self.stage, *self._stages])
            raise ValueError(f"no stage {stage!r} in this capture; it has: {have}")
        found = self._stages[stage]()
        if self.target.hardware:
            found.hardware = self.target.hardware
        return found

    @property
    def hardware(self) -> str | None:
        """Id of the chip that time is modelled on, such as "tpu-v5e"; None when unknown.

        By default the chip of the capture's devices; a dump has none until one is set:
        ``cap.hardware = "h100"``; None restores the default. Figures, pages and widgets made
        from then on are for that chip. Raises ``HardwareError`` for an unknown chip.
        """
        from ..analysis.cost.chip import chip_of

        chip = chip_of(self.target)
        return chip.id if chip is not None else None

    @hardware.setter
    def hardware(self, name: str | None) -> None:
        from ..hardware import find

        chosen = find(name).id if name is not None else ""
        if chosen == self.target.hardware:
            return
        self.target = replace(self.target, hardware=chosen)
        self.display.pop("hardware", None)
        if chosen:
            self.display["hardware"] = chosen
        for made in _MODELLED:
            self.__dict__.pop(made, None)

    @property
    def text(self) -> str:
        """The module as text."""
        return self.module.text

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader could not understand and skipped."""
        return tuple(str(w) for w in self.module.warnings)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """What ``hloscope summary --json`` prints."""
        from ..analysis.report.summary import summarize

        found = summarize(self.module, self.target)
        if self.measured is not None:
            found["measured"] = self.measured.summary()
        return found

    @property
    def is_large(self) -> bool:
        """Whether its analyses take a noticeable time; hosts then show the graph first."""
        return len(self.module.instructions) > AT_ONCE

    @property
    def quick_summary(self) -> dict[str, Any]:
        """``summary`` if it is cached or takes no noticeable time, else only its counts.

        The counts lack cost, memory and collectives: a notebook shows the graph of a large
        module first.
        """
        if "summary" in self.__dict__ or not self.is_large:
            return self.summary
        from ..analysis.report.summary import CONTRIBUTIONS, summarize

        return summarize(self.module, self.target, CONTRIBUTIONS[:1])

    @cached_property
    def collectives(self) -> Collectives:
        """Every logical collective: what it moves, over which axes, how often, in which phase."""
        from ..analysis.comms.collectives import collectives

        return collectives(self.module, self.target)

    def why(self, collective: Collective | str) -> Why:
        """Why a collective is there: the op that needs it, what moves, and what set the shardings.

        ``collective`` is a row of ``cap.collectives`` or the name of its instruction. What
        cannot be found is listed in ``unknown``, never guessed. Raises ``ValueError`` if this
        capture has no such collective.
        """
        from ..analysis.why.provenance import explain

        return explain(self.module, self.target, self.collectives.find(collective))

    @cached_property
    def shardings(self) -> Shardings:
        """Every array with a sharding: its tiles and the bytes each device holds."""
        from ..analysis.comms.sharding import shardings

        return shardings(self.module, self.target)

    def cost(
        self,
        hardware: str | Hardware | None = None,
        *,
        trips: Mapping[str, int] | None = None,
    ) -> Cost:
        """FLOPs, bytes and modelled seconds of every instruction, per device.

        ``hardware`` is a chip's id such as "tpu-v5e" or "h100", default ``cap.hardware``
        where it is known; ``trips`` sets trip counts of loops by name. Raises
        ``HardwareError`` for an unknown chip, ``ValueError`` for an unknown loop and for a
        stage that is not HLO.
        """
        from ..analysis.cost.chip import chip_of
        from ..analysis.cost.cost import estimate, estimated
        from ..hardware import find, load

        if hardware is None and not trips:
            return estimated(self.module, self.target)
        chip = chip_of(self.target) if hardware is None else find(hardware)
        target = self.target
        if chip is not None and not target.devices and chip.id in load():
            target = replace(target, hardware=chip.id)  # the chip whose torus an unknown slice has
        return estimate(self.module, target, hardware=chip, trips=trips)

    @cached_property
    def memory(self) -> Memory:
        """Live bytes over the schedule, what is live at the peak, donation, what loops store."""
        from ..analysis.memory.memory import analysed

        return analysed(self.module, self.target)

    @cached_property
    def source(self) -> Source:
        """FLOPs, modelled seconds, wire and live bytes of every source line."""
        from ..analysis.report.source import source

        return source(self.module, self.target)

    @cached_property
    def findings(self) -> Findings:
        """What is worth acting on, most at stake first: sentences with evidence and line.

        Raises ``ValueError`` for a stage that is not HLO, or a dump without ENTRY.
        """
        from ..analysis.findings.rules import findings

        found = findings(self.module, self.target)
        if self.measured is not None and self.measured.total_seconds:
            found = found.with_step(self.measured.total_seconds)
        return found

    def show(
        self, *, values: Any = None, label: str = "own values", unit: str = "", column: str = ""
    ) -> Capture:
        """Adds your own numbers as a colouring and a row in Details; returns this capture.

        ``values``: numbers by instruction name (or instruction), a pandas Series, or a DataFrame
        or CSV file with a column "name"; ``column`` names the column of numbers where there are
        several. ``unit`` is such as "s", "B" or "" for plain counts. Names that no instruction
        has become a warning; calls with different labels add to each other. Raises
        ``ValueError`` when no value matches an instruction.

        >>> cap.show(values={"fusion.12": 4096.0, "dot.3": 128.0}, label="L2 misses")
        """
        from ..analysis.report.own_values import own_values, own_values_of, remember_own

        if values is not None:
            found = own_values(self.module, values, label=label, unit=unit, column=column)
            remember_own(self.module, found)
            at = [v.label for v in own_values_of(self.module)].index(found.label)
            self.display["colorBy"] = f"own:{at}"
            self.__dict__.pop("analyses_bytes", None)
        return self

    @cached_property
    def passes(self) -> Passes:
        """What each pass of the compiler changed, in the order they ran.

        For a live capture, which compiles once more unless it was made with ``passes=True``, and
        for a folder that XLA dumped every pass to. Raises ``ValueError`` if there is no
        record of the passes, ``CaptureError`` and ``ReadError``.
        """
        return self.load_passes()

    def load_passes(self, progress: Callable[[int, int], None] | None = None) -> Passes:
        """``passes``, with ``progress(compared, all)`` called on the way; it may raise to stop."""
        known: Passes | None = self.__dict__.get("passes")
        if known is not None:
            return known
        if self._snapshots is None:
            raise ValueError(
                "this capture has no record of its passes; capture the function, or read a folder "
                "dumped with --xla_dump_hlo_pass_re=.*"
            )
        from ..analysis.passes.passes import passes

        found = passes(*self._snapshots(), progress)
        self.__dict__["passes"] = found
        self.__dict__.pop("stages_bytes", None)  # its sentences name passes where they are known
        return found

    @property
    def has_passes(self) -> bool:
        """Whether ``passes`` is available: for live captures and dumps of every pass."""
        return self._snapshots is not None

    @property
    def passes_at_hand(self) -> bool:
        """Whether ``passes`` is available without compiling again."""
        folder = self._snapshots is not None and self._run is None
        return self._has_passes or folder or "passes" in self.__dict__

    def passes_bytes(self, progress: Callable[[int, int], None] | None = None) -> bytes:
        """The passes block of js/view.ts, gzip'd. ``progress`` may raise to stop.

        Raises what ``passes`` raises, and ``ValueError`` if it would be too large.
        """
        from ..view.passes import build_passes

        return build_passes(
            self.passes,
            self.module,
            self.target,
            title=self.title,
            shown=self._shown_pass,
            progress=progress,
        )

    @property
    def _shown_pass(self) -> int | None:
        """The row of ``passes`` that this module belongs to; None for the final module."""
        return None if self._pass_number is None else self.passes.at(self._pass_number)

    @property
    def _kept_passes(self) -> Passes | None:
        """The passes if they are available without compiling again, else None."""
        return self.passes if self._has_passes or "passes" in self.__dict__ else None

    def origins(self, instruction: Instruction | str) -> OriginCard:
        """Which StableHLO operations an instruction comes from, through which calls and lines.

        ``instruction`` or its name. With passes (see ``passes``) also the pass that made it.
        Raises ``ValueError`` if the operations were not tracked, ``LookupError`` for an
        unknown name.
        """
        from ..analysis.provenance.origin_card import origin_card

        if isinstance(instruction, str):
            found = self.module.find(instruction)
            if found is None:
                raise LookupError(f"this module has no instruction {instruction[:200]!r}")
            instruction = found
        if self.module.origins is None and self._inferred is not None:
            how = self._inferred.how(instruction)
            inferred = self._inferred.origins(self.module), how
            return origin_card(instruction, self._operation_frames, self._kept_passes, inferred)
        return origin_card(instruction, self._operation_frames, self._kept_passes)

    @cached_property
    def _inferred(self) -> Inferred | None:
        """Origins inferred from a dump of every pass without marks; None for other captures."""
        if self.module.origins is not None or self._snapshots is None or self._run is not None:
            return None
        from ..analysis.provenance.inferred import infer

        return infer(self.passes)

    @cached_property
    def _operation_frames(self) -> dict[int, tuple[StackFrame, ...]]:
        """The Python stack of each operation, innermost first."""
        from ..analysis.provenance.origin_card import frames_of

        if "stablehlo" in self._stages:
            return frames_of(self.at("stablehlo").module)
        if self._inferred is not None:
            return frames_of(self._inferred.passes.module(0))
        return {}

    @cached_property
    def fates(self) -> Fates:
        """What became of every StableHLO operation: kept, fused, rewritten, merged, folded,
        inlined, dead, or unknown; exactly one each.

        Uses the passes, which compiles once more unless the capture was made with
        ``passes=True``. Raises ``ValueError`` if the operations were not tracked.
        """
        from ..analysis.provenance.fates.fates import fates

        if self.module.origins is None:
            if self._inferred is None:
                return fates(self.module)  # says why not
            found = self._inferred
            return fates(self.module, found.passes, None, found.origins(self.module))
        passes = self.passes if self._snapshots is not None else None
        lowered = self.at("stablehlo").module if "stablehlo" in self._stages else None
        return fates(self.module, passes, lowered)

    def fate(self, what: int | str) -> Fates:
        """What became of an operation, by its number, or of a source line, ``"model.py:42"``.

        Raises ``LookupError`` if there is none, ``ValueError`` if the operations were not
        tracked.
        """
        from ..analysis.provenance.fates.fate import Fates

        rows = self.fates.rows
        if isinstance(what, int):
            if not 0 <= what < len(rows):
                raise LookupError(f"there is no operation {what}; there are {len(rows)}")
            return Fates((rows[what],), self.fates.inferred)
        from ..analysis.provenance.trace_line import at_line

        frames = self._operation_frames
        found = tuple(r for r in rows if at_line(frames.get(r.operation.number, ()), what))
        if not found:
            raise LookupError(f"no operation of this program is at {what[:200]}")
        return Fates(found, self.fates.inferred)

    def profile(self, *args: Any, steps: int = 5, **kwargs: Any) -> Measured:
        """Runs the program under ``jax.profiler`` and keeps the measurements.

        One run to warm up, then ``steps`` measured ones. The result is also in
        ``cap.measured`` and in the views made from then on. Raises ``ValueError`` for a
        capture that is not of a live, compiled program, ``CaptureError`` for arguments
        that are not arrays and for devices that are not attached.
        """
        if self._run is None:
            raise ValueError(
                "only the optimized stage of a program captured in this process can run; "
                "for a trace taken elsewhere use cap.add_profile('….xplane.pb')"
            )
        from ..capturing.profile import run_profiled

        return self._measure(run_profiled(self._run, args, kwargs, steps), steps)

    def add_profile(self, trace: str | Path | bytes, *, steps: int | None = None) -> Measured:
        """Joins a profiler trace taken elsewhere: an ``xplane.pb`` or a folder such as XProf's.

        Of a folder the newest run is read, with all its hosts. ``steps`` is how many executions
        it covers; None counts them. Raises ``ReadError``, also when the trace has no times for
        this module.
        """
        from ..readers.xplane.xplane import read_trace

        return self._measure(read_trace(trace), steps)

    def _measure(self, trace: Any, steps: int | None) -> Measured:
        from ..analysis.measured.join import join
        from ..analysis.measured.measured import remember
        from ..readers import ReadError
        from ..readers.xplane.match import match

        found = join(self.module, trace.ops, steps, match=match(trace, self.module), trace=trace)
        found = self._on_its_chip(found, trace.chip)
        if not found.counts.any():
            has = ", ".join(sorted({o.module for o in trace.ops if o.module})[:10])
            raise ReadError(
                f"the trace has no times for {self.module.name!r}"
                + (f"; it has {has}" if has else ": it has no HLO operations at all")
            )
        remember(self.module, found)
        self.__dict__.pop("summary", None)  # it includes the measurements, as findings do
        self.__dict__.pop("findings", None)
        self.__dict__.pop("analyses_bytes", None)
        return found

    def _on_its_chip(self, found: Measured, chip: Any) -> Measured:
        """Takes the trace's chip for a dump that does not name one; adds a note if they differ."""
        from ..hardware import choose, recognise

        traced = None
        if chip is not None:
            traced = choose(chip.kind) or recognise(chip.vendor, chip.cores, chip.memory_bytes)
        if traced is None:
            return found
        kind = chip.kind or traced.kinds[0]
        own = choose(self.target.device_kind)
        if not self.target.device_kind:
            self.target = replace(self.target, platform=chip.platform, device_kind=kind)
            for made in (*_MODELLED, "memory", "collectives", "shardings"):
                self.__dict__.pop(made, None)
        elif own is not None and own.id != traced.id:
            note = f"the trace is of {traced.label}, and this program was compiled for {own.label}"
            found = replace(found, notes=(*found.notes, note))
        return found

    @property
    def measured(self) -> Measured | None:
        """What the last profile measured, or None."""
        from ..analysis.measured.measured import measured_of

        return measured_of(self.module)

    @cached_property
    def view_bytes(self) -> bytes:
        """The View block of js/view.ts, gzip'd."""
        from ..view import build_view

        return build_view(self.module, self.target, title=self.title, subtitle=self._subtitle)

    @cached_property
    def analyses_bytes(self) -> bytes:
        """The analyses block of js/view.ts, gzip'd."""
        from ..view import build_analyses

        return build_analyses(self.module, self.target)

    @cached_property
    def text_bytes(self) -> bytes:
        """The text block of js/view.ts, gzip'd."""
        from ..view import build_text

        return build_text(self.module)

    @cached_property
    def stages_bytes(self) -> bytes:
        """The stages block of js/view.ts, gzip'd: the program's texts, and which lines correspond.

        Of passes it holds what is known without compiling again.
        """
        from ..view import build_stages

        return build_stages(self._linked(), len(self.module.instructions))

    def _linked(self) -> Linked:
        """Source, jaxpr, StableHLO and this module, line by line."""
        from ..analysis.provenance.fates.fates import fates
        from ..analysis.provenance.linked.linked import linked

        earlier = STAGES[: STAGES.index(self.stage)] if self.stage in STAGES else ()
        made = {s: self.at(s).module for s in earlier if s in self._stages and s != "hlo"}
        known = None
        if self.module.origins is not None and self.module.dialect == "hlo":
            known = fates(self.module, self._kept_passes, made.get("stablehlo"))
        return linked(
            self.module,
            self.stage,
            jaxpr=made.get("jaxpr"),
            stablehlo=made.get("stablehlo"),
            sources=self.target.sources,
            fates=known,
        )

    @property
    def _subtitle(self) -> str:
        parts = []
        if self.target.devices:
            parts.append(f"{len(self.target.devices)} × {self.target.device_kind}")
        if self.origin:
            parts.append(self.origin)
        parts.append(self.stage)
        return " · ".join(parts)

    def to_html(self, path: str | Path | None = None, *, passes: bool = False) -> str | Path:
        """One self-contained offline page. Writes ``path`` and returns it, or returns the page.

        ``passes`` adds what every compiler pass did, to step through; for a step of 3,000
        instructions that is 0.6 MB more, for one of 100,000 about 9 MB. Over 32 MB they are
        left out, and the page says so. Raises what ``passes`` raises.
        """
        from ..show.html import page

        text = page(self, passes=passes)
        if path is None:
            return text
        Path(path).write_text(text, encoding="utf-8")
        return Path(path)

    def to_dot(self, **options: Any) -> graphviz.Digraph:
        """The grouped graph as a ``graphviz.Digraph``; ``.source`` is DOT text.

        ``max_nodes``: at most this many boxes; ``open``: names of groups, folds or instructions
        that are opened whatever the limit.
        """
        from ..show.dot import digraph

        return digraph(self, **options)

    def to_svg(self, path: str | Path | None = None, **options: Any) -> str | Path:
        """SVG through the ``dot`` program, with the options of ``to_dot``.

        Writes ``path`` and returns it, or returns the text. Raises ``DotMissing`` saying what
        to install, and ``DotFailed`` with the message of ``dot`` when it gives up.
        """
        from ..show.dot import svg

        text = svg(self, **options)
        if path is None:
            return text
        Path(path).write_text(text, encoding="utf-8")
        return Path(path)

    def __repr__(self) -> str:
        from ..show.text import summary_text

        return summary_text(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        from ..show.notebook.widget import mimebundle

        return mimebundle(self)

    def _display_(self) -> Any:
        from ..show.notebook.hosts import for_marimo

        return for_marimo(self)

    def __panel__(self) -> Any:
        from ..show.notebook.hosts import for_panel

        return for_panel(self)


def _with_reader(target: Target) -> Target:
    """The target, able to read the dumps before and after partitioning on demand."""
    before, after = map(target.dumps.get, ("after_shardy-xla", "after_spmd-partitioning"))
    if before is not None and target.before_partitioning is None:
        target = replace(target, before_partitioning=_reader(before))
    if after is not None and target.after_partitioning is None:
        target = replace(target, after_partitioning=_reader(after))
    return target


def _reader(text: str) -> Callable[[], Module | None]:
    @cache
    def read() -> Module | None:
        from ..readers import ReadError, read_modules

        try:
            return read_modules(text)[0]
        except ReadError:
            return None

    return read
