"""Findings about arithmetic and layouts, on a chip whose figures can be worked out by hand."""

from __future__ import annotations

from pathlib import Path

import hloscope as hs
import pytest
from hloscope.analysis.findings.compute_rules import matmul_dims
from round_chip import chip_file, program, said, work
from test_findings_sent import figures, of, only


@pytest.fixture(autouse=True)
def _chip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOSCOPE_HARDWARE", chip_file(tmp_path))


def alone(entry: str, before: str = "", chip: str | None = "round") -> hs.Capture:
    return program(entry, devices=1, before=before, chip=chip)


def out(*values: str) -> str:
    return f"ROOT %out = (f32[]) tuple({', '.join(values)})"


# -- the order of what is there ----------------------------------------------------------------


def turned(rows: int, beside: int, times: int = 1, chip: str | None = "round") -> hs.Capture:
    """Each copy to another order takes half a second a row."""
    shape = f"f32[{rows},64,1024]"
    copies = [
        f"%c{k} = {shape}{{1,2,0}} copy(%x), {said('jvp(n)/dot_general', 4 + k)}"
        for k in range(times)
    ]
    names = [f"%c{k}" for k in range(times)]
    lines = [f"%x = {shape}{{2,1,0}} parameter(0)", *copies, work(beside), out(*names, "%w")]
    return alone("\n".join(lines), chip=chip)


def test_what_is_turned_is_said_from_a_share_on() -> None:
    assert figures(turned(2, 19), "layout-copies") == [(0.05, 1.0, 1 << 20, "c0")]
    assert figures(turned(3, 97, 2), "layout-copies") == [(0.03, 3.0, 3 << 20, "c0 c1")]
    assert figures(turned(4, 23, 1, None), "layout-copies") == [(0.08, None, 2 << 20, "c0")]
    for below in (turned(2, 20), turned(3, 98, 2), turned(4, 24, 1, None)):
        assert of(below, "layout-copies") == ()


def test_what_is_said_of_what_is_turned() -> None:
    found = only(turned(2, 9), "layout-copies")
    assert found.title == "1 layout copy of f32[2,64,1024] of `%x` takes 10 % of the modelled step"
    assert found.evidence == (
        "%c0 writes the same values in another order ({2,1,0} → {1,2,0}), in which the step returns"
        " them"
    )
    found = only(turned(2, 9, 6), "layout-copies")
    assert found.title == (
        "6 transposes or layout copies of f32[2,64,1024] of `%x` take 40 % of the modelled step"
    )
    assert found.evidence == (
        "%c0, %c1, %c2 and 3 more write the same values in another order ({2,1,0} → {1,2,0}),"
        " in which the step returns them: 1 at m.py:4, 1 at m.py:5, 1 at m.py:6, 1 at m.py:7"
    )
    found = only(turned(4, 2, 1, None), "layout-copies")
    assert found.title.endswith("takes 50 % of the bytes moved")


