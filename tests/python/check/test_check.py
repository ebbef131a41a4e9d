"""Budgets: kept, exceeded with the line at fault, and never kept for want of knowledge."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import hloscope as hs
import numpy
import pytest
from hloscope.analysis.check.check import BudgetError
from hloscope.analysis.check.sizes import parse_size
from hloscope.readers.proto.schema import message_class
from hloscope.show.cli import main

SMALL = """HloModule small, is_scheduled=true, input_output_alias={ {}: (0, {}, may-alias) }

ENTRY %main (p: f32[1024], q: f32[1024]) -> f32[1024] {
  %p = f32[1024]{0} parameter(0), metadata={op_name="params"}
  %q = f32[1024]{0} parameter(1), metadata={op_name="batch"}
  %wide = f64[1024]{0} convert(%q), metadata={source_file="train.py" source_line=12}
  %back = f32[1024]{0} convert(%wide), metadata={source_file="train.py" source_line=9}
  ROOT %sum = f32[1024]{0} add(%p, %back), metadata={source_file="train.py" source_line=13}
}
"""


@pytest.fixture(scope="module")
def small() -> hs.Capture:
    return hs.read(SMALL)


@pytest.fixture(scope="module")
def gathering() -> hs.Capture:
    """A layer on a 2 × 4 mesh that gathers its hidden activations over ``model``."""
    jax = pytest.importorskip("jax", reason="jax is not installed")
    from jax.sharding import NamedSharding, PartitionSpec

    devices = numpy.array(jax.devices()[:8]).reshape(2, 4)
    mesh = jax.sharding.Mesh(devices, ("data", "model"))

    def put(*spec: Any) -> Any:
        return NamedSharding(mesh, PartitionSpec(*spec))

    def layer(x: Any, w: Any) -> Any:
        return jax.lax.with_sharding_constraint(x @ w, put("data", None))

    x = jax.ShapeDtypeStruct((16, 64), "float32", sharding=put("data", None))
    w = jax.ShapeDtypeStruct((64, 256), "float32", sharding=put(None, "model"))
    return hs.capture(jax.jit(layer), x, w)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("12GiB", 12 << 30),
        ("1.5 MB", 1_500_000),
        ("7", 7),
        ("3 B", 3),
        (12, 12),
        ("1_000kB", 10**6),
    ],
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "12 GiBs", "-1", "iB", "1e9", "12 XB", True, -1, numpy.nan])
def test_what_is_no_size_says_so(text: Any) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_size(text)


def test_kept(small: hs.Capture) -> None:
    report = hs.check(
        small,
        max_peak="1MiB",
        max_instructions=5,
        forbid=["all-gather over model", "f16", "host-transfer", "sort"],
        max_wire_bytes={"total": 0},
        require_donation=["par*"],
        raises=True,
    )
    assert report
    assert report.status == 0
    assert len(report.kept) == 8


def test_each_breach_names_the_line(small: hs.Capture) -> None:
    report = hs.check(small, max_peak=1000, max_instructions=4, forbid="f64")
    assert report.status == 1
    peak, forbidden, count = report.breaches
    assert peak.budget == "max_peak"
    assert peak.file == "train.py"
    assert (forbidden.file, forbidden.line) == ("train.py", 12)
    assert forbidden.message == "%wide = f64[1024] convert"
    assert count.message == "5 of 4"
    with pytest.raises(BudgetError, match=r"train\.py:12: forbid: f64"):
        hs.check(small, forbid="f64", raises=True)


def test_donation(small: hs.Capture) -> None:
    report = hs.check(small, require_donation=["params", "batch"])
    assert [b.message for b in report.breaches] == ["batch is not reused for any output"]
    absent = hs.check(small, require_donation=["weights*"])
    assert absent.status == 2
    undonated = hs.read(SMALL.replace("input_output_alias={ {}: (0, {}, may-alias) }", "x=1"))
    assert hs.check(undonated, require_donation=True).status == 1


def test_collectives_over_an_axis(gathering: hs.Capture) -> None:
    rows = [r for r in gathering.collectives if r.kind == "all-gather"]
    assert rows
    assert hs.check(gathering, forbid="all-gather over data").status == 0
    report = hs.check(gathering, forbid="all-gather over model")
    assert report.status == 1
    assert len(report.breaches) == len(rows)
    assert report.breaches[0].file == __file__
    sent = sum(r.total_wire_bytes or 0 for r in gathering.collectives if r.axes == "model")
    assert hs.check(gathering, max_wire_bytes={"model": sent}).status == 0
    over = hs.check(gathering, max_wire_bytes={"model": sent - 1, "data": 0})
    assert [b.budget for b in over.breaches] == ["max_wire_bytes[model]"]


def test_what_cannot_be_evaluated_is_no_pass(small: hs.Capture, gathering: hs.Capture) -> None:
    assert hs.check(gathering, max_wire_bytes={"expert": "1GiB"}).status == 2
    assert hs.check(gathering, forbid="all-gather over expert").status == 2
    assert hs.check(small, forbid="all-gater").status == 2
    assert "did you mean all-gather" in str(hs.check(small, forbid="all-gater"))
    unscheduled = hs.read(SMALL.replace("is_scheduled=true, ", ""))
    assert hs.check(unscheduled, max_peak="1GiB").status == 2
    cut = hs.read(SMALL[: SMALL.index("  ROOT")])
    assert hs.check(cut, max_peak="1GiB", max_instructions=100).status == 2
    loop = hs.read(UNKNOWN_TRIPS)
    assert hs.check(loop, max_wire_bytes="1GiB").status == 2
    assert "number of executions" in str(hs.check(loop, max_wire_bytes="1GiB"))


REDUCES = """HloModule reduces, is_scheduled=true, num_partitions=8

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

