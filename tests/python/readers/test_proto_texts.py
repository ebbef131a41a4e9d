# ruff: noqa: E501
"""What protos hold, as XLA prints it: shapes, layouts, shardings and the attributes of every opcode."""

from __future__ import annotations

from typing import Any

from google.protobuf import text_format
from hloscope.readers.proto.attributes import quoted_or_json
from hloscope.readers.proto.proto import read_proto
from hloscope.readers.proto.schema import message_class
from hloscope.readers.proto.shapes import ShapeCache, joined, layout_text, shape_text
from hloscope.readers.proto.shardings import mesh_text, replica_groups_text, sharding_text

LEAST = -(1 << 63)


def made(kind: str, text: str) -> Any:
    return text_format.Parse(text, message_class(kind)())


def test_shapes_as_xla_prints_them() -> None:
    f32 = "tuple_shapes { element_type: 11 }"
    five = "f32[], f32[], f32[], f32[], f32[]"
    table = {
        "element_type: 11": "f32[]",
        "element_type: 11 dimensions: [2, 3] layout { minor_to_major: [1, 0] }": "f32[2,3]{1,0}",
        "element_type: 11 layout { }": "f32[]",
        "element_type: 11 layout { memory_space: 1 }": "f32[]{:S(1)}",
        "element_type: 17 layout { memory_space: 1 }": "token[]",
        "element_type: 14 layout { memory_space: 1 }": "opaque[]",
        "element_type: 0": "invalid[]",
        "element_type: 99 dimensions: 2": "type99[2]",
        f"element_type: 4 dimensions: [{LEAST}, 3]": "s32[?,3]",
        f"element_type: 4 dimensions: [{LEAST}, 3] is_dynamic_dimension: [true, true]": "s32[?,<=3]",
        "element_type: 4 dimensions: [5, 3] is_dynamic_dimension: [false, true]": "s32[5,<=3]",
        "element_type: 4 dimensions: [5, 3] is_dynamic_dimension: true": "s32[<=5,3]",
        f"element_type: 13 {f32}": "(f32[])",
        "element_type: 13": "()",
        f"element_type: 13 {f32 * 6}": f"({five}, f32[])",
        f"element_type: 34 {f32}": "b(f32[])",
        f"element_type: 34 {f32 * 2}": "b(f32[], f32[])",
    }
    for text, want in table.items():
        assert shape_text(made("Shape", text)) == want, text
    six = made("Shape", f"element_type: 13 {f32 * 6}")
    assert shape_text(six, comments=True) == f"({five}, /*index=5*/f32[])"
    held = made("Shape", f"element_type: 13 tuple_shapes {{ element_type: 13 {f32 * 6} }}")
    assert shape_text(held, comments=True) == f"(({five}, /*index=5*/f32[]))"
    held.element_type = 34
    assert shape_text(held, comments=True) == f"b(({five}, /*index=5*/f32[]))"
    assert joined(["a"] * 5) == "a, a, a, a, a"
    assert joined(["a"] * 11) == "a, a, a, a, a, /*index=5*/a, a, a, a, a, /*index=10*/a"


def test_tuples_in_tuples_end_somewhere() -> None:
    def nested(levels: int, kind: int) -> Any:
        shape = whole = message_class("Shape")()
        for _ in range(levels):
            shape.element_type = kind
            shape = shape.tuple_shapes.add()
        shape.element_type = 11
        return whole

    from hloscope.hlo.shape import MAX_TUPLE_DEPTH

    for kind, begin in ((13, "("), (34, "b(")):
        deepest = shape_text(nested(MAX_TUPLE_DEPTH, kind))
        assert deepest == begin * MAX_TUPLE_DEPTH + "f32[]" + ")" * MAX_TUPLE_DEPTH
        deeper = shape_text(nested(MAX_TUPLE_DEPTH + 1, kind))
        assert deeper.strip("b()") == "opaque[]"
        assert deeper.count("(") == MAX_TUPLE_DEPTH + 1
    layout = inner = message_class("Layout")()
    for _ in range(MAX_TUPLE_DEPTH + 2):
        inner.physical_shape.element_type = 11
        inner = inner.physical_shape.layout
    text = layout_text(layout)
    assert text.count("P(") == MAX_TUPLE_DEPTH + 1
    assert "opaque[]" in text


