"""The environment of child processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

# An allow-list: names of secrets cannot be guessed.
_NAMES = frozenset(
    "PATH HOME USER LOGNAME LANG LANGUAGE TZ TMPDIR TEMP TMP SHELL TERM "
    "VIRTUAL_ENV CONDA_PREFIX LD_LIBRARY_PATH DYLD_LIBRARY_PATH DYLD_FALLBACK_LIBRARY_PATH "
    "PYTHONPATH PYTHONHOME PYTHONUTF8 PYTHONIOENCODING PYTHONDONTWRITEBYTECODE "
    "PYTHONPYCACHEPREFIX PYTHONHASHSEED PYTHONWARNINGS "
    "XDG_CONFIG_HOME XDG_CACHE_HOME HLOSCOPE_HARDWARE "
    "SYSTEMROOT SYSTEMDRIVE WINDIR COMSPEC PATHEXT USERPROFILE APPDATA LOCALAPPDATA "
    "COVERAGE_PROCESS_START".split()
)


def child_environment() -> dict[str, str]:
    """The variables that Python and its libraries need to start: for readers of untrusted files."""
    return {k: v for k, v in os.environ.items() if k.upper() in _NAMES or k.startswith("LC_")}


def with_this_package(more: Mapping[str, str]) -> dict[str, str]:
    """All of this process's environment and ``more``, in which this package can be imported."""
    environment = {**os.environ, **more}
    folder, given = str(Path(__file__).resolve().parents[2]), environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = folder + (os.pathsep + given if given else "")
    return environment
