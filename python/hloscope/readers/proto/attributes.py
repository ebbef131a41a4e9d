"""HloInstructionProto → the attribute text XLA prints after an instruction's operands.

Two ordered parts, as in ``HloInstruction::PrintExtraAttributes``: what only this opcode
has (proto_opcodes.py), then what any instruction may have
(``attribute_text``): called computations, sharding, frontend attributes, control
predecessors, origin, metadata, backend config.
"""

from __future__ import annotations

import re
from typing import Any

from ...hlo.collective_kinds import KINDS
from ...hlo.parts import escape
from ...hlo.texts.regex import regex_bytes
from .context import ProtoContext, text_of
from .opcodes import OPCODE_ATTRIBUTES
from .shardings import numbers, sharding_text

_TO_APPLY = frozenset(
    {
        *("call", "map", "reduce-window", "reduce", "scatter", "topk", "sort", "scan"),
        *(opcode for kind in KINDS.values() if kind.reduces for opcode in kind.opcodes),
    }
)


# -- what any instruction may have ----------------------------------------------------


def attribute_text(
    i: Any, opcode: str, context: ProtoContext, wrapped: tuple[Any, str] | None
) -> str:
    """The attribute text of an instruction. ``wrapped``: the instruction (and its opcode) inside an
    async one that is printed as ``slice-start`` and the like."""
    parts: list[str] = []
    if opcode.startswith("async-") and i.async_execution_thread:
        parts.append(f'async_execution_thread="{escape(i.async_execution_thread)}"')
    if wrapped is not None:
        inner = ProtoContext(context.payloads)
        inner.computations = context.computations
        inner.kinds = context.kinds
        parts += _own(wrapped[0], wrapped[1], inner)
        parts += _shared(wrapped[0], wrapped[1], inner)
        parts += _shared(i, "", context)
    else:
        parts += _own(i, opcode, context)
        parts += _shared(i, opcode, context)
    if i.HasField("original_value"):
        parts.append("origin={" + _origin(i.original_value, i.shape) + "}")
    if i.HasField("metadata"):
        text = context.metadata(i.metadata)
        if text:
            parts.append("metadata={" + text + "}")
    config = i.backend_config
    if not config and i.HasField("backend_config_payload"):
        config = context.payload(i.backend_config_payload)
    if config:
        parts.append("backend_config=" + quoted_or_json(config))
    return ", ".join(parts)


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


def _shared(i: Any, opcode: str, context: ProtoContext) -> list[str]:
    parts = _calls(i, opcode, context) if i.called_computation_ids and opcode else []
    if i.is_composite:
        parts.append("is_composite=true")
    if i.HasField("sharding"):
        parts.append("sharding=" + sharding_text(i.sharding, context.metadata))
    if i.HasField("statistics_viz") and i.statistics_viz.statistics:
        s = i.statistics_viz
        stats = [f"{text_of(x.stat_name)}={x.stat_val:.6g}" for x in s.statistics]
        shown = f"visualizing_index={s.stat_index_to_visualize}"
        parts.append("statistics={" + ",".join([shown, *stats]) + "}")
    if i.HasField("frontend_attributes") and i.frontend_attributes.map:
        parts.append("frontend_attributes=" + frontend_attributes_text(i.frontend_attributes))
    if i.control_predecessor_ids and opcode:
        names = (context.names.get(p, str(p)) for p in i.control_predecessor_ids)
        parts.append("control-predecessors={" + ", ".join("%" + n for n in names) + "}")
    return parts


def _calls(i: Any, opcode: str, context: ProtoContext) -> list[str]:
    called = ["%" + context.computations.get(c, str(c)) for c in i.called_computation_ids]
    roles: tuple[str, ...] = ()
    if opcode == "while":
        called, roles = called[::-1], ("condition", "body")
    elif opcode == "select-and-scatter":
        roles = ("select", "scatter")
    elif opcode == "conditional":
        if i.operand_ids and context.kinds.get(i.operand_ids[0]) == "pred":
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
