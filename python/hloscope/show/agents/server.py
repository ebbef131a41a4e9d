"""The server behind ``hloscope mcp``: a coding agent opens programs and asks about them.

    open / capture ─▶ "p1" ─▶ findings ─▶ why, line, memory, costs ─▶ what_if, prove ─▶ diff
                      kept in OpenPrograms        answers.py

It reads files and nothing more. What imports and runs the person's code (``capture``, ``what_if``,
``prove``) is refused unless the person allowed it. A tool's error is one sentence.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import linecache
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, ParamSpec, TypeVar

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.types import TextContent, ToolAnnotations
from pydantic import ValidationError

from ...hlo.changes import Changes
from ...hlo.texts.places import is_library
from ...processes.limits import LimitReached, within_limits
from ..commands.functions import function_of
from ..commands.shared import CommandError, existing, reason
from ..commands.trace import traced
from . import answers

P = ParamSpec("P")
R = TypeVar("R")
# OpenPrograms that are kept; the oldest make room. And rows of an answer.
KEPT, MOST_ROWS = 16, 50
INSTRUCTIONS = (
    "hloscope shows what XLA made of a JAX program. open a dump, HLO text or profile (or capture a"
    " function), then ask findings; each answer has the next question to ask. Figures are per"
    " device and step; modelled ones are not measured."
)
READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
RUNS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=True)

Spec = list[str | list[str] | None]
Policy = str | dict[str, list[str]] | None


@dataclass(frozen=True)
class AskedChanges:
    """Changes to a program, as ``cap.what_if`` takes them; a PartitionSpec is a list."""

    # others than these are refused
    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    donate: str | list[str] | None = None
    in_shardings: dict[str, Spec] | None = None
    out_shardings: dict[str, Spec] | None = None
    mesh: str | dict[str, int] | None = None
    topology: str | None = None
    axis_types: str | None = None
    constrain: dict[str, Spec] | None = None
    remat: str | list[str] | dict[str, Policy] | None = None
    cast: dict[str, str] | None = None
    matmul_precision: str | None = None
    x64: bool | None = None
    compiler_options: str | dict[str, str | bool | int | float] | None = None
    batch: int | None = None
    batch_axes: dict[str, int] | None = None
    sizes: dict[str, int | dict[str, int]] | None = None
    hardware: str | None = None

    def as_changes(self) -> Changes:
        """Those that were asked for; lists as tuples."""
        given = {k: v for k, v in vars(self).items() if v is not None}
        for kind in ("in_shardings", "out_shardings", "constrain"):
            if kind in given:
                given[kind] = {_place(k): _spec(v) for k, v in given[kind].items()}
        found: Changes = given  # type: ignore[assignment]
        return found


def _place(text: str) -> str | int:
    """An operation's number is one; JSON's keys are all text."""
    return int(text) if text.isdigit() else text


def _spec(entries: Spec) -> tuple[Any, ...]:
    return tuple(tuple(e) if isinstance(e, list) else e for e in entries)


class OpenPrograms:
    """The captures that were opened, by the names that answers gave them."""

    def __init__(self) -> None:
        self._captures: dict[str, Any] = {}
        self._count = 0

    def keep(self, capture: Any) -> str:
        self._count += 1
        name = f"p{self._count}"
        self._captures[name] = capture
        while len(self._captures) > KEPT:
            del self._captures[next(iter(self._captures))]
        return name

    def find(self, name: str) -> Any:
        """Raises ``ToolError`` for one that is not open."""
        if name not in self._captures:
            known = ", ".join(self._captures)
            some = f"open ones are {known}" if known else "open or capture one first"
            raise ToolError(f"no program {name!r} is open; {some}")
        return self._captures[name]


class _Server(MCPServer[Any]):
    """Whose errors are one sentence each."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> Any:
        tools = {t.name: t for t in await self.list_tools()}
        if name in tools:
            takes = list(tools[name].input_schema.get("properties", {}))
            unknown = [a for a in arguments if a not in takes]
            if unknown:
                raise ToolError(f"{name} has no argument {unknown[0]!r}; it takes {_listed(takes)}")
        else:
            raise ToolError(f"there is no tool {name!r}; there are {_listed(tools)}")
        try:
            found = await super().call_tool(name, arguments, context)
            return _short(found)
        except ToolError as error:
            cause = error.__cause__
            if isinstance(cause, ValidationError):
                raise ToolError(f"{name}: {_invalid(cause)}") from cause
            if isinstance(error, UnexpectedToolError):
                bug = f"{type(cause).__name__}: {cause} (a bug in hloscope)"
                raise ToolError(answers.said(bug)) from cause
            raise ToolError(answers.said(cause if cause is not None else error)) from cause


