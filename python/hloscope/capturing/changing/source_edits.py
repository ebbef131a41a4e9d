"""A person's functions with changes in their source, while a program is traced.

Hard because the file must stay as it is, and the change must be what the person would write: a
constraint on ``h`` is one on its gradient too, a checkpointed block is one wherever it is called
from, imported under another name or made anew in each call. So the source itself is changed, as a
syntax tree, compiled, and put into the functions that are alive, in place of their code:

    h = jnp.tanh(x @ w)     ─▶   h = CHANGES.made(0, jnp.tanh(x @ w))
    def block(x, w): …      ─▶   def block(x, w):
                                     def block_(x, w): …
                                     return CHANGES.made(1, block_, (x, w), {})

Lines stay, functions keep their identity, and ``exchanged`` puts everything back. Meanwhile other
threads, such as that of a notebook where the next cell runs, call the same functions: for them
they do what they did. ``CHANGES`` is a constant of the code, so that it is there for a call that
ends after everything was put back.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ...hlo import StackFrame
from ...hlo.changes import CannotChange
from ...readers.files.python_sources import read_source

_CHANGES = "the changes of hloscope"  # in the code, until they take its place
INNER = "{name}_before_changes"
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_lock = threading.RLock()


@dataclass(frozen=True)
class Edit:
    """A change of the source: of an expression, or of the function that begins at ``place``.

    ``run`` takes the expression's value, or (function, arguments, keywords). ``show`` makes the
    code to paste of the source's own: of an expression, or of a function's first line, with its
    decorators above it where the code goes ``above_decorators``.
    """

    place: StackFrame
    run: Callable[..., Any]
    show: Callable[[str], str]
    is_function: bool = False
    above_decorators: bool = False


@dataclass(frozen=True)
class Applied:
    """The line and code of one edit, as they are for the source."""

    line: int
    code: str
    of: str = ""  # the expression, as it is


class _Changes:
    """What the edits run, in the thread that made it; in others nothing changes."""

    def __init__(self, edits: Sequence[Edit]) -> None:
        self.edits = edits
        self.thread = threading.get_ident()
        self.left = set(range(len(edits)))  # those that did not run yet

    def made(self, number: int, *given: Any) -> Any:
        edit = self.edits[number]
        if threading.get_ident() == self.thread:
            self.left.discard(number)
            return edit.run(*given)
        if not edit.is_function:
            return given[0]
        inner, args, kwargs = given
        return inner(*args, **kwargs)


class EditedSource:
    """A file as it is, and as it is with edits."""

    def __init__(self, file: str) -> None:
        self.file = file
        text = read_source(file)
        if text is None:
            raise CannotChange(f"the source of {file} cannot be read")
        self.text = text
        try:
            self.tree = ast.parse(text, file)
            # IPython compiles each statement of a cell by itself, which makes other bytecode
            parts = [self.tree, *(ast.Module([s], []) for s in self.tree.body)]
            self.before = [compile(p, file, "exec", dont_inherit=True) for p in parts]
        except (SyntaxError, ValueError) as error:
            raise CannotChange(f"the source of {file} is not Python: {error}") from None
        self.parents = {
            child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)
        }
        self.touched: list[_Function] = []

    def apply(self, edit: Edit, number: int) -> Applied:
        """Puts an edit into the tree."""
        if edit.is_function:
            function = self._function(edit.place)
            begin = _begins(function) if edit.above_decorators else function.lineno
            code = edit.show(_lines(self.text, begin, function.lineno))
            self._touch(function)
            _wrap_body(function, number)
            return Applied(begin, code)
        node = self._expression(edit.place)
        own = ast.get_source_segment(self.text, node) or ast.unparse(node)
        code = self._shown(node, own, edit)
        self._touch(node)
        self._replace(node, _call(number, [node]))
        return Applied(node.lineno, code, " ".join(own.split()))

    def _function(self, place: StackFrame) -> ast.FunctionDef:
        name = (place.function or "").rpartition(".")[2]
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.FunctionDef) or node.name != name:
                continue
            if _begins(node) == place.line:
                return node
        why = "a lambda has no name: write it as def" if name == "<lambda>" else (
            f"{place.file} has no def {name} at line {place.line}"
        )  # fmt: skip
        raise CannotChange(why)

    def _expression(self, place: StackFrame) -> ast.expr:
        """The expression at a place: of the operation itself, or what the line's statement sets."""
        found: ast.expr | None = None
        if place.column is not None and place.end_column is not None:
            wanted = place.line, place.column, place.end_line or place.line, place.end_column
            for node in ast.walk(self.tree):
                if isinstance(node, ast.expr):
                    at = node.lineno, node.col_offset, node.end_lineno, node.end_col_offset
                    if at in (wanted, (wanted[0], wanted[1] - 1, wanted[2], wanted[3] - 1)):
                        found = node
            if found is None:
                raise CannotChange(
                    f"no expression of {place.file}:{place.line} has this value alone; name its "
                    "line instead"
                )
            return found
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.Assign | ast.AnnAssign | ast.Return):
                continue
            if node.value is not None and node.lineno <= place.line <= (node.end_lineno or 0):
                found = node.value  # of nested statements, the last is the innermost
        if found is None:
            raise CannotChange(
                f"line {place.line} of {place.file} neither sets a name nor returns a value"
            )
        if isinstance(found, ast.Tuple):
            raise CannotChange(
                f"line {place.line} of {place.file} sets several values; name the operation"
            )
        return found

    def _shown(self, node: ast.expr, own: str, edit: Edit) -> str:
        """The statement with the changed expression in it."""
        statement: ast.AST = node
        while not isinstance(statement, ast.stmt):
            statement = self.parents[statement]
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr):
            whole = ast.get_source_segment(self.text, statement) or ""
            if whole.count(own) == 1:
                return whole.replace(own, edit.show(own))
        return edit.show(own)

    def _touch(self, node: ast.AST) -> None:
        """Notes the functions around a node, whose code changes."""
        at: ast.AST | None = node
        while at is not None:
            if isinstance(at, _Function):
                self.touched.append(at)
            at = self.parents.get(at)

    def _replace(self, old: ast.expr, new: ast.Call) -> None:
        parent = self.parents[old]
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list) and old in value:
                value[value.index(old)] = new
        for node in (new, new.func, *ast.walk(new.func)):
            ast.copy_location(node, old)
        self.parents[new], self.parents[old] = parent, new
        ast.fix_missing_locations(self.tree)

    def codes(self) -> list[tuple[list[CodeType], CodeType]]:
        """(as it may have been loaded, as it is with the edits) of every function that changes."""
        ast.fix_missing_locations(self.tree)
        after = compile(self.tree, self.file, "exec", dont_inherit=True)
        keys = {(getattr(f, "name", "<lambda>"), _begins(f)) for f in self.touched}
        new = {(c.co_name, c.co_firstlineno): c for c in _all(after)}
        old: dict[tuple[str, int], list[CodeType]] = {}
        for code in (c for part in self.before for c in _all(part)):
            old.setdefault((code.co_name, code.co_firstlineno), []).append(code)
        return [(old[k], new[k]) for k in keys if k in old and k in new]


