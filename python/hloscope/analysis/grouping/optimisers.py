"""Which optimiser updates the parameters, from the names its instructions carry."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from ..base.phases.phases import OPTIMISER, name_phase
from ..base.table import Ints, table

if TYPE_CHECKING:
    from ...hlo import Module

# Words in functions' or scopes' names → the optimiser, the most specific first: optax builds
# adamw from scale_by_adam and add_decayed_weights, lamb and lars with a trust ratio.
_WORDS = (
    ("lamb", "lamb"), ("lion", "lion"), ("adafactor", "adafactor"), ("factored", "adafactor"),
    ("adamax", "adamax"), ("nadam", "nadam"), ("radam", "radam"), ("adadelta", "adadelta"),
    ("adagrad", "adagrad"), ("scale by rss", "adagrad"), ("shampoo", "shampoo"), ("muon", "muon"),
    ("sophia", "sophia"), ("amsgrad", "amsgrad"), ("novograd", "novograd"), ("yogi", "yogi"),
    ("scale by belief", "adabelief"), ("lars", "lars"), ("adamw", "adamw"), ("adam", "adam"),
    ("rmsprop", "rmsprop"), ("scale by rms", "rmsprop"), ("momentum", "momentum"),
    ("trace locals update", "momentum"), ("sgd", "sgd"),
)  # fmt: skip
_WITH_TRUST = {"adam": "lamb", "momentum": "lars"}

# Work that is somebody's program, not a count or a norm that is reported.
_HEAVY = frozenset(
    """dot convolution ragged-dot while conditional custom-call cholesky triangular-solve sort
    fft""".split()
)


def optimiser_name(module: Module, rows: Ints) -> str:
    """``adamw``, or "" if no name says it."""
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
            if "trust ratio" in text and found in _WITH_TRUST:
                return _WITH_TRUST[found]
            decays = "decayed weights" in text or "weight decay" in text  # a schedule's is another
            return "adamw" if found == "adam" and decays else found
    return ""


def after_updates(module: Module, phase: np.ndarray) -> np.ndarray:
    """Rows that follow the backward pass and are no part of an update: what a model predicts.

    An update ends in a result as large as the argument it replaces. Work of ENTRY that ends in
    other results alone is the program's own, with what its loops and fusions hold. None where
    that would leave no update at all.
    """
    t, entry = table(module), module.entry
    out = np.zeros(len(phase), bool)
    if entry is None or entry.root is None or entry.root.opcode != "tuple":
        return out
    if any(not p.shape.is_array for p in entry.parameters):
        return out
    replaced = {p.shape.dense_text for p in entry.parameters}
    ends = [o.index for o in entry.root.operands if o.shape.dense_text in replaced]
    offsets, values = t.operands.offsets, t.operands.values
    serves = np.zeros(len(phase), bool)
    serves[entry.root.index] = True
    while ends:
        row = ends.pop()
        if not serves[row]:
            serves[row] = True
            ends += values[offsets[row] : offsets[row + 1]].tolist()
    mine = (t.computation == entry.index) & (phase == OPTIMISER) & ~t.silent
    said = np.array([name_phase(n) == OPTIMISER for n in t.places], bool)[t.place]
    out = mine & ~serves & ~said
    heavy = t.by_opcode(lambda o: o in _HEAVY, bool)
    caller, _ = t.caller()
    for c in range(len(t.first)):  # callers come after what they call
        rows = slice(t.first[c], t.first[c] + t.size[c])
        if caller[c] >= 0 and heavy[rows].any():
            heavy[caller[c]] = True
    if not (out & heavy).any():
        return np.zeros(len(phase), bool)
    for c in range(len(t.first) - 1, -1, -1):
        if caller[c] >= 0 and out[caller[c]]:
            out[t.first[c] : t.first[c] + t.size[c]] = True
    updates = (phase == OPTIMISER) & ~t.silent & ~out
    updates[entry.root.index] = False
    return out if updates.any() else np.zeros(len(phase), bool)