ENTRY %main (x: f32[64]) -> f32[64] {
  %x = f32[64]{0} parameter(0)
  %r = f32[64]{0} all-reduce(%x), channel_id=1, replica_groups={{0,1,2,3,4,5,6,7}}, use_global_device_ids=true, to_apply=%add
  ROOT %wide = f32[64]{0} custom-call(%r), custom_call_target="MoveToHost"
}
"""  # noqa: E501
GENEROUS: list[dict[str, Any]] = [
    {"forbid": "all-to-all"},
    {"forbid": "f64"},
    {"forbid": "sort"},
    {"forbid": "collective over data"},
    {"forbid": "findings"},
    {"forbid": "host-callback"},
    {"max_wire_bytes": "1TiB"},
    {"max_peak": {"HBM": "1TiB"}},
    {"max_instructions": 1000},
    {"require_donation": ["x"]},
]


@pytest.fixture(scope="module")
def cut_anywhere() -> list[tuple[str, hs.Capture]]:
    """Every beginning of a dump that can be read, and its capture."""
    whole, read = REDUCES.rstrip(), []
    for end in range(len(whole)):
        with suppress(hs.ReadError):
            read.append((whole[:end], hs.read(whole[:end])))
    return read


@pytest.mark.parametrize("budget", GENEROUS, ids=str)
def test_nothing_passes_on_a_dump_cut_anywhere(
    budget: dict[str, Any], cut_anywhere: list[tuple[str, hs.Capture]]
) -> None:
    assert len(cut_anywhere) > 300
    for text, cut in cut_anywhere:
        assert not hs.check(cut, **budget), text[-40:]


def test_what_a_cut_dump_shows_is_a_breach_and_what_it_hides_cannot_be_known() -> None:
    shown = hs.read(REDUCES[: REDUCES.index("  ROOT %wide")])
    found = hs.check(shown, forbid=["all-reduce", "host-transfer"])
    assert [b.budget for b in found.breaches] == ["forbid: all-reduce"]
    (unknown,) = found.problems
    assert unknown.budget == "forbid: host-transfer"
    assert "the dump ends inside %main" in unknown.message
    assert hs.check(hs.read(REDUCES), forbid="host-transfer").status == 1
    # a line lost in the middle, a computation that is not there, an operand that is not
    for damaged in (
        REDUCES.replace("ROOT %wide = f32[64]{0} custom-call(", "ROOT %wide ? custom-call("),
        REDUCES.replace("to_apply=%add", "to_apply=%other"),
        REDUCES.replace("custom-call(%r)", "custom-call(%other)"),
    ):
        assert hs.check(hs.read(damaged), forbid="sort").status == 2
    # lines of a log around the module are no part of it
    log = "I0000 compiling\n" + REDUCES + "\nI0000 done\n"
    assert hs.check(hs.read(log), forbid="sort").status == 0


def test_what_compiling_adds_cannot_be_known_before_it() -> None:
    jax = pytest.importorskip("jax", reason="jax is not installed")
    written = hs.capture(lambda x: x @ x, jax.ShapeDtypeStruct((8, 8), "float32")).at("stablehlo")
    for what in ("all-gather", "host-transfer", "findings", "dot"):
        assert hs.check(written, forbid=what).status == 2, what
    assert hs.check(written, forbid="f64").status == 0
    assert hs.check(written, forbid="dot_general").status == 1


UNKNOWN_TRIPS = """HloModule loop, num_partitions=4

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

