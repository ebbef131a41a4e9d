"""What chips can do: peak FLOP/s, memory and interconnect, with a source for each figure.

``chips.toml`` holds them; ``~/.config/hloscope/hardware.toml``, or the file that the
environment variable HLOSCOPE_HARDWARE names, changes or adds entries.
"""

from .chips import Hardware, HardwareError, Link, choose, find, load, recognise

__all__ = ["Hardware", "HardwareError", "Link", "choose", "find", "load", "recognise"]
