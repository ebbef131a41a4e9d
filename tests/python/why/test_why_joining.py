"""Which collectives of the partitioned program a row may be: by devices, size, name, channel, phase."""

# ruff: noqa: E501
from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

import hloscope as hs
import pytest
from hloscope.analysis.why.joining import Joining, _near, _who
from hloscope.analysis.why.partitioned import Partitioned
from hloscope.analysis.why.provenance_origins import ShardingOrigins
from hloscope.hlo import Device, StackFrame, Target
from hloscope.hlo.shardings.devices import DeviceGroups, parse_groups
from why_written import MESH, text

BEFORE = """
  %x = f32[16,64] parameter(0)  # =x
  %y = f32[16,64] parameter(1)  # =y
  %n = f32[16,64] negate(%x)  # 3 neg
  %m = f32[16,64] negate(%y)  # 4 neg
  %use = f32[16,64] tanh(%n)  # 12 transpose(jvp())/tanh
  %re = f32[16,64] sine(%m)  # 13 rematted_computation/sin
"""
AFTER = """
  %x.1 = f32[16,64] parameter(0)  # =x
  %y.1 = f32[16,64] parameter(1)  # =y
  %n.1 = f32[16,64] negate(%x.1)  # 3 neg
  %m.1 = f32[16,64] negate(%y.1)  # 4 neg
  %all = f32[16,64] all-reduce(%n.1), channel_id=1, EVERYWHERE, to_apply=%sum  # 5 dot
  %all2 = f32[16,64] all-reduce(%m.1), channel_id=2, EVERYWHERE, to_apply=%sum  # 6 dot
  %in = f32[16,64] all-reduce(%n.1), channel_id=3, ALONG_MODEL, to_apply=%sum  # 7 dot
  %get = f32[64,64] all-gather(%x.1), channel_id=4, ALONG_MODEL, dimensions={0}  # 8 dot
  %go = f32[16,64] collective-permute(%n.1), channel_id=5, source_target_pairs={{0,4},{4,0}}  # 9 shift
  %near = f32[16,64] collective-permute(%n.1), channel_id=6, source_target_pairs={{0,1},{1,0}}  # 10 shift
  %near2 = f32[16,64] collective-permute(%n.1), channel_id=7, source_target_pairs={{0,1},{1,0}}  # 10 shift
  %asked = f32[16,64] all-reduce(%x.1), channel_id=8, ALONG_DATA, to_apply=%sum  # 11 shard_map/psum
  %asked2 = f32[16,64] all-reduce(%y.1), channel_id=9, ALONG_DATA, to_apply=%sum  # 11 shard_map/psum
  %use.1 = f32[16,64] tanh(%all)  # 12 transpose(jvp())/tanh
  %re.1 = f32[16,64] sine(%all2)  # 13 rematted_computation/sin
"""
HERE = "HloModule m, num_partitions=4\nENTRY %main {\n  %v = f32[16,64] parameter(0)\n  ROOT %r = f32[16,64] tanh(%v)CHANNEL\n}\n"
EVERYWHERE = "{{0,1,2,3,4,5,6,7}}"
MODEL, DATA = "{{0,1,2,3},{4,5,6,7}}", "{{0,4},{1,5},{2,6},{3,7}}"


