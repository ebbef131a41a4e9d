"""``op_name`` → the scope a person wrote, for every instruction, with or without metadata.

Hard because op_name is a stack of transformations flattened to text, and XLA merges,
drops and invents it:

    jit(step)/transpose(jvp(layer_0))/mlp/dot_general   → backward, layer_0, mlp
    jit(step)/jit(main)/jvp(GPT)/h/3/3/attn/bld,bmd->blm/mul → forward, GPT, h/3, attn
    jit(step)/(a/mul:a/b/add)                           → a
    broadcast.29                                        → unknown (XLA's own)
    jit(step)/mul                                       → () known to be at the top

The last component is the primitive and goes. An instruction whose scope is unknown takes
that of what it calls, else of its latest operand, else of its earliest user.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .flags import INLINE, flags
from .table import Table, intern, per_module, table

if TYPE_CHECKING:
    from ..hlo import Module

Path = tuple[str, ...]
Mask = NDArray[np.bool_]
FORWARD, BACKWARD = "forward", "backward"
REMAT = "rematted_computation"
CALLED = "()"  # ends the name of a jitted function, as against a scope a person named

# Transformations and calls that say how JAX got there, not where a person was.
_UNWRAP = frozenset(
    "jit pjit vmap pmap xmap shard_map custom_jvp custom_vjp xla_call parallelize "  # noqa: SIM905
    "linearize named core_call jvp transpose".split()
)
_DROP_WRAPPED = frozenset(["remat", "checkpoint", "remat2"])
_FUNCTION = frozenset(["jit", "pjit", "pmap", "xmap", "parallelize", "xla_call"])
_NOISE = frozenset(
    "main closed_call core_call checkpoint remat remat2 custom_jvp_call custom_vjp_call "  # noqa: SIM905
    "custom_jvp_call_jaxpr custom_vjp_call_jaxpr custom_lin pjit jit vmap shard_map xla_call "
    "named_call custom_vjp_call_custom_transpose ~".split()
)
_WRAPPED = re.compile(r"([A-Za-z_][\w.]*)\((.*)\)$", re.S)
_LOOPS = frozenset(["while", "body", "cond", "scan", "body_fun", "cond_fun"])
_BRANCH = re.compile(r"branch_\d+_fun$")


def split_components(op_name: str, separator: str = "/") -> list[str]:
    """Splits at ``separator`` outside brackets; an unbalanced rest stays in one piece."""
    parts: list[str] = []
    depth = begin = 0
    for at, c in enumerate(op_name):
        if c in "([{":
            depth += 1
        elif c in ")]}":
            depth = max(0, depth - 1)
        elif c == separator and depth == 0:
            parts.append(op_name[begin:at])
            begin = at + 1
    parts.append(op_name[begin:])
    return parts


def _common(paths: list[Path]) -> Path:
    first, last = min(paths), max(paths)
    n = 0
    while n < min(len(first), len(last)) and first[n] == last[n]:
        n += 1
    return first[:n]


@lru_cache(maxsize=1 << 17)
def parse_op_name(op_name: str) -> Path | None:
    """The scope of an op_name, outermost first; None when it names no place (no "/")."""
    if "/" not in op_name:
        return None
    head, _, primitive = op_name.rpartition("/")
    if primitive.isidentifier() and ";" not in head:  # thousands of names share few scopes
        return _scope_of(head)
    if ";" in op_name:
        merged = [p for p in split_components(op_name, ";") if "/" in p]
        if len(merged) > 1:
            known = [p for p in map(parse_op_name, merged) if p is not None]
            return _common(known) or known[0] if known else None
    parts = split_components(op_name)
    last = parts.pop()
    if last.startswith("(") and last.endswith(")") and ":" in last:
        prefix = "/".join(parts)
        merged = split_components(last[1:-1], ":")
        return _common([parse_op_name(f"{prefix}/{m}") or () for m in merged])
    return _scope(parts)


@lru_cache(maxsize=1 << 15)
def _scope_of(text: str) -> Path:
    return _scope(split_components(text))


def _scope(parts: list[str]) -> Path:
    out: list[str] = []
    phase = ""
    for position, part in enumerate(parts):
        name, transforms = part.strip(), set()
        while m := _WRAPPED.match(name):
            wrapper = m.group(1)
            if wrapper in _DROP_WRAPPED:
                name = ""
            elif wrapper in _UNWRAP:
                name = m.group(2)
            else:
                break
            transforms.add(wrapper)
        if not phase and ("transpose" in transforms or "jvp" in transforms):
            phase = BACKWARD if "transpose" in transforms else FORWARD
            out.append(phase)
        function = position == 0 and bool(transforms & _FUNCTION) and not phase
        name = name.partition("[")[0].strip() if "[" in name else name
        if not name or function or name in _NOISE or "->" in name:
            continue
        if out and name.isdigit() and out[-1] not in (FORWARD, BACKWARD):
            stem, _, number = out[-1].rpartition("/")
            if number == name and stem:  # flax repeats the name under remat: layer/5/5
                continue
            out[-1] = f"{out[-1]}/{name}"
        elif not out or out[-1] != name:
            called = bool(transforms & _FUNCTION)
            out.append(name + CALLED if called else name)
    return tuple(_remat_inside(out))


def _remat_inside(path: list[str]) -> list[str]:
    """Puts recomputation inside the layer it recomputes, not around all of them.

    Between the layers' gradients, one group of all recomputation would be a cycle.
    """
    if REMAT in path[:-1]:
        at = path.index(REMAT)
        path[at], path[at + 1] = path[at + 1], path[at]
    return path


def relative(path: Path, base: Path) -> Path:
    """A path inside a called computation, without the caller's own and the loop's words."""
    n = len(base)
    if path[:n] == base:
        path = path[n:]
    elif path and base and path[0] in (FORWARD, BACKWARD) and path[0] == base[0]:
        path = path[1:]
    at = 0
    while at < len(path) and (path[at] in _LOOPS or _BRANCH.match(path[at])):
        at += 1
    return path[at:]


@dataclass(frozen=True, eq=False)
class Scopes:
    """``scope[i]`` indexes ``paths``; -1 when nothing near says where instruction i is from."""

    paths: tuple[Path, ...]
    scope: NDArray[np.int64]
    inherited: NDArray[np.bool_]


@per_module
def scopes(module: Module) -> Scopes:
    """The scope of every instruction."""
    t = table(module)
    parsed = [parse_op_name(n) for n in t.op_names]
    if not any(p is not None and BACKWARD in p for p in parsed):  # one phase is no phase
        parsed = [p and tuple(c for c in p if c != FORWARD) for p in parsed]
    ids, paths = intern([p for p in parsed])
    known = np.array([p is not None for p in parsed], bool)
    of_name = np.where(known, ids, -1)
    own = of_name[t.op_name]
    own[t.by_opcode(lambda o: o == "parameter", bool)] = -1
    top = next((n for n, p in enumerate(paths) if p == ()), -2)
    scope = _inherit(t, own, top)
    final = [p if p is not None else () for p in paths]
    _hoist(t, own, scope, final, (flags(module) & INLINE) != 0)
    _sink(t, own, scope, final)
    return Scopes(tuple(final), scope, (scope >= 0) & (own < 0))


def _hoist(
    t: Table, own: NDArray[np.int64], scope: NDArray[np.int64], paths: list[Path], inline: Mask
) -> None:
    """Moves what belongs to several scopes up to what they have in common, in place.

    A constant that layers share; a collective that XLA combined from many, which carries the
    name of one; a tuple or concatenation of XLA's own. Left where they are, they would tie
    those scopes into a cycle.
    """
    rows, values = t.operands.rows, t.operands.values
    combined = t.by_opcode(_combines, bool) & (t.operands.counts > 1)
    joined = t.by_opcode(lambda o: o in ("concatenate", "tuple"), bool)
    combined |= joined & (own < 0) & (t.operands.counts > 2)
    known = (scope[rows] >= 0) & (scope[values] >= 0)
    up = known & combined[rows] & ~t.silent[values]
    down = known & inline[values]
    # In lexical order the common prefix of many paths is that of the first and the last.
    order = sorted(range(len(paths)), key=paths.__getitem__)
    rank = np.empty(len(paths), np.int64)
    rank[order] = np.arange(len(paths))
    for targets, sources in ((rows[up], values[up]), (values[down], rows[down])):
        low, high = np.full(len(scope), len(paths)), np.full(len(scope), -1)
        np.minimum.at(low, targets, rank[scope[sources]])
        np.maximum.at(high, targets, rank[scope[sources]])
        moved = np.flatnonzero(high >= 0)
        if not len(moved):
            continue
        ends = np.stack((low[moved], high[moved]), axis=1)
        distinct, which = np.unique(ends, axis=0, return_inverse=True)
        ids = {p: n for n, p in reversed(list(enumerate(paths)))}
        to = []
        for a, b in distinct.tolist():
            shared = _common([paths[order[a]], paths[order[b]]])
            if shared not in ids:
                ids[shared] = len(paths)
                paths.append(shared)
            to.append(ids[shared])
        scope[moved] = np.array(to, np.int64)[which.reshape(-1)]
        rank = np.concatenate((rank, np.zeros(len(paths) - len(rank), np.int64)))
        order = sorted(range(len(paths)), key=paths.__getitem__)
        rank[order] = np.arange(len(paths))


def _sink(t: Table, own: NDArray[np.int64], scope: NDArray[np.int64], paths: list[Path]) -> None:
    """Moves unnamed instructions into the one scope that uses them, in place.

    The pieces of a combined collective go to the layers they belong to, instead of standing
    between the collective and those.
    """
    rows, values = t.operands.rows, t.operands.values
    for _ in range(4):  # element → bitcast → convert
        low, high = np.full(len(scope), len(paths)), np.full(len(scope), -1)
        np.minimum.at(low, values, scope[rows])
        np.maximum.at(high, values, scope[rows])
        movable = (own < 0) & (scope >= 0) & (low == high) & (low >= 0)
        at = np.flatnonzero(movable & (scope != low))
        pairs = list(zip(scope[at].tolist(), low[at].tolist(), strict=True))
        deeper = {(a, b) for a, b in set(pairs) if paths[b][: len(paths[a])] == paths[a]}
        at = at[[pair in deeper for pair in pairs]] if deeper else at[:0]
        if not len(at):
            break
        scope[at] = low[at]


def _combines(opcode: str) -> bool:
    return opcode.removesuffix("-start") in ("all-reduce", "all-gather", "reduce-scatter")


def _inherit(t: Table, own: NDArray[np.int64], top: int) -> NDArray[np.int64]:
    scope = _from_callees(t, own)
    n = len(scope)
    if n == 0:
        return scope
    here = np.arange(n)
    rows, values = t.operands.rows, t.operands.values
    # Constants and parameters say nothing about their users, nor does a root tuple about its
    # operands; edges against the printed order would make the chains below loop.
    silent = t.silent
    tuples = t.by_opcode(lambda o: o == "tuple", bool)
    forward = rows > values
    up = forward & ~silent[values]
    down = forward & ~tuples[rows]
    operand, user = np.full(n, -1), np.full(n, n)
    np.maximum.at(operand, rows[up], values[up])
    np.minimum.at(user, values[down], rows[down])
    user[user == n] = -1
    for _ in range(64):
        unknown = scope < 0
        if not unknown.any():
            break
        above = scope[_follow(np.where(unknown & (operand >= 0), operand, here))]
        below = scope[_follow(np.where(unknown & (user >= 0), user, here))]
        good = (above >= 0) & ((above != top) | (below < 0))
        found = np.where(good, above, below)
        if not (found[unknown] >= 0).any():
            # The nearest neighbours know nothing; ask all of them.
            found = np.full(n, -1)
            np.maximum.at(found, rows, scope[values])
            np.maximum.at(found, values, scope[rows])
            if not (found[unknown] >= 0).any():
                break
        scope = np.where(unknown, found, scope)
    return scope


def _follow(pointer: NDArray[np.int64]) -> NDArray[np.int64]:
    """The end of each chain of pointers, by doubling."""
    while True:
        further = pointer[pointer]
        if np.array_equal(further, pointer):
            return pointer
        pointer = further


def _from_callees(t: Table, own: NDArray[np.int64]) -> NDArray[np.int64]:
    """Fusions, calls and loops without a name take the last known scope inside."""
    scope = own.copy()
    blind = np.flatnonzero((scope < 0) & (t.called.counts > 0))
    for _ in range(4):  # nested: async → fusion → fusion
        if not len(blind):
            break
        last = t.reduce_by_computation(
            np.maximum, np.where(scope >= 0, np.arange(len(scope)), -1), -1
        )
        inside = last[t.called.values[t.called.offsets[blind]]]
        scope[blind] = np.where(inside >= 0, scope[inside], -1)
        blind = blind[scope[blind] < 0]
    return scope
