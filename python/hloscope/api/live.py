"""``hs.live``: what is on the devices now, and what two of them differ in.

jax.live_arrays, memory_stats ─▶ capturing/live.py ─┐
memory.prof (pprof)           ─▶ readers/pprof.py  ─┴▶ Live ── diff ──▶ LiveDiff
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..analysis.check.sizes import parse_size
from ..analysis.text.results import Row, Rows, columns
from ..analysis.text.units import MINUS, UNKNOWN, grid, printed, size
from ..hlo import StackFrame
from ..hlo.texts.listed import and_more
from ..hlo.texts.places import is_library, own_line, short_line
from .hosts import host
from .shown import Shown

if TYPE_CHECKING:
    from .capture import Capture

_SHOWN = 15


@dataclass(frozen=True, slots=True, repr=False)
class LiveArrays(Row):
    """Arrays of one line, shape and sharding that are on the devices.

    ``bytes`` are those of all its devices together, ``bytes_per_device`` those on the one that
    holds most. ``count`` is the number of arrays; of a memory profile that of buffers, one for each
    device, and ``shape`` and ``sharding`` are "". ``names`` are variables of the caller that hold
    them; ``frames`` the Python stack that made them, innermost first.
    """

    line: str  # "/home/me/train.py:37"; "" unknown
    shape: str  # "f32[1024,1024]"
    sharding: str  # "PartitionSpec('data',)", "cpu:0"
    count: int
    bytes: int
    bytes_per_device: int
    names: tuple[str, ...] = ()
    frames: tuple[StackFrame, ...] = ()
    by_device: tuple[tuple[str, int], ...] = ()

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes rows of two moments the same: line, shape and sharding."""
        return self.line, self.shape, self.sharding

    @property
    def what(self) -> str:
        """``f32[1024,1024]``; "buffers" of a memory profile."""
        return self.shape or ("buffers" if self.count != 1 else "buffer")

    def to_dict(self) -> dict[str, Any]:
        return {
            "line": self.line,
            "shape": self.shape,
            "sharding": self.sharding,
            "count": self.count,
            "bytes": self.bytes,
            "bytes_per_device": self.bytes_per_device,
            "names": list(self.names),
        }

    def __str__(self) -> str:
        at = f" made at {short_line(self.line)}" if self.line else ""
        held = f", held by {', '.join(self.names)}" if self.names else ""
        return printed([f"{self.count:,} {self.what}{at}: {size(self.bytes)}{held}"])


@dataclass(frozen=True, slots=True, repr=False)
class DeviceMemory(Row):
    """One device's memory, in bytes. What a device does not report is None: a CPU reports none.

    ``array_bytes`` is the sum of the live arrays, the others are of ``Device.memory_stats``.
    """

    device: str
    array_bytes: int
    in_use_bytes: int | None = None
    peak_bytes: int | None = None
    limit_bytes: int | None = None
    largest_free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class LiveArray:
    """One array: ``array()`` is it while it lives; bytes by device."""

    array: Callable[[], Any]
    names: tuple[str, ...]
    line: str
    on: Mapping[str, int]


