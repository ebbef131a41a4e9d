"""Runs inside pytest for `scripts/mutate`: which lines the tests run, and tests on changed sources.

Collected once, nothing run: every request is answered by a fork of that process, so no change
starts Python, imports jax or collects tests again, and none sees what another left behind. In the
fork the functions of the changed file get their new code before the tests run.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.abc
import importlib.machinery
import json
import os
import pickle
import resource
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

FILES = set(json.loads(os.environ["MUTATE_FILES"]))
ADDRESS = os.environ["MUTATE_SOCKET"]
MEMORY = 8 << 30
SLOW = 5.0  # seconds of processor: a test that takes longer while its lines are traced is left out
STUCK = 120.0  # seconds of wall time
IN_FILE = 60.0  # seconds of processor for the tests of one file, traced: others are left out
HANGS = 2  # tests of a file that hang or crash; what follows is left out
COMPILED = "compiled"  # the fixture of tests that compile programs
FUNCTIONS: dict[str, list[FunctionType]] = {}  # of FILES, as the tests have them
INLINE = 0x02  # CO_NEWLOCALS: a function; class bodies and modules run on import

# -- which lines the tests run ---------------------------------------------------------------


class Cover:
    """Lines of FILES → the tests that run them. Lines of a shared fixture belong to its tests."""

    def __init__(self) -> None:
        self.now: set[tuple[str, int]] = set()
        self.unseen: dict[CodeType, set[int]] = {}  # lines of functions that this test has run
        self.fixtures: dict[str, set[tuple[str, int]]] = {}
        self.failed = False
        self.began = 0.0
        self.last = ""

    def local(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            code, line = frame.f_code, frame.f_lineno
            self.now.add((code.co_filename, line))
            unseen = self.unseen[code]
            unseen.discard(line)
            frame.f_trace_lines = bool(unseen)
        return self.local

    def trace(self, frame: FrameType, event: str, arg: object) -> Any:
        """A function all of whose lines this test has run is traced no longer."""
        code = frame.f_code
        if code.co_filename not in FILES or not code.co_flags & INLINE:
            return None
        if code not in self.unseen:
            self.unseen[code] = {line for _, _, line in code.co_lines() if line is not None}
            self.unseen[code].discard(code.co_firstlineno)
        return self.local if self.unseen[code] else None

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[Any]:
        if fixturedef.scope == "function":
            return (yield)
        before, self.now, self.unseen = self.now, set(), {}
        try:
            return (yield)
        finally:
            self.fixtures.setdefault(fixturedef.argname, set()).update(self.now)
            self.now, self.unseen = before, {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> Iterator[Any]:
        self.now, self.unseen, self.last = set(), {}, item.nodeid
        self.failed, self.began = False, time.process_time()
        signal.setitimer(signal.ITIMER_PROF, SLOW)
        signal.setitimer(signal.ITIMER_REAL, STUCK)
        sys.settrace(self.trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            for name in getattr(item, "fixturenames", ()):
                self.now |= self.fixtures.get(name, set())
            tell(self.said())

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.failed |= report.failed

    def said(self) -> dict[str, Any]:
        return {
            "test": self.last,
            "lines": [f"{path}:{line}" for path, line in self.now],
            "seconds": time.process_time() - self.began,
            "failed": self.failed,
        }

    def too_slow(self, signum: int, frame: object) -> None:
        """Ends the fork: an exception in the middle of a compiler would leave its locks held."""
        self.failed = True
        answer(self.said() | {"end": True})


def cover(session: pytest.Session, file: str, compiling: bool) -> dict[str, Any]:
    """Runs the tests of a file, in order; a fork ends at a slow test, another continues after it.

    A fork that hangs in foreign code runs no Python signal handler, so it is waited for from here.
    """
    items = [
        i
        for i in session.items
        if i.nodeid.startswith(file) and (compiling or COMPILED not in i.fixturenames)
    ]
    found: dict[str, Any] = {"lines": {}, "seconds": {}, "failed": [], "untried": 0}
    hangs = 0
    while items:
        if hangs == HANGS or sum(found["seconds"].values()) > IN_FILE:
            found["untried"] = len(items)
            break
        with fork(lambda rest=items: cover_until_slow(session, rest)) as hear:
            while items:
                said = hear(STUCK + 10)
                test = items.pop(0).nodeid
                if said is None:
                    hangs += 1
                    found["failed"].append(test)
                    break
                found["seconds"][test] = said["seconds"]
                for line in said["lines"]:
                    found["lines"].setdefault(line, []).append(test)
                if said["failed"]:
                    found["failed"].append(test)
                if said.get("end") or sum(found["seconds"].values()) > IN_FILE:
                    break
    return found


def cover_until_slow(session: pytest.Session, items: list[pytest.Item]) -> None:
    seen = Cover()
    session.config.pluginmanager.register(seen)
    signal.signal(signal.SIGPROF, seen.too_slow)
    signal.signal(signal.SIGALRM, seen.too_slow)
    run(session, items, lambda: False)


# -- tests on changed sources ----------------------------------------------------------------


def functions(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    """Code of all functions of a file, by name and line."""
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield (const.co_qualname, const.co_firstlineno), const
            yield from functions(const)


class Changed(importlib.abc.MetaPathFinder):
    """Imports one file from changed text: for modules that no test has imported yet."""

    def __init__(self, path: str, code: CodeType) -> None:
        self.path, self.code = path, code

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.origin != self.path:
            return None
        loader: Any = spec.loader
        loader.get_code = lambda _name: self.code
        return spec


def change(path: str, source: str) -> None:
    code = compile(source, path, "exec", dont_inherit=True)
    sys.meta_path.insert(0, Changed(path, code))
    new = dict(functions(code))
    for made in FUNCTIONS.get(path, ()):
        found = new.get((made.__code__.co_qualname, made.__code__.co_firstlineno))
        if found is not None and found.co_freevars == made.__code__.co_freevars:
            made.__code__ = found


class Failures:
    def __init__(self) -> None:
        self.first = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.first:
            self.first = report.nodeid


def run(session: pytest.Session, items: list[pytest.Item], enough: Callable[[], bool]) -> None:
    for k, item in enumerate(items):
        following = items[k + 1] if k + 1 < len(items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if enough():
            return


def try_change(session: pytest.Session, asked: dict[str, Any]) -> str:
    """The test that notices the change, '' when none does."""
    resource.setrlimit(resource.RLIMIT_CPU, (asked["seconds"], asked["seconds"]))
    by_id = {item.nodeid: item for item in session.items}
    if asked["path"]:
        change(asked["path"], asked["source"])
    failures = Failures()
    session.config.pluginmanager.register(failures)
    run(session, [by_id[t] for t in asked["tests"]], lambda: bool(failures.first))
    return failures.first


def quiet() -> None:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    with contextlib.suppress(ImportError):
        from hypothesis import settings

        settings.register_profile("mutate", database=None, derandomize=True)
        settings.load_profile("mutate")


ANSWERS: list[Any] = []  # in a fork: where its answers go


def tell(made: Any) -> None:
    pickle.dump(made, ANSWERS[0])
    ANSWERS[0].flush()


def answer(made: Any) -> None:
    """Ends the fork."""
    tell(made)
    os._exit(0)


@contextlib.contextmanager
def fork(work: Callable[[], Any]) -> Iterator[Callable[[float], Any]]:
    """A fork that tells what ``work`` returns, and what that told before.

    Gives a function that waits some seconds for the next of these: None when there is none.
    """
    ours, theirs = socket.socketpair()
    log = os.dup(2)
    pid = os.fork()
    if pid == 0:
        ours.close()
        try:
            quiet()
            ANSWERS[:] = [theirs.makefile("wb")]
            answer(work())
        except BaseException:
            os.write(log, traceback.format_exc().encode())
        finally:
            os._exit(0)
    theirs.close()
    os.close(log)
    stream = ours.makefile("rb")

    def hear(limit: float) -> Any:
        ours.settimeout(limit)
        try:
            return pickle.load(stream)
        except (EOFError, OSError, pickle.UnpicklingError):
            return None

    try:
        yield hear
    finally:
        stream.close()
        ours.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def forked(work: Callable[[], Any], limit: float, otherwise: Any) -> Any:
    """What ``work`` returns in a fork; ``otherwise`` when it ends in any other way, or late."""
    with fork(work) as hear:
        said = hear(limit)
    return otherwise if said is None else said


def serve(session: pytest.Session, connection: socket.socket) -> None:
    with connection, connection.makefile("rwb") as stream:
        for line in stream:
            asked = json.loads(line)
            if asked["what"] == "threads":
                said: Any = THREADS
            elif asked["what"] == "ids":
                said = [item.nodeid for item in session.items]
            elif asked["what"] == "cover":
                said = cover(session, asked.get("file", ""), asked["compiling"])
            else:
                said = forked(lambda a=asked: try_change(session, a), asked["limit"], "no end")
            stream.write(json.dumps(said).encode() + b"\n")
            stream.flush()


THREADS: dict[str, int] = {}  # test file → threads that it starts on import


def threads() -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir("/proc/self/task"))
    return 1


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[Any]:
    """A fork has no threads but its own: what waits for another, as jax's backend does, hangs."""
    before = threads()
    report = yield
    if isinstance(collector, pytest.Module) and threads() > before + 2:
        THREADS[collector.nodeid] = threads() - before
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    for made in gc.get_objects():
        if isinstance(made, FunctionType) and made.__code__.co_filename in FILES:
            FUNCTIONS.setdefault(made.__code__.co_filename, []).append(made)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(ADDRESS + ".new")
    listening.listen()
    os.rename(ADDRESS + ".new", ADDRESS)
    listening.settimeout(5)
    parent = os.getppid()
    while os.getppid() == parent:  # else it was killed and could not end us
        try:
            connection, _ = listening.accept()
        except TimeoutError:
            continue
        connection.setblocking(True)
        if os.fork() == 0:
            listening.close()
            serve(session, connection)
            os._exit(0)
        connection.close()
    os._exit(0)
