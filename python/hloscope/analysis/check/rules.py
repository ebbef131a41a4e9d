"""The rules behind ``check``, in the order they report.

A rule adds to the result: a breach with the line at fault, a problem if it cannot know, or what
is kept. It never takes "unknown" for "kept".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase

from ...hlo import Instruction, Module, StackFrame, opcodes
from ...hlo.collective_kinds import KINDS, OF_PERMUTES
from ...hlo.shape import ELEMENT_BITS
from ...hlo.texts.listed import and_more
from ..base.captured import Captured
from ..base.labels.families import OPCODES
from ..base.lines.frames import own_line
from ..base.memory_spaces import HOST, space_names
from ..base.operands import given_name
from ..comms.collective import Collective, total_of
from ..comms.collectives import Collectives, collectives
from ..findings.finding import Findings
from ..findings.rules import RULES as FINDINGS
from ..findings.rules import findings
from ..memory.memory import analysed
from ..text.units import quantity, size
from .baseline import FIGURES, baseline_of, read_baseline
from .result import MAIN_MEMORY, Breach, Budgets

FINDING_RULES = tuple(name for name, *_ in FINDINGS)


@dataclass
class Result:
    breaches: list[Breach] = field(default_factory=list)
    problems: list[Breach] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def breach(self, budget: str, message: str, at: StackFrame | None = None) -> None:
        self.breaches.append(_made(budget, message, at))

    def problem(self, budget: str, message: str, at: StackFrame | None = None) -> None:
        self.problems.append(_made(budget, message, at))


Rule = Callable[[Captured, Budgets, Result], None]


def _made(budget: str, message: str, at: StackFrame | None) -> Breach:
    return Breach(budget, message, at.file if at else "", at.line if at else 0)


def source_frame(i: Instruction | None) -> StackFrame | None:
    """The user's own line: the innermost frame outside installed packages."""
    return own_line(i.frames) if i is not None else None


def incomplete(module: Module) -> str:
    """Why figures of the whole module cannot be trusted; '' if they can."""
    if module.dialect != "hlo":
        return f"this is {module.dialect}, not compiled HLO"
    return unread(module)


def unread(module: Module) -> str:
    """Why a part of the program may be missing; '' if all of it was read."""
    lost = next((w for w in module.warnings if not w.is_note), None)
    if lost is not None:
        return f"a part of the program may be missing ({lost})"
    if module.entry is None or module.entry.root is None:
        return "the dump is cut off"
    return ""


def peak(cap: Captured, wanted: Budgets, result: Result) -> None:
    for name, limit in (wanted.max_peak or {}).items():
        _peak_of(cap, name, limit, result)


def _peak_of(cap: Captured, name: str, limit: int, result: Result) -> None:
    budget = "max_peak" if name == MAIN_MEMORY else f"max_peak[{name}]"
    why = incomplete(cap.module)
    if not why:
        memory = analysed(cap.module, cap.target)
        if memory.peak_source.endswith("not scheduled"):
            why = "the module is not scheduled, so what is live at the same time is unknown"
    if why:
        result.problem(budget, why)
        return
    names = space_names(memory.platform)
    at = {s.name.lower(): s for s in memory.spaces}
    at[MAIN_MEMORY] = memory.spaces[0]
    known = {n.lower() for n in names} | at.keys()
    if name.lower() not in known:
        result.problem(budget, f"there is no memory called {name}; there are {', '.join(names)}")
        return
    space = at.get(name.lower())
    if space is None:
        result.kept.append(f"{budget}: nothing is stored there")
        return
    said = f"{size(space.peak_bytes)} of {size(limit)} ({space.source})"
    if space.peak_bytes <= limit:
        result.kept.append(f"{budget}: {said}")
        return
    frame = None
    if space is memory.spaces[0] and (highest := memory.peak_instruction) is not None:
        said, frame = f"{said}, reached at %{highest.name}", source_frame(highest)
    result.breach(budget, said, frame)


