"""Everything that differs between jax versions, or that jax has no public API for.

Each function here has a public spelling or a plain default to fall back on: a private name
that moved costs a detail, never the capture.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax


def backends_initialized() -> bool:
    """Whether jax has already started its backends (platforms can then no longer be chosen)."""
    try:
        from jax._src import xla_bridge

        return bool(xla_bridge.backends_are_initialized())
    except (ImportError, AttributeError):
        return True


def leave_out_own_frames() -> None:
    """Keeps hloscope's own files out of the stack frames that jax gives to instructions."""
    with contextlib.suppress(ImportError, AttributeError):
        from jax._src import source_info_util

        source_info_util.register_exclusion(str(Path(__file__).resolve().parents[2]))


def mesh_context(mesh: jax.sharding.Mesh) -> contextlib.AbstractContextManager[Any]:
    """The mesh as jax's current mesh, so that bare PartitionSpecs and shard_map find it."""
    # jax.sharding.set_mesh of jax 0.6 and 0.7 is not a context manager: the mesh stays set.
    for owner, name in ((jax, "set_mesh"), (jax.sharding, "use_mesh")):
        setter = getattr(owner, name, None)
        if setter is not None:
            return setter(mesh)  # type: ignore[no-any-return]
    return mesh


def entries(spec: Any) -> tuple[Any, ...]:
    """The entries of a PartitionSpec, one for each dimension; what is unreduced is not in them."""
    return tuple(spec.partitions if hasattr(spec, "partitions") else spec)


def spec_text(spec: Any) -> str:
    """``P('data', None, unreduced={'model'})``: the same for every version of jax."""
    parts = [repr(e) for e in entries(spec)]
    for name in ("unreduced", "reduced"):
        axes = sorted(map(str, getattr(spec, name, None) or ()))
        parts += [f"{name}={{{', '.join(map(repr, axes))}}}"] if axes else []
    return f"P({', '.join(parts)})"


def current_mesh() -> jax.sharding.Mesh | None:
    """The concrete mesh of ``jax.set_mesh`` or ``with mesh:``, or None."""
    try:
        from jax._src import mesh as mesh_lib

        concrete = mesh_lib.get_concrete_mesh()
        if concrete is not None and not concrete.empty:
            return concrete
        physical = mesh_lib.thread_resources.env.physical_mesh
        return None if physical.empty else physical
    except (ImportError, AttributeError):
        return None


def register_array(kind: type, shape_of: Any) -> None:
    """Lets ``jax.typeof`` take objects of ``kind`` for what ``shape_of`` returns of them."""
    with contextlib.suppress(ImportError, AttributeError):
        from jax._src import core

        core.pytype_aval_mappings[kind] = lambda x: core.shaped_abstractify(shape_of(x))


def is_jit(fn: Any) -> bool:
    """Whether ``jax.jit`` itself made this function."""
    return hasattr(fn, "trace") and type(fn).__name__ == "PjitFunction"


def rename_arguments(traced: Any, names: Sequence[str | None]) -> None:
    """Names of arguments for everything that is made of a ``Traced``; None keeps jax's own."""
    with contextlib.suppress(Exception):
        jaxpr = traced.jaxpr.jaxpr
        info = jaxpr.debug_info
        if len(info.arg_names) == len(names):
            kept = tuple(new or old for new, old in zip(names, info.arg_names, strict=True))
            jaxpr._debug_info = info._replace(arg_names=kept)


def jit_options(jitted: Any) -> dict[str, Any] | None:
    """What ``jax.jit`` was given, to jit the function again for another mesh.

    None if jax does not say, if no shardings were given, or if layouts, a device or a
    backend were, which cannot move.
    """
    info = getattr(jitted, "_jit_info", None)
    if info is None or not hasattr(jitted, "__wrapped__"):
        return None

    def tree(name: str) -> Any:
        leaves = getattr(info, f"{name}_leaves")
        known = [None if type(x).__name__ == "UnspecifiedValue" else x for x in leaves]
        if all(x is None for x in known):
            return None
        return getattr(info, f"{name}_treedef").unflatten(known)

    try:
        if tree("in_layouts") is not None or tree("out_layouts") is not None:
            return None
        if info.device is not None or info.backend is not None:
            return None
        shardings = {n: tree(n) for n in ("in_shardings", "out_shardings")}
        found = {n: s for n, s in shardings.items() if s is not None}
        if not found:
            return None
        same = ("static_argnums", "static_argnames", "donate_argnums", "donate_argnames")
        found |= {name: getattr(info, name) for name in (*same, "keep_unused")}
        return found | {"compiler_options": dict(info.compiler_options_kvs) or None}
    except (AttributeError, TypeError, ValueError):
        return None


