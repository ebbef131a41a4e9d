"""The part of XLA's protobuf schema that we read, built at run time in a pool of its own.

No generated code: that would tie us to one protobuf version, and registering ``xla.*``
names in the default pool clashes with TensorFlow's. Field numbers are those of
``xla/service/hlo.proto`` and ``xla/xla_data.proto``, the last ones of pprof's ``profile.proto``.
Three liberties, all wire-compatible:

* strings are declared ``bytes``, so a damaged dump cannot fail on invalid UTF-8;
* enums are ``int``, so a value newer than this table is kept;
* proto2 presence, so that "absent" and "zero" can be distinguished.

One line per message: ``Name: field type number, …``; ``*`` marks a repeated field. Instructions
are read as ``OwnInstruction`` and as ``DetailsInstruction``, which many have in common.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported when a proto is read: most files are text
    from google.protobuf import descriptor_pb2, descriptor_pool

    Which = Callable[[descriptor_pb2.FieldDescriptorProto], bool]

PACKAGE = "hloscope.xla"

_SCHEMA = """
Tile: dimensions *int 1
SplitConfig: dimension int 1, split_indices *int 2
Layout: minor_to_major *int 1, tiles *Tile 6, element_size_in_bits int 7, memory_space int 8
  dim_level_types *int 9, physical_shape Shape 10, index_primitive_type int 11
  pointer_primitive_type int 12, dim_unique *bool 13, dim_ordered *bool 14
  dynamic_shape_metadata_prefix_bytes int 15, tail_padding_alignment_in_elements int 16
  split_configs *SplitConfig 17
Shape: element_type int 2, dimensions *int 3, tuple_shapes *Shape 4, layout Layout 5
  is_dynamic_dimension *bool 6
ProgramShape: parameters *Shape 1, result Shape 2, parameter_names *bytes 3
Payload: value bytes 1, id int 2
OpMetadata: op_type bytes 1, op_name bytes 2, source_file bytes 3, source_line int 4
  profile_type *int 5, deduplicated_name bytes 12, stack_frame_id int 15
  scheduling_name bytes 16, source_end_line int 17, source_column int 18
  source_end_column int 19, metadata_payload Payload 20
Literal: shape Shape 1, preds *bool 2, u8s bytes 3, s32s *int32 4, s64s *int 5
  u32s *uint32 6, u64s *uint64 7, f32s *float 8, f64s *double 9, tuple_literals *Literal 10
  f16s bytes 11, c64s *float 12, bf16s bytes 13, s8s bytes 15, u16s bytes 16, s16s bytes 17
  c128s *double 18, f8e5m2s bytes 19, f8e4m3fns bytes 20, s4s bytes 21, u4s bytes 22
  f8e4m3b11fnuzs bytes 23, f8e5m2fnuzs bytes 24, f8e4m3fnuzs bytes 25, s2s bytes 26
  u2s bytes 27, f8e4m3s bytes 28, f8e3m4s bytes 29, s1s bytes 30, u1s bytes 31
  f4e2m1fns bytes 32, f8e8m0fnus bytes 33
WindowDimension: size int 1, stride int 2, padding_low int 3, padding_high int 4
  window_dilation int 5, base_dilation int 6, window_reversal bool 7
Window: dimensions *WindowDimension 1
Convolution: kernel_input_feature_dimension int 3, kernel_output_feature_dimension int 4
  kernel_spatial_dimensions *int 6, input_batch_dimension int 7
  input_feature_dimension int 8, output_batch_dimension int 9
  output_feature_dimension int 10, input_spatial_dimensions *int 11
  output_spatial_dimensions *int 12
SliceDimensions: start int 1, limit int 2, stride int 3
PaddingDimension: edge_padding_low int 1, edge_padding_high int 2, interior_padding int 3
Padding: dimensions *PaddingDimension 1
Dot: lhs_contracting_dimensions *int 1, rhs_contracting_dimensions *int 2
  lhs_batch_dimensions *int 3, rhs_batch_dimensions *int 4
RaggedDot: dot_dimension_numbers Dot 1, lhs_ragged_dimensions *int 2
  rhs_group_dimensions *int 3