%body (t: (f32[8], pred[])) -> (f32[8], pred[]) {
  %t = (f32[8]{0}, pred[]) parameter(0)
  %x = f32[8]{0} get-tuple-element(%t), index=0
  %go = pred[] get-tuple-element(%t), index=1
  %r = f32[8]{0} all-reduce(%x), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=%add
  ROOT %out = (f32[8]{0}, pred[]) tuple(%r, %go)
}

%cond (c: (f32[8], pred[])) -> pred[] {
  %c = (f32[8]{0}, pred[]) parameter(0)
  ROOT %g = pred[] get-tuple-element(%c), index=1
}

ENTRY %main (p: f32[8], k: pred[]) -> (f32[8], pred[]) {
  %p = f32[8]{0} parameter(0)
  %k = pred[] parameter(1)
  %t0 = (f32[8]{0}, pred[]) tuple(%p, %k)
  ROOT %w = (f32[8]{0}, pred[]) while(%t0), condition=%cond, body=%body
}
"""  # noqa: E501


def test_host_transfers_are_found() -> None:
    jax = pytest.importorskip("jax", reason="jax is not installed")

    def f(x: Any) -> Any:
        jax.debug.print("{x}", x=x[0])
        return x + 1

    cap = hs.capture(f, jax.ShapeDtypeStruct((4,), "float32"))
    report = hs.check(cap, forbid="host-transfer")
    assert report.status == 1
    assert report.breaches[0].file == __file__


# The command


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.hlo"
    path.write_text(SMALL)
    return path


def test_statuses(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(file), "--max-peak", "1GiB"]) == 0
    assert main(["check", str(file), "--max-peak", "1kB", "--forbid", "f64"]) == 1
    said = capsys.readouterr().out
    assert "  train.py:12: forbid: f64: %wide = f64[1024] convert\n" in said
    assert main(["check", str(file), "--forbid", "nonsense"]) == 2
    for bad in (
        [str(file)],
        [str(file), "--max-peak", "lots"],
        [str(file.parent / "absent.hlo"), "--max-peak", "1GiB"],
    ):
        assert main(["check", *bad]) == 2
        assert capsys.readouterr().err.startswith("hloscope: ")


def test_github_annotations(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(file), "--forbid", "f64", "--format", "github"]) == 1
    line = "::error file=train.py,line=12,title=hloscope forbid%3A f64::%25wide = f64[1024] convert"
    assert capsys.readouterr().out == line + "\n"


def test_config(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = file.parent / "budgets.toml"
    config.write_text(
        'max-peak = "1kB"\nforbid = ["f64"]\nmax-instructions = 4\nrequire-donation = ["batch"]\n'
        '[max-wire-bytes]\ntotal = "1GiB"\n'
    )
    assert main(["check", str(file), "--config", str(config), "--format", "json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert [b["budget"] for b in said["breaches"]] == [
        "max_peak",
        "forbid: f64",
        "max_instructions",
        "require_donation",
    ]
    # an option replaces what the file says
    assert main(["check", str(file), "--config", str(config), "--max-peak", "1GiB"]) == 1
    assert "ok: max_peak" in capsys.readouterr().out
    project = file.parent / "pyproject.toml"
    project.write_text('[tool.hloscope.check]\nmax-peak = "1GiB"\n')
    assert main(["check", str(file), "--config", str(project)]) == 0
    config.write_text('[tool.hloscope.check]\nmax-peak = "1GiB"\n')
    assert main(["check", str(file), "--config", str(config)]) == 0
    capsys.readouterr()
    for wrong, says in (
        ('max-peak = "lots"', f"{config}: not a size: 'lots'"),
        ('max-instructions = "many"', f"{config}: max_instructions is a whole number"),
        ("max-instructions = -1", "max_instructions cannot be below 0: -1"),
        ('max-peak = "1', f"{config} is not valid TOML: "),
        ("[tool.other]\nx = 1", f"{config} has no [tool.hloscope.check]"),
        ("", "no budget is given"),
    ):
        config.write_text(wrong + "\n")
        assert main(["check", str(file), "--config", str(config)]) == 2
        error = capsys.readouterr().err
        assert says in error
        assert error.count("\n") == 1
    config.write_text("max-peek = 3\n")
    assert main(["check", str(file), "--config", str(config)]) == 2
    assert "did you mean max-peak?" in capsys.readouterr().err


def test_the_fixture(file: Path) -> None:
    (file.parent / "conftest.py").write_text(
        # as the installed plugin does it; an import works whether it is installed or not
        "from hloscope.pytest_plugin import hlo_check  # noqa: F401\n"
    )
    (file.parent / "test_it.py").write_text(
        "import hloscope as hs\n"
        "def test_fits(hlo_check):\n"
        "    assert hlo_check(hs.read('small.hlo'), max_peak='1GiB').kept\n"
        "def test_does_not(hlo_check):\n"
        "    hlo_check(hs.read('small.hlo'), forbid=['f64'])\n"
        "def test_typo(hlo_check):\n"
        "    hlo_check(hs.read('small.hlo'), max_peek=1)\n"
        "def test_raises():\n"
        "    hs.check(hs.read('small.hlo'), forbid=['f64'], raises=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"],
        cwd=file.parent,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
    )
    assert "3 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "train.py:12: forbid: f64" in done.stdout
    assert "did you mean max_peak?" in done.stdout
    assert "def check(" not in done.stdout  # the traceback ends at the person's line


def test_the_plugin_is_declared(repo: Path) -> None:
    import tomllib

    project = tomllib.loads((repo / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"hloscope": "hloscope.pytest_plugin"}


EVIL = "::error file=x::forged"


@pytest.mark.parametrize(
    "words",
    [
        ["check", "--max-instructions", "99"],
        ["check", "--max-instructions", "1"],
        ["check", "--max-instructions", "99", "--format", "github"],
        ["check", "--max-instructions", "1", "--format", "github"],
        ["summary"],
        ["list"],
    ],
)
def test_no_name_is_a_command_of_the_runner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """A workflow's runner obeys lines that begin with ``::``, and ``##[`` anywhere in one."""
    file = tmp_path / "m.pb"
    message = message_class("HloModule")()
    message.name = (EVIL + "\n::error::next ##[error]line").encode()
    computation = message.computations.add(name=b"e", id=1, root_id=1)
    instruction = computation.instructions.add(name=EVIL.encode(), opcode=b"parameter", id=1)
    instruction.shape.element_type = 11
    message.entry_computation_id = 1
    file.write_bytes(message.SerializeToString())
    main([words[0], str(file), *words[1:]])
    said = capsys.readouterr()
    lines = (said.out + said.err).splitlines()
    assert lines
    for line in lines:
        ours = "github" in words and line.startswith("::error title=hloscope max-instructions::")
        assert ours or not line.lstrip().startswith("::"), line
        assert "##[" not in line


