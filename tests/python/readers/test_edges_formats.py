"""Small facts at the edges of formats: each would be wrong after a change of one character.

As ``test_edges_reading.py``, for StableHLO, protos, folders and traces: without a compile.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import hloscope as hs
import ml_dtypes
import numpy as np
import pytest
from hloscope.readers import read_modules
from hloscope.readers.entries import ModuleEntry
from hloscope.readers.files.dump_directory import _at_stage
from hloscope.readers.proto.literals import _SMALL_FLOATS, _small_float
from hloscope.readers.proto.proto import read_proto
from hloscope.readers.proto.schema import message_class
from hloscope.readers.stablehlo.lines import split_signature
from hloscope.readers.xplane.xplane import read_trace
from xplane_builder import TraceBuilder

BYTE_FLOATS = [k for k in sorted(_SMALL_FLOATS) if k.startswith("f8") and "f8e8" not in k]


@pytest.mark.parametrize("kind", BYTE_FLOATS)
def test_floats_of_a_byte_are_what_numpy_has(kind: str) -> None:
    name = kind.replace("f8", "float8_", 1)
    codes = np.arange(256, dtype=np.uint8)
    wanted = codes.view(getattr(ml_dtypes, name)).astype(np.float64)
    np.testing.assert_array_equal([_small_float(int(c), kind) for c in codes], wanted)


@pytest.mark.parametrize(
    ("text", "at", "inside", "after"),
    [
        ("(a, b) -> c", 0, "a, b", " -> c"),
        ("x(a(b)) r", 1, "a(b)", " r"),
        ("()", 0, "", ""),
        ("(a", 0, "a", ""),
    ],
)
def test_what_stands_in_parentheses(text: str, at: int, inside: str, after: str) -> None:
    assert split_signature(text, at) == (inside, after)


CALLS = """module @{} {{
  func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {{
    %0 = call @f(%a) : (tensor<8xf32>) -> tensor<8xf32>
    %1 = stablehlo.composite "x.y" %0 {{decomposition = @f}} : (tensor<8xf32>) -> tensor<8xf32>
    return %1 : tensor<8xf32>
  }}
  func.func private @f(%a: tensor<8xf32>) -> tensor<8xf32> {{
    %0 = stablehlo.sine %a : tensor<8xf32>
    return %0 : tensor<8xf32>
  }}
}}
"""


def test_what_is_called_and_where_a_module_begins() -> None:
    first, second = read_modules(CALLS.format("one") + "\n\n" + CALLS.format("two"))
    assert (first.first_line, second.first_line) == (1, 14)
    for module in (first, second):
        call, composite = (
            next(i for i in module.instructions if i.opcode.endswith(o))
            for o in ("call", "composite")
        )
        assert call.attribute("to_apply") == "%f"
        assert composite.attribute("to_apply") is None
        assert [c.name for c in composite.called_computations] == ["f"]


@pytest.mark.parametrize(("replicas", "partitions"), [(1, 1), (2, 1), (1, 4), (2, 4)])
def test_devices_of_a_proto(replicas: int, partitions: int) -> None:
    proto = message_class("HloModule")(name=b"m", entry_computation_id=1)
    main = proto.computations.add(name=b"main", id=1, root_id=1)
    main.instructions.add(name=b"c", opcode=b"parameter", id=1).shape.element_type = 11
    proto.device_assignment.replica_count = replicas
    proto.device_assignment.computation_count = partitions
    found = read_proto(proto.SerializeToString()).attributes
    assert found.get("replica_count") == (str(replicas) if replicas > 1 else None)
    assert found.get("num_partitions") == (str(partitions) if partitions > 1 else None)


@pytest.mark.parametrize(("count", "more"), [(60, False), (61, True)])
def test_the_stages_there_are_are_named(count: int, more: bool) -> None:
    entries = [ModuleEntry("m", k, f"stage{k}", Path("x")) for k in range(count)]
    with pytest.raises(hs.ReadError, match="holds no stage 'nowhere'") as said:
        _at_stage(entries, "nowhere", "here")
    assert str(said.value).endswith(", …") is more


def test_an_archive_without_a_dump_is_refused() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as z:
        z.writestr("README.md", "x")
    with pytest.raises(hs.ReadError, match="holds no HLO dump"):
        hs.read(packed.getvalue())


def test_how_long_programs_ran() -> None:
    trace = TraceBuilder()
    plane = trace.plane("/device:TPU:0")
    for at in (5_000, 9_000):
        plane.event("XLA Modules", plane.event_id("jit_f(7)"), at, 1_000)
    found = read_trace(trace.serialized())
    assert list(found.executions.values()) == [2]
    (span,) = found.spans.values()
    assert span == pytest.approx(2_000e-12)