Gather: offset_dims *int 1, collapsed_slice_dims *int 2, start_index_map *int 3
  index_vector_dim int 4, operand_batching_dims *int 5, start_indices_batching_dims *int 6
Scatter: update_window_dims *int 1, inserted_window_dims *int 2
  scatter_dims_to_operand_dims *int 3, index_vector_dim int 4, input_batching_dims *int 5
  scatter_indices_batching_dims *int 6
TriangularSolve: left_side bool 1, lower bool 2, unit_diagonal bool 3, transpose_a int 4
Cholesky: lower bool 1
MapEntry: key bytes 1, value bytes 2
FrontendAttributes: map *MapEntry 1
Statistic: stat_name bytes 1, stat_val double 2
StatisticsViz: stat_index_to_visualize int 1, statistics *Statistic 2
MeshAxis: name bytes 1, size int 2
IotaTransform: reshape_dims *int 1, transpose_perm *int 2
Mesh: axes *MeshAxis 1, device_ids *int 2, iota_transform IotaTransform 3
SubAxis: pre_size int 1, size int 2
AxisRef: mesh_axis_index int 1, sub_axis_info SubAxis 2
DimensionSharding: axes *AxisRef 1, is_closed bool 2
NamedSharding: mesh Mesh 2, dim_shardings *DimensionSharding 3, replicated_axes *AxisRef 4
  unreduced_axes *AxisRef 5, metadata *OpMetadata 6, manual_axes *AxisRef 7
OpSharding: type int 1, tile_shape Shape 2, tile_assignment_dimensions *int 3
  tile_assignment_devices *int 4, tuple_shardings *OpSharding 5
  replicate_on_last_tile_dim bool 6, metadata *OpMetadata 7, last_tile_dims *int 8
  iota_reshape_dims *int 9, iota_transpose_perm *int 10, is_shard_group bool 11
  shard_group_id int 12, shard_group_type int 13, named_sharding NamedSharding 14
ReplicaGroup: replica_ids *int 1
DeviceList: replica_groups *ReplicaGroup 1
IotaGroups: num_replica_groups int 1, num_devices_per_group int 2, iota_reshape_dims *int 3
  iota_transpose_perm *int 4
MeshGroups: mesh Mesh 1, axes *AxisRef 2
SourceTarget: source int 1, target int 2
Precision: operand_precision *int 1, algorithm int 2
ParameterReplication: replicated_at_leaf_buffers *bool 1
OutputAliasing: output_shape_index *int 1, operand_index int 2, operand_shape_index *int 3
OriginalArray: instruction_name bytes 1, shape_index *int 2
OriginalElement: shape_index *int 1, original_array OriginalArray 2
OriginalValue: elements *OriginalElement 1, is_synthetic_call bool 2
Tolerance: atol double 1, rtol double 2, ulps int 3
ResultAccuracy: mode int 1, tolerance Tolerance 2
Instruction: name bytes 1, opcode bytes 2, shape Shape 3, metadata OpMetadata 7
  literal Literal 8, parameter_number int 9, fusion_kind bytes 11, tuple_index int 13
  dimensions *int 14, window Window 15, convolution_dimension_numbers Convolution 16
  slice_dimensions *SliceDimensions 17, exponent_bits int 18, mantissa_bits int 19
  dynamic_slice_sizes *int 20, padding_config Padding 21, outfeed_config bytes 22
  distribution int 23, epsilon float 24, feature_index int 25, channel_id int 26
  infeed_config bytes 27, custom_call_target bytes 28, outfeed_shape Shape 29
  dot_dimension_numbers Dot 30, fft_type int 31, fft_length *int 32
  gather_dimension_numbers Gather 33, gather_slice_sizes *int 34, id int 35
  operand_ids *int 36, control_predecessor_ids *int 37, called_computation_ids *int 38
  sharding OpSharding 40, backend_config bytes 43, all_reduce_id int 45
  is_host_transfer bool 47, scatter_dimension_numbers Scatter 48
  replica_groups *ReplicaGroup 49, feature_group_count int 50, precision_config Precision 51
  source_target_pairs *SourceTarget 52, domain_entry_sharding OpSharding 54
  domain_exit_sharding OpSharding 55, constrain_layout bool 56
  operand_shapes_with_layout *Shape 57, batch_group_count int 58
  triangular_solve_options TriangularSolve 59, is_stable bool 60
  parameter_replication ParameterReplication 61, cholesky_options Cholesky 62
  comparison_direction bytes 63, custom_call_has_side_effect bool 65, delta int 66
  indices_are_sorted bool 67, frontend_attributes FrontendAttributes 68
  unique_indices bool 69, rng_algorithm int 70, use_global_device_ids bool 71
  comparison_type bytes 72, is_cross_program_prefetch bool 73
  output_operand_aliasing *OutputAliasing 74, padding_type int 75
  custom_call_schedule int 76, custom_call_api_version int 77
  async_execution_thread bytes 79, cross_program_prefetch_index int 80, k int 81
  statistics_viz StatisticsViz 82, largest bool 85, collective_device_list DeviceList 87
  original_value OriginalValue 88, is_composite bool 89
  ragged_dot_dimension_numbers RaggedDot 90, result_accuracy ResultAccuracy 91
  iota_collective_device_list IotaGroups 92, mesh_axes_replica_group_list MeshGroups 93
  is_reverse bool 94, num_carries int 95, is_associative int 96, conv_kind int 97
  backend_config_payload Payload 99
