"""StyleGAN2-like GAN at 64x64 in equinox: modulated convolutions, residual discriminator, non-saturating loss with R1 penalty."""

TRUTH = """
IN ORDER
- one `train_step` = discriminator step, then generator step, then EMA of the generator
- discriminator step: generator forward (fakes; mapping x8 + synthesis 4,8,16,32,64) -> D(real), D(fake) -> softplus losses + `r1_penalty`
  (squared gradient of D(real) to the image: a backward inside the loss) -> backward over all that -> Adam of D
- generator step: generator forward again with new z -> D(fake) with the *new* D -> softplus loss -> backward through D and G -> Adam of G
- EMA: g_ema = lerp(g_ema, g)
COUNTS
- mapping network: 8 dense layers; synthesis: 5 resolutions, 2 modulated convs (1 at 4x4) + toRGB each = 9 convs + 5 toRGB
- discriminator: fromRGB, 4 residual blocks 64->4 (2 convs + 1x1 skip), last conv, 2 dense. All unrolled, no loops
- D is run 3 times forward (real, fake, fake'); real goes through a backward for R1 and then a second-order backward; G twice forward, once backward
INDEPENDENT
- D(real)+R1 and G forward/D(fake) are independent until the D loss is summed; mapping of the two z's independent of D
- generator step must wait for the updated D; EMA only needs the new G
HEAVY
- convolutions of the high resolutions; the discriminator step is ~ 60-70 % of all FLOPs since R1's double backward is the dearest part; mapping ~ 0
PERFORMANCE
- healthy: all state donated; single device; f32. No gradient goes to G in the D step (fakes are constants there)
"""
import equinox as eqx
import jax
import jax.numpy as jnp
import optax

Z, BATCH = 512, 32
CHANNELS = {4: 512, 8: 512, 16: 256, 32: 256, 64: 128}


def upsample(x):
    return jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2)


