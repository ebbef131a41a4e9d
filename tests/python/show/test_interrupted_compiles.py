"""Ctrl+C while a command compiles: what is finished is printed, nothing is left, and it says so."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

# Donation and rows of state that could be donated: findings whose advice is tried.
PROGRAM = """
import jax, jax.numpy as jnp

def step(params, mean, x):
    grads = jax.grad(lambda p: (jnp.tanh(x @ p) ** 2).sum())(params)
    mean = 0.9 * mean + grads
    return params - 0.1 * mean / (1e-6 + jnp.abs(mean)), mean

step_args = tuple(
    jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((1024, 1024), (1024, 1024), (64, 1024))
)
"""
# The command, interrupted as from a keyboard by the first thing that it does for a proof; what
# it does goes on for long, as a compile.
INTERRUPTED = """
import os, signal, sys, time
from hloscope.capturing.changing import what_if as module

def long(*given, **more):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)

module.what_if = long
from hloscope.__main__ import main
sys.exit(main())
"""
# The same where the program itself is compiled: in the main thread.
IN_THE_COMPILER = """
import signal, sys, threading, os
import jax._src.compiler as compiler

own = compiler.backend_compile_and_load
def interrupted(*given, **more):
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    return own(*given, **more)

compiler.backend_compile_and_load = interrupted
from hloscope.__main__ import main
sys.exit(main())
"""


def interrupted(code: str, folder: Path, *more: str) -> tuple[int, str, str, float]:
    path = folder / "training.py"
    path.write_text(PROGRAM)
    temporary = folder / "temporary"
    temporary.mkdir()
    words = ["prove", f"{path}:step", "--hardware", "tpu-v5e", *more]
    start = time.monotonic()
    process = subprocess.Popen(
        ["env", "--default-signal=INT", sys.executable, "-c", code, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
        start_new_session=True,
    )
    out, err = process.communicate(timeout=120)
    took = time.monotonic() - start
    assert list(temporary.iterdir()) == []
    until = time.monotonic() + 10
    while running_in_session(process.pid) and time.monotonic() < until:
        time.sleep(0.1)
    assert running_in_session(process.pid) == []
    return process.returncode, out, err, took


def running_in_session(session: int) -> list[str]:
    """Command lines of what is not ended, or only waits to be noticed by its parent."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue
        state, _, _, of = rest.split()[:4]
        if int(of) == session and state != "Z":
            found.append(name)
    return found


def test_a_proof_that_is_interrupted_is_not_waited_for(tmp_path: Path) -> None:
    status, out, err, took = interrupted(INTERRUPTED, tmp_path)
    assert (status, err) == (130, "hloscope: interrupted\n")
    assert "not donated" in out
    assert "proved" not in out
    assert took < 50


def test_an_interrupt_while_the_program_is_compiled_is_one_line(tmp_path: Path) -> None:
    status, out, err, _ = interrupted(IN_THE_COMPILER, tmp_path)
    assert (status, out, err) == (130, "", "hloscope: interrupted\n")
