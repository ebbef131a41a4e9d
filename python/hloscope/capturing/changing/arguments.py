"""Arguments and results of a captured call, changed: shardings, donation, batch, types."""

from __future__ import annotations

import difflib
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ...hlo.changes import CannotChange, Changes, names_of, unknown_name
from .. import placing, topology
from ..compat import jax_api as _compat
from ..planning import sharded
from .call import GivenCall


def changed_call(call: GivenCall, changes: Changes) -> GivenCall:
    """The call with all changes that its arguments and options carry.

    Raises ``CannotChange``, and ``CaptureError`` for a spec that does not fit.
    """
    if "batch" in changes:
        call = _with_batch(call, int(changes["batch"]), changes.get("batch_axes"))
    if "sizes" in changes:
        call = _with_sizes(call, changes["sizes"])
    if not changes.get("x64", True):
        call = _retyped(call)
    before = mesh_of(call) if "mesh" in changes else None
    for name in ("mesh", "topology"):
        if name in changes:
            call = call.with_options(**{name: changes[name]})  # type: ignore[literal-required]
    if before is not None and call.options.get("topology") is None:
        call = call.with_options(mesh=_on_the_same_devices(before, changes["mesh"]))
    if "axis_types" in changes:
        call = _with_axis_types(call, changes["axis_types"])
    chosen = changes.get("compiler_options")
    if isinstance(chosen, Mapping):  # the name of a set is exchanged before
        own = call.options.get("compiler_options") or {}
        call = call.with_options(compiler_options={**own, **chosen})
    if "hardware" in changes:
        call = call.with_options(hardware=changes["hardware"])
    given = of_arguments(call, changes.get("constrain", {}))
    if given or changes.keys() & {"donate", "in_shardings", "out_shardings"}:
        call = _jitted_again(call, changes, given)
    return call


def of_arguments(call: GivenCall, wanted: Mapping[Any, Any]) -> dict[Any, Any]:
    """Those constraints that are of an argument by its name, and of no line or instruction."""
    known = sharded.leaves(call.fn, call.args, call.kwargs)
    names = {name for k in known for name in (k.path, k.name)}
    return {where: spec for where, spec in wanted.items() if where in names}


def _on_the_same_devices(before: Mesh, wanted: Any) -> Any:
    """The wanted axes over the devices of a mesh, which may be those of a topology."""
    if isinstance(wanted, str):
        wanted = placing.axes_of(wanted)
    if not isinstance(wanted, Mapping) or not all(isinstance(n, int) for n in wanted.values()):
        return wanted
    devices = list(before.devices.flat)
    if math.prod(wanted.values()) > len(devices):
        return wanted
    return topology.make_mesh(devices, dict(wanted), "this program", exact=False)


def mesh_of(call: GivenCall) -> Mesh | None:
    """The mesh that the call is compiled for; None if it names no mesh."""
    wanted, name = call.options.get("mesh"), call.options.get("topology")
    known = placing.known_meshes(call.fn, call.args, call.kwargs)
    if wanted is not None or name is not None:
        return placing.target_mesh(name, wanted, known)
    if known:
        return known[0]  # type: ignore[no-any-return]
    return call.mesh  # type: ignore[no-any-return]


def _with_axis_types(call: GivenCall, kind: str) -> GivenCall:
    kinds = {"auto": "Auto", "explicit": "Explicit"}
    if kind not in kinds:
        raise unknown_name(f'axis_types is "auto" or "explicit", not {kind!r}')
    mesh = mesh_of(call)
    if mesh is None:
        raise CannotChange('there is no mesh whose axes could be of a type; give mesh={"data": 8}')
    types = (getattr(jax.sharding.AxisType, kinds[kind]),) * len(mesh.axis_names)
    return call.with_options(mesh=Mesh(mesh.devices, mesh.axis_names, axis_types=types))


def _retyped(call: GivenCall) -> GivenCall:
    narrow = {"float64": "float32", "int64": "int32", "uint64": "uint32", "complex128": "complex64"}

    def one(leaf: Any) -> Any:
        dtype = narrow.get(str(getattr(leaf, "dtype", "")))
        return leaf if dtype is None else _like(leaf, dtype=np.dtype(dtype))

    args, kwargs = jax.tree.map(one, (call.args, dict(call.kwargs)))
    return replace(call, args=args, kwargs=kwargs, x64=False)


