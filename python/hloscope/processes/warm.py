"""Children that are forks of a process which has imported what they need.

    server ── arguments, descriptors ──▶ warm process ── fork ──▶ keeper ── fork ──▶ child
           ◀── number of the child, then its exit status ───────── keeper

A child that is started anew imports for most of its time; a fork has done so. Each is still a
process of its own with limits of its own. The warm process runs nothing that came from a file.
Linux only.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from io import FileIO
from typing import BinaryIO

# Elsewhere there is no fork, or none that is safe with numpy imported (macOS).
IS_POSSIBLE = sys.platform == "linux"
# Seconds after which a warm process without a child to start ends: it holds some 50 MB.
IDLE_SECONDS = 900.0
# Seconds that it has to import and to fork.
START_SECONDS = 60.0
# The arguments of a child, and how many descriptors it is given.
MOST_BYTES = 1 << 18
MOST_DESCRIPTORS = 16
_NUMBER = struct.Struct("<i")


class Forked:
    """A child of a warm process, with what ``subprocess.Popen`` has."""

    stdin: BinaryIO | None = None

    def __init__(self, pid: int, status: FileIO, stdout: BinaryIO, stderr: BinaryIO) -> None:
        self.pid, self.stdout, self.stderr = pid, stdout, stderr
        self.returncode: int | None = None
        self._status = status
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        with self._lock:
            if self.returncode is None and select.select([self._status], [], [], 0)[0]:
                said = self._status.read(_NUMBER.size)
                whole = len(said) == _NUMBER.size  # else its keeper was killed
                self.returncode = _NUMBER.unpack(said)[0] if whole else -signal.SIGKILL
                self._status.close()
            return self.returncode

    def wait(self) -> int:
        while (status := self.poll()) is None:
            with suppress(OSError, ValueError):  # another thread has read it
                select.select([self._status], [], [])
        return status

    def kill(self) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class Warm:
    """Starts ``python -P -m module arguments`` as forks of a process that has called
    ``module.warm_up()``. That process is started with the first of them, and ends with this one."""

    def __init__(self, module: str) -> None:
        self.module = module
        self._lock = threading.Lock()
        self._environment: Mapping[str, str] = {}
        self._to: socket.socket | None = None

    def start(
        self, arguments: Sequence[str], given: BinaryIO, handed: Sequence[int],
        environment: Mapping[str, str],
    ) -> Forked:  # fmt: skip
        """A child whose input is ``given`` and which has the descriptors ``handed``, by the same
        numbers. Raises ``OSError`` if none can be started."""
        with self._lock:
            if self._to is not None and self._environment == environment:
                with suppress(OSError):  # it has ended: it was idle, or somebody killed it
                    return self._fork(arguments, given, handed)
            self._begin(environment)
            return self._fork(arguments, given, handed)

    def _begin(self, environment: Mapping[str, str]) -> None:
        self.close()
        ours, its = socket.socketpair()
        with its:
            command = [sys.executable, "-P", "-m", __name__, self.module, str(its.fileno())]
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, cwd=tempfile.gettempdir(), env=dict(environment),
                pass_fds=(its.fileno(),),
            )  # fmt: skip
        threading.Thread(target=process.wait, daemon=True).start()
        self._to, self._environment = ours, dict(environment)

    def _fork(self, arguments: Sequence[str], given: BinaryIO, handed: Sequence[int]) -> Forked:
        assert self._to is not None
        with ExitStack() as here, ExitStack() as there:
            pipes = [os.pipe() for _ in range(3)]
            for _, end in pipes:
                there.callback(os.close, end)
            (stdout, _), (stderr, _), (status, _) = pipes
            # what is read of the status is all that was sent: nothing may wait in a buffer
            status_of = here.enter_context(os.fdopen(status, "rb", buffering=0))
            output, errors = (here.enter_context(os.fdopen(r, "rb")) for r in (stdout, stderr))
            ends = [given.fileno(), *(end for _, end in pipes), *handed]
            said = json.dumps([list(arguments), list(handed)]).encode()
            if len(said) > MOST_BYTES:
                raise OSError("too much is asked")
            socket.send_fds(self._to, [_NUMBER.pack(len(said)) + said], ends)
            there.close()
            answers = select.select([status_of], [], [], START_SECONDS)[0]
            number = status_of.read(_NUMBER.size) if answers else b""
            if len(number) < _NUMBER.size:
                raise OSError("the warm process has ended, or hangs")
            here.pop_all()
        return Forked(_NUMBER.unpack(number)[0], status_of, output, errors)

    def close(self) -> None:
        """Ends the warm process, not its children."""
        if self._to is not None:
            self._to.close()
            self._to = None


def _received(channel: socket.socket) -> tuple[list[str], list[int], list[int]] | None:
    """(arguments, numbers that its descriptors are to have, the descriptors); None at the end."""
    data, fds, _, _ = socket.recv_fds(channel, _NUMBER.size, MOST_DESCRIPTORS)
    if len(data) < _NUMBER.size:
        return None
    size, said = _NUMBER.unpack(data)[0], b""
    while len(said) < size and (more := channel.recv(size - len(said))):
        said += more
    if len(said) < size:
        return None
    arguments, handed = json.loads(said)
    return arguments, handed, fds


def _numbered(fds: Sequence[int], numbers: Sequence[int]) -> None:
    """Gives descriptors other numbers, and closes the ones that they had."""
    import fcntl

    above = max([*fds, *numbers]) + 1
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in fds]
    for fd in fds:
        os.close(fd)
    for fd, number in zip(moved, numbers, strict=True):
        os.dup2(fd, number)
        os.close(fd)


def _keep(module: str, arguments: list[str], handed: list[int], fds: list[int]) -> None:
    """The keeper: forks the child, and says its number and how it ended."""
    given, stdout, stderr, status, *others = fds
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(status)
            _numbered([given, stdout, stderr, *others], [0, 1, 2, *handed])
            code = importlib.import_module(module).main(arguments)
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
        except BaseException:
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        finally:
            with suppress(OSError, ValueError):
                sys.stderr.flush()
            os._exit(code)
    for fd in (given, stdout, stderr, *others):
        os.close(fd)
    os.write(status, _NUMBER.pack(child))
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(status, _NUMBER.pack(ended))


def main(module: str, descriptor: str) -> int:
    """The warm process."""
    import gc

    channel = socket.socket(fileno=int(descriptor))
    channel.set_inheritable(False)
    importlib.import_module(module).warm_up()
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers leave nothing to wait for
    while select.select([channel], [], [], IDLE_SECONDS)[0]:
        asked = _received(channel)
        if asked is None:
            break
        arguments, handed, fds = asked
        if os.fork() == 0:
            try:
                # a number of the child's may be the channel's: it has no use for that
                channel.close()
                _keep(module, arguments, handed, fds)
            finally:
                os._exit(0)
        for fd in fds:
            os.close(fd)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
