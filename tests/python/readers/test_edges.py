"""Small facts at the edges of rules: each would be wrong after a change of one character.

Without a compile.
"""

from __future__ import annotations

import os
from types import SimpleNamespace

import hloscope as hs
import numpy as np
import pytest
from hloscope.analysis.base.loops.trips import count_steps
from hloscope.analysis.base.phases.phases import PHASES, phases
from hloscope.analysis.check.sizes import parse_size
from hloscope.analysis.comms.collectives import collectives
from hloscope.analysis.comms.wire import wire_bytes
from hloscope.analysis.cost.bytes_accessed import bytes_accessed
from hloscope.analysis.cost.chip import for_target
from hloscope.analysis.cost.roofline.roofline import exposed_seconds
from hloscope.analysis.cost.roofline.slices import between_slices
from hloscope.analysis.cost.roofline.torus import torus
from hloscope.analysis.cost.roofline.transfers import Levels, Transfer, ring
from hloscope.analysis.diff.diff import diff
from hloscope.analysis.why.provenance_causes import _explains, _same_kind
from hloscope.hardware import find
from hloscope.hlo import Device, Target
from hloscope.hlo.collective_kinds import KINDS
from hloscope.show.dot_boxes import _reduce
from hloscope.show.html import frame
from hloscope.show.terminal import colored
from hypothesis import given
from hypothesis import strategies as st


def module_of(body: str, header: str = "HloModule m"):
    lines = "\n".join(f"  {line}" for line in body.strip().splitlines())
    return hs.read(f"{header}\n\nENTRY main {{\n{lines}\n}}\n").module


# -- what others see -----------------------------------------------------------------------


def test_a_title_stays_in_its_attribute():
    cap = hs.read("HloModule m\n\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n")
    cap.title = '"><img src=x onerror=alert(1)>'
    made = frame(cap)
    head = made[: made.index("srcdoc")]
    assert head.count("<") == 1
    assert "&quot;&gt;&lt;img src=x" in head


@pytest.mark.parametrize(
    ("no_color", "force", "is_terminal", "expected"),
    [
        ("1", "", True, False),
        ("", "1", False, True),
        ("1", "1", True, False),
        ("", "", True, True),
        ("", "", False, False),
    ],
)
def test_who_gets_colours(monkeypatch, no_color, force, is_terminal, expected):
    monkeypatch.setenv("TERM", "xterm")
    for name, value in (("NO_COLOR", no_color), ("FORCE_COLOR", force)):
        monkeypatch.setenv(name, value)
    assert colored(SimpleNamespace(isatty=lambda: is_terminal)) is expected


@pytest.mark.parametrize("text", ["12i", "12iB", "i", "12 i", "-1", "1e3", "", "12Gi GB", "nan"])
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match="not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("12Ki", 12288), ("12KiB", 12288), ("12kB", 12000), ("1.5M", 1_500_000), (7, 7), ("7", 7)],
)
def test_sizes(text, size):
    assert parse_size(text) == size


def test_github_paths_are_escaped(monkeypatch, tmp_path):
    from hloscope.show.commands.check import _relative

    monkeypatch.chdir(tmp_path)
    assert _relative(os.path.join(tmp_path, "a,b:c%d.py")) == "a%2Cb%3Ac%25d.py"
    assert _relative("/elsewhere/x,line=1::y.py") == "/elsewhere/x%2Cline=1%3A%3Ay.py"


def test_implied_edges_are_dropped_and_no_others():
    edges = {("a", "b"): 1, ("b", "c"): 2, ("a", "c"): 3, ("a", "d"): 1, ("d", "e"): 1}
    assert _reduce(edges) == {k: v for k, v in edges.items() if k != ("a", "c")}
    far = {("a", "b"): 1, ("b", "c"): 1, ("c", "d"): 1, ("a", "d"): 1}
    assert ("a", "d") not in _reduce(far)
    circle = {("a", "b"): 1, ("b", "a"): 1, ("a", "c"): 1}
    assert _reduce(circle) == circle


