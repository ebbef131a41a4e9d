"""Programs beside each other: compared, swept, and the largest that fits."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from hloscope.__main__ import main
from hloscope.plan.comparing.variants import view

F32 = jnp.float32
W, X = jax.ShapeDtypeStruct((4, 256, 256), F32), jax.ShapeDtypeStruct((512, 256), F32)


def block(x: Any, w: Any) -> tuple[Any, None]:
    return jnp.sin(jnp.tanh(jnp.sin(x @ w))), None


def step(w: Any, x: Any) -> Any:
    return w - 0.1 * jax.grad(lambda w: (jax.lax.scan(block, x, w)[0] ** 2).sum())(w)


def twice(w: Any, x: Any) -> Any:
    return step(step(w, x), x)


@pytest.fixture(scope="module")
def cap() -> hs.Capture:
    return hs.capture(step, W, X, hardware="tpu-v5e")


def test_functions_captures_and_files_are_compared(cap: hs.Capture, tmp_path: Path) -> None:
    path = tmp_path / "step.hlo"
    path.write_text(cap.text)
    given = {
        "as is": cap, "twice": twice, "dump": path, "nothing": tmp_path / "nothing.hlo",
        "wrong": lambda w, x: w @ x,
    }  # fmt: skip
    found = hs.compare(given, W, X, hardware="tpu-v5e")
    rows = {r["name"]: r for r in found.to_dict()["rows"]}
    assert rows["as is"]["seconds"] == pytest.approx(cap.cost().roofline.total_seconds)
    assert rows["as is"]["peak_bytes"] == cap.memory.peak_bytes
    assert rows["twice"]["flops"] == pytest.approx(2 * rows["as is"]["flops"], rel=0.01)
    assert rows["dump"]["flops"] == rows["as is"]["flops"]
    assert rows["as is"]["instructions"] == len(cap.module.instructions)
    assert "nothing.hlo" in rows["nothing"]["error"]
    assert rows["wrong"]["seconds"] is None
    assert rows["wrong"]["error"]
    assert found.pareto
    assert "twice" not in {v.name for v in found.pareto}
    assert found.capture("as is") is cap
    assert found.diff("as is", "twice")
    with pytest.raises(ValueError, match="has no program"):
        found.capture("nothing")
    with pytest.raises(LookupError, match="no variant 'once'; there are as is, twice"):
        found["once"]
    again = pickle.loads(pickle.dumps(found))
    assert str(again) == str(found)
    with pytest.raises(ValueError, match="stayed in the process"):
        again.capture("as is")
    assert "Programs" in found.html()
    with pytest.raises(ValueError, match="give programs by name"):
        hs.compare({})


def test_a_changed_capture_has_its_code_and_the_time_it_took(cap: hs.Capture) -> None:
    found = hs.compare({"as is": cap, "donated": cap.what_if(donate="w")})
    assert (found.code("as is"), found.code("donated")) == (
        "", 'jax.jit(step, donate_argnames=("w",))',
    )  # fmt: skip
    assert all(v.compile_seconds for v in found)
    (table,) = [s for s in view(found)["sections"] if s["type"] == "table"]
    # in the order given: the first is not the best
    assert table["first_name"] == "“as is”"
    assert "A click on a row shows the code" in table["note"]
    assert "A click" not in found_note(hs.compare({"as is": cap}))


def found_note(found: hs.results.planning.Variants) -> str:
    return next(str(s["note"]) for s in view(found)["sections"] if s["type"] == "table")


def test_the_command_compares_files(
    cap: hs.Capture, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "step.hlo")
    Path(path).write_text(cap.text)
    assert main(["compare", path, path, "--json"]) == 0
    assert [r["name"] for r in json.loads(capsys.readouterr().out)["rows"]] == [path]
    assert main(["compare", path, str(tmp_path / "no.hlo")]) == 2
    assert "no.hlo" in capsys.readouterr().out


def test_policies_are_compared_with_their_code(cap: hs.Capture) -> None:
    found = cap.remat_options("block")
    names = [v.name for v in found]
    assert names[:2] == ["as is", "nothing saved"]
    peaks = {v.name: v.figures.peak_bytes for v in found if v.figures}
    assert peaks["nothing saved"] < peaks["as is"]
    assert found.code("nothing saved").startswith("@jax.checkpoint")
    assert "dots_saveable" in found.code("dots_saveable")
    opened = found.capture("nothing saved")
    assert opened.memory.peak_bytes == peaks["nothing saved"]
    layers = cap.remat_options()
    assert layers.title == found.title == "Policies of block"
    assert [v.figures for v in layers] == [v.figures for v in found]
    with pytest.raises(hs.CannotChange, match=r"calls no function blok"):
        cap.remat_options("blok")


def test_options_are_swept_one_at_a_time(cap: hs.Capture) -> None:
    found = cap.option_sweep({"xla_cpu_enable_fast_math": True, "xla_cpu_enable_fast_mth": True})
    assert found[1].figures is not None
    assert "did you mean xla_cpu_enable_fast_math" in found[2].error
    assert found[1].code == 'jax.jit(step, compiler_options={"xla_cpu_enable_fast_math": True})'
    with pytest.raises(ValueError, match="an option has a value"):
        cap.option_sweep(["xla_cpu_enable_fast_math"])
    named = cap.option_sweep(["fast math", "fast maths", {"xla_cpu_enable_fast_math": True}])
    assert named[1].code.count("compiler_options={") == 2
    assert "did you mean 'fast math'?" in named[2].error
    assert named[3].figures == found[1].figures


def test_the_largest_that_fits_is_found() -> None:
    def args_of(n: int) -> tuple[Any, ...]:
        return W, jax.ShapeDtypeStruct((n, 256), F32)

    found = hs.largest(step, args_of, fits="8MiB", multiple_of=64, hardware="tpu-v5e")
    assert found.number > 0
    assert found.number % 64 == 0
    fits = {r.number: r.fits for r in found.rows}
    assert fits[found.number]
    assert not fits[found.number + 64]
    assert found.capture is not None
    assert found.capture.memory.peak_bytes <= 8 << 20
    beyond = hs.capture(step, *args_of(found.number + 64)).memory.peak_bytes
    assert beyond > 8 << 20
    assert found.live
    assert dict(found.categories) == found.capture.memory.by_category
    category, held = found.categories[0]
    assert f"live at the limit: {category} " in str(found)
    assert sum(b for _, b in found.categories) >= held > 0
    assert found.html().count("The line joins those that fit.") == 2
    assert f"Largest step: {found.number:,} in 8 MiB" in str(found)
    assert pickle.loads(pickle.dumps(found)).number == found.number
    assert "Tried" in found.html()
    assert hs.largest(step, args_of, fits="1KiB").number == 0
    few = hs.largest(step, args_of, fits="1GiB", highest=100)
    assert few.number == 100
    assert fits == dict(sorted(fits.items()))
    with pytest.raises(hs.HardwareError):
        hs.largest(step, args_of, fits="v55")
