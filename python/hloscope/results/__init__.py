"""Every result class under a path that stays the same: ``hloscope.results.Collectives``.

For annotations and ``isinstance``; results themselves come from a ``Capture``. The modules that
define them may move as the analyses do. Those of planning are in ``hloscope.results.planning``,
programs and their parts in ``hloscope.hlo``, chips in ``hloscope.hardware``.
"""

from __future__ import annotations

from ..analysis.base.operands import ValueSource
from ..analysis.check.result import Breach, CheckReport
from ..analysis.comms.arrays import ShardedArray
from ..analysis.comms.collective import Collective, Part, Total
from ..analysis.comms.collectives import Collectives
from ..analysis.comms.sharding import Shardings, Transition
from ..analysis.cost.cost import Cost, InstructionCost
from ..analysis.cost.counts import XlaComparison
from ..analysis.cost.roofline.roofline import Roofline
from ..analysis.cost.roofline.transfers import Transfer
from ..analysis.cost.runs import Runs
from ..analysis.cost.timeline import Timeline
from ..analysis.diff.differences import Change, CollectiveItem, Delta, Item, Place
from ..analysis.diff.measured import MeasuredChange, MeasuredDiff
from ..analysis.diff.result import Diff
from ..analysis.findings.finding import Costliest, Finding, Findings, Headline
from ..analysis.findings.proof import FigureChange, Proof
from ..analysis.flops.flops import Work
from ..analysis.measured.events import MeasuredEvents, MeasuredLane
from ..analysis.measured.measured import Measured, MeasuredInstruction
from ..analysis.memory.audit import Donation, ParameterCopy
from ..analysis.memory.carries import Carry, Loop, Residual
from ..analysis.memory.donated_copies import DonatedCopy
from ..analysis.memory.liveness.liveness import Liveness
from ..analysis.memory.memory import LiveValue, Memory
from ..analysis.memory.peaks import MemorySpace
from ..analysis.passes.passes import Passes
from ..analysis.passes.row import Pass
from ..analysis.passes.times import PassRun, PassTimes, SlowPass
from ..analysis.provenance.fates.fate import Fate, FateCause, FateKind, Fates, InstructionName
from ..analysis.provenance.origin_card import OperationOrigin, OriginCard
from ..analysis.report.programs import Call, ProgramRow, Programs
from ..analysis.report.source import Figures, Source, SourceLine
from ..analysis.why.compiler_messages import CompilerMessage
from ..analysis.why.provenance_card import Why
from ..analysis.why.provenance_origins import AxisOrigin
from ..api.compared import Comparison
from ..api.compile_time import CompileStep, CompileTime
from ..api.live import Beside, DeviceMemory, Holder, Live, LiveArrays, LiveChange, LiveDiff
from ..api.run_times import RunTimes
from ..api.watched import Compile, Watched
from ..hlo.buffers import Allocation, Assigned, HeapEvent, HeapTrace, LogicalBuffer
from ..hlo.changes import Changes, ProgramChange, SameValues
from ..hlo.shardings.devices import DeviceGroups
from ..hlo.shardings.mesh_text import AxisRef
from ..hlo.shardings.sharding import Sharding, Tile
from ..hlo.snapshots import Snapshot
from ..readers import ModuleEntry

__all__ = [
    "Allocation",
    "Assigned",
    "AxisOrigin",
    "AxisRef",
    "Beside",
    "Breach",
    "Call",
    "Carry",
    "Change",
    "Changes",
    "CheckReport",
    "Collective",
    "CollectiveItem",
    "Collectives",
    "Comparison",
    "Compile",
    "CompileStep",
    "CompileTime",
    "CompilerMessage",
    "Cost",
    "Costliest",
    "Delta",
    "DeviceGroups",
    "DeviceMemory",
    "Diff",
    "DonatedCopy",
    "Donation",
    "Fate",
    "FateCause",
    "FateKind",
    "Fates",
    "FigureChange",
    "Figures",
    "Finding",
    "Findings",
    "Headline",
    "HeapEvent",
    "HeapTrace",
    "Holder",
    "InstructionCost",
    "InstructionName",
    "Item",
    "Live",
    "LiveArrays",
    "LiveChange",
    "LiveDiff",
    "LiveValue",
    "Liveness",
    "LogicalBuffer",
    "Loop",
    "Measured",
    "MeasuredChange",
    "MeasuredDiff",
    "MeasuredEvents",
    "MeasuredInstruction",
    "MeasuredLane",
    "Memory",
    "MemorySpace",
    "ModuleEntry",
    "OperationOrigin",
    "OriginCard",
    "ParameterCopy",
    "Part",
    "Pass",
    "PassRun",
    "PassTimes",
    "Passes",
    "Place",
    "ProgramChange",
    "ProgramRow",
    "Programs",
    "Proof",
    "Residual",
    "Roofline",
    "RunTimes",
    "Runs",
    "SameValues",
    "ShardedArray",
    "Sharding",
    "Shardings",
    "SlowPass",
    "Snapshot",
    "Source",
    "SourceLine",
    "Tile",
    "Timeline",
    "Total",
    "Transfer",
    "Transition",
    "ValueSource",
    "Watched",
    "Why",
    "Work",
    "XlaComparison",
]
