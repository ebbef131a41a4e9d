"""The diff: empty for the same program however it is written, exact for a known edit."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import hloscope as hs
import numpy
import pytest
from hloscope.analysis.diff.page import page as tables_page
from hloscope.show.cli import main

CALLED = (
    "calls|to_apply|body|condition|true_computation|false_computation|select|scatter|comparator"
)


def renamed_and_reordered(cap: hs.Capture, seed: int) -> hs.Capture:
    """The same program with other names, in another (still valid) order, without metadata."""
    shuffle = random.Random(seed)
    numbers = list(range(len(cap.module.instructions)))
    shuffle.shuffle(numbers)
    names = {i.index: f"v{numbers[k]}" for k, i in enumerate(cap.module.instructions)}
    computations = {c.name: f"c{k}x{seed}" for k, c in enumerate(cap.module.computations)}

    def rename_called(text: str) -> str:
        text = re.sub(
            rf"\b({CALLED})=%?([\w.-]+)",
            lambda m: f"{m[1]}=%{computations.get(m[2], m[2])}",
            text,
        )
        return re.sub(
            r"\b(branch_computations|called_computations)=\{([^}]*)\}",
            lambda m: (
                f"{m[1]}={{"
                + ", ".join(
                    f"%{computations[n.strip().lstrip('%')]}" for n in m[2].split(",") if n.strip()
                )
                + "}"
            ),
            text,
        )

    out = [re.sub(r"is_scheduled=true, ", "", cap.text.split("\n", 1)[0]), ""]
    for c in cap.module.computations:
        left = list(c.instructions)
        done: set[int] = set()
        lines = []
        while left:
            ready = [i for i in left if all(o.index in done for o in i.operands)]
            i = shuffle.choice(ready)
            left.remove(i)
            done.add(i.index)
            arguments = ", ".join(f"%{names[o.index]}" for o in i.operands)
            if not i.operands:
                arguments = i.argument_text
            keep = ", ".join(
                f"{k}={v}" if v else k
                for k, v in i.attributes.items()
                if k not in ("metadata", "control-predecessors")
            )
            root = "ROOT " if i.is_root else ""
            line = f"  {root}%{names[i.index]} = {i.shape.text} {i.opcode}({arguments})"
            lines.append(line + (f", {rename_called(keep)}" if keep else ""))
        entry = "ENTRY " if c.is_entry else ""
        out += [f"{entry}%{computations[c.name]} () -> f32[] {{", *lines, "}", ""]
    return hs.read("\n".join(out))


@pytest.fixture(scope="module")
def step() -> hs.Capture:
    kept = Path(__file__).resolve().parents[2] / "golden" / "programs" / "moe_einsum.hlo.gz"
    return hs.read(hs.read(kept).text)


def test_a_module_against_itself_is_empty(step: hs.Capture) -> None:
    found = hs.diff(step, hs.read(step.text))
    assert not found
    assert found.matched == len(step.module.instructions)
    assert (found.removed, found.added, found.changed) == ((), (), ())
    assert (found.opcodes, found.collectives, found.memory) == ((), (), ())
    assert "no difference" in str(found)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_against_a_renamed_and_reordered_copy_is_empty(step: hs.Capture, seed: int) -> None:
    other = renamed_and_reordered(step, seed)
    assert len(other.module.instructions) == len(step.module.instructions)
    ours = {i.name for i in step.module.instructions}
    assert not ours & {i.name for i in other.module.instructions}
    found = hs.diff(step, other)
    assert found.matched == len(step.module.instructions)
    assert (found.removed, found.added, found.changed) == ((), (), ())


def edited(cap: hs.Capture, old: str, new: str) -> hs.Capture:
    """The program with the one line that matches ``old`` replaced, everything renamed."""
    text, count = re.subn(old, new, cap.text, count=1)
    assert count == 1
    return renamed_and_reordered(hs.read(text), 7)


def test_one_opcode_replaced_is_that_one_change() -> None:
    a = hs.read(CHAIN)
    b = edited(a, r"tanh\(%dot\.1\)", "logistic(%dot.1)")
    found = hs.diff(a, b)
    assert (found.removed, found.added) == ((), ())
    [change] = found.changed
    assert change.a.name == "act.1"
    assert change.fields == (("opcode", "tanh", "logistic"),)


def test_one_attribute_replaced_is_that_one_change() -> None:
    a = hs.read(CHAIN)
    found = hs.diff(
        a, edited(a, r"(dot\.2 .*)lhs_contracting_dims=\{1\}", r"\g<1>lhs_contracting_dims={0}")
    )
    assert (found.removed, found.added) == ((), ())
    [change] = found.changed
    assert change.fields == (("lhs_contracting_dims", "{1}", "{0}"),)


def test_one_instruction_inserted_is_that_one_addition() -> None:
    a = hs.read(CHAIN)
    b = edited(
        a,
        r"(  %dot\.2 = .*)%act\.1,",
        r"  %extra = f32[8,8]{1,0} negate(%act.1)\n\g<1>%extra,",
    )
    found = hs.diff(a, b)
    assert (found.removed, found.changed) == ((), ())
    assert [i.opcode for i in found.added] == ["negate"]
    back = hs.diff(b, a)
    assert (back.added, back.changed) == ((), ())
    assert [i.opcode for i in back.removed] == ["negate"]


def test_swapped_operands_are_one_change() -> None:
    a = hs.read(CHAIN)
    found = hs.diff(a, edited(a, r"subtract\(%dot\.2, %p\)", "subtract(%p, %dot.2)"))
    assert (found.removed, found.added) == ((), ())
    assert [[f[0] for f in c.fields] for c in found.changed] == [["operands"]]


def test_a_change_inside_a_fusion_is_found_there() -> None:
    a = hs.read(CHAIN)
    found = hs.diff(a, edited(a, r"exponential\(%q\)", "sine(%q)"))
    [change] = found.changed
    assert change.a.computation == "fused"
    assert change.fields == (("opcode", "exponential", "sine"),)
    assert (found.removed, found.added) == ((), ())


CHAIN = """HloModule chain

