"""The programs: a line asks for one switch at most, and operations that look alike have their own."""

# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from .switches import A, Program, Switches

TWO = {"data": 2, "model": 4}
FLAT = {"data": 8}


@dataclass(frozen=True)
class Made:
    mesh: dict[str, int]
    make: Callable[[Switches], Program]


PROGRAMS: dict[str, Made] = {}


def program(**mesh: int) -> Callable[[Callable[[Switches], Program]], Callable[..., Program]]:
    def put(make: Callable[[Switches], Program]) -> Callable[[Switches], Program]:
        PROGRAMS[make.__name__] = Made(mesh or TWO, make)
        return make

    return put


def half(x: Any) -> Any:
    return x * 0.5


# -- products, sums and gathers, without loops ----------------------------------------------------


@program()
def megatron(s):
    def f(x, w1, w2):
        h = x @ w1
        h = s.each(jnp.tanh, h)
        return h @ w2

    return Program(f, dict(x=A(64, 32, spec=("data",)), w1=A(32, 64, spec=(None, "model")),
                           w2=A(64, 48, spec=("model",))))  # fmt: skip


@program()
def megatron_scattered(s):
    def f(x, w1, w2):
        h = x @ w1
        h = s.each(jnp.tanh, h)
        y = h @ w2
        y = s.keep(y, "data", "model")
        return s.each(jnp.sin, y)

    return Program(f, dict(x=A(64, 32, spec=("data",)), w1=A(32, 64, spec=(None, "model")),
                           w2=A(64, 48, spec=("model",))))  # fmt: skip


@program()
def replicated_after_product(s):
    def f(x, w):
        y = x @ w
        y = s.each(jnp.tanh, y)
        y = s.keep(y)
        return jnp.sort(y, -1)

    return Program(f, dict(x=A(64, 32), w=A(32, 512, spec=(None, "model"))))


@program()
def replicated_directly(s):
    def f(x, w):
        y = x @ w
        y = s.keep(y)
        return jnp.cos(y)

    return Program(f, dict(x=A(64, 32), w=A(32, 512, spec=(None, "model"))))


@program()
def batch_only_after_product(s):
    def f(x, w):
        y = x @ w
        y = s.each(jnp.exp, y)
        y = s.keep(y, "data", None)
        return s.each(half, y)

    return Program(f, dict(x=A(64, 32, spec=("data",)), w=A(32, 64, spec=(None, "model"))))


@program()
def replicated_far_away(s):
    def f(x):
        y = s.each(jnp.sin, x)
        y = s.each(jnp.cos, y)
        y = y.T
        y = s.each(jnp.exp, y)
        y = s.keep(y)
        return y + 1

    return Program(f, dict(x=A(64, 32, spec=("data", "model"))))


@program()
def softmax_of_features(s):
    def f(x, w):
        y = x @ w
        return jax.nn.softmax(y, -1)

    return Program(f, dict(x=A(64, 32, spec=("data",)), w=A(32, 64, spec=(None, "model"))))


@program()
def layer_norm(s):
    def f(x, g):
        mean = x.mean(-1, keepdims=True)
        y = x - mean
        var = (y * y).mean(-1, keepdims=True)
        return y * lax.rsqrt(var + 1e-6) * g

    return Program(f, dict(x=A(64, 32, spec=("data", "model")), g=A(32, spec=("model",))))


@program()
def sums_of_both(s):
    def f(x, y):
        a = s.swap(lambda v: v.sum(0), x)
        b = s.swap(lambda v: v.sum(0), y)
        return a * b

    return Program(f, dict(x=A(64, 32, spec=("data",)), y=A(64, 32, spec=("model",))))


@program()
def sorts(s):
    def f(x, y):
        a = s.swap(lambda v: jnp.sort(v, -1), x)
        b = s.swap(lambda v: jnp.sort(v, 0), y)
        return a.sum() + b.sum()

    return Program(f, dict(x=A(64, 32, spec=(None, "model")), y=A(64, 32, spec=("data",))))


@program()
def cumulative(s):
    def f(x):
        y = s.swap(lambda v: jnp.cumsum(v, 0), x)
        return s.each(jnp.sin, y)

    return Program(f, dict(x=A(64, 32, spec=("data", "model"))))


@program()
def fsdp_forward(s):
    def f(x, w1, w2):
        h = x @ w1
        h = s.each(jnp.tanh, h)
        return h @ w2

    return Program(f, dict(x=A(64, 32, spec=("data",)), w1=A(32, 64, spec=("data",)),
                           w2=A(64, 32, spec=(None, "data"))))  # fmt: skip


