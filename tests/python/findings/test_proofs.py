"""Advice that is tried: what is proved, what gains nothing, and where proofs are kept."""

from __future__ import annotations

import gzip
import importlib.util
import json
import pickle
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hloscope.__main__ import main
from hloscope.plan.running.programs import make_jobs
from hloscope.show.blocks import analyses
from hloscope.show.notebook.proof_job import ProofJobs
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

PROGRAM = """
import jax, jax.numpy as jnp

def step(params, mean, x):
    grads = jax.grad(lambda p: (jnp.tanh(x @ p) ** 2).sum())(params)
    mean = 0.9 * mean + grads
    return params - 0.1 * mean / (1e-6 + jnp.abs(mean)), mean

def small(params, x):
    grads = jax.grad(lambda p: (jnp.tanh(x @ p) ** 2).sum())(params)
    return params - 0.1 * grads

step_args = tuple(
    jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((1024, 1024), (1024, 1024), (64, 1024))
)
"""


@pytest.fixture
def module(tmp_path: Path) -> Any:
    path = tmp_path / "training.py"
    path.write_text(PROGRAM)
    spec = importlib.util.spec_from_file_location("training", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def captured(module: Any) -> hs.Capture:
    return hs.capture(jax.jit(module.step), *module.step_args, hardware="tpu-v5e")


def test_proofs_stay_in_the_capture_its_views_and_pages(module: Any) -> None:
    cap = captured(module)
    before = cap.findings
    (finding,) = before.of("not-donated")
    assert finding.proofs == ()
    plain = analyses(cap)
    proved = before.prove()
    (proof,) = proved.of("not-donated")[0].proofs
    assert str(proof).startswith("proved: params, mean donated: peak ")
    assert proof.changes[0].code == 'jax.jit(step, donate_argnames=("params", "mean"))'
    assert str(proof) in str(proved)
    assert analyses(cap) != plain
    for kept in (
        cap.findings,
        pickle.loads(pickle.dumps(cap)).findings,
        pickle.loads(pickle.dumps(proved)),
    ):
        assert str(kept.of("not-donated")[0].proofs[0]) == str(proof)
    changed = cap.what_if(**proof.asked)
    assert changed.memory.peak_bytes == proof.peak[1]
    cap.hardware = "h100"
    assert cap.findings.of("not-donated")[0].proofs == (), "they were of the other chip"
    with pytest.raises(ValueError, match="cannot be changed: capture the function"):
        hs.read(cap.text).findings.prove()


def test_a_proof_says_what_else_moved_and_prints_the_code(module: Any) -> None:
    cap = captured(module)
    (proof,) = cap.findings.prove().of("not-donated")[0].proofs
    (figure,) = proof.figures
    assert (figure.before, figure.after) == proof.peak
    assert str(figure) == "peak memory 16.3 MiB → 12.5 MiB (−23 %)"
    assert proof.to_dict()["figures"][0]["name"] == "peak memory"
    code = 'jax.jit(step, donate_argnames=("params", "mean"))'
    assert f"\n        {code}\n" in f"{cap.findings}\n"
    # an item of a list holds what is indented by three, code what is indented by four more
    assert f"\n\n       {code}\n" in cap.to_markdown()
    # the difference is there once it was asked for, and stays
    jobs = ProofJobs(cap, lambda content, buffers=(): sent.append(content), lambda: None)
    sent: list[dict[str, Any]] = []
    (finding,) = cap.findings.of("not-donated")
    jobs.open(1, finding.rule, finding.title, 0, "diff").join(60)
    assert sent[-1]["findings"]["rows"][0]["proofs"][0]["diff"].startswith("a: jit_step\n")
    for kept in (cap, pickle.loads(pickle.dumps(cap))):
        assert "donated only in b: params, mean" in kept.findings[0].proofs[0].diff
        assert "donated only in b: params, mean" in kept.to_markdown()


def test_what_would_gain_nothing_is_not_said(module: Any) -> None:
    """The gradients, which are gone when new parameters are written, leave them their memory."""
    given = module.step_args[0], module.step_args[2]
    cap = hs.capture(jax.jit(module.small), *given, hardware="tpu-v5e")
    assert not cap.findings.of("not-donated")
    donated = cap.what_if(donate="params")
    assert donated.memory.peak_bytes > 0.98 * cap.memory.peak_bytes


def test_what_is_at_stake_is_what_is_gained(module: Any) -> None:
    """A temporary is in the memory of a result until that is written."""
    cap = captured(module)
    (finding,) = cap.findings.of("not-donated")
    donated = cap.what_if(**finding.changes[0])
    assert finding.bytes == pytest.approx(
        cap.memory.peak_bytes - donated.memory.peak_bytes, rel=0.05
    )
    assert finding.bytes < 8 << 20
    assert finding.title.endswith("8 MiB held twice, 3.75 MiB of it at the peak")


def test_a_chip_chosen_later_is_that_of_proofs(module: Any) -> None:
    cap = hs.capture(jax.jit(module.step), *module.step_args)
    cap.hardware = "tpu-v5e"
    before, after = cap.findings.prove().of("not-donated")[0].proofs[0].step
    assert before is not None
    assert after == pytest.approx(before, rel=0.2)


def test_advice_that_gains_nothing_is_not_given_any_more(module: Any) -> None:
    cap = captured(module)
    found = cap.findings.prove()
    (first,) = found.of("not-donated")
    (proof,) = first.proofs
    in_vain = replace(proof, peak=(proof.peak[0], proof.peak[0]))
    last = found.with_proofs({(first.rule, first.title): (in_vain,)})[-1]
    assert last.rule == "not-donated"
    assert last.is_refuted
    assert "tried: params, mean donated: no gain" in str(last)
    assert "Try: " not in str(last)
    failed = replace(proof, error="the compiler died")
    (unknown,) = found.with_proofs({(first.rule, first.title): (failed,)}).of("not-donated")
    assert not unknown.is_refuted
    assert "Try: " in str(unknown)


def test_memory_that_costs_more_of_the_step_than_it_frees_is_not_proved(module: Any) -> None:
    cap = captured(module)
    (proof,) = cap.findings.prove().of("not-donated")[0].proofs
    assert proof.gains == "peak"
    freed = proof.gain
    assert proof.step[0]
    longer = replace(proof, step=(proof.step[0], proof.step[0] * (1 + 2 * freed)))
    assert not longer.is_proved
    assert str(longer).startswith("tried: params, mean donated: costs more than it gains (peak ")
    shorter = replace(proof, step=(proof.step[0], proof.step[0] / 2))
    assert proof.net == shorter.net == freed, "of a finding about memory, time is no gain"


def test_a_store_resumes_and_a_cancel_keeps_what_was_tried(module: Any, tmp_path: Path) -> None:
    store = tmp_path / "proofs.db"
    seen: list[str] = []
    cap = captured(module)
    stopped = cap.findings.prove(hs.ProofOptions(store=store, progress=lambda now: False))
    assert not any(f.proofs for f in stopped)
    cap.findings.prove(hs.ProofOptions(store=store))
    again = captured(module).findings.prove(
        hs.ProofOptions(store=store, progress=lambda now: seen.append(str(now)))
    )
    assert again.of("not-donated")[0].proofs[0].is_proved
    assert seen
    assert all("from the store" in s for s in seen)


def test_other_processes_find_the_same(module: Any) -> None:
    """With arguments on a mesh, whose devices another process has of its own."""
    mesh = jax.make_mesh((4, 2), ("data", "model"))
    cut = NamedSharding(mesh, P(None, "model"))
    given = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=cut) for a in module.step_args]
    cap = hs.capture(jax.jit(module.step, in_shardings=cut), *given, hardware="tpu-v5e")
    here = cap.findings.prove()
    there = cap.findings.prove(hs.ProofOptions(isolate=True, workers=1))
    said = [str(p) for f in here for p in f.proofs]
    assert said
    assert [str(p) for f in there for p in f.proofs] == said


