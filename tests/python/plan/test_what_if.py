"""The renderer's what-if and Python model the same seconds: programs of the corpus, every chip.

For CPU and, where libtpu is installed, for a TPU; one node process models all of them.
"""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus.programs import PROGRAMS
from hloscope.analysis.cost.cost import Cost, estimate
from hloscope.hardware import load
from hloscope.readers import read_modules
from hloscope.show import blocks
from some import some_of

TOPOLOGIES = {"cpu": None, "tpu": "v5e:2x4"}
# A while of unknown trip count with an asynchronous transfer beside a matmul inside.
LOOP = """HloModule loop, is_scheduled=true, num_partitions=4

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
body {
  p = (s32[], f32[512,512], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[512,512] get-tuple-element(p), index=1
  n = s32[] get-tuple-element(p), index=2
  g = f32[512,512] all-reduce-start(x), replica_groups={{0,1,2,3}}, to_apply=add
  d = f32[512,512] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[512,512] all-reduce-done(g)
  y = f32[512,512] add(d, e)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (s32[], f32[512,512], s32[]) tuple(j, y, n)
}
condition {
  p = (s32[], f32[512,512], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=2
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY main {
  x = f32[512,512] parameter(0)
  n = s32[] parameter(1)
  z = s32[] constant(0)
  t = (s32[], f32[512,512], s32[]) tuple(z, x, n)
  w = (s32[], f32[512,512], s32[]) while(t), condition=condition, body=body
  ROOT r = f32[512,512] get-tuple-element(w), index=1
}
"""
# Copies to VMEM and from the host, beside a matmul.
COPIES = """HloModule copies, is_scheduled=true

ENTRY main {
  h = f32[512,512]{1,0:T(8,128)S(5)} parameter(0)
  w = f32[512,512]{1,0:T(8,128)} parameter(1)
  a = (f32[512,512]{1,0:T(8,128)S(1)}, f32[512,512]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(w)
  b = f32[512,512]{1,0:T(8,128)} copy(h)
  c = f32[512,512]{1,0:T(8,128)S(1)} copy-done(a)
  ROOT d = f32[512,512]{1,0:T(8,128)} dot(b, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
PROGRAM = """
import { readFileSync, writeFileSync } from "node:fs";
import { costsOf, decodeAnalyses, decodeView } from "./bundle.mjs";
const out = [];
for (const { name, trips } of JSON.parse(readFileSync("cases.json", "utf8"))) {
  const model = await decodeView(readFileSync(`${name}.view`));
  model.extend(await decodeAnalyses(readFileSync(`${name}.analyses`)));
  const costs = costsOf(model);
  const first = { seconds: [...costs.seconds], bound: [...costs.bound],
    step: [...costs.step], totals: costs.totals,
    own: ["seconds", "step", "bound"].every((c) => costs[c] === model.optional(`cost.${c}`)) };
  trips.forEach((n, row) => costs.setTrips(row, n));
  for (const chip of costs.extras.hardware) {
    costs.setChip(chip);
    const { seconds, bound, step, totals } = costs;
    const text = (v) => (Number.isNaN(v) ? null : v);
    out.push({ name, chip: chip.id, seconds: [...seconds].map(text), bound: [...bound],
      step: [...step].map(text), totals });
  }
  out.push({ name, chip: null, ...first });
}
writeFileSync("out.json", JSON.stringify(out));
"""


@pytest.fixture(scope="module")
def programs(compiled: Callable[..., Any]) -> dict[str, Any]:
    import hloscope

    found = {}
    for name in some_of(PROGRAMS, 8, __name__):
        program = PROGRAMS[name]
        for platform in program.platforms:
            if platform == "cpu" or importlib.util.find_spec("libtpu") is not None:
                made = compiled(name, TOPOLOGIES[platform])
                found[f"{name}-{platform}"] = hloscope.Capture(made.module, made.target)
    return found | {
        "unknown_trips": hloscope.Capture(read_modules(LOOP)[0]),
        "copies": hloscope.Capture(read_modules(COPIES)[0]),
    }


def test_the_renderer_models_what_python_does(
    repo: Path, tmp_path: Path, programs: dict[str, Any]
) -> None:
    esbuild = repo / "node_modules" / ".bin" / "esbuild"
    if shutil.which("node") is None or not esbuild.exists():
        pytest.skip("needs node and the packages of package.json")
    (tmp_path / "entry.ts").write_text(
        f'export {{ decodeAnalyses, decodeView }} from "{repo}/js/base/model.ts";\n'
        f'export {{ costsOf }} from "{repo}/js/state/cost/costs.ts";\n'
    )
    bundle = ["--bundle", "--format=esm", f"--outfile={tmp_path / 'bundle.mjs'}"]
    subprocess.run([esbuild, "--log-level=error", tmp_path / "entry.ts", *bundle], check=True)
    trips: dict[str, dict[str, int]] = {}
    for name, cap in programs.items():
        cap.hardware = "tpu-v5e"
        (tmp_path / f"{name}.view").write_bytes(blocks.view(cap))
        (tmp_path / f"{name}.analyses").write_bytes(blocks.analyses(cap))
        trips[name] = dict.fromkeys(cap.cost().unknown_trip_counts, 7)
    assert trips["unknown_trips"]
    cases = [{"name": n, "trips": list(t.values())} for n, t in trips.items()]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    (tmp_path / "run.mjs").write_text(PROGRAM)
    subprocess.run(["node", "run.mjs"], cwd=tmp_path, check=True)
    chips = load()

    @cache
    def modelled(name: str, own: bool) -> Cost:
        """The page keeps the branches that take most time on the chip it was made for."""
        cap, told = programs[name], {} if own else trips[name]
        return estimate(cap.module, cap.target, hardware=chips["tpu-v5e"], trips=told)

    seen = json.loads((tmp_path / "out.json").read_text())
    assert len(seen) == len(programs) * (len(chips) + 1)
    for found in seen:
        chip = found["chip"]
        # what Python modelled is shown as it came until a person edits something
        assert chip is not None or found["own"], found["name"]
        cost = modelled(found["name"], chip is None).on(chips[chip or "tpu-v5e"])
        r = cost.roofline
        assert r is not None
        where = f"{found['name']} on {chip}"
        got = np.array([math.nan if s is None else s for s in found["seconds"]])
        np.testing.assert_allclose(got, r.seconds, rtol=1e-12, err_msg=where)
        step = np.array([math.nan if s is None else s for s in found["step"]])
        np.testing.assert_allclose(step, r.step_seconds, rtol=1e-9, atol=1e-18, err_msg=where)
        assert np.nansum(step) == pytest.approx(r.total_seconds, rel=1e-9), where
        assert found["bound"] == r.bound_by.tolist(), where
        wanted = {
            "flops": cost.total_flops,
            "bytes": cost.total_bytes,
            "compute": r.compute_seconds,
            "memory": r.memory_seconds,
            "collective": r.collective_seconds,
            "exposed": r.exposed_seconds,
            "copies": r.copy_wait_seconds,
            "least": r.least_seconds,
            "total": r.total_seconds,
            "unknown": sum(bool(r.runs[i.index] > 0) for i in r.unmodelled),
        }
        assert found["totals"] == pytest.approx(wanted, rel=1e-9), where