@program()
def fsdp_gathered_by_constraint(s):
    def f(x, w1, w2):
        a = s.keep(w1)
        h = x @ a
        h = s.each(jnp.tanh, h)
        b = s.keep(w2)
        return h @ b

    return Program(f, dict(x=A(64, 32, spec=("data",)), w1=A(32, 64, spec=("data",)),
                           w2=A(64, 32, spec=("data",))))  # fmt: skip


@program()
def output_replicated(s):
    def f(x, w):
        y = x @ w
        return s.each(jnp.tanh, y)

    return Program(f, dict(x=A(64, 32, spec=("data",)), w=A(32, 64, spec=(None, "model"))), out=())


@program()
def output_elsewhere(s):
    def f(x):
        y = s.each(jnp.tanh, x)
        return s.each(half, y)

    return Program(f, dict(x=A(64, 32, spec=("model", None))), out=(None, "model"))


@program()
def output_scattered(s):
    def f(x, w):
        y = x @ w
        return y

    return Program(
        f, dict(x=A(64, 32, spec=(None, "model")), w=A(32, 64, spec=("model",))),
        out=(None, "model"),
    )  # fmt: skip


@program()
def operands_disagree(s):
    def f(x, y):
        return s.each(jnp.add, x, y)

    return Program(f, dict(x=A(64, 32, spec=("model", None)), y=A(64, 32, spec=(None, "model"))))


@program()
def moved_once(s):
    def f(x):
        y = s.each(jnp.sin, x)
        y = s.keep(y, None, "model")
        return jnp.cos(y)

    return Program(f, dict(x=A(64, 32, spec=("model", None))))


@program()
def moved_there_and_back(s):
    def f(x):
        y = s.each(jnp.sin, x)
        y = s.keep(y, None, "model")
        y = s.each(jnp.cos, y)
        y = s.keep(y, "model", None)
        return s.each(half, y)

    return Program(f, dict(x=A(64, 32, spec=("model", None))))


@program()
def three_constraints(s):
    def f(x):
        y = s.keep(x, "data", "model")
        y = s.each(jnp.sin, y)
        y = s.keep(y, "model", "data")
        y = s.each(jnp.cos, y)
        y = s.keep(y, None, ("data", "model"))
        return jnp.exp(y)

    return Program(f, dict(x=A(64, 32)))


@program()
def axes_swapped(s):
    def f(x):
        y = s.each(jnp.sin, x)
        y = s.keep(y, "model", "data")
        return s.each(jnp.cos, y)

    return Program(f, dict(x=A(64, 32, spec=("data", "model"))))


@program()
def embedding_rows(s):
    def f(table, tokens):
        y = jnp.take(table, tokens, axis=0)
        return s.each(jnp.tanh, y)

    return Program(f, dict(table=A(128, 64, spec=("model",)),
                           tokens=A(8, 16, spec=("data",), dtype=jnp.int32)))  # fmt: skip


@program()
def embedding_features(s):
    def f(table, tokens):
        y = jnp.take(table, tokens, axis=0)
        y = s.keep(y, "data", None, None)
        return s.each(jnp.tanh, y)

    return Program(f, dict(table=A(128, 64, spec=(None, "model")),
                           tokens=A(8, 16, spec=("data",), dtype=jnp.int32)))  # fmt: skip


@program()
def embedding_replicated(s):
    def f(table, w, tokens):
        y = table.at[tokens].get(mode="clip")
        y = s.keep(y, None, None)
        y = s.keep(y, "data", None)
        return y @ w

    return Program(f, dict(table=A(512, 64, spec=("model", None)), w=A(64, 32),
                           tokens=A(64, spec=("data",), dtype=jnp.int32)))  # fmt: skip


@program()
def embedding_one_hot(s):
    def f(table, tokens):
        y = jax.nn.one_hot(tokens, 128)
        return y @ table

    return Program(f, dict(table=A(128, 64, spec=("model",)),
                           tokens=A(8, 16, spec=("data",), dtype=jnp.int32)))  # fmt: skip


