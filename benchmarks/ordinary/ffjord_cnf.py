TRUTH = """
# ffjord_cnf - FFJORD / RNODE training step on MINIBOONE (43-d): adaptive dopri5 + continuous adjoint by custom_vjp; plain JAX, optax AdamW, single device, f32

1. Order: draw a batch of 1000 rows + Rademacher noise -> **forward ODE solve**: one evaluation of the dynamics, then **while loop over dopri5 steps (adaptive, unknown count, <= 500)** { 6 stages (unrolled), each: velocity net 43-860-860-43 (concat-squash, softplus) and its vjp with the noise (trace estimate), kinetic + Jacobian terms; error norm; accept/reject, new step size } -> Gaussian log density, NLL + regularisers -> **adjoint ODE solve (backward)**: one evaluation, then **while loop (adaptive, own count)** { 6 stages, each: dynamics and its vjp with respect to state and parameters: recompute z, adjoint a, parameter gradient (0.82 M vector is a part of the state); error norm, accept/reject } -> clip 10 -> AdamW.
2. Weights 0.82 M. One forward evaluation: net 1.6 GF + vjp to the input 1.6 GF = 3.3 GF; a step = 6 evaluations ~ 20 GF. One adjoint evaluation: forward of this 3.3 + backward ~6.5 GF = ~10 GF; a step ~ 59 GF. Per step adjoint : forward = 3 : 1 -> with about equal counts of steps adjoint ~75%, forward ~25%. In a net the 860 x 860 layer is 90%. AdamW ~0.
3. Loops: two while loops with unknown trip counts. The 6 stages are unrolled in each body (plus 1 evaluation before each loop: FSAL).
4. No mesh.
5. First picture: batch -> [dopri5 while: 6 x (net, vjp-trace)] -> NLL -> [adjoint dopri5 while: 6 x (dynamics + vjp)] -> AdamW.
6. Arrows: z(1) from the forward solve to the adjoint solve (nothing else is stored: no per-step activations); parameters constant in both loops; noise constant in both.
7. Should not stand out: tableau coefficients, RNG, row gather from 29556 x 43, ravel/unravel (slices, concatenates of 0.82 M), accept/reject selects.
8. Typically wrong: trip counts claimed as known; adjoint loop taken for "optimizer" or for a second forward solve; the vjp inside the forward loop (trace estimate) called the training backward; 6 stages drawn as 6 layers or 12 layers.
"""