S = "f32[4,64,1024]"  # 1 MiB
FUSIONS = f"""
%turn (u: {S}) -> f32[64,4,1024] {{
%u = {S}{{2,1,0}} parameter(0)
%b = {S}{{2,1,0}} bitcast(%u)
ROOT %t = f32[64,4,1024]{{2,1,0}} transpose(%b), dimensions={{1,0,2}}
}}
%again (u: {S}) -> {S} {{
%u = {S}{{2,1,0}} parameter(0)
ROOT %t = {S}{{2,1,0}} copy(%u)
}}
%worked (u: {S}) -> f32[64,4,1024] {{
%u = {S}{{2,1,0}} parameter(0)
%n = {S}{{2,1,0}} negate(%u)
ROOT %t = f32[64,4,1024]{{2,1,0}} transpose(%n), dimensions={{1,0,2}}
}}
%narrow (u: {S}) -> f16[64,4,1024] {{
%u = {S}{{2,1,0}} parameter(0)
%n = f16[4,64,1024]{{2,1,0}} convert(%u)
ROOT %t = f16[64,4,1024]{{2,1,0}} transpose(%n), dimensions={{1,0,2}}
}}
%to_half (u: {S}) -> f16[4,64,1024] {{
%u = {S}{{2,1,0}} parameter(0)
ROOT %n = f16[4,64,1024]{{2,1,0}} convert(%u)
}}
%half (u: {S}) -> f16[4,64,1024] {{
%u = {S}{{2,1,0}} parameter(0)
%v = {S}{{2,1,0}} negate(%u)
ROOT %n = f16[4,64,1024]{{2,1,0}} convert(%v)
}}
%written (u: {S}, v: f32[1,64,1024], n: s32[]) -> {S} {{
%u = {S}{{2,1,0}} parameter(0)
%v = f32[1,64,1024]{{2,1,0}} parameter(1)
%n = s32[] parameter(2)
ROOT %d = {S}{{2,1,0}} dynamic-update-slice(%u, %v, %n, %n, %n)
}}
"""
X = f"%x = {S}{{2,1,0}} parameter(0)\n%n = s32[] constant(0)\n%r = f32[1,64,1024]{{2,1,0}} parameter(1)"  # noqa: E501


@pytest.mark.parametrize(
    ("moved", "title"),
    [
        ("%c = f32[64,4,1024]{2,1,0} transpose(%x), dimensions={1,0,2}", "1 layout copy"),
        ("%c = f32[64,4,1024]{2,1,0} fusion(%x), kind=kLoop, calls=%turn", "1 layout copy"),
        (f"%c = {S}{{2,1,0}} copy(%x)", ""),
        (f"%c = {S}{{2,1,0}} fusion(%x), kind=kLoop, calls=%again", ""),
        ("%c = f32[64,4,1024]{2,1,0} fusion(%x), kind=kLoop, calls=%worked", ""),
        # what is converted has to be written anyway, unless it is done twice
        ("%c = f16[64,4,1024]{2,1,0} fusion(%x), kind=kLoop, calls=%narrow", ""),
        ("%c = f16[64,4,1024]{2,1,0} fusion(%x), kind=kLoop, calls=%narrow\n"
         "%e = f16[64,4,1024]{2,1,0} fusion(%x), kind=kLoop, calls=%narrow",
         "2 transposes or layout copies"),
    ],
)  # fmt: skip
def test_what_writes_nothing_but_another_order(moved: str, title: str) -> None:
    found = of(alone(f"{X}\n{moved}\n{out('%c')}", FUSIONS), "layout-copies")
    assert [f.title.partition(" of ")[0] for f in found] == [title] * bool(title)
    if "%e" in moved:
        assert found[0].evidence == (
            "%c, %e write the same values in another order, and convert f32 to f16"
        )


def test_whose_argument_is_turned_and_for_whom() -> None:
    """An argument is found behind updates of it; a value is its line, or its shape."""
    cache = 'metadata={op_name="cache[3][0]"}'
    dus = f"{S}{{2,1,0}} dynamic-update-slice(%x, %r, %n, %n, %n)"
    fused = f"{S}{{2,1,0}} fusion(%x, %r, %n), kind=kLoop, calls=%written"
    turn = "%c = f32[64,4,1024]{2,1,0} transpose(%a), dimensions={1,0,2}"
    user = (
        "%b = f32[64,4096]{1,0} reshape(%c)\n%k = f32[64,4096]{1,0} copy(%b)\n"
        f"%u = f32[64,4096]{{1,0}} tanh(%k), {said('tanh', 8)}\n{out('%u')}"
    )
    given = X.replace("parameter(0)", f"parameter(0), {cache}")
    for made, of_what in (
        (f"{S}{{2,1,0}} bitcast(%x)", " of `cache`"),
        (dus, " of `cache`"),
        (fused, " of `cache`"),
        (f"{S}{{2,1,0}} tanh(%x)", ""),
        (f"{S}{{2,1,0}} fusion(%x), kind=kLoop, calls=%again", " of `cache`"),
    ):
        cap = alone(f"{given}\n%a = {made}\n{turn}\n{user}", FUSIONS)
        found = of(cap, "layout-copies")[-1]
        assert found.title.startswith(f"1 layout copy of f32[64,4,1024]{of_what} takes"), made
        assert found.evidence.endswith("in another order, for %u (tanh, line 8)")


