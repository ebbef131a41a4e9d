"""A program that holds a mesh of its own, traced for another mesh of the same axes.

    mesh = jax.make_mesh((2, 4), ("data", "model"))            # eight CPU devices
    def step(x): return with_sharding_constraint(x, NamedSharding(mesh, P("data")))

is captured for a TPU topology: while jax traces it, each sharding or mesh that it hands to jax
is exchanged for the target's, by axis name. What is replaced are jax's inner functions that take
a sharding from its user; they act so only in the thread that traces, and under a context of its
own (``jax.make_user_context``), so that nothing of it stays in jax's caches. A jax that this
file does not know traces the program as it is.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding

_lock = threading.Lock()
_here = threading.local()
_users = 0
_before: list[tuple[Any, str, Any]] = []


@functools.cache
def _context() -> Any:
    """Keeps what is traced for another mesh out of jax's caches; None before jax has such."""
    make = getattr(jax, "make_user_context", None)
    return None if make is None else make(None)


@contextlib.contextmanager
def exchanged(target: Mesh) -> Iterator[None]:
    """Meshes with the axis names of ``target`` become it while this thread traces."""
    global _users
    context = _context()
    if context is None:
        yield
        return
    with _lock:
        if _users == 0:
            _put_in()
        _users += 1
    previous, _here.target = getattr(_here, "target", None), target
    try:
        with context(f"hloscope {hash(target)}"):
            yield
    finally:
        _here.target = previous
        with _lock:
            _users -= 1
            if _users == 0:
                for owner, name, value in reversed(_before):
                    if value is None:
                        delattr(owner, name)
                    else:
                        setattr(owner, name, value)
                _before.clear()


def on_target(value: Any) -> Any:
    """A mesh or sharding on the mesh that this thread traces for; anything else as it is."""
    target = getattr(_here, "target", None)
    if target is None:
        return value
    if isinstance(value, NamedSharding):
        mesh = _mesh(value.mesh, target)
        if mesh is value.mesh:
            return value
        return NamedSharding(mesh, value.spec, memory_kind=memory_kind(value))
    return _mesh(value, target)


def memory_kind(sharding: NamedSharding) -> str | None:
    """The memory a sharding asks for, None if it is the default one of its devices."""
    kind = sharding.memory_kind
    with contextlib.suppress(Exception):
        if kind == sharding.mesh.devices.flat[0].default_memory().kind:  # type: ignore[union-attr]
            return None
    return kind


def _mesh(mesh: Any, target: Mesh) -> Any:
    names = getattr(mesh, "axis_names", ())
    if set(names) != set(target.axis_names) or mesh == target:
        return mesh
    if isinstance(mesh, Mesh):
        return target
    abstract = target.abstract_mesh
    same = mesh.shape_tuple == abstract.shape_tuple
    if same and getattr(mesh, "abstract_device", 0) == getattr(abstract, "abstract_device", 0):
        return mesh  # this one comes from the target already, some of its axes maybe manual
    return abstract


def _all_on_target(tree: Any) -> Any:
    return jax.tree.map(on_target, tree, is_leaf=lambda x: isinstance(x, jax.sharding.Sharding))


def _put_in() -> None:
    """Replaces what jax calls with a sharding of its user; a name that moved is left out."""
    from jax._src import dispatch, pjit, shard_map, sharding_impls

    def first(plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def call(value: Any, *args: Any, **options: Any) -> Any:
            return plain(_all_on_target(value), *args, **options)

        return call

    def constraint(plain: Callable[..., Any]) -> Callable[..., Any]:
        # not those of a jax.jit made while tracing, which may outlive it: ``leaves`` has them
        @functools.wraps(plain)
        def call(value: Any, name: str, *args: Any, **options: Any) -> Any:
            value = _all_on_target(value) if name == "shardings" else value
            return plain(value, name, *args, **options)

        return call

    def resources(plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def call(what: str, tree: Any, shardings: Any, *args: Any, **options: Any) -> Any:
            if what.startswith("reshard"):
                shardings = _all_on_target(shardings)
            return plain(what, tree, shardings, *args, **options)

        return call

    def leaves(plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def call(tree: Any, shardings: Any, *args: Any) -> Any:
            return plain(tree, tuple(map(on_target, shardings)), *args)

        return call

    def checks(plain: Callable[..., Any]) -> Callable[..., Any]:
        # a shard_map keeps the mesh that this returns for all its calls: its own must stay
        @functools.wraps(plain)
        def call(mesh: Any, *args: Any, **options: Any) -> Any:
            used, *others = plain(on_target(mesh), *args, **options)
            return (used if mesh is None else mesh, *others)

        return call

    def specs(plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def call(function: Any, mesh: Any, *args: Any, **options: Any) -> Any:
            return plain(function, on_target(mesh), *args, **options)

        return call

    def bind(plain: Callable[..., Any], *names: str) -> Callable[..., Any]:
        def call(*args: Any, **params: Any) -> Any:
            for name in names:
                if name in params:
                    params[name] = _all_on_target(params[name])
            return plain(*args, **params)

        return call

    _replace(pjit, "prepare_axis_resources", constraint)
    _replace(pjit, "flatten_axis_resources", resources)
    _replace(pjit, "_process_in_axis_resources", leaves)
    _replace(pjit, "_check_and_canonicalize_out_shardings", leaves)
    _replace(shard_map, "_shmap_checks", checks)
    _replace(shard_map, "_check_specs_vs_args", specs)
    _replace(shard_map.shard_map_p, "bind", bind, "mesh")
    _replace(dispatch.device_put_p, "bind", bind, "devices")
    plain = getattr(sharding_impls, "canonicalize_sharding", None)
    users = [m for n, m in list(sys.modules.items()) if n.startswith("jax._src") and m is not None]
    for module in users:
        if plain is not None and vars(module).get("canonicalize_sharding") is plain:
            _replace(module, "canonicalize_sharding", first)


def _replace(owner: Any, name: str, made: Callable[..., Any], *more: str) -> None:
    plain = getattr(owner, name, None)
    if plain is None:
        return
    _before.append((owner, name, vars(owner).get(name)))
    setattr(owner, name, made(plain, *more))
