TRUTH = """
# schwinger_hmc - HMC for the 2-flavour Schwinger model, 16 chains of 64 x 64; plain JAX, single device, complex64

1. Order: **trajectory loop x10** { momenta + pseudofermions (phi = D^+ chi), initial energy; **Omelyan integrator loop x12** { drift; **force 1: CG while loop** (<= 600 iterations of D^+D), then gauge + fermion force by autodiff; kick; drift; **force 2: CG while loop** + force; kick; drift }; **final action: CG while loop**; Metropolis accept; plaquette, topological charge; **condensate: loop x4 noise vectors { CG while loop }** } -> final links + history.
2. No matmuls: all stencils (rolls, 2 x 2 spin algebra on complex fields, 131 k complex numbers). One D ~ 60-100 FLOPs x 131 k; an iteration of CG = 2 D + dots ~ 20-25 MFLOP; ~100-300 iterations; 24 + 1 + 4 = 29 CG solves a trajectory -> > 97% of the work is in CG (24/29 of it in the forces, 4/29 condensate, 1/29 Metropolis). Autodiff force: about 3-4 D each, ~1%.
3. Loops: x10 > { x12 > 2 CG while (unknown count, <= 600); 1 CG while; x4 > 1 CG while }. 4 CG loops in the program text.
4. No mesh. Chains in the shapes (16).
5. First picture: [x10: refresh momenta/pseudofermions -> [x12: drift, CG, force, kick, drift, CG, force, kick, drift] -> CG, dH, accept/reject -> measure (x4 CG)].
6. Arrows: links around all loops; phi constant in the integrator; old links kept for rejection; iteration counts summed.
7. Should not stand out: RNG, boundary signs, gamma matrices (reverse / stack), rolls as slice + concatenate, where for live chains.
8. Typically wrong: CG loops drawn with certain trip counts; CG taken for an optimiser; force's autodiff drawn as "backward of the program"; RNG as large as CG; the two forces merged to one or shown as different parts.
"""

"""HMC for the 2-flavour Schwinger model (2-D U(1) gauge theory with Wilson fermions) on 64 x 64,
16 independent chains. Pseudofermion force by CG; Omelyan integrator; topological charge and condensate."""
import jax
import jax.numpy as jnp
from jax import lax

C, L = 16, 64
BETA, MASS = 4.0, 0.05
N_TRAJ, N_LEAP, TAU = 10, 12, 1.0
TOL_MD, TOL_MC, MAXIT = 1e-6, 1e-9, 600
LAM = 0.1931833
N_NOISE = 4

# theta: (C, 2, L, L) link angles; spinors: (C, L, L, 2) complex64


def plaq(th):
    t0, t1 = th[:, 0], th[:, 1]
    return t0 + jnp.roll(t1, -1, 1) - jnp.roll(t0, -1, 2) - t1


def S_gauge(th):
    return BETA * (1 - jnp.cos(plaq(th))).sum((1, 2))


def g1(s):  # sigma_x
    return s[..., ::-1]


def g2(s):  # sigma_y
    return jnp.stack([-1j * s[..., 1], 1j * s[..., 0]], -1)


def g5(s):
    return s * jnp.array([1.0, -1.0])


def dirac(th, s):
    """Wilson operator, antiperiodic in direction 0"""
    u = jnp.exp(1j * th)
    bc = jnp.where(jnp.arange(L) == L - 1, -1.0, 1.0)[None, :, None]
    u0, u1 = (u[:, 0] * bc)[..., None], u[:, 1][..., None]
    out = (MASS + 2.0) * s
    for U, ax, g in ((u0, 1, g1), (u1, 2, g2)):
        f = U * jnp.roll(s, -1, ax)
        b = jnp.roll(jnp.conj(U) * s, 1, ax)
        out = out - 0.5 * ((f - g(f)) + (b + g(b)))
    return out


def ddag_d(th, s):
    return g5(dirac(th, g5(dirac(th, s))))


def dot(a, b):
    return jnp.sum(jnp.conj(a) * b, (1, 2, 3)).real


