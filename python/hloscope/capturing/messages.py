"""What C++ says on stderr while a program compiles, kept and still shown.

XLA reports "Involuntary full rematerialization" and its kin only there (file descriptor 2),
so the descriptor goes through ``tee`` for the time of the compile: everything still reaches
the person's stderr at once, even when the compiler aborts the process, and no lock of ours
can block a compiler thread that writes.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

_LOG = re.compile(r"^(?P<level>[IWEF])(?:\d{4}|\d{8}) [^\]]*?(?P<file>[\w.]+\.(?:cc|h):\d+)\] ")
_NOISE = re.compile(
    r"could not determine TPU|host bounds|worker.hostname|TPU_WORKER|slow_operation_alarm"
    r"|Constant folding|cpu_aot_loader|cpu_feature|[Mm]achine type|Source Location Trace"
)
_ALWAYS = re.compile(r"[Rr]ematerializ|\[SPMD\]|[Pp]artition|[Rr]eshard|[Ss]hardy|[Ss]harding")
_MAX_MESSAGES = 200


@contextlib.contextmanager
def stderr_kept() -> Iterator[list[str]]:
    """Yields a list that holds the compiler's messages, one line each, once the block ends."""
    kept: list[str] = []
    with tempfile.TemporaryDirectory(prefix="hloscope-") as folder:
        path = Path(folder) / "stderr"
        tee = saved = None
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
            saved = os.dup(2)
            tee = subprocess.Popen(["tee", path], stdin=subprocess.PIPE, stdout=saved)
            assert tee.stdin is not None
            os.dup2(tee.stdin.fileno(), 2)
        try:
            yield kept
        finally:
            if saved is not None:
                os.dup2(saved, 2)
                os.close(saved)
            if tee is not None and tee.stdin is not None:
                tee.stdin.close()
                try:
                    tee.wait(timeout=5)
                except subprocess.TimeoutExpired:  # a child of the compiler still holds fd 2
                    tee.kill()
                    tee.wait()
            if path.exists():
                kept += compiler_lines(path.read_text(errors="replace"))


@contextlib.contextmanager
def stderr_held() -> Iterator[None]:
    """Shows what the block wrote to stderr only if it ends well: an exception says it better."""
    with tempfile.TemporaryFile() as held:
        sys.stderr.flush()
        saved = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException:
            held.truncate(0)
            raise
        finally:
            os.dup2(saved, 2)
            held.seek(0)
            os.write(saved, held.read())
            os.close(saved)


def compiler_lines(text: str) -> list[str]:
    """The compiler's warnings and errors in a log, without time stamps and without repeats."""
    out: dict[str, None] = {}
    for line in text.splitlines():
        m = _LOG.match(line)
        said = line[m.end() :].strip() if m else line.strip()
        if not said or _NOISE.search(line):
            continue
        if (m is not None and m["level"] != "I") or _ALWAYS.search(said):
            out[said] = None
        if len(out) == _MAX_MESSAGES:
            break
    return list(out)
