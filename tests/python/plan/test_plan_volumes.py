"""Volume formulas against the bytes of compiled ``shard_map`` twins, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from hloscope.plan.transformer import volumes
from hloscope.plan.transformer.compiled import Compared
from hloscope.plan.transformer.volumes import METHODS, Both
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec
from quickly import as_users_do

P = PartitionSpec
T, K, N = 64, 32, 96


def sent(
    fn: Callable[..., Any], mesh: dict[str, int], *arrays: tuple[tuple[int, ...], Any], out: Any
) -> dict[str, float]:
    """Wire bytes of one device by kind: a program of the forward pass and one of the gradients.

    Compiled apart, so that the backward pass gathers what it needs again, as the formulas have
    it: in one program XLA keeps what the forward pass gathered.
    """
    found = jax.make_mesh(tuple(mesh.values()), tuple(mesh))
    specs = tuple(spec for _, spec in arrays)
    args = [
        jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(found, spec))
        for shape, spec in arrays
    ]
    inner = jax.shard_map(fn, mesh=found, in_specs=specs, out_specs=out, check_vma=False)
    made = jax.eval_shape(inner, *args)
    after = jax.ShapeDtypeStruct(made.shape, made.dtype, sharding=NamedSharding(found, out))
    held = tuple(a.sharding for a in args)

    def gradients(after: Any, *args: Any) -> Any:
        return jax.vjp(inner, *args)[1](after)

    forward = jax.jit(inner, out_shardings=after.sharding)
    backward = jax.jit(gradients, out_shardings=held)
    total: dict[str, float] = {}
    for cap in (
        hs.capture(forward, *args, provenance=False),
        hs.capture(backward, after, *args, provenance=False),
    ):
        for c in cap.collectives:
            assert c.total_wire_bytes is not None
            total[c.kind] = total.get(c.kind, 0) + c.total_wire_bytes
    return total


def formula(both: Both) -> dict[str, float]:
    total: dict[str, float] = {}
    for e in (*both[0], *both[1]):
        kind = {"send": "collective-permute"}.get(e.kind, e.kind)
        total[kind] = total.get(kind, 0) + e.wire_bytes
    return total


def gathered(x: Any, axis: str, dim: int) -> Any:
    return lax.all_gather(x, axis, axis=dim, tiled=True)


def test_summa() -> None:
    def layer(a: Any, w: Any) -> Any:
        return gathered(a, "m1", 1) @ gathered(w, "m2", 0)

    mesh = {"m2": 2, "m1": 4}
    counted = sent(layer, mesh, ((T, K), P("m2", "m1")), ((K, N), P("m2", "m1")), out=P("m2", "m1"))
    assert counted == formula(volumes.summa(T, K, N, 4, 2, 4))


def test_two_and_a_half_dimensions() -> None:
    def layer(a: Any, w: Any) -> Any:
        return gathered(a, "m1", 1) @ gathered(w, "m2", 0)

    counted = sent(
        layer, {"m3": 2, "m2": 2, "m1": 2}, ((T, K), P(("m3", "m2"), "m1")),
        ((K, N), P("m2", "m1")), out=P(("m3", "m2"), "m1"),
    )  # fmt: skip
    assert counted == formula(volumes.two_and_half(T, K, N, 2, 2, 2, 4))


def test_three_dimensions() -> None:
    def layer(a: Any, w: Any) -> Any:
        part = gathered(a, "z", 0) @ gathered(w, "x", 0)
        return lax.psum_scatter(part, "y", scatter_dimension=0, tiled=True)

    counted = sent(
        layer, {"x": 2, "y": 2, "z": 2}, ((T, K), P(("x", "z"), "y")),
        ((K, N), P(("y", "x"), "z")), out=P(("x", "y"), "z"),
    )  # fmt: skip
    assert counted == formula(volumes.cube(T, K, N, 2, 2, 2, 4))


def test_megatron() -> None:
    """A column layer and a row layer on tokens that are split outside."""

    def half(x: Any, w1: Any, w2: Any) -> Any:
        part = jnp.tanh(gathered(x, "m", 0) @ w1) @ w2
        return lax.psum_scatter(part, "m", scatter_dimension=0, tiled=True)

    counted = sent(
        half, {"m": 4}, ((T, K), P("m")), ((K, N), P(None, "m")), ((N, K), P("m")), out=P("m")
    )
    gather = volumes.exchange("all-gather", "m", 4, T * K * 4)
    scatter = volumes.exchange("reduce-scatter", "m", 4, T * K * 4)
    # x is gathered again for the weights' gradient; the model's formulas keep it gathered
    assert counted == formula(((gather, scatter), (gather, gather, scatter)))


def test_fsdp() -> None:
    def layer(x: Any, w: Any) -> Any:
        return x @ gathered(w, "data", 0)

    counted = sent(layer, {"data": 8}, ((T, K), P("data")), ((K, N), P("data")), out=P("data"))
    assert counted == formula(volumes.fsdp(K * N * 4, 8))


def test_data_parallel() -> None:
    def layer(x: Any, w: Any) -> Any:
        return x @ w

    counted = sent(layer, {"data": 8}, ((T, K), P("data")), ((K, N), P()), out=P("data"))
    assert counted == formula(volumes.data_parallel(K * N * 4, 8))


def test_ulysses() -> None:
    """Q, K, V and the output change from tokens to heads; kv heads a half of the heads."""
    length, heads, kv, q = 32, 8, 4, 16

    def swap(x: Any, back: bool) -> Any:
        here, there = (0, 1) if back else (1, 0)
        return lax.all_to_all(x, "c", split_axis=here, concat_axis=there, tiled=True)

    def attention(a: Any, b: Any, c: Any) -> Any:
        a, b, c = (swap(x, False) for x in (a, b, c))
        b, c = (jnp.repeat(x, heads // kv, axis=1) for x in (b, c))
        scores = jax.nn.softmax(jnp.einsum("lhq,mhq->hlm", a, b))
        return swap(jnp.einsum("hlm,mhq->lhq", scores, c), True)

    counted = sent(
        attention, {"c": 4}, ((length, heads, q), P("c")), ((length, kv, q), P("c")),
        ((length, kv, q), P("c")), out=P("c"),
    )  # fmt: skip
    fwd, bwd = volumes.ulysses(1, length / 4, heads, kv, q, 4, 4)
    # gradients alone need Q, K and V of the heads once more
    extra = volumes.exchange("all-to-all", "c", 4, length / 4 * (heads + 2 * kv) * q * 4)
    assert counted == formula((fwd, (*bwd, extra)))


def test_ring_attention() -> None:
    """K and V pass every device; what is not softmax is enough to count."""
    length, kv, q, c = 32, 2, 16, 4
    ring = [(i, (i + 1) % c) for i in range(c)]

    def attention(a: Any, b: Any, v: Any) -> Any:
        out = jnp.zeros_like(a)
        for step in range(c):
            out = out + jnp.tanh(jnp.einsum("lhq,mhq->lmh", a, b)).sum(1)[..., None] * v.mean(0)
            if step < c - 1:
                b, v = (lax.ppermute(x, "c", ring) for x in (b, v))
        return out

    counted = sent(attention, {"c": c}, *[((length, kv, q), P("c"))] * 3, out=P("c"))
    assert counted == formula(volumes.ring_attention(1, length, kv, q, c, 4))


def test_experts() -> None:
    """Tokens in the order of their experts go there and come back."""
    experts, slots = 4, 8

    def layer(x: Any, w: Any) -> Any:
        there = lax.all_to_all(x, "e", split_axis=0, concat_axis=0, tiled=True)
        return lax.all_to_all(jnp.tanh(there @ w[0]), "e", split_axis=0, concat_axis=0, tiled=True)

    tokens = experts * slots
    counted = sent(layer, {"e": 4}, ((4 * tokens, K), P("e")), ((4, K, K), P("e")), out=P("e"))
    fwd, bwd = volumes.experts(tokens, K, 1, 1.0, 4, 4)
    # gradients alone need the tokens at their experts once more
    assert counted == formula((fwd, (*bwd, fwd[0])))


def test_every_method_has_a_source() -> None:
    assert len(METHODS) == 10
    for m in METHODS.values():
        assert m.forward
        assert m.source[-1].isdigit() or "19" in m.source or "20" in m.source


@pytest.mark.parametrize(
    ("mesh", "kv"), [({}, 8), ({"data": 2, "tensor": 4}, 8), ({"data": 2, "tensor": 4}, 4)]
)
def test_formulas_beside_the_program(mesh: dict[str, int], kv: int) -> None:
    """FLOPs of a dense model within 2 %, every named layer within 1; weights to the byte."""
    model = hs.transformer(
        batch=4, seq=128, embed=256, heads=8, kv_heads=kv, depth=2, mesh=mesh, hardware="h100",
        element_bytes=4,
    )  # fmt: skip
    found = model.compiled()
    whole = found.line("FLOPs", "all matmuls").difference
    assert whole is not None
    assert abs(whole) < 0.02
    for line in found.lines:
        if line.part == "FLOPs" and line.analytic and "without a name" not in line.why:
            assert line.difference is not None
            assert abs(line.difference) < 0.01
        assert line.why
    weights = found.line("memory", "weights and input")
    assert weights.analytic == weights.compiled
    kept = found.line("memory", "kept activations").difference
    assert kept is not None
    assert abs(kept) < 0.1
    explained(found)
    if mesh:
        for name in ("qkv_proj", "fc1"):  # split over tensor: summed over data alone
            line = found.line("layer", f"{name}, backward, gradients of parameters")
            assert line.why == "equal: all-reduce over data"
        # XLA on CPU sums the gradients of q, k and v each, and whole
        line = found.line("layer", "qkv_proj, backward")
        assert "XLA sums whole arrays by 3 all-reduces" in line.why
        assert "cut so by a constraint, params[" in line.why
        assert all(f"params['{name}']" in line.why for name in "qkv")
        assert kv != 8 or line.compiled == 6 * (line.analytic or 0)
    assert "formulas are modelled, the program is counted" in repr(found)
    assert "Bytes sent" in found.html()
    assert len(found.to_pandas()) == len(found.lines)


def explained(found: Compared) -> None:
    """Lines by layer hold every byte, and each says why it is what it is."""
    whole = found.line("wire", "all")
    parts = [x for x in found.lines if x.part == "layer"]
    assert sum(x.analytic or 0 for x in parts) == pytest.approx(whole.analytic, rel=1e-12)
    assert sum(x.compiled or 0 for x in parts) == pytest.approx(whole.compiled, rel=1e-12)
    for x in parts:
        assert not x.name.startswith("outside")
        assert "unknown" not in x.why
        assert x.why.startswith("equal" if x.analytic == x.compiled else "XLA"), x


@pytest.mark.usefixtures("libtpu")
def test_formulas_beside_a_tpu_program() -> None:
    """A v5e slice sends what the formulas say, but for sums of what is whole on every chip."""
    model = hs.transformer(
        batch=4, seq=128, embed=256, heads=8, depth=2, mesh={"data": 2, "tensor": 4},
        hardware="tpu-v5e", element_bytes=2,
    )  # fmt: skip
    found = model.compiled(topology="v5e:2x4")
    explained(found)
    assert [x for x in found.lines if x.part == "layer" and x.analytic != x.compiled] == []
    assert found.line("wire", "all").analytic == found.line("wire", "all").compiled


# no biases, norms that have a scale only, a gated MLP
PLAIN: dict[str, Any] = {"bias": False, "norm": "rms", "dropout": False, "gated": True}
LLAMA: dict[str, Any] = {"heads": 8, "kv_heads": 4, "hidden": 896}
GEMMA: dict[str, Any] = {"heads": 4, "kv_heads": 4, "head_dim": 96, "post_norms": True}


@pytest.mark.usefixtures("libtpu")
@pytest.mark.some(2)
@pytest.mark.parametrize("mesh", [{"tensor": 8}, {"data": 2, "tensor": 4}], ids=str)
@pytest.mark.parametrize("kind", [LLAMA, GEMMA], ids=["Llama 3", "Gemma 2"])
def test_a_tpu_sends_what_the_totals_say_to_the_byte(kind: Any, mesh: dict[str, int]) -> None:
    if kind["kv_heads"] % mesh["tensor"]:
        kind = kind | {"heads": 8, "kv_heads": 8}
    model = hs.transformer(
        batch=4, seq=128, embed=256, depth=2, mesh=mesh, hardware="tpu-v5e", **PLAIN, **kind
    )
    found = model.compiled(topology="v5e:2x4")
    explained(found)
    sent = [c.total_wire_bytes for c in found.capture.collectives]
    assert sum(model.totals.wire_bytes.values()) == sum(x or 0 for x in sent)
    assert abs(found.line("FLOPs", "all matmuls").difference or 1) < 0.01
    weights = found.line("memory", "weights and input")
    assert weights.analytic == weights.compiled


@pytest.mark.usefixtures("libtpu")
def test_what_a_tpu_rounds_before_it_sends_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = jax.stages.Lowered.compile

    def compiled(lowered: Any, compiler_options: Any = None) -> Any:
        return plain(lowered, {**(compiler_options or {}), **as_users_do(tpu=True)})

    monkeypatch.setattr(jax.stages.Lowered, "compile", compiled)
    model = hs.transformer(
        batch=4, seq=128, embed=256, depth=2, mesh={"tensor": 8}, hardware="tpu-v5e",
        element_bytes=4, heads=8, dropout=False,
    )  # fmt: skip
    found = model.compiled(topology="v5e:2x4")
    line = found.line("layer", "layer_norm_1, forward")
    assert line.compiled == (line.analytic or 0) / 2
    assert line.why.startswith("XLA sends bf16 where the formulas count 4 bytes an element")


@pytest.mark.parametrize("kind", [LLAMA, GEMMA], ids=["Llama 3", "Gemma 2"])
def test_newer_blocks_beside_the_program(kind: Any) -> None:
    model = hs.transformer(
        batch=4, seq=64, embed=128, depth=2, mesh={"data": 2, "tensor": 4}, hardware="h100",
        element_bytes=4, **PLAIN, **kind,
    )  # fmt: skip
    found = model.compiled()
    explained(found)
    assert abs(found.line("FLOPs", "all matmuls").difference or 1) < 0.01
    weights = found.line("memory", "weights and input")
    assert weights.analytic == weights.compiled
    # the program also hands on what its norms and softmax divide by
    assert abs(found.line("memory", "kept activations").difference or 1) < 0.2
    line = found.line("layer", "layer_norm_1, backward, gradients of parameters")
    assert line.why.startswith("XLA sums over tensor and over data one after the other")


MIXTRAL: dict[str, Any] = {"kv_heads": 2, "experts": 8, "top_k": 2, "hidden": 128}
DEEPSEEK: dict[str, Any] = {"experts": 16, "top_k": 4, "shared_experts": 2, "hidden": 48}


@pytest.mark.parametrize("kind", [MIXTRAL, DEEPSEEK], ids=["Mixtral", "DeepSeek"])
def test_mixtures_of_experts_beside_a_program(kind: dict[str, Any]) -> None:
    """A block with expert parallelism over 8 devices: FLOPs, what is sent and held."""
    embed, seq, heads = 128, 64, 4
    model = hs.transformer(
        batch=8, seq=seq, embed=embed, heads=heads, depth=1, mesh={"expert": 8}, hardware="h100",
        element_bytes=4, **PLAIN, **kind,
    )  # fmt: skip
    s = model.sizes
    width, kv, experts, slots = embed // heads, s.kv, s.experts, seq * s.top_k // s.experts
    mesh = jax.make_mesh((8,), ("expert",))

    def block(p: Any, x: Any) -> Any:
        def norm(x: Any, scale: Any) -> Any:
            return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale

        def mlp(x: Any, up: Any, down: Any) -> Any:
            wide = jnp.einsum("...te,...ewf->...twf", x, up)
            return jax.nn.relu(wide[..., 0, :]) * wide[..., 1, :] @ down

        def swap(x: Any) -> Any:
            return lax.all_to_all(x, "expert", 0, 0, tiled=True)

        n = norm(x[0], p["norm_1"])
        q, k, v = (jnp.einsum("te,ehq->thq", n, p[name]) for name in "qkv")
        q = q.reshape(seq, kv, heads // kv, width)
        scores = jax.nn.softmax(jnp.einsum("tkgq,ukq->kgtu", q, k))
        out = jnp.einsum("kgtu,ukq->tkgq", scores, v).reshape(seq, heads, width)
        x = x[0] + jnp.einsum("thq,hqe->te", out, p["o"])
        n = norm(x, p["norm_2"])
        gate = jax.nn.softmax(n @ p["router"])
        order = jnp.argsort(gate, 0)[:slots].T  # the tokens of each expert
        there = swap(n[order.reshape(-1)].reshape(8, -1, embed))
        there = there.reshape(8, experts // 8, slots, embed).swapaxes(0, 1)
        made = mlp(there.reshape(experts // 8, 8 * slots, embed), p["up"], p["down"])
        made = made.reshape(experts // 8, 8, slots, embed).swapaxes(0, 1)
        back = swap(made.reshape(8, -1, embed)).reshape(experts, slots, embed)
        back = back * jnp.take_along_axis(gate.T, order, 1)[..., None]
        y = x.at[order.reshape(-1)].add(back.reshape(-1, embed))
        if s.shared_experts:
            y = y + mlp(n, p["shared_up"], p["shared_down"])
        return y[None]

    shared = s.shared_experts * s.f
    shapes: dict[str, tuple[int, ...]] = {
        "norm_1": (embed,), "norm_2": (embed,), "router": (embed, experts),
        "q": (embed, heads, width), "k": (embed, kv, width), "v": (embed, kv, width),
        "o": (heads, width, embed), "up": (experts, embed, 2, s.f), "down": (experts, s.f, embed),
    }  # fmt: skip
    if shared:
        shapes |= {"shared_up": (embed, 2, shared), "shared_down": (shared, embed)}
    specs = {name: P("expert") if name in ("up", "down") else P() for name in shapes}
    run = jax.shard_map(block, mesh=mesh, in_specs=(specs, P("expert")), out_specs=P("expert"))

    def held(shape: tuple[int, ...], spec: Any) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))

    params = {name: held(shape, specs[name]) for name, shape in shapes.items()}
    x = held((8, seq, embed), P("expert"))
    cap = hs.capture(jax.grad(lambda p, x: (run(p, x) ** 2).sum(), (0, 1)), params, x)

    layers = [x for half in model.blocks.values() for x in half]
    matmuls = sum(x.flops_fwd + x.flops_bwd for x in layers if x.is_matmul)
    assert cap.cost().total_matmul_flops == pytest.approx(matmuls, rel=0.01)
    sent: dict[str, float] = {}
    for c in cap.collectives:
        of = "weights" if c.kind == "all-reduce" else "expert"
        sent[of] = sent.get(of, 0) + (c.total_wire_bytes or 0)
    assert sent == model.totals.wire_bytes
    assert model.totals.parameters == sum(a.size for a in jax.tree.leaves(params))


def test_models_that_are_not_compared() -> None:
    model = hs.transformer(embed=256, heads=8, depth=2, mesh={"context": 2}, hardware="h100")
    with pytest.raises(ValueError, match="a mesh axis 'context' is not compared"):
        model.compiled()
