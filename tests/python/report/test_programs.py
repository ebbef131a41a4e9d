"""Several programs of one run beside one another: figures, calls in order, and what is unknown."""

from __future__ import annotations

import json
from pathlib import Path

import hloscope as hs
import pytest
from hloscope.__main__ import main
from hloscope.hlo import Module
from hloscope.readers import ReadError, read_modules
from xplane_builder import TraceBuilder


def text(name: str, size: int, dots: int) -> str:
    square = f"f32[{size},{size}]{{1,0}}"
    lines = [
        f"HloModule {name}, is_scheduled=true",
        "",
        f"ENTRY %main (p: {square}) -> {square} {{",
    ]
    lines.append(f"  %p = {square} parameter(0)")
    for k in range(dots):
        root, before = "ROOT " * (k == dots - 1), f"%dot.{k - 1}" if k else "%p"
        lines.append(
            f"  {root}%dot.{k} = {square} dot({before}, %p), "
            "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        )
    return "\n".join([*lines, "}", ""])


MODULES = {1: ("jit_init", 4, 9), 3: ("jit_train", 64, 4), 5: ("jit_eval", 64, 1)}
FLOPS = {name: 2 * n**3 * dots for name, n, dots in MODULES.values()}


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    folder = tmp_path / "dump"
    folder.mkdir()
    for number, (name, n, dots) in MODULES.items():
        for stage in ("before_optimizations", "cpu_after_optimizations"):
            path = folder / f"module_{number:04}.{name}.{stage}.txt"
            path.write_text(text(name, n, dots))
    return folder


def module(name: str) -> Module:
    return read_modules(text(*next(m for m in MODULES.values() if m[0] == name)))[0]


def trace(tmp_path: Path, order: list[tuple[str, int]]) -> Path:
    """Calls of (name, program) one after the other on two devices."""
    builder = TraceBuilder("host")
    for device in range(2):
        at = 1000
        for step, (name, program) in enumerate(order):
            made = read_modules(text(name, 8, 2))[0] if name == "jit_other" else module(name)
            at = builder.tpu(made, program, device=device, start=at, step=step) + 500
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(builder.serialized())
    return path


def test_a_dump_lists_what_was_compiled_and_says_nothing_of_what_ran(dump: Path) -> None:
    found = hs.read_programs(dump)
    assert [(r.number, r.name, r.stage) for r in found] == [
        (k, m[0], "cpu_after_optimizations") for k, m in MODULES.items()
    ]
    assert {r.name: r.flops for r in found} == FLOPS
    assert {r.runs for r in found} == {None}
    assert found.total("flops") == (None, "")
    assert found.calls == ()
    assert found[found.chosen].name == hs.read(dump).module.name == "jit_init"
    assert "a dump does not say how often or in what order they ran" in str(found)


def test_a_trace_gives_calls_in_order_and_totals(dump: Path, tmp_path: Path) -> None:
    order = [("jit_init", 7), *[("jit_train", 8)] * 3, ("jit_eval", 9), ("jit_train", 8)]
    found = hs.read_programs(dump, profile=trace(tmp_path, order))
    assert [c.name for c in found.calls] == [name for name, _ in order]
    starts = [c.start_seconds for c in found.calls]
    assert starts[0] == 0.0
    assert starts == sorted(starts)
    assert {r.name: r.runs for r in found} == {"jit_init": 1, "jit_train": 4, "jit_eval": 1}
    whole = FLOPS["jit_init"] + 4 * FLOPS["jit_train"] + FLOPS["jit_eval"]
    assert found.total("flops") == (whole, "")
    seconds, _ = found.total("seconds")
    on_device = [c.seconds for c in found.calls]
    assert seconds == pytest.approx(sum(on_device), rel=0.05)  # the mean of both devices
    # what took most time, not what has the largest file; read() takes the same
    assert found[found.chosen].name == "jit_train"
    cap = hs.read(dump, profile=tmp_path / "host.xplane.pb")
    assert cap.module.name == "jit_train"
    assert cap.measured is not None
    assert cap.measured.steps == 4
    assert "most time in the trace" in cap.warnings[0]
    printed = str(found)
    assert "in order: jit_init, jit_train × 3, jit_eval, jit_train" in printed
    assert json.loads(json.dumps(found.to_dict()))["totals"]["flops"]["value"] == whole
    assert list(found.to_pandas()["runs"]) == [1, 4, 1]


def test_what_only_the_trace_knows_is_a_row_of_its_own(dump: Path, tmp_path: Path) -> None:
    found = hs.read_programs(dump, profile=trace(tmp_path, [("jit_train", 8), ("jit_other", 4)]))
    other = found[3]
    assert (other.name, other.number, other.runs, other.flops) == ("jit_other", None, 1, None)
    assert "its HLO is not here" in str(found)
    assert found.total("flops") == (FLOPS["jit_train"], "≥")
    assert {r.name: r.runs for r in found}["jit_eval"] == 0


def test_compiles_that_the_trace_does_not_tell_apart_have_no_calls(
    dump: Path, tmp_path: Path
) -> None:
    again = dump / "module_0009.jit_train.cpu_after_optimizations.txt"
    again.write_text(text("jit_train", 32, 4))
    found = hs.read_programs(dump, profile=trace(tmp_path, [("jit_train", 8), ("jit_eval", 2)]))
    assert {r.number: r.runs for r in found} == {1: 0, 3: None, 5: 1, 9: None}
    assert found.total("flops") == (None, "")
    assert "does not tell which of several compiles of jit_train ran" in str(found)


def test_bounds_of_totals_are_those_of_what_ran(dump: Path, tmp_path: Path) -> None:
    loop = (
        "HloModule jit_eval, is_scheduled=true\n\n%c (s: (f32[4], pred[])) -> pred[] {\n"
        "  %s = (f32[4]{0}, pred[]) parameter(0)\n"
        "  ROOT %g = pred[] get-tuple-element(%s), index=1\n}\n\n"
        "%b (s: (f32[4], pred[])) -> (f32[4], pred[]) {\n  %s = (f32[4]{0}, pred[]) parameter(0)\n"
        "  %x = f32[4]{0} get-tuple-element(%s), index=0\n  %y = f32[4]{0} negate(%x)\n"
        "  %g = pred[] get-tuple-element(%s), index=1\n"
        "  ROOT %t = (f32[4]{0}, pred[]) tuple(%y, %g)\n}\n\n"
        "ENTRY %e (a: f32[4]) -> (f32[4], pred[]) {\n  %a = f32[4]{0} parameter(0)\n"
        "  %q = pred[] constant(true)\n  %t = (f32[4]{0}, pred[]) tuple(%a, %q)\n"
        "  ROOT %w = (f32[4]{0}, pred[]) while(%t), condition=%c, body=%b\n}\n"
    )
    (dump / "module_0005.jit_eval.cpu_after_optimizations.txt").write_text(loop)
    found = hs.read_programs(dump, profile=trace(tmp_path, [("jit_train", 8), ("jit_eval", 2)]))
    assert found[2].is_lower_bound
    assert found.total("flops")[1] == "≥"
    assert found.total("seconds")[1] == ""


def test_a_file_that_cannot_be_read_is_a_row_that_says_so(dump: Path) -> None:
    (dump / "module_0003.jit_train.cpu_after_optimizations.txt").write_text("")
    found = hs.read_programs(dump)
    assert found[1].flops is None
    assert "empty" in found[1].problem
    assert "jit_train: " in str(found)
    with pytest.raises(ReadError):
        hs.read_programs(b"no module")


def test_several_modules_of_one_file() -> None:
    found = hs.read_programs("\n".join(text(*m) for m in MODULES.values()))
    assert {r.name: r.flops for r in found} == FLOPS
    assert found[found.chosen].name == "jit_init"
    assert "most instructions" in found.why


def test_the_command(dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = str(trace(tmp_path, [("jit_train", 8), ("jit_eval", 2)]))
    assert main(["list", "--figures", str(dump)]) == 0
    assert "FLOPs" in capsys.readouterr().out
    assert main(["list", "--profile", profile, "--json", str(dump)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [c["name"] for c in found["calls"]] == ["jit_train", "jit_eval"]
    assert main(["list", "--json", str(dump)]) == 0
    assert json.loads(capsys.readouterr().out)["modules"][0]["name"] == "jit_init"


def test_a_real_trace(real: Path) -> None:
    """Calls and mean of a device, as XProf shows them."""
    found = hs.read_programs(real / "traces" / "tpu-v6e-inference.xplane.pb")
    names = [c.name for c in found.calls]
    assert names[:3] == ["jit_convert_element_type", "jit_broadcast_in_dim", "jit__psum"]
    assert names.count("jit_f") == found[0].runs == 100
    assert found[0].seconds == pytest.approx(784.13e-3, rel=1e-4)
    assert {r.runs for r in found} == {1, 3, 100}
