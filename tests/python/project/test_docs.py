"""Every code block of README and docs runs, in page order, and every path they name exists.

    ```python   executed in one namespace per page
    ```ipython  run in an IPython shell sharing that namespace (magics work)
    ```console  lines after "$ " run in a shell; a trailing "# exit 1" states the exit status
    ```toml     parsed, as ```json is;  ```yaml  a workflow: parsed, and its hloscope commands too
    ```sh       names scripts of this repository;  ```text  is no code

A line ``<!-- needs: libtpu -->`` above a block leaves it out where that package is missing; a
warning says so. Pages run in a child process each, in an empty folder, on 8 CPU devices; the
children are forks of one process, so that jax is imported once; commands that only read files are
forks as well.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import quickly
import yaml
from hloscope.show.cli import parser

REPOSITORY = Path(__file__).resolve().parents[3]
DOCS = REPOSITORY / "docs"
PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    REPOSITORY / "CHANGELOG.md",
    REPOSITORY / "SECURITY.md",
    *sorted(DOCS.rglob("*.md")),
]
BLOCK = re.compile(r"^(?:<!-- needs: (\w+) -->\n)?```(\w*)[^\n]*\n(.*?)^```", re.S | re.M)
RUN = ("python", "ipython", "console")

DRIVER = r"""
import gc, json, os, shlex, subprocess, sys, traceback
from IPython.core.interactiveshell import InteractiveShell
import hloscope, jax, numpy
from hloscope.show import cli

def status_of(command):
    if not command.startswith("hloscope ") or set(command) & set("|<>&;$") or ".py" in command:
        return subprocess.run(["bash", "-c", command]).returncode
    sys.stdout.flush()
    child = os.fork()  # one that only reads files needs no process of its own
    if child == 0:
        try:
            status = cli.main(shlex.split(command)[1:])
            sys.stdout.flush()
        except SystemExit as left:
            status = left.code
        os._exit(int(status or 0))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def run(page, blocks):
    shell = InteractiveShell.instance()
    space = shell.user_ns
    for kind, line, code in blocks:
        print(f"-- line {line}: {kind}", file=sys.stderr)
        if kind == "python":
            exec(compile("\n" * line + code, page, "exec"), space)
        elif kind == "ipython":
            shell.run_cell(code).raise_error()
        else:
            for command in code.splitlines():
                if not command.startswith("$ "):
                    continue
                command, _, expected = command[2:].partition("  # exit ")
                status = status_of(command)
                assert status == int(expected or 0), f"{command}: exit {status}"

gc.freeze()
for asked in sys.stdin:
    page, blocks, folder = json.loads(asked)
    child = os.fork()
    if child == 0:
        os.setsid()
        os.chdir(folder)
        log = os.open("../log", os.O_CREAT | os.O_WRONLY)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for own, file in ((0, nothing), (1, log), (2, log)):
            os.dup2(file, own)
        sys.stdin = open(0)
        try:
            run(page, blocks)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)  # without taking down what all children share
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


@dataclass
class Block:
    kind: str
    line: int  # of its first line, from 0
    code: str
    needs: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [
        Block(m[2], text.count("\n", 0, m.start(3)), m[3], m[1] or "") for m in BLOCK.finditer(text)
    ]


