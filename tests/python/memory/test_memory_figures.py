"""Figures of a program's memory: where XLA says, where it is simulated, and for whom it is held."""

# ruff: noqa: E501
from __future__ import annotations

from dataclasses import replace

import hloscope as hs
import pytest
from hloscope.analysis.memory.memory import Memory
from hloscope.hlo import Argument, Target, parse_shape
from hloscope.hlo.buffers import Allocation, Assigned, BufferAssignment, LogicalBuffer

TEXT = """HloModule m, is_scheduled=true
ENTRY %main {
  %x = f32[64]{0} parameter(0)
  %a = f32[64]{0} reverse(%x), dimensions={0}
  %s = (f32[64]{0}, f32[64]{0}) custom-call(%a), custom_call_target="f"
  %b = f32[64]{0} get-tuple-element(%s), index=1
  ROOT %o = f32[1]{0} slice(%b), slice={[0:1]}
}
"""
ASSIGNED = BufferAssignment(
    buffers=(
        LogicalBuffer(1, 256, "x"), LogicalBuffer(2, 256, "a"),
        LogicalBuffer(3, 256, "s", (1,)), LogicalBuffer(4, 16, ""),
    ),
    allocations=(
        Allocation(5, 256, assigned=(Assigned(1, 0, 256),)),
        Allocation(7, 1000, assigned=(Assigned(2, 128, 256), Assigned(3, 512, 256),
                                      Assigned(4, 0, 16), Assigned(99, 0, 1))),
        Allocation(8, 10_000, is_thread_local=True),
        Allocation(9, 20_000, is_constant=True),
        Allocation(11, 3000, memory_space=5),
    ),
)  # fmt: skip


def memory_of(text: str = TEXT, assignment: BufferAssignment | None = None, **target: object):
    module = hs.read(text).module
    if assignment is not None:
        module = replace(module, buffer_assignment=assignment)
    return hs.Capture(module, Target(**target)).memory


def test_places_are_those_of_the_buffer_assignment() -> None:
    memory = memory_of(assignment=ASSIGNED)
    found = {(v.name, v.leaf): (v.allocation, v.offset) for v in memory.values()}
    assert found == {
        ("x", 0): (5, 0), ("a", 0): (7, 128), ("s", 0): (None, None), ("s", 1): (7, 512),
        ("o", 0): (None, None),
    }  # fmt: skip
    assert memory.assigned_bytes == 256 + 1000
    assert (memory.peak_bytes, memory.peak_source) == (1256, "XLA's buffer assignment")
    empty = memory_of(assignment=BufferAssignment())
    assert empty.assigned_bytes is None
    assert empty.peak_source == "simulated"


STATS = {
    "argument_size_in_bytes": 256, "output_size_in_bytes": 4, "temp_size_in_bytes": 768,
    "alias_size_in_bytes": 100, "peak_memory_in_bytes": 900,
}  # fmt: skip


@pytest.mark.parametrize(
    ("platform", "assignment", "peak", "source"),
    [
        ("tpu", ASSIGNED, 928, "XLA's memory_analysis"),  # 256 + 4 + 768 - 100
        ("gpu", ASSIGNED, 900, "XLA's peak_memory_in_bytes"),
        ("cpu", ASSIGNED, 1256, "XLA's buffer assignment"),
        # x 256, a 256, the call's two results 512, the output 4
        ("cpu", None, 256 + 256 + 512 + 4, "simulated"),
    ],
)
def test_the_best_figure_of_each_platform(platform, assignment, peak, source) -> None:
    memory = memory_of(assignment=assignment, platform=platform, memory_stats=STATS)
    assert (memory.peak_bytes, memory.peak_source) == (peak, source)
    assert memory.allocated_bytes == 928
    assert memory_of(memory_stats={"temp_size_in_bytes": 5}).allocated_bytes == 5
    assert memory_of().allocated_bytes is None
    assert memory_of(memory_stats={"peak_memory_in_bytes": 0}).xla_peak_bytes is None


