"""Completion scripts, run by the shells themselves where they are installed."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hloscope.show import cli


def script(capsys: pytest.CaptureFixture[str], shell: str) -> str:
    assert cli.main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("sum", {"summary"}),
        ("che", {"check"}),
        ("summary --js", {"--json"}),
        ("summary x", set()),
        ("step.hlo --har", {"--hardware"}),  # a file alone is opened
        ("summary --hardware tpu-v5", {"tpu-v5e", "tpu-v5p"}),
        ("check a.hlo --format g", {"github"}),
    ],
)
def test_bash(capsys: pytest.CaptureFixture[str], typed: str, expected: set[str]) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    words = ["hloscope", *typed.split()]
    ask = (
        f"{script(capsys, 'bash')}\nCOMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}\n"
        '_hloscope; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run([bash, "-c", ask], capture_output=True, text=True)
    assert done.stderr == ""
    assert set(done.stdout.split()) == expected


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_name_every_command(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    text = script(capsys, shell)
    for name in ("open", "summary", "diff", "check", "completion"):
        assert name in text
    if shell == "fish":
        assert "-l format -x -a 'text github json'" in text
    found = shutil.which(shell)
    if found:
        done = subprocess.run([found, "-n", "-c", text], capture_output=True, text=True)
        assert done.stderr == ""
