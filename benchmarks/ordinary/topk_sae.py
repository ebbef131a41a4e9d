TRUTH = """
One training step (train_step) of a top-k sparse autoencoder on a frozen language model's activations; mesh data 2 x dict 4; 32 x 512 tokens.

train_step
  collect_activations (frozen language model, forward ONLY, no gradient): embed, neox_block loop x12 (attn: qkv, rotary, scores, out; mlp: up, gelu, down), drop first position
    here the batch is split over all 8 devices (4 sequences each)
  scale activations; reshard from 8-way batch to 2-way batch (data), replicated over dict
  sae_loss (shard_map; each device: 8176 rows x 16384 of the 65536 latents)
    sae_encode: matmul 8176 x 1024 x 16384
    main_topk: topk_across_shards k=64 (local top-k, all-gather of 4 x 64, second top-k, threshold)
    sae_decode: matmul 8176 x 16384 x 1024, psum over dict
    mse (normalised)
    aux: mask to dead latents, topk_across_shards k=512 (all-gather of 4 x 512), sae_decode again (second large matmul, psum)
    pmean over data; fired: pmax
  backward of sae_loss: gradient matmuls for w_dec (twice: main and aux), for z (twice), for w_enc; none for the language model
    gradient reduction over "data"
  optimiser: clip_by_global_norm, adam; normalise_decoder; steps_since_fired counter

Loops: exactly one of the person's own: x12 of the language model, forward. No backward loop.
(On TPU or CPU top_k may become a sort or custom call; no loop of the person's.)
Weight: per device the SAE's dense matmuls (3 forward, ~5 backward, each 8176x1024x16384 = 0.27 Tflop) total about 2.2 Tflop; the LM forward about
2048 tokens x 151 M x 2 = 0.6 Tflop. So SAE > LM. The top-k/sorts over 8176x16384 are costly in memory/time though they have no flops.
First sight: frozen LM loop x12, then the autoencoder (encode, top-k, decode, aux), its backward, optimiser.
Names true: collect_activations, neox_block, attn, mlp, sae_encode, main_topk, aux, sae_decode, topk_across_shards, normalise_decoder.
False would be: a backward for the language model; aux merged with main so that one decode appears; communication as none
(all-gather in each top-k, psum in each decode, both over dict; gradient/pmean over data).
"""

"""Top-k sparse autoencoder on the residual stream of a frozen language model (Pythia-410m shape, layer 12 of 24).
Plain JAX: the language model runs data parallel under jit, the autoencoder's 65536 latents are split by shard_map."""
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "dict": 4}
VOCAB, D, HEADS, FF, HOOK = 50304, 1024, 16, 4096, 12
B, T = 32, 512
LATENTS, K, AUX_K, DEAD_AFTER = 65536, 64, 512, 1000
BF16, F32 = jnp.bfloat16, jnp.float32


def layer_norm(x, p):
    x = x.astype(F32)
    mu = x.mean(-1, keepdims=True)
    return (
        (x - mu) * lax.rsqrt(((x - mu) ** 2).mean(-1, keepdims=True) + 1e-5) * p["g"] + p["b"]
    ).astype(BF16)


def rotary(x, frac=0.25):
    n = int(x.shape[-1] * frac)
    ang = jnp.arange(x.shape[1])[:, None] * 10000.0 ** (-jnp.arange(0, n, 2) / n)
    c, s = jnp.cos(ang)[:, None].astype(BF16), jnp.sin(ang)[:, None].astype(BF16)
    a, b, rest = x[..., : n // 2], x[..., n // 2 : n], x[..., n:]
    return jnp.concatenate([a * c - b * s, b * c + a * s, rest], -1)


def neox_block(x, p):
    """Parallel attention and MLP, as in GPT-NeoX."""
    b, t, _ = x.shape
    with jax.named_scope("attn"):
        q, k, v = jnp.split((layer_norm(x, p["ln1"]) @ p["qkv"]).reshape(b, t, HEADS, -1), 3, -1)
        s = jnp.einsum("bqhd,bkhd->bhqk", rotary(q), rotary(k)).astype(F32) * (D // HEADS) ** -0.5
        s = jnp.where(jnp.tril(jnp.ones((t, t), bool)), s, -1e30)
        a = (
            jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s).astype(BF16), v).reshape(b, t, D)
            @ p["out"]
        )
    with jax.named_scope("mlp"):
        m = jax.nn.gelu(layer_norm(x, p["ln2"]) @ p["up"]) @ p["down"]
    return x + a + m, None


def collect_activations(lm, tokens):
    """Only the first HOOK layers of the frozen model are run; no head."""
    x = lm["embed"][tokens]
    x, _ = lax.scan(neox_block, x, lm["layers"])
    return x[:, 1:].reshape(-1, D)  # the first position is an outlier, drop it


