"""Unrolled layers as XLA leaves them on a TPU pod: no scopes, windowed einsums, prefetches.

    python benchmarks/unrolled.py                 # time and memory, 1k to 1M instructions
    python benchmarks/unrolled.py LAYERS FILE     # writes such a module as text

Thirty layers are 108k instructions, 7,400 computations and 18k instructions in ENTRY: the kind
that a 30-layer step for v5p:4x4x4 compiles to. Prints CPU seconds and memory of reading, of
each step on the way to a View, and how they grow: 1.00 is in proportion to the size. Small
modules are measured several times and the best is kept; the extra cost of the first module of a
process (imports, patterns, numpy's own) is in a column of its own, "first".
"""

from __future__ import annotations

import gzip
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

A, W = "bf16[16,2048,512]{2,1,0:T(8,128)(2,1)}", "bf16[512,2048]{1,0:T(8,128)(2,1)}"
FUNCTIONS = ("train_step", "loss_fn", "forward", "block", "rms_norm", "attention", "mlp", "update")
# (function of a product, its line): nine products in a layer
PRODUCTS = ((5, 31), (5, 32), (5, 33), (5, 36), (5, 38), (5, 40), (6, 45), (6, 46), (6, 47))
SIZES = (1, 3, 10, 30, 100, 300)
REPEAT = {1: 15, 3: 9, 10: 5, 30: 3, 100: 2, 300: 2}
STEPS = ("read", "table", "layers", "groups", "folds", "View")


def module(layers: int) -> str:
    """The text of a step with that many layers."""
    w = _Writer()
    w.entry.append(f"  %x = {A} parameter(0)")
    x = "x"
    kept = []
    for _ in range(layers):
        x = w.layer(x, "jvp()", [])
        kept.append(x)
    loss = w.fusion([x], "jit(train_step)/jvp()/reduce_sum", 2)
    g, results = loss, []
    for k in reversed(range(layers)):
        g = w.layer(g, "transpose(jvp())", [kept[k]])
        results += [w.update(g) for _ in range(22)]
    shapes = ", ".join([A] * len(results))
    w.entry.append(f"  ROOT %out = ({shapes}) tuple({', '.join('%' + r for r in results)})")
    head = ["HloModule jit_train_step, is_scheduled=true, num_partitions=64", ""]
    head += ["FileNames", '1 "step.py"', "", "FunctionNames"]
    head += [f'{n + 1} "{name}"' for n, name in enumerate(FUNCTIONS)]
    head += ["", "FileLocations"]
    head += [
        f"{n + 1} {{file_name_id=1 function_name_id={f + 1} line={line} end_line={line}"
        " column=1 end_column=2}"
        for n, (f, line) in enumerate(w.locations)
    ]
    head += ["", "StackFrames", *w.frames, ""]
    return "\n".join([*head, *w.computations, "ENTRY %main {", *w.entry, "}", ""])


