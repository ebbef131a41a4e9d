"""No file takes more than its size allows, and what no machine has is left out with a sentence.

``benchmarks/bounded.py`` asks the same of thousands of damaged files.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import hloscope as hs
import pytest
from attacks import ATTACKS, loops
from hloscope.readers import ReadError

HELPERS = Path(__file__).parents[1] / "helpers"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="measured in /proc")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("attacks")
    names = {str(folder / f"{n}"): name for n, name in enumerate(ATTACKS)}
    for path, name in names.items():
        Path(path).write_bytes(ATTACKS[name]())
    done = subprocess.run(
        [sys.executable, str(HELPERS / "bounded.py"), *names], capture_output=True, text=True
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == len(names), done.stderr[-2000:]
    return {names[row["file"]]: row for row in rows}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_small_file_takes_little(outcomes: dict[str, dict[str, Any]], name: str) -> None:
    assert outcomes[name]["failures"] == []


def test_the_judge_sees_memory_time_and_exceptions() -> None:
    """The judge judged: what takes too much, raises, or ends its process is a failure."""
    code = """
import bounded
def steps(data):
    yield "memory", lambda: bytearray(500 << 20).count(1)
    yield "time", lambda: [sum(range(10**7)) for _ in range(40)]
    yield "an exception", lambda: 1 / 0
bounded.steps, bounded.SECONDS = steps, 0.5
print(bounded.measured(b"").failures)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=HELPERS)
    assert "took 50" in done.stdout
    assert "MB of 400 MB" in done.stdout
    assert "s of 0.5 s" in done.stdout or "ended by signal" in done.stdout
    assert "ZeroDivisionError" in done.stdout or "ended by signal" in done.stdout


REFUSED = {
    "arrays that are too large together": "arrays that are together larger than any machine",
    "many groups of many devices": "lists 4,194,304 devices or more in its shardings and groups",
    "members of an archive that are no dumps": "holds more than 2,147,483,648 bytes when unpacked",
    "a long list of members": "holds more than 50,000 files",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_said(outcomes: dict[str, dict[str, Any]], name: str) -> None:
    assert REFUSED[name] in outcomes[name]["refused"]


WARNED = {
    "ten million replicas": "replica_count=10000000 is left out: no machine has as many devices",
    "as many replicas as partitions": "replica_count=65536, num_partitions=65536 is left out",
    "an array over 2**63": "an array larger than any machine",
    "an array over a float": "an array larger than any machine",
    "groups of a large machine": "the groups of %r are not understood",
    "a tiled sharding of a large machine": "the sharding of %x is not understood",
}


@pytest.mark.parametrize("name", WARNED)
def test_what_is_left_out_is_said(name: str) -> None:
    cap = hs.read(ATTACKS[name]())
    assert any(WARNED[name] in warning for warning in cap.warnings), cap.warnings


def test_a_frame_that_is_not_in_the_table_is_no_frame() -> None:
    cap = hs.read(ATTACKS["a frame of a large number"]())
    assert cap.module.frame_ids() == [0, 1, 0]


def test_traffic_of_more_devices_than_a_table_has_is_refused() -> None:
    found = hs.read(ATTACKS["as many devices as there may be"]()).collectives
    with pytest.raises(ValueError, match="131,072 × 131,072 figures"):
        found.traffic()
    assert found.sent_bytes().sum() > 0


def test_sent_bytes_are_those_of_the_table(compiled: Any) -> None:
    found = hs.read(compiled("fsdp_tp").text).collectives
    assert found.sent_bytes() == pytest.approx(found.traffic().sum(axis=1))


def test_reading_has_limits_of_memory_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    text = ATTACKS["loops in loops"]().decode()
    many = "\n".join(text.replace("HloModule m", f"HloModule m{k}") for k in range(60))
    monkeypatch.setenv("HLOSCOPE_MAX_SECONDS", "0.15")
    with pytest.raises(ReadError, match=r"reading this took .* the limit is 0.15; set HLOSCOPE"):
        hs.read(many)
    monkeypatch.setenv("HLOSCOPE_MAX_SECONDS", "60")
    monkeypatch.setenv("HLOSCOPE_MAX_GIB", "0.005")
    with pytest.raises(
        ReadError, match=r"GiB of memory, and the limit is 0\.005; set HLOSCOPE_MAX_GIB"
    ):
        hs.read(many)
    monkeypatch.delenv("HLOSCOPE_MAX_GIB")
    assert len(hs.read(many).module.computations) > 800


def test_the_command_line_and_jupyterlab_have_the_same_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hloscope.processes.limits import CPU_SECONDS, MEMORY_BYTES
    from hloscope.show.cli import main

    limits = pytest.importorskip("hloscope.lab.limits")
    assert limits.HloscopeLimits().max_memory_bytes == MEMORY_BYTES
    assert limits.HloscopeLimits().max_seconds == CPU_SECONDS
    path = tmp_path / "loops.hlo"
    path.write_bytes(loops(4000))
    monkeypatch.setenv("HLOSCOPE_MAX_SECONDS", "0.1")
    assert main(["html", str(path), "-o", str(tmp_path / "page.html")]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("hloscope: html took ")
    assert printed.count("\n") == 1
    assert not (tmp_path / "page.html").exists()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_limit_holds_where_python_drops_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a finalizer, in which the first one may come."""
    from hloscope.processes.limits import LimitReached, within_limits

    def work(seconds: float) -> None:
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass

    class Busy:
        def __del__(self) -> None:
            work(0.6)

    def work_with_a_finalizer(after: float) -> None:
        del [Busy()][0]
        work(after)

    monkeypatch.setenv("HLOSCOPE_MAX_SECONDS", "0.1")
    for after in (0.0, 30.0):
        with pytest.raises(LimitReached, match="this took"), within_limits("this"):
            work_with_a_finalizer(after)
