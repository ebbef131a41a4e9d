TRUTH = """
One training step (train_step) of a vision-language-action policy with flow matching, 8 devices (batch 64, 8 per device; parameters stored sharded).

train_step
  flow_matching_loss (forward)
    noise, time (beta sample), noisy actions
    VLA
      embed_prefix
        vision (VisionTower, FROZEN, forward only): patchify, block loop x18 (VisionBlock: norm1, qkv, attention, proj, norm2, fc1, fc2), norm; 128 images x 256 patches
        connector 1152->1536; text_embed (48 tokens); concat -> 560 prefix tokens
      embed_suffix: action_in, time features, time_mlp1, time_mlp2, state_in -> 51 tokens
      joint layer loop x12 (JointLayer), remat
        prefix expert (width 1536): project (attn_norm, q, kv), finish (o, ffn_norm, gate, up, down)
        action expert (width 768): the same parts, smaller
        ONE joint attention over 611 tokens, 8 query heads, 1 kv head, masked
      final_norm, action_out
    squared error of the velocity
  backward: joint layer loop x12 (recompute + gradients); embed_suffix, connector, text_embed; NONE through the vision tower
  optimiser: clip_by_global_norm, adamw, apply_updates
  ema: moving average of the parameters
  communication: gathers of sharded parameters, gradient reductions

Loops: x18 vision forward (no backward partner), x12 joint forward, x12 joint backward: three.
The last layer's prefix "finish" has no effect on the result (only the action half is used) but inside a loop it is computed anyway.
beta sampling is done by rejection: a compiler while loop (data dependent) under random beta: light, not a network loop.
Weight: vision tower forward ~ 32768 patch tokens total (4096 per device) x ~280 M; joint loop prefix expert ~ 4480 tokens per device x ~420 M, forward +
recompute + backward, so the joint loop is the heaviest (about 4-6 x the tower); action expert ~ 1-2 percent to 5 percent of it.
First sight: frozen vision loop x18 -> joint loop x12 with prefix and action experts -> loss -> backward x12 -> adamw -> ema.
Names true: vision, connector, text_embed, embed_prefix, embed_suffix, layers, prefix, action, action_out, ema.
False would be: a backward for vision; two separate transformers for prefix and action; x12 vision; the beta sampler as the main loop.
"""

"""Vision-language-action policy with a flow-matching action expert (pi-zero style), flax nnx.
Two experts with their own weights attend together in each of 12 layers; the image encoder is frozen."""
import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 8}
BATCH, CAMERAS, IMG, PATCH = 64, 2, 224, 14
VIT_W, VIT_L = 1152, 18
PRE_W, PRE_FF, ACT_W, ACT_FF, DEPTH = 1536, 6144, 768, 3072, 12
HEADS, HD = 8, 256
VOCAB, TEXT, HORIZON, ACTION = 65536, 48, 50, 32
BF16, F32 = jnp.bfloat16, jnp.float32


class VisionBlock(nnx.Module):
    def __init__(self, rngs):
        kw = dict(dtype=BF16, param_dtype=BF16, rngs=rngs)
        self.norm1, self.norm2 = nnx.LayerNorm(VIT_W, **kw), nnx.LayerNorm(VIT_W, **kw)
        self.qkv, self.proj = nnx.Linear(VIT_W, 3 * VIT_W, **kw), nnx.Linear(VIT_W, VIT_W, **kw)
        self.fc1, self.fc2 = nnx.Linear(VIT_W, 4304, **kw), nnx.Linear(4304, VIT_W, **kw)

    def __call__(self, x):
        b, t, _ = x.shape
        q, k, v = jnp.split(self.qkv(self.norm1(x)).reshape(b, t, 16, -1), 3, -1)
        x = x + self.proj(jax.nn.dot_product_attention(q, k, v).reshape(b, t, VIT_W))
        return x + self.fc2(jax.nn.gelu(self.fc1(self.norm2(x))))


