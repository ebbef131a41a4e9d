TRUTH = """
Quasi-static nonlinear elasticity with finite elements (solve_quasistatic): 120000 nodes, 600000 linear tetrahedra, neo-Hookean, one device. Scientific: no network, no training.

solve_quasistatic
  reference_geometry: edge matrices, inverse, volumes (vmap over elements), once
  load_step: scan x10 (prescribed displacement grows)
    newton: while loop, at most 12, until the residual is small (data dependent)
      newton_iteration
        residual: grad of total_energy (element_energy vmapped, gather of nodes, scatter-add back), masked on fixed nodes
        block_preconditioner: jax.hessian of element_energy (12 x 12 per element, vmapped), 3x3 diagonal blocks scattered to nodes and inverted
        conjugate_gradient: while loop, at most 250 (data dependent)
          cg_iteration: stiffness_product (jvp of the gradient: gather, element, scatter), dot products, apply blocks
        line_search: while loop at most 8, total_energy each try
    step diagnostics: energy, reaction force (residual on the fixed nodes)
  nodal_stress: von_mises per element, volume-weighted average to nodes, once after the loop

Nesting: 10 > <=12 > (<=250 | <=8). 
The gradient here is of the elastic energy (forces), not a training backward. jvp of it is the stiffness times a vector; no matrix is assembled.
Weight: stiffness_product in the CG loop by far (up to 30000 executions); gather and scatter-add bound by memory; only tiny 3x3 products, no big matmul. The hessian once per Newton iteration is heavy (12 tangents) but rare.
False would be: training step, loss, optimiser, layers; trip counts of the while loops stated as sure; assembled sparse matrix; nodal_stress in the loop.
First sight: geometry -> load loop x10 > Newton loop > (residual, preconditioner, CG loop, line search loop) -> stress.
Names true: reference_geometry, load_step, newton_iteration, residual, block_preconditioner, conjugate_gradient, stiffness_product, line_search, element_energy, nodal_stress, von_mises.
"""

"""Large-deformation elasticity on a tetrahedral mesh. Forces and stiffness products come from automatic
differentiation of the stored energy; Newton with block-Jacobi preconditioned CG and a line search, ten load steps."""
import jax
import jax.numpy as jnp
from jax import lax

NODES, TETS = 120_000, 600_000
LOAD_STEPS, NEWTON_MAX, CG_MAX, SEARCH_MAX = 10, 12, 250, 8
NEWTON_TOL, CG_TOL = 1e-5, 1e-3


def edges(x):
    """(4,3) corner positions -> (3,3) matrix whose columns are the edges from corner 0."""
    return (x[1:] - x[0]).T


def det3(a):
    return jnp.dot(a[0], jnp.cross(a[1], a[2]))


def inverse3(a):
    cof = jnp.stack([jnp.cross(a[1], a[2]), jnp.cross(a[2], a[0]), jnp.cross(a[0], a[1])])
    return cof.T / det3(a)


def reference_geometry(nodes, tets):
    def one(corners):
        d = edges(corners)
        return inverse3(d), jnp.abs(det3(d)) / 6.0

    return jax.vmap(one)(nodes[tets])


def deformation_gradient(corners, inv_ref):
    return edges(corners) @ inv_ref


def element_energy(corners, inv_ref, volume, material):
    """Compressible neo-Hookean, with a smooth continuation of log J near inversion."""
    mu, lam = material[0], material[1]
    f = deformation_gradient(corners, inv_ref)
    j = det3(f)
    safe = jnp.maximum(j, 0.05)
    log_j = jnp.log(safe) + (j - safe) / safe
    density = 0.5 * mu * (jnp.sum(f * f) - 3.0) - mu * log_j + 0.5 * lam * log_j**2
    return volume * density


def total_energy(positions, mesh):
    corners = positions[mesh["tets"]]
    return jnp.sum(
        jax.vmap(element_energy)(corners, mesh["inv_ref"], mesh["volume"], mesh["material"])
    )


def forces(positions, mesh):
    return jax.grad(total_energy)(positions, mesh)


def residual(positions, mesh):
    return forces(positions, mesh) * mesh["free"]


def stiffness_product(positions, direction, mesh):
    """Tangent stiffness times a direction, never assembled."""
    _, tangent = jax.jvp(lambda x: forces(x, mesh), (positions,), (direction * mesh["free"],))
    return tangent * mesh["free"]


def block_preconditioner(positions, mesh):
    """Inverses of the 3x3 diagonal blocks of the stiffness, one per node."""
    corners = positions[mesh["tets"]]
    hess = jax.vmap(jax.hessian(element_energy))(
        corners, mesh["inv_ref"], mesh["volume"], mesh["material"]
    )
    diagonal = jnp.einsum("eaiaj->eaij", hess)
    blocks = jnp.zeros((NODES, 3, 3)).at[mesh["tets"]].add(diagonal)
    scale = jnp.trace(blocks, axis1=1, axis2=2)[:, None, None] / 3.0
    blocks = blocks + (1e-3 * jnp.abs(scale) + 1e-8) * jnp.eye(3)
    return jax.vmap(inverse3)(blocks)


