TRUTH = """
# perceiver_lamb - Perceiver image classifier (flax linen), one train step with LAMB, one device, f32

1. Parts in order: **augment** (flip, cutout) ; **input encoding** (pixels + Fourier position features, 4096 x 69) ; **perceiver forward** ; **loss** (label-smoothed cross entropy) ; **backward** (same parts in reverse) ; **LAMB** update.
2. perceiver forward: 4 blocks, written out one after another (python loop): each = **cross_attend** (256 latents query 4096 pixels) then **latent_tower: loop x6** self-attention layers.
   - block 0 has its own cross-attend; blocks 1..3 share one cross-attend; all four share the same latent tower weights (so the x6 loop occurs 4 times forward, 4 times backward).
   - cross_attend { norms, q, k, v, scores, softmax, values, out, mlp } ; latent layer { norm, self attention, norm, mlp }.
   - then **decoder**: one query attends to the 256 latents, logits over 200 classes (tiny).
3. Work: about 5.6 TF. latent towers ~72% (mlp 44%, attention projections 22%, scores 6%), cross_attends ~28% (scores against the pixels 15% , mlp 7%, k/v 4%). Forward 1/3, backward 2/3. LAMB, augment, encoding ~0.
4. A good first picture: augment -> encode pixels -> [cross attend -> latent tower x6] x4 -> decoder -> loss -> backward of each [..] x4 reversed -> LAMB -> new params. The pixel array goes to each of the four cross attends (arrow from encoding to all four), latents run along the chain. Saved activations go from each forward tower to its own backward tower.
5. Gradients of the shared weights of the tower are summed from 4 backward loops before LAMB.
6. Should not stand out: LAMB's trust ratio norms for each leaf (many small reductions), random bits for cutout, Fourier sin/cos, decoder.
7. Misleading: "24 layers" is true in depth but weights are 6; calling the x6 loop steps or iterations would be less good than layers.
"""

"""Perceiver (Jaegle et al.) with weight sharing; ImageNet-64-like training step."""
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

BATCH, SIZE, CLASSES = 32, 64, 200
LATENTS, WIDTH, HEADS = 256, 512, 8
BLOCKS, LAYERS = 4, 6
BANDS = 16


