TRUTH = """
Kohn-Sham self-consistent field (scf), plane waves, 8 k-points, one per device (shard_map "kpt"). Scientific, no learning, no backward.

scf
  start: orthonormalise, effective_potential, rayleigh_ritz (one apply_hamiltonian)
  scf_iteration: while loop until converged, at most 40 passes (trip count not known beforehand)
    effective_potential: hartree (fft 48^3, divide by G^2, ifft), lda (jax.grad of lda_energy_density: pointwise derivative, NOT a training backward)
    chebyshev_filter: one apply_hamiltonian + loop x9 (fori 1..9, degree 10), each one apply_hamiltonian
      apply_hamiltonian on 160 bands x 12288 plane waves
        local_potential: scatter to 48^3 box, inverse fft 3-d, times v_eff, fft 3-d, gather
        nonlocal_projectors: two complex matmuls 160 x 12288 x 256
    orthonormalise: overlap matmul 160x160x12288, cholesky, triangular solve
    rayleigh_ritz: apply_hamiltonian, subspace matmul, eigh 160x160, rotation matmul
    fermi_occupations: bisection loop x40, a psum over k-points in each pass (scalar)
    density: to_grid (inverse fft of 160 bands), weighted sum of squares, psum over k-points (48^3)
    anderson_mix: history of 6, 6x6 solve, Kerker damping by fft
  total_energy (once, after the loop)

Per scf pass 11 hamiltonian applications (1 + 9 + 1), i.e. 22 batched 3-d ffts of 160 bands + 1 in density.
Weight: the ffts (160 x 48^3) and the projector matmuls inside the chebyshev loop dominate; eigh is next (on CPU a LAPACK call, on TPU an expanded
iterative algorithm with its own while loops: the compiler's, to be kept under eigh / rayleigh_ritz); hartree, lda, mixing small.
First sight: one while loop (scf_iteration) with chebyshev_filter (loop x9) as its heavy part, rayleigh_ritz, fermi_occupations (loop x40), density, anderson_mix.
Names true: scf_iteration, chebyshev_filter, recurrence, apply_hamiltonian, local_potential, nonlocal_projectors, orthonormalise, rayleigh_ritz, fermi_occupations, density, anderson_mix, effective_potential, hartree, total_energy.
False would be: "backward" or "optimiser" anywhere; fixed 40 passes stated as certain for the while loop; the bisection shown as heavy; the initial solve merged into the loop.
"""

"""Kohn-Sham DFT in a plane-wave basis: self-consistent field for a 64-atom silicon-like supercell, 8 k-points on 8 devices.
Chebyshev-filtered subspace iteration for the bands, Anderson mixing for the density."""
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"kpt": 8}
N, NPW, BANDS, PROJ, ELECTRONS = 48, 12288, 160, 256, 256
DEGREE, HISTORY, MAX_SCF = 10, 6, 40
CELL = 20.5
VOLUME = CELL**3
C64, F32 = jnp.complex64, jnp.float32


def to_grid(psi, idx):
    """(bands, NPW) coefficients to real space (bands, N, N, N)."""
    box = jnp.zeros((psi.shape[0], N**3), C64).at[:, idx].set(psi)
    return jnp.fft.ifftn(box.reshape(-1, N, N, N), axes=(1, 2, 3))


def from_grid(f, idx):
    return jnp.fft.fftn(f, axes=(1, 2, 3)).reshape(f.shape[0], -1)[:, idx]


def apply_hamiltonian(psi, v_eff, k):
    with jax.named_scope("local_potential"):
        local = from_grid(to_grid(psi, k["idx"]) * v_eff, k["idx"])
    with jax.named_scope("nonlocal_projectors"):
        overlap = psi @ k["beta"].conj().T  # (bands, PROJ)
        nonlocal_ = (overlap * k["dij"]) @ k["beta"]
    return k["kinetic"] * psi + local + nonlocal_


def chebyshev_filter(psi, v_eff, k, low, cut, high):
    """Damp the part of the spectrum in [cut, high]."""
    e, c = (high - cut) / 2, (high + cut) / 2
    sigma = e / (low - c)
    tau = 2 / sigma
    y = (apply_hamiltonian(psi, v_eff, k) - c * psi) * (sigma / e)

    def recurrence(_, s):
        x, y, sig = s
        new_sig = 1 / (tau - sig)
        y2 = (apply_hamiltonian(y, v_eff, k) - c * y) * (2 * new_sig / e) - sig * new_sig * x
        return y, y2, new_sig

    return lax.fori_loop(1, DEGREE, recurrence, (psi, y, sigma))[1]


def orthonormalise(psi):
    s = psi.conj() @ psi.T
    low = jnp.linalg.cholesky(s + 1e-6 * jnp.eye(BANDS, dtype=C64))
    return lax.linalg.triangular_solve(low.conj(), psi, left_side=True, lower=True)


def rayleigh_ritz(psi, v_eff, k):
    h = psi.conj() @ apply_hamiltonian(psi, v_eff, k).T
    eig, u = jnp.linalg.eigh((h + h.conj().T) / 2)
    return eig, u.T @ psi


def fermi_occupations(eig, weight, kt=0.005):
    """Bisection for the chemical potential over all k-points."""
    count = lambda mu: lax.psum((2 * weight * jax.nn.sigmoid((mu - eig) / kt)).sum(), "kpt")

    def bisect(_, lohi):
        lo, hi = lohi
        mid = (lo + hi) / 2
        return jnp.where(count(mid) < ELECTRONS, mid, lo), jnp.where(
            count(mid) < ELECTRONS, hi, mid
        )

    lo, hi = lax.fori_loop(
        0, 40, bisect, (lax.pmin(eig.min(), "kpt") - 1, lax.pmax(eig.max(), "kpt") + 1)
    )
    return 2 * jax.nn.sigmoid(((lo + hi) / 2 - eig) / kt)


