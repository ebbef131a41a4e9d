"""What one call of a jitted function looked like to jax, and what differs between two calls."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax

from ..compat import jax_api as _compat

_MAX_SAID = 4
_UNSET = object()
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
# jax's name → what a user passes to jax.jit
_OPTIONS = {
    "in_shardings_leaves": "in_shardings", "out_shardings_leaves": "out_shardings",
    "in_layouts_leaves": "the layouts of in_shardings",
    "out_layouts_leaves": "the layouts of out_shardings", "keep_unused": "keep_unused",
    "inline": "inline", "compiler_options_kvs": "compiler_options", "backend": "backend",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Leaf:
    """One array among the arguments."""

    shape: tuple[int, ...]
    dtype: str
    weak: bool
    sharding: str
    scalar: str  # the Python type of a plain number, "" for an array
    devices: tuple[int, ...] = ()  # in the order of the mesh, () for what has no placement
    memory: str = ""

    @property
    def text(self) -> str:
        dims = ",".join(map(str, self.shape))
        return f"{self.dtype}[{dims}]"


@dataclass(frozen=True, eq=False)
class SeenCall:
    """All that a compiled function is cached by, as far as it is visible from outside."""

    function: int  # identity of the function object
    leaves: dict[str, Leaf]
    static: dict[str, Any]
    donated: tuple[Any, ...]
    options: dict[str, str]
    config: dict[str, Any]
    mesh: str
    tree: str  # containers of the arguments, those without arrays included
    keywords: frozenset[str]
    devices: tuple[int, ...] = ()  # of the mesh, in its order
    nones: frozenset[str] = frozenset()  # arguments, and parts of them, that were None
    again: tuple[Any, tuple[Any, ...], dict[str, Any]] | None = field(default=None, repr=False)


def see(fn: Callable[..., Any], info: Any, args: Any, kwargs: Any) -> SeenCall:
    """Records a call; keeps shapes, never arrays."""
    static_names = set(_names(info, "static_argnames"))
    names = _positional(fn, len(args))
    numbers = {n + len(args) if n < 0 else n for n in _names(info, "static_argnums")}
    numbers &= set(range(len(args)))  # the others came by keyword
    static = {names[n]: args[n] for n in sorted(numbers)}
    static |= {k: v for k, v in kwargs.items() if k in static_names}
    dynamic = {names[n]: a for n, a in enumerate(args) if n not in numbers}
    dynamic |= {k: v for k, v in kwargs.items() if k not in static_names}
    leaves: dict[str, Leaf] = {}
    nones = set()
    flat = jax.tree_util.tree_flatten_with_path(dynamic, is_leaf=lambda value: value is None)[0]
    for path, leaf in flat:
        first, *rest = path
        name = f"{first.key}{jax.tree_util.keystr(tuple(rest))}"
        if leaf is None:
            nones.add(name)
        else:
            leaves[name] = _leaf(leaf)
    again: Any = None
    with contextlib.suppress(Exception):
        shapes = tuple(a if n in numbers else _shapes(a) for n, a in enumerate(args))
        kept = {k: v if k in static_names else _shapes(v) for k, v in kwargs.items()}
        again = (shapes, kept)
    donated = _names(info, "donate_argnums") or _names(info, "donate_argnames")
    options = {said: _option(getattr(info, name, "")) for name, said in _OPTIONS.items()}
    config = {}
    for key in getattr(jax.config, "values", {}):
        with contextlib.suppress(Exception):
            config[key] = getattr(jax.config, key)
    mesh = _compat.current_mesh()
    return SeenCall(
        id(fn),
        leaves,
        static,
        donated,
        options,
        config,
        "" if mesh is None else str(dict(mesh.shape)),
        str(jax.tree_util.tree_structure([dynamic[n] for n in sorted(dynamic)])),
        frozenset(kwargs),
        () if mesh is None else _order(mesh),
        frozenset(nones),
        None if again is None else (fn, *again),
    )


def _names(info: Any, name: str) -> tuple[Any, ...]:
    found = getattr(info, name, None)
    return tuple(found) if isinstance(found, tuple | list) else ()


def _positional(fn: Any, count: int) -> list[str]:
    found: list[str] = []
    with contextlib.suppress(TypeError, ValueError):
        for p in inspect.signature(fn).parameters.values():
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
                found.append(p.name)
    return [found[n] if n < len(found) else f"argument {n}" for n in range(count)]


def _leaf(value: Any) -> Leaf:
    try:
        aval: Any = jax.typeof(value)
        shape, dtype = tuple(aval.shape), str(aval.dtype)
        weak = bool(getattr(aval, "weak_type", False))
    except Exception:
        return Leaf((), type(value).__name__, False, "", "")
    scalar = type(value).__name__ if isinstance(value, bool | int | float | complex) else ""
    sharding, memory = "", ""
    devices: tuple[int, ...] = ()
    if getattr(value, "committed", getattr(value, "_committed", False)):
        with contextlib.suppress(Exception):
            sharding = _said(value.sharding)
            memory = value.sharding.memory_kind or ""
            devices = _order(getattr(value.sharding, "mesh", None))
    return Leaf(shape, dtype, weak, sharding, scalar, devices, memory)


def _option(value: Any) -> str:
    """An option of jax.jit as text; jax's own text of a sharding leaves its devices out."""
    parts = value if isinstance(value, tuple | list) else ()
    orders = dict.fromkeys(_order(getattr(p, "mesh", None)) for p in parts)
    on = [f" on devices {list(o)}" for o in orders if o]
    return f"{value}{''.join(on)}"