def test_the_order_is_said_to_be_unknown() -> None:
    assert memory_of(TEXT.replace(", is_scheduled=true", "")).peak_source.endswith("not scheduled")


def test_the_index_table_of_what_is_returned() -> None:
    nested = """HloModule m, is_scheduled=true
ENTRY %main {
  %x = f32[64]{0} parameter(0)
  %n = f32[64]{0} negate(%x)
  %in = (f32[64]{0}, f32[64]{0}) tuple(%n, %x)
  ROOT %t = ((f32[64]{0}, f32[64]{0}), f32[64]{0}) tuple(%in, %x)
}
"""
    # a pointer of 8 bytes for each element: two of the outer tuple, two of the inner one
    assert memory_of(nested, platform="cpu").table_bytes == 8 * 2 + 8 * 2
    assert memory_of(nested, platform="tpu").table_bytes == 512
    assert memory_of(platform="tpu").table_bytes == memory_of().table_bytes == 0


TPU = """HloModule m, is_scheduled=true

%id (p: (f32[64], f32[64])) -> (f32[64], f32[64]) {
  %p = (f32[64]{0:T(256)}, f32[64]{0:T(256)}) parameter(0)
  %p0 = f32[64]{0:T(256)} get-tuple-element(%p), index=0
  ROOT %r = (f32[64]{0:T(256)}, f32[64]{0:T(256)}) tuple(%p0, %p0)
}
%yes (q: (f32[64], f32[64])) -> pred[] {
  %q = (f32[64]{0:T(256)}, f32[64]{0:T(256)}) parameter(0)
  ROOT %c = pred[]{:T(512)} constant(true)
}

ENTRY %main {
  %x = f32[64]{0:T(256)} parameter(0)
  %n = f32[64]{0:T(256)} reverse(%x), dimensions={0}
BODY
}
"""


@pytest.mark.parametrize(
    ("body", "tables"),
    [
        ("  ROOT %o = f32[1]{0:T(128)} slice(%n), slice={[0:1]}", 0),
        ("  ROOT %o = (f32[64]{0:T(256)}, f32[64]{0:T(256)}) tuple(%n, %n)", 0),  # the result
        # a loop shares its table with what it starts from and what a turn leaves
        ("  %t = (f32[64]{0:T(256)}, f32[64]{0:T(256)}) tuple(%n, %n)\n"
         "  %w = (f32[64]{0:T(256)}, f32[64]{0:T(256)}) while(%t), condition=%yes, body=%id\n"
         "  %g = f32[64]{0:T(256)} get-tuple-element(%w), index=0\n"
         "  ROOT %o = f32[1]{0:T(128)} slice(%g), slice={[0:1]}", 1),
        # a call does not: its own, its root's and that of what it is given
        ("  %t = (f32[64]{0:T(256)}, f32[64]{0:T(256)}) tuple(%n, %n)\n"
         "  %w = (f32[64]{0:T(256)}, f32[64]{0:T(256)}) call(%t), to_apply=%id\n"
         "  %g = f32[64]{0:T(256)} get-tuple-element(%w), index=0\n"
         "  ROOT %o = f32[1]{0:T(128)} slice(%g), slice={[0:1]}", 3),
        ("  %f = pred[]{:T(512)} constant(false)\n"
         "  %t = (f32[64]{0:T(256)}, f32[64]{0:T(256)}) tuple(%n, %n)\n"
         "  %w = (f32[64]{0:T(256)}, f32[64]{0:T(256)}) conditional(%f, %t, %t), "
         "true_computation=%id, false_computation=%id\n"
         "  %g = f32[64]{0:T(256)} get-tuple-element(%w), index=0\n"
         "  ROOT %o = f32[1]{0:T(128)} slice(%g), slice={[0:1]}", 2),
    ],
)  # fmt: skip
def test_tables_of_tuples_on_tpu(body: str, tables: int) -> None:
    memory = memory_of(TPU.replace("BODY", body))
    assert memory.platform == "tpu"
    # a place of 16 KiB for each table, and one for the 1,024 bytes of %n unless it is the result
    places = int("tuple(%n, %n)" not in body or tables > 0)
    assert memory.heap_padding_bytes == 16_384 * (places + tables) - 1024 * places


