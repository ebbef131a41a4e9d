"""An ``xla_dump_to`` directory: which modules and stages it holds, by file name.

    module_0002.jit_f.before_optimizations.txt
    module_0002.jit_f.0007.spmd-partitioner.after_spmd-partitioning.before_dce.hlo.pb
    module_0002.jit_f.cpu_after_optimizations.txt
           │    │     └ stage                                              └ text or proto
           │    └ module name (may hold dots)
           └ number

With ``xla_dump_include_timestamp``, microseconds and a dot come before each name.
Directories of other files work too: each ``.hlo``, ``.txt``, ``.pb``, ``.mlir`` is a module.
"""

from __future__ import annotations

import re
from pathlib import Path

from ..entries import ModuleEntry, suggest
from ..errors import ReadError

_NAME = re.compile(
    r"(?:(?P<time>\d{10,20})\.)?module_(?P<number>\d{1,9})\.(?P<name>.+?)\."
    r"(?P<stage>before_optimizations|(?:[a-zA-Z][\w\-.]*_)?after_optimizations"
    r"|\d{4,6}\.[^/]*?\.?after_[^/]*?)"
    r"\.(?P<kind>txt|hlo|pb|hlo\.txt|hlo\.pb)(?:\.gz)?\Z",
    re.S,  # a module's name may contain anything
)
_PLAIN = re.compile(r".+\.(?:txt|hlo|pb|mlir|mlirbc|stablehlo)(?:\.gz)?\Z", re.S)
_PASS = re.compile(r"(\d{4,6})\.(.*)", re.S)
MAX_FILES = 200_000


def list_directory(path: Path) -> tuple[ModuleEntry, ...]:
    """Every module at every stage, in order of compilation. Raises ``ReadError`` when none."""
    try:
        names = sorted(p.name for p in path.iterdir() if p.is_file())[:MAX_FILES]
    except OSError as e:
        raise ReadError(f"cannot list {path}: {e.strerror or e}") from None
    found: dict[tuple[int, str, str], ModuleEntry] = {}
    for name in names:
        entry = entry_of(path / name)
        if entry is None:
            continue
        key = (entry.index, entry.name, entry.stage)
        if key in found and not name.removesuffix(".gz").endswith("txt"):
            continue  # where a stage is there as text and as proto, the text says more
        found[key] = entry
    if not found:
        plain = [n for n in names if _PLAIN.fullmatch(n)]
        entries = [ModuleEntry(n.split(".")[0], k, "", path / n) for k, n in enumerate(plain)]
        if not entries:
            raise ReadError(
                f"{path} holds no HLO dump; point to what xla_dump_to wrote, or to one file"
            )
        return tuple(entries)
    return tuple(sorted(found.values(), key=lambda e: (e.index, e.name, _order(e.stage))))


def entry_of(file: Path) -> ModuleEntry | None:
    """What a file of an ``xla_dump_to`` directory holds, by its name; None for other names."""
    m = _NAME.fullmatch(file.name)
    return ModuleEntry(m["name"], int(m["number"]), m["stage"], file) if m else None


def _order(stage: str) -> tuple[int, int, str]:
    """Before optimizations, passes by number, after optimizations."""
    m = _PASS.fullmatch(stage)
    if m:
        return (1, int(m[1]), stage)
    return (0 if stage.startswith("before") else 2, 0, stage)


def choose_entry(
    entries: tuple[ModuleEntry, ...], module: str | int | None, stage: str | None, where: str
) -> tuple[ModuleEntry, str]:
    """One entry, and a note where the choice was made by default ('' when there was none).

    By default the last stage of the module with the largest file.
    """
    note = ""
    if isinstance(module, int):
        mine = [e for e in entries if e.index == module]
        if not mine:
            numbers = ", ".join(map(str, dict.fromkeys(e.index for e in entries)))
            raise ReadError(f"{where} holds no module number {module}; it holds {numbers[:200]}")
    elif module is not None:
        mine = [e for e in entries if e.name == module]
        if not mine:
            raise ReadError(f"{where} holds no module {module!r}{suggest(module, entries)}")
    else:
        mine = list(entries)
    if stage is not None:
        mine = _at_stage(mine, stage, where)
    last: dict[tuple[str, int], ModuleEntry] = {}
    for e in mine:
        last[(e.name, e.index)] = e
    candidates = list(last.values())
    if module is None and not any(e.stage for e in candidates):
        chosen = max(candidates, key=_size)
    elif module is None:
        chosen = max(candidates, key=lambda e: (_size(e), e.index))
    else:
        chosen = candidates[-1]
    if len(candidates) > 1:
        others = ", ".join(f"{e.name} ({e.index})" for e in candidates[:20])
        note = f"{chosen.name} ({chosen.index}) was taken; choose with module=: {others}"
    return chosen, note


def _size(entry: ModuleEntry) -> int:
    try:
        return entry.path.stat().st_size if entry.path else 0
    except OSError:
        return 0


def _at_stage(entries: list[ModuleEntry], stage: str, where: str) -> list[ModuleEntry]:
    """Entries of a stage: its whole name, its end (``after_optimizations``), or a pass in it."""
    wanted = {"optimized": "after_optimizations", "hlo": "before_optimizations"}.get(stage, stage)
    tests = (
        lambda e: e.stage == wanted,
        lambda e: e.stage.endswith(wanted) and not _PASS.match(e.stage),
        lambda e: f".after_{wanted}." in e.stage + ".",
        lambda e: wanted in e.stage,
    )
    for test in tests:
        found = [e for e in entries if test(e)]
        if found:
            return found
    stages = list(dict.fromkeys(e.stage for e in entries if e.stage))
    from difflib import get_close_matches

    close = get_close_matches(stage, stages, 1, 0.4)
    mean = f"; did you mean {close[0]!r}?" if close else ";"
    more = ", …" if len(stages) > 60 else ""
    listed = ", ".join(stages[:60]) or "no stages"
    raise ReadError(f"{where} holds no stage {stage!r}{mean} it holds {listed}{more}")
