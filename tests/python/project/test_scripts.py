"""The shell scripts, as far as they can be run without installing anything."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(os.environ.get("HLOSCOPE_REPOSITORY") or Path(__file__).resolve().parents[3])


def scripts() -> list[Path]:
    found = sorted((REPOSITORY / "scripts").iterdir())
    found = [p for p in found if p.is_file()]
    return [p for p in found if p.suffix == ".sh" or p.read_bytes().startswith(b"#!/usr/bin/env b")]


@pytest.mark.parametrize("script", scripts(), ids=lambda p: p.name)
def test_bash_can_parse_it(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
    assert script.suffix == ".sh" or os.access(script, os.X_OK)


def test_every_rule_that_the_benchmark_switches_off_exists() -> None:
    code = """
import ablation
for rule in ablation.all_rules():
    try:
        with ablation.without(rule):
            pass
    except AttributeError as error:
        print(rule.place, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY / "benchmarks"
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_every_fault_that_the_benchmark_plants_is_in_the_sources() -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/planted_faults.py", "--check"],
        capture_output=True, text=True, cwd=REPOSITORY,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(shutil.which("node") is None, reason="no node")
def test_node_does_not_take_an_environment_s_scripts_for_modules(tmp_path: Path) -> None:
    """JupyterLab's own yarn fell over our "type": "module", with a screenful of its code."""
    setup = tmp_path / "scripts" / "setup.sh"
    setup.parent.mkdir()
    shutil.copy(REPOSITORY / "scripts" / "setup.sh", setup)
    shutil.copy(REPOSITORY / "package.json", tmp_path)
    venv = tmp_path / ".venv-x"
    subprocess.run(["bash", "-c", f"source {setup}; make_venv .venv-x"], check=True)
    assert (venv / "bin" / "python").exists()
    inside = venv / "lib" / "deep" / "yarn.js"
    inside.parent.mkdir()
    inside.write_text("console.log(typeof require)")
    said = subprocess.run(["node", inside], capture_output=True, text=True, check=True)
    assert said.stdout == "function\n"


def test_what_the_example_writes_is_ignored() -> None:
    import json
    import re

    for notebook in (REPOSITORY / "examples").glob("*.ipynb"):
        cells = json.loads(notebook.read_text())["cells"]
        source = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
        for name in re.findall(r'"([\w.-]+\.(?:html|hlo|json|svg|txt|gz))"', source):
            if not (REPOSITORY / "examples" / name).exists():
                path = f"examples/{name}"
                status = subprocess.run(["git", "check-ignore", "-q", path], cwd=REPOSITORY)
                assert status.returncode == 0, f"{notebook.name} leaves {path} behind"
