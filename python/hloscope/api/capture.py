"""``Capture``: one program (compiled, lowered or read) and what can be asked of it.

An attribute is what a capture holds: it never fails and costs nothing. A question is a method: its
answer is worked out once, may compile, and may be refused with one sentence.

    capturing/ ─▶ Capture(module, target, program=…)   a live program: other stages, passes, runs
    api/read   ─▶ Capture(module, target, passes=…)    a dump: passes that were dumped beside it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, Unpack, cast, overload

from ..hlo import Instruction, Module, StackFrame, Target
from ..hlo.changes import KINDS, CannotChange, Changes, ProgramChange, SameValues, described
from .files import written
from .hosts import host

if TYPE_CHECKING:
    import graphviz

    from ..analysis.comms.collective import Collective
    from ..analysis.comms.collectives import Collectives
    from ..analysis.comms.sharding import Shardings
    from ..analysis.cost.cost import Cost
    from ..analysis.findings.finding import Findings
    from ..analysis.findings.proof import Proof
    from ..analysis.measured.measured import Measured
    from ..analysis.memory.memory import Memory
    from ..analysis.passes.passes import Passes
    from ..analysis.provenance.fates.fate import Fates
    from ..analysis.provenance.inferred import Inferred
    from ..analysis.provenance.origin_card import OriginCard
    from ..analysis.report.own_values import OwnValues
    from ..analysis.report.source import Source
    from ..analysis.why.provenance_card import Why
    from ..hardware import Hardware
    from ..hlo.snapshots import Snapshot, TimedPass
    from .compile_time import CompileTime
    from .run_times import RunTimes as RunTimes

T = TypeVar("T")
STAGES = ("jaxpr", "stablehlo", "hlo", "optimized")
# Answers that depend on the chip, and those that hold measured times.
_MODELLED = ("summary", "source", "findings")
_TIMED = ("summary", "findings")


class LiveProgram(Protocol):
    """A program of this process, which can make more of itself than one capture holds."""

    @property
    def stages(self) -> list[str]: ...
    def at(self, stage: str) -> Capture: ...
    def profile(self, args: Any, kwargs: Any, steps: int) -> Any:
        """A trace of ``steps`` runs with these arguments."""

    def run(self, args: Any, kwargs: Any, runs: int, say: Callable[[str], None]) -> Any:
        """Seconds of each of ``runs`` runs, and of the calls alone; ``say`` is told how far."""

    def compile_time(self) -> CompileTime:
        """One more compile, measured."""


@dataclass(frozen=True)
class PassRecord:
    """Where the program after every pass can be read.

    ``read`` returns the snapshots, and a note on what is missing. ``is_kept``: they are in
    memory; ``compiles``: they take one more compile. ``number`` is that of this dump among all
    of them, None for the final module. ``times`` reads when each ran, where a dump has it.
    """

    read: Callable[[], tuple[tuple[Snapshot, ...], str]]
    is_kept: bool = False
    compiles: bool = False
    number: int | None = None
    times: Callable[[], tuple[TimedPass, ...]] | None = None


@dataclass
class ForHosts:
    """The inside of a capture, for what shows and makes captures.

    ``place`` is where its last widget was left (js/state/place.ts); ``revision`` rises when its
    figures change: another chip, a profile, added values. ``measured`` and
    ``own_values`` are what a person gave. ``proofs`` are of findings, by rule and title; ``asked``
    all changes since the function was captured, ``places`` the expressions of their constraints.
    """

    program: LiveProgram | None = None
    record: PassRecord | None = None
    place: str = ""
    revision: int = 0
    answers: dict[str, Any] = field(default_factory=dict)
    measured: Measured | None = None
    own_values: tuple[OwnValues, ...] = ()
    proofs: dict[tuple[str, str], tuple[Proof, ...]] = field(default_factory=dict)
    asked: Changes = field(default_factory=lambda: Changes())
    places: dict[Any, StackFrame] = field(default_factory=dict)

    def keep_proofs(self, proofs: Mapping[tuple[str, str], tuple[Proof, ...]]) -> None:
        """Keeps what trying the advice of findings gave, by rule and title, for views and pages."""
        self.proofs = {**self.proofs, **proofs}
        self.answers.pop("findings", None)
        self.revision += 1

    def is_answered(self, question: str) -> bool:
        """Whether an answer, such as "summary", was worked out already."""
        return question in self.answers

    @property
    def passes_compile(self) -> bool:
        """Whether asking for the passes would compile once more."""
        known = self.record is None or "passes" in self.answers
        return not known and self.record.compiles  # type: ignore[union-attr]


@dataclass(frozen=True)
class _Read:
    """Passes that are at hand already, for a copy in another process."""

    passes: Passes

    def __call__(self) -> tuple[tuple[Snapshot, ...], str]:
        return self.passes.snapshots, self.passes.note


class CannotAnswer(ValueError, AttributeError):
    """Says why a capture has no answer: a stage that is not HLO, a dump without ENTRY.

    An ``AttributeError`` too, so that ``hasattr(cap, "memory")`` is False and never an error.
    """


class answer(Generic[T]):
    """A read-only attribute that is worked out when asked for, without compiling anything."""

    def __init__(self, work_out: Callable[[Any], T]) -> None:
        self.work_out = work_out
        self.__doc__ = work_out.__doc__

    @overload
    def __get__(self, capture: None, owner: type) -> answer[T]: ...
    @overload
    def __get__(self, capture: object, owner: type) -> T: ...
    def __get__(self, capture: object | None, owner: type) -> answer[T] | T:
        if capture is None:
            return self
        try:
            return self.work_out(capture)
        except (ValueError, LookupError) as error:
            raise CannotAnswer(str(error)) from error

    def __set__(self, capture: object, value: T) -> None:
        raise AttributeError("the answers of a capture cannot be set")


class Capture:
    """What ``capture``, ``read`` and ``%hlo`` return. Shows itself as the last line of a cell.

    ``module`` is the chosen stage's Module, ``target`` the devices it is for, ``file`` the name
    of the file it was read from, "" for a live program. ``stages`` are those that ``at`` can make:
    ``cap.at("stablehlo")`` is a Capture of that stage. ``display`` holds display options:
    ``colorBy``, ``panel``, ``theme`` ("auto", "light", "dark") and ``height`` in CSS pixels.

    Pickled, it keeps what it holds, the passes if they were asked for and the stages that were:
    the compiled program itself stays in its process.
    """

    def __init__(
        self,
        module: Module,
        target: Target | None = None,
        *,
        title: str | None = None,
        stage: str = "optimized",
        file: str = "",
        program: LiveProgram | None = None,
        passes: PassRecord | None = None,
    ) -> None:
        self.module = module
        self.target = _with_reader(target if target is not None else Target())
        self.title = title or module.name
        self.stage = stage
        self.file = file
        # display options: Options of js/view.ts, such as colorBy and height
        self.display: dict[str, Any] = {}
        # bookmarks made in its widgets (name, note and place), for pages saved from now on
        self.bookmarks: list[dict[str, str]] = []
        # "does not fit: 20.96 of 15.75 GiB: …" of a program that ran out of memory, else ""
        self.does_not_fit = ""
        self.for_hosts = ForHosts(program, passes)
        # what was changed by ``what_if``, and in which capture
        self.changes: tuple[ProgramChange, ...] = ()
        self.base: Capture | None = None
        self._other_stages: dict[str, Capture] = {}
        self._stayed: tuple[str, ...] = ()  # stages of the process that it was pickled in

    def __getstate__(self) -> dict[str, Any]:
        inside = self.for_hosts
        left = replace(inside, program=None, answers={}, asked=Changes(), places={})
        if inside.program is None:
            return self.__dict__ | {"for_hosts": left}
        made = {k: v for k, v in self._other_stages.items() if k != self.stage}
        passes = inside.answers.get("passes")
        left.record = None if passes is None else PassRecord(_Read(passes), is_kept=True)
        stayed = tuple(s for s in self.stages if s not in made and s != self.stage)
        return self.__dict__ | {"for_hosts": left, "_other_stages": made, "_stayed": stayed}

    def _answer(self, name: str, make: Callable[[], T]) -> T:
        """Works an answer out once."""
        if name not in self.for_hosts.answers:
            self.for_hosts.answers[name] = make()
        found: T = self.for_hosts.answers[name]
        return found

    def _forget(self, *names: str) -> None:
        for name in names:
            self.for_hosts.answers.pop(name, None)
        self.for_hosts.revision += 1

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that ``at`` can make."""
        more = (
            self.for_hosts.program.stages
            if self.for_hosts.program is not None
            else self._other_stages
        )
        return tuple(dict.fromkeys([self.stage, *more]))

    def at(self, stage: str) -> Capture:
        """The same program at another stage: jaxpr, stablehlo, hlo or optimized.

        Raises ``ValueError`` for an unknown stage or one this capture cannot make.
        """
        if stage == self.stage:
            return self
        found = self._other_stages.get(stage)
        if found is None:
            if self.for_hosts.program is None or stage not in self.stages:
                have = ", ".join(self.stages)
                why = "; others stayed in the process that captured it" if self._stayed else ""
                raise ValueError(f"no stage {stage!r} in this capture; it has: {have}{why}")
            found = self._other_stages[stage] = self.for_hosts.program.at(stage)
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
        self.for_hosts.proofs = {}  # of the chip before
        self._forget(*_MODELLED)

    @property
    def text(self) -> str:
        """The module as text."""
        return self.module.text

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader could not understand and skipped."""
        return tuple(str(w) for w in self.module.warnings)

    @answer
    def summary(self) -> dict[str, Any]:
        """What ``hloscope summary --json`` prints."""

        def make() -> dict[str, Any]:
            from ..analysis.report.summary import summarize

            found = summarize(self.module, self.target)
            if self.measured is not None:
                found["measured"] = self.measured.summary()
            return found

        return self._answer("summary", make)

    @answer
    def collectives(self) -> Collectives:
        """Every logical collective: what it moves, over which axes, how often, in which phase."""
        from ..analysis.comms.collectives import collectives

        return self._answer("collectives", lambda: collectives(self.module, self.target))

    def why(self, collective: Collective | str) -> Why:
        """Why a collective is there: the op that needs it, what moves, and what set the shardings.

        ``collective`` is a row of ``cap.collectives`` or the name of its instruction. What
        cannot be found is listed in ``unknown``, never guessed. Raises ``ValueError`` if this
        capture has no such collective.
        """
        from ..analysis.why.cards import explain

        return explain(self.module, self.target, self.collectives.find(collective))

    @answer
    def shardings(self) -> Shardings:
        """Every array with a sharding: its tiles and the bytes each device holds."""
        from ..analysis.comms.sharding import shardings

        return self._answer("shardings", lambda: shardings(self.module, self.target))

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

    @answer
    def memory(self) -> Memory:
        """Live bytes over the schedule, what is live at the peak, donation, what loops store.

        Raises ``CannotAnswer`` for a stage that is not HLO, or a dump without ENTRY.
        """
        from ..analysis.memory.memory import analysed

        return self._answer("memory", lambda: analysed(self.module, self.target))

    @answer
    def source(self) -> Source:
        """FLOPs, modelled seconds, wire and live bytes of every source line.

        Raises ``CannotAnswer`` for a stage that is not HLO.
        """
        from ..analysis.report.source import source

        return self._answer("source", lambda: source(self.module, self.target))

    @answer
    def findings(self) -> Findings:
        """Sentences worth acting on, most at stake first, with evidence and line.

        Raises ``CannotAnswer`` for a stage that is not HLO, or a dump without ENTRY.
        """

        def make() -> Findings:
            from ..analysis.findings.rules import findings

            found = findings(self.module, self.target)
            if self.measured is not None and self.measured.total_seconds:
                found = found.with_step(self.measured.total_seconds)
            if self.for_hosts.program is not None:
                found = replace(found, prover=lambda options: host("prove")(self, options))
            return found.with_proofs(self.for_hosts.proofs)

        return self._answer("findings", make)

    def add_values(
        self, values: Any, *, label: str = "own values", unit: str = "", column: str = ""
    ) -> Capture:
        """Adds your own numbers as a colouring and a row in Details; returns this capture.

        ``values``: numbers by instruction name (or instruction), a pandas Series, or a DataFrame
        or CSV file with a column "name"; ``column`` names the column of numbers where there are
        several. ``unit`` is such as "s", "B" or "" for plain counts. Names that no instruction
        has become a warning; calls with different labels add to each other. Raises
        ``ValueError`` when no value matches an instruction.

        >>> cap.add_values({"fusion.12": 4096.0, "dot.3": 128.0}, label="L2 misses")
        """
        from ..analysis.report.own_values import own_values

        found = own_values(self.module, values, label=label, unit=unit, column=column)
        others = tuple(v for v in self.for_hosts.own_values if v.label != found.label)
        self.for_hosts.own_values = (*others, found)
        self.display["colorBy"] = f"own:{len(others)}"
        self._forget()
        return self

    def passes(self, progress: Callable[[int, int], None] | None = None) -> Passes:
        """The changes that each pass of the compiler made, in the order they ran.

        For a live capture, which compiles once more unless it was made with ``passes=True``, and
        for a folder that XLA dumped every pass to. ``progress(compared, all)`` is called on the
        way and may raise to stop. Once ``compile_time`` was asked, each has the seconds that it
        took. Raises ``ValueError`` if there is no record of the passes, ``CaptureError`` and
        ``ReadError``.
        """

        def make() -> Passes:
            if self.for_hosts.record is None:
                why = (
                    "its passes stayed in the process that captured it; ask for them before "
                    "pickling it"
                    if self._stayed
                    else "capture the function, or read a folder dumped with "
                    "--xla_dump_hlo_pass_re=.*"
                )
                raise ValueError(f"this capture has no record of its passes; {why}")
            from ..analysis.passes.passes import passes
            from ..analysis.passes.times import times_of_dump

            record = self.for_hosts.record
            found = passes(*record.read(), progress)
            told = times_of_dump(record.times()) if record.times is not None else None
            return found if told is None else found.timed(told)

        found = self._answer("passes", make)
        if found.times is None and self.for_hosts.is_answered("compile_time"):
            found = found.timed(self.compile_time().of_passes())
            self.for_hosts.answers["passes"] = found
        return found

    def compile_time(self) -> CompileTime:
        """Where the time of compiling goes, by pass; compiles once more, under jax's profiler.

        The rows add up to the seconds of that compile. ``slow`` has what XLA itself reports, with
        its Python line. Raises ``ValueError`` for a capture that is not of a live program,
        ``CaptureError`` where the profiler cannot run.
        """

        def make() -> CompileTime:
            if self.for_hosts.program is None:
                raise ValueError("only a program captured in this process can be compiled again")
            return self.for_hosts.program.compile_time()

        return self._answer("compile_time", make)

    @property
    def has_passes(self) -> bool:
        """Whether ``passes`` can answer: for live captures and dumps of every pass."""
        return self.for_hosts.record is not None

    def origins(self, instruction: Instruction | str) -> OriginCard:
        """Which StableHLO operations an instruction comes from, through which calls and lines.

        ``instruction`` or its name. With passes (see ``passes``) also the pass that made it.
        Raises ``ValueError`` if the operations were not tracked, ``LookupError`` for an
        unknown name.
        """
        from ..analysis.provenance.origin_card import origin_card

        if isinstance(instruction, str):
            named = self.module.find(instruction)
            if named is None:
                raise LookupError(f"this module has no instruction {instruction[:200]!r}")
            instruction = named
        inferred_from = self._inferred()
        if inferred_from is not None:
            inferred = inferred_from.origins(self.module), inferred_from.how(instruction)
            return origin_card(instruction, self._operation_frames(), kept_passes(self), inferred)
        return origin_card(instruction, self._operation_frames(), kept_passes(self))

    def _inferred(self) -> Inferred | None:
        """Origins inferred from a dump of every pass without marks; None for other captures."""
        if (
            self.module.origins is not None
            or self.for_hosts.record is None
            or self.for_hosts.program is not None
        ):
            return None
        from ..analysis.provenance.inferred import infer

        return self._answer("inferred", lambda: infer(self.passes()))

    def _operation_frames(self) -> dict[int, tuple[StackFrame, ...]]:
        """The Python stack of each operation, innermost first."""
        from ..analysis.provenance.origin_card import frames_of

        def make() -> dict[int, tuple[StackFrame, ...]]:
            if "stablehlo" in self.stages:
                return frames_of(self.at("stablehlo").module)
            inferred = self._inferred()
            return {} if inferred is None else frames_of(inferred.passes.module(0))

        return self._answer("frames", make)

    def fates(self, of: int | str | None = None) -> Fates:
        """The fate of every StableHLO operation: kept, fused, rewritten, merged, folded,
        inlined, dead, or unknown; exactly one each.

        ``of``: only that of one operation, by its number, or of those of a source line,
        ``"model.py:42"``. Uses the passes, which compiles once more unless the capture was made
        with ``passes=True``. Raises ``ValueError`` if the operations were not tracked,
        ``LookupError`` if there is none.
        """
        found = self._answer("fates", self._all_fates)
        if of is None:
            return found
        from ..analysis.provenance.trace_line import fates_at_line

        rows = found.rows
        if isinstance(of, int):
            if not 0 <= of < len(rows):
                raise LookupError(f"there is no operation {of}; there are {len(rows)}")
            return replace(found, rows=(rows[of],))
        here = fates_at_line(rows, self._operation_frames(), of)
        if not here:
            raise LookupError(f"no operation of this program is at {of[:200]}")
        return replace(found, rows=here)

    def _all_fates(self) -> Fates:
        from ..analysis.provenance.fates.fates import fates

        if self.module.origins is None:
            inferred = self._inferred()
            if inferred is None:
                return fates(self.module)  # says why not
            return fates(self.module, inferred.passes, None, inferred.origins(self.module))
        passes = self.passes() if self.for_hosts.record is not None else None
        lowered = self.at("stablehlo").module if "stablehlo" in self.stages else None
        return fates(self.module, passes, lowered)

    def what_if(self, **changes: Unpack[Changes]) -> Capture:
        """This program with changes, compiled; the person's files stay as they are.

        The changes are those of ``Changes``, and combine. The result has ``changes``, each with
        the code to put into the source, and ``base``; ``what_if`` of it adds to them. Raises
        ``CannotChange`` with one sentence, and the code to paste, for a change that cannot be
        carried out, ``CaptureError`` for one that does not fit the program.

        >>> changed = cap.what_if(donate="params", remat={"block": "dots_saveable"})
        >>> print(changed.changes[0].code, cap.memory.peak_bytes, changed.memory.peak_bytes)
        """
        __tracebackhide__ = True
        if not changes:
            raise CannotChange(f"name a change: {', '.join(KINDS)}")
        code = "\n".join(c.code for c in described(changes, self.module.name))
        if self.for_hosts.program is None:
            why = "this capture stayed in another process" if self._stayed else "this is a dump"
            raise CannotChange(f"{why}, without the function to change", code)
        found: Capture = host("what if")(self, changes)
        return found

    def remat_options(self, functions: str | Sequence[str] = (), options: Any = None) -> Any:
        """``Variants``: policies of ``jax.checkpoint``, peak against step, and the code of each.

        ``functions``: names of the person's functions to put a checkpoint around. Without, the
        policies of the checkpoints that there are change; where there is none, one goes around
        each layer: a function that the derivative goes through several times.
        ``options``: ``hs.ProofOptions``. Raises ``CannotChange``.

        >>> print(cap.remat_options())
        """
        return host("remat options")(self, functions, options)

    def option_sweep(self, wanted: Any, options: Any = None) -> Any:
        """``Variants``: compiler options one at a time, and what each changes.

        ``wanted``: a list of dicts and of names of sets, such as "fast math", each compiled by
        itself; or one dict of options, each alone.
        ``options``: ``hs.ProofOptions``. An option that XLA does not know is a row that says so.

        >>> print(cap.option_sweep({"xla_cpu_enable_fast_math": True}))
        """
        return host("option sweep")(self, wanted, options)

    def same_values(self) -> SameValues:
        """Whether this program computes what ``base`` does: both run once on random inputs.

        Not where they do not fit this machine, which the answer says, nor for a topology.
        Raises ``ValueError`` for a capture that was not made by ``what_if``.
        """
        if self.base is None:
            raise ValueError("nothing was changed: same_values is of what cap.what_if returns")
        return self._answer("same values", lambda: cast(SameValues, host("same values")(self)))

    def profile(self, *args: Any, steps: int = 5, **kwargs: Any) -> Measured:
        """Runs the program under ``jax.profiler`` and keeps the measurements.

        One run to warm up, then ``steps`` measured ones. The result is also in
        ``cap.measured`` and in the views made from then on. Raises ``ValueError`` for a
        capture that is not of a live, compiled program, ``CaptureError`` for arguments
        that are not arrays and for devices that are not attached.
        """
        program = self._runnable()
        return self._join_trace(program.profile(args, kwargs, steps), steps)

    def run(self, *args: Any, runs: int = 20, **kwargs: Any) -> RunTimes:
        """Runs the program ``runs`` times, and a few times under ``jax.profiler``, at a glance.

        Median and spread of a run, the time of the call alone, how long the devices work and
        wait, beside the modelled time. The profile is kept as ``profile`` keeps it. Raises what
        ``profile`` raises.
        """
        from .run_times import RunTimes

        program = self._runnable()
        with host("progress")(f"running {self.title}") as say:
            seconds, of_calls = program.run(args, kwargs, runs, say)
            say("running under the profiler")
            steps = min(runs, 5)
            measured = self._join_trace(program.profile(args, kwargs, steps), steps)
        return RunTimes(seconds, of_calls, measured, self.cost())

    def _runnable(self) -> LiveProgram:
        """The program, if it can run here. Raises ``ValueError``."""
        if self.does_not_fit:
            raise ValueError("a program that does not fit cannot run: there is nothing to profile")
        if self.for_hosts.program is None or self.stage != "optimized":
            raise ValueError(
                "only the optimized stage of a program captured in this process can run; "
                "for a trace taken elsewhere use cap.add_profile('….xplane.pb')"
            )
        return self.for_hosts.program

    def add_profile(self, trace: str | Path | bytes, *, steps: int | None = None) -> Measured:
        """Joins a profiler trace taken elsewhere: an ``xplane.pb`` or a folder such as XProf's.

        Of a folder the newest run is read, with all its hosts. ``steps`` is how many executions
        it covers; None counts them. Raises ``ReadError``, also when the trace has no times for
        this module.
        """
        from ..readers.xplane.xplane import read_trace

        return self._join_trace(read_trace(trace), steps)

    def _join_trace(self, trace: Any, steps: int | None = None) -> Measured:
        """``add_profile`` of a trace that was read already."""
        from ..analysis.measured.join import join
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
        self.for_hosts.measured = found
        self._forget(*_TIMED)
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
            self._forget(*_MODELLED, "memory", "collectives", "shardings")
        elif own is not None and own.id != traced.id:
            note = f"the trace is of {traced.label}, and this program was compiled for {own.label}"
            found = replace(found, notes=(*found.notes, note))
        return found

    @property
    def measured(self) -> Measured | None:
        """What the last profile measured, or None."""
        return self.for_hosts.measured

    def html(self, *, passes: bool = False) -> str:
        """One self-contained offline page, as text.

        ``passes`` adds the changes of every compiler pass, to step through; for a step of 3,000
        instructions that is 0.6 MB more, for one of 100,000 about 9 MB. Over 32 MB they are
        left out, and the page says so. Raises what ``passes`` raises.
        """
        return str(host("page")(self, passes=passes))

    def to_html(self, path: str | Path, *, passes: bool = False) -> Path:
        """Writes ``html`` to ``path`` and returns the path."""
        return written(path, self.html(passes=passes))

    def to_markdown(self) -> str:
        """Headline, findings with their lines, and folded tables, for a pull request or an issue.

        Collectives, memory at the peak and the largest costs; names of the program are escaped.
        What ``cap.findings.prove()`` gave stands with each finding.
        """
        return str(host("markdown")(self))

    def to_perfetto(self, path: str | Path) -> Path:
        """Writes a trace that Perfetto's UI opens, gzip'd where the name ends in ".gz".

        The modelled step with its loops unrolled, live bytes beside it, the measured lanes where
        there is a profile, and the compile by part where ``compile_time`` was asked. Returns the
        path. Raises ``ValueError`` where there is neither a chip to model time on nor a profile.
        """
        made: Path = host("perfetto")(self, path)
        return made

    def to_reproducer(self, path: str | Path, *what: Instruction | str) -> Path:
        """Writes a part of the program as a Python file that runs it alone and times it.

        ``what``: instructions, their names, or names of groups, all of one computation. The file
        holds their HLO with an ENTRY of its own and makes random inputs; it needs only jax.
        Returns the path. Raises ``LookupError`` for an unknown name, ``ValueError`` for what
        cannot run alone, such as collectives.

        >>> cap.to_reproducer("bug.py", "fusion.3")
        """
        made: Path = host("reproducer")(self, path, what)
        return made

    def to_dot(self, **options: Any) -> graphviz.Digraph:
        """The grouped graph as a ``graphviz.Digraph``; ``.source`` is DOT text.

        ``max_nodes``: at most this many boxes; ``open``: names of groups, folds or instructions
        that are opened whatever the limit.
        """
        made: graphviz.Digraph = host("dot")(self, **options)
        return made

    def svg(self, **options: Any) -> str:
        """SVG text through the ``dot`` program, with the options of ``to_dot``.

        Raises ``DotMissing`` saying what to install, and ``DotFailed`` with the message of
        ``dot`` when it gives up.
        """
        return str(host("svg")(self, **options))

    def to_svg(self, path: str | Path, **options: Any) -> Path:
        """Writes ``svg`` to ``path`` and returns the path."""
        return written(path, self.svg(**options))

    def __repr__(self) -> str:
        return str(host("summary")(self))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return host("mimebundle")(self)

    def _display_(self) -> Any:
        return host("marimo")(self)

    def __panel__(self) -> Any:
        return host("panel")(self)


def kept_passes(capture: Capture) -> Passes | None:
    """The passes if they need neither a compile nor files, else None."""
    inside = capture.for_hosts
    kept = inside.record is not None and inside.record.is_kept
    return capture.passes() if kept or inside.is_answered("passes") else None


def _with_reader(target: Target) -> Target:
    """The target, able to read the dumps before and after partitioning on demand."""
    before, after = map(target.dumps.get, ("after_shardy-xla", "after_spmd-partitioning"))
    if before is not None and target.before_partitioning is None:
        target = replace(target, before_partitioning=_DumpReader(before))
    if after is not None and target.after_partitioning is None:
        target = replace(target, after_partitioning=_DumpReader(after))
    if target.before_partitioning is not None and target.asked_lines is None:
        target = replace(target, asked_lines=_asked_lines)
    return target


def _asked_lines(module: Module, target: Target) -> tuple[tuple[StackFrame, ...], ...]:
    from ..analysis.why.cards import asked_lines

    return asked_lines(module, target)


class _DumpReader:
    """Reads a dump on the first call; in a copy again."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._read = cache(self._reading)

    def __reduce__(self) -> tuple[Any, ...]:
        return _DumpReader, (self.text,)

    def __call__(self) -> Module | None:
        return self._read()

    def _reading(self) -> Module | None:
        from ..readers import ReadError, read_modules

        try:
            return read_modules(self.text)[0]
        except ReadError:
            return None