class VisionTower(nnx.Module):
    def __init__(self, rngs):
        kw = dict(dtype=BF16, param_dtype=BF16, rngs=rngs)
        self.patchify = nnx.Conv(3, VIT_W, (PATCH, PATCH), strides=PATCH, padding="VALID", **kw)
        self.pos = nnx.Param(jnp.zeros((1, (IMG // PATCH) ** 2, VIT_W), BF16))
        self.blocks = nnx.vmap(VisionBlock, in_axes=0, out_axes=0)(rngs.fork(split=VIT_L))
        self.norm = nnx.LayerNorm(VIT_W, **kw)

    def __call__(self, images):
        x = self.patchify(images.astype(BF16))
        x = x.reshape(x.shape[0], -1, VIT_W) + self.pos[...]
        x = nnx.scan(lambda x, block: block(x), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)(
            x, self.blocks
        )
        return self.norm(x)


class Expert(nnx.Module):
    """One expert's half of a joint layer."""

    def __init__(self, width, ff, rngs):
        kw = dict(use_bias=False, dtype=BF16, rngs=rngs)
        self.attn_norm, self.ffn_norm = (
            nnx.RMSNorm(width, dtype=BF16, rngs=rngs),
            nnx.RMSNorm(width, dtype=BF16, rngs=rngs),
        )
        self.q, self.kv = nnx.Linear(width, HEADS * HD, **kw), nnx.Linear(width, 2 * HD, **kw)
        self.o = nnx.Linear(HEADS * HD, width, **kw)
        self.gate, self.up, self.down = (
            nnx.Linear(width, ff, **kw),
            nnx.Linear(width, ff, **kw),
            nnx.Linear(ff, width, **kw),
        )

    def project(self, x):
        h = self.attn_norm(x)
        k, v = jnp.split(self.kv(h)[:, :, None], 2, -1)
        return self.q(h).reshape(*h.shape[:2], HEADS, HD), k, v

    def finish(self, x, a):
        x = x + self.o(a)
        h = self.ffn_norm(x)
        return x + self.down(jax.nn.gelu(self.gate(h)) * self.up(h))


class JointLayer(nnx.Module):
    def __init__(self, rngs):
        self.prefix, self.action = Expert(PRE_W, PRE_FF, rngs), Expert(ACT_W, ACT_FF, rngs)

    def __call__(self, carry, mask):
        xs = carry
        n = xs[0].shape[1]
        q, k, v = (
            jnp.concatenate(t, 1)
            for t in zip(self.prefix.project(xs[0]), self.action.project(xs[1]))
        )
        a = jax.nn.dot_product_attention(q, k, v, mask=mask).reshape(*q.shape[:2], -1)
        return self.prefix.finish(xs[0], a[:, :n]), self.action.finish(xs[1], a[:, n:])


class VLA(nnx.Module):
    def __init__(self, rngs):
        kw = dict(dtype=BF16, rngs=rngs)
        self.vision = VisionTower(rngs)
        self.connector = nnx.Linear(VIT_W, PRE_W, **kw)
        self.text_embed = nnx.Embed(VOCAB, PRE_W, **kw)
        self.state_in, self.action_in = (
            nnx.Linear(ACTION, ACT_W, **kw),
            nnx.Linear(ACTION, ACT_W, **kw),
        )
        self.time_mlp1, self.time_mlp2 = (
            nnx.Linear(2 * ACT_W, ACT_W, **kw),
            nnx.Linear(ACT_W, ACT_W, **kw),
        )
        self.layers = nnx.vmap(JointLayer, in_axes=0, out_axes=0)(rngs.fork(split=DEPTH))
        self.final_norm = nnx.RMSNorm(ACT_W, **kw)
        self.action_out = nnx.Linear(ACT_W, ACTION, rngs=rngs)

    def embed_prefix(self, images, text):
        b = text.shape[0]
        img = jax.lax.stop_gradient(self.vision(images.reshape(b * CAMERAS, IMG, IMG, 3)))
        img = self.connector(img).reshape(b, -1, PRE_W)
        return jnp.concatenate([img, self.text_embed(text)], 1)

    def embed_suffix(self, state, noisy, t):
        freq = 2 * jnp.pi / jnp.geomspace(4e-3, 4.0, ACT_W // 2)
        time = jnp.concatenate([jnp.sin(t[:, None] * freq), jnp.cos(t[:, None] * freq)], -1)
        a = self.action_in(noisy)
        a = jnp.concatenate([a, jnp.broadcast_to(time[:, None], a.shape).astype(BF16)], -1)
        a = self.time_mlp2(jax.nn.silu(self.time_mlp1(a)))
        return jnp.concatenate([self.state_in(state)[:, None], a], 1)

    def __call__(self, images, text, state, noisy, t):
        prefix, suffix = self.embed_prefix(images, text), self.embed_suffix(state, noisy, t)
        n, m = prefix.shape[1], suffix.shape[1]
        see = (
            jnp.arange(n + m) < jnp.where(jnp.arange(n + m) < n, n, n + m)[:, None]
        )  # prefix does not see actions
        layer = nnx.remat(lambda block, xs, mask: block(xs, mask))
        run = nnx.scan(
            lambda xs, block: layer(block, xs, see[None, None]),
            in_axes=(nnx.Carry, 0),
            out_axes=nnx.Carry,
        )
        _, out = run((prefix, suffix), self.layers)
        return self.action_out(self.final_norm(out[:, 1:]).astype(F32))


def make(mesh):
    model = nnx.eval_shape(lambda: VLA(nnx.Rngs(0)))
    frozen_filter = nnx.All(nnx.Param, nnx.PathContains("vision"))
    graphdef, frozen, params, rest = nnx.split(model, frozen_filter, nnx.Param, ...)
    tx = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(
            optax.warmup_cosine_decay_schedule(0, 5e-5, 1000, 30_000), b2=0.95, weight_decay=1e-10
        ),
    )

    def flow_matching_loss(params, frozen, rest, batch, key):
        policy = nnx.merge(graphdef, frozen, params, rest, copy=True)
        k1, k2 = jax.random.split(key)
        noise = jax.random.normal(k1, batch["actions"].shape)
        t = jax.random.beta(k2, 1.5, 1.0, (BATCH,)) * 0.999 + 0.001
        noisy = t[:, None, None] * noise + (1 - t)[:, None, None] * batch["actions"]
        velocity = policy(batch["images"], batch["text"], batch["state"], noisy, t)
        return jnp.mean((velocity - (noise - batch["actions"])) ** 2)

    def train_step(frozen, params, ema, opt_state, rest, batch, key):
        loss, grads = jax.value_and_grad(flow_matching_loss)(params, frozen, rest, batch, key)
        updates, opt_state = tx.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        with jax.named_scope("ema"):
            ema = jax.tree.map(lambda e, p: 0.99 * e + 0.01 * p, ema, params)
        return params, ema, opt_state, loss

    S = jax.ShapeDtypeStruct
    dp, rep = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())

    def zero(x):  # shard the first divisible axis: ZeRO-style storage
        spec = next(
            (
                P(*[None] * i, "data")
                for i, n in enumerate(x.shape)
                if n % 8 == 0 and x.size > 1 << 16
            ),
            P(),
        )
        return S(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))

    on = lambda t, f: jax.tree.map(f, t)
    full = lambda x: S(x.shape, x.dtype, sharding=rep)
    params = on(params, zero)
    opt_state = on(jax.eval_shape(tx.init, params), zero)
    s = lambda shape, dt=F32: S((BATCH,) + shape, dt, sharding=dp)
    batch = {
        "images": s((CAMERAS, IMG, IMG, 3)),
        "text": s((TEXT,), jnp.int32),
        "state": s((ACTION,)),
        "actions": s((HORIZON, ACTION)),
    }
    step = jax.jit(train_step, donate_argnums=(1, 2, 3))
    return step, (
        on(frozen, full),
        params,
        params,
        opt_state,
        on(rest, full),
        batch,
        S((2,), jnp.uint32, sharding=rep),
    )
