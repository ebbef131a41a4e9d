"""``cap.what_if``: the captured function with changes, captured again.

    Changes ─┬─ arguments.py     donation, shardings, mesh, types, batch: of the call
             ├─ source_edits.py  constraints, remat, casts: in the source of the person's functions
             └─ contexts         precision, x64, policies of checkpoints: while tracing
                    └──▶ capture ─▶ Capture with ``changes`` and ``base``

Changes of a capture that was changed already are made together with the earlier ones.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
from jax.sharding import NamedSharding

from ...api.capture import Capture
from ...hlo import StackFrame
from ...hlo.changes import (
    CannotChange,
    Changes,
    ProgramChange,
    cast_code,
    described,
    names_of,
    policies_of,
    remat_code,
    spec_text,
    unknown_name,
)
from ...hlo.option_sets import options_of
from ...hlo.texts.places import is_library, is_same_file, own_line, parse_place, short_place
from .. import placing
from ..compat import jax_api as _compat
from ..compat import tracing
from . import compiler_options
from .arguments import as_spec, changed_call, mesh_of, of_arguments
from .call import GivenCall
from .source_edits import Applied, Edit, exchanged, prepared


@dataclass(frozen=True)
class _Function:
    """A function of the person's that the program was traced through."""

    name: str  # "Block.__call__"
    file: str
    begins: int

    @property
    def place(self) -> StackFrame:
        return StackFrame(self.file, self.begins, self.name)

    @property
    def key(self) -> str:
        """As jax names it."""
        return f"{self.name.rpartition('.')[2]} at {self.file}:{self.begins}"


def what_if(base: Capture, asked: Changes, *, explains: bool = True) -> Capture:
    """The capture's program with the changes, and those that it has already, compiled.

    ``explains``: it can say where collectives come from, as the capture can that it is made from;
    else compiling takes no longer than without hloscope.

    Raises ``CannotChange`` where a change cannot be carried out, and what ``capture`` raises.
    """
    if "compiler_options" in asked:
        platform = "tpu" if "topology" in asked else base.target.platform
        options = options_of(asked["compiler_options"], platform)
        asked = {**asked, "compiler_options": options}  # type: ignore[typeddict-item]
    changes = _together(base.for_hosts.asked, asked)
    first = base
    while first.base is not None:
        first = first.base
    program: Any = first.for_hosts.program
    said = described(changes, program.name)
    code = "\n".join(c.code for c in said)
    call: GivenCall | None = program.options.call
    if call is None:
        raise CannotChange(
            f"{program.name} was captured without its function: capture the function", code
        )
    constrained = of_arguments(call, changes.get("constrain", {}))
    inside = {w: s for w, s in asked.get("constrain", {}).items() if w not in constrained}
    places = {**base.for_hosts.places, **_places(base, inside)}
    call = replace(call, results=getattr(program.traced, "out_info", None))
    if base.target.hardware:  # which may have been chosen since
        call = call.with_options(hardware=base.target.hardware)
    try:
        call = changed_call(call, changes)
        replaced, edits, words = _edits(first, call, changes, places)
        applied, sources = prepared(edits)
        named = [program.cells.name(e.place.file) for e in edits]
        of_call = [c for c in said if c.kind not in _OF_SOURCE]
        of_call += described({"constrain": constrained})
        made = _made(of_call, replaced, words, list(zip(named, applied, strict=True)))
        if not explains:
            call = call.with_options(provenance=False, exact=False)
        found = _captured(first, call, changes, (made, replaced, edits, sources))
    except CannotChange as error:
        raise error.with_code(code) from None
    found.changes, found.base = _with_static(made, replaced, edits), base
    found.for_hosts.asked, found.for_hosts.places = changes, places
    return found


def _together(before: Changes, asked: Changes) -> Changes:
    """Changes after others: of one kind and name, the later counts."""
    out: dict[str, Any] = dict(before)
    more: dict[str, Any] = dict(asked)
    for kind, value in more.items():
        own = out.get(kind)
        if kind == "donate":
            value = tuple(dict.fromkeys((*names_of(own or ()), *names_of(value))))
        elif kind == "remat":
            value = {**policies_of(own or ()), **policies_of(value)}
        elif isinstance(own, Mapping) and isinstance(value, Mapping) and kind != "mesh":
            value = {**own, **value}
        out[kind] = value
    return out  # type: ignore[return-value]