def test_a_baseline_holds_what_the_program_took(gathering: hs.Capture, tmp_path: Path) -> None:
    stored = hs.write_baseline(tmp_path / "main.json", gathering)
    figures = json.loads(stored.read_text())["programs"][gathering.module.name]
    assert figures["peak_bytes"] == gathering.memory.peak_bytes
    assert figures["wire_bytes"] == gathering.collectives.wire_bytes
    assert figures["instructions"] == len(gathering.module.instructions)
    report = hs.check(gathering, baseline=stored)
    assert report
    assert len(report.kept) == 4


@pytest.mark.parametrize("figure", ["peak_bytes", "wire_bytes", "instructions", "seconds"])
def test_each_figure_is_held_to_the_stored_one(
    gathering: hs.Capture, tmp_path: Path, figure: str
) -> None:
    program = hs.read(gathering.text, hardware="tpu-v5e")
    path = hs.write_baseline(tmp_path / "main.json", program)
    content = json.loads(path.read_text())
    stored = content["programs"][program.module.name]
    stored[figure] *= 0.9
    path.write_text(json.dumps(content))
    report = hs.check(program, baseline=path)
    assert [b.budget for b in report.breaches] == [f"baseline: {figure}"]
    assert "(+11.1%)" in report.breaches[0].message
    assert hs.check(program, baseline=path, tolerance="12%")
    assert not hs.check(program, baseline=path, tolerance=0.11)
    stored[figure] = None
    path.write_text(json.dumps(content))
    assert hs.check(program, baseline=path).status == 2  # unknown then is not kept


