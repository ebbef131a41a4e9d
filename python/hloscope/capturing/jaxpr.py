"""A closed jaxpr → hlo.Module of dialect "jaxpr": opcodes are primitive names.

    { lambda ; a:f32[8] b:f32[8]. let c = mul a b; d = scan[jaxpr={…}] c in (d,) }

becomes text in HLO's own form, so that everything that reads instructions reads these:

    ENTRY %main {
      %x = f32[8] parameter(0)
      %mul.1 = f32[8] mul(%x, %y), metadata={op_name="jit(f)/mul" stack_frame_id=3}
      %scan.2 = (f32[8], f32[4]) scan(%mul.1), called_computations={%scan_jaxpr.1}, length=4
      %get-tuple-element.3 = f32[8] get-tuple-element(%scan.2), index=0

An equation with several results has a tuple shape, and its users take parts of it; a
jaxpr that returns several values ends in a tuple.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from ..hlo import Computation, FrameTable, Instruction, Module, Shape, parse_shape
from .compat import jax_api as _compat

_DTYPES = {
    "bool": "pred", "int2": "s2", "int4": "s4", "int8": "s8", "int16": "s16", "int32": "s32",
    "int64": "s64", "uint2": "u2", "uint4": "u4", "uint8": "u8", "uint16": "u16",
    "uint32": "u32", "uint64": "u64", "float16": "f16", "bfloat16": "bf16", "float32": "f32",
    "float64": "f64", "complex64": "c64", "complex128": "c128", "float8_e4m3fn": "f8e4m3fn",
    "float8_e5m2": "f8e5m2", "float8_e4m3": "f8e4m3", "float8_e3m4": "f8e3m4",
    "float8_e4m3b11fnuz": "f8e4m3b11fnuz", "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e5m2fnuz": "f8e5m2fnuz", "float8_e8m0fnu": "f8e8m0fnu", "float4_e2m1fn": "f4e2m1fn",
}  # fmt: skip
_ROLES = {
    "while": {"cond_jaxpr": "condition", "body_jaxpr": "body"},
    "cond": {"branches": "branch_computations"},
    "scan": {"jaxpr": "body"},
}
_MAX_VALUE = 200
_UNSAFE = re.compile(r"[^\w.\-]+")


def to_module(closed: Any, name: str, argument_names: tuple[str, ...] = ()) -> Module:
    """The whole program, with one computation for each distinct inner jaxpr."""
    return _JaxprBuilder(argument_names).build(closed, name)


class _Body(NamedTuple):
    """A computation that is being filled, and the instruction of each variable of its jaxpr."""

    computation: Computation
    instructions: list[Instruction]
    values: dict[Any, Instruction]


class _JaxprBuilder:
    def __init__(self, argument_names: tuple[str, ...]) -> None:
        self.argument_names = argument_names
        self.computations: list[Computation] = []
        self.by_jaxpr: dict[int, str] = {}
        self.names: set[str] = set()
        self.counter = 0
        self.files: dict[str, int] = {}
        self.functions: dict[str, int] = {}
        self.locations: dict[tuple[int, int, int, int, int, int], int] = {}
        self.frames: dict[tuple[int, int], int] = {}

    def build(self, closed: Any, name: str) -> Module:
        entry_name = self.computation(closed, "main", entry=True)
        module = Module(
            name=name,
            computations=tuple(self.computations),
            entry=next(c for c in self.computations if c.name == entry_name),
            frames=FrameTable(
                tuple(self.files), tuple(self.functions), tuple(self.locations), tuple(self.frames)
            ),
            dialect="jaxpr",
        )
        module.source_text = self.write(name)
        for k, instruction in enumerate(module.instructions):
            instruction.index = k
        for k, c in enumerate(self.computations):
            c.index, c.module = k, module
        return module

    # -- one jaxpr -----------------------------------------------------------------

    def computation(self, jaxpr: Any, name: str, *, entry: bool = False) -> str:
        inner = getattr(jaxpr, "jaxpr", jaxpr)
        if id(inner) in self.by_jaxpr:
            return self.by_jaxpr[id(inner)]
        unique = self.unique(name)
        self.by_jaxpr[id(inner)] = unique
        c = Computation()
        c.name, c.is_entry, c.attribute_text, c.text_span = unique, entry, "", None
        made: list[Instruction] = []
        values: dict[Any, Instruction] = {}
        body = _Body(c, made, values)
        for k, var in enumerate(inner.invars):
            label = self.argument_names[k] if entry and k < len(self.argument_names) else str(k)
            meta = f'metadata={{op_name="{_quoted(label)}"}}' if entry else ""
            base = label if entry and label != str(k) else f"arg{k}"
            text, shape = str(k), _shape(var.aval)
            values[var] = self.add(body, base, "parameter", shape, argument=text, attributes=meta)
        consts = getattr(jaxpr, "consts", ())
        for k, var in enumerate(inner.constvars):
            text = _literal(consts[k]) if k < len(consts) else "{...}"
            values[var] = self.add(body, "const", "constant", _shape(var.aval), argument=text)
        for eqn in inner.eqns:
            self.equation(body, eqn)
        results = [self.value(body, v) for v in inner.outvars]
        if len(results) == 1 and results[0].computation is c:
            root = results[0]
        else:
            shape = _tuple_shape([r.shape for r in results])
            root = self.add(body, "tuple", "tuple", shape, tuple(results))
        root.is_root = True
        c.instructions, c.root = tuple(made), root
        c._names = None
        self.computations.append(c)
        return unique

    def equation(self, body: _Body, eqn: Any) -> None:
        opcode = eqn.primitive.name
        operands = tuple(self.value(body, v) for v in eqn.invars)
        attributes = self.parameters(eqn)
        metadata = self.metadata(eqn)
        if metadata:
            attributes.append(metadata)
        shapes = [_shape(v.aval) for v in eqn.outvars]
        shape = shapes[0] if len(shapes) == 1 else _tuple_shape(shapes)
        done = self.add(body, opcode, opcode, shape, operands, attributes=", ".join(attributes))
        if len(eqn.outvars) == 1:
            body.values[eqn.outvars[0]] = done
            return
        for k, var in enumerate(eqn.outvars):
            if type(var).__name__ == "DropVar":
                continue
            index = f"index={k}" + (f", {metadata}" if metadata else "")
            element = "get-tuple-element"
            body.values[var] = self.add(
                body, element, element, _shape(var.aval), (done,), attributes=index
            )

    def value(self, body: _Body, var: Any) -> Instruction:
        if hasattr(var, "val"):  # Literal
            text = _literal(var.val)
            return self.add(body, "literal", "constant", _shape(var.aval), argument=text)
        return body.values[var]

    def add(
        self,
        body: _Body,
        base: str,
        opcode: str,
        shape: Shape,
        operands: tuple[Instruction, ...] = (),
        *,
        argument: str = "",
        attributes: str = "",
    ) -> Instruction:
        i = Instruction.__new__(Instruction)
        i.name, i.opcode = self.unique(base), opcode
        i.shape = shape
        i.operands, i.computation, i.is_root = operands, body.computation, False
        i.argument_text = argument or ", ".join(f"%{o.name}" for o in operands)
        i.attribute_text, i.text_span = attributes, None
        i._attributes, i.index = None, 0
        body.instructions.append(i)
        return i

    def unique(self, base: str) -> str:
        name = _UNSAFE.sub("_", base).strip("_") or "value"
        while name in self.names:
            self.counter += 1
            name = f"{_UNSAFE.sub('_', base).strip('_') or 'value'}.{self.counter}"
        self.names.add(name)
        return name

    # -- what an equation says -------------------------------------------------------

    def parameters(self, eqn: Any) -> list[str]:
        """Equation parameters as attributes; jaxprs among them become computations."""
        roles = _ROLES.get(eqn.primitive.name, {})
        called: dict[str, list[str]] = {}
        plain: list[str] = []
        for key, value in eqn.params.items():
            inner = value if isinstance(value, tuple | list) else [value]
            jaxprs = [j for j in inner if _compat.is_jaxpr(j)]
            if jaxprs and len(jaxprs) == len(inner):
                label = eqn.params.get("name") if key in ("jaxpr", "call_jaxpr") else None
                base = str(label) if label else f"{eqn.primitive.name}_{key}"
                names = [self.computation(j, base) for j in jaxprs]
                called.setdefault(roles.get(key, "called_computations"), []).extend(names)
            elif value is not None:
                plain.append(f"{key}={_attribute(value)}")
        out = []
        for role, names in called.items():
            many = role in ("branch_computations", "called_computations")
            listed = ", ".join(f"%{n}" for n in names)
            out.append(f"{role}={{{listed}}}" if many else f"{role}={listed}")
        return out + plain

    def metadata(self, eqn: Any) -> str:
        stack = str(getattr(eqn.source_info, "name_stack", "") or "")
        op_name = f"{stack}/{eqn.primitive.name}" if stack else eqn.primitive.name
        frame = self.frame_id(eqn.source_info)
        tail = f" stack_frame_id={frame}" if frame else ""
        return f'metadata={{op_name="{_quoted(op_name)}"{tail}}}'

    def frame_id(self, source_info: Any) -> int:
        parent = 0
        for f in reversed(_compat.user_frames(source_info)):
            file = self.files.setdefault(str(f.file_name), len(self.files) + 1)
            function = self.functions.setdefault(str(f.function_name), len(self.functions) + 1)
            line = int(getattr(f, "start_line", 0) or getattr(f, "line_num", 0) or 0)
            end = int(getattr(f, "end_line", 0) or line)
            begin_column = int(getattr(f, "start_column", 0) or 0)
            end_column = int(getattr(f, "end_column", 0) or 0)
            row = (file, function, line, end, begin_column, end_column)
            location = self.locations.setdefault(row, len(self.locations) + 1)
            parent = self.frames.setdefault((location, parent), len(self.frames) + 1)
        return parent

    # -- text ------------------------------------------------------------------------

    def write(self, name: str) -> str:
        """The module as text; sets the byte span of each instruction and computation."""
        out = [f"jaxpr {name}\n"]
        at = len(out[0].encode())

        def put(text: str) -> tuple[int, int]:
            nonlocal at
            begin, at = at, at + len(text.encode())
            out.append(text)
            return begin, at

        for c in self.computations:
            put("\n")
            begin, _ = put(f"{'ENTRY ' if c.is_entry else ''}%{c.name} {{\n")
            for i in c.instructions:
                put("  ")
                tail = f", {i.attribute_text}" if i.attribute_text else ""
                i.text_span = put(
                    f"{'ROOT ' if i.is_root else ''}%{i.name} = {i.shape.text} "
                    f"{i.opcode}({i.argument_text}){tail}"
                )
                put("\n")
            _, end = put("}\n")
            c.text_span = (begin, end)
        return "".join(out)


def element_type(dtype: Any) -> str:
    """XLA's name of a dtype: "f32"; "opaque" for one that it has not."""
    return _DTYPES.get(str(dtype), "opaque")


def _shape(aval: Any) -> Shape:
    dtype = getattr(aval, "dtype", None)
    if dtype is None or not hasattr(aval, "shape"):
        return parse_shape("token[]" if "oken" in type(aval).__name__ else "opaque[]")
    kind = element_type(dtype)
    dims = ",".join(str(d) if isinstance(d, int | np.integer) else "?" for d in aval.shape)
    return parse_shape(f"{kind}[{dims}]")


def _tuple_shape(shapes: list[Shape]) -> Shape:
    return parse_shape("(" + ", ".join(s.text for s in shapes) + ")")


def _literal(value: Any) -> str:
    if np.ndim(value) == 0:
        text = str(value)
        return text if len(text) <= _MAX_VALUE and text.isprintable() else "{...}"
    return "{...}"


_BARE = re.compile(r"[\w.+\-]+\Z")


def _attribute(value: Any) -> str:
    """A parameter as one attribute value: bare when it is a word, else quoted and cut."""
    spec = getattr(value, "spec", None)
    text = str(value) if spec is None else _compat.spec_text(spec)
    if len(text) > _MAX_VALUE:
        text = text[:_MAX_VALUE] + "…"
    return text if _BARE.match(text) else f'"{_quoted(text)}"'


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
