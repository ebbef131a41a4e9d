"""``cap.what_if``: each kind of change is what its author would write into the source."""

from __future__ import annotations

import importlib.util
import pickle
import re
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from changed_sources import HEAD, PROGRAMS, V5E, V5P, Written
from hloscope.capturing.placing import target_mesh
from hloscope.hlo.option_sets import options_of
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P

_METADATA = re.compile(r', metadata=\{(?:[^"{}]|"(?:[^"\\]|\\.)*")*\}')
SHAPES = {None: {"data": 2, "model": 4}, V5E: {"data": 2, "model": 4}, V5P: {"data": 4, "model": 1}}
CHIPS = {None: V5E, V5E: "v6e:2x4", V5P: "v4:2x2x1"}


def bare(text: str) -> str:
    """Computations without metadata."""
    body = re.sub(r"\n\n(?:FileNames.*?\n\n\n?)(?=%|ENTRY)", "\n", text, count=1, flags=re.S)
    return _METADATA.sub("", body)


class Author:
    """Writes programs to files, loads them, and captures them as people do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        self.known: dict[Any, hs.Capture] = {}

    def load(self, text: str, mesh: Mesh) -> ModuleType:
        self.count += 1
        path = self.folder / f"program_{self.count}.py"
        path.write_text(HEAD + text)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        module.mesh = mesh  # type: ignore[attr-defined]
        spec.loader.exec_module(module)
        return module

    def capture(
        self,
        text: str,
        axes: dict[str, int],
        topology: str | None,
        *,
        explicit: bool = False,
        **options: Any,
    ) -> hs.Capture:
        key = text, tuple(axes.items()), topology, explicit, str(options)
        if key not in self.known:
            mesh = target_mesh(topology, axes)
            if explicit:
                kinds = (AxisType.Explicit,) * len(axes)
                mesh = Mesh(mesh.devices, mesh.axis_names, axis_types=kinds)
            module = self.load(text, mesh)
            self.known[key] = hs.capture(
                module.step, *module.arguments(mesh), topology=topology, mesh=mesh,
                provenance=False, title=None, **options,
            )  # fmt: skip
        return self.known[key]


@pytest.fixture(scope="module")
def author(tmp_path_factory: pytest.TempPathFactory) -> Author:
    return Author(tmp_path_factory.mktemp("programs"))


def operation(cap: hs.Capture, program: Written) -> int:
    """The product in the block, in the forward pass."""
    assert cap.module.origins is not None
    lines = own_source(cap)[1].splitlines()
    frames = {
        i.origins[0].operation: i.frames for i in cap.at("stablehlo").module.instructions
        if i.origins
    }  # fmt: skip
    return next(
        o.number for o in cap.module.origins.operations
        if o.opcode == "dot_general" and "transpose(" not in o.name
        and program.inner in lines[frames[o.number][0].line - 1]
    )  # fmt: skip


def line_of(cap: hs.Capture, code: str) -> str:
    file, text = own_source(cap)
    number = next(n for n, line in enumerate(text.splitlines(), 1) if code in line)
    return f"{Path(file).name}:{number}"


def own_source(cap: hs.Capture) -> tuple[str, str]:
    return next((f, t) for f, t in cap.target.sources.items() if "program_" in f)


Case = Callable[[Author, Written], tuple[hs.Capture, hs.Capture]]
CASES: dict[str, Case] = {}


def case(make: Case) -> Case:
    CASES[make.__name__] = make
    return make


def as_is(author: Author, p: Written) -> hs.Capture:
    return author.capture(p.text, p.mesh, p.topology)


def hand(author: Author, p: Written, *edits: tuple[str, str], **options: Any) -> hs.Capture:
    return author.capture(p.changed(*edits), p.mesh, p.topology, **options)


@case
def donation(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    made = as_is(author, p).what_if(donate="params")
    return made, hand(author, p, (p.jitted, p.jitted[:-1] + ", donate_argnums=(0,))"))


@case
def arguments_sharded(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    made = as_is(author, p).what_if(in_shardings={"x": P(None, "data")})
    return made, hand(author, p, (', "data")\n', ', None, "data")\n'))


@case
def results_sharded(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    made = as_is(author, p).what_if(out_shardings={"result": P()})
    whole = p.jitted[:-1] + ", out_shardings=NamedSharding(mesh, P()))"
    return made, hand(author, p, (p.jitted, whole))


@case
def another_mesh(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    axes = SHAPES[p.topology]
    return as_is(author, p).what_if(mesh=axes), author.capture(p.text, axes, p.topology)


@case
def another_topology(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    chips = CHIPS[p.topology]
    return as_is(author, p).what_if(topology=chips), author.capture(p.text, p.mesh, chips)


@case
def line_constrained(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    cap = as_is(author, p)
    made = cap.what_if(constrain={line_of(cap, f"h = {p.value}"): P("data")})
    by_hand = f'h = jax.lax.with_sharding_constraint({p.value}, NamedSharding(mesh, P("data")))'
    assert made.changes[0].code == by_hand
    return made, hand(author, p, (f"h = {p.value}", by_hand))


@case
def argument_constrained(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    made = as_is(author, p).what_if(constrain={"x": P(None, "data")})
    assert [str(c) for c in made.changes] == ['P(None, "data") on the value of x']
    top = re.search(r"( *)def step\(params, x\):\n", p.text)
    assert top is not None
    by_hand = 'x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(None, "data")))'
    return made, hand(author, p, (top[0], f"{top[0]}{top[1]}    {by_hand}\n"))


@case
def operation_constrained(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    cap = as_is(author, p)
    spec = P(None, "model") if p.topology == V5E else P("data")
    made = cap.what_if(constrain={operation(cap, p): spec})
    assert p.inner in made.changes[0].words
    said = 'None, "model"' if p.topology == V5E else '"data"'
    by_hand = f"jax.lax.with_sharding_constraint({p.inner}, NamedSharding(mesh, P({said})))"
    return made, hand(author, p, (p.inner, by_hand))


def checkpointed(p: Written, policy: str) -> tuple[str, str]:
    return p.checkpoint[0], p.checkpoint[1].replace("POLICY", policy)


@case
def checkpoint_added(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    return as_is(author, p).what_if(remat="block"), hand(author, p, checkpointed(p, "None"))


@case
def policy_added(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    made = as_is(author, p).what_if(remat={"block": "dots_saveable"})
    policy = "jax.checkpoint_policies.dots_saveable"
    return made, hand(author, p, checkpointed(p, policy))


@case
def policy_replaced(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    before = hand(author, p, checkpointed(p, "jax.checkpoint_policies.everything_saveable"))
    made = before.what_if(remat={"block": "dots_saveable"})
    policy = "jax.checkpoint_policies.dots_saveable"
    assert "def" not in made.changes[0].code
    return made, hand(author, p, checkpointed(p, policy))


@case
def function_in_bf16(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    made = as_is(author, p).what_if(cast={"block": "bfloat16"})
    return made, hand(author, p, *p.cast)


@case
def matmul_precision(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    made = as_is(author, p).what_if(matmul_precision="highest")
    with jax.default_matmul_precision("highest"):
        return made, author.capture(p.text + "\n", p.mesh, p.topology)


@case
def x64_off(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    text = p.text + "\nF32 = jnp.float64\n"
    with jax.enable_x64(True):
        before = author.capture(text, p.mesh, p.topology)
    return before.what_if(x64=False), as_is(author, p)


@case
def compiler_option(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    name = "xla_cpu_enable_fast_math" if p.topology is None else "xla_jf_conv_output_fusion"
    option = {name: p.topology is None}
    return as_is(author, p).what_if(compiler_options=option), hand(
        author, p, compiler_options=option
    )


@case
def batch(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    axes: Any = {} if p.batch_axes is None else {"batch_axes": p.batch_axes}
    size = re.search(r"batch = \d+", p.text)
    assert size is not None
    return as_is(author, p).what_if(batch=32, **axes), hand(author, p, (size[0], "batch = 32"))


@case
def sizes(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    """Every dimension of one size: what the layers are wide, or a sequence is long."""
    old, new = {"loop": (32, 64), "attention": (64, 32)}.get(p.name, (256, 512))
    head, arguments = p.text.split("def arguments")
    by_hand = f"{head}def arguments" + arguments.replace(f" {old}", f" {new}")
    made = as_is(author, p).what_if(sizes={old: new})
    assert by_hand != p.text
    return made, author.capture(by_hand, p.mesh, p.topology)


@case
def options_by_name(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    name = "fast math" if p.topology is None else "async collectives"
    options = options_of(name, "cpu" if p.topology is None else "tpu")
    made = as_is(author, p).what_if(compiler_options=name)
    assert [c.words.partition("=")[0] for c in made.changes] == list(options)
    return made, hand(author, p, compiler_options=options)


@case
def all_arguments_donated(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    made = as_is(author, p).what_if(donate=("params", "x"))
    return made, hand(author, p, (p.jitted, p.jitted[:-1] + ", donate_argnums=(0, 1))"))


@case
def arguments_whole(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    made = as_is(author, p).what_if(in_shardings={"*": P()})
    return made, author.capture(without_specs(p), p.mesh, p.topology)


def without_specs(p: Written) -> str:
    head, arguments = p.text.split("def arguments")
    return f"{head}def arguments" + re.sub(r'(, (?:None|"\w+"))+\)', ")", arguments)


@case
def axes_explicit(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    """Whole arrays: a product over a sharded dimension needs its author's choice."""
    made = as_is(author, p).what_if(axis_types="explicit", in_shardings={"*": P()})
    return made, author.capture(without_specs(p), p.mesh, p.topology, explicit=True)


