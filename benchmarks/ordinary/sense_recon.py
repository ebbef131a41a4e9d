TRUTH = """
- Parallel MRI (SENSE) reconstruction: CG over an image, each matvec: multiply by coil maps, fft2, mask, ifft2, conj. coil sum. Images sharded by ROWS over "rows" (8), batch of slices not sharded.
- Wrong: fft over a sharded dimension cannot be partitioned: all-gather of the coil images before each fft2 (and after ifft2 sliced again), each CG iteration: 2 ffts -> gathers of [coils,H,W] complex. FFT is done replicated on all devices (redundant work x8) . Remedy: shard coils (or slices) rather than rows: then only a sum over coils (all-reduce of one image).
- Collectives: in the CG loop: all-gather for fft2 (and ifft2 if its input is sliced), scalar/vector all-reduces for dot products over rows.
- Memory: full coil images on each device: coils*H*W*8 = 32*512*512*8 = 64 MiB several copies.
- no donation possible in general (y in, image out different shapes).
"""
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"rows": 8}
C, N = 32, 512
SPECS = (P(None, "rows", None), P(None, "rows", None), P("rows", None))


def forward(x, maps, mask):
    return mask * jnp.fft.fft2(maps * x, norm="ortho")


def adjoint(k, maps, mask):
    return jnp.sum(jnp.conj(maps) * jnp.fft.ifft2(mask * k, norm="ortho"), 0)


def reconstruct(kspace, maps, mask):
    normal = lambda x: adjoint(forward(x, maps, mask), maps, mask) + 1e-3 * x
    b = adjoint(kspace, maps, mask)

    def body(state):
        i, x, r, p, rs = state
        ap = normal(p)
        alpha = rs / jnp.vdot(p, ap).real
        x = x + alpha * p
        r = r - alpha * ap
        new = jnp.vdot(r, r).real
        return i + 1, x, r, r + (new / rs) * p, new

    start = (0, jnp.zeros_like(b), b, b, jnp.vdot(b, b).real)
    _, x, r, _, rs = jax.lax.while_loop(lambda s: (s[0] < 30) & (s[4] > 1e-6), body, start)
    return x, rs


def make(mesh):
    sh = lambda s: NamedSharding(mesh, s)
    f = jax.jit(reconstruct, in_shardings=tuple(map(sh, SPECS)))
    c = jax.ShapeDtypeStruct((C, N, N), jnp.complex64)
    return f, (c, c, jax.ShapeDtypeStruct((N, N), jnp.float32))
