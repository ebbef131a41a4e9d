"""Whether marks leave the optimised program as it is: corpus, CPU and TPU; prints a table.

    python benchmarks/marks.py [--topology v5e:2x4] [PROGRAM …]

Each program of tests/corpus is compiled with marks and without. "same": equal text, metadata
aside. "names": the same program, but some instructions have other names. "op_names": every
op_name is as it would be without marks. "origin": of the instructions with metadata, arguments
aside, how many know their StableHLO operations. "ms": marking, and taking the marks out.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "python"), str(REPO / "tests")]
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
for name, value in (
    ("TPU_SKIP_MDS_QUERY", "1"),
    ("TPU_WORKER_HOSTNAMES", "localhost"),
    ("ALLOW_MULTIPLE_LIBTPU_LOAD", "1"),
):
    os.environ.setdefault(name, value)

_METADATA = re.compile(r', metadata=\{(?:[^"{}]|"(?:[^"\\]|\\.)*")*\}')
_NAME = re.compile(r"%([\w.\-<>]+)")


def bare(text: str) -> str:
    """Computations without metadata and the tables of frames."""
    body = re.sub(r"\n\n(?:FileNames.*?\n\n\n?)(?=%|ENTRY)", "\n", text, count=1, flags=re.S)
    return _METADATA.sub("", body)


def renumbered(text: str) -> str:
    """Names replaced by their order of appearance."""
    seen: dict[str, str] = {}
    text = _NAME.sub(lambda m: seen.setdefault(m[1], f"%{len(seen)}"), text)
    return re.sub(r"\b[\w.\-]+: ", ": ", text)


def main() -> None:
    from corpus.build import make
    from corpus.programs import PROGRAMS
    from hloscope.capturing.marks import marks
    from hloscope.readers import read_modules

    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--topology")
    arguments.add_argument("program", nargs="*")
    given = arguments.parse_args()
    platform = "tpu" if given.topology else "cpu"
    count = same = equal = named = with_metadata = known = 0
    print(f"{'program':24} {'operations':>10} {'ms':>5} {'ms':>5}  optimised  op_names   origin")
    for name in given.program or PROGRAMS:
        if platform not in PROGRAMS[name].platforms:
            continue
        try:
            lowered = make(name, given.topology).lower()
            begin = time.process_time()
            marked = marks.mark(lowered)
            marking = time.process_time() - begin
            assert marked is not None
            plain = read_modules(str(lowered.compile().as_text()))[0]
            text = str(marked.lowered.compile().as_text())
        except Exception as error:  # a few TPU programs cannot be printed
            print(f"{name:24} {str(error).splitlines()[0][:60]}")
            continue
        begin = time.process_time()
        found = marks.take_out(marked, text, lambda t: read_modules(t)[0])
        reading = time.process_time() - begin
        a, b = bare(plain.text), bare(found.text)
        verdict = "same" if a == b else "names" if renumbered(a) == renumbered(b) else "DIFFERS"
        op_names = found.op_names() == plain.op_names()
        metadata = [
            i
            for i in found.instructions
            if "metadata=" in i.attribute_text and i.opcode != "parameter"
        ]
        mine = sum(1 for i in metadata if i.origins)
        print(
            f"{name:24} {len(marked.operations):10} {marking * 1e3:5.0f} {reading * 1e3:5.0f}  "
            f"{verdict:9}  {'same' if op_names else 'differ':8}  {mine}/{len(metadata)}",
            flush=True,
        )
        count += 1
        same += verdict == "same"
        equal += verdict != "DIFFERS"
        named += op_names
        with_metadata += len(metadata)
        known += mine
    print(
        f"{count} programs: {same} the same, {equal - same} but for names of instructions, "
        f"{count - equal} different; op_names the same in {named}; "
        f"origin of {known} of {with_metadata} instructions ({known / max(1, with_metadata):.1%})"
    )


if __name__ == "__main__":
    main()