def jit_flags(jitted: Any) -> dict[str, Any] | None:
    """Static and donated arguments that ``jax.jit`` was given; None if jax does not say."""
    info = getattr(jitted, "_jit_info", None)
    if info is None or not hasattr(jitted, "__wrapped__"):
        return None
    same = ("static_argnums", "static_argnames", "donate_argnums", "donate_argnames")
    try:
        return {name: getattr(info, name) for name in (*same, "keep_unused")}
    except AttributeError:
        return None


def platforms_chosen() -> bool:
    """Whether ``JAX_PLATFORMS`` or its option says which platforms to start."""
    return bool(getattr(jax.config, "jax_platforms", None))


@contextlib.contextmanager
def no_persistent_cache() -> Iterator[None]:
    """Compiles for real: a hit in jax's on-disk cache would leave no dump and no messages.

    Without a cache folder there is nothing to switch off. The switch is global to the process:
    the first thread that compiles turns it off, and the last one turns it back on.
    """
    global _cache_users, _cache_before
    if not getattr(jax.config, "jax_compilation_cache_dir", None):
        yield
        return
    try:
        from jax.experimental.compilation_cache import compilation_cache
    except ImportError:
        yield
        return
    with _cache_lock:
        if _cache_users == 0:
            _cache_before = jax.config.values.get("jax_enable_compilation_cache", True)
            jax.config.update("jax_enable_compilation_cache", False)
            compilation_cache.reset_cache()
        _cache_users += 1
    try:
        yield
    finally:
        with _cache_lock:
            _cache_users -= 1
            if _cache_users == 0:
                jax.config.update("jax_enable_compilation_cache", _cache_before)
                compilation_cache.reset_cache()


_cache_lock = threading.Lock()
_cache_users = 0
_cache_before: Any = True


def partition_devices(lowered: Any, compiled: Any) -> tuple[Any, ...]:
    """Devices in partition order: the device assignment, which replica groups index."""
    lowering = getattr(lowered, "_lowering", None)
    found = getattr(lowering, "_device_list", None)
    if found is None and lowering is not None:
        found = getattr(lowering, "compile_args", {}).get("device_assignment")
    if found is None and compiled is not None:
        for sharding in _shardings(compiled):
            found = getattr(sharding, "_device_assignment", None)
            if found is None:
                found = tuple(sharding.mesh.devices.flat) if hasattr(sharding, "mesh") else None
            if found is not None:
                break
    if found is None and compiled is not None:
        with contextlib.suppress(Exception):
            found = compiled.runtime_executable().local_devices()
    return tuple(found or ())


def attached(devices: Sequence[Any]) -> bool:
    """Whether programs can run on these devices: those of a mere topology have no hardware id."""
    return all(getattr(d, "local_hardware_id", 0) is not None for d in devices)


def profiler_would_crash() -> bool:
    """Whether libtpu is in this process without a TPU, as after compiling for a topology.

    Its profiler then ends the process with a segmentation fault (libtpu 0.0.51).
    """
    try:
        from jax._src import lib, xla_bridge

        plugins: Any = lib._jax  # type: ignore[attr-defined]
        return bool(plugins.pjrt_plugin_loaded("tpu")) and "tpu" not in xla_bridge.backends()
    except (ImportError, AttributeError):
        return False


def _shardings(compiled: Any) -> list[Any]:
    leaves = []
    for name in ("input_shardings", "output_shardings"):
        with contextlib.suppress(Exception):
            leaves += jax.tree.leaves(getattr(compiled, name))
    return [s for s in leaves if isinstance(s, jax.sharding.Sharding)]


