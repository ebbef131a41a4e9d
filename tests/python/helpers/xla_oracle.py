"""XLA's own parser to check our readers, in a child process because it may abort.

``assert_agrees(text, proto)`` is what tests call. Run as a program, this answers requests on
standard input ("kind length" and that many bytes of HLO text or of a serialized
HloModuleProto) with XLA's view of each as one line of JSON, until it is aborted or closed.
"""

from __future__ import annotations

import atexit
import base64
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
from typing import Any

if __name__ != "__main__":  # the child imports jaxlib alone
    import pytest
    from hloscope.hlo import Module
    from hloscope.hlo.compare import differences
    from hloscope.hlo.texts.printer import to_text
    from hloscope.readers import read_modules

TIME_LIMIT_SECONDS = 120


class Refused(Exception):
    """XLA's parser did not accept the module, as with some TPU dumps."""


def assert_agrees(text: str | None, proto: bytes | None) -> str:
    """Fails unless all readings of one program agree; returns what was compared with XLA.

    * text and proto give equal Modules;
    * XLA's parser finds the same computations, names, opcodes, shapes, operands, calls and
      (in a scheduled module) order: of the text, or of the proto if it refuses the text;
    * printing and reading again is a fixed point.
    """
    found: list[tuple[str, Module, str | bytes]] = []
    if text is not None:
        found.append(("text", read_modules(text)[0], text))
    if proto is not None:
        found.append(("proto", read_modules(proto)[0], proto))
    assert found, "nothing to compare"
    for what, module, _ in found:
        assert not module.warnings, (what, module.warnings)
    if len(found) == 2:
        assert differences(found[0][1], found[1][1]) == []
    for _, module, _ in found:
        assert_prints(module)
    for what, module, source in found:
        try:
            theirs = ask_xla(source)
        except Refused:
            continue
        assert compare(module, theirs) == []
        return what
    return "nothing: XLA refused both"


def assert_prints(module: Module) -> None:
    """read(print(m)) equals m, and printing that gives the same text."""
    printed = to_text(module)
    again = read_modules(printed)[0]
    assert differences(module, again) == []
    assert to_text(again) == printed


def ask_xla(source: str | bytes, kind: str = "") -> dict[str, Any]:
    """XLA's view of a module. Raises ``Refused``."""
    kind = kind or ("text" if isinstance(source, str) else "proto")
    return _child(kind, source.encode() if isinstance(source, str) else source)


class _Child:
    """One process for many modules, started again after each abort."""

    process: subprocess.Popen[bytes] | None = None

    def __call__(self, kind: str, data: bytes) -> dict[str, Any]:
        process = self.process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        watchdog = threading.Timer(TIME_LIMIT_SECONDS, process.kill)
        watchdog.start()
        try:
            process.stdin.write(f"{kind} {len(data)}\n".encode() + data)
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = b""
        finally:
            watchdog.cancel()
        if not answer:
            process.wait()
            self.process = None
            raise Refused(f"XLA ended with {process.returncode}")
        found: dict[str, Any] = json.loads(answer)
        if "refused" in found:
            raise Refused(found["refused"])
        return found

    def _start(self) -> subprocess.Popen[bytes]:
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
        )
        atexit.register(self.process.kill)
        return self.process


_child = _Child()


def through_xla(text: str) -> tuple[str, bytes]:
    """The module as XLA itself prints it, and its proto. Raises ``Refused``."""
    if importlib.util.find_spec("jaxlib._hlo") is None:
        pytest.skip("this jaxlib does not let one use XLA's parser")
    found = ask_xla(text, "convert")
    return found["text"], base64.b64decode(found["proto"])


def compare(module: Module, theirs: dict[str, Any]) -> list[str]:
    """One line per difference; the order of an unscheduled module is not compared."""
    out = []
    scheduled = module.is_scheduled
    ours = {c.name: c for c in module.computations}
    if sorted(ours) != sorted(theirs["computations"]):
        out.append(f"computations: {sorted(set(ours) ^ set(theirs['computations']))[:10]}")
    entry = module.entry.name if module.entry else None
    if entry != theirs["entry"]:
        out.append(f"entry: {entry} | {theirs['entry']}")
    for name, rows in theirs["computations"].items():
        if name not in ours:
            continue
        mine = [
            [
                i.name,
                i.opcode,
                i.shape.text,
                [o.name for o in i.operands],
                sorted(c.name for c in i.called_computations),
                i.is_root,
            ]
            for i in ours[name].instructions
        ]
        silent = {r[0] for r in rows if r[1].endswith("-start") and not r[4]}
        for row in mine:  # the shortest print leaves out what an async operation wraps
            row[4] = [] if row[0] in silent else row[4]
        for row in (*mine, *rows):  # XLA's parser drops E(4) from the layout of a constant
            row[2] = re.sub(r":?E\(4\)", "", row[2]) if row[1] == "constant" else row[2]
        if not scheduled:
            mine.sort()
            rows = sorted(rows)
        if len(mine) != len(rows):
            out.append(f"%{name}: {len(mine)} instructions | {len(rows)}")
        out += [f"%{name}: {a} | {b}" for a, b in zip(mine, rows, strict=False) if a != b]
    return out[:20]


