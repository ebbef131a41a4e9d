"""A model cut into layers: given as functions, or one function with marks in it.

A mark is ``jax.ad_checkpoint.checkpoint_name(x, "stage")``: what comes after belongs to the next
layer. Everything live at a mark is passed on, so residual connections may cross it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from ..errors import CaptureError
from .sharded import abstract

MARK = "stage"


@dataclass(frozen=True, eq=False)
class Piece:
    """One layer: ``run(params, values)`` → values, with the shapes of both."""

    name: str
    run: Callable[[Any, tuple[Any, ...]], tuple[Any, ...]]
    params: Any
    values: tuple[Any, ...]


def from_functions(layers: Sequence[Any], args: Sequence[Any]) -> list[Piece]:
    """Layers from ``(function, params)`` pairs, each ``function(params, *values)``.

    Raises ``CaptureError`` naming the layer that does not take what the one before returns.
    """
    values = abstract(args, {})[0]
    out = []
    for n, layer in enumerate(layers):
        if not (isinstance(layer, tuple | list) and len(layer) == 2 and callable(layer[0])):
            raise CaptureError(
                f"layer {n} is not a pair (function, params): {type(layer).__name__}"
            )
        fn, params = layer
        params = abstract((params,), {})[0][0]

        def run(p: Any, v: tuple[Any, ...], fn: Any = fn) -> tuple[Any, ...]:
            made = fn(p, *v)
            return tuple(made) if isinstance(made, tuple | list) else (made,)

        try:
            after = jax.eval_shape(run, params, values)
        except Exception as error:
            first = (str(error).strip().splitlines() or [""])[0][:200]
            raise CaptureError(
                f"layer {n} cannot be traced on what comes before it: "
                f"{type(error).__name__}: {first}"
            ) from error
        out.append(Piece(f"{getattr(fn, '__name__', 'layer')} {n}", run, params, values))
        values = tuple(after)
    return out


def from_marks(fn: Any, args: Sequence[Any]) -> list[Piece]:
    """One function cut at its marks. Its first argument is the parameters.

    Raises ``CaptureError`` for a function without marks.
    """
    args = abstract(args, {})[0]
    pieces = _cut(fn, args)
    return [Piece(p.name, _Marked(fn, args, n), p.params, p.values) for n, p in enumerate(pieces)]


class _Marked:
    """Layer n of a function with marks. Pickled as function and shapes, as jaxprs cannot be."""

    def __init__(self, fn: Any, args: Any, n: int) -> None:
        self.fn, self.args, self.n = fn, args, n
        self._run: Any = None

    def __call__(self, params: Any, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if self._run is None:
            self._run = _cut(self.fn, self.args)[self.n].run
        return tuple(self._run(params, values))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_run": None}


def _cut(fn: Any, args: Any) -> list[Piece]:
    closed = jax.make_jaxpr(fn)(*args)
    jaxpr = closed.jaxpr
    cuts = [
        n
        for n, e in enumerate(jaxpr.eqns)
        if e.primitive.name == "name" and e.params.get("name") == MARK
    ]
    if not cuts:
        raise CaptureError(
            "the function has no marks: put jax.ad_checkpoint.checkpoint_name(x, "
            f'"{MARK}") between layers, or give a list of (function, params)'
        )
    count = len(jax.tree.leaves(args[0]))
    params = list(jaxpr.invars[:count])
    bounds = [0, *(n + 1 for n in cuts), len(jaxpr.eqns)]
    shape_of = {v: jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in jaxpr.invars}
    constants = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    inside = list(jaxpr.invars[count:])
    out = []
    for k, (a, b) in enumerate(pairwise(bounds)):
        eqns = jaxpr.eqns[a:b]
        later = {v for e in jaxpr.eqns[b:] for v in e.invars if not _is_literal(v)}
        later |= {v for v in jaxpr.outvars if not _is_literal(v)}
        made = {v for e in eqns for v in e.outvars}
        last = b == len(jaxpr.eqns)
        after = (
            list(jaxpr.outvars)
            if last
            else [v for v in (*inside, *(o for e in eqns for o in e.outvars)) if v in later]
        )
        used = {v for e in eqns for v in e.invars if not _is_literal(v)}
        own = [v for v in params if v in used]
        piece = _segment(eqns, own, tuple(inside), tuple(after), constants)
        shapes = tuple(shape_of[v] for v in inside)
        out.append(Piece(f"layer {k}", piece, tuple(shape_of[v] for v in own), shapes))
        for v in made:
            if hasattr(v.aval, "shape"):
                shape_of[v] = jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype)
        inside = after
    return out


def _is_literal(v: Any) -> bool:
    return hasattr(v, "val")


def _segment(
    eqns: Sequence[Any],
    own: Sequence[Any],
    inside: tuple[Any, ...],
    after: tuple[Any, ...],
    constants: dict[Any, Any],
) -> Callable[[Any, tuple[Any, ...]], tuple[Any, ...]]:
    effects = frozenset().union(*(e.effects for e in eqns))
    given = (*own, *inside)
    about = jax.api_util.debug_info("stage", lambda *xs: xs, given, {})
    about = about._replace(result_paths=("",) * len(after))
    part = core.Jaxpr(tuple(constants), given, after, tuple(eqns), effects, debug_info=about)
    call = core.jaxpr_as_fun(core.ClosedJaxpr(part, list(constants.values())))

    def run(params: Any, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(call(*params, *values))

    return run


def programs(pieces: Sequence[Piece]) -> tuple[Any, tuple[Any, ...], Any, tuple[Any, ...]]:
    """Some layers as one stage: (forward, its arguments, both passes, their arguments).

    ``forward(params, values)``; ``both(params, values, gradients)`` returns the values, the
    gradients of the parameters and of the inputs.
    """
    runs = [p.run for p in pieces]
    params = tuple(p.params for p in pieces)
    values = pieces[0].values

    def forward(params: Any, values: Any) -> Any:
        for run, p in zip(runs, params, strict=True):
            values = run(p, values)
        return values

    made = jax.eval_shape(forward, params, values)
    floats = [_is_float(v) for v in values]
    results = [_is_float(v) for v in made]

    def both(params: Any, values: Any, gradients: Any) -> Any:
        def some(params: Any, given: Any) -> Any:
            rest = iter(given)
            mixed = tuple(next(rest) if f else v for f, v in zip(floats, values, strict=True))
            out = forward(params, mixed)
            return [v for v, f in zip(out, results, strict=True) if f]

        given = [v for v, f in zip(values, floats, strict=True) if f]
        out, back = jax.vjp(some, params, given)
        return out, back(gradients)

    gradients = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v, f in
                 zip(made, results, strict=True) if f]  # fmt: skip
    return forward, (params, values), both, (params, values, gradients)


def _is_float(v: Any) -> bool:
    return bool(jnp.issubdtype(v.dtype, jnp.inexact))


def bytes_of(tree: Any) -> int:
    """Bytes of all arrays in a pytree."""
    return sum(
        int(np.prod(x.shape, dtype=np.int64)) * np.dtype(x.dtype).itemsize
        for x in jax.tree.leaves(tree)
    )
