"""The role of each argument of a training step, by its use, or by its name if that is not enough.

    read by the forward pass, and updated or given a gradient     parameter
    read by the optimiser only, and returned updated              optimiser state
    read by the forward pass, neither updated nor differentiated  argument: data; frozen weights
                                                                  too, unless named as such

An argument is followed through copies, loops and calls. It is updated if a result of its shape is
made from it by ops that keep the shape, and has a gradient if the backward pass makes a result of
its shape. By data flow positions that follow forces are parameters that follow gradients: where
nothing says that the program trains (``base/phases/names.py``), only what is named as weights are
is a parameter. A module without a backward phase (``base/phases.py``) may not be a training step:
then names decide, but an argument that is multiplied, or not updated, is never optimiser state, nor
is an ``m``, a ``velocity`` or a ``state`` without a parameter or a gradient of its shape.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from ...hlo import Instruction, Module, Shape, opcodes
from ...hlo.collective_kinds import kind_of
from ..base.phases.names import UPDATE, phase_names
from ..base.phases.phases import BACKWARD, FORWARD, OPTIMISER, REMATERIALISED, UNKNOWN
from ..base.table import per_module, table
from .limits import UPDATE_BUFFERS
from .liveness.liveness import Liveness
from .liveness.values import ARGUMENT, SAME_BUFFER

OTHER, PARAMETER, STATE = range(3)
BY_USE, BY_NAME = "data flow", "name"
# Anywhere in an argument's path. An optimiser's own words, then those that a simulation has, too.
_STATE = re.compile(r"(?:^|[^a-z])(?:opt|optim\w*|opt_state|adam\w*|exp_avg\w*)(?:$|[^a-z])", re.I)
_PERHAPS = re.compile(
    r"(?:^|[^a-z])(?:mu|nu|momentum|moments?|velocity|accumulators?)(?:$|[^a-z])", re.I
)
# Only as its first component, of which it may be all.
_PERHAPS_HEAD = re.compile(r"(?:m|v|s|state|momenta|trace|ema)", re.I)
_PARAMETERS = re.compile(r"(?:p|params?|weights?|variables|model|theta|w\d*)", re.I)
# At the beginning of a word: an ``overhead`` and a ``planet`` are no weights.
_WEIGHTS = re.compile(
    r"(?:^|[^a-z])(?:weight|param|kernel|bias|model|layer|block|embed|head|net|theta"
    r"|[wp]s?\d*(?:$|[^a-z]))|(?:conv|res|u)net",
    re.I,
)
_GRADIENTS = re.compile(r"(?:d?g|grads?|gradients?|updates?)", re.I)
# Name buffers that are there already.
_SAME_BUFFERS = SAME_BUFFER | opcodes.LOOPS | opcodes.BRANCHES | {"call", "parameter"}
# Return their operand in another place, layout or type; a prefetch may come in slices.
MOVED = opcodes.SAME_NUMBERS - opcodes.with_halves("reverse")  # an array reversed is another one
_MOVES = MOVED | opcodes.BUNDLES | {"slice-start", "slice-done", "async-start", "async-done"}


@per_module
def moves_only(module: Module) -> list[bool]:
    """Whether each instruction only returns its operand in another place, layout or type."""
    t = table(module)
    moves = t.by_opcode(_MOVES.__contains__, bool)
    inside = moves | t.by_opcode("parameter".__eq__, bool)
    of_moves = t.reduce_by_computation(np.logical_and, inside, True)
    fusions = t.where("fusion")
    fusions = fusions[t.called.counts[fusions] > 0]
    moves[fusions] = of_moves[t.called.values[t.called.offsets[fusions]]]
    found: list[bool] = moves.tolist()
    return found


def _joins(i: Instruction) -> bool:
    """Whether it puts the slices of a prefetch together, as XLA:TPU's ``ConcatBitcast`` does."""
    return all(o.opcode == "slice-done" for o in i.operands) and len(i.operands) > 1


