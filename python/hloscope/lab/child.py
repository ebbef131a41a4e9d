"""The process that reads a file for the server: limits itself first, then reads, then answers.

    python -P -m hloscope.lab.child --want view,text --memory BYTES --seconds S [FILE2]

The file comes on standard input, frames go to standard output. Everything a hostile file can
do (memory, time, a crash) ends with this process.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING, Any, BinaryIO

from ..analysis.text.units import size
from ..processes.frames import encode
from ..processes.inside import limit_this_process, output_for_frames
from ..show import blocks
from . import frames, passes
from .dumps import state_of

if TYPE_CHECKING:
    from ..api.capture import Capture


def _capture(data: bytes, name: str, module: str | None, hardware: str | None) -> Capture:
    from ..api.read import read
    from ..readers.entries import name_or_number

    cap = read(data, module=name_or_number(module), sources=False)
    cap.file = name
    if hardware:
        cap.hardware = hardware
    return cap


_HEADS = re.compile(rb"^HloModule\s", re.MULTILINE)


def about(data: bytes, module: str | None) -> dict[str, Any]:
    """The modules that the data holds, and which of them was taken."""
    from ..readers import ReadError, list_modules
    from ..readers.entries import name_or_number
    from ..readers.recognise import is_trace

    single = {"modules": [], "module": 0}
    several = data[:2] == b"\x1f\x8b" or is_trace(data) or len(_HEADS.findall(data)) > 1
    if not several:
        return single
    try:
        entries = list_modules(data)
    except ReadError:
        return single
    sizes = [e.instructions or 0 for e in entries]
    taken = 0 if is_trace(data) else sizes.index(max(sizes))
    chosen = name_or_number(module)
    if isinstance(chosen, int):
        taken = chosen
    found = [{"name": e.name, "instructions": e.instructions} for e in entries]
    return {"modules": found, "module": taken}


_AT_LINE = re.compile(r"\bline (\d{1,9})(?:, column (\d{1,9}))?")


def describe(error: Exception, data: bytes) -> bytes:
    """The error frame: message, and the lines of the file around the one at fault."""
    message = str(error) or type(error).__name__
    line, column = getattr(error, "line", None), getattr(error, "column", None)
    found = _AT_LINE.search(message)
    if line is None and found:
        line = int(found[1])
        column = int(found[2]) if found[2] else None
    excerpt: list[tuple[int, str]] = []
    if data[:2] != b"\x1f\x8b" and b"\0" not in data[:4096]:
        first = max(1, (line or 1) - 3)
        lines = data.split(b"\n", first + 8)
        for n, text in enumerate(lines[first - 1 : first + 6], first):
            excerpt.append((n, text[:400].decode("utf-8", "replace").rstrip("\r")))
        if excerpt and not excerpt[-1][1] and excerpt[-1][0] != line:
            excerpt.pop()  # nothing follows the last line break
    return frames.error(message, line, column, excerpt)


def serve(out: BinaryIO, args: argparse.Namespace) -> None:
    """Reads what is requested and writes the frames."""

    def send(frame: bytes) -> None:
        out.write(frame)
        out.flush()

    send(frames.progress("Reading the file", 0.0))
    data = sys.stdin.buffer.read()
    try:
        from ..readers import ReadError

        read = [data]
        if args.other is not None:
            with open(args.other, "rb") as stream:
                read.append(stream.read())
        digests = [frames.digest(d) for d in read]

        def passes_as_they_were() -> None:
            state = [state_of(args.folder, args.name)[0]] if args.folder is not None else []
            send(frames.encode_json(b"D", digests + state))

        passes_as_they_were()
        send(frames.progress("Reading the module", 0.05))
        try:
            hardware = None if args.want == "chip" else args.hardware
            cap = _capture(data, args.name, args.module, hardware)
            other = None
            if args.other is not None:
                other = _capture(read[1], args.other_name, args.other_module, args.hardware)
        except (ReadError, ValueError, LookupError) as e:
            send(describe(e, data))
            return
        except RecursionError:
            send(frames.error("this is nested too deep to read"))
            return
        wants = args.want.split(",")
        if "view" in wants:
            send(frames.progress("Preparing the view", 0.6))
            send(encode(b"V", blocks.view(cap)))
        if "analyses" in wants:
            send(encode(b"A", blocks.analyses(cap)))
        if "chip" in wants:
            send(encode(b"F", blocks.for_chip(cap, args.hardware or "")))
        if "text" in wants:
            send(encode(b"T", blocks.text(cap)))
        if "stages" in wants:
            send(encode(b"S", blocks.stages(cap)))
        if "list" in wants:
            send(frames.encode_json(b"I", about(data, args.module)))
        if "html" in wants:
            send(frames.progress("Writing the page", 0.6))
            send(encode(b"H", cap.html().encode()))
        if "passes" in wants:
            try:
                passes.serve(send, cap, args.folder, args.name, passes_as_they_were)
            except (ReadError, ValueError) as e:
                send(frames.error(str(e)))
        if "diff" in wants and other is not None:
            from ..api.compared import diff

            send(frames.progress("Comparing", 0.6))
            send(encode(b"H", diff(cap, other).html().encode()))
    except MemoryError:
        data = b""
        read = []
        send(frames.error(f"reading this needs more than {size(args.memory)} of memory"))


def warm_up() -> None:
    """Imports, and loads, what nearly every file needs: this process's forks need not."""
    from ..api.read import read

    cap = read(b"HloModule m\n\nENTRY e {\n  ROOT p = f32[8] parameter(0)\n}\n", sources=False)
    for block in (blocks.view, blocks.analyses, blocks.text):
        block(cap)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="hloscope.lab.child")
    parser.add_argument("--want", required=True)
    parser.add_argument("--memory", type=int, required=True)
    parser.add_argument("--seconds", type=int, required=True)
    parser.add_argument("--name", default="")
    parser.add_argument("--module")
    parser.add_argument("--other")
    parser.add_argument("--other-name", default="")
    parser.add_argument("--other-module")
    parser.add_argument("--hardware")
    parser.add_argument("--folder", type=int)
    args = parser.parse_args(arguments)
    # Before writing files is forbidden: modules that were not compiled at installation are now
    # kept compiled by Python for the next child, which starts half a second sooner.
    from .. import view  # noqa: F401

    limit_this_process(args.memory, args.seconds)
    out = output_for_frames()
    try:
        serve(out, args)
        out.close()
    except BrokenPipeError:  # nothing waits for it any more
        return 1
    except Exception as e:  # our own errors too must be one clear line
        out.write(frames.error(f"this file could not be shown: {type(e).__name__}: {e}"))
        out.close()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
