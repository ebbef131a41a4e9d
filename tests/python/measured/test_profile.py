"""Runs ``profile_cases.py`` in a process that has not compiled for a TPU yet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_cases_of_the_profiler() -> None:
    cases = Path(__file__).parents[1] / "helpers" / "profile_cases.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(cases)],
        capture_output=True,
        text=True,
        timeout=840,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