def test_what_has_no_argument_belongs_to_its_line() -> None:
    def rows(lines: tuple[int, int]) -> list[str]:
        text = [X, f"%a = {S}{{2,1,0}} tanh(%x)"]
        for k, line in enumerate(lines):
            place = said("f", line) if line else 'backend_config="{}"'
            text.append(f"%c{k} = {S}{{1,2,0}} copy(%a), {place}")
        found = of(alone("\n".join([*text, out("%c0", "%c1")])), "layout-copies")
        return [f.title.partition(" ")[0] + f.line[4:] for f in found]

    assert rows((3, 3)) == ["2:3"]
    assert rows((3, 5)) == ["1:3", "1:5"]


LOOP = f"""
%body (p: (s32[], {S}, f32[1,64,1024])) -> (s32[], {S}, f32[1,64,1024]) {{
%p = (s32[], {S}{{2,1,0}}, f32[1,64,1024]{{2,1,0}}) parameter(0)
%i = s32[] get-tuple-element(%p), index=0
%all = {S}{{2,1,0}} get-tuple-element(%p), index=1
%row = f32[1,64,1024]{{2,1,0}} get-tuple-element(%p), index=2
%one = s32[] constant(1)
%next = s32[] add(%i, %one)
%c = {S}{{ORDER}} copy(%all)
%new = {S}{{ORDER}} UPDATE
ROOT %t = (s32[], {S}{{2,1,0}}, f32[1,64,1024]{{2,1,0}}) tuple(%next, %new, %row)
}}
%condition (p: (s32[], {S}, f32[1,64,1024])) -> pred[] {{
%p = (s32[], {S}{{2,1,0}}, f32[1,64,1024]{{2,1,0}}) parameter(0)
%i = s32[] get-tuple-element(%p), index=0
%many = s32[] constant(TIMES)
ROOT %less = pred[] compare(%i, %many), direction=LT
}}
"""


@pytest.mark.parametrize(
    ("update", "order", "times", "is_said"),
    [
        ("dynamic-update-slice(%c, %row, %i, %one, %one)", "2,1,0", 4, True),
        ("fusion(%c, %row, %i), kind=kLoop, calls=%written", "2,1,0", 4, True),
        ("dynamic-update-slice(%c, %row, %i, %one, %one)", "2,1,0", 2, True),
        ("dynamic-update-slice(%c, %row, %i, %one, %one)", "2,1,0", 1, False),
        ("dynamic-update-slice(%c, %row, %i, %one, %one)", "1,2,0", 4, False),
        ("dynamic-update-slice(%all, %row, %i, %one, %one)", "2,1,0", 4, False),
        ("fusion(%all, %row, %i), kind=kLoop, calls=%written", "2,1,0", 4, False),
        ("fusion(%c), kind=kLoop, calls=%again", "2,1,0", 4, False),
        ("tanh(%c)", "2,1,0", 4, False),
    ],
)
def test_what_a_loop_copies_to_update_a_slice(
    update: str, order: str, times: int, is_said: bool
) -> None:
    loop = LOOP.replace("UPDATE", update).replace("ORDER", order).replace("TIMES", str(times))
    state = f"(s32[], {S}{{2,1,0}}, f32[1,64,1024]{{2,1,0}})"
    cap = alone(
        f"""{X}
%begin = {state} tuple(%n, %x, %r)
ROOT %loop = {state} while(%begin), condition=%condition, body=%body""",
        FUSIONS + loop,
    )
    found = of(cap, "update-copies")
    assert bool(found) is is_said
    if is_said:
        assert found[0].title == (f"A loop copies all of {S} {times} times to update a slice of it")
        assert found[0].evidence.startswith("%c copies 1 MiB before %new writes into it")
        assert (found[0].seconds, found[0].bytes) == (2.0 * times, times << 21)
        assert [i.name for i in found[0].instructions] == ["c", "new"]


