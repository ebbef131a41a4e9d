"""Descriptor 2 of this process, redirected at most once at a time, for all callers.

File descriptors belong to the process, captures to threads. Were each capture to save and
restore descriptor 2 by itself, two of them could restore each other's pipe and leave stderr
broken permanently. So there is one ``_Redirection``; watchers join it and the last one to leave
takes it down:

    thread A   begin ────────────────────── end
    thread B            begin ─────────────────────── end
    fd 2       │ tee ────────────────────────────────│ as before

``tee`` is a process of its own: everything still reaches the user's stderr at once, even when
the compiler aborts this process, and no lock of ours can block a compiler thread that writes.
Where descriptor 2 is closed, or there is no ``tee``, nothing is redirected and nothing is kept.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

_MAX_READ = 64 << 20
_WAIT_SECONDS = 5.0


class Watch:
    """Reads what reaches descriptor 2 between ``begin`` and ``end``."""

    def __init__(self) -> None:
        self._joined: _Redirection | None = None
        self._start = 0
        self.mixed = False

    def begin(self) -> None:
        global _active
        with _lock:
            while _held is not None and _held[0] != threading.get_ident():
                _lock.wait()
            if _active is None:
                _active = _Redirection.install()
            if _active is None:
                return
            self._joined, self._start = _active, _active.size()
            _active.watchers.append(self)
            if len(_active.watchers) > 1:
                for watch in _active.watchers:
                    watch.mixed = True

    def end(self) -> tuple[str, bool]:
        """The text, and whether other threads' output may be in it."""
        global _active
        joined, self._joined = self._joined, None
        if joined is None or joined.forked:
            return "", False
        with _lock:
            joined.watchers.remove(self)
            if joined.watchers:
                return joined.text_so_far(self._start), self.mixed
            _active = None
            joined.restore()
            _lock.notify_all()
        return joined.finish(self._start), self.mixed


@contextlib.contextmanager
def stderr_held() -> Iterator[None]:
    """Shows what the block wrote to stderr only if it succeeds: an exception says it better.

    While another thread compiles, nothing is held: its output must not wait or get lost.
    """
    holding = _hold()
    try:
        yield
    except BaseException:
        if holding:
            _release(show=False)
        raise
    if holding:
        _release(show=True)


def _hold() -> bool:
    global _held
    with _lock:
        if _held is not None or (_active is not None and len(_active.watchers) > 1):
            return False
        saved, file = -1, None
        try:
            saved = os.dup(2)
            file = _scratch()
            _flush()
            os.dup2(file.fileno(), 2)
        except (OSError, ValueError):
            if file is not None:
                file.close()
            if saved >= 0:
                os.close(saved)
            return False
        _held = threading.get_ident(), file, saved
        return True


def _release(*, show: bool) -> None:
    global _held
    with _lock:
        if _held is None:  # in a forked child
            return
        _, file, saved = _held
        _flush()
        os.dup2(saved, 2)
        _held = None
        _lock.notify_all()
    if show:
        with contextlib.suppress(OSError):
            _write_all(saved, os.pread(file.fileno(), _MAX_READ, 0))
    file.close()
    os.close(saved)


class _Redirection:
    """Descriptor 2 → tee → the old descriptor 2 and a scratch file."""

    def __init__(self, saved: int, file: Any, tee: subprocess.Popen[bytes]) -> None:
        self.saved, self.file, self.tee = saved, file, tee
        self.watchers: list[Watch] = []
        self.forked = False

    @classmethod
    def install(cls) -> _Redirection | None:
        """None if it cannot be done; descriptor 2 is then as it was."""
        saved, file, tee = -1, None, None
        try:
            saved = os.dup(2)
            file = _scratch()
            _flush()
            # -i: an interrupt is for this process; -a: many may write at the end of the file
            tee = subprocess.Popen(
                ["tee", "-i", "-a", f"/dev/fd/{file.fileno()}"],
                stdin=subprocess.PIPE,
                stdout=saved,
                stderr=subprocess.DEVNULL,
                pass_fds=[file.fileno()],
                # ignores SIGPIPE and SIGXFSZ as this process does: tee must outlive a broken
                # terminal or a limit on files, or the compiler's own writes would fail
                restore_signals=False,
            )
            assert tee.stdin is not None
            os.dup2(tee.stdin.fileno(), 2)
            tee.stdin.close()
            return cls(saved, file, tee)
        except BaseException as error:
            if tee is not None:
                os.dup2(saved, 2)
                _let_go(tee)
            if file is not None:
                file.close()
            if saved >= 0:
                os.close(saved)
            if isinstance(error, OSError | ValueError):
                return None
            raise

    def size(self) -> int:
        return os.fstat(self.file.fileno()).st_size

    def restore(self) -> None:
        _flush()
        os.dup2(self.saved, 2)  # closes our end of the pipe: tee ends when it has read all

    def text_so_far(self, start: int) -> str:
        """The text while others still watch: once tee has read all that was written."""
        _flush()
        until = time.monotonic() + 1.0
        while _waiting_bytes(2) and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(0.005)  # for tee to write it to the file
        return self._text(start)

    def finish(self, start: int) -> str:
        """The text after ``restore``: all of it, once tee is done."""
        try:
            self.tee.wait(timeout=_WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            pass  # a child of the compiler still holds the pipe: tee serves it as long as it lives
        finally:
            _let_go(self.tee)
            os.close(self.saved)
        text = self._text(start)
        self.file.close()
        return text

    def _text(self, start: int) -> str:
        with contextlib.suppress(OSError, ValueError):
            return os.pread(self.file.fileno(), _MAX_READ, start).decode(errors="replace")
        return ""


_lock = threading.Condition(threading.RLock())
_active: _Redirection | None = None
_held: tuple[int, Any, int] | None = None  # thread, scratch file, the descriptor to restore
_lingering: list[subprocess.Popen[bytes]] = []


def _let_go(tee: subprocess.Popen[bytes]) -> None:
    """Reaps those that have ended; the others must not be killed while something writes to them."""
    if tee.stdin is not None and not tee.stdin.closed:
        tee.stdin.close()
    _lingering[:] = [p for p in [*_lingering, tee] if p.poll() is None]


def _scratch() -> Any:
    """A file without a name, in memory where the system allows it: the disk may be full."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("hloscope-stderr"), "w+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)


def _waiting_bytes(descriptor: int) -> int:
    """Unread bytes in a pipe; 0 if the system does not say."""
    try:
        import fcntl
        import termios

        answer = fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4)
        return int.from_bytes(answer, sys.byteorder)
    except (ImportError, OSError):
        return 0


def _flush() -> None:
    with contextlib.suppress(Exception):  # sys.stderr may be None, closed, or anything
        sys.stderr.flush()


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _after_fork_in_child() -> None:
    """A forked child has its own descriptor 2 and no threads that would ever restore it."""
    global _lock, _active, _held
    _lock = threading.Condition(threading.RLock())
    with contextlib.suppress(OSError):
        if _held is not None:
            os.dup2(_held[2], 2)
        if _active is not None:
            os.dup2(_active.saved, 2)
    if _active is not None:
        _active.forked = True
        _active.tee.returncode = 0  # the parent's child: nothing to wait for here
    _active = _held = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
