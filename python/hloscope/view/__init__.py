"""Module + results → the View, the one block of bytes every host shows.

==============  =============================================================
``builder.py``  columns, string table, the gzip'd container
``core.py``     the tables every View has
``sections/``   optional analyses, one file each, in one ordered list
``text.py``     the text block: HLO text, line spans, attributes
``stages.py``   the stages block: source, jaxpr and StableHLO, and which lines correspond
``schema.py``   the columns js/view.ts documents, to check what is written
==============  =============================================================
"""

from .builder import Builder
from .core import Context, build_analyses, build_view
from .stages import build_stages
from .text import build_text

__all__ = ["Builder", "Context", "build_analyses", "build_stages", "build_text", "build_view"]
