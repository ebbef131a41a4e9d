"""The environment that is passed on to a child process that reads untrusted files."""

from __future__ import annotations

import os

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
    """The part of the environment that Python and its libraries need to start, and no more."""
    return {k: v for k, v in os.environ.items() if k.upper() in _NAMES or k.startswith("LC_")}
