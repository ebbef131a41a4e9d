"""Every number that decides whether something is worth a finding, with its unit and reason.

Shares are parts of the modelled step unless a line says of what. They were chosen so that the
healthy twins of ``tests/python/helpers/findings_programs.py`` stay silent and the ill ones do not.
"""

# -- any finding

# Smaller shares of the step, of the bytes moved or of the peak do not matter to anybody.
WORTH_SAYING = 0.02
# Seconds a step: less is within the noise of any measurement.
LEAST_SECONDS = 1e-6
# Bytes of the peak: less is nothing on any device.
LEAST_PEAK_BYTES = 1 << 20

# Of what is at stake: advice that gains less is not given.
GAINED_SHARE = 0.5

# -- communication

# Bytes: below it a transfer is only latency on every chip of chips.toml.
TINY_TRANSFER = 1 << 16
# Waiting for gradients is the price of data parallelism; other waiting can often be avoided.
EXPOSED_SHARE, EXPOSED_PRICE_SHARE = 0.05, 0.15
# Waiting for latency is reported only where it is this much of the step …
LATENCY_SHARE = 0.25
# … and the step longer than this, in seconds: a host needs as long to launch the next one.
SHORT_STEP = 1e-4
# Of the bytes on the wire: a gradient's norm or a loss is less.
TRIFLING_WIRE_SHARE = 0.01
# Hidden time on the wire costs nothing now, but takes the place of other transfers: it counts for
# this part of its share of the bytes, and at most for this share of the step.
HIDDEN_WIRE_WEIGHT, HIDDEN_WIRE_MOST = 0.1, 0.05
# Without a chip, half the share of bytes on the wire stands for a share of the step.
UNMODELLED_WIRE_WEIGHT = 0.5
# Of the bytes of a combined collective: the rest, such as a loss, does not say what it is for.
MOSTLY = 0.9
# Steps from a collective to what it is made from and used for: a layer has some hundred.
CAUSE_REACH = 400

# -- compute

WIDE_MATMUL_SHARE = 0.05
# How many times as fast a narrower type must be: less is not worth the precision.
MUCH_FASTER = 1.5
# Of its time a matmul computes less than this: the chip waits for its operands.
IDLE_RATE = 0.1
IDLE_SHARE = 0.1
# Times that one line's work is done over all devices: less is padding of uneven tiles …
REDUNDANT_TIMES = 1.5
# … and the part of a device's heavy FLOPs that this must be.
REDUNDANT_SHARE = 0.02
# Steps back from a product to where its operand lost its sharding.
REDUNDANT_REACH = 12
# Of the step, in what a matrix unit does only because a dimension does not fill its blocks.
UNFILLED_SHARE = 0.05
# Of the bytes of an array, in its tiles' padding: less is what most dimensions cost somewhere.
TILE_PADDING = 0.25
# Bytes of padding: less is a scalar or a small vector, of which a tile is nothing.
PADDED_BYTES = 1 << 16
# Of the step, by which one product before a loop is quicker than one in each trip.
HOISTED_SHARE = 0.05
# Of the step, by which moving rows by index would make it shorter than a product with ones …
ONE_HOT_SHARE = 0.2
# … and the bytes of a row: single elements are slow to take by index on a TPU.
LONG_ROW = 512
# Of the step, by which activations of half the width would make it shorter.
NARROWED_SHARE = 0.05
# Of the matmul FLOPs, in products of f32 with bf16 weights: with fewer they explain no types.
MOST_PRODUCTS = 0.5
# Of the step, in scores of attention that are written and read.
SCORES_SHARE = 0.1
# Queries and keys: with fewer a kernel that goes over blocks of them has little to gain.
SCORES_LENGTH = 512
# Of the step, spent for one of two values of which one is kept.
BATCHED_SHARE = 0.2
# Of the step, in one trip of a loop whose trips nobody knows: all trips are more.
BATCHED_SHARE_OF_A_TRIP = 0.05
# Of the step, in one product of a repeated array …
REPEATED_SHARE = 0.05
# … of so many elements: a bias or a mask is repeated for a reason.
REPEATED_ELEMENTS = 1 << 16
# Of all FLOPs: from here on recomputation is a choice of memory over time.
REDONE_SHARE = 0.1
# How often the bytes of a saved value move: into a loop's stack and out of it, each read and
# written; without a loop, fusions end at it (measured: 3.5 and 4.5 times in two training steps).
SAVED_TIMES = 4

