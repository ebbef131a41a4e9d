"""Child processes that crash, hang, take memory or speak out of turn; each costs one job."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hloscope.processes.child import Child, Start, TimeIsOver, converted, how_it_ended
from hloscope.processes.frames import BadFrame, encode, read_frame
from hloscope.processes.warm import IS_POSSIBLE, Warm
from hloscope.processes.worker import JobLimits, Worker, close_all, worker_of_this_thread

PROGRAM = """
import os, time
from hloscope.processes.warm import IS_POSSIBLE, Warm
from hloscope.processes.worker import serve

def begin(hello):
    def answer(job):
        print("words of the program")
        if job == "crash":
            os.abort()
        if job == "leave":
            os._exit(3)
        if job == "hang":
            time.sleep(100)
        if job == "memory":
            held = bytearray(600_000_000)
            time.sleep(100)
        return {"answer": job, "hello": hello, "pid": os.getpid(), "given": os.environ.get("GIVEN")}
    return answer

serve(begin)
"""
LIMITS = JobLimits(60.0)


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    (tmp_path / "answers_jobs.py").write_text(PROGRAM)
    path = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), path]))
    made = Worker("answers_jobs", {"GIVEN": "1"}, "hello")
    yield made
    made.close()


def test_one_process_answers_all_jobs(worker: Worker) -> None:
    first, second = worker.ask("a", LIMITS), worker.ask("b", LIMITS)
    assert (first["answer"], second["answer"]) == ("a", "b")
    assert first["pid"] == second["pid"] != os.getpid()
    assert (first["hello"], first["given"]) == ("hello", "1")


def test_a_lost_process_costs_its_job_alone(worker: Worker) -> None:
    died = worker.ask("crash", LIMITS)
    assert died == {"error": "crashed: its process was killed by SIGABRT", "is_lost": True}
    assert worker.ask("leave", LIMITS)["error"].endswith(
        "ended with status 3: words of the program"
    )
    assert worker.ask("a", LIMITS)["answer"] == "a"
    hung = worker.ask("hang", JobLimits(0.5))
    assert hung == {"error": "hung: no result after timeout=0.5 s", "is_lost": True}
    assert worker.ask("b", LIMITS)["answer"] == "b"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how much a process holds")
def test_too_much_memory_ends_a_process(worker: Worker) -> None:
    found = worker.ask("memory", JobLimits(60.0, 3e8))
    assert found["error"].startswith("out of memory: its process held 0.")
    assert found["error"].endswith("more than memory_limit=0.28 GiB")


def test_a_thread_keeps_its_worker(worker: Worker) -> None:
    one = worker_of_this_thread("answers_jobs", {}, None)
    assert worker_of_this_thread("answers_jobs", {}, None) is one
    pid = one.ask("a", LIMITS)["pid"]
    other = worker_of_this_thread("answers_jobs", {"GIVEN": "2"}, None)
    assert other is not one
    assert other.ask("a", LIMITS)["given"] == "2"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)  # the process of another environment has ended
    close_all()


def child(program: str, frame_limit: int = 1000) -> Child:
    return Child(Start([sys.executable, "-c", program], os.environ), frame_limit)


def test_frames_that_are_cut_off_or_too_large() -> None:
    whole = encode(b"V", b"12345")
    assert read_frame(io.BytesIO(whole)) == (b"V", b"12345")
    assert read_frame(io.BytesIO(b"")) is None
    for data, words in (
        (whole[:3], "header is cut off"),
        (whole[:-1], "a frame is cut off"),
    ):
        with pytest.raises(BadFrame, match=words):
            read_frame(io.BytesIO(data))
    with pytest.raises(BadFrame, match="5 bytes is over the limit of 4"):
        read_frame(io.BytesIO(whole), 4)
    speaks = child(f"import sys; sys.stdout.buffer.write({encode(b'V', bytes(2000))!r})")
    with pytest.raises(BadFrame, match="2,000 bytes is over the limit of 1,000"):
        speaks.receive(time.monotonic() + 60)
    speaks.end()


def test_the_parent_ends_a_child_when_its_time_is_over() -> None:
    sleeps = child("import time; time.sleep(100)")
    with pytest.raises(TimeIsOver):
        sleeps.receive(time.monotonic() + 0.3)
    assert how_it_ended(sleeps.process.wait()).startswith("was killed by SIGKILL")
    silent = child("")
    assert silent.receive(time.monotonic() + 60) is None
    assert how_it_ended(silent.process.wait()) == "ended with status 0"
    silent.end()


def test_bytes_converted_by_a_child() -> None:
    upper = "import sys; sys.stdout.write(sys.stdin.read().upper())"
    assert converted(Start([sys.executable, "-c", upper], os.environ), b"abc", 60) == (
        0,
        b"ABC",
        "",
    )
    fails = "import sys; print('first', file=sys.stderr); sys.exit('why it failed')"
    start = Start([sys.executable, "-c", fails], os.environ)
    assert converted(start, b"", 60) == (1, b"", "why it failed")
    with pytest.raises(TimeIsOver):
        converted(Start([sys.executable, "-c", "import time; time.sleep(9)"], os.environ), b"", 0.2)


FORKED = """
import os, sys, time
began = 0