@program()
def attention_heads(s):
    def f(x, wq, wk, wv, wo):
        q = jnp.einsum("btd,dhk->bhtk", x, wq)
        k = jnp.einsum("btd,dhk->bhtk", x, wk)
        v = jnp.einsum("btd,dhk->bhtk", x, wv)
        p = jax.nn.softmax(jnp.einsum("bhtk,bhsk->bhts", q, k))
        o = jnp.einsum("bhts,bhsk->bhtk", p, v)
        return jnp.einsum("bhtk,hkd->btd", o, wo)

    w = A(32, 8, 16, spec=(None, "model"))
    return Program(f, dict(x=A(8, 64, 32, spec=("data",)), wq=w, wk=w, wv=w,
                           wo=A(8, 16, 32, spec=("model",))))  # fmt: skip


@program()
def attention_sequence(s):
    def f(q, k, v):
        a = jnp.einsum("bth,bsh->bts", q, k)
        p = jax.nn.softmax(a, -1)
        return jnp.einsum("bts,bsh->bth", p, v)

    return Program(f, dict(q=A(8, 64, 32, spec=("data", "model")),
                           k=A(8, 64, 32, spec=("data", "model")),
                           v=A(8, 64, 32, spec=("data",))))  # fmt: skip


@program()
def sequence_parallel(s):
    def f(x, w1, w2):
        h = s.keep(x, "data", None, None)
        h = h @ w1
        h = s.each(jnp.tanh, h)
        y = h @ w2
        return s.keep(y, "data", "model", None)

    return Program(f, dict(x=A(8, 64, 32, spec=("data", "model")), w1=A(32, 64, spec=(None, "model")),
                           w2=A(64, 32, spec=("model",))))  # fmt: skip


@program()
def experts(s):
    def f(x, wr, w1, w2):
        g = jax.nn.softmax(x @ wr, -1)
        d = jnp.einsum("btd,bte->ebtd", x, g)
        d = s.keep(d, "model", "data")
        h = jnp.einsum("ebtd,edf->ebtf", d, w1)
        h = s.each(jnp.tanh, h)
        y = jnp.einsum("ebtf,efd->ebtd", h, w2)
        return jnp.einsum("ebtd,bte->btd", y, g)

    return Program(f, dict(x=A(8, 64, 32, spec=("data",)), wr=A(32, 8),
                           w1=A(8, 32, 64, spec=("model",)), w2=A(8, 64, 32, spec=("model",))))  # fmt: skip


@program()
def experts_moved(s):
    def f(x, w):
        y = s.keep(x, "data", None, None)
        y = s.keep(y, None, "data", None)
        y = jnp.einsum("ecd,edf->ecf", y, w)
        y = s.keep(y, "data", None, None)
        return s.each(jnp.tanh, y)

    return Program(f, dict(x=A(8, 64, 32, spec=(None, "data")), w=A(8, 32, 16, spec=("data",))))


@program()
def tied_embedding(s):
    def f(emb, tok):
        h = jnp.take(emb, tok, axis=0)
        h = s.each(jnp.tanh, h)
        y = jnp.einsum("btd,vd->btv", h, emb)
        return y.max(-1)

    return Program(f, dict(emb=A(128, 64, spec=("model",)),
                           tok=A(8, 16, spec=("data",), dtype=jnp.int32)))  # fmt: skip


@program()
def helper_called_thrice(s):
    @jax.jit
    def helper(x, w):
        return jnp.tanh(x @ w)

    def f(x, w0, w1, w2):
        y = helper(x, w0)
        y = helper(y, w1)
        return helper(y, w2)

    return Program(f, dict(x=A(32, 64, spec=("data",)), w0=A(64, 64), w1=A(64, 64, spec=(None, "model")),
                           w2=A(64, 64, spec=("model",))))  # fmt: skip


@program()
def mask_and_select(s):
    def f(x, y, m):
        z = jnp.where(m, x, y)
        z = s.each(jnp.exp, z)
        return z.sum(0)

    return Program(f, dict(x=A(64, 32, spec=("data",)), y=A(64, 32, spec=("data",)),
                           m=A(64, 32, spec=("data",), dtype=jnp.bool_)))  # fmt: skip


@program()
def triangular_mask(s):
    def f(q, k):
        a = q @ k.T
        a = jnp.where(jnp.tri(64, dtype=bool), a, -1e9)
        return a.max(-1)

    return Program(f, dict(q=A(64, 32, spec=("data",)), k=A(64, 32, spec=("model",))))


