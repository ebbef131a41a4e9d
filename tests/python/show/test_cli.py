"""The command line: what it prints, its exit status, one line for each error."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import webbrowser
from pathlib import Path

import pytest
from hloscope.show import cli
from hloscope.show.commands import NAMES, command

TEXT = """HloModule jit_f

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  ROOT %y = f32[4]{0} tanh(%x)
}
"""


@pytest.fixture
def dump(tmp_path):
    path = tmp_path / "a dump.hlo"
    path.write_text(TEXT)
    return path


def run(capsys, *words):
    status = cli.main([str(w) for w in words])
    out = capsys.readouterr()
    return status, out.out, out.err


def test_summary(capsys, dump):
    status, out, err = run(capsys, "summary", dump)
    assert (status, err) == (0, "")
    assert out.startswith("jit_f · a dump.hlo")
    status, out, _ = run(capsys, "summary", "--json", dump)
    found = json.loads(out)
    assert found["module"] == "jit_f"
    assert found["opcodes"] == {"parameter": 1, "tanh": 1}


def test_a_chip_for_a_dump_that_names_none(capsys, dump):
    found = [
        json.loads(run(capsys, "summary", "--json", dump, *more)[1])
        for more in ([], ["--hardware", "h100"], ["--hardware=tpu-v5e"])
    ]
    assert [f["hardware"] for f in found] == [None, "h100", "tpu-v5e"]
    assert found[0]["modelled_seconds"] is None
    h100, v5e = (f["modelled_seconds"]["total"] for f in found[1:])
    assert 0 < h100 < v5e
    status, out, err = run(capsys, "summary", dump, "--hardware", "h101")
    assert (status, out) == (2, "")
    assert err.startswith("hloscope: unknown chip 'h101'; did you mean h100")


def test_dot_json_and_files(capsys, dump, tmp_path):
    assert run(capsys, "dot", dump)[1].startswith("digraph")
    status, out, _ = run(capsys, "json", dump)
    view = json.loads(out)
    names = [view["strings"][i] for i in view["columns"]["instruction.name"]]
    assert names == ["x", "y"]
    target = tmp_path / "out.dot"
    status, out, _ = run(capsys, "dot", dump, "-o", target)
    assert (status, out) == (0, f"{target}\n")
    assert target.read_text().startswith("digraph")


def test_list_and_choose_a_module(capsys, tmp_path):
    path = tmp_path / "two.txt"
    path.write_text(TEXT + "\n" + TEXT.replace("jit_f", "jit_g").replace("tanh", "sign"))
    status, out, _ = run(capsys, "list", path)
    assert status == 0
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [["0", "jit_f"], ["1", "jit_g"]]
    assert run(capsys, "summary", path, "--module", "jit_g")[1].startswith("jit_g ")
    assert run(capsys, "summary", path, "--module", "1")[1].startswith("jit_g ")
    status, out, err = run(capsys, "summary", path, "--module", "jit_h")
    assert status == 2
    assert "jit_g" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["summary", "nowhere.hlo"], "nowhere.hlo: no such file"),
        (["nowhere.hlo"], "nowhere.hlo: no such file"),
        (["sumary"], "did you mean summary?"),
        (["summary"], "required: FILE"),
        (["html", "x.hlo"], "x.hlo: no such file"),
        (["summary", "--frob", "x"], "--frob"),
        (["list", "nowhere"], "nowhere: no such file"),
    ],
)
def test_errors_are_one_line_and_status_2(capsys, words, message):
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("hloscope: ")
    assert message in err


def test_a_bad_file_is_one_line_without_escapes(capsys, tmp_path):
    path = tmp_path / "bad\x1b[31m.hlo"
    path.write_bytes(b"")
    status, out, err = run(capsys, "summary", path)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert "\x1b" not in err
    assert "Traceback" not in err


def test_a_file_alone_opens_the_browser(capsys, dump, monkeypatch):
    opened = []

    class Browser:
        def open(self, url):
            opened.append(url)
            return True

    monkeypatch.setattr(webbrowser, "get", lambda: Browser())
    from hloscope import Capture

    monkeypatch.setattr(Capture, "to_html", lambda self, path: path.write_text(self.title))
    status, out, _ = run(capsys, dump)
    assert status == 0
    path = out.strip()
    assert opened == [f"file://{path}"]
    assert Path(path).read_text() == "jit_f"


def test_without_a_browser_it_prints_the_summary(capsys, dump, monkeypatch):
    def none():
        raise webbrowser.Error("none")

    monkeypatch.setattr(webbrowser, "get", none)
    status, out, _ = run(capsys, dump)
    assert status == 0
    assert out.startswith("jit_f ")


def test_every_command_has_help(capsys):
    for name in NAMES:
        made = command(name)
        with pytest.raises(SystemExit) as stop:
            cli.main([name, "--help"])
        assert stop.value.code == 0
        assert name == made.NAME
        assert made.HELP.split()[0] in capsys.readouterr().out


def test_the_module_runs(dump):
    done = subprocess.run(
        [sys.executable, "-m", "hloscope", "--version"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert re.fullmatch(r"hloscope \d+\.\d+\.\d+\S*\n", done.stdout)
    done = subprocess.run(
        [sys.executable, "-m", "hloscope", "summary", str(dump)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("jit_f ")
