"""Every result class under a path that stays the same: ``hloscope.results.Collectives``.

For annotations and ``isinstance``; results themselves come from a ``Capture``. The modules that
define them may move as the analyses do. Those of planning are in ``hloscope.results.planning``,
programs and their parts in ``hloscope.hlo``, chips in ``hloscope.hardware``.
"""

from __future__ import annotations

from .._watched import Compile, Watched
from ..analysis.comms.collective import Collective, Part, Total
from ..analysis.comms.collectives import Collectives
from ..analysis.comms.sharding import Shardings, Transition
from ..analysis.comms.sharding_arrays import ShardedArray
from ..analysis.cost.cost import Cost, InstructionCost, XlaComparison
from ..analysis.cost.cost_runs import Runs
from ..analysis.cost.flops import Work
from ..analysis.cost.roofline import Roofline
from ..analysis.cost.roofline_collectives import Transfer
from ..analysis.cost.timeline import Timeline
from ..analysis.findings.finding import Finding, Findings, Headline
from ..analysis.memory.liveness import Liveness
from ..analysis.memory.memory import LiveValue, Memory
from ..analysis.memory.memory_audit import Donation, ParameterCopy
from ..analysis.memory.memory_carries import Carry, Loop, Residual
from ..analysis.memory.memory_peaks import MemorySpace
from ..analysis.report.check_result import Breach, CheckReport
from ..analysis.report.diff_result import (
    Change,
    CollectiveItem,
    Delta,
    Diff,
    Item,
    Place,
)
from ..analysis.report.fate import Fate, Fates
from ..analysis.report.measured import Measured, MeasuredInstruction
from ..analysis.report.measured_events import MeasuredEvents, MeasuredLane
from ..analysis.report.origin_card import OriginCard
from ..analysis.report.passes import Passes
from ..analysis.report.passes_row import Pass
from ..analysis.report.programs import Call, ProgramRow, Programs
from ..analysis.report.source import Figures, Source, SourceLine
from ..analysis.why.compiler_messages import CompilerMessage
from ..analysis.why.provenance_card import Why
from ..analysis.why.provenance_origins import Origin
from ..hlo.buffers import Allocation, Assigned, HeapEvent, HeapTrace, LogicalBuffer
from ..hlo.devices import DeviceGroups
from ..hlo.mesh_text import AxisRef
from ..hlo.sharding import Sharding, Tile
from ..hlo.snapshots import Snapshot
from ..readers import ModuleEntry

__all__ = [
    "Allocation",
    "Assigned",
    "AxisRef",
    "Breach",
    "Call",
    "Carry",
    "Change",
    "CheckReport",
    "Collective",
    "CollectiveItem",
    "Collectives",
    "Compile",
    "CompilerMessage",
    "Cost",
    "Delta",
    "DeviceGroups",
    "Diff",
    "Donation",
    "Fate",
    "Fates",
    "Figures",
    "Finding",
    "Findings",
    "Headline",
    "HeapEvent",
    "HeapTrace",
    "InstructionCost",
    "Item",
    "LiveValue",
    "Liveness",
    "LogicalBuffer",
    "Loop",
    "Measured",
    "MeasuredEvents",
    "MeasuredInstruction",
    "MeasuredLane",
    "Memory",
    "MemorySpace",
    "ModuleEntry",
    "Origin",
    "OriginCard",
    "ParameterCopy",
    "Part",
    "Pass",
    "Passes",
    "Place",
    "ProgramRow",
    "Programs",
    "Residual",
    "Roofline",
    "Runs",
    "ShardedArray",
    "Sharding",
    "Shardings",
    "Snapshot",
    "Source",
    "SourceLine",
    "Tile",
    "Timeline",
    "Total",
    "Transfer",
    "Transition",
    "Watched",
    "Why",
    "Work",
    "XlaComparison",
]
