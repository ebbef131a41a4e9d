"""``jax.export.Exported``, and files of it: compiled for a platform they were exported for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from .errors import CaptureError
from .placing import ONE_DEVICE, target_mesh

SUFFIX = ".jaxexport"


def is_exported(value: Any) -> bool:
    """Whether this is an ``Exported``, or the path of a file of one."""
    if isinstance(value, str | os.PathLike):
        return Path(value).suffix == SUFFIX
    return type(value).__name__ == "Exported" and hasattr(value, "in_avals")


def call_of(
    value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], topology: str | None, mesh: Any
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A jitted function that calls it, with the arguments it was exported for.

    Raises ``CaptureError``: another platform, another number of devices, open dimensions.
    """
    exported = _read(value) if isinstance(value, str | os.PathLike) else value
    name = exported.fun_name
    _check_platform(exported, topology)
    if not args and not kwargs:
        shapes = [_shape(name, aval) for aval in exported.in_avals]
        args, kwargs = jax.tree.unflatten(exported.in_tree, shapes)
    count = exported.nr_devices
    known = [s.mesh for s in getattr(exported, "_in_named_shardings", None) or () if s is not None]
    if mesh is None and not known and count > 1:
        mesh = {ONE_DEVICE: count}
    to = target_mesh(topology, mesh, known)
    if to.devices.size != count:
        raise CaptureError(
            f"{name} was exported for {count} device{'s' * (count != 1)} and the mesh to capture "
            f"for has {to.devices.size}"
        )

    def call(*args: Any, **kwargs: Any) -> Any:
        return exported.call(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    given: dict[str, Any] = {}
    places = [s or jax.sharding.NamedSharding(to, jax.P()) for s in exported.in_shardings_jax(to)]
    flat, tree = jax.tree.flatten((args, dict(kwargs)))
    if len(flat) != len(places):
        raise CaptureError(f"{name} takes {len(places)} arrays, {len(flat)} are given")
    placed = [
        jax.ShapeDtypeStruct(jax.numpy.shape(x), jax.dtypes.result_type(x), sharding=s)
        for x, s in zip(flat, places, strict=True)
    ]
    results = exported.out_shardings_jax(to)
    if any(s is not None for s in results):
        given["out_shardings"] = jax.tree.unflatten(exported.out_tree, results)
    args, named = jax.tree.unflatten(tree, placed)
    return jax.jit(call, **given), args, named


def _read(path: Any) -> Any:
    from jax import export

    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise CaptureError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        return export.deserialize(bytearray(data))
    except ImportError as error:
        raise CaptureError(f"cannot read {path}: {error}") from error
    except Exception as error:
        said = str(error).strip().splitlines()
        raise CaptureError(
            f"{path} is no program that jax.export serialised, or damaged"
            f"{': ' + said[0][:200] if said else ''}"
        ) from error


def _check_platform(exported: Any, topology: str | None) -> None:
    wanted = "tpu" if topology is not None else jax.default_backend()
    names = {"gpu": ("cuda", "rocm")}.get(wanted, (wanted,))
    if set(names) & set(exported.platforms):
        return
    have = " and ".join(exported.platforms)
    advice = (
        'give topology="v5e:2x4", which needs no TPU'
        if "tpu" in exported.platforms and topology is None
        else f"export it with jax.export.export(f, platforms=({names[0]!r},))"
    )
    raise CaptureError(f"{exported.fun_name} was exported for {have}, not for {wanted}: {advice}")


def _shape(name: str, aval: Any) -> Any:
    if not all(isinstance(n, int) for n in aval.shape):
        raise CaptureError(
            f"{name} was exported with open dimensions ({', '.join(map(str, aval.shape))}): give "
            "arguments with sizes, capture(exported, *args)"
        )
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)