class _Writer:
    def __init__(self) -> None:
        self.entry: list[str] = []
        self.computations: list[str] = []
        self.frames: list[str] = []
        self.locations: list[tuple[int, int]] = []
        self.frame_of: dict[tuple[tuple[int, int], ...], int] = {}
        self.n = 0

    def name(self, stem: str) -> str:
        self.n += 1
        return f"{stem}.{self.n}"

    def frame(self, *stack: tuple[int, int]) -> int:
        """Id of a stack of (function, line), outermost first."""
        if stack not in self.frame_of:
            up = self.frame(*stack[:-1]) if len(stack) > 1 else 0
            self.locations.append(stack[-1])
            parent = f" parent_frame_id={up + 1}" if up else ""
            self.frames.append(
                f"{len(self.frames) + 1} {{file_location_id={len(self.locations)}{parent}}}"
            )
            self.frame_of[stack] = len(self.frames)
        return self.frame_of[stack]

    def where(self, op_name: str, function: int, line: int) -> str:
        stack = [(0, 60), (1, 55), (2, 52)]
        if FUNCTIONS[function] == "update":
            stack = [(0, 62)]
        elif function > 3:
            stack.append((3, 20 + function))
        stack.append((function, line))
        return f'metadata={{op_name="{op_name}" stack_frame_id={self.frame(*stack)}}}'

    def add(self, name: str, text: str) -> str:
        self.entry.append(f"  %{name} = {text}")
        return name

    def fusion(self, operands: list[str], op_name: str, function: int, line: int = 12) -> str:
        body = self.name("fused_computation")
        rows = [f"  %p{body}.{k} = {A} parameter({k})" for k in range(len(operands))]
        last = f"p{body}.0"
        for k in range(8):
            op = ("multiply", "add", "subtract", "maximum")[k % 4]
            rows.append(f"  %v{body}.{k} = {A} {op}(%{last}, %p{body}.{len(operands) - 1})")
            last = f"v{body}.{k}"
        rows.append(f"  ROOT %r{body} = {A} tanh(%{last})")
        self.computations += [f"%{body} {{", *rows, "}", ""]
        given = ", ".join("%" + o for o in operands)
        where = self.where(op_name, function, line)
        return self.add(
            self.name("fusion"), f"{A} fusion({given}), kind=kLoop, calls=%{body}, {where}"
        )

    def prefetch(self) -> str:
        p = self.add(self.name("param"), f"{W} parameter({self.n})")
        start = self.add(self.name("copy-start"), f"({W}, {W}, u32[]) copy-start(%{p})")
        return self.add(self.name("copy-done"), f"{W} copy-done(%{start})")

    def product(self, x: str, path: str, function: int, line: int) -> str:
        """A windowed einsum: a loop that multiplies one block while the next arrives."""
        body, condition = self.name("windowed_dot_general_body"), self.name("condition")
        t = f"({A}, {W}, {A}, u32[])"
        rows = [
            f"  %a{body} = {t} parameter(0)",
            *(
                f"  %e{body}.{k} = {s} get-tuple-element(%a{body}), index={k}"
                for k, s in enumerate((A, W, A, "u32[]"))
            ),
            f"  %s{body} = {A} collective-permute(%e{body}.0), channel_id={self.n}, "
            "source_target_pairs={{0,1},{1,2},{2,3},{3,0}}",
            f"  %d{body} = {A} convolution(%e{body}.0, %e{body}.1), dim_labels=0bf_io0->0bf",
            f"  %u{body} = {A} add(%e{body}.2, %d{body})",
            f"  %one{body} = u32[] constant(1)",
            f"  %n{body} = u32[] add(%e{body}.3, %one{body})",
            f"  ROOT %t{body} = {t} tuple(%s{body}, %e{body}.1, %u{body}, %n{body})",
        ]
        self.computations += [f"%{body} {{", *rows, "}", ""]
        self.computations += [
            f"%{condition} {{",
            f"  %c{condition} = {t} parameter(0)",
            f"  %i{condition} = u32[] get-tuple-element(%c{condition}), index=3",
            f"  %f{condition} = u32[] constant(4)",
            f"  ROOT %r{condition} = pred[] compare(%i{condition}, %f{condition}), direction=LT",
            "}",
            "",
        ]
        w = self.prefetch()
        zero = self.add(self.name("constant"), "u32[] constant(0)")
        given = self.add(self.name("tuple"), f"{t} tuple(%{x}, %{w}, %{x}, %{zero})")
        where = self.where(f"jit(train_step)/{path}/dot_general", function, line)
        loop = self.add(
            self.name("while"),
            f"{t} while(%{given}), condition=%{condition}, body=%{body}, {where}",
        )
        return self.add(self.name("gte"), f"{A} get-tuple-element(%{loop}), index=2")

    def layer(self, x: str, path: str, more: list[str]) -> str:
        begin = x
        for k, (function, line) in enumerate(PRODUCTS):
            if k in (0, 6):
                x = self.fusion([begin, *more], f"jit(train_step)/{path}/rsqrt", 4, 12)
                for line_of in range(4):
                    x = self.fusion([x], f"jit(train_step)/{path}/mul", 4, 13 + line_of)
            x = self.product(x, path, function, line)
            for step in range(3):
                scales = [self.prefetch() for _ in range(2)]
                name = f"jit(train_step)/{path}/mul"
                x = self.fusion([x, *scales, *more], name, function, 70 + line + step)
            if k in (5, 8):
                begin = x = self.fusion([x, begin], f"jit(train_step)/{path}/add", 3, 25 + k)
        return x

    def update(self, g: str) -> str:
        m = self.prefetch()
        del m
        x = self.fusion([g], "jit(train_step)/mul", 7, 80)
        for k in range(6):
            x = self.fusion([x, g], "jit(train_step)/add", 7, 81 + k)
        return x


