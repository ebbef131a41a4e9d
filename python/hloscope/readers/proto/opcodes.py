"""The attributes that only one opcode has, in the order and spelling of XLA's printer.

OPCODE_ATTRIBUTES is the list: one short function per opcode, of an instruction's ``Details``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...hlo.parts import escape
from .context import ProtoContext, metadata_text, text_of
from .literals import literal_text
from .shapes import shape_of, shape_text
from .shardings import numbers, replica_groups_text, sharding_text

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

Writer = Callable[[Any, ProtoContext], list[str]]


def _dimensions(i: Any, c: ProtoContext) -> list[str]:
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


def _dot(i: Any, c: ProtoContext) -> list[str]:
    return _dot_dimensions(i.dot_dimension_numbers) + _precision(i.precision_config)


def _ragged_dot(i: Any, c: ProtoContext) -> list[str]:
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
        size = min(max(where) + 1, 64)
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


def _convolution(i: Any, c: ProtoContext) -> list[str]:
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


def _custom_call(i: Any, c: ProtoContext) -> list[str]:
    parts = _convolution(i, c)
    if i.padding_type:
        parts.append(f"padding_type={_name(_PADDING_TYPE, i.padding_type)}")
    parts.append(f'custom_call_target="{escape(i.custom_call_target)}"')
    if i.constrain_layout:
        shapes = [shape_text(s) for s in i.operand_shapes_with_layout]
        parts.append("operand_layout_constraints={" + ", ".join(shapes) + "}")
    parts += _flag("custom_call_has_side_effect", i.custom_call_has_side_effect)
    if c.whole().HasField("literal"):
        literal = c.whole().literal
        parts.append(f"literal={shape_text(literal.shape)} {literal_text(literal)}")
    parts += _output_aliasing(i)
    if i.custom_call_schedule:
        parts.append(f"schedule={_name(_SCHEDULE, i.custom_call_schedule)}")
    if i.custom_call_api_version > 1:
        parts.append(f"api_version={_name(_API_VERSION, i.custom_call_api_version)}")
    return parts


def _fusion(i: Any, c: ProtoContext) -> list[str]:
    return [f"kind={text_of(i.fusion_kind)}", *_output_aliasing(i)]


def _channel(i: Any) -> list[str]:
    return [f"channel_id={i.channel_id}"] if i.channel_id > 0 else []


def _collective(i: Any, dimensions: bool = False, dimensions_first: bool = True) -> list[str]:
    parts = [*_channel(i), "replica_groups=" + replica_groups_text(i)]
    parts += _flag("constrain_layout", i.constrain_layout)
    own = ["dimensions={" + numbers(i.dimensions) + "}"] if dimensions and i.dimensions else []
    use = _flag("use_global_device_ids", i.use_global_device_ids)
    return parts + (own + use if dimensions_first else use + own)


def _permute(i: Any, c: ProtoContext) -> list[str]:
    pairs = ",".join(f"{{{p.source},{p.target}}}" for p in i.source_target_pairs)
    parts = [*_channel(i), "source_target_pairs={" + pairs + "}"]
    sizes = list(i.dynamic_slice_sizes)
    if sizes:  # the sizes of each part that is sent, one after another
        rank = len(_first_array(shape_of(c.whole())).dimensions) or len(sizes)
        lists = (sizes[k : k + rank] for k in range(0, len(sizes), rank))
        parts.append("slice_sizes={" + ",".join(f"{{{numbers(x)}}}" for x in lists) + "}")
    return parts


def _first_array(shape: Any) -> Any:
    while shape.tuple_shapes:
        shape = shape.tuple_shapes[0]
    return shape


def _reshape(i: Any, c: ProtoContext) -> list[str]:
    return [f"inferred_dimension={i.dimensions[0]}"] if i.dimensions else []


def _send_receive(i: Any, c: ProtoContext) -> list[str]:
    return _channel(i) + _flag("is_host_transfer", i.is_host_transfer)


_TOTAL = {"s": "SIGNED", "u": "UNSIGNED", "p": "UNSIGNED"}


def _compare(i: Any, c: ProtoContext) -> list[str]:
    parts = [f"direction={text_of(i.comparison_direction)}"]
    chosen = text_of(i.comparison_type)
    if chosen and chosen != _TOTAL.get(c.first_kind()[:1], "FLOAT"):
        parts.append(f"type={chosen}")
    return parts


def _slice(i: Any, c: ProtoContext) -> list[str]:
    strided = any(s.stride != 1 for s in i.slice_dimensions)
    dims = (
        f"[{s.start}:{s.limit}" + (f":{s.stride}]" if strided else "]") for s in i.slice_dimensions
    )
    return ["slice={" + ", ".join(dims) + "}"]


def _pad(i: Any, c: ProtoContext) -> list[str]:
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


def _gather(i: Any, c: ProtoContext) -> list[str]:
    d = i.gather_dimension_numbers
    batching = ("operand_batching_dims", "start_indices_batching_dims")
    parts = _sets(
        d, "offset_dims", "collapsed_slice_dims", "start_index_map", *batching, optional=batching
    )
    parts.append(f"index_vector_dim={d.index_vector_dim}")
    parts.append("slice_sizes={" + numbers(i.gather_slice_sizes) + "}")
    return parts + _flag("indices_are_sorted", i.indices_are_sorted)


def _scatter(i: Any, c: ProtoContext) -> list[str]:
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


def _triangular_solve(i: Any, c: ProtoContext) -> list[str]:
    o = i.triangular_solve_options
    parts = _flag("left_side", o.left_side) + _flag("lower", o.lower)
    parts += _flag("unit_diagonal", o.unit_diagonal)
    if o.transpose_a:
        parts.append(f"transpose_a={_name(_TRANSPOSE, o.transpose_a)}")
    return parts


def _parameter(i: Any, c: ProtoContext) -> list[str]:
    if not i.HasField("parameter_replication"):
        return []
    flags = i.parameter_replication.replicated_at_leaf_buffers
    if not flags:
        return []
    return ["parameter_replication={" + ",".join("true" if f else "false" for f in flags) + "}"]


def _copy_start(i: Any, c: ProtoContext) -> list[str]:
    if i.HasField("cross_program_prefetch_index"):
        return [f"cross_program_prefetch_index={i.cross_program_prefetch_index}"]
    return _flag("is_cross_program_prefetch", i.is_cross_program_prefetch)


def _domain(i: Any, c: ProtoContext) -> list[str]:
    # XLA prints the user's side as entry and the operand's side as exit.
    entry = sharding_text(i.domain_exit_sharding, metadata_text)
    leave = sharding_text(i.domain_entry_sharding, metadata_text)
    return [f'domain={{kind="sharding", entry={entry}, exit={leave}}}']


def _outfeed(i: Any, c: ProtoContext) -> list[str]:
    parts = []
    if i.HasField("outfeed_shape"):
        parts.append(f"outfeed_shape={shape_text(i.outfeed_shape)}")
    if i.outfeed_config:
        parts.append(f'outfeed_config="{escape(i.outfeed_config)}"')
    return parts


def _batch_norm(i: Any, c: ProtoContext) -> list[str]:
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
    "reshape": _reshape,
    "reverse": _dimensions,
    "rng": lambda i, c: [f"distribution={_name(_DISTRIBUTION, i.distribution)}"],
    "rng-bit-generator": lambda i, c: [f"algorithm={_name(_ALGORITHM, i.rng_algorithm)}"],
    "rng-get-and-update-state": lambda i, c: [f"delta={i.delta}"],
    "scaled-dot": _dot,
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
