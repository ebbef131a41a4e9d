"""Layers that a program's arguments state, and whether its groups are those layers.

``params['layers'][3]['wq']`` is a weight of layer 3 of ``params['layers'][…]``; hloscope's
grouping is not consulted. A stack is a family of arguments with numbers 0 … n-1 and equal
shapes. Where weights are stacked, the axis that a loop slices is the number of layers.

Weights are followed through whatever only moves them (casts, copies, gathers, tuples, loops,
fusions) to the products that use them: a product with weights of layer 3 alone *belongs* to
layer 3. Right is a stack whose layers are one fold of n groups, forward and, where the program is
trained, backward, with the products of layer k in the k-th group of their own pass and in no other;
or, of layers of two kinds, a fold of each; of a loop, one that runs n times with them in it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

# Of the products of a stack, this share must lie in the group of their own layer.
IN_PLACE = 0.9
# Groups at most this deep below ENTRY or a loop; forward, backward and what is nearly all of the
# group around it do not count as a level.
DEEPEST = 5
ALL = 0.9

_PRODUCTS = re.compile(r"dot|convolution|ragged-dot")
_KERNELS = re.compile(r"gemm|matmul|conv|dot", re.I)
_TWICE = re.compile(r"jvp\(.*transpose\(")
_MOVES = frozenset(
    """bitcast bitcast-convert reshape transpose copy convert slice all-gather all-gather-start
    all-gather-done copy-start copy-done slice-start slice-done concatenate reduce-precision
    async-start async-update async-done pad collective-permute all-to-all""".split()
)


@dataclass(eq=False)
class Stack:
    name: str
    count: int
    most: int = 0  # including those of other shapes: a stage's first block changes the size
    # product row → layer (-1: of a loop), forward and backward
    forward: dict[int, int] = field(default_factory=dict)
    backward: dict[int, int] = field(default_factory=dict)
    loop: bool = False
    others: frozenset[int] = frozenset()  # products with arguments that are of no layer


def stacks(module: Any) -> list[Stack]:
    """Stacks that the arguments of ENTRY state and that products use."""
    if module.entry is None:
        return []
    families, most = _families(module)
    walk = _Walk(module)
    for i in module.entry.instructions:
        if i.opcode == "parameter" and len(i.shape.dimensions) > 1:
            walk.start(i, families.get(i.op_name, (i.op_name, -1)))
    found: dict[tuple[str, int], Stack] = {}
    named = any("jvp(" in module.instructions[row].op_name for row in walk.products)
    sizes = {family: n for family, n in Counter(f for f, _ in set(families.values())).items()}
    for row, tags in walk.products.items():
        numbered = {t for t in tags if t[1] >= 0}
        sliced = {n for t in tags if t[1] < 0 and (n := walk.sliced.get((row, t[0])))}
        if len(numbered) == 1 and not sliced:
            family, k = next(iter(numbered))
            stack = found.setdefault((family, 0), Stack(family, sizes[family], most[family]))
        elif len(sliced) == 1 and not numbered:
            k, n = -1, next(iter(sliced))
            stack = found.setdefault(("loop", n), Stack(f"loop ×{n}", n, loop=True))
        else:
            continue
        name = module.instructions[row].op_name
        if "rematted_computation" in name or "remat" in module.instructions[row].name:
            continue
        if named and not name:  # forward or backward is unknown
            continue
        (stack.backward if "transpose(" in name else stack.forward)[row] = k
    others = frozenset(r for r, tags in walk.products.items() if all(k < 0 for _, k in tags))
    for stack in found.values():
        stack.others = frozenset() if stack.loop else others
    return [s for s in found.values() if s.forward and (s.loop or s.count > 1)]


def _families(module: Any) -> tuple[dict[str, tuple[str, int]], dict[str, int]]:
    """Argument path → (family, layer): the outermost number with equal shapes for all.

    And how many layers each family has, including those of other shapes.
    """
    most: dict[str, int] = {}
    shapes = {
        i.op_name: i.shape.dense_text
        for i in module.entry.instructions
        if i.opcode == "parameter" and len(i.shape.dimensions) > 1
    }
    options: dict[str, dict[int, Any]] = defaultdict(lambda: defaultdict(list))
    for path, shape in shapes.items():
        for m in re.finditer(r"\d+", path):
            rest = path[m.end() :]
            family = f"{path[: m.start()]}#{rest[: rest.find(']') + 1]}"
            options[family][int(m.group())].append((rest, shape))
    out: dict[str, tuple[str, int]] = {}
    for family in sorted(options, key=len):
        layers = options[family]
        signature = {k: tuple(sorted(w)) for k, w in layers.items()}
        common, alike = Counter(signature.values()).most_common(1)[0]
        mine = sorted(k for k, w in signature.items() if w == common)  # a head is not a layer
        if alike < max(2, 0.6 * len(layers)) or mine[-1] - mine[0] + 1 != len(mine):
            continue
        if alike == 2 and len(common) < 3:
            continue
        most[family] = len(layers)
        head, _, tail = family.partition("#")
        for path in shapes:
            m = re.match(re.escape(head) + r"(\d+)" + re.escape(tail), path)
            if m is not None and path not in out and int(m.group(1)) in mine:
                out[path] = (family, int(m.group(1)) - mine[0])
    return out, most


class _Walk:
    """Follows arguments through what only moves them; ``products``: row → tags of its weights."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.products: dict[int, set[tuple[str, int]]] = defaultdict(set)
        self.sliced: dict[tuple[int, str], int] = {}
        self.callers: dict[int, list[Any]] = defaultdict(list)
        for i in module.instructions:
            for c in i.called_computations:
                self.callers[c.index].append(i)

    def start(self, argument: Any, tag: tuple[str, int]) -> None:
        # (instruction, element of its tuple or -1, axis that a loop sliced or 0)
        stack, seen = [(argument, -1, 0)], set()
        while stack:
            at = stack.pop()
            if (at[0].index, at[1]) in seen or len(seen) > 4000:
                continue
            seen.add((at[0].index, at[1]))
            stack.extend(self._next(*at, tag))

    def _next(self, i: Any, element: int, n: int, tag: tuple[str, int]) -> Any:
        if i.is_root:
            for caller in self.callers[i.computation.index]:
                if caller.opcode in ("fusion", "call", "async-start"):
                    yield caller, element, n
        for user in i.users:
            yield from self._use(i, user, element, n, tag)

    def _use(self, i: Any, user: Any, element: int, n: int, tag: tuple[str, int]) -> Any:
        at = [k for k, o in enumerate(user.operands) if o is i]
        opcode = user.opcode
        if opcode == "get-tuple-element":
            if user.tuple_index == element:
                yield user, -1, n
        elif opcode == "tuple":
            for k in at:
                yield user, k, n
        elif opcode == "while":
            yield user, element, n
            for c in user.called_computations:
                if c.instructions and c.name in (user.attribute("body") or ""):
                    yield from ((p, element, n) for p in c.instructions if p.opcode == "parameter")
        elif opcode in ("optimization-barrier", "opt-barrier"):
            yield user, element, n
        elif opcode in ("fusion", "call"):
            for c in user.called_computations[:1]:
                for p in c.instructions:
                    if p.opcode == "parameter" and p.parameter_number in at:
                        yield p, element, n
        elif element >= 0 and not opcode.endswith("-done"):
            return
        elif _PRODUCTS.fullmatch(opcode) or (
            opcode == "custom-call" and _KERNELS.search(user.custom_call_target or "")
        ):
            self.products[user.index].add(tag)
            if n:
                self.sliced[user.index, tag[0]] = n
        elif opcode == "dynamic-slice" and at == [0]:
            cut = [a for a, b in zip(i.shape.dimensions, user.shape.dimensions, strict=True)
                   if a != b and b == 1]  # fmt: skip
            yield user, -1, cut[0] if len(cut) == 1 else n
        elif opcode in _MOVES or (opcode == "custom-call" and user.shape.is_array):
            yield user, -1, n


