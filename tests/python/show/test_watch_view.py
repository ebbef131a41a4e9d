"""``watch`` in a notebook: table, timeline, captures; ``%hlo --watch`` and ``--passes``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from hloscope.show.pages.watch_view import answer, watch_data


class Pair(NamedTuple):
    a: Any
    b: Any


def ones(*shape: int, dtype: Any = jnp.float32) -> Any:
    return jnp.ones(shape, dtype)


# what is passed first, then; the cause
CAUSES = {
    "a key more in a dict": ({"w": 3}, {"w": 3, "b": 3}, "structure"),
    "half precision": (ones(4), ones(4, dtype=jnp.bfloat16), "dtype"),
    "one axis more": (ones(4), ones(4, 1), "shape"),
    "a number instead of an array": (jnp.float32(2), 2.0, "weak type"),
    "None instead of an array": ((ones(2), ones(2)), (ones(2), None), "structure"),
    "a list one longer": ([ones(2)] * 2, [ones(2)] * 3, "structure"),
    "an integer array": (ones(4), jnp.arange(4), "dtype"),
    "a list instead of a tuple": ((ones(2), ones(2)), [ones(2), ones(2)], "structure"),
    "an empty dict instead of None": ((ones(2), None), (ones(2), {}), "structure"),
    "a named tuple instead of a tuple": ((ones(2), ones(2)), Pair(ones(2), ones(2)), "structure"),
}


@pytest.mark.parametrize("what", CAUSES)
def test_what_changed_is_named(what: str) -> None:
    first, second, cause = CAUSES[what]
    step = jax.jit(lambda x: jax.tree.map(lambda a: a * 2, x))
    with hs.watch() as session:
        step(first)
        step(second)
    again = [c for c in session.recompiles if "lambda" in c.function]
    assert [c.causes for c in again] == [(cause,)], [c.changed for c in again]


def test_the_same_argument_by_keyword() -> None:
    step = jax.jit(lambda x: x * 2)
    with hs.watch() as session:
        step(ones(4))
        step(x=ones(4))
    [again] = session.recompiles
    assert again.causes == ("structure",)
    assert again.changed == "x is given by keyword now, by position before"


@pytest.fixture(scope="module")
def session() -> Any:
    @jax.jit
    def predict(w: Any, x: Any) -> Any:
        return jnp.tanh(x @ w)

    w = jnp.ones((8, 8))
    with hs.watch() as seen:
        for rows in (4, 4, 6):
            predict(w, jnp.ones((rows, 8)))
    return seen


def test_the_table_and_the_timeline_tell_the_same(session: Any) -> None:
    facts, spans, table = watch_data(session)["sections"]
    assert facts["rows"][0] == ["compiles", "2"]
    assert facts["rows"][1] == ["compiled again", "1"]
    assert spans["lanes"] == ["predict"]
    assert spans["parts"][spans["spans"][-1][3]] == "compiling"
    for lane, begin, end, _, _ in spans["spans"]:
        assert lane == 0
        assert 0 <= begin < end <= spans["seconds"]
    assert [row[1] for row in table["rows"]] == ["predict", "predict"]
    assert "shape" in session[1].causes[0]
    assert "test_watch_view.py:" in table["rows"][1][2]
    assert table["marked"] == [1]
    assert table["ids"] == [0, 1]


def test_each_compile_opens_as_a_capture(session: Any) -> None:
    opened = answer(session)("open", {"ids": [1]})["html"]
    assert 'id="hloscope-view"' in opened
    compared = answer(session)("diff", {"ids": [0, 1]})["html"]
    assert "f32[6,8]" in compared
    with pytest.raises(ValueError, match="select one compile"):
        answer(session)("open", {"ids": []})
    data, _ = session._repr_mimebundle_()
    assert data["text/plain"] == str(session)
    assert "What jax compiled" in data["text/html"]
    assert "What jax compiled" in session.html()


@pytest.fixture
def shell() -> Any:
    pytest.importorskip("IPython")
    from IPython.core.interactiveshell import InteractiveShell

    made = InteractiveShell.instance()
    made.run_line_magic("load_ext", "hloscope")
    made.user_ns.update(jax=jax, jnp=jnp)
    return made


def test_the_magic_watches_a_line_and_a_cell(shell: Any, capsys: Any) -> None:
    seen = shell.run_line_magic("hlo", "--watch jax.jit(lambda x: x * 3)(jnp.ones(5))")
    assert len(seen) == 1
    cell = "g = jax.jit(lambda x: x - 1)\ng(jnp.ones(3))\ng(jnp.ones(4))\n"
    seen = shell.run_cell_magic("hlo", "--watch", cell)
    assert [c.causes for c in seen.recompiles] == [("shape",)]
    assert "g" in shell.user_ns
    from IPython.core.error import UsageError

    with pytest.raises(UsageError, match="cannot be combined with --stage"):
        shell.run_line_magic("hlo", "--watch --stage hlo f(x)")
    with pytest.raises(ZeroDivisionError):
        shell.run_cell_magic("hlo", "--watch", "1 / 0")


def test_the_magic_keeps_passes(shell: Any, tmp_path: Path) -> None:
    cap = shell.run_line_magic("hlo", "--passes jnp.tanh(jnp.ones((4, 4)))")
    assert not cap.for_hosts.passes_compile
    assert cap.display["panel"] == "passes"
    from IPython.core.error import UsageError

    file = tmp_path / "one.hlo"
    file.write_text(cap.text)
    with pytest.raises(UsageError, match="holds no passes"):
        shell.run_line_magic("hlo", f"--passes {file}")
