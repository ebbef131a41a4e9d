"""``hloscope check FILE``: budgets for CI. Status 0 kept, 1 a breach, 2 cannot be evaluated."""

from __future__ import annotations

import argparse
import json
import os
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..terminal import BOLD, GREEN, RED, YELLOW
from .shared import CommandError, add_source, existing, load, reason, write

if TYPE_CHECKING:
    from ...analysis.check.result import Breach, CheckReport
    from ...api.capture import Capture

NAME = "check"
HELP = "check a module against budgets; status 1: one is exceeded, 2: cannot be evaluated"
KEYS = (
    "max-peak", "max-wire-bytes", "forbid", "max-instructions", "require-donation", "baseline",
    "tolerance",
)  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    parser.add_argument(
        "--config", metavar="TOML", help="budgets; in pyproject.toml under [tool.hloscope.check]"
    )
    parser.add_argument(
        "--max-peak",
        metavar="[MEMORY=]SIZE",
        action="append",
        default=[],
        help="peak main memory per device: 12GiB, or of another: host=64GiB; may be repeated",
    )
    parser.add_argument(
        "--max-wire-bytes",
        metavar="[AXIS=]SIZE",
        action="append",
        default=[],
        help="bytes sent per device, over one mesh axis or in total; may be repeated",
    )
    parser.add_argument(
        "--forbid",
        metavar="WHAT",
        action="append",
        default=[],
        help='"all-gather over model", all-to-all, f64, host-transfer, an opcode, "findings" or '
        "one of them such as gathered-twice; repeatable",
    )
    parser.add_argument(
        "--max-instructions", metavar="N", type=int, help="size of the program, fused ones too"
    )
    parser.add_argument(
        "--require-donation",
        metavar="ARGUMENT",
        nargs="?",
        action="append",
        default=[],
        const=True,
        help='arguments ("params*") whose memory an output must reuse; without, all that are '
        "donated: write it after FILE then",
    )
    parser.add_argument(
        "--baseline",
        metavar="JSON",
        help="figures of a stored run: none may be exceeded by more than --tolerance",
    )
    parser.add_argument(
        "--tolerance", metavar="PART", help="of each stored figure: 0.05 or 5%% (2%%)"
    )
    parser.add_argument(
        "--write-baseline",
        metavar="JSON",
        help="put this program's figures into a file, beside those of others",
    )
    parser.add_argument("--hardware", metavar="CHIP", help="chip to model the step on")
    parser.add_argument(
        "--format",
        choices=("text", "github", "json"),
        default="text",
        help="github: annotations of a workflow run (%(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    from ...analysis.check.check import budgets, check_budgets

    wanted = _wanted(arguments)
    try:
        found = budgets(**{k.replace("-", "_"): v for k, v in wanted.items()})
    except (TypeError, ValueError) as error:
        where = f"{arguments.config}: " if arguments.config else ""
        raise CommandError(f"{where}{error}") from error
    if not found and not arguments.write_baseline:
        raise CommandError("no budget is given; see hloscope check --help")
    capture = load(arguments)
    report = check_budgets(capture, found)
    if arguments.write_baseline:
        _write_baseline(arguments.write_baseline, capture)
    style = _style if arguments.format == "text" else None
    write(_FORMATS[arguments.format](report), None, style)
    return report.status


def _write_baseline(path: str, capture: Capture) -> None:
    from ...api.baseline import write_baseline

    try:
        write_baseline(path, capture)
    except (OSError, ValueError) as error:
        raise CommandError(reason(error)) from error


def _wanted(arguments: argparse.Namespace) -> dict[str, Any]:
    """The file's budgets, each replaced by its option where that is given."""
    wanted = _config(existing(arguments.config)) if arguments.config else {}
    if arguments.max_peak:
        wanted["max-peak"] = _named(arguments.max_peak, "device")
    if arguments.max_instructions is not None:
        wanted["max-instructions"] = arguments.max_instructions
    if arguments.forbid:
        wanted["forbid"] = arguments.forbid
    if arguments.max_wire_bytes:
        wanted["max-wire-bytes"] = _named(arguments.max_wire_bytes, "total")
    if arguments.baseline:
        wanted["baseline"] = str(existing(arguments.baseline))
    if arguments.tolerance is not None:
        wanted["tolerance"] = arguments.tolerance
    if arguments.require_donation:
        names = [n for n in arguments.require_donation if n is not True]
        wanted["require-donation"] = names or True
    return wanted


def _named(texts: list[str], single: str) -> dict[str, str]:
    """``NAME=SIZE`` as sizes by name; one without a name belongs to ``single``."""
    pairs = (text.rpartition("=") for text in texts)
    return {name or single: size for name, _, size in pairs}


def _config(path: Path) -> dict[str, Any]:
    try:
        content: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(reason(error)) from error
    except ValueError as error:
        raise CommandError(f"{path} is not valid TOML: {error}") from error
    if path.name == "pyproject.toml" or "tool" in content:
        for key in ("tool", "hloscope", "check"):
            content = content.get(key) if isinstance(content, Mapping) else None
        if not isinstance(content, Mapping):
            raise CommandError(f"{path} has no [tool.hloscope.check]")
    for key in content:
        if key not in KEYS:
            near = get_close_matches(key, KEYS, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; budgets are: {', '.join(KEYS)}"
            raise CommandError(f"{path}: no budget is called {key}{hint}")
    return dict(content)


def _style(line: str) -> str:
    if line.startswith("  ok: "):
        return GREEN
    if line.startswith("  cannot be evaluated: "):
        return YELLOW
    return RED if line.startswith("  ") else BOLD


def _text(report: CheckReport) -> str:
    from ...hlo.parts import printable

    return "\n".join(printable(line) for line in str(report).splitlines())


def _github(report: CheckReport) -> str:
    """Workflow commands; their values are escaped as GitHub's runner requires."""
    from ...hlo.parts import printable

    def line(kind: str, b: Breach) -> str:
        where = f"file={_relative(b.file)},line={b.line}," if b.file else ""
        title = _property(f"hloscope {b.budget}")
        return f"::{kind} {where}title={title}::{_data(b.message)}"

    lines = [line("error", b) for b in report.breaches]
    lines += [line("error", p) for p in report.problems]
    # never first in its line: a module may be called ::error::
    kept = f"hloscope: {len(report.kept)} budgets kept in {_data(printable(report.title))}"
    return "\n".join(lines) or kept


def _relative(file: str) -> str:
    """Relative to the working folder, which is the checkout in a workflow."""
    path = Path(file)
    if path.is_absolute() and path.is_relative_to(os.getcwd()):
        file = str(path.relative_to(os.getcwd()))
    return _property(file)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _json(report: CheckReport) -> str:
    return json.dumps(report.to_dict(), indent=2)


_FORMATS = {"text": _text, "github": _github, "json": _json}
