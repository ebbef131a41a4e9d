"""Backward rules that the person wrote: functions given to ``defvjp`` of a ``custom_vjp``.

jax names what such a rule computes like its own derivatives, ``transpose(jvp())/psum``, and gives
it the lines of the call in the forward pass. There the source calls a function with a rule of its
own, and the rule has the collective:

    @jax.custom_vjp
    def copy(x): …
    def bwd(_, g): return (lax.psum(g, "model"),)      the rule's line
    copy.defvjp(fwd, bwd)
    y = copy(x) @ w                                    the line that jax gives it
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache

from ....hlo import StackFrame
from .frames import own_line
from .op_name import is_autodiff

# Functions of jax.lax by the primitive that they make, which names the operation.
_PRIMITIVES = {
    "pmean": "psum", "psum_scatter": "reduce_scatter", "pshuffle": "ppermute",
}  # fmt: skip


def with_rule(
    op_name: str, frames: tuple[StackFrame, ...], sources: Mapping[str, str]
) -> tuple[StackFrame, ...]:
    """The stack of a collective, its first line that of the backward rule which writes it.

    As it is if no rule does: if it is no derivative's, or if its line calls no function with one.
    """
    at = own_line(frames)
    if at is None or at.file not in sources or not is_autodiff(op_name):
        return frames
    primitive = op_name.rpartition("/")[2].partition("[")[0]
    written = {file: source for file, source in sources.items() if "defvjp" in source}
    called = set(_called_on(sources[at.file], at.line)) if written else set()
    for file, source in written.items():
        for function, rule, name, line in _rules(source):
            if function in called and name and primitive.startswith(name):
                return (StackFrame(file, line, function=rule), *frames)
    return frames


@lru_cache(maxsize=64)
def _tree(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _called_on(source: str, line: int) -> Iterator[str]:
    """Names of the functions that the expressions on a line call."""
    tree = _tree(source)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or node.lineno):
            yield _last_name(node.func)


@lru_cache(maxsize=64)
def _rules(source: str) -> tuple[tuple[str, str, str, int], ...]:
    """(function, its backward rule, a primitive that the rule asks for, on which line)."""
    tree = _tree(source) if "defvjp" in source else None
    if tree is None:
        return ()
    functions = {n.name: n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    out = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or _last_name(node.func) != "defvjp":
            continue
        function = _last_name(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        given = [*node.args[1:2], *(k.value for k in node.keywords if k.arg == "bwd")]
        for rule in given:
            body = functions.get(_last_name(rule), rule)
            name = body.name if isinstance(body, ast.FunctionDef) else "<lambda>"
            out += [(function, name, *asked) for asked in _asked_in(body, functions)]
    return tuple(out)


def _asked_in(
    body: ast.AST, functions: Mapping[str, ast.FunctionDef], deep: bool = True
) -> Iterator[tuple[str, int]]:
    """Primitives of the calls in a rule, and in the functions of its file that it calls."""
    for node in ast.walk(body):
        if isinstance(node, ast.Call):
            name = _last_name(node.func)
            yield _PRIMITIVES.get(name, name), node.lineno
            if deep and name in functions and functions[name] is not body:
                yield from _asked_in(functions[name], functions, deep=False)


def _last_name(node: ast.AST) -> str:
    """``psum`` of ``lax.psum``, and of ``partial(psum, …)`` the function that it is of."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Call) and node.args:
        return _last_name(node.args[0])
    return ""