@case
def axes_in_another_order(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    axes = dict(reversed(p.mesh.items()))
    return as_is(author, p).what_if(mesh=axes), author.capture(p.text, axes, p.topology)


@case
def instruction_constrained(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    cap = as_is(author, p)
    assert cap.module.origins is not None
    number = operation(cap, p)
    rows = zip(cap.module.instructions, cap.module.origins.of, strict=True)
    name = next(i.name for i, of in rows if of and of[0].operation == number)
    made = cap.what_if(constrain={name: P("data")})
    by_hand = f'jax.lax.with_sharding_constraint({p.inner}, NamedSharding(mesh, P("data")))'
    return made, hand(author, p, (p.inner, by_hand))


def named(p: Written) -> tuple[str, str]:
    return f"h = {p.value}", f'h = checkpoint_name({p.value}, "h")'


@case
def names_saved(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    made = hand(author, p, named(p)).what_if(remat={"block": {"save": ["h"]}})
    policy = 'jax.checkpoint_policies.save_only_these_names("h")'
    return made, hand(author, p, named(p), checkpointed(p, policy))


@case
def names_offloaded(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    made = hand(author, p, named(p)).what_if(remat={"block": {"offload": ["h"]}})
    policy = (
        "jax.checkpoint_policies.save_and_offload_only_these_names(names_which_can_be_saved=[], "
        'names_which_can_be_offloaded=["h"], offload_src="device", offload_dst="pinned_host")'
    )
    return made, hand(author, p, named(p), checkpointed(p, policy))


@case
def every_policy_replaced(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    policies = [f"jax.checkpoint_policies.{name}" for name in ("everything_saveable", POLICY)]
    before = hand(author, p, checkpointed(p, policies[0]))
    inner = "@jax.checkpoint\ndef inner("
    replaced = f"functools.partial(jax.checkpoint, policy={policies[1]})"
    of_inner = inner.replace("jax.checkpoint", replaced)
    own = [(inner, of_inner)] if inner in p.text else []
    made = before.what_if(remat={"*": POLICY})
    return made, hand(author, p, checkpointed(p, policies[1]), *own)


POLICY = "dots_saveable"


@case
def another_chip(author: Author, p: Written) -> tuple[hs.Capture, hs.Capture]:
    made = as_is(author, p).what_if(hardware="h100")
    assert made.hardware == "h100"
    return made, as_is(author, p)


@pytest.mark.some(16)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
@pytest.mark.parametrize("kind", CASES)
def test_a_change_is_what_its_author_would_write(
    author: Author, kind: str, program: Written
) -> None:
    if program.topology and importlib.util.find_spec("libtpu") is None:
        pytest.skip('libtpu is not installed (pip install "hloscope[tpu]")')
    made, by_hand = CASES[kind](author, program)
    assert bare(made.text) == bare(by_hand.text)
    assert made.base is not None
    assert all(c.words and c.code for c in made.changes)


LOOP, SCAN, METHOD, ATTENTION, NESTED, SAVED = PROGRAMS


PASTED: dict[str, Callable[[hs.Capture, Written], dict[str, Any]]] = {
    "line constrained": lambda cap, p: {"constrain": {line_of(cap, f"h = {p.value}"): P("data")}},
    "operation constrained": lambda cap, p: {"constrain": {operation(cap, p): P("data")}},
    "checkpoint": lambda cap, p: {"remat": "block"},
    "policy": lambda cap, p: {"remat": {"block": "dots_saveable"}},
    "bf16": lambda cap, p: {"cast": {"block": "bfloat16"}},
}


@pytest.mark.some(6)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
@pytest.mark.parametrize("kind", PASTED)
def test_the_code_of_a_change_is_ready_to_paste(
    author: Author, kind: str, program: Written
) -> None:
    """In place of the line that it names, and those below that it repeats, as it is."""
    if program.topology and importlib.util.find_spec("libtpu") is None:
        pytest.skip('libtpu is not installed (pip install "hloscope[tpu]")')
    cap = as_is(author, program)
    made = cap.what_if(**PASTED[kind](cap, program))
    (change,) = made.changes
    lines = own_source(cap)[1].removeprefix(HEAD).splitlines()
    at = int(change.line.rpartition(":")[2]) - len(HEAD.splitlines()) - 1
    before = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    end = at + 1 + sum(line.strip() in change.code for line in lines[at : at + 1] if "@" in line)
    lines[at:end] = textwrap.indent(change.code, before).splitlines()
    pasted = author.capture("\n".join(lines), program.mesh, program.topology)
    assert bare(pasted.text) == bare(made.text)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_explicit_axes_say_what_their_author_would_be_told(
    author: Author, program: Written
) -> None:
    """A product over a sharded dimension has no one answer, which is an error of jax's."""
    if program.topology and importlib.util.find_spec("libtpu") is None:
        pytest.skip('libtpu is not installed (pip install "hloscope[tpu]")')

    def outcome(make: Callable[[], hs.Capture]) -> str:
        try:
            return bare(make().text)
        except Exception as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0]}"

    cap = as_is(author, program)
    said = outcome(lambda: cap.what_if(axis_types="explicit"))
    by_hand = outcome(
        lambda: author.capture(program.text, program.mesh, program.topology, explicit=True)
    )
    assert said == by_hand
    assert said.startswith("HloModule" if program in (LOOP, SAVED) else "ShardingTypeError")


def test_changes_combine_and_name_their_lines(author: Author) -> None:
    cap = as_is(author, LOOP)
    first = cap.what_if(remat="block", in_shardings={"x": P(None, "data")})
    made = first.what_if(donate="params", constrain={operation(cap, LOOP): P("data")})
    assert made.base is first
    assert first.base is cap
    assert cap.changes == ()
    assert [c.kind for c in made.changes] == ["in_shardings", "donate", "remat", "constrain"]
    place = line_of(cap, "h = jnp.tanh(x @ w)")
    assert [c.line for c in made.changes] == ["", "", line_of(cap, "def block(x, w):"), place]
    assert made.title.endswith("on the value of x @ w")
    donated = LOOP.jitted[:-1] + ", donate_argnums=(0,))"
    by_hand = hand(
        author, LOOP, checkpointed(LOOP, "None"), (', "data")\n', ', None, "data")\n'),
        (LOOP.jitted, donated),
        ("x @ w)", 'jax.lax.with_sharding_constraint(x @ w, NamedSharding(mesh, P("data"))))'),
    )  # fmt: skip
    assert bare(made.text) == bare(by_hand.text)


COUNTED = """
def step(params, x, rounds, *, microbatches):
    def one(total, part):
        return total + jax.grad(lambda ws: (jnp.tanh(part @ ws[0]) ** 2).sum())(params), None

    parts = x.reshape(microbatches, -1, x.shape[-1])
    for _ in range(rounds):
        params = params - 0.1 * jax.lax.scan(one, jnp.zeros_like(params), parts)[0]
    return params


step = JITTED


def arguments(mesh):
    return put(mesh, (3, 16, 32)), put(mesh, (16, 16), "data")
"""


def test_numbers_that_a_function_takes_are_changed(author: Author) -> None:
    """Microbatches and turns: static arguments, and keywords of a partial function."""
    mesh = target_mesh(None, {"data": 4})
    jitted = 'jax.jit(step, static_argnums=2, static_argnames=("microbatches",))'
    whole = author.load(COUNTED.replace("JITTED", jitted), mesh)
    given = whole.arguments(mesh)

    def by_hand(rounds: int, microbatches: int) -> hs.Capture:
        step = whole.step
        return hs.capture(step, *given, rounds, microbatches=microbatches, provenance=False)

    cap = by_hand(1, 2)
    made = cap.what_if(sizes={"microbatches": 4, "rounds": 2})
    assert bare(made.text) == bare(by_hand(2, 4).text)
    assert [str(c) for c in made.changes] == ["microbatches 4", "rounds 2"]
    assert made.changes[0].code == "microbatches=4"
    partial = "functools.partial(step, rounds=1, microbatches=N)"
    for written in (partial, f"jax.jit({partial}, donate_argnums=(0,))"):
        found = [
            author.load(COUNTED.replace("JITTED", written.replace("N", n)), mesh).step for n in "24"
        ]
        before, after = (hs.capture(f, *given, provenance=False) for f in found)
        assert bare(before.what_if(sizes={"microbatches": 4}).text) == bare(after.text)


def test_a_scan_is_made_longer_with_all_that_it_runs_over(author: Author) -> None:
    cap = as_is(author, SAVED)
    by_hand = author.capture(SAVED.text.replace("(4, 128", "(6, 128"), SAVED.mesh, SAVED.topology)
    for sizes in ({4: 6}, {"4": 6}, {"params/ws": {0: 6}}, {"params/*": {"0": 6}}):
        made = cap.what_if(sizes=sizes)  # type: ignore[arg-type]
        assert bare(made.text) == bare(by_hand.text)
    assert made.changes[0].code == "6  # dimension 0 of params/*"


def test_the_batch_is_what_is_sharded_where_shapes_differ(author: Author) -> None:
    text = LOOP.text
    for old, new in (
        ("def step(params, x):", "def step(params, x, table):"),
        ("return (y * y).sum()", "return (y * y).sum() + table.sum()"),
        ('"data")\n', '"data"), put(mesh, (100, 16))\n'),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    cap = author.capture(text, LOOP.mesh, None)
    made = cap.what_if(batch=32)
    by_hand = author.capture(text.replace("batch = 16", "batch = 32"), LOOP.mesh, None)
    assert bare(made.text) == bare(by_hand.text)


def test_functions_and_what_jax_has_traced_stay_as_they_were(author: Author) -> None:
    mesh = target_mesh(None, LOOP.mesh)
    module = author.load(LOOP.text, mesh)
    given = module.arguments(mesh)
    before = module.step.lower(*given).as_text(), module.block.__code__
    cap = hs.capture(module.step, *given, provenance=False)
    changes: dict[str, Any] = {"remat": "block", "cast": {"loss": "bfloat16"}}
    cap.what_if(**changes, matmul_precision="highest")
    with pytest.raises(ValueError, match="rank at least 3"):
        cap.what_if(constrain={line_of(cap, "h = "): P(None, None, "data")})
    assert module.block.__code__ is before[1]
    assert not any("hloscope" in name for name in vars(module))
    assert module.step.lower(*given).as_text() == before[0]


def test_other_threads_call_functions_as_they_are(author: Author) -> None:
    """Advice is tried while the next cell of a notebook runs, or after Ctrl+C."""
    held = LOOP.text.replace("    h = jnp", "    stop(0)\n    h = jnp").replace(
        "    return jnp.sin(h) @ w.T", "    stop(1)\n    return jnp.sin(h) @ w.T"
    )
    module = author.load("def stop(n):\n    pass\n" + held, target_mesh(None, LOOP.mesh))
    given = module.arguments(module.mesh)
    plain = str(jax.make_jaxpr(lambda *a: module.step.__wrapped__(*a))(*given))
    cap = hs.capture(module.step, *given, provenance=False)
    tracing, traced, found = threading.Event(), threading.Event(), []
    block, code = module.block, module.block.__code__

    def change() -> None:
        changes: Any = {"remat": "block", "constrain": {line_of(cap, "h = jnp"): P("data")}}
        found.append(cap.what_if(**changes))

    other = threading.Thread(target=change)

    def stop(n: int) -> None:
        if threading.current_thread() is other:
            tracing.set()
            assert traced.wait(60)
        elif n and block.__code__ is not code:  # put back while it runs here
            traced.set()
            other.join()

    module.stop = stop  # type: ignore[attr-defined]
    other.start()
    assert tracing.wait(60)
    assert str(jax.make_jaxpr(lambda *a: module.step.__wrapped__(*a))(*given)) == plain
    assert not other.is_alive()
    assert block.__code__ is code
    assert "remat" in str(found[0].for_hosts.program.traced.jaxpr)


def test_other_threads_build_tuples_meanwhile(
    author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python fails where all objects are asked for while a thread builds a tuple."""
    module = author.load(LOOP.text, target_mesh(None, LOOP.mesh))
    monkeypatch.setitem(sys.modules, "authored", module)  # as one that was imported
    cap = hs.capture(module.step, *module.arguments(module.mesh), provenance=False)
    done, failed = threading.Event(), []

    def build() -> None:
        while not done.is_set():
            try:
                tuple(n for n in range(50))
            except SystemError as error:
                failed.append(error)

    other = threading.Thread(target=build)
    other.start()
    try:
        cap.what_if(remat="block")
    finally:
        done.set()
        other.join()
    assert not failed


def test_a_file_that_is_loaded_twice_is_not_changed_in_vain(
    author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = author.load(LOOP.text, target_mesh(None, LOOP.mesh))
    cap = hs.capture(module.step, *module.arguments(module.mesh), provenance=False)
    assert module.__spec__ is not None
    assert module.__spec__.loader is not None
    other = importlib.util.module_from_spec(module.__spec__)  # as if it was imported once more
    module.__spec__.loader.exec_module(other)
    monkeypatch.setitem(sys.modules, "authored", other)
    with pytest.raises(hs.CannotChange, match="did not run again: it may be loaded twice"):
        cap.what_if(remat="block")


def test_what_cannot_be_changed_says_why_and_gives_the_code(author: Author) -> None:
    cap = as_is(author, LOOP)
    dump = hs.read(cap.text)
    with pytest.raises(hs.CannotChange, match="this is a dump, without the function") as error:
        dump.what_if(donate="params", remat={"block": "dots_saveable"})
    assert 'donate_argnames=("params",)' in error.value.code
    assert "policy=jax.checkpoint_policies.dots_saveable" in str(error.value)
    with pytest.raises(hs.CannotChange, match="captured without its function"):
        hs.capture(jax.jit(jnp.sin).lower(jnp.ones(8))).what_if(donate="x")
    for changes, said in (
        ({"donate": "parms"}, "no argument 'parms'; there are params, x"),
        ({"donate": "params/0"}, "jax donates whole arguments: donate 'params'"),
        ({"donated": "x"}, "no change 'donated'; did you mean donate"),
        ({"remat": "blok"}, "calls no function blok; it calls block"),
        ({"remat": {"block": "dots"}}, "no policy 'dots'; there are dots_saveable"),
        ({"remat": "<lambda>"}, "calls no function <lambda>"),
        ({"constrain": {"model.py:3": P()}}, "no operation of this program is at model.py:3"),
        ({"constrain": {10_000: P()}}, "there is no operation 10000"),
        ({"in_shardings": {"y": P()}}, "nothing is called 'y'"),
        ({"axis_types": "manual"}, 'is "auto" or "explicit"'),
        ({"compiler_options": {"xla_cpu_enable_fast_mth": True}}, "mean xla_cpu_enable_fast_math"),
        ({"compiler_options": "fast maths"}, "(did you mean 'fast math'?)"),
        ({"compiler_options": "async collectives"}, "are for tpu and gpu; for cpu there are"),
        ({"sizes": {17: 18}}, "no dimension of the arguments is 17; there are 16, 32"),
        ({"sizes": {"x": 18}}, 'A dimension is {"x": {0: 18}}'),
        ({"sizes": {"x": {2: 18}}}, "x of shape (16, 16) has no axis 2"),
        ({}, "name a change: donate"),
    ):
        with pytest.raises(hs.CannotChange, match=re.escape(said)):
            cap.what_if(**changes)  # type: ignore[arg-type]
    with pytest.raises(hs.CannotChange, match="no mesh to shard over"):
        hs.capture(lambda x: x * 2, np.ones(8)).what_if(in_shardings={"x": P("data")})


def test_a_compact_method_is_not_cast_but_takes_a_type() -> None:
    nn = pytest.importorskip("flax.linen", reason="flax is not installed")

    class Block(nn.Module):  # type: ignore[misc]
        @nn.compact
        def __call__(self, x: Any) -> Any:
            return nn.Dense(16)(x)

    x = jax.ShapeDtypeStruct((8, 16), jnp.float32)
    params = jax.eval_shape(Block().init, jax.random.key(0), x)
    cap = hs.capture(lambda p, x: Block().apply(p, x), params, x)
    with pytest.raises(hs.CannotChange, match="modules take dtype=bfloat16") as error:
        cap.what_if(cast={"Block.__call__": "bfloat16"})
    assert error.value.code.startswith("nn.Dense(…, dtype=jnp.bfloat16)")


def test_a_file_that_was_changed_since_is_not_changed_in_place(author: Author) -> None:
    mesh = target_mesh(None, LOOP.mesh)
    module = author.load(LOOP.text, mesh)
    cap = hs.capture(module.step, *module.arguments(mesh), provenance=False)
    path = Path(str(module.__file__))
    path.write_text(path.read_text().replace("jnp.tanh", "jnp.cos"))
    with pytest.raises(hs.CannotChange, match="it has changed since it was loaded") as error:
        cap.what_if(remat="block")
    assert "@jax.checkpoint" in error.value.code


def test_the_same_values_are_run_and_compared(author: Author) -> None:
    cap = as_is(author, LOOP)
    same = cap.what_if(in_shardings={"x": P(None, "data")}).same_values()
    assert same.difference is not None
    assert same.difference < 1e-4  # sums in another order
    assert str(same).startswith(("the same values", "same values to"))
    other = cap.what_if(cast={"block": "bfloat16"}).same_values()
    assert other.difference is not None
    assert other.difference > 1e-4
    assert str(other).endswith("a change may alter values")
    assert str(cap.what_if(batch=32).same_values()) == "not run: the arguments have other shapes"
    with pytest.raises(ValueError, match="nothing was changed"):
        cap.same_values()


def test_keys_among_the_results_are_compared_too() -> None:
    def step(key: Any, x: Any) -> Any:
        key, own = jax.random.split(key)
        return key, x + jax.random.normal(own, x.shape)

    given = jax.eval_shape(lambda: jax.random.key(0)), jax.ShapeDtypeStruct((8, 8), jnp.float32)
    assert hs.capture(step, *given).what_if(donate="x").same_values().difference == 0


def test_a_changed_capture_can_be_sent_and_then_changes_no_more(author: Author) -> None:
    """A policy of one's own is a function of jax's that cannot be sent; it stays behind."""
    policy = jax.checkpoint_policies.save_only_these_names("h")
    made = as_is(author, LOOP).what_if(remat={"block": policy}, mesh=SHAPES[None])
    again = pickle.loads(pickle.dumps(made))
    assert again.changes == made.changes
    assert again.base.text == made.base.text
    with pytest.raises(hs.CannotChange, match="stayed in another process"):
        again.what_if(donate="params")


def test_for_a_topology_nothing_is_run(author: Author) -> None:
    if importlib.util.find_spec("libtpu") is None:
        pytest.skip('libtpu is not installed (pip install "hloscope[tpu]")')
    made = as_is(author, LOOP).what_if(topology=V5E)
    assert str(made.same_values()) == "not run: its devices are not attached"
