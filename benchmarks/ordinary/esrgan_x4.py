TRUTH = """
# esrgan_x4 - ESRGAN GAN-stage training step (x4 super resolution); Equinox, two Adam optimisers + generator EMA, one device, f32

1. Order: **generator**: first conv, **16 RRDBs (loop x16, remat)** each { 3 dense blocks of 5 convs (64+32i -> 32, last 192 -> 64) with 0.2 residuals }, trunk conv + skip, up-conv at 64^2, up-conv at 128^2, HR conv, last conv -> SR image. **VGG19 to conv5_4** (16 convs, frozen) on SR and on HR; **discriminator** (10 convs 64..512 with group norm, 2 linears) on SR and HR -> L1 + perceptual + relativistic GAN loss -> backward: discriminator and VGG to the image only, generator head, **loop x16 reversed {recompute RRDB, backward}**, first conv -> Adam G. **Discriminator step**: D on HR and on detached SR -> relativistic loss -> backward -> Adam D. EMA of G.
2. Work ~2.8 TF for batch 16: generator ~1.65 TF (60%; its trunk ~90% of that: forward, recompute, backward 2x), VGG ~0.6 TF (22%: forward SR, forward HR, backward to SR), discriminator ~0.4-0.55 TF (17%; its D-step forward has the same inputs and weights as in the G step, so XLA may share it).
3. Loops: RRDB forward x16, RRDB backward x16. Everything else unrolled. 3 dense blocks x 5 convs inside the body.
4. No mesh.
5. First picture: LR -> G (first, RRDB x16, upsampling) -> SR -> VGG(SR), VGG(HR), D(SR), D(HR) -> G loss -> backward (D/VGG to SR, G) -> Adam G -> EMA; D loss -> D backward -> Adam D.
6. Arrows: SR from G to VGG, D, pixel loss and (detached) D loss; D's old weights in both steps; new G weights only to EMA.
7. Should not stand out: normalisation by ImageNet mean, concatenations of dense features, nearest upsampling (repeat), BCE details, schedule.
8. Typically wrong: VGG and discriminator mixed up; the three dense blocks invisible; D's backward inside the G step (no weight gradient) confused with the D step; recompute loop part called forward.
"""

"""ESRGAN x4 super resolution, GAN stage: RRDB generator, VGG-style discriminator with relativistic average
loss, VGG19 perceptual loss. Equinox, two Adam optimisers, EMA of the generator. Single accelerator."""
import equinox as eqx
import jax
import jax.numpy as jnp
import optax

BATCH, LR_SIZE, SCALE = 16, 32, 4
NF, GC, NB = 64, 32, 16
HR = LR_SIZE * SCALE
lrelu = lambda x: jax.nn.leaky_relu(x, 0.2)


def conv3(i, o, key, stride=1):
    return eqx.nn.Conv2d(i, o, 3, stride, padding=1, key=key)


class DenseBlock(eqx.Module):
    convs: list

    def __init__(self, key):
        ks = jax.random.split(key, 5)
        self.convs = [conv3(NF + i * GC, GC if i < 4 else NF, k) for i, k in enumerate(ks)]

    def __call__(self, x):
        feats = [x]
        for c in self.convs[:-1]:
            feats.append(lrelu(c(jnp.concatenate(feats))))
        return x + 0.2 * self.convs[-1](jnp.concatenate(feats))


class RRDB(eqx.Module):
    b1: DenseBlock
    b2: DenseBlock
    b3: DenseBlock

    def __init__(self, key):
        self.b1, self.b2, self.b3 = (DenseBlock(k) for k in jax.random.split(key, 3))

    def __call__(self, x):
        return x + 0.2 * self.b3(self.b2(self.b1(x)))


class Generator(eqx.Module):
    first: eqx.nn.Conv2d
    trunk: RRDB  # NB stacked
    trunk_conv: eqx.nn.Conv2d
    up1: eqx.nn.Conv2d
    up2: eqx.nn.Conv2d
    hr: eqx.nn.Conv2d
    last: eqx.nn.Conv2d

    def __init__(self, key):
        k = jax.random.split(key, 7)
        self.first, self.trunk_conv = conv3(3, NF, k[0]), conv3(NF, NF, k[1])
        self.trunk = eqx.filter_vmap(RRDB)(jax.random.split(k[2], NB))
        self.up1, self.up2, self.hr = (conv3(NF, NF, k[i]) for i in (3, 4, 5))
        self.last = conv3(NF, 3, k[6])

    def __call__(self, x):
        f = jax.vmap(self.first)(x)
        arrays, static = eqx.partition(self.trunk, eqx.is_array)

        @jax.checkpoint
        def block(y, w):
            return jax.vmap(eqx.combine(w, static))(y), None

        y, _ = jax.lax.scan(block, f, arrays)
        y = f + jax.vmap(self.trunk_conv)(y)
        for up in (self.up1, self.up2):
            y = jnp.repeat(jnp.repeat(y, 2, -1), 2, -2)
            y = lrelu(jax.vmap(up)(y))
        return jax.vmap(self.last)(lrelu(jax.vmap(self.hr)(y)))


