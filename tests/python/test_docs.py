"""Every code block of README and docs runs, in page order, and every path they name exists.

    ```python   executed in one namespace per page
    ```ipython  run in an IPython shell sharing that namespace (magics work)
    ```console  lines after "$ " run in a shell; a trailing "# exit 1" states the exit status

Pages run in a child process each, in an empty folder, on 8 CPU devices.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.S | re.M)

DRIVER = r"""
import json, subprocess, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
space = shell.user_ns
for kind, line, code in json.load(sys.stdin):
    print(f"-- line {line}: {kind}", file=sys.stderr)
    if kind == "python":
        exec(compile("\n" * line + code, sys.argv[1], "exec"), space)
    elif kind == "ipython":
        shell.run_cell(code).raise_error()
    else:
        for command in code.splitlines():
            if not command.startswith("$ "):
                continue
            command, _, expected = command[2:].partition("  # exit ")
            done = subprocess.run(["bash", "-c", command], text=True, capture_output=True)
            print(done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
            assert done.returncode == int(expected or 0), f"{command}: exit {done.returncode}"
"""


def blocks(page: Path) -> list[tuple[str, int, str]]:
    text = page.read_text()
    found = []
    for m in BLOCK.finditer(text):
        if m.group(1) in ("python", "ipython", "console"):
            found.append((m.group(1), text.count("\n", 0, m.start(2)), m.group(2)))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(REPOSITORY)))
def test_page_runs(page: Path, tmp_path: Path) -> None:
    import json

    found = blocks(page)
    env = dict(
        os.environ,
        JAX_PLATFORMS="cpu",
        XLA_FLAGS="--xla_force_host_platform_device_count=8",
        HLOSCOPE_NO_BROWSER="1",
        PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    )
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(page)],
        input=json.dumps(found),
        text=True,
        capture_output=True,
        cwd=tmp_path,
        env=env,
    )
    assert done.returncode == 0, done.stderr[-4000:]


def test_pages_have_blocks() -> None:
    assert blocks(REPOSITORY / "README.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(REPOSITORY)))
def test_links_and_paths_exist(page: Path) -> None:
    text = page.read_text()
    missing = []
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target and not (page.parent / target).exists():
            missing.append(target)
    for path in re.findall(
        r"`((?:python|js|src|tests|examples|scripts|docs|benchmarks)/[\w./-]+)`", text
    ):
        if not (REPOSITORY / path).exists():
            missing.append(path)
    assert not missing, f"{page.name} names what does not exist: {missing}"
