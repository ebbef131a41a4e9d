"""Reads the log of Alpa's automatic stage construction, whatever text is around it.

    submesh_choices: ((1, 1), (1, 2))
    result[(start, end, submesh, config), module] = ModuleProfileResult(compute_cost=0.001, …)
    Profiling for submesh 1 (1, 2) takes 25.08 seconds
    Result forward_stage_layer_ids: [[0], [1]]

Module 0 is a stage's forward pass, 1 its backward pass. Figures are printed with three decimals:
seconds, and "GB" of 2^30 bytes (alpa/mesh_profiling.py). Alpa tries the configurations of a
submesh of n devices in a fixed order: (n/m, m) with the batch on the first axis for every m that
divides n, smallest first, and then (n, 1) free (alpa/pipeline_parallel/stage_construction.py).
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass
from typing import Any

GB = 2**30
_NUMBER = r"-?(?:\d+\.?\d*(?:e[-+]?\d+)?|inf|nan)"
_ROW = re.compile(
    r"result\[\((\d+),\s*(\d+),\s*(\d+),\s*(\d+)\),\s*(\d+)\]\s*=\s*ModuleProfileResult\(([^)]*)\)"
)
_FIELD = re.compile(rf"(\w+)=({_NUMBER}|None)(?:\s*GB)?")
_CHOICES = re.compile(r"submesh_choices:\s*(\(.*\))")
_TAKES = re.compile(r"Profiling for submesh (\d+) \(([^)]*)\) takes ([\d.]+) seconds")
_CHOSEN = re.compile(
    r"^Result (forward_stage_layer_ids|mesh_shapes|logical_mesh_shapes|"
    r"autosharding_option_dicts):\s*(.+)$",
    re.M,
)
_MICROBATCHES = re.compile(r"num_micro_batches\s*=\s*(\d{1,6})")


class StageLogError(ValueError):
    """A text without a readable stage log; says what is missing."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and the range it can be in: for a printed one, half a unit of its last digit."""

    value: float
    low: float
    high: float

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.value + other.value, self.low + other.low, self.high + other.high)

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.value:.6g}"
        return f"{self.value:.4g} [{self.low:.4g}–{self.high:.4g}]"


@dataclass(frozen=True, slots=True)
class Profile:
    """One profiled module: a stage's forward (0) or backward (1) pass on one submesh."""

    start: int
    end: int
    submesh: int
    config: int
    module: int
    seconds: Interval
    peak_bytes: Interval
    in_bytes: Interval
    out_bytes: Interval
    temp_bytes: Interval
    available_bytes: Interval


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the log says was chosen, stage by stage."""

    layers: tuple[tuple[int, ...], ...]
    meshes: tuple[tuple[int, ...], ...]
    logical: tuple[tuple[int, ...], ...]
    options: tuple[dict[str, int], ...]


@dataclass(frozen=True, slots=True)
class Parsed:
    rows: tuple[Profile, ...]
    submeshes: tuple[tuple[int, ...], ...]
    profiling_seconds: dict[int, float]
    chosen: Chosen | None
    microbatches: int | None
    warnings: tuple[str, ...]


def is_stage_log(text: str) -> bool:
    """Whether the text has rows of Alpa's stage profiles."""
    return _ROW.search(text) is not None


