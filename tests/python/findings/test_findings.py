"""Each finding on a program made for it, and silent on its healthy twin."""

from __future__ import annotations

import importlib.util
import json
from functools import partial

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from advice_pairs import PAIRS
from findings_programs import CASES
from hloscope.analysis.findings.rules import RULES
from hloscope.hlo import StackFrame
from hloscope.hlo.texts.places import own_line

ALLREDUCE = """
%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(%a, %b)
}
"""


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.rule)
def test_a_finding_is_on_its_program_and_not_on_the_twin(case):
    if case.platform == "tpu" and importlib.util.find_spec("libtpu") is None:
        pytest.skip('libtpu is not installed (pip install "hloscope[tpu]")')
    found = case.ill().findings
    assert found.failed == ()
    rows = found.of(case.rule)
    assert rows, [f.rule for f in found]
    assert any(case.says in f.title + f.evidence for f in rows), [str(f) for f in rows]
    healthy = case.healthy().findings
    assert healthy.failed == ()
    assert healthy.of(case.rule) == ()


def module(body: str, header: str = "", before: str = "") -> hs.Capture:
    text = f"HloModule m, is_scheduled=true{header}\n{before}\nENTRY %main {body}\n"
    cap = hs.read(text)
    assert cap.warnings == ()
    cap.hardware = "tpu-v5e"
    return cap


def rules(cap: hs.Capture) -> set[str]:
    assert cap.findings.failed == ()
    return {f.rule for f in cap.findings}


SLICED = """(x: f32[1024,1024]) -> f32[{n},1024] {{
  %x = f32[1024,1024]{{1,0}} parameter(0)
  %reduced = f32[1024,1024]{{1,0}} all-reduce(%x), channel_id=1, replica_groups=[1,8]<=[8], use_global_device_ids=true, to_apply=%sum, metadata={{op_name="jit(f)/psum"}}
  %id = u32[] partition-id()
  %at = s32[] convert(%id)
  %zero = s32[] constant(0)
  ROOT %part = f32[{n},1024]{{1,0}} dynamic-slice(%reduced, %{at}, %zero), dynamic_slice_sizes={{{n},1024}}
}}"""  # noqa: E501


def test_a_reduce_that_is_cut_by_device_could_be_a_reduce_scatter():
    header = ", num_partitions=8"
    ill = module(SLICED.format(n=128, at="at"), header, ALLREDUCE)
    assert "reduced-then-sliced" in rules(ill)
    row = ill.findings.of("reduced-then-sliced")[0]
    assert row.bytes == ill.collectives[0].wire_bytes // 2
    healthy = module(SLICED.format(n=128, at="zero"), header, ALLREDUCE)
    assert "reduced-then-sliced" not in rules(healthy)


def small_reduces(chained: bool) -> hs.Capture:
    lines = [f"  %p{k} = f32[64]{{0}} parameter({k})" for k in range(10)]
    for k in range(10):
        operand = f"%r{k - 1}" if chained and k else f"%p{k}"
        lines.append(
            f"  %r{k} = f32[64]{{0}} all-reduce({operand}), channel_id={k + 1},"
            " replica_groups=[1,8]<=[8], use_global_device_ids=true, to_apply=%sum"
        )
    names = ", ".join(f"%r{k}" for k in range(10))
    shapes = ", ".join(["f32[64]{0}"] * 10)
    lines.append(f"  ROOT %out = ({shapes}) tuple({names})")
    inputs = ", ".join(f"p{k}: f32[64]" for k in range(10))
    outputs = ", ".join(["f32[64]"] * 10)
    body = f"({inputs}) -> ({outputs}) {{\n" + "\n".join(lines) + "\n}"
    return module(body, ", num_partitions=8", ALLREDUCE)


def test_small_collectives_are_counted_only_where_none_needs_another():
    found = small_reduces(chained=False).findings.of("tiny-collectives")
    assert len(found) == 1
    assert found[0].title.startswith("10 all-reduces")
    assert "tiny-collectives" not in rules(small_reduces(chained=True))


CONVERTED = """({inputs}) -> f32[] {{
{parameters}
{converts}
  ROOT %out = f32[] custom-call({names}), custom_call_target="use"
}}"""