# -- memory

# Negligible memory: this part of the chip's, or bytes where the chip is not known.
SCARCE_SHARE, SCARCE_BYTES = 0.005, 1 << 26
# A peak below this part of the chip's memory leaves room for ten times as much: bytes weigh less.
ROOMY_SHARE, ROOMY_WEIGHT = 0.1, 0.2
# A peak above this part of the chip's memory: there memory decides what batch fits.
FULL_SHARE = 0.5
# Of the chip's memory: advice that needs more of it is given up to here.
FILLED_SHARE = 0.9
# Of the chip's memory: peaks that are simulated for a dump are up to 7 % above those that XLA:TPU
# makes do with, which stops where a program does not fit.
SIMULATED_ABOVE = 1.1
# Of the peak.
PADDING_SHARE = 0.1
# Equal values of one line that wait together: fewer are what any schedule keeps in flight.
WAITING_VALUES = 8
NARROW_COPY_SHARE = 0.1
# Of the peak, by which it falls if weights are cut as the rest of their argument.
REPLICATED_SHARE = 0.25
# Of the peak, in temporaries of one line.
LINE_OF_PEAK_SHARE = 0.5
RESIDUALS_SHARE = 0.3
# Of the step, by which computing stacks again is quicker than storing them: below it the price of
# what is computed again, which is modelled without the stacks' traffic, is too uncertain.
STORED_SLOWER_SHARE = 0.2
STORED_LARGER_SHARE = 0.05
# Bytes: negligible on any device, or on a CPU in place of one.
SMALL_RESIDUALS = 1 << 24
# Of what is stored, about half can be rematerialised at a price worth paying.
RESIDUALS_WEIGHT = 0.5

# -- layouts and types

# Copies and transposes, in loops and outside. Without a chip, of the bytes moved.
REORDERED_SHARE_IN_LOOP, REORDERED_SHARE = 0.03, 0.05
REORDERED_SHARE_UNMODELLED = 0.08
# XLA:CPU sometimes lays arrays out for its own kernels, which nobody can change.
REORDERED_SHARE_IN_LOOP_ON_HOST, REORDERED_SHARE_ON_HOST = 0.05, 0.15
CONVERTED_SHARE = 0.05
# A copy that changes nothing: one that costs less is not worth another program.
WHOLE_COPY_SHARE = 0.05
# Bytes: the compiler copies scalars and small vectors that loops carry, which nobody can change.
WHOLE_COPY_BYTES = 1 << 16
# Times that a slice is as large as what is written into it: from here on, writing all of it back
# is what costs (a position of a cache is a thousandth of it).
SMALL_UPDATE = 4
# Of the bytes moved, in values of 64 bits.
WIDE_BYTES_SHARE = 0.05

# Trips in a step of a scatter that became a loop: so few take no time that anyone sees.
LOOPED_UPDATES = 64

# -- the program

# Bytes: what is better passed as an argument.
LARGE_CONSTANT = 1 << 20
# This many layers, of this many instructions and this part of the program, take long to compile.
UNROLLED_LAYERS, UNROLLED_INSTRUCTIONS, UNROLLED_SHARE = 8, 3000, 0.5
# The time a callback takes is Python's, which nothing models: it is put at this share.
CALLBACK_SHARE = 0.1
HOST_COPIES_SHARE = 0.05
# Characters of an expression of the source that a sentence names.
SHORT_EXPRESSION = 60
