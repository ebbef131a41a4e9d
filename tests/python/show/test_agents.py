"""What a coding agent gets from ``hloscope mcp``, through the SDK's own client."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys

import pytest

PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
print("what a module prints is no message of the protocol")
mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
def f32(dims, *spec):
    return jax.ShapeDtypeStruct(dims, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))
def step(params, momentum, x):
    def loss(p):
        h = jnp.tanh(x @ p["up"])
        return ((h @ p["down"]) ** 2).sum()
    g = jax.grad(loss)(params)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, g)
    return jax.tree.map(lambda p, m: p - 0.1 * m, params, momentum), momentum
weights = {"up": f32((512, 4096), None, "model"), "down": f32((4096, 512), "model", None)}
step_args = weights, weights, f32((512, 512), "data", None)
def leaves(x):
    raise SystemExit(3)
leaves_args = (jnp.ones(3),)
"""


class Agent:
    def __init__(self, client):
        self.client = client

    async def ask(self, tool, **arguments):
        """The structured answer."""
        found = await self.client.call_tool(tool, arguments)
        assert not found.is_error, found.content[0].text
        return found.structured_content

    async def refused(self, tool, **arguments):
        """The sentence."""
        found = await self.client.call_tool(tool, arguments)
        assert found.is_error, found.structured_content
        (text,) = [c.text for c in found.content]
        assert "\n" not in text
        assert "Traceback" not in text
        assert len(text) <= 400
        return text

    async def follow(self, call):
        """Asks what an answer has as ``next``."""
        tool, inside = re.fullmatch(r"(\w+)\((.*)\)", call).groups()
        pairs = re.findall(r'(\w+)=("(?:[^"\\]|\\.)*")', inside)
        return tool, await self.ask(tool, **{k: json.loads(v) for k, v in pairs})


def talk(folder, conversation, *options):
    """One conversation with a server that is started as agents start it."""
    pytest.importorskip("mcp.server.mcpserver", reason="hloscope[mcp] is not installed")
    from mcp import Client, StdioServerParameters, stdio_client

    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    environment["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "hloscope", "mcp", *options],
        env=environment,
        cwd=str(folder),
    )

    failed = []

    async def whole():
        async with Client(stdio_client(command)) as client:
            try:
                await conversation(Agent(client))
            except AssertionError as error:  # as it is, not in groups of the client's tasks
                failed.append(error)

    asyncio.run(whole())
    if failed:
        raise failed[0]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path


def test_an_agent_captures_asks_and_tries(folder):
    async def conversation(agent):
        first = await agent.ask("capture", function="train:step")
        assert first["program"] == "p1"
        assert first["devices"] == 8
        assert not (folder / "__pycache__").exists()  # nothing is left beside the person's file

        # each answer leads to the next question
        tool, found = await agent.follow(first["next"])
        assert tool == "findings"
        rules = [f["rule"] for f in found["findings"]]
        assert "not-donated" in rules
        row = found["findings"][rules.index("not-donated")]
        assert row["can_be_tried"]
        assert row["share"] > 0
        for _ in range(3):
            tool, answer = await agent.follow(found["next"])
            found = {"next": answer["next"]}

        # communication: two all-reduces, of gradients and of partial sums
        asked = await agent.ask("collectives", program="p1")
        assert {(c["kind"], c["axes"]) for c in asked["collectives"]} == {
            ("all-reduce", "data"),
            ("all-reduce", "model"),
        }
        assert asked["wire_bytes"] == sum(c["wire_bytes"] for c in asked["collectives"])
        card = await agent.ask("why", program="p1", collective=asked["collectives"][0]["example"])
        assert card["is_known"]
        assert "train.py:11" in card["line"]
        tool, lines = await agent.follow(card["next"])
        assert tool == "line"
        assert {"all-reduce"} <= {i["opcode"] for i in lines["instructions"]}
        assert any("dot_general" in fate for fate in lines["fates"])

        held = await agent.ask("memory", program="p1", limit=3)
        parameters = 2 * 512 * 4096 * 4 // 4
        assert held["by_category"]["parameter"] == parameters, held
        assert len(held["values"]) == 3
        costs = await agent.ask("costs", program="p1", limit=2)
        assert costs["costs"][0]["seconds"] >= costs["costs"][1]["seconds"] > 0
        assert costs["more"] > 0

        # a change is tried, compared and not written into the file
        tried = await agent.ask(
            "what_if", program="p1", changes={"batch": 1024}, check_values=False
        )
        assert tried["program"] == "p2"
        assert tried["step_seconds"][1] > 1.5 * tried["step_seconds"][0]
        assert tried["same_values"] is None
        tool, differs = await agent.follow(tried["next"])
        assert tool == "diff"
        assert differs["is_different"]
        assert (folder / "train.py").read_text() == PROGRAM
        donated = await agent.ask(
            "what_if", program="p1", changes={"donate": ["params", "momentum"]}, check_values=True
        )
        assert donated["same_values"] == "the same values"
        assert "donate_argnames" in donated["changes"][0]["code"]
        proved = await agent.ask("prove", program="p1")
        assert any(
            p.startswith(("proved:", "tried:")) for f in proved["findings"] for p in f["proofs"]
        )

        # the file is edited, and captured as it is now
        (folder / "train.py").write_text(PROGRAM.replace("jnp.tanh(x @", "jnp.sin(x @"))
        again = await agent.ask("capture", function="train.py:step")
        await agent.refused("line", program=again["program"], line="nope")
        text = (await agent.ask("diff", a="p1", b=again["program"]))["text"]
        assert "sine" in text or "sin" in text

        # what cannot be done is one sentence each
        assert "all-reduce" in await agent.refused("why", program="p1", collective="none")
        assert "open ones are p1, p2" in await agent.refused("findings", program="p77")
        assert "did you mean" in await agent.refused("capture", function="train:stepp")
        assert "SystemExit" in await agent.refused("capture", function="train:leaves")
        assert "no tool" in await agent.refused("explain")
        assert "it takes program" in await agent.refused("summary", programme="p1")
        assert "valid integer" in await agent.refused("costs", program="p1", limit="many")
        assert "1 to 50" in await agent.refused("costs", program="p1", limit=0)
        for wrong in ({"donat": "x"}, {"remat": 7}, {"donate": "zz"}, {}):
            await agent.refused("what_if", program="p1", changes=wrong)

    talk(folder, conversation, "--allow-run")


