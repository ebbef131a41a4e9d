"""Write current Views of small programs into a folder, for the renderer's tests.

python tests/js/write_views.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPO / "python"), str(REPO / "tests")]

COLLECTIVES = """HloModule jit_step, is_scheduled=true, num_partitions=4

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
ENTRY main {
  x = f32[256,256] parameter(0), sharding={devices=[4,1]<=[4]}, metadata={op_name="params['w']"}
  g = f32[1024,256] all-gather(x), channel_id=1, replica_groups=[1,4]<=[4], dimensions={0}, use_global_device_ids=true, metadata={op_name="jit(step)/jvp(main)/dot_general" source_file="train.py" source_line=7}
  d = f32[256,256] dot(x, g), lhs_contracting_dims={1}, rhs_contracting_dims={1}, metadata={op_name="jit(step)/jvp(main)/dot_general" source_file="train.py" source_line=7}
  s = f32[256,256] all-reduce-start(d), channel_id=2, replica_groups=[1,4]<=[4], to_apply=sum, use_global_device_ids=true
  t = f32[256,256] tanh(d)
  e = f32[256,256] all-reduce-done(s)
  r = f32[64,256] reduce-scatter(e), channel_id=3, replica_groups=[1,4]<=[4], dimensions={0}, to_apply=sum, use_global_device_ids=true
  ROOT o = (f32[256,256], f32[64,256]) tuple(t, r)
}
"""  # noqa: E501
PLAIN = """HloModule plain

ENTRY main {
  x = f32[4,4] parameter(0)
  ROOT y = f32[4,4] add(x, x)
}
"""
CUT = COLLECTIVES[: COLLECTIVES.index("ENTRY")]


def main(folder: Path) -> None:
    from hloscope import Capture
    from hloscope.readers import read_modules
    from hloscope.show import blocks

    for name, text in (("collectives", COLLECTIVES), ("plain", PLAIN), ("cut", CUT)):
        cap = Capture(read_modules(text)[0])
        if name == "collectives":
            cap.hardware = "tpu-v5e"
        (folder / f"{name}.view").write_bytes(blocks.view(cap))
        (folder / f"{name}.analyses").write_bytes(blocks.analyses(cap))
        (folder / f"{name}.text").write_bytes(blocks.text(cap))
    import hloscope as hs
    from corpus.by_hand import write_passes

    cap = hs.read(write_passes(folder / "dump"))
    (folder / "by_hand.passes").write_bytes(blocks.passes(cap))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