# -- types -------------------------------------------------------------------------------------


def converted(rows: str, beside: int, times: int = 2, chip: str | None = "round") -> hs.Capture:
    """``rows``: what makes %c of %x; 1.5 s each from f32 to f16."""
    lines = [X, f"%v = {S}{{2,1,0}} tanh(%x)", work(beside)]
    lines += [rows.replace("%c", f"%c{k}") for k in range(times)]
    return alone(
        "\n".join([*lines, out("%w", *(f"%c{k}" for k in range(times)))]), FUSIONS, chip=chip
    )


CAST = "%c = f16[4,64,1024]{2,1,0} convert(%x)"


def test_what_is_converted_and_nothing_else_is_said_from_a_share_on() -> None:
    # beside it are the 2 s of %v
    assert figures(converted(CAST, 55), "repeated-converts") == [(0.05, 3.0, 3 << 20, "c0 c1")]
    assert of(converted(CAST, 56), "repeated-converts") == ()
    assert of(converted(CAST, 5, 1), "repeated-converts") == ()
    found = only(converted(CAST, 5), "repeated-converts")
    assert found.title == (
        "2 whole arrays are converted from f32 to f16 (arguments): 30 % of the modelled step (3 s)"
    )
    assert found.evidence == "nothing else is done with them there: %c0, %c1"
    found = only(converted(CAST, 5, 2, None), "repeated-converts")
    assert found.title.endswith("(arguments): 30 % of the bytes moved")
    found = only(converted(CAST.replace("%x", "%v"), 5), "repeated-converts")
    assert found.title.startswith("2 whole arrays are converted from f32 to f16: 30 %")


@pytest.mark.parametrize(
    ("row", "is_said"),
    [
        ("%c = f16[4,64,1024]{2,1,0} fusion(%x), kind=kLoop, calls=%to_half", True),
        ("%c = f16[4,64,1024]{2,1,0} fusion(%x), kind=kLoop, calls=%half", False),
        (CAST.replace("f16", "s32"), False),
        (CAST.replace("f16", "bf16"), True),
        (CAST.replace("f16", "f32"), False),
        (f"{CAST}\n%d = f16[8,64,1024]{{2,1,0}} all-gather(%c), replica_groups={{{{0,1}}}},"
         " dimensions={0}".replace("%d", "%dc"), False),
    ],
)  # fmt: skip
def test_what_counts_as_converted(row: str, is_said: bool) -> None:
    last = row.splitlines()[-1].split(" = ")[0] if "%dc" in row else "%c"
    lines = [
        X,
        f"%v = {S}{{2,1,0}} tanh(%x)",
        *(row.replace("%c", f"%c{k}").replace("%dc", f"%d{k}") for k in range(2)),
    ]
    names = [last.replace("%dc", f"%d{k}").replace("%c", f"%c{k}") for k in range(2)]
    cap = alone("\n".join([*lines, out(*names)]), FUSIONS)
    assert bool(of(cap, "repeated-converts")) is is_said


def test_what_xla_cpu_chose_itself_says_nothing_of_a_chip() -> None:
    made = ', backend_config={"outer_dimension_partitions":["2"]}'
    for chip in ("round", None):
        both = converted(CAST, 5, 2, chip)
        cap = converted(CAST + made, 5, 2, chip)
        assert of(both, "repeated-converts")
        assert of(cap, "repeated-converts") == ()


# -- multiplying -------------------------------------------------------------------------------