def _short(found: Any) -> Any:
    """The text beside the structured answer in as few characters as it takes: agents read that."""
    whole = getattr(found, "structured_content", None)
    if whole is None:
        return found
    text = json.dumps(_known(whole), ensure_ascii=False, separators=(",", ":"))
    return found.model_copy(update={"content": [TextContent(type="text", text=text)]})


def _known(value: Any) -> Any:
    """Without what is unknown or empty, which the structured answer says."""
    if isinstance(value, dict):
        return {k: _known(v) for k, v in value.items() if v not in (None, "", [], {})}
    return [_known(v) for v in value] if isinstance(value, list) else value


def _listed(names: Any) -> str:
    return ", ".join(names) or "none"


def _invalid(error: ValidationError) -> str:
    """What is wrong with the first argument that is, without its value."""
    wrong: dict[str, list[str]] = {}
    for e in error.errors(include_url=False, include_input=False):
        argument, *inside = map(str, e["loc"])
        at = ".".join((argument, *inside[: argument == "changes"]))  # the rest are pydantic's types
        message = str(e["msg"])
        wrong.setdefault(at, []).append(message[:1].lower() + message[1:])
    at, messages = next(iter(wrong.items()))
    first, *others = dict.fromkeys(messages)
    others = [m.removeprefix("input should be ") for m in others]
    return answers.said(f"{at}: {', or '.join((first, *others))}")


class Tools:
    """What an agent can ask. A name in ``program`` is one that ``open`` or ``capture`` gave."""

    def __init__(self) -> None:
        self._programs = OpenPrograms()

    def open(
        self,
        path: str,
        module: str | None = None,
        stage: str | None = None,
        hardware: str | None = None,
        profile: str | None = None,
    ) -> answers.Opened:
        """Opens HLO text, a proto, StableHLO, a profiler trace or a dump directory.

        module: which of several, by name or number. stage: of a dump directory. hardware: the chip
        to model time on, such as "tpu-v5e" or "h100". profile: a trace with measured times.
        """
        from ...api.read import read
        from ...readers.entries import name_or_number

        if ":" in path and not os.path.exists(path):
            then = answers.ask("capture", function=path)
            raise CommandError(f"{path}: no such file; a function is captured: {then}")
        found = read(
            existing(path),
            module=name_or_number(module),
            stage=stage,
            hardware=hardware,
            profile=profile,
        )
        return answers.opened(self._programs.keep(found), found)

    def capture(
        self,
        function: str,
        args: str | None = None,
        mesh: str | None = None,
        topology: str | None = None,
        hardware: str | None = None,
    ) -> answers.Opened:
        """Imports a module anew and compiles its function; the function itself does not run.

        function: "train:step" or "path/to/train.py:step". args: the name there of a tuple of its
        arguments (shapes will do), or of a function that gives one; FUNCTION_args by default. mesh:
        axis sizes, "data=2,model=4". topology: a TPU's, such as "v5e:2x4", which needs libtpu and
        no TPU.
        """
        from ...capturing import capture

        with _imported_anew():
            fn, given = function_of(function, args)
        found = capture(fn, *given, mesh=mesh, topology=topology, hardware=hardware)
        return answers.opened(self._programs.keep(found), found)

    def summary(self, program: str) -> answers.SummaryAnswer:
        """Step time, peak memory, bytes on the wire, and what is in the program."""
        return answers.summary(program, self._programs.find(program))

    def findings(self, program: str, limit: int = 5) -> answers.FindingsAnswer:
        """What is worth acting on, most at stake first: why, on which line, and what to try."""
        return answers.findings(program, self._programs.find(program), _rows(limit))

    def collectives(self, program: str, limit: int = 10) -> answers.CollectivesAnswer:
        """The communication, by kind, mesh axes and line, most bytes on the wire first."""
        return answers.collectives(program, self._programs.find(program), _rows(limit))

    def why(self, program: str, collective: str) -> answers.WhyAnswer:
        """Why a collective is there: what needs it, what moves, and what set the shardings.

        collective: the name of its instruction, such as "all-gather.3".
        """
        return answers.why(program, self._programs.find(program), collective)

    def line(self, program: str, line: str, limit: int = 10) -> answers.LineAnswer:
        """What became of a source line, such as "model.py:42": instructions, passes, fates."""
        return answers.line(program, traced(self._programs.find(program), line), _rows(limit))

    def memory(self, program: str, limit: int = 8) -> answers.MemoryAnswer:
        """The peak of memory: what is live there, by kind, and the largest values."""
        return answers.memory(program, self._programs.find(program), _rows(limit))

    def costs(self, program: str, limit: int = 8) -> answers.CostsAnswer:
        """The instructions that take most modelled time, or do most work where no chip is known."""
        return answers.costs(program, self._programs.find(program), _rows(limit))

    def diff(self, a: str, b: str, limit: int = 10) -> answers.DiffAnswer:
        """What differs between two open programs, matched by structure."""
        from ...api.compared import diff

        return answers.diff(b, diff(self._programs.find(a), self._programs.find(b)), _rows(limit))

    def what_if(
        self, program: str, changes: AskedChanges, check_values: bool = False
    ) -> answers.TriedAnswer:
        """Compiles a captured program with changes; no file is edited.

        changes: such as {"donate": ["params"], "remat": {"block": "dots_saveable"}}. check_values:
        also runs both once on random inputs, and says whether they compute the same.
        """
        base = self._programs.find(program)
        changed = base.what_if(**changes.as_changes())
        same = str(changed.same_values()) if check_values else None
        return answers.tried(self._programs.keep(changed), (program, base), changed, same)

    def prove(self, program: str, limit: int = 5) -> answers.FindingsAnswer:
        """Compiles what findings advise, and says what each gained."""
        rows, found = _rows(limit), self._programs.find(program)
        found.findings.prove()
        return answers.findings(program, found, rows)


