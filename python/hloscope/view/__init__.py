"""Module + results → the View, the one block of bytes every host shows.

===============  =============================================================
``columns.py``   every column, declared once
``header.py``    every key of the JSON headers, declared once
``builder.py``   columns, string table, the gzip'd container
``context.py``   the module, and analyses that several files here use
``picture.py``   the tables that every View has
``view.py``      the View block, ``analyses.py`` the one that follows it
``sections/``    optional analyses, one file each, in one ordered list
``text.py``      the text block: HLO text, line spans, attributes
``stages.py``    the stages block: source, jaxpr and StableHLO, and which lines correspond
``passes.py``    the passes block: a View of all instructions that ever existed
``schema.py``    blocks back to headers and columns
===============  =============================================================
"""

from .analyses import OtherChips, build_analyses, build_for_chip
from .builder import Builder
from .context import Context
from .stages import build_stages
from .text import build_text
from .view import build_view

__all__ = [
    "Builder",
    "Context",
    "OtherChips",
    "build_analyses",
    "build_for_chip",
    "build_stages",
    "build_text",
    "build_view",
]
