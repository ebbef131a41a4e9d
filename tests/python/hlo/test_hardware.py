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
    assert chips["h100"].memory_bandwidth == 3.352e12
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
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA H200 141GB HBM3e", "h200"),
        ("NVIDIA B200", "b200"),
        ("AMD Instinct MI300X", "mi300x"),
        ("AMD Instinct MI300X OAM", "mi300x"),
        ("TPU v5e", "tpu-v5e"),
        ("TPU v6e", "tpu-v6e"),
        ("cpu", "cpu"),
    ],
)
def test_the_chip_is_chosen_by_jax_device_kind(kind: str, chip: str) -> None:
    found = choose(kind)
    assert found is not None
    assert found.id == chip


@pytest.mark.parametrize(
    "kind", ["TPU v99", "", "TPU v4 lite", "NVIDIA H100 NVL", "NVIDIA A100-PCIE-40GB", "NVIDIA T4"]
)
def test_an_unknown_kind_is_unknown(kind: str) -> None:
    """A relative of a chip is not the chip: its figures would be wrong."""
    assert choose(kind) is None


# (cores, units of a core, clock in GHz, {type: operations of a unit and clock}) of
# openxla/xla xla/backends/gpu/target_config/specs; an operation is a multiply and an add
XLA_SPECS = {
    "h100": (132, 4, 1.8295201, {"bf16": 512, "f8": 1024, "s8": 1024, "f32": 256}),
    "h100-pcie": (114, 4, 1.62162, {"bf16": 512, "f8": 1024, "s8": 1024, "f32": 256}),
    "h200": (132, 4, 1.8295201, {"bf16": 512, "f8": 1024, "s8": 1024, "f32": 256}),
    "b200": (148, 4, 1.8353101, {"bf16": 1024, "f8": 2048, "s8": 2048, "f32": 512, "f4": 4096}),
}


@pytest.mark.parametrize("name", XLA_SPECS)
def test_peaks_follow_from_xlas_clocks_and_units(name: str) -> None:
    cores, units, clock, rates = XLA_SPECS[name]
    chip = load()[name]
    for dtype, operations in rates.items():
        peak = 2 * cores * units * operations * clock * 1e9
        assert chip.matmul_rate(dtype) == pytest.approx(peak, rel=0.015), dtype
    assert chip.vector == pytest.approx(2 * cores * 128 * max(clock, 1.755) * 1e9, rel=0.1)


@pytest.mark.parametrize(
    ("name", "both_ways"),
    [("tpu-v5e", 400e9), ("tpu-v5p", 1200e9), ("tpu-v6e", 800e9), ("tpu-v7x", 1200e9)],
)
def test_links_add_up_to_the_documented_bandwidth(name: str, both_ways: float) -> None:
    chip = load()[name]
    ici = chip.links[0]
    per_chip = ici.links * ici.bytes_per_second * chip.devices_per_chip
    assert 2 * per_chip == both_ways
    assert ici.links == 2 * ici.axes


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
    with pytest.raises(HardwareError, match=r"unknown chip 'tpu-v5'; did you mean tpu-v5"):
        find("tpu-v5")
    with pytest.raises(HardwareError, match=r"'v5q'; did you mean tpu-v5p or tpu-v5e\?"):
        find("v5q")
    with pytest.raises(HardwareError, match=r"'zx81'; known are tpu-v4, "):
        find("zx81")
    with pytest.raises(HardwareError, match="named by its id, such as"):
        find(3)
    with pytest.raises(HardwareError, match="no hardware file at"):
        load(tmp_path / "missing.toml")
    bad = tmp_path / "bad.toml"
    bad.write_text("[toy]\nmemory_bytes = 1\n")
    with pytest.raises(HardwareError, match=r"\[toy\] has no memory_bandwidth"):
        load(bad)
    bad.write_text("[cpu]\nmemory_bandwidth = -1\n")
    with pytest.raises(HardwareError, match="must be a number above 0"):
        load(bad)
    bad.write_text("this is not toml")
    with pytest.raises(HardwareError, match="is not a hardware file"):
        load(bad)


def test_the_chips_can_be_listed(capsys):
    import json

    from hloscope.show.cli import main

    assert main(["chips"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(load())
    assert "197 TFLOP/s" in next(line for line in lines if line.startswith("tpu-v5e"))
    assert main(["chips", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["h100"]["source"]