@dataclass(frozen=True, eq=False, repr=False)
class Live(Shown, Rows[LiveArrays]):
    """What ``hs.live()`` returns: rows by line, shape and sharding, most bytes first."""

    rows: tuple[LiveArrays, ...]
    devices: tuple[DeviceMemory, ...]
    source: str = "jax.live_arrays"  # or the name of a memory profile
    notes: tuple[str, ...] = ()
    _each: tuple[LiveArray, ...] = field(default=(), repr=False)

    COLUMNS = columns(LiveArrays)[:7]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_each": ()}  # arrays of this process

    @property
    def total_bytes(self) -> int:
        """Bytes of all arrays on all devices."""
        return sum(row.bytes for row in self.rows)

    @property
    def by_line(self) -> dict[str, int]:
        """Bytes by line, most first; "" is unknown."""
        found: Counter[str] = Counter()
        for row in self.rows:
            found[row.line] += row.bytes
        return dict(found.most_common())

    def diff(self, later: Live) -> LiveDiff:
        """What ``later`` has more and less of; rows are matched by line, shape and sharding."""
        before, after = ({row.key: row for row in side.rows} for side in (self, later))
        changes = []
        for key in {**after, **before}:
            a, b = before.get(key), after.get(key)
            count = (b.count if b else 0) - (a.count if a else 0)
            more = (b.bytes if b else 0) - (a.bytes if a else 0)
            if count or more:
                row = b or a
                assert row is not None
                held = tuple(n for n in row.names if a is None or n not in a.names) or row.names
                changes.append(LiveChange(*key, count, more, held, row.frames))
        changes.sort(key=lambda c: -c.bytes)
        return LiveDiff(tuple(changes), self.total_bytes, later.total_bytes)

    def beside(self, cap: Capture, *arguments: Any, limit: int | str | None = None) -> Beside:
        """Whether a program's peak fits beside what is already on the fullest device.

        ``arguments`` are the call's: they are part of the program's own peak and not counted
        twice. ``limit`` is the device's memory, bytes or "16GiB"; by default what the device
        reports, else that of the capture's chip. Raises what ``cap.memory`` raises.

        >>> print(hs.live().beside(cap, params, batch))
        """
        own = host("leaves")(arguments) if arguments else []
        held: Counter[str] = Counter({d.device: d.array_bytes for d in self.devices})
        others = []
        for each in self._each:
            array = each.array()
            if array is not None and any(array is x for x in own):
                held.subtract(each.on)
            else:
                others.append(each)
        fullest, most = max(held.items(), key=lambda pair: pair[1], default=("", 0))
        holders: dict[tuple[str, str], int] = {}
        for each in others:
            key = (each.names[0], "") if each.names else ("", each.line)
            holders[key] = holders.get(key, 0) + each.on.get(fullest, 0)
        ordered = sorted(holders.items(), key=lambda pair: -pair[1])
        rows = tuple(Holder(*key, held_here) for key, held_here in ordered if held_here)
        return Beside(cap.memory.peak_bytes, most, self._limit(cap, fullest, limit), fullest, rows)

    def _limit(self, cap: Capture, device: str, given: int | str | None) -> int | None:
        if given is not None:
            return parse_size(given)
        reported = next((d.limit_bytes for d in self.devices if d.device == device), None)
        if reported:
            return reported
        chip = cap.cost().hardware if cap.target.platform != "cpu" else None
        return int(chip.memory_bytes) if chip is not None else None

    def _totals(self) -> dict[str, Any]:
        return {
            "total_bytes": self.total_bytes,
            "source": self.source,
            "devices": [d.to_dict() for d in self.devices],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        most = max((d.array_bytes for d in self.devices), default=0)
        arrays = sum(row.count for row in self.rows)
        what = "arrays" if self.source == "jax.live_arrays" else "buffers"
        on = "1 device" if len(self.devices) == 1 else f"{len(self.devices):,} devices"
        lines = [
            f"{arrays:,} {what}, {size(self.total_bytes)} on {on}, at most {size(most)} on one"
        ]
        for d in self.devices[:_SHOWN]:
            if d.in_use_bytes is not None:
                free = f", largest free block {size(d.largest_free_bytes)}"
                lines.append(
                    f"  {d.device}: {size(d.in_use_bytes)} in use of {size(d.limit_bytes)},"
                    f" peak {size(d.peak_bytes)}"
                    + (free if d.largest_free_bytes is not None else "")
                )
        body = [
            (
                short_line(row.line) or UNKNOWN,
                row.what,
                row.sharding,
                f"{row.count:,}",
                size(row.bytes),
                size(row.bytes_per_device),
                ", ".join(row.names[:3]) + and_more(len(row.names) - 3),
            )
            for row in self.rows[:_SHOWN]
        ]
        if body:
            head = ("line", "shape", "sharding", what, "bytes", "on one device", "names")
            lines += grid(head, body)
        if len(self.rows) > _SHOWN:
            lines.append(f"…{and_more(len(self.rows) - _SHOWN)}")
        return "\n".join([*lines, *self.notes])


@dataclass(frozen=True, slots=True, repr=False)
class LiveChange(Row):
    """Arrays that there are more of, or fewer; ``count`` and ``bytes`` may be negative."""

    line: str
    shape: str
    sharding: str
    count: int
    bytes: int
    names: tuple[str, ...] = ()
    frames: tuple[StackFrame, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "line": self.line,
            "shape": self.shape,
            "sharding": self.sharding,
            "count": self.count,
            "bytes": self.bytes,
            "names": list(self.names),
        }

    def __str__(self) -> str:
        word = "more" if self.count > 0 or (not self.count and self.bytes > 0) else "fewer"
        what = self.shape or "buffers"
        at = f" made at {short_line(self.line)}" if self.line else ""
        sign = "+" if self.bytes >= 0 else MINUS
        held = f", held by {', '.join(self.names)}" if self.names and self.count > 0 else ""
        return printed(
            [f"{abs(self.count):,} {word} {what}{at}: {sign}{size(abs(self.bytes))}{held}"]
        )


@dataclass(frozen=True, eq=False, repr=False)
class LiveDiff(Shown, Rows[LiveChange]):
    """What two moments differ in; true if anything does. What grew most comes first."""

    rows: tuple[LiveChange, ...]
    before_bytes: int
    after_bytes: int

    COLUMNS = columns(LiveChange)[:6]

    def __bool__(self) -> bool:
        return bool(self.rows)

    @property
    def grown(self) -> tuple[LiveChange, ...]:
        """What there is more of: after equal calls, what leaks."""
        return tuple(row for row in self.rows if row.count > 0)

    def _totals(self) -> dict[str, Any]:
        return {"before_bytes": self.before_bytes, "after_bytes": self.after_bytes}

    def __str__(self) -> str:
        head = f"{size(self.before_bytes)} before, {size(self.after_bytes)} after"
        if not self.rows:
            return f"{head}: the same arrays"
        lines = [head, *(f"  {row}" for row in self.rows[:_SHOWN])]
        if len(self.rows) > _SHOWN:
            lines.append(f"  …{and_more(len(self.rows) - _SHOWN)}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, repr=False)
class Holder(Row):
    """What holds memory of a device: a variable of the caller, else the line that made it."""

    name: str
    line: str
    bytes: int


@dataclass(frozen=True, slots=True, repr=False)
class Beside(Shown, Row):
    """A program's peak and what is already on the fullest device, in bytes; true if both fit.

    ``limit_bytes`` None: the device's memory is unknown, and nothing is said.
    """

    peak_bytes: int
    held_bytes: int
    limit_bytes: int | None
    device: str
    holders: tuple[Holder, ...] = ()  # most bytes first, without the call's arguments

    @property
    def fits_alone(self) -> bool | None:
        return None if self.limit_bytes is None else self.peak_bytes <= self.limit_bytes

    @property
    def fits(self) -> bool | None:
        if self.limit_bytes is None:
            return None
        return self.peak_bytes + self.held_bytes <= self.limit_bytes

    def __bool__(self) -> bool:
        return bool(self.fits)

    def __str__(self) -> str:
        there = f"{size(self.held_bytes)} that are already on {self.device or 'the device'}"
        if self.limit_bytes is None:
            line = f"peak {size(self.peak_bytes)} beside {there}: the device's memory is unknown"
            return printed([line])
        of = f"of {size(self.limit_bytes)}"
        if not self.fits_alone:
            return printed([f"does not fit: peak {size(self.peak_bytes)} {of}"])
        if self.fits:
            return printed([f"fits: peak {size(self.peak_bytes)} beside {there}, {of}"])
        line = f"peak {size(self.peak_bytes)} {of} fits, but not beside the {there}"
        if self.holders:
            top = self.holders[0]
            name = f"`{top.name}`" if top.name else f"what {short_line(top.line) or UNKNOWN} made"
            line += f"; {name} holds {size(top.bytes)} of them"
        return printed([line])


def live(source: str | os.PathLike[str] | bytes | None = None) -> Live:
    """What is on the devices now: arrays by the Python line that made them, shape and sharding.

    Bytes are those of the buffers of ``jax.live_arrays()``, each counted once where several arrays
    share it. Variables of the caller name what they hold. ``source``: a file that
    ``jax.profiler.save_device_memory_profile`` wrote (``memory.prof``, ``.pprof``) is read instead,
    without jax; it knows lines and bytes, but no shapes. Raises ``ReadError`` for any other file.

    >>> before = hs.live()
    >>> step(params, batch)
    >>> print(before.diff(hs.live()))      # 20 more f32[1024,1024] made at train.py:37: +80 MiB
    """
    if source is None:
        frame = sys._getframe(1)
        found: Live = host("live arrays")({**frame.f_globals, **frame.f_locals})
        return found
    from ..readers.pprof import read_profile

    profile = read_profile(source)
    rows: dict[str, dict[str, list[int]]] = {}
    stacks: dict[str, tuple[StackFrame, ...]] = {}
    for sample in profile.samples:
        at = line_of(sample.frames)
        stacks.setdefault(at, sample.frames)
        per = rows.setdefault(at, {}).setdefault(sample.device, [0, 0])
        per[0] += sample.count
        per[1] += sample.bytes
    made = []
    held: Counter[str] = Counter()
    for at, per_device in rows.items():
        by = {device: n for device, (_, n) in per_device.items()}
        held.update(by)
        count = sum(n for n, _ in per_device.values())
        total, most = sum(by.values()), max(by.values())
        made.append(LiveArrays(at, "", "", count, total, most, (), stacks[at], tuple(by.items())))
    made.sort(key=lambda row: -row.bytes)
    devices = tuple(DeviceMemory(d, n) for d, n in sorted(held.items()))
    return Live(tuple(made), devices, profile.name or "a memory profile", profile.notes)


def line_of(frames: tuple[StackFrame, ...]) -> str:
    """The person's own line of a stack, innermost first; "" where all of it is a library's."""
    own = own_line(frames)
    return "" if own is None or is_library(own.file) else f"{own.file}:{own.line}"