def converted(after: str) -> hs.Capture:
    n = range(4)
    return module(
        CONVERTED.format(
            inputs=", ".join(f"p{k}: f32[1024,1024]" for k in n),
            parameters="\n".join(f"  %p{k} = f32[1024,1024]{{1,0}} parameter({k})" for k in n),
            converts="\n".join(
                f"  %c{k} = {after}[1024,1024]{{1,0}} convert(%p{k})"
                if after != "f32"
                else f"  %c{k} = f32[1024,1024]{{1,0}} negate(%p{k})"
                for k in n
            ),
            names=", ".join(f"%c{k}" for k in n),
        )
    )


def test_whole_arguments_converted_each_step():
    found = converted("bf16").findings.of("repeated-converts")
    assert len(found) == 1
    assert "from f32 to bf16 (arguments)" in found[0].title
    assert "repeated-converts" not in rules(converted("f32"))


def test_what_is_narrowed_to_be_sent_is_no_finding():
    gathered = (
        "  %g{0} = bf16[8192,1024]{{1,0}} all-gather(%c{0}), channel_id={0}, dimensions={{0}},"
        " replica_groups=[1,8]<=[8], use_global_device_ids=true"
    )
    n = range(1, 5)
    text = converted("bf16").text
    sent = "\n".join(gathered.format(k) for k in n).replace("%c4", "%c0")
    text = text.replace("  ROOT %out", sent + "\n  ROOT %out")
    at = text.rpartition("custom-call(")[0]
    names = ", ".join(f"%g{k}" for k in n)
    cap = hs.read(at + f'custom-call({names}), custom_call_target="use"\n}}\n')
    cap.hardware = "tpu-v5e"
    assert sum(i.opcode == "all-gather" for i in cap.module.instructions) == 4
    assert "repeated-converts" not in rules(cap)


PADDED = """(x: f32[{shape}]) -> f32[{shape}] {{
  %x = f32[{shape}]{{1,0:T(8,128)}} parameter(0)
  ROOT %y = f32[{shape}]{{1,0:T(8,128)}} sine(%x)
}}"""


def test_padding_is_said_with_the_array_that_has_most():
    found = module(PADDED.format(shape="1048576,2")).findings.of("padding")
    assert len(found) == 1
    assert "1048576,2" in found[0].evidence
    assert "padding" not in rules(module(PADDED.format(shape="1024,128")))


def test_every_rule_has_a_test(request):
    programs = request.path.parents[1] / "helpers" / "findings_programs.py"
    here = request.path.read_text() + programs.read_text()
    elsewhere = {"full-rematerialization"}  # test_compiler_messages.py provokes one
    elsewhere |= {pair.rule for pair in PAIRS} | {"whole-copies"}  # test_copies.py
    elsewhere |= {"batched-branches", "narrow-copies"}  # test_work.py
    for name, *_ in RULES:
        assert f'"{name}"' in here or name in elsewhere, name


def test_before_xla_has_run_only_what_is_certain_is_said():
    cap = hs.read(
        "HloModule m\n\nENTRY %main (x: f32[4096,4096]) -> f32[4096,4096] {\n"
        "  %x = f32[4096,4096]{1,0} parameter(0)\n"
        "  %t = f32[4096,4096]{1,0} transpose(%x), dimensions={1,0}\n"
        "  ROOT %c = f32[4096,4096]{0,1} copy(%t)\n}\n"
    )
    cap.hardware = "h100"
    assert len(cap.findings) == 0
    assert cap.findings.headline.seconds is None
    assert str(cap.findings).startswith("not optimised yet: no step time")


def test_what_is_no_program_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="findings need HLO, and this is jaxpr"):
        _ = hs.capture(lambda x: x + 1, 1.0).at("jaxpr").findings
    with pytest.raises(ValueError, match="no rule 'gathered'; there are: exposed-collective"):
        hs.capture(lambda x: x + 1, 1.0).findings.of("gathered")


def test_a_rule_that_fails_is_named_and_the_others_stand(monkeypatch):
    from hloscope.analysis.findings import rules as module_of_rules

    def broken(facts):
        raise RuntimeError("on purpose")

    cap = hs.capture(jax.jit(lambda x: jax.debug.print("{x}", x=x)), jnp.ones(4))
    monkeypatch.setattr(
        module_of_rules, "RULES", (("broken", broken, False), *module_of_rules.RULES)
    )
    assert cap.findings.failed == ("broken: RuntimeError: on purpose",)
    assert [f.rule for f in cap.findings] == ["host-callback"]
    assert "not worked out: broken: RuntimeError: on purpose" in str(cap.findings)


