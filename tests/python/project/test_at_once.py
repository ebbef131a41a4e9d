"""What a million instructions go through at once gives what one by one gives."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hloscope.analysis.base import waves
from hloscope.analysis.base.phases.phases import phases
from hloscope.analysis.base.table import table
from hloscope.analysis.memory.liveness.homes import best_first, ranks_of_places
from hloscope.readers import read_modules
from hloscope.view import build_view, builder

NAMES = ("jit(f)/jvp(a)/mul", "jit(f)/transpose(jvp(a))/mul", "jit(f)/adam/mul", "jit(f)/mul", "")


def program(seed: int) -> str:
    """Fusions and an ENTRY whose operands and names are drawn by chance."""
    rng = random.Random(seed)
    lines, fusions = ["HloModule m", ""], 12

    def body(prefix: str, count: int, entry: bool) -> list[str]:
        out = [f"  %{prefix}0 = f32[4] parameter(0)", f"  %{prefix}1 = f32[4] parameter(1)"]
        for k in range(2, count):
            a, b = (f"%{prefix}{rng.randrange(k)}" for _ in "ab")
            name = rng.choice(NAMES)
            more = f', metadata={{op_name="{name}"}}' if name else ""
            call = entry and rng.random() < 0.6
            what = (
                f"fusion({a}, {b}), kind=kLoop, calls=%f{rng.randrange(fusions)}"
                if call
                else f"{rng.choice(['add', 'multiply', 'copy'])}({a}, {b})"
            )
            root = "ROOT " if k == count - 1 else ""
            out.append(f"  {root}%{prefix}{k} = f32[4] {what}{more}")
        return out

    for f in range(fusions):
        lines += [f"%f{f} {{", *body(f"f{f}_", rng.randrange(3, 20), False), "}", ""]
    return "\n".join([*lines, "ENTRY %main {", *body("e", 150, True), "}", ""])


@pytest.mark.parametrize("seed", range(12))
def test_waves_find_the_same_phases(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = program(seed).encode()
    found = []
    for least in (10**9, 0):
        monkeypatch.setattr(waves, "WORTH_WAVES", least)
        found.append(phases(read_modules(data)[0]).tolist())
    assert found[0] == found[1]
    assert len(set(found[0])) > 2


def test_waves_hold_every_chosen_edge_once_and_users_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waves, "WORTH_WAVES", 0)
    (module,) = read_modules(program(1).encode())
    t = table(module)
    chosen = np.arange(len(t.operands.values)) % 3 > 0
    for last_first in (False, True):
        steps, single = waves.in_order(t, chosen, last_first)
        parts = [*steps, single]
        assert len(parts) > 4
        pairs = [p for users, values in parts for p in zip(users, values, strict=True)]
        wanted = zip(t.operands.rows[chosen], t.operands.values[chosen], strict=True)
        assert sorted(pairs) == sorted(wanted)
        at: dict[int, int] = {}
        for users, _ in parts:
            for u in users.tolist():
                c, step = int(t.computation[u]), -u if last_first else u
                assert at.get(c, -(10**9)) <= step
                at[c] = step


@pytest.mark.parametrize(
    ("known", "names", "later"),
    [
        (["x", "y"], ["a", "b", "c"], ["d", "b", "x", "d"]),
        (["x", "b"], ["a", "b", "c"], ["c", "b", "", "é"]),
        (["x"], ["a", "a"], ["a", "z"]),
        (["a", "b"], ["b", "a"], ["a", "z"]),
        ([], ["é", "\ud800", "c"], ["\ud800", "q"]),
    ],
)
def test_names_have_the_ids_that_a_dictionary_would_give(
    known: list[str], names: list[str], later: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for many in (10**9, 0):
        monkeypatch.setattr(builder, "MANY", many)
        strings = builder.Strings()
        ids = [strings.ids(known), strings.names(names), strings.ids(later)]
        one = strings.id(names[-1]), strings.id("new"), strings.id(later[0])
        text, ends = strings.columns()
        found.append(([i.tolist() for i in ids], one, text, ends.tolist()))
    assert found[0] == found[1]


def test_a_view_is_the_same_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    views = []
    for many in (10**9, 0):
        monkeypatch.setattr(builder, "MANY", many)
        monkeypatch.setattr(waves, "WORTH_WAVES", many)
        views.append(build_view(read_modules(program(3).encode())[0]))
    assert views[0] == views[1]


@pytest.mark.parametrize("seed", range(8))
def test_free_rooms_are_tried_in_the_order_of_a_sort(seed: int) -> None:
    rng = np.random.default_rng(seed)
    places, count = 30, 40
    hosts = rng.integers(0, places, count)
    size_of, made = rng.integers(1, 5, places), rng.integers(0, 6, places)
    fits = np.sort(rng.choice(count, 25, replace=False))
    mine = rng.integers(0, places, 3).tolist()
    rank = ranks_of_places(np.stack([size_of[hosts], hosts]), made)
    at = hosts[fits]
    wanted = fits[np.lexsort((-made[at], size_of[at], ~np.isin(at, mine)))]
    assert list(best_first(fits, hosts, rank, mine)) == wanted.tolist()