def density(psi, occ, k):
    grid = to_grid(psi, k["idx"]) * N**3
    rho = (occ[:, None, None, None] * jnp.abs(grid) ** 2).sum(0) * k["weight"] / VOLUME
    return lax.psum(rho, "kpt")


def hartree(rho, g2):
    rho_g = jnp.fft.fftn(rho.astype(C64))
    v_g = jnp.where(g2 > 0, 4 * jnp.pi * rho_g / jnp.where(g2 > 0, g2, 1), 0)
    return jnp.fft.ifftn(v_g).real


def lda_energy_density(rho):
    rho = jnp.maximum(rho, 1e-10)
    rs = (3 / (4 * jnp.pi * rho)) ** (1 / 3)
    exchange = -0.4581653 / rs
    a, b, c, d = 0.0311, -0.048, 0.002, -0.0116
    high = a * jnp.log(rs) + b + c * rs * jnp.log(rs) + d * rs
    low = -0.1423 / (1 + 1.0529 * jnp.sqrt(rs) + 0.3334 * rs)
    return rho * (exchange + jnp.where(rs < 1, high, low))


def effective_potential(rho, v_ion, g2):
    v_xc = jax.vmap(jax.grad(lda_energy_density))(rho.ravel()).reshape(rho.shape)
    return v_ion + hartree(rho, g2) + v_xc


def anderson_mix(rho_in, residual, history, it, g2):
    """Last HISTORY densities and residuals, least squares, Kerker damping."""
    xs, rs = history
    slot = it % HISTORY
    xs, rs = xs.at[slot].set(rho_in.ravel()), rs.at[slot].set(residual.ravel())
    used = jnp.arange(HISTORY) <= it
    gram = jnp.where(used[:, None] & used[None], rs @ rs.T, 0) + jnp.diag(
        jnp.where(used, 1e-8, 1.0)
    )
    w = jnp.linalg.solve(gram, used.astype(F32))
    w = w / w.sum()
    x, r = (w @ xs).reshape(rho_in.shape), (w @ rs).reshape(rho_in.shape)
    kerker = g2 / (g2 + 0.8**2)
    return x + 0.6 * jnp.fft.ifftn(jnp.fft.fftn(r.astype(C64)) * kerker).real, (xs, rs)


def scf(psi, k, rho, v_ion, g2):
    psi, k = psi[0], jax.tree.map(lambda a: a[0], k)

    def not_converged(s):
        return (s["it"] < MAX_SCF) & (s["error"] > 1e-5)

    def scf_iteration(s):
        v = effective_potential(s["rho"], v_ion, g2)
        high = k["kinetic"].max() + v.max()
        psi = chebyshev_filter(s["psi"], v, k, s["eig"][0], s["eig"][-1] + 0.1, high)
        psi = orthonormalise(psi)
        eig, psi = rayleigh_ritz(psi, v, k)
        occ = fermi_occupations(eig, k["weight"])
        new = density(psi, occ, k)
        residual = new - s["rho"]
        rho, history = anderson_mix(s["rho"], residual, s["history"], s["it"], g2)
        error = jnp.abs(residual).sum() * VOLUME / N**3 / ELECTRONS
        band = lax.psum((occ * eig).sum() * k["weight"], "kpt")
        return {
            "it": s["it"] + 1,
            "psi": psi,
            "eig": eig,
            "rho": rho,
            "history": history,
            "error": error,
            "band": band,
        }

    psi = orthonormalise(psi)
    eig, psi = rayleigh_ritz(psi, effective_potential(rho, v_ion, g2), k)
    empty = jnp.zeros((HISTORY, N**3), F32)
    start = {
        "it": jnp.int32(0),
        "psi": psi,
        "eig": eig,
        "rho": rho,
        "history": (empty, empty),
        "error": F32(1),
        "band": F32(0),
    }
    end = lax.while_loop(not_converged, scf_iteration, start)
    with jax.named_scope("total_energy"):
        cell = VOLUME / N**3
        e_h = 0.5 * (end["rho"] * hartree(end["rho"], g2)).sum() * cell
        v_xc = jax.vmap(jax.grad(lda_energy_density))(end["rho"].ravel()).reshape(rho.shape)
        energy = (
            end["band"] - e_h + (lda_energy_density(end["rho"]) - v_xc * end["rho"]).sum() * cell
        )
    return energy, end["eig"][None], end["rho"], end["it"]


def make(mesh):
    K = 8
    S = lambda shape, dt, *spec: jax.ShapeDtypeStruct(
        shape, dt, sharding=NamedSharding(mesh, P(*spec))
    )
    k = {
        "idx": S((K, NPW), jnp.int32, "kpt"),
        "kinetic": S((K, NPW), F32, "kpt"),
        "beta": S((K, PROJ, NPW), C64, "kpt"),
        "dij": S((K, PROJ), F32, "kpt"),
        "weight": S((K,), F32, "kpt"),
    }
    in_specs = (P("kpt"), {n: P("kpt") for n in k}, P(), P(), P())
    f = jax.jit(
        jax.shard_map(
            scf, mesh=mesh, in_specs=in_specs, out_specs=(P(), P("kpt"), P(), P()), check_vma=False
        )
    )
    return f, (
        S((K, BANDS, NPW), C64, "kpt"),
        k,
        S((N, N, N), F32),
        S((N, N, N), F32),
        S((N, N, N), F32),
    )
