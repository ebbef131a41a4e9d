"""The Jupyter routes: who may ask, what may be read, what a hostile file can do (nothing)."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hloscope.lab.limits import HloscopeLimits
from hloscope.processes.frames import read_frame
from hloscope.view.schema import joined
from tornado.httpclient import HTTPClientError

pytest_plugins = ["pytest_jupyter.jupyter_server"]

MODULE = """HloModule jit_f, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

ENTRY %main.3 (x.1: f32[8]) -> f32[8] {
  %x.1 = f32[8]{0} parameter(0)
  ROOT %tanh.2 = f32[8]{0} tanh(%x.1), metadata={op_name="jit(f)/tanh"}
}
"""


@pytest.fixture
def jp_server_config() -> dict[str, Any]:
    return {
        "ServerApp": {"jpserver_extensions": {"hloscope.lab": True}},
        "HloscopeLimits": {
            "max_file_bytes": 8_000_000,
            "max_memory_bytes": 1 << 30,
            "max_seconds": 10,
        },
    }


@pytest.fixture
def ask(jp_fetch: Callable[..., Any]) -> Callable[..., Any]:
    """Frames of one request as [(kind, payload)]."""

    async def get(what: str, headers: dict[str, str] | None = None, **params: str) -> Any:
        response = await jp_fetch(
            "hloscope", "api", what, params=params, headers=headers, request_timeout=60
        )
        return parse(response.body)

    return get


def parse(body: bytes) -> list[tuple[bytes, bytes]]:
    from io import BytesIO

    stream = BytesIO(body)
    out = []
    while frame := read_frame(stream, 1 << 30):
        out.append(frame)
    return out


async def refused(awaitable: Any) -> int:
    with pytest.raises(HTTPClientError) as e:
        await awaitable
    return int(e.value.code)


async def test_a_file_becomes_a_view_and_a_text(ask: Any, jp_root_dir: Path) -> None:
    (jp_root_dir / "sub").mkdir()
    (jp_root_dir / "sub" / "f.hlo").write_text(MODULE)
    got = await ask("view", path="sub/f.hlo")
    assert [k for k, _ in got][-1] == b"V"
    assert {k for k, _ in got[:-1]} == {b"P"}
    block = gzip.decompress(got[-1][1])
    assert block[:4] == b"HLOV"
    assert b"tanh.2" in block
    assert b"f.hlo" in block
    analyses = await ask("analyses", path="sub/f.hlo")
    assert analyses[-1][0] == b"A"
    header, columns = joined(got[-1][1], analyses[-1][1])
    assert "flops" in header["summary"]
    assert len(columns["cost.flops"]) == 2
    text = await ask("text", path="sub/f.hlo")
    assert gzip.decompress(text[-1][1])[:4] == b"HLOT"
    page = await ask("html", path="sub/f.hlo")
    assert page[-1][0] == b"H"
    assert page[-1][1].lower().startswith(b"<!doctype html>")


async def test_the_second_time_comes_from_the_cache(ask: Any, jp_root_dir: Path) -> None:
    (jp_root_dir / "f.hlo").write_text(MODULE)
    first = await ask("view", path="f.hlo")
    again = await ask("view", path="f.hlo")
    assert len(first) > 1
    assert again == first[-1:]
    (jp_root_dir / "f.hlo").write_text(MODULE.replace("tanh", "cosine"))
    changed = await ask("view", path="f.hlo")
    assert b"cosine.2" in gzip.decompress(changed[-1][1])


async def test_an_unchanged_file_is_304(jp_fetch: Any, jp_root_dir: Path) -> None:
    file = jp_root_dir / "f.hlo"
    file.write_text(MODULE)
    route = ("hloscope", "api", "view")
    first = await jp_fetch(*route, params={"path": "f.hlo"})
    tag = {"If-None-Match": first.headers["ETag"]}
    os.utime(file, ns=(1, 1))
    assert await refused(jp_fetch(*route, params={"path": "f.hlo"}, headers=tag)) == 304
    file.write_text(MODULE + "\n")
    assert (await jp_fetch(*route, params={"path": "f.hlo"}, headers=tag)).code == 200


async def test_without_a_token_403(
    jp_root_dir: Path, jp_serverapp: Any, http_server_client: Any, jp_base_url: str
) -> None:
    (jp_root_dir / "f.hlo").write_text(MODULE)
    for what in ("view", "analyses", "text", "list", "html", "diff", "folder"):
        url = f"{jp_base_url}hloscope/api/{what}?path=f.hlo"
        assert await refused(http_server_client.fetch(url)) == 403
        wrong = {"Authorization": "token wrong"}
        assert await refused(http_server_client.fetch(url, headers=wrong)) == 403


HOSTILE = [
    "../secret.hlo", "sub/../../secret.hlo", "..%2fsecret.hlo", "/etc/passwd", "//etc/passwd",
    "link.hlo", "linked/secret.hlo", ".hidden.hlo", "sub/.hidden/x.hlo", "sub", "", "/", ".",
    "pipe.hlo", "no\0null.hlo", "absent.hlo", "f.hlo/x", "C:\\secret.hlo", "..\\secret.hlo",
    "file:///etc/passwd", "x" * 5000, "~/secret.hlo", "/proc/self/environ", "broken-link.hlo",
]  # fmt: skip


@pytest.fixture
def hostile_root(jp_root_dir: Path) -> Path:
    outside = jp_root_dir.parent / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "secret.hlo").write_text(MODULE)
    (jp_root_dir.parent / "secret.hlo").write_text(MODULE)
    (jp_root_dir / "sub" / ".hidden").mkdir(parents=True)
    (jp_root_dir / "sub" / ".hidden" / "x.hlo").write_text(MODULE)
    (jp_root_dir / ".hidden.hlo").write_text(MODULE)
    (jp_root_dir / "f.hlo").write_text(MODULE)
    (jp_root_dir / "link.hlo").symlink_to(outside / "secret.hlo")
    (jp_root_dir / "linked").symlink_to(outside)
    (jp_root_dir / "broken-link.hlo").symlink_to(jp_root_dir / "nowhere")
    os.mkfifo(jp_root_dir / "pipe.hlo")
    return jp_root_dir


async def test_1000_hostile_requests_are_refused_and_the_server_lives(
    jp_fetch: Any, ask: Any, hostile_root: Path
) -> None:
    async def one(n: int) -> int:
        path = HOSTILE[n % len(HOSTILE)]
        what = ("view", "text", "html", "diff")[n // len(HOSTILE) % 4]
        params = {"path": path, "other": "f.hlo"}
        return await refused(jp_fetch("hloscope", "api", what, params=params))

    for first in range(0, 1000, 20):
        codes = await asyncio.gather(*(one(n) for n in range(first, first + 20)))
        assert set(codes) <= {400, 404}, codes
    got = await ask("view", path="f.hlo")
    assert got[-1][0] == b"V"


async def test_a_link_inside_the_root_is_followed(ask: Any, jp_root_dir: Path) -> None:
    (jp_root_dir / "f.hlo").write_text(MODULE)
    (jp_root_dir / "same.hlo").symlink_to(jp_root_dir / "f.hlo")
    assert (await ask("view", path="same.hlo"))[-1][0] == b"V"


async def test_a_large_file_is_413(jp_fetch: Any, jp_root_dir: Path) -> None:
    with open(jp_root_dir / "big.hlo", "wb") as f:
        f.truncate(8_000_001)
    assert await refused(jp_fetch("hloscope", "api", "view", params={"path": "big.hlo"})) == 413


JUNK = {
    "empty.hlo": b"",
    "junk.hlo": bytes(range(256)) * 2000,
    "junk.pb": b"\x0a\xff\xff\xff\xff\x0f" + b"\xff" * 1000,
    "prose.hlo": b"Dear all,\nthis is not a module.\n",
    "deep.hlo": b"HloModule m\n\nENTRY e {\n  ROOT a = " + b"(" * 200_000,
    "cut.hlo.gz": gzip.compress(MODULE.encode())[:-20],
}


@pytest.mark.parametrize("name", JUNK)
async def test_junk_is_an_error_that_says_what(ask: Any, jp_root_dir: Path, name: str) -> None:
    (jp_root_dir / name).write_bytes(JUNK[name])
    kind, payload = (await ask("view", path=name))[-1]
    if name in ("deep.hlo", "cut.hlo.gz") and kind == b"V":
        return  # a reader may show the part it understood
    assert kind == b"E"
    said = json.loads(payload)
    assert len(said["message"]) > 10
    assert "Traceback" not in said["message"]
    if name == "prose.hlo":
        assert said["excerpt"][0] == [1, "Dear all,"]


def bomb(unpacked: int) -> bytes:
    """A gzip file that unpacks to ``unpacked`` bytes, made without holding them."""
    from io import BytesIO

    out = BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=9) as f:
        block = b"  %a = f32[] add(%a, %a)\n" * 40_000
        f.write(b"HloModule bomb\n\nENTRY %main {\n")
        for _ in range(unpacked // len(block)):
            f.write(block)
    return out.getvalue()


async def test_a_gzip_bomb_ends_within_limits(ask: Any, jp_root_dir: Path) -> None:
    (jp_root_dir / "bomb.hlo.gz").write_bytes(bomb(700_000_000))
    (jp_root_dir / "f.hlo").write_text(MODULE)
    began = asyncio.get_running_loop().time()
    kind, payload = (await ask("view", path="bomb.hlo.gz"))[-1]
    assert kind == b"E"
    assert len(json.loads(payload)["message"]) > 10
    assert asyncio.get_running_loop().time() - began < 40
    assert (await ask("view", path="f.hlo"))[-1][0] == b"V"


async def test_two_askers_share_one_process(ask: Any, jp_root_dir: Path) -> None:
    (jp_root_dir / "f.hlo").write_text(MODULE)
    answers = await asyncio.gather(*(ask("view", path="f.hlo") for _ in range(8)))
    assert {a[-1] for a in answers} == {answers[0][-1]}


async def test_nobody_waits_so_the_child_ends(tmp_path: Path) -> None:
    from hloscope.lab.files import OpenFile
    from hloscope.lab.frames import digest
    from hloscope.lab.jobs import Pool

    steps = [f"  %s.{n} = f32[8]{{0}} tanh(%{f's.{n - 1}' if n else 'x.1'})" for n in range(50_000)]
    whole = MODULE.replace("  ROOT", "\n".join([*steps, "  ROOT"]))  # it takes a while
    file = tmp_path / "f.hlo"
    file.write_text(whole)
    pool = Pool(HloscopeLimits())
    with file.open("rb") as stream:
        opened = OpenFile("f.hlo", stream, len(whole), digest(whole.encode()))
        asked = pool.frames("key", b"V", "view", [opened], {})
        assert (await anext(asked))[:1] == b"P"
        job = pool.jobs["key"]
        while job.child is None:
            await asyncio.sleep(0.01)
        await asked.aclose()
    assert job.cancelled
    while not job.finished:
        await asyncio.sleep(0.01)
    assert job.child.process.returncode != 0
    assert not pool.jobs
    pool.close()


SECRETS = ["JUPYTER_TOKEN", "AWS_ACCESS_KEY_ID", "GITHUB_PAT", "OPENAI_KEY", "SSH_PRIVATE_KEY", "X"]


async def test_secrets_do_not_reach_the_child(
    monkeypatch: pytest.MonkeyPatch, ask: Any, jp_root_dir: Path
) -> None:
    from hloscope.processes.environment import child_environment

    for name in SECRETS:
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    got = child_environment()
    assert not set(SECRETS) & set(got)
    assert got["LC_ALL"] == "C.UTF-8"
    assert got["PATH"] == os.environ["PATH"]
    (jp_root_dir / "f.hlo").write_text(MODULE)
    assert (await ask("view", path="f.hlo"))[-1][0] == b"V"


async def test_spaces_are_part_of_a_name(ask: Any, jp_root_dir: Path, jp_fetch: Any) -> None:
    (jp_root_dir / "f.hlo").write_text(MODULE)
    assert await refused(jp_fetch("hloscope", "api", "view", params={"path": " f.hlo"})) == 404
    (jp_root_dir / " f.hlo ").write_text(MODULE.replace("jit_f", "spaced"))
    got = await ask("view", path=" f.hlo ")
    assert b"spaced" in gzip.decompress(got[-1][1])


async def test_an_error_names_the_file_as_it_is(jp_fetch: Any) -> None:
    with pytest.raises(HTTPClientError) as e:
        await jp_fetch("hloscope", "api", "view", params={"path": "50%.hlo %s"})
    assert json.loads(e.value.response.body)["message"] == "no such file: '50%.hlo %s'"


@pytest.mark.parametrize("module", ["²", "--1", "٣", "9" * 900])
async def test_what_is_no_number_is_a_name(ask: Any, jp_root_dir: Path, module: str) -> None:
    (jp_root_dir / "f.hlo").write_text(MODULE)
    kind, payload = (await ask("view", path="f.hlo", module=module))[-1]
    assert kind == b"E"
    assert "holds no module" in json.loads(payload)["message"]


async def test_a_file_that_changes_while_it_is_read(
    ask: Any, jp_root_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hloscope.lab import jobs

    file = jp_root_dir / "f.hlo"
    file.write_text(MODULE)
    start = jobs.Pool._start

    def rewritten(self: Any, *arguments: Any) -> Any:
        with file.open("r+") as f:  # the same size, and no time can tell
            f.write(MODULE.replace("tanh", "sine"[:4]))
        os.utime(file, ns=(1, 1))
        return start(self, *arguments)

    monkeypatch.setattr(jobs.Pool, "_start", rewritten)
    kind, payload = (await ask("view", path="f.hlo"))[-1]
    assert kind == b"E"
    assert "changed while it was read" in json.loads(payload)["message"]
    monkeypatch.undo()
    assert b"sine.2" in gzip.decompress((await ask("view", path="f.hlo"))[-1][1])


@pytest.mark.parametrize(
    ("program", "ending"),
    [
        ("import sys; sys.exit('first\\nwhy it ended')", "ended with status 1: why it ended"),
        ("import os; os._exit(3)", "ended with status 3"),
        ("import os; os.abort()", "was killed by SIGABRT"),
    ],
)
async def test_a_reader_that_ends_without_an_answer(
    ask: Any, jp_root_dir: Path, monkeypatch: pytest.MonkeyPatch, program: str, ending: str
) -> None:
    from hloscope.lab import jobs

    (jp_root_dir / "f.hlo").write_text(MODULE)
    start = jobs.Pool._start

    def ends(self: Any, *arguments: Any) -> Any:
        return replace(start(self, *arguments), command=[sys.executable, "-c", program])

    monkeypatch.setattr(jobs.Pool, "_start", ends)
    kind, payload = (await ask("view", path="f.hlo"))[-1]
    assert kind == b"E"
    assert json.loads(payload)["message"] == f"the process that read this {ending}"


async def test_the_same_size_and_time_is_not_the_same_file(ask: Any, jp_root_dir: Path) -> None:
    file = jp_root_dir / "f.hlo"
    for opcode in ("tanh", "sine", "sqrt"):
        with file.open("w") as f:
            f.write(MODULE.replace("tanh", opcode))
        os.utime(file, ns=(10**18, 10**18))
        got = await ask("view", path="f.hlo")
        assert f"{opcode}.2".encode() in gzip.decompress(got[-1][1])


async def test_the_server_answers_while_it_digests(
    ask: Any, jp_root_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    from hloscope.lab import files

    (jp_root_dir / "f.hlo").write_text(MODULE)
    where = []
    digest = files._digest

    def watched(stream: Any) -> str:
        where.append(threading.current_thread())
        return digest(stream)

    monkeypatch.setattr(files, "_digest", watched)
    await ask("view", path="f.hlo")
    assert where
    assert threading.main_thread() not in where


async def test_the_modules_of_a_file_are_listed(jp_root_dir: Path, ask: Callable[..., Any]) -> None:
    other = MODULE.replace("jit_f", "jit_g")
    (jp_root_dir / "one.hlo").write_text(MODULE)
    (jp_root_dir / "two.hlo").write_text(MODULE + "\n" + other)
    (jp_root_dir / "two.hlo.gz").write_bytes(gzip.compress((MODULE + "\n" + other).encode()))
    both = [{"name": "jit_f", "instructions": 2}, {"name": "jit_g", "instructions": 2}]
    for path, module, expected in (
        ("one.hlo", None, {"modules": [], "module": 0}),
        ("two.hlo", None, {"modules": both, "module": 0}),
        ("two.hlo", "1", {"modules": both, "module": 1}),
        ("two.hlo.gz", None, {"modules": both, "module": 0}),
    ):
        chosen = {} if module is None else {"module": module}
        kind, payload = (await ask("list", path=path, **chosen))[-1]
        assert (kind, json.loads(payload)) == (b"I", expected)


async def test_the_chosen_modules_are_compared(jp_root_dir: Path, ask: Callable[..., Any]) -> None:
    other = MODULE.replace("jit_f", "jit_g").replace("tanh", "cosine")
    (jp_root_dir / "two.hlo").write_text(MODULE + "\n" + other)
    paths = {"path": "two.hlo", "other": "two.hlo"}
    same = (await ask("diff", **paths, module="1", other_module="1"))[-1][1].decode()
    assert "jit_g ↔ jit_g" in same
    assert "<del>" not in same
    differ = (await ask("diff", **paths, module="1", other_module="0"))[-1][1].decode()
    assert "jit_g ↔ jit_f" in differ
    assert "<del><code>cosine</code></del>" in differ
    kind, said = (await ask("diff", **paths, module="1", other_module="7"))[-1]
    assert kind == b"E"
    assert "7" in json.loads(said)["message"]


async def test_the_page_is_for_the_chosen_hardware(
    jp_root_dir: Path, ask: Callable[..., Any]
) -> None:
    (jp_root_dir / "f.hlo").write_text(MODULE)
    page = (await ask("html", path="f.hlo", hardware="h100"))[-1][1].decode()
    assert "&quot;hardware&quot;: &quot;h100&quot;" in page
    kind, said = (await ask("html", path="f.hlo", hardware="abacus"))[-1]
    assert kind == b"E"
    assert "abacus" in json.loads(said)["message"]


@pytest.mark.parametrize("name", ["module", "other_module", "hardware"])
async def test_endless_choices_are_400(jp_root_dir: Path, jp_fetch: Any, name: str) -> None:
    (jp_root_dir / "f.hlo").write_text(MODULE)
    params = {"path": "f.hlo", "other": "f.hlo", name: "x" * 1001}
    assert await refused(jp_fetch("hloscope", "api", "diff", params=params)) == 400


async def test_a_dump_folder_is_listed_by_stage(
    jp_root_dir: Path, jp_fetch: Callable[..., Any], tmp_path: Path
) -> None:
    folder = jp_root_dir / "dump"
    folder.mkdir()
    (folder / "module_0001.jit_f.cpu_after_optimizations.txt").write_text(MODULE)
    (folder / "module_0001.jit_f.before_optimizations.txt").write_text(MODULE)
    outside = tmp_path / "outside.txt"
    outside.write_text(MODULE)
    (folder / "module_0002.jit_away.before_optimizations.txt").symlink_to(outside)
    answer = await jp_fetch("hloscope", "api", "folder", params={"path": "dump"})
    found = json.loads(answer.body)
    assert [f["stage"] for f in found["files"]] == [
        "before_optimizations",
        "cpu_after_optimizations",
    ]
    assert found["chosen"] == 1
    (jp_root_dir / "empty").mkdir()
    (jp_root_dir / "away").symlink_to(tmp_path)
    (jp_root_dir / ".hidden").mkdir()
    for path, code in (
        ("empty", 422),
        ("absent", 404),
        ("../", 404),
        ("dump/../..", 404),
        ("away", 404),
        (".hidden", 404),
        ("dump/module_0001.jit_f.before_optimizations.txt", 404),
    ):
        with pytest.raises(HTTPClientError) as refused:
            await jp_fetch("hloscope", "api", "folder", params={"path": path})
        assert refused.value.code == code, path
    with pytest.raises(HTTPClientError) as refused:
        await jp_fetch(
            "hloscope", "api", "folder", params={"path": "dump"}, headers={"Authorization": "no"}
        )
    assert refused.value.code == 403
