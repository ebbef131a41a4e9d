"""Programs as people write them, to look at their first picture: ``PROGRAMS`` by name.

Each entry is ``(make, layers)``: ``make()`` gives ``(function, arguments)`` made of shapes
alone, ``layers`` the counts of repeated blocks that a person would draw (of loops: their trips).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import (
    decoders,
    flax_models,
    learners,
    newcomers,
    others,
    outsiders,
    outsiders_flax,
    outsiders_science,
    pairs,
    parallel,
    plain,
    pods,
    samplers,
    sequences,
    strangers,
    strangers_flax,
    tables,
    vision,
)

Made = tuple[Callable[..., Any], tuple[Any, ...]]
PROGRAMS: dict[str, tuple[Callable[[], Made], tuple[int | tuple[int, ...], ...]]] = {
    **decoders.PROGRAMS,
    **flax_models.PROGRAMS,
    **vision.PROGRAMS,
    **parallel.PROGRAMS,
    **plain.PROGRAMS,
    **others.PROGRAMS,
    **sequences.PROGRAMS,
    **learners.PROGRAMS,
    **tables.PROGRAMS,
    **pods.PROGRAMS,
    **pairs.PROGRAMS,
    **newcomers.PROGRAMS,
    **samplers.PROGRAMS,
    **strangers.PROGRAMS,
    **strangers_flax.PROGRAMS,
    **outsiders.PROGRAMS,
    **outsiders_science.PROGRAMS,
    **outsiders_flax.PROGRAMS,
}

# The arguments of these number two blocks of one level only, as those of the other levels change
# the number of channels; the level, of which there are four, is what a person would rather draw.
EITHER = ("unet_levels", "unet_levels_scoped")