def _like(leaf: Any, **other: Any) -> Any:
    kept = {
        "shape": leaf.shape,
        "dtype": leaf.dtype,
        "sharding": getattr(leaf, "sharding", None),
        "weak_type": getattr(leaf, "weak_type", False),
    }
    return jax.ShapeDtypeStruct(**{**kept, **other})


def _with_batch(call: GivenCall, size: int, axes: Mapping[str, int] | None) -> GivenCall:
    if size < 1:
        raise CannotChange(f"the batch is {size}; it is at least 1")
    known = sharded.leaves(call.fn, call.args, call.kwargs)
    at = _given_axes(known, axes) if axes else _found_axes(call, known)

    def one(number: int, leaf: Any) -> Any:
        if number not in at:
            return leaf
        shape = list(leaf.shape)
        shape[at[number]] = size
        return _like(leaf, shape=tuple(shape))

    return _with_leaves(call, one)


def _with_sizes(call: GivenCall, wanted: Mapping[str | int, Any]) -> GivenCall:
    known = sharded.leaves(call.fn, call.args, call.kwargs)
    every = {int(k): n for k, n in wanted.items() if str(k).isdecimal()}
    shapes = {n: [every.get(d, d) for d in leaf.shape] for n, leaf in enumerate(known)}
    for size in every:
        if not any(size in leaf.shape for leaf in known):
            have = ", ".join(map(str, sorted({d for leaf in known for d in leaf.shape})))
            raise unknown_name(f"no dimension of the arguments is {size}; there are {have}")
    for name, value in wanted.items():
        if isinstance(value, Mapping):
            axes = {int(axis): int(size) for axis, size in value.items()}
            for axis, size in axes.items():
                for n in _given_axes(known, {str(name): axis}):
                    shapes[n][axis] = size
        elif not str(name).isdecimal():
            call = _with_number(call, str(name), value)
    if any(d < 1 for shape in shapes.values() for d in shape):
        raise CannotChange("a dimension is at least 1")
    return _with_leaves(call, lambda n, leaf: _like(leaf, shape=tuple(shapes[n])))


def _with_number(call: GivenCall, name: str, value: Any) -> GivenCall:
    """The call with another number that the function takes: microbatches, the turns of a loop."""
    plain = call.fn.__wrapped__ if call.is_jitted else call.fn
    own = plain.keywords if isinstance(plain, functools.partial) else {}
    names = placing.positional_names(call.fn, len(call.args))
    given = {**own, **dict(zip(names, call.args, strict=True)), **call.kwargs}
    numbers = {k: v for k, v in given.items() if isinstance(v, int) and not isinstance(v, bool)}
    if name not in numbers:
        have = ", ".join(numbers) or "none"
        raise unknown_name(
            f"no number that the function takes is called {name!r}; there are {have}. "
            f'A dimension is {{"{name}": {{0: {value!r}}}}}'
        )
    if name in call.kwargs:
        return replace(call, kwargs={**call.kwargs, name: value})
    if name in names:
        at = names.index(name)
        return replace(call, args=(*call.args[:at], value, *call.args[at + 1 :]))
    options = None
    if call.is_jitted:
        options = _compat.jit_options(call.fn) or _compat.jit_flags(call.fn) or {}
    made = functools.partial(plain, **{name: value})
    return replace(call, fn=made if options is None else jax.jit(made, **options))


def _with_leaves(call: GivenCall, change: Any) -> GivenCall:
    """The call with array n of its arguments changed by ``change(n, leaf)``."""
    flat, tree = jax.tree.flatten((call.args, dict(call.kwargs)))
    number = 0
    out = []
    for leaf in flat:
        if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
            leaf = change(number, leaf)
            number += 1
        out.append(leaf)
    args, kwargs = jax.tree.unflatten(tree, out)
    return replace(call, args=args, kwargs=kwargs)


def _given_axes(known: Sequence[Any], axes: Mapping[str, int]) -> dict[int, int]:
    out = {}
    for pattern, axis in axes.items():
        for n in matching(pattern, [k.path for k in known]):
            if not 0 <= axis < len(known[n].shape):
                raise CannotChange(f"{known[n].path} of shape {known[n].shape} has no axis {axis}")
            out[n] = int(axis)
    return out


