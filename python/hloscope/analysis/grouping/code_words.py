"""Boxes of operations are named by the person's own code, where its text is known.

    fusion multiply·add              →   x + 0.5 * FeedForward(…)
    reduce-window·reduce·divide      →   zt = zt / linalg.norm(zt, …)
    fusion reduce·multiply·subtract  →   enstrophy
    train_step, line 38              →   updates = update(grads, …), line 38
    Level, line 147                  →   Level · down, where the line calls self.down(x)
    norm, line 56                    →   norm before attention, where the line is attention(norm(x))

Every operation has a path through the person's program: the expressions around it, call by call.
A box is named by the innermost expression that nearly all of its operations are in, unless
what is around the box is in that expression as well: then it says nothing of the box, and two
statements that nearly all of them are in name it, or the variables that a few set.
"""

from __future__ import annotations

import ast
import copy
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...hlo import opcodes
from ...hlo.collective_kinds import is_collective, split
from ..base.labels.families import ID, families
from ..base.labels.flags import QUIET, flags
from ..base.labels.labels import is_words_of_opcodes, labels, shorten
from ..base.lines.frames import is_library
from ..base.table import Table, table
from .call_tree import is_class
from .group_nodes import NAMELESS
from .groups import KINDS, GroupTree
from .which_call import RUN_BY, Site, called, runs, which

if TYPE_CHECKING:
    from ...hlo import FrameTable, Module, StackFrame

# The share of a box's operations that its name must be true of.
NEARLY_ALL = 0.7
# Of two statements that name a box each has at least this share of its operations.
EACH_OF_TWO = 0.2
# Characters of the name of each.
SHORT = 18
# The share of a box of which the statement must be known.
HALF = 0.5
# More statements than this that a box is of do not name it.
MOST_SET = 4
# Characters of a name; longer code is shortened from inside.
LONGEST = 34
# A variable of fewer characters (x, h, zt) does not say what it holds.
TELLING = 4
# Calls inside one another that are shown where all are.
WHOLE = 99
# Frames of one stack that are looked at, the innermost.
FRAMES = 24

# Named by what they are, not by what they compute.
_NAMED = opcodes.CONTROL | opcodes.GIVEN | opcodes.BUNDLES
_ELIDED = "…"
_MADE_BY = re.compile(
    r"(?P<before>(?:.*/)?)(?P<function>[^/]+), line (?P<line>\d+)"
    r"(?::(?P<column>\d+))?(?P<more>/.*)?\Z"
)

Step = tuple[str, int]  # a file, and the number of an expression or statement in it
Path = tuple[Step, ...]


