"""``memory.prof`` of ``jax.profiler.save_device_memory_profile``: pprof's protobuf.

Field numbers are those of https://github.com/google/pprof/blob/main/proto/profile.proto. A sample
has a stack, innermost first, the number of allocations and their bytes, and labels: kind
("buffer", "executable") and device.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..hlo import StackFrame
from .errors import ReadError
from .files import gzipped
from .files.sources import Source, load
from .proto.schema import decode_error, message_class


@dataclass(frozen=True)
class Sample:
    """Buffers of one stack on one device."""

    frames: tuple[StackFrame, ...]
    device: str
    count: int
    bytes: int


@dataclass(frozen=True)
class MemoryProfile:
    samples: tuple[Sample, ...]
    name: str
    notes: tuple[str, ...] = ()


def read_profile(source: Source) -> MemoryProfile:
    """The buffers of a device memory profile; executables are left out. Raises ``ReadError``."""
    data, name, _ = load(source)
    if isinstance(data, str):
        raise ReadError("this is text, not a memory profile: give a path or bytes")
    notes: tuple[str, ...] = ()
    if gzipped.is_gzip(data):
        data, warnings = gzipped.unwrap(data, name)
        notes = tuple(str(w) for w in warnings)
    profile = message_class("Profile")()
    try:
        profile.ParseFromString(data)
    except decode_error():
        raise _refused(name) from None
    texts = [t.decode("utf-8", errors="replace") for t in profile.string_table]
    kinds = [(_at(texts, t.type), _at(texts, t.unit)) for t in profile.sample_type]
    if ("space", "bytes") not in kinds or ("allocations", "count") not in kinds:
        raise _refused(name)
    counts, sizes = kinds.index(("allocations", "count")), kinds.index(("space", "bytes"))
    functions = {f.id: f for f in profile.function}
    places: dict[int, list[StackFrame]] = {}
    for location in profile.location:
        # of several lines the first is the one that was inlined: the innermost
        places[location.id] = [
            StackFrame(_at(texts, f.filename), row.line, _at(texts, f.name) or None)
            for row in location.line
            if (f := functions.get(row.function_id)) is not None
        ]
    samples = []
    for sample in profile.sample:
        labels = {_at(texts, x.key): _at(texts, x.str) for x in sample.label}
        if labels.get("kind", "buffer") != "buffer" or len(sample.value) != len(kinds):
            continue
        frames = tuple(f for i in sample.location_id for f in places.get(i, ()))
        count, held = sample.value[counts], sample.value[sizes]
        samples.append(Sample(frames, labels.get("device", "unknown"), count, held))
    return MemoryProfile(tuple(samples), name, notes)


def _at(texts: list[str], index: int) -> str:
    return texts[index] if 0 <= index < len(texts) else ""


def _refused(name: str) -> ReadError:
    return ReadError(
        f"{name or 'the data'} is no device memory profile: "
        "jax.profiler.save_device_memory_profile writes one"
    )
