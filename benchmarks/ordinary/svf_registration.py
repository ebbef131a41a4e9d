TRUTH = """
Diffeomorphic registration of 3-D brain images (register), stationary velocity field, 8 pairs of 160 x 192 x 160 by vmap, one pair a device ("pairs" 8). Classical optimisation: no network.

register (vmap of register_pair)
  pyramid: average pooling to 40x48x40, 80x96x80, (full)
  run_level, called three times (written out: levels quarter, half, full), each a scan: x100, x80, x40 iterations
    iteration
      objective (forward): exponential(v/2) and exponential(-v/2), each a loop x6 of compose (scaling and squaring); warp of moving by one and fixed by the other (symmetric); local_ncc (box_filter five times, window 9); bending_energy
      gradient: backward through the same, loops x6 twice
      adam, hand written: in the iteration (gradient descent on the velocity)
    upsample_velocity between levels
  finally: full exponential(v), jacobian_determinant, warped image, warp of 35 label channels (one-hot probabilities), dice

Three loops of 100, 80, 40; each holds 2 forward squaring loops x6 and 2 backward ones x6. Not one loop of 220.
Weight: level full: 4.9 M voxels x 40 iterations = 8 times a half iteration each, 4 times of the half level in all (half: 0.61 M x 80; quarter 0.077 M x 100). In an iteration compose (trilinear gather of 3 components, 8 corners each) dominates. No matmuls; memory and gather bound.
The devices do not exchange anything (pairs are independent); at most scalars.
False would be: network / layers / training epochs; one level shown and others dropped; the vmap as a loop of 8; adam outside of the loop; gradient missing; final exponential in a loop of iterations.
First sight: pyramid -> three levels (x100, x80, x40: exponentials, warps, similarity, gradient, adam) -> final warp, jacobian, dice.
Names true: register_pair, run_level, iteration, objective, exponential, compose, warp, local_ncc, box_filter, bending_energy, adam, upsample_velocity, jacobian_determinant, dice.
"""

"""Symmetric diffeomorphic registration of brain volumes with stationary velocity fields: coarse to fine, local
normalised cross-correlation, Adam on the velocity. Eight pairs at once, one per device."""
import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.ndimage import map_coordinates
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"pairs": 8}
PAIRS, SHAPE, LABELS = 8, (160, 192, 160), 35
LEVELS = (("quarter", 4, 100, 0.3), ("half", 2, 80, 0.2), ("full", 1, 40, 0.1))
SQUARINGS, WINDOW, BENDING = 6, 9, 0.5