%fused (q: f32[8,8]) -> f32[8,8] {
  %q = f32[8,8]{1,0} parameter(0)
  %exp.1 = f32[8,8]{1,0} exponential(%q)
  ROOT %mul.1 = f32[8,8]{1,0} multiply(%exp.1, %q)
}

ENTRY %main (p: f32[8,8], w: f32[8,8]) -> f32[8,8] {
  %p = f32[8,8]{1,0} parameter(0)
  %w = f32[8,8]{1,0} parameter(1)
  %dot.1 = f32[8,8]{1,0} dot(%p, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %act.1 = f32[8,8]{1,0} tanh(%dot.1), metadata={op_name="f" source_file="train.py" source_line=7}
  %dot.2 = f32[8,8]{1,0} dot(%act.1, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %sub.1 = f32[8,8]{1,0} subtract(%dot.2, %p)
  %fusion = f32[8,8]{1,0} fusion(%sub.1), kind=kLoop, calls=%fused
  ROOT %dot.3 = f32[8,8]{1,0} dot(%fusion, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.fixture(scope="module")
def constrained() -> tuple[hs.Capture, hs.Capture]:
    """One layer compiled twice: hidden sharded over the model axis, and replicated there."""
    jax = pytest.importorskip("jax", reason="jax is not installed")
    from jax.sharding import NamedSharding, PartitionSpec

    devices = numpy.array(jax.devices()[:8]).reshape(2, 4)
    mesh = jax.sharding.Mesh(devices, ("data", "model"))

    def put(*spec: Any) -> Any:
        return NamedSharding(mesh, PartitionSpec(*spec))

    def made(hidden: Any) -> hs.Capture:
        def layer(x: Any, w: Any, v: Any) -> Any:
            h = jax.lax.with_sharding_constraint(jax.numpy.tanh(x @ w), hidden)
            return h @ v

        shapes = [((16, 64), put("data", None)), ((64, 256), put(None, "model"))]
        shapes.append(((256, 64), put("model", None)))
        args = [jax.ShapeDtypeStruct(s, "float32", sharding=p) for s, p in shapes]
        return hs.capture(jax.jit(layer, out_shardings=put("data", None)), *args)

    return made(put("data", "model")), made(put("data", None))


def test_a_sharding_constraint_shows_the_collective_it_makes(
    constrained: tuple[hs.Capture, hs.Capture],
) -> None:
    found = hs.diff(*constrained)
    gathers = [c for c in found.added_collectives if c.kind == "all-gather"]
    assert [c.axes for c in gathers] == ["model"]
    assert not [c for c in found.removed_collectives if c.kind == "all-gather"]
    assert "all-gather" in {i.opcode for i in found.added}
    assert any(d.name.startswith("all-gather over model") for d in found.collectives)


def test_groups_are_the_same_in_any_spelling() -> None:
    text = """HloModule m, num_partitions=8

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %ab = f32[] add(%a, %b)
}

ENTRY %e (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  ROOT %r = f32[8]{0} all-reduce(%x), channel_id=1, replica_groups=GROUPS, use_global_device_ids=true, to_apply=%sum
}
"""  # noqa: E501
    spelled = ["{{0,4},{1,5},{2,6},{3,7}}", "[4,2]<=[2,4]T(1,0)", "mesh['a'=2,'b'=4] {'a'}"]
    one, *others = [hs.read(text.replace("GROUPS", s)) for s in spelled]
    for other in others:
        assert not hs.diff(one, other)
    found = hs.diff(one, hs.read(text.replace("GROUPS", "mesh['a'=2,'b'=4] {'b'}")))
    [change] = found.changed
    assert change.fields == (("replica_groups", spelled[0], "{{0,1,2,3},{4,5,6,7}}"),)


def test_collectives_that_are_alike_are_one_line() -> None:
    def program(count: int) -> str:
        reduced = "".join(
            f"  %r{k} = f32[8]{{0}} all-reduce(%x), channel_id={k + 1}, "
            "replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%sum\n"
            for k in range(count)
        )
        names = ", ".join(f"%r{k}" for k in range(count))
        types = ", ".join(["f32[8]{0}"] * count)
        return (
            "HloModule m, num_partitions=2\n\n%sum (a: f32[], b: f32[]) -> f32[] {\n"
            "  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n"
            "  ROOT %ab = f32[] add(%a, %b)\n}\n\nENTRY %e (x: f32[8]) -> f32[8] {\n"
            f"  %x = f32[8]{{0}} parameter(0)\n{reduced}  ROOT %t = ({types}) tuple({names})\n}}\n"
        )

    found = hs.diff(hs.read(program(1)), hs.read(program(4)))
    assert len(found.added_collectives) == 3
    assert ": 3 alike, each 32 B, 32 B on the wire" in str(found)
    assert '<td class="n">3</td><td>all-reduce</td>' in found.html()


def exchanged(rows: int, axis: str = "{{0,1},{2,3}}") -> hs.Capture:
    """Two layers of dot, tanh and all-to-all of ``rows`` rows, all of other sizes each time."""
    lines, at = [], "%x"
    for k in range(2):
        lines += [
            f"  %d{k} = f32[{rows},64]{{1,0}} dot({at}, %w), lhs_contracting_dims={{1}}, "
            "rhs_contracting_dims={0}",
            f"  %t{k} = f32[{rows},64]{{1,0}} tanh(%d{k})",
            f"  %a{k} = f32[{rows},64]{{1,0}} all-to-all(%t{k}), channel_id={k + 1}, "
            f'replica_groups={axis}, dimensions={{0}}, metadata={{op_name="e" '
            f'source_file="moe.py" source_line={10 + k}}}',
        ]
        at = f"%a{k}"
    body = "\n".join(lines)
    return hs.read(
        f"""HloModule m, is_scheduled=true, num_partitions=4

ENTRY %main (x: f32[{rows},64], w: f32[64,64]) -> f32[{rows},64] {{
  %x = f32[{rows},64]{{1,0}} parameter(0)
  %w = f32[64,64]{{1,0}} parameter(1)
{body}
  ROOT %r = f32[{rows},64]{{1,0}} negate({at})
}}
"""
    )


def test_a_collective_of_another_size_changed_and_is_neither_removed_nor_added() -> None:
    found = hs.diff(exchanged(32), exchanged(64))
    assert (found.removed, found.added) == ((), ())
    assert (found.removed_collectives, found.added_collectives) == ((), ())
    assert [(c.a.payload_bytes, c.b.payload_bytes) for c in found.changed_collectives] == [
        (8192, 16384),
        (8192, 16384),
    ]
    assert [c.a.line for c in found.changed_collectives] == ["moe.py:10", "moe.py:11"]
    said = str(found)
    assert "0 removed, 0 added" in said
    assert "only in" not in said
    assert "8 KiB → 16 KiB, 4 KiB → 8 KiB on the wire  moe.py:10" in said
    page = tables_page(found)
    assert "Collectives that changed" in page
    assert "on one side only" not in page


def test_a_collective_over_other_devices_changed() -> None:
    found = hs.diff(exchanged(32), exchanged(32, axis="{{0,1,2,3}}"))
    assert (found.removed_collectives, found.added_collectives) == ((), ())
    (first, _) = found.changed_collectives
    assert first.a.axes != first.b.axes
    assert first.b.axes in str(found)


def test_layers_that_only_changed_their_size_are_matched_in_order() -> None:
    """Each opcode and op_name is there twice, and no hash of a value is equal."""
    found = hs.diff(exchanged(32), exchanged(96))
    assert {c.a.name: c.b.name for c in found.changed if c.a.opcode == "tanh"} == {
        "t0": "t0",
        "t1": "t1",
    }


def test_the_page_runs_nothing_and_escapes_names(tmp_path: Path) -> None:
    bad = '<img src=x onerror="alert(1)">'
    named = CHAIN.replace("train.py", bad.replace('"', '\\"'))
    page = hs.diff(hs.read(named), hs.read(named.replace("tanh(", "cosine("))).html()
    assert "onerror" in page
    assert "<img" not in page
    assert "alert(1)" not in re.sub(r"&lt;img[^<>]*&gt;", "", page)
    assert "default-src 'none'" in page
    assert "unsafe" not in page
    bare = tables_page(hs.diff(hs.read(named), hs.read(named.replace("tanh(", "cosine("))))
    assert "onerror" in bare
    assert "<script" not in bare
    assert "<img" not in bare
    saved = hs.diff(hs.read(CHAIN), hs.read(CHAIN)).to_html(tmp_path / "d.html")
    assert "No difference" in Path(saved).read_text()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = tmp_path / "a.hlo", tmp_path / "b.hlo"
    a.write_text(CHAIN)
    b.write_text(CHAIN.replace("tanh(", "cosine("))
    assert main(["diff", str(a), str(a)]) == 0
    assert "no difference" in capsys.readouterr().out
    assert main(["diff", str(a), str(b), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["different"] is True
    assert said["changed"][0]["fields"] == [["opcode", "tanh", "cosine"]]
    assert main(["diff", str(a), str(b)]) == 1
    assert "%act.1 tanh  opcode: tanh → cosine  train.py:7" in capsys.readouterr().out
    assert main(["diff", str(a), str(tmp_path / "absent.hlo")]) == 2
    folder = tmp_path / "dump"
    folder.mkdir()
    (folder / "module_0001.chain.before_optimizations.txt").write_text(CHAIN)
    (folder / "module_0001.chain.cpu_after_optimizations.txt").write_text(b.read_text())
    capsys.readouterr()
    assert main(["diff", str(folder), str(folder), "--stage=before_optimizations"]) == 0
    stages = ["--stage=before_optimizations", "--stage-b=cpu_after_optimizations"]
    assert main(["diff", str(folder), str(folder), *stages]) == 1
    heads = capsys.readouterr().out.splitlines()
    assert [line.rpartition(" · ")[2] for line in heads if line[:3] in ("a: ", "b: ")][2:] == [
        "before_optimizations",
        "cpu_after_optimizations",
    ]
    assert main(["diff", str(a), str(b), "--html", str(tmp_path / "d.html")]) == 1
    assert (tmp_path / "d.html").read_text().startswith("<!doctype html>")


def test_tuples_and_their_elements_are_counted_and_not_listed() -> None:
    def program(order: str) -> str:
        return (
            "HloModule m\n\nENTRY %main (a: f32[4], b: f32[4]) -> (f32[4], f32[4]) {\n"
            "  %a = f32[4]{0} parameter(0)\n  %b = f32[4]{0} parameter(1)\n"
            f"  ROOT %t = (f32[4]{{0}}, f32[4]{{0}}) tuple({order})\n}}\n"
        )

    found = hs.diff(hs.read(program("%a, %b")), hs.read(program("%b, %a")))
    assert found
    assert found.plumbing == 1
    assert len(found.changed) + len(found.added) + len(found.removed) == 0
    assert "1 more in tuples" in str(found)


def test_the_page_has_both_pictures_and_which_box_is_which() -> None:
    a, b = hs.read(CHAIN), hs.read(CHAIN.replace("tanh(", "cosine("))
    a.hardware = b.hardware = "h100"
    found = hs.diff(a, b)
    page = found.html()
    assert page.count('data-options="') == 2
    assert 'id="hloscope-view-other"' in page
    assert 'data-side="first"' in page
    assert [d.name for d in found.totals][:1] == ["modelled step"]
    assert "iframe" in found._repr_mimebundle_()["text/html"]


def test_what_is_donated_is_a_difference() -> None:
    """Instructions are the same: only the memory of an argument is the result's."""
    text = """HloModule step, {alias}is_scheduled=true

ENTRY main (p: f32[64,64], x: f32[64,64]) -> f32[64,64] {{
  %p = f32[64,64]{{1,0}} parameter(0), metadata={{op_name="params['w']"}}
  %x = f32[64,64]{{1,0}} parameter(1), metadata={{op_name="x"}}
  ROOT %new = f32[64,64]{{1,0}} add(%p, %x)
}}
"""
    alias = "input_output_alias={{ {{}}: (0, {{}}, may-alias) }}, ".format()
    plain, donated = (hs.read(text.format(alias=a)) for a in ("", alias))
    found = hs.diff(plain, donated)
    assert found
    assert found.donated == ((), ("params['w']",))
    assert "donated only in b: params['w']" in str(found)
    assert "peak live bytes" in str(found)
    assert "Donated only in the second: params[&#x27;w&#x27;]." in found.html()
    assert "Donated only after: " in found.to_markdown()
    assert not hs.diff(donated, donated)
    assert hs.diff(donated, plain).donated == (("params['w']",), ())
