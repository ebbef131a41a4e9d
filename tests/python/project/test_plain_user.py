"""As a plain user on a machine set up for somebody else: no home, nowhere to write."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import tempfile
if "NOWHERE" in os.environ:
    tempfile._candidate_tempdir_list = lambda: [os.environ["TMPDIR"]]
import jax, jax.numpy as jnp
import hloscope as hs
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
x = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=NamedSharding(mesh, P("x")))
f = jax.jit(lambda x: (x @ x).sum(0))
cap = hs.capture(f, x)
print("collectives", len(cap.collectives), cap.cost("tpu-v5e").roofline is not None)
print("warnings", cap.warnings)
print("page", len(cap.html()) > 100_000)
for name, get in (
    ("passes", lambda: len(cap.passes().rows) > 3),
    ("note", lambda: cap.passes().note),
    ("profile", lambda: cap.profile(jnp.ones((8, 8))).seconds.sum() > 0),
    ("write", lambda: cap.to_html(os.environ["HOME"] + "/page.html")),
    ("read", lambda: hs.read(os.environ["HOME"] + "/dump.hlo")),
    ("hardware", lambda: hs.read(cap.text, hardware="tpu-v5e").cost().roofline is not None),
):
    try:
        print(name, get())
    except (ValueError, OSError, RuntimeError) as error:
        print(name, type(error).__name__, error)
"""


@pytest.fixture
def as_plain_user() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs Python code as somebody whom file permissions stop, which they do not stop root."""
    command: list[str] = []
    if os.geteuid() == 0:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            pytest.skip("root without setpriv (util-linux): nothing is closed to it")
        command = [setpriv, "--bounding-set=-dac_override,-dac_read_search"]

    def run(code: str, **env: str) -> subprocess.CompletedProcess[str]:
        kept = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
        clean = {k: os.environ[k] for k in kept if k in os.environ}
        return subprocess.run(
            [*command, sys.executable, "-B", "-c", code],
            env={**clean, "JAX_PLATFORMS": "cpu", **env},
            capture_output=True,
            text=True,
        )

    return run


@pytest.mark.parametrize(
    ("mode", "somewhere"),
    [(0o500, True), (0o000, False)],
    ids=["read-only, tmp elsewhere", "closed, no tmp at all"],
)
def test_home_and_temporary_folder_cannot_be_written(
    tmp_path: Path,
    as_plain_user: Callable[..., subprocess.CompletedProcess[str]],
    mode: int,
    somewhere: bool,
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(mode)
    env = {"HOME": str(home), "TMPDIR": str(home)} | ({} if somewhere else {"NOWHERE": "1"})
    try:
        done = as_plain_user(PROGRAM, **env)
    finally:
        home.chmod(0o700)
    assert done.returncode == 0, done.stdout + done.stderr
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    assert said["collectives"] == "2 True"
    assert said["page"] == said["hardware"] == "True"
    assert "PermissionError" in said["write"]
    assert "ReadError" in said["read"]
    assert str(home / "dump.hlo") in said["read"]
    if somewhere:
        assert said["warnings"] == "()"
        assert said["passes"] == said["profile"] == "True"
    else:
        assert said["profile"].startswith("CaptureError jax's profiler writes its trace")
        for name in ("warnings", "profile", "note"):
            assert "Set TMPDIR to a folder" in said[name]
    assert list(home.iterdir()) == []


def test_no_home_at_all(as_plain_user: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = as_plain_user(
        "import hloscope.hardware as h; print(len(h.load()) > 5)", HOME="/nonexistent/home"
    )
    assert done.stdout == "True\n", done.stderr
