"""The Jupyter routes of passes: what lies beside a dump's file, within the same bounds as files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hloscope as hs
import pytest
from corpus.by_hand import write_passes
from hloscope.lab import passes
from hloscope.processes.frames import HEADER
from hloscope.view.schema import decode
from test_server import ask, jp_server_config, parse, refused  # noqa: F401
from tornado.httpclient import HTTPClientError

pytest_plugins = ["pytest_jupyter.jupyter_server"]

END = "module_0001.jit_step.cpu_after_optimizations.txt"
MIDDLE = "module_0001.jit_step.0002.simplification.after_dce.before_pipeline-end.txt"


def header(block: bytes) -> dict[str, Any]:
    found, _ = decode(block)
    return found


def names(block: bytes) -> list[str]:
    """Names of the rows' passes."""
    return [row["title"] for row in header(block)["extras"]["passes"]["rows"]]


async def test_the_passes_beside_a_dump_and_their_costs(
    ask: Callable[..., Any],  # noqa: F811
    jp_root_dir: Path,
) -> None:
    write_passes(jp_root_dir / "dump")
    frames = await ask("passes", path=f"dump/{END}")
    assert {kind for kind, _ in frames[:-1]} == {b"P"}
    kind, block = frames[-1]
    assert kind == b"K"
    assert names(block) == [
        "before any pass", "algsimp", "dce", "shardy-xla", "layout-assignment", "fusion",
    ]  # fmt: skip
    # of what the reader says, a busy server passes on the newest alone
    assert all(json.loads(payload)["stage"] for _, payload in frames[:-1])
    kind, payload = (await ask("pass_costs", path=f"dump/{END}"))[-1]
    assert kind == b"C"
    costs = dict(json.loads(payload))
    assert costs[1]["flops"] > 0
    assert costs[5]["peak_bytes"] > 0
    # kept: no second process
    again = await ask("passes", path=f"dump/{END}")
    assert again == [(b"K", block)]


def test_the_reader_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_passes(tmp_path)
    capture = hs.read(tmp_path / END)
    monkeypatch.chdir(tmp_path)  # where it goes, and from where the test comes back
    monkeypatch.setattr(passes, "_EVERY", 0.0)
    sent: list[bytes] = []
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        passes.serve(sent.append, capture, folder, END, lambda: None)
    finally:
        os.close(folder)
    size = HEADER.size
    told = [json.loads(f[size:]) for f in sent if HEADER.unpack(f[:size])[0] == b"P"]
    for words in ("Comparing the passes", "Following instructions", "FLOPs, bytes and peak"):
        mine = [(p["done"], p["of"]) for p in told if p["stage"] == words]
        assert mine, words
        assert mine == sorted(mine)
        assert {of for _, of in mine} == {mine[0][1]}
        assert mine[-1][0] <= mine[0][1]


async def test_a_dump_from_the_middle_is_shown_where_it_stands(
    ask: Callable[..., Any],  # noqa: F811
    jp_root_dir: Path,
) -> None:
    write_passes(jp_root_dir / "dump")
    _, block = (await ask("passes", path=f"dump/{MIDDLE}"))[-1]
    found = header(block)["extras"]["passes"]
    assert found["rows"][found["begin"]]["title"] == "dce"
    _, block = (await ask("passes", path=f"dump/{END}"))[-1]
    found = header(block)["extras"]["passes"]
    assert found["rows"][found["begin"]]["title"] == "fusion"


async def test_another_dump_of_the_same_number_is_another_module(
    ask: Callable[..., Any],  # noqa: F811
    jp_root_dir: Path,
) -> None:
    folder = write_passes(jp_root_dir / "dump")
    for file in list(folder.iterdir()):
        other = file.read_text().replace("jit_step", "jit_other")
        (folder / file.name.replace("jit_step", "jit_other")).write_text(other + "\n" * 5000)
    _, block = (await ask("passes", path=f"dump/{END}"))[-1]
    assert header(block)["title"] == "jit_step"
    assert "fusion" in names(block)


