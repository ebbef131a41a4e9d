"""A file that is written is whole, or the one before it is still there."""

from __future__ import annotations

import ast
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import hloscope as hs
import pytest
from hloscope.api.files import written

PACKAGE = Path(hs.__file__).parent
TEXT = (
    "HloModule m, is_scheduled=true\n\nENTRY %e (x: f32[4]) -> f32[4] {\n"
    "  %x = f32[4]{0} parameter(0)\n  ROOT %y = f32[4]{0} negate(%x)\n}\n"
)
# Other writes: of a file in a temporary folder that is made for it.
ELSEWHERE = {"api/files.py", "readers/files/archives.py", "capturing/dumps/dumping.py"}
MODES = set("wax+")


def test_nothing_else_in_the_package_writes_files() -> None:
    found = []
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and name not in ELSEWHERE and _writes(node):
                found.append(f"{name}:{node.lineno}")
    assert found == []


def _writes(call: ast.Call) -> bool:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name in ("write_text", "write_bytes", "touch", "savefig", "to_csv", "copyfile"):
        return True
    if name not in ("open", "NamedTemporaryFile"):  # fdopen: pipes
        return False
    given = [*call.args, *(k.value for k in call.keywords if k.arg == "mode")]
    texts = [a.value for a in given if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return any(set(t) <= MODES | set("rbtU") and MODES & set(t) for t in texts if t)


def test_the_judge_sees_writes() -> None:
    for line in ("open('x', 'w')", "path.open(mode='ab')", "p.write_text('')", "open(p, 'r+b')"):
        assert _writes(ast.parse(line).body[0].value), line  # type: ignore[attr-defined]
    for line in ("open('w')", "open(p, 'rb')", "path.open()", "p.read_text()"):
        if line != "open('w')":  # a name and a mode look alike
            assert not _writes(ast.parse(line).body[0].value), line  # type: ignore[attr-defined]


FULL = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
"""


def test_a_disk_that_is_full_leaves_the_old_page(tmp_path: Path) -> None:
    """From Python and from the command line; the same error as from any other write."""
    dump, page = tmp_path / "m.hlo", tmp_path / "m.html"
    dump.write_text(TEXT)
    page.write_text("the old page")
    code = f"""{FULL}
import hloscope as hs
from hloscope.show.cli import main
try:
    hs.read({str(dump)!r}).to_html({str(page)!r})
except OSError as error:
    print(error)
sys.exit(main(["html", {str(dump)!r}, "-o", {str(page)!r}]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == f"[Errno 27] File too large: '{page}'\n"
    assert done.stderr == f"hloscope: {page}: File too large\n"
    assert done.returncode == 2
    assert page.read_text() == "the old page"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.hlo", "m.html"]


def test_an_interrupt_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = written(tmp_path / "p.html", "old")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    for moment in ("write", "fsync", "replace", "chmod"):
        with monkeypatch.context() as patched:
            patched.setattr(os, moment, interrupted)
            with pytest.raises(KeyboardInterrupt):
                written(page, "new")
        assert page.read_text() == "old", moment
        assert os.listdir(tmp_path) == ["p.html"], moment


def test_links_permissions_and_pipes_stay_what_they_are(tmp_path: Path) -> None:
    page = tmp_path / "p.html"
    page.write_text("old")
    page.chmod(0o640)
    link = tmp_path / "link.html"
    link.symlink_to(page)
    assert written(link, "new") == link
    assert link.is_symlink()
    assert page.read_text() == "new"
    assert stat.S_IMODE(page.stat().st_mode) == 0o640
    fresh = written(tmp_path / "fresh.html", "x")
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(fresh.stat().st_mode) == 0o666 & ~mask
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    written(pipe, "through")
    reader.join(5)
    assert read == [b"through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    written(os.devnull, "x")
    with pytest.raises(FileNotFoundError, match=r"no/p\.html"):
        written(tmp_path / "no" / "p.html", "x")
    with pytest.raises(IsADirectoryError):
        written(tmp_path, "x")


def interrupted_after(tmp_path: Path, seconds: float | None, path: str = "") -> tuple[int, str]:
    """Status and messages of ``hloscope summary`` with an interrupt so long after it started."""
    dump = tmp_path / "m.hlo"
    dump.write_text(TEXT)
    ours, theirs = os.pipe()
    code = "import os, sys\nfrom hloscope.__main__ import main\n"
    process = subprocess.Popen(
        ["env", "--default-signal=INT", sys.executable, "-c",
         f"{code}os.write({theirs}, b'.')\nsys.path.insert(0, {path!r})\nsys.exit(main())",
         "summary", str(dump)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pass_fds=[theirs],
    )  # fmt: skip
    os.read(ours, 1)
    if seconds is not None:
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    os.close(ours)
    os.close(theirs)
    return process.returncode, err


def test_an_interrupt_while_it_starts_is_one_line(tmp_path: Path) -> None:
    """At any time in the first half second; the last ones may come when all is done.

    Or while Python itself ends, which takes no signals then: the system ends the process.
    """
    waits = (0.01, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
    said = {interrupted_after(tmp_path, wait) for wait in waits}
    done, ending = (0, ""), (-signal.SIGINT, "")
    assert said - {done, ending} == {(130, "hloscope: interrupted\n")}


def test_an_interrupt_that_a_library_reports_as_its_own_error_is_one_line(tmp_path: Path) -> None:
    """As numpy does: "cannot be imported, a bad install"."""
    (tmp_path / "numpy.py").write_text(
        "import os, signal, time\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(10)\n"
        "except KeyboardInterrupt:\n    raise ImportError('a bad install') from None\n"
    )
    assert interrupted_after(tmp_path, None, str(tmp_path)) == (130, "hloscope: interrupted\n")


def test_an_interrupt_where_nothing_can_be_raised_is_one_line(tmp_path: Path) -> None:
    """While an object is freed, as locks of modules are in an import."""
    (tmp_path / "numpy.py").write_text(
        "import os, signal, time, weakref\n"
        "class Lock: pass\n"
        "lock = Lock()\n"
        "seen = weakref.ref(lock, lambda _: os.kill(os.getpid(), signal.SIGINT))\n"
        "del lock\n"
        "time.sleep(10)\n"
    )
    assert interrupted_after(tmp_path, None, str(tmp_path)) == (130, "hloscope: interrupted\n")


def test_a_folder_whose_files_vanish(tmp_path: Path) -> None:
    """A dump folder that somebody else clears and fills: what is gone is not there."""
    folder = tmp_path / "dump"
    folder.mkdir()
    keep = folder / "module_0001.jit_f.after_optimizations.txt"
    keep.write_text(TEXT)
    gone = folder / "module_0002.jit_g.after_optimizations.txt"
    stop = threading.Event()

    def fill() -> None:
        beside = tmp_path / "beside"
        while not stop.is_set():
            beside.write_text(TEXT * 20)  # the largest, so that it is chosen
            beside.replace(gone)  # whole or gone, never half written
            gone.unlink()

    other = threading.Thread(target=fill)
    other.start()
    try:
        for _ in range(100):
            assert hs.read(folder).module.name == "m"
    finally:
        stop.set()
        other.join()
