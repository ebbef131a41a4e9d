"""Why a collective is there, on programs written out by hand: whole cards, nothing compiled."""

from __future__ import annotations

from dataclasses import replace

import hloscope as hs
import why_written_programs as programs
from hloscope.analysis.why.transitions import transitions
from why_written import cards, written

ARGUMENTS = {
    "x": (("data",), ()),
    "w": ((), ("model",)),
    "v": (("model",), ()),
    "u": ((), ("model",)),
}


def by_metadata(cap: hs.Capture) -> hs.Capture:
    """The same without the program after partitioning."""
    return hs.Capture(cap.module, replace(cap.target, after_partitioning=None))


def said(text: str) -> dict[str, str]:
    """Cards as they are written below: a name, then its lines."""
    out: dict[str, list[str]] = {}
    for line in text.strip("\n").splitlines():
        if line.startswith(" "):
            next(reversed(out.values())).append(line)
        else:
            out[line] = []
    return {name: "\n".join(lines) for name, lines in out.items()}


STEP = said("""
sum.1
  requested by  dot f32[16,64] at m.py:9
  operand       result of tanh: P('data', 'model') and P('model', None)
  needed        summed over model; result P('data', None)
  because of    operand's model from argument w
                operand's model from argument v
gather.1
  requested by  copy f32[16,64] at m.py:13
  operand       result of sharding_constraint: P('data', 'model')
  needed        P('data', None)
  because of    operand's model from the constraint at m.py:12
                result from the constraint at m.py:13
gather.2
  requested by  dot f32[16,32] at m.py:15
  operand       result of cos: P('data', None)
  needed        result P(None, 'model')
  because of    operand's data from the constraint at m.py:13
sum.2
  requested by  reduce f32[64] at m.py:16
  operand       result of sharding_constraint: P('data', None)
  needed        summed over data; result replicated
  because of    operand's data from the constraint at m.py:10
swap
  requested by  copy f32[16,64] at m.py:17
  operand       result of sin: P('data', 'model')
  needed        P('model', 'data')
  because of    operand's data from the constraint at m.py:10
                operand's model from unknown
                result from the constraint at m.py:17
                result's data from the constraint at m.py:17
                result's model from the constraint at m.py:17
other
  requested by  output f32[16,64] at m.py:19
  operand       result of exp: P('data', None)
  needed        returned as P(None, 'model')
  because of    operand's data from the constraint at m.py:13
                result from output [3]
""")


def test_a_step_with_one_of_each() -> None:
    cap = written(programs.STEP, programs.STEP_LOCAL, ARGUMENTS)
    assert cards(cap) == STEP
    assert [(r.name, r.kind, r.axes) for r in cap.collectives if r.inserted] == [
        ("sum.1", "all-reduce", "model"),
        ("gather.1", "all-gather", "model"),
        ("gather.2", "all-gather", "data"),
        ("sum.2", "all-reduce", "data"),
        ("swap", "all-to-all", "data+model"),
        ("other", "all-to-all", "data+model"),
    ]
    # what the program returns has a name of its own
    named = written(
        programs.STEP, programs.STEP_LOCAL, ARGUMENTS, results=("a", "b", "c", "logits")
    )
    assert cards(named)["other"] == STEP["other"].replace("[3]", "logits")


def test_with_shardys_record_the_way_of_each_axis_is_known() -> None:
    cap = written(programs.STEP, programs.STEP_LOCAL, ARGUMENTS, dump=programs.STEP_SHARDY)
    along = {
        "sum.1": ("argument w", "argument w, along tanh ← dot"),
        "gather.2": ("m.py:13", "m.py:13, along cosine"),
        "swap": ("data from the constraint at m.py:10", "data from the constraint at m.py:12"),
    }
    told = STEP | {name: STEP[name].replace(*change) for name, change in along.items()}
    told["swap"] = told["swap"].replace(
        "model from unknown", "model from the constraint at m.py:12"
    )
    assert cards(cap) == told


def test_by_name_and_line_alone_most_is_found_and_nothing_guessed() -> None:
    cap = by_metadata(written(programs.STEP, programs.STEP_LOCAL, ARGUMENTS))
    *rest, data, model = STEP["swap"].splitlines()
    changed = {
        "swap": "\n".join([*rest, model, data]),
        "other": """\
  unknown      no op of that name and line accounts for it
  named after  exp at m.py:19""",
    }
    assert cards(cap) == STEP | changed


def test_they_are_edges_from_one_sharding_to_the_next() -> None:
    cap = written(programs.STEP, programs.STEP_LOCAL, ARGUMENTS)
    found = transitions(cap.module, cap.target)
    assert [(t.source.name, t.target.name, t.before, t.after) for t in found] == [
        ("pin.4", "gather.1", "P('data', 'model')", "P('data', None)"),
        ("cos.1", "gather.2", "P('data', None)", "dot with result P(None, 'model')"),
        ("sin.1", "swap", "P('data', 'model')", "P('model', 'data')"),
        ("exp.1", "other", "P('data', None)", "P(None, 'model')"),
    ]