def test_places_of_the_heap_are_taken_in_order_of_the_schedule_on_tpu() -> None:
    """%b takes the hole that %a leaves, %c does not fit and goes above; no place in the output."""
    text = """HloModule m, is_scheduled=true

ENTRY %main {
  %x = f32[8192]{0:T(1024)} parameter(0)
  %a = f32[8192]{0:T(1024)} reverse(%x), dimensions={0}
  %held = f32[4096]{0:T(1024)} slice(%a), slice={[0:4096]}
  %b = f32[4096]{0:T(1024)} reverse(%held), dimensions={0}
  %c = f32[16384]{0:T(1024)} concatenate(%b, %held, %x), dimensions={0}
  %d = f32[4096]{0:T(1024)} slice(%c), slice={[0:4096]}
  ROOT %o = f32[16384]{0:T(1024)} concatenate(%d, %held, %x), dimensions={0}
}
"""
    kib = 1024
    # %a 0–32, %held 32–48, %b 0–16, %c 48–112; a best-fit by size would place %c at 0
    top = 112 * kib
    assert memory_of(text, platform="tpu").simulated_bytes == (32 + 64) * kib + top


def test_a_tuple_in_a_tuple_has_a_table_of_its_own_on_tpu() -> None:
    text = """HloModule m, is_scheduled=true

%part (p: f32[4096]) -> f32[1024] {
  %p = f32[4096]{0:T(1024)} parameter(0)
  ROOT %s = f32[1024]{0:T(1024)S(1)} slice(%p), slice={[0:1024]}
}

ENTRY %main {
  %x = f32[4096]{0:T(1024)} parameter(0)
  %n = f32[4096]{0:T(1024)} reverse(%x), dimensions={0}
  %begin = ((f32[4096]{0:T(1024)}), f32[1024]{0:T(1024)S(1)}, s32[]{:S(2)}) async-start(%n), calls=%part
  %end = f32[1024]{0:T(1024)S(1)} async-done(%begin)
  ROOT %o = f32[1024]{0:T(1024)} negate(%end)
}
"""
    # %n, the table of %begin and that of its operands
    kib = 1024
    assert memory_of(text, platform="tpu").simulated_bytes == (16 + 4 + 3 * 16) * kib


def test_operands_that_an_update_gives_are_no_other_values() -> None:
    text = """HloModule m, is_scheduled=true

%rows (table: f32[65536], at: s32[1024]) -> f32[1024] {
  %table = f32[65536]{0:T(1024)} parameter(0)
  %at = s32[1024]{0:T(1024)} parameter(1)
  ROOT %r = f32[1024]{0:T(1024)} custom-call(%table, %at), custom_call_target="Rows"
}

ENTRY %main {
  %t = f32[65536]{0:T(1024)} parameter(0)
  %begin = ((), (), s32[]{:S(2)}) async-start(), calls=%rows
  %a = s32[1024]{0:T(1024)} iota(), iota_dimension=0
  %given = ((f32[65536]{0:T(1024)}, s32[1024]{0:T(1024)}), f32[1024]{0:T(1024)}, s32[]{:S(2)}) async-update(%begin, %t, %a)
  %end = f32[1024]{0:T(1024)} async-done(%given)
  ROOT %o = f32[1024]{0:T(1024)} negate(%end)
}
"""
    memory = memory_of(text, platform="tpu")
    at_peak = {(v.name, v.bytes) for v in memory}
    # the result of the call is not as large as its table, and the table is there once
    assert at_peak == {("t", 262_144), ("a", 4096), ("r", 4096), ("o", 4096)}


