"""One child process per reading, shared by all requests for the same bytes.

    routes ── frames(key, want) ──▶ cache ──▶ Job ◀── thread ◀── pipe ◀── child

A job ends when its child does, when its time is over, or when the last one who waits for it
goes away before there is a result.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

from tornado.web import HTTPError

from ..processes import warm
from ..processes.child import Child, Start, TimeIsOver, ran_out_of_time, started
from ..processes.environment import child_environment
from ..processes.frames import HEADER, BadFrame, encode
from . import frames
from .files import OpenFile
from .folders import OpenDump
from .limits import HloscopeLimits

# The last frames of a job: when all who wait for one go away, the job is no longer needed.
_LAST = {b"C"}
# Seconds beyond the limit on CPU time that the clock leaves a child, which says itself why it ends.
GRACE_SECONDS = 5


_READER = (sys.executable, "-P", "-m", "hloscope.lab.child")
_readers = warm.Warm("hloscope.lab.child")


def _forked(start: Start) -> warm.Forked | subprocess.Popen[bytes]:
    """A reader, of the warm process where there can be one."""
    module, arguments = tuple(start.command[: len(_READER)]), start.command[len(_READER) :]
    if warm.IS_POSSIBLE and module == _READER and start.input is not None:
        with suppress(OSError):
            return _readers.start(arguments, start.input, start.handed, start.environment)
    return started(start)


class Job:
    """One reading, and the frames of its child so far. Lives in the event loop's thread."""

    def __init__(self) -> None:
        self.results: dict[bytes, bytes] = {}
        self.error: bytes | None = None
        self.progress = frames.progress("Waiting for a free process", None)
        self.finished = False
        self.users = 0
        self.child: Child | None = None
        self.cancelled = False
        self.changed = asyncio.Event()

    def post(self, kind: bytes, payload: bytes) -> None:
        if kind == b"P":
            self.progress = encode(kind, payload)
        elif kind == b"E":
            self.error = payload
        else:
            self.results[kind] = payload
        self.notify()

    def notify(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def cancel(self) -> None:
        self.cancelled = True
        if self.child is not None:
            self.child.kill()

    async def watch(self, kind: bytes) -> AsyncGenerator[bytes, None]:
        """Progress frames, then the frame of ``kind`` or an error frame."""
        self.users += 1
        try:
            shown: bytes | None = None
            while kind not in self.results and self.error is None and not self.finished:
                if self.progress is not shown:
                    shown = self.progress
                    yield shown
                else:
                    await self.changed.wait()
            if kind in self.results:
                yield encode(kind, self.results[kind])
            else:
                yield encode(b"E", self.error or b'{"message": "the reader stopped"}')
        finally:
            self.users -= 1
            unwanted = not self.results or (kind in _LAST and kind not in self.results)
            if self.users == 0 and unwanted and not self.finished:
                self.cancel()


@dataclass(frozen=True, slots=True)
class _Asked:
    """Files for a child to read, by descriptors of its own: a job may outlive the request."""

    wants: str
    streams: Sequence[BinaryIO]
    names: Sequence[str]
    digests: Sequence[str]
    choices: Mapping[str, str]
    folder: int | None

    @classmethod
    def of(
        cls,
        wants: str,
        files: Sequence[OpenFile],
        choices: Mapping[str, str],
        dump: OpenDump | None,
    ) -> _Asked:
        digests = [f.digest for f in files]
        if dump is not None:
            digests.append(dump.state)
        streams = [os.fdopen(os.dup(f.stream.fileno()), "rb") for f in files]
        folder = None if dump is None else os.dup(dump.fd)
        return cls(wants, streams, [f.name for f in files], digests, choices, folder)

    def close(self) -> None:
        for stream in self.streams:
            stream.close()
        if self.folder is not None:
            os.close(self.folder)


class Pool:
    """Running jobs and kept results."""

    def __init__(self, limits: HloscopeLimits) -> None:
        self.limits = limits
        self.jobs: dict[Hashable, Job] = {}
        self._kept: OrderedDict[tuple[Hashable, bytes], bytes] = OrderedDict()
        self._kept_bytes = 0
        self._slots = threading.Semaphore(limits.max_processes)
        atexit.register(self.close)

    def close(self) -> None:
        for job in list(self.jobs.values()):
            job.cancel()

    async def frames(
        self,
        key: Hashable,
        kind: bytes,
        wants: str,
        files: Sequence[OpenFile],
        choices: Mapping[str, str],
        dump: OpenDump | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Frames for one request. Raises ``HTTPError`` 503 when too many wait.

        ``choices`` are options of child.py: "module", "other-module", "hardware".
        """
        kept = self._kept.get((key, kind))
        if kept is not None:
            self._kept.move_to_end((key, kind))
            yield encode(kind, kept)
            return
        job = self.jobs.get(key)
        if job is None or job.cancelled:
            if len(self.jobs) >= self.limits.max_processes + self.limits.max_waiting:
                raise HTTPError(503, "too many files are being read; try again")
            job = self.jobs[key] = Job()
            asked = _Asked.of(wants, files, choices, dump)
            loop = asyncio.get_running_loop()
            threading.Thread(
                target=self._run,
                args=(loop, key, job, asked),
                name="hloscope-read",
                daemon=True,
            ).start()
        async with aclosing(job.watch(kind)) as stream:
            async for frame in stream:
                yield frame

    def _run(self, loop: asyncio.AbstractEventLoop, key: Hashable, job: Job, asked: _Asked) -> None:
        """A thread: waits for its turn, starts the child, passes what it sends to the loop."""

        def post(action: Callable[..., None], *args: Any) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(action, *args)

        def fail(message: str) -> None:
            post(job.post, b"E", frames.error(message)[HEADER.size :])

        try:
            with self._slots:
                if not job.cancelled:
                    post(job.post, b"P", frames.progress("Starting", None)[HEADER.size :])
                    child = Child(self._start(asked), self.limits.max_result_bytes, _forked)
                    job.child = child
                    if job.cancelled:  # meanwhile
                        child.kill()
                    trouble = self._listen(child, asked, lambda k, p: post(job.post, k, p))
                    if trouble:
                        fail(trouble)
        except Exception as e:
            fail(f"the reader could not start: {e}")
        finally:
            asked.close()
            post(self._finish, key, job)

    def _listen(self, child: Child, asked: _Asked, post: Callable[[bytes, bytes], None]) -> str:
        """Passes frames on until the child ends; returns what went wrong, or ''.

        The child must have read what the answer is kept under: otherwise a file rewritten after
        its digest was taken would be shown under the old one for ever.
        """
        too_slow = f"reading this took more than {self.limits.max_seconds} seconds"
        until = time.monotonic() + self.limits.max_seconds + GRACE_SECONDS
        trouble, is_answered = "", False
        try:
            while frame := child.receive(until):
                if frame[0] != b"D":
                    post(*frame)
                    is_answered = frame[0] == b"E"
                elif json.loads(frame[1]) != list(asked.digests):
                    trouble = "the file was changed while it was read; load it again"
                    child.kill()
                    break
        except BadFrame as e:
            trouble = str(e)
            child.kill()
        except TimeIsOver:
            trouble = too_slow
        ending = child.ending()
        status = child.process.wait()
        if ran_out_of_time(status):
            return too_slow
        if status and not trouble and not is_answered:
            return f"the process that read this {ending}"
        return trouble

    def _finish(self, key: Hashable, job: Job) -> None:
        job.finished = True
        if self.jobs.get(key) is job:
            del self.jobs[key]
        for kind, payload in job.results.items():
            self._keep((key, kind), payload)
        job.notify()

    def _start(self, asked: _Asked) -> Start:
        # -P: the current folder is not on the path, so no module there is ever imported
        command = [*_READER, "--want", asked.wants, f"--memory={self.limits.max_memory_bytes}"]
        command += [f"--seconds={self.limits.max_seconds}", f"--name={asked.names[0]}"]
        command += [f"--{option}={value}" for option, value in asked.choices.items()]
        handed: list[int] = []
        if len(asked.streams) > 1:
            handed = [asked.streams[1].fileno()]
            command += [f"--other=/dev/fd/{handed[0]}", f"--other-name={asked.names[1]}"]
        if asked.folder is not None:
            handed.append(asked.folder)
            command += [f"--folder={asked.folder}"]
        environment = child_environment() | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        return Start(command, environment, asked.streams[0], tempfile.gettempdir(), handed)

    def _keep(self, key: tuple[Hashable, bytes], payload: bytes) -> None:
        if len(payload) > self.limits.cache_bytes // 2:
            return
        self._kept_bytes += len(payload) - len(self._kept.pop(key, b""))
        self._kept[key] = payload
        while self._kept_bytes > self.limits.cache_bytes:
            self._kept_bytes -= len(self._kept.popitem(last=False)[1])
