"""Programs of other trades, stated by somebody who knew nothing of the grouping: plain JAX.

Simulations, filters, fields and what learns without labels. ``NAME`` names no scope,
``NAME_scoped`` does.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from .common import ids, s
from .newcomers import F32, Made, Part, both, heads, whole
from .others import layer_norm, trained


def forces(part: Part) -> Any:
    """An equivariant network: four interactions give an energy, its gradient the forces."""

    def energy(params: Any, at: jax.Array, kind: Any, a: Any, b: Any) -> jax.Array:
        x = params["embed"][kind]
        v = jnp.zeros((*x.shape, 3))
        way = at[b] - at[a]
        far = jnp.sqrt(jnp.square(way).sum(-1, keepdims=True) + 1e-8)
        waves = jnp.sin(far * jnp.arange(1, 21) * jnp.pi / 5) / far
        fade = jnp.where(far < 5, 0.5 * (jnp.cos(jnp.pi * far / 5) + 1), 0)
        for k, p in enumerate(params["interactions"]):
            with part(f"interaction_{k}"):
                with part("message"):
                    sent = (jax.nn.silu(x @ p["m1"]) @ p["m2"])[b] * (waves @ p["filter"]) * fade
                    ds, dv, dr = jnp.split(sent, 3, -1)
                    turn = dr[..., None] * (way / far)[:, None] + dv[..., None] * v[b]
                    x = x + jax.ops.segment_sum(ds, a, x.shape[0])
                    v = v + jax.ops.segment_sum(turn, a, x.shape[0])
                with part("update"):
                    u, w = (jnp.einsum("ncd,ce->ned", v, p[n]) for n in ("u", "w"))
                    long = jnp.sqrt(jnp.square(w).sum(-1) + 1e-8)
                    out = jax.nn.silu(jnp.concatenate([x, long], -1) @ p["u1"]) @ p["u2"]
                    av, ax, aa = jnp.split(out, 3, -1)
                    v = v + av[..., None] * u
                    x = x + ax + aa * (u * w).sum(-1)
        with part("readout"):
            return (jax.nn.silu(x @ params["r1"]) @ params["r2"]).sum()

    def loss(params: Any, at: Any, kind: Any, a: Any, b: Any, e: Any, f: Any) -> jax.Array:
        got, slope = jax.value_and_grad(energy, 1)(params, at, kind, a, b)
        return jnp.square(got - e) + 100 * jnp.square(slope + f).mean()

    one = {"m1": F32(64, 64), "m2": F32(64, 192), "filter": F32(20, 192), "u": F32(64, 64)}
    one |= {"w": F32(64, 64), "u1": F32(128, 64), "u2": F32(64, 192)}
    params = {"embed": F32(20, 64), "interactions": [one] * 4, "r1": F32(64, 64), "r2": F32(64, 1)}
    batch = F32(96, 3), ids(96), ids(600), ids(600), F32(), F32(96, 3)
    return trained(loss, params, *batch, tx=optax.amsgrad(1e-3))


def crops(part: Part) -> Any:
    """DINO: a student of five layers sees big and small crops, its teacher the big ones alone."""

    def layer(p: Any, x: jax.Array) -> jax.Array:
        h = layer_norm(p["n1"], x)
        q, k, v = (heads(h @ p[n], 4) for n in "qkv")
        x = x + whole(jax.nn.softmax(q @ k.swapaxes(-1, -2) / 6, -1) @ v) @ p["o"]
        return x + jax.nn.gelu(layer_norm(p["n2"], x) @ p["up"]) @ p["down"]

    def network(params: Any, x: jax.Array) -> jax.Array:
        x = x @ params["patch"]
        for k, p in enumerate(params["layers"]):
            with part(f"layer_{k}"):
                x = layer(p, x)
        x = jax.nn.gelu(x.mean(1) @ params["head1"]) @ params["head2"]
        return x / jnp.linalg.norm(x, axis=-1, keepdims=True) @ params["last"]

    tx = optax.lars(0.3)

    def step(student: Any, teacher: Any, state: Any, center: Any, big: Any, small: Any) -> Any:
        with part("teacher"):
            wanted = network(teacher, big)
        soft = jax.nn.softmax((wanted - center) / 0.04)

        def loss(student: Any) -> jax.Array:
            with part("student"):
                seen = network(student, big), network(student, small)
            return -sum((soft * jax.nn.log_softmax(s / 0.1)).sum(-1).mean() for s in seen)

        value, grads = jax.value_and_grad(loss)(student)
        updates, state = tx.update(grads, state, student)
        student = optax.apply_updates(student, updates)
        teacher = optax.incremental_update(student, teacher, 0.004)
        return student, teacher, state, 0.9 * center + 0.1 * wanted.mean(0), value

    norm = {"g": F32(144), "b": F32(144)}
    one = {n: F32(144, 144) for n in "qkvo"} | {"up": F32(144, 576), "down": F32(576, 144)}
    one |= {"n1": norm, "n2": norm}
    params = {"patch": F32(192, 144), "layers": [one] * 5, "head1": F32(144, 256)}
    params |= {"head2": F32(256, 64), "last": F32(64, 512)}
    state = jax.eval_shape(tx.init, params)
    return step, (params, params, state, F32(512), F32(4, 64, 192), F32(4, 16, 192))


def informed(part: Part) -> Any:
    """A field that obeys Burgers' equation: six layers, differentiated twice by place."""

    def field(params: Any, at: jax.Array) -> jax.Array:
        h = jnp.tanh(at @ params["in"])
        for k, p in enumerate(params["layers"]):
            with part(f"layer_{k}"):
                h = jnp.tanh(h @ p["w"] + p["b"])
        return (h @ params["out"])[0]

    def loss(params: Any, at: jax.Array, edge: jax.Array, value: jax.Array) -> jax.Array:
        def residual(at: jax.Array) -> jax.Array:
            u = field(params, at)
            slope = jax.grad(field, 1)(params, at)
            bend = jax.hessian(field, 1)(params, at)
            return slope[1] + u * slope[0] - 0.01 / jnp.pi * bend[0, 0]

        with part("inside"):
            inside = jnp.square(jax.vmap(residual)(at)).mean()
        with part("edge"):
            here = jnp.square(jax.vmap(field, (None, 0))(params, edge) - value).mean()
        return inside + here

    params = {"in": F32(2, 96), "out": F32(96, 1)}
    params["layers"] = [{"w": F32(96, 96), "b": F32(96)}] * 6
    return trained(loss, params, F32(512, 2), F32(64, 2), F32(64), tx=optax.adam(1e-3))