@program()
def convolution(s):
    def f(x, k):
        y = lax.conv_general_dilated(
            x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return s.each(jnp.tanh, y)

    return Program(f, dict(x=A(8, 32, 32, 4, spec=("data", "model")), k=A(3, 3, 4, 8)))


@program()
def convolution_channels(s):
    def f(x, k):
        y = lax.conv_general_dilated(
            x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return s.each(jnp.tanh, y)

    return Program(
        f, dict(x=A(8, 32, 32, 16, spec=("data", None, None, "model")), k=A(3, 3, 16, 8))
    )


@program()
def pooling(s):
    def f(x):
        y = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3), (1, 1), "SAME")
        return s.each(jnp.sin, y)

    return Program(f, dict(x=A(32, 64, spec=("data", "model"))))


@program()
def reshape_splits(s):
    def f(x):
        y = s.each(jnp.sin, x)
        y = y.reshape(64, 3, 16)
        return jnp.cos(y)

    return Program(f, dict(x=A(64, 48, spec=("data", "model"))))


@program()
def reshape_joins(s):
    def f(x):
        y = s.each(jnp.sin, x)
        y = y.reshape(64 * 32)
        return jnp.cos(y)

    return Program(f, dict(x=A(64, 32, spec=("data", "model"))))


@program()
def stacked_arguments(s):
    def f(ws, x):
        for k in range(2):
            x = jnp.tanh(x @ ws[k])
        return x

    return Program(f, dict(ws=A(2, 64, 64, spec=(None, "model")), x=A(32, 64, spec=("data",))))


# -- shifts ----------------------------------------------------------------------------------------


@program()
def roll_once(s):
    def f(x):
        y = s.shift(lambda v: jnp.roll(v, 1, 0), x)
        return s.each(half, y)

    return Program(f, dict(x=A(64, 32, spec=("model",))))


@program()
def roll_both_ways(s):
    def f(x):
        up = s.shift(lambda v: jnp.roll(v, 1, 0), x)
        dn = s.shift(lambda v: jnp.roll(v, -3, 0), x)
        y = s.each(jnp.add, up, dn)
        return s.each(half, y)

    return Program(f, dict(x=A(64, 32, spec=("model", "data"))))


@program()
def roll_of_computed(s):
    def f(x, w):
        y = x @ w
        y = s.each(jnp.tanh, y)
        y = s.shift(lambda v: jnp.roll(v, 2, 1), y)
        return s.each(jnp.sin, y)

    return Program(f, dict(x=A(64, 32, spec=("data",)), w=A(32, 64, spec=(None, "model"))))


@program()
def split_features(s):
    def f(x, w):
        y = x @ w
        u, z = jnp.split(y, 2, -1)
        u = s.each(jax.nn.silu, u)
        return s.each(jnp.multiply, u, z)

    return Program(f, dict(x=A(64, 32, spec=("data",)), w=A(32, 128, spec=(None, "model"))))


@program()
def pad_and_slice(s):
    def f(x):
        p = jnp.pad(x, ((1, 1), (0, 0)))
        a = p[:-2]
        b = p[2:]
        return a + b - 2 * x

    return Program(f, dict(x=A(64, 32, spec=("model",))))


@program()
def shifted_by_slices(s):
    def f(x):
        y = s.shift(lambda v: jnp.concatenate([v[1:], v[:1]], 0), x)
        y = s.each(jnp.sin, y)
        return s.each(half, y)

    return Program(f, dict(x=A(64, 32, spec=("model",))))


@program()
def flip(s):
    def f(x):
        y = s.shift(lambda v: v[::-1], x)
        return s.each(jnp.sin, y)

    return Program(f, dict(x=A(64, 32, spec=("model", "data"))))


@program()
def halves_exchanged(s):
    def f(x):
        y = s.shift(lambda v: jnp.concatenate([-v[:, 16:], v[:, :16]], -1), x)
        y = s.each(jnp.add, x, y)
        return s.each(half, y)

    return Program(f, dict(x=A(64, 32, spec=("data", "model"))))


@program()
def differences(s):
    def f(x):
        d = x[1:] - x[:-1]
        return jnp.abs(d).sum()

    return Program(f, dict(x=A(64, 32, spec=("model",))))


@program()
def one_row(s):
    def f(x):
        row = x[5]
        row = s.each(jnp.sin, row)
        return row * x

    return Program(f, dict(x=A(64, 32, spec=("model",))))


@program()
def strided_slice(s):
    def f(x):
        y = x[::2]
        return s.each(jnp.sin, y)

    return Program(f, dict(x=A(64, 32, spec=("model",))))


# -- loops -----------------------------------------------------------------------------------------


