TRUTH = """
# consistency_video - consistency distillation of a small video DiT (flax nnx), data parallel over 8 devices

1. Order: sample timestep pair, add noise -> **teacher ODE step** (Heun: 2 evaluations, each with classifier-free guidance = doubled batch; no gradient) -> **target network** (EMA of the student, no gradient) -> **student forward** -> pseudo-Huber loss -> **student backward** -> gradient all-reduce -> clip + AdamW -> EMA update of target.
2. Each network call is the same VideoDiT: patch embed, time + class embedding, **6 blocks, written out (python loop)** { **spatial attention** (64 tokens in each of 8 frames), **temporal attention** (8 frames at each of 64 places), **mlp**, adaLN modulation from the condition }, final layer.
   Calls: teacher 2 (batch 2x), target 1, student 1 fwd + 1 bwd. So block appears 6 x 4 = 24 times forward and 6 times backward.
3. Work in units of a forward: teacher 2 x 2 = 4 (50%), target 1 (12.5%), student forward 1 (12.5%), student backward 2 (25%). In a block: mlp ~50%, the 2 attentions' projections ~45%, scores ~5%.
4. First picture: noise -> teacher { evaluation 1, evaluation 2 } x6 blocks each -> target x6 blocks -> loss <- student x6 blocks; student backward x6; all-reduce; AdamW; EMA.
5. Arrows: teacher's denoised x_prev -> target network -> loss; noisy x_t -> teacher and student; student params after AdamW -> EMA -> target params.
6. Should not stand out: schedule arithmetic (c_skip, c_out), sin/cos embedding, random bits, adaLN's tiny matmuls, EMA's elementwise over all parameters.
7. Misleading: 4 networks (they have same names!) collapsed into one "x24 blocks"; teacher shown as student's layers; teacher shown with backward.
8. Collective: only gradient all-reduce (and loss mean).
"""

"""Consistency distillation for class-conditional latent video."""
import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 8}

BATCH, FRAMES, GRID, CHANNELS, PATCH = 32, 8, 16, 4, 2
WIDTH, HEADS, BLOCKS, CLASSES = 384, 6, 6, 101
SIGMA_MIN, SIGMA_MAX, SIGMA_DATA, RHO, STEPS = 0.002, 80.0, 0.5, 7.0, 40
GUIDANCE = 3.0


def modulate(x, shift, scale):
    return x * (1 + scale) + shift


