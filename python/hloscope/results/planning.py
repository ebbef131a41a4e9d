"""Every result class of planning: ``hloscope.results.planning.Search``.

A module of its own, since planning has a ``Figures``, a ``Measured`` and a ``Work`` too. They come
from ``hs.search_shardings``, ``hs.plan_stages`` and ``hs.transformer``.
"""

from __future__ import annotations

from ..plan.alpa_log import Chosen, Profile
from ..plan.figures import Figures
from ..plan.rates import Rates
from ..plan.running import Progress
from ..plan.schedules import Schedule, Work
from ..plan.search_result import Candidate, Measured, Search
from ..plan.stage_choices import Choice, Interval
from ..plan.stage_log import Identity, StageLog
from ..plan.stage_plan import StagePlan
from ..plan.stage_solver import Solution
from ..plan.transformer import LayerTime, Transformer
from ..plan.transformer_compiled import Compared
from ..plan.transformer_explorer import Explorer
from ..plan.transformer_layers import Exchange, Layer
from ..plan.transformer_lines import Line
from ..plan.transformer_sizes import Sizes
from ..plan.transformer_totals import Totals
from ..plan.volumes import Method

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
