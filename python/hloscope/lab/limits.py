"""Limits of the file reader, as configuration of the Jupyter server."""

from __future__ import annotations

from traitlets import Int
from traitlets.config import Configurable

from ..processes.limits import CPU_SECONDS, MEMORY_BYTES

_GB = 1 << 30


class HloscopeLimits(Configurable):
    """Set as ``c.HloscopeLimits.max_seconds = 60`` in ``jupyter_server_config.py``."""

    max_file_bytes = Int(_GB // 2, min=1, help="Larger files are refused.").tag(config=True)
    max_passes_bytes = Int(
        2 * _GB, min=1, help="Passes of one module that have more together are refused."
    ).tag(config=True)
    max_result_bytes = Int(_GB // 2, min=1, help="Larger results are refused.").tag(config=True)
    max_memory_bytes = Int(
        MEMORY_BYTES, min=_GB // 8, help="Address space of the process that reads a file."
    ).tag(config=True)
    max_seconds = Int(CPU_SECONDS, min=1, help="Wall clock and CPU time for one file.").tag(
        config=True
    )
    max_processes = Int(2, min=1, help="Files read at the same time.").tag(config=True)
    max_waiting = Int(16, min=0, help="Requests that may wait for a free process.").tag(config=True)
    cache_bytes = Int(_GB // 4, min=0, help="Memory for results kept in the server.").tag(
        config=True
    )