@program()
def loop_keeps_two(s):
    def f(q):
        def body(q, _):
            q2 = jnp.sin(q)
            q2 = s.keep(q2, None, "model")
            q2 = s.each(half, q2)
            return s.keep(q2, "model", None), None

        return lax.scan(body, q, None, length=3)[0]

    return Program(f, dict(q=A(64, 32, spec=("model",))))


@program()
def loop_keeps_one(s):
    def f(q):
        def body(q, _):
            q2 = jnp.sin(q)
            q2 = s.keep(q2, None, "model")
            return s.each(half, q2), None

        return lax.scan(body, q, None, length=3)[0]

    return Program(f, dict(q=A(64, 32, spec=("model",))))


@program()
def loop_sequence_parallel(s):
    def f(x, ws):
        def body(x, w):
            h = s.keep(x, "data", "model", None)
            h = h @ w
            return h + jnp.tanh(h), None

        return lax.scan(body, x, ws)[0]

    return Program(f, dict(x=A(8, 64, 32, spec=("data", None, "model")), ws=A(3, 32, 32)))


@program()
def loop_cumsum(s):
    def f(x):
        def body(i, x):
            y = s.keep(x, None, "model", None)
            y = jnp.cumsum(y, 0)
            return s.each(half, y)

        return lax.fori_loop(0, 3, body, x)

    return Program(f, dict(x=A(8, 64, 32, spec=("model",))))


@program()
def loop_two_carried(s):
    def f(q, k):
        def body(c, _):
            q, k = c
            q2 = jnp.sin(q)
            q2 = s.keep(q2, None, "model")
            q2 = s.each(half, q2)
            k = jnp.cos(k)
            return (s.keep(q2, "model", None), k), None

        return lax.scan(body, (q, k), None, length=3)[0]

    return Program(f, dict(q=A(64, 32, spec=("data",)), k=A(64, 32, spec=(None, "data"))))


@program()
def loop_layers_tensor(s):
    def f(x, w1, w2):
        def body(x, w):
            h = x @ w[0]
            h = s.each(jnp.tanh, h)
            return h @ w[1], None

        return lax.scan(body, x, (w1, w2))[0]

    return Program(f, dict(x=A(64, 32, spec=("data",)), w1=A(3, 32, 64, spec=(None, None, "model")),
                           w2=A(3, 64, 32, spec=(None, "model"))))  # fmt: skip


@program()
def loop_layers_fsdp(s):
    def f(x, ws):
        def body(x, w):
            h = x @ w
            return s.each(jnp.tanh, h), None

        return lax.scan(body, x, ws)[0]

    return Program(f, dict(x=A(64, 32, spec=("data",)), ws=A(3, 32, 32, spec=(None, "data"))))


@program()
def loop_layers_by_constraint(s):
    def f(x, ws):
        def body(x, w):
            w = s.keep(w, None, "model")
            h = x @ w
            h = s.keep(h, "data", None)
            return s.each(jnp.tanh, h), None

        return lax.scan(body, x, ws)[0]

    return Program(f, dict(x=A(64, 32, spec=("data",)), ws=A(3, 32, 32)))


@program()
def loop_rolls(s):
    def f(x):
        def body(i, x):
            up = s.shift(lambda v: jnp.roll(v, 1, 0), x)
            dn = s.shift(lambda v: jnp.roll(v, -3, 0), x)
            y = s.each(jnp.add, up, dn)
            return s.each(half, y)

        return lax.fori_loop(0, 10, body, x)

    return Program(f, dict(x=A(64, 32, spec=("model",))))


@program()
def loop_two_rolled(s):
    def f(u, v):
        def body(i, c):
            u, v = c
            a = s.shift(lambda z: jnp.roll(z, 1, 0), u)
            d = s.shift(lambda z: jnp.roll(z, 1, 1), v)
            return v * 0.5 + a, u + d

        return lax.fori_loop(0, 10, body, (u, v))

    return Program(f, dict(u=A(64, 32, spec=("model",)), v=A(64, 32, spec=(None, "data"))))


@program()
def loop_wave(s):
    def f(u, w):
        def body(i, c):
            u, w = c
            a = s.shift(lambda z: jnp.roll(z, 1, 0), u)
            b = s.shift(lambda z: jnp.roll(z, -2, 0), u)
            return u + 0.1 * w, w + 0.1 * (a + b - 2 * u)

        return lax.fori_loop(0, 5, body, (u, w))

    return Program(f, dict(u=A(64, 32, spec=("model",)), w=A(64, 32, spec=("model",))))


