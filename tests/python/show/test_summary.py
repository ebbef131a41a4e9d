"""Counts and sizes, exact on real dumps; the printed summary."""

from __future__ import annotations

import json

import hloscope.analysis.report.summary as summary
import pytest
from hloscope import Capture
from hloscope.analysis.report.summary import summarize
from hloscope.hlo import Target
from hloscope.hlo.parts import printable
from hloscope.readers import read_modules
from hloscope.show.text import MAX_LINES, WIDTH, summary_text

KEYS = """module computations instructions entry_instructions fusions opcodes parameters
parameter_bytes output_bytes shapes partitions replicas warnings""".split()

EXACT = {
    "000": {"computations": 6, "instructions": 48, "fusions": {"kLoop": 4}, "partitions": 4,
            "parameters": 5, "parameter_bytes": 268_435_460},
    "001": {"computations": 15, "instructions": 118, "entry_instructions": 31, "partitions": 8,
            "parameter_bytes": 6_295_552},
    "004": {"computations": 481, "instructions": 9_679, "entry_instructions": 1_656,
            "fusions": {"kInput": 104, "kLoop": 178}, "parameters": 239, "partitions": 16,
            "parameter_bytes": 194_152_460, "output_bytes": 194_070_536},
}  # fmt: skip


def read_seed(seeds, seed):
    return read_modules(next(seeds.glob(f"{seed}_*")).read_bytes())[0]


@pytest.mark.parametrize("seed", EXACT)
def test_seed_figures(seeds, seed):
    found = summarize(read_seed(seeds, seed), Target())
    assert {k: found[k] for k in EXACT[seed]} == EXACT[seed]
    assert list(found)[: len(KEYS) - 1] == KEYS[:-1]
    assert sum(found["opcodes"].values()) == found["instructions"]
    json.dumps(found, allow_nan=False)


def test_a_compiled_step(compiled):
    built = compiled("gpt_unrolled")
    found = summarize(built.module, built.target)
    leaves = built.compiled.memory_analysis().argument_size_in_bytes
    assert found["parameter_bytes"] == leaves
    assert found["partitions"] == 8
    assert found["fusions"]["kLoop"] == built.text.count("kind=kLoop")


def test_a_failing_contribution_is_a_warning(monkeypatch):
    def bad(module, target):
        raise KeyError("gone")

    monkeypatch.setattr(summary, "CONTRIBUTIONS", (*summary.CONTRIBUTIONS[:1], ("costs", bad)))
    text = "HloModule m\n\nENTRY %e (x: f32[]) -> f32[] {\n  ROOT %x = f32[] parameter(0)\n}\n"
    found = summarize(read_modules(text)[0], Target())
    assert found["instructions"] == 1
    assert found["warnings"] == ["costs could not be worked out: KeyError: 'gone'"]


def test_printed_summary(seeds):
    capture = Capture(read_seed(seeds, "004"), file="dump.txt")
    lines = summary_text(capture).split("\n")
    assert lines[0] == "train_step_shard_parallel.6 · dump.txt · optimized"
    rows = dict(line.split(maxsplit=1) for line in lines[1:])
    assert rows["instructions"] == "9,679 (1,656 in ENTRY)"
    assert rows["fusions"] == "282 (104 kInput, 178 kLoop)"
    assert rows["landmarks"].startswith("151 matmul, 43 collective")
    assert rows["parameters"] == "239 of 185 MiB (194,152,460 B) per device"
    assert rows["cost"] == "639 GFLOP, 10.5 GiB accessed per device"
    assert rows["peak"].startswith("775 MiB (813,101,664 B) per device, simulated")
    wire = "575 MiB per device: 40 all-reduce over axis_1, 3 all-reduce over axis_0"
    assert rows["wire"] == wire  # 603,405,316 B by ring formulas
    assert "modelled" not in rows  # a dump names no chip
    assert capture.summary["collectives"][0]["wire_bytes"] == 557_899_776
    facts = [line for line in lines[1:] if not line.lstrip()[0].isdigit()]  # without findings
    starts = {line.index(rows[line.split(maxsplit=1)[0]]) for line in facts}
    assert len(starts) == 1  # aligned
    assert repr(capture) == summary_text(capture)


HOSTILE = """HloModule evil

ENTRY %e (x: f32[]) -> f32[] {
  ROOT %x = f32[] parameter(0), metadata={op_name="a\\033[2Jb"}
}
"""


def test_printed_summary_is_safe_and_short():
    module = read_modules(HOSTILE + "junk \x1b[31m line\n" * 60)[0]
    capture = Capture(module, title="t\x1b]0;pwned\x07\u202e" + "x" * 300, file="a\nb")
    text = summary_text(capture)
    lines = text.split("\n")
    assert len(lines) <= MAX_LINES
    assert all(len(line) <= WIDTH for line in lines)
    assert all(line.isprintable() for line in lines)
    assert "\\u001b" in lines[0]


def test_printable():
    assert printable("a\tb\u202e") == "a\\u0009b\\u202e"