def test_the_child_may_write_no_file(tmp_path):
    import subprocess
    import sys

    code = (
        "import resource\n"
        "from hloscope.processes.inside import limit_this_process as limit\n"
        "limit(1 << 33, 60)\n"
        "print([resource.getrlimit(getattr(resource, 'RLIMIT_' + n))[0] for n in"
        " ('FSIZE', 'CORE', 'AS', 'CPU')])\n"
        "import sys; sys.stdout.flush()\n"
        f"open({str(tmp_path / 'x')!r}, 'wb', buffering=0).write(b'x' * 10)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == f"[0, 0, {1 << 33}, 60]\n"
    assert done.returncode != 0
    assert (tmp_path / "x").read_text() == ""


def test_what_was_opened_is_looked_at_again(monkeypatch, tmp_path):
    """Between the check of a path and its opening a folder of it may become a link."""
    from hloscope.lab import files
    from tornado.web import HTTPError

    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root / "sub", outside):
        folder.mkdir(parents=True)
        (folder / "f.hlo").write_text("x")
    contents = SimpleNamespace(root_dir=str(root), _get_os_path=lambda p: str(root / p))
    files._open_local(contents, "sub/f.hlo").close()
    checked = os.path.realpath

    def swapped_behind(path):
        found = checked(path)
        if str(path).endswith("sub/f.hlo") and not (root / "sub").is_symlink():
            (root / "sub").rename(root / "was")
            (root / "sub").symlink_to(outside)
        return found

    monkeypatch.setattr(files.os.path, "realpath", swapped_behind)
    with pytest.raises(HTTPError):
        files._open_local(contents, "sub/f.hlo")


# -- collectives and time ------------------------------------------------------------------


@given(
    kind=st.sampled_from(sorted(k for k, v in KINDS.items() if v.pattern in ("ring", "exchange"))),
    payload=st.integers(1, 1 << 40),
    group=st.integers(2, 513),
)
def test_wire_bytes_are_rounded_to_the_nearest(kind, payload, group):
    exact = KINDS[kind].passes * (group - 1) * payload / group
    assert abs(wire_bytes(kind, payload, group) - exact) <= 0.5 + 1e-15 * exact


def test_wire_bytes_of_a_share_that_is_no_whole_number():
    assert wire_bytes("all-gather", 100, 3) == 67  # 66.67
    assert wire_bytes("all-gather", 100, 8) == 88  # 87.5


@pytest.mark.parametrize(
    ("axes", "steps", "sent"),
    [
        ([(8, True)], 4, 800),  # half of all crosses the middle, over two links each way
        ([(8, False)], 7, 1600),
        ([(4, True), (8, False)], 9, 1600),
        ([(4, True), (8, True)], 6, 800),
        ([(1, True)], 0, 0),
    ],
)
def test_all_to_all_on_a_torus(axes, steps, sent):
    assert torus("all-to-all", axes, 800) == (steps, sent)


@pytest.mark.parametrize("slices", [2, 4])
def test_an_exchange_is_between_at_least_two_slices(slices):
    target = {2: "{1}x{0:7}", 4: "{1:4}x{0:7}"}[slices]
    module = module_of(
        f"""
p = f32[1024]{{0}} parameter(0)
t = token[] after-all()
send = (f32[1024]{{0}}, u32[], token[]) send(p, t), channel_id=1, frontend_attributes={{_xla_host_transfer_rendezvous="r",_xla_megascale_transfer_type="ALL_REDUCE",_xla_megascale_target="{target}"}}
ROOT done = token[] send-done(send), channel_id=1
"""  # noqa: E501
    )
    (found,) = between_slices(module, np.array([True]), collectives(module, Target()))
    assert found.levels[0].far == ring("all-reduce", slices, 4096)
    assert found.levels[0].far[1] == 2 * (slices - 1) / slices * 4096


@pytest.mark.parametrize("attributes", ["", ',_xla_megascale_target="{1}x{0:7}"'])
def test_an_exchange_that_names_no_slices_or_one_is_between_two(attributes):
    """Nothing leaves a slice for itself: counted as one, its bytes on the wire would be 0."""
    module = module_of(
        f"""
p = f32[1024]{{0}} parameter(0)
t = token[] after-all()
send = (f32[1024]{{0}}, u32[], token[]) send(p, t), channel_id=1, frontend_attributes={{_xla_host_transfer_rendezvous="r",_xla_megascale_transfer_type="ALL_REDUCE"{attributes}}}
ROOT done = token[] send-done(send), channel_id=1
"""  # noqa: E501
    )
    (found,) = between_slices(module, np.array([True]), collectives(module, Target()))
    assert found.levels[0].far == ring("all-reduce", 2, 4096)
    assert found.levels[0].far[1] == 4096


