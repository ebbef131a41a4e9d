"""The largest figures that a file may state about a machine: a larger one is damage, or an attack.

Half a kilobyte can state any number. What is as long as such a number must never be allocated, and
a figure must stay one that arrays of 64-bit numbers can sum.
"""

# Devices of one program; the largest machines of today have some 100,000.
MOST_DEVICES = 1 << 17
# Device numbers in all distinct shardings and groups of a program: 32 MiB of them.
MOST_DEVICE_NUMBERS = 1 << 22
# Devices between which traffic is shown as a table of who sends to whom: 128 MiB of it.
MOST_IN_TABLE = 1 << 12
# Bytes of an array, 64 PiB, and of all values of a program: their sums stay 64-bit numbers.
MOST_BYTES, MOST_BYTES_TOGETHER = 1 << 56, 1 << 62
# Runs of a loop's body: one each nanosecond for thirty years.
MOST_RUNS = 1e18
