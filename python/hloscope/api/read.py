"""``read``: a dump → Capture."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..hlo import Module, ReadWarning, Target
from ..processes.limits import LimitReached, within_limits
from ..readers import ReadError, read_modules
from ..readers.entries import ModuleEntry, choose_module
from ..readers.files import archives, dump_directory
from ..readers.files.pass_dump import LAST, pass_of
from ..readers.files.python_sources import sources_as_dumped
from ..readers.files.sources import Source, bytes_of, load
from ..readers.recognise import is_trace
from .capture import Capture, PassRecord

if TYPE_CHECKING:
    from ..hlo.snapshots import Snapshot, TimedPass
    from ..readers.xplane.xplane import Trace


class StageLogGiven(ReadError):
    """The file is a planner's log of pipeline stages, which ``read_stage_log`` reads."""


def read(
    source: Source,
    *,
    module: str | int | None = None,
    stage: str | None = None,
    profile: str | os.PathLike[str] | None = None,
    hardware: str | None = None,
    sources: bool = True,
) -> Capture:
    """Reads a dump: a path, a folder of ``xla_dump_to`` (or a tar or zip file of one), bytes, or
    HLO or StableHLO text.

    ``module`` chooses among several by name or index, ``stage`` one of a folder's stages
    (``before_optimizations``, a pass name, ``after_optimizations``); the default is the largest
    module at its last stage, or with a profile the one that took the most time. ``profile`` is a
    profiler trace (``….xplane.pb``, or a folder such as XProf's) whose times are joined to the
    instructions; a trace can be the source itself too, for the HLO it carries. ``hardware`` is
    the id of a chip to model time on, such as "tpu-v5e": a dump does not name its chip.
    Python files that the dump names are read too, so that boxes and lines show their code, if the
    dump's functions are where it says in them; not with ``sources=False``.
    Raises ``ReadError``, and ``HardwareError`` for an unknown chip. Reading that takes over 6 GiB
    or 180 s of CPU time is given up, with what was reached; ``HLOSCOPE_MAX_GIB`` and
    ``HLOSCOPE_MAX_SECONDS`` are other limits.

    The log of Alpa's automatic stage construction is not a program: see ``read_stage_log``.

        >>> read("module_0001.jit_step.cpu_after_optimizations.txt")
        >>> read("/tmp/dump", module="jit_step", stage="spmd-partitioning")
        >>> read("/tmp/dump", profile="/tmp/trace")
    """
    if hardware is not None:
        from ..hardware import find

        hardware = find(hardware).id  # report a wrong id before minutes of reading
    try:
        with within_limits(f"reading {_named(source)}"):
            return _read(source, module, stage, profile, hardware, sources)
    except LimitReached as error:
        raise ReadError(str(error)) from None


def _named(source: Source) -> str:
    """The file's name, for messages."""
    is_path = isinstance(source, os.PathLike) or (isinstance(source, str) and len(source) < 1000)
    return os.path.basename(os.fspath(source)) if is_path else "this"  # type: ignore[arg-type]


def _read(
    source: Source,
    module: str | int | None,
    stage: str | None,
    profile: str | os.PathLike[str] | None,
    hardware: str | None,
    sources: bool,
) -> Capture:
    data, origin, path = load(source)
    if _is_stage_log(data):
        raise StageLogGiven(
            f"{origin or 'the text'} is a log of pipeline stages, not a program: "
            "hs.read_stage_log reads it, hloscope stages shows it"
        )
    trace = None
    if profile is not None:
        from ..readers.xplane.xplane import read_trace

        trace = read_trace(Path(profile))
    note = found_stage = ""
    folder: Callable[[], tuple[tuple[Snapshot, ...], str]] | None = None
    times: Callable[[], tuple[TimedPass, ...]] | None = None
    if path is not None and path.is_dir():
        entries, entry, note, data = _of_folder(path, module, stage, trace)
        origin, found_stage = entry.path.name if entry.path else "", entry.stage
        module = None
        of_module = [e for e in entries if (e.index, e.name) == (entry.index, entry.name)]
        if any(e.stage[:1].isdigit() for e in of_module):
            folder = partial(_passes, path, entry.index, entry.name)
            times = partial(_times, path, entry.index)
    elif stage is not None:
        raise ReadError("stage= chooses among the files of a dump folder; this is one module")
    modules = read_modules(data, origin)
    timed = isinstance(data, bytes) and is_trace(data)
    if timed and module is None:
        module = 0  # the one with the most measured time
    elif module is None and len(modules) > 1:
        module = _most_measured(trace, (m.name for m in modules))
    chosen = choose_module(modules, module, origin or "the text")
    told = (note, *archives.notes(path)) if path is not None else (note,)
    chosen.warnings += tuple(ReadWarning(n, is_note=True) for n in told if n)
    record = None
    if folder is not None:
        step = pass_of(found_stage)
        number = step[0] if step is not None and step[2] != LAST else None
        record = PassRecord(folder, number=number, times=times)
    code = sources_as_dumped(chosen.frames) if sources else {}
    target = Target(sources=code) if code else None
    stage = _stage(chosen, found_stage)
    found = Capture(chosen, target, file=origin, stage=stage, passes=record)
    found.hardware = hardware
    if trace is not None:
        found._join_trace(trace)
    elif timed:
        assert isinstance(data, bytes)
        with contextlib.suppress(ReadError):  # a module that did not run while it was traced
            found.add_profile(data if path is None else _all_hosts(source, path))
    return found


