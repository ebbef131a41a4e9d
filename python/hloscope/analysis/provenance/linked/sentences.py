"""One sentence about what happened to a piece of the source, from operations and their fates.

`x @ w` in `layer` (call 3 of 6, line 4) became one matmul in `fusion.12`; its transpose was
rewritten by layout-assignment into dot (%dot.3), which reads its operand
─┬─────    ─────  ─────────────────────         ──────────    ─────────
 subject: an expression of one call             its main operation; its other operations
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ....hlo import Instruction, Module, Operation, Origin, StackFrame
from ....hlo.origins.python_calls import PythonCall
from ....hlo.texts.places import short_place
from ..fates.fate import Fate, Fates, hlo_opcode
from .nouns import HEAVY, noun_of, of_opcode, plural, plural_verb, weight_of

_LONGEST = 60  # characters of source in a sentence
_UNTOLD = "gone; the passes were not kept, so which one removed"
_BACKWARD = re.compile(r"(?:^|/)[\w()]*transpose\(")
Calls = tuple[int, ...]


@dataclass(frozen=True)
class LinkedProgram:
    """The program of the sentences: strands below ``len(operations)`` are operations.

    ``lines`` are the strands' own lines, ``names`` the op names of strands without operations.
    """

    module: Module
    operations: tuple[Operation, ...]
    lines: Sequence[StackFrame | None]
    names: Mapping[int, str]
    sources: Mapping[str, str]
    fates: Fates | None


class Teller:
    """Makes the sentences of a program, each distinct one once."""

    def __init__(self, program: LinkedProgram) -> None:
        self.program = program
        self.operations = program.operations
        self._made: dict[object, str] = {}
        self._mains: dict[object, int] = {}
        self._whole: dict[object, tuple[int, ...]] = {}
        self._split: dict[tuple[tuple[int, ...], Calls], dict[int, tuple[int, ...]]] = {}
        self._python_calls: dict[tuple[int, Calls], PythonCall | None] = {}
        self._snippets: dict[StackFrame, str] = {}
        self._text: dict[str, list[str]] = {}
        files = {f.file for f in program.lines if f is not None}
        self._one_file = len(files) < 2
        self._fusion = {
            c.index: i
            for i in program.module.instructions
            if i.opcode == "fusion"
            for role, c in i.called
            if role == "calls"
        }
        self._groups: dict[object, list[int]] = {}
        for o in self.operations:
            self._groups.setdefault((self._key(o.number), o.function), []).append(o.number)

    # -- questions -------------------------------------------------------------------

    def of_instruction(self, i: Instruction, strands: Sequence[int]) -> str:
        """For the expression and call that an instruction comes from, and what else is in it."""
        if not strands:
            return ""
        calls: Calls | None = None
        first = strands[0]
        if i.origins:
            first, calls = i.origins[0].operation, i.origins[0].calls
        elif i.opcode == "fusion":
            inside = (k for c in i.called_computations for k in c.instructions if k.origins)
            calls = next((o.calls for k in inside for o in k.origins if o.operation == first), None)
        said = self._of_first(first, calls)
        rest = dict.fromkeys(self._key(k) for k in strands if self._key(k) != self._key(first))
        others = [k for k in self._firsts(strands, rest) if not self._is_call(k)]
        subjects = [s for k in others if (s := self._subject([k], None))]
        if subjects:
            more = f" and {len(subjects) - 3:,} more" if len(subjects) > 3 else ""
            said = f"{said}. `{i.name}` also does {', '.join(subjects[:3])}{more}"
        return said + "." if said else ""

    def _of_first(self, first: int, calls: Calls | None) -> str:
        """For the whole expression if it is its main operation or a helper, else for a part."""
        group = self._with(first)
        of = self._python_call(first, calls)
        if calls is not None and of is not None:
            group = self._by_python_call(group, calls)[of.number]
        main = self._main(group)
        is_whole = first == main or self._is_same(first, main) or self._weight(first) == 1
        return self._sentence(group if is_whole else (first,), calls, main)

    def _by_python_call(self, group: tuple[int, ...], calls: Calls) -> dict[int, tuple[int, ...]]:
        """An expression's operations by the Python function call that they come from."""
        found = self._split.get((group, calls))
        if found is None:
            by: dict[int, list[int]] = {}
            for k in group:
                call = self._python_call(k, calls)
                if call is not None:
                    by.setdefault(call.number, []).append(k)
            found = self._split[group, calls] = {n: tuple(of) for n, of in by.items()}
        return found

    def of_operations(self, strands: Sequence[int]) -> str:
        """For the operations alone, in all their calls."""
        whole = self._main_with(strands[0])
        said = self._sentence(tuple(strands), None, whole)
        return said + "." if said else ""

    def of_line(self, strands: Sequence[int]) -> str:
        """For each expression of a source line."""
        groups: dict[object, list[int]] = {}
        for k in strands:
            groups.setdefault(self._key(k), []).append(k)
        own = sorted(groups.values(), key=lambda g: -max(map(self._weight, g)))
        said = [s for g in own[:3] if (s := self._sentence(tuple(g), None))]
        if len(own) > 3:
            said.append(f"and {len(own) - 3:,} more expressions on this line")
        return "; ".join(said) + "." if said else ""

    # -- groups ----------------------------------------------------------------------

    def _key(self, strand: int) -> object:
        at = self.program.lines[strand]
        return (at or strand, self._is_backward(strand))

    def _with(self, strand: int) -> tuple[int, ...]:
        """The operations of the same expression in the same function of the program."""
        if strand >= len(self.operations) or self.program.lines[strand] is None:
            return (strand,)
        function = self.operations[strand].function
        key = self._key(strand), function
        if key not in self._whole:
            self._whole[key] = (*self._groups[key], *self._within(strand, function))
        return self._whole[key]

    def _within(self, strand: int, function: str) -> list[int]:
        """Preparation of operands inside an expression, such as the ``.T`` of ``x @ w.T``."""
        at = self.program.lines[strand]
        if at is None or at.end_column is None:
            return []
        place = at.file, at.line, function, self._is_backward(strand)
        out = []
        for k in self._by_line.get(place, ()):
            other = self.program.lines[k]
            if other is None or other == at or other.end_column is None:
                continue
            inside = (at.column or 0) <= (other.column or 0) and other.end_column <= at.end_column
            if inside and self._weight(k) == 1:
                out.append(k)
        return out

    @cached_property
    def _by_line(self) -> dict[object, list[int]]:
        out: dict[object, list[int]] = {}
        for o in self.operations:
            at = self.program.lines[o.number]
            if at is not None and (at.end_line or at.line) == at.line:
                place = at.file, at.line, o.function, self._is_backward(o.number)
                out.setdefault(place, []).append(o.number)
        return out

    def _firsts(self, strands: Sequence[int], keys: Mapping[object, None]) -> list[int]:
        first: dict[object, int] = {}
        for k in strands:
            if self.program.lines[k] is not None:
                first.setdefault(self._key(k), k)
        return [first[key] for key in keys if key in first]

    def _is_call(self, strand: int) -> bool:
        return strand < len(self.operations) and self.operations[strand].is_call

    def _is_backward(self, strand: int) -> bool:
        if strand >= len(self.operations):
            return bool(_BACKWARD.search(self.program.names.get(strand, "")))
        o = self.operations[strand]
        return bool(_BACKWARD.search(o.name)) or o.function in self._backward_functions

    @cached_property
    def _backward_functions(self) -> frozenset[str]:
        """Functions that only the backward pass calls."""
        callers: dict[str, list[Operation]] = {}
        for o in self.operations:
            if o.callee:
                callers.setdefault(o.callee, []).append(o)
        out: set[str] = set()
        for _ in range(20):  # functions nest no deeper
            new = {
                f
                for f, calls in callers.items()
                if all(_BACKWARD.search(c.name) or c.function in out for c in calls)
            }
            if new == out:
                break
            out = new
        return frozenset(out)

    # -- one sentence ----------------------------------------------------------------

    def _sentence(
        self, strands: tuple[int, ...], calls: Calls | None, whole: int | None = None
    ) -> str:
        """``whole``: the main operation of the expression; others are described as a part of it."""
        key = strands, calls, whole
        found = self._made.get(key)
        if found is None:
            subject = self._subject(strands, calls)
            main = self._main(strands)
            is_part = whole is not None and main != whole and not self._is_same(main, whole)
            if is_part and self.program.lines[main] is not None:
                subject = f"The {noun_of(self.operations[main])} of {subject}"
            what = self._outcome(strands, calls) if subject else ""
            found = self._made[key] = f"{subject} {what}" if what else ""
        return found

    def _main(self, strands: Sequence[int]) -> int:
        return max(strands, key=lambda k: (self._weight(k), -k))

    def _weight(self, strand: int) -> int:
        return self._weights[strand] if strand < len(self._weights) else 1

    @cached_property
    def _weights(self) -> list[int]:
        nouns = map(noun_of, self.operations)
        return [weight_of(noun) for noun in nouns]

    def _main_with(self, strand: int) -> int:
        """The main operation of a strand's expression."""
        if strand >= len(self.operations) or self.program.lines[strand] is None:
            return strand
        key = self._key(strand), self.operations[strand].function
        if key not in self._mains:
            self._mains[key] = self._main(self._groups[key])
        return self._mains[key]

    def _subject(self, strands: Sequence[int], calls: Calls | None) -> str:
        main = self._main(strands)
        at = self.program.lines[main]
        if at is None:
            if main < len(self.operations):
                o = self.operations[main]
                return f"{noun_of(o).capitalize()} `{o.name}`" if o.name else ""
            return f"`{self.program.names.get(main, '')}`"
        where = f"line {at.line}" if self._one_file else short_place(at.file, at.line)
        call = self._call(main, at, calls)
        function = f" in `{at.function}`" if at.function and at.function != "<module>" else ""
        code = self._snippet(at)
        head = f"`{code}`" if code else self._unread(main)
        after = ", backward" if self._is_backward(main) else ""
        return f"{head}{function} ({call}{where}{after})"

    def _unread(self, strand: int) -> str:
        if strand < len(self.operations):
            return f"The {noun_of(self.operations[strand])}"
        last = self.program.names.get(strand, "").rpartition("/")[2]
        return f"`{last}`" if last else "What"

    def _call(self, strand: int, at: StackFrame, calls: Calls | None) -> str:
        """``call 3 of 6, `` if the function of the source line was called several times."""
        call = self._python_call(strand, calls)
        if call is None or call.of < 2 or _tail(call.function) != _tail(at.function or ""):
            return ""
        return f"call {call.which:,} of {call.of:,}, "

    def _python_call(self, strand: int, calls: Calls | None) -> PythonCall | None:
        """The Python function call that an operation comes from, along one path of calls."""
        origins = self.program.module.origins
        if calls is None or origins is None or strand >= len(self.operations):
            return None  # an operation that only names in metadata tell of has no call
        key = strand, calls
        if key not in self._python_calls:
            self._python_calls[key] = origins.python.of(Origin(strand, calls))
        return self._python_calls[key]

    # -- what became of it -----------------------------------------------------------

    def _outcome(self, strands: Sequence[int], calls: Calls | None) -> str:
        own = [k for k in strands if k < len(self.operations)]
        if not own:
            count = sum(len(self._placed.get(k, ())) for k in strands)
            many = f"{count:,} instruction{'s' * (count != 1)}"
            return f"is named in the metadata of {many}" if count else ""
        main = self._main(own)
        # the same again: in other calls, or traced twice
        more = [k for k in own if k != main and self._is_same(k, main)]
        said = [self._became(main, more, calls)]
        rest = [k for k in own if k != main and k not in more]
        said += self._beside(rest, calls, [main, *more])
        return "; ".join(said)

    def _is_same(self, a: int, b: int) -> bool:
        if max(a, b) >= len(self.operations):
            return False
        one, other = self.operations[a], self.operations[b]
        if one.opcode != other.opcode:
            return False
        return (
            self._weight(a) == HEAVY or one.name.rpartition("/")[2] == other.name.rpartition("/")[2]
        )

    def _became(self, number: int, more: Sequence[int], calls: Calls | None) -> str:
        found = self._instructions(number, calls)
        fate = self._fate(number)
        for k in more:
            found += [i for i in self._instructions(k, calls) if i not in found]
        if self.operations[number].is_call:
            return fate.what if fate is not None and fate.kind == "inlined" else "was inlined"
        if not found or (fate is not None and fate.kind in ("merged", "folded", "dead")):
            return fate.what if fate is not None else "is gone"
        noun = noun_of(self.operations[number])
        same = [i for i in found if _named(i, self.operations[number])]
        found = [i for i in found if i.opcode != "get-tuple-element"] or found
        if not same and noun != "matmul":
            opcodes = {i.opcode for i in found}
            noun = of_opcode(found[0].opcode)
            noun = noun if len(opcodes) == 1 else "instruction"
        elif same:
            found = same
        inside = [i for i in found if i.computation.index in self._fusion]
        into = dict.fromkeys(self._fusion[i.computation.index] for i in inside)
        count = len(found)
        if not inside:
            if count == 1:
                return f"became the {noun} {_list(found)}"
            return f"became {count:,} {plural(noun)}, {_list(found)}"
        whole = "one " + noun if count == 1 else f"{count:,} {plural(noun)}"
        beside = count - len(inside)
        rest = f", {beside:,} of them on their own" if beside else ""
        return f"became {whole} in {_list(into)}{rest}"

    def _beside(
        self, others: Sequence[int], calls: Calls | None, mains: Sequence[int]
    ) -> list[str]:
        """The rest of an expression: what stayed in one word, what went in full."""
        stayed: dict[str, int] = {}
        gone: dict[tuple[str, str], list[str]] = {}  # noun and short fate → the full fate of each
        untold: dict[str, int] = {}
        home = {self._home(i) for k in mains for i in self._instructions(k, calls)}
        for k in others:
            o = self.operations[k]
            noun = noun_of(o)
            fate = self._fate(k)
            found = self._instructions(k, calls)
            if noun == "call":
                continue
            if fate is not None and fate.kind in ("kept", "fused") and not found:
                continue  # it had a different fate in this call, which is unknown
            if found and (fate is None or fate.kind in ("kept", "fused", "rewritten")):
                if noun not in ("constant", "iota"):
                    there = home & {self._home(i) for i in found}
                    name = noun if there else f"{noun} ({_list(found)})"
                    stayed[name] = stayed.get(name, 0) + 1
            elif fate is not None and (fate.kind != "unknown" or fate.by):
                gone.setdefault((noun, fate.short), []).append(fate.what)
            elif noun not in ("constant", "iota"):
                untold[noun] = untold.get(noun, 0) + 1
        out = []
        if stayed:
            out.append(f"with its {_counted(stayed)}")
        shown = sorted(gone, key=lambda g: g[0] in ("constant", "iota"))[:3]
        for noun, what in shown:
            found_gone = gone[noun, what]
            count = len(found_gone)
            if len(set(found_gone)) == 1:
                what = found_gone[0]
            said = noun if count == 1 else f"{count:,} {plural(noun)}"
            out.append(f"its {said} {plural_verb(what) if count > 1 else what}")
        left = sum(map(len, gone.values())) - sum(len(gone[g]) for g in shown)
        if left:
            out.append(f"{left:,} more went the same way or others")
        if untold:
            many = sum(untold.values()) > 1
            what = f"are {_UNTOLD} them" if many else f"is {_UNTOLD} it"
            out.append(f"its {_counted(untold)} {what} is unknown")
        return out

    def _home(self, i: Instruction) -> int:
        """The fusion around an instruction, or itself."""
        around = self._fusion.get(i.computation.index)
        return i.index if around is None else around.index

    def _fate(self, number: int) -> Fate | None:
        fates = self.program.fates
        return fates[number] if fates is not None else None

    def _instructions(self, number: int, calls: Calls | None) -> list[Instruction]:
        """Those that do an operation's work, in one call or all; fusions only without others."""
        module = self.program.module
        if calls is None:
            found = module.origins.instructions.get(number, ()) if module.origins else ()
        else:
            found = self._by_call.get((number, calls), ())
        out = [module.instructions[k] for k in found]
        return [i for i in out if i.opcode != "fusion"] or out

    @cached_property
    def _by_call(self) -> dict[tuple[int, Calls], tuple[int, ...]]:
        out: dict[tuple[int, Calls], list[int]] = {}
        origins = self.program.module.origins
        for index, of in enumerate(origins.of if origins is not None else ()):
            for o in dict.fromkeys(of):
                out.setdefault((o.operation, o.calls), []).append(index)
        return {key: tuple(found) for key, found in out.items()}

    @cached_property
    def _placed(self) -> dict[int, list[int]]:
        """Strand that is not an operation → its instructions; filled by ``place``."""
        return {}

    def place(self, strand: int, instruction: int) -> None:
        """Adds an instruction to a strand that is not an operation."""
        self._placed.setdefault(strand, []).append(instruction)

    def _snippet(self, at: StackFrame) -> str:
        found = self._snippets.get(at)
        if found is None:
            found = self._snippets[at] = self._cut(at)
        return found

    def _cut(self, at: StackFrame) -> str:
        if at.file not in self._text:
            self._text[at.file] = self.program.sources.get(at.file, "").split("\n")
        lines = self._text[at.file]
        if not 0 < at.line <= len(lines):
            return ""
        raw = lines[at.line - 1].encode("utf-8", "replace")
        more = ""
        if at.end_column is not None:
            if (at.end_line or at.line) == at.line:
                raw = raw[at.column or 0 : at.end_column]
            else:
                raw, more = raw[at.column or 0 :], " …"
        text = raw.decode("utf-8", "replace").strip() + more
        return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _counted(nouns: Mapping[str, int]) -> str:
    """``broadcast, 3 reshapes and 2 more``."""
    words = [n if c == 1 else f"{c:,} {plural(n)}" for n, c in nouns.items()]
    if len(words) > 3:
        return ", ".join(words[:3]) + f" and {len(words) - 3:,} more"
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + f" and {words[-1]}"


def _named(i: Instruction, operation: Operation) -> bool:
    return i.opcode.removesuffix("-start").removesuffix("-done") == hlo_opcode(operation.opcode)


def _list(found: Iterable[Instruction]) -> str:
    names = [f"`{i.name}`" for i in found]
    if len(names) > 3:
        return f"{names[0]} and {len(names) - 1:,} others"
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + f" and {names[-1]}"


def _tail(function: str) -> str:
    return function.rpartition(".")[2]
