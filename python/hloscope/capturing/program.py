"""A program at its stages: traced, lowered, compiled, each made once and on demand."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..api.capture import Capture, PassRecord
from ..api.compile_time import CompileTime
from ..hlo import Module, ReadWarning
from ..hlo.origins.operations import Frame
from ..hlo.snapshots import Snapshot
from ..hlo.target import SlowToCompile
from ..readers.files.python_sources import read_sources
from . import calls, stages
from .cells import Cells, cells
from .changing.call import GivenCall
from .compat import jax_api as _compat
from .compile_time import measured_compile
from .describe import describe
from .dumps import dumping, every_pass, messages, oom, provenance
from .errors import CaptureError
from .explain import explained
from .marks import marks, python_calls
from .policies import unmet_names
from .profile import run_profiled, run_timed
from .slow import slow_to_compile


@dataclass
class Options:
    """How to make the stages. ``context`` enters the mesh under which everything happens."""

    compiler_options: dict[str, Any] | None = None
    provenance: bool = True
    exact: bool = True
    passes: bool = False
    title: str | None = None
    hardware: str | None = None  # id of a chip
    moved: bool = False  # arguments were put on another mesh
    recorded: bool = False  # the traced program knows its Python calls
    fn: Callable[..., Any] | None = None
    call: GivenCall | None = None  # to capture it again; None for what came traced or later
    context: Callable[[], contextlib.AbstractContextManager[Any]] = field(
        default=contextlib.nullcontext
    )


class Program:
    """``at(stage)`` is the Capture of one stage; later stages reuse what earlier ones made."""

    def __init__(
        self,
        options: Options,
        *,
        traced: Any = None,
        lowered: Any = None,
        compiled: Any = None,
        called: Cells | None = None,
    ) -> None:
        self.options = options
        self.cells = cells() if called is None else called
        self.traced, self._lowered, self._compiled = traced, lowered, compiled
        self._optimized: Module | None = None
        self.messages = messages.Messages()
        self.compile_seconds: float | None = None
        self.dumps: dict[str, str] = {}
        self._passes: tuple[tuple[Snapshot, ...], str] | None = None
        self.does_not_fit = ""
        self._frames: tuple[tuple[Frame, ...], ...] = ()

    @property
    def stages(self) -> list[str]:
        have = ["jaxpr"] if self.traced is not None else []
        if self.traced is not None or self._lowered is not None:
            have += ["stablehlo", "hlo"]
        return [*have, "optimized"]

    @property
    def name(self) -> str:
        found = getattr(self.traced, "fun_name", None)
        return str(found or getattr(self.options.fn, "__name__", "") or "the program")

    @property
    def lowered(self) -> Any:
        """Lowered; None for a program that came compiled."""
        if self._lowered is None and self.traced is not None:
            with self.options.context(), explained("lower", self.name, moved=self.options.moved):
                self._lowered = self._lower()
        return self._lowered

    def _lower(self) -> Any:
        if self.options.recorded:
            with contextlib.suppress(Exception), python_calls.recording() as here:
                if here:
                    lowered, frames = python_calls.lower(self.traced)
                    self._frames = self.cells.frames(frames)
                    return lowered
        return self.traced.lower()

    @functools.cached_property
    def marked(self) -> marks.Marked | None:
        """The program with its operations numbered; None if that is off or impossible."""
        if not self.options.exact or self.lowered is None:
            return None
        return marks.mark(self.lowered, self._frames)

    @property
    def compiled(self) -> Any:
        if self._compiled is None and not self.does_not_fit:
            self._compile()
        return self._compiled

    def _compile(self, *, dump: bool = False) -> None:
        """Compiles, and reads what only this compile leaves: its dumps and messages."""
        marked, options = self.marked, self.options.compiler_options
        lowered = self.lowered if marked is None else marked.lowered
        devices = _compat.partition_devices(lowered, None)
        every = self.options.passes
        dump = dump or every or (self.options.provenance and provenance.wanted(devices, options))
        with contextlib.ExitStack() as stack:
            stack.enter_context(explained("compile", self.name, moved=self.options.moved))
            stack.enter_context(self.options.context())
            self.messages = stack.enter_context(messages.stderr_kept())
            if marked is not None:
                stack.enter_context(marks.clean_errors(marked))
            if dump or marked is not None:
                stack.enter_context(_compat.no_persistent_cache())
            if not dump:
                try:
                    self._compiled = self._timed(lowered, options)
                    return
                except Exception as error:
                    if not oom.is_out_of_memory(error):
                        raise
                # compile again, to dump what it had made when memory ran out
            need = dumping.bytes_needed(lowered, every_pass=every)
            room = stack.enter_context(dumping.dump_folder(need))
            if room.path is None:
                self._compiled = self._timed(lowered, options)
                self._without_dump(room.why_not)
                return
            try:
                safe = provenance.origins_are_safe(lowered)
                dumping_to = {**(options or {}), **provenance.options(room.path, origins=safe)}
                if every:
                    dumping_to |= every_pass.options(room.path, origins=safe)
                    dumping_to["xla_dump_hlo_as_proto"] = devices[0].platform == "tpu"
                self._compiled = self._timed(lowered, dumping_to)
            except Exception as error:
                if oom.is_out_of_memory(error) and self._keep_what_was_made(error, room):
                    return
                if "dump" not in str(error):
                    raise
                self._compiled = lowered.compile(compiler_options=options)
                return
            self._read_dump(room, len(devices))
            if not safe and self._optimized is not None:
                self._warn(self._optimized, provenance.CRASHES)

    def _timed(self, lowered: Any, options: dict[str, Any] | None) -> Any:
        """The program compiled with these options; how long that took is kept."""
        began = time.perf_counter()
        compiled = lowered.compile(compiler_options=options)
        self.compile_seconds = time.perf_counter() - began
        return compiled

    def _keep_what_was_made(self, error: Exception, room: dumping.DumpFolder) -> bool:
        """Takes the module that did not fit from its dump; False if there is none."""
        folder = str(room.path)
        with contextlib.suppress(OSError, CaptureError):
            text = oom.last_text(folder)
            if text is None:
                return False
            self._optimized = stages.optimized(text, self.marked, self.cells)
            dumped = provenance.buffer_assignment(folder)
            self._optimized.buffer_assignment = stages.buffer_assignment(None, dumped)
            said = oom.sentence(error, self._optimized)
            self.does_not_fit = said if self.marked is None else self.marked.clean(said)
            self._warn(self._optimized, self.does_not_fit)
            if self.options.passes:
                self._passes = every_pass.collect(folder, self.marked, self.cells)
            if self.marked is not None:
                self.dumps = self._without_marks(provenance.collect(folder))
        return bool(self.does_not_fit)

    def _read_dump(self, room: dumping.DumpFolder, device_count: int) -> None:
        folder, why_not = str(room.path), room.why_not
        cut_off = bool(why_not)
        if device_count > 1 and not cut_off:
            with contextlib.suppress(OSError):
                self.dumps = self._without_marks(provenance.collect(folder))
        self._optimized = stages.from_executable(
            self._compiled,
            lambda: None if cut_off else provenance.optimized_text(folder),
            self.marked,
            self.cells,
        )
        with contextlib.suppress(OSError):
            dumped = None if cut_off else provenance.buffer_assignment(folder)
            self._optimized.buffer_assignment = stages.buffer_assignment(self._compiled, dumped)
        if self.options.passes:
            self._passes = (
                ((), why_not) if cut_off else every_pass.collect(folder, self.marked, self.cells)
            )
        if cut_off:
            self._warn(self._optimized, why_not)

    def snapshots(self) -> tuple[tuple[Snapshot, ...], str]:
        """The program after every pass, and what is missing; compiles again if need be.

        Raises ``CaptureError`` for a program that came compiled, or when XLA cannot dump.
        """
        self.compiled  # noqa: B018  may have dumped them
        if self._passes is not None:
            return self._passes
        if self.lowered is None:
            raise CaptureError("a Compiled no longer has its passes: capture the function itself")
        options = replace(self.options, passes=True)
        again = Program(options, lowered=self.lowered, called=self.cells)
        again.__dict__["marked"] = self.marked
        again._compile()
        if again._passes is None:
            raise CaptureError("XLA wrote no dump of its passes")
        self._passes = again._passes
        return self._passes

    def _without_dump(self, why_not: str) -> None:
        if self.options.passes:
            self._passes = (), why_not
        try:
            self._optimized = stages.from_executable(
                self._compiled, lambda: None, self.marked, self.cells
            )
        except CaptureError as error:
            raise CaptureError(f"{error} ({why_not})") from error
        self._optimized.buffer_assignment = stages.buffer_assignment(self._compiled, None)
        self._warn(self._optimized, why_not)

    @staticmethod
    def _warn(module: Module, why_not: str) -> None:
        module.warnings = (*module.warnings, ReadWarning(why_not, is_note=True))

    def _clean_messages(self) -> list[str]:
        clean = str if self.marked is None else self.marked.clean
        return [self.cells.text(clean(m)) for m in self.messages]

    def _slow_to_compile(self) -> tuple[SlowToCompile, ...]:
        return tuple(
            slow_to_compile(found, self.marked, self.cells) for found in self.messages.slow
        )

    def _without_marks(self, dumps: Mapping[str, str]) -> dict[str, str]:
        clean = str if self.marked is None else self.marked.clean_dump
        return {name: self.cells.text(clean(text)) for name, text in dumps.items()}

    def _optimized_module(self) -> Module:
        compiled = self.compiled
        if self._optimized is None:
            marked = self.marked if self._lowered is not None else None
            made = stages.from_executable(compiled, self._text_by_dumping, marked, self.cells)
            if self._optimized is None:  # else dumping has made it
                made.buffer_assignment = stages.buffer_assignment(compiled, None)
                self._optimized = made
        return self._optimized

    def _text_by_dumping(self) -> str | None:
        """Compiles again with dumps: the last resort for a module that XLA cannot print."""
        if self.lowered is None:
            return None
        self._compile(dump=True)
        return self._optimized.text if self._optimized is not None else None

    def _sources(self, module: Module) -> dict[str, str]:
        files = {self.cells.file(name): name for name in module.source_frames()[0].files}
        return {files[file]: text for file, text in read_sources(files).items()}

    def module(self, stage: str) -> Module:
        if stage == "jaxpr":
            return stages.from_jaxpr(self.traced, self.cells)
        if stage == "stablehlo":
            return stages.from_stablehlo(self.lowered, self.marked, self.cells)
        if stage == "hlo":
            return stages.from_hlo(self.lowered, self.marked, self.cells)
        return self._optimized_module()

    def profile(self, args: Any, kwargs: Any, steps: int) -> Any:
        """A trace of ``steps`` runs. Raises ``CaptureError`` for arguments that are not arrays."""
        args, kwargs = calls.inner_arguments(self.options.fn, args, kwargs)
        return run_profiled(self.compiled, args, kwargs, steps)

    def run(self, args: Any, kwargs: Any, runs: int, say: Callable[[str], None]) -> Any:
        """Seconds of each of ``runs`` calls until all is done, and until the call returned."""
        args, kwargs = calls.inner_arguments(self.options.fn, args, kwargs)
        return run_timed(self.compiled, args, kwargs, runs, say)

    def compile_time(self) -> CompileTime:
        """Compiles once more, measured. Raises ``CaptureError`` for what came compiled."""
        if self.lowered is None:
            raise CaptureError("a Compiled cannot be compiled again: capture the function itself")
        # a copy of its own: jax returns what it has compiled before. Marks tell lines of alarms.
        marked = marks.mark(self.lowered, self._frames)
        if marked is None:
            raise CaptureError("measuring a compile needs jax 0.10 or newer")
        with contextlib.ExitStack() as stack:
            stack.enter_context(explained("compile", self.name, moved=self.options.moved))
            stack.enter_context(self.options.context())
            said = stack.enter_context(messages.stderr_kept())
            stack.enter_context(_compat.no_persistent_cache())
            found = measured_compile(marked.lowered, self.options.compiler_options)
        slow = tuple(slow_to_compile(text, marked, self.cells) for text in said.slow)
        return replace(found, slow=slow)

    def at(self, stage: str) -> Capture:
        """The Capture of one stage. Raises ``CaptureError`` if it is not available."""
        __tracebackhide__ = True
        if stage not in self.stages:
            what = "Compiled" if self._lowered is None else "Lowered"
            raise CaptureError(
                f"a {what} no longer has the {stage} stage: capture the function itself, "
                f"or ask for {' or '.join(self.stages)}"
            )
        module = self.module(stage)
        optimized = stage == "optimized"
        target = describe(
            traced=self.traced,
            lowered=self.lowered,
            compiled=self.compiled if optimized else None,
            module=module,
            fn=self.options.fn,
            messages=self._clean_messages() if optimized else (),
            sources=self._sources(module),
            dumps=self.dumps if optimized else {},
        )
        if optimized:
            slow = self._slow_to_compile()
            target = replace(
                target,
                slow_to_compile=slow,
                compile_seconds=self.compile_seconds,
                unmet_names=unmet_names(self.traced, self.cells),
            )
        title = self.options.title
        if optimized and self.does_not_fit:
            title = f"{title or module.name}: {self.does_not_fit.partition(': ')[0]}"
        record = None
        if optimized:
            kept = self._passes is not None
            record = PassRecord(self.snapshots, is_kept=self.options.passes, compiles=not kept)
        found = Capture(module, target, title=title, stage=stage, program=self, passes=record)
        found.does_not_fit = self.does_not_fit if optimized else ""
        found.hardware = self.options.hardware
        return found