def apply_blocks(blocks, r):
    return jnp.einsum("nij,nj->ni", blocks, r)


def conjugate_gradient(positions, rhs, blocks, mesh):
    target = CG_TOL**2 * jnp.vdot(rhs, rhs)

    def going(state):
        _, r, _, _, i = state
        return (jnp.vdot(r, r) > target) & (i < CG_MAX)

    def cg_iteration(state):
        x, r, p, rz, i = state
        kp = stiffness_product(positions, p, mesh)
        curvature = jnp.vdot(p, kp)
        alpha = jnp.where(curvature > 0, rz / jnp.where(curvature > 0, curvature, 1.0), 0.0)
        x, r = x + alpha * p, r - alpha * kp
        z = apply_blocks(blocks, r)
        rz_new = jnp.vdot(r, z)
        stop = jnp.where(curvature > 0, i + 1, CG_MAX)
        return x, r, z + (rz_new / rz) * p, rz_new, stop

    z = apply_blocks(blocks, rhs)
    start = (jnp.zeros_like(rhs), rhs, z, jnp.vdot(rhs, z), jnp.int32(0))
    x, _, _, _, used = lax.while_loop(going, cg_iteration, start)
    return x, used


def line_search(positions, step, slope, mesh):
    base = total_energy(positions, mesh)

    def too_high(state):
        size, energy, tries = state
        return (energy > base + 1e-4 * size * slope) & (tries < SEARCH_MAX)

    def halve(state):
        size, _, tries = state
        size = 0.5 * size
        return size, total_energy(positions + size * step, mesh), tries + 1

    start = (jnp.float32(1.0), total_energy(positions + step, mesh), jnp.int32(0))
    size, energy, _ = lax.while_loop(too_high, halve, start)
    return size, energy


def newton(positions, mesh):
    r0 = jnp.linalg.norm(forces(positions, mesh))

    def unsettled(state):
        _, norm, i, _ = state
        return (norm > NEWTON_TOL * r0) & (i < NEWTON_MAX)

    def newton_iteration(state):
        x, _, i, cg_total = state
        r = residual(x, mesh)
        blocks = block_preconditioner(x, mesh)
        step, used = conjugate_gradient(x, -r, blocks, mesh)
        step = step * mesh["free"]
        size, _ = line_search(x, step, jnp.vdot(r, step), mesh)
        x = x + size * step
        return x, jnp.linalg.norm(residual(x, mesh)), i + 1, cg_total + used

    start = (positions, jnp.float32(jnp.inf), jnp.int32(0), jnp.int32(0))
    return lax.while_loop(unsettled, newton_iteration, start)


def prescribe(positions, nodes, pull, fraction, free):
    """Fixed nodes take their reference place plus the given share of the prescribed displacement."""
    return jnp.where(free > 0, positions, nodes + fraction * pull)


def von_mises(corners, inv_ref, material):
    f = deformation_gradient(corners, inv_ref)
    j = jnp.maximum(det3(f), 1e-3)
    b = f @ f.T
    sigma = (material[0] * (b - jnp.eye(3)) + material[1] * jnp.log(j) * jnp.eye(3)) / j
    dev = sigma - jnp.trace(sigma) / 3.0 * jnp.eye(3)
    return jnp.sqrt(1.5 * jnp.sum(dev * dev))


def nodal_stress(positions, mesh):
    per_element = jax.vmap(von_mises)(positions[mesh["tets"]], mesh["inv_ref"], mesh["material"])
    weighted = jnp.repeat((per_element * mesh["volume"])[:, None], 4, axis=1)
    share = jnp.repeat(mesh["volume"][:, None], 4, axis=1)
    total = jnp.zeros(NODES).at[mesh["tets"]].add(weighted)
    return total / jnp.zeros(NODES).at[mesh["tets"]].add(share)


def make():
    @jax.jit
    def solve_quasistatic(nodes, tets, material, free, pull):
        inv_ref, volume = reference_geometry(nodes, tets)
        mesh = {
            "tets": tets,
            "inv_ref": inv_ref,
            "volume": volume,
            "material": material,
            "free": free,
        }

        def load_step(positions, fraction):
            positions = prescribe(positions, nodes, pull, fraction, free)
            positions, norm, iterations, cg_used = newton(positions, mesh)
            reaction = jnp.sum(forces(positions, mesh) * (1.0 - free), axis=0)
            record = {
                "energy": total_energy(positions, mesh),
                "reaction": reaction,
                "residual": norm,
                "newton": iterations,
                "cg": cg_used,
            }
            return positions, record

        fractions = jnp.linspace(1.0 / LOAD_STEPS, 1.0, LOAD_STEPS)
        positions, history = lax.scan(load_step, nodes, fractions)
        return positions, nodal_stress(positions, mesh), history

    S = jax.ShapeDtypeStruct
    point = S((NODES, 3), jnp.float32)
    return solve_quasistatic, (
        point,
        S((TETS, 4), jnp.int32),
        S((TETS, 2), jnp.float32),
        point,
        point,
    )