def test_two_wires_at_once_but_not_one_twice():
    """Near and far transfers run side by side; two far ones one after the other."""
    module = module_of("\n".join(f"i{k} = f32[] parameter({k})" for k in range(6)))
    levels = {
        False: Levels((1.0, 1.0), (1.0, 1.0), (0.0, 0.0)),
        True: Levels((0.0, 0.0), (0.0, 0.0), (1.0, 1.0)),
    }

    def exposed(first_far, second_far):
        transfers = [
            Transfer(-1, 0, 4, (levels[first_far],), True),
            Transfer(-1, 1, 5, (levels[second_far],), True),
        ]
        return exposed_seconds(module, np.zeros(6), transfers, np.array([2.0, 3.0])).sum()

    assert exposed(False, True) == 3.0
    assert exposed(False, False) == 5.0
    assert exposed(True, True) == 5.0


def test_a_core_has_its_share_of_the_chip():
    chip = find("tpu-v4")
    assert chip.devices_per_chip == 1
    cores = tuple(Device(k, k, "TPU v4", (k // 2, 0, 0), k % 2) for k in range(4))
    share = for_target(chip, Target(devices=cores))
    for of in (
        lambda h: h.memory_bytes,
        lambda h: h.memory_bandwidth,
        lambda h: h.matmul["bf16"],
        lambda h: h.links[0].bytes_per_second,
    ):
        assert of(share) == of(chip) / 2
    assert share.devices_per_chip == 2
    whole = tuple(Device(k, k, "TPU v4", (k, 0, 0), 0) for k in range(4))
    assert for_target(chip, Target(devices=whole)) is chip


def fusion_bytes(constant: str) -> float:
    text = f"""HloModule m

f {{
  p = f32[64]{{0}} parameter(0)
  c = {constant}
  b = f32[64]{{0}} custom-call(p, c), custom_call_target="x"
  ROOT r = f32[64]{{0}} negate(b)
}}

ENTRY e {{
  p = f32[64]{{0}} parameter(0)
  ROOT o = f32[64]{{0}} fusion(p), kind=kLoop, calls=f
}}
"""
    module = hs.read(text).module
    return float(bytes_accessed(module, np.ones(2, bool))[module.entry.root.index])


@pytest.mark.parametrize(("elements", "counted"), [(8, 0), (9, 36), (64, 256)])
def test_large_constants_are_read_and_small_ones_are_immediates(elements, counted):
    assert fusion_bytes(f"f32[{elements}]{{0}} constant({{...}})") == 256 + 256 + counted


def test_a_large_constant_is_one_where_it_is_a_constant():
    assert fusion_bytes("f32[64]{0} iota(), iota_dimension=0") == 512


@given(
    start=st.integers(-20, 20),
    step=st.integers(-4, 4),
    bound=st.integers(-20, 20),
    direction=st.sampled_from(["LT", "LE", "GT", "GE", "EQ", "NE"]),
    kind=st.sampled_from(["s8", "s32", "s64"]),
)
def test_trips_are_counted_as_running_them_does(start, step, bound, direction, kind):
    holds = {
        "LT": lambda v: v < bound,
        "LE": lambda v: v <= bound,
        "GT": lambda v: v > bound,
        "GE": lambda v: v >= bound,
        "EQ": lambda v: v == bound,
        "NE": lambda v: v != bound,
    }[direction]
    lowest, highest = (-128, 127) if kind == "s8" else (-1000, 1000)
    value, n = start, 0
    while holds(value) and lowest <= value <= highest and n < 2000:
        value, n = value + step, n + 1
    ends = not holds(value) and lowest <= value <= highest
    found = count_steps(start, step, bound, direction, kind)
    assert found == (n if ends else None)


@pytest.mark.parametrize(
    ("start", "step", "bound", "direction", "kind", "trips"),
    [
        (0, 1, 127, "LT", "s8", 127),
        (0, 1, 127, "LE", "s8", None),  # 128 is no s8
        (126, 1, 127, "LT", "s8", 1),
        (0, 2, 127, "LT", "s8", None),  # 128 again
        (-127, -1, -128, "GT", "s8", 1),
        (-127, -1, -128, "GE", "s8", None),
        (10, 255, 0, "GT", "u8", 10),  # a count down, printed wrapped
        (0, 127, 200, "LT", "u8", 2),  # no count down
        (10, 128, 0, "GT", "u8", None),
        (0, 1, 255, "LT", "u8", 255),
        (0, 1, 256, "LT", "u8", None),
        (250, 5, 255, "LE", "u8", None),
    ],
)
def test_trips_at_the_ends_of_their_type(start, step, bound, direction, kind, trips):
    assert count_steps(start, step, bound, direction, kind) == trips


# -- meaning -------------------------------------------------------------------------------

TRAINING = """
p = f32[64]{0} parameter(0)
f = f32[64]{0} tanh(p), metadata={op_name="jit(step)/jvp(layer)/tanh"}
b = f32[64]{0} negate(f), metadata={op_name="jit(step)/transpose(jvp(layer))/neg"}
c0 = f32[64]{0} copy(b)
o = f32[64]{0} multiply(c0, p), metadata={op_name="jit(step)/adam/mul"}
c1 = f32[64]{0} copy(o)
c2 = f32[64]{0} copy(f)
u = f32[64]{0} add(c2, o), metadata={op_name="jit(step)/adam/add"}
ROOT t = (f32[64]{0}, f32[64]{0}) tuple(c1, u)
"""


def test_what_has_no_name_is_of_what_it_is_made_from_or_serves():
    module = module_of(TRAINING)
    found = {i.name: PHASES[p] for i, p in zip(module.instructions, phases(module), strict=True)}
    assert found["f"] == "forward"
    assert found["b"] == "backward"
    assert found["o"] == found["u"] == "optimiser"
    assert found["c0"] == "backward", "made from the backward pass, though the optimiser uses it"
    assert found["c1"] == "optimiser", "made by the optimiser, and nobody uses it"
    assert found["c2"] == "optimiser", "what is made in the forward pass is of what it serves"


def test_the_optimiser_is_what_needs_a_gradient_and_what_serves_nothing_else():
    module = module_of("""
p = f32[64]{0} parameter(0)
f = f32[64]{0} tanh(p), metadata={op_name="jit(step)/jvp(layer)/tanh"}
h = f32[64]{0} sine(p), metadata={op_name="jit(step)/sin"}
j = f32[64]{0} add(f, h), metadata={op_name="jit(step)/jvp(layer)/add"}
b = f32[64]{0} negate(j), metadata={op_name="jit(step)/transpose(jvp(layer))/neg"}
g = f32[64]{0} multiply(b, p), metadata={op_name="jit(step)/mul"}
k = f32[64]{0} cosine(f), metadata={op_name="jit(step)/cos"}
ROOT w = f32[64]{0} add(k, g), metadata={op_name="jit(step)/add"}
""")
    found = {i.name: PHASES[p] for i, p in zip(module.instructions, phases(module), strict=True)}
    assert found["g"] == found["w"] == "optimiser", "made from the backward pass, and not marked"
    assert found["k"] == "optimiser", "needs no gradient, and serves the update alone"
    assert found["h"] == "forward", "serves the model"


@pytest.mark.parametrize(
    ("before", "after", "kind", "axes", "expected"),
    [
        # moved from dimension 0 to 1: that is what an all-to-all does
        ((("x",), ()), ((), ("x",)), "all-to-all", {"x"}, True),
        # lost alone, or gained alone, is none
        ((("x",), ()), ((), ()), "all-to-all", {"x"}, False),
        (((), ()), ((), ("x",)), "all-to-all", {"x"}, False),
        # one of the axes moved, the other is new
        ((("x",), ()), ((), ("x", "y")), "all-to-all", {"x", "y"}, False),
        ((("x",), ()), ((), ()), "all-gather", {"x"}, True),
        ((("x",), ()), ((), ()), "all-gather", {"x", "y"}, False),
        (((), ()), ((), ("x",)), "collective-permute", {"x"}, False),
        ((("x",), ()), ((), ("x",)), "collective-permute", {"x"}, True),
    ],
)
def test_what_a_change_of_sharding_explains(before, after, kind, axes, expected):
    assert _explains(before, after, kind, frozenset(axes)) is expected


def test_integers_are_not_floats():
    module = module_of("p = f32[4]{0} parameter(0)\nROOT q = s32[4]{0} convert(p)")
    p, q = module.entry.instructions
    assert _same_kind(p, "bf16[4]")
    assert not _same_kind(p, "s32[4]")
    assert _same_kind(q, "u8[4]")
    assert not _same_kind(q, "f32[4]")
    assert _same_kind(p, "")


def test_an_all_reduce_that_became_something_else_went_away():
    def program(op: str) -> hs.Capture:
        return hs.read(
            "HloModule m, num_partitions=2\n\n"
            "s {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n"
            "  ROOT c = f32[] add(a, b)\n}\n\n"
            "ENTRY e {\n  p = f32[64]{0} parameter(0)\n"
            f"  x = f32[64]{{0}} {op}\n  ROOT r = f32[64]{{0}} negate(x)\n}}\n"
        )

    reduced = program("all-reduce(p), replica_groups={{0,1}}, to_apply=s")
    sine, cosine = program("sine(p)"), program("cosine(p)")
    found = diff(reduced, sine)
    assert not [c for c in found.changed if "x" in (c.before.name, c.after.name)]
    assert len(diff(sine, cosine).changed) == 1


def test_donation_offers_the_largest_output_first_and_no_scalar():
    cap = hs.read(
        """HloModule m, is_scheduled=true

ENTRY e {
  small = f32[256]{0} parameter(0)
  large = f32[4096]{0} parameter(1)
  one = f32[] parameter(2)
  two = f32[2]{0} parameter(3)
  a = f32[256]{0} reverse(small), dimensions={0}
  b = f32[4096]{0} reverse(large), dimensions={0}
  c = f32[] negate(one)
  d = f32[2]{0} reverse(two), dimensions={0}
  ROOT t = (f32[256]{0}, f32[4096]{0}, f32[], f32[2]{0}) tuple(a, b, c, d)
}
"""
    )
    rows = [(d.argument, d.bytes, d.outcome) for d in cap.memory.donations]
    assert rows == [
        ("large", 16384, "could be donated"),
        ("small", 1024, "could be donated"),
        ("two", 8, "could be donated"),
    ]


def test_copies_of_parameters_the_largest_first_and_no_scalar():
    cap = hs.read(
        """HloModule m, is_scheduled=true

ENTRY e {
  small = f32[2]{0} parameter(0)
  large = f32[4096]{0} parameter(1)
  one = f32[] parameter(2)
  a = bf16[2]{0} convert(small)
  b = bf16[4096]{0} convert(large)
  c = bf16[] convert(one)
  ROOT t = (bf16[2]{0}, bf16[4096]{0}, bf16[]) tuple(a, b, c)
}
"""
    )
    found = [(c.argument, c.bytes, c.changes) for c in cap.memory.parameter_copies]
    assert found == [("large", 8192, "type"), ("small", 4, "type")]


def test_what_stands_in_the_place_of_another_but_is_of_another_shape_is_no_change():
    def program(op: str, shape: str) -> hs.Capture:
        return hs.read(
            "HloModule m\n\nENTRY e {\n  x = f32[4] parameter(0)\n"
            f"  t = {shape} {op}(x)\n"
            '  ROOT c = f32[4] custom-call(t), custom_call_target="f"\n}\n'
        )

    same = diff(program("tanh", "f32[4]"), program("sine", "f32[4]"))
    assert [(c.a.opcode, c.b.opcode) for c in same.changed] == [("tanh", "sine")]
    other = diff(program("tanh", "f32[4]"), program("convert", "bf16[4]"))
    assert not other.changed
    assert [i.opcode for i in other.removed] == ["tanh"]
    assert [i.opcode for i in other.added] == ["convert"]