def joining() -> Joining:
    """Two slices of four devices each, which the data axis connects."""
    before, after = (hs.read(text(body)).module for body in (BEFORE, AFTER))
    devices = tuple(Device(d, d, slice=d // 4) for d in range(8))
    origins = ShardingOrigins(Target(mesh=MESH, devices=devices), before, None)
    rows: Any = [SimpleNamespace(instruction=instruction(), parts=[])]
    return Joining(rows, Partitioned(origins, before, after))


def instruction(channel: int = 0) -> Any:
    said = f", channel_id={channel}" if channel else ""
    return hs.read(HERE.replace("CHANNEL", said)).module.find("r")


_NUMBERS = count()


def row(kind: str, groups: str | None, *, name: str = "", line: int = 0, size: str = "f32[16,64]", pairs: bool = False,
        argument: int | None = None, phase: str = "forward", network: str = "", channel: int = 0) -> Any:  # fmt: skip
    who = parse_groups(groups) if groups is not None else None
    if pairs and who is not None:
        who = DeviceGroups(who.text, pairs=who.groups)
    moves = SimpleNamespace(kind="argument", parameter=argument) if argument is not None else None
    frames = (StackFrame("m.py", line, function=""),) if line else ()
    return SimpleNamespace(
        index=next(_NUMBERS), kind=kind, groups=who, group_size=who.group_size if who else 0, parts=[SimpleNamespace(shape=size)], op_name=name,
        frames=frames, phase=phase, moves=moves, network=network, instruction=instruction(channel),
    )  # fmt: skip


def names(found: Any) -> list[str]:
    return [i.name for i in found]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        # over some of the devices, and of a kind that it can be done by
        (row("reduce-scatter", MODEL), ["all", "all2", "in"]),
        (row("all-gather", MODEL), ["all", "all2", "in", "get"]),
        (row("all-reduce", EVERYWHERE), ["all", "all2"]),
        (row("all-reduce", DATA), ["all", "all2", "asked", "asked2"]),
        (row("all-reduce", "{{0,5},{1,4}}"), ["all", "all2"]),
        (row("all-to-all", MODEL), []),
        # pairs of the slice, or those that cross between slices
        (row("collective-permute", "{{0,1}}", pairs=True, network="ici"), ["near", "near2"]),
        (row("collective-permute", "{{0,2}}", pairs=True, network="ici"), []),
        (row("collective-permute", "{{3,7},{7,3}}", pairs=True, network="dcn"), ["go"]),
        (row("collective-permute", "{{0,1}}", pairs=True, network="dcn"), []),
        (row("collective-permute", "{{0,1}}", network="ici"), []),  # groups, not pairs
    ],
)
def test_what_a_row_can_be_a_step_of(asked: Any, found: list[str]) -> None:
    assert names(joining()._whole_of(asked)) == found


def test_between_which_slices_pairs_go() -> None:
    crossing = joining()._crossing({(0, 1), (1, 6), (6, 0), (5, 4)})
    assert crossing == {frozenset({0, 1})}
    assert joining()._crossing({(2, 3)}) == set()


@pytest.mark.parametrize(
    ("network", "kind", "groups", "step"),
    [
        ("", "all-reduce", DATA, False),
        ("dcn", "all-reduce", EVERYWHERE, True),
        ("ici", "all-reduce", MODEL, False),  # one just like it is there
        ("ici", "reduce-scatter", EVERYWHERE, False),
        ("ici", "all-gather", DATA, True),
    ],
)
def test_what_is_a_step(network: str, kind: str, groups: str, step: bool) -> None:
    assert joining()._is_step(row(kind, groups, network=network)) is step


PLACE = ("jit(f)/dot", (("m.py", 5, 0),))


@pytest.mark.parametrize(
    ("elements", "near", "argument", "found"),
    [
        # 1,024 elements over 8 devices: shares of 1 to 8
        (1024, "all", None, ["all"]),
        (512, "all", None, ["all"]),
        (128, "all", None, ["all"]),
        (64, "all", None, []),
        (1000, "all", None, []),
        (0, "all", None, []),
        (2048, "all", None, []),
        (128, "", None, []),  # either of two lines
        (128, "", 1, ["all2"]),  # by the argument that moves
        (128, "all", 1, ["all"]),  # near says more than the argument
        (128, "use.1", None, ["all"]),  # by the op that takes its result
        (128, "y.1", None, []),  # known, but of neither
    ],
)
def test_of_which_a_step_is(
    elements: int, near: str, argument: int | None, found: list[str]
) -> None:
    of = joining()
    after = of.partitioned.after
    at: Any = after.find(near)
    pool = [i for i in of.partitioned.collectives if i.name in ("all", "all2")]
    places = _near(at) if near else set()
    asked = row("reduce-scatter", MODEL, argument=argument, phase="forward")
    assert names(of._step(asked, pool, elements, places)) == found
    only = [i for i in pool if i.name == "all2"]
    if near == "" and 0 < elements <= 1024:  # nothing else has that size
        assert names(of._step(row("reduce-scatter", MODEL), only, elements, set())) == ["all2"]