def _begins(function: Any) -> int:
    """The line where the code object of a function begins: that of its first decorator."""
    decorators = getattr(function, "decorator_list", ())
    return int(min([function.lineno, *(d.lineno for d in decorators)]))


def _lines(text: str, first: int, last: int) -> str:
    return textwrap.dedent("\n".join(text.splitlines()[first - 1 : last]))


def _all(code: CodeType) -> Iterator[CodeType]:
    """Every code object inside of one, the outer of equal names last."""
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _all(const)
            yield const


def _call(number: int, arguments: list[ast.expr]) -> ast.Call:
    made = ast.Attribute(ast.Constant(_CHANGES), "made", ast.Load())
    return ast.Call(made, [ast.Constant(number), *arguments], [])


def _with(changes: _Changes, code: CodeType) -> CodeType:
    """The code with the changes in it."""

    def constant(value: Any) -> Any:
        return _with(changes, value) if isinstance(value, CodeType) else (
            changes if value == _CHANGES else value
        )  # fmt: skip

    return code.replace(co_consts=tuple(map(constant, code.co_consts)))


def _wrap_body(function: ast.FunctionDef, number: int) -> None:
    """The body in a function of its own, which the changed one calls through the changes."""
    given = function.args
    name = INNER.format(name=function.name)
    bare = ast.arguments(
        given.posonlyargs, given.args, given.vararg, given.kwonlyargs,
        [None] * len(given.kwonlyargs), given.kwarg, [],
    )  # fmt: skip
    inner = ast.FunctionDef(name, bare, function.body, [], lineno=function.lineno, col_offset=0)
    setattr(inner, "type_params", [])  # noqa: B010  of Python 3.12 and newer
    positional: list[ast.expr] = [_load(a) for a in (*given.posonlyargs, *given.args)]
    if given.vararg:
        positional.append(ast.Starred(_load(given.vararg), ast.Load()))
    keys: list[ast.expr | None] = [ast.Constant(a.arg) for a in given.kwonlyargs]
    values: list[ast.expr] = [_load(a) for a in given.kwonlyargs]
    if given.kwarg:
        keys.append(None)
        values.append(_load(given.kwarg))
    call = _call(number, [
        ast.Name(name, ast.Load()), ast.Tuple(positional, ast.Load()), ast.Dict(keys, values),
    ])  # fmt: skip
    function.body = [inner, ast.Return(call)]
    for part in function.body:
        for node in ast.walk(part):
            if "lineno" in node._attributes and not hasattr(node, "lineno"):
                ast.copy_location(node, function)


