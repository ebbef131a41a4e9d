"""HloInstructionProto → the attribute text XLA prints after an instruction's operands.

Two ordered parts, as in ``HloInstruction::PrintExtraAttributes``: what only this opcode
has (OPCODE_ATTRIBUTES, one short function an opcode), then what any may have
(``attribute_text``): called computations, sharding, frontend attributes, control
predecessors, origin, metadata, backend config.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..hlo.parts import escape
from .proto_shapes import shape_text
from .proto_shardings import numbers, replica_groups_text, sharding_text

_FFT = ("FFT", "IFFT", "RFFT", "IRFFT")
_DISTRIBUTION = ("rng_invalid", "rng_uniform", "rng_normal")
_ALGORITHM = ("rng_default", "rng_three_fry", "rng_philox")
_PRECISION = ("default", "high", "highest")
_TRANSPOSE = ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")
_PADDING_TYPE = ("PADDING_INVALID", "PADDING_VALID", "PADDING_SAME")
_SCHEDULE = ("SCHEDULE_NONE", "SCHEDULE_LATEST", "SCHEDULE_EARLIEST")
_API_VERSION = (
    "API_VERSION_UNSPECIFIED",
    "API_VERSION_ORIGINAL",
    "API_VERSION_STATUS_RETURNING",
    "API_VERSION_STATUS_RETURNING_UNIFIED",
    "API_VERSION_TYPED_FFI",
)
_DOT_ALGORITHM = (
    "unset",
    "dot_any_f8_any_f8_f32",
    "dot_any_f8_any_f8_f32_fast_accum",
    "dot_f16_f16_f16",
    "dot_f16_f16_f32",
    "dot_bf16_bf16_bf16",
    "dot_bf16_bf16_f32",
    "dot_bf16_bf16_f32_x3",
    "dot_bf16_bf16_f32_x6",
    "dot_tf32_tf32_f32",
    "dot_tf32_tf32_f32_x3",
    "dot_f32_f32_f32",
    "dot_f64_f64_f64",
    "dot_bf16_bf16_f32_x9",
)
_TO_APPLY = frozenset(
    {
        *("call", "map", "reduce-window", "reduce", "all-reduce", "reduce-scatter"),
        *("all-reduce-start", "scatter", "topk", "sort", "scan"),
    }
)


class Context:
    """What attribute text needs beyond the instruction itself."""

    def __init__(self, payloads: Any) -> None:
        self.payloads = payloads
        self.names: dict[int, str] = {}  # instruction id → name, in the open computation
        self.computations: dict[int, str] = {}  # computation id → name
        self.kinds: dict[int, str] = {}  # instruction id → element type, in the open computation
        self._metadata: dict[bytes, str] = {}

    def payload(self, payload: Any) -> bytes:
        if payload.HasField("id") and 0 <= payload.id < len(self.payloads):
            found: bytes = self.payloads[payload.id]
            return found
        value: bytes = payload.value
        return value

    def metadata(self, m: Any) -> str:
        """``op_name="…" stack_frame_id=3`` without the braces; '' when nothing is set."""
        key: bytes = m.SerializeToString()
        found = self._metadata.get(key)
        if found is None:
            found = self._metadata[key] = _metadata_text(m)
        return found


def _metadata_text(m: Any) -> str:
    parts = []
    for name in ("op_type", "op_name", "source_file"):
        value = getattr(m, name)
        if value:
            parts.append(f'{name}="{escape(value)}"')
    for name in ("source_line", "source_end_line", "source_column", "source_end_column"):
        value = getattr(m, name)
        if value:
            parts.append(f"{name}={value}")
    if m.profile_type:
        parts.append("profile_type={" + numbers(m.profile_type) + "}")
    if m.deduplicated_name:
        parts.append(f'deduplicated_name="{escape(m.deduplicated_name)}"')
    if m.scheduling_name:
        parts.append(f'scheduling_name="{escape(m.scheduling_name)}"')
    if m.stack_frame_id:
        parts.append(f"stack_frame_id={m.stack_frame_id}")
    return " ".join(parts)


# -- what any instruction may have ----------------------------------------------------


def attribute_text(i: Any, opcode: str, context: Context, wrapped: tuple[Any, str] | None) -> str:
    """``wrapped``: the instruction (and its opcode) an async one stands for, when printed
    as ``slice-start`` and the like."""
    parts: list[str] = []
    if i.async_execution_thread and opcode.startswith("async-"):
        parts.append(f'async_execution_thread="{escape(i.async_execution_thread)}"')
    if wrapped is not None:
        inner = Context(context.payloads)
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


def _own(i: Any, opcode: str, context: Context) -> list[str]:
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


def _shared(i: Any, opcode: str, context: Context) -> list[str]:
    parts = _calls(i, opcode, context) if i.called_computation_ids and opcode else []
    if i.HasField("sharding"):
        parts.append("sharding=" + sharding_text(i.sharding, context.metadata))
    if i.HasField("frontend_attributes") and i.frontend_attributes.map:
        parts.append("frontend_attributes=" + frontend_attributes_text(i.frontend_attributes))
    if i.is_composite:
        parts.append("is_composite=true")
    if i.control_predecessor_ids and opcode:
        names = (context.names.get(p, str(p)) for p in i.control_predecessor_ids)
        parts.append("control-predecessors={" + ", ".join("%" + n for n in names) + "}")
    if i.HasField("statistics_viz") and i.statistics_viz.statistics:
        s = i.statistics_viz
        stats = [f"{_text(x.stat_name)}={x.stat_val:.6g}" for x in s.statistics]
        shown = f"visualizing_index={s.stat_index_to_visualize}"
        parts.append("statistics={" + ",".join([shown, *stats]) + "}")
    return parts


def _calls(i: Any, opcode: str, context: Context) -> list[str]:
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


_JSON_TOKEN = re.compile(rb'[{}]|"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.S)


def quoted_or_json(value: bytes) -> str:
    """Raw when the value lexes as one JSON-like ``{…}``, else quoted and escaped."""
    if value[:1] == b"{" and value[-1:] == b"}":
        depth = 0
        for m in _JSON_TOKEN.finditer(value):
            c = m.group()
            depth += 1 if c == b"{" else -1 if c == b"}" else 0
            if depth == 0:
                if m.end() == len(value):
                    return _text(value)
                break
    return f'"{escape(value)}"'


def frontend_attributes_text(attributes: Any) -> str:
    pairs = sorted((e.key, e.value) for e in attributes.map)
    return "{" + ",".join(f"{_text(k)}={quoted_or_json(v)}" for k, v in pairs) + "}"


def _text(value: bytes) -> str:
    return value.decode("utf-8", errors="replace")


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
        return '{"' + _text(array.instruction_name) + '"' + at + "}"

    return show(shape, ())


# -- what only one opcode has ---------------------------------------------------------

Writer = Callable[[Any, Context], list[str]]


def _dimensions(i: Any, c: Context) -> list[str]:
    return ["dimensions={" + numbers(i.dimensions) + "}"]


def _flag(name: str, value: bool) -> list[str]:
    return [f"{name}=true"] if value else []


def _precision(config: Any) -> list[str]:
    parts = []
    if any(config.operand_precision):
        names = (_name(_PRECISION, p) for p in config.operand_precision)
        parts.append("operand_precision={" + ",".join(names) + "}")
    if config.algorithm:
        parts.append(f"algorithm={_name(_DOT_ALGORITHM, config.algorithm)}")
    return parts


def _name(names: tuple[str, ...], value: int) -> str:
    return names[value] if 0 <= value < len(names) else str(value)


def _dot_dimensions(d: Any) -> list[str]:
    parts = []
    for side in ("lhs", "rhs"):
        batch = getattr(d, f"{side}_batch_dimensions")
        if batch:
            parts.append(f"{side}_batch_dims={{{numbers(batch)}}}")
        parts.append(
            f"{side}_contracting_dims={{{numbers(getattr(d, f'{side}_contracting_dimensions'))}}}"
        )
    return parts


def _dot(i: Any, c: Context) -> list[str]:
    return _dot_dimensions(i.dot_dimension_numbers) + _precision(i.precision_config)


def _ragged_dot(i: Any, c: Context) -> list[str]:
    d = i.ragged_dot_dimension_numbers
    parts = _dot_dimensions(d.dot_dimension_numbers)
    parts.append("lhs_ragged_dims={" + numbers(d.lhs_ragged_dimensions) + "}")
    if d.rhs_group_dimensions:
        parts.append("rhs_group_dims={" + numbers(d.rhs_group_dimensions) + "}")
    return parts + _precision(i.precision_config)


def _window(i: Any) -> list[str]:
    dims = i.window.dimensions
    if not dims:
        return []
    parts = ["size=" + "x".join(str(d.size) for d in dims)]
    if any(d.stride != 1 for d in dims):
        parts.append("stride=" + "x".join(str(d.stride) for d in dims))
    if any(d.padding_low or d.padding_high for d in dims):
        parts.append("pad=" + "x".join(f"{d.padding_low}_{d.padding_high}" for d in dims))
    if any(d.base_dilation != 1 for d in dims):
        parts.append("lhs_dilate=" + "x".join(str(d.base_dilation) for d in dims))
    if any(d.window_dilation != 1 for d in dims):
        parts.append("rhs_dilate=" + "x".join(str(d.window_dilation) for d in dims))
    if any(d.window_reversal for d in dims):
        parts.append("rhs_reversal=" + "x".join(str(int(d.window_reversal)) for d in dims))
    return ["window={" + " ".join(parts) + "}"]


def _dim_labels(d: Any) -> str:
    def labels(first: tuple[int, str], second: tuple[int, str], spatial: Any) -> str:
        where = {first[0]: first[1], second[0]: second[1]}
        where.update({p: str(n) for n, p in enumerate(spatial)})
        size = min(max(where, default=-1) + 1, 64)
        return "".join(where.get(p, "?") for p in range(size))

    lhs = labels(
        (d.input_batch_dimension, "b"), (d.input_feature_dimension, "f"), d.input_spatial_dimensions
    )
    rhs = labels(
        (d.kernel_input_feature_dimension, "i"),
        (d.kernel_output_feature_dimension, "o"),
        d.kernel_spatial_dimensions,
    )
    out = labels(
        (d.output_batch_dimension, "b"),
        (d.output_feature_dimension, "f"),
        d.output_spatial_dimensions,
    )
    return f"dim_labels={lhs}_{rhs}->{out}"


def _convolution(i: Any, c: Context) -> list[str]:
    parts = _window(i)
    if i.HasField("convolution_dimension_numbers"):
        parts.append(_dim_labels(i.convolution_dimension_numbers))
    if i.feature_group_count > 1:
        parts.append(f"feature_group_count={i.feature_group_count}")
    if i.batch_group_count > 1:
        parts.append(f"batch_group_count={i.batch_group_count}")
    return parts + _precision(i.precision_config)


def _output_aliasing(i: Any) -> list[str]:
    if not i.output_operand_aliasing:
        return []
    pairs = (
        f"{{{numbers(a.output_shape_index)}}}: "
        f"({a.operand_index}, {{{numbers(a.operand_shape_index)}}})"
        for a in i.output_operand_aliasing
    )
    return ["output_to_operand_aliasing={" + ", ".join(pairs) + "}"]


def _custom_call(i: Any, c: Context) -> list[str]:
    parts = _convolution(i, c)
    if i.padding_type:
        parts.append(f"padding_type={_name(_PADDING_TYPE, i.padding_type)}")
    parts.append(f'custom_call_target="{escape(i.custom_call_target)}"')
    if i.constrain_layout:
        shapes = [shape_text(s) for s in i.operand_shapes_with_layout]
        parts.append("operand_layout_constraints={" + ", ".join(shapes) + "}")
    parts += _flag("custom_call_has_side_effect", i.custom_call_has_side_effect)
    if i.HasField("literal"):
        from .proto_literals import literal_text

        kind = shape_text(i.literal.shape)
        parts.append(f"literal={kind} {literal_text(i.literal)}")
    parts += _output_aliasing(i)
    if i.custom_call_schedule:
        parts.append(f"schedule={_name(_SCHEDULE, i.custom_call_schedule)}")
    if i.custom_call_api_version > 1:
        parts.append(f"api_version={_name(_API_VERSION, i.custom_call_api_version)}")
    return parts


def _fusion(i: Any, c: Context) -> list[str]:
    return [f"kind={_text(i.fusion_kind)}", *_output_aliasing(i)]


def _channel(i: Any) -> list[str]:
    return [f"channel_id={i.channel_id}"] if i.channel_id > 0 else []


def _collective(i: Any, dimensions: bool = False, dimensions_first: bool = True) -> list[str]:
    parts = [*_channel(i), "replica_groups=" + replica_groups_text(i)]
    parts += _flag("constrain_layout", i.constrain_layout)
    own = ["dimensions={" + numbers(i.dimensions) + "}"] if dimensions and i.dimensions else []
    use = _flag("use_global_device_ids", i.use_global_device_ids)
    return parts + (own + use if dimensions_first else use + own)


def _permute(i: Any, c: Context) -> list[str]:
    pairs = ",".join(f"{{{p.source},{p.target}}}" for p in i.source_target_pairs)
    parts = [*_channel(i), "source_target_pairs={" + pairs + "}"]
    if i.dynamic_slice_sizes:
        parts.append("slice_sizes={" + numbers(i.dynamic_slice_sizes) + "}")
    return parts


def _send_receive(i: Any, c: Context) -> list[str]:
    return _channel(i) + _flag("is_host_transfer", i.is_host_transfer)


_TOTAL = {"s": "SIGNED", "u": "UNSIGNED", "p": "UNSIGNED"}


def _compare(i: Any, c: Context) -> list[str]:
    parts = [f"direction={_text(i.comparison_direction)}"]
    kind = c.kinds.get(i.operand_ids[0], "") if i.operand_ids else ""
    usual = _TOTAL.get(kind[:1], "FLOAT")
    chosen = _text(i.comparison_type)
    if chosen and chosen != usual:
        parts.append(f"type={chosen}")
    return parts


def _slice(i: Any, c: Context) -> list[str]:
    strided = any(s.stride != 1 for s in i.slice_dimensions)
    dims = (
        f"[{s.start}:{s.limit}" + (f":{s.stride}]" if strided else "]") for s in i.slice_dimensions
    )
    return ["slice={" + ", ".join(dims) + "}"]


def _pad(i: Any, c: Context) -> list[str]:
    dims = i.padding_config.dimensions
    inner = any(d.interior_padding for d in dims)
    texts = (
        f"{d.edge_padding_low}_{d.edge_padding_high}" + (f"_{d.interior_padding}" if inner else "")
        for d in dims
    )
    return ["padding=" + "x".join(texts)]


def _sets(message: Any, *names: str, optional: tuple[str, ...] = ()) -> list[str]:
    return [
        f"{n}={{{numbers(getattr(message, n))}}}"
        for n in names
        if n not in optional or getattr(message, n)
    ]


def _gather(i: Any, c: Context) -> list[str]:
    d = i.gather_dimension_numbers
    batching = ("operand_batching_dims", "start_indices_batching_dims")
    parts = _sets(
        d, "offset_dims", "collapsed_slice_dims", "start_index_map", *batching, optional=batching
    )
    parts.append(f"index_vector_dim={d.index_vector_dim}")
    parts.append("slice_sizes={" + numbers(i.gather_slice_sizes) + "}")
    return parts + _flag("indices_are_sorted", i.indices_are_sorted)


def _scatter(i: Any, c: Context) -> list[str]:
    d = i.scatter_dimension_numbers
    batching = ("input_batching_dims", "scatter_indices_batching_dims")
    parts = _sets(
        d,
        *("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims"),
        *batching,
        optional=batching,
    )
    parts.append(f"index_vector_dim={d.index_vector_dim}")
    parts += _flag("indices_are_sorted", i.indices_are_sorted)
    return parts + _flag("unique_indices", i.unique_indices)


def _triangular_solve(i: Any, c: Context) -> list[str]:
    o = i.triangular_solve_options
    parts = _flag("left_side", o.left_side) + _flag("lower", o.lower)
    parts += _flag("unit_diagonal", o.unit_diagonal)
    if o.transpose_a:
        parts.append(f"transpose_a={_name(_TRANSPOSE, o.transpose_a)}")
    return parts


def _parameter(i: Any, c: Context) -> list[str]:
    if not i.HasField("parameter_replication"):
        return []
    flags = i.parameter_replication.replicated_at_leaf_buffers
    if not flags:
        return []
    return ["parameter_replication={" + ",".join("true" if f else "false" for f in flags) + "}"]


def _copy_start(i: Any, c: Context) -> list[str]:
    if i.HasField("cross_program_prefetch_index"):
        return [f"cross_program_prefetch_index={i.cross_program_prefetch_index}"]
    return _flag("is_cross_program_prefetch", i.is_cross_program_prefetch)


def _domain(i: Any, c: Context) -> list[str]:
    # XLA prints the user's side as entry and the operand's side as exit.
    entry = sharding_text(i.domain_exit_sharding, c.metadata)
    leave = sharding_text(i.domain_entry_sharding, c.metadata)
    return [f'domain={{kind="sharding", entry={entry}, exit={leave}}}']


def _outfeed(i: Any, c: Context) -> list[str]:
    parts = []
    if i.HasField("outfeed_shape"):
        parts.append(f"outfeed_shape={shape_text(i.outfeed_shape)}")
    if i.outfeed_config:
        parts.append(f'outfeed_config="{escape(i.outfeed_config)}"')
    return parts


def _batch_norm(i: Any, c: Context) -> list[str]:
    return [f"epsilon={i.epsilon:.6g}", f"feature_index={i.feature_index}"]


OPCODE_ATTRIBUTES: dict[str, Writer] = {
    "all-gather": lambda i, c: _collective(i, dimensions=True),
    "all-gather-start": lambda i, c: _collective(i, dimensions=True),
    "all-reduce": lambda i, c: _collective(i),
    "all-reduce-start": lambda i, c: _collective(i),
    "all-to-all": lambda i, c: _collective(i, dimensions=True),
    "batch-norm-grad": _batch_norm,
    "batch-norm-inference": _batch_norm,
    "batch-norm-training": _batch_norm,
    "broadcast": _dimensions,
    "cholesky": lambda i, c: _flag("lower", i.cholesky_options.lower),
    "collective-broadcast": lambda i, c: _collective(i),
    "collective-permute": _permute,
    "collective-permute-start": _permute,
    "compare": _compare,
    "concatenate": _dimensions,
    "convolution": _convolution,
    "copy-start": _copy_start,
    "custom-call": _custom_call,
    "domain": _domain,
    "dot": _dot,
    "dynamic-slice": lambda i, c: ["dynamic_slice_sizes={" + numbers(i.dynamic_slice_sizes) + "}"],
    "fft": lambda i, c: [
        f"fft_type={_name(_FFT, i.fft_type)}",
        "fft_length={" + numbers(i.fft_length) + "}",
    ],
    "fusion": _fusion,
    "gather": _gather,
    "get-dimension-size": _dimensions,
    "get-tuple-element": lambda i, c: [f"index={i.tuple_index}"],
    "infeed": lambda i, c: (
        [f'infeed_config="{escape(i.infeed_config)}"'] if i.infeed_config else []
    ),
    "iota": lambda i, c: ["iota_dimension=" + numbers(i.dimensions)],
    "map": _dimensions,
    "outfeed": _outfeed,
    "pad": _pad,
    "parameter": _parameter,
    "ragged-all-to-all": lambda i, c: _collective(i),
    "ragged-dot": _ragged_dot,
    "recv": _send_receive,
    "recv-done": _send_receive,
    "reduce": _dimensions,
    "reduce-precision": lambda i, c: [
        f"exponent_bits={i.exponent_bits}",
        f"mantissa_bits={i.mantissa_bits}",
    ],
    "reduce-scatter": lambda i, c: _collective(i, dimensions=True, dimensions_first=False),
    "reduce-window": lambda i, c: _window(i),
    "reverse": _dimensions,
    "rng": lambda i, c: [f"distribution={_name(_DISTRIBUTION, i.distribution)}"],
    "rng-bit-generator": lambda i, c: [f"algorithm={_name(_ALGORITHM, i.rng_algorithm)}"],
    "rng-get-and-update-state": lambda i, c: [f"delta={i.delta}"],
    "scatter": _scatter,
    "select-and-scatter": lambda i, c: _window(i),
    "send": _send_receive,
    "send-done": _send_receive,
    "set-dimension-size": _dimensions,
    "slice": _slice,
    "sort": lambda i, c: _dimensions(i, c) + _flag("is_stable", i.is_stable),
    "topk": lambda i, c: [f"k={i.k}", f"largest={'true' if i.largest else 'false'}"],
    "transpose": _dimensions,
    "triangular-solve": _triangular_solve,
}