def _of_folder(
    path: Path, module: str | int | None, stage: str | None, trace: Trace | None
) -> tuple[tuple[ModuleEntry, ...], ModuleEntry, str, bytes]:
    """The files of a dump folder, the one to read, why it was chosen, and its content.

    Somebody else may be writing to the folder and clearing it: a file that is gone when it is
    opened is not there, and the choice is made again.
    """
    for tries_left in range(9, -1, -1):
        entries = dump_directory.list_directory(path)
        timed_name = _most_measured(trace, (e.name for e in entries)) if module is None else None
        entry, note = dump_directory.choose_entry(
            entries, module if timed_name is None else timed_name, stage, str(path)
        )
        if timed_name is not None and len({(e.index, e.name) for e in entries}) > 1:
            note = (
                f"{entry.name} ({entry.index}) was taken, which has most time in the trace; "
                "choose with module=, see read_programs"
            )
        assert entry.path is not None
        try:
            return entries, entry, note, bytes_of(entry.path)
        except ReadError:
            if not tries_left or entry.path.exists():
                raise
    raise AssertionError


def _most_measured(trace: Trace | None, names: Iterable[str]) -> str | None:
    """The name with the most time in a trace; None where the trace has none of them."""
    seconds: dict[str, float] = {}
    for o in trace.ops if trace is not None else ():
        if not o.beside:
            own = o.seconds if o.self_seconds is None else o.self_seconds
            seconds[o.module] = seconds.get(o.module, 0.0) + own
    known = [n for n in dict.fromkeys(names) if seconds.get(n)]
    return max(known, key=lambda n: seconds[n]) if known else None


def _is_stage_log(data: bytes | str) -> bool:
    """Whether the text holds the log of a planner and no HLO."""
    rows, head = "ModuleProfileResult(", "HloModule"
    raw = isinstance(data, bytes)
    if (rows.encode() if raw else rows) not in data:  # type: ignore[operator]
        return False
    if (head.encode() if raw else head) in data:  # type: ignore[operator]
        return False
    from ..readers.alpa_log import is_stage_log
    from ..readers.files.decode import to_text

    return is_stage_log(to_text(data)[0] if isinstance(data, bytes) else data)


def _all_hosts(source: Source, file: Path) -> Path:
    """The requested trace folder, not the one file that its HLO came from."""
    asked = Path(source).expanduser() if isinstance(source, (str, os.PathLike)) else file
    return asked if asked.is_dir() else file


def _stage(module: Module, stage: str) -> str:
    """What to call the stage: a dump's own word, else what the module looks like."""
    if stage:
        return stage
    if module.dialect != "hlo":
        return module.dialect
    optimized = module.is_scheduled or any(i.opcode == "fusion" for i in module.instructions)
    return "optimized" if optimized else "hlo"


def _passes(folder: Path, number: int, name: str) -> tuple[tuple[Snapshot, ...], str]:
    from ..readers.files.pass_dump import read_passes

    return read_passes(folder, number, name), ""


def _times(folder: Path, number: int) -> tuple[TimedPass, ...]:
    from ..readers.files.pass_times import read_times

    return read_times(folder, number)