def wire_bytes(cap: Captured, wanted: Budgets, result: Result) -> None:
    if wanted.max_wire_bytes is None:
        return
    why = incomplete(cap.module)
    found = collectives(cap.module, cap.target)
    axes = found.mesh.axis_names if found.mesh is not None else ()
    for axis, limit in wanted.max_wire_bytes.items():
        budget = f"max_wire_bytes[{axis}]"
        if why:
            result.problem(budget, why)
            continue
        by_network = axis not in axes and axis in _networks(found)
        if axis != "total" and not by_network and axis not in axes and (axes or found.rows):
            result.problem(budget, _no_axis(axis, found))
            continue
        rows = [r for r in found if axis == "total" or axis in (*_axes(r), r.network)]
        if axis in axes:
            rows = [r for r in found if axis in _axes(r)]
        by_axis = axis != "total" and not by_network
        unknown = [r for r in found if by_axis and r.axes is None and _crosses(r)]
        unknown += [r for r in rows if r.total_wire_bytes is None and _crosses(r)]
        unknown += [r for r in rows if r.is_unknown and _crosses(r)]
        if unknown:
            r = unknown[0]
            what = (
                "mesh axes"
                if r.axes is None and by_axis
                else "wire bytes"
                if r.total_wire_bytes is None
                else "number of executions"
            )
            be = "is" if what == "number of executions" else "are"
            result.problem(budget, f"the {what} of {r.kind} %{r.name} {be} unknown", r.source)
            continue
        sums = total_of((), rows)
        total = sums.wire_bytes
        said = f"{size(total)} of {size(limit)}"
        if sums.is_range:
            least = size(sums.least_wire_bytes)
            said = f"at most {said}, at least {least}, depending on which branches run"
        if total <= limit:
            result.kept.append(f"{budget}: {said}")
            continue
        most = max(rows, key=lambda r: r.total_wire_bytes or 0)
        result.breach(
            budget,
            f"{said}; most by {most.kind} %{most.name}: {size(most.total_wire_bytes or 0)}",
            most.source,
        )


def _axes(r: Collective) -> tuple[str, ...]:
    """Mesh axes it runs over; a part of one (``model:(1)2``) under the name of its axis."""
    return tuple(a.partition(":")[0] for a in r.axes.split("+")) if r.axes else ()


def _networks(found: Collectives) -> tuple[str, ...]:
    """Names of networks that a budget can be for, in a program over several slices."""
    return ("ici", "dcn") if found.num_slices else ()


def _no_axis(axis: str, found: Collectives) -> str:
    axes = found.mesh.axis_names if found.mesh is not None else ()
    have = ", ".join(axes) or "unknown; capture it with its mesh"
    networks = f", its networks {' and '.join(n)}" if (n := _networks(found)) else ""
    return f"no mesh axis {axis}; this program's axes are {have}{networks}"


def _crosses(r: Collective) -> bool:
    return r.group_size != 1


def forbidden(cap: Captured, wanted: Budgets, result: Result) -> None:
    for what in wanted.forbid:
        budget = f"forbid: {what}"
        try:
            found = list(_matches(cap, what))
        except ValueError as e:
            result.problem(budget, str(e))
            continue
        for message, at in found:
            result.breach(budget, message, at)
        if found:
            continue
        if why := _unseen(cap.module, what):
            result.problem(budget, f"none in what was read, but {why}")
        else:
            result.kept.append(f"{budget}: none")


def _unseen(module: Module, what: str) -> str:
    """Why the program may have what the module does not show; '' if it shows all."""
    if module.dialect == "hlo" or what in ELEMENT_BITS:
        return unread(module)
    return f"{incomplete(module)}, which compiling changes"


Found = Iterator[tuple[str, StackFrame | None]]


def _matches(cap: Captured, what: str) -> Found:
    kind, over, axis = what.strip().partition(" over ")
    kind, axis = kind.strip(), axis.strip()
    if kind in (*KINDS, *OF_PERMUTES, "collective"):
        return _collectives(cap, kind, axis)
    if over:
        raise ValueError(f"{kind} is not a collective; collectives are: {', '.join(KINDS)}")
    if kind == "host-transfer":
        return _instructions(cap.module, _is_host_transfer)
    if kind == "findings" or kind in FINDING_RULES:
        return _findings(cap, kind)
    if kind in ELEMENT_BITS:
        return _instructions(
            cap.module,
            lambda i: (
                (
                    any(s.element_type == kind for s in i.shape.leaves())
                    and i.opcode not in _NO_VALUE_OF_ITS_OWN
                )
                or (i.opcode == "parameter" and i.computation.is_entry and _has(i, kind))
            ),
        )
    present = {i.opcode for i in cap.module.instructions}
    if kind in OPCODES or kind in present:
        return _instructions(cap.module, lambda i: i.opcode == kind)
    near = get_close_matches(
        kind, [*KINDS, "host-transfer", *FINDING_RULES, *ELEMENT_BITS, *OPCODES], 1
    )
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ValueError(f"not a collective, a type, an opcode or host-transfer{hint}")


