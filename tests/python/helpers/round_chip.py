"""A chip with whole numbers as figures, and small programs for it, written as HLO text.

One MiB takes a second in memory, on the wire and to the host; a step of a collective half a second.
So ``work(3)`` takes 3 s, an all-reduce of 2 MiB over two devices 2 · 0.5 s + 2 s, and every
figure of a finding can be calculated by hand.
"""

from __future__ import annotations

from pathlib import Path

import hloscope as hs

CHIP = """
[round]
label = "Round"
memory_bytes = 1_073_741_824
memory_bandwidth = 1_048_576
host_bandwidth = 1_048_576
matmul = { bf16 = 4_194_304, f32 = 2_097_152, "f32:highest" = 1_048_576, f64 = 524_288 }
links = [
  { name = "net", kind = "switch", links = 1, bytes_per_second = 1_048_576, latency = 0.5 },
]
"""
# The same chip, a thousand times as fast in matmuls.
CHIP += CHIP.replace("round", "quick").replace("_304,", "_304_000,").replace("_152,", "_152_000,")
SUM = """%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(%a, %b)
}
"""
ALL = "channel_id=1, replica_groups=[1,2]<=[2], use_global_device_ids=true"  # both devices
SUMMED = f"{ALL}, to_apply=%sum"
GATHERED = f"{ALL}, dimensions={{0}}"


def chip_file(folder: Path) -> str:
    """Writes the file for HLOSCOPE_HARDWARE; returns its path."""
    path = folder / "hardware.toml"
    path.write_text(CHIP)
    return str(path)


def mib(k: int, dtype: str = "f32") -> str:
    """The shape of k MiB of f32."""
    return f"{dtype}[{k},512,512]{{2,1,0}}"


def work(seconds: int, name: str = "w", number: int = 9) -> str:
    """Reads and writes half a MiB for each second."""
    shape = f"f32[{seconds},128,1024]{{2,1,0}}"
    return f"%{name}.p = {shape} parameter({number})\n%{name} = {shape} tanh(%{name}.p)"


def said(op: str, line: int = 0, file: str = "m.py") -> str:
    """Metadata of an instruction."""
    place = f' source_file="{file}" source_line={line}' if line else ""
    return f'metadata={{op_name="jit(f)/{op}"{place}}}'


def program(
    entry: str, *, before: str = "", header: str = "", devices: int = 2, chip: str | None = "round"
) -> hs.Capture:
    """``entry``: lines of ENTRY, one per instruction; ``before``: computations it calls."""
    cap = hs.read(
        f"HloModule m, is_scheduled=true, num_partitions={devices}{header}\n\n{SUM}\n{before}\n"
        f"ENTRY %main {{\n{entry.strip()}\n}}\n"
    )
    assert cap.warnings == ()
    cap.hardware = chip
    return cap