def test_of_one_line_that_asks_for_several_either_is_meant() -> None:
    of = joining()
    asked = row("all-reduce", DATA, size="f32[16,64]", network="dcn")
    pool = [i for i in of.partitioned.collectives if i.name.startswith("asked")]
    assert names(of._step(asked, pool, 1024, set())) == ["asked", "asked2"]
    of.partitioned.collectives = pool
    assert names(of._of_one_line(asked)) == ["asked", "asked2"]
    assert names(of._of_one_line(row("all-reduce", DATA, size="f32[16,64,9]", network="dcn"))) == []
    again = joining()
    assert names(again._of_one_line(asked)) == []  # the partitioner has others of that size


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"name": "jit(f)/dot", "line": 5, "channel": 1}, ["all"]),
        ({"name": "jit(f)/dot", "line": 6, "channel": 1}, ["all2"]),  # a name and a line say more
        ({"name": "jit(f)/dot", "line": 6}, ["all2"]),
        ({"name": "jit(f)/transpose(jvp())/tanh", "line": 12}, ["all"]),  # named after its user
        ({"name": "jit(f)/neg", "line": 4, "channel": 1}, ["all2"]),  # ... or what it moves
        ({"name": "jit(f)/other", "line": 9, "channel": 2}, ["all2"]),
        ({"name": "jit(f)/other", "line": 9}, ["all", "all2"]),
        ({"name": "jit(f)/other", "line": 9, "argument": 1}, ["all2"]),
        ({"name": "jit(f)/other", "line": 9, "argument": 7}, ["all", "all2"]),
        ({"name": "jit(f)/other", "line": 9, "phase": "backward"}, ["all", "all2"]),
        ({"phase": "backward"}, ["all"]),
        ({"phase": "rematerialised"}, ["all2"]),
        ({"phase": "forward"}, ["all", "all2"]),
        ({"phase": ""}, ["all", "all2"]),
        ({"channel": 2, "phase": "backward"}, ["all2"]),
        ({"size": "f32[16,65]"}, []),
    ],
)
def test_one_row_of_its_own(asked: dict[str, Any], found: list[str]) -> None:
    of = joining()
    assert names(of._by_size(row("all-reduce", EVERYWHERE, **asked))[0]) == found


def test_phases_are_those_of_the_ops_that_take_them() -> None:
    of = joining()
    phases = {
        i.name: of._phase(i) for i in of.partitioned.collectives if i.name in ("all", "all2", "in")
    }
    assert phases == {"all": "backward", "all2": "rematerialised", "in": "forward"}


@pytest.mark.parametrize(
    ("pairs", "channel", "line", "found"),
    [
        ("{{0,1},{1,0}}", 6, 10, ["near"]),
        ("{{0,1},{1,0}}", 7, 3, ["near2"]),
        ("{{0,1},{1,0}}", 9, 10, ["near", "near2"]),
        ("{{0,4},{4,0}}", 6, 10, ["go"]),
        ("{{4,0},{0,4}}", 5, 9, []),
    ],
)
def test_permutes_by_their_pairs(pairs: str, channel: int, line: int, found: list[str]) -> None:
    op: Any = SimpleNamespace(
        attribute={"source_target_pairs": pairs, "channel_id": str(channel)}.get
    )
    asked = row("collective-matmul", None, name="jit(f)/shift", line=line)
    assert names(joining()._permute(asked, op)) == found


def test_who_takes_part_whatever_the_order() -> None:
    assert _who(None) is None
    assert _who(parse_groups("{{1,0},{2,3}}")) == _who(parse_groups("{{3,2},{0,1}}"))
    assert _who(parse_groups("{{0,1},{2,3}}")) != _who(parse_groups("{{0,2},{1,3}}"))
    pairs = [
        row("collective-permute", g, pairs=True).groups
        for g in ("{{0,1},{1,0}}", "{{1,0},{0,1}}", "{{0,1}}")
    ]
    assert _who(pairs[0]) == _who(pairs[1]) != _who(pairs[2])


FUSED = """
%inside (p: f32[8]) -> f32[8] {
  %p = f32[8] parameter(0)
  %e = f32[8] exponential(%p)  # 7 exp
  ROOT %c = f32[8] negate(%e)
}
%called (q: f32[8]) -> f32[8] {
  %q = f32[8] parameter(0)
  ROOT %s = f32[8] sine(%q)  # 8 sin
}
ENTRY %main {
  %x = f32[8] parameter(0)  # =x
  %t = f32[8] tanh(%x)  # 3 tanh
  %f = f32[8] fusion(%t), kind=kLoop, calls=%inside  # 4 fused
  %u = f32[8] call(%t), to_apply=%called  # 5 call
  %two = (f32[8], f32[8]) tuple(%t, %f)
  %b = f32[8] bitcast(%f)
  %r = f32[8] convert(%b)  # 6 convert
  ROOT %g = f32[8] get-tuple-element(%two), index=1
}
"""


@pytest.mark.parametrize(
    ("of", "found"),
    [
        ("t", ["tanh"]),
        ("f", ["exp", "fused"]),
        ("u", ["call"]),
        ("r", ["convert", "exp", "fused"]),
        ("g", ["exp", "fused"]),  # an element is the value that the tuple holds
    ],
)
def test_names_near_a_value(of: str, found: list[str]) -> None:
    module: Any = hs.read(text(FUSED)).module
    places = [str(p[0]) for p in _near(module.find(of))]
    assert sorted(p.rpartition("/")[2] for p in places if p) == found
