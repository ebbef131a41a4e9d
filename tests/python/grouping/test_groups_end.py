"""Grouping ends on every input, and what fails in it leaves the picture alone."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract import differences
from hloscope import read
from hloscope.analysis.grouping.groups import group_tree
from hloscope.hlo import Module
from hloscope.lab import child
from hloscope.processes.frames import read_frame
from hloscope.readers import read_modules
from hloscope.show import blocks
from hloscope.show.cli import main
from hloscope.view import build_view
from hloscope.view.schema import decode
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

WORDS = ("layer", "softmax", "attn", "step", "mlp")


def program(rows: list[tuple[int, int, int, list[int]]], stacks: list[list[int]]) -> str:
    """A module of one computation: rows of (operand back, second operand back, stack, scope).

    A stack is a list of lines, each line of a function that its number chooses.
    """
    functions = "\n".join(f'{n + 1} "{w}"' for n, w in enumerate(WORDS))
    locations, frame_rows, last = [], [], []
    for stack in stacks:
        parent = 0
        for line in stack:
            locations.append(
                f"{len(locations) + 1} {{file_name_id=1 function_name_id={line % 5 + 1} "
                f"line={line} end_line={line} column=1 end_column=2}}"
            )
            up = f" parent_frame_id={parent + 1}" if parent else ""
            frame_rows.append(f"{len(frame_rows) + 1} {{file_location_id={len(locations)}{up}}}")
            parent = len(frame_rows)
        last.append(parent)
    body = ["  %p = f32[8]{0} parameter(0)"]
    names = ["p"]
    for n, (one, two, stack, scope) in enumerate(rows):
        path = "/".join(
            ["jit(f)"] + [f"jit({WORDS[w % 5]})" if w > 4 else WORDS[w] for w in scope] + ["add"]
        )
        a, b = names[-1 - one % len(names)], names[-1 - two % len(names)]
        where = f" stack_frame_id={last[stack % len(last)]}" if last else ""
        root = "ROOT " if n == len(rows) - 1 else ""
        body.append(
            f'  {root}%v{n} = f32[8]{{0}} add(%{a}, %{b}), metadata={{op_name="{path}"{where}}}'
        )
        names.append(f"v{n}")
    tables = [
        "HloModule m",
        '\nFileNames\n1 "model.py"',
        f"\nFunctionNames\n{functions}",
        "\nFileLocations\n" + "\n".join(locations),
        "\nStackFrames\n" + "\n".join(frame_rows),
    ]
    return "\n".join(tables) + "\n\nENTRY %main {\n" + "\n".join(body) + "\n}\n"


ROWS = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.integers(0, 40),
        st.integers(0, 7),
        st.lists(st.integers(0, 9), max_size=4),
    ),
    min_size=13,
    max_size=120,
)
STACKS = st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=5), max_size=8)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(ROWS, STACKS)
def test_grouping_ends_and_holds_every_instruction_once(rows: Any, stacks: Any) -> None:
    (module,) = read_modules(program(rows, stacks))
    tree = group_tree(module)
    n = len(tree.parent)
    assert (tree.parent[1:] < np.arange(1, n)).all()
    assert np.bincount(tree.group, minlength=n).sum() == len(module.instructions)
    # each group of a computation's own is smaller than what it lies in: cutting cannot go on
    for g in range(1, n):
        up = int(tree.parent[g])
        assert tree.size[g] <= tree.size[up]
    header, columns = decode(build_view(module))
    assert differences(header, columns) == []
    assert header["warnings"] == []


def test_a_library_function_in_a_line_that_made_all_of_a_group_is_not_cut_for_ever() -> None:
    stack = [[21, 32]]
    rows = [(0, n, 0, [0, 6] if n % 2 else [0]) for n in range(80)]
    (module,) = read_modules(program(rows, stack))
    assert len(group_tree(module).parent) < 80


def test_names_nested_a_thousand_deep() -> None:
    deep = "/".join(f"s{n}" for n in range(3000))
    text = ["HloModule m", "ENTRY %main {", "  %p = f32[8]{0} parameter(0)"]
    for n in range(40):
        text.append(f'  %v{n} = f32[8]{{0}} tanh(%p), metadata={{op_name="jit(f)/{deep}/tanh"}}')
    (module,) = read_modules("\n".join([*text, "}"]))
    assert decode(build_view(module))[0]["warnings"] == []


PARTS = (
    "context.group_tree",
    "context.folds",
    "context.labels",
    "picture.families",
    "picture.flags",
)


@pytest.fixture
def module() -> Module:
    rows = [(0, n, 0, [0]) for n in range(30)]
    (found,) = read_modules(program(rows, [[3]]))
    return found


@pytest.mark.parametrize("part", PARTS)
def test_what_fails_leaves_the_picture(
    module: Module, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def fails(*_: Any) -> None:
        raise RecursionError("maximum recursion depth exceeded")

    monkeypatch.setattr(f"hloscope.view.{part}", fails)
    header, columns = decode(build_view(module))
    assert differences(header, columns) == []
    (warning,) = header["warnings"]
    assert "RecursionError" in warning
    assert "report it" in warning


def test_every_host_opens_what_grouping_fails_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any) -> None:
        raise RecursionError("maximum recursion depth exceeded")

    monkeypatch.setattr("hloscope.view.context.group_tree", fails)
    file = tmp_path / "m.hlo"
    file.write_text(program([(0, n, 0, [0]) for n in range(30)], [[3]]))
    assert main(["html", str(file), "-o", str(tmp_path / "m.html")]) == 0
    assert main(["dot", str(file)]) == 0
    assert main(["summary", str(file)]) == 0
    assert "bug" not in capsys.readouterr().err
    data, _ = read(file)._repr_mimebundle_()
    assert "<iframe" in data["text/html"]
    out = io.BytesIO()
    args = _arguments(str(file))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
    child.serve(out, args)
    out.seek(0)
    kinds = []
    while frame := read_frame(out, 1 << 30):
        kinds.append(frame[0])
    assert b"V" in kinds
    assert b"E" not in kinds


def _arguments(name: str) -> Any:
    import argparse

    return argparse.Namespace(
        want="view", name=name, module=None, other=None, hardware=None, memory=1 << 30, folder=None
    )


def test_a_scanned_rematerialised_llama_step_for_tpu_opens(real: Path) -> None:
    capture = read(real / "models" / "llama_tpu.hlo.gz")
    header, columns = decode(blocks.view(capture))
    assert differences(header, columns) == []
    assert header["counts"]["instructions"] == 3745
    assert not [w for w in header["warnings"] if "bug" in w]