class Code:
    """The text of one Python file: which expressions and statements are around a place."""

    def __init__(self, text: str) -> None:
        self.nodes: list[ast.AST] = []
        self.parent: list[int] = []
        self.function: list[int] = []  # the line of the function around each
        self._at: dict[tuple[int, int], list[int]] = defaultdict(list)
        self._of_line: dict[int, int] = {}
        self.modules: set[str] = set()
        self._words: dict[tuple[int, bool, int], str] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._add(ast.parse(text), -1)

    def _add(self, root: ast.AST, parent: int) -> None:
        todo = [(root, parent, 0)]
        while todo:
            node, up, function = todo.pop()
            here = up
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self.modules |= {a.asname or a.name.partition(".")[0] for a in node.names}
            elif isinstance(node, _STATEMENTS) or (isinstance(node, ast.expr) and up >= 0):
                here = len(self.nodes)
                self.nodes.append(node)
                self.parent.append(up)
                self.function.append(function)
                self._at[node.lineno, node.col_offset].append(here)
                if isinstance(node, _STATEMENTS):
                    for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                        self._of_line.setdefault(line, here)
            elif isinstance(node, ast.stmt):
                here = -1  # what a loop or a function is made of is not in one expression
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    function = node.lineno
            todo.extend((child, here, function) for child in ast.iter_child_nodes(node))

    def around(self, frame: StackFrame) -> list[int]:
        """Numbers of the statement that a frame is in and of the expressions in it, outer first."""
        found = self._found(frame)
        out = []
        while found >= 0:
            out.append(found)
            found = self.parent[found]
        return out[::-1]

    def _found(self, frame: StackFrame) -> int:
        begin = frame.line, frame.column
        for at in self._at.get(begin, ()) if frame.column is not None else ():  # type: ignore[arg-type]
            node = self.nodes[at]
            end = getattr(node, "end_lineno", 0), getattr(node, "end_col_offset", 0)
            # XLA's text has the begin alone: the outermost expression that begins there
            alone = (frame.end_line, frame.end_column) in (begin, (None, None))
            if isinstance(node, _ACTING) and (alone or end == (frame.end_line, frame.end_column)):
                return at
        return self._of_line.get(frame.line, -1)

    def on_line(self, line: int) -> str:
        """The code of the statement on a line, or ''."""
        found = self._of_line.get(line, -1)
        return self.words(found) if found >= 0 else ""

    def call(self, frame: StackFrame, *functions: str) -> int:
        """The number of the call of one of these that a frame makes; -1 if it may be several."""
        begin = frame.line, frame.column
        at = self._at.get(begin, []) if frame.column is not None else []  # type: ignore[arg-type]
        calls = [n for n in at if called(self.nodes[n]) in functions]
        calls = calls or [n for n in at if isinstance(self.nodes[n], ast.Call)][:1]
        if not calls and (found := self._found(frame)) >= 0:
            inside = set(map(id, ast.walk(self.nodes[found])))
            named = (n for function in functions for n in self._calls.get(function, ()))
            calls = [n for n in named if id(self.nodes[n]) in inside]
        return calls[0] if len(calls) == 1 else -1

    def calls(self, number: int) -> list[int]:
        """The calls of what a call calls, in the function that it is in."""
        # nothing is called so that is called by what a call returns: vmap(f)(x)
        same = self._calls.get(called(self.nodes[number]), [number])
        return [n for n in same if self.function[n] == self.function[number]]

    @cached_property
    def _calls(self) -> dict[str, list[int]]:
        """The numbers of calls by what they call."""
        out: dict[str, list[int]] = defaultdict(list)
        for n, node in enumerate(self.nodes):
            if name := called(node):
                out[name].append(n)
        return out

    def site(self, number: int) -> Site:
        """A call and what is around it in its statement."""
        above = [self.nodes[up] for up in self._above(number)]
        return above[0], above[1:]  # type: ignore[return-value]

    def _above(self, number: int) -> list[int]:
        """The numbers of an expression and of what is around it, innermost first."""
        out = []
        while number >= 0:
            out.append(number)
            number = self.parent[number]
        return out

    def sets(self, number: int) -> str:
        """The variables that a statement sets, or ''."""
        return _target(self.nodes[number])

    def line(self, number: int) -> int:
        return int(getattr(self.nodes[number], "lineno", 0))

    def words(self, number: int, alone: bool = False, room: int = LONGEST) -> str:
        """The code of an expression or of a statement, at most ``room`` characters.

        ``alone``: without what its arguments are made of.
        """
        key = number, alone, room
        if key not in self._words:
            self._words[key] = self._words_of(*key)
        return self._words[key]

    def _words_of(self, number: int, alone: bool, room: int) -> str:
        node = self.nodes[number]
        up = self.parent[number]
        if up >= 0 and getattr(self.nodes[up], "value", None) is node:
            node = self.nodes[up] if isinstance(self.nodes[up], _STATEMENTS) else node
        name = _target(node)
        value = node.value if isinstance(node, _STATEMENTS) else node
        if value is None:
            return ""
        alone = alone and _holds_call(value)
        if name and (code := self._brief(value, room - len(name) - 3, alone)):
            return f"{name} = {code}"
        if len(name) >= TELLING:
            return name
        return self._brief(value, room, alone) or self._briefest(value)[: room - 1] + _ELIDED

    def _brief(self, node: ast.AST, room: int, alone: bool) -> str:
        """The code in so many characters, shortened step by step; '' if that is not enough."""
        texts = (self._shorter(node, *step) for step in (_STEPS[-3:] if alone else _STEPS))
        return next((text for text in texts if len(text) <= room), "")

    def _briefest(self, node: ast.AST) -> str:
        return self._shorter(node, *_STEPS[-1])

    def _shorter(self, node: ast.AST, settings: bool, depth: int, most: int = 0) -> str:
        shown = _Brief(self.modules, settings, depth, most).shorter(node)
        return ast.unparse(ast.fix_missing_locations(shown)).replace("\n", " ")