def test_findings_are_plain_data_and_a_budget():
    cap = next(c for c in CASES if c.rule == "host-callback").ill()
    plain = json.loads(json.dumps(cap.findings.to_dict()))
    assert plain["rows"][0]["rule"] == "host-callback"
    assert plain["rows"][0]["line"].partition(":")[0].endswith("findings_programs.py")
    assert plain["rows"][0]["code"].startswith("jax.debug.print")
    assert cap.summary["findings"][0]["rule"] == "host-callback"
    assert "1. The step calls back into the host" in str(cap)
    report = hs.check(cap, forbid=["host-callback"])
    assert report.status == 1
    assert report.breaches[0].line > 0
    assert hs.check(cap, forbid="gathered-twice").status == 0
    assert hs.check(cap, forbid="findings").status == 1
    assert (
        hs.check(cap, forbid="gatherd-twice")
        .problems[0]
        .message.endswith("did you mean gathered-twice?")
    )


def test_the_command_says_them(tmp_path, capsys):
    from hloscope.show.cli import main

    cap = next(c for c in CASES if c.rule == "host-callback").ill()
    file = tmp_path / "step.hlo"
    file.write_text(cap.text)
    assert main(["findings", str(file)]) == 0
    out = capsys.readouterr().out
    assert "1. The step calls back into the host" in out
    assert "Try: " in out
    assert main(["findings", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["rule"] == "host-callback"


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("train.py", "    at train.py:7"),
        ("/env/lib/python3.9/site-packages/flax/core/lift.py", "    at Net/embed · /env/lib"),
        ("/usr/lib/python3.11/functools.py", "    at Net/embed · /usr/lib"),
        ("", "    at Net/embed"),
    ],
)
def test_where_only_a_library_has_a_line_the_scope_is_said(file, said):
    place = f' source_file="{file}" source_line=7' if file else ""
    op = f'metadata={{op_name="jit(f)/transpose(jvp(Net))/jit(embed)/dot_general"{place}}}'
    text = (WIDENED % "f32").replace(
        "rhs_contracting_dims={0},", f"rhs_contracting_dims={{0}}, {op},"
    )
    cap = hs.read(text)
    cap.hardware = "h100"
    (found,) = cap.findings.of("wide-matmul")
    assert f"\n{said}" in str(found)
    assert found.to_dict()["scope"] == (None if file == "train.py" else "Net/embed")


def test_which_line_is_the_person_s_is_decided_in_one_place(repo):
    package = repo / "python" / "hloscope"
    knowing = [p for p in package.rglob("*.py") if "site-packages" in p.read_text()]
    assert {p.name for p in knowing} == {"places.py", "python_sources.py"}
    stack = tuple(StackFrame(f, 7) for f in ("/usr/lib/python3.11/contextlib.py", "train.py"))
    assert own_line(stack) == stack[1]
    assert own_line(stack[:1]) == stack[0]
    assert own_line(()) is None


def test_real_dumps_say_what_is_true_of_them(seeds):
    step = hs.read(next(seeds.glob("004_*")))
    twice = step.findings.of("reduced-twice")
    assert len(twice) == 1
    assert "12.5 MiB of 43.3 MiB of" in twice[0].title
    layer = hs.read(next(seeds.glob("000_*")))
    constant = layer.findings.of("collective-of-constant")
    assert [f.instructions[0].opcode for f in constant] == ["all-to-all"]
    assert constant[0].bytes == 50_331_648


def test_what_xla_merged_with_the_forward_pass_is_not_computed_again():
    """On CPU nothing keeps the copies of unrolled layers apart: the program has none."""

    def block(x, w):
        return jnp.tanh(x @ w) @ w.T

    def loss(params, x, remat):
        for w in params:
            x = (jax.checkpoint(block) if remat else block)(x, w)
        return (x * x).sum()

    params = [jax.ShapeDtypeStruct((256, 512), jnp.float32)] * 4
    x = jax.ShapeDtypeStruct((64, 256), jnp.float32)
    both = [hs.capture(jax.jit(jax.grad(partial(loss, remat=r))), params, x) for r in (True, False)]
    again, once = (sum(i.opcode == "dot" for i in c.module.instructions) for c in both)
    if again != once:
        pytest.skip(f"the XLA of jax {jax.__version__} keeps what is computed again")
    assert not both[0].findings.of("rematerialisation")


