"""No dead code: vulture names what nobody uses in Python, and exports that nobody imports."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import hloscope
import pytest

# What others call: Jupyter's server, tornado's handlers, anywidget, pytest.
CALLED_BY_OTHERS = """
__getattr__ __dir__ __contains__ load_ipython_extension _jupyter_server_extension_points
_load_jupyter_server_extension auth_resource log_message initialize on_connection_close
compute_etag hlo_check selection exc
""".split()


def words(*paths: Path) -> set[str]:
    return {w for p in paths for w in re.findall(r"[A-Za-z_]\w*", p.read_text(errors="replace"))}


def members_of_the_reference(repo: Path) -> set[str]:
    """What a person may ask of the classes that docs/api.md lists."""
    out: set[str] = set()
    for path in re.findall(r"^::: (\S+)$", (repo / "docs" / "api.md").read_text(), re.M):
        module, _, name = path.rpartition(".")
        value = getattr(importlib.import_module(module), name)
        if isinstance(value, type):
            out |= set(dir(value)) | set(getattr(value, "__annotations__", ()))
    return out


def test_python_has_no_unused_code(repo: Path) -> None:
    """Used: by the package, its tests and programs, the docs, or the JupyterLab extension."""
    vulture = pytest.importorskip("vulture")
    found = vulture.Vulture()
    folders = ["python/hloscope", "tests", "benchmarks", "scripts", "docs"]
    found.scavenge([str(repo / folder) for folder in folders])
    told = words(
        *(repo / "docs").glob("*.md"), repo / "README.md", *(repo / "src").glob("*.ts"),
        *(repo / "examples").glob("*.ipynb"),
    )  # fmt: skip
    told |= members_of_the_reference(repo)
    told |= {place.partition(":")[2] for place in hloscope._HOSTS.values()}
    package = repo / "python" / "hloscope"
    # keys of JSON, which TypeScript and agents read
    keys = {package / "view" / "header.py", package / "show" / "agents" / "answers.py"}
    unused = [
        f"{item.filename.relative_to(repo)}:{item.first_lineno} {item.typ} {item.name}"
        for item in found.get_unused_code(min_confidence=60)
        if Path(item.filename).is_relative_to(package)
        and item.filename not in keys
        and item.typ != "attribute"
        and item.name not in told
        and item.name not in CALLED_BY_OTHERS
    ]
    assert unused == []


_EXPORT = re.compile(
    r"^export (?:declare |abstract |async |const )*"
    r"(?:function\*?|class|const|let|interface|type|enum) (\w+)",
    re.M,
)


def test_no_export_is_dead(repo: Path) -> None:
    """What nobody names, not even its own file; unused locals are the compiler's to find."""
    own = [*(repo / "js").rglob("*.ts"), *(repo / "src").rglob("*.ts")]
    users = {p: words(p) for p in (*own, *(repo / "tests" / "js").glob("*.ts"))}
    contract = {repo / "js" / "view.ts", repo / "js" / "view-extras.ts", repo / "js/plan/view.ts"}
    unused = [
        f"{path.relative_to(repo)} {name}"
        for path in own
        if path not in contract and path.name != "index.ts"
        for name in _EXPORT.findall(path.read_text())
        if not any(name in w for other, w in users.items() if other != path)
        and len(re.findall(rf"\b{name}\b", path.read_text())) == 1
    ]
    assert unused == []
