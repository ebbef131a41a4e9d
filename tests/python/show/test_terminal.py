"""The command in a real shell's hands: pipes, terminals, signals, disks that are full."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hloscope.show import cli, terminal
from hloscope.show.commands import shared

TEXT = """HloModule jit_größe

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  ROOT %y = f32[4]{0} tanh(%x)
}
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="uses Linux's /dev and /proc")
COMMAND = [sys.executable, "-m", "hloscope"]


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "ein größeres dump.hlo"
    path.write_text(TEXT, encoding="utf-8")
    return path


def run(*words: Any, env: dict[str, str] | None = None, **more: Any) -> Any:
    return subprocess.run(
        [*COMMAND, *map(str, words)],
        env={**os.environ, **(env or {})},
        capture_output="stdout" not in more,
        check=False,
        timeout=300,
        **more,
    )


def shell(script: str, dump: Path) -> Any:
    """Bash with $HLOSCOPE and $DUMP set; a pipe's status is the command's own."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", script],
        env={**os.environ, "HLOSCOPE": " ".join(COMMAND), "DUMP": str(dump)},
        capture_output=True,
        check=False,
        timeout=300,
        text=True,
    )


def test_a_reader_that_goes_changes_no_status(dump: Path) -> None:
    done = shell('$HLOSCOPE check "$DUMP" --max-instructions 1 | true', dump)
    assert (done.returncode, done.stderr) == (1, "")
    done = shell('$HLOSCOPE json "$DUMP" | head -c 5', dump)
    assert (done.returncode, done.stdout, done.stderr) == (0, '{"hea', "")


def test_standard_input(dump: Path) -> None:
    done = shell('cat "$DUMP" | $HLOSCOPE summary - && gzip -c "$DUMP" | $HLOSCOPE list -', dump)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("jit_größe · stdin · ")
    assert done.stdout.splitlines()[-1].split()[:2] == ["0", "jit_größe"]
    assert shell('$HLOSCOPE diff "$DUMP" - < "$DUMP"', dump).returncode == 0
    done = shell("$HLOSCOPE summary - < /dev/null", dump)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "is empty; expected HLO text" in done.stderr


def test_output_that_cannot_be_written_is_one_line(dump: Path, tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = run("summary", dump, stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (
        2,
        b"hloscope: standard output: No space left on device\n",
    )
    done = shell('$HLOSCOPE summary "$DUMP" >&-', dump)
    assert (done.returncode, done.stderr) == (2, "hloscope: standard output is closed\n")
    done = run("html", dump, "-o", tmp_path / "no" / "x.html")
    assert done.returncode == 2
    assert f"there is no folder {tmp_path / 'no'}" in done.stderr.decode()


def test_a_terminal_that_is_no_utf8(dump: Path) -> None:
    done = run("summary", dump, env={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"jit_gr\\xf6\\xdfe \\xb7 ein gr")


def test_interrupted() -> None:
    """Ctrl-C while it reads a file that never ends."""
    reading, writing = os.pipe()
    process = subprocess.Popen(
        # A shell's background jobs ignore interrupts, and their children inherit that.
        ["env", "--default-signal=INT", *COMMAND, "summary", f"/dev/fd/{reading}"],
        pass_fds=[reading],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        os.close(reading)
        os.write(writing, TEXT.encode())
        time.sleep(0.2)
        for _ in range(50):  # until it stands in its read, not in Python's start
            if "pipe" in Path(f"/proc/{process.pid}/wchan").read_text():
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        os.close(writing)
    assert (process.returncode, out, err) == (130, b"", b"hloscope: interrupted\n")


def on_a_terminal(*words: Any, env: dict[str, str] | None = None) -> tuple[int, str]:
    """(status, everything it printed) with standard output and error on a pseudo terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *map(str, words)],
        stdout=theirs,
        stderr=theirs,
        env={k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
        | {"TERM": "xterm"}
        | (env or {}),
    )
    os.close(theirs)
    printed = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        printed += piece
    os.close(ours)
    return process.wait(timeout=300), printed.decode()


def test_colours_on_a_terminal_only(dump: Path) -> None:
    words = "check", dump, "--max-instructions", 1, "--forbid", "f64"
    status, printed = on_a_terminal(*words)
    assert status == 1
    assert "\x1b[31m  max_instructions: 2 of 1\x1b[0m" in printed
    assert "\x1b[32m  ok: forbid: f64: none\x1b[0m" in printed
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in on_a_terminal(*words, env=env)[1]
    assert b"\x1b" not in run(*words, env={"NO_COLOR": "", "FORCE_COLOR": ""}).stdout
    assert b"\x1b[31m" in run(*words, env={"NO_COLOR": "", "FORCE_COLOR": "1"}).stdout
    assert b"\x1b" not in run(*words, "--format", "json", env={"FORCE_COLOR": "1"}).stdout


def test_slow_files_are_told_on_a_terminal(dump: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(shared, "SLOW", 10)
    cli.main(["summary", str(dump)])
    assert capsys.readouterr().err == ""  # nobody watches
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: stream is sys.stderr)
    monkeypatch.setenv("TERM", "xterm")
    cli.main(["summary", str(dump)])
    told = capsys.readouterr()
    assert told.err == f"reading {dump} …\r\x1b[K"
    assert "\x1b" not in told.out


def test_html_names_its_own_page(
    dump: Path, tmp_path: Path, capsys: Any, monkeypatch: Any, renderer_text: None
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["html", str(dump)]) == 0
    assert capsys.readouterr().out == "ein größeres dump.html\n"
    page = tmp_path / "ein größeres dump.html"
    page.write_text("mine")
    assert cli.main(["html", str(dump)]) == 2
    assert "exists; -o" in capsys.readouterr().err
    assert page.read_text() == "mine"
    assert cli.main(["html", str(dump), "-o", page.name]) == 0
    assert "<!doctype html>" in page.read_text()[:20]


@pytest.fixture
def renderer_text(tmp_path: Path, monkeypatch: Any) -> Any:
    from hloscope.show import static

    folder = tmp_path / "static"
    folder.mkdir()
    (folder / "explorer.js").write_text("0;")
    monkeypatch.setattr(static, "STATIC", folder)
    static._bundle.cache_clear()
    yield
    static._bundle.cache_clear()


def test_json_has_no_nan(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "unknown.hlo"
    path.write_text(
        "HloModule m\n\nENTRY %e (x: f32[4]) -> f32[4] {\n  %x = f32[4]{0} parameter(0)\n"
        '  ROOT %y = f32[4]{0} custom-call(%x), custom_call_target="Nobody"\n}\n'
    )

    def refuse(word: str) -> None:
        raise AssertionError(word)

    assert cli.main(["json", str(path)]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert found["columns"]["cost.flops"][1] is None


def test_text_only_browsers_get_the_summary(dump: Path, capsys: Any, monkeypatch: Any) -> None:
    import types
    import webbrowser

    monkeypatch.setattr(webbrowser, "get", lambda: types.SimpleNamespace(name="w3m"))
    assert cli.main([str(dump)]) == 0
    assert capsys.readouterr().out.startswith("jit_größe · ")