def _fused_with_others(
    module: Any, products: dict[int, int], others: frozenset[int] = frozenset()
) -> set[int]:
    """Products of several layers that are one instruction in the computation they run in.

    Or of one layer and of ``others``, which are around the layers: the gradient of the first
    layer's input and that of the weights that made this input.
    """
    owner = {c.index: i for i in module.instructions if i.opcode == "fusion"
             for c in i.called_computations}  # fmt: skip
    of: dict[int, set[int]] = defaultdict(set)
    outermost = {}
    for row in (*products, *others):
        at = module.instructions[row]
        while at.computation.index in owner:
            at = owner[at.computation.index]
        outermost[row] = at.index
        of[at.index].add(products.get(row, -1))
    return {row for row in products if len(of[outermost[row]]) > 1}


def _moved_out(module: Any, products: dict[int, int]) -> set[int]:
    """Products that the compiler took out of the loop that most of their layers are in.

    What is the same in every iteration is computed once, before the loop, such as the keys of a
    prompt that each step of a sampler attends to. No box holds both it and what is in the loop.
    """
    loop = {}
    callers = {c.index: i for i in reversed(module.instructions) for c in i.called_computations}
    for row in products:
        at = callers.get(module.instructions[row].computation.index)
        while at is not None and at.opcode != "while":
            at = callers.get(at.computation.index)
        loop[row] = -1 if at is None else at.index
    most = Counter(loop.values()).most_common(1)[0][0] if loop else -1
    return {row for row, of in loop.items() if most >= 0 and of < 0}


