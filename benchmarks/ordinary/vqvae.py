"""VQ-VAE with EMA codebook (flax linen), one training step."""

TRUTH = {
    "majors": {
        "Encoder": 0.15,
        "VectorQuantizer (distances to 1024 codes)": 0.05,
        "Decoder": 0.18,
        "backward": 0.6,
        "codebook EMA update": 0.03,
        "Adam": 0.0,
    },
    "layers": [["encoder ResidualBlock", 4], ["decoder ResidualBlock", 4]],
    "optimizer": True,
    "grad": "encoder and decoder params (codebook is EMA, straight-through)",
    "loops": [],
    "tells_apart": [["encoder", "decoder"]],
}

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

CODES = 1024
CODE_DIM = 128
HIDDEN = 192
BATCH = 16
IMAGE = 128


class ResidualBlock(nn.Module):
    features: int

    @nn.compact
    def __call__(self, x):
        h = nn.relu(x)
        h = nn.Conv(self.features, (3, 3), use_bias=False)(h)
        h = nn.relu(h)
        h = nn.Conv(self.features, (1, 1), use_bias=False)(h)
        return x + h


class ResidualStack(nn.Module):
    n: int = 4

    @nn.compact
    def __call__(self, x):
        for _ in range(self.n):
            x = ResidualBlock(x.shape[-1])(x)
        return nn.relu(x)


class Encoder(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(HIDDEN // 2, (4, 4), (2, 2))(x))
        x = nn.relu(nn.Conv(HIDDEN, (4, 4), (2, 2))(x))
        x = nn.Conv(HIDDEN, (3, 3))(x)
        x = ResidualStack()(x)
        return nn.Conv(CODE_DIM, (1, 1), name="to_code")(x)


class Decoder(nn.Module):
    @nn.compact
    def __call__(self, z):
        x = nn.Conv(HIDDEN, (3, 3))(z)
        x = ResidualStack()(x)
        x = nn.relu(nn.ConvTranspose(HIDDEN // 2, (4, 4), (2, 2))(x))
        return nn.ConvTranspose(3, (4, 4), (2, 2))(x)


class VectorQuantizer(nn.Module):
    commitment: float = 0.25
    decay: float = 0.99

    @nn.compact
    def __call__(self, z, train: bool):
        codebook = self.variable(
            "codebook",
            "embedding",
            lambda: jax.random.normal(self.make_rng("params"), (CODES, CODE_DIM)),
        )
        cluster_size = self.variable("codebook", "cluster_size", jnp.zeros, (CODES,))
        dw = self.variable("codebook", "dw", jnp.zeros, (CODES, CODE_DIM))

        flat = z.reshape(-1, CODE_DIM)
        e = codebook.value
        distances = jnp.sum(flat**2, 1, keepdims=True) - 2 * flat @ e.T + jnp.sum(e**2, 1)[None]
        idx = jnp.argmin(distances, axis=1)
        onehot = jax.nn.one_hot(idx, CODES)
        quantized = jnp.take(e, idx, axis=0).reshape(z.shape)

        if train and not self.is_initializing():
            size = self.decay * cluster_size.value + (1 - self.decay) * onehot.sum(0)
            new_dw = self.decay * dw.value + (1 - self.decay) * onehot.T @ jax.lax.stop_gradient(
                flat
            )
            n = size.sum()
            smoothed = (size + 1e-5) / (n + CODES * 1e-5) * n
            cluster_size.value, dw.value = size, new_dw
            codebook.value = new_dw / smoothed[:, None]

        loss = self.commitment * jnp.mean((jax.lax.stop_gradient(quantized) - z) ** 2)
        quantized = z + jax.lax.stop_gradient(quantized - z)
        probs = onehot.mean(0)
        perplexity = jnp.exp(-jnp.sum(probs * jnp.log(probs + 1e-10)))
        return quantized, loss, perplexity


class VQVAE(nn.Module):
    def setup(self):
        self.encoder = Encoder()
        self.quantizer = VectorQuantizer()
        self.decoder = Decoder()

    def __call__(self, x, train=True):
        z = self.encoder(x)
        q, vq_loss, perplexity = self.quantizer(z, train)
        return self.decoder(q), vq_loss, perplexity


model = VQVAE()
tx = optax.adam(3e-4)


@jax.jit
def train_step(params, codebook, opt_state, images):
    def loss_fn(params):
        (recon, vq_loss, perplexity), new_vars = model.apply(
            {"params": params, "codebook": codebook}, images, mutable=["codebook"]
        )
        recon_loss = jnp.mean((recon - images) ** 2) / 0.06
        return recon_loss + vq_loss, (recon_loss, perplexity, new_vars["codebook"])

    (loss, (recon_loss, perplexity, codebook)), grads = jax.value_and_grad(loss_fn, has_aux=True)(
        params
    )
    updates, opt_state = tx.update(grads, opt_state)
    params = optax.apply_updates(params, updates)
    return (
        params,
        codebook,
        opt_state,
        {"loss": loss, "recon": recon_loss, "perplexity": perplexity},
    )


def create(key):
    variables = model.init(key, jnp.zeros((1, IMAGE, IMAGE, 3)))
    return variables["params"], variables["codebook"], tx.init(variables["params"])


def make():
    params, codebook, opt_state = jax.eval_shape(create, jax.random.key(0))
    return train_step, (
        params,
        codebook,
        opt_state,
        jax.ShapeDtypeStruct((BATCH, IMAGE, IMAGE, 3), jnp.float32),
    )