def name(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


@pytest.fixture(scope="module")
def pages() -> Iterator[Callable[[Path, list[tuple[str, int, str]], Path], int]]:
    """Runs a page's blocks in a folder, in a fork of a process that has imported jax and IPython.

    Returns the exit status; what was printed is in ``log`` beside the folder.
    """
    paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
    env = dict(
        os.environ,
        JAX_PLATFORMS="cpu",
        XLA_FLAGS=quickly.flags(devices=8),
        HLOSCOPE_NO_BROWSER="1",
        PATH=os.pathsep.join(paths),
    )
    command = [sys.executable, "-c", DRIVER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as driver:
        assert driver.stdin is not None
        assert driver.stdout is not None

        def run(page: Path, found: list[tuple[str, int, str]], folder: Path) -> int:
            assert driver.stdin is not None
            assert driver.stdout is not None
            driver.stdin.write(json.dumps([str(page), found, str(folder)]) + "\n")
            driver.stdin.flush()
            return int(driver.stdout.readline())

        yield run
        driver.stdin.close()


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=name)
def test_page_runs(page: Path, tmp_path: Path, pages: Callable[..., int]) -> None:
    found = []
    for block in blocks(page):
        if block.kind not in RUN:
            continue
        if block.needs and importlib.util.find_spec(block.needs) is None:
            warnings.warn(f"{name(page)}:{block.line}: {block.needs} is missing", stacklevel=1)
            continue
        found.append((block.kind, block.line, block.code))
    if not found:
        return
    folder = tmp_path / "page"
    folder.mkdir()
    status = pages(page, found, folder)
    log = tmp_path / "log"
    assert status == 0, log.read_text(errors="replace")[-4000:] if log.exists() else status


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=name)
def test_blocks_that_do_not_run_are_valid(page: Path) -> None:
    for block in blocks(page):
        where = f"{name(page)}:{block.line}"
        if block.kind == "toml":
            tomllib.loads(block.code)
        elif block.kind == "json":
            json.loads(block.code)
        elif block.kind == "yaml":
            jobs = yaml.safe_load(block.code)["jobs"]
            runs = [s["run"] for job in jobs.values() for s in job["steps"] if "run" in s]
            commands = re.findall(r"^ *hloscope (.*)", "\n".join(runs), re.M)
            assert commands, where
            for command in commands:
                parser().parse_args(shlex.split(command))
        elif block.kind == "sh":
            for path in re.findall(r"[\w./-]+/[\w.-]+", block.code):
                assert (REPOSITORY / path).exists(), f"{where} names {path}, which is not there"
        else:
            assert block.kind in (*RUN, "text"), f"{where}: say what it is: {', '.join(RUN)}, …"


def test_readme_has_blocks() -> None:
    assert any(b.kind in RUN for b in blocks(REPOSITORY / "README.md"))


def test_readme_reads_anywhere() -> None:
    """PyPI shows it without the repository: no relative link, and how to start comes first."""
    pytest.importorskip("hatchling", reason="hatchling, which builds the wheel, is not installed")
    spec = importlib.util.spec_from_file_location("hatch_build", REPOSITORY / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    here = (REPOSITORY / "README.md").read_text("utf-8")
    assert "](docs/pictures/explorer.webp)" in here
    text = build.absolute(here, "https://github.com/hloscope/hloscope")
    assert "/hloscope/main/docs/pictures/explorer.webp)" in text
    relative = [t for t in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match("https://|#", t)]
    assert relative == []
    assert 0 < text.find("scripts/lab") < text.find("import jax")


def declared_pictures() -> set[Path]:
    """What docs/pictures.py takes, which is in the repository, compressed."""
    spec = importlib.util.spec_from_file_location("docs_pictures", DOCS / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    pictures = {DOCS / "pictures" / picture for picture in module.PICTURES}
    for picture in pictures:
        assert picture.exists(), f"docs/pictures/{picture.name} is not there: docs/pictures.py"
        assert picture.stat().st_size <= module.MOST_BYTES, f"{picture.name} is too large"
    return pictures


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_and_paths_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    missing = []
    own = "https://github.com/hloscope/hloscope/(?:blob|tree)/main/"
    own += "|https://raw.githubusercontent.com/hloscope/hloscope/main/"
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        target = re.sub(own, f"{REPOSITORY}/", target)  # README is read on PyPI too
        if "://" not in target:
            path = page.parent / target
            if not path.exists():
                missing.append(target)
    folders = "python|js|src|tests|examples|scripts|docs|benchmarks|schema|requirements"
    for path in re.findall(rf"`((?:{folders})/[\w./-]*)`", text):
        if not (REPOSITORY / path).exists():
            missing.append(path)
    assert not missing, f"{name(page)} names what does not exist: {missing}"


def test_every_picture_is_shown() -> None:
    text = "".join(page.read_text("utf-8") for page in PAGES)
    unused = [p.name for p in declared_pictures() if f"pictures/{p.name}" not in text]
    assert not unused, f"docs/pictures.py takes what no page shows: {unused}"


def test_every_page_is_in_the_navigation() -> None:
    navigation = (REPOSITORY / "mkdocs.yml").read_text("utf-8")
    absent = [p.name for p in DOCS.glob("*.md") if f": {p.name}\n" not in navigation]
    assert not absent, f"mkdocs.yml does not list {absent}"
