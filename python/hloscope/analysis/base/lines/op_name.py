"""Parses ``op_name``: a stack of transformations and scopes, flattened to text by JAX.

    jit(step)/transpose(jvp(layer_0))/mlp/dot_general   → backward, layer_0, mlp
    jit(step)/jit(main)/jvp(GPT)/h/3/3/attn/bld,bmd->blm/mul → forward, GPT, h/3, attn
    jit(step)/(a/mul:a/b/add)                           → a
    broadcast.29                                        → None: XLA's own, names no scope
    jit(step)/mul                                       → () known to be at the top

The last component is the primitive and is dropped.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

Path = tuple[str, ...]
FORWARD, BACKWARD = "forward", "backward"
REMAT = "rematted_computation"
LAYER = "\x1f"  # ends the name of a layer found by repetition: "block 3"
CALLED = "()"  # ends the name of a jitted function, unlike that of a scope the user named

# Transformations and calls that show how JAX got there, not where in the user's code.
_UNWRAP = frozenset(
    "jit pjit vmap pmap xmap shard_map custom_jvp custom_vjp xla_call parallelize "
    "linearize named core_call jvp transpose".split()
)
_DROP_WRAPPED = frozenset(["remat", "checkpoint", "remat2"])
_FUNCTION = frozenset(["jit", "pjit", "pmap", "xmap", "parallelize", "xla_call"])
_NOISE = frozenset(
    "main closed_call core_call checkpoint remat remat2 custom_jvp_call custom_vjp_call "
    "custom_jvp_call_jaxpr custom_vjp_call_jaxpr custom_lin pjit jit vmap shard_map xla_call "
    "named_call custom_vjp_call_custom_transpose ~".split()
)
_WRAPPED = re.compile(r"([A-Za-z_][\w.]*)\((.*)\)$", re.S)
_NUMBERED = re.compile(r"\d(\(\))?$")  # layer_3, h/3, Block_3
_EINSUM = re.compile(r"[A-Za-z.,]*->[A-Za-z.]*$")
LOOPS = frozenset(["while", "body", "cond", "scan", "body_fun", "cond_fun"])
_BRANCH = re.compile(r"branch_\d+_fun$")


def is_operation(name: str) -> bool:
    """Whether the last component of an ``op_name`` is an operation, not a call or a loop."""
    return bool(name) and name not in _NOISE and name not in LOOPS


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


def common(paths: list[Path]) -> Path:
    """The components that all paths begin with."""
    first, last = min(paths), max(paths)
    n = 0
    while n < min(len(first), len(last)) and first[n] == last[n]:
        n += 1
    return first[:n]


def common_to_most(paths: Counter[Path], share: float) -> Path:
    """The innermost path that ``share`` of all begin with; merged ops may be in another."""
    total = paths.total()
    found: Path = ()
    while True:
        deeper: Counter[Path] = Counter()
        for path, count in paths.items():
            if len(path) > len(found) and path[: len(found)] == found:
                deeper[path[: len(found) + 1]] += count
        (first, count), *_ = deeper.most_common(1) or [((), 0)]
        if not first or count < share * total:
            return found
        found = first


@lru_cache(maxsize=1 << 17)
def parse_op_name(op_name: str) -> Path | None:
    """The scope of an op_name, outermost first; None when it names no scope (no "/")."""
    if "/" not in op_name:
        return None
    head, _, primitive = op_name.rpartition("/")
    if primitive.isidentifier() and ";" not in head:  # thousands of names share few scopes
        return _scope_of(head)
    if ";" in op_name:
        merged = [p for p in split_components(op_name, ";") if "/" in p]
        if len(merged) > 1:
            known = [p for p in map(parse_op_name, merged) if p is not None]
            return common(known) or known[0] if known else None
    parts = split_components(op_name)
    last = parts.pop()
    if last.startswith("(") and last.endswith(")") and ":" in last:
        prefix = "/".join(parts)
        merged = split_components(last[1:-1], ":")
        return common([parse_op_name(f"{prefix}/{m}") or () for m in merged])
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
            if all(p in LOOPS for p in out):  # a loop over batches is not a scope
                out.clear()
            out.append(phase)
        function = position == 0 and bool(transforms & _FUNCTION) and not phase
        name = name.partition("[")[0].strip() if "[" in name else name
        if not name or function or name in _NOISE or _EINSUM.match(name):
            continue
        if out and name.isdecimal() and out[-1] not in (FORWARD, BACKWARD):
            stem, _, number = out[-1].rpartition("/")
            if number == name and stem:  # flax repeats the name under remat: layer/5/5
                continue
            out[-1] = f"{out[-1]}/{name}"
        elif out and out[-1] == name + ".apply":  # flax, for a module applied by hand
            out[-1] = name
        elif not out or out[-1] != name:
            called = bool(transforms & _FUNCTION)
            out.append(name + CALLED if called else name)
    return tuple(_remat_inside(out))


def _remat_inside(path: list[str]) -> list[str]:
    """Puts recomputation inside the layer it recomputes, not around all of them.

    One group of all recomputation would form a cycle with the layers' gradients.
    """
    if REMAT in path[:-1]:
        at = path.index(REMAT)
        if _NUMBERED.search(path[at + 1]):
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
    while at < len(path) and (path[at] in LOOPS or _BRANCH.match(path[at])):
        at += 1
    return path[at:]


def without_loops(path: Path) -> Path:
    """A path without jax's words for a loop (``while/body``), which are not scopes."""
    out: list[str] = []
    inside = False
    for part in path:
        inside = part == "while" or (inside and part in LOOPS)
        if not inside:
            out.append(part)
    return tuple(out) if len(out) < len(path) else path


_RERUN = "rematted_computation"


def is_autodiff(op_name: str) -> bool:
    """Whether the op belongs to a derivative: transposed, and not a rerun of the forward pass."""
    return all("transpose(" in n and _RERUN not in n for n in merged_names(op_name))


def merged_names(op_name: str) -> list[str]:
    """The names in a combined op's name: ``f/(a/psum:b/psum)``, ``f/a;f/b``."""
    if ";" in op_name:
        return [n for part in split_components(op_name, ";") for n in merged_names(part)]
    if not op_name.endswith(")") or ":" not in op_name:
        return [op_name]
    parts = split_components(op_name)
    last = parts[-1]
    if not last.startswith("(") or ":" not in last:
        return [op_name]
    prefix = "/".join(parts[:-1])
    return [f"{prefix}/{m}" if prefix else m for m in split_components(last[1:-1], ":")]


# Operations of linear algebra that XLA makes many products of, which are no layers.
_MANY_PRODUCTS = re.compile(
    r"(?:^|[/(])(?:fft|cholesky|triangular_solve|lu|qr|geqrf|householder_product|eigh|svd)\)*$"
)


def is_expanded(op_name: str) -> bool:
    """Whether an instruction is a piece of one operation, such as of a Fourier transform."""
    return _MANY_PRODUCTS.search(op_name) is not None