def test_a_heap_of_nothing_needs_no_place() -> None:
    body = """  %e = f32[0]{0:T(256)} slice(%x), slice={[0:0]}
  %t = (f32[0]{0:T(256)}, f32[64]{0:T(256)}) tuple(%e, %x)
  %g = f32[0]{0:T(256)} get-tuple-element(%t), index=0
  ROOT %o = f32[64]{0:T(256)} pad(%g, %x), padding=0_64"""
    text = TPU.replace("BODY", body).replace(
        "  %n = f32[64]{0:T(256)} reverse(%x), dimensions={0}\n", ""
    )
    assert memory_of(text).heap_padding_bytes == 0
    held = "  ROOT %o = f32[1]{0:T(128)} slice(%n), slice={[0:1]}"
    # %n: 256 values of 4 bytes in a place of 16 KiB
    assert memory_of(TPU.replace("BODY", held)).heap_padding_bytes == 16_384 - 1024


def outcomes(memory: Memory) -> list[tuple[str, str, tuple[int, ...] | None, str]]:
    return [(d.argument, d.outcome, d.output, d.output_name) for d in memory.donations]


def test_who_could_give_memory_to_which_output() -> None:
    text = """HloModule m, is_scheduled=true, input_output_alias={ {1}: (2, {}, may-alias) }
ENTRY %main {
  %a = f32[64]{0} parameter(0)
  %b = f32[32]{0} parameter(1)
  %c = f32[16]{0} parameter(2)
  %d = f32[8]{0} parameter(3)
  %one = f32[] parameter(4)
  %na = f32[64]{0} negate(%a)
  %nb = f32[32]{0} negate(%b)
  %nc = f32[16]{0} negate(%c)
  %m = f32[] negate(%one)
  ROOT %t = (f32[32]{0}, f32[16]{0}, f32[64]{0}, f32[], f32[64]{0}) tuple(%nb, %nc, %na, %m, %na)
}
"""
    arguments = tuple(
        Argument(name, (), "float32", donated=name == "d", parameter=k)
        for k, name in enumerate("abcd")
    )
    results = tuple(Argument(f"out.{k}", (), "float32") for k in range(2))
    memory = memory_of(text, arguments=arguments, results=results)
    assert outcomes(memory) == [
        ("c", "aliased", (1,), "out.1"),
        ("d", "donated, unused", None, ""),
        ("a", "could be donated", (2,), ""),  # the largest first; a scalar is not worth it
        ("b", "could be donated", (0,), "out.0"),
    ]
    assert [d.bytes for d in memory.donations] == [64, 32, 256, 128]
    assert memory.donations[1].why == "no output is f32[8] on a device"


@pytest.mark.parametrize(
    ("given", "returned", "why"),
    [
        ("f32[8]{0}", "(f32[8]{0})", "the one output of f32[8] already lies in another argument's memory"),
        ("f32[8]{0}", "(f32[8]{0}, f32[8]{0})", "all 2 outputs of f32[8] already lie"),
        ("f32[4,2]{1,0}", "(f32[4,2]{0,1})", "the outputs of f32[4,2] have another layout or sharding"),
        ("f32[8]{0}", "(s32[8]{0}, bf16[8]{0})", "it is f32[8], and the outputs of that shape are bf16, s32"),
        ("f32[8]{0}", "(f32[4,2]{1,0})", "no output is f32[8] on a device (as large: f32[4,2])"),
        ("f32[8]{0}", "(f32[9]{0})", "no output is f32[8] on a device"),
    ],
)  # fmt: skip
def test_why_a_donation_is_in_vain(given: str, returned: str, why: str) -> None:
    # the outputs lie where another argument was
    results = parse_shape(returned).tuple_shapes
    lines = [f"  %x = {given} parameter(0)"]
    for k, shape in enumerate(results):
        lines.append(f"  %y{k} = {shape} parameter({k + 1})")
        lines.append(f"  %n{k} = {shape} negate(%y{k})")
    made = ", ".join(f"%n{k}" for k in range(len(results)))
    aliases = ", ".join(f"{{{k}}}: ({k + 1}, {{}}, must-alias)" for k in range(len(results)))
    text = f"""HloModule m, is_scheduled=true, input_output_alias={{ {aliases} }}
ENTRY %main {{
{chr(10).join(lines)}
  ROOT %t = {returned} tuple({made})
}}
"""
    arguments = (Argument("x", (), "f32", donated=True, parameter=0),)
    (found,) = [d for d in memory_of(text, arguments=arguments).donations if d.argument == "x"]
    assert found.outcome == "donated, unused"
    assert found.why.startswith(why)


