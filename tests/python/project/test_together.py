"""Tests of one group run on one worker, with the pytest and the xdist that are installed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("xdist", reason="runs tests on several workers")

TESTS = Path(__file__).resolve().parents[2]
CONFTEST = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})

def pytest_xdist_make_scheduler(config, log):
    from together import Together
    return Together(config, log, lambda file: file.name[:6])
"""


def test_each_group_is_on_one_worker(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    files = ("test_ax.py", "test_ay.py", "test_bx.py", "test_by.py")
    for name in files:
        tests = (f"def test_{k}(): time.sleep(0.01)\n" for k in range(6))
        (tmp_path / name).write_text("import time\n" + "".join(tests))
    command = [sys.executable, "-m", "pytest", "-v", "-n", "2", "-p", "no:cacheprovider"]
    command += ["--dist", "loadfile", "--no-loadscope-reorder", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [*command, str(tmp_path)], capture_output=True, text=True, timeout=300, cwd=tmp_path
    )
    ran = re.findall(r"\[(gw\d)\].* PASSED \S*?(test_\w)", done.stdout)
    assert len(ran) == 6 * len(files), done.stdout[-2000:]
    assert len(set(ran)) == 2
    assert len({worker for worker, _ in ran}) == 2
