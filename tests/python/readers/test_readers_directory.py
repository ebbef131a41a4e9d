"""Folders written by xla_dump_to, and folders of other files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hloscope import read
from hloscope.readers import ReadError, list_modules


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two programs compiled with xla_dump_to: one with every pass as text, one as protos."""
    import jax
    import jax.numpy as jnp

    folder = tmp_path_factory.mktemp("dump")

    def small(x):  # type: ignore[no-untyped-def]
        return jnp.tanh(x).sum()

    def large(x, w):  # type: ignore[no-untyped-def]
        return jax.nn.softmax(jnp.tanh(x @ w) @ w.T).sum()

    x, w = jnp.ones((8, 16)), jnp.ones((16, 4))
    options = {"xla_dump_to": str(folder), "xla_dump_hlo_as_proto": True}
    jax.jit(small).lower(x).compile(compiler_options=options)
    options = {
        "xla_dump_to": str(folder),
        "xla_dump_hlo_pass_re": ".*",
        "xla_dump_hlo_as_text": True,
    }
    jax.jit(jax.grad(large)).lower(x, w).compile(compiler_options=options)
    return folder


def test_listing(dump: Path) -> None:
    entries = list_modules(dump)
    stages = {
        name: [e.stage for e in entries if e.name == name] for name in ("jit_small", "jit_large")
    }
    assert stages["jit_small"] == ["before_optimizations", "cpu_after_optimizations"]
    assert stages["jit_large"][0] == "before_optimizations"
    assert stages["jit_large"][-1] == "cpu_after_optimizations"
    assert len(stages["jit_large"]) > 10
    assert any("algsimp" in s for s in stages["jit_large"])
    assert all(e.path is not None and e.path.exists() for e in entries)


def test_default_is_the_last_stage_of_the_biggest(dump: Path) -> None:
    cap = read(dump)
    assert cap.module.name == "jit_large"
    assert cap.module.is_scheduled
    assert cap.stage == "cpu_after_optimizations"
    assert any("choose with module=" in w and "jit_small" in w for w in cap.warnings)


def test_names_with_a_time_before_them(dump: Path, tmp_path: Path) -> None:
    """xla_dump_include_timestamp: each file has its own, in microseconds."""
    for k, file in enumerate(sorted(dump.iterdir())):
        (tmp_path / f"{1795379623462835 + 997 * k}.{file.name}").write_bytes(file.read_bytes())
    plain, timed = list_modules(dump), list_modules(tmp_path)
    assert [(e.index, e.name, e.stage) for e in timed] == [
        (e.index, e.name, e.stage) for e in plain
    ]
    assert read(tmp_path).module.name == "jit_large"
    assert len(read(tmp_path).passes()) == len(read(dump).passes())


def test_choosing(dump: Path) -> None:
    assert read(dump, module="jit_small").module.name == "jit_small"
    number = next(e.index for e in list_modules(dump) if e.name == "jit_small")
    assert read(dump, module=number).module.name == "jit_small"
    early = read(dump, module="jit_large", stage="before_optimizations")
    assert not early.module.is_scheduled
    assert read(dump, module="jit_large", stage="hlo").file == early.file
    late = read(dump, module="jit_large", stage="after_optimizations")
    assert late.stage == "cpu_after_optimizations"
    one_pass = read(dump, module="jit_large", stage="copy-insertion")
    assert ".after_copy-insertion" in one_pass.file or "copy-insertion" in one_pass.file


def test_wrong_choices_say_what_there_is(dump: Path) -> None:
    with pytest.raises(ReadError, match="did you mean 'jit_large'"):
        read(dump, module="jit_larg")
    with pytest.raises(ReadError, match=r"no module number 99999; it holds \d"):
        read(dump, module=99999)
    with pytest.raises(ReadError, match=r"no stage 'nonsense'.*before_optimizations"):
        read(dump, stage="nonsense")


def test_other_folders(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="holds no HLO dump"):
        read(tmp_path)
    text = "HloModule {}\n\nENTRY %e {{\n  ROOT %c = f32[] constant(1)\n}}\n"
    (tmp_path / "a.hlo").write_text(text.format("first"))
    (tmp_path / "b.txt").write_text(text.format("second") + "\n" * 50)
    assert [(e.name, e.index) for e in list_modules(tmp_path)] == [("a", 0), ("b", 1)]
    assert read(tmp_path).module.name == "second"
    assert read(tmp_path, module="a").module.name == "first"


def test_names_with_dots(tmp_path: Path) -> None:
    names = (
        "module_0002.jit_f.12.before_optimizations.txt",
        "module_0002.jit_f.12.0007.spmd-partitioner.after_spmd-partitioning.before_dce.hlo.pb",
        "module_0002.jit_f.12.sm_8.0_gpu_after_optimizations.txt",
        "module_0002.jit_f.12.sm_8.0_gpu_after_optimizations-buffer-assignment.txt",
        "module_0002.jit_f.12.execution_options.txt",
    )
    for n in names:
        (tmp_path / n).write_bytes(b"")
    assert [(e.name, e.stage) for e in list_modules(tmp_path)] == [
        ("jit_f.12", "before_optimizations"),
        ("jit_f.12", "0007.spmd-partitioner.after_spmd-partitioning.before_dce"),
        ("jit_f.12", "sm_8.0_gpu_after_optimizations"),
    ]
