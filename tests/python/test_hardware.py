"""Chips: every figure has a source, the file can be edited, the capture's own chip is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from hloscope.hardware import HardwareError, choose, find, load

WANTED = "tpu-v4 tpu-v5e tpu-v5p tpu-v6e tpu-v7x a100 h100 h200 b200 mi300x cpu".split()


def test_every_chip_of_the_list_is_there_with_sources() -> None:
    chips = load()
    assert set(WANTED) <= set(chips)
    for name in WANTED:
        chip = chips[name]
        assert chip.source, name
        assert chip.memory_bandwidth > 0
        assert chip.matmul_rate("f32")
        assert chip.links
    assert chips["tpu-v5e"].matmul_rate("bf16") == 197e12
    assert chips["h100"].memory_bandwidth == 3.35e12
    # two jax devices share a TPU7x chip
    assert chips["tpu-v7x"].matmul_rate("bf16") == pytest.approx(2307e12 / 2)


@pytest.mark.parametrize(
    ("kind", "chip"),
    [
        ("TPU v4", "tpu-v4"),
        ("TPU v5 lite", "tpu-v5e"),
        ("TPU v5", "tpu-v5p"),
        ("TPU v5p", "tpu-v5p"),
        ("TPU v6 lite", "tpu-v6e"),
        ("TPU7x", "tpu-v7x"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA B200", "b200"),
        ("AMD Instinct MI300X", "mi300x"),
        ("cpu", "cpu"),
    ],
)
def test_the_chip_is_chosen_by_jax_device_kind(kind: str, chip: str) -> None:
    found = choose(kind)
    assert found is not None
    assert found.id == chip


def test_an_unknown_kind_is_unknown() -> None:
    assert choose("TPU v99") is None
    assert choose("") is None


def test_operand_types_share_rates() -> None:
    h100 = load()["h100"]
    assert h100.matmul_rate("f8e4m3fn") == h100.matmul_rate("f8")
    assert h100.matmul_rate("u8") == h100.matmul_rate("s8")
    assert h100.matmul_rate("f32:high") == h100.matmul_rate("f32:highest")
    assert h100.matmul_rate("c128") is None


def test_a_file_of_ones_own_changes_and_adds_chips(tmp_path: Path) -> None:
    mine = tmp_path / "hardware.toml"
    mine.write_text(
        "[h100]\nmemory_bandwidth = 2e12\nmatmul = { bf16 = 700e12 }\n"
        "[toy]\nmemory_bytes = 1e9\nmemory_bandwidth = 1e9\nmatmul = { f32 = 1e9 }\n"
        'links = [{ name = "wire", kind = "switch", bytes_per_second = 1e9, latency = 1e-6 }]\n'
    )
    chips = load(mine)
    assert chips["h100"].memory_bandwidth == 2e12
    assert chips["h100"].matmul_rate("bf16") == 700e12
    assert chips["h100"].matmul_rate("f16") == load()["h100"].matmul_rate("f16")
    assert find("toy", mine).matmul_rate("f32") == 1e9


def test_the_environment_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "chips.toml"
    mine.write_text("[cpu]\nmemory_bandwidth = 123e9\n")
    monkeypatch.setenv("HLOSCOPE_HARDWARE", str(mine))
    assert load()["cpu"].memory_bandwidth == 123e9


def test_errors_say_what_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(HardwareError, match=r"no chip is called 'tpu-v5'; did you mean tpu-v5"):
        find("tpu-v5")
    with pytest.raises(HardwareError, match="'v5q'; did you mean tpu-v5p or tpu-v5e\?"):
        find("v5q")
    with pytest.raises(HardwareError, match=r"'zx81'; there are tpu-v4, "):
        find("zx81")
    with pytest.raises(HardwareError, match="no hardware file at"):
        load(tmp_path / "missing.toml")
    bad = tmp_path / "bad.toml"
    bad.write_text("[toy]\nmemory_bytes = 1\n")
    with pytest.raises(HardwareError, match=r"\[toy\] has no memory_bandwidth"):
        load(bad)
    bad.write_text("[cpu]\nmemory_bandwidth = -1\n")
    with pytest.raises(HardwareError, match="a rate must be above 0"):
        load(bad)
    bad.write_text("this is not toml")
    with pytest.raises(HardwareError, match="is not a hardware file"):
        load(bad)