def _made(
    of_call: Sequence[ProgramChange],
    replaced: _Replaced,
    words: Sequence[ProgramChange],
    applied: Sequence[tuple[str, Applied]],
) -> tuple[ProgramChange, ...]:
    in_source = [
        replace(
            w,
            line=short_place(file, a.line),
            code=a.code,
            words=w.words.replace("{of}", a.of),
        )
        for w, (file, a) in zip(words, applied, strict=True)
    ]
    return (*of_call, *in_source, *replaced.said)


def _with_static(
    made: tuple[ProgramChange, ...], replaced: _Replaced, edits: Sequence[Edit]
) -> tuple[ProgramChange, ...]:
    """The changes with the decorators of checkpoints as tracing has shown that they must be."""
    out = list(made)
    begin = len(made) - len(replaced.said) - len(edits)
    for at, edit in enumerate(edits, begin):
        run = edit.run
        if isinstance(run, _Remat) and run.static:
            plain, whole = remat_code(run.said), remat_code(run.said, sorted(run.static))
            out[at] = replace(out[at], code=out[at].code.replace(plain, whole, 1))
    return tuple(out)


_OF_SOURCE = ("constrain", "remat", "cast")


def _captured(first: Capture, call: GivenCall, changes: Changes, how: Any) -> Capture:
    from ..entry import capture

    made, replaced, edits, sources = how
    options = {**call.options, "title": f"{first.title}: {'; '.join(c.words for c in made)}"}
    with contextlib.ExitStack() as stack:
        if changes.keys() & {*_OF_SOURCE, "matmul_precision", "x64"}:
            if not stack.enter_context(tracing.traced_anew()):
                raise CannotChange("changing a function in place needs jax 0.10 or newer")
            stack.enter_context(exchanged(edits, sources))
        is_replaced = _compat.policies_replaced(replaced.policies)
        if replaced.policies and not stack.enter_context(is_replaced):
            raise CannotChange("this jax keeps the policies of checkpoints elsewhere")
        stack.enter_context(_settings(call, changes))
        chosen = call.options.get("compiler_options") or {}
        stack.enter_context(compiler_options.explained(chosen))
        return capture(call.fn, *call.args, **options, **call.kwargs)


def _places(base: Capture, wanted: Mapping[Any, Any]) -> dict[Any, StackFrame]:
    """The expression, or else the line, that each value of a constraint is of."""
    return {where: _place(base, where) for where in wanted}


def _place(base: Capture, where: str | int) -> StackFrame:
    origins = base.module.origins
    if origins is None:
        raise CannotChange(
            "the operations of this program are not tracked: capture it with exact=True"
        )
    stacks = _stacks(base)
    if isinstance(where, str) and where.rpartition(":")[2].isdecimal() and ":" in where:
        file, line = parse_place(where)
        for stack in stacks.values():
            for frame in stack:
                if frame.line == line and is_same_file(frame.file, file):
                    return StackFrame(frame.file, line, frame.function)
        raise unknown_name(f"no operation of this program is at {where}")
    number = where if isinstance(where, int) else _operation(base, where)
    if not 0 <= number < len(origins.operations):
        raise unknown_name(f"there is no operation {number}; there are {len(origins.operations)}")
    operation = origins.operations[number]
    own = own_line(stacks.get(number, ()))
    if own is None or own.column is None or is_library(own.file):
        raise CannotChange(f"operation {number} ({operation}) is of no line of yours")
    if "transpose(" in operation.name:
        raise CannotChange(
            f"operation {number} ({operation}) is of the backward pass, which has no line: "
            "constrain the value that it is the gradient of"
        )
    return own


def _operation(base: Capture, name: str) -> int:
    """The operation whose value an instruction is."""
    instruction = base.module.find(name.removeprefix("%"))
    if instruction is None or base.module.origins is None:
        raise unknown_name(f"this program has no instruction {name}, and a line is model.py:37")
    found = base.module.origins.of[instruction.index]
    if not found:
        raise CannotChange(f"%{instruction.name} comes from no operation of yours")
    return found[0].operation


def _stacks(base: Capture) -> dict[int, tuple[StackFrame, ...]]:
    """The Python stack of each operation, innermost first."""
    module = base.at("stablehlo").module
    table, ids = module.source_frames()
    rows = () if module.origins is None else module.origins.of
    return {o[0].operation: table.stack(k) for o, k in zip(rows, ids, strict=True) if o and k}


