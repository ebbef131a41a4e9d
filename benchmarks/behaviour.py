"""Everything that a user sees of many programs, recorded, and what differs between two records.

    python benchmarks/behaviour.py record OUT FOLDER … [--limit 300]
    python benchmarks/behaviour.py compare BEFORE AFTER [--examples 3] [--programs]

``record`` writes one sorted JSON text per program to ``OUT/NAME.json.gz``: section → entry →
text. It asks public functions only, so the same script records another checkout:

    PYTHONPATH=/tmp/before/python python benchmarks/behaviour.py record /tmp/before.record …

FOLDER holds dumps (``.hlo``, ``.hlo.gz``, ``.txt``) and what tests keep: captures
(``.capture.gz``) and dumps of every pass (``.dump.xz``, ``.marked.xz``), which that checkout's
own ``tests/python/kept_*.py`` reads. What is recorded already is kept.

``compare`` counts by section how many entries of how many programs differ, with examples, and
prints the layers that ``layer_truth.py`` finds right in both.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import multiprocessing
import os
import struct
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

DUMPS = (".hlo", ".hlo.gz", ".txt")
KEPT = (".capture.gz", ".dump.xz", ".marked.xz")
CHIPS = ("tpu-v5e", "h100", "cpu")
LONGEST = 2000  # characters of an entry; of longer ones the digest is kept as well
DTYPES = {"u8": "<u1", "u16": "<u2", "u32": "<u4", "i32": "<i4", "f32": "<f4", "f64": "<f8"}

Section = dict[str, str]
Record = dict[str, Section]


# ---------------------------------------------------------------- record


def programs(path: Path) -> Iterator[tuple[str, Callable[[Path], Any]]]:
    """Name and reader of each program of a file; a reader gets an empty folder to unpack in."""
    import hloscope as hs

    if path.name.endswith(".capture.gz"):
        yield path.name.removesuffix(".gz"), lambda _: _tests("kept_captures").load(path)
    elif path.name.endswith(".xz"):
        kept = _tests("kept_passes")
        for name, made in kept.parsed(path).items():
            stem = f"{path.name.removesuffix('.xz')}.{name}"
            if path.name.endswith(".dump.xz"):
                yield stem, lambda folder, made=made: hs.read(kept.unpack(made, folder / "dump"))
            else:
                yield stem, lambda _, made=made: kept.load(made)
    elif path.name.endswith(DUMPS):
        yield path.name.removesuffix(".gz"), lambda _: hs.read(path)


def _repository() -> Path:
    """The checkout that hloscope is imported from."""
    import hloscope as hs

    return Path(hs.__file__).resolve().parents[2]


def _tests(name: str) -> Any:
    """A module of that checkout's tests."""
    from importlib import import_module

    found = next((_repository() / "tests").rglob(f"{name}.py"))
    if str(found.parent) not in sys.path:
        sys.path.insert(0, str(found.parent))
    return import_module(name)


def record(read: Callable[[Path], Any]) -> Record:
    """Every section of one program; a section that fails holds its error."""
    out: Record = {}
    clock = time.process_time
    began = clock()
    with tempfile.TemporaryDirectory() as folder:
        try:
            cap = read(Path(folder))
        except Exception as error:
            return {"reading": {"error": f"{type(error).__name__}: {error}"}}
        seconds = {"read": f"{clock() - began:.3f}"}
        if not hasattr(cap, "module"):  # a log of something else
            return {"reading": {"text": str(cap)}}
        began = clock()
        _try(out, "view", lambda: {"bytes": str(bool(_block(cap, "view")))})
        seconds["view"] = f"{clock() - began:.3f}"
        if cap.module.dialect == "hlo" and cap.hardware is None:
            cap.hardware = CHIPS[0]
        for name, section in SECTIONS.items():
            _try(out, name, lambda section=section: section(cap))
        try:
            for name, found in _view(cap):
                out.setdefault(name, {}).update(found)
        except Exception as error:
            out["view"] = {"error": f"{type(error).__name__}: {error}"}
    seconds["all"] = f"{clock() - began:.3f}"
    out["seconds"] = seconds
    return out


def _ask(cap: Any, question: str) -> Any:
    """An answer, a method or (in earlier checkouts) an attribute of a capture."""
    found = getattr(cap, question)
    return found() if callable(found) else found