def downsample(x):
    c, h, w = x.shape
    return x.reshape(c, h // 2, 2, w // 2, 2).mean((2, 4))


def lrelu(x):
    return jax.nn.leaky_relu(x, 0.2) * 2**0.5


class ModConv(eqx.Module):
    weight: jax.Array
    bias: jax.Array
    style: eqx.nn.Linear
    demod: bool = eqx.field(static=True)

    def __init__(self, cin, cout, k, key, demod=True):
        k1, k2 = jax.random.split(key)
        self.weight = jax.random.normal(k1, (cout, cin, k, k)) * (cin * k * k) ** -0.5
        self.bias = jnp.zeros((cout, 1, 1))
        self.style = eqx.nn.Linear(Z, cin, key=k2)
        self.demod = demod

    def __call__(self, x, w):
        s = 1 + self.style(w)
        y = jax.lax.conv_general_dilated((x * s[:, None, None])[None], self.weight, (1, 1), "SAME")[
            0
        ]
        if self.demod:
            norm = jnp.einsum("oikl,i->o", self.weight**2, s**2)
            y = y * jax.lax.rsqrt(norm + 1e-8)[:, None, None]
        return y + self.bias


class Generator(eqx.Module):
    mapping: list
    const: jax.Array
    convs: list
    to_rgb: list

    def __init__(self, key):
        km, kc, ks, kr = jax.random.split(key, 4)
        self.mapping = [eqx.nn.Linear(Z, Z, key=k) for k in jax.random.split(km, 8)]
        self.const = jax.random.normal(kc, (CHANNELS[4], 4, 4))
        self.convs, self.to_rgb, cin = [], [], CHANNELS[4]
        for res, k, kk in zip(CHANNELS, jax.random.split(ks, 5), jax.random.split(kr, 5)):
            k1, k2 = jax.random.split(k)
            pair = [ModConv(cin, CHANNELS[res], 3, k1)] if res > 4 else []
            self.convs.append(pair + [ModConv(CHANNELS[res], CHANNELS[res], 3, k2)])
            self.to_rgb.append(ModConv(CHANNELS[res], 3, 1, kk, demod=False))
            cin = CHANNELS[res]

    def __call__(self, z):
        w = z * jax.lax.rsqrt(jnp.mean(z**2) + 1e-8)
        with jax.named_scope("mapping"):
            for layer in self.mapping:
                w = lrelu(layer(w))
        x, rgb = self.const, jnp.zeros((3, 4, 4))
        for res, convs, to_rgb in zip(CHANNELS, self.convs, self.to_rgb):
            with jax.named_scope(f"synthesis_{res}"):
                if res > 4:
                    x, rgb = upsample(x), upsample(rgb)
                for conv in convs:
                    x = lrelu(conv(x, w))
                rgb = rgb + to_rgb(x, w)
        return rgb


class Discriminator(eqx.Module):
    from_rgb: eqx.nn.Conv2d
    blocks: list
    last: eqx.nn.Conv2d
    fc: eqx.nn.Linear
    out: eqx.nn.Linear

    def __init__(self, key):
        k = jax.random.split(key, 8)
        res = list(CHANNELS)[::-1]
        self.from_rgb = eqx.nn.Conv2d(3, CHANNELS[64], 1, key=k[0])
        self.blocks = []
        for a, b, kb in zip(res[:-1], res[1:], k[1:5]):
            k1, k2, k3 = jax.random.split(kb, 3)
            ca, cb = CHANNELS[a], CHANNELS[b]
            self.blocks.append(
                (
                    eqx.nn.Conv2d(ca, ca, 3, padding=1, key=k1),
                    eqx.nn.Conv2d(ca, cb, 3, padding=1, key=k2),
                    eqx.nn.Conv2d(ca, cb, 1, use_bias=False, key=k3),
                )
            )
        self.last = eqx.nn.Conv2d(512, 512, 3, padding=1, key=k[5])
        self.fc = eqx.nn.Linear(512 * 16, 512, key=k[6])
        self.out = eqx.nn.Linear(512, 1, key=k[7])

    def __call__(self, img):
        x = lrelu(self.from_rgb(img))
        for i, (conv0, conv1, skip) in enumerate(self.blocks):
            with jax.named_scope(f"disc_block_{i}"):
                y = lrelu(conv1(downsample(lrelu(conv0(x)))))
                x = (y + skip(downsample(x))) * 0.5**0.5
        x = lrelu(self.last(x)).reshape(-1)
        return self.out(lrelu(self.fc(x)))[0]


def r1_penalty(disc, real):
    grads = jax.vmap(jax.grad(lambda img: disc(img)))(real)
    return jnp.mean(jnp.sum(grads**2, axis=(1, 2, 3)))


def make():
    tx = optax.adam(2e-3, b1=0.0, b2=0.99)
    is_struct = lambda x: isinstance(x, jax.ShapeDtypeStruct)
    g_arr, g_static = eqx.partition(
        eqx.filter_eval_shape(Generator, jax.random.PRNGKey(0)), is_struct
    )
    d_arr, d_static = eqx.partition(
        eqx.filter_eval_shape(Discriminator, jax.random.PRNGKey(1)), is_struct
    )
    gen = lambda p, z: jax.vmap(eqx.combine(p, g_static))(z)

    def d_loss(dp, gp, real, z):
        disc = eqx.combine(dp, d_static)
        fake = gen(gp, z)
        loss = (
            jax.nn.softplus(jax.vmap(disc)(fake)).mean()
            + jax.nn.softplus(-jax.vmap(disc)(real)).mean()
        )
        r1 = r1_penalty(disc, real)
        return loss + 5.0 * r1, r1

    def g_loss(gp, dp, z):
        return jax.nn.softplus(-jax.vmap(eqx.combine(dp, d_static))(gen(gp, z))).mean()

    def train_step(gp, dp, g_ema, g_opt, d_opt, real, key):
        zd, zg = jax.random.normal(key, (2, BATCH, Z))
        (dl, r1), grads = jax.value_and_grad(d_loss, has_aux=True)(dp, gp, real, zd)
        upd, d_opt = tx.update(grads, d_opt)
        dp = eqx.apply_updates(dp, upd)
        gl, grads = jax.value_and_grad(g_loss)(gp, dp, zg)
        upd, g_opt = tx.update(grads, g_opt)
        gp = eqx.apply_updates(gp, upd)
        g_ema = optax.incremental_update(gp, g_ema, 0.001)
        return gp, dp, g_ema, g_opt, d_opt, {"d": dl, "g": gl, "r1": r1}

    real = jax.ShapeDtypeStruct((BATCH, 3, 64, 64), jnp.float32)
    key = jax.eval_shape(lambda: jax.random.PRNGKey(0))
    opt = lambda p: jax.eval_shape(tx.init, p)
    return jax.jit(train_step, donate_argnums=(0, 1, 2, 3, 4)), (
        g_arr,
        d_arr,
        g_arr,
        opt(g_arr),
        opt(d_arr),
        real,
        key,
    )
