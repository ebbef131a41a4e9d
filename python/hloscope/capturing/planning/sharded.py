"""A function captured with given PartitionSpecs: what a search over shardings needs.

Specs are plain data, one entry per dimension: None, an axis name, or a tuple of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ...api.capture import Capture
from .. import placing, topology
from ..compat import jax_api as _compat
from ..entry import capture
from ..errors import CaptureError
from ..program import Program

Spec = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ArgumentLeaf:
    """One array argument. ``path`` is "params/layers/0/wq", ``name`` as errors spell it."""

    path: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    argument: int  # position of the argument it is in; -1 for a keyword


def abstract(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The arguments with shapes in place of arrays, plain and picklable."""

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray | np.generic | jax.Array | jax.ShapeDtypeStruct):
            return leaf
        aval = jax.api_util.shaped_abstractify(leaf)
        return jax.ShapeDtypeStruct(
            aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False)
        )

    return tuple(jax.tree.map(one, a) for a in args), {
        k: jax.tree.map(one, v) for k, v in kwargs.items()
    }


def leaves(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[ArgumentLeaf, ...]:
    """Every array argument in jax's order, with a path of plain words."""
    names = placing.positional_names(fn, len(args))
    out = []
    whole = [(n, k, a) for k, (n, a) in enumerate(zip(names, args, strict=True))]
    whole += [(n, -1, a) for n, a in kwargs.items()]
    for name, position, argument in whole:
        for path, leaf in jax.tree_util.tree_flatten_with_path(argument)[0]:
            if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
                continue
            words = [name, *(word(key) for key in path)]
            shape = tuple(int(n) for n in leaf.shape)
            dtype = np.dtype(leaf.dtype) if not hasattr(leaf.dtype, "_rules") else None
            size = dtype.itemsize if dtype is not None else 0
            out.append(
                ArgumentLeaf(
                    "/".join(words), name + jax.tree_util.keystr(path), shape, str(leaf.dtype),
                    int(np.prod(shape, dtype=np.int64)) * size, position,
                )
            )  # fmt: skip
    return tuple(out)


def word(key: Any) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def make_mesh(axes: Mapping[str, int], topology_name: str | None) -> Mesh:
    """A mesh over the topology's devices or over local ones. Raises ``CaptureError``."""
    topology.avoid_tpu_start_up()
    return placing.target_mesh(topology_name, dict(axes))


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """How a candidate is compiled, whatever its mesh and specs.

    ``carry``: results that ``carried`` finds are sharded like the argument they replace.
    """

    topology: str | None = None
    hardware: str | None = None
    donate: tuple[int, ...] = ()
    carry: bool = True
    compiler_options: Mapping[str, Any] | None = None
    provenance: bool = False

    def without_code(self) -> CaptureOptions:
        """The same for a program that is inspected and never run; see ``quick_options``."""
        quick = quick_options(self.topology)
        return replace(self, compiler_options={**quick, **(self.compiler_options or {})} or None)


def capture_sharded(
    fn: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    axes: Mapping[str, int],
    specs: Mapping[int, Spec],
    options: CaptureOptions,
) -> Capture:
    """``capture`` with leaf n of the arguments sharded by ``specs[n]``, the rest replicated.

    Raises ``CaptureError`` in one line for a spec that does not fit its array or the mesh.
    """
    mesh = make_mesh(axes, options.topology)
    known = leaves(fn, args, kwargs)
    flat, tree = jax.tree.flatten((tuple(args), dict(kwargs)))
    array = 0
    out = []
    for leaf in flat:
        if not _is_array(leaf):
            out.append(leaf)
            continue
        spec = tuple(specs.get(array, ()))
        check_spec(known[array], spec, mesh)
        out.append(
            jax.ShapeDtypeStruct(
                leaf.shape,
                leaf.dtype,
                sharding=NamedSharding(mesh, PartitionSpec(*spec)),
                weak_type=getattr(leaf, "weak_type", False),
            )
        )
        array += 1
    placed_args, placed_kwargs = jax.tree.unflatten(tree, out)
    results = None
    if options.carry:
        with _compat.mesh_context(mesh):
            pairs, shape = _carried(fn, args, kwargs)
        kept = [leaf.sharding for leaf in out if hasattr(leaf, "sharding")]
        if pairs:
            flat_out = [kept[pairs[k]] if k in pairs else None for k in range(shape.num_leaves)]
            results = jax.tree.unflatten(shape, flat_out)
    return capture(
        _jitted(fn, options.donate, results),
        *placed_args,
        mesh=mesh,
        hardware=options.hardware,
        provenance=options.provenance,
        compiler_options=options.compiler_options,
        **placed_kwargs,
    )


def carried(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[int, int]:
    """Array n of the results → the array of the arguments that it replaces in the next step.

    A result replaces the first argument with its structure and shapes that no other result
    replaces; scalars alone do not count. Empty where the function cannot be traced.
    """
    with contextlib.suppress(Exception):
        return _carried(fn, args, kwargs)[0]
    return {}


def _carried(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[dict[int, int], Any]:
    made = jax.eval_shape(fn, *args, **kwargs)
    is_one = any(_shapes(made) == _shapes(a) for a in args)
    parts = list(made) if isinstance(made, tuple | list) and not is_one else [made]
    starts, at = [], 0
    for argument in args:
        starts.append(at)
        at += sum(_is_array(x) for x in jax.tree.leaves(argument))
    found: dict[int, int] = {}
    used: set[int] = set()
    place = 0
    for part in parts:
        own = jax.tree.leaves(part)
        wanted = _shapes(part)
        for n, argument in enumerate(args):
            theirs = jax.tree.leaves(argument)
            if n in used or not all(map(_is_array, theirs)) or not any(x.shape for x in own):
                continue
            if wanted == _shapes(argument):
                used.add(n)
                found |= {place + k: starts[n] + k for k in range(len(own))}
                break
        place += len(own)
    return found, jax.tree.structure(made)


def _shapes(tree: Any) -> Any:
    """Structure, shapes and types; leaves that are no arrays have neither."""
    leaves = jax.tree.leaves(tree)
    types = [(getattr(x, "shape", None), getattr(x, "dtype", None)) for x in leaves]
    return jax.tree.structure(tree), types


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def _jitted(fn: Any, donate: Sequence[int], results: Any) -> Any:
    more = {} if results is None else {"out_shardings": results}
    if not hasattr(fn, "lower"):
        return jax.jit(fn, donate_argnums=tuple(donate) or None, **more)
    if _compat.jit_options(fn) is not None:
        raise CaptureError(
            "the function is jitted with shardings of its own: give the plain function to search"
        )
    flags = _compat.jit_flags(fn)
    if not more or flags is None:
        return fn
    return jax.jit(fn.__wrapped__, **flags, **more)


def check_spec(leaf: ArgumentLeaf, spec: Spec, mesh: Mesh) -> None:
    if len(spec) > len(leaf.shape):
        raise CaptureError(
            f"{leaf.name} has {len(leaf.shape)} dimensions and its spec {spec} {len(spec)}"
        )
    for dim, entry in enumerate(spec):
        axes = entry if isinstance(entry, tuple) else (entry,) if entry is not None else ()
        size = 1
        for axis in axes:
            if axis not in mesh.shape:
                have = ", ".join(map(str, mesh.axis_names))
                raise CaptureError(f"{leaf.name}: the mesh has no axis {axis!r}; it has {have}")
            size *= mesh.shape[axis]
        if leaf.shape[dim] % size:
            raise CaptureError(
                f"{leaf.name}: dimension {dim} of {leaf.shape} does not divide by {size} "
                f"({'·'.join(axes)})"
            )


def fingerprint(
    fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any], axes: Mapping[str, int]
) -> str | None:
    """A digest of what the function computes, from its jaxpr; None if it cannot be traced.

    The same in another process: addresses in names are left out, constants are included.
    """
    with contextlib.suppress(Exception):
        abstracted = jax.sharding.AbstractMesh(tuple(axes.values()), tuple(axes))
        jitted = fn if hasattr(fn, "trace") else jax.jit(fn)
        with jax.sharding.use_abstract_mesh(abstracted):
            closed = jitted.trace(*args, **kwargs).jaxpr
        digest = hashlib.sha256(re.sub(r" at 0x[0-9a-f]+", "", str(closed)).encode())
        for const in closed.consts:
            digest.update(np.asarray(const).tobytes())
        return digest.hexdigest()
    return None


def versions() -> dict[str, str]:
    """Versions of what decides how a program is compiled."""
    from importlib.metadata import version

    out = {"jax": jax.__version__}
    for name in ("jaxlib", "libtpu", "hloscope"):
        with contextlib.suppress(Exception):
            out[name] = version(name)
    return out


def local_devices() -> tuple[str, int]:
    """(platform, number of devices) of this process; starts jax's backends."""
    topology.avoid_tpu_start_up()
    devices = jax.devices()
    return devices[0].platform, len(devices)


def platform_wanted() -> str:
    """The platform for child processes: this process's own, once it has chosen."""
    topology.avoid_tpu_start_up()
    if _compat.backends_initialized():
        return str(jax.default_backend())
    return str(getattr(jax.config, "jax_platforms", None) or "")


def quick_options(topology_name: str | None) -> dict[str, Any]:
    """Compiler options for a program that is inspected and never run.

    On CPU they skip most of LLVM's work, which comes after the last pass over the HLO and after
    buffers are assigned: a half to two thirds of the time, same instructions, same memory.
    """
    if topology_name is not None or jax.default_backend() != "cpu":
        return {}
    return {"xla_backend_optimization_level": 0}


def measure(cap: Capture, runs: int = 8, warm_up: int = 2) -> list[float]:
    """Wall seconds of ``runs`` runs of a captured program on attached devices.

    Arguments are zeros, made again before each run. Raises ``CaptureError`` for
    a program of a topology, and what the program itself raises.
    """
    program = cap.for_hosts.program
    compiled = program.compiled if isinstance(program, Program) else None
    if compiled is None:
        raise CaptureError("only a program captured in this process can run")
    shardings = compiled.input_shardings
    info = compiled.args_info

    def make() -> Any:
        return jax.tree.map(
            lambda a, s: jax.device_put(np.zeros(a.shape, a.dtype), s), info, shardings
        )

    taken = []
    for n in range(warm_up + runs):
        args, kwargs = make()
        jax.block_until_ready((args, kwargs))
        start = time.perf_counter()
        jax.block_until_ready(compiled(*args, **kwargs))
        if n >= warm_up:
            taken.append(time.perf_counter() - start)
    return taken