def kept_arguments(lowered: Any, compiled: Any) -> list[int] | None:
    """Indices of the flat arguments that became parameters (jax drops unused ones)."""
    lowering = getattr(lowered, "_lowering", None)
    kept = getattr(lowering, "compile_args", {}).get("kept_var_idx")
    if kept is None:
        kept = getattr(getattr(compiled, "_executable", None), "_kept_var_idx", None)
    return None if kept is None else sorted(kept)


def argument_shardings(lowered: Any, count: int) -> Sequence[Any]:
    """Shardings that a lowered program requires of its kept arguments; [] when unknown."""
    lowering = getattr(lowered, "_lowering", None)
    found = getattr(lowering, "compile_args", {}).get("in_shardings", ())
    return tuple(found) if len(found) == count else ()


def copy_of_module(lowered: Any) -> tuple[Any, Any, Any] | None:
    """``(Lowered, its MLIR module, MLIR's Python bindings)``, the first two copied.

    jax caches what it compiles by the module object: the copy keeps out of all its caches.
    None if a program is lowered in another way, and before jax 0.10, where taking a location
    apart ends the process (seen with 0.8.0).
    """
    if jax.__version_info__ < (0, 10):
        return None
    from jax._src.lib import mlir

    ir: Any = mlir.ir  # type: ignore[attr-defined]
    lowering: Any = getattr(lowered, "_lowering", None)
    module = getattr(lowering, "_hlo", None)
    if module is None:
        return None
    with module.context:
        data = io.BytesIO()
        module.operation.write_bytecode(data)
        copied = ir.Module.parse(data.getvalue())
    other = copy.copy(lowering)
    other._hlo, other._executable = copied, None
    program = copy.copy(lowered)
    program._lowering = other
    return program, copied, ir


