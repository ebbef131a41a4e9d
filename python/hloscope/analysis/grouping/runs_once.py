"""Where the person's code makes a call that runs once each time the code around it does.

    y = attend(q, k, v)                    once
    for block in blocks: x = block(x)      as often as there are blocks
    jax.tree.map(cast, params)             as often as there are leaves

Two products of ``attend`` are then not two calls of it. A stack names the line that called a
function, not how often; the text of the file does, where it is known.
"""

from __future__ import annotations

import ast
import warnings
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from ..base.lines.frames import is_library
from .which_call import called

if TYPE_CHECKING:
    from ...hlo import Module, StackFrame

Place = tuple[int, int]  # line and column

# Functions of libraries that run what they are given once, or once in a loop or branch of its own.
_ONCE = frozenset(
    """grad value_and_grad vmap pmap jit shard_map vjp jvp linearize jacfwd jacrev filter_grad
    filter_value_and_grad filter_vmap filter_jit scan while_loop fori_loop cond switch""".split()
)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_REPEATING = (ast.For, ast.AsyncFor, ast.While, ast.Lambda, *_COMPREHENSIONS)


@dataclass(frozen=True)
class Once:
    """What is known to run once, and what to be in a loop, each time the code around it runs.

    Calls by their places; ``lines``: frames, by the line of their innermost function.
    """

    calls: frozenset[Place] = frozenset()
    lines: frozenset[int] = frozenset()
    calls_in_loops: frozenset[Place] = frozenset()
    calls_in_inner_loops: frozenset[Place] = frozenset()  # in a loop of a loop
    lines_in_loops: frozenset[int] = frozenset()
    # Calls of one function by when they run: after what their arguments call.
    turn: Mapping[Place, int] = field(default_factory=dict)
    # Frames by how many products the code there writes, if more than one: ``a @ b @ c`` is two.
    products: Mapping[int, int] = field(default_factory=dict)


def runs_once(module: Module, sources: Mapping[str, str]) -> Once:
    """What the person's code says of calls and lines: once, or in a loop.

    ``sources``: path → text.
    """
    if not sources:
        return Once()
    frames, ids = module.source_frames()
    files: dict[str, _Calls] = {}
    out: dict[Place, bool] = {}
    loops: dict[Place, int] = {}
    lines: dict[bool, set[int]] = {False: set(), True: set()}
    products: dict[int, int] = {}
    turn: dict[Place, set[int]] = defaultdict(set)
    for frame in set(ids):
        stack = frames.stack(frame)[::-1]
        own = [n for n, f in enumerate(stack) if not is_library(f.file) and f.function]
        for f in (stack[n] for n in own):
            if f.file not in files:
                files[f.file] = _Calls(sources.get(f.file, ""))
        last = stack[own[-1]] if own else None
        if last is not None and (repeats := files[last.file].repeats.get(last.line)) is not None:
            lines[repeats > 0].add(frame)
            if (n := files[last.file].products[last.line, last.column or 0]) > 1:
                products[frame] = n
        for n, m in pairwise(own):
            caller, callee = stack[n], stack[m]
            if callee in stack[:m]:  # jax has what is around a loop once more for its body
                continue
            place = caller.line, caller.column or 0
            name = (callee.function or "").rpartition("<locals>.")[2].removesuffix(".__call__")
            code = files[caller.file]
            once = code.runs_once(caller, name, direct=m == n + 1)
            out[place] = out.get(place, True) and once
            calls = code.calls(caller, name)
            loops[place] = max([loops.get(place, 0), *(depth for _, depth in calls)])
            if len(calls) == 1 or (calls and caller.column is not None):  # ``grad(f)(x)`` is two
                turn[place].add(max(code.turn[call] for call, _ in calls))
    return Once(
        frozenset(place for place, once in out.items() if once),
        frozenset(lines[False]),
        frozenset(place for place, depth in loops.items() if depth),
        frozenset(place for place, depth in loops.items() if depth > 1),
        frozenset(lines[True]),
        {place: n for place, (n, *others) in turn.items() if not others},
        products,
    )


