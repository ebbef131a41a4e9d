"""Fourier neural operator for 2-d Navier-Stokes vorticity, trained through a 10-step autoregressive rollout. flax.nnx."""

TRUTH = """
IN ORDER
- `train_step`: rollout loop of 10 steps (each one the whole FNO, output fed back in the 10-frame window) -> relative L2 loss over the 10 predicted
  frames -> backward through time (reversed loop of 10) -> optimiser (adam with cosine schedule)
- FNO: append grid coordinates -> `lift` (12 -> 64) -> 4 Fourier layers -> `proj1` (64 -> 256), gelu, `proj2` (256 -> 1)
- Fourier layer: `SpectralConv2d` (fft2 -> keep 20x20 low modes, in two corners, complex weights per mode -> ifft2) + 1x1 `skip`, gelu (not after the last)
COUNTS
- one forward loop x10, one backward loop x10; in the body 4 Fourier layers, unrolled: 4 fft + 4 ifft forward, 8 more in the backward body
  (fewer if the saved ones are used; the backward of an fft is an fft)
ORDER / INDEPENDENCE
- in a layer, the spectral branch and the `skip` are independent and meet in an add; the two corners are independent
- rollout steps strictly serial; loss after the rollout
HEAVY
- ffts of [16, 128, 128, 64] complex64 (134 MB each) and their traffic; FLOPs: ffts + proj1/skip matmuls; spectral weights multiply is small
- params: 4 x 2 x 64*64*20*20 complex = 13 M complex (105 MB); Adam over them is per step once
PERFORMANCE (deliberate flaws)
- fft2 of a REAL field in full complex form (rfft2 would halve the work and the bytes)
- channels last while the fft is over axes 1, 2: a transposition (copy of 134 MB) before and behind each fft, in the loop, 10 times
- spectrum out is built from zeros [16,128,128,64] complex with two scatters/updates
- the saved residuals of the loop ([10, ...] stacked of all 4 layers) are many GB: no remat
"""
import jax
import jax.numpy as jnp
import optax
from flax import nnx

BATCH, GRID, WIDTH, MODES, T_IN, T_OUT = 16, 128, 64, 20, 10, 10


class SpectralConv2d(nnx.Module):
    def __init__(self, rngs):
        shape = (2, MODES, MODES, WIDTH, WIDTH)
        k = rngs.params()
        self.re = nnx.Param(jax.random.normal(k, shape) / WIDTH**2)
        self.im = nnx.Param(jax.random.normal(jax.random.fold_in(k, 1), shape) / WIDTH**2)

    def __call__(self, x):
        w = self.re[...] + 1j * self.im[...]
        xf = jnp.fft.fft2(x, axes=(1, 2))
        low = jnp.einsum("bxyi,xyio->bxyo", xf[:, :MODES, :MODES], w[0])
        high = jnp.einsum("bxyi,xyio->bxyo", xf[:, -MODES:, :MODES], w[1])
        out = jnp.zeros_like(xf)
        out = out.at[:, :MODES, :MODES].set(low)
        out = out.at[:, -MODES:, :MODES].set(high)
        return jnp.fft.ifft2(out, axes=(1, 2)).real


class FourierLayer(nnx.Module):
    def __init__(self, rngs, last=False):
        self.spectral = SpectralConv2d(rngs)
        self.skip = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.last = last

    def __call__(self, x):
        y = self.spectral(x) + self.skip(x)
        return y if self.last else jax.nn.gelu(y)


class FNO2d(nnx.Module):
    def __init__(self, rngs):
        self.lift = nnx.Linear(T_IN + 2, WIDTH, rngs=rngs)
        self.layer0 = FourierLayer(rngs)
        self.layer1 = FourierLayer(rngs)
        self.layer2 = FourierLayer(rngs)
        self.layer3 = FourierLayer(rngs, last=True)
        self.proj1 = nnx.Linear(WIDTH, 256, rngs=rngs)
        self.proj2 = nnx.Linear(256, 1, rngs=rngs)

    def __call__(self, window):
        axis = jnp.linspace(0.0, 1.0, GRID)
        gx, gy = jnp.meshgrid(axis, axis, indexing="ij")
        grid = jnp.broadcast_to(jnp.stack([gx, gy], -1), (*window.shape[:3], 2))
        x = self.lift(jnp.concatenate([window, grid], -1))
        for layer in (self.layer0, self.layer1, self.layer2, self.layer3):
            x = layer(x)
        return self.proj2(jax.nn.gelu(self.proj1(x)))


def relative_l2(pred, target):
    num = jnp.sqrt(jnp.sum((pred - target) ** 2, axis=(1, 2)))
    den = jnp.sqrt(jnp.sum(target**2, axis=(1, 2)))
    return jnp.mean(num / den)


def make():
    graphdef = nnx.graphdef(nnx.eval_shape(lambda: FNO2d(nnx.Rngs(0))))
    params = nnx.state(nnx.eval_shape(lambda: FNO2d(nnx.Rngs(0))), nnx.Param)
    tx = optax.adam(optax.cosine_decay_schedule(1e-3, 50_000))

    def rollout(params, window):
        model = nnx.merge(graphdef, params)

        def step(window, _):
            frame = model(window)
            return jnp.concatenate([window[..., 1:], frame], -1), frame[..., 0]

        _, frames = jax.lax.scan(step, window, None, length=T_OUT)
        return jnp.moveaxis(frames, 0, -1)

    def loss_fn(params, past, future):
        return relative_l2(rollout(params, past), future)

    def train_step(params, opt_state, past, future):
        loss, grads = jax.value_and_grad(loss_fn)(params, past, future)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    past = jax.ShapeDtypeStruct((BATCH, GRID, GRID, T_IN), jnp.float32)
    future = jax.ShapeDtypeStruct((BATCH, GRID, GRID, T_OUT), jnp.float32)
    opt_state = jax.eval_shape(tx.init, params)
    return jax.jit(train_step, donate_argnums=(0, 1)), (params, opt_state, past, future)