def once(text: Callable[[], bytes]) -> dict[str, Any]:
    """CPU seconds of each step for one module, and its results."""
    from hloscope.analysis.base.pause import uncollected
    from hloscope.analysis.base.table import table
    from hloscope.analysis.grouping.folds import folds
    from hloscope.analysis.grouping.groups import group_tree
    from hloscope.analysis.grouping.layers.layers import layers
    from hloscope.readers import read_modules
    from hloscope.view import build_view

    clock, found = time.process_time, {}
    data = text()
    last = clock()

    def lap(name: str) -> None:
        nonlocal last
        now = clock()
        found[name] = now - last
        last = now

    with uncollected():
        (m,) = read_modules(data)
        lap("read")
        del data  # as reading a file releases its bytes
        before = clock()
        table(m)
        lap("table")
        runs = layers(m).runs
        lap("layers")
        tree = group_tree(m)
        lap("groups")
        folds(m, tree)
        lap("folds")
        view = build_view(m)
        lap("View")
        found["to View"] = clock() - before
    return found | {
        "instructions": len(m.instructions),
        "bytes": len(view),
        "runs": [r.stack.count for r in runs],
    }


def measure(path: str, repeat: int) -> None:
    """One size in a process of its own: JSON of CPU seconds and memory."""

    def small() -> bytes:
        return module(1).encode()

    def whole() -> bytes:
        return gzip.decompress(Path(path).read_bytes())

    first, again = once(small)["to View"], min(once(small)["to View"] for _ in range(3))
    found = once(whole)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for _ in range(repeat - 1):
        other = once(whole)
        found |= {s: min(found[s], other[s]) for s in (*STEPS, "to View")}
    print(json.dumps(found | {"first": first - again, "peak": peak}))


def slopes(a: dict[str, Any], b: dict[str, Any]) -> list[float]:
    ratio = math.log(b["instructions"] / a["instructions"])
    return [math.log(max(b[s], 1e-4) / max(a[s], 1e-4)) / ratio for s in (*STEPS, "to View")]


def main() -> None:
    import tempfile

    rows: list[dict[str, Any]] = []
    head = "".join(f"{s:>9}" for s in (*STEPS, "to View", "first"))
    print(f"{'':>12}{head}   peak  layers")
    for layers in SIZES:
        with tempfile.NamedTemporaryFile(suffix=".gz") as file:
            file.write(gzip.compress(module(layers).encode(), 1))
            file.flush()
            repeat = str(REPEAT.get(layers, 1))
            out = subprocess.run(
                [sys.executable, __file__, "--measure", file.name, repeat],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
        r = json.loads(out.stdout)
        rows.append(r)
        print(
            f"{r['instructions']:>12,}"
            + "".join(f"{r[s]:>8.2f}s" for s in (*STEPS, "to View", "first"))
            + f" {r['peak'] / 1e9:>5.2f}G  {r['runs']}",
            flush=True,
        )
    print("\nslopes")
    for a, b in [*pairwise(rows), (rows[0], rows[-1]), (rows[-3], rows[-1])]:
        sizes = f"{a['instructions'] // 1000:,}k to {b['instructions'] // 1000:,}k"
        print(f"{sizes:>15}" + "".join(f"{s:>8.2f} " for s in slopes(a, b)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2], int(sys.argv[3]))
    elif len(sys.argv) == 3:
        Path(sys.argv[2]).write_text(module(int(sys.argv[1])))
    else:
        main()