def sinusoid(t, width):
    freqs = jnp.exp(-jnp.log(10_000.0) * jnp.arange(width // 2) / (width // 2))
    a = t[:, None] * freqs
    return jnp.concatenate([jnp.cos(a), jnp.sin(a)], -1)


class SelfAttention(nnx.Module):
    def __init__(self, rngs):
        self.qkv = nnx.Linear(WIDTH, 3 * WIDTH, rngs=rngs)
        self.out = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        """attention along the axis before the last of [..., T, WIDTH]"""
        q, k, v = jnp.split(self.qkv(x), 3, -1)
        heads = lambda a: a.reshape(*a.shape[:-1], HEADS, WIDTH // HEADS)
        y = jax.nn.dot_product_attention(
            *(heads(a).reshape(-1, a.shape[-2], HEADS, WIDTH // HEADS) for a in (q, k, v))
        )
        return self.out(y.reshape(x.shape))


class Mlp(nnx.Module):
    def __init__(self, rngs):
        self.up = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
        self.down = nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        return self.down(nnx.gelu(self.up(x)))


class SpaceTimeBlock(nnx.Module):
    def __init__(self, rngs):
        self.ada = nnx.Linear(WIDTH, 9 * WIDTH, kernel_init=nnx.initializers.zeros, rngs=rngs)
        self.norm = nnx.LayerNorm(WIDTH, use_scale=False, use_bias=False, rngs=rngs)
        self.spatial = SelfAttention(rngs)
        self.temporal = SelfAttention(rngs)
        self.mlp = Mlp(rngs)

    def __call__(self, x, c):  # x [B, F, S, W]
        m = self.ada(nnx.silu(c))[:, None, None]
        s1, b1, g1, s2, b2, g2, s3, b3, g3 = jnp.split(m, 9, -1)
        x = x + g1 * self.spatial(modulate(self.norm(x), b1, s1))
        y = modulate(self.norm(x), b2, s2).swapaxes(1, 2)
        x = x + g2 * self.temporal(y).swapaxes(1, 2)
        return x + g3 * self.mlp(modulate(self.norm(x), b3, s3))


class VideoDiT(nnx.Module):
    def __init__(self, rngs):
        side = GRID // PATCH
        self.patch = nnx.Linear(PATCH * PATCH * CHANNELS, WIDTH, rngs=rngs)
        self.place = nnx.Param(
            0.02 * jax.random.normal(rngs.params(), (1, FRAMES, side * side, WIDTH))
        )
        self.label = nnx.Embed(CLASSES + 1, WIDTH, rngs=rngs)
        self.time1 = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.time2 = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.blocks = nnx.List([SpaceTimeBlock(rngs) for _ in range(BLOCKS)])
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.final = nnx.Linear(WIDTH, PATCH * PATCH * CHANNELS, rngs=rngs)

    def patchify(self, x):
        b, s = x.shape[0], GRID // PATCH
        x = x.reshape(b, FRAMES, s, PATCH, s, PATCH, CHANNELS)
        return x.transpose(0, 1, 2, 4, 3, 5, 6).reshape(b, FRAMES, s * s, -1)

    def unpatchify(self, x):
        b, s = x.shape[0], GRID // PATCH
        x = x.reshape(b, FRAMES, s, s, PATCH, PATCH, CHANNELS).transpose(0, 1, 2, 4, 3, 5, 6)
        return x.reshape(b, FRAMES, GRID, GRID, CHANNELS)

    def __call__(self, x, noise_level, label):
        x = self.patch(self.patchify(x)) + self.place[...]
        c = self.time2(nnx.silu(self.time1(sinusoid(noise_level, WIDTH)))) + self.label(label)
        for block in self.blocks:
            x = block(x, c)
        return self.unpatchify(self.final(self.norm(x)))


def precondition(net, x, sigma, label, boundary):
    """EDM preconditioning; with boundary=True f(x, SIGMA_MIN) = x"""
    s = sigma[:, None, None, None, None]
    low = SIGMA_MIN if boundary else 0.0
    c_skip = SIGMA_DATA**2 / ((s - low) ** 2 + SIGMA_DATA**2)
    c_out = (s - low) * SIGMA_DATA / jnp.sqrt(s**2 + SIGMA_DATA**2)
    c_in = 1 / jnp.sqrt(s**2 + SIGMA_DATA**2)
    return c_skip * x + c_out * net(c_in * x, 250 * jnp.log(sigma), label)


def karras(n):
    a, b = SIGMA_MAX ** (1 / RHO), SIGMA_MIN ** (1 / RHO)
    return (a + n / (STEPS - 1) * (b - a)) ** RHO


def guided_denoise(teacher, x, sigma, label):
    both = lambda a: jnp.concatenate([a, a])
    labels = jnp.concatenate([label, jnp.full_like(label, CLASSES)])
    cond, uncond = jnp.split(precondition(teacher, both(x), both(sigma), labels, False), 2)
    return uncond + GUIDANCE * (cond - uncond)


def heun_step(teacher, x, sigma, sigma_next, label):
    s, n = sigma[:, None, None, None, None], sigma_next[:, None, None, None, None]
    d = (x - guided_denoise(teacher, x, sigma, label)) / s
    y = x + (n - s) * d
    d2 = (y - guided_denoise(teacher, y, sigma_next, label)) / n
    return x + (n - s) * 0.5 * (d + d2)


def pseudo_huber(a, b):
    c = 0.00054 * (FRAMES * GRID * GRID * CHANNELS) ** 0.5
    return jnp.mean(jnp.sqrt(jnp.sum((a - b) ** 2, (1, 2, 3, 4)) + c**2) - c)


tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-4, weight_decay=0.01))


def make(mesh):
    abstract = nnx.eval_shape(lambda: VideoDiT(nnx.Rngs(0)))
    graph, shapes = nnx.split(abstract)

    def distill_step(student, target, teacher, opt_state, video, label, key):
        k_step, k_noise = jax.random.split(key)
        n = jax.random.randint(k_step, (BATCH,), 0, STEPS - 1)
        sigma, sigma_next = karras(n), karras(n + 1)
        noise = jax.random.normal(k_noise, video.shape)
        x = video + sigma[:, None, None, None, None] * noise
        x_prev = heun_step(nnx.merge(graph, teacher), x, sigma, sigma_next, label)
        goal = precondition(nnx.merge(graph, target), x_prev, sigma_next, label, True)
        goal = jax.lax.stop_gradient(goal)

        def loss_fn(student):
            out = precondition(nnx.merge(graph, student), x, sigma, label, True)
            return pseudo_huber(out, goal)

        loss, grads = jax.value_and_grad(loss_fn)(student)
        updates, opt_state = tx.update(grads, opt_state, student)
        student = optax.apply_updates(student, updates)
        target = optax.incremental_update(student, target, 0.05)
        return student, target, opt_state, loss

    rep, dat = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    place = lambda tree: jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=rep), tree
    )
    params = place(shapes)
    opt_state = place(jax.eval_shape(tx.init, shapes))
    video = jax.ShapeDtypeStruct((BATCH, FRAMES, GRID, GRID, CHANNELS), jnp.float32, sharding=dat)
    label = jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=dat)
    key = jax.ShapeDtypeStruct((2,), jnp.uint32, sharding=rep)
    return jax.jit(distill_step, donate_argnums=(0, 1, 3)), (
        params,
        params,
        params,
        opt_state,
        video,
        label,
        key,
    )
