"""A hundred faults in figures, readers, View and renderer: which do the tests notice?

    python benchmarks/planted_faults.py [--check] [--every 5] [--only cost wire …]

Each fault of ``planted_faults.toml`` is one exact text of one file, its replacement, and what a
user would see that is false. They are planted one at a time in a copy of this checkout (``git
worktree``), and the tests of that subject run there, then the goldens of everything shown.
``--check`` only says which texts are not in the sources any more; ``--every 5`` plants every
fifth; ``--only`` those whose file has one of the words in its path. Chromium is not started:
faults of the renderer are for vitest.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
DATA = REPO / "benchmarks" / "planted_faults.toml"
PACKAGE = "python/hloscope/"


@dataclass(frozen=True)
class Fault:
    """``text`` stands once in ``file``; ``breaks``: what a user sees wrongly with ``becomes``."""

    file: str
    text: str
    becomes: str
    breaks: str


FAULTS = [Fault(**row) for row in tomllib.loads(DATA.read_text())["fault"]]

# Tests of a subject: the longest of these beginnings of a file's path counts.
TESTS: dict[str, str] = {
    "analysis/base": "base",
    "analysis/base/collectives": "comms",
    "analysis/base/loops": "base comms",
    "analysis/base/memory_tiling": "memory",
    "analysis/check": "check",
    "analysis/comms": "comms",
    "analysis/cost": "cost",
    "analysis/flops": "cost",
    "analysis/memory": "memory",
    "analysis/text": "project report show",
    "hlo": "hlo comms",
    "hlo/collective_kinds": "comms cost",
    "hlo/shape": "hlo memory readers",
    "readers": "readers",
    "view": "view",
}
# Goldens of everything shown, for what the subject's own tests do not notice.
WHOLE = "*/test_everything_shown.py */test_oracle.py */test_contract.py"


def place(fault: Fault, root: Path) -> Path | None:
    """The file that has the fault's text once: its own, or the only one that it moved to."""
    path = root / fault.file
    if path.exists():
        return path if path.read_text().count(fault.text) == 1 else None
    top = "js" if fault.file.startswith("js/") else PACKAGE
    found = [
        p for p in (root / top).rglob(f"*{path.suffix}")
        if "node_modules" not in p.parts and p.read_text().count(fault.text) == 1
    ]  # fmt: skip
    return found[0] if len(found) == 1 else None


def stale() -> list[str]:
    """Faults whose text is not, or not once, in today's sources, or whose file has no tests."""
    out = []
    for n, fault in enumerate(FAULTS):
        path = place(fault, REPO)
        if path is None or not commands(str(path.relative_to(REPO)), REPO):
            out.append(f"{n}: {fault.file}: {fault.text[:70]!r}")
    return out


def commands(file: str, copy: Path) -> list[list[str]]:
    """What to run, the nearest tests first; nothing for a file of no subject of ``TESTS``."""
    if file.startswith("js/"):
        return [["npx", "--no-install", "vitest", "run", "--silent", "--bail", "1"]]
    inside = file.removeprefix(PACKAGE)
    key = max((k for k in TESTS if inside.startswith(k)), key=len, default="")
    if not key:
        return []
    tests = copy / "tests" / "python"
    near = [str(tests / folder) for folder in TESTS[key].split() if (tests / folder).exists()]
    far = [str(p) for pattern in WHOLE.split() for p in tests.glob(pattern)]
    pytest = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider"]
    return [[*pytest, *near], [*pytest, *far]]


def notices(copy: Path, fault: Fault, seconds: int) -> str:
    """Which tests notice a fault planted in the copy: "near", "far" or "" for none."""
    path = place(fault, copy)
    assert path is not None
    before = path.read_text()
    environment = os.environ | {
        "PYTHONPATH": str(copy / "python"),
        "HLOSCOPE_REPOSITORY": str(copy),
    }
    path.write_text(before.replace(fault.text, fault.becomes, 1))
    try:
        for how, command in zip(
            ("near", "far"), commands(str(path.relative_to(copy)), copy), strict=False
        ):
            try:
                done = subprocess.run(
                    command, cwd=copy, env=environment, capture_output=True, timeout=seconds
                )
            except subprocess.TimeoutExpired:
                return f"{how}, by taking over {seconds} s"
            if done.returncode not in (0, 5):  # 5: there are no tests
                return how
    finally:
        path.write_text(before)
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--seconds", type=int, default=540, help="that one run of tests may take")
    given = parser.parse_args()
    old = stale()
    print("\n".join(old))
    if given.check:
        print(f"{len(FAULTS)} faults, {len(old)} of them stale")
        sys.exit(bool(old))
    chosen = [
        (n, fault) for n, fault in enumerate(FAULTS)
        if n >= given.first and (n - given.first) % given.every == 0
        and (not given.only or any(word in fault.file for word in given.only))
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", copy], cwd=REPO, check=True)
        (copy / "node_modules").symlink_to((REPO / "node_modules").resolve())
        static = REPO / PACKAGE / "static"
        if static.exists() and not (copy / PACKAGE / "static").exists():
            (copy / PACKAGE / "static").symlink_to(static)
        try:
            noticed = 0
            for n, fault in chosen:
                begin = time.time()
                if place(fault, copy) is None:
                    continue
                how = notices(copy, fault, given.seconds)
                noticed += bool(how)
                print(f"{n:3} {how or 'NOT NOTICED':12} {time.time() - begin:4.0f} s "
                      f"{fault.file}: {fault.breaks}", flush=True)  # fmt: skip
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", copy], cwd=REPO, check=True)
    print(f"{noticed} of {len(chosen)} noticed")


if __name__ == "__main__":
    main()