Computation: name bytes 1, instructions *Instruction 2, program_shape ProgramShape 4
  id int 5, root_id int 6, is_fusion_computation bool 7, execution_thread bytes 8
Sequence: instruction_ids *int 1
SequencesEntry: key int 1, value Sequence 2
Schedule: sequences *SequencesEntry 1
AliasEntry: output_shape_index *int 1, parameter_number int 2, parameter_shape_index *int 3
  kind int 4
AliasConfig: entries *AliasEntry 1
DonorEntry: parameter_number int 1, parameter_shape_index *int 2
DonorConfig: entries *DonorEntry 1
FileLocation: file_name_id int 1, function_name_id int 2, line int 3, column int 4
  end_line int 5, end_column int 6
StackFrame: file_location_id int 1, parent_frame_id int 2
StackFrameIndex: file_names *bytes 1, function_names *bytes 2, file_locations *FileLocation 3
  stack_frames *StackFrame 4
DeviceAssignment: replica_count int 1, computation_count int 2
HloModule: name bytes 1, entry_computation_name bytes 2, computations *Computation 3
  host_program_shape ProgramShape 4, id int 5, entry_computation_id int 6
  schedule Schedule 7, input_output_alias AliasConfig 8, is_dynamic bool 11
  device_assignment DeviceAssignment 15, stack_frame_index StackFrameIndex 17
  buffer_donor DonorConfig 18, frontend_attributes FrontendAttributes 19
  payloads *bytes 22
BufferLocation: instruction_name bytes 2, shape_index *int 3, instruction_id int 4
LogicalBuffer: id int 1, size int 2, defined_at BufferLocation 3, color int 4
Assigned: logical_buffer_id int 1, offset int 2, size int 3
BufferAllocation: index int 1, size int 2, is_thread_local bool 3
  is_entry_computation_parameter bool 5, parameter_number int 6, maybe_live_out bool 7
  color int 8, assigned *Assigned 9, parameter_shape_index *int 10, is_tuple bool 11
  is_constant bool 12, is_parameter_aliased_with_output bool 13
HeapEvent: kind int 1, buffer_id int 2, computation_name bytes 3, instruction_name bytes 4
  share_with_canonical_id int 5
HeapTrace: events *HeapEvent 1, whole_module_simulation bool 2, buffer_allocation_index int 3
BufferAssignment: logical_buffers *LogicalBuffer 1, buffer_allocations *BufferAllocation 3
  heap_simulator_traces *HeapTrace 4
HloProto: hlo_module HloModule 1, buffer_assignment BufferAssignment 3
HloSnapshot: hlo HloProto 1
XStat: metadata_id int 1, double_value double 2, uint64_value uint64 3, int64_value int 4
  str_value bytes 5, bytes_value bytes 6, ref_value uint64 7