def test_layouts_as_xla_prints_them() -> None:
    table = {
        "": "{}",
        "minor_to_major: [1, 0]": "{1,0}",
        "minor_to_major: 0 tiles { dimensions: [8, 128] } tiles { dimensions: [2, 1] }":
            "{0:T(8,128)(2,1)}",
        f"tiles {{ dimensions: [{LEAST}, 4] }}": "{:T(*,4)}",
        "tail_padding_alignment_in_elements: 0": "{}",
        "tail_padding_alignment_in_elements: 1": "{}",
        "tail_padding_alignment_in_elements: 2": "{:L(2)}",
        "index_primitive_type: 8": "{:#(u32)}",
        "index_primitive_type: 98 pointer_primitive_type: 9": "{:#(?)*(u64)}",
        "pointer_primitive_type: 98": "{:*(?)}",
        "element_size_in_bits: 4 memory_space: 5": "{:E(4)S(5)}",
        "dim_level_types: [0, 1, 2, 3, 7]": "{:D(D,C,S,L,?)}",
        "split_configs { dimension: 1 split_indices: [4, 8] } split_configs { dimension: 0 }":
            "{:SC(1:4,8)(0:)}",
        "physical_shape { element_type: 8 dimensions: 4 layout { minor_to_major: 0 } }":
            "{:P(u32[4]{0})}",
        "dynamic_shape_metadata_prefix_bytes: 64": "{:M(64)}",
    }  # fmt: skip
    for text, want in table.items():
        assert layout_text(made("Layout", text)) == want, text


def test_shapes_are_read_once_and_those_that_are_none_are_named() -> None:
    cache = ShapeCache()
    good = made("Shape", "element_type: 11 dimensions: 3").SerializeToString()
    assert cache.get(good) is cache.get(bytes(bytearray(good)))
    assert cache.get(good).byte_size == 12
    assert cache.bad == []
    bad = made("Shape", "element_type: 11 dimensions: -3").SerializeToString()
    assert cache.get(bad) is cache.get(bad)
    assert cache.get(bad).text == "f32[-3]"
    assert cache.bad == ["f32[-3]"]
    cache.get(made("Shape", "element_type: 99").SerializeToString())
    assert cache.unknown_elements[-1:] == ("type99",)


MESH = "axes { name: 'x' size: 2 } axes { name: 'y' size: 4 }"


