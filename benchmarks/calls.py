"""Python calls and groups beside what ``sys.setprofile`` saw while tracing; prints a table.

    python benchmarks/calls.py [PROGRAM …]

The models of tests/python/helpers/call_programs.py. "layers": calls of the layer, found and seen;
"calls": of all functions; "right call": of the instructions with an origin, how many come from
the call that the profiler saw; "groups": groups that are one call of the layer, forward, backward
and rematerialised apart, and how many there should be; "right group": of the boxes of layers,
how many are in the group of their call.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "python"), str(REPO / "tests" / "python")]
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"


def main() -> None:
    import call_oracle
    from call_programs import PROGRAMS

    print(f"{'program':32} {'layers':>9} {'calls':>9}  right call {'groups':>9}  right group")
    rows = []
    for name in sys.argv[1:] or PROGRAMS:
        a = call_oracle.agreement(name)
        rows.append(a)
        print(
            f"{name:32} {a.layers[0]:4}/{a.layers[1]:<4} {a.calls[0]:4}/{a.calls[1]:<4} "
            f"{a.members:11.1%} {a.groups[0]:4}/{a.groups[1]:<4} {a.boxes:12.1%}",
            flush=True,
        )
    instructions = sum(a.instructions for a in rows)
    right = sum(a.instructions * a.members for a in rows) / max(1, instructions)
    worst = min((a.members for a in rows), default=1.0), min((a.boxes for a in rows), default=1.0)
    print(
        f"{len(rows)} programs, {instructions:,} instructions with origin: {right:.2%} in the "
        f"right call; the worst program {worst[0]:.1%}, its boxes {worst[1]:.1%}"
    )


if __name__ == "__main__":
    main()
