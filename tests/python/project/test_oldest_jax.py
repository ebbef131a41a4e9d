"""The oldest jax that is supported: captures, the magic and all that they show work there."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from environments import environment, project

TESTS = Path(__file__).resolve().parents[1]
CASES = [
    "capturing/test_capture.py",
    "show/test_magic.py",
    "capturing/test_stages.py",
    "project/test_results.py",
]
# what this project imports is the same with any jax
OF_OURS = ["--deselect", "capturing/test_capture.py::test_only_capturing_imports_jax"]


def test_captures_work_with_the_oldest_jax() -> None:
    (needs,) = project()["optional-dependencies"]["jax"]  # type: ignore[index]
    found = re.fullmatch(r"jax>=([\d.]+)", needs)
    assert found, needs
    oldest = found[1] if found[1].count(".") == 2 else f"{found[1]}.0"
    tools = ["pytest", "pytest-timeout", "hypothesis", "pandas", "ipykernel", "nbformat"]
    python = environment("oldest-jax", [f"jax=={oldest}", "optax", "flax", *tools])
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COV_"))}
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *CASES, *OF_OURS],
        cwd=TESTS,
        env={**clean, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=840,
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-1000:]}"
    version = subprocess.run(
        [str(python), "-c", "import jax; print(jax.__version__)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert version.stdout.strip() == oldest
    passed = re.search(r"(\d+) passed", done.stdout)
    assert int(passed[1] if passed else 0) > 50, done.stdout[-500:]