def _load(argument: ast.arg) -> ast.Name:
    return ast.Name(argument.arg, ast.Load())


def _is_same(a: CodeType, b: CodeType) -> bool:
    """Whether two code objects do the same, wherever they are written."""
    named = ("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars")
    if any(getattr(a, n) != getattr(b, n) for n in named) or len(a.co_consts) != len(b.co_consts):
        return False
    for x, y in zip(a.co_consts, b.co_consts, strict=True):
        if isinstance(x, CodeType) and isinstance(y, CodeType):
            if not _is_same(x, y):
                return False
        elif x != y:
            return False
    return True


def prepared(edits: Sequence[Edit]) -> tuple[list[Applied], list[EditedSource]]:
    """What each edit is in the source. Raises ``CannotChange``."""
    sources: dict[str, EditedSource] = {}
    applied: dict[int, Applied] = {}
    # expressions first: a function that is wrapped keeps what is in it
    for number in sorted(range(len(edits)), key=lambda n: edits[n].is_function):
        edit = edits[number]
        source = sources.setdefault(edit.place.file, EditedSource(edit.place.file))
        applied[number] = source.apply(edit, number)
    return [applied[n] for n in range(len(edits))], list(sources.values())


@contextlib.contextmanager
def exchanged(edits: Sequence[Edit], sources: Sequence[EditedSource]) -> Iterator[None]:
    """The person's functions with the edits in them. Raises ``CannotChange``."""
    if not edits:
        yield
        return
    changes = _Changes(edits)
    with _lock:
        undo: list[tuple[FunctionType, CodeType]] = []
        try:
            for source in sources:
                _put_in(source, changes, undo)
            yield
            if changes.left:
                place = edits[min(changes.left)].place
                raise CannotChange(
                    f"{place.file}:{place.line} did not run again: it may be loaded twice, or jax"
                    " kept what it traced before"
                )
        finally:
            for function, code in undo:
                function.__code__ = code


def _functions(file: str) -> list[FunctionType]:
    """The functions that a file defines, of the modules that have it and of ``__main__``.

    All objects are asked for only where these have none: while somebody holds a tuple that another
    thread is still building, Python fails there (``SystemError``).
    """
    modules = [m for m in list(sys.modules.values()) if type(m) is ModuleType]
    spaces = [
        vars(m) for m in modules
        if vars(m).get("__file__") == file or vars(m).get("__name__") == "__main__"
    ]  # fmt: skip
    for holders in (lambda: gc.get_referrers(*spaces), gc.get_objects):
        found = [f for f in holders() if type(f) is FunctionType and f.__code__.co_filename == file]
        if found:
            return found
    return []


def _put_in(
    source: EditedSource,
    changes: _Changes,
    undo: list[tuple[FunctionType, CodeType]],
) -> None:
    changed = source.codes()
    stale = is_alive = False
    for found in _functions(source.file):
        code = found.__code__
        for old, new in changed:
            if (new.co_name, new.co_firstlineno) != (code.co_name, code.co_firstlineno):
                continue
            if not any(_is_same(known, code) for known in old):
                stale = True
                continue
            is_alive = True
            undo.append((found, code))
            found.__code__ = _with(changes, new)
    if not is_alive:
        why = "it has changed since it was loaded" if stale else "no function of it is in use"
        raise CannotChange(f"{source.file} cannot be changed in place: {why}")
