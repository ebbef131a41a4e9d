"""Bytes, text, a file or a folder → ``hlo.Module``.

    source ─▶ bytes ─▶ unwrap gzip ─▶ the first reader of READERS that accepts them ─▶ Modules
                  └▶ a folder: choose one file by module and stage, then the same

Readers tell formats apart by content, never by file name. Adding one is one file and one
line in READERS. Nothing but ``ReadError`` leaves this folder.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..hlo import Module, ReadWarning
from . import dump_directory, gzipped, mlir_bytecode, proto, stablehlo_text
from .decode import to_text
from .entries import ModuleEntry, choose_module
from .errors import ReadError
from .hlo_text import read_hlo_text
from .xplane import find_traces, is_trace, trace_modules

if TYPE_CHECKING:
    from .._capture import Capture

__all__ = ["ModuleEntry", "ReadError", "list_modules", "read", "read_modules"]

Source = str | bytes | bytearray | memoryview | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Reader:
    """``accepts`` looks at the content; ``read`` gets all of it and a name for messages.

    ``sure``: what it accepts is nothing else, so that its refusal is the answer.
    """

    name: str
    accepts: Callable[[bytes], bool]
    read: Callable[[bytes, str], list[Module]]
    sure: bool = False


def _read_hlo(data: bytes, name: str) -> list[Module]:
    text, warnings = to_text(data)
    modules = read_hlo_text(text, warnings)
    # Prose and source code may hold lines that look like computations and instructions.
    named = _HEADER.search(text) is not None
    return [m for m in modules if named or any(i.shape.is_array for i in m.instructions)]


_HEADER = re.compile(r"\bHloModule\s+\S")


def _read_stablehlo(data: bytes, name: str) -> list[Module]:
    text, warnings = to_text(data)
    return [stablehlo_text.read_stablehlo(text, warnings)]


READERS: tuple[Reader, ...] = (
    Reader("profiler trace", is_trace, trace_modules, sure=True),
    Reader("HLO proto", proto.is_proto, lambda d, name: [proto.read_proto(d, name)]),
    Reader("StableHLO bytecode", mlir_bytecode.is_bytecode, mlir_bytecode.read_bytecode),
    Reader("StableHLO text", stablehlo_text.is_stablehlo, _read_stablehlo),
    Reader("HLO text", lambda d: True, _read_hlo),
)


def read(
    source: Source,
    *,
    module: str | int | None = None,
    stage: str | None = None,
    profile: str | os.PathLike[str] | None = None,
    hardware: str | None = None,
) -> Capture:
    """Reads a dump: a path, a folder of ``xla_dump_to``, bytes, or HLO or StableHLO text.

    ``module`` chooses among several by name or index, ``stage`` one of a folder's stages
    (``before_optimizations``, a pass name, ``after_optimizations``); by default the
    largest module at its last stage. ``profile`` is a profiler trace (``….xplane.pb``, or a
    folder such as XProf's) whose times are joined to the instructions; a trace is also a
    source itself, by the HLO that it carries. ``hardware`` is the id of a chip to model time
    on, such as "tpu-v5e": a dump does not say what it is for. Raises ``ReadError``, and
    ``HardwareError`` for a chip nobody knows.

        >>> read("module_0001.jit_step.cpu_after_optimizations.txt")
        >>> read("/tmp/dump", module="jit_step", stage="spmd-partitioning")
        >>> read("/tmp/dump", profile="/tmp/trace")
    """
    from .._capture import Capture

    if hardware is not None:
        from ..hardware import find

        hardware = find(hardware).id  # wrong ids are told before minutes of reading
    data, origin, path = _load(source)
    note = found_stage = ""
    if path is not None and path.is_dir():
        entries = dump_directory.list_directory(path)
        entry, note = dump_directory.choose_entry(entries, module, stage, str(path))
        assert entry.path is not None
        data, origin, found_stage = _bytes_of(entry.path), entry.path.name, entry.stage
        module = None
    elif stage is not None:
        raise ReadError("stage= chooses among the files of a dump folder; this is one module")
    modules = read_modules(data, origin)
    timed = isinstance(data, bytes) and is_trace(data)
    if timed and module is None:
        module = 0  # the one with most measured time
    chosen = choose_module(modules, module, origin or "the text")
    if note:
        chosen.warnings += (ReadWarning(note),)
    found = Capture(chosen, origin=origin, stage=_stage(chosen, found_stage))
    found.hardware = hardware
    if profile is not None:
        found.add_profile(Path(profile))
    elif timed:
        assert isinstance(data, bytes)
        with contextlib.suppress(ReadError):  # a module that did not run while it was traced
            found.add_profile(data if path is None else _all_hosts(source, path))
    return found


def read_modules(data: bytes | str, name: str = "") -> list[Module]:
    """Every module in the data, in order. Raises ``ReadError`` when there is none."""
    warnings: list[ReadWarning] = []
    if isinstance(data, str):
        data = data.encode("utf-8", errors="surrogatepass")
    collecting = gc.isenabled()
    gc.disable()  # a reader makes a million objects and no garbage: collecting costs a third
    try:
        for _ in range(3):  # a .gz of a .gz happens
            if not gzipped.is_gzip(data):
                break
            data, found = gzipped.unwrap(data, name)
            warnings += found
        modules = _first_reader(data, name)
    except ReadError:
        raise
    except Exception as e:  # a reader's own mistake must not look like the person's
        what = f"{type(e).__name__}: {e}"[:200]
        raise ReadError(f"{name or 'the data'} could not be read ({what})") from e
    finally:
        if collecting:
            gc.enable()
    for m in modules:
        m.warnings = (*warnings, *m.warnings)
    return modules


def _first_reader(data: bytes, name: str) -> list[Module]:
    refusals = []
    for reader in READERS:
        if not reader.accepts(data):
            continue
        try:
            modules = reader.read(data, name)
        except ReadError as e:
            if reader.sure:
                raise
            refusals.append(str(e))
            continue
        if modules:
            return modules
    if refusals:
        raise ReadError(refusals[0])
    what = "is empty" if not data.strip() else "holds no HLO module"
    raise ReadError(
        f"{name or 'the text'} {what}; expected HLO text with a line 'HloModule …', an "
        "HloProto, StableHLO text or bytecode, any of them gzip'd, or a folder of xla_dump_to"
    )


def list_modules(source: Source) -> tuple[ModuleEntry, ...]:
    """What ``read`` can choose from: the modules of a file, or a folder's at every stage.

    Raises ``ReadError``.
    """
    data, origin, path = _load(source)
    if path is not None and path.is_dir():
        return dump_directory.list_directory(path)
    return tuple(
        ModuleEntry(m.name, k, "", path, len(m.instructions))
        for k, m in enumerate(read_modules(data, origin))
    )


_LOOKS_LIKE_TEXT = re.compile(r"\n|HloModule|^\s*module @|func\.func|^\s*ENTRY\b")


def _load(source: Source) -> tuple[bytes | str, str, Path | None]:
    """(content, name for messages, path): empty content for a folder."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source), "", None
    if isinstance(source, str) and _LOOKS_LIKE_TEXT.search(source):
        return source, "", None
    if not isinstance(source, (str, os.PathLike)):
        raise ReadError(f"cannot read a {type(source).__name__}; give a path, bytes or HLO text")
    try:
        path = Path(source).expanduser()
        if path.is_dir():
            inside = _trace_inside(path)
            return (b"", path.name, path) if inside is None else _load(inside)
    except (OSError, ValueError, RuntimeError) as e:
        raise ReadError(f"not a path: {str(source)[:80]!r} ({e})") from None
    return _bytes_of(path), path.name, path


def _trace_inside(folder: Path) -> Path | None:
    """A trace of a folder's newest run, such as XProf's; None where there are dumps."""
    try:
        dump_directory.list_directory(folder)
    except ReadError:
        with contextlib.suppress(ReadError):
            return find_traces(folder)[0]
    return None


def _all_hosts(source: Source, file: Path) -> Path:
    """The folder of traces that was asked for, not the one file that its HLO came from."""
    asked = Path(source).expanduser() if isinstance(source, (str, os.PathLike)) else file
    return asked if asked.is_dir() else file


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ReadError(f"there is no file {str(path)[:300]!r}") from None
    except (OSError, ValueError) as e:
        reason = getattr(e, "strerror", None) or e
        raise ReadError(f"cannot read {str(path)[:300]!r}: {reason}") from None


def _stage(module: Module, stage: str) -> str:
    """What to call the stage: a dump's own word, else what the module looks like."""
    if stage:
        return stage
    if module.dialect != "hlo":
        return module.dialect
    optimized = module.is_scheduled or any(i.opcode == "fusion" for i in module.instructions)
    return "optimized" if optimized else "hlo"