async def test_what_has_no_passes_says_how_to_dump_them(
    jp_fetch: Callable[..., Any], jp_root_dir: Path
) -> None:
    folder = write_passes(jp_root_dir / "dump")
    for file in folder.iterdir():
        if ".000" in file.name:
            file.unlink()
    (folder / "plain.hlo").write_text((folder / END).read_text())
    for path in (f"dump/{END}", "dump/plain.hlo"):
        with pytest.raises(HTTPClientError) as e:
            await jp_fetch("hloscope", "api", "passes", params={"path": path})
        assert e.value.code == 422
        assert "xla_dump_hlo_pass_re" in json.loads(e.value.response.body)["message"]


async def test_links_lead_nowhere(
    ask: Callable[..., Any],  # noqa: F811
    jp_fetch: Callable[..., Any],
    jp_root_dir: Path,
    tmp_path: Path,
) -> None:
    """A pass that is a link is left out, and a folder outside is refused."""
    folder = write_passes(jp_root_dir / "dump")
    outside = tmp_path / "secret.txt"
    secret = (folder / END).read_text().replace("tanh", "cosine")
    outside.write_text(secret)
    link = folder / "module_0001.jit_step.0007.partitioner.after_leak.before_pipeline-end.txt"
    link.symlink_to(outside)
    kind, payload = (await ask("passes", path=f"dump/{END}"))[-1]
    assert kind == b"E"
    message = json.loads(payload)["message"]
    assert "cannot read" in message
    assert "cosine" not in message
    write_passes(tmp_path / "away")
    (jp_root_dir / "away").symlink_to(tmp_path / "away")
    for path in (f"away/{END}", f"dump/../../{END}", f".hidden/{END}", f"absent/{END}"):
        fetching = jp_fetch("hloscope", "api", "passes", params={"path": path})
        assert await refused(fetching) == 404, path
    fetching = jp_fetch(
        "hloscope", "api", "passes", params={"path": END}, headers={"Authorization": "no"}
    )
    assert await refused(fetching) == 403


async def test_too_many_bytes_are_413(
    jp_fetch: Callable[..., Any], jp_root_dir: Path, jp_serverapp: Any
) -> None:
    write_passes(jp_root_dir / "dump")
    pool = next(
        rule.target_kwargs["pool"]
        for rule in jp_serverapp.web_app.default_router.rules[0].target.rules
        if "pool" in rule.target_kwargs
    )
    pool.limits.max_passes_bytes = 100
    with pytest.raises(HTTPClientError) as e:
        await jp_fetch("hloscope", "api", "passes", params={"path": f"dump/{END}"})
    assert e.value.code == 413
    assert "100 B" in json.loads(e.value.response.body)["message"]


async def test_a_pass_that_is_written_anew_is_read_anew(
    ask: Callable[..., Any],  # noqa: F811
    jp_root_dir: Path,
) -> None:
    folder = write_passes(jp_root_dir / "dump")
    _, before = (await ask("passes", path=f"dump/{END}"))[-1]
    last = folder / "module_0001.jit_step.0006.partitioner.after_fusion.before_pipeline-end.txt"
    last.rename(folder / last.name.replace("after_fusion", "after_newer"))
    _, after = (await ask("passes", path=f"dump/{END}"))[-1]
    assert "newer" in names(after)
    assert "newer" not in names(before)


async def test_who_goes_away_from_the_costs_ends_the_process(tmp_path: Path) -> None:
    """And who goes away between the block and its costs does not."""
    from hloscope.lab.jobs import Job

    job = Job()
    job.post(b"K", b"block")
    watching = job.watch(b"K")
    assert (await watching.__anext__())[:1] == b"K"
    await watching.aclose()
    assert not job.cancelled
    watching = job.watch(b"C")
    await watching.__anext__()  # progress
    await watching.aclose()
    assert job.cancelled


def test_a_plain_file_is_no_pipe_and_no_link(tmp_path: Path) -> None:
    from hloscope.lab.dumps import plain_file

    (tmp_path / "file").write_bytes(b"text")
    assert plain_file(tmp_path / "file") == b"text"
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "absent"):
        with pytest.raises(OSError):
            plain_file(tmp_path / name)
