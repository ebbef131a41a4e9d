"""Programs as their authors wrote them, and each change as they would write it by hand.

``BY_HAND`` are replacements in a program's own text; ``arguments`` and options of ``jax.jit`` are
in the text too, so that a change of them is one of these replacements as well.
"""

from __future__ import annotations

from dataclasses import dataclass

HEAD = """
import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import NamedSharding, PartitionSpec as P

F32, BF16 = jnp.float32, jnp.bfloat16


def put(mesh, shape, *spec, dtype=F32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))

"""

# Two layers in a Python loop, their gradients, and new parameters.
LOOP = """
def block(x, w):
    h = jnp.tanh(x @ w)
    return jnp.sin(h) @ w.T


def step(params, x):
    def loss(ws):
        y = x
        for w in ws:
            y = block(y, w)
        return (y * y).sum()

    grads = jax.grad(loss)(params)
    return [p - 0.1 * g for p, g in zip(params, grads)]


step = jax.jit(step)


def arguments(mesh):
    batch = 16
    return [put(mesh, (16, 32)), put(mesh, (16, 32))], put(mesh, (batch, 16), "data")
"""

# Layers in a scan, whose body is a closure.
SCAN = """
def make():
    scale = 0.5

    def step(params, x):
        def block(x, w):
            h = jnp.tanh(x @ w) * scale
            return h @ w.T, None

        def loss(ws):
            y, _ = jax.lax.scan(block, x, ws)
            return (y * y).sum()

        return params - 0.1 * jax.grad(loss)(params)

    return step


step = jax.jit(make())


def arguments(mesh):
    batch = 16
    return put(mesh, (4, 128, 256), None, None, "model"), put(mesh, (batch, 128), "data")
"""

# A model that is an object; the block is its method.
METHOD = """
class Model:
    def __init__(self, deep):
        self.deep = deep

    def block(self, x, w):
        h = jax.nn.gelu(x @ w)
        return x + h @ w.T

    def __call__(self, params, x):
        for _ in range(self.deep):
            x = self.block(x, params)
        return x


model = Model(2)


def step(params, x):
    loss, grads = jax.value_and_grad(lambda p: jnp.mean(model(p, x) ** 2))(params)
    return params - 0.01 * grads, loss


step = jax.jit(step)


def arguments(mesh):
    batch = 16
    return put(mesh, (128, 256), None, "model"), put(mesh, (batch, 128), "data")
"""

# Inference: keys and values, softmax; the function is not jitted by its author.
ATTENTION = """
def block(q, k, v):
    h = jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k) / 8.0)
    return jnp.einsum("bqk,bkd->bqd", h, v)


def step(params, x):
    q, k, v = (x @ params[name] for name in "qkv")
    return x + block(q, k, v)


step = jax.jit(step)


def arguments(mesh):
    batch = 8
    params = {name: put(mesh, (128, 128), None, "model") for name in "qkv"}
    return params, put(mesh, (batch, 64, 128), "data")
"""

# A block that its author jitted, called from two places.
NESTED = """
@jax.jit
def block(x, w):
    h = jnp.maximum(x @ w, 0.0)
    return h @ w.T


def step(params, x):
    y = block(block(x, params), params)
    return params * 0.9 + y.sum(), y


step = jax.jit(step)


def arguments(mesh):
    batch = 16
    return put(mesh, (128, 256), None, "model"), put(mesh, (batch, 128), "data")
"""

# Parameters by name, keyword arguments, a checkpoint that is there already.
SAVED = """
@jax.checkpoint
def inner(x, w):
    return jnp.sin(jnp.sin(x @ w) @ w.T)


def block(x, *, w):
    h = inner(x, w)
    return x + jnp.cos(h)


def step(params, x):
    def loss(params):
        y, _ = jax.lax.scan(lambda y, w: (block(y, w=w), None), x, params["ws"])
        return (y * y).sum()

    grads = jax.grad(loss)(params)
    return jax.tree.map(lambda p, g: p - g, params, grads)


step = jax.jit(step)


def arguments(mesh):
    batch = 16
    return {"ws": put(mesh, (4, 128, 256))}, put(mesh, (batch, 128), "data")
"""