def topk_across_shards(z, k):
    """The k largest latents of each row over all shards of 'dict', kept as a local dense array."""
    best, _ = lax.top_k(z, k)
    everyone = lax.all_gather(best, "dict", axis=1, tiled=True)
    threshold = lax.top_k(everyone, k)[0][:, -1:]
    return jnp.where(z >= lax.stop_gradient(threshold), jax.nn.relu(z), 0.0)


def sae_encode(sae, x):
    return (x - sae["b_dec"]).astype(BF16) @ sae["w_enc"].astype(BF16) + sae["b_enc"].astype(BF16)


def sae_decode(sae, z):
    part = z.astype(BF16) @ sae["w_dec"].astype(BF16)
    return lax.psum(part.astype(F32), "dict")


def sae_loss(sae, x, steps_since_fired):
    pre = sae_encode(sae, x).astype(F32)
    with jax.named_scope("main_topk"):
        z = topk_across_shards(pre, K)
    recon = sae_decode(sae, z) + sae["b_dec"]
    error = x - recon
    mse = (error**2).sum(-1).mean() / ((x - x.mean(0)) ** 2).sum(-1).mean()
    with jax.named_scope("aux"):
        dead = steps_since_fired > DEAD_AFTER
        z_aux = topk_across_shards(jnp.where(dead, pre, -1e9), AUX_K)
        aux_recon = sae_decode(sae, z_aux)
        aux = ((lax.stop_gradient(error) - aux_recon) ** 2).sum(-1).mean() / (
            lax.stop_gradient(error) ** 2
        ).sum(-1).mean()
    loss = lax.pmean(mse + aux / 32.0, "data")
    fired = lax.pmax((z > 0).any(0).astype(jnp.int32), "data")
    return loss, (lax.pmean(mse, "data"), fired)


def normalise_decoder(sae):
    return {
        **sae,
        "w_dec": sae["w_dec"] / (jnp.linalg.norm(sae["w_dec"], axis=1, keepdims=True) + 1e-8),
    }


def make(mesh):
    S = jax.ShapeDtypeStruct
    tx = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adam(optax.linear_schedule(2e-4, 2e-5, 100_000), b1=0.0, b2=0.999, eps=6.25e-10),
    )
    specs = {"w_enc": P(None, "dict"), "b_enc": P("dict"), "w_dec": P("dict", None), "b_dec": P()}
    sharded_loss = jax.shard_map(
        sae_loss,
        mesh=mesh,
        in_specs=(specs, P("data", None), P("dict")),
        out_specs=(P(), (P(), P("dict"))),
    )

    @partial(jax.jit, donate_argnums=(1, 2, 3))
    def train_step(lm, sae, opt_state, steps_since_fired, tokens):
        acts = lax.stop_gradient(collect_activations(lm, tokens)).astype(F32)
        acts = acts * lax.rsqrt((acts**2).mean())
        (loss, (mse, fired)), grads = jax.value_and_grad(sharded_loss, has_aux=True)(
            sae, acts, steps_since_fired
        )
        updates, opt_state = tx.update(grads, opt_state, sae)
        sae = normalise_decoder(optax.apply_updates(sae, updates))
        steps_since_fired = jnp.where(fired > 0, 0, steps_since_fired + 1)
        return (
            sae,
            opt_state,
            steps_since_fired,
            {"loss": loss, "fvu": mse, "dead": (steps_since_fired > DEAD_AFTER).mean()},
        )

    def at(shape, dtype, *spec):
        return S(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))

    ln = lambda: {"g": at((HOOK, D), F32), "b": at((HOOK, D), F32)}
    lm = {
        "embed": at((VOCAB, D), BF16),
        "layers": {
            "ln1": ln(),
            "ln2": ln(),
            "qkv": at((HOOK, D, 3 * D), BF16),
            "out": at((HOOK, D, D), BF16),
            "up": at((HOOK, D, FF), BF16),
            "down": at((HOOK, FF, D), BF16),
        },
    }
    shapes = {"w_enc": (D, LATENTS), "b_enc": (LATENTS,), "w_dec": (LATENTS, D), "b_dec": (D,)}
    sae = {n: at(s, F32, *specs[n]) for n, s in shapes.items()}
    opt_state = jax.eval_shape(tx.init, sae)
    opt_state = jax.tree_util.tree_map_with_path(
        lambda k, x: at(
            x.shape, x.dtype, *next((specs[n] for n in specs if n in jax.tree_util.keystr(k)), P())
        ),
        opt_state,
    )
    tokens = at((B, T), jnp.int32, ("data", "dict"))
    return train_step, (lm, sae, opt_state, at((LATENTS,), jnp.int32, "dict"), tokens)