LOOP = said("""
ar
  requested by  dot f32[16,64] at m.py:7
  operand       a value the loop carries: P('data', 'model') and P('model', None)
  needed        summed over model; result P('data', None)
  because of    operand's model from the constraint at m.py:6
                operand's model from argument w
ag
  requested by  while at m.py:5
  operand       result of tanh: P('data', 'model')
  needed        carried as P('data', None)
  because of    operand's model from unknown
""")


def test_in_a_loop_what_it_carries_asks_too() -> None:
    cap = written(
        programs.LOOP, programs.LOOP_LOCAL, {"x": (("data",), ()), "w": ((), ("model",), ())}
    )
    assert [(r.name, r.executions) for r in cap.collectives] == [("ar", 3), ("ag", 3)]
    assert cards(cap) == LOOP
    lost = by_metadata(cap)
    assert cards(lost) == LOOP | {
        "ag": """\
  unknown      no op of that name and line accounts for it
  named after  tanh at m.py:8"""
    }


WINDOWED = """\
  requested by  dot f32[16,128] at m.py:5
  operand       x: P('model', None)
  needed        result P(None, 'model')
  because of    operand's model from argument x"""


def test_of_a_product_made_piece_by_piece_the_operand_that_goes_round_is_named() -> None:
    given = {"x": (("model",), ()), "w": ((), ("model",))}
    cap = written(programs.WINDOWED, programs.WINDOWED_LOCAL, given)
    assert cards(cap) == {"go": WINDOWED}  # nothing is summed: no contracted dimension is cut
    assert cards(by_metadata(cap)) == {"go": WINDOWED}
    (row,) = cap.collectives
    assert (row.kind, row.executions, row.axes) == ("collective-permute", 4, "model")


COMBINED = said("""
both
  requested by  dot, 2 arrays combined at m.py:7
  and by        dot f32[16,64] at m.py:6
  operand       result of dot_general: P('data', 'model') and P('model', None)
  needed        summed over model; result P('data', None)
  because of    operand's model from argument w
                operand's model from argument u
                operand's model from argument v
sga.2
  requested by  dot f32[64,64] at m.py:8
  operand       x: P('data', None)
  needed        summed over data; result replicated
  because of    operand's data from argument x
sgb.2
  requested by  dot f32[64,64] at m.py:9
  operand       x: P('data', None)
  needed        summed over data; result replicated
  because of    operand's data from argument x
""")


def test_of_combined_sums_each_is_named() -> None:
    given = ARGUMENTS | {"u": (("model",), ())}
    named = programs.SUMS_COMBINED.replace("NAME", "  # 8 transpose(jvp())/dot_general")
    cap = written(programs.SUMS, programs.SUMS_LOCAL, given, optimised=named)
    assert cards(cap) == COMBINED
    assert cards(by_metadata(cap)) == COMBINED
    nameless = programs.SUMS_COMBINED.replace("NAME", "")
    less = written(programs.SUMS, programs.SUMS_LOCAL, given, optimised=nameless)
    # either sum of that size and those devices: both are told
    assert cards(less) == COMBINED | {
        "sga.2": """\
  requested by  dot f32[64,64] at m.py:8
  and by        dot f32[64,64] at m.py:9
  operand       x: P('data', None)
  needed        summed over data; result replicated
  because of    operand's data from argument x"""
    }


def test_an_op_computed_otherwise_than_its_sharding_says_moves_its_own_result() -> None:
    cap = written(programs.OWN, programs.OWN_LOCAL, {"x": (("data",), ())})
    card = """\
  requested by  negate f32[16,64] at m.py:4
  operand       x: P('data', None)
  needed        computed piece by piece, then moved; result replicated
  because of    operand's data from argument x"""
    assert cards(cap) == {"g": card}
    plain = card.replace("computed piece by piece, then moved; ", "")
    assert cards(by_metadata(cap)) == {"g": plain}


def test_a_table_that_is_cut_by_rows_is_gathered_for_its_lookup() -> None:
    given = {"table": (("data",), ()), "tokens": (("data",), ())}
    cap = written(programs.TABLE, programs.TABLE_LOCAL, given)
    assert (
        cards(cap)
        == cards(by_metadata(cap))
        == {
            "whole": """\
  requested by  gather f32[8,4,16] at m.py:5
  operand       table: P('data', None)
  needed        result P('data', None, None)
  because of    operand's data from argument table"""
        }
    )


def test_what_the_program_asks_for_by_name() -> None:
    whole = programs.MINE.replace("[8,16]", "[16,64]").replace(".1", "")
    given = {"x": (("data",), ("model",))}
    asked = said("""
p
  requested  by name at m.py:5
q
  requested  by autodiff, for the gradient of what is at m.py:6
""")
    assert cards(written(whole, programs.MINE, given)) == asked
    nameless = programs.MINE.replace("  # 5 shard_map/psum", "")
    lost = written(whole, programs.MINE, given, optimised=nameless)
    assert cards(lost) == asked | {"p": "  requested  by name at m.py:5"}
    both = written(whole, programs.MINE, given, optimised=programs.MINE_COMBINED)
    assert cards(both) == {
        "pq": """\
  requested  by name at m.py:5
             by autodiff, for the gradient of what is at m.py:6"""
    }
