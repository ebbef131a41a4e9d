"""The stages of one program side by side: which lines belong together, and their colours.

Lines are linked through *strands*: one strand is one StableHLO operation, from the Python line
to the instructions that do its work.

    Python            jaxpr               strand   StableHLO             optimised HLO
    4: h = x @ w      dot_general x w ──    7   ── %1 = dot_general …  ── %dot.3, %dot.4
    5: tanh(h) * 2    tanh ─────────────    8   ── %2 = tanh           ─┐
                      mul ──────────────    9   ── %3 = multiply       ─┴ %fusion.1 (its inside)

A place has the strands that it is part of, and those *near* it: the calls that led to it, and
what an operation was called from. If the operations were not followed, strands are source lines
and op names, as far as XLA kept them, and the result says that it is inferred.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ....hlo import Module, Operation, StackFrame
from ...base.lines.frames import FrameFinder, own_line
from ..fates.fate import Fates
from ..origin_card import frames_of
from .equations import match_equations
from .sentences import LinkedProgram, Teller
from .texts import Text, jaxpr_text, mlir_text, python_text

TITLES = {
    "source": "Source",
    "jaxpr": "jaxpr",
    "stablehlo": "StableHLO",
    "hlo": "HLO",
    "optimized": "Optimised HLO",
}
EXACT = "Links are exact: every StableHLO operation was followed through the compiler."
EXACT_BUT_JAXPR = f"{EXACT} Links to the jaxpr are found by name, line and order."
INFERRED = "Links are inferred from the source lines and op names that XLA kept."
Strands = tuple[int, ...]
# 0007.spmd-cleanup.after_dce.before_tuple-simplifier
_AFTER = re.compile(r"\.after_(.+?)(?:\.before_|\Z)")


@dataclass(frozen=True)
class Stage:
    """One text and its places. Keys of ``places``, ``near`` and ``told`` are lines from 0.

    ``text`` is None for the module's own stage, whose keys are indices of instructions. ``told``
    is the sentence for each place.
    """

    id: str
    title: str
    text: Text | None
    places: Mapping[int, Strands]
    near: Mapping[int, Strands] = field(default_factory=dict)
    told: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Linked:
    """``stages`` in the order of compilation; ``colors[k]`` is the colour class of strand k.

    Strands of one source line have one colour, successive lines have different ones; -1 is none.
    """

    stages: tuple[Stage, ...]
    colors: tuple[int, ...]
    exact: bool
    how: str

    def stage(self, id: str) -> Stage | None:
        """The stage with that id, None if there is none."""
        return next((s for s in self.stages if s.id == id), None)


def linked(
    module: Module,
    stage: str,
    *,
    jaxpr: Module | None = None,
    stablehlo: Module | None = None,
    sources: Mapping[str, str] | None = None,
    fates: Fates | None = None,
) -> Linked:
    """Links ``module``, the program at ``stage``, with its earlier stages."""
    return _Linker(module, stage, jaxpr, stablehlo, sources or {}, fates).run()


def _named(stage: str) -> tuple[str, str]:
    """Id and title of a program at a stage, which for dumps is part of a file's name."""
    if stage.endswith("after_optimizations"):
        stage = "optimized"
    if stage in TITLES:
        return stage, TITLES[stage]
    if stage == "before_optimizations":
        return stage, "HLO before all passes"
    passed = _AFTER.search(stage)
    return stage, f"HLO after {passed[1]}" if passed else stage