def judge(module: Any, stack: Stack, tree: Any, folds: Any) -> str:
    """'' where the groups are the layers; else what is wrong, in a few words."""
    sides = [("forward", stack.forward)]
    if stack.backward:
        sides.append(("backward", stack.backward))
    check = _loop if stack.loop else _fold
    for side, all_of_them in sides:
        # of no single layer: nothing to judge
        fused = _fused_with_others(module, all_of_them, stack.others)
        moved = _moved_out(module, all_of_them)
        products = {row: k for row, k in all_of_them.items() if row not in fused | moved}
        wrong = check(module, stack, products, tree, folds, side)
        if wrong:
            return f"{side}: {wrong}"
    return ""


def _above(tree: Any, group: int) -> list[int]:
    out = []
    while group >= 0:
        out.append(group)
        group = int(tree.parent[group])
    return out


def _loop(
    module: Any, stack: Stack, products: dict[int, int], tree: Any, folds: Any, side: str
) -> str:
    from hloscope.analysis.base.loops.trips import trip_count

    del folds, side
    inside = 0
    for row in products:
        for g in _above(tree, int(tree.group[row])):
            owner = int(tree.owner[g])
            if owner >= 0 and module.instructions[owner].opcode == "while":
                trips = trip_count(module.instructions[owner])
                if trips is not None and trips in (stack.count, stack.count - 1):
                    inside += 1
                    break
    if inside < IN_PLACE * len(products):
        return f"{inside} of {len(products)} products in a loop ×{stack.count}"
    return ""