def _found_axes(call: GivenCall, known: Sequence[Any]) -> dict[int, int]:
    """The first dimension of the arguments that are data: all of one size, and not returned new."""
    carried = {known[k].argument for k in sharded.carried(call.fn, call.args, call.kwargs).values()}
    sizes: dict[str, dict[int, int]] = {}
    for n, leaf in enumerate(known):
        if leaf.argument not in carried:
            head = leaf.path.partition("/")[0]
            sizes.setdefault(head, {})[n] = leaf.shape[0] if leaf.shape else -1
    alike = {h: s for h, s in sizes.items() if len(set(s.values())) == 1 and -1 not in s.values()}
    if len({n for s in alike.values() for n in s.values()}) > 1:  # it is what is sharded, then
        split = _sharded_first(call)
        alike = {h: s for h, s in alike.items() if s.keys() <= split}
    if len({n for s in alike.values() for n in s.values()}) != 1:
        heads = list(alike or sizes) or [leaf.path.partition("/")[0] for leaf in known]
        example = f'"{heads[-1]}": 0' if heads else ""
        raise CannotChange(
            "which dimensions are the batch cannot be told from the shapes; say it: "
            f"batch_axes={{{example}}}"
        )
    return {n: 0 for s in alike.values() for n in s}


def _sharded_first(call: GivenCall) -> set[int]:
    """The arrays of the arguments whose first dimension is sharded."""
    found: set[int] = set()

    def one(number: int, leaf: Any) -> Any:
        spec = getattr(getattr(leaf, "sharding", None), "spec", None)
        if spec and spec[0] is not None:
            found.add(number)
        return leaf

    _with_leaves(call, one)
    return found


def matching(pattern: str, paths: Sequence[str], names: Sequence[str] = ()) -> list[int]:
    """Positions of the paths, or of jax's names, that a pattern names; raises ``CannotChange``."""
    found = [n for n, name in enumerate(names) if name == pattern] or [
        n for n, p in enumerate(paths) if fnmatchcase(p, pattern) or p.startswith(pattern + "/")
    ]
    if not found:
        near = difflib.get_close_matches(pattern, paths, n=4, cutoff=0.4) or list(paths)[:6]
        raise unknown_name(f"nothing is called {pattern!r}; there are {', '.join(near)}")
    return found


def _jitted_again(call: GivenCall, changes: Changes, constrained: Mapping[str, Any]) -> GivenCall:
    """The function jitted with other shardings or donations, or constraints of what it is given."""
    options = dict(call.options)
    if call.is_jitted:
        given = _compat.jit_options(call.fn) or _compat.jit_flags(call.fn)
        if given is None:
            raise CannotChange(
                f"{type(call.fn).__name__} does not say how it was jitted; put the change into "
                "its own call"
            )
        plain = call.fn.__wrapped__
    else:
        plain, given = call.fn, {}
        if options.get("static_argnums") is not None:
            given["static_argnums"] = options["static_argnums"]
        if options.get("in_shardings") is not None:
            given["in_shardings"] = options["in_shardings"]
        options["in_shardings"] = options["static_argnums"] = None
    given = dict(given)
    if "donate" in changes:
        _donate(call, given, names_of(changes["donate"]))
    mesh = mesh_of(call)
    call = replace(call, options=options)
    if mesh is None and (constrained or changes.keys() & {"in_shardings", "out_shardings"}):
        raise CannotChange('there is no mesh to shard over; give mesh={"data": 8} too')
    if given.get("in_shardings") is not None and mesh is not None:
        given["in_shardings"] = placing.place_shardings(given["in_shardings"], mesh)
    if "in_shardings" in changes and mesh is not None:
        call = _with_in_shardings(call, given, changes["in_shardings"], mesh)
    if "out_shardings" in changes and mesh is not None:
        given["out_shardings"] = _out_shardings(call, given, changes["out_shardings"], mesh)
    if constrained and mesh is not None:
        plain = _constrained(call, plain, _specs(call, constrained, mesh), mesh)
    return replace(call, fn=jax.jit(plain, **given))


def _constrained(
    call: GivenCall, plain: Any, specs: Mapping[int, PartitionSpec], mesh: Mesh
) -> Any:
    """The function with a constraint on arguments before all else that it does."""
    leaves = jax.tree.leaves((call.args, dict(call.kwargs)))
    arrays = [n for n, x in enumerate(leaves) if hasattr(x, "shape") and hasattr(x, "dtype")]
    shardings = {arrays[n]: NamedSharding(mesh, spec) for n, spec in specs.items()}

    @functools.wraps(plain)
    def constrained(*args: Any, **kwargs: Any) -> Any:
        flat, tree = jax.tree.flatten((args, kwargs))
        for n, sharding in shardings.items():
            flat[n] = jax.lax.with_sharding_constraint(flat[n], sharding)
        args, kwargs = jax.tree.unflatten(tree, flat)
        return plain(*args, **kwargs)

    return constrained


