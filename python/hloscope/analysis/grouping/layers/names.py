"""The name of a stack's layers and their place in the tree, by a scope or a function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ...base.labels.families import ID
from ...base.lines.op_name import BACKWARD, CALLED, FORWARD, LOOPS, Path, common, common_to_most
from ...base.phases.phases import OPTIMISER
from ...base.table import Table
from ..functions import Calls, Mask
from .repeats import Repeats, Stack
from .witness import told_apart

ANCHORS = ("matmul", "convolution", "collective", "custom_call", "control_flow", "linear_algebra")
PHASES = ((FORWARD,), (BACKWARD,))
# Share of the layers' anchors that come from the function that a layer is, as XLA merges some.
ALIKE = 0.95
UNNAMED = "layer"
# One of several that all have the same weights, or none.
ITERATION = "iteration"
Kinds = npt.NDArray[np.uint8]  # one row per instruction


class LayerNames:
    """``path``: the scope of a row, with the layers found so far."""

    def __init__(
        self, t: Table, calls: Calls, phase: Kinds, family: Kinds, path: Callable[[int], Path]
    ) -> None:
        self.t = t
        self.calls = calls
        self.phase = phase
        self.family = family
        self.path = path

    def called(self, found: Repeats, stack: Stack, spine: list[int]) -> tuple[Path, str]:
        """The layers' place and the name of one, by a scope that holds only them or a function."""
        paths = [without_phase(p) for p in map(self.path, spine) if p]
        prefix = common(paths) if paths else ()
        few = 0.1 * len(spine)
        under = self._others(found, lambda r: begins(without_phase(self.path(r)), prefix))
        if prefix and under <= few and prefix[-1] not in LOOPS:
            return prefix[:-1], prefix[-1].removesuffix(CALLED)
        # a collective may belong to several lines, and then has their caller's
        own = [r for r in spine if self.family[r] != ID["collective"]]
        chains = self.calls.chains
        called = Counter(_functions(chains[self.calls.chain[r]]) for r in own if self._known(r))
        shared = common_to_most(called, ALIKE)
        shared = tuple(n for n in shared if n)[: self._called_once(stack)]
        if shared and shared[-1] not in (FORWARD, BACKWARD) and not self._beside(found, shared):
            return prefix, shared[-1]
        return prefix, UNNAMED

    def of_model(self, found: Repeats, recedes: list[bool]) -> dict[int, tuple[Path, str]]:
        """Place and name of the model's own stacks; those of one name by their arguments too."""
        out: dict[int, tuple[Path, str]] = {}
        for n, stack in enumerate(found.stacks):
            if not recedes[n]:
                out[n] = self.called(found, stack, [r for s in stack.spine for r in s])
        for same in set(out.values()):
            mine = [n for n, place in out.items() if place == same]
            words = told_apart(self.t, [found.stacks[n].spine for n in mine])
            for n, word in zip(mine, words, strict=False):
                if word:
                    out[n] = (same[0], f"{word} {same[1]}")
        return out

    def _known(self, row: int) -> bool:
        return bool(self.calls.chain[row] >= 0)

    def _called_once(self, stack: Stack) -> int:
        """The depth of calls down to which a layer is a single call: it may call others twice."""
        chains, depths = self.calls.chains, Counter[int]()
        for layer in zip(*stack.spine, strict=True):
            rows = [r for r in layer if self._known(r) and self.family[r] != ID["collective"]]
            whole = {chains[self.calls.chain[r]] for r in rows}
            if whole:
                shortest, first = min(map(len, whole)), min(whole)
                same = (all(c[n] == first[n] for c in whole) for n in range(shortest))
                depths[next((n for n, alike in enumerate(same) if not alike), shortest)] += 1
        return depths.most_common(1)[0][0] if depths else 0

    def _beside(self, found: Repeats, shared: Path) -> bool:
        """Whether a function has lines that no layer has: ``loss`` is not a layer.

        What comes from a layer's own lines is the layer's, even outside of layers. And a
        function that calls the optimiser is the step.
        """
        chain, rows = self.calls.chain, np.arange(len(found.position)) + found.first
        inside = found.position >= 0
        pairs = np.stack([chain[rows[inside]], found.position[inside]])
        in_layers = Counter(np.unique(pairs, axis=1)[0].tolist())
        known = {k for k, count in in_layers.items() if count > 1}
        loud = ~inside & self.calls.own[rows] & ~self.t.silent[rows]
        updates = loud & (self.phase[rows] == OPTIMISER)

        def functions(mask: Mask) -> list[Path]:
            here = set(np.unique(chain[rows[mask]]).tolist()) - known - {-1}
            return [_functions(self.calls.chains[k]) for k in here]

        return any(names[:-1] == shared for names in functions(loud & ~updates)) or any(
            begins(names, shared) for names in functions(updates)
        )

    def _others(self, found: Repeats, test: Callable[[int], bool]) -> int:
        """How many anchors outside all layers pass ``test``."""
        outside = np.flatnonzero(found.position < 0) + found.first
        loud = outside[np.isin(self.family[outside], [ID[f] for f in ANCHORS])]
        loud = loud[self.phase[loud] != OPTIMISER]
        return sum(map(test, loud.tolist()))


def without_phase(path: Path) -> Path:
    return path[1:] if path[:1] in PHASES else path


def begins(path: Path, prefix: Path) -> bool:
    return path[: len(prefix)] == prefix


def _functions(chain: tuple[tuple[int, str], ...]) -> Path:
    return tuple(name for _, name in chain)
