"""Every result class of planning: ``hloscope.results.planning.Search``.

A module of its own, since planning has a ``Figures``, a ``Measured`` and a ``Work`` too. They come
from ``hs.search_shardings``, ``hs.plan_stages`` and ``hs.transformer``.
"""

from __future__ import annotations

from ..plan.running.figures import Figures
from ..plan.running.running import Progress
from ..plan.search.result import Candidate, Measured, Search
from ..plan.stages.choices import Choice
from ..plan.stages.log import Identity, StageLog
from ..plan.stages.plan import StagePlan
from ..plan.stages.schedules import Schedule, Work
from ..plan.stages.solver import Solution
from ..plan.transformer.compiled import Compared
from ..plan.transformer.explorer import Explorer
from ..plan.transformer.layers import Exchange, Layer
from ..plan.transformer.lines import Line
from ..plan.transformer.rates import Rates
from ..plan.transformer.sizes import Sizes
from ..plan.transformer.totals import Totals
from ..plan.transformer.transformer import LayerTime, Transformer
from ..plan.transformer.volumes import Method
from ..readers.alpa_log import Chosen, Interval, Profile

__all__ = [
    "Candidate",
    "Choice",
    "Chosen",
    "Compared",
    "Exchange",
    "Explorer",
    "Figures",
    "Identity",
    "Interval",
    "Layer",
    "LayerTime",
    "Line",
    "Measured",
    "Method",
    "Profile",
    "Progress",
    "Rates",
    "Schedule",
    "Search",
    "Sizes",
    "Solution",
    "StageLog",
    "StagePlan",
    "Totals",
    "Transformer",
    "Work",
]