def fluid(part: Part) -> Any:
    """Forty steps of a fluid in a box; the pressure of each takes twenty of Jacobi's."""

    def moved(a: jax.Array, by: tuple[int, int]) -> jax.Array:
        return jnp.roll(a, by, (0, 1))

    def carried(a: jax.Array, u: jax.Array, v: jax.Array) -> jax.Array:
        y, x = jnp.meshgrid(jnp.arange(128.0), jnp.arange(128.0), indexing="ij")
        at = jnp.stack([y - v, x - u])
        return jax.scipy.ndimage.map_coordinates(a, at, order=1, mode="wrap")

    def step(carry: Any, _: Any) -> Any:
        u, v, smoke = carry
        with part("advect"):
            u, v, smoke = carried(u, u, v), carried(v, u, v), carried(smoke, u, v)
        with part("force"):
            v = v + 0.1 * smoke
        with part("pressure"):
            out = (moved(u, (0, -1)) - moved(u, (0, 1)) + moved(v, (-1, 0)) - moved(v, (1, 0))) / 2

            def jacobi(_: Any, p: jax.Array) -> jax.Array:
                around = sum(moved(p, d) for d in ((0, 1), (0, -1), (1, 0), (-1, 0)))
                return (around - out) / 4

            p = jax.lax.fori_loop(0, 20, jacobi, jnp.zeros_like(out))
        with part("project"):
            u = u - (moved(p, (0, -1)) - moved(p, (0, 1))) / 2
            v = v - (moved(p, (-1, 0)) - moved(p, (1, 0))) / 2
        return (u, v, smoke), jnp.square(u).sum() + jnp.square(v).sum()

    def run(u: jax.Array, v: jax.Array, smoke: jax.Array) -> Any:
        return jax.lax.scan(step, (u, v, smoke), None, length=40)

    return run, (F32(128, 128),) * 3


def molecules(part: Part) -> Any:
    """Fifty steps of 256 atoms by velocity Verlet; who is near whom is asked every tenth."""
    side = 8.0

    def apart(at: jax.Array, to: jax.Array) -> jax.Array:
        way = at - to
        return way - side * jnp.round(way / side)

    def neighbours(at: jax.Array) -> jax.Array:
        far = jnp.square(apart(at[:, None], at[None])).sum(-1) + 1e6 * jnp.eye(len(at))
        return jax.lax.top_k(-far, 24)[1]

    def energy(at: jax.Array, near: jax.Array) -> jax.Array:
        far = jnp.square(apart(at[:, None], at[near])).sum(-1)
        six = 1 / far**3
        return jnp.where(far < 6.25, 2 * (six**2 - six), 0).sum()

    def run(at: jax.Array, speed: jax.Array) -> Any:
        def turn(carry: Any, k: Any) -> Any:
            at, speed, force, near = carry
            with part("neighbours"):
                near = jax.lax.cond(k % 10 == 0, neighbours, lambda _: near, at)
            with part("drift"):
                speed = speed + 0.0025 * force
                at = (at + 0.005 * speed) % side
            with part("force"):
                value, slope = jax.value_and_grad(energy)(at, near)
            with part("kick"):
                speed = speed - 0.0025 * slope
            return (at, speed, -slope, near), value + 0.5 * jnp.square(speed).sum()

        near = neighbours(at)
        start = at, speed, -jax.grad(energy)(at, near), near
        (at, speed, _, _), total = jax.lax.scan(turn, start, jnp.arange(50))
        return at, speed, total

    return run, (F32(256, 3), F32(256, 3))