def server(*, allow_run: bool = False) -> MCPServer[Any]:
    """The server; ``allow_run``: it may import and run the person's code."""
    from ... import __version__

    made = _Server("hloscope", instructions=INSTRUCTIONS, version=__version__, log_level="CRITICAL")
    tools = Tools()
    one_at_a_time = threading.Lock()

    def reads(work: Callable[P, R]) -> Callable[P, R]:
        """A tool that reads, within the limits of reading."""

        @functools.wraps(work)
        def tool(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                with one_at_a_time, within_limits(work.__name__):
                    return work(*args, **kwargs)
            except (ValueError, LookupError, OSError, CommandError, LimitReached) as error:
                raise ToolError(answers.said(reason(error))) from None
            except MemoryError:
                raise ToolError("there is not enough memory for this") from None

        return tool

    def runs(work: Callable[P, R]) -> Callable[P, R]:
        """A tool that imports, traces and compiles code of the person's, who allows it or not."""

        @functools.wraps(work)
        def tool(*args: P.args, **kwargs: P.kwargs) -> R:
            if not allow_run:
                raise ToolError(
                    f"{work.__name__} imports and runs code of yours, and this server only reads;"
                    " the person can allow it: hloscope mcp --allow-run"
                )
            from ...capturing import CaptureError

            own = CommandError, CaptureError
            try:
                with one_at_a_time:
                    return work(*args, **kwargs)
            except (ToolError, ValueError, LookupError, OSError, *own) as error:
                raise ToolError(answers.said(reason(error))) from None
            except (Exception, SystemExit) as error:  # whatever the person's code raises
                first = (str(error).splitlines() or [""])[0]
                raise ToolError(answers.said(f"{type(error).__name__}: {first}")) from None

        return tool

    reading: tuple[Callable[..., Any], ...] = (
        tools.open, tools.summary, tools.findings, tools.collectives, tools.why, tools.line,
        tools.memory, tools.costs, tools.diff,
    )  # fmt: skip
    running: tuple[Callable[..., Any], ...] = (tools.capture, tools.what_if, tools.prove)
    for work in reading:
        made.add_tool(reads(work), annotations=READS)
    for work in running:
        made.add_tool(runs(work), annotations=RUNS)
    return made


def _rows(limit: int) -> int:
    if not 1 <= limit <= MOST_ROWS:
        raise CommandError(f"limit is 1 to {MOST_ROWS}, not {limit}")
    return limit


# Modules of the person's that captures imported: an agent edits them between two calls.
_imported: set[str] = set()


@contextlib.contextmanager
def _imported_anew() -> Iterator[None]:
    """Imports inside read the files as they are now, and leave no bytecode beside them."""
    for name in _imported:
        sys.modules.pop(name, None)
    _imported.clear()
    importlib.invalidate_caches()
    linecache.clearcache()
    before, wrote = set(sys.modules), sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = wrote
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and not is_library(file) and name.partition(".")[0] not in _INSTALLED:
                _imported.add(name)


# Not the person's, wherever they are.
_INSTALLED = {"hloscope", "jax", "jaxlib"}