def test_what_a_rollout_collects_is_no_residual():
    def step(weights, state):
        def act(state, _):
            return jnp.tanh(state @ weights), state

        last, seen = jax.lax.scan(act, state, None, length=64)
        loss = lambda w: (jnp.tanh(seen.reshape(-1, 256) @ w) ** 2).mean()  # noqa: E731
        return weights - jax.grad(loss)(weights), last

    shapes = [jax.ShapeDtypeStruct((256, 256), jnp.float32)] * 2
    cap = hs.capture(jax.jit(step), *shapes)
    assert not cap.findings.of("residuals")


def test_two_sums_of_scalars_are_no_finding_beside_what_else_is_sent():
    body = """(x: f32[1024,1024], a: f32[], b: f32[]) -> (f32[1024,1024], f32[]) {
  %x = f32[1024,1024] parameter(0)
  %a = f32[] parameter(1)
  %b = f32[] parameter(2)
  %large = f32[1024,1024] all-reduce(%x), replica_groups={{0,1,2,3}}, to_apply=%sum
  %one = f32[] all-reduce(%a), replica_groups={{0,1,2,3}}, to_apply=%sum
  %two = f32[] all-reduce(%b), replica_groups={{0,1,2,3}}, to_apply=%sum
  %both = f32[] add(%one, %two)
  ROOT %out = (f32[1024,1024], f32[]) tuple(%large, %both)
}"""
    alone = body.replace("1024,1024", "")
    assert "reduced-twice" not in rules(module(body, ", num_partitions=4", ALLREDUCE))
    assert "reduced-twice" in rules(module(alone, ", num_partitions=4", ALLREDUCE))


def test_what_needs_the_optimised_program_is_said_to_be_unasked():
    text = "HloModule m\nENTRY main {\n  x = f32[8] parameter(0)\n  ROOT y = f32[8] tanh(x)\n}\n"
    found = hs.read(text).findings
    assert "exposed-collective" in found.unasked
    assert "large-constant" not in found.unasked
    asked = len(found.rules) - len(found.unasked)
    assert f"{asked} rules ran, and none applied" in str(found)
    assert f"{len(found.unasked)} rules need the optimised program" in str(found)
    assert (
        module("(x: f32[8]) -> f32[8] {\n  ROOT %x = f32[8]{0} parameter(0)\n}").findings.unasked
        == ()
    )


WIDENED = """HloModule m, is_scheduled=true
ENTRY main {
  w = %s[1024,1024]{1,0} parameter(0)
  x = f32[1024,1024]{1,0} parameter(1)
  wide = f32[1024,1024]{1,0} convert(w)
  ROOT out = f32[1024,1024]{1,0} dot(x, wide), lhs_contracting_dims={1}, rhs_contracting_dims={0}, backend_config={"outer_dimension_partitions":["2"]}
}
"""  # noqa: E501


def test_types_that_the_cpu_compiler_chose_are_no_finding_on_another_chip():
    def found(text):
        cap = hs.read(text)
        cap.hardware = "h100"
        return rules(cap)

    assert "wide-matmul" in found(WIDENED % "f32")
    assert not found(WIDENED % "bf16") & {"wide-matmul", "repeated-converts"}
    # compiled for a GPU the same is a choice of the program
    gpu = WIDENED.replace('{"outer_dimension_partitions":["2"]}', "{}")
    assert "wide-matmul" in found(gpu % "bf16")


def test_matmuls_of_few_rows_are_one_finding():
    rows = [
        f"  w{k} = bf16[{n},2048]{{1,0}} parameter({k + 1})\n"
        f"  d{k} = bf16[8,{n}]{{1,0}} dot(x, w{k}), lhs_contracting_dims={{1}},"
        " rhs_contracting_dims={1}"
        for k, n in enumerate((4096, 8192, 4096))
    ]
    text = "HloModule m, is_scheduled=true\nENTRY main {\n  x = bf16[8,2048]{1,0} parameter(0)\n"
    text += (
        "\n".join(rows) + "\n  ROOT out = (bf16[8,4096]{1,0}, bf16[8,8192]{1,0}) tuple(d0, d1)\n}\n"
    )
    cap = hs.read(text)
    cap.hardware = "tpu-v5e"
    (one,) = cap.findings.of("idle-matmul")
    assert one.title.startswith("3 matmuls of 8 rows")