class Uses:
    """Readers of each buffer, and the buffers that are returned."""

    def __init__(self, live: Liveness, phase: npt.NDArray[np.uint8]) -> None:
        self.live = live
        self.phase = phase
        values = live.values
        self._moves = moves_only(live.module)
        self._through: dict[int, tuple[set[int], list[Instruction]]] = {}
        reader, node = values.read(_SAME_BUFFERS)
        read = live.buffer_of[node]
        order = np.argsort(read, kind="stable")
        self._reader: list[int] = reader[order].tolist()
        counts = np.bincount(read, minlength=len(live.size))
        self._first: list[int] = np.append(0, np.cumsum(counts)).tolist()
        entry = live.module.entry
        root = entry.root if entry is not None else None
        self.results = {int(live.buffer_of[v]) for v in values.nodes(root)} if root else set()
        # buffers that results overwrite, such as donated arguments
        self.overwritten = {int(live.home[b]) for b in self.results} - {-1}

    def readers(self, b: int) -> list[Instruction]:
        """What reads a buffer, in order, once for each operand."""
        instructions = self.live.module.instructions
        return [instructions[n] for n in self._reader[self._first[b] : self._first[b + 1]]]

    def _buffers(self, i: Instruction) -> list[int]:
        """Buffers of the results of ``i``."""
        nodes = self.live.values.nodes(i)
        found: list[int] = self.live.buffer_of[nodes.start : nodes.stop].tolist()
        return found

    def phases_of(self, b: int) -> set[int]:
        """Phases of what reads it, inside fusions, looking through copies and gathers."""
        moved, readers = self._through_moves(b)
        return {p for i in readers for p in self._inside(i, moved)}

    def _inside(self, i: Instruction, moved: set[int]) -> set[int]:
        """Phases in which a reader uses one of these buffers: a fusion may be of several."""
        if i.opcode == "fusion" and i.called_computations:
            within = {
                int(self.phase[user.index])
                for o, p in zip(i.operands, i.called_computations[0].parameters, strict=False)
                if moved.intersection(self._buffers(o))
                for user in p.users
            }
            if within - {UNKNOWN}:
                return within - {UNKNOWN}
        return {int(self.phase[i.index])}

    def is_multiplied(self, b: int) -> bool:
        """Whether a dot or convolution reads it, inside a fusion included."""
        return any(
            k.opcode in opcodes.PRODUCTS
            for i in self._through_moves(b)[1]
            for k in (i, *(x for c in i.called_computations for x in c.instructions))
        )

    def _through_moves(self, b: int) -> tuple[set[int], list[Instruction]]:
        """The buffer with its copies, and what reads them for something else."""
        if b in self._through:
            return self._through[b]
        seen, found = {b}, []
        waiting = [b]
        while waiting:
            for i in self.readers(waiting.pop()):
                if not (self._moves[i.index] or i.opcode in opcodes.RESHARDS or _joins(i)):
                    found.append(i)
                    continue
                for n in self._buffers(i):
                    if n not in seen:
                        seen.add(n)
                        waiting.append(n)
        self._through[b] = seen, found
        return seen, found

    def is_updated(self, b: int, shape: Shape) -> bool:
        """Whether a result of the same shape is made from it, by ops that keep the shape, or from
        the part of each device, of which all are gathered."""
        live, dims = self.live, shape.dimensions
        if b in self.results or b in self.overwritten:
            return True
        waiting = sorted(self._through_moves(b)[0])
        seen = set(waiting)
        for _ in range(UPDATE_BUFFERS):
            if not waiting:
                return False
            at = waiting.pop()
            of_part = live.shape_of(at).dimensions != dims
            for i in self.readers(at):
                if i.opcode in opcodes.PRODUCTS:
                    continue
                for v in live.values.nodes(i):
                    n, made = int(live.buffer_of[v]), live.values.shapes[v].dimensions
                    if n in seen or not (made == dims or _is_part(made, dims)):
                        continue
                    if of_part and made == dims and not kind_of(i.opcode).gathers:
                        continue
                    if n in self.results and made == dims:
                        return True
                    seen.add(n)
                    waiting.append(n)
        return False


