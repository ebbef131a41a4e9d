"""Small facts at the edges of files: each would be wrong after a change of one character.

As ``test_edges.py``, for what is read of a folder, a trace or a mesh: without a compile.
"""

from __future__ import annotations

import math
from pathlib import Path

import hloscope as hs
import pytest
from hloscope.hlo.shardings.mesh_text import mesh_from_text, parse_iota
from hloscope.readers.entries import choose_module
from hloscope.readers.files.dump_directory import list_directory
from hloscope.readers.proto.literals import _small_float
from hloscope.readers.xplane.match import match
from hloscope.readers.xplane.xplane import OpTime, Trace, TracedProgram


def test_the_largest_module_is_taken():
    text = ""
    for name, count in (("small", 1), ("large", 5), ("middle", 3)):
        body = "\n".join(f"  a{k} = f32[] parameter({k})" for k in range(count))
        text += f"HloModule {name}\n\nENTRY e {{\n{body}\n}}\n\n"
    found = hs.read(text)
    assert found.module.name == "large"
    assert "the largest was taken" in found.warnings[0]
    modules = hs.readers.read_modules(text)
    assert [m.name for m in modules] == ["small", "large", "middle"]
    assert choose_module(modules, -1, "x").name == "middle"
    with pytest.raises(hs.ReadError, match="use 0 to 2"):
        choose_module(modules, 3, "x")


def test_of_a_stage_as_text_and_as_proto_the_text_is_read(tmp_path: Path):
    base = "module_0001.jit_f.cpu_after_optimizations"
    for ends in (("hlo.pb", "txt"), ("txt", "hlo.pb"), ("hlo.pb", "hlo.txt")):
        folder = tmp_path / "-".join(ends)
        folder.mkdir()
        for end in ends:
            (folder / f"{base}.{end}").write_text("")
        (entry,) = list_directory(folder)
        assert entry.path.name.endswith("txt")


@pytest.mark.parametrize(
    ("ends", "taken"),
    [
        (("hlo.txt", "pb"), "hlo.txt"),  # the proto comes later in the listing
        (("hlo.pb", "txt.gz"), "txt.gz"),  # compressed text is text
        (("hlo.txt.gz", "pb.gz"), "hlo.txt.gz"),
    ],
)
def test_text_is_read_before_a_proto_whatever_their_order(
    tmp_path: Path, ends: tuple[str, ...], taken: str
):
    base = "module_0001.jit_f.cpu_after_optimizations"
    for end in ends:
        (tmp_path / f"{base}.{end}").write_text("")
    (entry,) = list_directory(tmp_path)
    assert entry.path.name == f"{base}.{taken}"


HELPER = "s {\n  a = f32[] parameter(0)\n  ROOT b = f32[] negate(a)\n}\n\n"
PRINTED = HELPER.replace("s {", "%s (a: f32[]) -> f32[] {")
MAIN = "main {\n  p = f32[] parameter(0)\n  ROOT c = f32[] call(p), to_apply=s\n}\n"
ALONE = "%t (a: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n  ROOT %d = f32[] sine(%a)\n}\n"


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        (HELPER + MAIN, "main"),  # the last, which uses the other
        (PRINTED + ALONE, None),  # as XLA prints them, and the last uses nothing: cut off
        (HELPER + ALONE.replace("%", "").replace("t (a: f32[]) -> f32[] {", "t {"), "t"),
    ],
)
def test_which_computation_is_the_program_where_none_says_so(text: str, entry: str | None):
    module = hs.read("HloModule m\n\n" + text).module
    assert (module.entry.name if module.entry else None) == entry


def test_a_list_of_devices_that_does_not_fit_its_shape_is_none():
    assert parse_iota("[4,2]<=[8]").shape == (4, 2)
    assert parse_iota("[4,3]<=[8]") is None
    assert parse_iota("[4,2]<=[2,4]T(1,2)") is None


def trace_of(module, share: float) -> Trace:
    """A trace whose program has that share of the module's instructions."""
    from hloscope.readers.proto.schema import message_class

    message = message_class("HloModule")()
    message.name = module.name.encode()
    computation = message.computations.add(name=b"e", id=1)
    for k, i in enumerate(module.instructions[: round(share * len(module.instructions))]):
        made = computation.instructions.add(name=i.name.encode(), opcode=b"parameter", id=k)
        made.parameter_number = k
        made.shape.element_type = 11
    programs = (TracedProgram(module.name, 7, message.SerializeToString()),)
    ops = (OpTime(module.name, "a0", 0, 1.0, 1, program=7),)
    return Trace(ops, programs, {}, {}, {0: "TPU:0"})