# Code is shortened step by step until it fits: with its settings or without, how many calls inside
# one another are shown, and how many variables that the innermost are given.
_STEPS = (
    (True, WHOLE),
    (False, WHOLE),
    (False, 3),
    (False, 2),
    (False, 1, 2),
    (False, 1, 1),
    (False, 1),
)
_STATEMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr)
# Expressions that jax can be asked something by.
_ACTING = (
    ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.Subscript, ast.Attribute,
    ast.IfExp, ast.ListComp, ast.GeneratorExp,
)  # fmt: skip


def _holds_call(node: ast.AST) -> bool:
    """Whether it is a call with calls among its arguments."""
    if not isinstance(node, ast.Call):
        return False
    given = [*node.args, *(k.value for k in node.keywords)]
    return any(isinstance(n, ast.Call) for a in given for n in ast.walk(a))


def _target(node: ast.AST) -> str:
    """The variables that a statement sets, or nothing."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        target = node.target
    else:
        return ""
    names = target.elts if isinstance(target, ast.Tuple) else [target]
    if not all(isinstance(n, ast.Name) for n in names):
        return ""
    kept = [n.id for n in names if isinstance(n, ast.Name) and n.id != "_"]
    return ", ".join(kept)


# Methods that give the same values in another type or form.
_SAME_VALUES = frozenset(("astype", "reshape", "ravel", "flatten", "squeeze", "copy"))
# An addend of less only keeps a division from failing.
EPSILON = 1e-3


class _Brief(ast.NodeTransformer):
    """Leaves out names of modules and of ``self``, casts, and what is deeper than ``depth`` calls.

    The innermost calls show so many variables that they are given. Without ``settings`` also what
    says how rather than of what: keywords, text, ``[:, None]``, ``+ 1e-6``, reshapes.
    """

    def __init__(self, modules: set[str], settings: bool, depth: int, most: int = 0) -> None:
        self.modules = modules
        self.settings = settings
        self.depth = depth
        self.most = most

    def shorter(self, node: ast.AST) -> ast.AST:
        """A shorter copy; a cast or a reshape of a variable that is all there is stays."""
        node = copy.deepcopy(node)
        if isinstance(node, ast.Call) and _is_of(node, _SAME_VALUES):
            of = node.func.value  # type: ignore[attr-defined]
            if self.settings or _is_plain(of):
                method = ast.Attribute(self.visit(of), node.func.attr)  # type: ignore[attr-defined]
                args = node.args if self.settings else [ast.Name(id=_ELIDED)][: len(node.args)]
                return ast.Call(method, [self.visit(a) for a in args], [])
        return self.visit(node)  # type: ignore[no-any-return]

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        root: ast.AST = node.value
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and root.id in self.modules:
            return ast.Name(id=node.attr)
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return ast.Name(id=node.attr)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if _is_of(node, ("astype",) if self.settings else _SAME_VALUES):
            return self.visit(node.func.value)  # type: ignore[attr-defined, no-any-return]
        function = self.visit(node.func)
        named = next((k.value for k in node.keywords if k.arg == "name"), None)
        if named is not None and not self.settings:  # flax: what the module is called
            return ast.Call(function, [named], [])
        if self.settings:
            return ast.Call(
                function,
                [self.visit(a) for a in node.args],
                [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords],
            )
        self.depth -= 1
        given = [self.visit(a) for a in node.args if not _is_setting(a)]
        self.depth += 1
        if self.depth <= 1:
            most = self.most or int(len(given) == 1)
            kept = list(takewhile(_is_plain, given[:most]))
        else:
            kept = given
        own = isinstance(node.func, ast.Name) and not kept and bool(node.args or node.keywords)
        more = len(kept) < len(given) or own
        return ast.Call(function, [*kept, *[ast.Name(id=_ELIDED)] * more], [])

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        if not self.settings and isinstance(node.op, ast.Add):
            for one, other in ((node.left, node.right), (node.right, node.left)):
                value = getattr(one, "value", None)
                if isinstance(value, float) and abs(value) <= EPSILON:
                    return self.visit(other)  # type: ignore[no-any-return]
        return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if not self.settings and _turns(node.slice):
            return self.visit(node.value)  # type: ignore[no-any-return]
        if self.depth <= 2 and not isinstance(node.slice, (ast.Name, ast.Constant)):
            return ast.Subscript(self.visit(node.value), ast.Name(id=_ELIDED))
        return self.generic_visit(node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return ast.Name(id=_ELIDED)


def _is_of(node: ast.Call, methods: Iterable[str]) -> bool:
    """Whether it is a call of one of these methods, of some value."""
    return isinstance(node.func, ast.Attribute) and node.func.attr in methods


def _is_plain(node: ast.AST) -> bool:
    """Whether it is a variable, an attribute or an element of one."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, (ast.Name, ast.Constant)):
            return False
        node = node.value
    return isinstance(node, ast.Name)


