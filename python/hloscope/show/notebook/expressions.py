"""From what was typed after ``%hlo`` to a Capture: evaluates all of a call but the call itself.

Errors of ours, and mistakes in the typed text, are one line (``UsageError``); errors in the
user's functions keep their traceback.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from ...api.capture import Capture

if TYPE_CHECKING:
    from ...plan.stages.log import StageLog

FILE_NAME = "<%hlo>"


@dataclass
class WhatToShow:
    """What to capture: a value (with arguments if it is a call), or a path."""

    value: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    is_call: bool = False
    text: str = ""


def from_line(text: str, shell: Any) -> WhatToShow:
    """An expression, a quoted path, or a bare path."""
    text = text.strip().removesuffix(";").strip()
    path = _as_path(text, shell.user_ns)
    if path is not None:
        return WhatToShow(path, text=text)
    try:
        tree = ast.parse(text, FILE_NAME, mode="eval")
    except SyntaxError as error:
        if _looks_like_path(text):
            raise UsageError(f"%hlo: there is no file {text}") from None
        raise UsageError(f"%hlo: {error.msg}: {text}") from None
    if isinstance(tree.body, ast.BinOp) and _looks_like_path(text):
        raise UsageError(f"%hlo: there is no file {text}")
    return _source(tree.body, text, FILE_NAME, shell)


def from_cell(cell: str, shell: Any) -> WhatToShow:
    """Runs all statements but the last, which must be an expression."""
    # lines are those of the whole cell, whose first is that of the magic
    name = shell.compile.cache("\n" + cell, shell.execution_count)
    try:
        tree = ast.increment_lineno(ast.parse(shell.transform_cell(cell), name), 1)
    except SyntaxError as error:
        raise UsageError(f"%%hlo: line {1 + (error.lineno or 0)}: {error.msg}") from None
    if not tree.body or not isinstance(tree.body[-1], ast.Expr):
        raise UsageError("%%hlo: the last statement of the cell must be a call or a name")
    *before, last = tree.body
    if before:
        exec(compile(ast.Module(before, []), name, "exec"), shell.user_ns)
    return _source(last.value, ast.unparse(last), name, shell)


def capture(source: WhatToShow, options: dict[str, Any]) -> Capture | StageLog:
    """Captures or reads the source; options that do not apply to it are refused."""
    __tracebackhide__ = True
    from ...api.read import StageLogGiven, read
    from ...readers import ReadError

    if not source.is_call and isinstance(source.value, str | Path):
        wants_passes = options.pop("passes", False)
        refused = [o for o in ("topology", "mesh") if o in options]
        if refused:
            raise UsageError(f"%hlo: --{refused[0]} is for functions; {source.text} is a file")
        wanted = {k: options[k] for k in ("module", "stage", "hardware") if k in options}
        try:
            found = read(source.value, **wanted)
        except StageLogGiven:
            from ...plan.stages.read import read_stage_log

            return read_stage_log(source.value)  # it shows itself
        except (ReadError, OSError) as error:
            raise UsageError(f"%hlo: {error}") from None
        if wants_passes and not found.has_passes:
            raise UsageError(
                f"%hlo: {source.text} holds no passes; give a folder dumped with "
                "--xla_dump_hlo_as_text --xla_dump_hlo_pass_re=.*"
            )
    else:
        found = _live(source, options)
    if options.get("title"):
        found.title = options["title"]
    return found


def what_if(found: Capture, text: str, shell: Any) -> Capture:
    """The capture with the changes of ``--what-if``, written as keywords of ``cap.what_if``."""
    __tracebackhide__ = True
    from ...hlo.changes import CannotChange

    try:
        node = ast.parse(f"dict({text})", FILE_NAME, mode="eval").body
    except SyntaxError as error:
        raise UsageError(f"%hlo --what-if: {error.msg}: {text}") from None
    try:
        return found.what_if(**_evaluate(node, FILE_NAME, shell))
    except CannotChange as error:
        raise UsageError(f"%hlo --what-if: {error}") from None


def prove(found: Capture) -> None:
    """Tries what the findings advise; the proofs stay in the capture."""
    try:
        found.findings.prove()
    except ValueError as error:
        raise UsageError(f"%hlo --prove: {error}") from None


def run(found: Capture, source: WhatToShow) -> Any:
    """Runs the program with the call's arguments: ``cap.run``. Its profile stays in the capture."""
    from ...capturing import CaptureError

    if not source.is_call:
        raise UsageError(f"%hlo: --run needs a call with arrays: %hlo --run {source.text}(…)")
    try:
        return found.run(*source.args, **source.kwargs)
    except (CaptureError, ValueError) as error:
        raise UsageError(f"%hlo --run: {error}") from None


def watch(line: str, cell: str | None, shell: Any) -> Any:
    """Runs a line or a cell in the user's namespace and returns what jax compiled meanwhile.

    Errors of the code are raised after what was seen until then is printed.
    """
    from ...capturing.watch.watch import watch as watching

    if cell is not None and line:
        raise UsageError(f"%%hlo takes options only on its first line, not {line!r}")
    if cell is None and not line:
        raise UsageError("%hlo --watch needs something to run: %hlo --watch f(x)")
    with watching() as session:
        done = shell.run_cell(line if cell is None else cell, store_history=False)
    if not done.success:
        print(session)
        done.raise_error()
    return session