V5E, V5P = "v5e:2x4", "v5p:2x2x1"
Replacement = tuple[str, str]


@dataclass(frozen=True)
class Written:
    """A program, for a topology or CPU devices, and where its author would put changes.

    ``value`` is the expression that ``h`` is, ``inner`` a part of it that is one operation.
    ``checkpoint`` puts jax.checkpoint around the block, with ``POLICY`` where its policy goes;
    ``cast`` computes it in bf16.
    """

    name: str
    text: str
    topology: str | None
    value: str
    inner: str
    checkpoint: Replacement
    cast: tuple[Replacement, ...]
    batch_axes: dict[str, int] | None = None

    @property
    def mesh(self) -> dict[str, int]:
        return {"data": 2, "model": 2} if self.topology == V5P else {"data": 4, "model": 2}

    @property
    def jitted(self) -> str:
        return self.text.partition("\nstep = ")[2].partition("\n")[0]

    def changed(self, *edits: Replacement) -> str:
        text = self.text
        for old, new in edits:
            assert text.count(old) == 1, (self.name, old)
            text = text.replace(old, new)
        return text


CHECKPOINT = "def block(", "@functools.partial(jax.checkpoint, policy=POLICY)\ndef block("
NARROW = "x, w = x.astype(BF16), w.astype(BF16)"

PROGRAMS = (
    Written(
        "loop", LOOP, None, "jnp.tanh(x @ w)", "x @ w", CHECKPOINT,
        (
            ("    h = ", f"    {NARROW}\n    h = "),
            ("return jnp.sin(h) @ w.T", "return (jnp.sin(h) @ w.T).astype(F32)"),
        ),
    ),
    Written(
        "scan", SCAN, V5E, "jnp.tanh(x @ w) * scale", "x @ w",
        (
            "        def block(",
            "        @functools.partial(jax.checkpoint, policy=POLICY)\n        def block(",
        ),
        (
            ("            h = ", f"            {NARROW}\n            h = "),
            ("return h @ w.T, None", "return (h @ w.T).astype(F32), None"),
        ),
    ),
    Written(
        "method", METHOD, None, "jax.nn.gelu(x @ w)", "x @ w",
        ("self.block(x, params)", "jax.checkpoint(self.block, policy=POLICY)(x, params)"),
        (
            ("        h = ", f"        {NARROW}\n        h = "),
            ("return x + h @ w.T", "return (x + h @ w.T).astype(F32)"),
        ),
    ),
    Written(
        "attention", ATTENTION, V5P, 'jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k) / 8.0)',
        'jnp.einsum("bqd,bkd->bqk", q, k)', CHECKPOINT,
        (
            ("    h = ", "    q, k, v = (a.astype(BF16) for a in (q, k, v))\n    h = "),
            (
                'return jnp.einsum("bqk,bkd->bqd", h, v)',
                'return jnp.einsum("bqk,bkd->bqd", h, v).astype(F32)',
            ),
        ),
        {"x": 0},
    ),
    Written(
        "nested", NESTED, V5E, "jnp.maximum(x @ w, 0.0)", "x @ w", CHECKPOINT,
        (
            ("    h = ", f"    {NARROW}\n    h = "),
            ("return h @ w.T", "return (h @ w.T).astype(F32)"),
        ),
        {"x": 0},
    ),
    Written(
        "saved", SAVED, V5P, "inner(x, w)", "x @ w", CHECKPOINT,
        (
            ("    h = ", f"    {NARROW}\n    h = "),
            ("return x + jnp.cos(h)", "return (x + jnp.cos(h)).astype(F32)"),
        ),
    ),
)  # fmt: skip
