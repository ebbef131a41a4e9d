"""What a person hands to ``capture``, as a function of ``jax.jit`` or one of jax's stages.

Libraries wrap ``jax.jit`` and what it returns (Flax's ``nnx.jit``, Equinox's ``filter_jit``,
``jax.pmap``): inside is a ``Traced``, ``Lowered`` or ``Compiled`` of jax, with the arguments in
an order and under names of the library's own. The leaves that reach jax are the same objects
that the person gave, so each gets the name that it has in the call as it was written.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from typing import Any

import jax

from .compat import inner_call
from .compat import jax_api as _compat
from .placing import as_arrays, positional_names, without_values

STAGES = (jax.stages.Lowered, jax.stages.Compiled, jax.stages.Traced)


def stage_of(value: Any) -> Any:
    """The stage of jax that ``value`` is or wraps; None if it is none."""
    if isinstance(value, STAGES):
        return value
    for name in ("traced", "lowered", "compiled"):
        inner = getattr(value, name, None)
        if isinstance(inner, STAGES):
            return inner
    return None


def unbound(fn: Any, args: Any, kwargs: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A jitted function out of a bound method or ``functools.partial``, with their arguments."""
    while True:
        if isinstance(fn, types.MethodType) and hasattr(fn.__func__, "lower"):
            fn, args = fn.__func__, (fn.__self__, *args)
        elif isinstance(fn, functools.partial) and hasattr(fn.func, "lower"):
            fn, args, kwargs = fn.func, (*fn.args, *args), {**fn.keywords, **kwargs}
        else:
            return fn, tuple(args), dict(kwargs)


def is_of_library(fn: Any) -> bool:
    """Whether something else than ``jax.jit`` made this jitted function."""
    return hasattr(fn, "lower") and not _compat.is_jit(fn)


def trace(jitted: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The ``Traced`` of a call, or its ``Lowered`` where there is no such; jax's own."""
    if not is_of_library(jitted):
        return jitted.trace(*args, **kwargs)
    args, kwargs = as_arrays(args), as_arrays(dict(kwargs))
    with inner_call.recorded(without_values) as seen:
        if hasattr(jitted, "trace"):
            made = stage_of(jitted.trace(*args, **kwargs))
        else:
            made = seen.traced_by(lambda: jitted.lower(*args, **kwargs))
    made = stage_of(made)
    if seen.leaves is not None and isinstance(made, jax.stages.Traced):
        names = _names(jitted, args, kwargs)
        arrays = [leaf for leaf in seen.leaves if hasattr(leaf, "dtype")]  # not static ones
        _compat.rename_arguments(made, [names.get(id(leaf)) for leaf in arrays])
    return made


def inner_arguments(
    jitted: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of jax.jit inside a library's function: what its compiled program takes."""
    if not is_of_library(jitted):
        return args, dict(kwargs)
    with inner_call.recorded(without_values) as seen:
        seen.traced_by(lambda: jitted.lower(*args, **kwargs))
    return (args, dict(kwargs)) if seen.arguments is None else seen.arguments


def _names(fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[int, str]:
    """Each leaf's path in the call: ``model.layers[0].weight``."""
    found: dict[int, str] = {}
    names = positional_names(getattr(fn, "__wrapped__", fn), len(args))
    for name, value in [*zip(names, args, strict=True), *kwargs.items()]:
        for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
            found.setdefault(id(leaf), name + jax.tree_util.keystr(path))
    return found
