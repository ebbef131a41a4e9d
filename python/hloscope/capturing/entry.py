"""``capture``: what XLA makes of a function, without running it.

    fn, args ─ place on mesh ─ trace ─ lower ─ compile ─┬─ Module of the wanted stage
               placing.py      jaxpr   stablehlo, hlo   └─ Target: devices, arguments, figures,
               topology.py             stderr kept, dumps taken    sources, dumps, messages

Nothing is allocated or run: arrays among the arguments are used for their shapes.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax

from ..api.capture import STAGES, Capture
from ..hardware import find
from . import calls, exported, placing
from .changing.call import recorded
from .compat import jax_api as _compat
from .compat import meshes
from .errors import CaptureError
from .explain import OTHER_MESH, explained
from .marks import python_calls
from .profile import check_runnable
from .program import Options, Program
from .topology import avoid_tpu_start_up


def capture(
    fn: Any,
    *args: Any,
    stage: str = "optimized",
    topology: str | None = None,
    mesh: Any = None,
    in_shardings: Any = None,
    static_argnums: Any = None,
    compiler_options: Mapping[str, Any] | None = None,
    provenance: bool = True,
    exact: bool = True,
    passes: bool = False,
    title: str | None = None,
    hardware: str | None = None,
    profile: int = 0,
    **kwargs: Any,
) -> Capture:
    """Compiles ``fn(*args, **kwargs)`` and returns what XLA made of it; nothing runs.

    ``fn`` is a jitted or plain function, also one of ``nnx.jit`` or ``eqx.filter_jit``; or a
    ``Traced``, ``Lowered``, ``Compiled``, ``jax.export.Exported`` or the path of a ``.jaxexport``
    file (then without arguments). Arguments may be ``jax.ShapeDtypeStruct``.

    stage: "jaxpr", "stablehlo", "hlo" (before optimisation) or "optimized".
    topology: a TPU topology such as "v5e:16x16"; needs libtpu, no TPU.
    mesh: axis sizes, "data=16,model=16" or {"data": 16, "model": 16}, or a Mesh: the
        arguments' shardings move onto it by axis name, and it is jax's current mesh while tracing.
    in_shardings, static_argnums: for a plain function, as ``jax.jit`` takes them.
    compiler_options: as ``Lowered.compile`` takes them.
    provenance: also keeps Shardy's and the partitioner's dumps, which explaining where
        collectives come from needs.
    exact: tracks every operation through the compiler, so that each instruction knows which
        StableHLO operations it comes from (``Instruction.origins``). The program is the same;
        the numbers in some instructions' names may differ. This and ``provenance`` compile
        again; with both False, what jax has compiled is reused.
    passes: keeps the program after every pass of the compiler, for ``cap.passes()``, in memory
        and compressed; without it, they take one more compile when first asked for.
    hardware: id of the chip to model time on, such as "h100", instead of the devices' own.
    profile: runs that many steps with these arguments under ``jax.profiler``, after an
        unmeasured one; the times are in ``cap.measured`` and in the view. The one option that
        runs the program.

    Raises ``CaptureError`` saying what to do, ``HardwareError`` for an unknown chip.
    Errors of the function itself pass unchanged.

        cap = capture(step, params, batch, topology="v5e:2x4", mesh={"data": 2, "model": 4})
    """
    __tracebackhide__ = True
    if stage not in STAGES:
        raise CaptureError(f"unknown stage {stage!r}; stages are {', '.join(STAGES)}")
    avoid_tpu_start_up()
    if hardware is not None:
        hardware = find(hardware).id  # report a wrong id before minutes of compiling
    options = Options(
        dict(compiler_options) if compiler_options else None,
        provenance,
        exact,
        passes,
        title,
        hardware,
    )
    if profile:
        _refuse_unmeasurable(fn, args, kwargs, profile, stage, topology)
    if isinstance(fn, Capture):
        found = fn.at(stage)
        if hardware is not None:
            found.hardware = hardware
        return found
    if calls.stage_of(fn) is not None:
        given = {"topology": topology, "mesh": mesh, "in_shardings": in_shardings}
        return _finished(calls.stage_of(fn), args, kwargs, given, options).at(stage)
    if exported.is_exported(fn):
        fn, args, kwargs = exported.call_of(fn, args, kwargs, topology, mesh)
        topology = mesh = None
    if not callable(fn):
        raise CaptureError(
            f"cannot capture an object of type {type(fn).__name__}; give a function, or what "
            "jax.jit(f).trace, .lower or .compile returns"
        )
    concrete = args, kwargs
    fn, args, kwargs = calls.unbound(fn, args, kwargs)
    options.call = recorded(
        fn, args, kwargs,
        topology=topology, mesh=mesh, in_shardings=in_shardings, static_argnums=static_argnums,
        compiler_options=options.compiler_options, provenance=provenance, exact=exact,
        hardware=hardware,
    )  # fmt: skip
    given = {"in_shardings": in_shardings, "static_argnums": static_argnums}
    known = placing.known_meshes(fn, args, kwargs) if topology or mesh else []
    traced, to = _traced(fn, args, kwargs, (topology, mesh, known), given, options)
    held = _compat.concrete_meshes(getattr(traced, "jaxpr", None)) if to is not None else set()
    if held and mesh is None and not known:  # the program itself knows the mesh it is for
        known = sorted(held, key=lambda m: m.devices.size, reverse=True)
        traced, to = _traced(fn, args, kwargs, (topology, mesh, known), given, options)
        held = _compat.concrete_meshes(getattr(traced, "jaxpr", None))
    _refuse_other_meshes(held, to, getattr(fn, "__name__", "") or type(fn).__name__)
    kind = "lowered" if isinstance(traced, jax.stages.Lowered) else "traced"
    found = Program(options, **{kind: traced}).at(stage)
    if profile:
        found.profile(*concrete[0], steps=profile, **concrete[1])
    return found


def _traced(
    fn: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    where: tuple[str | None, Any, Sequence[Any]],
    given: Mapping[str, Any],
    options: Options,
) -> tuple[Any, Any]:
    """Traces the call, on the mesh of ``where``: topology, mesh, meshes it is written for.

    Returns what jax traced, and the mesh; None for a call that stays where its arguments are.
    """
    __tracebackhide__ = True
    topology, mesh, known = where
    in_shardings = given["in_shardings"]
    name = getattr(fn, "__name__", "") or type(fn).__name__
    to: Any = None
    exchanged: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if topology is not None or mesh is not None:
        to = placing.target_mesh(topology, mesh, known)
        options.moved = True
        if to.axis_names != (placing.ONE_DEVICE,):
            options.context = functools.partial(_compat.mesh_context, to)
        exchanged = meshes.exchanged(to)
        moved = placing.place_jit(fn, to) if hasattr(fn, "lower") else None
        fn = moved or fn
        put = functools.partial(
            placing.place,
            mesh=to,
            sharded=in_shardings is None and moved is None,
            own=in_shardings is None,
        )
        names = placing.positional_names(fn, len(args))
        args = tuple(put(a, name=n) for a, n in zip(args, names, strict=True))
        kwargs = {k: put(v, name=k) for k, v in kwargs.items()}
        in_shardings = placing.place_shardings(in_shardings, to)
    elif in_shardings is not None:
        in_shardings = placing.place_shardings(in_shardings, _compat.current_mesh())
    options.fn = fn
    jitted = _jitted(fn, kwargs, in_shardings, given["static_argnums"])
    recording = python_calls.recording() if options.exact else contextlib.nullcontext(False)
    explaining = explained("trace", name, moved=options.moved)
    with options.context(), explaining, exchanged, recording as here:
        traced = calls.trace(jitted, args, kwargs)
        options.recorded = bool(here) and isinstance(traced, jax.stages.Traced)
    return traced, to


def _refuse_unmeasurable(
    fn: Any, args: Any, kwargs: Any, profile: int, stage: str, topology: str | None
) -> None:
    """Refuses what cannot run, before minutes of compiling."""
    if stage != "optimized":
        raise CaptureError(f"profile= measures the optimized stage, not {stage!r}")
    if topology is not None:
        raise CaptureError(
            f"profile= runs the program and {topology} is only a topology, without devices; take "
            "a trace there and join it: cap.add_profile('….xplane.pb')"
        )
    if isinstance(fn, Capture) or calls.stage_of(fn) is not None:
        kind = type(fn).__name__
        raise CaptureError(
            f"a {kind} comes without values to run on; give them to "
            f"capture({kind.lower()}).profile(*args, steps={profile})"
        )
    check_runnable(args, kwargs, profile)


def _refuse_other_meshes(held: Iterable[Any], mesh: Any, name: str) -> None:
    """On the same devices a mesh that was closed over would quietly stay in use."""
    for other in held:
        if other.axis_names != mesh.axis_names or other.devices.shape != mesh.devices.shape:
            raise CaptureError(
                f"{OTHER_MESH.format(name=name)} (it holds {dict(other.shape)}, not "
                f"{dict(mesh.shape)})"
            )


def _finished(
    fn: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    given: Mapping[str, Any],
    options: Options,
) -> Program:
    """The program of what is already traced, lowered or compiled."""
    kind = type(fn).__name__
    if args or kwargs:
        raise CaptureError(
            f"a {kind} has its arguments already; call capture({kind.lower()}) without any"
        )
    for name, value in given.items():
        if value is not None:
            raise CaptureError(
                f"a {kind} is for its own devices already, {name} cannot change them; "
                "capture the function itself"
            )
    if isinstance(fn, jax.stages.Lowered):
        return Program(options, lowered=fn)
    if isinstance(fn, jax.stages.Compiled):
        return Program(options, compiled=fn)
    return Program(options, traced=fn)


def _jitted(fn: Any, kwargs: Mapping[str, Any], in_shardings: Any, static_argnums: Any) -> Any:
    """The function jitted, unchanged if it already was."""
    if hasattr(fn, "lower"):
        for name, value in (("in_shardings", in_shardings), ("static_argnums", static_argnums)):
            if value is not None:
                raise CaptureError(
                    f"the function is jitted already: give {name} to jax.jit, or capture the "
                    "plain function"
                )
        return fn
    _refuse_options_of_jit(fn, kwargs)
    extra: dict[str, Any] = {}
    if in_shardings is not None:
        extra["in_shardings"] = in_shardings
    if static_argnums is not None:
        extra["static_argnums"] = static_argnums
    return jax.jit(fn, **extra)


def _refuse_options_of_jit(fn: Any, kwargs: Mapping[str, Any]) -> None:
    """A keyword that jax.jit knows and the function does not was meant for jax.jit."""
    meant = kwargs.keys() & {
        "donate_argnums",
        "donate_argnames",
        "out_shardings",
        "static_argnames",
    }
    with contextlib.suppress(TypeError, ValueError):
        parameters = inspect.signature(fn).parameters
        if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            return
        meant -= parameters.keys()
    for name in sorted(meant):
        called = getattr(fn, "__name__", "f")
        raise CaptureError(
            f"{name} is an option of jax.jit: capture(jax.jit({called}, {name}=…), …)"
        )
