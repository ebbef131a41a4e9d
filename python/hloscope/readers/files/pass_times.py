"""When each pass of a dump ran: XLA writes it with ``--xla_dump_module_metadata``.

    pass_metadata {                 module_0000.metadata.textproto
      pass_id: 4
      pass_name: "dce"              "pipeline-start" for what a pipeline does first
      pipeline_name: "simplification-1"
      start_timestamp_usec: 1795703206654755
      end_timestamp_usec: 1795703206655469
    }

libtpu was seen to write it, XLA:CPU was not.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from ...hlo.snapshots import TimedPass
from .pass_dump import START

MAX_BYTES = 64 << 20
_PASS = re.compile(r"^pass_metadata \{\n(.*?)^\}", re.S | re.M)
_FIELD = re.compile(r'^  (\w+): (?:"([^"\n]*)"|(\d{1,18}))$', re.M)


def read_times(folder: str | Path, module: int) -> tuple[TimedPass, ...]:
    """The passes of the module with this number, in the order they began; () if not written."""
    file = Path(folder) / f"module_{module:04d}.metadata.textproto"
    with contextlib.suppress(OSError):
        if file.stat().st_size <= MAX_BYTES:
            return parse_times(file.read_text(encoding="utf-8", errors="replace"))
    return ()


def parse_times(text: str) -> tuple[TimedPass, ...]:
    """The passes in such a file that began and ended."""
    found = []
    for block in _PASS.finditer(text):
        told = {m[1]: m[2] or m[3] or "" for m in _FIELD.finditer(block[1])}
        begin, end = told.get("start_timestamp_usec"), told.get("end_timestamp_usec")
        if begin and end and begin.isdigit() and end.isdigit() and int(end) >= int(begin):
            name = told.get("pass_name", "")
            found.append(
                TimedPass(
                    told.get("pipeline_name", ""),
                    "" if name == START else name,
                    int(begin) / 1e6,
                    int(end) / 1e6,
                )
            )
    return tuple(found)