def test_copies_of_whole_parameters() -> None:
    text = """HloModule m, is_scheduled=true
ENTRY %main {
  %w = f32[8,16]{1,0} parameter(0)
  %v = f32[16]{0} parameter(1)
  %one = f32[] parameter(2)
  %turned = f32[16,8]{1,0} transpose(%w), dimensions={1,0}
  %laid = f32[8,16]{0,1} copy(%w)
  %cast = bf16[8,16]{1,0} convert(%w)
  %flat = f32[128]{0} bitcast(%w)
  %both = bf16[128]{0} convert(%flat)
  %scalar = bf16[] convert(%one)
  %work = f32[16]{0} negate(%v)
  %own = f32[16]{0} copy(%work)
  ROOT %t = (f32[16,8]{1,0}, f32[8,16]{0,1}, bf16[8,16]{1,0}, bf16[128]{0}, bf16[], f32[16]{0}) \
tuple(%turned, %laid, %cast, %both, %scalar, %own)
}
"""
    found = [(c.instruction.name, c.argument, c.bytes, c.changes)
             for c in memory_of(text).parameter_copies]  # fmt: skip
    assert found == [
        ("turned", "w", 512, "layout"),
        ("laid", "w", 512, "layout"),
        ("cast", "w", 256, "type"),
        ("both", "w", 256, "layout and type"),
    ]


CLOSED_OVER = """HloModule m, is_scheduled=true
ENTRY %main {
  %x = f32[64]{0} parameter(0)
  %few = f32[8]{0} constant({...})
  %w = f32[64]{0} constant({...})
  %y = f32[64]{0} add(%x, %w)
  ROOT %o = f32[1]{0} slice(%y), slice={[0:1]}
}
"""


@pytest.mark.parametrize(
    ("platform", "stats", "held"),
    [
        ("cpu", {}, 256 + 256 + 4),  # x, y and the result
        ("tpu", STATS, 928),
    ],
)
def test_constants_are_held_beside_everything_else(platform, stats, held) -> None:
    memory = memory_of(CLOSED_OVER, platform=platform, memory_stats=stats)
    assert memory.constant_bytes == 256
    assert memory.peak_bytes == held + 256
    assert memory.spaces[0].peak_bytes == held + 256
    # in the timeline too: at every point, as a value of its own
    assert memory.timeline.min() >= 256 + 256 + 4
    assert memory.timeline.max() == 256 + 256 + 256 + 4
    assert memory.by_category["constant"] == 256
    (constant,) = (v for v in memory if v.kind == "constant")
    assert (constant.start, constant.end) == (0, len(memory.schedule) - 1)
    assert "constant 256 B" in repr(memory)


def test_an_argument_rounded_in_its_own_type_is_not_copied() -> None:
    cap = hs.read(
        "HloModule m, is_scheduled=true\n\nENTRY main (x: f32[1024]) -> f32[1024] {\n"
        "  x = f32[1024]{0} parameter(0)\n"
        "  r = f32[1024]{0} reduce-precision(x), exponent_bits=8, mantissa_bits=7\n"
        "  ROOT n = f32[1024]{0} negate(r)\n}\n"
    )
    assert cap.memory.parameter_copies == ()