def fourier_positions(size, bands):
    """[size*size, 2 + 4*bands] sin/cos features of the two pixel coordinates."""
    line = jnp.linspace(-1.0, 1.0, size)
    pos = jnp.stack(jnp.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
    freqs = jnp.linspace(1.0, size / 2, bands)
    angles = (jnp.pi * pos[..., None] * freqs).reshape(size * size, -1)
    return jnp.concatenate([pos, jnp.sin(angles), jnp.cos(angles)], -1)


def encode_pixels(images):
    b = images.shape[0]
    pixels = images.reshape(b, SIZE * SIZE, 3)
    where = fourier_positions(SIZE, BANDS)
    where = jnp.broadcast_to(where, (b, *where.shape))
    return jnp.concatenate([pixels, where], -1)


class Attention(nn.Module):
    width: int
    heads: int

    @nn.compact
    def __call__(self, x, context):
        head = self.width // self.heads
        q = nn.DenseGeneral((self.heads, head), name="q")(x)
        k = nn.DenseGeneral((self.heads, head), name="k")(context)
        v = nn.DenseGeneral((self.heads, head), name="v")(context)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(head)
        probs = nn.softmax(scores)
        y = jnp.einsum("bhqk,bkhd->bqhd", probs, v)
        return nn.DenseGeneral(self.width, axis=(-2, -1), name="out")(y)


class Mlp(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        h = nn.gelu(nn.Dense(4 * self.width, name="up")(x))
        return nn.Dense(self.width, name="down")(h)


class CrossAttend(nn.Module):
    @nn.compact
    def __call__(self, latents, inputs):
        y = nn.LayerNorm(name="norm_q")(latents)
        c = nn.LayerNorm(name="norm_kv")(inputs)
        latents = latents + Attention(WIDTH, HEADS, name="attention")(y, c)
        return latents + Mlp(WIDTH, name="mlp")(nn.LayerNorm(name="norm_mlp")(latents))


class LatentLayer(nn.Module):
    @nn.compact
    def __call__(self, latents, _):
        y = nn.LayerNorm(name="norm_attn")(latents)
        latents = latents + Attention(WIDTH, HEADS, name="self_attention")(y, y)
        latents = latents + Mlp(WIDTH, name="mlp")(nn.LayerNorm(name="norm_mlp")(latents))
        return latents, None


class LatentTower(nn.Module):
    @nn.compact
    def __call__(self, latents):
        layers = nn.scan(
            LatentLayer,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=LAYERS,
        )(name="layers")
        return layers(latents, None)[0]


class Decoder(nn.Module):
    @nn.compact
    def __call__(self, latents):
        query = self.param("query", nn.initializers.normal(0.02), (1, 1, WIDTH))
        query = jnp.broadcast_to(query, (latents.shape[0], 1, WIDTH))
        y = Attention(WIDTH, 1, name="attention")(query, nn.LayerNorm()(latents))
        return nn.Dense(CLASSES, name="logits")(y[:, 0])


class Perceiver(nn.Module):
    def setup(self):
        self.latents = self.param("latents", nn.initializers.normal(0.02), (LATENTS, WIDTH))
        self.first_cross = CrossAttend()
        self.shared_cross = CrossAttend()
        self.tower = LatentTower()
        self.decoder = Decoder()

    def __call__(self, inputs):
        z = jnp.broadcast_to(self.latents, (inputs.shape[0], LATENTS, WIDTH))
        for block in range(BLOCKS):
            cross = self.first_cross if block == 0 else self.shared_cross
            z = cross(z, inputs)
            z = self.tower(z)
        return self.decoder(z)


model = Perceiver()
optimizer = optax.chain(
    optax.clip_by_global_norm(10.0),
    optax.lamb(optax.warmup_cosine_decay_schedule(0.0, 4e-3, 2_000, 100_000), weight_decay=0.1),
)


def augment(key, images):
    flip_key, x_key, y_key = jax.random.split(key, 3)
    b = images.shape[0]
    images = images.astype(jnp.float32) / 127.5 - 1.0
    flip = jax.random.bernoulli(flip_key, 0.5, (b, 1, 1, 1))
    images = jnp.where(flip, images[:, :, ::-1], images)
    cx = jax.random.randint(x_key, (b, 1, 1), 0, SIZE)
    cy = jax.random.randint(y_key, (b, 1, 1), 0, SIZE)
    rows, cols = jnp.arange(SIZE)[None, :, None], jnp.arange(SIZE)[None, None, :]
    hole = (jnp.abs(rows - cy) < 8) & (jnp.abs(cols - cx) < 8)
    return jnp.where(hole[..., None], 0.0, images)


def smoothed_cross_entropy(logits, labels):
    targets = optax.smooth_labels(jax.nn.one_hot(labels, CLASSES), 0.1)
    return optax.softmax_cross_entropy(logits, targets).mean()


def train_step(params, opt_state, key, images, labels):
    images = augment(key, images)

    def loss_fn(params):
        logits = model.apply({"params": params}, encode_pixels(images))
        return smoothed_cross_entropy(logits, labels), logits

    (loss, logits), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    params = optax.apply_updates(params, updates)
    accuracy = (logits.argmax(-1) == labels).mean()
    return params, opt_state, {"loss": loss, "accuracy": accuracy}


def make():
    def init(key):
        images = jnp.zeros((1, SIZE, SIZE, 3))
        params = model.init(key, encode_pixels(images))["params"]
        return params, optimizer.init(params)

    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    params, opt_state = jax.eval_shape(init, key)
    images = jax.ShapeDtypeStruct((BATCH, SIZE, SIZE, 3), jnp.uint8)
    labels = jax.ShapeDtypeStruct((BATCH,), jnp.int32)
    return jax.jit(train_step, donate_argnums=(0, 1)), (params, opt_state, key, images, labels)