def _order(mesh: Any) -> tuple[int, ...]:
    """The devices of a mesh in its order; () for a mesh without devices."""
    with contextlib.suppress(Exception):
        return tuple(d.id for d in mesh.devices.flat)
    return ()


def _said(sharding: Any) -> str:
    if isinstance(sharding, jax.sharding.NamedSharding):
        mesh = ", ".join(f"{a}={n}" for a, n in sharding.mesh.shape.items())
        return f"P{_compat.entries(sharding.spec)} on {mesh}"
    devices = sorted(d.id for d in sharding.device_set)
    return f"device {devices[0]}" if len(devices) == 1 else f"devices {devices}"


def _shapes(tree: Any) -> Any:
    def one(leaf: Any) -> Any:
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            return leaf
        sharding = leaf.sharding if getattr(leaf, "_committed", False) else None
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree.map(one, tree)


def differences(before: SeenCall, now: SeenCall) -> list[tuple[str, str]]:
    """(kind, in words) of everything that changed; [] for two calls that look the same."""
    out: list[tuple[str, str]] = []
    gone = [n for n in before.leaves if n not in now.leaves]
    new = [n for n in now.leaves if n not in before.leaves]
    if gone or new:
        said = list(dict.fromkeys(_new(n, before.nones, now) for n in new))[:_MAX_SAID]
        said += list(dict.fromkeys(_gone(n, before, now.nones) for n in gone))[:_MAX_SAID]
        out.append(("structure", ", ".join(said)))
    elif before.keywords != now.keywords:
        given = sorted(now.keywords - before.keywords)
        taken = sorted(before.keywords - now.keywords)
        said = [f"{n} is given by keyword now, by position before" for n in given]
        said += [f"{n} is given by position now, by keyword before" for n in taken]
        out.append(("structure", ", ".join(said[:_MAX_SAID])))
    elif before.tree != now.tree:
        words = f"the arguments' containers were {_short(before.tree)}, are {_short(now.tree)}"
        out.append(("structure", words))
    for name, a in before.leaves.items():
        b = now.leaves.get(name)
        if b is None:
            continue
        if a.dtype != b.dtype:
            out.append(("dtype", f"{name} was {a.text}, is {b.text}"))
        elif a.shape != b.shape:
            out.append(("shape", f"{name} was {a.text}, is {b.text}"))
        if a.dtype == b.dtype and a.weak != b.weak:
            weak, strong = ("now weakly", "before") if b.weak else ("now", "before weakly")
            of = f" ({a.scalar or b.scalar} of Python)" if a.scalar or b.scalar else ""
            out.append(("weak type", f"{name} is {weak} typed, {strong} typed{of}"))
        if a.sharding != b.sharding:
            was, now_on = a.sharding or "any device", b.sharding or "any device"
            spec, on, _ = was.partition(" on ")
            same_spec = bool(on) and spec == now_on.partition(on)[0]
            kind = "mesh" if same_spec else "sharding"
            out.append((kind, f"{name} was on {was}, is on {now_on}"))
        elif a.devices != b.devices:
            out.append(("mesh", f"{name} is on {_reordered(a.devices, b.devices)}"))
        if a.memory != b.memory and a.sharding and b.sharding:
            out.append(("sharding", f"{name} was in {a.memory} memory, is in {b.memory} memory"))
    for name in {**before.static, **now.static}:
        a_value, b_value = before.static.get(name, _UNSET), now.static.get(name, _UNSET)
        if not _equal(a_value, b_value):
            out.append(("static value", _changed(name, a_value, b_value)))
    if before.donated != now.donated:
        said = [f"{_argument(d)} is donated now" for d in now.donated if d not in before.donated]
        said += [
            f"{_argument(d)} is no longer donated" for d in before.donated if d not in now.donated
        ]
        out.append(("donation", ", ".join(said[:_MAX_SAID]) or "other arguments are donated"))
    for key, value in before.options.items():
        if value != now.options.get(key, ""):
            words = _changed(key, value, now.options.get(key, ""), str)
            out.append(("jit options", f"{words} (an option of jax.jit)"))
    for key in before.config:
        if not _equal(before.config[key], now.config.get(key)):
            was, is_now = _short(before.config[key]), _short(now.config.get(key))
            out.append(("config", f"{key} was {was}, is {is_now}"))
    if before.mesh != now.mesh:
        out.append(("mesh", f"the mesh was {before.mesh or 'none'}, is {now.mesh or 'none'}"))
    elif before.devices != now.devices:
        out.append(("mesh", f"the program is on {_reordered(before.devices, now.devices)}"))
    if before.function != now.function:
        words = "it is a different function object: define it once, outside of what calls it"
        out.append(("function identity", words))
    return out


