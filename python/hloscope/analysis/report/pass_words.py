"""What some of XLA's passes are for, in a sentence; "" for those nobody described."""

from __future__ import annotations

_WORDS = {
    "algsimp": "Simplifies by algebra: reshapes of reshapes, products with one or zero.",
    "all-gather-combiner": "Joins small all-gathers into one.",
    "all-reduce-combiner": "Joins small all-reduces into one.",
    "all-reduce-folder": "Merges an all-reduce of an all-reduce.",
    "all-reduce-reassociate": "Adds first and reduces once: all-reduces of summands become one.",
    "all-reduce-simplifier": "Drops all-reduces that change nothing.",
    "all_to_all_decomposer": "Writes an all-to-all over one array as one over its pieces.",
    "async-collective-creator": "Splits collectives into a start and a done.",
    "batchnorm_expander": "Writes batch normalisation as plain arithmetic.",
    "bfloat16-propagation": "Lets values be bf16 where that changes no result that is asked for.",
    "call-inliner": "Puts what a call computes in place of the call.",
    "conditional_canonicalizer": "Gives every branch of a conditional a tuple as its result.",
    "constant_folding": "Computes at compile time what depends on constants alone.",
    "convert-mover": "Moves conversions of type to where fewer elements are converted.",
    "copy-insertion": "Copies values where two uses would write over one another.",
    "adding_copies_to_resolve_interference": "Copies what two uses would write over.",
    "removing_unnecessary_copies": "Takes out copies that protect nothing.",
    "cse": "Merges instructions that compute the same thing.",
    "cse_barrier_expander": "Takes out the barriers that kept rematerialised values apart.",
    "dce": "Drops what nobody uses.",
    "dot-merger": "Joins products that share an operand into one.",
    "dot_decomposer": "Brings products into the one form that back ends know.",
    "dot_canonicalizer": "Brings products into the form that the chip's unit takes.",
    "dynamic-dimension-simplifier": "Takes out bounds of sizes that are not dynamic.",
    "flatten-call-graph": "Gives every call a computation of its own.",
    "fusion": "Fuses chains of elementwise work into one loop each.",
    "gather_expander": "Writes a gather as a loop of slices.",
    "gather_simplifier": "Brings gathers into a simpler form.",
    "hlo-dce": "Drops what nobody uses.",
    "hlo-memory-scheduler": "Chooses the order of instructions, to keep little memory alive.",
    "hlo-rematerialization": "Computes values again where memory to keep them is short.",
    "latency-hiding-scheduler": "Orders instructions so that transfers run beside computation.",
    "layout-assignment": "Chooses how arrays lie in memory, and copies where two choices meet.",
    "loop-invariant-code-motion": "Moves what never changes out of the loop.",
    "memory_space_assignment": "Chooses what is kept in fast memory, and when it is fetched.",
    "multi_output_fusion": "Fuses instructions side by side that read the same values.",
    "optimization-barrier-expander": "Takes out barriers that have done their work.",
    "reduce-scatter-creator": "Makes an all-reduce whose result is sliced a reduce-scatter.",
    "rematerialization_with_stats": "Computes values again where memory to keep them is short.",
    "reshape-decomposer": "Writes a reshape as one that moves nothing, and a copy or transpose.",
    "reshape-mover": "Moves reshapes below elementwise work, where they often cancel.",
    "rng-bit-generator-expander": "Writes random bits as plain arithmetic.",
    "scatter_expander": "Writes a scatter as a loop of updates.",
    "scatter_simplifier": "Brings scatters into a simpler form.",
    "sharding-propagation": "Decides how every value is cut over the devices.",
    "shardy-xla": "Decides how every value is cut over the devices; writes the module anew.",
    "simplify-while-loops": "Simplifies loops: dead carries, loops that run once or never.",
    "spmd-partitioning": "Cuts the program into one device's part, and puts in collectives.",
    "tpu-spmd-partitioning": "Cuts the program into one device's part, and puts in collectives.",
    "topk-decomposer": "Writes top-k as a sort and slices.",
    "tpu_fusion": "Fuses chains of work into one kernel each.",
    "tpu_multi_output_fusion": "Fuses instructions side by side that read the same values.",
    "transpose-folding": "Lets a product read its operand transposed, without transposing it.",
    "tree_reduction_rewriter": "Reduces in two stages, which keeps more cores busy.",
    "trivial-fusion-remover": "Unpacks fusions that hold one instruction.",
    "tuple-simplifier": "Takes out tuples that are made and taken apart again.",
    "while-loop-invariant-code-motion": "Moves what never changes out of the loop.",
    "while-loop-trip-count-annotator": "Writes down how often loops run, where that is known.",
    "zero_sized_hlo_elimination": "Drops arrays of no elements.",
}  # fmt: skip


def about(name: str) -> str:
    """What a pass is for; "" where it is not described here."""
    return (
        _WORDS.get(name)
        or _WORDS.get(name.replace("_", "-"))
        or _WORDS.get(name.replace("-", "_"), "")
    )
