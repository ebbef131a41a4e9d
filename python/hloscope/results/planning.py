"""Every result class of planning: ``hloscope.results.planning.Search``.

They come from ``hs.search_shardings``, ``hs.plan_stages`` and ``hs.transformer``.
"""

from __future__ import annotations

from ..plan.comparing.largest import Largest, TriedSize
from ..plan.comparing.variants import Variant, Variants
from ..plan.running.candidate_figures import CandidateFigures
from ..plan.running.progress import Progress
from ..plan.search.result import Candidate, MeasuredSeconds, Search
from ..plan.stages.choices import Choice
from ..plan.stages.log import Identity, StageLog
from ..plan.stages.plan import StagePlan
from ..plan.stages.schedules import Schedule, ScheduledWork
from ..plan.stages.solver import Solution
from ..plan.transformer.compiled import Compared
from ..plan.transformer.explorer import Explorer
from ..plan.transformer.layers import Exchange, Layer
from ..plan.transformer.lines import ComparedLine
from ..plan.transformer.model import AnalyticModel, LayerTime, Totals
from ..plan.transformer.rates import Rates
from ..plan.transformer.sizes import Sizes
from ..plan.transformer.transformer import Transformer
from ..plan.transformer.volumes import Method
from ..readers.alpa_log import Chosen, Interval, Profile

__all__ = [
    "AnalyticModel",
    "Candidate",
    "CandidateFigures",
    "Choice",
    "Chosen",
    "Compared",
    "ComparedLine",
    "Exchange",
    "Explorer",
    "Identity",
    "Interval",
    "Largest",
    "Layer",
    "LayerTime",
    "MeasuredSeconds",
    "Method",
    "Profile",
    "Progress",
    "Rates",
    "Schedule",
    "ScheduledWork",
    "Search",
    "Sizes",
    "Solution",
    "StageLog",
    "StagePlan",
    "Totals",
    "Transformer",
    "TriedSize",
    "Variant",
    "Variants",
]