def test_a_check_requires_that_nothing_proved_is_left(module: Any) -> None:
    report = hs.check(captured(module), require="proved")
    assert not report
    assert "proved: params, mean donated" in str(report)
    fixed = hs.capture(jax.jit(module.step, donate_argnums=(0, 1)), *module.step_args)
    assert hs.check(fixed, require="proved")
    with pytest.raises(ValueError, match='require is "proved"'):
        hs.check(fixed, require="proof")
    dump = hs.read(captured(module).text)
    assert hs.check(dump, require="proved").status in (0, 2), "never a breach: nothing was tried"


def test_the_command_prints_what_each_advice_gained(
    module: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"{module.__file__}:step"
    assert main(["prove", place, "--hardware", "tpu-v5e"]) in (0, None)
    assert "proved: params, mean donated: peak" in capsys.readouterr().out
    assert main(["prove", place, "--hardware", "tpu-v5e", "--json"]) in (0, None)
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert any(p["is_proved"] for row in rows for p in row["proofs"])
    other = Path(module.__file__).with_name("summing.py")
    other.write_text(
        f"{PROGRAM}\ndef summed(x):\n    return x.sum()\n\nsummed_args = step_args[2:]\n"
    )
    assert main(["prove", f"{other}:summed", "--hardware", "tpu-v5e"]) in (0, None)
    assert "Nothing was tried: hloscope can make none" in capsys.readouterr().out


def test_a_widget_tries_one_finding_and_can_be_stopped(module: Any) -> None:
    cap = captured(module)
    sent: list[dict[str, Any]] = []
    kept = threading.Event()
    jobs = ProofJobs(cap, sent.append, kept.set)
    (finding,) = cap.findings.of("not-donated")
    jobs.start(1, finding.rule, finding.title).join(60)
    assert kept.is_set()
    assert [m["kind"] for m in sent[:-1]] == ["progress"] * (len(sent) - 1)
    assert sent[-1]["kind"] == "proved"
    rows = sent[-1]["findings"]["rows"]
    (row,) = [r for r in rows if r["rule"] == "not-donated"]
    assert row["ways"] == ["params, mean donated"]
    assert row["proofs"][0]["words"].startswith("proved: params, mean donated")
    assert row["proofs"][0]["code"] == ['jax.jit(step, donate_argnames=("params", "mean"))']


def test_the_state_of_a_widget_has_what_was_tried(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a large program, whose analyses are sent only when they are asked for."""
    widgets = pytest.importorskip("hloscope.show.notebook.explorer_widget")
    monkeypatch.setattr("hloscope.show.text.AT_ONCE", 0)
    cap = captured(module)
    widget = widgets.HloscopeWidget(cap)
    assert widget._analyses == b""
    (finding,) = cap.findings.of("not-donated")
    asked = {"kind": "prove", "id": 1, "rule": finding.rule, "title": finding.title}
    widget._answer(widget, asked, [])
    until = time.monotonic() + 60
    while not widget._analyses and time.monotonic() < until:
        time.sleep(0.05)
    assert b"proved: params, mean donated" in gzip.decompress(widget._analyses)


def test_many_arrays_of_one_sharding_are_counted_and_not_listed() -> None:
    """An optimiser's state has hundreds; each is named only where there are few."""

    def step(state: Any, x: Any) -> Any:
        return jax.tree.map(lambda a: a * 0.9 + x.sum(), state)

    on = jax.make_mesh((8,), ("data",))
    shape = jax.ShapeDtypeStruct((64, 64), jax.numpy.float32, sharding=NamedSharding(on, P()))
    cap = hs.capture(jax.jit(step), {f"w{k}": shape for k in range(9)}, shape)
    many = {f"state['w{k}']": P("data") for k in range(9)}
    (change,) = cap.what_if(in_shardings=many).changes
    assert change.words == "9 arrays of state sharded P(\"data\"), such as state['w0']"
    assert change.code.endswith("# the sharding of 9 arrays of state, such as state['w0']")
    few = cap.what_if(in_shardings={k: many[k] for k in list(many)[:2]}).changes
    assert [c.words for c in few] == [f"state['w{k}'] sharded P(\"data\")" for k in range(2)]


def test_a_store_tells_apart_what_words_count_together(tmp_path: Path) -> None:
    def step(state: Any) -> Any:
        return jax.tree.map(lambda a: a * 0.9, state)

    on = jax.make_mesh((8,), ("data",))
    shape = jax.ShapeDtypeStruct((64, 64), jax.numpy.float32, sharding=NamedSharding(on, P()))
    cap = hs.capture(jax.jit(step), {f"w{k}": shape for k in range(9)})
    ways = [
        {f"state['w{k}']": P("data") for k in (0, *more)}
        for more in ([1, 2, 3, 4, 5], [8, 2, 3, 4, 5])
    ]
    options = hs.ProofOptions(store=tmp_path / "kept.db")
    keys = [make_jobs(cap, [{"in_shardings": way}], options)[0][0] for way in ways]
    assert keys[0] != keys[1]


def test_state_that_is_returned_whole_is_returned_in_shards_too() -> None:
    """The person's out_shardings replicate the state: in shards it has to be returned so."""
    on = Mesh(np.array(jax.devices()), ("data",))
    whole, rows = NamedSharding(on, P()), NamedSharding(on, P("data"))

    def step(params: Any, opt: Any, x: Any) -> Any:
        grads = jax.grad(lambda p: sum((jnp.tanh(x @ w) ** 2).sum() for w in p))(params)
        mu = [0.9 * m + g for m, g in zip(opt["mu"], grads, strict=True)]
        nu = [0.9 * n + g * g for n, g in zip(opt["nu"], grads, strict=True)]
        new = [w - m / jnp.sqrt(n) for w, m, n in zip(params, mu, nu, strict=True)]
        return new, {"mu": mu, "nu": nu}

    w = [jax.ShapeDtypeStruct((8192, 8192), np.float32, sharding=whole)] * 4
    x = jax.ShapeDtypeStruct((8, 8192), np.float32, sharding=rows)
    fn = jax.jit(step, donate_argnums=(0, 1), out_shardings=whole)
    cap = hs.capture(fn, w, {"mu": w, "nu": w}, x, hardware="tpu-v5e")
    (proved,) = cap.findings.prove().of("replicated-state")
    before, after = proved.proofs[0].peak
    assert before - after > 0.9 * proved.bytes


def test_advice_that_is_another_program_is_said_not_to_be_tried() -> None:
    """Gradients summed over devices in each trip: a sum after the loop is no change of options."""
    mesh = Mesh(np.array(jax.devices()[:8]), ("x",))

    def step(w: Any, xs: Any) -> Any:
        def micro(total: Any, x: Any) -> Any:
            return total + jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(w), None

        return jax.lax.scan(micro, jnp.zeros_like(w), xs)[0]

    def shaped(spec: Any, *sizes: int) -> Any:
        return jax.ShapeDtypeStruct(sizes, jnp.float32, sharding=NamedSharding(mesh, spec))

    given = shaped(P(), 1024, 1024), shaped(P(None, "x"), 8, 512, 1024)
    cap = hs.capture(jax.jit(step), *given, hardware="tpu-v5e")
    (by_hand,) = [n for n, f in enumerate(cap.findings, 1) if f.advice and not f.changes]
    assert "Not tried" not in str(cap.findings)
    last = str(cap.findings.prove()).splitlines()[-1]
    assert last.startswith(f"Not tried: finding {by_hand}, whose advice is a change of the program")