@program()
def loop_padded(s):
    def f(u):
        def body(i, u):
            p = jnp.pad(u, ((1, 1), (0, 0)))
            a = p[:-2]
            b = p[2:]
            return u + (a + b - 2 * u) * 0.1

        return lax.fori_loop(0, 7, body, u)

    return Program(f, dict(u=A(64, 32, spec=("model",))))


@program()
def loop_shift_register(s):
    def f(u, xs):
        def body(c, x):
            y = s.shift(lambda v: jnp.concatenate([v[1:], v[:1]], 0), c)
            y = s.each(jnp.sin, y)
            return y * x, None

        return lax.scan(body, u, xs)[0]

    return Program(f, dict(u=A(64, 32, spec=("model",)), xs=A(5, 64, 32)))


@program()
def loop_reduces(s):
    def f(x, ws):
        def body(c, w):
            m = c.mean(0)
            c = c - m
            return s.each(jnp.tanh, c) * w, None

        return lax.scan(body, x, ws)[0]

    return Program(f, dict(x=A(64, 32, spec=("data",)), ws=A(4, 32)))


@program()
def loop_gathers_output(s):
    def f(x, ws):
        def body(c, w):
            c = c @ w
            c = s.each(jnp.tanh, c)
            y = s.keep(c, None, None)
            return c, y

        return lax.scan(body, x, ws)[1]

    return Program(f, dict(x=A(64, 32, spec=("data",)), ws=A(4, 32, 32)))


@program()
def loop_in_loop(s):
    def f(x, ws):
        def outer(x, w):
            def inner(i, x):
                y = s.keep(x, None, "model")
                y = s.each(jnp.sin, y)
                return s.keep(y, "model", None)

            return lax.fori_loop(0, 2, inner, x) * w, None

        return lax.scan(outer, x, ws)[0]

    return Program(f, dict(x=A(64, 32, spec=("model",)), ws=A(3, 32)))


@program()
def loop_output_layout(s):
    def f(x):
        def body(i, x):
            y = s.each(jnp.sin, x)
            return s.each(half, y)

        return lax.fori_loop(0, 4, body, x)

    return Program(f, dict(x=A(64, 32, spec=("model",))), out=(None, "model"))


@program()
def loop_while(s):
    def f(x):
        def more(x):
            return jnp.max(jnp.abs(x)) > 1

        def body(x):
            return s.each(half, x)

        return lax.while_loop(more, body, x)

    return Program(f, dict(x=A(64, 32, spec=("data", "model"))))


@program()
def branch_gathers(s):
    def f(p, x):
        def one(x):
            y = s.keep(x, None, None)
            return jnp.sort(y, 0)

        def two(x):
            return s.each(jnp.sin, x)

        return lax.cond(p, one, two, x)

    return Program(f, dict(p=A(dtype=jnp.bool_), x=A(64, 32, spec=("model",))))


# -- derivatives -----------------------------------------------------------------------------------


@program(data=8)
def data_parallel(s):
    def f(w, x, y):
        def loss(w):
            h = jnp.tanh(x @ w["a"])
            return jnp.mean((h @ w["b"] - y) ** 2)

        return jax.tree.map(lambda p, g: p - 0.1 * g, w, jax.grad(loss)(w))

    return Program(f, dict(w=dict(a=A(32, 64), b=A(64, 16)), x=A(64, 32, spec=("data",)),
                           y=A(64, 16, spec=("data",))))  # fmt: skip


@program()
def tensor_parallel_step(s):
    def f(w, x):
        def loss(w):
            h = x @ w["a"]
            h = s.each(jnp.tanh, h)
            return jnp.mean((h @ w["b"]) ** 2)

        return jax.tree.map(lambda p, g: p - 0.1 * g, w, jax.grad(loss)(w))

    return Program(f, dict(w=dict(a=A(32, 64, spec=(None, "model")), b=A(64, 16, spec=("model",))),
                           x=A(64, 32, spec=("data",))))  # fmt: skip


@program(data=8)
def fsdp_step(s):
    def f(w, x):
        def loss(w):
            h = x @ w["a"]
            h = s.each(jnp.tanh, h)
            return jnp.mean((h @ w["b"]) ** 2)

        return jax.tree.map(lambda p, g: p - 0.1 * g, w, jax.grad(loss)(w))

    return Program(f, dict(w=dict(a=A(32, 64, spec=("data",)), b=A(64, 32, spec=("data",))),
                           x=A(64, 32, spec=("data",))))  # fmt: skip