def test_shardings_as_xla_prints_them() -> None:
    def marks(*names: str) -> str:
        return " ".join(f"metadata {{ op_name: '{n}' }}" for n in names)

    tiles = "type: 3 tile_assignment_dimensions: [2, 2] "
    named = f"named_sharding {{ mesh {{ {MESH} }} "
    closed = "dim_shardings { is_closed: true } "
    x, y = "axes { mesh_axis_index: 0 } ", "axes { mesh_axis_index: 1 } "
    table = {
        "type: 0": "{replicated}",
        "type: 4": "{manual}",
        "type: 5": "{unknown}",
        "type: 6": "{unreduced}",
        "type: 1 tile_assignment_devices: [5, 6]": "{maximal device=5}",
        "type: 0 " + marks("a"): "{replicated metadata={<a>}}",
        "type: 0 " + marks("a", "b"): "{replicated metadata={{<a>}, {<b>}}}",
        "type: 4 is_shard_group: true shard_group_id: 7": "{manual shard_as 7}",
        "type: 4 is_shard_group: true shard_group_id: 7 shard_group_type: 1": "{manual shard_like 7}",
        "type: 2": "{}",
        "type: 2 tuple_shardings { type: 0 } tuple_shardings { type: 4 }": "{{replicated}, {manual}}",
        "type: 2" + " tuple_shardings { type: 4 }" * 6:
            "{{manual}, {manual}, {manual}, {manual}, {manual}, /*index=5*/{manual}}",
        tiles + "tile_assignment_devices: [0, 2, 1, 3]": "{devices=[2,2]0,2,1,3}",
        tiles + "iota_reshape_dims: 4": "{devices=[2,2]<=[4]}",
        tiles + "iota_reshape_dims: [2, 2] iota_transpose_perm: [1, 0]":
            "{devices=[2,2]<=[2,2]T(1,0)}",
        tiles + "iota_reshape_dims: 4 replicate_on_last_tile_dim: true":
            "{devices=[2,2]<=[4] last_tile_dim_replicate}",
        tiles + "iota_reshape_dims: 4 last_tile_dims: [4, 0, 1, 9]":
            "{devices=[2,2]<=[4] last_tile_dims={manual, replicated, maximal, 9}}",
        tiles + "iota_reshape_dims: 4 " + marks("a"): "{devices=[2,2]<=[4] metadata={<a>}}",
        "named_sharding { mesh { device_ids: 3 } }": "{maximal device=3}",
        "named_sharding { mesh { device_ids: [3, 4] } }": "{replicated}",
        named + closed + "}": "{replicated}",
        named + closed + marks("a") + "}": "{replicated, metadata={{<a>}}}",
        named + closed + "dim_shardings { } }": "{mesh['x'=2,'y'=4], [{}, {?}]}",
        named + f"dim_shardings {{ {x}{y} is_closed: true }} dim_shardings {{ {y} }} }}":
            "{mesh['x'=2,'y'=4], [{'x', 'y'}, {'y', ?}]}",
        named + f"dim_shardings {{ {x} is_closed: true }} {marks('a', 'b')} }}":
            "{mesh['x'=2,'y'=4], [{'x'}], metadata={{<a>}, {<b>}}}",
        named + closed + "replicated_axes { mesh_axis_index: 1 } }":
            "{mesh['x'=2,'y'=4], [{}], replicated={'y'}}",
        named + closed + "unreduced_axes { mesh_axis_index: 0 } }":
            "{mesh['x'=2,'y'=4], [{}], unreduced={'x'}}",
        named + closed + "manual_axes { mesh_axis_index: 0 } manual_axes { mesh_axis_index: 2 } }":
            "{mesh['x'=2,'y'=4], [{}], manual={'x', '2'}}",
        named + "manual_axes { mesh_axis_index: -1 sub_axis_info { pre_size: 2 size: 4 } } }":
            "{mesh['x'=2,'y'=4], [], manual={'-1':(2)4}}",
    }  # fmt: skip
    for text, want in table.items():
        found = sharding_text(made("OpSharding", text), lambda m: f"<{m.op_name.decode()}>")
        assert found == want, text
    deep = whole = message_class("OpSharding")()
    for _ in range(103):
        deep.type = 2
        deep = deep.tuple_shardings.add()
    assert sharding_text(whole, str) == "{" * 102 + "}" * 102


def test_meshes_and_groups_as_xla_prints_them() -> None:
    iota = "reshape_dims: [2, 4] transpose_perm: [1, 0]"
    table = {
        MESH: "mesh['x'=2,'y'=4]",
        MESH + " device_ids: [0, 1, 2, 3, 4, 5, 6, 7]": "mesh['x'=2,'y'=4]",
        MESH + " device_ids: [0, 1]": "mesh['x'=2,'y'=4], device_ids=(0,1)",
        MESH + " device_ids: [1, 0, 2, 3, 4, 5, 6, 7]":
            "mesh['x'=2,'y'=4], device_ids=(1,0,2,3,4,5,6,7)",
        MESH + f" iota_transform {{ {iota} }}": "mesh['x'=2,'y'=4], device_ids=([2,4]T(1,0))",
        MESH + " iota_transform { reshape_dims: 8 transpose_perm: 0 }":
            "mesh['x'=2,'y'=4], device_ids=([8])",
    }  # fmt: skip
    for text, want in table.items():
        assert mesh_text(made("Mesh", text)) == want, text
    groups = {
        "": "{}",
        "replica_groups { replica_ids: [0, 1] } replica_groups { replica_ids: 2 }": "{{0,1},{2}}",
        "collective_device_list { replica_groups { replica_ids: [3, 4] } }": "{{3,4}}",
        "collective_device_list { } replica_groups { replica_ids: 1 }": "{}",
        "iota_collective_device_list { num_replica_groups: 2 num_devices_per_group: 4 "
        "iota_reshape_dims: [4, 2] iota_transpose_perm: [1, 0] }": "[2,4]<=[4,2]T(1,0)",
        "iota_collective_device_list { num_replica_groups: 2 num_devices_per_group: 4 "
        "iota_reshape_dims: 8 }": "[2,4]<=[8]",
        f"mesh_axes_replica_group_list {{ mesh {{ {MESH} }} axes {{ mesh_axis_index: 1 }} "
        "axes { mesh_axis_index: 0 } }": "mesh['x'=2,'y'=4] {'y','x'}",
    }  # fmt: skip
    for text, want in groups.items():
        assert replica_groups_text(made("Instruction", text)) == want, text