def test_a_baseline_of_another_chip_or_program_is_not_kept(
    gathering: hs.Capture, small: hs.Capture, tmp_path: Path
) -> None:
    path = hs.write_baseline(tmp_path / "main.json", hs.read(gathering.text, hardware="tpu-v5e"))
    other = hs.check(hs.read(gathering.text, hardware="tpu-v5p"), baseline=path)
    assert other.status == 2
    assert "different chips: tpu-v5e then, tpu-v5p now" in str(other)
    unknown = hs.check(small, baseline=path)
    assert unknown.status == 2
    assert f"has no figures of small; it has those of: {gathering.module.name}" in str(unknown)
    hs.write_baseline(path, small)
    assert hs.check(small, baseline=path)
    assert sorted(json.loads(path.read_text())["programs"]) == [gathering.module.name, "small"]


def test_the_command_writes_and_compares_a_baseline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, stored = tmp_path / "small.hlo", tmp_path / "main.json"
    file.write_text(SMALL)
    assert main(["check", str(file), "--write-baseline", str(stored)]) == 0
    assert main(["check", str(file), "--baseline", str(stored)]) == 0
    file.write_text(SMALL.replace("1024", "2048"))
    assert main(["check", str(file), "--baseline", str(stored)]) == 1
    assert "baseline: peak_bytes: 40 KiB, 20 KiB before (+100.0%)" in capsys.readouterr().out
    assert main(["check", str(file), "--baseline", str(stored), "--tolerance", "100%"]) == 0
    assert main(["check", str(file), "--tolerance", "5%"]) == 2  # no budget
    assert main(["check", str(file), "--baseline", str(stored), "--tolerance", "-1"]) == 2
    for content in ("{", "[]", '{"programs": {}}', '{"hloscope_baseline": 9, "programs": {}}'):
        stored.write_text(content)
        assert main(["check", str(file), "--baseline", str(stored)]) == 2
        assert main(["check", str(file), "--write-baseline", str(stored)]) == 2
        assert stored.read_text() == content