def _new(name: str, nones: frozenset[str], now: SeenCall) -> str:
    if name in nones:
        return f"{name} was None, is {now.leaves[name].text}"
    was = _part_of(name, nones)
    return f"{was} was None, holds arrays now" if was else f"{name} is new"


def _gone(name: str, before: SeenCall, nones: frozenset[str]) -> str:
    if name in nones:
        return f"{name} was {before.leaves[name].text}, is None"
    became = _part_of(name, nones)
    return f"{became} held arrays, is None" if became else f"{name} is gone"


def _part_of(name: str, nones: frozenset[str]) -> str:
    """The argument that was None if a part of it is an array in the other call."""
    return next((n for n in nones if name.startswith((f"{n}[", f"{n}."))), "")


def _argument(donated: Any) -> str:
    return f"argument {donated}" if isinstance(donated, int) else str(donated)


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, jax.Array) or isinstance(b, jax.Array):
        return a is b  # comparing them would compile
    try:
        return bool(a == b)
    except Exception:
        return a is b


def _reordered(before: tuple[int, ...], now: tuple[int, ...]) -> str:
    """How a mesh with the same axes changed."""
    if sorted(before) == sorted(now):
        order = f"{_short(list(before))} before, {_short(list(now))} now"
        return f"the same mesh with its devices in another order: {order}"
    return f"a mesh of the same axes over other devices: {_short(list(now))}"


def _changed(name: str, before: Any, now: Any, text: Callable[[Any], str] = repr) -> str:
    """What a value was and is; of long texts the part where they differ."""
    if before is _UNSET or now is _UNSET:
        return f"{name} was {_short(before)}, is {_short(now)}"
    was, is_now = (_ADDRESS.sub("", text(v)) for v in (before, now))
    if was == is_now:
        kind = type(now).__name__
        return f"{name} is another {kind} than before: the two are not equal"
    if was[:60] == is_now[:60]:
        same = next(k for k in range(60, len(was) + 1) if was[:k] != is_now[:k]) - 20
        return f"{name} was …{_cut(was[same:])}, is …{_cut(is_now[same:])}"
    return f"{name} was {_cut(was)}, is {_cut(is_now)}"


def _short(value: Any) -> str:
    return "not given" if value is _UNSET else _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:60] + "…"