def printed(opcode: str, fields: str = "", more: str = "") -> str:
    """The attributes of an instruction of this opcode, whose operand is an s32[4]."""
    module = made(
        "HloModule",
        "name: 'm' entry_computation_id: 2 entry_computation_name: 'main' payloads: 'shared' "
        "computations { name: 'f' id: 1 root_id: 1 instructions { id: 1 name: 'x' "
        "opcode: 'parameter' shape { element_type: 11 } } } "
        "computations { name: 'g' id: 3 root_id: 1 instructions { id: 1 name: 'x' "
        "opcode: 'parameter' shape { element_type: 11 } } } "
        "computations { name: 'main' id: 2 root_id: 9 instructions { id: 5 name: 'a' opcode: "
        "'parameter' shape { element_type: 4 dimensions: 4 } } instructions { id: 6 name: 'p' "
        f"opcode: 'parameter' shape {{ element_type: 1 }} }} instructions {{ id: 9 name: 'r' "
        f"opcode: '{opcode}' {'' if 'shape {' in fields else 'shape { element_type: 11 }'} "
        f"{fields} }} {more} }}",
    )
    text: str = read_proto(module.SerializeToString()).find("r").attribute_text
    return text


def test_attributes_of_each_opcode_as_xla_prints_them() -> None:
    window = "window { dimensions { size: 3 %s } dimensions { size: 2 stride: 1 window_dilation: 1 base_dilation: 1 } }"
    plain = "stride: 1 window_dilation: 1 base_dilation: 1 "
    labels = (
        "convolution_dimension_numbers { input_batch_dimension: 0 input_feature_dimension: 3 "
        "input_spatial_dimensions: [1, 2] kernel_input_feature_dimension: 2 "
        "kernel_output_feature_dimension: 3 kernel_spatial_dimensions: [0, 1] "
        "output_batch_dimension: 0 output_feature_dimension: 1 output_spatial_dimensions: [2, 4] }"
    )
    group = "replica_groups { replica_ids: [0, 1] } "
    dot = "lhs_contracting_dimensions: 1 rhs_contracting_dimensions: 0 "
    pairs = (
        "source_target_pairs { source: 0 target: 1 } source_target_pairs { source: 1 target: 0 } "
    )
    table = [
        ("add", "", ""),
        ("broadcast", "dimensions: [0, 2]", "dimensions={0,2}"),
        ("sort", "dimensions: 1 is_stable: true", "dimensions={1}, is_stable=true"),
        ("sort", "dimensions: 1 is_stable: false", "dimensions={1}"),
        ("dot", f"dot_dimension_numbers {{ {dot} }}", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        ("dot", f"dot_dimension_numbers {{ {dot} lhs_batch_dimensions: 0 rhs_batch_dimensions: 2 }}",
         "lhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_batch_dims={2}, rhs_contracting_dims={0}"),
        ("dot", "precision_config { operand_precision: [0, 0] }", "lhs_contracting_dims={}, rhs_contracting_dims={}"),
        ("dot", "precision_config { operand_precision: [2, 1, 3, -1, 0] algorithm: 6 }",
         "lhs_contracting_dims={}, rhs_contracting_dims={}, "
         "operand_precision={highest,high,3,-1,default}, algorithm=dot_bf16_bf16_f32"),
        ("ragged-dot", f"ragged_dot_dimension_numbers {{ dot_dimension_numbers {{ {dot} }} "
         "lhs_ragged_dimensions: 0 rhs_group_dimensions: 2 } precision_config { algorithm: 13 }",
         "lhs_contracting_dims={1}, rhs_contracting_dims={0}, lhs_ragged_dims={0}, "
         "rhs_group_dims={2}, algorithm=dot_bf16_bf16_f32_x9"),
        ("ragged-dot", "", "lhs_contracting_dims={}, rhs_contracting_dims={}, lhs_ragged_dims={}"),
        ("reduce-window", "", ""),
        ("reduce-window", window % plain, "window={size=3x2}"),
        ("reduce-window", window % "stride: 2 window_dilation: 1 base_dilation: 1", "window={size=3x2 stride=2x1}"),
        ("reduce-window", window % (plain + "padding_low: 1"), "window={size=3x2 pad=1_0x0_0}"),
        ("reduce-window", window % (plain + "padding_high: 2"), "window={size=3x2 pad=0_2x0_0}"),
        ("reduce-window", window % "stride: 1 window_dilation: 1 base_dilation: 3", "window={size=3x2 lhs_dilate=3x1}"),
        ("reduce-window", window % "stride: 1 window_dilation: 3 base_dilation: 1", "window={size=3x2 rhs_dilate=3x1}"),
        ("select-and-scatter", window % (plain + "window_reversal: true"), "window={size=3x2 rhs_reversal=1x0}"),
        ("convolution", f"{window % plain} {labels} feature_group_count: 1 batch_group_count: 1",
         "window={size=3x2}, dim_labels=b01f_01io->bf0?1"),
        ("convolution", "feature_group_count: 2 batch_group_count: 2 precision_config { operand_precision: 1 }",
         "feature_group_count=2, batch_group_count=2, operand_precision={high}"),
        ("convolution", "convolution_dimension_numbers { input_batch_dimension: 70 }",
         "dim_labels=f" + "?" * 63 + "_o->f"),
        ("custom-call", "custom_call_target: 'k'", 'custom_call_target="k"'),
        ("custom-call", "custom_call_target: 'k' padding_type: 2 constrain_layout: true "
         "operand_shapes_with_layout { element_type: 11 } operand_shapes_with_layout { element_type: 4 } "
         "custom_call_has_side_effect: true literal { shape { element_type: 4 } s32s: 7 } "
         "output_operand_aliasing { output_shape_index: 1 operand_index: 2 operand_shape_index: [3, 4] } "
         "output_operand_aliasing { operand_index: 0 } custom_call_schedule: 1 custom_call_api_version: 2",
         'padding_type=PADDING_SAME, custom_call_target="k", operand_layout_constraints={f32[], s32[]}, '
         "custom_call_has_side_effect=true, literal=s32[] 7, "
         "output_to_operand_aliasing={{1}: (2, {3,4}), {}: (0, {})}, schedule=SCHEDULE_LATEST, "
         "api_version=API_VERSION_STATUS_RETURNING"),
        ("custom-call", "custom_call_target: 'k' custom_call_api_version: 1 called_computation_ids: [1, 3]",
         'custom_call_target="k", called_computations={%f, %g}'),
        ("fusion", "fusion_kind: 'kLoop' called_computation_ids: 1", "kind=kLoop, calls=%f"),
        ("all-gather", f"channel_id: 1 {group} dimensions: 0 use_global_device_ids: true constrain_layout: true",
         "channel_id=1, replica_groups={{0,1}}, constrain_layout=true, dimensions={0}, use_global_device_ids=true"),
        ("all-gather", f"channel_id: 0 {group}", "replica_groups={{0,1}}"),
        ("all-gather-start", f"{group} dimensions: 1", "replica_groups={{0,1}}, dimensions={1}"),
        ("all-to-all", f"{group} dimensions: 1", "replica_groups={{0,1}}, dimensions={1}"),
        ("reduce-scatter", f"{group} dimensions: 0 use_global_device_ids: true called_computation_ids: 1",
         "replica_groups={{0,1}}, use_global_device_ids=true, dimensions={0}, to_apply=%f"),
        ("all-reduce", f"{group} dimensions: 0 called_computation_ids: 1", "replica_groups={{0,1}}, to_apply=%f"),
        ("all-reduce-start", f"{group} dimensions: 0", "replica_groups={{0,1}}"),
        ("collective-broadcast", f"{group} dimensions: 0", "replica_groups={{0,1}}"),
        ("ragged-all-to-all", f"{group} dimensions: 0", "replica_groups={{0,1}}"),
        ("collective-permute", pairs + "channel_id: 3", "channel_id=3, source_target_pairs={{0,1},{1,0}}"),
        ("collective-permute", pairs + "dynamic_slice_sizes: [1, 8, 2, 4] shape { element_type: 13 "
         "tuple_shapes { element_type: 11 dimensions: [8, 8] } }",
         "source_target_pairs={{0,1},{1,0}}, slice_sizes={{1,8},{2,4}}"),
        ("collective-permute-start", "dynamic_slice_sizes: [1, 8] shape { element_type: 11 }",
         "source_target_pairs={}, slice_sizes={{1,8}}"),
        ("reshape", "", ""),
        ("reshape", "dimensions: 2", "inferred_dimension=2"),
        ("send", "channel_id: 2 is_host_transfer: true", "channel_id=2, is_host_transfer=true"),
        ("recv-done", "", ""),
        ("compare", "comparison_direction: 'LT' comparison_type: 'SIGNED' operand_ids: [5, 5]", "direction=LT"),
        ("compare", "comparison_direction: 'LT' comparison_type: 'UNSIGNED' operand_ids: [6, 6]", "direction=LT"),
        ("compare", "comparison_direction: 'LT' comparison_type: 'TOTALORDER' operand_ids: [5, 5]",
         "direction=LT, type=TOTALORDER"),
        ("compare", "comparison_direction: 'GE' comparison_type: 'FLOAT'", "direction=GE"),
        ("compare", "comparison_direction: 'GE' comparison_type: 'FLOAT' operand_ids: [6, 5]",
         "direction=GE, type=FLOAT"),
        ("compare", "comparison_direction: 'GE' operand_ids: [6, 5]", "direction=GE"),
        ("slice", "slice_dimensions { start: 1 limit: 4 stride: 1 }", "slice={[1:4]}"),
        ("slice", "slice_dimensions { start: 1 limit: 4 stride: 1 } slice_dimensions { limit: 4 stride: 2 }",
         "slice={[1:4:1], [0:4:2]}"),
        ("pad", "padding_config { dimensions { edge_padding_low: 1 edge_padding_high: -2 } dimensions { } }",
         "padding=1_-2x0_0"),
        ("pad", "padding_config { dimensions { edge_padding_low: 1 } dimensions { interior_padding: 3 } }",
         "padding=1_0_0x0_0_3"),
        ("gather", "gather_dimension_numbers { offset_dims: 1 collapsed_slice_dims: 0 start_index_map: 0 "
         "index_vector_dim: 2 } gather_slice_sizes: [1, 8] indices_are_sorted: true",
         "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=2, "
         "slice_sizes={1,8}, indices_are_sorted=true"),
        ("gather", "gather_dimension_numbers { operand_batching_dims: 3 start_indices_batching_dims: 4 }",
         "offset_dims={}, collapsed_slice_dims={}, start_index_map={}, operand_batching_dims={3}, "
         "start_indices_batching_dims={4}, index_vector_dim=0, slice_sizes={}"),
        ("scatter", "scatter_dimension_numbers { update_window_dims: 1 inserted_window_dims: 0 "
         "scatter_dims_to_operand_dims: 0 index_vector_dim: 1 } unique_indices: true called_computation_ids: 1",
         "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
         "index_vector_dim=1, unique_indices=true, to_apply=%f"),
        ("scatter", "scatter_dimension_numbers { input_batching_dims: 2 scatter_indices_batching_dims: 3 } "
         "indices_are_sorted: true",
         "update_window_dims={}, inserted_window_dims={}, scatter_dims_to_operand_dims={}, "
         "input_batching_dims={2}, scatter_indices_batching_dims={3}, index_vector_dim=0, "
         "indices_are_sorted=true"),
        ("triangular-solve", "triangular_solve_options { left_side: true lower: true unit_diagonal: true "
         "transpose_a: 3 }", "left_side=true, lower=true, unit_diagonal=true, transpose_a=ADJOINT"),
        ("triangular-solve", "", ""),
        ("cholesky", "cholesky_options { lower: true }", "lower=true"),
        ("parameter", "", ""),
        ("parameter", "parameter_replication { }", ""),
        ("parameter", "parameter_replication { replicated_at_leaf_buffers: [true, false] }",
         "parameter_replication={true,false}"),
        ("copy-start", "", ""),
        ("copy-start", "is_cross_program_prefetch: true", "is_cross_program_prefetch=true"),
        ("copy-start", "cross_program_prefetch_index: 0", "cross_program_prefetch_index=0"),
        ("domain", "domain_entry_sharding { type: 0 } domain_exit_sharding { type: 4 }",
         'domain={kind="sharding", entry={manual}, exit={replicated}}'),
        ("outfeed", "", ""),
        ("outfeed", "outfeed_shape { element_type: 11 } outfeed_config: 'c'",
         'outfeed_shape=f32[], outfeed_config="c"'),
        ("infeed", "", ""),
        ("infeed", "infeed_config: 'c'", 'infeed_config="c"'),
        ("batch-norm-training", "epsilon: 0.001 feature_index: 3", "epsilon=0.001, feature_index=3"),
        ("fft", "fft_type: 2 fft_length: [4, 8]", "fft_type=RFFT, fft_length={4,8}"),
        ("fft", "fft_type: 4", "fft_type=4, fft_length={}"),
        ("fft", "fft_type: 0", "fft_type=FFT, fft_length={}"),
        ("get-tuple-element", "tuple_index: 2", "index=2"),
        ("iota", "dimensions: 1", "iota_dimension=1"),
        ("reduce-precision", "exponent_bits: 5 mantissa_bits: 10", "exponent_bits=5, mantissa_bits=10"),
        ("rng", "distribution: 1", "distribution=rng_uniform"),
        ("rng-bit-generator", "rng_algorithm: 2", "algorithm=rng_philox"),
        ("rng-get-and-update-state", "delta: 1", "delta=1"),
        ("dynamic-slice", "dynamic_slice_sizes: [1, 8]", "dynamic_slice_sizes={1,8}"),
        ("topk", "k: 2 largest: true", "k=2, largest=true"),
        ("topk", "k: 2 largest: false", "k=2, largest=false"),
        ("while", "called_computation_ids: [1, 3]", "condition=%g, body=%f"),
        ("select-and-scatter", "called_computation_ids: [1, 3]", "select=%f, scatter=%g"),
        ("conditional", "operand_ids: 6 called_computation_ids: [1, 3]", "true_computation=%f, false_computation=%g"),
        ("conditional", "operand_ids: 5 called_computation_ids: [1, 3]", "branch_computations={%f, %g}"),
        ("conditional", "called_computation_ids: [1, 77]", "branch_computations={%f, %77}"),
        ("call", "called_computation_ids: 1", "to_apply=%f"),
        ("async-start", "called_computation_ids: [1, 3]", "calls=%f, %g"),
        ("async-update", "called_computation_ids: [1, 3]", ""),
        ("topk", "k: 1 called_computation_ids: 1", "k=1, largest=false, to_apply=%f"),
    ]  # fmt: skip
    for opcode, fields, want in table:
        found = printed(opcode, fields)
        assert found == want, (opcode, fields)


def test_attributes_that_any_instruction_may_have() -> None:
    two = "shape { element_type: 13 tuple_shapes { element_type: 11 } tuple_shapes { element_type: 13 } tuple_shapes { element_type: 11 } } "
    element = (
        "elements { shape_index: 0 original_array { instruction_name: 'w' shape_index: [2, 3] } } "
    )
    table = [
        ("result_accuracy { mode: 1 }", "result_accuracy={mode=highest}"),
        ("result_accuracy { mode: 0 }", ""),
        ("result_accuracy { tolerance { atol: 0.5 rtol: 0.25 ulps: 3 } }",
         "result_accuracy={tolerance={atol=0.5,rtol=0.25,ulps=3}}"),
        ("is_composite: true", "is_composite=true"),
        ("sharding { type: 0 }", "sharding={replicated}"),
        ("statistics_viz { }", ""),
        ("statistics_viz { stat_index_to_visualize: 1 statistics { stat_name: 's' stat_val: 0.5 } }",
         "statistics={visualizing_index=1,s=0.5}"),
        ("frontend_attributes { }", ""),
        ("frontend_attributes { map { key: 'b' value: '2' } map { key: 'a' value: '{x}' } }",
         'frontend_attributes={a={x},b="2"}'),
        ("control_predecessor_ids: [5, 77]", "control-predecessors={%a, %77}"),
        (two + "original_value { is_synthetic_call: true }", "origin={[synthetic_call]}"),
        (two + f"original_value {{ {element} }}", 'origin={({"w" {2,3}}, (), {})}'),
        ("original_value { elements { original_array { instruction_name: 'w' } } }", 'origin={{"w"}}'),
        ("original_value { elements { } }", "origin={{}}"),
        ("metadata { }", ""),
        ("metadata { op_type: 'add' op_name: 'jit(f)/a\\\"b' source_file: 'a.py' source_line: 3 "
         "source_end_line: 4 source_column: 5 source_end_column: 6 profile_type: [1, 2] "
         "deduplicated_name: 'd' scheduling_name: 's' stack_frame_id: 7 }",
         'metadata={op_type="add" op_name="jit(f)/a\\"b" source_file="a.py" source_line=3 '
         "source_end_line=4 source_column=5 source_end_column=6 profile_type={1,2} "
         'deduplicated_name="d" scheduling_name="s" stack_frame_id=7}'),
        ("backend_config: '{\"a\":1}'", 'backend_config={"a":1}'),
        ("backend_config: 'raw'", 'backend_config="raw"'),
        ("backend_config: 'own' backend_config_payload { id: 0 }", 'backend_config="own"'),
        ("backend_config_payload { id: 0 }", 'backend_config="shared"'),
        ("backend_config_payload { id: 1 value: 'v' }", 'backend_config="v"'),
        ("backend_config_payload { id: -1 value: 'v' }", 'backend_config="v"'),
        ("backend_config_payload { value: 'v' }", 'backend_config="v"'),
        ("async_execution_thread: 't'", ""),
    ]  # fmt: skip
    for fields, want in table:
        assert printed("add", fields) == want, fields
    braces = {
        b"{}": "{}", b"{a}": "{a}", b'{"}"}': '{"}"}', b"{{}}": "{{}}", b'{"\\""}': '{"\\""}',
        b"{}{}": '"{}{}"', b"{": '"{"', b"": '""', b"}": '"}"', b"{a": '"{a"', b'{"}': '"{\\"}"',
        b"{{}": '"{{}"', b"a}": '"a}"', b"}{}": '"}{}"', b"{}a": '"{}a"', b"a{}": '"a{}"', b"{}}": '"{}}"',
    }  # fmt: skip
    for value, want in braces.items():
        assert quoted_or_json(value) == want, value


def test_an_asynchronous_operation_is_printed_as_what_it_wraps() -> None:
    wrapped = (
        "computations { name: 'w' id: 4 root_id: 2 instructions { id: 1 name: 'q' opcode: "
        "'parameter' shape { element_type: 11 dimensions: 4 } } instructions { id: 2 name: 's' "
        "opcode: 'slice' shape { element_type: 11 dimensions: 2 } operand_ids: 1 "
        "slice_dimensions { limit: 2 stride: 1 } metadata { op_name: 'in' } %s } } "
    )
    entry = (
        "computations { name: 'main' id: 2 root_id: 9 instructions { id: 5 name: 'a' opcode: "
        "'parameter' shape { element_type: 11 dimensions: 4 } } "
        "instructions { id: 6 name: 'b' opcode: 'async-start' operand_ids: 5 "
        "called_computation_ids: 4 async_execution_thread: 't' shape { element_type: 11 } "
        "metadata { op_name: 'out' } is_composite: true } "
        "instructions { id: 7 name: 'u' opcode: 'async-update' operand_ids: 6 %s shape { "
        "element_type: 11 } } "
        "instructions { id: 9 name: 'd' opcode: 'async-done' operand_ids: 7 shape { "
        "element_type: 11 dimensions: 2 } } }"
    )

    def read(more: str, update: str = "", second: str = "") -> Any:
        text = "name: 'm' entry_computation_id: 2 " + wrapped % more + second + entry % update
        return read_proto(made("HloModule", text).SerializeToString())

    for update in ("", "called_computation_ids: 4"):
        module = read("called_computation_ids: 77 control_predecessor_ids: 1", update)
        assert [c.name for c in module.computations] == ["main"]
        assert [i.opcode for i in module.instructions] == [
            "parameter", "slice-start", "slice-update", "slice-done",
        ]  # fmt: skip
        assert [i.attribute_text for i in module.instructions] == [
            "",
            'async_execution_thread="t", slice={[0:2]}, calls=%77, control-predecessors={%1}, '
            'is_composite=true, metadata={op_name="out"}',
            "",
            "",
        ]
        assert [i.index for i in module.instructions] == [0, 1, 2, 3]
    twice = (
        "instructions { id: 3 name: 'n' opcode: 'negate' shape { element_type: 11 dimensions: 2 } }"
    )
    module = made("HloModule", "name: 'm' entry_computation_id: 2 " + wrapped % "" + entry % "")
    for change in ("two operations", "root elsewhere", "called twice"):
        other = message_class("HloModule")()
        other.CopyFrom(module)
        if change == "two operations":
            other.computations[0].MergeFrom(made("Computation", twice))
        elif change == "root elsewhere":
            other.computations[0].root_id = 1
        else:
            other.computations[1].instructions[1].called_computation_ids.append(4)
        found = read_proto(other.SerializeToString())
        assert [c.name for c in found.computations] == ["w", "main"], change
        start = found.find("b")
        assert start.opcode == "async-start", change
        assert "calls=%w" in start.attribute_text, change
        assert found.find("d").attribute_text == ""
        assert found.find("d").opcode == "async-done"