def process(part: Part) -> Any:
    """A Gaussian process: thirty steps of Adam on what its kernel is like, then it predicts."""
    tx = optax.adam(1e-2)

    def kernel(p: Any, a: jax.Array, b: jax.Array) -> jax.Array:
        a, b = a / jax.nn.softplus(p["scale"]), b / jax.nn.softplus(p["scale"])
        far = jnp.square(a).sum(-1)[:, None] + jnp.square(b).sum(-1) - 2 * a @ b.T
        return jax.nn.softplus(p["height"]) * jnp.exp(-0.5 * jnp.maximum(far, 0))

    def factor(p: Any, x: jax.Array) -> jax.Array:
        noise = jax.nn.softplus(p["noise"]) + 1e-4
        return jnp.linalg.cholesky(kernel(p, x, x) + noise * jnp.eye(len(x)))

    def loss(p: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        low = factor(p, x)
        z = jax.scipy.linalg.solve_triangular(low, y, lower=True)
        return 0.5 * jnp.square(z).sum() + jnp.log(jnp.diag(low)).sum()

    def run(p: Any, state: Any, x: jax.Array, y: jax.Array, new: jax.Array) -> Any:
        def turn(carry: Any, _: Any) -> Any:
            p, state = carry
            value, grads = jax.value_and_grad(loss)(p, x, y)
            updates, state = tx.update(grads, state)
            return (optax.apply_updates(p, updates), state), value

        with part("fit"):
            (p, _), values = jax.lax.scan(turn, (p, state), None, length=30)
        with part("predict"):
            low, cross = factor(p, x), kernel(p, x, new)
            mean = cross.T @ jax.scipy.linalg.cho_solve((low, True), y)
            v = jax.scipy.linalg.solve_triangular(low, cross, lower=True)
            return mean, jax.nn.softplus(p["height"]) - jnp.square(v).sum(0), values

    p = {"scale": F32(5), "height": F32(), "noise": F32()}
    return run, (p, jax.eval_shape(tx.init, p), F32(192, 5), F32(192), F32(64, 5))


def filtered(part: Part) -> Any:
    """Kalman's filter over 32 times and back over them, and the gradient of what it explains."""

    def loss(model: Any, seen: jax.Array) -> Any:
        def forth(carry: Any, y: jax.Array) -> Any:
            m, cov, total = carry
            with part("predict"):
                m0 = model["a"] @ m
                p0 = model["a"] @ cov @ model["a"].T + jnp.diag(jnp.exp(model["q"]))
            with part("update"):
                left = y - model["h"] @ m0
                s_ = model["h"] @ p0 @ model["h"].T + jnp.diag(jnp.exp(model["r"]))
                gain = jnp.linalg.solve(s_, model["h"] @ p0).T
                m, cov = m0 + gain @ left, p0 - gain @ model["h"] @ p0
                cost = left @ jnp.linalg.solve(s_, left) + jnp.linalg.slogdet(s_)[1]
            return (m, cov, total + 0.5 * cost), (m0, p0, m, cov)

        (_, _, total), each = jax.lax.scan(forth, (jnp.zeros(6), jnp.eye(6), 0.0), seen)
        return total, each

    def back(model: Any, each: Any) -> jax.Array:
        def turn(carry: Any, at: Any) -> Any:
            m1, c1 = carry
            m0, p0, m, cov = at
            with part("smooth"):
                g = jnp.linalg.solve(p0, model["a"] @ cov).T
                new = m + g @ (m1 - m0), cov + g @ (c1 - p0) @ g.T
            return new, new[0]

        start = each[2][-1], each[3][-1]
        return jax.lax.scan(turn, start, each, reverse=True)[1]

    def step(model: Any, seen: jax.Array) -> Any:
        (value, each), grads = jax.value_and_grad(loss, has_aux=True)(model, seen)
        new = jax.tree.map(lambda p, g: p - 1e-3 * g, model, grads)
        return new, back(model, each), value

    model = {"a": F32(6, 6), "h": F32(3, 6), "q": F32(6), "r": F32(3)}
    return step, (model, F32(32, 3))


def narrow_integers(part: Part) -> Any:
    """Six layers whose weights are eight bits wide, for answers alone."""

    def product(x: jax.Array, w: Any) -> jax.Array:
        top = jnp.abs(x).max(-1, keepdims=True).astype(jnp.float32) / 127 + 1e-6
        small = jnp.round(x.astype(jnp.float32) / top).astype(jnp.int8)
        out = jax.lax.dot_general(
            small, w["w"], (((x.ndim - 1,), (0,)), ((), ())), preferred_element_type=jnp.int32
        )
        return (out.astype(jnp.float32) * top * w["scale"]).astype(x.dtype)

    def run(params: Any, tokens: jax.Array) -> jax.Array:
        x = params["embed"][tokens]
        for k, p in enumerate(params["layers"]):
            with part(f"layer_{k}"):
                with part("attention"):
                    h = layer_norm(p["n1"], x)
                    q, k_, v = (heads(product(h, p[n]), 4) for n in "qkv")
                    a = jax.nn.softmax((q @ k_.swapaxes(-1, -2)).astype(jnp.float32) / 8, -1)
                    x = x + product(whole(a.astype(x.dtype) @ v), p["o"])
                with part("mlp"):
                    h = jax.nn.gelu(product(layer_norm(p["n2"], x), p["up"]))
                    x = x + product(h, p["down"])
        with part("pool"):
            x = x.mean(1).astype(jnp.float32)
            return x / jnp.linalg.norm(x, axis=-1, keepdims=True)

    def weight(a: int, b: int) -> Any:
        return {"w": s(a, b, dtype=jnp.int8), "scale": F32(b)}

    norm = {"g": s(256), "b": s(256)}
    one: Any = {n: weight(256, 256) for n in "qkvo"} | {"n1": norm, "n2": norm}
    one |= {"up": weight(256, 1024), "down": weight(1024, 256)}
    return run, ({"embed": s(2048, 256), "layers": [one] * 6}, ids(8, 64))


def long_ways(part: Part) -> Any:
    """U-ViT: four layers down, one in the middle, four up that see again what went down."""

    def layer(p: Any, x: jax.Array) -> jax.Array:
        h = layer_norm(p["n1"], x)
        q, k, v = (heads(h @ p[n], 4) for n in "qkv")
        x = x + whole(jax.nn.softmax(q @ k.swapaxes(-1, -2) / 5, -1) @ v) @ p["o"]
        return x + jax.nn.gelu(layer_norm(p["n2"], x) @ p["up"]) @ p["down"]

    def loss(params: Any, image: jax.Array, noise: jax.Array, t: jax.Array) -> jax.Array:
        time = (jnp.sin(t[:, None] * jnp.arange(1, 33)) @ params["time"])[:, None]
        mixed = jnp.cos(t)[:, None, None] * image + jnp.sin(t)[:, None, None] * noise
        x, kept = jnp.concatenate([time, mixed @ params["patch"]], 1), []
        for k, p in enumerate(params["down"]):
            with part(f"down_{k}"):
                x = layer(p, x)
                kept.append(x)
        with part("middle"):
            x = layer(params["middle"], x)
        for k, p in enumerate(params["up"]):
            with part(f"up_{k}"):
                x = layer(p, jnp.concatenate([x, kept.pop()], -1) @ p["skip"])
        return jnp.square(x[:, 1:] @ params["out"] - noise).mean()

    norm = {"g": F32(128), "b": F32(128)}
    one = {n: F32(128, 128) for n in "qkvo"} | {"up": F32(128, 512), "down": F32(512, 128)}
    one |= {"n1": norm, "n2": norm}
    params = {"time": F32(32, 128), "patch": F32(48, 128), "out": F32(128, 48), "middle": one}
    params |= {"down": [one] * 4, "up": [one | {"skip": F32(256, 128)}] * 4}
    tx = optax.MultiSteps(optax.adamw(2e-4), every_k_schedule=4)
    return trained(loss, params, F32(4, 64, 48), F32(4, 64, 48), F32(4), tx=tx)


# name → (make, layers); of loops their trips; a tuple holds what a person might as well draw
MADE: Made = {
    "forces": (forces, (4, 4)),
    "crops": (crops, (5, 5, 5)),
    "informed": (informed, (6, 6)),
    "fluid": (fluid, (40, 20)),
    "molecules": (molecules, (50,)),
    "process": (process, (30,)),
    "filtered": (filtered, (32, 32, 32)),
    "narrow_integers": (narrow_integers, (6,)),
    "long_ways": (long_ways, (4, 4, 4, 4)),
}
PROGRAMS = both(MADE)