@contextlib.contextmanager
def _settings(call: GivenCall, changes: Changes) -> Iterator[None]:
    """jax's settings at the time of the capture, and those that change."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(jax.enable_x64(changes.get("x64", call.x64)))
        if "matmul_precision" in changes:
            stack.enter_context(jax.default_matmul_precision(changes["matmul_precision"]))
        if call.mesh is not None and not (call.options.get("mesh") or call.options.get("topology")):
            stack.enter_context(_compat.mesh_context(call.mesh))
        yield


@dataclass(frozen=True)
class _Replaced:
    """Policies of checkpoints that there are already, by jax's name of the function."""

    policies: dict[str, Any]
    said: tuple[ProgramChange, ...] = ()


def _edits(
    base: Capture, call: GivenCall, changes: Changes, places: Mapping[Any, StackFrame]
) -> tuple[_Replaced, list[Edit], list[ProgramChange]]:
    program: Any = base.for_hosts.program
    edits: list[Edit] = []
    words: list[ProgramChange] = []
    kept: dict[str, Any] = {}
    said: list[ProgramChange] = []
    functions = _functions(program, base) if changes.keys() & {"remat", "cast"} else []
    if "remat" in changes:
        under = _compat.checkpointed(program.traced.jaxpr)
        for name, policy in policies_of(changes["remat"]).items():
            if name == "*":
                if not under:
                    raise CannotChange("this program has no checkpoint whose policy could change")
                kept |= dict.fromkeys(under, _policy(policy))
                said += described({"remat": {name: policy}})
                continue
            function = _find(functions, name)
            wanted = _policy(policy)
            change = next(c for c in described({"remat": {name: policy}}))
            if function.key in under:
                kept[function.key] = wanted
                line = short_place(program.cells.name(function.file), function.begins)
                code = remat_code(policy).removeprefix("@")
                said.append(replace(change, code=code, line=line))
                continue
            edits.append(
                Edit(
                    function.place,
                    _Remat(function.name, wanted, policy),
                    _under(remat_code(policy)),
                    True,
                )
            )
            words.append(change)
    for name, dtype in changes.get("cast", {}).items():
        function = _find(functions, name)
        change = next(c for c in described({"cast": {name: dtype}}))
        show = _below_its_definition(cast_code(dtype))
        edits.append(
            Edit(function.place, _Cast(function.name, dtype), show, True, above_decorators=True)
        )
        words.append(change)
    if changes.get("constrain"):
        mesh = mesh_of(call)
        if mesh is None:
            raise CannotChange('there is no mesh to shard over; give mesh={"data": 8} too')
        for where, spec in changes["constrain"].items():
            if where not in places:
                continue  # an argument
            place = places[where]
            file = program.cells.file(place.file)
            sharding = placing.named(mesh, as_spec(spec), f"the value of {where}")
            show = _constrained(spec_text(as_spec(spec)))
            edits.append(Edit(replace(place, file=file), _Constrain(sharding), show))
            said_so = f"{spec_text(as_spec(spec))} on the value of {{of}}"
            words.append(ProgramChange("constrain", said_so, ""))
    return _Replaced(kept, tuple(said)), edits, words


def _under(decorator: str) -> Any:
    return lambda line: f"{decorator}\n{line}"


def _below_its_definition(code: str) -> Any:
    """The decorator next to the function, its definition above other decorators."""
    definition, _, decorator = code.rpartition("\n")

    def shown(lines: str) -> str:
        *others, line = lines.splitlines()
        return "\n".join([definition, *others, decorator, line])

    return shown


def _constrained(spec: str) -> Any:
    return lambda value: f"jax.lax.with_sharding_constraint({value}, NamedSharding(mesh, {spec}))"


def _functions(program: Any, base: Capture) -> list[_Function]:
    origins = base.module.origins
    found: dict[_Function, None] = {}
    for operation in () if origins is None else origins.operations:
        for frame in operation.frames:
            if frame.function:
                file = program.cells.file(frame.file)
                found[_Function(frame.function, file, frame.begins)] = None
    if not found:
        raise CannotChange(
            "the functions of this program are not known: capture it with exact=True"
        )
    return list(found)


