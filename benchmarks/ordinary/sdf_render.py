TRUTH = """
- Sphere tracing of a signed distance scene: vmap over 262,144 rays (512x512) of a while_loop (until hit, miss, or 128 steps), then a `lax.switch` on the material (4 shaders, of which one is a procedural noise of 6 octaves, one traces a shadow ray by a second while_loop), image, mean-squared error is not taken: forward only. One device.
- vmap of while_loop: one loop for all rays that runs until the last ray is done (up to 128): rays that are done are computed on and thrown away by a select. Trips unknown: between 1 and 128 (bounded only by the person's counter).
- vmap of `lax.switch` with a batched index: all four shaders run for every ray, and a select takes one: the shadow ray's loop runs for all rays, also those of other materials. Remedy: sort rays by material / compact, or accept; for the loop: no simple remedy (wavefront compaction).
- Memory: arrays of 262,144 x (3 + ...) f32 are small (3 MiB a field). Peak maybe 30-60 MiB. Not a problem.
- Elementwise only, no matmul; compute in VPU.
- No donation needed, no collectives.
"""

"""Sphere tracing with materials."""
import jax
import jax.numpy as jnp

SIDE, STEPS, FAR, NEAR = 512, 128, 40.0, 1e-3


def scene(p, centers, radii, angle):
    c, s = jnp.cos(angle), jnp.sin(angle)
    q = jnp.array([c * p[0] - s * p[2], p[1], s * p[0] + c * p[2]])
    balls = jnp.sqrt(jnp.sum((q - centers) ** 2, -1)) - radii
    torus = jnp.hypot(jnp.hypot(p[0], p[2]) - 2.0, p[1]) - 0.3
    plane = p[1] + 1.5
    distances = jnp.concatenate([balls, jnp.array([torus, plane])])
    return jnp.min(distances), jnp.minimum(jnp.argmin(distances), 3)


def march(origin, direction, world, limit):
    def going(state):
        t, distance, i = state
        return (distance > NEAR) & (t < limit) & (i < STEPS)

    def body(state):
        t, _, i = state
        distance, _ = scene(origin + t * direction, *world)
        return t + distance, distance, i + 1

    return jax.lax.while_loop(going, body, (0.05, 1.0, 0))


def normal_at(p, world):
    n = jax.grad(lambda p: scene(p, *world)[0])(p)
    return n / (jnp.linalg.norm(n) + 1e-6)


def matte(p, n, sun, world):
    t, _, _ = march(p + 0.02 * n, sun, world, 10.0)
    return jnp.where(t >= 10.0, 1.0, 0.3) * jnp.maximum(n @ sun, 0.0) * jnp.array([0.9, 0.5, 0.3])


def glossy(p, n, sun, world):
    half = sun + jnp.array([0.0, 0.0, -1.0])
    half = half / jnp.linalg.norm(half)
    return jnp.maximum(n @ half, 0.0) ** 32 + 0.2 * jnp.array([0.2, 0.4, 0.9])


def marble(p, n, sun, world):
    value, scale = 0.0, 1.0
    for octave in range(6):
        q = p * 2.0**octave
        value = value + scale * jnp.sin(q[0] + 2 * jnp.sin(q[1] + 3 * jnp.sin(q[2])))
        scale = scale * 0.5
    return jnp.maximum(n @ sun, 0.1) * (0.5 + 0.25 * value) * jnp.ones(3)


def checker(p, n, sun, world):
    odd = (jnp.floor(p[0]) + jnp.floor(p[2])) % 2
    return jnp.maximum(n @ sun, 0.0) * jnp.where(odd == 0, 0.9, 0.1) * jnp.ones(3)


def shade(direction, eye, sun, world):
    t, distance, _ = march(eye, direction, world, FAR)
    p = eye + t * direction
    _, material = scene(p, *world)
    n = normal_at(p, world)
    color = jax.lax.switch(material, [matte, glossy, marble, checker], p, n, sun, world)
    sky = jnp.array([0.4, 0.6, 0.9]) * (0.5 + 0.5 * direction[1])
    return jnp.where(distance <= NEAR, color, sky)


def render(eye, sun, centers, radii, angle):
    axis = jnp.linspace(-1, 1, SIDE)
    x, y = jnp.meshgrid(axis, -axis)
    rays = jnp.stack([x, y, 1.5 * jnp.ones_like(x)], -1).reshape(-1, 3)
    rays = rays / jnp.linalg.norm(rays, axis=-1, keepdims=True)
    world = (centers, radii, angle)
    image = jax.vmap(shade, (0, None, None, None))(rays, eye, sun, world)
    return jnp.clip(image.reshape(SIDE, SIDE, 3), 0, 1) ** (1 / 2.2)


def make():
    S, f32 = jax.ShapeDtypeStruct, jnp.float32
    args = (S((3,), f32), S((3,), f32), S((12, 3), f32), S((12,), f32), S((), f32))
    return jax.jit(render), args