XEvent: metadata_id int 1, offset_ps int 2, duration_ps int 3, stats *XStat 4
XLine: id int 1, name bytes 2, timestamp_ns int 3, events *XEvent 4, display_name bytes 11
XEventMetadata: id int 1, name bytes 2, display_name bytes 4, stats *XStat 5
XStatMetadata: id int 1, name bytes 2
XEventEntry: key int 1, value XEventMetadata 2
XStatEntry: key int 1, value XStatMetadata 2
XPlane: id int 1, name bytes 2, lines *XLine 3, event_metadata *XEventEntry 4
  stat_metadata *XStatEntry 5, stats *XStat 6
XSpace: planes *XPlane 1, errors *bytes 2, warnings *bytes 3, hostnames *bytes 4
ValueType: type int 1, unit int 2
Label: key int 1, str int 2, num int 3
Sample: location_id *uint64 1, value *int 2, label *Label 3
LocationLine: function_id uint64 1, line int 2
Location: id uint64 1, line *LocationLine 4
Function: id uint64 1, name int 2, filename int 4
Profile: sample_type *ValueType 1, sample *Sample 2, location *Location 4, function *Function 5
  string_table *bytes 6
"""

# What tells an instruction from others like it: what is left is an instruction's ``Details``.
_OWN = (
    "name", "opcode", "shape", "metadata", "literal", "parameter_number", "id", "operand_ids",
    "called_computation_ids",
)  # fmt: skip
# Not taken apart: most are those of another instruction.
_UNREAD = ("shape", "metadata")

_SCALARS = {
    "int": "INT64",
    "int32": "INT32",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "bool": "BOOL",
    "bytes": "BYTES",
    "float": "FLOAT",
    "double": "DOUBLE",
}


def _file() -> descriptor_pb2.FileDescriptorProto:
    from google.protobuf import descriptor_pb2

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="hloscope/xla.proto", package=PACKAGE, syntax="proto2"
    )
    messages = {}
    for line in _SCHEMA.strip().splitlines():
        if not line.startswith(" "):
            name, _, line = line.partition(":")
            message = messages[name] = file.message_type.add(name=name)
        for part in line.split(","):
            field_name, kind, number = part.split()
            repeated = kind.startswith("*")
            kind = kind.lstrip("*")
            field = message.field.add(
                name=field_name,
                number=int(number),
                label=kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL,
            )
            if kind in _SCALARS:
                field.type = kinds.Type.Value(f"TYPE_{_SCALARS[kind]}")
            else:
                field.type = kinds.TYPE_MESSAGE
                field.type_name = f".{PACKAGE}.{kind}"
    _read_as(file, "Own", lambda f: f.name in _OWN, lambda _: True)
    _read_as(file, "Details", lambda f: f.name == "opcode" or f.name not in _OWN, lambda _: False)
    return file


def _read_as(
    file: descriptor_pb2.FileDescriptorProto, prefix: str, of_instruction: Which, around: Which
) -> None:
    """Adds ``OwnInstruction`` with such of its fields, and ``OwnHloModule`` and the like around it
    with such of theirs."""
    messages = {m.name: m for m in file.message_type}
    made = file.message_type.add(name=f"{prefix}Instruction")
    made.field.extend(f for f in messages["Instruction"].field if of_instruction(f))
    for field in made.field:
        if field.name in _UNREAD:
            field.type = field.TYPE_BYTES
            field.ClearField("type_name")
    for name in ("Computation", "HloModule", "HloProto", "HloSnapshot"):
        inside, made = made.name, file.message_type.add(name=prefix + name)
        holds = f".{PACKAGE}.{inside.removeprefix(prefix)}"
        made.field.extend(f for f in messages[name].field if f.type_name == holds or around(f))
        for field in made.field:
            if field.type_name == holds:
                field.type_name = f".{PACKAGE}.{inside}"


@lru_cache(maxsize=1)
def _pool() -> descriptor_pool.DescriptorPool:
    from google.protobuf import descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file())
    return pool


@cache
def message_class(name: str) -> Any:
    """The protobuf class of one message of the schema above, such as ``HloModule``."""
    from google.protobuf import message_factory

    descriptor = _pool().FindMessageTypeByName(f"{PACKAGE}.{name}")
    return message_factory.GetMessageClass(descriptor)


def decode_error() -> type[Exception]:
    """What ``ParseFromString`` raises for bytes that are no such message."""
    from google.protobuf.message import DecodeError

    found: type[Exception] = DecodeError
    return found