def debug_names(traced: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """``(argument names, result paths)`` as jax names them: "params['w1']", "result[0]"."""
    info = getattr(getattr(getattr(traced, "jaxpr", None), "jaxpr", None), "debug_info", None)
    arguments = getattr(info, "arg_names", None) or ()
    results = getattr(info, "result_paths", None) or ()
    return tuple(str(a) for a in arguments), tuple(str(r) for r in results)


def hlo_proto_before_optimization(lowered: Any) -> bytes | None:
    """The lowered program as HloModuleProto with its locations, which public HLO drops."""
    try:
        from jax._src.lib import _jax  # type: ignore[attr-defined]

        computation = _jax.mlir.mlir_module_to_xla_computation(
            lowered.as_text("stablehlo", debug_info=True), False, False
        )
        return bytes(computation.as_serialized_hlo_module_proto())
    except Exception:
        return None


def executable_proto(compiled: Any) -> bytes:
    """The optimised module as HloModuleProto; raises what XLA raises when it keeps none."""
    module = compiled.runtime_executable().hlo_modules()[0]
    return bytes(module.as_serialized_hlo_module_proto())


def buffer_assignment_proto(compiled: Any) -> bytes:
    """Serialised BufferAssignmentProto; b"" where the backend gives none (most of TPU)."""
    with contextlib.suppress(Exception):
        stats = compiled.runtime_executable().get_compiled_memory_stats()
        return bytes(stats.serialized_buffer_assignment_proto)
    return b""


def user_frames(source_info: Any) -> list[Any]:
    """Python frames of a jaxpr equation, innermost first; each has file, line, function."""
    try:
        from jax._src import source_info_util

        traceback = getattr(source_info, "traceback", source_info)
        try:
            frames = source_info_util.user_frames(traceback)
        except (AttributeError, TypeError):
            frames = source_info_util.user_frames(source_info)
        return list(frames)
    except Exception:
        return []


def concrete_meshes(jaxpr: Any) -> set[jax.sharding.Mesh]:
    """Meshes with devices that a program holds: in constraints, inner jits and shard_maps."""
    found: set[jax.sharding.Mesh] = set()
    for eqn, _ in equations(jaxpr):
        for leaf in jax.tree.leaves(list(eqn.params.values()), is_leaf=is_jaxpr):
            mesh = getattr(leaf, "mesh", leaf)
            if isinstance(mesh, jax.sharding.Mesh) and mesh.axis_names:
                found.add(mesh)
    return found


def equations(jaxpr: Any) -> Iterator[tuple[Any, Any]]:
    """All equations of a traced program, each with the jaxpr that it is in, each once."""
    todo, seen = [jaxpr] if jaxpr is not None else [], set()
    while todo:
        inner = todo.pop()
        inner = getattr(inner, "jaxpr", inner)
        if id(inner) in seen:
            continue
        seen.add(id(inner))
        for eqn in inner.eqns:
            yield eqn, inner
            leaves = jax.tree.leaves(list(eqn.params.values()), is_leaf=is_jaxpr)
            todo += [leaf for leaf in leaves if is_jaxpr(leaf)]


def value_name(eqn: Any) -> str:
    """The name that ``checkpoint_name`` gives to a value; "" for other equations."""
    return str(eqn.params.get("name", "")) if eqn.primitive.name == "name" else ""


def policy_names(eqn: Any) -> tuple[set[str], set[str], bool] | None:
    """The names that the policy of a differentiated checkpoint saves and offloads.

    And whether it keeps nothing else. None for other equations, and for policies without names.
    """
    policy = eqn.params.get("policy")
    if not eqn.params.get("differentiated") or not callable(policy):
        return None
    return _names_of(policy)


def _names_of(policy: Any) -> tuple[set[str], set[str], bool] | None:
    listed = getattr(policy, "saveable_names", None)  # SaveOnlyTheseNames, from jax 0.9 on
    if listed is not None:
        return set(map(str, listed)), set(), True
    try:
        held = inspect.getclosurevars(policy).nonlocals
    except (TypeError, ValueError):
        return None
    if "policy_1" in held and "policy_2" in held:  # save_from_both_policies
        both = [_names_of(held[k]) for k in ("policy_1", "policy_2")]
        known = [names for names in both if names is not None]
        if not known:
            return None
        saved = {name for names in known for name in names[0]}
        offloaded = {name for names in known for name in names[1]}
        return saved, offloaded, len(known) == 2 and all(names[2] for names in known)
    keys = ("names_which_can_be_saved", "names_which_can_be_offloaded")
    if not any(key in held for key in keys):
        return None
    return set(map(str, held.get(keys[0], ()))), set(map(str, held.get(keys[1], ()))), True


def is_jaxpr(value: Any) -> bool:
    """A Jaxpr or ClosedJaxpr, whose class has moved between modules over the versions."""
    return type(value).__name__ in ("Jaxpr", "ClosedJaxpr") or hasattr(value, "eqns")


def checkpointed(jaxpr: Any) -> set[str]:
    """The functions directly under ``jax.checkpoint`` in a traced program: "f at model.py:12"."""
    found = {
        function_name(eqn.params.get("jaxpr"))
        for eqn, _ in equations(jaxpr)
        if eqn.primitive.name in ("checkpoint", "remat", "remat2")
    }
    return found - {""}


def function_name(jaxpr: Any) -> str:
    """The function that a jaxpr was traced from, "block at model.py:12"; "" when unknown."""
    info = getattr(getattr(jaxpr, "jaxpr", jaxpr), "debug_info", None)
    return str(getattr(info, "func_src_info", "") or "")


_replacing = threading.RLock()


@contextlib.contextmanager
def policies_replaced(policies: Any) -> Iterator[bool]:
    """Checkpoints traced inside get the policy of ``policies``, a dict by function name.

    Those that other threads trace keep their own. False if this jax has no such place.
    """
    try:
        from jax._src.ad_checkpoint import remat_p
    except ImportError:
        yield False
        return
    thread = threading.get_ident()

    def bind(*args: Any, **params: Any) -> Any:
        name = function_name(params.get("jaxpr"))
        is_here = threading.get_ident() == thread
        if is_here and name in policies and not params.get("differentiated"):
            params["policy"] = policies[name]
        return plain(*args, **params)

    with _replacing:
        plain = remat_p.bind
        remat_p.bind = bind  # type: ignore[method-assign]
        try:
            yield True
        finally:
            del remat_p.bind  # the class's own again