def _findings(cap: Captured, kind: str) -> Found:
    """The findings of the program, for one rule or all; it needs a compiled program."""
    found = findings(cap.module, cap.target)
    for failure in found.failed:
        if kind in ("findings", failure.partition(":")[0]):
            raise ValueError(f"could not be worked out: {failure}")
    for f in found:
        if kind in ("findings", f.rule):
            yield f.title, f.frame


def _has(i: Instruction, kind: str) -> bool:
    return any(s.element_type == kind for s in i.shape.leaves())


def _collectives(cap: Captured, kind: str, axis: str) -> Found:
    found = collectives(cap.module, cap.target)
    rows = [r for r in found if kind in ("collective", r.kind) or kind in _opcodes(r)]
    if axis and rows:
        axes = found.mesh.axis_names if found.mesh is not None else ()
        if axis not in axes and axis not in _networks(found):
            raise ValueError(_no_axis(axis, found))
        if axis not in axes:
            rows = [r for r in rows if r.network == axis]
        else:
            for r in rows:
                if r.axes is None and _crosses(r):
                    raise ValueError(f"the mesh axes of {r.kind} %{r.name} are unknown")
            rows = [r for r in rows if axis in _axes(r)]
    for r in rows:
        over = f" over {r.axes_or_groups}" if _crosses(r) else ""
        first = r.parts[0].instruction.name if kind in _opcodes(r) else r.name
        count = f", one of {len(r.parts)} of a {r.kind}" if kind in _opcodes(r) else ""
        what = f"%{first}{count}," if count else f"%{first}"
        yield f"{what} moves {size(r.payload_bytes)}{over}", r.source


def _opcodes(r: Collective) -> frozenset[str]:
    """What really runs if a row is for several permutes: a budget counts these too."""
    if not r.is_of_permutes:
        return frozenset()
    return frozenset(p.instruction.opcode.removesuffix("-start") for p in r.parts)


_NO_VALUE_OF_ITS_OWN = opcodes.BUNDLES | {"bitcast", "parameter"}
_HOST_OPS = frozenset({"infeed", "outfeed"})
_HOST_CALLS = ("callback", "host_transfer", "MoveToHost", "MoveToDevice", "SendToHost")


def _is_host_transfer(i: Instruction) -> bool:
    if i.opcode in _HOST_OPS:
        return True
    if i.opcode in ("send", "recv"):
        return i.attribute("is_host_transfer") == "true"
    if i.opcode == "custom-call":
        return any(word in (i.custom_call_target or "") for word in _HOST_CALLS)
    if i.opcode in ("copy-start", "copy"):
        spaces = {s.layout.memory_space for s in i.shape.leaves() if s.layout is not None}
        spaces |= {o.shape.layout.memory_space for o in i.operands if o.shape.layout is not None}
        return HOST in spaces and len(spaces) > 1
    return False


def _instructions(module: Module, test: Callable[[Instruction], bool]) -> Found:
    """The instructions, those of one source line together."""
    groups: dict[tuple[str, int], list[Instruction]] = {}
    for i in module.instructions:
        if test(i):
            at = source_frame(i)
            groups.setdefault((at.file, at.line) if at else ("", 0), []).append(i)
    for found in groups.values():
        first = found[0]
        more = and_more(len(found) - 1)
        yield f"%{first.name} = {first.shape.dense_text} {first.opcode}{more}", source_frame(first)


