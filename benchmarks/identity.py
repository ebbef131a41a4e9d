"""How often identity that is inferred from unmarked dumps is right; prints a table.

    python benchmarks/identity.py [--topology v5e:2x4] [PROGRAM …]

Each program of tests/corpus is compiled with marks, every pass dumped. The same dumps without
marks are followed by name, structure and metadata, and compared with what the marks say, for
every instruction of the optimised program: "all" also counts those that come from no operation,
for which nothing may be claimed; "with origin" only the others. What is not known, such as which
of several equal operations, counts as wrong.
The last lines say how often each kind of evidence was right.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

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


def compare(lowered: Any) -> Counter[tuple[bool, bool, str]]:
    """(has an origin, inferred is right, evidence) of each instruction of the last module."""
    from hloscope.analysis.passes.passes import passes
    from hloscope.analysis.provenance.inferred import infer
    from hloscope.capturing.dumps import every_pass
    from hloscope.capturing.marks import marks
    from hloscope.readers import read_modules

    marked = marks.mark(lowered)
    assert marked is not None
    with tempfile.TemporaryDirectory() as folder:
        marked.lowered.compile(compiler_options=every_pass.options(folder))
        kept, _ = every_pass.collect(folder, marked)
    with_marks = passes(kept)
    found = infer(with_marks)
    first, last = with_marks.module(0), with_marks.module(len(with_marks) - 1)
    plain_first = read_modules(with_marks.text(0))[0]
    # an operation of the unmarked dump is an instruction of its first module
    exact = [{o.operation for o in i.origins} for i in first.instructions]
    of_first = found.origins(plain_first, 0).of
    means: dict[int, set[int]] = {}
    for origins, numbers in zip(of_first, exact, strict=True):
        for o in origins:
            means[o.operation] = numbers
    out: Counter[tuple[bool, bool, str]] = Counter()
    inferred = found.origins(last).of
    for i in last.instructions:
        known = {o.operation for o in i.origins}
        said = {n for o in inferred[i.index] for n in means[o.operation]}
        out[bool(known), known == said, str(found.how(i))] += 1
    return out


def share(found: Counter[tuple[bool, bool, str]]) -> str:
    whole, right = sum(found.values()), sum(n for (_, ok, _), n in found.items() if ok)
    some = sum(n for (has, _, _), n in found.items() if has)
    good = sum(n for (has, ok, _), n in found.items() if has and ok)
    return (
        f"all {right:6}/{whole:6} {right / max(1, whole):6.1%}   "
        f"with origin {good:6}/{some:6} {good / max(1, some):6.1%}"
    )


def main() -> None:
    from corpus.build import make
    from corpus.programs import PROGRAMS

    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--topology")
    arguments.add_argument("program", nargs="*")
    given = arguments.parse_args()
    platform = "tpu" if given.topology else "cpu"
    whole: Counter[tuple[bool, bool, str]] = Counter()
    for name in given.program or PROGRAMS:
        if platform not in PROGRAMS[name].platforms:
            continue
        begin = time.process_time()
        try:
            found = compare(make(name, given.topology).lower())
        except Exception as error:  # a few TPU programs cannot be printed
            print(f"{name:24} {str(error).splitlines()[0][:60]}")
            continue
        whole += found
        print(f"{name:24} {share(found)}  {time.process_time() - begin:5.1f} s", flush=True)
    print(f"{'together':24} {share(whole)}")
    for kind in sorted({k for _, _, k in whole}):
        right = sum(n for (_, ok, k), n in whole.items() if ok and k == kind)
        count = sum(n for (_, _, k), n in whole.items() if k == kind)
        print(f"{kind:24} right in {right}/{count} ({right / count:.1%})")


if __name__ == "__main__":
    main()