LOOP = """
%body (p: (s32[], f32[1024,1024], f32[1024,1024])) -> (s32[], f32[1024,1024], f32[1024,1024]) {{
  %p = (s32[], f32[1024,1024]{{1,0}}, f32[1024,1024]{{1,0}}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %total = f32[1024,1024]{{1,0}} get-tuple-element(%p), index=1
  %x = f32[1024,1024]{{1,0}} get-tuple-element(%p), index=2
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %g = f32[1024,1024]{{1,0}} tanh(%{of})
  %s = f32[1024,1024]{{1,0}} all-reduce(%g), channel_id=1, replica_groups=[1,8]<=[8], use_global_device_ids=true, to_apply=%sum
  %new = f32[1024,1024]{{1,0}} add(%total, %s)
  ROOT %t = (s32[], f32[1024,1024]{{1,0}}, f32[1024,1024]{{1,0}}) tuple(%next, %new, %x)
}}
%condition (p: (s32[], f32[1024,1024], f32[1024,1024])) -> pred[] {{
  %p = (s32[], f32[1024,1024]{{1,0}}, f32[1024,1024]{{1,0}}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %many = s32[] constant(8)
  ROOT %less = pred[] compare(%i, %many), direction=LT
}}
"""  # noqa: E501
LOOPED = """(x: f32[1024,1024], z: f32[1024,1024]) -> f32[1024,1024] {
  %x = f32[1024,1024]{1,0} parameter(0)
  %z = f32[1024,1024]{1,0} parameter(1)
  %zero = s32[] constant(0)
  %begin = (s32[], f32[1024,1024]{1,0}, f32[1024,1024]{1,0}) tuple(%zero, %z, %x)
  %loop = (s32[], f32[1024,1024]{1,0}, f32[1024,1024]{1,0}) while(%begin), condition=%condition, body=%body
  ROOT %sum.1 = f32[1024,1024]{1,0} get-tuple-element(%loop), index=1
}"""  # noqa: E501


def test_sums_that_a_loop_only_adds_up_could_wait_for_its_end():
    def said(of: str) -> str:
        before = ALLREDUCE + LOOP.format(of=of)
        (one,) = module(LOOPED, ", num_partitions=8", before).findings.of("exposed-collective")
        return one.advice

    assert "once, after the loop" in said("x")
    # each step needs the sum of the one before
    assert "after the loop" not in said("total")


def test_the_line_of_a_wait_is_the_one_that_waits_longest_in_all():
    def sent(name: str, rows: int, line: int) -> str:
        return (
            f"  %{name}.p = f32[{rows},1024]{{1,0}} parameter({name[1:]})\n"
            f"  %{name} = f32[{rows},1024]{{1,0}} all-reduce(%{name}.p), channel_id={name[1:]}1,"
            " replica_groups=[1,8]<=[8], use_global_device_ids=true, to_apply=%sum, metadata={"
            f'op_name="jit(f)/jvp()/mul" source_file="/m/model.py" source_line={line}}}\n'
        )

    lines = [sent("g0", 2048, 3), *(sent(f"g{k}", 1024, 7) for k in (1, 2, 3))]
    body = "(...) -> (f32[2048,1024], f32[1024,1024], f32[1024,1024], f32[1024,1024]) {\n"
    body = body.replace("...", "a: f32[2048,1024], b: f32[1024,1024], c: f32[1024,1024], d:"
                        " f32[1024,1024]")  # fmt: skip
    body += "".join(lines) + "  ROOT %out = (f32[2048,1024]{1,0}, f32[1024,1024]{1,0},"
    body += " f32[1024,1024]{1,0}, f32[1024,1024]{1,0}) tuple(%g0, %g1, %g2, %g3)\n}"
    (one,) = module(body, ", num_partitions=8", ALLREDUCE).findings.of("exposed-collective")
    assert one.frame is not None
    assert one.frame.line == 7
    assert "% at model.py:7, " in one.evidence
    assert "the longest is %g0" in one.evidence


