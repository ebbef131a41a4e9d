"""Separate environments for tests against the oldest supported packages.

Each is made once, in .cache/, with uv or pip and without Node on the path.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
# What uv and pip print without a network or an answering registry.
_UNREACHABLE = re.compile(
    r"dns error|error sending request|Failed to fetch|Could not connect|timed out"
    r"|NewConnectionError|Temporary failure|Connection refused|offline|network",
    re.IGNORECASE,
)


def project() -> dict[str, object]:
    """The [project] table of pyproject.toml."""
    found: dict[str, object] = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    return found


def environment(name: str, packages: Sequence[str]) -> Path:
    """Python of an environment with these packages, hloscope's dependencies and its wheel.

    The wheel is the newest in dist/; without one the caller provides hloscope. Skips, with the
    reason, if no package registry answers.
    """
    needed = [*packages, *project()["dependencies"]]  # type: ignore[misc]
    key = hashlib.sha256(repr((needed, sys.version_info[:2])).encode()).hexdigest()[:12]
    folder = REPO / ".cache" / f"{name}-{key}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        made = [sys.executable, "-m", "venv", "--clear", *(["--without-pip"] if _uv() else [])]
        subprocess.run([*made, folder], check=True)
        _install(python, *needed)
        (folder / "complete").touch()
    wheels = sorted((REPO / "dist").glob("hloscope-*.whl"), key=lambda w: w.stat().st_mtime)
    if wheels:
        _install(python, "--no-deps", "--force-reinstall", str(wheels[-1]))
    return python


def _uv() -> str | None:
    return shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def _install(python: Path, *what: str) -> None:
    uv = _uv()
    install = [uv, "pip", "install", "--python", str(python)] if uv else None
    command = install or [str(python), "-m", "pip", "install", "--disable-pip-version-check"]
    nodeless = {**os.environ, "PATH": str(python.parent)}
    done = subprocess.run(
        [*command, "-q", *what], capture_output=True, text=True, timeout=840, env=nodeless
    )
    if done.returncode and _UNREACHABLE.search(done.stderr):
        pytest.skip(f"no package registry: {done.stderr.strip().splitlines()[-1][:200]}")
    assert done.returncode == 0, done.stderr[-2000:]