class _Calls:
    """The calls that one Python file makes, and in how many loops of its function each is."""

    def __init__(self, text: str) -> None:
        self.at: dict[Place, list[tuple[ast.Call, int]]] = defaultdict(list)
        self.on_line: dict[int, list[tuple[ast.Call, int]]] = defaultdict(list)
        self.repeats: dict[int, int] = {}  # by line, in how many loops something on it is
        self.products: Counter[Place] = Counter()  # by where they begin
        self.imported: set[str] = set()
        self.turn: dict[ast.AST, int] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                tree = ast.parse(text)
            except (SyntaxError, ValueError):
                return
        self.turn = _evaluation_order(tree)
        todo: list[tuple[ast.AST, int]] = [(tree, 0)]
        outside: dict[ast.AST, int] = {}  # what a loop is over runs once: it is not in the loop
        while todo:
            node, repeats = todo.pop()
            repeats = outside.pop(node, repeats)
            if isinstance(node, (ast.For, ast.AsyncFor)):
                outside[node.iter] = repeats
            elif isinstance(node, _COMPREHENSIONS):
                outside[node.generators[0].iter] = repeats
            if line := getattr(node, "lineno", 0):
                self.repeats[line] = max(self.repeats.get(line, 0), repeats)
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self.imported |= {(a.asname or a.name).partition(".")[0] for a in node.names}
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                self.products[node.lineno, node.col_offset] += 1
            elif isinstance(node, ast.Call):
                self.at[node.lineno, node.col_offset].append((node, repeats))
                for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                    self.on_line[line].append((node, repeats))
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                repeats = 0
            repeats += isinstance(node, _REPEATING)
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.Lambda) and called(node) in _ONCE:
                    child = child.body  # ``grad(lambda p: f(p))``
                todo.append((child, repeats))

    def runs_once(self, frame: StackFrame, function: str, direct: bool) -> bool:
        """Whether the call of a function that a frame makes runs once in its own function.

        ``direct``: no library's function is between the two.
        """
        mine = self.calls(frame, function)
        return bool(mine) and all(
            not repeats and self._calls_once(call, function, direct) for call, repeats in mine
        )

    def calls(self, frame: StackFrame, function: str) -> list[tuple[ast.Call, int]]:
        """The calls of a function that a frame may be making, and in how many loops each is."""
        if frame.column is not None:
            found = self.at.get((frame.line, frame.column), [])
        else:
            found = self.on_line.get(frame.line, [])
        return [x for x in found if function in (called(x[0]), called(x[0].func))] or found

    def _calls_once(self, call: ast.Call, function: str, direct: bool) -> bool:
        if function in (called(call), called(call.func)):  # ``f(x)``; ``Block(…)(x)``
            return True
        if isinstance(call.func, ast.Call):  # ``grad(f)(x)``
            return called(call.func) in _ONCE
        root: ast.AST = call.func
        while isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        if isinstance(root, ast.Name) and root.id in self.imported:
            unrolled = any(k.arg == "unroll" for k in call.keywords)
            return called(call) in _ONCE and not unrolled
        return direct and isinstance(root, ast.Name)  # a variable that holds the function


def _evaluation_order(tree: ast.AST) -> dict[ast.AST, int]:
    """Calls by when they run: each after what its arguments call."""
    out: dict[ast.AST, int] = {}
    todo = [(tree, False)]
    while todo:
        node, seen = todo.pop()
        if seen:
            out[node] = len(out)
            continue
        if isinstance(node, ast.Call):
            todo.append((node, True))
        inside = list(ast.iter_child_nodes(node))
        if isinstance(node, _COMPREHENSIONS):  # what it is over comes first
            inside.sort(key=lambda child: not isinstance(child, ast.comprehension))
        todo += [(child, False) for child in reversed(inside)]
    return out