@program(data=8)
def zero_one(s):
    def f(w, m, x):
        def loss(w):
            return jnp.mean(jnp.tanh(x @ w) ** 2)

        g = jax.grad(loss)(w)
        g = s.keep(g, "data", None)
        m = 0.9 * m + g
        w = w - 0.1 * m
        return s.keep(w, None, None), m

    return Program(f, dict(w=A(32, 64), m=A(32, 64, spec=("data",)), x=A(64, 32, spec=("data",))))


@program()
def step_in_loop(s):
    def f(ws, x):
        def loss(ws):
            def body(x, w):
                h = x @ w["a"]
                h = s.each(jnp.tanh, h)
                return h @ w["b"], None

            return jnp.mean(lax.scan(body, x, ws)[0] ** 2)

        return jax.tree.map(lambda p, g: p - 0.1 * g, ws, jax.grad(loss)(ws))

    return Program(f, dict(ws=dict(a=A(3, 32, 64, spec=(None, None, "model")),
                                   b=A(3, 64, 32, spec=(None, "model"))),
                           x=A(64, 32, spec=("data",))))  # fmt: skip


@program(data=8)
def step_in_loop_remat(s):
    def f(ws, x):
        def loss(ws):
            @jax.checkpoint
            def body(x, w):
                h = x @ w
                return s.each(jnp.tanh, h), None

            return jnp.mean(lax.scan(body, x, ws)[0] ** 2)

        return jax.tree.map(lambda p, g: p - 0.1 * g, ws, jax.grad(loss)(ws))

    return Program(f, dict(ws=A(3, 32, 32, spec=(None, "data")), x=A(64, 32, spec=("data",))))


@program()
def microbatches(s):
    def f(w, xs):
        def loss(w, x):
            return jnp.mean(jnp.tanh(x @ w) ** 2)

        def body(g, x):
            return g + jax.grad(loss)(w, x), None

        g, _ = lax.scan(body, jnp.zeros((32, 64)), xs)
        return w - 0.1 * g

    return Program(f, dict(w=A(32, 64), xs=A(4, 64, 32, spec=(None, "data"))))


@program()
def cross_entropy(s):
    def f(w, x, y):
        def loss(w):
            z = jnp.tanh(x @ w["h"]) @ w["o"]
            z = jax.nn.log_softmax(z)
            return -jnp.take_along_axis(z, y[:, None], 1).mean()

        return jax.grad(loss)(w)

    return Program(f, dict(w=dict(h=A(32, 64), o=A(64, 256, spec=(None, "model"))),
                           x=A(16, 32, spec=("data",)), y=A(16, spec=("data",), dtype=jnp.int32)))  # fmt: skip


@program()
def adafactor(s):
    def f(w, r, c, x):
        def loss(w):
            return jnp.mean(jnp.tanh(x @ w) ** 2)

        g = jax.grad(loss)(w)
        r = 0.9 * r + 0.1 * (g * g).mean(1)
        c = 0.9 * c + 0.1 * (g * g).mean(0)
        u = g * lax.rsqrt(r[:, None] * c[None] / r.mean())
        u = u / jnp.maximum(1.0, jnp.sqrt((u * u).mean()))
        return w - 0.1 * jnp.sqrt((w * w).mean()) * u, r, c

    return Program(f, dict(w=A(32, 64, spec=("data", "model")), r=A(32), c=A(64),
                           x=A(64, 32, spec=("data",))))  # fmt: skip


@program()
def clipped_gradients(s):
    def f(w, x):
        def loss(w):
            h = jnp.tanh(x @ w["a"])
            return jnp.mean((h @ w["b"]) ** 2)

        g = jax.grad(loss)(w)
        n = jnp.sqrt(sum(jnp.sum(v * v) for v in jax.tree.leaves(g)))
        return jax.tree.map(lambda p, v: p - 0.1 * v / jnp.maximum(n, 1.0), w, g)

    return Program(f, dict(w=dict(a=A(32, 64, spec=(None, "model")), b=A(64, 16, spec=("model",))),
                           x=A(64, 32, spec=("data",))))  # fmt: skip