def test_without_leave_it_only_reads(folder):
    hlo = folder / "step.hlo"
    hlo.write_text(
        "HloModule jit_f, is_scheduled=true\n\nENTRY %main (x: f32[4096]) -> f32[4096] {\n"
        "  %x = f32[4096]{0} parameter(0)\n  ROOT %y = f32[4096]{0} tanh(%x)\n}\n"
    )
    (folder / "empty").mkdir()
    (folder / "train.py").write_text("open('ran', 'w')\n")

    async def conversation(agent):
        offered = {t.name: t for t in (await agent.client.list_tools()).tools}
        assert all(t.output_schema for t in offered.values())
        assert {n for n, t in offered.items() if not t.annotations.read_only_hint} == {
            "capture",
            "what_if",
            "prove",
        }
        given = await agent.ask("open", path="step.hlo", hardware="tpu-v5e")
        assert (given["program"], given["instructions"], given["devices"]) == ("p1", 2, None)
        summary = await agent.ask("summary", program="p1")
        assert summary["hardware"] == "TPU v5e"
        assert summary["seconds_are"] == "modelled"
        assert (await agent.ask("diff", a="p1", b="p1"))["is_different"] is False
        for tool, arguments in (
            ("capture", {"function": "train:step"}),
            ("what_if", {"program": "p1", "changes": {"donate": "x"}}),
            ("prove", {"program": "p1"}),
        ):
            assert "--allow-run" in await agent.refused(tool, **arguments)
        assert 'capture(function="train:step")' in await agent.refused("open", path="train:step")
        for path in ("nothing.hlo", "train.py", "empty"):
            assert path in await agent.refused("open", path=path)
        assert "unknown chip" in await agent.refused("open", path="step.hlo", hardware="h101")
        assert not (folder / "ran").exists()

    talk(folder, conversation)


def test_reading_has_the_limits_of_every_command(folder, monkeypatch):
    monkeypatch.setenv("HLOSCOPE_MAX_SECONDS", "0.000001")
    body = "".join(f"  %y{k} = f32[4] tanh(%y{k - 1})\n" for k in range(1, 60_000))
    (folder / "large.hlo").write_text(
        "HloModule jit_f\n\nENTRY %main (x: f32[4]) -> f32[4] {\n  %y0 = f32[4] parameter(0)\n"
        f"{body}}}\n"
    )

    async def conversation(agent):
        assert "HLOSCOPE_MAX_SECONDS" in await agent.refused("open", path="large.hlo")

    talk(folder, conversation)


def test_the_page_lists_the_tools_there_are(repo):
    pytest.importorskip("mcp.server.mcpserver", reason="hloscope[mcp] is not installed")
    from hloscope.show.agents.server import server

    offered = asyncio.run(server().list_tools())
    told = re.findall(r"^\| `(\w+)` \| (.*?) \|", (repo / "docs/agents.md").read_text(), re.M)
    assert [(name, re.findall(r"`(\w+)`", given)) for name, given in told] == [
        (t.name, list(t.input_schema["properties"])) for t in offered
    ]


def test_without_the_extra_it_says_what_to_install():
    code = (
        "import sys\n"
        "sys.modules['mcp'] = None\n"
        "from hloscope.show.cli import main\n"
        "sys.exit(main(['mcp']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert 'pip install "hloscope[mcp]"' in done.stderr