class _Linker:
    def __init__(
        self,
        module: Module,
        stage: str,
        jaxpr: Module | None,
        stablehlo: Module | None,
        sources: Mapping[str, str],
        fates: Fates | None,
    ) -> None:
        self.module, self.stage = module, stage
        self.jaxpr, self.stablehlo = jaxpr, stablehlo
        self.sources = sources
        origins = module.origins
        self.operations: tuple[Operation, ...] = origins.operations if origins is not None else ()
        self.exact = origins is not None
        if stage == "stablehlo":
            self.stablehlo = module
        self.op_frames: dict[int, tuple[StackFrame, ...]] = {}
        if self.exact and self.stablehlo is not None:
            self.op_frames = frames_of(self.stablehlo)
        # strand → its own line, and the other lines of its stack
        self.line: list[StackFrame | None] = []
        self.around: list[tuple[StackFrame, ...]] = []
        for o in self.operations:
            self._strand(self.op_frames.get(o.number, ()))
        # op name and line of an instruction without an operation → its strand
        self.others: dict[tuple[str, str, int, int], int] = {}
        self.fates = fates

    def _strand(self, stack: tuple[StackFrame, ...]) -> int:
        own = own_line(stack)
        self.line.append(own)
        self.around.append(tuple(f for f in stack if f is not own))
        return len(self.line) - 1

    def run(self) -> Linked:
        own, near = self._own()
        stages = [Stage(*_named(self.stage), None, own, near)]
        if self.stablehlo is not None and self.stage != "stablehlo" and self.exact:
            text = mlir_text(self.stablehlo)
            stages.insert(0, self._of_text("stablehlo", text, self._numbered(self.stablehlo)))
        if self.jaxpr is not None and self.exact:
            found = match_equations(self.jaxpr, self.operations, self.op_frames)
            stages.insert(0, self._of_text("jaxpr", jaxpr_text(self.jaxpr), found))
        source = self._source()
        if source is not None:
            stages.insert(0, source)
        colors = self._colors(source)
        teller = self._teller(own)
        told = [self._told(s, teller) for s in stages]
        how = INFERRED
        if self.exact:
            how = EXACT if self.jaxpr is None else EXACT_BUT_JAXPR
        return Linked(tuple(told), tuple(colors), self.exact, how)

    # -- places --------------------------------------------------------------------

    def _own(self) -> tuple[dict[int, Strands], dict[int, Strands]]:
        """Strands of each instruction of the module itself; a fusion has those inside."""
        module = self.module
        finder = FrameFinder(module)
        places: dict[int, Strands] = {}
        near: dict[int, Strands] = {}
        inferred: dict[int, Strands] = {}  # of each attribute text, which has name and line
        for i, text in zip(module.instructions, module.attribute_texts[0].tolist(), strict=True):
            if i.origins:
                places[i.index] = tuple(dict.fromkeys(o.operation for o in i.origins))
                calls = tuple(dict.fromkeys(c for o in i.origins for c in o.calls))
                if calls:
                    near[i.index] = calls
                continue
            if i.opcode == "parameter" and i.computation is module.entry:
                continue
            if text not in inferred:
                stack = finder.of(i)
                is_known = stack or (not self.exact and "/" in i.op_name)
                inferred[text] = (self._inferred(i.op_name, stack),) if is_known else ()
            if inferred[text]:
                places[i.index] = inferred[text]
        for i in module.instructions:
            if i.opcode != "fusion":
                continue
            inside = [k.index for c in i.called_computations for k in c.instructions]
            of = dict.fromkeys(places.get(i.index, ()))
            of |= dict.fromkeys(s for k in inside for s in places.get(k, ()))
            if of:
                places[i.index] = tuple(of)
            calls = tuple(dict.fromkeys(c for k in (i.index, *inside) for c in near.get(k, ())))
            if calls:
                near[i.index] = calls
        return places, near

    def _inferred(self, op_name: str, stack: tuple[StackFrame, ...]) -> int:
        """The strand for the op name and line that XLA kept with an instruction."""
        at = own_line(stack)
        where = (at.file, at.line, at.column or 0) if at is not None else ("", 0, 0)
        key = (op_name, *where)
        if key not in self.others:
            self.others[key] = self._strand(stack)
        return self.others[key]

    @staticmethod
    def _numbered(stablehlo: Module) -> dict[int, Strands]:
        return {i.index: (i.origins[0].operation,) for i in stablehlo.instructions if i.origins}

    @staticmethod
    def _of_text(id: str, text: Text, found: Mapping[int, Strands]) -> Stage:
        places: dict[int, dict[int, None]] = {}
        for index, strands in found.items():
            row = text.line_of.get(index)
            if row is not None:
                places.setdefault(row, {}).update(dict.fromkeys(strands))
        return Stage(id, TITLES[id], text, {row: tuple(s) for row, s in places.items()})

    def _source(self) -> Stage | None:
        own: dict[tuple[str, int], dict[int, None]] = {}
        near: dict[tuple[str, int], dict[int, None]] = {}
        function: dict[tuple[str, int], str] = {}
        for k, at in enumerate(self.line):
            if at is None:
                continue
            own.setdefault((at.file, at.line), {})[k] = None
            function.setdefault((at.file, at.line), at.function or "")
            for f in self.around[k]:
                near.setdefault((f.file, f.line), {})[k] = None
        if not own:
            return None
        text, row_of = python_text(
            ((file, line, function[file, line]) for file, line in own), self.sources
        )
        return Stage(
            "source",
            TITLES["source"],
            text,
            {row_of[p]: tuple(s) for p, s in own.items() if p in row_of},
            {row_of[p]: tuple(s) for p, s in near.items() if p in row_of},
        )

    def _colors(self, source: Stage | None) -> list[int]:
        """By the row of a strand's own line, -1 without one; without source, one per strand."""
        if source is None:
            return list(range(len(self.line)))
        out = [-1] * len(self.line)
        for rank, row in enumerate(sorted(source.places)):
            for k in source.places[row]:
                out[k] = rank
        return out

    # -- sentences -----------------------------------------------------------------

    def _teller(self, own: Mapping[int, Strands]) -> Teller:
        names = {strand: op_name for (op_name, *_), strand in self.others.items()}
        teller = Teller(
            LinkedProgram(self.module, self.operations, self.line, names, self.sources, self.fates)
        )
        for index, strands in own.items():
            for k in strands:
                if k >= len(self.operations):
                    teller.place(k, index)
        return teller

    def _told(self, stage: Stage, teller: Teller) -> Stage:
        instructions = self.module.instructions
        if stage.text is None:
            told = {
                k: teller.of_instruction(instructions[k], strands)
                for k, strands in stage.places.items()
            }
        else:
            of = teller.of_line if stage.id == "source" else teller.of_operations
            told = {row: of(strands) for row, strands in stage.places.items()}
        said = {k: words for k, words in told.items() if words}
        return Stage(stage.id, stage.title, stage.text, stage.places, stage.near, said)
