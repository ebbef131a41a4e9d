"""Products that do not fill a systolic matrix unit take as long as if they did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hloscope as hs
import pytest
from hloscope.analysis.cost.cost import estimate
from hloscope.hardware import Hardware, load
from hloscope.hlo import Target

# A FLOP takes a second; memory takes no time.
CHIP = Hardware(
    "slow", "Slow", memory_bytes=2**30, memory_bandwidth=1e30, vector=None, links=(),
    matmul={"f32": 1.0, "bf16": 1.0}, matrix_side=128,
)  # fmt: skip
DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
BATCHED = (
    "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"
)
AS_CONVOLUTION = "window={size=4 stride=3 pad=0_0 lhs_dilate=4}, dim_labels=0bf_0io->0bf"


def seconds(left: str, right: str, out: str, how: str, chip: Hardware = CHIP) -> float:
    opcode = "convolution" if "dim_labels" in how else "dot"
    module = hs.read(
        "HloModule m, is_scheduled=true\n\nENTRY e {\n"
        f"  l = bf16[{left}] parameter(0)\n  r = bf16[{right}] parameter(1)\n"
        f"  ROOT o = bf16[{out}] {opcode}(l, r), {how}\n}}\n"
    ).module
    assert not module.warnings, module.warnings
    cost = estimate(module, Target(), hardware=chip)
    assert cost.roofline is not None
    return cost.roofline.total_seconds


@pytest.mark.parametrize(
    ("rows", "columns", "deep", "as_long_as"),
    [
        (128, 128, 128, (128, 128, 128)),
        (32, 128, 128, (32, 128, 128)),
        # a block loads for as long as 32 rows pass
        (8, 4096, 512, (32, 4096, 512)),
        (2, 4096, 512, (32, 4096, 512)),
        (1, 4096, 512, (1, 4096, 512)),  # on the vector units
        (4096, 8, 512, (4096, 32, 512)),
        (4096, 8, 8, (4096, 8, 128)),  # but a block of eight rows is loaded sooner
        # rows pass in groups of eight, whichever operand is in the blocks
        (129, 4096, 512, (136, 4096, 512)),
        (4096, 130, 512, (4096, 136, 512)),
        # what is contracted fills whole blocks
        (4096, 4096, 64, (4096, 4096, 128)),
        (4096, 4096, 130, (4096, 4096, 256)),
        (100, 100, 100, (104, 128, 128)),
    ],
)
def test_small_dimensions_take_as_long_as_those_that_fill_the_unit(
    rows: int, columns: int, deep: int, as_long_as: tuple[int, int, int]
) -> None:
    m, n, k = as_long_as
    given = (f"{rows},{deep}", f"{deep},{columns}", f"{rows},{columns}")
    assert seconds(*given, DOT) == 2 * m * n * k
    assert seconds(*given, "dim_labels=bf_io->bf") == 2 * m * n * k
    assert seconds(*given, DOT, replace(CHIP, matrix_side=0)) == 2 * rows * columns * deep


def test_each_product_of_a_batch_fills_blocks_of_its_own() -> None:
    shapes = ("4,8,64", "4,64,256", "4,8,256")
    assert seconds(*shapes, BATCHED) == 4 * 2 * 16 * 256 * 128
    # as XLA:TPU writes it: every result takes one position of the kernel
    assert seconds(*shapes, AS_CONVOLUTION) == 4 * 2 * 16 * 256 * 128
    # dimensions that only one operand has are rows or columns
    rows = "window={size=4x1 stride=3x1 pad=0_0x0_0 lhs_dilate=4x1}, dim_labels=01bf_01io->01bf"
    assert seconds("4,8,16,64", "4,1,64,2", "4,8,16,2", rows) == 4 * 2 * 128 * 16 * 128
    columns = "window={size=4x5 stride=3x1 pad=0_0x4_4 lhs_dilate=4x1 rhs_reversal=0x1}"
    columns += ", dim_labels=01bf_01io->01bf"
    assert seconds("4,1,256,64", "4,5,64,32", "4,5,256,32", columns) == 4 * 2 * 256 * 160 * 128
    # a convolution over positions is taken at its FLOPs
    over = "window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f"
    shapes = ("2,256,8", "3,8,8", "2,256,8")
    assert seconds(*shapes, over) == seconds(*shapes, over, replace(CHIP, matrix_side=0))


def test_what_is_quicker_on_the_vector_units_takes_that_long() -> None:
    chip = replace(CHIP, vector=0.5)
    assert seconds("4,512", "512,512", "4,512", DOT, chip) == 2 * 2 * 4 * 512 * 512
    assert seconds("128,512", "512,512", "128,512", DOT, chip) == 2 * 128 * 512 * 512


DEPTHWISE = "window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f, feature_group_count=64"
OF_ITS_KERNEL = "window={size=256 pad=1_1}, dim_labels=f0b_i0o->0bf, batch_group_count=64"


def test_a_depthwise_convolution_is_added_up_on_the_vector_units() -> None:
    chip = replace(CHIP, vector=1 / 32)
    flops = 2 * 2 * 64 * (3 * 256 - 2)  # without what the padding multiplies
    assert seconds("2,256,64", "3,1,64", "2,256,64", DEPTHWISE, chip) == 32 * flops
    assert seconds("2,256,64", "3,1,64", "2,256,64", DEPTHWISE) == 32 * flops
    assert seconds("2,256,64", "2,256,64", "3,1,64", OF_ITS_KERNEL, chip) == 32 * flops
    # groups of several channels are products, as those of one group are
    grouped = DEPTHWISE.replace("64", "8")
    assert seconds("2,256,64", "3,8,64", "2,256,64", grouped, chip) == 8 * flops


def test_several_passes_of_a_precision_count_as_they_are() -> None:
    given = ("8,512", "512,512", "8,512", f"{DOT}, operand_precision={{highest,highest}}")
    assert seconds(*given) == 2 * 8 * 512 * 512


def test_units_of_the_chips() -> None:
    sides = {name: chip.matrix_side for name, chip in load().items()}
    assert {n: s for n, s in sides.items() if s} == {
        "tpu-v4": 128, "tpu-v5e": 128, "tpu-v5p": 128, "tpu-v6e": 256, "tpu-v7x": 256,
    }  # fmt: skip


@pytest.mark.usefixtures("libtpu")
@pytest.mark.parametrize(("topology", "side"), [("v5e:1x1", 128), ("v6e:1x1", 256)])
def test_few_rows_take_as_long_by_xlas_own_estimate(topology: str, side: int) -> None:
    """Its cycles for 8 and for a quarter of the side are the same within a fifth."""
    import jax
    import jax.numpy as jnp

    def cycles(rows: int) -> float:
        x, w = (jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((rows, 8192), (8192, 1024)))
        found: Any = hs.capture(jax.jit(jnp.dot), x, w, topology=topology).cost()
        return max(found.estimated_cycles.values())

    few, half, whole = (cycles(n) for n in (8, side // 4, side * 2))
    assert half < 1.2 * few
    assert whole > 1.9 * few
