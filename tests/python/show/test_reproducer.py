"""Parts of programs as files of their own: run in another process, against numpy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hloscope.show.cli import main


def loaded(file: Path) -> dict[str, Any]:
    known: dict[str, Any] = {"__name__": "reproducer"}
    exec(compile(file.read_text(), str(file), "exec"), known)
    return known


def test_a_whole_program_gives_what_numpy_gives(tmp_path: Path) -> None:
    @jax.jit
    def model(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ w) + 1.0

    cap = hs.capture(model, jnp.ones((8, 16)), jnp.ones((16, 4)))
    entry = [i for i in cap.module.entry.instructions if i.opcode != "parameter"]
    made = loaded(cap.to_reproducer(tmp_path / "model.py", *entry))
    x, w = made["inputs"](3)
    assert (x.shape, w.shape) == ((8, 16), (16, 4))
    (found,) = made["run"]([x, w])
    np.testing.assert_allclose(found, np.tanh(x @ w) + 1.0, atol=1e-5)


def test_a_loop_counts_as_it_did(tmp_path: Path) -> None:
    def body(c: Any, w: Any) -> Any:
        return jnp.sin(c) * w, None

    def looped(c: Any, w: Any) -> Any:
        return jax.lax.scan(body, c, w)[0]

    cap = hs.capture(looped, jnp.ones(32), jnp.ones((7, 32)))
    loop = next(i for i in cap.module.instructions if i.opcode == "while")
    made = loaded(cap.to_reproducer(tmp_path / "loop.py", loop.name))
    values = made["inputs"]()
    (w,) = [v for v in values if v.shape == (7, 32)]
    found = made["run"](values)
    begin = [v for v in values if v.shape == (32,)]
    assert len(begin) == 1
    expected = begin[0]
    for row in w:
        expected = np.sin(expected) * row
    assert any(f.shape == (32,) and np.allclose(f, expected, rtol=1e-4) for f in found)


def test_a_fusion_is_a_program_that_runs_and_is_timed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cap = hs.capture(lambda x: jnp.exp(x) / (1 + jnp.exp(-x)), jnp.ones((64, 64), jnp.bfloat16))
    fusion = next(i for i in cap.module.entry.instructions if i.opcode == "fusion")
    (tmp_path / "step.hlo").write_text(cap.text)
    file = tmp_path / "fusion.py"
    main(["reproducer", str(tmp_path / "step.hlo"), fusion.name, "-o", str(file)])
    assert capsys.readouterr().out.strip() == str(file)
    done = subprocess.run(
        [sys.executable, str(file), "--hlo"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "median of 20 runs" in done.stdout
    assert "HloModule reproducer" in done.stdout
    assert done.stdout.strip().endswith("finite")


def test_what_was_compiled_for_a_tpu_runs_here(libtpu: None, tmp_path: Path) -> None:
    def step(x: Any, w: Any) -> Any:
        with jax.named_scope("mlp"):
            return jax.nn.softmax(jnp.tanh(x @ w))

    shapes = jax.ShapeDtypeStruct((64, 128), jnp.float32), jax.ShapeDtypeStruct((128, 256), "f4")
    cap = hs.capture(step, *shapes, topology="v5e:2x2")
    entry = [i for i in cap.module.entry.instructions if i.opcode == "fusion"]
    assert entry
    for fusion in entry:
        file = cap.to_reproducer(tmp_path / "part.py", fusion)
        assert ":T(" not in file.read_text()
        done = subprocess.run(
            [sys.executable, str(file)], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr[-2000:]


def test_other_layouts_mean_the_same_values(libtpu: None, tmp_path: Path) -> None:
    def step(x: Any, w: Any) -> Any:
        y = jnp.einsum("bth,hnd->bntd", x, w)
        return jnp.swapaxes(jnp.tanh(y), 1, 2).reshape(4, 8, 96)

    shapes = jax.ShapeDtypeStruct((4, 8, 32), "f4"), jax.ShapeDtypeStruct((32, 6, 16), "f4")
    cap = hs.capture(step, *shapes, topology="v5e:2x2")
    assert "bitcast" in {i.opcode for i in cap.module.instructions}
    entry = [i for i in cap.module.entry.instructions if i.opcode != "parameter"]
    made = loaded(cap.to_reproducer(tmp_path / "step.py", *entry))
    x, w = made["inputs"](5)
    if x.shape != (4, 8, 32):
        x, w = w, x
    x, w = np.round(x), np.round(w) / 8  # exact in the bfloat16 that a TPU multiplies
    values = [x, w] if made["INPUTS"][0][1] == (4, 8, 32) else [w, x]
    (found,) = made["run"](values)
    expected = np.tanh(np.einsum("bth,hnd->btnd", x, w)).reshape(4, 8, 96)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_what_cannot_run_alone_says_so(tmp_path: Path) -> None:
    mesh = jax.make_mesh((8,), ("x",), devices=jax.devices("cpu")[:8])
    split = jax.NamedSharding(mesh, jax.P("x"))
    x = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=split)
    cap = hs.capture(lambda a: jnp.sum(a * 2, axis=0), x)
    collective = next(i for i in cap.module.instructions if i.opcode.startswith("all-reduce"))
    with pytest.raises(ValueError, match="needs several devices"):
        cap.to_reproducer(tmp_path / "no.py", collective)
    with pytest.raises(LookupError, match="no instruction or group 'nope'"):
        cap.to_reproducer(tmp_path / "no.py", "nope")
    with pytest.raises(LookupError, match="nothing is chosen"):
        cap.to_reproducer(tmp_path / "no.py")
    assert not list(tmp_path.iterdir())
