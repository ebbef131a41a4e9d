"""``%hlo`` in a real IPython: what it evaluates, what it returns, what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hloscope import Capture
from hloscope.show.notebook import magic

interactive = pytest.importorskip("IPython.core.interactiveshell")

SETUP = """
import jax, jax.numpy as jnp
ran = []
def f(x, y=None, *, scale=1.0, title=None):
    ran.append("f")
    return jnp.sin(x) @ (x if y is None else y) * scale
def g(z):
    ran.append("g")
    return z * 2
def broken(x):
    raise KeyError("inside")
x = jnp.ones((8, 8))
jitted = jax.jit(f)
lowered = jitted.lower(x)
compiled = lowered.compile()
options = {"y": x}
steps = {"f": f}
"""


@pytest.fixture(scope="module")
def shell() -> Any:
    made = interactive.InteractiveShell()
    made.run_line_magic("load_ext", "hloscope")
    made.ex(SETUP)
    return made


@pytest.fixture(autouse=True)
def clear(shell: Any) -> None:
    shell.user_ns["ran"].clear()


def run(shell: Any, cell: str) -> Any:
    """The value of a cell, without displaying it."""
    done = shell.run_cell("_out = " + cell if cell.startswith("%hlo") else cell)
    done.raise_error()
    return shell.user_ns.get("_out") if cell.startswith("%hlo") else done.result


def said(shell: Any, cell: str, capsys: Any) -> str:
    """The one line that a wrong cell prints."""
    capsys.readouterr()
    done = shell.run_cell(cell)
    printed = capsys.readouterr()
    assert type(done.error_in_exec).__name__ == "UsageError"
    assert "Traceback" not in printed.out + printed.err
    message = str(done.error_in_exec)
    assert "\n" not in message
    assert message in printed.err
    return message


def test_the_call_is_not_made_and_its_arguments_are(shell: Any) -> None:
    cap = run(shell, "%hlo f(x, y=g(x))")
    assert isinstance(cap, Capture)
    assert cap.module.name == "jit_f"
    assert [a.name for a in cap.target.arguments] == ["x", "y"]
    assert shell.user_ns["ran"] == ["g", "f"]  # f once: jax traced it


@pytest.mark.parametrize(
    ("line", "stage"),
    [
        ("%hlo jitted(x, scale=2.0)", "optimized"),
        ("%hlo f(*[x], **options)  # stars and a comment", "optimized"),
        ("%hlo f(x);", "optimized"),
        ("%hlo steps['f'](x)", "optimized"),
        ("%hlo jax.grad(lambda v: f(v).sum())(x)", "optimized"),
        ("%hlo lowered", "optimized"),
        ("%hlo compiled", "optimized"),
        ("%hlo jitted.lower(x)", "optimized"),
        ("%hlo lowered.compile()", "optimized"),
        ("%hlo jitted.trace(x)", "optimized"),
        ("%hlo --stage jaxpr f(x)", "jaxpr"),
        ("%hlo --stage=stablehlo f(x)", "stablehlo"),
        ("%hlo --stage hlo lowered", "hlo"),
        ("%hlo -- f(x)", "optimized"),
    ],
)
def test_what_it_takes(shell: Any, line: str, stage: str) -> None:
    cap = run(shell, line)
    assert isinstance(cap, Capture)
    assert cap.stage == stage
    assert cap.module.instructions


def test_keywords_called_like_options_of_capture(shell: Any) -> None:
    cap = run(shell, "%hlo f(x, title=None, scale=3.0)")
    assert cap.title == "jit_f"


def test_a_capture_at_another_stage(shell: Any) -> None:
    shell.run_cell("cap = %hlo f(x)").raise_error()
    assert run(shell, "%hlo cap") is shell.user_ns["cap"]
    assert run(shell, "%hlo --stage jaxpr cap").module.dialect == "jaxpr"


def test_title_height_and_colour(shell: Any) -> None:
    cap = run(shell, "%hlo --title 'my step' --color-by bytes --height 300 f(x)")
    assert run(shell, "%hlo --panel memory f(x)").display == {"panel": "memory"}
    assert cap.title == "my step"
    assert cap.display == {"colorBy": "bytes", "height": 300}


def test_hardware_of_a_call_a_capture_and_a_file(shell: Any, tmp_path: Path) -> None:
    cap = run(shell, "%hlo --hardware H100 f(x)")
    assert (cap.hardware, cap.display) == ("h100", {"hardware": "h100"})
    assert cap.summary["hardware"] == "h100"
    shell.user_ns["held"] = cap
    assert run(shell, "%hlo --hardware v5e held").hardware == "tpu-v5e"
    assert cap.summary["hardware"] == "tpu-v5e"  # the same capture, its figures made anew
    dump = tmp_path / "dump.hlo"
    dump.write_text(shell.user_ns["compiled"].as_text())
    assert run(shell, f"%hlo {dump}").hardware is None
    assert run(shell, f"%hlo --hardware a100 {dump}").hardware == "a100"


def test_keywords_of_the_function_never_reach_capture() -> None:
    from inspect import signature

    from hloscope.capturing import capture
    from hloscope.show.notebook.expressions import _CAPTURE_OPTIONS

    options = {n for n, p in signature(capture).parameters.items() if p.kind is p.KEYWORD_ONLY}
    assert options == _CAPTURE_OPTIONS


def test_colours_are_those_of_the_explorer(repo: Path) -> None:
    panels = repo / "js" / "panels"
    text = "".join(p.read_text() for p in sorted(panels.rglob("*colorings.ts")))
    ids = re.findall(r"const \w+: Coloring = (?:\w+\()?\{\n  id: \"(\w+)\"", text)
    assert sorted(ids) == sorted(magic.COLORS)
    listed = re.findall(
        r"^import \{ \w+ \} from \"./([\w/-]+).ts\"", (panels / "index.ts").read_text(), re.M
    )
    ids = [
        re.search(r": Panel = \{\n  id: \"(\w+)\"", (panels / f"{name}.ts").read_text())[1]
        for name in listed
    ]
    assert sorted(set(ids) - {"search"}) == sorted(magic.PANELS)


@pytest.mark.usefixtures("libtpu")
def test_a_pod_from_the_magic(shell: Any) -> None:
    cap = run(shell, "%hlo --topology v5e:2x4 --mesh data=4,model=2 f(x)")
    assert cap.target.device_kind == "TPU v5 lite"
    assert cap.target.mesh.axis_sizes == (4, 2)


def test_files(shell: Any, tmp_path: Path) -> None:
    text = shell.user_ns["compiled"].as_text()
    spaced = tmp_path / "a dump.hlo"
    spaced.write_text(text)
    shell.user_ns["where"] = spaced
    for line in (f"%hlo '{spaced}'", f"%hlo {spaced}", "%hlo where"):
        assert run(shell, line).module.name == "jit_f"
    assert run(shell, f"%hlo --title t '{spaced}'").title == "t"


def test_the_cell_runs_all_but_its_last_expression(shell: Any) -> None:
    shell.run_cell_magic(
        "hlo", "--stage jaxpr", "w = g(x)\ndef h(a):\n    return jnp.cos(a) + w\nh(x)\n"
    )
    assert shell.user_ns["ran"] == ["g"]
    cap = shell.run_cell_magic("hlo", "", "w = 3\nh(x)")
    assert cap.module.name == "jit_h"
    assert shell.user_ns["w"] == 3
    sources = shell.run_cell_magic("hlo", "", "def k(a):\n    return jnp.tan(a)\nk(x)")
    assert any("def k(a)" in text for text in sources.target.sources.values())


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("%hlo", "%hlo needs a call, a name or a file: %hlo f(x); see %hlo?"),
        ("%hlo --stag hlo f(x)", "%hlo has no option --stag; did you mean --stage?"),
        ("%hlo --zzz f(x)", "%hlo has no option --zzz; options: --stage, "),
        ("%hlo --stage", "%hlo option --stage needs a value"),
        ("%hlo --stage optimised f(x)", "invalid choice: 'optimised'"),
        ("%hlo --height tall f(x)", "--height is pixels such as 640, not 'tall'"),
        ("%hlo --height -3 f(x)", "--height is pixels such as 640, not '-3'"),
        ("%hlo --hardware tpu-v9 f(x)", "unknown chip 'tpu-v9'; did you mean tpu-v"),
        ("%hlo --color-by byte f(x)", "--color-by does not know 'byte'; did you mean bytes?"),
        ("%hlo --panel memry f(x)", "--panel does not know 'memry'; did you mean memory?"),
        ("%hlo --color-by q f(x)", "--color-by does not know 'q'; there are family, scope,"),
        ("%hlo --mesh data f(x)", "--mesh: a mesh is axis=size pairs such as data=4,model=2"),
        ("%hlo --title 'open f(x)", "a quote is not closed"),
        ("%hlo --module 1 f(x)", "--module is for files that hold several modules"),
        ("%hlo f(", "'(' was never closed"),
        ("%hlo f(x) if x is None else 3", "is not a call, a name or a file"),
        ("%hlo f", "f is a function; call it with its arguments: %hlo f(…)"),
        ("%hlo x", "give a call such as f(x)"),
        ("%hlo nobody", "NameError: name 'nobody' is not defined"),
        ("%hlo f(nobody)", "NameError: name 'nobody' is not defined"),
        ("%hlo nothing.hlo", "there is no file nothing.hlo"),
        ("%hlo 'no such file'", "there is no file no such file"),
        ("%hlo some/where.pb", "there is no file some/where.pb"),
        ("%hlo --topology v5e:2x4 --mesh a=3 f(x)", "mesh a=3 needs 3 devices"),
        ("%%hlo\ny = 3", "the last statement of the cell must be a call or a name"),
        ("%%hlo\nf(x", "%%hlo: line 2"),
        ("%%hlo f(x)\nf(x)", "%%hlo takes options only on its first line, not 'f(x)'"),
    ],
)
def test_a_mistake_is_one_line(shell: Any, cell: str, says: str, capsys: Any) -> None:
    if "--topology" in cell:
        pytest.importorskip("libtpu", reason="libtpu is not installed")
    assert says in said(shell, cell, capsys)


def test_an_unreadable_file_is_one_line(shell: Any, tmp_path: Path, capsys: Any) -> None:
    bad = tmp_path / "bad.hlo"
    bad.write_text("nothing to see")
    assert "bad.hlo" in said(shell, f"%hlo {bad}", capsys)
    message = said(shell, f"%hlo --topology v5e:2x4 {bad}", capsys)
    assert "--topology is for functions" in message


def test_errors_of_the_function_keep_their_traceback(shell: Any) -> None:
    done = shell.run_cell("%hlo broken(x)")
    assert type(done.error_in_exec) is KeyError
    assert any("hloscope traced broken" in n for n in done.error_in_exec.__notes__)


def completions(shell: Any, typed: str) -> list[str]:
    from IPython.core.completer import provisionalcompleter

    with provisionalcompleter():
        found = list(shell.Completer.completions(typed, len(typed)))
    return [typed[: c.start] + c.text for c in found]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("%hlo --st", {"%hlo --stage"}),
        ("%hlo --", {f"%hlo {o}" for o in magic.OPTIONS}),
        ("%%hlo --me", {"%%hlo --mesh"}),
        ("%hlo --stage st", {"%hlo --stage stablehlo"}),
        ("%hlo --stage=o", {"%hlo --stage=optimized"}),
        ("%hlo --stage hlo --ti", {"%hlo --stage hlo --title"}),
        ("%hlo --color-by ", {f"%hlo --color-by {c}" for c in magic.COLORS}),
        ("%hlo --panel co", {"%hlo --panel cost", "%hlo --panel collectives"}),
        ("%hlo --hardware tpu-v5", {"%hlo --hardware tpu-v5e", "%hlo --hardware tpu-v5p"}),
        ("%hlo --hardware=h1", {"%hlo --hardware=h100"}),
        ("%hlo --topology v5e:16", {"%hlo --topology v5e:16x16"}),
        ("%hlo lower", {"%hlo lowered"}),
        ("%hlo f(lower", {"%hlo f(lowered"}),
    ],
)
def test_completion(shell: Any, typed: str, expected: set[str]) -> None:
    assert expected <= set(completions(shell, typed))


def test_help_shows_every_option_and_an_example(shell: Any) -> None:
    text = shell.find_line_magic("hlo").__doc__
    assert all(option in text for option in magic.OPTIONS)
    assert "%hlo --topology v5e:16x16 --mesh data=16,model=16 step(params, batch)" in text