def compare_apart(module: Module, theirs: dict[str, Any]) -> tuple[list[str], list[str]]:
    """(what differs, what XLA's parser itself changed from the text).

    XLA gives every array without a layout the default one, and gives names that are in two
    computations new numbers: ``f32[2,3]`` becomes ``f32[2,3]{1,0}``, ``a`` becomes ``a.1``.
    """
    found = compare(module, theirs)
    if not found:
        return [], []
    ours = {c.name: [_row(i) for i in c.instructions] for c in module.computations}
    laid_out = {name: _laid_out(rows) for name, rows in ours.items()}
    entry = module.entry.name if module.entry else None
    other = {name: _laid_out(rows) for name, rows in theirs["computations"].items()}
    layouts = ["layouts"] if any(laid_out[n] != rows for n, rows in ours.items()) else []
    if {n: sorted(r) for n, r in laid_out.items()} == {n: sorted(r) for n, r in other.items()}:
        return ([], layouts) if entry == theirs["entry"] else (found, [])
    mine, his = _without_numbers(laid_out, entry), _without_numbers(other, theirs["entry"])
    return ([], [*layouts, "names"]) if mine == his else (found, [])


def _row(i: Any) -> list[Any]:
    called = sorted(c.name for c in i.called_computations)
    return [i.name, i.opcode, i.shape.text, [o.name for o in i.operands], called, i.is_root]


_BARE_ARRAY = re.compile(r"\b([a-z]\w*)\[([^\]]*)\](?!\{)")


def _laid_out(rows: list[Any]) -> list[Any]:
    def array(m: re.Match[str]) -> str:
        rank = m[2].count(",") + 1 if m[2].strip() else 0
        layout = ",".join(map(str, reversed(range(rank))))
        plain = m[1] in ("token", "opaque") or not rank
        return f"{m[1]}[{m[2]}]" + ("" if plain else f"{{{layout}}}")

    out = []
    for name, opcode, shape, operands, called, root in rows:
        text = re.sub(r"\{\}|:?E\(4\)", "", shape) if opcode == "constant" else shape
        text = re.sub(r"\s*/\*.*?\*/\s*|\s+", "", text.replace("[]{}", "[]"))
        silent = opcode.endswith("-start")  # the shortest print leaves out what it wraps
        out.append(
            [name, opcode, _BARE_ARRAY.sub(array, text), operands, [] if silent else called, root]
        )
    return out


def _without_numbers(computations: dict[str, list[Any]], entry: str | None) -> Any:
    """A form of all computations that ignores the last number of names, and has what each
    instruction computes from what."""

    def base(name: str) -> str:
        return re.sub(r"(?:\.\d+)+\Z", "", name)

    out = []
    for name, rows in computations.items():
        by_name = {r[0]: r for r in rows}
        done: dict[str, int] = {}
        for start in by_name:
            stack = [start]
            while stack:
                row = by_name[stack[-1]]
                left = [o for o in row[3] if o not in done and o in by_name and o not in stack]
                if left:
                    stack.extend(left)
                    continue
                key = (base(row[0]), row[1], row[2], tuple(done.get(o, 0) for o in row[3]))
                done[stack.pop()] = hash((*key, tuple(sorted(map(base, row[4]))), row[5]))
        out.append((base(name), name == entry, sorted(done.values())))
    return sorted(out)


# -- the child ---------------------------------------------------------------------------

_HEADER = re.compile(r"(ENTRY )?%(\S+) \{$")
_LINE = re.compile(r"  (ROOT )?%(\S+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$")
_CALLS = re.compile(
    r"(?:to_apply|calls|condition|body|select|scatter|branch_computations"
    r"|true_computation|false_computation|called_computations)=(\{[^}]*\}|%\S+?)(?:,|$)"
)


def parse_minimal(text: str) -> dict[str, Any]:
    """Parses XLA's shortest print: no metadata, no configurations, no attributes but calls."""
    out: dict[str, Any] = {"entry": None, "computations": {}}
    rows: list[Any] = []
    for line in re.sub(r"/\*.*?\*/", "", text).splitlines():
        header = _HEADER.match(line)
        if header:
            rows = out["computations"][header[2]] = []
            if header[1]:
                out["entry"] = header[2]
            continue
        m = _LINE.match(line)
        if m is None:
            continue
        root, name, shape, opcode, rest = m.groups()
        arguments, _, attributes = rest.partition(")")
        operands = re.findall(r"%([^\s,()]+)", arguments) if opcode != "constant" else []
        called = [c for g in _CALLS.findall(attributes) for c in re.findall(r"%([^\s,{}]+)", g)]
        rows.append([name, opcode, shape, operands, sorted(called), bool(root)])
    return out


def answer(kind: str, data: bytes) -> dict[str, Any]:
    import jaxlib._hlo as xla

    if kind != "proto":
        module = xla.hlo_module_from_text(data.decode())
    else:
        module = xla.HloModule.from_serialized_hlo_module_proto(data)
    if kind == "convert":
        proto = base64.b64encode(module.as_serialized_hlo_module_proto()).decode()
        return {"text": module.to_string(), "proto": proto}
    options = xla.HloPrintOptions()
    for name in (
        "print_metadata",
        "print_backend_config",
        "print_extra_attributes",
        "print_program_shape",
        "print_control_dependencies",
    ):
        setattr(options, name, False)
    return parse_minimal(module.to_string(options))


def main() -> None:
    while header := sys.stdin.buffer.readline():
        kind, size = header.decode().split()
        try:
            found = answer(kind, sys.stdin.buffer.read(int(size)))
        except Exception as error:
            found = {"refused": str(error)[-500:]}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
