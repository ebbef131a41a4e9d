"""Names for calls of one function that differ in what they are given.

    net.apply(policy, x)       q_network · params
    net.apply(reference, x)    q_network · target_params
    stack(p["encoder"], x)     stack · encoder
    stack(p["decoder"], y)     stack · decoder

The arguments of the program, or their parts, that only one of the calls uses tell it from the
others; where none does, the line of the call.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ...hlo import opcodes
from ..base.lines.op_name import BACKWARD, FORWARD, LAYER, REMAT
from ..base.table import Table
from .call_tree import AT_LINE, unnumbered
from .group_nodes import Node, within

# Moves of an argument, such as a cast, between it and the call that uses it.
MOST_MOVES = 4
# An argument used less often than this, compared with the one used most, was merged in by XLA.
OFTEN = 0.25
# A call of more arguments of its own than this is known by its line.
MOST_NAMES = 2

# The share of a computation's products that a call has, to have a name of its own.
HEAVY = 0.05
MIN_CALLS = 2
# Arguments of its own that such a call uses, at least: weights, not an input.
FEWEST_WEIGHTS = 4

# "state.teacher_params" of state.teacher_params['block_0']['kernel'].
_ROOT = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_NUMBER = re.compile(r" \d+\Z")
_KEY = re.compile(r"\[?'?\.?(\w+)'?\]?")
# An argument's name and so many of its keys are compared, less one.
DEEPEST = 3
_MOVES = opcodes.PART_OF_ONE | {"fusion"}


def tell_twins_apart(top: Node, t: Table, product: NDArray[np.bool_]) -> None:
    """Gives calls of one name anywhere in a computation names that differ, in place.

    So it is where each has weights of its own: a model under ``grad`` and the frozen one beside it.
    """
    size = {id(node): int(product[node.members].sum()) for node in within(top)}
    for node in reversed(list(within(top))):
        size[id(node)] += sum(size[id(child)] for child in node.children)
    same: dict[str, list[Node]] = defaultdict(list)
    left = [top]
    while left:
        node = left.pop()
        name = node.path[-1] if node.path else ""
        if BACKWARD in node.path or size[id(node)] < HEAVY * size[id(top)]:
            continue
        left.extend(node.children)
        if name and name not in (FORWARD, REMAT) and not name.endswith(LAYER):
            last = node.label.rpartition("/")[2]
            around = {id(x) for call in same[last] for x in within(call)}
            if id(node) not in around:
                same[last].append(node)
    named: set[int] = set()
    for _, calls in sorted(same.items(), key=lambda s: min(len(n.path) for n in s[1])):
        if len(calls) < MIN_CALLS or any(id(call) in named for call in calls):
            continue
        given = [_to_depth(_arguments(call, t), 1) for call in calls]
        shared = set.union(*(set(a) & set(b) for a, b in combinations(given, 2)))
        own = [Counter({k: n for k, n in mine.items() if k not in shared}) for mine in given]
        if not all(mine.total() >= FEWEST_WEIGHTS for mine in own):
            continue
        if not all(_are_most(mine, shared) for mine in given):
            continue
        words = [mine.most_common(1)[0][0] for mine in own]
        for call, word in zip(calls, words, strict=True):
            named.update(id(x) for x in within(call))
            call.given = word.rpartition(".")[2]
            call.label = f"{call.label} · {call.given}"


def tell_apart(top: Node, t: Table, product: NDArray[np.bool_]) -> None:
    """Gives calls of one name in one group names that differ, in place.

    Calls of one line have numbers already; those of several lines may have the same ones.
    """
    for node in within(top):
        same: dict[str, list[Node]] = defaultdict(list)
        numbered: dict[str, list[Node]] = defaultdict(list)
        paths = (child.path for child in node.children if child.path)
        calls_of = Counter(unnumbered(p[-1]) for p in paths if p[-1].endswith(LAYER))
        for child in node.children:
            name = child.path[-1] if child.path else ""
            if name.endswith(LAYER):
                numbered[_NUMBER.sub("", child.label)].append(child)
            elif calls_of[name] > 1 and not any(product[n.members].any() for n in within(child)):
                # what is of several of these calls, or nobody knows of which
                child.label = f"{child.label} · rest of {calls_of[name]}"
            elif AT_LINE in name:
                same[child.label].append(child)
        for label, calls in numbered.items():
            if len({call.label for call in calls}) < len(calls):
                _name(label, calls, t)
        for label, calls in same.items():
            if len(calls) > 1:
                _name(label, calls, t)


def _name(label: str, calls: list[Node], t: Table) -> None:
    given = [_arguments(call, t) for call in calls]
    words = [""] * len(calls)
    for depth in range(1, DEEPEST + 1):
        to_depth = [_to_depth(mine, depth) for mine in given]
        shared = set.intersection(*(set(mine) for mine in to_depth))
        own = [sorted(m.keys() - shared) if _are_most(m, shared) else [] for m in to_depth]
        parts = [[name for name in names if "\0" in name] for names in own]  # no input beside them
        own = [of or names for of, names in zip(parts, own, strict=True)]
        ends = [list(dict.fromkeys(_last_part(name) for name in names)) for names in own]
        telling = [len(e) <= MOST_NAMES and not any(w.isdigit() for w in e) for e in ends]
        words = [" ".join(e) if tells else "" for e, tells in zip(ends, telling, strict=True)]
        if any(words):
            break
    places = [call.path[-1].removesuffix(LAYER).partition(AT_LINE)[2] for call in calls]
    lines = [place.partition(":")[0] for place in places]
    both = list(zip(words, lines, strict=True))
    for call, word, line, place in zip(calls, words, lines, places, strict=True):
        if word and words.count(word) == 1:
            call.given = word
            call.label = f"{label} · {word}"
        elif lines.count(line) == 1:
            call.label = f"{label}, line {line}"
        elif word and both.count((word, line)) == 1:
            call.label = f"{label} · {word}, line {line}"
        elif places.count(place) == 1:  # in one line, as their columns say
            call.label = f"{label}, line {place}"


def _last_part(name: str) -> str:
    return re.split(r"[.\0]", name)[-1]


def _arguments(call: Node, t: Table) -> Counter[tuple[str, ...]]:
    """How often a call uses each of the program's arguments, directly or moved.

    An argument is its name and its keys, as many as may tell: ``params``, ``encoder``, ``0``.
    """
    out: Counter[tuple[str, ...]] = Counter()
    offsets, values = t.operands.offsets, t.operands.values
    for node in within(call):
        for row in node.members.tolist():
            for value in values[offsets[row] : offsets[row + 1]].tolist():
                at = value
                for _ in range(MOST_MOVES):
                    alone = offsets[at + 1] - offsets[at] == 1
                    if t.opcodes[t.opcode[at]] not in _MOVES or not alone:
                        break
                    at = int(values[offsets[at]])
                if t.opcodes[t.opcode[at]] == "parameter":
                    name = t.op_names[t.op_name[at]]
                    found = _ROOT.match(name)
                    if found:
                        keys = _KEY.findall(name[found.end() :])[: DEEPEST - 1]
                        out[found[0], *keys] += 1
    return out


def _to_depth(given: Counter[tuple[str, ...]], depth: int) -> Counter[str]:
    """The same by so many of their keys; without those that XLA merged in."""
    out: Counter[str] = Counter()
    for path, count in given.items():
        out["\0".join(path[:depth])] += count
    most = max(out.values(), default=0)
    return Counter({name: count for name, count in out.items() if count >= OFTEN * most})


def _are_most(given: Counter[str], shared: set[str]) -> bool:
    """Whether a call mostly uses arguments of its own: other weights, not another input."""
    return 2 * sum(n for name, n in given.items() if name not in shared) > given.total()