def warm_up():
    global began
    began = os.getpid()

def main(arguments):
    words = sys.stdin.buffer.read()
    if arguments == ["crash"]:
        os.abort()
    if arguments == ["sleep"]:
        time.sleep(100)
    if arguments == ["raise"]:
        raise ValueError("why it ended")
    more = b"".join(os.read(int(n), 99) for n in arguments)
    os.write(1, b"%d %s %s %s" % (began, words, more, os.environ.get("GIVEN", "").encode()))
    return len(arguments)
"""


@pytest.fixture
def warm(tmp_path: Path) -> Iterator[Warm]:
    if not IS_POSSIBLE:
        pytest.skip("forks are for Linux")
    (tmp_path / "forked.py").write_text(FORKED)
    (tmp_path / "words").write_bytes(b"words")
    made = Warm("forked")
    yield made
    made.close()


def forked(warm: Warm, tmp_path: Path, *arguments: str, given: str = "", handed: int = -1) -> Any:
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    environment = {"PYTHONPATH": paths, "GIVEN": given}
    with (tmp_path / "words").open("rb") as words:
        return warm.start(arguments, words, [handed] if handed >= 0 else [], environment)


def test_a_fork_has_its_own_input_output_status_and_descriptors(
    warm: Warm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET", "x")
    with (tmp_path / "words").open("rb") as more:
        number = os.dup2(more.fileno(), 77)  # by this number it is to find it
        first = forked(warm, tmp_path, str(number), given="1", handed=number)
        os.close(number)
    began, *said = first.stdout.read().split()
    assert said == [b"words", b"words", b"1"]
    assert (first.wait(), first.poll()) == (1, 1)
    secrets = Path(f"/proc/{int(began)}/environ").read_bytes()
    assert b"A_SECRET" not in secrets
    second = forked(warm, tmp_path, given="1")
    assert second.stdout.read().split()[0] == began, "one process has imported for both"
    assert second.wait() == 0
    other = forked(warm, tmp_path, given="2")
    assert other.stdout.read().split()[2:] == [b"2"], "an environment of another server"


def test_a_fork_that_ends_badly_says_how(warm: Warm, tmp_path: Path) -> None:
    assert forked(warm, tmp_path, "crash").wait() == -signal.SIGABRT
    raised = forked(warm, tmp_path, "raise")
    assert raised.stderr.read().splitlines()[-1] == b"ValueError: why it ended"
    assert raised.wait() == 1
    sleeps = forked(warm, tmp_path, "sleep")
    assert sleeps.poll() is None
    sleeps.kill()
    assert sleeps.wait() == -signal.SIGKILL
    sleeps.kill()  # no other process may have its number by now
    assert forked(warm, tmp_path).wait() == 0


def test_a_warm_process_that_was_ended_is_started_again(warm: Warm, tmp_path: Path) -> None:
    pids = set()
    for _ in range(2):
        child = forked(warm, tmp_path)
        began = child.stdout.read().split()[0]
        pids.add(began)
        assert child.wait() == 0
        os.kill(int(began), signal.SIGKILL)
    assert forked(warm, tmp_path).wait() == 0
    assert len(pids) == 2