def _fold(
    module: Any, stack: Stack, products: dict[int, int], tree: Any, folds: Any, side: str
) -> str:
    layers = set(products.values())
    if len(layers) < 0.8 * stack.count:  # merged into others by the compiler: nothing to judge
        return ""
    held: dict[int, dict[int, int]] = defaultdict(dict)  # fold → product → member
    other = {"forward": "backward", "backward": "forward"}[side]
    for row in products:
        above = _above(tree, int(tree.group[row]))
        passes = {tree.label[g].partition(" · ")[0] for g in above} & {side, other}
        # In the right layer, but in the other pass's. A gradient of a gradient has more than two.
        if passes == {other} and not _TWICE.search(module.instructions[row].op_name):
            continue
        for g in above:
            if folds.of_group[g] >= 0:
                held[int(folds.of_group[g])][row] = g
    best, covered = "", 0
    for f, members in sorted(held.items(), key=lambda x: -len(x[1])):
        count = len(folds.folds[f].members)
        of_layer: dict[int, Counter[int]] = defaultdict(Counter)
        for row, member in members.items():
            of_layer[products[row]][member] += 1
        home = {k: c.most_common(1)[0][0] for k, c in of_layer.items()}
        right = sum(members.get(row) == home.get(k, -1) for row, k in products.items())
        # the first layer's input needs no gradient
        if not len(layers) <= count <= max(stack.count, stack.most):
            best = best or f"a fold of {count}"
        elif len(set(home.values())) < len(home):
            best = best or "two layers in one group"
        elif _depth(module, tree, folds.folds[f].members[0]) > DEEPEST:
            best = best or "too deep"
        else:
            covered += right  # the stack may run several times: one fold each
            if covered >= IN_PLACE * len(products):
                return ""
            best = f"{covered} of {len(products)} products in their layer"
    if _boxes_of_their_own(products, tree, folds) <= max(3, stack.count // 2):
        return ""  # layers of two kinds are folds of each kind
    return best or "no fold"


def _boxes_of_their_own(products: dict[int, int], tree: Any, folds: Any) -> float:
    """How many boxes show the layers, where each has a group of its own; else infinity.

    Folds are of consecutive, equal layers: a dense one stands before those of experts.
    """
    of_group: dict[int, Counter[int]] = defaultdict(Counter)
    for row, k in products.items():
        for g in _above(tree, int(tree.group[row])):
            of_group[g][k] += 1
    size = Counter(products.values())
    homes: dict[int, list[int]] = defaultdict(list)
    for g, inside in of_group.items():
        (k, most), *_ = inside.most_common(1)
        if most >= IN_PLACE * size[k] and len(inside) == 1:
            homes[k].append(g)
    if len(homes) < len(size):
        return float("inf")
    outermost = [min(of) for of in homes.values()]  # parents come before children
    return len({int(folds.of_group[g]) if folds.of_group[g] >= 0 else -1 - g for g in outermost})


def judge_counts(
    module: Any, counts: tuple[int | tuple[int, ...], ...], tree: Any, folds: Any
) -> list[str]:
    """Which counts stated by hand are missing, for programs whose arguments state none.

    Each is a fold of that many groups with a product in every one, or a loop that runs that
    often; any one count of a tuple is right.
    """
    from hloscope.analysis.base.labels.families import ID, families
    from hloscope.analysis.base.loops.trips import trip_count

    holds = [False] * len(tree.parent)
    family = families(module)
    for i in module.instructions:
        if family[i.index] in (ID["matmul"], ID["convolution"]):
            for g in _above(tree, int(tree.group[i.index])):
                holds[g] = True
    found = Counter(len(f.members) for f in folds.folds if all(holds[g] for g in f.members))
    found.update(trip_count(i) for i in module.instructions if i.opcode == "while")
    asked = Counter(n for n in counts if isinstance(n, int))
    wrong = [f"{found[n]} of {want} times {n}" for n, want in asked.items() if found[n] < want]
    either = [n for n in counts if not isinstance(n, int)]
    return wrong + [f"none of {n}" for n in either if not any(found[k] for k in n)]


def _depth(module: Any, tree: Any, group: int) -> int:
    """Levels below ENTRY or a loop in which there is something to choose."""
    from hloscope.analysis.grouping.groups import KINDS
    from hloscope.analysis.grouping.worth import worth

    share, out = worth(module, tree), 0
    above = _above(tree, group)
    for g, parent in pairwise(above):
        if KINDS[tree.kind[g]] != "scope":
            break
        out += tree.label[g] not in ("forward", "backward") and share[g] < ALL * share[parent]
    return out
