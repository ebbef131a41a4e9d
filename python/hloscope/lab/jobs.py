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
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, BinaryIO, cast

from tornado.web import HTTPError

from ..processes.environment import child_environment
from . import frames
from .files import OpenFile
from .folders import OpenDump
from .limits import HloscopeLimits

# The last frames of a job: when all who wait for one go away, the job is no longer needed.
_LAST = {b"C"}


class Job:
    """What one child has sent so far. Lives in the event loop's thread."""

    def __init__(self) -> None:
        self.results: dict[bytes, bytes] = {}
        self.error: bytes | None = None
        self.progress = frames.progress("Waiting for a free process", None)
        self.finished = False
        self.users = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.cancelled = False
        self.changed = asyncio.Event()

    def post(self, kind: bytes, payload: bytes) -> None:
        if kind == b"P":
            self.progress = frames.encode(kind, payload)
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
        if self.process is not None:
            self.process.kill()

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
                yield frames.encode(kind, self.results[kind])
            else:
                yield frames.encode(b"E", self.error or b'{"message": "the reader stopped"}')
        finally:
            self.users -= 1
            unwanted = not self.results or (kind in _LAST and kind not in self.results)
            if self.users == 0 and unwanted and not self.finished:
                self.cancel()


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
            yield frames.encode(kind, kept)
            return
        job = self.jobs.get(key)
        if job is None or job.cancelled:
            if len(self.jobs) >= self.limits.max_processes + self.limits.max_waiting:
                raise HTTPError(503, "too many files are being read; try again")
            job = self.jobs[key] = Job()
            # the job outlives this request when somebody else waits for it
            streams = [os.fdopen(os.dup(f.stream.fileno()), "rb") for f in files]
            names = [f.name for f in files]
            digests = [f.digest for f in files]
            if dump is not None:
                digests.append(dump.state)
            folder = None if dump is None else os.dup(dump.fd)
            loop = asyncio.get_running_loop()
            threading.Thread(
                target=self._run,
                args=(loop, key, job, wants, streams, names, digests, choices, folder),
                name="hloscope-read",
                daemon=True,
            ).start()
        async with aclosing(job.watch(kind)) as stream:
            async for frame in stream:
                yield frame

    def _run(
        self,
        loop: asyncio.AbstractEventLoop,
        key: Hashable,
        job: Job,
        wants: str,
        streams: Sequence[BinaryIO],
        names: Sequence[str],
        digests: Sequence[str],
        choices: Mapping[str, str],
        folder: int | None,
    ) -> None:
        """A thread: waits for its turn, starts the child, passes what it sends to the loop."""

        def post(action: Callable[..., None], *args: Any) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(action, *args)

        def fail(message: str) -> None:
            post(job.post, b"E", frames.error(message)[frames.HEADER.size :])

        try:
            with self._slots:
                if not job.cancelled:
                    post(job.post, b"P", frames.progress("Starting", None)[frames.HEADER.size :])
                    process = self._start(wants, streams, names, choices, folder)
                    job.process = process
                    if job.cancelled:  # meanwhile
                        process.kill()
                    trouble = self._listen(process, digests, lambda k, p: post(job.post, k, p))
                    if trouble:
                        fail(trouble)
        except Exception as e:
            fail(f"the reader could not start: {e}")
        finally:
            for stream in streams:
                stream.close()
            if folder is not None:
                os.close(folder)
            post(self._finish, key, job)

    def _listen(
        self,
        process: subprocess.Popen[bytes],
        digests: Sequence[str],
        post: Callable[[bytes, bytes], None],
    ) -> str:
        """Passes frames on until the child ends; returns what went wrong, or ''.

        The child must have read what the answer is kept under: otherwise a file rewritten after
        its digest was taken would be shown under the old one for ever.
        """
        seconds = self.limits.max_seconds
        trouble = ""
        clock = threading.Timer(seconds + 5, process.kill)
        clock.daemon = True
        clock.start()
        try:
            pipe = cast(BinaryIO, process.stdout)
            while frame := frames.read_frame(pipe, self.limits.max_result_bytes):
                if frame[0] != b"D":
                    post(*frame)
                elif json.loads(frame[1]) != list(digests):
                    trouble = "the file was changed while it was read; load it again"
                    process.kill()
                    break
        except frames.BadFrame as e:
            trouble = str(e)
            process.kill()
        status = process.wait()
        if clock.finished.is_set() or status == -24:  # SIGXCPU
            trouble = f"reading this took more than {seconds} seconds"
        clock.cancel()
        if status < 0 and not trouble:
            trouble = f"the process that read this was ended by signal {-status}"
        return trouble

    def _finish(self, key: Hashable, job: Job) -> None:
        job.finished = True
        if self.jobs.get(key) is job:
            del self.jobs[key]
        for kind, payload in job.results.items():
            self._keep((key, kind), payload)
        job.notify()

    def _start(
        self,
        wants: str,
        streams: Sequence[BinaryIO],
        names: Sequence[str],
        choices: Mapping[str, str],
        folder: int | None = None,
    ) -> subprocess.Popen[bytes]:
        # -P: the current folder is not on the path, so no module there is ever imported
        command = [sys.executable, "-P", "-m", "hloscope.lab.child", "--want", wants]
        command += [f"--memory={self.limits.max_memory_bytes}"]
        command += [f"--seconds={self.limits.max_seconds}", f"--name={names[0]}"]
        command += [f"--{option}={value}" for option, value in choices.items()]
        handed: list[int] = []
        if len(streams) > 1:
            handed = [streams[1].fileno()]
            command += [f"--other=/dev/fd/{handed[0]}", f"--other-name={names[1]}"]
        if folder is not None:
            handed.append(folder)
            command += [f"--folder={folder}"]
        return subprocess.Popen(
            command,
            stdin=streams[0],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=tempfile.gettempdir(),
            env=child_environment() | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            pass_fds=handed,
        )

    def _keep(self, key: tuple[Hashable, bytes], payload: bytes) -> None:
        if len(payload) > self.limits.cache_bytes // 2:
            return
        self._kept_bytes += len(payload) - len(self._kept.pop(key, b""))
        self._kept[key] = payload
        while self._kept_bytes > self.limits.cache_bytes:
            self._kept_bytes -= len(self._kept.popitem(last=False)[1])
