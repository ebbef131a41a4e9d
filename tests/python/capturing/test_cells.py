"""Notebook cells are "In [2], line 6" wherever a line is named: held in a real kernel."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hloscope.hlo.texts.places import short_line, whole_place

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("jax")


def test_lines_in_words(repo: Path) -> None:
    for place, short, whole in json.loads((repo / "tests/golden/lines.json").read_text()):
        assert (short_line(place), whole_place(place)) == (short, whole)


PROGRAM = """\
def loss(w, x):
    for k in range(3):
        x = layer(w[k], x)
    return jnp.sum(x**2)

step = jax.jit(jax.grad(loss))
cap = hs.capture(step, jnp.ones((3, 256, 256)), jnp.ones((64, 256)), passes=True)
"""
PRINTS = """\
print(cap, cap.findings, cap.source, cap.cost, cap.memory, sep="\\n")
print(cap.origins(next(i for i in cap.module.instructions if i.origins)))
for stage in ("jaxpr", "stablehlo", "hlo"):
    print(stage, sorted(cap.at(stage).target.sources))
print("frames", sorted({f.file for i in cap.module.instructions for f in i.frames}))
print("calls", sorted({f.file for o in cap.module.origins.operations for f in o.frames}))
print("passes", sorted({f for s in cap.passes().snapshots for f in s.module().frames.files}))
"""
CELLS = [
    # not the program's, so that numbers are told apart
    "import jax, jax.numpy as jnp\nimport hloscope as hs\n%load_ext hloscope",
    "def layer(w, x):\n    return jnp.tanh(x @ w)",
    PROGRAM,
    PRINTS,
    "cap",
    "%%hlo\ny = jnp.ones((64, 64))\njnp.tanh(y @ y)",
]
TEMPORARY = re.compile(r"ipykernel_\d+|\b\d{5,}\.py")


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("cells")
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS])
    env = {k: v for k, v in os.environ.items() if not k.startswith(("XLA_", "TPU_"))}
    client = nbclient.NotebookClient(
        made, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute(env={**env, "JAX_PLATFORMS": "cpu"})
    return made


def printed(cell: Any) -> str:
    return "".join(o.get("text", "") for o in cell.outputs)


def test_what_python_prints(notebook: Any) -> None:
    text = printed(notebook.cells[3])
    assert "In [2], line 2" in text
    assert not TEMPORARY.search(text), TEMPORARY.search(text)
    for row in ("frames", "calls", "passes", "jaxpr", "stablehlo", "hlo"):
        (line,) = re.findall(rf"^{row} .*", text, re.M)
        assert "'In [2]'" in line
        assert "'In [3]'" in line


def test_the_text_of_cells_is_kept(notebook: Any) -> None:
    assert "return jnp.tanh(x @ w)" in printed(notebook.cells[3])


def views(cell: Any) -> list[bytes]:
    """Every View in a cell's outputs, unpacked."""
    text = json.dumps([o.get("data", {}) for o in cell.outputs])
    blocks = re.findall(r"H4sI[A-Za-z0-9+/]{200,}={0,2}", text)
    return [gzip.decompress(base64.b64decode(b)) for b in blocks]


def test_saved_outputs_know_cells(notebook: Any) -> None:
    found = views(notebook.cells[4])
    assert found
    assert any(b"In [2]" in v and b"return jnp.tanh(x @ w)" in v for v in found)
    for view in found:
        assert not re.search(rb"ipykernel_\d+", view)


def test_a_cell_magic_counts_its_own_line(notebook: Any) -> None:
    found = views(notebook.cells[5])
    assert any(b"In [6]" in v for v in found)
