"""Changes to a program in the words that a person would put into its source.

    cap.what_if(donate="params", remat={"block": "dots_saveable"})
                └ Changes: what is asked for ┘
    changed.changes ─▶ ProgramChange("donate", "params donated", 'jax.jit(…)'), …

Words and code are made of what was asked for alone, so that a dump has them too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict


class Changes(TypedDict, total=False):
    """What ``cap.what_if`` can change; all together may be asked for at once.

    donate: names of arguments, whose memory the results may take.
    in_shardings, out_shardings: path → PartitionSpec (or a tuple), such as {"params/w1":
        P("data")}; "params/*" is all of them. Paths of results begin with "result".
    mesh, topology: as ``hs.capture`` takes them.
    axis_types: "auto" or "explicit", of all axes of the mesh.
    constrain: value → PartitionSpec. A value is that of a line, "model.py:37", of an operation of
        the StableHLO program by its number, of an instruction by its name, or an array of the
        arguments by its path or name, "params['w']", before all else that is done with it.
    remat: function → policy: a name of ``jax.checkpoint_policies``, None to save nothing, a
        function, or {"save": names} and {"offload": names}. A function that is under a checkpoint
        already gets the policy instead of its own; "*" is all of these.
    cast: function → type, such as {"block": "bfloat16"}: its arguments of a wider floating type
        are cast; its results keep their types.
    matmul_precision: as ``jax.default_matmul_precision``. x64: False turns it off.
    compiler_options: as ``Lowered.compile`` takes them, beside those there were; or the name of a
        set of them, such as "fast math", which is for the platform.
    batch: the size of the batch; batch_axes: argument → its dimension, where they cannot be found.
    sizes: other dimensions, such as the length of a scan: {12: 24} makes every dimension of 12 one
        of 24; {"params/w": {0: 24}} only dimension 0 of that argument; {"microbatches": 8} is a
        number that the function takes.
    hardware: the chip that time is modelled on.
    """

    donate: str | Sequence[str]
    in_shardings: Mapping[str, Any]
    out_shardings: Mapping[str, Any]
    mesh: Any
    topology: str
    axis_types: str
    constrain: Mapping[str | int, Any]
    remat: str | Sequence[str] | Mapping[str, Any]
    cast: Mapping[str, str]
    matmul_precision: str
    x64: bool
    compiler_options: str | Mapping[str, Any]
    batch: int
    batch_axes: Mapping[str, int]
    sizes: Mapping[str | int, Any]
    hardware: str


KINDS = tuple(Changes.__annotations__)
# These may alter what the program computes, and not only how.
MAY_ALTER = ("cast", "matmul_precision", "x64", "compiler_options")


@dataclass(frozen=True, slots=True)
class ProgramChange:
    """One change that was made: its kind, what it is in words, and the code to put into the source.

    ``line`` is "model.py:37" where the code goes there, else "".
    """

    kind: str  # a key of ``Changes``
    words: str
    code: str
    line: str = ""

    def __str__(self) -> str:
        at = f" at {self.line}" if self.line else ""
        return f"{self.words}{at}"


class CannotChange(ValueError):
    """A change that cannot be carried out: says why; ``code`` is what to paste instead."""

    def __init__(self, why: str, code: str = "") -> None:
        paste = f"\nIn the source it is:\n{code}" if code else ""
        super().__init__(why + paste)
        self.why = why
        self.code = code
        self.has_code = True

    def with_code(self, code: str) -> CannotChange:
        """The same with code to paste, if it has none and some would help."""
        return self if self.code or not self.has_code else CannotChange(self.why, code)


def unknown_name(why: str) -> CannotChange:
    """For a name that the program, jax or XLA does not know: no code would help."""
    error = CannotChange(why)
    error.has_code = False
    return error


@dataclass(frozen=True, slots=True)
class SameValues:
    """Whether a changed program computes what it did before, on random inputs.

    ``difference`` is the largest of any result, as part of that result's largest value; None if
    they were not run, and ``why_not`` says why. ``may_alter``: a change may alter values.
    """

    difference: float | None
    why_not: str = ""
    may_alter: bool = False

    def __str__(self) -> str:
        also = "; a change may alter values" if self.may_alter else ""
        if self.difference is None:
            return f"not run: {self.why_not}{also}"
        same = f"same values to {self.difference:.0e}" if self.difference else "the same values"
        if self.difference > 1e-2:
            same = f"other values: they differ by {100 * self.difference:.2g} %"
        return same + also


def names_of(given: str | Sequence[str]) -> tuple[str, ...]:
    """One name or several."""
    return (given,) if isinstance(given, str) else tuple(given)


def policies_of(given: str | Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    """Function → policy; a name alone saves nothing."""
    return dict(given) if isinstance(given, Mapping) else dict.fromkeys(names_of(given))


def spec_text(spec: Any) -> str:
    """``P("data", None)`` of a PartitionSpec, a tuple or None."""
    entries = () if spec is None else (spec,) if isinstance(spec, str) else tuple(spec)
    single = (e[0] if isinstance(e, tuple | list) and len(e) == 1 else e for e in entries)
    return f"P({', '.join(map(_quoted, single))})"


def _quoted(value: Any) -> str:
    if isinstance(value, tuple | list):
        inner = ", ".join(_quoted(v) for v in value)
        return f"({inner}{',' if len(value) == 1 else ''})"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def policy_text(policy: Any) -> str:
    """The policy as code; "" for None."""
    if policy is None:
        return ""
    if isinstance(policy, str):
        return f"jax.checkpoint_policies.{policy}"
    if isinstance(policy, Mapping):
        save, offload = (_quoted(list(policy.get(k, ()))) for k in ("save", "offload"))
        if "offload" not in policy:
            names = ", ".join(_quoted(n) for n in policy.get("save", ()))
            return f"jax.checkpoint_policies.save_only_these_names({names})"
        return (
            "jax.checkpoint_policies.save_and_offload_only_these_names(\n"
            f"    names_which_can_be_saved={save}, names_which_can_be_offloaded={offload},\n"
            '    offload_src="device", offload_dst="pinned_host")'
        )
    return getattr(policy, "__name__", "policy")


def mesh_text(mesh: Any, explicit: bool = False) -> str:
    """The mesh as code."""
    items = mesh if isinstance(mesh, Mapping) else getattr(mesh, "shape", None)
    if not isinstance(items, Mapping):
        return f"mesh = {mesh!r}"
    kind = "Explicit" if explicit else "Auto"
    return (
        f"mesh = jax.make_mesh({_quoted(tuple(items.values()))}, {_quoted(tuple(items))},\n"
        f"    axis_types=(jax.sharding.AxisType.{kind},) * {len(items)})"
    )


def described(changes: Changes, function: str = "f") -> tuple[ProgramChange, ...]:
    """The changes in words and code, as far as they are known without the program.

    Raises ``CannotChange`` for an unknown kind.
    """
    out: list[ProgramChange] = []
    for kind, value in changes.items():
        if kind not in KINDS:
            import difflib

            near = difflib.get_close_matches(kind, KINDS, n=3, cutoff=0.5)
            hint = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(KINDS)}"
            raise unknown_name(f"there is no change {kind!r}; {hint}")
        if kind != "batch_axes":
            out += _WORDS[kind](value, function)
    return tuple(out)


def _donate(given: Any, function: str) -> Iterator[ProgramChange]:
    names = names_of(given)
    quoted = ", ".join(f'"{n}"' for n in names)
    code = f"jax.jit({function}, donate_argnames=({quoted}{',' if len(names) == 1 else ''}))"
    yield ProgramChange("donate", f"{', '.join(names)} donated", code)


def _shardings(kind: str) -> Callable[[Any, str], Iterator[ProgramChange]]:
    def each(given: Any, _: str) -> Iterator[ProgramChange]:
        for spec, paths in _alike(given).items():
            each_by_name = [(path, "") for path in paths]
            for of, such in each_by_name if len(paths) <= EACH_NAMED else [_together(paths)]:
                code = f"NamedSharding(mesh, {spec})  # the sharding of {of}{such}"
                yield ProgramChange(kind, f"{of} sharded {spec}{such}", code)

    return each


def _alike(given: Mapping[Any, Any]) -> dict[str, list[str]]:
    """Spec → what gets it."""
    alike: dict[str, list[str]] = {}
    for of, spec in given.items():
        alike.setdefault(spec_text(spec), []).append(str(of))
    return alike


# More arrays of one sharding than these are counted: an optimiser's state has hundreds.
EACH_NAMED = 4


def _together(paths: list[str]) -> tuple[str, str]:
    """``231 arrays of opt_state and ema`` and ``, such as opt_state[0].mu['w']``."""
    whole = list(dict.fromkeys(re.split(r"[\[./]", path, maxsplit=1)[0] for path in paths))
    of = " and ".join(filter(None, (", ".join(whole[:-1]), whole[-1])))
    return f"{len(paths):,} arrays of {of}", f", such as {paths[0]}"


def _mesh(given: Any, _: str) -> Iterator[ProgramChange]:
    items = given if isinstance(given, Mapping) else getattr(given, "shape", given)
    said = " × ".join(f"{a} {n}" for a, n in items.items()) if isinstance(items, Mapping) else items
    yield ProgramChange("mesh", f"mesh {said}", mesh_text(given))


def _axis_types(given: str, _: str) -> Iterator[ProgramChange]:
    code = f"axis_types=(jax.sharding.AxisType.{str(given).title()},) * len(mesh.axis_names)"
    yield ProgramChange("axis_types", f"axes {given}", code + "  # of jax.make_mesh")


def _constrain(given: Any, _: str) -> Iterator[ProgramChange]:
    for spec, values in _alike(given).items():
        each = [(f"the value of {'operation ' * v.isdecimal()}{v}", "") for v in values]
        for of, such in each if len(values) <= EACH_NAMED else [_together(values)]:
            code = f"jax.lax.with_sharding_constraint(…, {spec})  # {of}{such}"
            yield ProgramChange("constrain", f"{spec} on {of}{such}", code)


def remat_code(policy: Any, static: Sequence[int] = ()) -> str:
    """The decorator. ``static``: positions of arguments that are no arrays, such as ``self``."""
    said = policy_text(policy)
    options = [f"policy={said}"] if said else []
    options += [f"static_argnums={_quoted(tuple(static))}"] if static else []
    return f"@functools.partial({', '.join(['jax.checkpoint', *options])})" if options else (
        "@jax.checkpoint"
    )  # fmt: skip


def cast_code(dtype: str) -> str:
    """A decorator that casts a function's arguments, and its results back."""
    return (
        f"def in_{dtype}(function):\n"
        "    def narrow(x):\n"
        '        if not hasattr(x, "dtype") or not jnp.issubdtype(x.dtype, jnp.floating):\n'
        "            return x\n"
        f"        is_wider = x.dtype.itemsize > jnp.dtype(jnp.{dtype}).itemsize\n"
        f"        return x.astype(jnp.{dtype}) if is_wider else x\n"
        "\n"
        "    @functools.wraps(function)\n"
        "    def narrowed(*args, **kwargs):\n"
        "        types = jax.eval_shape(lambda: function(*args, **kwargs))\n"
        "        given, named = jax.tree.map(narrow, (args, kwargs))\n"
        "        results = function(*given, **named)\n"
        "        return jax.tree.map(lambda x, t: x.astype(t.dtype), results, types)\n"
        "\n"
        "    return narrowed\n"
        "\n"
        f"@in_{dtype}"
    )


