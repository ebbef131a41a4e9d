TRUTH = """
# smoke_control — differentiable smoke simulation with CG solves; 10 Adam iterations on the initial stream function; single device

optimise:
**Adam iterations: loop x10** {
 1. velocity_from_streamfunction (roll differences)
 2. **simulate: loop x24 (time steps, forward)** { advect velocity (2x map_coordinates) , buoyancy, **diffuse {CG: while, <=20 turns, 2 components at once}**, **project { divergence, CG: while, <=80 turns, subtract gradient }**, advect smoke }
 3. objective: blur smoke (and target: loop-invariant, may be hoisted), mismatch, energy
 4. **simulate backward: reverse loop x24** { recompute step (checkpoint): advect, **CG diffuse**, **CG project**, ... ; then gradient: advect smoke transposed (scatter-add), **project transposed: CG again (<=80)**, **diffuse transposed: CG again (<=20)**, buoyancy, advect transposed (scatter-add) }
 5. gradient to psi, **adam**
}
Loops: 10 > 24 > {CG 20, CG 80} forward ; 10 > 24 > {CG 20, CG 80 recomputed, CG 80, CG 20 transposed} backward. In the recomputed half the projection's CG is needed for smoke's advection gradient (its u) - yes needed.  3 levels of loops. 6 while loops of CG with dynamic trip count, 4 or more of which sit in backward.
Collectives: none.
Heaviest: project's CG (24 x 80 x 3 solves per Adam iteration): pressure solve, split among forward, recomputation, and transposed solve. Each CG turn is a 96x96 laplacian (5 point), two dot products, axpys.
Names: "Adam iterations x10", "time steps x24", "advect", "diffuse (CG)", "project (pressure CG)", "adjoint time steps x24", "adjoint pressure solve", "adam".
"""
"""Find the initial velocity that drives smoke into a target picture.

Differentiable 2-D incompressible flow on a 96x96 MAC-like periodic grid:
   semi-Lagrangian advection -> buoyancy -> implicit viscosity (CG) -> pressure projection (CG)
The gradient goes through the linear solves with jax.scipy's implicit differentiation.
"""
import jax
import jax.numpy as jnp
import optax
from jax.scipy.ndimage import map_coordinates
from jax.scipy.sparse.linalg import cg

N = 96
DT = 0.5
STEPS = 24
NU = 0.2
BUOY = 0.1
CG_ITERS_P = 80
CG_ITERS_V = 20


def grad_x(p):
    return 0.5 * (jnp.roll(p, -1, 0) - jnp.roll(p, 1, 0))


def grad_y(p):
    return 0.5 * (jnp.roll(p, -1, 1) - jnp.roll(p, 1, 1))


def divergence(u):
    return grad_x(u[0]) + grad_y(u[1])


def laplace(p):
    return jnp.roll(p, 1, 0) + jnp.roll(p, -1, 0) + jnp.roll(p, 1, 1) + jnp.roll(p, -1, 1) - 4 * p


def advect(field, u):
    ii, jj = jnp.meshgrid(
        jnp.arange(N, dtype=jnp.float32), jnp.arange(N, dtype=jnp.float32), indexing="ij"
    )
    back = [ii - DT * u[0], jj - DT * u[1]]
    return map_coordinates(field, back, order=1, mode="wrap")


def diffuse(u):
    """(I - nu dt L) u' = u, both components with one solve each"""

    def solve(b):
        x, _ = cg(lambda v: v - NU * DT * laplace(v), b, x0=b, tol=1e-5, maxiter=CG_ITERS_V)
        return x

    return jax.vmap(solve)(u)


def project(u):
    div = divergence(u)
    div = div - div.mean()
    # -L p = -div   (negated so that the operator is positive semi-definite)
    p, _ = cg(lambda q: -laplace(q), -div, tol=1e-4, maxiter=CG_ITERS_P)
    return u - jnp.stack([grad_x(p), grad_y(p)])


@jax.checkpoint
def solver_step(state, _):
    u, smoke = state
    u = jnp.stack([advect(u[0], u), advect(u[1], u)])
    u = u.at[0].add(DT * BUOY * smoke)
    u = diffuse(u)
    u = project(u)
    smoke = advect(smoke, u)
    return (u, smoke), jnp.mean(u**2)


def simulate(u0, smoke0):
    (u, smoke), energy = jax.lax.scan(solver_step, (u0, smoke0), None, length=STEPS)
    return u, smoke, energy


def velocity_from_streamfunction(psi):
    return jnp.stack([grad_y(psi), -grad_x(psi)])


def blur(x, k=3):
    for _ in range(k):
        x = x + 0.2 * laplace(x)
    return x


def objective(psi, smoke0, target):
    u0 = velocity_from_streamfunction(psi)
    _, smoke, energy = simulate(u0, smoke0)
    mismatch = jnp.mean((blur(smoke) - blur(target)) ** 2)
    return mismatch + 1e-4 * energy[0], dict(mismatch=mismatch, energy=energy)


optimizer = optax.adam(optax.exponential_decay(0.5, 50, 0.9))


def optimise(psi, opt_state, smoke0, target, iters=10):
    """ten iterations of Adam per call; the notebook plots in between"""

    def it(_, c):
        psi, opt_state, _ = c
        (value, aux), g = jax.value_and_grad(objective, has_aux=True)(psi, smoke0, target)
        upd, opt_state = optimizer.update(g, opt_state)
        return optax.apply_updates(psi, upd), opt_state, value

    return jax.lax.fori_loop(0, iters, it, (psi, opt_state, jnp.float32(0)))


def build(devices=None):
    f = jax.ShapeDtypeStruct((N, N), jnp.float32)
    return jax.jit(optimise), (f, jax.eval_shape(optimizer.init, f), f, f)


def make():
    return build()