D = "[512,512]{1,0}"


def dot(name: str, dtype: str = "f32", more: str = "") -> str:
    """2**28 FLOP: 64 s in bf16, 128 in f32, 256 in its highest precision, 512 in f64."""
    p = f"%{name}.p = {dtype}{D} parameter({ord(name[0])})"
    return (
        f"{p}\n%{name} = {dtype}{D} dot(%{name}.p, %{name}.p), lhs_contracting_dims={{1}},"
        f" rhs_contracting_dims={{0}}{more}"
    )


HIGHEST = ", operand_precision={highest,highest}"


def dots(*rows: str, chip: str | None = "round") -> hs.Capture:
    return alone("\n".join([*rows, out("%a")]), chip=chip)


def test_matmuls_in_wide_types() -> None:
    cap = dots(dot("a"))
    assert figures(cap, "wide-matmul") == [(0.5, 64.0, None, "a")]
    found = only(cap, "wide-matmul")
    assert found.title == "100 % of the matmul FLOPs run in f32; bf16 would be 2× as fast"
    assert found.evidence == "268 MFLOP in 1 operation: %a"
    assert found.advice.startswith("cast the operands to bf16")
    found = only(dots(dot("a", more=HIGHEST)), "wide-matmul")
    assert found.title.endswith("run in f32, highest precision; bf16 would be 4× as fast")
    assert (found.share, found.seconds) == (0.75, 192.0)
    found = only(dots(dot("a", "f64"), dot("b", "bf16"), dot("c", "f64")), "wide-matmul")
    assert found.title == "67 % of the matmul FLOPs run in f64; f32 would be 4× as fast"
    assert (found.share, found.seconds) == (2 * 384 / (64 + 1024), 768.0)
    assert found.advice.startswith("look for numpy scalars")
    assert [i.name for i in found.instructions] == ["a", "c"]


def test_wide_types_are_said_from_a_share_on() -> None:
    narrow = [dot(chr(98 + k), "bf16") for k in range(19)]
    # 64 of 128 + 18 · 64 s could be saved
    assert only(dots(dot("a"), *narrow[:18]), "wide-matmul").share == 0.05
    assert of(dots(dot("a"), *narrow), "wide-matmul") == ()


def test_without_a_chip_only_what_is_twice_as_wide_is_said() -> None:
    found = only(dots(dot("a", "f64"), dot("b", "f64"), dot("c"), chip=None), "wide-matmul")
    assert found.title == "67 % of the matmul FLOPs run in f64"
    assert (round(found.share, 9), found.seconds) == (round(2 / 3, 9), None)


def dims(line: str, *shapes: str, before: str = "") -> tuple[int, int, int] | None:
    given = [f"%p{k} = {s} parameter({k})" for k, s in enumerate(shapes)]
    module = alone("\n".join([*given, f"ROOT %m = {line}"]), before).module
    (found,) = [i for i in module.instructions if i.name == "m"]
    return matmul_dims(found)


ONE = """
%one (a: f32[8,16], b: f32[16,32]) -> f32[8,32] {
%a = f32[8,16] parameter(0)
%b = f32[16,32] parameter(1)
%d = f32[8,32] dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
ROOT %t = f32[8,32] tanh(%d)
}
%two (a: f32[8,16], b: f32[16,32]) -> f32[8,32] {
%a = f32[8,16] parameter(0)
%b = f32[16,32] parameter(1)
%d = f32[8,32] dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
%e = f32[8,32] dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
ROOT %t = f32[8,32] add(%d, %e)
}
"""
BATCHED = (
    "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"
)


