"""HloInstructionProto → the attribute text XLA prints after an instruction's operands.

Two ordered parts, as in ``HloInstruction::PrintExtraAttributes``: what only this opcode
has (proto_opcodes.py), then what any instruction may have
(``AttributeTexts``): called computations, sharding, frontend attributes, control
predecessors, origin, metadata, backend config.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ...hlo.collective_kinds import KINDS
from ...hlo.parts import escape
from ...hlo.texts.regex import regex_bytes
from .context import ProtoContext, metadata_text, text_of
from .opcodes import OPCODE_ATTRIBUTES
from .shapes import shape_of
from .shardings import numbers, sharding_text

_TO_APPLY = frozenset(
    {
        *("call", "map", "reduce-window", "reduce", "scatter", "topk", "sort", "scan"),
        *(opcode for kind in KINDS.values() if kind.reduces for opcode in kind.opcodes),
    }
)


# -- what any instruction may have ----------------------------------------------------


class Written(NamedTuple):
    """The texts of details, which most instructions share with others; "" for none."""

    own: str  # what only this opcode has
    shared: str  # what any may have, after what it calls and before its metadata
    config: str
    is_plain: bool  # nothing else may stand between own, shared, metadata and config


class AttributeTexts:
    """Attribute texts of a module: those of equal details are written once."""

    def __init__(self, context: ProtoContext) -> None:
        self.context = context
        self._written: dict[bytes, Written] = {}

    def of(
        self, i: Any, details: Any, opcode: str, called: list[int] | None,
        wrapped: tuple[Any, Any, str] | None = None,
    ) -> str:  # fmt: skip
        """That of an instruction, which calls these computations.

        ``wrapped``: the instruction, its details and opcode inside an async one that is printed as
        ``slice-start`` and the like.
        """
        written = self._get(i, details, opcode)
        metadata = self.context.metadata_of(i.metadata)
        if written.is_plain and not called and wrapped is None:
            parts = [written.own, written.shared, metadata, written.config]
        else:
            parts = self._in_full(written, i, details, opcode, called, wrapped)
            parts += [metadata, written.config]
        return ", ".join([p for p in parts if p])

    def _get(self, i: Any, details: Any, opcode: str) -> Written:
        key: bytes = details.SerializeToString()
        found = self._written.get(key)
        if found is None:
            found = self._write(i, details, opcode)
            if not self.context.looked():
                self._written[key] = found
        return found

    def _write(self, i: Any, details: Any, opcode: str) -> Written:
        self.context.instruction = i
        config = details.backend_config
        if not config and details.HasField("backend_config_payload"):
            config = self.context.payload(details.backend_config_payload)
        return Written(
            ", ".join(_own(details, opcode, self.context)),
            ", ".join(_shared(details, self.context)),
            "backend_config=" + quoted_or_json(config) if config else "",
            not (
                details.control_predecessor_ids
                or details.HasField("original_value")
                or opcode.startswith("async-")
            ),
        )

    def _in_full(
        self, written: Written, i: Any, details: Any, opcode: str, called: list[int] | None,
        wrapped: tuple[Any, Any, str] | None,
    ) -> list[str]:  # fmt: skip
        """What is before the metadata, where more may be than what is written."""
        parts: list[str] = []
        if opcode.startswith("async-") and details.async_execution_thread:
            parts.append(f'async_execution_thread="{escape(details.async_execution_thread)}"')
        if wrapped is not None:
            whole, inside, inner = wrapped
            names, self.context.names = self.context.names, {}  # its own are in another computation
            of_it = self._get(whole, inside, inner)
            parts += self._calling(of_it, whole, inside, inner, list(whole.called_computation_ids))
            self.context.names = names
            parts.append(written.shared)
        else:
            parts += self._calling(written, i, details, opcode, called)
        if details.HasField("original_value"):
            parts.append("origin={" + _origin(details.original_value, shape_of(i)) + "}")
        return parts

    def _calling(
        self, written: Written, i: Any, details: Any, opcode: str, called: list[int] | None
    ) -> list[str]:
        """What is written, with what it calls and what it waits for."""
        self.context.instruction = i
        calls = _calls(called, opcode, self.context) if called else []
        self.context.looked()
        parts = [written.own, *calls, written.shared]
        if details.control_predecessor_ids:
            names = (self.context.names.get(p, str(p)) for p in details.control_predecessor_ids)
            parts.append("control-predecessors={" + ", ".join("%" + n for n in names) + "}")
        return parts


def _own(i: Any, opcode: str, context: ProtoContext) -> list[str]:
    writer = OPCODE_ATTRIBUTES.get(opcode)
    parts = writer(i, context) if writer is not None else []
    if i.HasField("result_accuracy"):
        accuracy = i.result_accuracy
        if accuracy.HasField("tolerance"):
            t = accuracy.tolerance
            inner = f"atol={t.atol:.6g},rtol={t.rtol:.6g},ulps={t.ulps}"
            parts.append("result_accuracy={tolerance={" + inner + "}}")
        elif accuracy.mode == 1:
            parts.append("result_accuracy={mode=highest}")
    return parts


def _shared(i: Any, context: ProtoContext) -> list[str]:
    parts = []
    if i.is_composite:
        parts.append("is_composite=true")
    if i.HasField("sharding"):
        parts.append("sharding=" + sharding_text(i.sharding, metadata_text))
    if i.HasField("statistics_viz") and i.statistics_viz.statistics:
        s = i.statistics_viz
        stats = [f"{text_of(x.stat_name)}={x.stat_val:.6g}" for x in s.statistics]
        shown = f"visualizing_index={s.stat_index_to_visualize}"
        parts.append("statistics={" + ",".join([shown, *stats]) + "}")
    if i.HasField("frontend_attributes") and i.frontend_attributes.map:
        parts.append("frontend_attributes=" + frontend_attributes_text(i.frontend_attributes))
    return parts


def _calls(ids: list[int], opcode: str, context: ProtoContext) -> list[str]:
    called = ["%" + context.computations.get(c, str(c)) for c in ids]
    roles: tuple[str, ...] = ()
    if opcode == "while":
        called, roles = called[::-1], ("condition", "body")
    elif opcode == "select-and-scatter":
        roles = ("select", "scatter")
    elif opcode == "conditional":
        if context.first_kind() == "pred":
            roles = ("true_computation", "false_computation")
        else:
            return ["branch_computations={" + ", ".join(called) + "}"]
    elif opcode in _TO_APPLY:
        roles = ("to_apply",)
    elif opcode == "custom-call":
        return ["called_computations={" + ", ".join(called) + "}"]
    elif opcode.startswith("async-") and opcode != "async-start":
        return []
    if roles:
        return [f"{role}={name}" for role, name in zip(roles, called, strict=False)]
    return ["calls=" + ", ".join(called)]


_JSON_TOKEN = regex_bytes(rb'[{}]|"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.S)


def quoted_or_json(value: bytes) -> str:
    """The value raw if it lexes as one JSON-like ``{…}``, otherwise quoted and escaped."""
    if value[:1] == b"{" and value[-1:] == b"}":
        depth = 0
        for m in _JSON_TOKEN.finditer(value):
            c = m.group()
            depth += 1 if c == b"{" else -1 if c == b"}" else 0
            if depth == 0:
                if m.end() == len(value):
                    return text_of(value)
                break
    return f'"{escape(value)}"'


def frontend_attributes_text(attributes: Any) -> str:
    pairs = sorted((e.key, e.value) for e in attributes.map)
    return "{" + ",".join(f"{text_of(k)}={quoted_or_json(v)}" for k, v in pairs) + "}"


def _origin(value: Any, shape: Any) -> str:
    if value.is_synthetic_call:
        return "[synthetic_call]"
    leaves = {tuple(e.shape_index): e for e in value.elements}

    def show(shape: Any, index: tuple[int, ...]) -> str:
        if shape.tuple_shapes and len(index) < 100:
            inner = (show(s, (*index, n)) for n, s in enumerate(shape.tuple_shapes))
            return "(" + ", ".join(inner) + ")"
        leaf = leaves.get(index)
        if leaf is None or not leaf.HasField("original_array"):
            return "()" if shape.element_type == 13 else "{}"
        array = leaf.original_array
        at = " {" + numbers(array.shape_index) + "}" if array.shape_index else ""
        return '{"' + text_of(array.instruction_name) + '"' + at + "}"

    return show(shape, ())
