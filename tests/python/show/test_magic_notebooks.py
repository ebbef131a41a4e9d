"""The example notebooks run from top to bottom in a real kernel, and are stored without output.

``start.ipynb`` runs in JupyterLab itself: ``tests/ui/test_notebooks.py``.
"""

from __future__ import annotations

import json
import os
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import quickly

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
nbformat = pytest.importorskip("nbformat")

EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "examples").glob("*.ipynb"))


def execute(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a notebook in a kernel with none of the tests' own jax settings.

    But for those with which it compiles quickly.
    """
    for name in ("JAX_PLATFORMS", *(n for n in os.environ if n.startswith("TPU_"))):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XLA_FLAGS", quickly.flags())
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        cell.source = cell.source.replace('"--xla_force', f'"{quickly.flags()} --xla_force')
    client = nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    return notebook


def outputs(notebook: Any, starts: str) -> dict[str, Any]:
    """The data of the last output of the cell that starts so."""
    cell = next(c for c in notebook.cells if c.source.startswith(starts))
    shown = [o for o in cell.outputs if "data" in o]
    assert shown, cell.outputs
    return dict(shown[-1].data)


@pytest.mark.parametrize("path", EXAMPLES, ids=[p.stem for p in EXAMPLES])
def test_stored_without_outputs(path: Path) -> None:
    for cell in json.loads(path.read_text())["cells"]:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None


@pytest.mark.usefixtures("libtpu")
def test_pod(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = execute(repo / "examples" / "pod.ipynb", tmp_path, monkeypatch)
    assert "256" in outputs(notebook, "cap = %hlo --topology")["text/plain"]
    assert "coords=(" in outputs(notebook, "print(cap.collectives)")["text/plain"]
    assert "<iframe" in outputs(notebook, "%hlo --panel devices")["text/html"]
    printed = "".join(o.get("text", "") for c in notebook.cells for o in c.get("outputs", []))
    assert "256 chips" in printed


def test_sharding(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = execute(repo / "examples" / "sharding.ipynb", tmp_path, monkeypatch)
    shown = outputs(notebook, "found = hs.search")
    assert "all 9 candidates" in shown["text/plain"]
    assert "hloscope-plan" in unescape(shown["text/html"])
    printed = "".join(o.get("text", "") for c in notebook.cells for o in c.get("outputs", []))
    assert '"w1": P(None, "x"),' in printed
    assert (tmp_path / "search.html").exists()


def test_stages(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = execute(repo / "examples" / "stages.ipynb", tmp_path, monkeypatch)
    assert "3 layers on 4 devices" in outputs(notebook, "import jax")["text/plain"]
    printed = "".join(o.get("text", "") for c in notebook.cells for o in c.get("outputs", []))
    assert "gpipe" in printed
    assert (tmp_path / "plan.html").exists()


def test_transformer(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = execute(repo / "examples" / "transformer.ipynb", tmp_path, monkeypatch)
    assert "hloscope-plan" in unescape(outputs(notebook, "import hloscope")["text/html"])
    assert "FLOPs all matmuls" in outputs(notebook, "small =")["text/plain"]
    assert (tmp_path / "compared.html").exists()


def test_changes(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = execute(repo / "examples" / "changes.ipynb", tmp_path, monkeypatch)
    printed = "".join(o.get("text", "") for c in notebook.cells for o in c.get("outputs", []))
    for said in (
        "params, mean donated",
        "Policies of block: 5 programs, step modelled on tpu-v5e",
        "@jax.checkpoint\ndef block(x, w):",
        "block computed again, saving nothing at In [2], line 7",
        "same values",
    ):
        assert said in printed, printed
    shown = outputs(notebook, "hs.largest(")["text/plain"]
    assert shown.startswith("Largest step: ")
    assert "live at the limit: " in shown