def test_rows_columns_and_what_is_contracted() -> None:
    table = {
        ("f32[8,32] dot(%p0, %p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
         "f32[8,16]", "f32[16,32]"): (8, 32, 16),
        ("f32[8,32] dot(%p0, %p1), lhs_contracting_dims={0}, rhs_contracting_dims={1}",
         "f32[16,8]", "f32[32,16]"): (8, 32, 16),
        (f"f32[3,8,32] dot(%p0, %p1), {BATCHED}",
         "f32[3,8,16]", "f32[3,16,32]"): (8, 32, 16),
        ("f32[8] dot(%p0, %p1), lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}",
         "f32[8,4,5]", "f32[4,5]"): (8, 1, 20),
        ("f32[8,32] dot(%p0, %p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
         "f32[8,0]", "f32[0,32]"): None,
        ("f32[8,32] convolution(%p0, %p1), dim_labels=bf_io->bf", "f32[8,16]", "f32[16,32]"):
            (8, 32, 16),
        ("f32[8,32] convolution(%p0, %p1), dim_labels=fb_oi->bf", "f32[16,8]", "f32[32,16]"):
            (8, 32, 16),
        ("f32[8,4,32] convolution(%p0, %p1), window={size=1}, dim_labels=b0f_0io->b0f",
         "f32[8,4,16]", "f32[1,16,32]"): (32, 32, 16),
        ("f32[8,16] add(%p0, %p1)", "f32[8,16]", "f32[8,16]"): None,
        ("f32[8,32] fusion(%p0, %p1), kind=kOutput, calls=%one", "f32[8,16]", "f32[16,32]"):
            (8, 32, 16),
        ("f32[8,32] fusion(%p0, %p1), kind=kOutput, calls=%two", "f32[8,16]", "f32[16,32]"): None,
    }  # fmt: skip
    assert {row: dims(*row, before=ONE) for row in table} == table


