"""Which optimiser updates the parameters, from the names its instructions carry."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..base.table import Ints, table

if TYPE_CHECKING:
    from ...hlo import Module

# A word in a function's or scope's name → the optimiser, the most particular first: optax builds
# adamw from scale_by_adam and add_decayed_weights.
_WORDS = (
    ("lamb", "lamb"), ("lion", "lion"), ("adafactor", "adafactor"), ("factored", "adafactor"),
    ("adamax", "adamax"), ("nadam", "nadam"), ("radam", "radam"), ("adadelta", "adadelta"),
    ("adagrad", "adagrad"), ("shampoo", "shampoo"), ("muon", "muon"), ("sophia", "sophia"),
    ("adamw", "adamw"), ("adam", "adam"), ("rmsprop", "rmsprop"), ("scale by rms", "rmsprop"),
    ("lars", "lars"), ("trust ratio", "lamb"), ("momentum", "momentum"), ("sgd", "sgd"),
)  # fmt: skip


def optimiser_name(module: Module, rows: Ints) -> str:
    """``adamw``, or "" where no name tells."""
    t = table(module)
    names = {t.places[n] for n in set(t.place[rows].tolist())}
    frames, ids = module.source_frames()
    functions: dict[str, None] = {}
    for frame in {ids[r] for r in rows.tolist()} - {0}:
        for f in frames.stack(frame):
            functions[f.function or ""] = None
    return _named([*functions, *names]) or _named(frames.functions)


def _named(names: Iterable[str]) -> str:
    text = re.sub(r"[^a-z]+", " ", " ".join(names).lower())
    words = set(text.split())
    for word, found in _WORDS:
        if word in words or (" " in word and word in text):
            return "adamw" if found == "adam" and {"decayed", "decay"} & words else found
    return ""
