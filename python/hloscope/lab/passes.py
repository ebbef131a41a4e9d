"""The passes of a dump, in the process that reads: the block first, then figures pass by pass."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..processes.frames import encode
from . import frames
from .dumps import plain_file

if TYPE_CHECKING:
    from ..api.capture import Capture

# Seconds between two progress messages.
_EVERY = 0.2


def serve(
    send: Callable[[bytes], None],
    capture: Capture,
    folder: int,
    name: str,
    unchanged: Callable[[], None],
) -> None:
    """Sends K and C (see frames.py) for the dump ``name`` of the folder.

    ``unchanged`` is called once every file was read: it lets the server check that they are
    still the same. Raises ``ReadError``, and ``ValueError`` if there is too much.
    """
    from ..api.capture import PassRecord
    from ..readers.files.dump_directory import entry_of
    from ..readers.files.pass_dump import LAST, pass_of, read_passes
    from ..show import blocks

    entry = entry_of(Path(name))
    assert entry is not None  # the server has checked
    os.fchdir(folder)
    step = pass_of(entry.stage)
    number = step[0] if step is not None and step[2] != LAST else None
    capture.for_hosts.record = PassRecord(
        lambda: (read_passes(Path(), entry.index, entry.name, plain_file), ""), number=number
    )
    last_sent = 0.0

    def reporter(words: str) -> Callable[[int, int], None]:
        def progress(done: int, of: int) -> None:
            nonlocal last_sent
            now = time.monotonic()
            if now - last_sent >= _EVERY or done == 0:
                last_sent = now
                send(frames.pieces(words, done, of))

        return progress

    passes = capture.passes(reporter("Comparing the passes"))
    block = blocks.passes(capture, reporter("Following instructions"))
    unchanged()
    send(encode(b"K", block))
    costs: list[tuple[int, dict[str, Any]]] = []
    progress_of_costs = reporter("FLOPs, bytes and peak")
    for row in passes.rows:
        progress_of_costs(row.index, len(passes))
        if row.only_metadata:
            continue
        try:
            cost = passes.cost(row, capture.target)
        except Exception as error:  # one pass that cannot be read must not hide the others
            cost = {"failed": f"{type(error).__name__}: {error}"}
        costs.append((row.index, cost))
    send(frames.encode_json(b"C", costs))
