"""Python and the renderer print figures alike."""

from __future__ import annotations

import json
import math
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from hloscope.analysis.text import units

FIXED = [
    0, 1, 12, 999, 1000, 1023, 1024, 1023.9996 * 1024, 573_440, 194_152_460, 2**60, 0.5, 0.05,
    2.5, 12.5, 999.4, 999.5, 999.6, 1.5, 1e-12, 4.2e-4, 9.9996e-4, 1e-3, 1.0, 3600.0, 1e30,
    -1, -0.25, -4096, 1.27e9, 0.1 + 0.2, 1e-7, 5e-324,
]  # fmt: skip


def cases() -> list[float]:
    chance = random.Random(7)
    return FIXED + [
        chance.choice((1, -1)) * chance.uniform(1, 10) * 10.0 ** chance.randint(-14, 18)
        for _ in range(400)
    ]


def in_python(value: float | None) -> list[str]:
    return [
        units.size(value), units.duration(value), units.count(value), units.quantity(value),
        units.quantity(value, "FLOP"), units.quantity(value, "B"), units.quantity(value, "s"),
    ]  # fmt: skip


PROGRAM = """
import { readFileSync } from "node:fs";
import * as f from "./format.mjs";
const all = JSON.parse(readFileSync("cases.json", "utf8")).map((v) => {
  const x = v === null ? Number.NaN : v;
  return [f.bytes(x), f.seconds(x), f.count(x), f.quantity(x), f.quantity(x, "FLOP"),
    f.quantity(x, "B"), f.quantity(x, "s")];
});
console.log(JSON.stringify(all));
"""


def test_both_print_the_same(repo: Path, tmp_path: Path) -> None:
    esbuild = repo / "node_modules" / ".bin" / "esbuild"
    if shutil.which("node") is None or not esbuild.exists():
        pytest.skip("needs node and the packages of package.json")
    built = tmp_path / "format.mjs"
    source = repo / "js" / "base" / "format.ts"
    subprocess.run([esbuild, source, "--format=esm", f"--outfile={built}"], check=True)
    values: list[float | None] = [*cases(), None]
    (tmp_path / "cases.json").write_text(json.dumps(values))
    (tmp_path / "run.mjs").write_text(PROGRAM)
    done = subprocess.run(
        ["node", "run.mjs"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    printed = json.loads(done.stdout)
    assert [(v, in_python(v)) for v in values] == list(zip(values, printed, strict=True))


@pytest.mark.parametrize(
    ("value", "text"),
    [(1023, "1023 B"), (1024, "1 KiB"), (573_440, "560 KiB"), (2**20 - 1, "1 MiB"), (0, "0 B")],
)
def test_sizes(value: float, text: str) -> None:
    assert units.size(value) == text


def test_what_is_not_known_is_not_zero() -> None:
    for value in (None, math.nan, math.inf):
        assert in_python(value) == ["unknown"] * 7


def test_other_words() -> None:
    assert units.exact_size(12) == "12 B"
    assert units.exact_size(194_152_460) == "185 MiB (194,152,460 B)"
    assert units.duration(9.9996e-4) == "1 ms"
    assert units.quantity(631_360_192_512, "FLOP") == "631 GFLOP"
    assert units.quantity(12345) == "12,345"
    assert units.quantity(-0.25) == "−0.25"
