"""Reads chips.toml into frozen ``Hardware``: figures of one jax device.

chips.toml (per chip) ─┐
your hardware.toml ────┴─▶ merged by id ─▶ ÷ devices_per_chip ─▶ Hardware (per device)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any


class HardwareError(ValueError):
    """An unknown chip, or a hardware file that cannot be read; says what and where."""


@dataclass(frozen=True, slots=True)
class Link:
    """One interconnect of a device. ``bytes_per_second`` is one link, one way.

    ``kind``: "torus" (two links per axis, ``axes`` axes) or "switch" (any partner at full
    speed, among ``group`` devices, 0 for any number). ``latency`` is seconds per hop or step.
    """

    name: str
    kind: str
    bytes_per_second: float
    latency: float
    links: int = 1
    axes: int = 0
    group: int = 0


@dataclass(frozen=True, slots=True)
class Hardware:
    """Peak figures of one jax device: FLOP/s, bytes, bytes/s.

    ``matmul`` maps operand types ("bf16", "f32", "f32:highest", "f8") to FLOP/s of the matrix
    unit. ``vector`` (FLOP/s of everything else) and ``clock`` (Hz) are None if no source
    gives them; the model then leaves out what needs them. ``cores`` tells GPUs of one vendor
    apart in a trace, 0 if unknown. ``matrix_side`` is that of the blocks which a systolic matrix
    unit holds, 0 for other kinds and where unknown: smaller products take as long as a block.
    ``host_bandwidth`` is that of the link to the host's memory,
    one way; None if no source gives it.
    """

    id: str
    label: str
    memory_bytes: float
    memory_bandwidth: float
    matmul: Mapping[str, float]
    vector: float | None
    links: tuple[Link, ...]
    clock: float | None = None
    devices_per_chip: int = 1
    cores: int = 0
    matrix_side: int = 0
    host_bandwidth: float | None = None
    kinds: tuple[str, ...] = ()
    source: tuple[str, ...] = field(default=(), compare=False)

    def matmul_rate(self, dtype: str) -> float | None:
        """FLOP/s for operands of XLA type ``dtype``, or None if the file does not say.

        All 8-bit floats share "f8", all 4-bit ones "f4"; unsigned counts as signed, a
        precision that is not listed as "highest", a narrow integer as the next wider one.
        """
        for key in _keys(dtype):
            if key in self.matmul:
                return self.matmul[key]
        return None


def _keys(dtype: str) -> list[str]:
    name, _, precision = dtype.partition(":")
    if precision:
        return [dtype, f"{name}:highest"]
    if name.startswith("f8"):
        return [name, "f8", "bf16"]
    if name.startswith("f4"):
        return [name, "f4", "f8", "bf16"]
    if name in ("s8", "u8"):
        return [name, "s8"]
    if name in ("s4", "u4", "s2", "u2"):
        return [name, "s4", "s8"]
    return [name]


_REQUIRED = ("memory_bytes", "memory_bandwidth", "matmul", "links")


def load(path: str | Path | None = None) -> dict[str, Hardware]:
    """Every chip by id, built-in ones first.

    ``path`` is a TOML file laid over the built-in one; without it HLOSCOPE_HARDWARE or
    ``~/.config/hloscope/hardware.toml`` is, where it exists. Raises ``HardwareError`` for a
    file that is missing, is not TOML, or lacks a figure.
    """
    given = str(path) if path is not None else os.environ.get("HLOSCOPE_HARDWARE", "")
    if not given:
        # not with pathlib, which raises for a home that is inaccessible or unknown
        config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
        default = os.path.join(config, "hloscope", "hardware.toml")
        given = default if os.path.isfile(default) else ""
    stamp = 0
    if given:
        try:
            stamp = Path(given).stat().st_mtime_ns
        except OSError as error:
            raise HardwareError(f"no hardware file at {given}: {error.strerror}") from None
    return dict(_load(given, stamp))


@lru_cache(maxsize=8)
def _load(given: str, stamp: int) -> dict[str, Hardware]:
    import tomllib
    from importlib.resources import files

    raw = tomllib.loads(files(__package__).joinpath("chips.toml").read_text("utf-8"))
    if given:
        try:
            mine = tomllib.loads(Path(given).read_text("utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
            raise HardwareError(f"{given} is not a hardware file: {error}") from None
        for name, entry in mine.items():
            if not isinstance(entry, dict):
                raise HardwareError(f"{given}: {name} must be a table, [{name}]")
            raw[name] = _merge(raw.get(name, {}), entry)
    return {name: _hardware(name, entry, given or "chips.toml") for name, entry in raw.items()}


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(base) | dict(over)
    if "matmul" in base and "matmul" in over:
        out["matmul"] = {**base["matmul"], **over["matmul"]}
    return out


def _hardware(name: str, entry: Mapping[str, Any], where: str) -> Hardware:
    for key in _REQUIRED:
        if key not in entry:
            raise HardwareError(f"{where}: [{name}] has no {key}")
    try:
        share = int(entry.get("devices_per_chip", 1))
        if share < 1:
            raise ValueError(f"devices_per_chip must be at least 1, not {share}")
        vector, clock = entry.get("vector"), entry.get("clock")
        return Hardware(
            id=name,
            label=str(entry.get("label", name)),
            memory_bytes=_rate(entry["memory_bytes"]) / share,
            memory_bandwidth=_rate(entry["memory_bandwidth"]) / share,
            matmul={str(k): _rate(v) / share for k, v in entry["matmul"].items()},
            vector=None if vector is None else _rate(vector) / share,
            links=tuple(_link(e, share) for e in entry["links"]),
            clock=None if clock is None else float(clock),
            devices_per_chip=share,
            cores=int(entry.get("cores", 0)),
            matrix_side=int(entry.get("matrix_side", 0)),
            host_bandwidth=_rate(entry["host_bandwidth"]) / share
            if "host_bandwidth" in entry
            else None,
            kinds=tuple(str(k).lower() for k in entry.get("kinds", [name])),
            source=tuple(str(s) for s in entry.get("source", ())),
        )
    except KeyError as error:
        raise HardwareError(f"{where}: a link of [{name}] has no {error.args[0]}") from None
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise HardwareError(f"{where}: [{name}] is not as expected: {error}") from None


def _link(entry: Mapping[str, Any], share: int) -> Link:
    kind = str(entry["kind"])
    if kind not in ("torus", "switch"):
        raise ValueError(f"a link is a torus or a switch, not {kind!r}")
    return Link(
        name=str(entry["name"]),
        kind=kind,
        bytes_per_second=_rate(entry["bytes_per_second"]) / share,
        latency=float(entry["latency"]),
        links=int(entry.get("links", 1)),
        axes=int(entry.get("axes", 0)),
        group=int(entry.get("group", 0)),
    )


def _rate(value: Any) -> float:
    rate = float("nan") if isinstance(value, bool) else float(value)
    if not 0 < rate < float("inf"):
        raise ValueError(f"a rate or size must be a number above 0, not {value!r}")
    return rate


def find(name: str | Hardware, path: str | Path | None = None) -> Hardware:
    """A chip by id ("tpu-v5e"), label or device kind.

    Raises ``HardwareError`` with similar ids, or all of them.
    """
    if isinstance(name, Hardware):
        return name
    if not isinstance(name, str):
        raise HardwareError(f'a chip is named by its id, such as "h100", not {name!r}')
    chips = load(path)
    wanted = name.strip().lower()
    for key in (wanted, f"tpu-{wanted}", wanted.replace("_", "-")):
        if key in chips:
            return chips[key]
    for chip in chips.values():
        if chip.label.lower() == wanted or _matches(chip, wanted):
            return chip
    near = [key for key in chips if wanted and (wanted in key or key in wanted)]
    shorter = {key.removeprefix("tpu-"): key for key in chips}
    for known in (dict(zip(chips, chips, strict=True)), shorter):
        from difflib import get_close_matches

        near += [known[k] for k in get_close_matches(wanted, known, 3, 0.6)]
    near = list(dict.fromkeys(near))
    if near:
        raise HardwareError(f"unknown chip {name!r}; did you mean {' or '.join(near[:3])}?")
    raise HardwareError(f"unknown chip {name!r}; known are {', '.join(chips)}")


def _matches(chip: Hardware, kind: str) -> bool:
    return any(kind.startswith(k[:-1]) if k.endswith("*") else kind == k for k in chip.kinds)


def choose(device_kind: str, platform: str = "", path: str | Path | None = None) -> Hardware | None:
    """The chip of a jax device kind, exact matches before patterns; None when unknown."""
    kind = device_kind.strip().lower()
    if not kind and platform != "cpu":
        return None
    chips = load(path)
    for exact in (True, False):
        for chip in chips.values():
            if kind in chip.kinds if exact else kind and _matches(chip, kind):
                return chip
    return chips.get("cpu") if platform == "cpu" or kind == "cpu" else None


def recognise(vendor: str, cores: int, memory_bytes: float) -> Hardware | None:
    """The GPU of a trace, which has no name: by vendor, cores and memory; None when unknown."""
    maker = vendor.strip().lower()
    for chip in load().values():
        near = abs(memory_bytes / (chip.memory_bytes * chip.devices_per_chip) - 1) < 0.05
        if (
            maker
            and cores
            and chip.cores == cores
            and near
            and chip.label.lower().startswith(maker)
        ):
            return chip
    return None
