"""Exact provenance: which StableHLO operations an instruction is from, and that nobody sees how."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from everything_said import MARK, everything_said, marks_in
from hloscope.capturing.marks import marks
from hloscope.capturing.marks import text as marks_text
from hloscope.hlo import Module
from hloscope.readers import read_modules
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from quickly import as_users_do

_METADATA = re.compile(r', metadata=\{(?:[^"{}]|"(?:[^"\\]|\\.)*")*\}')


def read(text: str) -> Module:
    return read_modules(text)[0]


def bare(text: str) -> str:
    """Computations without metadata."""
    body = re.sub(r"\n\n(?:FileNames.*?\n\n\n?)(?=%|ENTRY)", "\n", text, count=1, flags=re.S)
    return _METADATA.sub("", body)


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("name", "topology"),
    [
        ("scan_gradient", None), ("inner_jits", None), ("callbacks", None),
        ("factorisations", None), ("pallas_interpret", None), ("gather_remat", None),
        ("three_axes", None), ("gpt_unrolled", None), ("gpt_remat", None),
        ("gpt_scan", "v5e:2x4"),
    ],
)  # fmt: skip
def test_marks_change_neither_program_nor_names(
    compiled: Callable[..., Any], name: str, topology: str | None
) -> None:
    built = compiled(name, topology)
    marked = marks.mark(built.lowered)
    assert marked is not None
    plain = read(built.text)
    options = as_users_do(tpu=topology is not None)  # as the corpus was compiled
    again = marked.lowered.compile(compiler_options=options).as_text()
    found = marks.take_out(marked, again, read)
    assert bare(found.text) == bare(plain.text)
    assert found.op_names() == plain.op_names()
    assert found.frame_ids() == plain.frame_ids()
    assert found.origins is not None
    with_metadata = [
        i for i in found.instructions if "metadata=" in i.attribute_text and i.opcode != "parameter"
    ]
    known = sum(1 for i in with_metadata if i.origins)
    assert known >= 0.85 * len(with_metadata), (known, len(with_metadata))


def sharded_step(mesh: Mesh) -> tuple[Any, tuple[Any, ...]]:
    def layer(p: Any, x: Any) -> Any:
        with jax.named_scope("mlp"):
            return jnp.tanh(x @ p)

    def loss(ps: Any, x: Any) -> Any:
        for p in ps:
            x = jax.checkpoint(layer)(p, x)
        return jnp.sum(x)

    def sds(shape: tuple[int, ...], *spec: Any) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    args = [sds((64, 64), None, "model") for _ in range(3)], sds((16, 64), "data")
    return jax.jit(jax.grad(loss)), args


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "name",
    [
        "scan_gradient", "inner_jits", "callbacks", "pallas_interpret", "custom_rule", "eigen",
        "ring_attention", "gather_remat", "moe_einsum", "switch_four",
    ],
)  # fmt: skip
def test_no_mark_is_seen_anywhere(
    name: str, compiled: Callable[..., Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = compiled(name).made
    capfd.readouterr()
    cap = hs.capture(made.fn, *made.args, passes=True, title=name, **made.kwargs)
    assert cap.module.origins is not None
    assert cap.module.origins.known
    assert not marks_in(everything_said(cap, tmp_path))
    assert not MARK.findall("".join(capfd.readouterr()))


def test_marks_are_found_where_they_are(tmp_path: Path) -> None:
    """What the tests above look with does find them, in packed blocks too."""
    step, args = sharded_step(Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model")))
    cap = hs.capture(step, *args, passes=True)
    origins = cap.module.origins
    cap.module = read(cap.text.replace('op_name="jit(', 'op_name="~7~/jit('))
    cap.module.origins = origins
    found = marks_in(everything_said(cap, tmp_path))
    assert {"text", "op names", "html", "mime bundle", "view", "hloscope json"} <= set(found)
    assert "page.html" in found, "pages are unpacked"


def test_no_mark_is_seen_of_a_sharded_step(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
    step, args = sharded_step(mesh)
    cap = hs.capture(step, *args, passes=True)
    assert cap.module.origins is not None
    assert cap.module.origins.known > 20
    said = everything_said(cap, tmp_path)
    assert not marks_in(said)
    assert "after_shardy-xla" in cap.target.dumps
    assert len(said) > 50
    assert not MARK.findall("".join(capfd.readouterr()))


def test_what_jax_caches_stays_unmarked() -> None:
    f = jax.jit(lambda x: jnp.sin(x) @ x)
    x = jnp.ones((8, 8))
    lowered = f.lower(x)
    before = lowered.as_text("stablehlo", debug_info=True)
    cap = hs.capture(lowered)
    hs.capture(f, x)
    assert cap.module.origins is not None
    assert lowered.as_text("stablehlo", debug_info=True) == before
    assert not MARK.findall(str(lowered.compile().as_text()))
    assert not MARK.findall(str(f.lower(x).compile().as_text()))


def test_it_can_be_turned_off() -> None:
    cap = hs.capture(lambda x: x + 1, jnp.ones(4), exact=False)
    assert cap.module.origins is None
    assert all(i.origins == () for i in cap.module.instructions)
    assert hs.capture(jax.jit(lambda x: x + 1).lower(jnp.ones(4)).compile()).module.origins is None


def test_scopes_that_look_like_marks_keep_their_names() -> None:
    def f(x: Any) -> Any:
        with jax.named_scope("~7~"), jax.named_scope("a~~3~~"):
            return jnp.sin(x) * jnp.cos(x)

    cap = hs.capture(f, jnp.ones(8))
    names = [i.op_name for i in cap.module.instructions if "/" in i.op_name]
    assert names
    assert all("~7~/a~~3~~/" in n for n in names)
    assert cap.module.origins is not None
    assert any(i.origins for i in cap.module.instructions)


def test_each_call_of_a_function_is_told_apart() -> None:
    @jax.jit
    def layer(p: Any, x: Any) -> Any:
        return jnp.tanh(x @ p)

    def f(a: Any, b: Any, c: Any, x: Any) -> Any:
        return layer(c, layer(b, layer(a, x)))

    m = jnp.ones((64, 64))
    cap = hs.capture(f, m, m, m, m)
    origins = cap.module.origins
    assert origins is not None
    dots = [i for i in cap.module.instructions if i.op_name.endswith("/dot_general")]
    found = {o for i in dots for o in i.origins}
    assert len({o.operation for o in found}) == 1, "one operation"
    assert len({o.calls for o in found}) == 3, "in three calls"
    calls = [origins.operations[o.calls[-1]] for o in found]
    assert all(c.is_call and c.callee == "layer" for c in calls)
    (number,) = {o.operation for o in found}
    assert origins.operations[number].opcode == "dot_general"
    assert origins.operations[number].function == "layer"


def test_stages_number_operations_alike() -> None:
    cap = hs.capture(lambda x: jax.lax.fori_loop(0, 4, lambda _, c: jnp.sin(c) @ c, x), jnp.eye(8))
    stablehlo = cap.at("stablehlo").module
    assert stablehlo.origins is not None
    by_number = {i.origins[0].operation: i.opcode for i in stablehlo.instructions if i.origins}
    for o in stablehlo.origins.operations:
        assert by_number[o.number].split(".")[-1] == o.opcode.split(".")[-1]
    for stage in (cap.at("hlo").module, cap.module):
        sine = next(i for i in stage.instructions if i.op_name.split("/")[-1] == "sin")
        assert by_number[sine.origins[-1].operation] == "sine"


def test_names_are_put_together_as_xla_does() -> None:
    def clean(name: str) -> tuple[str, Any]:
        return marks_text.Cleaner("~").op_name(name)

    assert clean("jit(f)/add") == ("jit(f)/add", ())
    assert clean("~3~/jit(f)/add") == ("jit(f)/add", ((3,),))
    assert clean("~5~/jit(f)/mul;~4~/jit(f)/mul") == ("jit(f)/mul", ((5,), (4,)))
    assert clean("~5~/f/mul;~4~/f/add") == ("f/mul;f/add", ((5,), (4,)))
    assert clean("~1~/f/call/~9~/add;~8~/add") == ("f/call/add", ((1, 9), (8,)))
    assert clean("(~5~/f/a/mul:~4~/f/b/mul)") == ("f/(a/mul:b/mul)", ((5,), (4,)))
    assert clean("(~5~/f/mul:~4~/f/mul)") == ("f/mul", ((5,), (4,)))
    assert clean("~0~/f/while/~7~/f/while/body/add") == ("f/while/body/add", ((0, 7),))
    assert clean("~1~/f/~2~/g/while/~1~/f/~3~/g/while/body/~4~/add") == (
        "f/g/while/body/add",
        ((1, 2, 1, 3, 4),),
    )
    assert clean("~1~/f/call/~9~") == ("f/call", ((1, 9),))


def test_errors_of_xla_have_no_marks() -> None:
    marked = marks.mark(jax.jit(lambda x: x + 1).lower(jnp.ones(4)))
    assert marked is not None
    said = r"^no room for %add, op_name=\"jit\(f\)/add\"$"
    with pytest.raises(ValueError, match=said), marks.clean_errors(marked):
        raise ValueError('no room for %add, op_name="~0~/jit(f)/add"')
