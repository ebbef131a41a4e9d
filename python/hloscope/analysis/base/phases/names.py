"""The name of each phase of a program.

What follows the gradients is an optimiser by data flow, and so is the integrator of a sampler or of
molecular dynamics: ``v = v - step * gradient; x = x + step * v`` is gradient descent with momentum.
Only names tell them apart: where those of functions and files are known and none is of an
optimiser, of training or of a loss, and no argument is of a model, the phase is an "update".
"""

from __future__ import annotations

import re

from ....hlo import Instruction, Module
from ..operands import given_name
from ..table import per_module
from .edges import OPTIMISER, PHASES

UPDATE = "update"

# Words of training in names of functions and files, and the loss that it minimises.
_TRAINS = re.compile(
    r"(?:^|[^a-z])(?:adam\w*|adagrad|adafactor|sgd\w*|lamb|lion|rmsprop|shampoo|muon|nesterov"
    r"|optim\w*|optax|apply_(?:updates?|grad\w*)|update_params|objective\w*|(?:pre)?train\w*)"
    r"(?:$|[^a-z])|loss|cross_?entropy|misfit|bfgs",
    re.I,
)
# Arguments, by the first component of their path.
_OF_MODEL = re.compile(
    r"(?:params?|weights?|variables|model|opt|opt_state|optimi[sz]er)(?:$|\W)", re.I
)


@per_module
def phase_names(module: Module) -> tuple[str, ...]:
    """``PHASES``, with "update" in place of "optimiser" where nothing is said of one."""
    frames, entry = module.frames, module.entry
    if not frames.functions or entry is None:
        return PHASES
    returned = (
        {s.dimensions for s in entry.root.shape.leaves()} if entry.root is not None else set()
    )
    # a model that the step does not return anew is not trained by it
    given = (given_name(p) for p in entry.parameters if _shapes(p) <= returned)
    if any(_TRAINS.search(name) for name in (*frames.functions, *frames.files)) or any(
        _OF_MODEL.match(name) for name in given
    ):
        return PHASES
    return tuple(UPDATE if n == OPTIMISER else name for n, name in enumerate(PHASES))


def _shapes(i: Instruction) -> set[tuple[int, ...]]:
    return {s.dimensions for s in i.shape.leaves()}


def is_update(phase: str) -> bool:
    """Whether a phase is that of what is done with the gradients, by either name."""
    return phase in (PHASES[OPTIMISER], UPDATE)