def _remat(given: Any, _: str) -> Iterator[ProgramChange]:
    for name, policy in policies_of(given).items():
        said = policy_text(policy).removeprefix("jax.checkpoint_policies.").partition("(")[0]
        words = f"{name} computed again, saving {said or 'nothing'}"
        code = f"{remat_code(policy)}\ndef {name.rpartition('.')[2]}(…):"
        if name == "*":
            words = f"checkpoints save {said or 'nothing'}"
            code = f"{remat_code(policy).removeprefix('@')}  # of each checkpoint"
        yield ProgramChange("remat", words, code)


def _cast(given: Any, _: str) -> Iterator[ProgramChange]:
    for name, dtype in given.items():
        code = f"{cast_code(dtype)}\ndef {name.rpartition('.')[2]}(…):"
        yield ProgramChange("cast", f"arguments of {name} in {dtype}", code)


def _precision(given: str, _: str) -> Iterator[ProgramChange]:
    code = f'jax.config.update("jax_default_matmul_precision", "{given}")'
    yield ProgramChange("matmul_precision", f"matmul precision {given}", code)


def _x64(given: bool, _: str) -> Iterator[ProgramChange]:
    said = "on" if given else "off"
    yield ProgramChange("x64", f"x64 {said}", f'jax.config.update("jax_enable_x64", {bool(given)})')


