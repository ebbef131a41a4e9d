"""Who may import whom (the table in CONTRIBUTING.md), and what importing hloscope costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache

import pytest

BASE = {"hlo", "hardware", "analysis.base", "analysis.text"}
GROUPING = BASE | {"analysis.flops"}
COMMS = GROUPING | {"analysis.grouping", "analysis.comms"}
MEMORY = COMMS | {"analysis.cost", "analysis.memory"}
FINDINGS = MEMORY | {"analysis.why"}
PASSES = FINDINGS | {"analysis.findings", "analysis.passes"}
REPORT = PASSES | {"analysis.provenance", "analysis.measured", "analysis.report"}
ANALYSES = REPORT | {"analysis.diff", "analysis.check"}
# room of python/hloscope (a folder or a module) → what of hloscope it may import, beside itself.
# Each file must be in one, and each must exist.
PYTHON = {
    "hlo": set(),
    "hardware": set(),
    "processes": set(),
    "readers": {"hlo", "processes"},
    "analysis.text": {"hlo"},
    "analysis.base": BASE,
    "analysis.flops": BASE,
    "analysis.grouping": GROUPING,
    "analysis.comms": COMMS,
    "analysis.cost": COMMS,
    "analysis.memory": MEMORY,
    "analysis.why": COMMS | {"readers"},
    "analysis.findings": FINDINGS,
    "analysis.passes": FINDINGS | {"readers"},
    "analysis.provenance": PASSES | {"readers"},
    "analysis.diff": REPORT,
    "analysis.measured": PASSES,
    "analysis.report": REPORT,
    "analysis.check": REPORT,
    "view": ANALYSES,
    "api": ANALYSES | {"readers", "processes"},
    "plan": ANALYSES | {"readers", "processes", "capturing", "api", "show"},
    "capturing": {"hlo", "hardware", "analysis.text", "readers", "api"},
    "show": ANALYSES | {"api", "processes", "readers", "view", "capturing", "plan", ""},
    "lab": ANALYSES | {"processes", "readers", "view", "show", "api", ""},
    "pytest_plugin": {"", "analysis.check"},
    "__main__": {"show"},
    "results": ANALYSES | {"readers", "plan", "api"},
    "": {
        "hlo",
        "hardware",
        "results",
        "api",
        "plan",
        "readers",
        "capturing",
        "analysis.check",
        "show",
    },
}
# Runs in a child process only, where jaxlib's parser may abort.
JAXLIB = {"python/hloscope/readers/stablehlo/child.py"}
# The same of js/ and src/, imports of types included. "panels/cost" and its like may import only
# "panels/*" below.
VIEW = {"view", "view-extras"}
PARTS = {"base", "theme", *VIEW, "state", "panels/panel", "panels/parts"}
JS = {
    "view": {"view-extras"},
    "view-extras": set(),
    "theme": {"view"},
    "base": VIEW,
    "state": {"base", *VIEW},
    "graph": {"base", *VIEW},
    "scene": {"base", *VIEW, "graph"},
    "draw": {"base", *VIEW, "theme", "scene", "graph", "state"},
    "panels/panel": {"base", *VIEW, "state"},
    "panels/parts": PARTS,
    "panels/*": PARTS,
    "panels/chrome": PARTS | {"panels/colorings"},
    "panels/colorings": PARTS | {"panels/*"},
    "panels": PARTS | {"panels/*"},
    "explorer": PARTS | {"draw", "panels", "panels/*", "panels/colorings", "panels/chrome"},
    "mount": {"base", *VIEW, "state", "explorer", "theme"},
    "hosts": {"mount", "base", *VIEW, "state"},
    "plan": {"base", "theme"},
    "src": {"mount", "view", "base"},
}


@cache
def parsed(path):
    return ast.parse(path.read_text())


def imports_of(path, package):
    """Modules imported anywhere in a file, in functions too, as absolute dotted names."""
    tree = parsed(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            name = f"{base}.{node.module}" if base and node.module else base or node.module
            yield from (f"{name}.{alias.name}" for alias in node.names)
    if path.name == "__init__.py" and len(package) == 1:
        import hloscope

        yield from (f"hloscope.{place}" for place in hloscope._LAZY.values())
        yield from (f"hloscope.{p.partition(':')[0]}" for p in hloscope._HOSTS.values())


def python_files(repo):
    """(path, dotted name, dotted package) of every module."""
    root = repo / "python" / "hloscope"
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        package = ["hloscope", *parts[:-1]]
        name = package if parts[-1] == "__init__" else [*package, parts[-1]]
        yield path, ".".join(name), package


def file_of(names, imported):
    """The module that holds an imported name, or None when it is none of ours."""
    while imported and imported not in names:
        imported = imported.rpartition(".")[0]
    return imported or None


def room_of(module):
    """The room a module of ours is in; the most exact of PYTHON, "" for hloscope itself."""
    inside = module.removeprefix("hloscope").removeprefix(".")
    while inside and inside not in PYTHON:
        inside = inside.rpartition(".")[0]
    return inside


def test_python_arrows(repo):
    files = list(python_files(repo))
    names = {name for _, name, _ in files}
    wrong = []
    for path, name, package in files:
        room = room_of(name)
        for imported in imports_of(path, package):
            of = file_of(names, imported)
            if of is not None and room_of(of) not in {room, *PYTHON[room]}:
                wrong.append(f"{path.relative_to(repo)} imports {imported}")
    assert wrong == []


def test_every_python_file_is_in_a_room_and_every_room_exists(repo):
    files = list(python_files(repo))
    homeless = [name for _, name, _ in files if name not in ("hloscope", "hloscope.analysis")]
    homeless = [name for name in homeless if not room_of(name)]
    assert homeless == []
    inhabited = {room_of(name) for _, name, _ in files}
    assert set(PYTHON) - inhabited == set()


def circles(arrows):
    """Strongly connected parts of more than one file, each sorted."""
    reach = {}
    for start in arrows:
        seen, todo = set(), [start]
        while todo:
            for nxt in arrows.get(todo.pop(), ()):
                if nxt not in seen:
                    seen.add(nxt)
                    todo.append(nxt)
        reach[start] = seen
    found = {tuple(sorted(b for b in reach[a] if a in reach.get(b, ()))) for a in reach}
    return sorted(c for c in found if len(c) > 1)


def test_no_circle_of_python_files(repo):
    """Imports in functions and those for the type checker alone count."""
    files = list(python_files(repo))
    names = {name for _, name, _ in files}
    arrows = {}
    for path, name, package in files:
        found = (file_of(names, x) for x in imports_of(path, package))
        arrows[name] = {x for x in found if x and x != name}
    assert circles(arrows) == []


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [("a", "b", "c")]


def test_only_capturing_imports_jax(repo):
    wrong = [
        f"{path.relative_to(repo)} imports {name}"
        for path, module, package in python_files(repo)
        for name in imports_of(path, package)
        if name.partition(".")[0] in ("jax", "jaxlib")
        and room_of(module) != "capturing"
        and str(path.relative_to(repo)) not in JAXLIB
    ]
    assert wrong == []


_FROM = re.compile(r"""(?:^|\n)\s*(?:import|export)\b[^;'"]*?\bfrom\s*["'](\.[^"']+)["']""")
_BARE = re.compile(r"""\bimport\s*\(?\s*["'](\.[^"']+)["']""")


def js_imports(path):
    text = path.read_text()
    return [
        (path.parent / spec).resolve()
        for pattern in (_FROM, _BARE)
        for spec in pattern.findall(text)
    ]


def js_files(repo):
    return sorted([*(repo / "js").rglob("*.ts"), *(repo / "src").rglob("*.ts")])


def js_room(repo, path):
    """The most exact room of JS a file is in; "" when it is in none."""
    inside = path.relative_to(repo).with_suffix("")
    if inside.parts[0] == "src":
        return "src"
    name = "/".join(inside.parts[1:])
    while name and name not in JS:
        above = name.rpartition("/")[0]
        if above == "panels" and (repo / "js" / name).is_dir():
            return "panels/*"
        name = above
    return name


def test_js_arrows(repo):
    wrong = []
    for path in js_files(repo):
        room = js_room(repo, path)
        assert room, f"{path.relative_to(repo)} is in no room"
        for target in js_imports(path):
            other = js_room(repo, target)
            same = other == room and (room != "panels/*" or path.parent == target.parent)
            if not same and (other not in JS[room] or room == other):
                wrong.append(f"{path.relative_to(repo)} imports {target.relative_to(repo)}")
    assert wrong == []


def test_every_js_room_exists(repo):
    inhabited = {js_room(repo, path) for path in js_files(repo)}
    assert set(JS) - inhabited == set()


def test_no_circle_of_js_files(repo):
    """Imports of types count."""
    arrows = {
        str(path.relative_to(repo)): {str(target.relative_to(repo)) for target in js_imports(path)}
        for path in js_files(repo)
    }
    assert circles(arrows) == []


def test_the_tables_name_rooms_that_contributing_names(repo):
    text = (repo / "CONTRIBUTING.md").read_text()
    for room in PYTHON:
        if room and not room.startswith("analysis."):
            assert re.search(rf"python/hloscope/{room}(/|\.py)", text), room
        elif room:
            assert f"`{room.removeprefix('analysis.')}`" in text, room
    for room in JS:
        if "/" not in room and room != "src":
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


NEEDLESS_FOR_A_SUMMARY = [
    *HEAVY,
    *("hloscope.capturing", "hloscope.view", "hloscope.plan", "hloscope.show.html"),
    *("hloscope.analysis.diff", "hloscope.analysis.passes", "hloscope.analysis.why.provenance"),
    *("hloscope.readers.proto.proto", "hloscope.readers.stablehlo", "hloscope.readers.xplane"),
    *("hloscope.show.commands.html", "hloscope.show.commands.search"),
    *("difflib", "importlib.resources", "subprocess", "tarfile", "tomllib", "webbrowser"),
]


def test_the_summary_of_a_text_imports_only_what_it_needs(tmp_path):
    """A small file is summarised in a quarter of a second, most of which is imports."""
    dump = tmp_path / "step.hlo"
    dump.write_text(
        "HloModule m, num_partitions=2\n\nadd {\n  a = f32[] parameter(0)\n"
        "  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n\n"
        "ENTRY e {\n  x = f32[8,8] parameter(0)\n"
        "  d = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "  ROOT s = f32[8,8] all-reduce(d), replica_groups={{0,1}}, to_apply=add\n}\n"
    )
    program = (
        "import contextlib, io, sys\nfrom hloscope.__main__ import main\n"
        "with contextlib.redirect_stdout(io.StringIO()) as said:\n"
        f"    assert main(['summary', {str(dump)!r}]) == 0\n"
        "assert '1 all-reduce' in said.getvalue()\n"
        f"print([m for m in {NEEDLESS_FOR_A_SUMMARY!r} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.strip() == "[]"


def test_class_names_are_unique(repo):
    """One name is one thing. Descriptions of the View's JSON may be named like what they show."""
    found = {}
    for path, module, _ in python_files(repo):
        if module == "hloscope.view.header":
            continue
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(module)
    assert {name: modules for name, modules in found.items() if len(modules) > 1} == {}
