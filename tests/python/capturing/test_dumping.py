"""XLA dumps only where the dump fits: its file writers end the process on a full disk."""

from __future__ import annotations

import contextlib
import inspect
import os
import subprocess
import sys
from collections import namedtuple

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hloscope.capturing.dumps import dumping
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Space = namedtuple("Space", "f_bavail f_frsize f_files f_favail")


@pytest.fixture
def lowered():
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
    spec = NamedSharding(mesh, PartitionSpec("data"))
    return jax.jit(lambda x: jnp.tanh(x @ x.T)).lower(
        jax.ShapeDtypeStruct((16, 16), jnp.float32, sharding=spec)
    )


def test_the_estimate_is_above_what_is_written(tmp_path):
    def deep(x):
        for _ in range(20):
            x = jnp.tanh(x @ x.T)
        return x

    lowered = jax.jit(deep).lower(jnp.ones((16, 16)))
    options = {
        "xla_dump_to": str(tmp_path),
        "xla_dump_hlo_pass_re": ".*",
        "xla_dump_hlo_as_text": True,
        "xla_dump_hlo_as_proto": True,
    }
    lowered.compile(compiler_options=options)
    written = sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file())
    assert written > 50_000
    assert written < dumping.bytes_needed(lowered, every_pass=True) - dumping._EVERY_PASS[2]


def test_large_constants_count():
    constant = jnp.arange(1 << 18, dtype=jnp.float32)
    lowered = jax.jit(lambda x: x + constant).lower(constant)
    assert dumping.bytes_needed(lowered) > 20 * constant.nbytes


def test_a_folder_is_made_and_removed():
    with dumping.dump_folder(1 << 20) as room:
        assert os.listdir(room.path) == []
        assert room.why_not == ""
        path = room.path
    assert not os.path.exists(path)


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (Space(6, 4096, 1000, 1000), "has 24 KiB free"),
        (Space(1 << 30, 4096, 1 << 20, 3), "free"),  # no inodes
    ],
)
def test_a_full_disk(monkeypatch, lowered, space, said):
    monkeypatch.setattr(os, "statvfs", lambda _: space)
    cap = hs.capture(lowered)
    assert cap.module.entry is not None
    assert cap.target.dumps == {}
    (warning,) = cap.warnings
    assert said in warning
    assert "the dump was left out" in warning
    assert "TMPDIR" in warning


def test_a_disk_that_fills_up_meanwhile(monkeypatch, lowered):
    asked = []

    def free(_):
        asked.append(1)
        return (1 << 40 if len(asked) == 1 else 4096), 1 << 20

    monkeypatch.setattr(dumping, "free_space", free)
    cap = hs.capture(lowered)
    assert cap.target.dumps == {}
    assert "filled up" in cap.warnings[0]


def test_the_other_place_is_taken(monkeypatch, tmp_path):
    places = [str(tmp_path / "gone"), str(tmp_path)]
    monkeypatch.setattr(dumping, "_places", lambda: places)
    with dumping.dump_folder(1 << 20) as room:
        assert os.path.dirname(room.path) == str(tmp_path)


def test_no_place_at_all(monkeypatch, lowered):
    def gone():
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr(dumping.tempfile, "gettempdir", gone)
    cap = hs.capture(lowered)
    assert "no folder for temporary files" in cap.warnings[0]


PROGRAM = inspect.cleandoc("""
    import os, sys
    import jax, jax.numpy as jnp, numpy as np
    import hloscope as hs
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
    x = jax.ShapeDtypeStruct((64, 64), jnp.float32,
                             sharding=NamedSharding(mesh, PartitionSpec("data", "model")))
    {setup}
    cap = hs.capture(jax.jit(lambda x: jnp.tanh(x @ x.T)), x)
    print(len(cap.module.instructions) > 3, *cap.warnings)
""")


def captured_in_a_child(setup, **variables):
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    }
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(setup=setup)],
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_no_file_may_be_written():
    """LLVM ended the process here, with "IO failure on output stream: File too large"."""
    found = captured_in_a_child(
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))"
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("True the dump was left out: this process may not write files")


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", folder], capture_output=True
    ).returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder
    with contextlib.suppress(OSError):
        subprocess.run(["umount", folder], check=False)


def test_a_small_disk(small_disk):
    found = captured_in_a_child("", TMPDIR=str(small_disk))
    assert found.returncode == 0, found.stderr
    assert "24 KiB free" in found.stdout