def _block(cap: Any, name: str) -> bytes:
    """A block that hosts send; in earlier checkouts an attribute of the capture."""
    if hasattr(cap, f"{name}_bytes"):
        found = getattr(cap, f"{name}_bytes")
        return bytes(found() if callable(found) else found)
    from hloscope.show import blocks

    return bytes(getattr(blocks, name)(cap))


def _try(out: Record, name: str, section: Callable[[], Section]) -> None:
    try:
        out[name] = {k: str(v) for k, v in section().items()}
    except Exception as error:
        out[name] = {"error": f"{type(error).__name__}: {error}"}


def _short(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}… {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Each value of nested JSON with its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple) and any(isinstance(v, dict | list) for v in value):
        for n, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{n}]")
    else:
        yield path, _plain(value)


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(_plain, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _lines(text: str) -> Section:
    """Lines by what they begin with, so that one changed line is one changed entry."""
    counts: Counter[str] = Counter()
    out = {}
    for line in text.splitlines():
        head = " ".join(line.split()[:2])
        counts[head] += 1
        out[f"{head} #{counts[head]}"] = line
    return out


def _reading(cap: Any) -> Section:
    text = cap.text
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return {
        "text": f"{len(text)} characters {digest}",
        "dialect": cap.module.dialect,
        "title": cap.title,
        "stage": cap.stage,
        **{f"warning {n}": w for n, w in enumerate(cap.warnings)},
    }


def _cost(cap: Any) -> Section:
    out: Section = {}
    for chip in CHIPS:
        found = cap.cost(chip)
        out |= {f"{chip}: {k}": v for k, v in _lines(str(found)).items()}
        plain = {k: v for k, v in found.to_dict().items() if k != "rows"}
        if isinstance(plain, dict):
            out |= {f"{chip}.{k}": v for k, v in _leaves(plain)}
    return out


def _memory(cap: Any) -> Section:
    found = _ask(cap, "memory")
    totals = {k: v for k, v in found.to_dict().items() if k != "rows"}
    return dict(_leaves(totals)) | _lines(str(found)) | {
        "donations": str([str(d) for d in found.donations]),
        "loops": str([str(x) for x in found.loops]),
        "residuals": str([str(x) for x in found.residuals]),
        "copies of parameters": str([str(x) for x in found.parameter_copies]),
    }  # fmt: skip


def _findings(cap: Any) -> Section:
    found = _ask(cap, "findings")
    out = {"table": str(found)}
    for n, finding in enumerate(found):
        out[f"{getattr(finding, 'rule', '')} {n}"] = str(finding)
    return out


def _check(cap: Any) -> Section:
    import hloscope as hs

    limits: dict[str, dict[str, Any]] = {
        "peak": {"max_peak": "1MiB"},
        "wire": {"max_wire_bytes": 1},
        "forbid": {"forbid": ["all-gather", "all-reduce", "f32", "findings", "host-transfer"]},
        "instructions": {"max_instructions": 10},
        "donation": {"require_donation": True},
    }
    return {name: str(hs.check(cap, **limit)) for name, limit in limits.items()}


def _origins(cap: Any) -> Section:
    if cap.module.origins is None and not cap.has_passes:
        return {}
    return {i.name: str(cap.origins(i)) for i in cap.module.instructions}


def _fates(cap: Any) -> Section:
    if cap.module.origins is None and not cap.has_passes:
        return {}
    return {
        f"operation {n}": str(getattr(cap, "fate", cap.fates)(n))
        for n in range(len(_ask(cap, "fates").rows))
    }


def _passes(cap: Any) -> Section:
    if not cap.has_passes:
        return {}
    out = {"table": str(_ask(cap, "passes"))}
    for n, row in enumerate(_ask(cap, "passes")):
        out[f"{n}"] = str(row)
    return out


def _diff(cap: Any) -> Section:
    """The program beside itself on another chip's terms is equal: a small check of diff."""
    import hloscope as hs

    return {"with itself": str(hs.diff(cap, cap))}


def _stages(cap: Any) -> Section:
    header, columns = decode(_block(cap, "stages"))
    texts = columns["strings"]
    out = dict(_leaves({k: v for k, v in header.items() if k != "columns"}))
    sentences = columns.get("place.told", ())
    for line, sentence in zip(columns.get("place.line", ()), sentences, strict=True):
        if sentence:
            out[f"place {line}: {len(out)}"] = texts[sentence]
    return out


def _layers(cap: Any) -> Section:
    """What ``layer_truth.py`` of the same checkout says of the groups."""
    sys.path.insert(0, str(_repository() / "benchmarks"))
    from hloscope.analysis.grouping.folds import folds
    from hloscope.analysis.grouping.groups import group_tree
    from layer_truth import judge, stacks

    tree = group_tree(cap.module, cap.target)
    folded = folds(cap.module, tree)
    out: Section = {}
    for stack in stacks(cap.module):
        key = f"{stack.name} ×{stack.count}"
        while key in out:
            key += "'"
        out[key] = judge(cap.module, stack, tree, folded) or "right"
    return out


SECTIONS: dict[str, Callable[[Any], Section]] = {
    "reading": _reading,
    "printed": lambda cap: _lines(repr(cap)),
    "summary": lambda cap: dict(_leaves(_ask(cap, "summary"))),
    "collectives": lambda cap: _lines(str(_ask(cap, "collectives"))),
    "why": lambda cap: {c.name: cap.why(c) for c in _ask(cap, "collectives")},
    "shardings": lambda cap: _lines(str(_ask(cap, "shardings"))),
    "cost": _cost,
    "memory": _memory,
    "findings": _findings,
    "source": lambda cap: _lines(str(_ask(cap, "source"))),
    "check": _check,
    "diff": _diff,
    "origins": _origins,
    "fates": _fates,
    "passes": _passes,
    "stages": _stages,
    "layers": _layers,
}


# ---------------------------------------------------------------- the View


def decode(block: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and columns of a block, as docs/view.md describes them; "strings" are texts."""
    import numpy as np

    raw = gzip.decompress(block)
    _, size = struct.unpack("<II", raw[4:12])
    header = json.loads(raw[12 : 12 + size])
    start = -(-(12 + size) // 8) * 8
    columns: dict[str, Any] = {
        name: np.frombuffer(raw, DTYPES[spec["dtype"]], spec["length"], start + spec["offset"])
        for name, spec in header["columns"].items()
    }
    data = columns.pop("strings.bytes").tobytes()
    at = columns.pop("strings.offsets").tolist()
    return header, {k: v.tolist() for k, v in columns.items()} | {
        "strings": [data[a:b].decode() for a, b in pairwise(at)]
    }


# Columns that number rows of another table: shown by that table's names.
_INSTRUCTION = frozenset(
    """group.owner collective.instruction collective.anchor buffer.instruction array.instruction
    memory.schedule transfer.start transfer.done timeline.instruction trace.instruction
    computation.root source.via transition.source transition.target move.start move.end
    move.source""".split()
)
# Tables of which nothing but a number says which row is which: shown by their order.
_OF_INSTRUCTIONS = ("instruction", "cost", "phase", "source", "measured", "own", "diff")
# What a section is called, by table of the View.
_SECTION = {
    "instruction": "labels", "group": "groups", "fold": "folds", "cost": "cost rows",
    "phase": "phases", "source": "source rows", "buffer": "buffers", "timeline": "timeline",
    "collective": "collective rows", "memory": "buffers", "gap": "buffers",
}  # fmt: skip
# One row a point of time or a byte: kept as one digest and the total.
_WHOLE = ("memory", "timeline", "traffic", "sharding_place", "operand", "control", "called")
# Peak figures of every chip, the same for all programs.
_LEFT_OUT = ("cost.hardware", "findings.unasked")


def _view(cap: Any) -> Iterator[tuple[str, Section]]:
    """The tables of the View and its analyses, with names where a column holds numbers of rows."""
    header, columns = decode(_block(cap, "view"))
    names = [columns["strings"][n] for n in columns["instruction.name"]]
    paths = _paths(columns)
    yield "counts", dict(_leaves(header["counts"]))
    yield "groups", _groups(columns, paths, names)
    yield (
        "group of",
        {n: paths[g] for n, g in zip(names, columns["instruction.group"], strict=True)},
    )
    yield "folds", _folds(columns, paths)
    skipped = {"instruction.group", "instruction.name"}
    yield from _tables(header, columns, names, skipped, ("group", "fold"))
    if cap.module.dialect == "hlo":
        more, added = decode(_block(cap, "analyses"))
        yield "warnings", dict(_leaves(more["warnings"]))
        for extra, found in more["extras"].items():
            leaves = _leaves(found, extra)
            yield f"extras: {extra}", {k: v for k, v in leaves if not k.startswith(_LEFT_OUT)}
        yield from _tables(more, added, names, set(), ())


def _tables(
    header: dict[str, Any], columns: dict[str, Any], names: list[str],
    skipped: set[str], without: Iterable[str],
) -> Iterator[tuple[str, Section]]:  # fmt: skip
    texts = columns["strings"]
    tables: dict[tuple[str, int], dict[str, list[str]]] = defaultdict(dict)
    for name, spec in header["columns"].items():
        table, _, column = name.partition(".")
        if name not in columns or name in skipped or table in without or table == "strings":
            continue
        values = columns[name]
        if spec.get("text") or name in ("frame.file", "frame.function"):
            shown = [texts[v] for v in values]
        elif name in _INSTRUCTION:
            shown = [names[v] if v >= 0 else "" for v in values]
        else:
            shown = [_plain(v) for v in values]
        tables[table, len(values)][column] = shown
    for (table, count), found in tables.items():
        section = _SECTION.get(table, f"table {table}")
        if table in _WHOLE:
            body = json.dumps(found, sort_keys=True).encode()
            digest = hashlib.sha256(body).hexdigest()[:12]
            yield section, {f"{table} ({count} rows)": digest}
            continue
        of_instructions = table in _OF_INSTRUCTIONS and count == len(names)
        rows: Section = {}
        for n in range(count):
            row = " ".join(f"{c}={v[n]}" for c, v in sorted(found.items()) if v[n] not in ("", "0"))
            rows[names[n] if of_instructions else f"{table} {n}"] = row
        yield section, rows


def _paths(columns: dict[str, Any]) -> list[str]:
    """The labels from the root to each group; equal siblings are numbered."""
    texts, paths = columns["strings"], []
    seen: Counter[str] = Counter()
    for parent, label in zip(columns["group.parent"], columns["group.label"], strict=True):
        path = f"{paths[parent]} ▸ {texts[label]}" if parent >= 0 else texts[label]
        seen[path] += 1
        paths.append(f"{path}#{seen[path]}" if seen[path] > 1 else path)
    return paths


def _groups(columns: dict[str, Any], paths: list[str], names: list[str]) -> Section:
    members: dict[int, list[str]] = defaultdict(list)
    for name, group in zip(names, columns["instruction.group"], strict=True):
        members[group].append(name)
    return {
        path: (
            f"kind={columns['group.kind'][g]} size={columns['group.size'][g]}"
            f" order={columns['group.order'][g]} worth={columns['group.worth'][g]:.4g}"
            f" owner={names[owner] if (owner := columns['group.owner'][g]) >= 0 else ''}"
            f" folded={columns['group.fold'][g] >= 0} holds={' '.join(members[g])}"
        )
        for g, path in enumerate(paths)
    }


def _folds(columns: dict[str, Any], paths: list[str]) -> Section:
    out: Section = {}
    at = columns.get("fold.offsets", [0])
    for n, (first, last) in enumerate(pairwise(at)):
        members = [paths[g] for g in columns["fold.members"][first:last]]
        parent = paths[columns["fold.parent"][n]]
        label = columns["strings"][columns["fold.label"][n]]
        key = f"{parent} ▸ {label}"
        while key in out:
            key += "'"
        out[key] = f"{len(members)}: {', '.join(members)}"
    return out


def write(out: Path, folders: list[Path], limit: int) -> None:
    """Records every program in a process of its own, stopped after ``limit`` seconds."""
    import hloscope  # noqa: F401  (once, before forking)
    import numpy  # noqa: F401

    out.mkdir(parents=True, exist_ok=True)
    fork = multiprocessing.get_context("fork")
    files = sorted(
        p for f in folders for p in (f.iterdir() if f.is_dir() else [f])
        if p.name.endswith(DUMPS + KEPT)
    )  # fmt: skip
    for path in files:
        for name, read in programs(path):
            file = out / f"{name}.json.gz"
            if file.exists():
                continue
            child = fork.Process(target=_child, args=(read, file))
            child.start()
            child.join(limit)
            if child.is_alive():
                child.kill()
                child.join()
            if not file.exists():
                _save(file, {"reading": {"error": f"stopped, exit code {child.exitcode}"}})
                print(f"{name}: stopped after {limit} s or killed", flush=True)


def _child(read: Callable[[Path], Any], file: Path) -> None:
    _save(file, record(read))


def _save(file: Path, found: Record) -> None:
    short = {name: {k: _short(v) for k, v in rows.items()} for name, rows in found.items()}
    text = json.dumps(short, indent=0, sort_keys=True, ensure_ascii=False)
    part = file.with_suffix(f".{os.getpid()}")
    part.write_bytes(gzip.compress(text.encode(), 6, mtime=0))
    part.rename(file)


# ---------------------------------------------------------------- compare


def _load(file: Path) -> Record:
    found: Record = json.loads(gzip.decompress(file.read_bytes()))
    return found


def compare(before: Path, after: Path, examples: int, by_program: bool) -> int:
    """Prints what differs, section by section; returns the number of different entries."""
    old, new = ({p.name: p for p in sorted(f.glob("*.json.gz"))} for f in (before, after))
    both = sorted(old.keys() & new.keys())
    entries: Counter[str] = Counter()
    changed: Counter[str] = Counter()
    touched: dict[str, set[str]] = defaultdict(set)
    shown: dict[str, list[str]] = defaultdict(list)
    seconds: Counter[tuple[str, str]] = Counter()
    layers: list[tuple[str, str, str, str]] = []
    for name in both:
        was, now = _load(old[name]), _load(new[name])
        for side, found in (("before", was), ("after", now)):
            for step, taken in found.pop("seconds", {}).items():
                seconds[side, step] += float(taken)
        stem = name.removesuffix(".json.gz")
        for key in sorted(was.get("layers", {}).keys() | now.get("layers", {}).keys()):
            verdicts = (found.get("layers", {}).get(key, "–") for found in (was, now))
            layers.append((stem, key, *verdicts))
        for section in sorted(was.keys() | now.keys()):
            first, second = was.get(section, {}), now.get(section, {})
            keys = first.keys() | second.keys()
            entries[section] += len(keys)
            for key in sorted(keys):
                if first.get(key) != second.get(key):
                    changed[section] += 1
                    touched[section].add(stem)
                    if len(touched[section]) > len(shown[section]) < examples:
                        shown[section].append(_example(stem, key, first.get(key), second.get(key)))
    print(f"{len(both)} programs in both; only before {len(old) - len(both)}, "
          f"only after {len(new) - len(both)}")  # fmt: skip
    print(f"{'section':24} {'entries':>9} {'different':>9} {'programs':>8}")
    for section in sorted(entries, key=lambda s: (-changed[s], s)):
        print(f"{section:24} {entries[section]:>9,} {changed[section]:>9,} "
              f"{len(touched[section]):>8}")  # fmt: skip
    for section in sorted(shown, key=lambda s: (-changed[s], s)):
        print(f"\n{section}" + (f": {', '.join(sorted(touched[section]))}" if by_program else ""))
        print("\n".join(shown[section]))
    _print_layers(layers)
    for step in ("read", "view", "all"):
        print(f"CPU seconds, {step}: {seconds['before', step]:.1f} → {seconds['after', step]:.1f}")
    return sum(changed.values())


def _example(program: str, key: str, before: str | None, after: str | None) -> str:
    """An entry in both records, from a little before the first character that differs."""
    if before is None or after is None:
        which = "only after" if before is None else "only before"
        return f"  {program}: {key[:160]}\n    {which}: {(before or after or '')[:240]}"
    at = next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b),
              min(len(before), len(after)))  # fmt: skip
    at = max(0, at - 60)
    return (
        f"  {program}: {key[:160]}\n    before: {before[at : at + 240]}"
        f"\n    after:  {after[at : at + 240]}"
    )


def _print_layers(layers: list[tuple[str, str, str, str]]) -> None:
    count = len(layers)
    right = [sum(row[side] == "right" for row in layers) for side in (2, 3)]
    print(f"\nlayers: of {count} stacks that arguments state, {right[0]} right before, "
          f"{right[1]} after")  # fmt: skip
    for program, stack, was, now in layers:
        if was != now:
            print(f"  {program}: {stack}: {was} → {now}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("record")
    one.add_argument("out", type=Path)
    one.add_argument("folder", nargs="+", type=Path)
    one.add_argument("--limit", type=int, default=300, help="seconds a program may take")
    two = commands.add_parser("compare")
    two.add_argument("before", type=Path)
    two.add_argument("after", type=Path)
    two.add_argument("--examples", type=int, default=3, help="of each section")
    two.add_argument("--programs", action="store_true", help="name those that differ")
    given = parser.parse_args()
    if given.command == "record":
        write(given.out, given.folder, given.limit)
    else:
        sys.exit(bool(compare(given.before, given.after, given.examples, given.programs)))


if __name__ == "__main__":
    main()
