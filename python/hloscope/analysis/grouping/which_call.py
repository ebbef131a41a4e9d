"""Calls of one function from several lines are told apart as the person's code does.

    u1 = u + dt * rhs(u, s)              rhs · u
    u2 = … (u1 + dt * rhs(u1, s))        rhs · u1
    h = h + attend(norm(h), w)           norm before attend
    h = h + mlp(norm(h), w)              norm before mlp
    zt, _ = qformer(p, None, text)       qformer · zt
    zg, _ = qformer(p, image, text)      qformer · zg

By the first thing that is another one in each: what is called, what it is given, what its result
is called, what is done with it. Calls that the code writes alike are numbered.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from .call_tree import is_class

# Letters of a word that tells calls apart, and those where it is more than one variable.
LONGEST_WORD = 22
# Arguments and results of a call that are compared.
MOST_COMPARED = 8

# A call, and what is around it in its statement, innermost first, up to the statement.
Site = tuple[ast.Call, Sequence[ast.AST]]


def which(function: str, sites: Sequence[Site]) -> list[str]:
    """What tells each of these calls of a function from the others: " · u1"; [] if nothing.

    A library's module is told by what the person called: ``encoder`` of ``vmap(self.encoder)(x)``.
    """
    if is_class(function):
        words = [_word(_wrapped(call)) for call, _ in sites]
        if all(words) and len(set(words)) == len(words):
            return words
    if len(sites) == 1:
        name = called(sites[0][0])
        return [_word(name)] if name != function.rpartition(".")[2] else []
    for of in _WAYS:
        words = [of(site) for site in sites]
        if all(words) and len(set(words)) == len(words):
            return words
    return []


def called(node: ast.AST) -> str:
    """The name of what an expression calls, or ''."""
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _wrapped(call: ast.Call) -> str:
    """The name of what a call runs, whatever it is wrapped in."""
    function: ast.AST = call.func
    while isinstance(function, ast.Call) and function.args:
        function = function.args[0]
    return _plain(function) if function is not call.func else called(call)


# jax's loops, and which argument of each is the function that every turn runs.
RUN_BY = {"scan": 0, "map": 0, "fori_loop": 2, "while_loop": 1}


def runs(node: ast.AST) -> str:
    """The function that a call of one of jax's loops runs: ``layer`` of ``scan(layer, x)``, or ''.

    What it is wrapped in, such as ``checkpoint`` or ``partial``, says less than it.
    """
    number = RUN_BY.get(called(node), -1)
    if not isinstance(node, ast.Call) or not 0 <= number < len(node.args):
        return ""
    if isinstance(node.func, ast.Name) and node.func.id == "map":  # Python's
        return ""
    run: ast.AST = node.args[number]
    while isinstance(run, ast.Call) and run.args:
        run = run.args[0]
    return _plain(run) if isinstance(run, (ast.Name, ast.Attribute)) else ""


def _plain(node: ast.AST | None) -> str:
    """The last name of a variable, an attribute or an element; the text of a string."""
    if isinstance(node, ast.Starred):
        return _plain(node.value)
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and _plain(node.value):
        return node.attr
    if isinstance(node, ast.Subscript) and _plain(node.value):
        at = node.slice
        if isinstance(at, ast.Constant) and isinstance(at.value, str):
            return at.value
        if isinstance(at, (ast.Constant, ast.Name)):
            return f"{_plain(node.value)}[{ast.unparse(at)}]"
        return _plain(node.value)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return ""


def _word(text: str) -> str:
    short = len(text) <= LONGEST_WORD and text.isprintable()
    return f" · {text}" if text and short else ""


def _function(site: Site) -> str:
    return _word(called(site[0]))


def _receiver(site: Site) -> str:
    function = site[0].func
    return _word(_plain(function.value)) if isinstance(function, ast.Attribute) else ""


def _argument(number: int) -> Callable[[Site], str]:
    def of(site: Site) -> str:
        given = site[0].args
        return _word(_plain(given[number])) if number < len(given) else ""

    return of


def _keyword(number: int) -> Callable[[Site], str]:
    def of(site: Site) -> str:
        given = site[0].keywords
        return _word(_plain(given[number].value)) if number < len(given) else ""

    return of


def _result(number: int) -> Callable[[Site], str]:
    """A variable that the statement sets."""

    def of(site: Site) -> str:
        statement = site[1][-1] if site[1] else None
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target: ast.AST = statement.targets[0]
        elif isinstance(statement, (ast.AnnAssign, ast.AugAssign)):
            target = statement.target
        else:
            return ""
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        return _word(_plain(names[number])) if number < len(names) else ""

    return of


def _used_by(site: Site) -> str:
    """The call that takes its result."""
    for node in site[1]:
        if name := called(node):
            return f" before {name}" if len(name) <= LONGEST_WORD else ""
    return ""


def _written(number: int) -> Callable[[Site], str]:
    """An argument as it is written, where that is short."""

    def of(site: Site) -> str:
        given = site[0].args
        return _word(ast.unparse(given[number])) if number < len(given) else ""

    return of


_NUMBERS = range(MOST_COMPARED)
_WAYS: tuple[Callable[[Site], str], ...] = (
    _function,
    _receiver,
    *map(_argument, _NUMBERS),
    *map(_keyword, _NUMBERS),
    *map(_result, _NUMBERS),
    _used_by,
    *map(_written, _NUMBERS),
)
