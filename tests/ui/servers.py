"""Start servers for browser tests, wait until they answer, and end them with all their children."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running(
    command: Sequence[str], folder: Path, env: Mapping[str, str], answers: str, log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server in its own process group, once the URL ``answers`` responds with any status."""
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, cwd=folder, env=env, stdout=said, stderr=said, start_new_session=True
        )
    try:
        deadline = time.monotonic() + 300  # against hanging: a busy machine takes a minute
        while not _answers(answers):
            text = log.read_text(errors="replace")[-3000:]
            assert process.poll() is None, f"{command[:3]} ended:\n{text}"
            assert time.monotonic() < deadline, f"{command[:3]} does not answer:\n{text}"
            time.sleep(0.1)
        yield process
    finally:
        _end(process)


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate the process group, kernels included; kill it after 15 s."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
