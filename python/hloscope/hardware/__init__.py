"""What chips can do: peak FLOP/s, memory and interconnect, with a source for each figure.

``chips.toml`` holds them; ``~/.config/hloscope/hardware.toml``, or the file that the
environment variable HLOSCOPE_HARDWARE names, changes or adds entries.
"""

from .chips import Hardware, Link, choose, find, load, recognise
from .chips import HardwareError as HardwareError  # its public path is hloscope.HardwareError

__all__ = ["Hardware", "Link", "choose", "find", "load", "recognise"]
