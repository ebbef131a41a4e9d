"""How fast a page follows another chip: modelling, ranking and colouring every instruction.

    python benchmarks/what_if.py FILE

FILE is a dump; a 100,000-instruction one is written by ``benchmarks/read_module.py``. Prints a
row a chip, milliseconds; the first is cold. Needs node.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO / "python"))


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    import hloscope as hs

    cap = hs.read(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "view").write_bytes(cap.view_bytes)
        (folder / "analyses").write_bytes(cap.analyses_bytes)
        script = folder / "what_if.mjs"
        subprocess.run(
            [
                str(REPO / "node_modules" / ".bin" / "esbuild"),
                str(REPO / "benchmarks" / "front" / "what_if.ts"),
                "--bundle",
                "--platform=node",
                "--format=esm",
                f"--outfile={script}",
                "--log-level=error",
            ],
            check=True,
        )
        blocks = [str(folder / "view"), str(folder / "analyses")]
        done = subprocess.run(
            ["node", str(script), *blocks], check=True, capture_output=True, text=True
        )
    found = json.loads(done.stdout)
    print(f"{found['instructions']:,} instructions; milliseconds")
    print(f"{'chip':>12} {'model':>8} {'rank':>8} {'paint':>8} {'total':>8}")
    for r in found["rows"]:
        total = r["model"] + r["rank"] + r["paint"]
        print(f"{r['chip']:>12} {r['model']:8.1f} {r['rank']:8.1f} {r['paint']:8.1f} {total:8.1f}")


if __name__ == "__main__":
    main()
