"""Planning in a notebook: ``%hlo --search``, and what the widget answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hloscope.plan.search.result import Search
from hloscope.plan.stages.choices import Choice, exactly
from hloscope.plan.stages.plan import answer, make_plan, stage_data

interactive = pytest.importorskip("IPython.core.interactiveshell")


def test_a_search_by_magic(capsys: pytest.CaptureFixture[str]) -> None:
    """The function lives in the notebook alone and still compiles in processes of its own."""
    shell = interactive.InteractiveShell()
    shell.run_line_magic("load_ext", "hloscope")
    shell.ex(
        "import jax, jax.numpy as jnp\n"
        "scale = 0.5\n"
        "def halve(w, x):\n    return w - scale * x.T @ (x @ w)\n"
        "w, x = jnp.ones((8, 8)), jnp.ones((3, 8))\n"
    )
    done = shell.run_cell("found = %hlo --search --mesh a=2 --hardware a100 halve(w, x)")
    done.raise_error()
    found = shell.user_ns["found"]
    assert isinstance(found, Search)
    assert found.failed == ()
    # 3 rows do not divide by 2
    assert len(found) == 3 * 2
    for cell, said in (
        ("%hlo --search --mesh a=2 halve", "--search needs a call"),
        ("%hlo --search halve(w, x)", "give the mesh to shard over"),
        ("%hlo --search --stage hlo --mesh a=2 halve(w, x)", "not with --stage"),
        ("%hlo --search=1 halve(w, x)", "takes no value"),
    ):
        capsys.readouterr()
        error = shell.run_cell(cell).error_in_exec
        assert type(error).__name__ == "UsageError"
        assert said in str(error)


def test_the_widget_answers_and_says_what_went_wrong() -> None:
    pytest.importorskip("anywidget")
    from hloscope.show.pages.widget import PlanWidget

    halves = [Choice(n, n, (1,), exactly(1.0), exactly(2.0), "", 5.0, 1.0) for n in range(2)]
    plan = make_plan(halves, ["a", "b"], 2, 4)
    made = PlanWidget(stage_data(plan), answer(plan))
    sent: list[dict[str, Any]] = []
    made.send = lambda content, buffers=None: sent.append(content)
    ask = {"kind": "ask", "id": 1, "what": "change", "values": {"microbatches": 16}}
    made._answer(made, ask, [])
    assert sent[-1]["kind"] == "answer"
    assert sent[-1]["view"]["title"] == "Pipeline stages"
    assert json.loads(made._view) == json.loads(json.dumps(sent[-1]["view"]))
    made._answer(made, {**ask, "values": {"microbatches": 0}}, [])
    assert sent[-1] == {
        "kind": "error", "id": 1, "message": "a step has at least one microbatch, not 0",
    }  # fmt: skip
    made._answer(made, {**ask, "what": "open"}, [])
    assert sent[-1]["kind"] == "error"
    made._answer(made, {"kind": "other"}, [])
    assert len(sent) == 3