def _donate(call: GivenCall, given: dict[str, Any], names: Iterable[str]) -> None:
    positions = placing.positional_names(call.fn, len(call.args))
    nums = list(_tuple(given.get("donate_argnums")))
    keys = list(_tuple(given.get("donate_argnames")))
    for name in names:
        head = name.partition("/")[0].partition("[")[0]
        if head != name:
            raise CannotChange(
                f"jax donates whole arguments: donate {head!r}, or pass {name} as an argument of "
                "its own"
            )
        if head in positions:
            nums.append(positions.index(head))
        elif head in call.kwargs:
            keys.append(head)
        else:
            have = ", ".join([*positions, *call.kwargs])
            raise unknown_name(f"there is no argument {head!r}; there are {have}")
    given["donate_argnums"] = tuple(sorted(set(nums)))
    given["donate_argnames"] = tuple(dict.fromkeys(keys)) or None


def _tuple(value: Any) -> tuple[Any, ...]:
    return () if value is None else (value,) if isinstance(value, int | str) else tuple(value)


def _with_in_shardings(
    call: GivenCall, given: dict[str, Any], wanted: Mapping[str, Any], mesh: Mesh
) -> GivenCall:
    specs = _specs(call, wanted, mesh)
    own = given.get("in_shardings")
    if own is not None:
        static = set(_tuple(given.get("static_argnums")))
        dynamic = tuple(a for n, a in enumerate(call.args) if n not in static)
        flat = _spread(own, dynamic)
        for n, spec in specs.items():
            flat[n] = NamedSharding(mesh, spec)
        given["in_shardings"] = jax.tree.unflatten(jax.tree.structure(dynamic), flat)

    def one(number: int, leaf: Any) -> Any:
        if number not in specs:
            return leaf
        return _like(leaf, sharding=NamedSharding(mesh, specs[number]))

    return _with_leaves(call, one)


def _specs(call: GivenCall, wanted: Mapping[str, Any], mesh: Mesh) -> dict[int, PartitionSpec]:
    """The spec of array n of the arguments, for those that are named."""
    known = sharded.leaves(call.fn, call.args, call.kwargs)
    specs: dict[int, PartitionSpec] = {}
    for pattern, spec in wanted.items():
        for n in matching(pattern, [k.path for k in known], [k.name for k in known]):
            specs[n] = as_spec(spec)
            sharded.check_spec(known[n], tuple(specs[n]), mesh)
    return specs


def _out_shardings(call: GivenCall, given: Mapping[str, Any], wanted: Any, mesh: Mesh) -> Any:
    leaves, tree = jax.tree_util.tree_flatten_with_path(call.results)
    paths = ["/".join(["result", *(sharded.word(k) for k in path)]) for path, _ in leaves]
    names = [f"result{jax.tree_util.keystr(path)}" for path, _ in leaves]
    own = given.get("out_shardings")
    if own is None:
        flat: list[Any] = [None] * len(paths)
    else:
        flat = _spread(placing.place_shardings(own, mesh, "out_shardings"), call.results)
    for pattern, spec in wanted.items():
        for n in matching(pattern, paths, names):
            flat[n] = placing.named(mesh, as_spec(spec), paths[n])
    return jax.tree.unflatten(tree, flat)


def _spread(prefix: Any, full: Any) -> list[Any]:
    """A sharding for each leaf of ``full``, of a tree that may end before it does."""
    out: list[Any] = []

    def one(sharding: Any, part: Any) -> None:
        out.extend([sharding] * len(jax.tree.leaves(part)))

    stop = (jax.sharding.Sharding, PartitionSpec)
    jax.tree.map(one, prefix, full, is_leaf=lambda s: s is None or isinstance(s, stop))
    return out


def as_spec(spec: Any) -> PartitionSpec:
    """A PartitionSpec of what stands for one: a tuple, a list (of JSON), an axis, None."""
    if isinstance(spec, PartitionSpec):
        return spec
    entries = () if spec is None else (spec,) if isinstance(spec, str) else spec
    return PartitionSpec(*(tuple(e) if isinstance(e, list) else e for e in entries))
