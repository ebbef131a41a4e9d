"""Names in a dump, a trace, a hardware file or a table are data: printed, they command nothing.

A terminal obeys control characters, a person is misled by characters that reorder text, and
runners of workflows obey lines that begin with "::". Every printed result is looked at, for
names from each place where they can come from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import hloscope as hs
import pytest
from hloscope.hardware import HardwareError, load
from hloscope.hlo import Argument, Device, Mesh, Target
from hloscope.readers.proto.schema import message_class
from hloscope.show import blocks
from hloscope.show.cli import main
from xplane_builder import TraceBuilder

BAD = "<img src=x onerror=a()>\"'&\x1b]0;t\x07\x1b[31m\r\n::error::x\u202e##[group]"
ESCAPED = r"<img src=x>'\033]0;t\007\033[31m\n::error::x\342\200\256##[group]"
OBEYED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|^\s*::|##\[", re.M)

PROGRAM = rf"""HloModule jit_step, is_scheduled=true, num_partitions=4

%sum (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %ab = f32[] add(%a, %b)
}}

ENTRY %main (x: f32[512,512], w: f32[512,512]) -> f32[512,512] {{
  %x = f32[512,512]{{1,0}} parameter(0), sharding={{devices=[4,1]<=[4]}}, metadata={{op_name="x['{ESCAPED}']"}}
  %w = f32[512,512]{{1,0}} parameter(1), metadata={{op_name="w{ESCAPED}"}}
  %dot.1 = f32[512,512]{{1,0}} dot(%x, %w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, metadata={{op_name="jit(step)/{ESCAPED}/dot_general" source_file="{ESCAPED}.py" source_line=7}}
  %copy.2 = f32[512,512]{{0,1}} copy(%w), metadata={{op_name="jit(step)/{ESCAPED}/copy" source_file="{ESCAPED}.py" source_line=7}}
  %call.1 = f32[512,512]{{1,0}} custom-call(%dot.1, %copy.2), custom_call_target="{ESCAPED}", metadata={{op_name="jit(step)/{ESCAPED}/tanh" source_file="{ESCAPED}.py" source_line=7}}
  ROOT %all-reduce.1 = f32[512,512]{{1,0}} all-reduce(%call.1), channel_id=1, replica_groups={{{{0,1,2,3}}}}, use_global_device_ids=true, to_apply=%sum, metadata={{op_name="jit(step)/{ESCAPED}/psum" source_file="{ESCAPED}.py" source_line=7}}
}}
"""  # noqa: E501

STABLEHLO = r"""module @jit_step {
  func.func @main(%a: tensor<8xf32> loc("w\1B[31m\0A::error::x")) -> tensor<8xf32> {
    %0 = stablehlo.sine %a : tensor<8xf32> loc(#loc1)
    return %0 : tensor<8xf32> loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc1 = loc("<img>/\1B[31m\0A::error::x/sin"("\1B[31m\0A::error::x.py":7:1))
"""


# no text for people: the dump itself, and what prints as Python's own literals
RAW = {"text", "target", "for_hosts"}
ASKED = {"cost", "fates", "passes"}


def printed(cap: hs.Capture) -> Iterator[tuple[str, str]]:
    """Every result of a capture as it prints itself, and each finding and warning."""
    for name in sorted(n for n in dir(cap) if not n.startswith("_") and n not in RAW):
        try:
            value = getattr(cap, name)
            if name in ASKED:
                value = value()
        except ValueError:
            continue  # what this capture has not: passes, fates, of StableHLO a cost
        if value is None or callable(value) or isinstance(value, str | bytes | dict):
            continue
        yield name, str(value)
        if name in ("findings", "warnings"):
            yield from ((f"{name}[{k}]", str(row)) for k, row in enumerate(value))
    yield "capture", str(cap)
    yield "diff", str(hs.diff(cap, hs.read(PROGRAM)))
    yield "check", str(hs.check(cap, max_peak="1GiB"))


def obeyed(cap: hs.Capture) -> list[str]:
    return [f"{name}: {text!r}" for name, text in printed(cap) if OBEYED.search(text)]


def test_the_test_would_see_it():
    assert all(OBEYED.search(bad) for bad in ("a\x1b[0m", "a\n::error", "  ::x", "##[x", "\u202e"))
    assert not OBEYED.search("fusion.1 f32[8]::x")


def test_names_of_a_dump():
    cap = hs.read(PROGRAM, hardware="tpu-v5e")
    assert len(cap.findings) >= 2
    texts = dict(printed(cap))
    assert {"cost", "memory", "source", "shardings", "collectives", "findings"} <= set(texts)
    for name in ("cost", "memory", "source", "shardings", "findings"):
        assert "\\u001b" in texts[name], f"{name} shows no hostile name: it is not tested"
    assert obeyed(cap) == []


def test_names_of_a_proto():
    """There a name may be any bytes, an instruction's too."""
    message = message_class("HloModule")()
    message.name, message.entry_computation_id = BAD.encode(), 1
    main_ = message.computations.add(name=BAD.encode(), id=1)
    p = main_.instructions.add(name=f"p{BAD}".encode(), opcode=b"parameter", id=1)
    q = main_.instructions.add(name=f"q{BAD}".encode(), opcode=b"custom-call", id=2)
    q.operand_ids.append(1)
    q.custom_call_target = BAD.encode()
    for made in (p, q):
        made.shape.element_type = 11
        made.shape.dimensions.append(1 << 20)
    main_.root_id = 2
    cap = hs.read(message.SerializeToString(), hardware="tpu-v5e")
    assert cap.module.find(f"q{BAD}") is not None
    assert obeyed(cap) == []


def test_programs_of_a_run(tmp_path, capsys):
    """Of a folder the files' names say something too: the module, the pass, the stage."""
    bad = "\x1b[31m\r::error::x\u202e"
    for k, stage in enumerate(
        ("before_optimizations", f"0001.{bad}.after_{bad}.before_{bad}", "cpu_after_optimizations")
    ):
        text = PROGRAM.replace("%call.1", f"%call.{k}")
        (tmp_path / f"module_0001.{bad}.{stage}.txt").write_text(text)
        (tmp_path / f"module_0002.jit_step.{stage}.txt").write_text(text)
    programs = hs.read_programs(tmp_path, hardware="tpu-v5e")
    assert "\\u001b" in str(programs)
    assert str(programs).startswith("2 programs")
    assert not OBEYED.search(str(programs))
    for command in (["list"], ["list", "--figures"], ["findings"], ["passes"], ["trace", "w:7"]):
        try:
            status = main([command[0], str(tmp_path), *command[1:]])
        except SystemExit as left:
            status = left.code
        out, err = capsys.readouterr()
        assert out or err, command
        assert not OBEYED.search(out + err), (command, status)


def test_locations_of_stablehlo():
    cap = hs.read(STABLEHLO)
    sine = next(i for i in cap.module.instructions if "sine" in i.opcode)
    assert sine.op_name == "<img>/\x1b[31m\n::error::x/sin"
    assert [f.file for f in sine.frames] == ["\x1b[31m\n::error::x.py"]
    assert obeyed(cap) == []


def hostile_capture() -> hs.Capture:
    """A program whose title, mesh axis, devices and arguments are all called ``BAD``."""
    target = Target(
        mesh=Mesh((BAD,), (4,), (0, 1, 2, 3)),
        devices=tuple(Device(k, k, BAD) for k in range(4)),
        arguments=(
            Argument(f"params['{BAD}']", (512, 512), "float32", parameter=0),
            Argument("w", (512, 512), "float32", donated=True, parameter=1),
        ),
    )
    return hs.Capture(hs.read(PROGRAM).module, target=target, title=BAD)


def test_mesh_axes_and_keys_of_trees():
    cap = hostile_capture()
    texts = dict(printed(cap))
    assert "\\u001b" in texts["collectives"]
    assert obeyed(cap) == []


def test_events_of_a_trace(tmp_path):
    cap = hs.read(PROGRAM)
    made = TraceBuilder(BAD)
    made.tpu(cap.module, 7)
    plane = made.plane("/device:TPU:0")
    kind = plane.event_id(f"%{BAD} = f32[8] tanh()", BAD, program_id=7, hlo_category=BAD)
    plane.event("XLA Ops", kind, 10_000_000_000, 5_000_000)
    plane.event("XLA Modules", plane.event_id(f"{BAD}(8)"), 10_000_000_000, 5_000_000)
    made.plane(f"/device:TPU:{BAD}").event("XLA Ops", 1, 0, 10)
    (tmp_path / "host.xplane.pb").write_bytes(made.serialized())
    measured = cap.add_profile(tmp_path)
    assert measured.seconds.sum() > 0
    assert not OBEYED.search(str(measured))
    assert obeyed(cap) == []


def test_a_hardware_file(tmp_path, monkeypatch, capsys):
    file = tmp_path / "chips.toml"
    label = (
        '"' + "".join(c if c.isascii() and c.isalnum() else f"\\u{ord(c):04x}" for c in BAD) + '"'
    )
    file.write_text(f"[tpu-v5e]\nlabel = {label}\n[{label}]\nlabel = {label}\n")
    with pytest.raises(HardwareError):  # the second has no figures
        load(file)
    file.write_text(f"[tpu-v5e]\nlabel = {label}\n")
    monkeypatch.setenv("HLOSCOPE_HARDWARE", str(file))
    assert load()["tpu-v5e"].label == BAD
    assert obeyed(hs.read(PROGRAM, hardware="tpu-v5e")) == []
    assert main(["chips"]) == 0
    assert not OBEYED.search(capsys.readouterr().out)
    file.write_text("a = " + "[" * 100_000)
    with pytest.raises(HardwareError, match="is not a hardware file"):
        load(file)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"name,x\n" + b"a" * 200_000 + b",1\n", "cannot be read as CSV"),
        (b"name,x\n\xff\xfe,1\n", "cannot be read as CSV"),
        (b"", "has no rows"),
        (b"x\n1\n", "no column 'name'"),
        (b"name,x\ndot.1,1,2,3\n", None),
        (b"name,x\ndot.1\n", "one column of numbers"),
        (b"name,x\ndot.1,1\nabsent,\n", None),
        (b"name,x\ndot.1,1e999\n", None),
    ],
)
def test_a_csv_of_somebody_s_numbers(tmp_path, content: bytes, said: str | None):
    file = tmp_path / "own.csv"
    file.write_bytes(content)
    cap = hs.read(PROGRAM)
    if said is None:
        assert blocks.view(cap.add_values(file))
        assert blocks.analyses(cap)
    else:
        with pytest.raises(ValueError, match=said):
            cap.add_values(file)


def test_names_of_a_csv(tmp_path):
    file = tmp_path / "own.csv"
    file.write_text(f'name,"{BAD.replace(chr(34), chr(34) * 2)}"\ndot.1,1\n"{BAD[:5]}",2\n')
    cap = hs.read(PROGRAM).add_values(file)
    assert blocks.analyses(cap)
    assert obeyed(cap) == []


@pytest.mark.parametrize(
    "name", ["a", "it's", 'a"b', "a\"'b", "a\n\x1b", "'] + exit() + ['", "日本"]
)
def test_specs_to_paste_are_literals(name: str):
    from hloscope.plan.search.space import quoted, spec_code

    assert eval(quoted(name), {}) == name
    spec: Any = (None, name, (name, "y"))
    assert eval(spec_code(spec), {"P": lambda *parts: parts}) == spec