def search(source: WhatToShow, options: dict[str, Any]) -> Any:
    """Ways to shard a call's arguments, ranked: ``hs.search_shardings``."""
    __tracebackhide__ = True
    if not source.is_call:
        raise UsageError(f"%hlo: --search needs a call: %hlo --search {source.text}(…)")
    from ...capturing import CaptureError
    from ...plan.running.options import SearchOptions
    from ...plan.search.search import search_shardings

    chosen = {k: options[k] for k in ("mesh", "topology", "hardware") if options[k] is not None}
    try:
        own = SearchOptions(kwargs=source.kwargs)
        return search_shardings(source.value, *source.args, options=own, **chosen)
    except (CaptureError, ValueError) as error:
        raise UsageError(f"%hlo: {error}") from error.__cause__


def _live(source: WhatToShow, options: dict[str, Any]) -> Capture:
    __tracebackhide__ = True
    if "module" in options:
        raise UsageError("%hlo: --module is for files that hold several modules")
    value = source.value
    if isinstance(value, Capture):
        stage = options.get("stage")
        try:
            found = value if stage is None else value.at(stage)
        except ValueError as error:
            raise UsageError(f"%hlo: {error}") from None
        if "hardware" in options:
            found.hardware = options["hardware"]
        return found
    if not source.is_call and callable(value) and not _is_stage(value):
        raise UsageError(
            f"%hlo: {source.text} is a function; call it with its arguments: "
            f"%hlo {source.text}(…) (the call is not made)"
        )
    from ...capturing import CaptureError
    from ...capturing import capture as live

    chosen = {k: v for k, v in options.items() if k != "module"}
    clash = sorted(set(source.kwargs) & _CAPTURE_OPTIONS)
    try:
        if clash:
            args, kwargs = source.args, dict(source.kwargs)
            return live(_with_keywords(value, kwargs), *args, **chosen)
        return live(value, *source.args, **chosen, **source.kwargs)
    except CaptureError as error:
        raise UsageError(f"%hlo: {error}") from error.__cause__


# Keywords of hs.capture; a test checks that they are the same.
_CAPTURE_OPTIONS = {
    "stage", "topology", "mesh", "in_shardings", "static_argnums", "compiler_options",
    "provenance", "title", "hardware", "profile", "exact", "passes",
}  # fmt: skip


def _with_keywords(fn: Any, kwargs: dict[str, Any]) -> Any:
    """Binds keywords of a function that have the same names as options of ``capture``."""
    import functools

    return functools.wraps(fn)(functools.partial(fn, **kwargs))


def _is_stage(value: Any) -> bool:
    return type(value).__name__ in ("Lowered", "Compiled", "Traced")


def _source(node: ast.expr, text: str, name: str, shell: Any) -> WhatToShow:
    __tracebackhide__ = True
    if not isinstance(node, ast.Call):
        if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            raise UsageError(f"%hlo: {text} is not a call, a name or a file; give f(x)")
        value = _evaluate(node, name, shell)
        if isinstance(value, str | Path | Capture) or _is_stage(value) or callable(value):
            return WhatToShow(value, text=text)
        raise UsageError(
            f"%hlo: {text} is of type {type(value).__name__}; give a call such as f(x), a "
            "Lowered or Compiled, a Capture, or a file"
        )
    callee = _evaluate(node.func, name, shell)
    if _makes_a_stage(node.func, callee):
        return WhatToShow(_evaluate(node, name, shell), text=text)
    # the arguments as Python would bind them, stars included
    collect = ast.Call(ast.Name("_hloscope_collect", ast.Load()), node.args, node.keywords)
    args, kwargs = _evaluate(ast.copy_location(collect, node), name, shell)
    return WhatToShow(callee, args, kwargs, is_call=True, text=text)


def _makes_a_stage(func: ast.expr, callee: Any) -> bool:
    """f.lower(x), .compile(), hs.capture(…), hs.read(…): the call itself is what to show."""
    if isinstance(func, ast.Attribute) and func.attr in ("trace", "lower", "compile", "at"):
        owner = getattr(callee, "__self__", None)
        return (
            owner is None
            or hasattr(owner, "lower")
            or hasattr(owner, "compile")
            or isinstance(owner, Capture)
            or _is_stage(owner)
        )
    return str(getattr(callee, "__module__", "")).startswith("hloscope.")


def _evaluate(node: ast.expr, name: str, shell: Any) -> Any:
    __tracebackhide__ = True
    code = compile(ast.fix_missing_locations(ast.Expression(node)), name, "eval")
    try:
        return eval(code, shell.user_ns, {"_hloscope_collect": lambda *a, **k: (a, k)})
    except Exception as error:
        at = error.__traceback__
        while at is not None and at.tb_next is not None:
            at = at.tb_next
        if at is not None and at.tb_frame.f_code is code:
            said = f"{type(error).__name__}: {error}"
            raise UsageError(f"%hlo: {said}") from None
        raise


def _as_path(text: str, names: Mapping[str, Any]) -> Path | None:
    """The file meant: a quoted string, or bare text that is not an expression over known names."""
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError:
        node = None
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        path = Path(node.value).expanduser()
        if not path.exists():
            raise UsageError(f"%hlo: there is no file {path}")
        return path
    root = node
    while isinstance(root, ast.Attribute):
        root = root.value
    if (isinstance(root, ast.Name) and root.id in names) or isinstance(node, ast.Call):
        return None
    path = Path(text).expanduser()
    try:
        if path.exists():
            return path
    except (OSError, ValueError):
        return None
    if isinstance(root, ast.Name) and _looks_like_path(text):
        raise UsageError(f"%hlo: there is no file {text} and no name {root.id}")
    return None


def _looks_like_path(text: str) -> bool:
    from ...readers.formats import SUFFIXES

    return text.endswith(SUFFIXES) or (" " not in text and "/" in text and "(" not in text)