class Discriminator(eqx.Module):
    convs: list
    norms: list
    fc1: eqx.nn.Linear
    fc2: eqx.nn.Linear

    def __init__(self, key):
        k = jax.random.split(key, 12)
        plan = [
            (3, 64, 1),
            (64, 64, 2),
            (64, 128, 1),
            (128, 128, 2),
            (128, 256, 1),
            (256, 256, 2),
            (256, 512, 1),
            (512, 512, 2),
            (512, 512, 1),
            (512, 512, 2),
        ]
        self.convs = [conv3(i, o, k[n], s) for n, (i, o, s) in enumerate(plan)]
        self.norms = [eqx.nn.GroupNorm(8, o) for _, o, _ in plan[1:]]
        self.fc1, self.fc2 = (
            eqx.nn.Linear(512 * 16, 100, key=k[10]),
            eqx.nn.Linear(100, 1, key=k[11]),
        )

    def __call__(self, x):
        x = lrelu(self.convs[0](x))
        for c, n in zip(self.convs[1:], self.norms):
            x = lrelu(n(c(x)))
        return self.fc2(lrelu(self.fc1(x.reshape(-1))))[0]


class VGG19(eqx.Module):
    """up to conv5_4, before its activation"""

    convs: list

    def __init__(self, key):
        plan, convs, c = [(64, 2), (128, 2), (256, 4), (512, 4), (512, 4)], [], 3
        for o, n in plan:
            stage = []
            for _ in range(n):
                key, k = jax.random.split(key)
                stage.append(conv3(c, o, k))
                c = o
            convs.append(stage)
        self.convs = convs

    def __call__(self, x):
        mean, std = jnp.array([0.485, 0.456, 0.406]), jnp.array([0.229, 0.224, 0.225])
        x = (x - mean[:, None, None]) / std[:, None, None]
        for s, stage in enumerate(self.convs):
            if s:
                x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2), (1, 2, 2), "VALID")
            for i, c in enumerate(stage):
                x = c(x)
                if s < 4 or i < 3:
                    x = jax.nn.relu(x)
        return x


sched = lambda: optax.piecewise_constant_schedule(
    1e-4, {50_000: 0.5, 100_000: 0.5, 200_000: 0.5, 300_000: 0.5}
)
g_tx, d_tx = optax.adam(sched(), 0.9, 0.99), optax.adam(sched(), 0.9, 0.99)
bce = lambda logit, y: optax.sigmoid_binary_cross_entropy(logit, jnp.full_like(logit, y)).mean()


def g_loss(g, d, vgg, lr, hr):
    sr = g(lr)
    pixel = jnp.abs(sr - hr).mean()
    percep = jnp.abs(jax.vmap(vgg)(sr) - jax.lax.stop_gradient(jax.vmap(vgg)(hr))).mean()
    fake, real = jax.vmap(d)(sr), jax.lax.stop_gradient(jax.vmap(d)(hr))
    gan = 0.5 * (bce(real - fake.mean(), 0.0) + bce(fake - real.mean(), 1.0))
    return 0.01 * pixel + percep + 0.005 * gan, (sr, pixel, percep, gan)


def d_loss(d, sr, hr):
    real, fake = jax.vmap(d)(hr), jax.vmap(d)(sr)
    return 0.5 * (bce(real - fake.mean(), 1.0) + bce(fake - real.mean(), 0.0)), (
        real.mean(),
        fake.mean(),
    )


def make():
    key = jax.random.PRNGKey(0)
    is_shape = lambda x: isinstance(x, jax.ShapeDtypeStruct)
    parts = [
        eqx.partition(eqx.filter_eval_shape(c, key), is_shape)
        for c in (Generator, Discriminator, VGG19)
    ]
    (gp, gs), (dp, ds), (vp, vs) = parts

    def step(gp, dp, ema, go, do, vp, lr, hr):
        def gl(p):
            return g_loss(eqx.combine(p, gs), eqx.combine(dp, ds), eqx.combine(vp, vs), lr, hr)

        (_, (sr, *logs)), gg = jax.value_and_grad(gl, has_aux=True)(gp)
        up, go = g_tx.update(gg, go)
        gp = optax.apply_updates(gp, up)
        sr = jax.lax.stop_gradient(sr)
        (dl, score), dg = jax.value_and_grad(
            lambda p: d_loss(eqx.combine(p, ds), sr, hr), has_aux=True
        )(dp)
        up, do = d_tx.update(dg, do)
        dp = optax.apply_updates(dp, up)
        ema = optax.incremental_update(gp, ema, 0.001)
        return gp, dp, ema, go, do, (dl, score, logs)

    lr = jax.ShapeDtypeStruct((BATCH, 3, LR_SIZE, LR_SIZE), jnp.float32)
    hr = jax.ShapeDtypeStruct((BATCH, 3, HR, HR), jnp.float32)
    args = (gp, dp, gp, jax.eval_shape(g_tx.init, gp), jax.eval_shape(d_tx.init, dp), vp, lr, hr)
    return jax.jit(step, donate_argnums=(0, 1, 2, 3, 4)), args
