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
