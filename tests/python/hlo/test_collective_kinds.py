"""Everything about a kind of collective comes from one table."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from hloscope.analysis.base.labels.families import FAMILIES, opcode_family
from hloscope.analysis.comms.wire import add_traffic, wire_bytes
from hloscope.analysis.cost.roofline.torus import torus
from hloscope.analysis.cost.roofline.transfers import ring
from hloscope.hlo.collective_kinds import FORMS, KINDS, OPCODES, is_collective, kind_of, split
from hloscope.hlo.shardings.devices import DeviceGroups

# Spelling of attributes in protos; formulas in words.
MAY_NAME = {
    "hlo/collective_kinds.py",
    "readers/proto/opcodes.py",
    "plan/transformer/volumes.py",
    "plan/running/candidate_figures.py",
}


def test_kinds_of_one_device_move_nothing_and_permutes_all() -> None:
    for kind in KINDS.values():
        assert kind.wire_bytes(100.0, 1) == (100.0 if kind.is_pairwise else 0.0)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("members", [2, 4, 8])
def test_wire_roofline_and_traffic_agree(name: str, members: int) -> None:
    payload = 1 << 20
    sent = wire_bytes(name, payload, members)
    assert sent is not None
    assert ring(name, members, payload)[1] == pytest.approx(sent)
    if KINDS[name].is_pairwise:
        return
    one_ring = torus(name, [(members, True)], payload)
    assert one_ring[1] > 0
    traffic = np.zeros((members, members))
    add_traffic(traffic, name, payload, DeviceGroups("", np.arange(members)[None]))
    most = traffic.sum(axis=1).max()
    assert most == pytest.approx(sent)


def test_opcodes_are_recognised() -> None:
    for opcode in OPCODES:
        assert is_collective(opcode)
        assert FAMILIES[opcode_family(opcode)].id == "collective"
    assert split("all-gather-start") == ("all-gather", "-start")
    assert split("reduce-scatter-start") == ("reduce-scatter", "-start")
    assert split("all-reduced") is None


def test_a_row_is_asked_for_what_its_kind_does() -> None:
    def those(column: str) -> set[str]:
        return {k for k in KINDS if getattr(kind_of(k), column)}

    assert those("gathers") == {"all-gather"}
    assert those("reduces_whole") == {"all-reduce"}
    assert those("scatters") == {"reduce-scatter"}
    assert those("exchanges") == {"all-to-all", "ragged-all-to-all"}
    assert those("is_pairwise") == {"collective-permute"}
    assert all(kind_of(f"all-gather{form}").gathers for form in FORMS)
    assert kind_of("dot").name == ""


def test_no_other_file_compares_a_kind_with_its_name(repo: Path) -> None:
    """What a kind does is a column of the table; a new kind would fall through a comparison."""
    root = repo / "python" / "hloscope"
    compared = []
    for path in root.rglob("*.py"):
        where = path.relative_to(root).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare) and where not in MAY_NAME:
                sides = [n for side in node.comparators for n in ast.walk(side)]
                words = {str(n.value) for n in sides if isinstance(n, ast.Constant)}
                if words & set(OPCODES):
                    compared.append(f"{where}:{node.lineno}")
    assert compared == []


def test_no_other_file_lists_the_kinds(repo: Path) -> None:
    """Three kinds or more in one literal are a list of its own, which the next kind would miss."""
    root = repo / "python" / "hloscope"
    lists = {}
    for path in root.rglob("*.py"):
        where = str(path.relative_to(root))
        if where in MAY_NAME:
            continue
        tree = ast.parse(path.read_text())
        prose = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
        for node in ast.walk(tree):
            text = isinstance(node, ast.Constant) and isinstance(node.value, str)
            held = isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict)
            if id(node) in prose or not (text or held):
                continue
            inside = [node] if text else ast.iter_child_nodes(node)
            words = {w for n in inside if isinstance(n, ast.Constant) for w in str(n.value).split()}
            if len(words & set(KINDS)) > 2:
                lists[where] = sorted(words & set(KINDS))
    assert lists == {}