def instructions(cap: Captured, wanted: Budgets, result: Result) -> None:
    limit = wanted.max_instructions
    if limit is None:
        return
    count = len(cap.module.instructions)
    cut = unread(cap.module)
    if cut and count <= limit:
        result.problem("max_instructions", f"{cut}; {count:,} are there")
    elif count > limit:
        result.breach("max_instructions", f"{count:,} of {limit:,}")
    else:
        result.kept.append(f"max_instructions: {count:,} of {limit:,}")


def donation(cap: Captured, wanted: Budgets, result: Result) -> None:
    patterns = wanted.require_donation
    if not patterns:
        return
    budget = "require_donation"
    if why := incomplete(cap.module):
        result.problem(budget, why)
        return
    entry = cap.module.entry
    assert entry is not None  # checked by incomplete()
    aliased = {a.parameter_number for a in cap.module.input_output_alias}
    names = {p.parameter_number: given_name(p) or p.name for p in entry.parameters}
    names |= {a.parameter: a.name for a in cap.target.arguments if a.parameter is not None}
    if isinstance(patterns, bool):
        donated = {a.parameter for a in cap.target.arguments if a.donated}
        if not donated and not aliased:
            result.breach(budget, "no argument is donated")
            return
        wants = {k for k in donated if k is not None}
    else:
        wants = set()
        for pattern in patterns:
            hit = {k for k, n in names.items() if k is not None and fnmatchcase(n, pattern)}
            if not hit:
                have = ", ".join(list(names.values())[:8])
                result.problem(budget, f"no argument matches {pattern}; arguments are {have}")
            wants |= hit
    for k in sorted(wants - aliased):
        result.breach(budget, f"{names.get(k, k)} is not reused for any output")
    if not wants - aliased:
        result.kept.append(f"{budget}: {len(wants | aliased):,} arguments")


# A proved gain up to this part of a figure is left to the author.
MOST_GAIN = 0.05


def proved(cap: Captured, wanted: Budgets, result: Result) -> None:
    """No advice that was tried, or can be, gains much; those that may alter values are left out."""
    if "proved" not in wanted.require:
        return
    budget = "require: proved"
    found = getattr(cap, "findings", None)
    if not isinstance(found, Findings):
        found = findings(cap.module, cap.target)
    if any(f.changes and not f.proofs for f in found):
        if found.prover is None:
            result.problem(
                budget, "the advice of findings can be tried for a captured function, not a dump"
            )
            return
        found = found.prove()
    kept = True
    for f in found:
        ways = [p for p in f.proofs if p.is_proved and p.gain > MOST_GAIN and not p.may_alter]
        if ways:
            kept = False
            result.breach(budget, f"{f.title}: {ways[0]}", f.frame)
    if kept:
        result.kept.append(f"{budget}: no advice that hloscope can follow gains over 5 %")


def against_baseline(cap: Captured, wanted: Budgets, result: Result) -> None:
    """No figure exceeds the stored one by more than the tolerance; seconds only of one chip."""
    if wanted.baseline is None:
        return
    try:
        stored = read_baseline(wanted.baseline, cap.module.name)
    except ValueError as error:
        result.problem("baseline", str(error))
        return
    if why := incomplete(cap.module):
        result.problem("baseline", why)
        return
    now = baseline_of(cap)
    for name, unit in FIGURES.items():
        before, after = stored.get(name), now[name]
        budget = f"baseline: {name}"
        if name == "seconds" and before is not None and stored.get("chip") != now["chip"]:
            chips = f"{stored.get('chip')} then, {now['chip'] or 'no chip'} now"
            result.problem(budget, f"modelled on different chips: {chips}")
            continue
        if before is None or after is None:
            if before is not after:
                result.problem(budget, f"unknown {'then' if before is None else 'now'}")
            continue
        said = f"{quantity(after, unit)}, {quantity(before, unit)} before"
        if before and after != before:
            said += f" ({after / before - 1:+.1%})"
        if after > before * (1 + wanted.tolerance):
            result.breach(budget, f"{said}; {100 * wanted.tolerance:g} % more is allowed")
        else:
            result.kept.append(f"{budget}: {said}")


RULES: tuple[Rule, ...] = (
    peak,
    wire_bytes,
    forbidden,
    instructions,
    donation,
    proved,
    against_baseline,
)
