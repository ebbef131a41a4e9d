"""What some of XLA's passes do, in a sentence."""

from __future__ import annotations

_WORDS = {
    "algsimp": "Simplifies algebraically: reshapes of reshapes, multiplication by one or zero.",
    "all-gather-combiner": "Combines small all-gathers into one.",
    "all-reduce-combiner": "Combines small all-reduces into one.",
    "all-reduce-folder": "Folds an all-reduce of an all-reduce into one.",
    "all-reduce-reassociate": "Turns a sum of all-reduces into one all-reduce of the sum.",
    "all-reduce-simplifier": "Removes all-reduces that change nothing.",
    "all_to_all_decomposer": "Rewrites an all-to-all of one array as an all-to-all of its pieces.",
    "async-collective-creator": "Splits collectives into a start and a done.",
    "batchnorm_expander": "Expands batch normalisation into plain arithmetic.",
    "bfloat16-propagation": "Keeps intermediate values in bf16 where no result changes its type.",
    "call-inliner": "Inlines calls.",
    "conditional_canonicalizer": "Makes every branch of a conditional return a tuple.",
    "constant_folding": "Computes at compile time whatever depends only on constants.",
    "convert-mover": "Moves type conversions to where they convert fewer elements.",
    "copy-insertion": "Inserts copies where two uses would overwrite one another.",
    "adding_copies_to_resolve_interference": "Inserts copies where values would be overwritten.",
    "removing_unnecessary_copies": "Removes copies that protect nothing.",
    "cse": "Merges instructions that compute the same thing.",
    "cse_barrier_expander": "Removes the barriers that kept rematerialised values apart.",
    "dce": "Removes instructions that nothing uses.",
    "dot-merger": "Merges dots that share an operand.",
    "dot_decomposer": "Rewrites dots into the canonical form that back ends expect.",
    "dot_canonicalizer": "Rewrites dots into the form that the matrix unit takes.",
    "dynamic-dimension-simplifier": "Removes dynamic bounds from dimensions that are static.",
    "flatten-call-graph": "Gives every call site a copy of the computation of its own.",
    "fusion": "Fuses chains of elementwise work into one loop each.",
    "gather_expander": "Expands a gather into a loop of slices.",
    "gather_simplifier": "Rewrites gathers into a simpler form.",
    "hlo-dce": "Removes instructions that nothing uses.",
    "hlo-memory-scheduler": "Orders instructions so that little memory is live at once.",
    "hlo-rematerialization": "Recomputes values where memory to keep them is short.",
    "latency-hiding-scheduler": "Orders instructions so that transfers overlap with computation.",
    "layout-assignment": "Chooses each array's layout, and inserts copies where layouts differ.",
    "loop-invariant-code-motion": "Moves loop-invariant code out of loops.",
    "memory_space_assignment": "Chooses what is kept in fast memory, and when it is fetched.",
    "multi_output_fusion": "Fuses instructions that read the same values into one kernel.",
    "optimization-barrier-expander": "Removes optimisation barriers that are no longer needed.",
    "reduce-scatter-creator": "Turns an all-reduce whose result is sliced into a reduce-scatter.",
    "rematerialization_with_stats": "Recomputes values where memory to keep them is short.",
    "reshape-decomposer": "Splits a reshape into one that moves no data and a copy or transpose.",
    "reshape-mover": "Moves reshapes past elementwise operations, where they often cancel.",
    "rng-bit-generator-expander": "Expands random bit generation into plain arithmetic.",
    "scatter_expander": "Expands a scatter into a loop of updates.",
    "scatter_simplifier": "Rewrites scatters into a simpler form.",
    "sharding-propagation": "Decides how every value is sharded over the devices.",
    "shardy-xla": "Decides how every value is sharded over the devices; rewrites the whole module.",
    "simplify-while-loops": "Simplifies loops: dead carries, loops that run once or never.",
    "spmd-partitioning": "Rewrites the program for one device, and inserts collectives.",
    "tpu-spmd-partitioning": "Rewrites the program for one device, and inserts collectives.",
    "topk-decomposer": "Expands top-k into a sort and slices.",
    "tpu_fusion": "Fuses chains of operations into one kernel each.",
    "tpu_multi_output_fusion": "Fuses instructions that read the same values into one kernel.",
    "transpose-folding": "Folds transposes into the dots that read them.",
    "tree_reduction_rewriter": "Reduces in two stages, which keeps more cores busy.",
    "trivial-fusion-remover": "Unwraps fusions of a single instruction.",
    "tuple-simplifier": "Removes tuples that are built only to be taken apart.",
    "while-loop-invariant-code-motion": "Moves loop-invariant code out of loops.",
    "while-loop-trip-count-annotator": "Annotates loops with known trip counts.",
    "zero_sized_hlo_elimination": "Removes arrays without elements.",
}  # fmt: skip


def about(name: str) -> str:
    """What a pass does; "" if it is not described here."""
    return (
        _WORDS.get(name)
        or _WORDS.get(name.replace("_", "-"))
        or _WORDS.get(name.replace("-", "_"), "")
    )
