"""A child process: starting it, its messages, its limits, and a sentence about how it ended.

parent ── a file or frames ──▶ standard input
       ◀── frames ──────────── standard output
       ◀── its last line ───── standard error, for the sentence about how it ended

Only the child can tell how much is done; the parent's clock and its look at the child's memory end
a child that hangs or takes too much, whatever the child does.
"""

from __future__ import annotations

import contextlib
import io
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from .frames import MOST_BYTES, BadFrame, encode, read_frame
from .limits import resident_bytes
from .warm import Forked

# Seconds between two looks at how much memory a child holds.
LOOK_SECONDS = 0.2
# Seconds that end() waits for the rest: a child of the child may hold the pipes open.
PIPE_SECONDS = 1.0
# So much of the end of a child's standard error is kept, and so much of its last line is shown.
STDERR_BYTES = 4096
LINE_LETTERS = 300


class TimeIsOver(Exception):
    """The time limit has passed; the child was ended."""


class TooMuchMemory(Exception):
    """The memory limit was exceeded; the child was ended."""


@dataclass(frozen=True, slots=True)
class Start:
    """How a child is started.

    ``input`` is its standard input, a pipe for frames by default; ``handed`` are file descriptors
    that it inherits.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    input: BinaryIO | None = None
    folder: str | Path | None = None
    handed: Sequence[int] = ()


def started(start: Start) -> subprocess.Popen[bytes]:
    """The process, with pipes for its output. Raises ``OSError`` if it cannot start."""
    return subprocess.Popen(
        list(start.command),
        stdin=subprocess.PIPE if start.input is None else start.input,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=start.folder,
        env=dict(start.environment),
        pass_fds=tuple(start.handed),
    )


class Child:
    """A running child whose standard output is frames.

    ``starts`` makes its process. Raises ``OSError`` if it cannot start.
    """

    def __init__(
        self,
        start: Start,
        frame_limit: int = MOST_BYTES,
        starts: Callable[[Start], subprocess.Popen[bytes] | Forked] = started,
    ) -> None:
        self.process = starts(start)
        self._frames: queue.Queue[tuple[bytes, bytes] | BadFrame | None] = queue.Queue()
        self._stderr = b""
        self._listeners = {
            self.process.stdout: threading.Thread(
                target=self._listen, args=(frame_limit,), daemon=True
            ),
            self.process.stderr: threading.Thread(target=self._keep_stderr, daemon=True),
        }
        for listener in self._listeners.values():
            listener.start()

    def _listen(self, frame_limit: int) -> None:
        end: BadFrame | None = None
        try:
            output = cast(BinaryIO, self.process.stdout)
            while (frame := read_frame(output, frame_limit)) is not None:
                self._frames.put(frame)
        except BadFrame as error:
            end = error
        except OSError:
            pass
        self._frames.put(end)

    def _keep_stderr(self) -> None:
        stream = cast(io.BufferedReader, self.process.stderr)
        with contextlib.suppress(OSError, ValueError):  # closed meanwhile
            while data := stream.read1(STDERR_BYTES):
                self._stderr = (self._stderr + data)[-STDERR_BYTES:]

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def send(self, kind: bytes, payload: bytes) -> None:
        """Writes a frame to the child's input. Raises ``OSError`` when it is gone."""
        stream = cast(IO[bytes], self.process.stdin)
        stream.write(encode(kind, payload))
        stream.flush()

    def receive(self, until: float, memory: float | None = None) -> tuple[bytes, bytes] | None:
        """The next frame, or None once the child has closed its output.

        ``until`` is a time of ``time.monotonic``, ``memory`` the bytes that it may hold (Linux
        only). Raises ``TimeIsOver`` and ``TooMuchMemory``, after ending the child, and
        ``BadFrame``.
        """
        while True:
            left = until - time.monotonic()
            try:
                frame = self._frames.get(timeout=max(0.0, min(LOOK_SECONDS, left)))
            except queue.Empty:
                held = None if memory is None else resident_bytes(self.process.pid)
                if memory is not None and held is not None and held > memory:
                    self.end()
                    raise TooMuchMemory(
                        f"its process held {held / 2**30:.2f} GiB, more than "
                        f"memory_limit={memory / 2**30:.2f} GiB"
                    ) from None
                if time.monotonic() >= until:
                    self.end()
                    raise TimeIsOver("the time limit has passed") from None
                continue
            if isinstance(frame, BadFrame):
                raise frame
            return frame

    def kill(self) -> None:
        """Ends the process at once, if it still runs; does not wait for it."""
        self.process.kill()

    def end(self) -> None:
        """Ends the process at once, if it still runs, and closes its pipes."""
        self.process.kill()
        self.process.wait()
        for stream, listener in self._listeners.items():
            listener.join(timeout=PIPE_SECONDS)
            if stream is not None and not listener.is_alive():
                with contextlib.suppress(OSError):
                    stream.close()
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()

    def ending(self) -> str:
        """Ends the process, and says how it ended; if by itself, with its last line of stderr."""
        status = self.process.wait()
        self.end()
        line = _last_line(self._stderr)[:LINE_LETTERS]
        return how_it_ended(status) + (f": {line}" if status > 0 and line else "")


def _last_line(data: bytes) -> str:
    lines = data.decode("utf-8", errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


def how_it_ended(status: int) -> str:
    """ "was killed by SIGSEGV" or "ended with status 1", from an exit status."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"was killed by {name}" + (", perhaps out of memory" if name == "SIGKILL" else "")


def ran_out_of_time(status: int) -> bool:
    """Whether the limit on its CPU time ended a process."""
    return status == -getattr(signal, "SIGXCPU", 0)


def converted(start: Start, data: bytes, seconds: float) -> tuple[int, bytes, str]:
    """(exit status, standard output, last line of standard error) of a child that is given bytes.

    Raises ``TimeIsOver``, and ``OSError`` if it cannot start.
    """
    options: dict[str, Any] = {"cwd": start.folder, "env": dict(start.environment)}
    try:
        done = subprocess.run(
            list(start.command), input=data, capture_output=True, timeout=seconds, check=False,
            **options,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise TimeIsOver(f"it took over {seconds:g} s") from None
    return done.returncode, done.stdout, _last_line(done.stderr)
