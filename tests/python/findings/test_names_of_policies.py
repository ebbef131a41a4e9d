"""Checkpoint policies whose names no value has, and the names that there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hloscope as hs
import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")

import jax.numpy as jnp  # noqa: E402
from findings_programs import saving  # noqa: E402
from jax.ad_checkpoint import checkpoint_name  # noqa: E402

POLICIES = jax.checkpoint_policies
KNOWN = "the values of the program are named `attn_out`, `mlp_out`"
KEEPS_NOTHING = "; the policy keeps nothing that the checkpoint computes"


def said(cap: hs.Capture) -> list[tuple[str, str]]:
    assert cap.findings.failed == ()
    return [(f.title, f.evidence) for f in cap.findings.of("names-nothing")]


@pytest.mark.parametrize("scanned", [True, False])
@pytest.mark.parametrize(
    ("names", "title", "evidence"),
    [
        (["atn_out"], "would save `atn_out`, and no value has that name",
         f"{KNOWN}{KEEPS_NOTHING}; did you mean `attn_out`?"),
        (["attn-out"], "would save `attn-out`, and no value has that name",
         f"{KNOWN}{KEEPS_NOTHING}; did you mean `attn_out`?"),
        (["context", "query"], "would save `context`, `query`, and no value has these names",
         f"{KNOWN}{KEEPS_NOTHING}"),
        ([], "lists no name, and keeps nothing", KNOWN),
        (["atn_out", "mlp_out"], "would save `atn_out`, and no value has that name",
         f"{KNOWN}; did you mean `attn_out`?"),
    ],
)  # fmt: skip
def test_names_of_no_value(names: list[str], title: str, evidence: str, scanned: bool) -> None:
    cap = hs.capture(*saving(*names, scanned=scanned))
    assert said(cap) == [(f"A checkpoint policy {title}", evidence)]
    [found] = cap.findings.of("names-nothing")
    assert found.line.partition(":")[0].endswith("findings_programs.py")


@pytest.mark.parametrize("scanned", [True, False])
@pytest.mark.parametrize("names", [["attn_out"], ["mlp_out", "context"], ["attn_out", "mlp_out"]])
def test_policies_that_keep_something(names: list[str], scanned: bool) -> None:
    """Names of other models beside are no mistake."""
    assert said(hs.capture(*saving(*names, scanned=scanned))) == []


def gradient(policy: Any) -> hs.Capture:
    @jax.checkpoint
    def other(x: Any) -> Any:
        return jnp.sin(checkpoint_name(jnp.cos(x), "attn_out"))

    f = jax.checkpoint(lambda x: jnp.tanh(jnp.sin(other(x))), policy=policy)
    return hs.capture(jax.jit(jax.grad(lambda x: f(x).sum())), jnp.ones(64))


def offload(*names: str) -> Any:
    return POLICIES.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=list(names),
        offload_src="device", offload_dst="pinned_host",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "title"),
    [
        (POLICIES.nothing_saveable, ""),
        (POLICIES.dots_saveable, ""),
        (None, ""),
        (POLICIES.save_any_names_but_these("mlp_out"), ""),
        (lambda *_, **__: False, ""),
        (offload("attn_uot"), "would offload `attn_uot`, and no value has that name"),
        (POLICIES.save_from_both_policies(
            POLICIES.dots_saveable, POLICIES.save_only_these_names("attnout")
        ), "would save `attnout`, and no value has that name"),
        (POLICIES.save_from_both_policies(
            POLICIES.dots_saveable, POLICIES.save_only_these_names("context")
        ), ""),
    ],
)  # fmt: skip
def test_other_policies(policy: Any, title: str) -> None:
    found = said(gradient(policy))
    assert [t for t, _ in found] == ([f"A checkpoint policy {title}"] if title else [])


def test_a_program_without_names() -> None:
    f = jax.checkpoint(lambda x: jnp.sin(jnp.cos(x)), policy=POLICIES.save_only_these_names("a"))
    cap = hs.capture(jax.jit(jax.grad(lambda x: f(x).sum())), jnp.ones(64))
    assert said(cap)[0][1].startswith("no value has a name at all")


def linen(policy: Any) -> Any:
    nn = pytest.importorskip("flax.linen", reason="flax is not installed")

    class Block(nn.Module):  # type: ignore[misc]
        @nn.compact
        def __call__(self, x: Any, _: Any = None) -> Any:
            return checkpoint_name(jnp.tanh(nn.Dense(16)(x)), "attn_out"), None

    class Net(nn.Module):  # type: ignore[misc]
        @nn.compact
        def __call__(self, x: Any) -> Any:
            block = nn.remat(Block, policy=policy, prevent_cse=False)
            axes: dict[str, Any] = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}}
            return nn.scan(block, length=3, **axes)()(x, None)[0].sum()

    net = Net()
    x = jnp.ones((4, 16))
    params = net.init(jax.random.key(0), x)
    return jax.jit(jax.grad(net.apply)), params, x


def nnx(policy: Any) -> Any:
    nnx = pytest.importorskip("flax.nnx", reason="flax is not installed")

    class Block(nnx.Module):  # type: ignore[misc]
        def __init__(self, rngs: Any) -> None:
            self.inner = nnx.Linear(16, 16, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return checkpoint_name(jnp.tanh(self.inner(x)), "attn_out")

    @nnx.jit
    def step(block: Any, x: Any) -> Any:
        again = nnx.remat(lambda b, v: b(v), policy=policy)
        return nnx.grad(lambda b: again(b, x).sum())(block)

    return step, Block(nnx.Rngs(0)), jnp.ones((4, 16))


@pytest.mark.parametrize("written", [linen, nnx])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_layers_of_flax(written: Callable[[Any], Any]) -> None:
    ill = hs.capture(*written(POLICIES.save_only_these_names("atn_out")))
    [(title, evidence)] = said(ill)
    assert title == "A checkpoint policy would save `atn_out`, and no value has that name"
    assert evidence.endswith("did you mean `attn_out`?")
    [found] = ill.findings.of("names-nothing")
    assert found.line.partition(":")[0].endswith("test_names_of_policies.py")
    assert said(hs.capture(*written(POLICIES.save_only_these_names("attn_out")))) == []