def thin(name: str, rows: int, columns: int = 1024, k: int = 1024) -> str:
    given = f"%{name}.p = bf16[{rows},{k}]{{1,0}} parameter({ord(name[0])})"
    weights = f"%{name}.w = bf16[{k},{columns}]{{1,0}} parameter({ord(name[0]) + 50})"
    return (
        f"{given}\n{weights}\n%{name} = bf16[{rows},{columns}]{{1,0}} dot(%{name}.p, %{name}.w),"
        " lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )


def test_matmuls_that_only_read() -> None:
    """1000 · 2**22 FLOP/s: 8 rows take 4 ms, and 2 MiB with 32 KiB take 2 s and a thirty-second."""
    cap = dots(thin("a", 8), chip="quick")
    needed, took = 0.004, 2 + 1 / 32
    found = only(cap, "idle-matmul")
    assert found.title == (
        "1 matmul of 8×1024×1024 (100 % of the modelled step) uses at most 0.2 % of the matrix unit"
    )
    assert found.evidence == (
        "rows × columns × contracted = 8×1024×1024: with 8 rows the multiplication is 4 ms and"
        " moving the operands and the result 2.03 s (%a)"
    )
    assert (found.share, found.seconds) == (1.0, pytest.approx(took - needed))
    # columns or what is contracted may be few as well
    for shape, few in (((1024, 8), "8 columns"), ((1024, 1024, 8), "8 contracted elements")):
        assert (
            f"with {few} the" in only(dots(thin("a", *shape), chip="quick"), "idle-matmul").evidence
        )
    # of several, the one that takes longest is described
    found = only(dots(thin("a", 8), thin("b", 8, 2048), thin("c", 8), chip="quick"), "idle-matmul")
    assert found.title.startswith("3 matmuls of 8 rows (100 % of the modelled step) use at most")
    assert found.evidence.startswith(
        "most time in rows × columns × contracted = 8×1024×1024: with 8 rows"
    )
    assert found.evidence.endswith("moving the operands and the result 4.06 s (%a, %c)")
    assert [i.name for i in found.instructions] == ["b", "a", "c"]
    assert found.seconds == pytest.approx(3 * took + 2 + 1 / 64 - 4 * needed, abs=0.04)


def test_matmuls_that_only_read_are_said_from_a_tenth_on() -> None:
    def beside(seconds: int) -> hs.Capture:
        return alone("\n".join([thin("a", 8), work(seconds), out("%a", "%w")]), chip="quick")

    assert only(beside(18), "idle-matmul").share == (2 + 1 / 32) / (20 + 1 / 32)
    assert of(beside(19), "idle-matmul") == ()
    # 4096 rows have enough to do: 2 s of 18
    assert of(dots(thin("a", 4096), chip="quick"), "idle-matmul") == ()
    assert of(dots(thin("a", 8), chip=None), "idle-matmul") == ()


def test_weights_that_many_products_read_are_fetched_once() -> None:
    """2 MiB take 2 s into VMEM, where eight products read them: that is all that they wait for."""
    weights, fast = "bf16[1024,1024]{1,0}", "{1,0:S(1)}"
    rows = f"bf16[8,1024]{fast}"
    lines = [
        f"%p = {weights} parameter(0)",
        f"%x = {rows} parameter(1)",
        f"%s = (bf16[1024,1024]{fast}, {weights}, u32[]) copy-start(%p)",
        f"%w = bf16[1024,1024]{fast} copy-done(%s)",
    ]
    lines += [
        f"%y{k} = {rows} dot({f'%y{k - 1}' if k else '%x'}, %w), lhs_contracting_dims={{1}},"
        " rhs_contracting_dims={0}"
        for k in range(8)
    ]
    cap = alone("\n".join([*lines, out("%y7")]), chip="quick")
    found, step = only(cap, "idle-matmul"), cap.findings.headline.seconds
    assert found.seconds is not None
    assert step is not None
    assert found.seconds < step
    assert "moving the operands and the result 2 s" in found.evidence


AGAIN = "transpose(jvp(n))/checkpoint/rematted_computation/dot_general"


def test_what_is_computed_again() -> None:
    plain, again = f", {said('jvp(n)/dot_general')}", f", {said(AGAIN, 7)}"
    rows = [dot(chr(97 + k), "bf16", plain) for k in range(9)]
    found = only(dots(*rows, dot("z", "bf16", again)), "rematerialisation")
    assert found.title == "10 % of all FLOPs are spent computing values again for the backward pass"
    assert found.evidence == (
        "268 MFLOP of 2.68 GFLOP are in rematerialised operations: heaviest %z; the peak is"
        " 6 MiB of 1 GiB"
    )
    # what is saved moves four times instead: 512 KiB at 1 MiB/s
    assert (found.share, found.seconds, found.line) == (62 / 640, 62.0, "m.py:7")
    assert [i.name for i in found.instructions] == ["z"]
    more = dot("y", "bf16", plain)
    assert of(dots(*rows, more, dot("z", "bf16", again)), "rematerialisation") == ()
    found = only(dots(*rows, dot("z", "bf16", again), chip=None), "rematerialisation")
    assert found.evidence.endswith("heaviest %z")
    assert found.seconds is None


@pytest.mark.parametrize(("times", "said_so"), [(1, "1 collective runs"), (2, "2 collectives run")])
def test_what_is_sent_again(times: int, said_so: str) -> None:
    sends = [
        f"%g{k} = f32{D} all-reduce(%z), channel_id={k + 1}, replica_groups=[1,2]<=[2],"
        f" use_global_device_ids=true, to_apply=%sum, {said(AGAIN)}"
        for k in range(times)
    ]
    first = sends[0].replace("%g0", "%f").replace("channel_id=1", "channel_id=9")
    first = first.replace(said(AGAIN), said("jvp(n)/dot_general"))
    rows = [dot("y", "f32", f", {said('jvp(n)/dot_general')}"), first.replace("%z", "%y")]
    rows += [dot("z", "f32", f", {said(AGAIN)}"), *sends]
    cap = program("\n".join([*rows, out("%g0")]))
    assert f" operations, and {said_so} again: heaviest" in only(cap, "rematerialisation").evidence
