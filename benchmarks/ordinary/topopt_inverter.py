TRUTH = """
# topopt_inverter - topology optimisation of a compliant force inverter, 512 x 256 elements, adjoint solve; one device

1. Order: **design iterations: loop x20** { density filter (13 x 13 cone convolution) -> Heaviside projection -> SIMP stiffness -> **forward solve: CG loop x300** for 2 load cases (Jacobi preconditioner) -> objective: output displacement + strain energy -> **adjoint solve: CG loop x300** (same operator) -> sensitivities (element-wise), back through SIMP, projection and filter -> Adam-like normalised step on the design -> **volume bisection: loop x40** -> new design }.
2. Each CG iteration is one matrix-free **stiffness product**: gather 8 displacements per element, 8 x 8 element matrix, scatter-add back; plus dot products and axpys.
3. Work ~0.81 TF of matrix products (small 8 x 8 ones), 99% in the two CG loops, half each; filter and its gradient ~0.2%; bisection and update are element-wise.
4. First picture: x20 { filter/projection -> CG x300 (forward) -> objective -> CG x300 (adjoint) -> sensitivity -> update -> bisection x40 }.
5. Arrows: physical density -> both solves; u of the forward solve -> adjoint right-hand side and sensitivity; adjoint lambda -> sensitivity; design carried around x20; u is carried as a warm start of the forward solve.
6. Should not stand out: index arithmetic of the gather/scatter, boundary-condition masks, diagonal for the preconditioner.
7. Misleading: calling the second CG loop "backward of the first loop" (it is a linear solve with the transposed operator, no reversed loop); the x20, x300 and x40 loops are nested as told: 300 and 40 inside 20.
"""

"""Compliant mechanism design, SIMP, matrix-free Q4 elements, plane stress."""
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

NX, NY = 512, 256
CASES = 2
CG_ITERATIONS = 300
DESIGN_ITERATIONS = 20
BISECTIONS = 40
VOLUME = 0.3
PENAL, E_MIN, NU = 3.0, 1e-6, 0.3
RADIUS = 6
K_IN, K_OUT = 0.1, 0.1


class DesignState(NamedTuple):
    x: jax.Array  # [NX, NY]
    m: jax.Array
    v: jax.Array
    u: jax.Array  # last displacements, warm start
    step: jax.Array


def element_stiffness():
    k = np.array(
        [
            1 / 2 - NU / 6,
            1 / 8 + NU / 8,
            -1 / 4 - NU / 12,
            -1 / 8 + 3 * NU / 8,
            -1 / 4 + NU / 12,
            -1 / 8 - NU / 8,
            NU / 6,
            1 / 8 - 3 * NU / 8,
        ]
    )
    order = [
        [0, 1, 2, 3, 4, 5, 6, 7],
        [1, 0, 7, 6, 5, 4, 3, 2],
        [2, 7, 0, 5, 6, 3, 4, 1],
        [3, 6, 5, 0, 7, 2, 1, 4],
        [4, 5, 6, 7, 0, 1, 2, 3],
        [5, 4, 3, 2, 1, 0, 7, 6],
        [6, 3, 4, 1, 2, 7, 0, 5],
        [7, 2, 1, 4, 3, 6, 5, 0],
    ]
    return (k[np.array(order)] / (1 - NU**2)).astype(np.float32)


def element_dofs():
    i, j = np.meshgrid(np.arange(NX), np.arange(NY), indexing="ij")
    n1 = i * (NY + 1) + j
    n2 = (i + 1) * (NY + 1) + j
    d = np.stack(
        [2 * n1 + 2, 2 * n1 + 3, 2 * n2 + 2, 2 * n2 + 3, 2 * n2, 2 * n2 + 1, 2 * n1, 2 * n1 + 1], -1
    )
    return d.reshape(-1, 8).astype(np.int32)


KE = element_stiffness()
NDOF = 2 * (NX + 1) * (NY + 1)
DIN, DOUT = 2 * NY, 2 * NX * (NY + 1) + 2 * NY


def free_dofs():
    free = np.ones(NDOF, np.float32)
    free[:16] = 0  # bottom left corner clamped
    free[2 * np.arange(NX + 1) * (NY + 1) + 2 * NY + 1] = 0  # symmetry
    return free


def springs():
    s = np.zeros(NDOF, np.float32)
    s[DIN], s[DOUT] = K_IN, K_OUT
    return s


def loads():
    f = np.zeros((CASES, NDOF), np.float32)
    f[0, DIN] = 1.0
    f[1, DIN], f[1, DIN + 2] = 0.7, 0.3
    return f


