"""``GivenCall``: what ``capture`` was given, to capture it again with changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from ..compat import jax_api as _compat


@dataclass(frozen=True)
class GivenCall:
    """What ``capture`` was given, with shapes in place of arrays, to capture it again."""

    fn: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    options: Mapping[str, Any]  # of ``capture``
    mesh: Any = None  # jax's current mesh at the time
    x64: bool = False
    results: Any = field(default=None, repr=False)  # shapes of what it returns

    @property
    def is_jitted(self) -> bool:
        return hasattr(self.fn, "lower")

    def with_options(self, **options: Any) -> GivenCall:
        return replace(self, options={**self.options, **options})


def recorded(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any], **options: Any) -> GivenCall:
    """A call with shapes in place of arrays, so that it holds none of the person's memory."""

    def shape(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray | jax.Array):
            return leaf
        aval = jax.api_util.shaped_abstractify(leaf)
        placed = getattr(leaf, "committed", False)
        return jax.ShapeDtypeStruct(
            aval.shape,
            aval.dtype,
            sharding=leaf.sharding if placed else None,  # type: ignore[union-attr]
            weak_type=getattr(aval, "weak_type", False),
        )

    return GivenCall(
        fn,
        tuple(jax.tree.map(shape, a) for a in args),
        {k: jax.tree.map(shape, v) for k, v in kwargs.items()},
        options,
        _compat.current_mesh(),
        bool(jax.config.values.get("jax_enable_x64")),
    )
