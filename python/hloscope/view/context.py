"""What a section of the View works with: the module, its target, and analyses that several use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar, cast

from ..analysis.base.labels.labels import labels
from ..analysis.base.phases.gradients import gradient_labels
from ..analysis.base.table import Table, table
from ..analysis.grouping.code_words import BoxNames
from ..analysis.grouping.folds import Folds, folds, no_folds
from ..analysis.grouping.groups import GroupTree, group_tree, plain_tree
from ..analysis.grouping.loop_names import loop_labels
from ..hlo import Module, Target

if TYPE_CHECKING:
    from ..analysis.findings.proof import Proof
    from ..analysis.measured.measured import Measured
    from ..analysis.report.own_values import OwnValues
    from .header import Extras

T = TypeVar("T")


@dataclass(frozen=True)
class Given:
    """What a person gave a capture, or asked for: a profile, numbers of their own, proofs."""

    measured: Measured | None = None
    own_values: tuple[OwnValues, ...] = ()
    proofs: Mapping[tuple[str, str], tuple[Proof, ...]] = field(default_factory=dict)


@dataclass(eq=False)
class Context:
    """``extras`` and ``warnings`` are for sections to add to."""

    module: Module
    target: Target
    extras: Extras = field(default_factory=lambda: cast("Extras", {}))
    warnings: list[str] = field(default_factory=list)
    given: Given = field(default_factory=Given)
    copies_are_drawn: bool = False  # also those that only change the layout

    @cached_property
    def table(self) -> Table:
        return table(self.module)

    @cached_property
    def groups(self) -> GroupTree:
        return self.or_without(
            "the groups",
            lambda: group_tree(self.module, self.target),
            lambda: plain_tree(self.module),
        )

    @cached_property
    def folds(self) -> Folds:
        return self.or_without(
            "repeated groups",
            lambda: folds(self.module, self.groups),
            lambda: no_folds(self.groups),
        )

    @cached_property
    def box_names(self) -> BoxNames:
        return BoxNames(self.module, self.groups, self.target.sources)

    @cached_property
    def instruction_labels(self) -> list[str]:
        """What each instruction does, in words; loops by the function that they run."""
        module, turns = self.module, self.groups.turns
        words = self.or_without("labels", lambda: labels(module), lambda: module.opcodes_list)
        words = self.or_without(
            "sums of gradients", lambda: gradient_labels(module, words), lambda: words
        )
        runs: dict[int, str] = self.or_without(
            "code of loops", lambda: self.box_names.loops(), dict
        )
        return self.or_without(
            "names of loops", lambda: loop_labels(module, words, turns, runs), lambda: words
        )

    @cached_property
    def instruction_code(self) -> dict[int, str]:
        """The person's code of boxes of one instruction, by row, where it is known."""
        return self.or_without("code of boxes", lambda: self.box_names.instructions(), dict)

    @cached_property
    def group_labels(self) -> list[str]:
        """What the boxes of groups are called, everywhere that they are shown."""
        code: dict[int, str] = self.or_without(
            "code of groups", lambda: self.box_names.groups(), dict
        )
        return [code.get(g, label) for g, label in enumerate(self.groups.label)]

    @cached_property
    def fold_labels(self) -> list[str]:
        """What folds are called: as their first member where they have no range of numbers."""
        own, shown = self.groups.label, self.group_labels
        return [
            shown[f.members[0]] if f.label == own[f.members[0]] else f.label
            for f in self.folds.folds
        ]

    def or_without(self, what: str, make: Callable[[], T], plain: Callable[[], T]) -> T:
        """``make()``; where that fails, ``plain()`` and a warning: there is still a picture."""
        try:
            return make()
        except MemoryError:
            raise
        except Exception as error:
            self.warnings.append(
                f"{what} could not be worked out, and the picture goes without it: "
                f"{type(error).__name__}: {error} (a bug in hloscope, please report it)"
            )
            return plain()