def cone_kernel():
    r = np.arange(-RADIUS, RADIUS + 1)
    w = np.maximum(0, RADIUS + 0.5 - np.hypot(r[:, None], r[None])).astype(np.float32)
    return w / w.sum()


def density_filter(x):
    padded = jnp.pad(x, RADIUS, mode="edge")[None, None]
    return lax.conv_general_dilated(padded, cone_kernel()[None, None], (1, 1), "VALID")[0, 0]


def heaviside(x, beta=4.0, eta=0.5):
    return (jnp.tanh(beta * eta) + jnp.tanh(beta * (x - eta))) / (
        jnp.tanh(beta * eta) + jnp.tanh(beta * (1 - eta))
    )


def young(x):
    rho = heaviside(density_filter(x))
    return E_MIN + rho**PENAL * (1 - E_MIN), rho


def stiffness_product(modulus, dofs, free, u):
    """K(modulus) u, element by element"""
    ue = (u * free)[:, dofs]  # [cases, elements, 8]
    fe = modulus.reshape(-1)[None, :, None] * (ue @ KE)
    out = jnp.zeros_like(u).at[:, dofs].add(fe)
    return (out + springs() * u) * free + (1 - free) * u


def diagonal(modulus, dofs, free):
    d = jnp.zeros(NDOF).at[dofs].add(modulus.reshape(-1)[:, None] * np.diag(KE)[None])
    return jnp.where(free > 0, d + springs(), 1.0)


def pcg(matvec, b, x0, diag):
    dot = lambda a, c: jnp.sum(a * c, -1, keepdims=True)
    r = b - matvec(x0)
    z = r / diag

    def iteration(_, s):
        x, r, p, rz = s
        ap = matvec(p)
        alpha = rz / (dot(p, ap) + 1e-20)
        x, r = x + alpha * p, r - alpha * ap
        z = r / diag
        new = dot(r, z)
        return x, r, z + new / (rz + 1e-20) * p, new

    return lax.fori_loop(0, CG_ITERATIONS, iteration, (x0, r, z, dot(r, z)))[0]


def solve_displacements(modulus, dofs, free, f, guess):
    diag = lax.stop_gradient(diagonal(modulus, dofs, free))
    matvec = partial(stiffness_product, modulus, dofs, free)
    return lax.custom_linear_solve(
        matvec,
        f * free,
        solve=lambda mv, b: pcg(mv, b, guess, diag),
        transpose_solve=lambda mv, b: pcg(mv, b, jnp.zeros_like(b), diag),
        symmetric=True,
    )


def objective(x, dofs, free, f, guess):
    modulus, rho = young(x)
    u = solve_displacements(modulus, dofs, free, f, lax.stop_gradient(guess))
    output = u[:, DOUT].mean()
    energy = 0.5 * jnp.sum(u * f)
    return output + 0.01 * energy, (u, rho.mean())


def match_volume(x):
    """shift the design so that its volume is VOLUME"""

    def halve(_, lo_hi):
        lo, hi = lo_hi
        mid = 0.5 * (lo + hi)
        too_much = jnp.clip(x + mid, 0, 1).mean() > VOLUME
        return jnp.where(too_much, lo, mid), jnp.where(too_much, mid, hi)

    lo, hi = lax.fori_loop(0, BISECTIONS, halve, (jnp.float32(-1), jnp.float32(1)))
    return jnp.clip(x + 0.5 * (lo + hi), 0, 1)


def design_step(dofs, free, f, s, _):
    (value, (u, volume)), g = jax.value_and_grad(objective, has_aux=True)(s.x, dofs, free, f, s.u)
    g = g / (jnp.abs(g).max() + 1e-12)
    t = s.step + 1
    m = 0.8 * s.m + 0.2 * g
    v = 0.95 * s.v + 0.05 * g * g
    x = s.x - jnp.clip(0.05 * (m / (1 - 0.8**t)) / (jnp.sqrt(v / (1 - 0.95**t)) + 1e-6), -0.1, 0.1)
    return DesignState(match_volume(x), m, v, u, t), (value, volume)


def optimise(state, dofs, free, f):
    return lax.scan(partial(design_step, dofs, free, f), state, None, length=DESIGN_ITERATIONS)


def make():
    S = lambda s, d=jnp.float32: jax.ShapeDtypeStruct(s, d)
    grid = S((NX, NY))
    state = DesignState(grid, grid, grid, S((CASES, NDOF)), S(()))
    return jax.jit(optimise, donate_argnums=0), (
        state,
        S(element_dofs().shape, jnp.int32),
        S((NDOF,)),
        S((CASES, NDOF)),
    )