def average_pool(x, factor):
    if factor == 1:
        return x
    a, b, c = (n // factor for n in x.shape)
    return x.reshape(a, factor, b, factor, c, factor).mean((1, 3, 5))


def identity_grid(shape):
    return jnp.stack(
        jnp.meshgrid(*[jnp.arange(n, dtype=jnp.float32) for n in shape], indexing="ij")
    )


def warp(volume, displacement):
    where = identity_grid(volume.shape) + displacement
    return map_coordinates(volume, list(where), order=1, mode="nearest")


def compose(first, second):
    """Displacement of going along `second`, then `first`."""
    return second + jnp.stack([warp(component, second) for component in first])


def exponential(velocity):
    """Scaling and squaring."""
    start = velocity / 2.0**SQUARINGS
    return lax.fori_loop(0, SQUARINGS, lambda _, d: compose(d, d), start)


def box_filter(x):
    for axis in range(3):
        dims = [1, 1, 1]
        dims[axis] = WINDOW
        x = lax.reduce_window(x, 0.0, lax.add, tuple(dims), (1, 1, 1), "SAME")
    return x / WINDOW**3


def local_ncc(a, b):
    ma, mb = box_filter(a), box_filter(b)
    cross = box_filter(a * b) - ma * mb
    va = jnp.maximum(box_filter(a * a) - ma * ma, 0.0)
    vb = jnp.maximum(box_filter(b * b) - mb * mb, 0.0)
    return jnp.mean(cross * cross / (va * vb + 1e-4))


def bending_energy(velocity):
    total = 0.0
    for axis in (1, 2, 3):
        second = jnp.diff(velocity, n=2, axis=axis)
        total += jnp.mean(second * second)
        for other in range(axis + 1, 4):
            mixed = jnp.diff(jnp.diff(velocity, axis=axis), axis=other)
            total += 2.0 * jnp.mean(mixed * mixed)
    return total


def objective(velocity, fixed, moving):
    forward = exponential(0.5 * velocity)
    backward = exponential(-0.5 * velocity)
    similarity = local_ncc(warp(moving, forward), warp(fixed, backward))
    return -similarity + BENDING * bending_energy(velocity)


def adam(v, g, m, s, t, rate):
    m = 0.9 * m + 0.1 * g
    s = 0.999 * s + 0.001 * g * g
    step = (m / (1 - 0.9**t)) / (jnp.sqrt(s / (1 - 0.999**t)) + 1e-8)
    return v - rate * step, m, s


def run_level(name, velocity, fixed, moving, iterations, rate):
    def iteration(carry, t):
        v, m, s = carry
        value, g = jax.value_and_grad(objective)(v, fixed, moving)
        v, m, s = adam(v, g, m, s, t, rate)
        return (v, m, s), value

    with jax.named_scope(name):
        times = jnp.arange(1, iterations + 1, dtype=jnp.float32)
        zero = jnp.zeros_like(velocity)
        (velocity, _, _), values = lax.scan(iteration, (velocity, zero, zero), times)
    return velocity, values[-1]


def upsample_velocity(velocity, shape):
    factor = shape[0] / velocity.shape[1]
    return factor * jax.image.resize(velocity, (3,) + shape, "linear")


def jacobian_determinant(displacement):
    where = identity_grid(displacement.shape[1:]) + displacement
    rows = [jnp.gradient(where[i]) for i in range(3)]
    (a, b, c), (d, e, f), (g, h, i) = rows
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)


def warp_labels(labels, displacement):
    """Soft labels: each of the structures warped as a probability."""

    def one(label):
        return warp((labels == label).astype(jnp.float32), displacement)

    return lax.map(one, jnp.arange(1, LABELS + 1))


def dice(probabilities, labels):
    truth = labels[None] == jnp.arange(1, LABELS + 1)[:, None, None, None]
    both = jnp.sum(probabilities * truth, (1, 2, 3))
    return 2 * both / (probabilities.sum((1, 2, 3)) + truth.sum((1, 2, 3)) + 1e-6)


def normalise(x):
    low, high = jnp.min(x), jnp.percentile(x[::4, ::4, ::4], 99.5)
    return jnp.clip((x - low) / (high - low + 1e-6), 0.0, 1.0)


def register_pair(fixed, moving, fixed_labels, moving_labels):
    fixed, moving = normalise(fixed), normalise(moving)
    velocity, values = None, []
    for name, factor, iterations, rate in LEVELS:
        f, m = average_pool(fixed, factor), average_pool(moving, factor)
        velocity = (
            jnp.zeros((3,) + f.shape) if velocity is None else upsample_velocity(velocity, f.shape)
        )
        velocity, value = run_level(name, velocity, f, m, iterations, rate)
        values.append(value)
    displacement = exponential(velocity)
    jacobian = jacobian_determinant(displacement)
    overlap = dice(warp_labels(moving_labels, displacement), fixed_labels)
    return {
        "displacement": displacement,
        "warped": warp(moving, displacement),
        "dice": overlap,
        "folds": jnp.mean(jacobian <= 0),
        "jacobian_spread": jnp.std(jnp.log(jnp.maximum(jacobian, 1e-3))),
        "objective": jnp.stack(values),
    }


def make(mesh):
    split = NamedSharding(mesh, P("pairs"))

    @jax.jit
    def register(fixed, moving, fixed_labels, moving_labels):
        out = jax.vmap(register_pair, spmd_axis_name="pairs")(
            fixed, moving, fixed_labels, moving_labels
        )
        summary = {"mean_dice": out["dice"].mean(), "worst_pair": jnp.argmin(out["dice"].mean(1))}
        return out, summary

    volume = jax.ShapeDtypeStruct((PAIRS,) + SHAPE, jnp.float32, sharding=split)
    labels = jax.ShapeDtypeStruct((PAIRS,) + SHAPE, jnp.int32, sharding=split)
    return register, (volume, volume, labels, labels)