def ex(c):
    return c[:, None, None, None]


def cg(A, b, tol):
    """all chains together; stops when the slowest is done"""
    b2 = dot(b, b)

    def cond(c):
        _, _, _, rr, k = c
        return jnp.any(rr > tol * b2) & (k < MAXIT)

    def body(c):
        x, r, p, rr, k = c
        ap = A(p)
        live = rr > tol * b2
        al = jnp.where(live, rr / dot(p, ap), 0.0)
        x = x + ex(al) * p
        r = r - ex(al) * ap
        new = dot(r, r)
        p = jnp.where(ex(live), r + ex(new / rr) * p, p)
        return x, r, p, jnp.where(live, new, rr), k + 1

    x, _, _, _, k = lax.while_loop(cond, body, (jnp.zeros_like(b), b, b, b2, 0))
    return x, k


def S_pf(th, phi):
    x, k = cg(lambda s: ddag_d(th, s), phi, TOL_MC)
    return dot(phi, x), k


def force(th, phi):
    """-dS/dtheta. For the fermions: S = phi^+ (D^+D)^-1 phi, dS = -2 Re (Y^+ dD X), X = (D^+D)^-1 phi, Y = D X"""
    x, k = cg(lambda s: ddag_d(th, s), phi, TOL_MD)
    x = lax.stop_gradient(x)
    y = lax.stop_gradient(dirac(th, x))
    f = jax.grad(lambda t: (S_gauge(t) - 2 * dot(y, dirac(t, x))).sum())(th)
    return -f, k


def omelyan(th, p, phi):
    eps = TAU / N_LEAP

    def one(c, _):
        th, p, its = c
        th = th + LAM * eps * p
        f, k1 = force(th, phi)
        p = p + 0.5 * eps * f
        th = th + (1 - 2 * LAM) * eps * p
        f, k2 = force(th, phi)
        p = p + 0.5 * eps * f
        th = th + LAM * eps * p
        return (th, p, its + k1 + k2), None

    (th, p, its), _ = lax.scan(one, (th, p, 0), None, length=N_LEAP)
    return th, p, its


def cnormal(key, shape):
    a = jax.random.normal(key, (2, *shape))
    return (a[0] + 1j * a[1]) / jnp.sqrt(2.0)


def trajectory(th, key):
    kp, kf, ku, kn = jax.random.split(key, 4)
    p = jax.random.normal(kp, th.shape)
    chi = cnormal(kf, (C, L, L, 2))
    phi = g5(dirac(th, g5(chi)))  # D^+ chi
    kin = lambda p: 0.5 * jnp.square(p).sum((1, 2, 3))
    h0 = kin(p) + S_gauge(th) + dot(chi, chi)
    th1, p1, its = omelyan(th, p, phi)
    s1, k = S_pf(th1, phi)
    dh = kin(p1) + S_gauge(th1) + s1 - h0
    acc = jnp.log(jax.random.uniform(ku, (C,))) < -dh
    th = jnp.where(ex(acc), th1, th)
    pl = plaq(th)
    q = jnp.round(((pl + jnp.pi) % (2 * jnp.pi) - jnp.pi).sum((1, 2)) / (2 * jnp.pi))

    def noise(key):
        eta = cnormal(key, (C, L, L, 2))
        x, _ = cg(lambda s: ddag_d(th, s), g5(dirac(th, g5(eta))), TOL_MC)
        return dot(eta, x) / L**2

    cond = lax.map(noise, jax.random.split(kn, N_NOISE)).mean(0)
    return th, {
        "plaq": jnp.cos(pl).mean((1, 2)),
        "Q": q,
        "cond": cond,
        "acc": acc,
        "dh": dh,
        "cg": its + k,
    }


def run(th, key):
    return lax.scan(trajectory, th, jax.random.split(key, N_TRAJ))


def make():
    return jax.jit(run, donate_argnums=0), (
        jax.ShapeDtypeStruct((C, 2, L, L), jnp.float32),
        jax.ShapeDtypeStruct((2,), jnp.uint32),
    )