"""FFJORD on MINIBOONE: continuous normalising flow, adaptive Dormand-Prince, O(1)-memory adjoint.
One training step. Written as one big function with closures, the way the notebook grew."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.flatten_util import ravel_pytree

DIM, HID, BS = 43, 860, 1000
RTOL = ATOL = 1e-5
T1 = 1.0

# Dormand-Prince tableau
TA = [
    [],
    [1 / 5],
    [3 / 40, 9 / 40],
    [44 / 45, -56 / 15, 32 / 9],
    [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729],
    [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656],
    [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84],
]
TC = [0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1, 1]
TE = np.array([71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40])


def make():
    def dopri5(f, y0, t0, t1):
        """integrate the pytree y from t0 to t1 (t1 > t0); returns y(t1), number of accepted + rejected steps"""
        size = sum(x.size for x in jax.tree.leaves(y0))

        def ratio(err, a, b):
            q = jax.tree.map(
                lambda e, u, v: jnp.square(
                    e / (ATOL + RTOL * jnp.maximum(jnp.abs(u), jnp.abs(v)))
                ).sum(),
                err,
                a,
                b,
            )
            return jnp.sqrt(sum(jax.tree.leaves(q)) / size)

        def attempt(c):
            t, y, k1, h, n = c
            h = jnp.minimum(h, t1 - t)
            ks = [k1]
            for i in range(1, 7):
                yi = jax.tree.map(
                    lambda u, *k: u + h * sum(a * kk for a, kk in zip(TA[i], k)), y, *ks
                )
                ks.append(f(t + TC[i] * h, yi))
            err = jax.tree.map(lambda *k: h * sum(e * kk for e, kk in zip(TE, k)), *ks)
            r = ratio(err, y, yi)
            ok = r <= 1.0
            h_new = h * jnp.clip(0.9 * (r + 1e-10) ** -0.2, 0.2, 10.0)
            pick = lambda a, b: jax.tree.map(lambda u, v: jnp.where(ok, u, v), a, b)
            return jnp.where(ok, t + h, t), pick(yi, y), pick(ks[-1], k1), h_new, n + 1

        k0 = f(t0, y0)
        t, y, _, _, n = lax.while_loop(
            lambda c: (c[0] < t1 - 1e-6) & (c[4] < 500), attempt, (t0, y0, k0, jnp.float32(0.05), 0)
        )
        return y, n

    def concat_squash(p, t, x):
        return (x @ p["w"] + p["b"]) * jax.nn.sigmoid(t * p["gw"] + p["gb"]) + t * p["hw"]

    def velocity(p, t, x):
        for l in p[:-1]:
            x = jax.nn.softplus(concat_squash(l, t, x))
        return concat_squash(p[-1], t, x)

    def dynamics(p, eps, t, state):
        """(dz, dlogp, dE, dJ): with kinetic and Jacobian regularisation of RNODE"""
        z = state[0]
        dz, vjp = jax.vjp(lambda x: velocity(p, t, x), z)
        (ej,) = vjp(eps)
        div = (ej * eps).sum(-1)
        return dz, -div, jnp.square(dz).sum(-1), jnp.square(ej).sum(-1)

    @jax.custom_vjp
    def odeint(p, eps, y0):
        return dopri5(lambda t, y: dynamics(p, eps, t, y), y0, jnp.float32(0), jnp.float32(T1))

    def odeint_fwd(p, eps, y0):
        y1, n = odeint(p, eps, y0)
        return (y1, n), (p, eps, y1)

    def odeint_bwd(res, cot):
        p, eps, y1 = res
        a1, _ = cot
        flat, unravel = ravel_pytree(p)

        def reverse(s, aug):
            y, a, _ = aug
            t = T1 - s
            dy, vjp = jax.vjp(lambda y, fp: dynamics(unravel(fp), eps, t, y), y, flat)
            gy, gp = vjp(a)
            return jax.tree.map(jnp.negative, dy), gy, gp

        (_, a0, gp), _ = dopri5(
            reverse, (y1, a1, jnp.zeros_like(flat)), jnp.float32(0), jnp.float32(T1)
        )
        return unravel(gp), None, a0

    odeint.defvjp(odeint_fwd, odeint_bwd)

    def nll(p, x, eps):
        zero = jnp.zeros(x.shape[0])
        (z, dlogp, kin, jac), nfe = odeint(p, eps, (x, zero, zero, zero))
        logp = -0.5 * jnp.square(z).sum(-1) - 0.5 * DIM * np.log(2 * np.pi)
        bits = -(logp - dlogp).mean()
        return bits + 0.01 * kin.mean() + 0.01 * jac.mean(), (bits, nfe)

    tx = optax.chain(optax.clip_by_global_norm(10.0), optax.adamw(1e-3, weight_decay=1e-6))

    def step(p, opt, data, key):
        k1, k2 = jax.random.split(key)
        x = data[jax.random.randint(k1, (BS,), 0, data.shape[0])]
        eps = jax.random.rademacher(k2, (BS, DIM), dtype=jnp.float32)
        (loss, (bits, nfe)), g = jax.value_and_grad(nll, has_aux=True)(p, x, eps)
        u, opt = tx.update(g, opt, p)
        return optax.apply_updates(p, u), opt, {"loss": loss, "bits": bits, "steps": nfe}

    S = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32)
    layer = lambda i, o: {"w": S(i, o), "b": S(o), "gw": S(o), "gb": S(o), "hw": S(o)}
    p = [layer(DIM, HID), layer(HID, HID), layer(HID, DIM)]
    return jax.jit(step, donate_argnums=(0, 1)), (
        p,
        jax.eval_shape(tx.init, p),
        S(29556, DIM),
        jax.ShapeDtypeStruct((2,), jnp.uint32),
    )