@pytest.mark.parametrize(("share", "is_the_same"), [(1.0, True), (0.9995, True), (0.99, False)])
def test_nearly_the_same_program_is_told(share, is_the_same):
    body = "\n".join(f"a{k} = f32[] parameter({k})" for k in range(2000))
    module = hs.read(f"HloModule m\n\nENTRY main {{\n{body}\n}}\n").module
    notes = match(trace_of(module, share), module).notes
    assert bool(notes) is not is_the_same
    assert is_the_same or "99 % of the instructions" in notes[0]


@pytest.mark.parametrize(
    ("names", "shares", "taken"),
    [
        (("m", "m"), (1.0, 0.9), {7}),  # of two compiles of a name the one that is the same
        (("m", "m"), (0.9, 1.0), {8}),
        (("m", "m"), (1.0, 0.9995), {7, 8}),
        (("other", "third"), (1.0, 0.9), {7}),  # another name, and the same program
        (("m", "other"), (0.9, 1.0), {7}),  # the name tells first
    ],
)
def test_which_programs_of_a_trace_are_taken(names, shares, taken):
    body = "\n".join(f"a{k} = f32[] parameter({k})" for k in range(2000))
    module = hs.read(f"HloModule m\n\nENTRY main {{\n{body}\n}}\n").module
    programs = tuple(
        TracedProgram(name, 7 + k, trace_of(module, share).programs[0].proto)
        for k, (name, share) in enumerate(zip(names, shares, strict=True))
    )
    ops = tuple(OpTime(p.name, "a0", 0, 1.0, 1, program=p.id) for p in programs)
    found = match(Trace(ops, programs, {}, {}, {0: "TPU:0"}), module)
    assert {program for _, program, _ in found.rows} == taken


@pytest.mark.parametrize("kind", ["f8e5m2fnuz", "f8e4m3fnuz", "f8e4m3b11fnuz"])
def test_fnuz_has_one_nan_and_no_minus_zero(kind):
    values = {code: _small_float(code, kind) for code in range(256)}
    assert [code for code, v in values.items() if math.isnan(v)] == [128]
    assert math.copysign(1, values[128]) == -1
    assert not [c for c, v in values.items() if math.isinf(v)]
    assert math.copysign(1, values[0]) == 1
    assert values[128 + 1] == -values[1] != 0


@pytest.mark.parametrize(
    ("text", "partitions"),
    [
        ("mesh['x'=2,'y'=2]", (0, 1, 2, 3)),
        ("mesh['x'=2,'y'=2], device_ids=(3,2,1,0)", (3, 2, 1, 0)),
        ("mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0))", (0, 2, 1, 3)),
        ("mesh['x'=2,'y'=2], device_ids=(3,2,1)", None),
        ("mesh['x'=2,'y'=2], device_ids=(3,2,1,0,4)", None),
        ("mesh['x'=0]", None),
        ("mesh[]", None),
    ],
)
def test_a_mesh_has_as_many_devices_as_its_axes_say(text, partitions):
    found = mesh_from_text(text)
    assert (found and found[0].partitions) == partitions


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("memory_bandwidth = nan", "above 0, not nan"),
        ("matmul = {bf16 = inf}", "above 0, not inf"),
        ("memory_bytes = true", "above 0, not True"),
        ("memory_bytes = 1" + "0" * 400, "too large"),
        ("devices_per_chip = 0", "at least 1, not 0"),
        ("links = [{name = 'x'}]", "a link of [tpu-v5e] has no kind"),
    ],
)
def test_a_hardware_file_that_makes_no_sense(tmp_path: Path, text: str, said: str):
    from hloscope.hardware import HardwareError, load

    file = tmp_path / "chips.toml"
    file.write_text(f"[tpu-v5e]\n{text}\n")
    with pytest.raises(HardwareError) as found:
        load(file)
    assert said in str(found.value)


@pytest.mark.parametrize("stage", ["after_optimizations", "0003.fusion.after_dce"])
def test_a_module_whose_name_holds_a_newline_is_listed(tmp_path: Path, stage: str) -> None:
    text = "HloModule m\nENTRY e { ROOT p = f32[] parameter(0) }\n"
    (tmp_path / f"module_0001.jit_a\nb.{stage}.txt").write_text(text)
    (entry,) = hs.list_modules(tmp_path)
    assert entry.name == "jit_a\nb"
    assert hs.read(tmp_path).module.name == "m"