@program()
def activation_constraints_step(s):
    def f(w, x):
        def loss(w):
            h = x @ w["a"]
            h = s.keep(h, "data", "model")
            h = jnp.tanh(h)
            y = h @ w["b"]
            y = s.keep(y, "data", None)
            return jnp.mean(y**2)

        return jax.tree.map(lambda p, g: p - 0.1 * g, w, jax.grad(loss)(w))

    return Program(f, dict(w=dict(a=A(32, 64), b=A(64, 16)), x=A(64, 32, spec=("data",))))


# -- written by name ------------------------------------------------------------------------------


def _mapped(s: Switches, f: Any, ins: Any, out: Any) -> Any:
    return jax.shard_map(f, mesh=s.mesh, in_specs=ins, out_specs=out, check_vma=False)


@program()
def psum_by_name(s):
    def f(x, w):
        def local(x, w):
            y = x @ w
            y = s.named(lambda v: lax.psum(v, "model"), y, half)
            return jnp.tanh(y)

        return _mapped(s, local, (P("data", "model"), P("model")), P("data"))(x, w)

    return Program(f, dict(x=A(64, 32, spec=("data", "model")), w=A(32, 64, spec=("model",))))


@program()
def gathers_by_name(s):
    def f(x, w):
        def local(x, w):
            w = s.named(
                lambda v: lax.all_gather(v, "data", tiled=True), w, lambda v: jnp.tile(v, (2, 1))
            )
            y = x @ w
            y = s.named(lambda v: lax.pmean(v, "model"), y, half)
            return y

        return _mapped(s, local, (P("data"), P("data")), P("data"))(x, w)

    return Program(f, dict(x=A(64, 32, spec=("data",)), w=A(32, 64, spec=("data",))))


@program()
def scatter_by_name(s):
    def f(x, w):
        def local(x, w):
            y = x @ w
            y = s.named(
                lambda v: lax.psum_scatter(v, "model", scatter_dimension=1, tiled=True),
                y, lambda v: v[:, ::4],
            )  # fmt: skip
            return jnp.tanh(y)

        return _mapped(s, local, (P("data", "model"), P("model")), P("data", "model"))(x, w)

    return Program(f, dict(x=A(64, 32, spec=("data", "model")), w=A(32, 64, spec=("model",))))


@program()
def ring_by_name(s):
    def f(x):
        def local(x):
            def body(i, c):
                k, total = c
                k = s.named(
                    lambda v: lax.ppermute(v, "model", [(n, (n + 1) % 4) for n in range(4)]),
                    k,
                    half,
                )
                return k, total + k

            return lax.fori_loop(0, 3, body, (x, x))[1]

        return _mapped(s, local, P("data", "model"), P("data", "model"))(x)

    return Program(f, dict(x=A(64, 32, spec=("data", "model"))))


@program()
def exchange_by_name(s):
    def f(x):
        def local(x):
            y = s.named(
                lambda v: lax.all_to_all(v, "model", 1, 0, tiled=True), x,
                lambda v: v.reshape(-1, v.shape[1] // 4),
            )  # fmt: skip
            return jnp.sin(y)

        return _mapped(s, local, P("model", "data"), P(None, ("data", "model")))(x)

    return Program(f, dict(x=A(64, 32, spec=("model", "data"))))


@program()
def custom_rule(s):
    def f(w, x):
        @jax.custom_vjp
        def copy(x):
            return x

        def bwd(_, g):
            g = s.named(lambda v: lax.psum(v, "model"), g, half)
            return (g,)

        copy.defvjp(lambda x: (x, None), bwd)

        def local(w, x):
            return jax.grad(lambda x: jnp.sum(jnp.tanh(copy(x) @ w)))(x)

        return _mapped(s, local, (P(None, "model"), P()), P())(w, x)

    return Program(f, dict(w=A(64, 64, spec=(None, "model")), x=A(32, 64)))


@program()
def mapped_then_moved(s):
    def f(x, w):
        def local(a):
            y = a.sum(0)
            return s.named(lambda v: lax.psum(v, "data"), y, half)

        y = _mapped(s, local, P("data"), P())(x)
        y = s.keep(y, "model")
        return y + jnp.sin(w).sum(0)

    return Program(f, dict(x=A(64, 32, spec=("data",)), w=A(32, 32, spec=("model",))))


@program()
def mapped_needs_another(s):
    def f(x):
        def local(a):
            return jnp.cumsum(a, 0)

        y = s.each(jnp.sin, x)
        return _mapped(s, local, P(None, "model"), P(None, "model"))(y)

    return Program(f, dict(x=A(64, 32, spec=("model",))))