def test_latency_and_bytes_are_told_apart():
    body = """(a: f32[], x: f32[2048,2048]) -> (f32[], f32[2048,2048]) {
  %a = f32[] parameter(0)
  %x = f32[2048,2048]{1,0} parameter(1)
  %s = f32[] all-reduce(%a), channel_id=1, replica_groups=[1,8]<=[8], use_global_device_ids=true, to_apply=%sum
  %g = f32[2048,2048]{1,0} all-reduce(%x), channel_id=2, replica_groups=[1,8]<=[8], use_global_device_ids=true, to_apply=%sum
  ROOT %out = (f32[], f32[2048,2048]{1,0}) tuple(%s, %g)
}"""  # noqa: E501
    (one,) = module(body, ", num_partitions=8", ALLREDUCE).findings.of("exposed-collective")
    assert [i.name for i in one.instructions] == ["g"]


def test_how_the_compiler_spells_a_fourier_transform_is_nobodys_choice():
    body = """(x: f32[1024,1024], w: f32[1024,1024]) -> f32[1024,1024] {{
  %x = f32[1024,1024]{{1,0}} parameter(0)
  %w = f32[1024,1024]{{1,0}} parameter(1)
  ROOT %d = f32[1024,1024]{{1,0}} dot(%x, %w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, operand_precision={{highest,highest}}, metadata={{op_name="jit(f)/{}"}}
}}"""  # noqa: E501
    assert "wide-matmul" in rules(module(body.format("layer/dot_general")))
    assert "wide-matmul" not in rules(module(body.format("jit(fft)")))
    assert "wide-matmul" not in rules(module(body.format("solver/triangular_solve")))
    # JAX's own linear algebra asks for the highest precision, and so does what XLA makes of a solve
    assert "wide-matmul" not in rules(module(body.format("step/jit(lu_factor)/dot_general")))
    assert "wide-matmul" not in rules(module(body.format("step/jit(expm)/dot_general")))


def test_what_a_constant_takes_on_the_wire_is_said_once(seeds):
    cap = hs.read(next(seeds.glob("000_*")))
    cap.hardware = "h100"
    said = [f for f in cap.findings if any("all-to-all" in i.opcode for i in f.instructions)]
    assert [f.rule for f in said] == ["collective-of-constant"]


def test_the_zeros_that_a_windowed_sum_begins_with_are_no_constant_on_the_wire():
    ring = "source_target_pairs={{0,1},{1,2},{2,3},{3,0}}"
    spmd = 'frontend_attributes={is_spmd_generated="true"}, metadata={op_name="jit(f)/dot_general"}'
    dot = "dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, " + spmd[48:]
    text = f"""HloModule jit_f, is_scheduled=true, num_partitions=4

ENTRY %main (x: f32[512,512], w: f32[512,512]) -> f32[512,512] {{
  %x = f32[512,512] parameter(0)
  %w = f32[512,512] parameter(1)
  %zero = f32[] constant(0)
  %zeros = f32[512,512] broadcast(%zero), dimensions={{}}
  %got.0 = f32[512,512] collective-permute(%zeros), channel_id=1, {ring}, {spmd}
  %part.0 = f32[512,512] {dot}
  %sum.0 = f32[512,512] add(%got.0, %part.0)
  %got.1 = f32[512,512] collective-permute(SECOND), channel_id=2, {ring}, {spmd}
  %part.1 = f32[512,512] {dot}
  ROOT %sum.1 = f32[512,512] add(%got.1, %part.1)
}}
"""
    for second, kinds, said in (
        ("%sum.0", ["collective-matmul"], False),
        ("%zeros", ["collective-permute"] * 2, True),
    ):
        cap = hs.read(text.replace("SECOND", second), hardware="tpu-v5e")
        assert [r.kind for r in cap.collectives] == kinds
        assert bool(cap.findings.of("collective-of-constant")) is said


def test_what_is_slow_to_compile_is_said_with_its_line_and_the_time_that_xla_measured():
    (found,) = (
        next(c for c in CASES if c.rule == "slow-to-compile").ill().findings.of("slow-to-compile")
    )
    assert found.code == "return x + jnp.bincount(jnp.zeros(50, jnp.int32), length=1)[0]"
    assert "%scatter.1 = s32[1]{0} scatter(%a, %b, %c) (measured by XLA" in found.evidence
    assert "~" not in found.title + found.evidence
