"""A collective matmul that XLA unrolled reads as one group with its name."""

from __future__ import annotations

from pathlib import Path

import hloscope as hs
import numpy as np
import pytest
from hloscope.analysis.grouping import rings as of_rings
from hloscope.analysis.grouping.group_nodes import Node
from hloscope.analysis.grouping.groups import group_tree
from hloscope.analysis.grouping.rings import gather_rings, loop_label, rings

NAMED = 'metadata={op_name="jit(f)/layer/dot_general"}'
RING = (
    'source_target_pairs={{0,1},{1,2},{2,3},{3,0}}, frontend_attributes={is_spmd_generated="true"}'
)
DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
GATHERS = [
    "%got.0 = f32[8,16] collective-permute(%x), channel_id=1, RING",
    "%part.0 = f32[8,32] dot(%x, %w), DOT",
    "%got.1 = f32[8,16] collective-permute(%got.0), channel_id=2, RING",
    "%part.1 = f32[8,32] dot(%got.0, %w), DOT",
    "%sum.1 = f32[8,32] add(%part.0, %part.1)",
    "%part.2 = f32[8,32] dot(%got.1, %w), DOT",
    "%sum.2 = f32[8,32] add(%sum.1, %part.2)",
]
SCATTERS = [
    "%part.0 = f32[8,32] dot(%x, %w), DOT",
    "%got.0 = f32[8,32] collective-permute(%part.0), channel_id=1, RING",
    "%part.1 = f32[8,32] dot(%x, %w), DOT",
    "%sum.1 = f32[8,32] add(%got.0, %part.1)",
    "%got.1 = f32[8,32] collective-permute(%sum.1), channel_id=2, RING",
    "%part.2 = f32[8,32] dot(%x, %w), DOT",
    "%sum.2 = f32[8,32] add(%got.1, %part.2)",
]


def module_of(ring: list[str], folder: Path, others: int = 14) -> hs.Module:
    steps = [f"  {line}, {NAMED}".replace("RING", RING).replace("DOT", DOT) for line in ring]
    other = 'metadata={op_name="jit(f)/other/sin"}'
    chain = [f"  %a.{n + 1} = f32[8,32] sine(%a.{n}), {other}" for n in range(others)]
    text = "\n".join(
        [
            "HloModule jit_f, num_partitions=4, is_scheduled=true",
            "",
            "ENTRY %main (x: f32[8,16], w: f32[16,32]) -> f32[8,32] {",
            "  %x = f32[8,16] parameter(0)",
            "  %w = f32[16,32] parameter(1)",
            *steps,
            f"  %a.0 = f32[8,32] cosine(%sum.2), {other}",
            *chain,
            f"  ROOT %out = f32[8,32] negate(%a.{others}), {other}",
            "}",
            "",
        ]
    )
    (folder / "ring.hlo").write_text(text)
    return hs.read(folder / "ring.hlo").module


@pytest.mark.parametrize(
    ("ring", "label"),
    [
        (GATHERS, "all-gather × matmul, windowed ×4"),
        (SCATTERS, "matmul × reduce-scatter, windowed ×4"),
    ],
)
def test_an_unrolled_ring_is_one_group(ring: list[str], label: str, tmp_path: Path) -> None:
    module = module_of(ring, tmp_path)
    ((found, rows),) = rings(module)
    assert found == label
    names = {line.split()[0][1:] for line in ring}
    assert {module.instructions[r].name for r in rows.tolist()} == names
    tree = group_tree(module)
    assert [x for x in tree.label if "windowed" in x] == [label]
    group = tree.label.index(label)
    assert {i.name for i in module.instructions if tree.group[i.index] == group} == names


def test_a_ring_in_a_large_computation_is_one_group_too(tmp_path: Path) -> None:
    module = module_of(GATHERS, tmp_path, others=60_000)
    ((_, rows),) = rings(module)
    assert len(rows) == len(GATHERS)


def test_permutes_without_the_products_are_not_called_a_matmul(tmp_path: Path) -> None:
    module = module_of(SCATTERS, tmp_path)
    ((_, rows),) = rings(module)
    dots = [i.index for i in module.instructions if i.opcode == "dot"]
    node = Node("scope", "layer", int(module.entry.index), path=("layer",))
    node.members = np.setdiff1d(rows, dots)
    before = node.members.tolist()
    gather_rings(module, [node], np.zeros(len(module.instructions), bool))
    assert (node.label, node.children, node.members.tolist()) == ("layer", [], before)


def test_what_two_rings_share_is_in_one_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = module_of(GATHERS, tmp_path)
    ((label, rows),) = rings(module)
    monkeypatch.setattr(of_rings, "rings", lambda _: [(label, rows[:5]), (label, rows[2:])])
    node = Node("scope", "layer", int(module.entry.index), path=("layer",))
    node.members = np.arange(len(module.instructions))
    gather_rings(module, [node], np.zeros(len(module.instructions), bool))
    held = np.concatenate([node.members, *(c.members for c in node.children)])
    assert sorted(held.tolist()) == list(range(len(module.instructions)))


def test_permutes_of_the_program_itself_are_no_ring(tmp_path: Path) -> None:
    shifted = [line.replace("RING", "source_target_pairs={{0,1},{1,2}}") for line in GATHERS]
    module = module_of(shifted, tmp_path)
    assert rings(module) == []


def test_a_windowed_loop_says_which_collective_it_is() -> None:
    assert loop_label("windowed_dot_general_body_ag.3") == "all-gather × matmul, windowed"
    assert loop_label("windowed_dot_general_body_rs") == "matmul × reduce-scatter, windowed"
    assert loop_label("windowed_dot_general_body") == "collective matmul"
    assert loop_label("region_0.4") == ""
