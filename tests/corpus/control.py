"""Loops, branches and structure: what calls what."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .registry import Made, array, program


@program("a while whose trip count is not known", contains=("while",))
def while_unknown(mesh: None) -> Made:
    def f(x: jax.Array, limit: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda c: c.sum() < limit, lambda c: c * 2.0 + 1.0, x)

    return Made(jax.jit(f), (array(None, (32,)), array(None, ())))


@program("a fori_loop of 16 steps around a matmul", contains=("while",))
def fori_matmul(mesh: None) -> Made:
    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 16, lambda i, c: jnp.tanh(c @ w), x)

    return Made(jax.jit(f), (array(None, (32, 64)), array(None, (64, 64))))


@program("a loop inside a loop: 5 × 7", contains=("while",))
def nested_loops(mesh: None) -> Made:
    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        def inner(i: Any, c: jax.Array) -> jax.Array:
            return jnp.sin(c @ w)

        return jax.lax.fori_loop(0, 5, lambda i, c: jax.lax.fori_loop(0, 7, inner, c) + 1, x)

    return Made(jax.jit(f), (array(None, (16, 16)), array(None, (16, 16))))


@program("cond with two branches that differ in work", contains=("conditional",))
def cond_branches(mesh: None) -> Made:
    def f(flag: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.cond(flag, lambda y: jnp.sin(y @ y), lambda y: y - 1.0, x)

    return Made(jax.jit(f), (array(None, (), dtype=jnp.bool_), array(None, (32, 32))))


@program("switch over four branches", contains=("conditional",))
def switch_four(mesh: None) -> Made:
    branches = [jnp.sin, jnp.cos, lambda y: y @ y, lambda y: jnp.linalg.norm(y) * y]

    def f(which: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.switch(which, branches, x)

    return Made(jax.jit(f), (array(None, (), dtype=jnp.int32), array(None, (16, 16))))


@program("a loop whose body branches, and a branch that loops", contains=("while", "conditional"))
def loops_and_branches(mesh: None) -> Made:
    def body(i: Any, c: jax.Array) -> jax.Array:
        return jax.lax.cond(i % 2 == 0, lambda v: jnp.sin(v @ v), lambda v: v - 1.0, c)

    def f(flag: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.cond(flag, lambda v: jax.lax.fori_loop(0, 6, body, v), jnp.cos, x)

    return Made(jax.jit(f), (array(None, (), dtype=jnp.bool_), array(None, (16, 16))))


@program("an LSTM over 12 steps: scan with a tuple carry and stacked outputs", contains=("while",))
def lstm_scan(mesh: None) -> Made:
    def cell(carry: Any, x: jax.Array, w: jax.Array) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(jnp.concatenate([x, h], -1) @ w, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    def f(w: jax.Array, xs: jax.Array) -> Any:
        zeros = jnp.zeros((8, 16))
        return jax.lax.scan(lambda s, x: cell(s, x, w), (zeros, zeros), xs)

    return Made(jax.jit(f), (array(None, (32, 64)), array(None, (12, 8, 16))))


@program("its gradient: a second loop that runs backward over saved values", contains=("while",))
def scan_gradient(mesh: None) -> Made:
    def f(w: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda c, _: (jnp.tanh(c @ w), None), x, length=10)[0].sum()

    return Made(jax.jit(jax.grad(f)), (array(None, (16, 16)), array(None, (4, 16))))


@program("an associative scan: slices, pads and no loop")
def associative_scan(mesh: None) -> Made:
    def combine(a: Any, b: Any) -> Any:
        return a[0] * b[0], a[1] * b[0] + b[1]

    def f(a: jax.Array, b: jax.Array) -> Any:
        return jax.lax.associative_scan(combine, (a, b), axis=0)

    return Made(jax.jit(f), (array(None, (64, 8)), array(None, (64, 8))))


@program("lax.map in batches", contains=("while",))
def mapped(mesh: None) -> Made:
    def f(xs: jax.Array) -> jax.Array:
        return jax.lax.map(lambda x: jnp.linalg.norm(x @ x), xs, batch_size=4)

    return Made(jax.jit(f), (array(None, (16, 8, 8)),))


@program("vmap of a while loop: a batched predicate", contains=("while",))
def batched_while(mesh: None) -> Made:
    def f(x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda v: v < 100.0, lambda v: v * v + 1.0, x)

    return Made(jax.jit(jax.vmap(f)), (array(None, (32,)),))


@program("results nested four tuples deep, with a dict, None and repeats")
def nested_tuples(mesh: None) -> Made:
    def f(x: jax.Array) -> Any:
        return {"a": (x, (x + 1, [x * 2, (x.sum(), {"deep": jnp.sin(x)})])), "b": None, "c": x}

    return Made(jax.jit(f), (array(None, (4, 4)),))


@program("functions jitted inside, one called twice")
def inner_jits(mesh: None) -> Made:
    @jax.jit
    def inner(x: jax.Array) -> jax.Array:
        return jnp.tanh(x) @ x

    def f(x: jax.Array, y: jax.Array) -> jax.Array:
        return inner(x) + inner(y)

    return Made(jax.jit(f), (array(None, (16, 16)), array(None, (16, 16))))


@program("a custom derivative rule and an optimisation barrier")
def custom_rule(mesh: None) -> Made:
    @jax.custom_vjp
    def clip(x: jax.Array) -> jax.Array:
        return jnp.clip(x, -1, 1)

    clip.defvjp(lambda x: (clip(x), x), lambda x, g: (jnp.where(jnp.abs(x) < 1, g, 0.1 * g),))

    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        return clip(jax.lax.optimization_barrier(x @ w)).sum()

    return Made(jax.jit(jax.grad(f)), (array(None, (8, 16)), array(None, (16, 16))))


@program("an argument nobody uses, one returned as it is, and a donated one")
def unused_and_donated(mesh: None) -> Made:
    def f(state: dict[str, jax.Array], unused: jax.Array, same: jax.Array) -> Any:
        return {k: v * 0.9 for k, v in state.items()}, same

    state = {"m": array(None, (64, 64)), "v": array(None, (32,))}
    fn = jax.jit(f, donate_argnums=0)
    return Made(fn, (state, array(None, (5,)), array(None, (3, 3))))


@program("scope names that look like markup and code")
def hostile_names(mesh: None) -> Made:
    def f(x: jax.Array) -> jax.Array:
        with jax.named_scope('<img src=x onerror="alert(1)">'):
            x = jnp.sin(x) @ x
        with jax.named_scope("</script><script>alert(2)</script> {%braces%}, a=b"):
            return jnp.cos(x) @ x

    return Made(jax.jit(f), (array(None, (16, 16)),))
