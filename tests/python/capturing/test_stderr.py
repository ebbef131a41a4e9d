"""Descriptor 2 is redirected once for the whole process, and always comes back."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from hloscope.capturing.dumps import stderr
from hloscope.capturing.dumps.messages import MIXED, stderr_kept
from hloscope.capturing.dumps.stderr import stderr_held

SAID = "E1121 10:02:44.286759   12078 some_pass.cc:656] "


def same_stderr() -> tuple[int, int]:
    found = os.fstat(2)
    return found.st_dev, found.st_ino


def run(program: str, **options) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own; stderr is read to its end."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )


def test_two_at_a_time_in_any_order_leave_stderr_as_it_was(capfd):
    before = same_stderr()
    first_in, second_in, first_out = (threading.Event() for _ in range(3))
    kept: dict[str, list[str]] = {}

    def first():
        with stderr_kept() as lines:
            first_in.set()
            second_in.wait(10)
            os.write(2, (SAID + "one\n").encode())
        kept["first"] = lines
        first_out.set()

    def second():
        first_in.wait(10)
        with stderr_kept() as lines:
            second_in.set()
            first_out.wait(10)
            os.write(2, (SAID + "two\n").encode())
        kept["second"] = lines

    threads = [threading.Thread(target=t) for t in (first, second)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(20)
    assert same_stderr() == before
    assert kept["first"] == [MIXED, "one"]
    assert kept["second"] == [MIXED, "one", "two"]
    os.write(2, b"after\n")
    assert capfd.readouterr().err == f"{SAID}one\n{SAID}two\nafter\n"


def test_many_threads(capfd):
    before = same_stderr()

    def work(number):
        for _ in range(5):
            with stderr_kept():
                os.write(2, b"x\n")
                if number % 2:
                    with contextlib.suppress(ZeroDivisionError), stderr_held():
                        raise ZeroDivisionError

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert same_stderr() == before
    assert capfd.readouterr().err == "x\n" * 40


def test_held_within_kept(capfd):
    with stderr_kept() as kept:
        with contextlib.suppress(ValueError), stderr_held():
            os.write(2, (SAID + "lost\n").encode())
            raise ValueError
        with stderr_held():
            os.write(2, (SAID + "shown\n").encode())
    assert kept == ["shown"]
    assert capfd.readouterr().err == f"{SAID}shown\n"


def test_held_waits_for_nobody_and_nobody_is_held_by_another(capfd):
    """A thread that holds stderr must not take the output of one that compiles."""
    inside, done = threading.Event(), threading.Event()

    def compiles():
        with stderr_kept():
            inside.set()
            done.wait(10)

    other = threading.Thread(target=compiles)
    other.start()
    inside.wait(10)
    with stderr_kept(), contextlib.suppress(ValueError), stderr_held():
        os.write(2, b"of the other\n")
        raise ValueError
    done.set()
    other.join(10)
    assert capfd.readouterr().err == "of the other\n"


@pytest.mark.parametrize("setup", ["os.close(2)", "sys.stderr = None", "sys.stderr.close()"])
def test_no_stderr(setup):
    found = run(f"""
        import os, sys
        from hloscope.capturing.dumps.messages import stderr_kept
        from hloscope.capturing.dumps.stderr import stderr_held
        {setup}
        for _ in range(2):
            with stderr_kept() as kept:
                with stderr_held():
                    pass
        print("ok")
    """)
    assert found.stdout == "ok\n"


def test_an_interrupt_gives_stderr_back(capfd):
    before = same_stderr()
    main = threading.get_ident()
    timer = threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT))

    def interrupted():
        with stderr_kept():
            timer.start()
            time.sleep(10)

    usual = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    finally:
        signal.signal(signal.SIGINT, usual)
    assert same_stderr() == before
    assert stderr._active is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_has_its_own_stderr():
    found = run("""
        import os, sys
        from hloscope.capturing.dumps.messages import stderr_kept
        with stderr_kept():
            child = os.fork()
            if child == 0:
                with stderr_kept():
                    os.write(2, b"child\\n")
                os._exit(0)
            os.waitpid(child, 0)
            os.write(2, b"parent\\n")
        os.write(2, b"after\\n")
    """)
    assert (found.returncode, found.stderr) == (0, "child\nparent\nafter\n")


def test_a_child_of_the_compiler_keeps_its_stderr(monkeypatch, capfd):
    monkeypatch.setattr(stderr, "_WAIT_SECONDS", 0.2)
    with stderr_kept():
        child = subprocess.Popen(["sh", "-c", "sleep 0.8; echo late >&2"])
    assert child.wait(10) == 0
    for _ in range(100):
        err = capfd.readouterr().err
        if err:
            break
        time.sleep(0.05)
    assert err == "late\n"


def test_a_limit_on_files_costs_the_messages_only():
    found = run("""
        import os, resource
        from hloscope.capturing.dumps.messages import stderr_kept
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        with stderr_kept() as kept:
            for _ in range(3):
                os.write(2, b"E1121 10:02:44.286759   12078 some_pass.cc:656] hello\\n")
        print(kept)
    """)
    assert (found.returncode, found.stdout) == (0, "[]\n")
    assert found.stderr.count("hello") == 3
