"""HLO text of any size, with the composition of a real training step.

Like a TPU dump of a GPT step: layers of fusions, matmuls and all-reduces with source lines,
scopes, layouts and backend configs, about 235 bytes per instruction.
"""

from __future__ import annotations

_CONFIG = (
    'backend_config={"flag_configs":[],"window_config":{"kernel_window_bounds":["16","8"],'
    '"output_window_bounds":["16","8"],"iteration_bounds":["4","2"]},"estimated_cycles":"%d"}'
)
_TENSOR = "f32[512,1024]{1,0:T(8,128)}"
_WEIGHT = "f32[1024,1024]{1,0:T(8,128)}"
_OPS = ("multiply", "add", "exponential", "subtract", "divide", "tanh")
_PARTS = (
    ("attention", ("q", "k", "v", "softmax", "out")),
    ("mlp", ("up", "gelu", "gate", "down", "norm")),
)


def large_module(megabytes: float = 25.0) -> str:
    """Text of a module of ``megabytes`` (10^6 bytes), to within a layer."""
    fused: list[str] = []
    entry: list[str] = []
    size, layer, before = 0, 0, "x"
    while size < megabytes * 1e6:
        begun = len(fused), len(entry)
        for part, steps in _PARTS:
            kept = before
            for step in steps:
                before = _step(fused, entry, f"l{layer}.{part}.{step}", layer, part, step, before)
            name = f"residual.l{layer}.{part}"
            where = _where(layer, part, "add", 7)
            entry.append(f"  %{name} = {_TENSOR} add(%{kept}, %{before}), {where}")
            before = name
        layer += 1
        added = fused[begun[0] :] + entry[begun[1] :]
        size += sum(map(len, added)) + len(added)
    head = [
        "HloModule jit_large, is_scheduled=true, num_partitions=8\n",
        "%region_0.sum (a: f32[], b: f32[]) -> f32[] {",
        "  %a = f32[] parameter(0)",
        "  %b = f32[] parameter(1)",
        "  ROOT %sum = f32[] add(%a, %b)",
        "}\n",
    ]
    opened = [
        "ENTRY %main (x: f32[512,1024], w: f32[1024,1024]) -> f32[512,1024] {",
        f"  %x = {_TENSOR} parameter(0), sharding={{replicated}}",
        f"  %w = {_WEIGHT} parameter(1), sharding={{replicated}}",
    ]
    closed = [f"  ROOT %copy.out = {_TENSOR} copy(%{before})", "}", ""]
    return "\n".join([*head, *fused, *opened, *entry, *closed])


def _where(layer: int, part: str, op: str, line: int) -> str:
    return (
        f'metadata={{op_name="jit(step)/jit(main)/layer_{layer}/{part}/{op}" '
        f'source_file="/home/someone/project/model/layers.py" source_line={line}}}'
    )


def _step(
    fused: list[str], entry: list[str], name: str, layer: int, part: str, step: str, before: str
) -> str:
    """Append a matmul, the fusion after it, and in the last step of a part an all-reduce."""
    fused.append(f"%fused.{name} (p: f32[512,1024]) -> f32[512,1024] {{")
    fused.append(f"  %p.{name} = {_TENSOR} parameter(0)")
    last = f"p.{name}"
    for n, op in enumerate(_OPS):
        operands = f"%{last}" if op in ("exponential", "tanh") else f"%{last}, %p.{name}"
        root = "ROOT " if n == len(_OPS) - 1 else ""
        where = _where(layer, part, f"{step}/{op}", 20 + n)
        fused.append(f"  {root}%{op}.{name} = {_TENSOR} {op}({operands}), {where}")
        last = f"{op}.{name}"
    fused.append("}\n")
    where = _where(layer, part, f"{step}/dot_general", 40)
    entry.append(
        f"  %convolution.{name} = {_TENSOR} convolution(%{before}, %w), dim_labels=bf_io->bf, "
        f"{where}, {_CONFIG % 51_200}"
    )
    where = _where(layer, part, f"{step}/tanh", 41)
    entry.append(
        f"  %fusion.{name} = {_TENSOR} fusion(%convolution.{name}), kind=kLoop, "
        f"calls=%fused.{name}, {where}, {_CONFIG % 4_100}"
    )
    if step not in ("out", "down"):
        return f"fusion.{name}"
    where = _where(layer, part, f"{step}/psum", 42)
    entry.append(
        f"  %all-reduce.{name} = {_TENSOR} all-reduce(%fusion.{name}), channel_id={layer + 1}, "
        "replica_groups={{0,1,2,3},{4,5,6,7}}, use_global_device_ids=true, "
        f"to_apply=%region_0.sum, {where}, {_CONFIG % 77_000}"
    )
    return f"all-reduce.{name}"