def _options(given: str | Mapping[str, Any], function: str) -> Iterator[ProgramChange]:
    if isinstance(given, str):  # of which platform is not known yet
        yield ProgramChange("compiler_options", f"options {given}", f'compiler_options="{given}"')
        return
    for name, value in given.items():
        code = f'jax.jit({function}, compiler_options={{"{name}": {value!r}}})'
        yield ProgramChange("compiler_options", f"{name}={value}", code)


def _topology(given: str, _: str) -> Iterator[ProgramChange]:
    yield ProgramChange("topology", f"on {given}", f'hs.capture(…, topology="{given}")')


def _batch(given: int, _: str) -> Iterator[ProgramChange]:
    yield ProgramChange("batch", f"batch {given}", f"batch_size = {given}")


def _sizes(given: Mapping[str | int, Any], _: str) -> Iterator[ProgramChange]:
    for what, size in given.items():
        if isinstance(size, Mapping):
            for axis, n in size.items():
                said = f"dimension {axis} of {what}"
                yield ProgramChange("sizes", f"{said} {n}", f"{n}  # {said}")
        elif str(what).isdecimal():
            code = f"{size}  # where dimensions are {what}"
            yield ProgramChange("sizes", f"dimensions of {what} are {size}", code)
        else:
            yield ProgramChange("sizes", f"{what} {size}", f"{what}={size!r}")


def _hardware(given: str, _: str) -> Iterator[ProgramChange]:
    yield ProgramChange("hardware", f"modelled on {given}", f'cap.hardware = "{given}"')


_WORDS: dict[str, Callable[[Any, str], Iterator[ProgramChange]]] = {
    "donate": _donate,
    "in_shardings": _shardings("in_shardings"),
    "out_shardings": _shardings("out_shardings"),
    "mesh": _mesh,
    "topology": _topology,
    "axis_types": _axis_types,
    "constrain": _constrain,
    "remat": _remat,
    "cast": _cast,
    "matmul_precision": _precision,
    "x64": _x64,
    "compiler_options": _options,
    "batch": _batch,
    "sizes": _sizes,
    "hardware": _hardware,
}