def _is_setting(node: ast.AST) -> bool:
    """A number, or text that names nothing: an axis, ``"bqd,bkd->bqk"``."""
    if isinstance(node, ast.UnaryOp):
        return _is_setting(node.operand)
    if isinstance(node, ast.Tuple):
        return all(_is_setting(n) for n in node.elts)
    return isinstance(node, ast.Constant) and not (
        isinstance(node.value, str) and node.value.isidentifier()
    )


def _turns(index: ast.AST) -> bool:
    """Whether an index takes all of an array: ``[:, None]``."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return all(
        (isinstance(p, ast.Constant) and p.value in (None, ...))
        or (isinstance(p, ast.Slice) and p.lower is p.upper is p.step is None)
        for p in parts
    )


def _nearly_all(steps: Counter[Step], total: int) -> list[Step]:
    """The fewest statements that nearly all of ``total`` operations are in."""
    out: list[Step] = []
    seen = 0
    for step, times in steps.most_common():
        if seen >= NEARLY_ALL * total:
            break
        out.append(step)
        seen += times
    return out if seen >= NEARLY_ALL * total else []


def _first_operation(label: str) -> str:
    """What a box named after operations does first: "tanh" of "fusion tanh·multiply"."""
    return label.removeprefix("fusion ").partition("·")[0].partition(" ")[0]


def _last(function: str) -> str:
    """A function without its class."""
    return function.rpartition(".")[2]


def _name(function: str | None) -> str:
    """A function without what it is defined in, as in ``TracedCall.name``."""
    return (function or "").rpartition("<locals>.")[2].removesuffix(".__call__")


@dataclass(frozen=True, slots=True)
class _Call:
    """A group that is a call, as its label has it."""

    before: str
    function: str
    line: int
    column: str
    more: str
    given: str = ""  # the argument that it is named by


class BoxNames:
    """Names of boxes by the person's code; without ``sources`` there are none."""

    def __init__(self, module: Module, tree: GroupTree, sources: Mapping[str, str]) -> None:
        self.module, self.tree = module, tree
        self.t: Table = table(module)
        self.codes: dict[str, Code] = {}
        for file, text in sources.items():
            if is_library(file):
                continue
            try:
                self.codes[file] = Code(text)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
        self.frames: FrameTable
        self.frames, ids = module.source_frames()
        self.frame: NDArray[np.int64] = np.array(ids, np.int64)
        self._path = lru_cache(maxsize=None)(self._path_of)

    def groups(self) -> dict[int, str]:
        """Names of groups that are called after operations or after a line."""
        if not self.codes:
            return {}
        wanted = [
            g for g, name in enumerate(self.tree.label)
            if KINDS[self.tree.kind[g]] in ("component", "section")
            and (name == NAMELESS or is_words_of_opcodes(name))
        ]  # fmt: skip
        products = self._product_weights
        around = {g: (int(self.tree.parent[g]), products[g] or self._weights[g]) for g in wanted}
        out = self._apart(around, lambda g: self.tree.label[g])
        for g, product in self._of_no_line.items():
            if g in out:
                out[g] = f"{product} · {shorten(out[g], LONGEST - len(product))}"
        told = self._which
        for g, call in self._calls.items():
            if g in told:
                out[g] = f"{call.before}{call.function}{told[g]}{call.more}"
            elif not call.given and (code := self._code_of(call.function, call.line, g)):
                out[g] = f"{code}, line {call.line}{call.more}"
        return out

    def functions(self) -> dict[int, str]:
        """The functions of which groups are one call of several, by group."""
        return {g: self._calls[g].function for g in self._which}

    @cached_property
    def _calls(self) -> dict[int, _Call]:
        """Groups that are called after a function and a line, or what it is given."""
        out = {}
        for g, label in enumerate(self.tree.label):
            given, at = self.tree.given.get(g, ("", ""))
            if given and at:
                start, found, more = label.partition(f" · {given}")
                line, _, column = at.partition(":")
                if found and line.isdigit():
                    before, slash, function = start.rpartition("/")
                    out[g] = _Call(before + slash, function, int(line), column, more, given)
            elif m := _MADE_BY.match(label):
                out[g] = _Call(
                    m["before"], m["function"], int(m["line"]), m["column"] or "", m["more"] or ""
                )
        return out

    @cached_property
    def _which(self) -> dict[int, str]:
        """By group what tells it from other calls of its function, or its number among these.

        The calls from the text of one function are compared, wherever their groups are.
        """
        places: dict[int, tuple[str, int, str]] = {}  # by group its file, call and function
        seen: dict[tuple[str, str], set[int]] = defaultdict(set)
        for g, made in self._calls.items():
            caller = self._caller(made.function, made.line, made.column, g)
            call = self.codes[caller.file].call(caller, _last(made.function)) if caller else -1
            if caller and call >= 0:
                places[g] = caller.file, call, made.function
                seen[caller.file, made.function].add(call)
        words: dict[tuple[str, int, str], str] = {}
        alone: dict[tuple[str, int, str], str] = {}
        numbers: dict[tuple[str, int, str], str] = {}
        for place in dict.fromkeys(places.values()):
            file, call, function = place
            code = self.codes[file]
            # the class of self.down(x) is called by another name beside it
            beside = {n for n in seen[file, function] if code.function[n] == code.function[call]}
            calls = sorted(beside.union(code.calls(call)), key=lambda n: (code.line(n), n))
            at = calls.index(call)
            if told := which(function, [code.site(n) for n in calls]):
                (words if len(calls) > 1 else alone)[place] = told[at]
            if len(calls) > 1:
                numbers[place] = f" {1 + at}"
        # an argument of the program says more than a number, or than a variable of a letter or two,
        # but not the weights of a library's module
        by_line = {g: place for g, place in places.items() if not self._calls[g].given}
        telling = {
            place: word
            for place, word in (alone | words).items()
            if is_class(place[2]) or (place in words and len(word) >= len(" · ") + TELLING)
        }
        return (
            self._distinct(by_line, numbers)
            | self._distinct(by_line, alone)
            | self._distinct(places, telling)
            | self._distinct(by_line, words)
        )

    def _distinct(
        self, places: Mapping[int, tuple[str, int, str]], told: Mapping[tuple[str, int, str], str]
    ) -> dict[int, str]:
        """Without what two calls of one function in one group would have in common."""
        of = {g: (int(self.tree.parent[g]), p[2], told[p]) for g, p in places.items() if p in told}
        often = Counter(of.values())
        return {g: name[2] for g, name in of.items() if often[name] == 1}

    def _caller(self, function: str, line: int, column: str, g: int) -> StackFrame | None:
        """The frame that calls a group's function on a line, and at a column if one is known."""
        for frame in self._weights[g]:
            own = [f for f in self.frames.stack(frame) if not is_library(f.file)]
            made = [*pairwise(own), *((None, f) for f in own[:1])]  # last what calls a library
            for callee, caller in made:
                if caller.line != line or caller.file not in self.codes:
                    continue
                if column and str(caller.column) != column:
                    continue
                if is_class(function) if callee is None else _name(callee.function) == function:
                    return caller
        return None

    def _code_of(self, function: str, line: int, g: int) -> str:
        """The code of the statement on the line of a function that a group is made of, or ''.

        A call that has the line where it is made in its name keeps its name.
        """
        for frame in self._weights[g]:
            for at in self.frames.stack(frame):
                if at.line == line and at.file in self.codes and _name(at.function) == function:
                    return self.codes[at.file].on_line(line)
        return ""

    def instructions(self) -> dict[int, str]:
        """Names of boxes of one instruction."""
        if not self.codes:
            return {}
        boxes: dict[int, tuple[int, Counter[int]]] = {}
        called = self.t.called
        for row in np.flatnonzero(self._boxes).tolist():
            weights = Counter({int(self.frame[row]): 1})
            products: Counter[int] = Counter()  # a box that has any is for their sake
            for c in called.values[called.offsets[row] : called.offsets[row + 1]].tolist():
                weights += self._inside[c]
                products += self._products[c]
            boxes[row] = int(self.tree.group[row]), products or weights
        named = labels(self.module)
        out = self._apart(boxes, lambda row: named[row])
        for row, kind in self._collectives().items():
            if path := self._path(int(self.frame[row])):
                file, number = path[-1]
                of = self.codes[file].words(max(number, ~number), room=LONGEST - len(kind))
                out[row] = f"{kind} · {of}" if of else kind
        return out

    def loops(self) -> dict[int, str]:
        """The functions that loops run, as the code gives them: ``scan(layer, x, params)``.

        Loops inside that have no line of their own, as those of a library's function, are not it.
        """
        places: dict[int, Step] = {}
        for row in self.t.where("while").tolist() if self.codes else ():
            for f in self._own(int(self.frame[row]))[:1]:
                if (call := self.codes[f.file].call(f, *RUN_BY)) >= 0:
                    places[row] = f.file, call
        caller, _ = self.t.caller()
        out: dict[int, str] = {}
        for row, (file, call) in places.items():
            up = int(caller[self.t.computation[row]])
            while up >= 0 and places.get(up) != (file, call):
                up = int(caller[self.t.computation[up]])
            if up < 0 and (name := runs(self.codes[file].nodes[call])):
                out[row] = name
        return out

    def _collectives(self) -> dict[int, str]:
        """The kinds of collectives of one array; what XLA combined is of many places."""
        kinds = self.t.by_opcode(
            lambda o: k[0] if (k := split(o)) and k[1] in ("", "-start") else "", object
        )
        of_one = (self.t.operands.counts == 1) & (self.frame > 0)
        return {row: kinds[row] for row in np.flatnonzero(of_one).tolist() if kinds[row]}

    def _apart(
        self, boxes: dict[int, tuple[int, Counter[int]]], operations: Callable[[int], str]
    ) -> dict[int, str]:
        """Names of boxes, given the group around each: with lines where two have one code.

        Boxes of one line with one code are pieces of it, told apart by what each does first, and
        numbered where they do the same. ``operations``: the name that a box has without code.
        """
        found = {box: place for box, (g, w) in boxes.items() if (place := self._place(w, g))}
        around = {box: boxes[box][0] for box in found}
        codes = Counter((around[box], code) for box, (code, _) in found.items())
        lines = Counter((around[box], *place) for box, place in found.items())
        does = {box: _first_operation(operations(box)) for box in found}
        pieces = Counter((around[box], *place, does[box]) for box, place in found.items())
        out = {}
        before: Counter[tuple[int, str, int, str]] = Counter()
        for box, (code, line) in found.items():
            if codes[around[box], code] == 1:
                out[box] = code
            elif lines[around[box], code, line] == 1:
                out[box] = f"{code}, line {line}"
            else:
                piece = around[box], code, line, does[box]
                before[piece] += 1
                end = f" · {does[box]}" + (f" {before[piece]}" if pieces[piece] > 1 else "")
                out[box] = shorten(code, LONGEST - len(end)) + end
        return out

    @cached_property
    def _boxes(self) -> NDArray[np.bool_]:
        """Rows that may be boxes of their own."""
        named = self.t.by_opcode(
            lambda o: o in _NAMED or is_collective(o) or o.endswith(("-start", "-done")), bool
        )
        return np.asarray(~named & ~self._fused & ~self._quiet)

    @cached_property
    def _quiet(self) -> NDArray[np.bool_]:
        return np.asarray((flags(self.module) & QUIET) != 0)

    @cached_property
    def _fused(self) -> NDArray[np.bool_]:
        caller, roles = self.t.caller()
        fusion = self.t.by_opcode(lambda o: o == "fusion", bool)
        inner = np.array([r == "to_apply" for r in roles], bool) & ~self._runs[caller]
        inside = (caller >= 0) & (fusion[caller] | inner)
        return np.asarray(inside[self.t.computation])

    @cached_property
    def _runs(self) -> NDArray[np.bool_]:
        return np.asarray(self.t.by_opcode(lambda o: o == "call", bool))

    @cached_property
    def _inside(self) -> list[Counter[int]]:
        """For each computation, how often each frame is in it; quiet operations say nothing."""
        out: list[Counter[int]] = [Counter() for _ in self.t.first]
        rows = np.flatnonzero(~self._quiet & (self.frame > 0))
        for c, f in zip(self.t.computation[rows].tolist(), self.frame[rows].tolist(), strict=True):
            out[c][f] += 1
        return out

    @cached_property
    def _products(self) -> list[Counter[int]]:
        """For each computation, how often each frame is in its products."""
        out: list[Counter[int]] = [Counter() for _ in self.t.first]
        of_product = np.isin(families(self.module), [ID["matmul"], ID["convolution"]])
        rows = np.flatnonzero(of_product & self._fused & (self.frame > 0))
        for c, f in zip(self.t.computation[rows].tolist(), self.frame[rows].tolist(), strict=True):
            out[c][f] += 1
        return out

    @cached_property
    def _of_no_line(self) -> dict[int, str]:
        """Groups with a product of which XLA kept no line, and its kind: no code names that."""
        known = np.array([bool(c) for c in self._inside], bool)
        no_line = self.frame <= 0
        no_line[self.t.called.rows[known[self.t.called.values]]] = False
        out: dict[int, str] = {}
        for kind in ("matmul", "convolution"):
            rows = np.isin(families(self.module), [ID[kind]]) & ~self._fused & no_line
            out |= dict.fromkeys(self.tree.group[rows].tolist(), kind)
        return out

    @cached_property
    def _weights(self) -> list[Counter[int]]:
        """For each group, how often each frame is in it, at any depth."""
        return self._frames_of(~self._quiet)

    @cached_property
    def _product_weights(self) -> list[Counter[int]]:
        """Those of products alone: a box that has any is there for their sake."""
        return self._frames_of(np.isin(families(self.module), [ID["matmul"], ID["convolution"]]))

    def _frames_of(self, rows_of: NDArray[np.bool_]) -> list[Counter[int]]:
        out: list[Counter[int]] = [Counter() for _ in self.tree.label]
        rows = np.flatnonzero(rows_of & (self.frame > 0))
        for g, f in zip(self.tree.group[rows].tolist(), self.frame[rows].tolist(), strict=True):
            out[g][f] += 1
        for g in range(len(out) - 1, 0, -1):
            up = int(self.tree.parent[g])
            if up >= 0:
                out[up].update(out[g])
        return out

    def _place(self, weights: Counter[int], around: int) -> tuple[str, int] | None:
        """The code of a box, and its line; None where it says nothing of the box."""
        path = self._outside(self._shared(weights), around)
        if not path:
            return self._of_some(weights, 0, around)
        file, number = path[-1]
        alone = number < 0
        inside = path[:-1] if alone else path
        of_group = self._of_group(around)
        if inside == of_group[: len(inside)] and (not alone or len(of_group) > len(inside)):
            return None if alone else self._of_some(weights, len(path), around)
        code = self.codes[file]
        words = code.words(~number if alone else number, alone)
        return (words, code.line(~number if alone else number)) if words else None

    def _outside(self, path: Path, around: int) -> Path:
        """A path that ends with a call that has a box of its own ends with the statement before it.

        What is beside ``rhs`` is not called ``rhs(u, s)``, though most of it is from its end.
        """
        node = self.codes[path[-1][0]].nodes[path[-1][1]] if path and path[-1][1] >= 0 else None
        if node is None or called(node) not in self._functions_in.get(around, ()):
            return path
        return path[: next((n for n in range(len(path), 0, -1) if self._sets(path[n - 1])), 0)]

    def _sets(self, step: Step) -> bool:
        file, number = step
        return isinstance(self.codes[file].nodes[max(number, ~number)], _STATEMENTS)

    @cached_property
    def _functions_in(self) -> dict[int, set[str]]:
        """By group the functions that have boxes in it."""
        out: dict[int, set[str]] = defaultdict(set)
        for child, label in enumerate(self.tree.label):
            out[int(self.tree.parent[child])].add(_last(re.split(r"[,/ ]", label)[0]))
        return out

    def _of_some(self, weights: Counter[int], depth: int, around: int) -> tuple[str, int] | None:
        """The code of the statements that nearly all operations of a box are in, and a line.

        A statement that all of the group around is in says nothing of the box.
        Of two it is their code, of more the variables that they set. What has a call's line alone
        has none of them: it may be of any statement in the call.
        """
        steps: Counter[Step] = Counter()
        total = 0
        of_all = set(self._of_group(around))
        for frame, times in self._without_calls(weights).items():
            path = self._path(frame)
            total += times if path else 0
            if len(path) > depth and path[depth][1] >= 0 and path[depth] not in of_all:
                steps[path[depth]] += times
        if total < sum(weights.values()) * HALF:
            return None
        most = [step for step, times in steps.most_common(2) if times >= EACH_OF_TWO * total]
        if len(most) < 2 or sum(steps[step] for step in most) < NEARLY_ALL * total:
            told = {step: k for step, k in steps.items() if self.codes[step[0]].sets(step[1])}
            most = _nearly_all(steps if len(steps) == 1 else Counter(told), total)
            if len(most) == 2 or len(most) > MOST_SET:
                return None
        most.sort(key=lambda step: (step[0], self.codes[step[0]].line(step[1])))
        if len(most) <= 2:
            room = SHORT if len(most) == 2 else LONGEST
            words = [self.codes[file].words(number, room=room) for file, number in most]
        else:
            words = [self.codes[file].sets(number) for file, number in most]
        if not words or not all(words) or (len(words) > 1 and len(set(words)) < 2):
            return None
        file, number = most[0]
        name = (" · " if len(most) == 2 else ", ").join(dict.fromkeys(words))
        return name, self.codes[file].line(number)

    def _statements(self, path: Path) -> list[Step]:
        """The statements on a path, outer ones first."""
        return [
            s for s in path if s[1] >= 0 and isinstance(self.codes[s[0]].nodes[s[1]], _STATEMENTS)
        ]

    @cached_property
    def _entered(self) -> dict[Step, set[str | None]]:
        """For each statement the functions that are called from it, through any number of calls.

        What jax traced once for two lines of a function has both of them around it: no call.
        """
        out: dict[Step, set[str | None]] = defaultdict(set)
        for frame in np.unique(self.frame[self.frame > 0]).tolist():
            inner: set[str | None] = set()
            for f in self._own(frame):  # innermost first
                path = tuple((f.file, n) for n in self.codes[f.file].around(f))
                for step in self._statements(path)[-1:]:
                    out[step] |= inner - {f.function}
                inner.add(f.function)
        return out

    def _without_calls(self, weights: Counter[int]) -> Counter[int]:
        """Without what has the line of a call that others are inside: it may be of any of them."""
        inside = {f: own[0].function for f in weights if (own := self._own(f))}
        functions = set(inside.values())
        out: Counter[int] = Counter()
        for frame, times in weights.items():
            last = self._statements(self._path(frame))[-1:]
            if not any(self._entered.get(step, set()) & functions for step in last):
                out[frame] = times
        return out

    def _of_group(self, g: int) -> Path:
        known = self.__dict__.setdefault("_known", {})
        if g not in known:
            known[g] = self._shared(self._weights[g]) if g >= 0 else ()
        return known[g]  # type: ignore[no-any-return]

    def _shared(self, weights: Counter[int]) -> Path:
        """The path that nearly all operations with a known place have in common."""
        paths: Counter[Path] = Counter()
        for frame, times in weights.items():
            path = self._path(frame)
            if path:
                paths[path] += times
        total = sum(paths.values())
        left = list(paths.items())
        shared: list[Step] = []
        while left:
            n = len(shared)
            next_: dict[Step, int] = {}
            for path, times in left:
                next_[path[n]] = next_.get(path[n], 0) + times
            step = max(next_, key=next_.__getitem__)
            if next_[step] < NEARLY_ALL * total:
                break
            shared.append(step)
            left = [(p, times) for p, times in left if p[n] == step and len(p) > n + 1]
        return tuple(shared)

    def _path_of(self, frame: int) -> Path:
        out: list[Step] = []
        for f in reversed(self._own(frame)):
            code = self.codes[f.file]
            out += [(f.file, number) for number in code.around(f)]
        if out:  # and in none of the expressions that this one is made of
            file, number = out[-1]
            out.append((file, ~number))
        return tuple(out)

    def _own(self, frame: int) -> list[StackFrame]:
        """Frames of files that are known, innermost first, up to the function that was jitted."""
        stack = list(self.frames.stack(frame)) if frame > 0 else []
        if self._jitted:
            last = [n for n, f in enumerate(stack) if _name(f.function) == self._jitted]
            stack = stack[: last[-1] + 1] if last else []
        return [f for f in stack if f.file in self.codes][:FRAMES]

    @cached_property
    def _jitted(self) -> str:
        """The function that was jitted, where frames have it."""
        name = self.module.name.removeprefix("jit_").removeprefix("pmap_")
        return name if any(_name(f) == name for f in self.frames.functions) else ""