def _find(functions: Sequence[_Function], name: str) -> _Function:
    """The function of that name. Raises ``CannotChange`` for none, and for several."""

    def is_it(function: _Function) -> bool:
        whole = function.name.replace("<locals>.", "")
        return whole == name.replace("<locals>.", "") or whole.endswith("." + name)

    found = [f for f in functions if is_it(f)]
    if len(found) == 1:
        return found[0]
    if found:
        places = ", ".join(f"{f.name} at {short_place(f.file, f.begins)}" for f in found[:6])
        raise unknown_name(f"several functions are called {name}: {places}")
    names = list(dict.fromkeys(f.name.replace("<locals>.", "") for f in functions))
    known = list(dict.fromkeys([*(n.rpartition(".")[2] for n in names), *names]))
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5) or names[:8]
    raise unknown_name(f"this program calls no function {name}; it calls {', '.join(near)}")


def _policy(policy: Any) -> Any:
    """jax's policy. Raises ``CannotChange`` for an unknown name."""
    if policy is None or callable(policy):
        return policy
    known = jax.checkpoint_policies
    if isinstance(policy, Mapping):
        save, offload = list(policy.get("save", ())), list(policy.get("offload", ()))
        if set(policy) - {"save", "offload"} or not (save or offload):
            raise CannotChange('a policy by names is {"save": [names], "offload": [names]}')
        if not offload:
            return known.save_only_these_names(*save)
        return known.save_and_offload_only_these_names(
            names_which_can_be_saved=save,
            names_which_can_be_offloaded=offload,
            offload_src="device",
            offload_dst="pinned_host",
        )
    names = [n for n in dir(known) if not n.startswith("_") and n.endswith("able")]
    if policy not in names:
        near = difflib.get_close_matches(str(policy), names, n=3, cutoff=0.3) or names
        raise unknown_name(f"there is no policy {policy!r}; there are {', '.join(near)}")
    return getattr(known, policy)


@dataclass(frozen=True)
class _Constrain:
    sharding: NamedSharding

    def __call__(self, value: Any) -> Any:
        kinds = getattr(self.sharding.mesh, "axis_types", ())
        if kinds and all("Explicit" in str(k) for k in kinds):
            return jax.sharding.reshard(value, self.sharding)
        return jax.lax.with_sharding_constraint(value, self.sharding)


@dataclass(frozen=True)
class _Remat:
    """``said`` is the policy as it was asked for; ``static`` are arguments that are no arrays."""

    name: str
    policy: Any
    said: Any
    static: set[int] = field(default_factory=set)

    def __call__(self, inner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inner.__name__ = self.name.rpartition(".")[2]
        static = tuple(n for n, a in enumerate(args) if not _is_of_arrays(a))
        self.static.update(static)
        fixed = {k: v for k, v in kwargs.items() if not _is_of_arrays(v)}
        rest = {k: v for k, v in kwargs.items() if k not in fixed}
        if fixed:
            plain = inner

            def inner(*given: Any, **more: Any) -> Any:
                return plain(*given, **fixed, **more)

        return jax.checkpoint(inner, policy=self.policy, static_argnums=static)(*args, **rest)


@dataclass(frozen=True)
class _Cast:
    name: str
    dtype: str

    def __call__(self, inner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        wanted = jax.numpy.dtype(self.dtype)

        def narrow(x: Any) -> Any:
            dtype = getattr(x, "dtype", None)
            if dtype is None or not jax.numpy.issubdtype(dtype, jax.numpy.floating):
                return x
            return x.astype(wanted) if dtype.itemsize > wanted.itemsize else x

        types = jax.eval_shape(lambda: inner(*args, **kwargs))
        given, named = jax.tree.map(narrow, (args, kwargs))
        try:
            results = inner(*given, **named)
        except Exception as error:
            if type(error).__module__ != "flax.errors":
                raise
            raise CannotChange(
                f"{self.name} makes its submodules when it is called, which it can be only once; "
                f"Flax's modules take dtype={self.dtype} themselves",
                f"nn.Dense(…, dtype=jnp.{self.dtype})  # and the other modules of {self.name}",
            ) from error
        return jax.tree.map(lambda x, t: x.astype(t.dtype), results, types)


def _is_of_arrays(value: Any) -> bool:
    return all(hasattr(leaf, "dtype") for leaf in jax.tree.leaves(value))
