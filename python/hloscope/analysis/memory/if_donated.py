"""The peak as it would be if more arguments were donated.

    argument   █████ read ███┤
    result                   ├ written █████████     in the argument's memory: held once
    temporary          ├──────┤                      may be in the result's own memory now, and is
                                                     on the heap then: another peak may remain

Donors are paired with outputs as jax does (``jax._src.interpreters.mlir._set_up_aliases``): in
order, by type and shape on a device. An output that is written while its argument is still read is
a temporary then, copied into the argument at the end, as XLA's ``CopyInsertion`` does. The schedule
is taken to stay as it is.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection

from ...hlo import Shape
from ...hlo.parts import Alias
from .liveness.liveness import Liveness
from .liveness.simulate import simulate
from .liveness.values import OUTPUT, leaf_span


def if_donated(live: Liveness, parameters: Collection[int], *, retyped: bool = False) -> Liveness:
    """The simulation with these parameters of ENTRY, by number, donated as well.

    ``retyped``: as if outputs of their dimensions were also of their type and layout.
    """
    entry = live.module.entry
    if entry is None or entry.root is None:
        return live
    given = live.module.input_output_alias
    lent = {a.parameter_number for a in given}
    written = {a.output_index for a in given}
    donors: dict[object, deque[int]] = defaultdict(deque)
    for p in sorted(entry.parameters, key=lambda p: p.parameter_number or 0):
        number = p.parameter_number or 0
        if number in parameters and number not in lent and p.shape.is_array:
            donors[_kind(p.shape, retyped)].append(number)
    root = entry.root.shape
    outputs = [(k,) for k in range(len(root.tuple_shapes))] if root.is_tuple else [()]
    pairs = []
    for index in outputs:
        shape = root.tuple_shapes[index[0]] if index else root
        b = int(live.buffer_of[live.values.nodes(entry.root)[leaf_span(root, index)[0]]])
        has_own = index not in written and live.kind[b] == OUTPUT and live.home[b] < 0
        if has_own and shape.is_array and donors.get(_kind(shape, retyped)):
            number = donors[_kind(shape, retyped)].popleft()
            pairs.append(Alias(index, number, (), "may-alias"))
    return simulate(live.module, pairs) if pairs else live


def _kind(shape: Shape, retyped: bool) -> object:
    return shape.dimensions if retyped else shape
