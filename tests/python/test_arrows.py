"""Who may import whom (the table in CONTRIBUTING.md), and what importing hloscope costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest

# folder or module of python/hloscope → what of hloscope it may import, beside itself
PYTHON = {
    "hlo": set(),
    "readers": {"hlo"},
    "capturing": {"hlo", "readers"},
    "analysis": {"hlo"},
    "plan": {"hlo", "analysis", "capturing"},
    "view": {"hlo", "analysis"},
}
ALWAYS = {"_capture"}  # what every entry point returns
LEAVES = {"hardware", "_platforms"}  # import nothing of hloscope, so that anyone may import them
# Runs in a child process only, where jaxlib's parser may abort.
JAXLIB = {"python/hloscope/readers/mlir_child.py"}
JS = {
    "base": {"view"},
    "view": set(),
    "state": {"base", "view"},
    "graph": {"base", "view"},
    "scene": {"base", "view", "graph"},
    "draw": {"base", "view", "scene", "graph", "state"},
    "panels": {"base", "view", "state"},
    "widget": {"mount", "view", "base"},
    "snapshot": {"mount", "view", "base"},
}


def imports_of(path, package):
    """Modules imported anywhere in a file, as absolute dotted names."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            name = f"{base}.{node.module}" if base and node.module else base or node.module
            yield name
            yield from (f"{name}.{alias.name}" for alias in node.names)


def python_files(repo):
    root = repo / "python" / "hloscope"
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        package = ["hloscope", *parts[:-1]]
        yield path, parts[0].removesuffix(".py"), package


def room_of(repo, name):
    """The folder or module of python/hloscope that a dotted name is in, or None."""
    head, *rest = name.split(".")
    root = repo / "python" / "hloscope"
    if head != "hloscope" or not rest:
        return None
    known = (root / rest[0]).is_dir() or (root / f"{rest[0]}.py").exists()
    return rest[0] if known else None


def test_python_arrows(repo):
    wrong = []
    for path, room, package in python_files(repo):
        may = set() if room in LEAVES else PYTHON.get(room)
        if may is None:
            continue
        allowed = {None, room} if room in LEAVES else {None, room, *may, *ALWAYS, *LEAVES}
        for name in imports_of(path, package):
            if room_of(repo, name) not in allowed:
                wrong.append(f"{path.relative_to(repo)} imports {name}")
    assert wrong == []


def test_only_capturing_imports_jax(repo):
    wrong = [
        f"{path.relative_to(repo)} imports {name}"
        for path, room, package in python_files(repo)
        for name in imports_of(path, package)
        if name
        and name.partition(".")[0] in ("jax", "jaxlib")
        and room != "capturing"
        and str(path.relative_to(repo)) not in JAXLIB
    ]
    assert wrong == []


def test_js_arrows(repo):
    wrong = []
    root = repo / "js"
    for path in sorted(root.rglob("*.ts")):
        room = path.relative_to(root).parts[0].removesuffix(".ts")
        if room not in JS:
            continue
        for found in re.findall(r"""(?:from|import)\s*\(?["'](\.[^"']+)["']""", path.read_text()):
            target = (path.parent / found).resolve().relative_to(root.resolve())
            other = target.parts[0].removesuffix(".ts")
            if other not in {room, *JS[room]}:
                wrong.append(f"{path.relative_to(repo)} imports {found}")
    assert wrong == []


def test_the_tables_name_rooms_that_contributing_names(repo):
    text = (repo / "CONTRIBUTING.md").read_text()
    for room in PYTHON:
        if room != "plan":
            assert f"python/hloscope/{room}/" in text
    for room in JS:
        assert re.search(rf"js/{room}(/|\.ts)", text), room


HEAVY = ["jax", "jaxlib", "IPython", "anywidget", "ipywidgets", "graphviz", "pandas", "google"]


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        ("import hloscope", [*HEAVY, "hloscope.view", "hloscope.readers", "hloscope.analysis"]),
        ("import hloscope.show.cli", HEAVY),
        ("import hloscope.readers; hloscope.readers.read_modules('HloModule m\\n\\nENTRY e {\\n"
         "  ROOT x = f32[] parameter(0)\\n}\\n')", ["jax", "jaxlib", "IPython", "anywidget"]),
    ],
    ids=["package", "command line", "reading text"],
)  # fmt: skip
def test_importing_costs_nothing_it_does_not_need(statement, forbidden):
    program = f"{statement}\nimport sys\nprint([m for m in {forbidden!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.strip() == "[]"