def parse(text: str) -> Parsed:
    """All rows, the chosen stages, profiling times. Raises ``StageLogError`` without rows."""
    warnings: list[str] = []
    rows: dict[tuple[int, ...], Profile] = {}
    for m in _ROW.finditer(text):
        key = tuple(int(x) for x in m.groups()[:5])
        line = text.count("\n", 0, m.start()) + 1
        found = dict(_FIELD.findall(m[6]))
        if "compute_cost" not in found or "peak_memory" not in found:
            warnings.append(f"line {line}: a result without compute_cost or peak_memory")
            continue
        if key in rows:
            warnings.append(f"line {line}: result{list(key)} again; the last one counts")
        rows[key] = _profile(key, found)
    if not rows:
        raise StageLogError("no line result[(start, end, submesh, config), module] = … in the text")
    submeshes = _submeshes(text, {k[2] for k in rows})
    takes = {int(m[1]): float(m[3]) for m in _TAKES.finditer(text)}
    first = _ROW.search(text)
    batches = [int(m[1]) for m in _MICROBATCHES.finditer(text, 0, first.start() if first else 0)]
    cut = text.count("ModuleProfileResult(") - len(_ROW.findall(text))
    if cut > 0:
        warnings.append(f"{cut} result line(s) are damaged or cut off")
    return Parsed(
        tuple(rows[k] for k in sorted(rows)),
        submeshes,
        takes,
        _chosen(text, warnings),
        batches[-1] if batches else None,
        tuple(warnings),
    )


def _profile(key: tuple[int, ...], found: dict[str, str]) -> Profile:
    def get(name: str, unit: float = GB) -> Interval:
        text = found.get(name, "None")
        if text in ("None", "nan"):
            return Interval(math.nan, math.nan, math.nan)
        value = float(text)
        if math.isinf(value):
            return Interval(value, value, value)
        decimals = len(text.partition(".")[2].partition("e")[0])
        half = 0.5 * 10.0**-decimals
        return Interval(value * unit, max(0.0, value - half) * unit, (value + half) * unit)

    return Profile(
        key[0],
        key[1],
        key[2],
        key[3],
        key[4],
        get("compute_cost", 1.0),
        get("peak_memory"),
        get("invar_size"),
        get("outvar_size"),
        get("temp_buffer_size"),
        get("available_memory"),
    )


def _submeshes(text: str, used: set[int]) -> tuple[tuple[int, ...], ...]:
    m = _CHOICES.search(text)
    found = _literal(m[1]) if m else None
    if isinstance(found, tuple) and all(isinstance(s, tuple) for s in found):
        if all(n < len(found) for n in used):
            return tuple(tuple(int(x) for x in s) for s in found)
        raise StageLogError("submesh_choices lists fewer submeshes than the results name")
    by_number: dict[int, tuple[int, ...]] = {}
    for t in _TAKES.finditer(text):
        by_number[int(t[1])] = tuple(int(x) for x in t[2].split(",") if x.strip().isdigit())
    missing = sorted(n for n in used if n not in by_number)
    if missing:
        raise StageLogError(
            f"nothing says what submesh {missing[0]} is: neither a line submesh_choices nor "
            f'"Profiling for submesh {missing[0]} (…) takes …"'
        )
    return tuple(by_number.get(n, ()) for n in range(max(used) + 1))


def _chosen(text: str, warnings: list[str]) -> Chosen | None:
    found: dict[str, Any] = {m[1]: _literal(m[2]) for m in _CHOSEN.finditer(text)}
    if not found:
        return None
    try:
        layers = tuple(tuple(int(i) for i in s) for s in found["forward_stage_layer_ids"])
        meshes = tuple(tuple(int(i) for i in s) for s in found["mesh_shapes"])
        logical = tuple(tuple(int(i) for i in s) for s in found.get("logical_mesh_shapes") or ())
        options = tuple(dict(d) for d in found.get("autosharding_option_dicts") or ())
    except (KeyError, TypeError, ValueError):
        warnings.append("the chosen solution (lines Result …) is damaged or cut off")
        return None
    if len(layers) != len(meshes):
        warnings.append("the chosen solution names other numbers of stages and of submeshes")
        return None
    return Chosen(layers, meshes, logical, options)


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def config_names(devices: int) -> tuple[str, ...]:
    """Alpa's configurations of that many devices, in the order in which it numbers them."""
    sizes = [m for m in range(1, devices + 1) if devices % m == 0]
    return (*(f"({devices // m}, {m}) batch" for m in sizes), f"({devices}, 1)")