def _is_part(part: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether it is one of equal parts along one dimension."""
    if len(part) != len(whole):
        return False
    cut = [(a, b) for a, b in zip(part, whole, strict=True) if a != b]
    return len(cut) == 1 and 0 < cut[0][0] < cut[0][1] and cut[0][1] % cut[0][0] == 0


def argument_roles(
    live: Liveness, phase: npt.NDArray[np.uint8], names: dict[int, str]
) -> dict[int, tuple[int, str]]:
    """(OTHER, PARAMETER or STATE; BY_USE or BY_NAME) of each argument's buffer."""
    uses = Uses(live, phase)
    trains = bool((phase == BACKWARD).any())
    gradients: dict[tuple[int, ...], int] = {}
    backward = phase[live.values.origin] == BACKWARD
    made_backward = set(live.buffer_of[backward].tolist())
    for b in uses.results:
        if b in made_backward:
            dims = live.shape_of(b).dimensions
            gradients[dims] = gradients.get(dims, 0) + 1
    updated = {
        live.shape_of(b).dimensions
        for b, name in names.items()
        if _is_parameter(name) or _GRADIENTS.fullmatch(_head(name))
    }
    out: dict[int, tuple[int, str]] = {}
    differentiated: dict[tuple[int, ...], list[int]] = {}
    for b in np.flatnonzero(live.kind == ARGUMENT).tolist():
        name, shape = names.get(b, ""), live.shape_of(b)
        if not trains:
            out[b] = _by_name(b, name, shape, uses, updated)
            continue
        read = uses.phases_of(b)
        if read & {FORWARD, BACKWARD, REMATERIALISED}:
            if uses.is_updated(b, shape) and OPTIMISER in read:
                out[b] = PARAMETER, BY_USE
            elif gradients.get(shape.dimensions) and FORWARD in read:
                differentiated.setdefault(shape.dimensions, []).append(b)
                out[b] = OTHER, BY_USE
            elif _is_parameter(name):  # frozen
                out[b] = PARAMETER, BY_NAME
            else:
                out[b] = OTHER, BY_USE
        elif OPTIMISER in read and uses.is_updated(b, shape):
            out[b] = STATE, BY_USE
        elif read - {UNKNOWN}:
            out[b] = OTHER, BY_USE
        else:
            out[b] = _by_name(b, name, shape, uses, updated)
    for dims, rows in differentiated.items():
        # more arguments of the shape than gradients: names decide, else their order
        room = gradients[dims]
        named = [b for b in rows if _is_parameter(names.get(b, ""))]
        chosen = rows if len(rows) <= room else (named or rows)[:room]
        how = BY_USE if len(rows) <= room else BY_NAME
        for b in chosen:
            out[b] = PARAMETER, how
    return _named_weights(out, names) if UPDATE in phase_names(live.module) else out


def _named_weights(
    roles: dict[int, tuple[int, str]], names: dict[int, str]
) -> dict[int, tuple[int, str]]:
    """Roles in a program that may be a simulation: state, where no parameters are, is its own."""
    weights = {
        b for b, r in roles.items() if r[0] == PARAMETER and _WEIGHTS.search(names.get(b, ""))
    }
    kept = {OTHER: True, PARAMETER: False, STATE: bool(weights)}
    return {b: r if kept[r[0]] or b in weights else (OTHER, r[1]) for b, r in roles.items()}


def _by_name(
    b: int, name: str, shape: Shape, uses: Uses, parameters: set[tuple[int, ...]]
) -> tuple[int, str]:
    # a word such as ``m`` or ``velocity`` says nothing where there is nothing that it belongs to
    perhaps = _PERHAPS_HEAD.fullmatch(_head(name)) or _PERHAPS.search(name)
    says_state = _STATE.search(name) or (perhaps and shape.dimensions in parameters)
    if says_state and not uses.is_multiplied(b) and uses.is_updated(b, shape):
        return STATE, BY_NAME
    return (PARAMETER, BY_NAME) if _is_parameter(name) else (OTHER, BY_NAME)


def _head(name: str) -> str:
    return re.split(r"[\[.]", name, maxsplit=1)[0]


def _is_parameter(name: str) -> bool:
    return _PARAMETERS.fullmatch(_head(name)) is not None
