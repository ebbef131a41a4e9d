"""What a collective takes on the wire depends on itself, not on which others a program has."""

from __future__ import annotations

import itertools

import hloscope as hs
import pytest
from hloscope.show import blocks
from hloscope.view.schema import decode

HEAD = """HloModule m, is_scheduled=true, replica_count={replicas}, num_partitions={partitions}

%sum (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(%a, %b)
}}

ENTRY %main (x: f32[1024,1024]) -> f32[1024,1024] {{
  %x = f32[1024,1024]{{1,0}} parameter(0)
"""
# All print the same devices; each means others, or the same in another way.
SAME = "{{0,1},{2,3}}"
OPS = {
    "permute": f"collective-permute(%x), channel_id=1, source_target_pairs={SAME}",
    "sum": f"all-reduce(%x), channel_id=2, replica_groups={SAME}, use_global_device_ids=true,"
    " to_apply=%sum",
    "gather": f"all-gather(%x), channel_id=3, replica_groups={SAME}, use_global_device_ids=true,"
    " dimensions={0}",
    "sum of replicas": f"all-reduce(%x), replica_groups={SAME}, to_apply=%sum",
    "exchange": f"all-to-all(%x), channel_id=4, replica_groups={SAME}, dimensions={{0}}",
}


def seconds(names: tuple[str, ...], chip: str) -> dict[str, float]:
    """Modelled seconds of one execution on the wire, by name of the op."""
    shape = {"gather": "f32[2048,1024]{1,0}"}
    lines = [
        f"  %{name.replace(' ', '.')} = {shape.get(name, 'f32[1024,1024]{1,0}')} {OPS[name]}\n"
        for name in names
    ]
    text = HEAD.format(replicas=4, partitions=4) + "".join(lines)
    cost = hs.read(text + "  ROOT %out = f32[1024,1024]{1,0} negate(%x)\n}\n").cost(chip)
    took = cost.roofline.transfer_seconds.tolist()
    of = {
        cost.module.instructions[t.start].name: s for t, s in zip(cost.transfers, took, strict=True)
    }
    return {name: of[name.replace(" ", ".")] for name in names}


@pytest.mark.parametrize("chip", ["tpu-v5e", "tpu-v5p", "h100"])
def test_a_collective_takes_as_long_alone_as_in_company(chip: str) -> None:
    alone = {name: seconds((name,), chip)[name] for name in OPS}
    assert min(alone.values()) > 0
    for pair in itertools.permutations(OPS, 2):
        assert seconds(pair, chip) == {name: alone[name] for name in pair}


def test_groups_that_print_alike_are_told_apart_in_the_view() -> None:
    """The devices that the explorer lights up: those of each row's own groups."""
    text = HEAD.format(replicas=4, partitions=4)
    text += f"  %g = f32[1024,1024]{{1,0}} {OPS['sum']}\n"
    text += f"  ROOT %r = f32[1024,1024]{{1,0}} {OPS['sum of replicas']}\n}}\n"
    cap = hs.read(text)
    assert len({row.groups.text for row in cap.collectives}) == 1
    header, _ = decode(blocks.analyses(cap))
    sets = header["extras"]["collectives"]["groups"]
    assert [len(s["rows"]) for s in sets] == [2, 8]
