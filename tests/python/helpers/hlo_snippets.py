# ruff: noqa: E501
"""Hand-written HLO with the attributes of every opcode, for the oracle and the printer.

Real programs use a tenth of what XLA can print; these use the rest.
"""

from __future__ import annotations

SNIPPETS: dict[str, str] = {}

SNIPPETS[
    "basic"
] = r"""HloModule basic, entry_computation_layout={(f32[4,8]{1,0}, f32[8,4]{1,0})->f32[4,4]{1,0}}

ENTRY %e (a: f32[4,8], b: f32[8,4]) -> f32[4,4] {
  %a = f32[4,8]{1,0} parameter(0), parameter_replication={true}
  %b = f32[8,4]{0,1} parameter(1), sharding={devices=[2,2]<=[4]}
  %dot = f32[4,4]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, operand_precision={highest,high}, algorithm=dot_tf32_tf32_f32
  %c = pred[4,4]{1,0} compare(%dot, %dot), direction=GT, type=TOTALORDER
  %exp = f32[4,4]{1,0} exponential(%dot), result_accuracy={mode=highest}
  %log = f32[4,4]{1,0} log(%exp), result_accuracy={tolerance={atol=0.5,rtol=0.25,ulps=3}}
  %rp = f32[4,4]{1,0} reduce-precision(%log), exponent_bits=5, mantissa_bits=10
  %sl = f32[2,2]{1,0} slice(%rp), slice={[0:4:2], [1:3]}
  %z = f32[] constant(1.5)
  %pad = f32[5,4]{1,0} pad(%sl, %z), padding=1_2x0_1_1
  %i = s32[4]{0} iota(), iota_dimension=0
  %rev = f32[4,4]{1,0} reverse(%dot), dimensions={0,1}
  %cat = f32[8,4]{1,0} concatenate(%rev, %rev), dimensions={0}
  %tr = f32[4,4]{0,1} transpose(%dot), dimensions={1,0}
  %bc = f32[4,4]{1,0} broadcast(%z), dimensions={}
  %idx = s32[] constant(1)
  %ds = f32[1,4]{1,0} dynamic-slice(%dot, %idx, %idx), dynamic_slice_sizes={1,4}
  %dus = f32[4,4]{1,0} dynamic-update-slice(%dot, %ds, %idx, %idx), control-predecessors={%tr, %bc}
  %gds = s32[] get-dimension-size(%dot), dimensions={1}
  %bcv = s32[4,4]{1,0} bitcast-convert(%dot)
  %cl = f32[4,4]{1,0} clamp(%bc, %dot, %bc)
  %sel = f32[4,4]{1,0} select(%c, %cl, %dus), frontend_attributes={k1="v{1}",_k2="{\"a\":1}",zz="x"}
  %pi = u32[] partition-id()
  ROOT %r = f32[4,4]{1,0} add(%sel, %rev), metadata={op_type="add" op_name="jit(f)/add \"q\"" source_file="a b.py" source_line=3 source_end_line=4 source_column=1 source_end_column=9}, backend_config={"x":1,"y":{"z":[1,2]}}
}
"""

SNIPPETS["consts"] = r"""HloModule consts

ENTRY %e () -> f32[] {
  %c0 = f32[] constant(inf)
  %c1 = f32[] constant(-nan)
  %c1b = f32[] constant(nan)
  %c2 = f32[3]{0} constant({1, 2.5, -0.125})
  %c3 = s32[2,2]{1,0} constant({ { 1, 2 }, { 3, 4 } })
  %c4 = pred[2]{0} constant({1, 0})
  %c5 = c64[2]{0} constant({(1, 2), (3, -4.5)})
  %c6 = f32[20]{0} constant({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
  %c7 = bf16[] constant(0.1)
  %c8 = f16[2]{0} constant({0.1, 65504})
  %c9 = f64[] constant(3.141592653589793)
  %c10 = s8[3]{0} constant({-1, 2, 127})
  %c11 = u64[] constant(18446744073709551615)
  %c12 = s4[3]{0} constant({-1, 2, 7})
  %c13 = f8e4m3fn[2]{0} constant({0.1, 448})
  %c14 = (f32[2]{0}, s32[]) constant(({1, 2}, 7))
  %c15 = f32[0]{0} constant({})
  %c16 = f32[2,2,2]{2,1,0} constant({ { { 1, 2 }, { 3, 4 } }, { { 5, 6 }, { 7, 8 } } })
  %c17 = f32[] constant(1e-07)
  %c18 = f32[] constant(123456789)
  %c19 = f32[] constant(1.17549435e-38)
  %c20 = c128[] constant((1.5, -2))
  %c21 = pred[] constant(true)
  %c22 = f32[1,1]{1,0} constant({ {4} })
  %c23 = f64[] constant(1e+22)
  %c24 = f32[] constant(16777216)
  %c25 = f32[] constant(-0)
  %c26 = u4[5]{0} constant({1, 2, 3, 14, 15})
  %c27 = f8e5m2[] constant(0.1)
  %c28 = s64[] constant(-9223372036854775808)
  %c29 = s2[3]{0} constant({-1, 0, 1})
  %c30 = f4e2m1fn[3]{0} constant({-1, 0, 1})
  %c31 = f8e8m0fnu[2]{0} constant({1, 2})
  %c32 = f32[5,2]{1,0} constant({ { 1, 2 }, { 3, 4 }, { 1, 2 }, { 3, 4 }, { 3, 4 } })
  %c33 = f32[6,2]{1,0} constant({ { 1, 2 }, { 3, 4 }, { 1, 2 }, { 3, 4 }, { 3, 4 }, {0,0} })
  %c34 = f32[2,5,1]{2,1,0} constant({{ { 1 }, { 2 }, {3}, { 3},{ 4 } },{ { 1 }, { 2 }, {3}, { 3},{ 4 } }})
  %c35 = f32[2,0]{1,0} constant({ {}, {} })
  %c36 = bf16[4]{0} constant({1, 0.3333, 3.14159, 1e30})
  %c37 = f8e4m3b11fnuz[2]{0} constant({0.1, 1})
  %c38 = f8e5m2fnuz[2]{0} constant({0.1, 1})
  %c39 = f8e4m3fnuz[2]{0} constant({0.1, 1})
  %c40 = f8e3m4[2]{0} constant({0.1, 1})
  %c41 = f8e4m3[2]{0} constant({0.1, 1})
  ROOT %r = f32[] add(%c0, %c1)
}
"""

SNIPPETS["coll"] = r"""HloModule coll, num_partitions=8, replica_count=1

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}

ENTRY %e (a: f32[8,8]) -> f32[8,8] {
  %a = f32[8,8]{1,0} parameter(0)
  %ar = f32[8,8]{1,0} all-reduce(%a), channel_id=1, replica_groups={{0,1},{2,3},{4,5},{6,7}}, use_global_device_ids=true, to_apply=%add
  %ar2 = f32[8,8]{1,0} all-reduce(%a), replica_groups={}, to_apply=%add
  %ar3 = f32[8,8]{1,0} all-reduce(%a), channel_id=3, replica_groups=[4,2]<=[2,4]T(1,0), use_global_device_ids=true, to_apply=%add
  %ar4 = f32[8,8]{1,0} all-reduce(%a), channel_id=4, replica_groups=[1,8]<=[8], use_global_device_ids=true, constrain_layout=true, to_apply=%add
  %ag = f32[64,8]{1,0} all-gather(%a), channel_id=5, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}, use_global_device_ids=true
  %rs = f32[1,8]{1,0} reduce-scatter(%a), channel_id=6, replica_groups={{0,1,2,3,4,5,6,7}}, use_global_device_ids=true, dimensions={0}, to_apply=%add
  %a2a = f32[8,8]{1,0} all-to-all(%a), channel_id=7, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}
  %cp = f32[8,8]{1,0} collective-permute(%a), channel_id=8, source_target_pairs={{0,1},{1,0}}
  %ars = f32[8,8]{1,0} all-reduce-start(%a), channel_id=9, replica_groups={{0,1},{2,3},{4,5},{6,7}}, use_global_device_ids=true, to_apply=%add
  %ard = f32[8,8]{1,0} all-reduce-done(%ars)
  %ags = (f32[8,8]{1,0}, f32[64,8]{1,0}) all-gather-start(%a), channel_id=10, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}, use_global_device_ids=true
  %agd = f32[64,8]{1,0} all-gather-done(%ags)
  %cps = (f32[8,8]{1,0}, f32[8,8]{1,0}, u32[], u32[]) collective-permute-start(%a), channel_id=11, source_target_pairs={{0,1},{1,0}}
  %cpd = f32[8,8]{1,0} collective-permute-done(%cps)
  %cb = f32[8,8]{1,0} collective-broadcast(%a), channel_id=12, replica_groups={{0,1},{2,3}}
  %tok = token[] after-all()
  %send = (f32[8,8]{1,0}, u32[], token[]) send(%a, %tok), channel_id=13, is_host_transfer=true
  %sd = token[] send-done(%send), channel_id=13, is_host_transfer=true
  %recv = (f32[8,8]{1,0}, u32[], token[]) recv(%tok), channel_id=14, frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,2}}}
  %rd = (f32[8,8]{1,0}, token[]) recv-done(%recv), channel_id=14
  %inf = (f32[3]{0}, token[]) infeed(%tok), infeed_config="abc\"d"
  %out = token[] outfeed(%a, %tok), outfeed_shape=f32[8,8]{1,0}, outfeed_config="xyz"
  %opt = f32[8,8]{1,0} opt-barrier(%a)
  %rid = u32[] replica-id()
  %as = ((f32[8,8]{1,0}), f32[8,8]{1,0}, s32[]) all-to-all-start(%a), channel_id=20, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}
  %ad = f32[8,8]{1,0} all-to-all-done(%as)
  %rss = ((f32[8,8]{1,0}), f32[1,8]{1,0}) reduce-scatter-start(%a), channel_id=21, replica_groups={{0,1,2,3,4,5,6,7}}, use_global_device_ids=true, dimensions={0}, to_apply=%add
  %rsd = f32[1,8]{1,0} reduce-scatter-done(%rss)
  ROOT %r = f32[8,8]{1,0} add(%ar, %cp), sharding={devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}
}
"""

SNIPPETS["async"] = r"""HloModule asyncs

%wrapped (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %cc = f32[8]{0} custom-call(%p), custom_call_target="foo"
}, execution_thread="parallel"

%two (p: f32[8]) -> f32[8] {
  %p.1 = f32[8]{0} parameter(0)
  %n = f32[8]{0} negate(%p.1)
  ROOT %nn = f32[8]{0} negate(%n)
}, execution_thread="par2"

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}

ENTRY %e (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %st = ((f32[8]{0}), f32[8]{0}, s32[]) async-start(%a), async_execution_thread="parallel", calls=%wrapped
  %up = ((f32[8]{0}), f32[8]{0}, s32[]) async-update(%st)
  %dn = f32[8]{0} async-done(%up)
  %st2 = ((f32[8]{0}), f32[8]{0}, s32[]) async-start(%a), async_execution_thread="par2", calls=%two
  %dn2 = f32[8]{0} async-done(%st2)
  %st3 = ((f32[8]{0}), f32[4]{0}, s32[]) slice-start(%a), slice={[0:4]}, metadata={op_name="zz"}
  %dn3 = f32[4]{0} slice-done(%st3)
  %cs = (f32[8]{0}, f32[8]{0}, u32[]) copy-start(%a), cross_program_prefetch_index=0
  %cd = f32[8]{0} copy-done(%cs)
  %cs2 = (f32[8]{0:S(1)}, f32[8]{0}, u32[]) copy-start(%a)
  %cd2 = f32[8]{0:S(1)} copy-done(%cs2)
  %st4 = ((f32[8]{0}), f32[8]{0}, s32[]) custom-call-start(%a), custom_call_target="bar", backend_config="s\"q"
  %dn4 = f32[8]{0} custom-call-done(%st4)
  ROOT %r = f32[8]{0} add(%dn, %dn2)
}
"""

SNIPPETS[
    "control"
] = r"""HloModule control, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {0}, must-alias) }, buffer_donor={ (1, {1}) }, frontend_attributes={fingerprint="ab",xla.sdy.meshes="{mesh = #sdy.mesh<[\"x\"=2]>}"}

%body (p: (s32[], f32[4])) -> (s32[], f32[4]) {
  %p = (s32[], f32[4]{0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %v = f32[4]{0} get-tuple-element(%p), index=1
  %one = s32[] constant(1)
  %i2 = s32[] add(%i, %one)
  ROOT %t = (s32[], f32[4]{0}) tuple(%i2, %v)
}

%cond (p.1: (s32[], f32[4])) -> pred[] {
  %p.1 = (s32[], f32[4]{0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%p.1), index=0
  %n = s32[] constant(10)
  ROOT %lt = pred[] compare(%i.1, %n), direction=LT
}

%b0 (x0: f32[4]) -> f32[4] {
  ROOT %x0 = f32[4]{0} parameter(0)
}

%b1 (x1: f32[4]) -> f32[4] {
  %x1 = f32[4]{0} parameter(0)
  ROOT %neg = f32[4]{0} negate(%x1)
}

%add (xa: f32[], ya: f32[]) -> f32[] {
  %xa = f32[] parameter(0)
  %ya = f32[] parameter(1)
  ROOT %sa = f32[] add(%xa, %ya)
}

%ge (xg: f32[], yg: f32[]) -> pred[] {
  %xg = f32[] parameter(0)
  %yg = f32[] parameter(1)
  ROOT %g = pred[] compare(%xg, %yg), direction=GE
}

%fc (pf: f32[4]) -> f32[4] {
  %pf = f32[4]{0} parameter(0)
  ROOT %nf = f32[4]{0} negate(%pf)
}

ENTRY %main (a: f32[4], b: (f32[4], f32[4]), ix: s32[]) -> (f32[4], f32[4]) {
  %a = f32[4]{0} parameter(0)
  %b = (f32[4]{0}, f32[4]{0}) parameter(1), sharding={{replicated}, {devices=[4]<=[4]}}
  %b.0 = f32[4]{0} get-tuple-element(%b), index=0
  %ix = s32[] parameter(2)
  %zero = s32[] constant(0)
  %tup = (s32[], f32[4]{0}) tuple(%zero, %a)
  %w = (s32[], f32[4]{0}) while(%tup), condition=%cond, body=%body, backend_config={"known_trip_count":{"n":"10"}}
  %wv = f32[4]{0} get-tuple-element(%w), index=1
  %sw = f32[4]{0} conditional(%ix, %a, %wv), branch_computations={%b0, %b1}
  %pr = pred[] constant(true)
  %if = f32[4]{0} conditional(%pr, %a, %wv), true_computation=%b1, false_computation=%b0
  %call = f32[4]{0} call(%a), to_apply=%b1
  %fz = f32[] constant(0)
  %red = f32[] reduce(%a, %fz), dimensions={0}, to_apply=%add
  %rw = f32[2]{0} reduce-window(%a, %fz), window={size=2 stride=2}, to_apply=%add
  %sas = f32[4]{0} select-and-scatter(%a, %rw, %fz), window={size=2 stride=2}, select=%ge, scatter=%add
  %srt = f32[4]{0} sort(%a), dimensions={0}, is_stable=true, to_apply=%ge
  %map = f32[4]{0} map(%a, %a), dimensions={0}, to_apply=%add
  %fus = f32[4]{0} fusion(%a), kind=kLoop, calls=%fc, output_to_operand_aliasing={{}: (0, {})}
  %tk = (f32[2]{0}, s32[2]{0}) topk(%a), k=2, largest=true
  %cc = (f32[4]{0}, f32[4]{0}) custom-call(%a, %a), custom_call_target="my\"t", operand_layout_constraints={f32[4]{0}, f32[4]{0}}, custom_call_has_side_effect=true, called_computations={%add, %b1}, output_to_operand_aliasing={{0}: (0, {}), {1}: (1, {})}, schedule=SCHEDULE_EARLIEST, api_version=API_VERSION_TYPED_FFI, backend_config={a = 1 : i32}
  %cc2 = f32[4]{0} custom-call(%a), custom_call_target="x", api_version=API_VERSION_STATUS_RETURNING, backend_config="raw \"cfg\""
  %cc3 = f32[4]{0} custom-call(%a), custom_call_target="y", window={size=1}, dim_labels=bf_io->bf, feature_group_count=2, batch_group_count=3, operand_precision={high}, padding_type=PADDING_VALID
  ROOT %t.1 = (f32[4]{0}, f32[4]{0}) tuple(%sw, %wv)
}
"""

SNIPPETS["math"] = r"""HloModule math

%add (xa: f32[], ya: f32[]) -> f32[] {
  %xa = f32[] parameter(0)
  %ya = f32[] parameter(1)
  ROOT %sa = f32[] add(%xa, %ya)
}

ENTRY %m (a: f32[8,8], ii: s32[3,2]) -> f32[8,8] {
  %a = f32[8,8]{1,0} parameter(0)
  %ii = s32[3,2]{1,0} parameter(1)
  %ch = f32[8,8]{1,0} cholesky(%a), lower=true
  %ch2 = f32[8,8]{1,0} cholesky(%a)
  %ts = f32[8,8]{1,0} triangular-solve(%a, %ch), left_side=true, lower=true, transpose_a=NO_TRANSPOSE
  %ts2 = f32[8,8]{1,0} triangular-solve(%a, %ch), unit_diagonal=true, transpose_a=ADJOINT
  %cx = c64[8,8]{1,0} complex(%a, %a)
  %ff = c64[8,8]{1,0} fft(%cx), fft_type=FFT, fft_length={8}
  %rf = c64[8,5]{1,0} fft(%a), fft_type=RFFT, fft_length={8}
  %ga = f32[3,1]{1,0} gather(%a, %ii), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0,1}, index_vector_dim=1, slice_sizes={1,1}, indices_are_sorted=true
  %u = f32[3]{0} constant({1, 2, 3})
  %sc = f32[8,8]{1,0} scatter(%a, %ii, %u), update_window_dims={}, inserted_window_dims={0,1}, scatter_dims_to_operand_dims={0,1}, index_vector_dim=1, indices_are_sorted=true, unique_indices=true, to_apply=%add
  %lo = f32[] constant(0)
  %hi = f32[] constant(1)
  %rng = f32[4]{0} rng(%lo, %hi), distribution=rng_uniform
  %st = u64[2]{0} constant({1, 2})
  %rb = (u64[2]{0}, u32[4]{0}) rng-bit-generator(%st), algorithm=rng_three_fry
  %rg = u64[2]{0} rng-get-and-update-state(), delta=4096
  %im = f32[1,8,8,1]{3,2,1,0} reshape(%a)
  %k = f32[3,3,1,2]{3,2,1,0} constant({...})
  %cv = f32[1,8,8,2]{3,2,1,0} convolution(%im, %k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  %cv2 = f32[1,4,4,2]{3,2,1,0} convolution(%im, %k), window={size=3x3 stride=2x2 pad=0_1x0_1 lhs_dilate=1x1 rhs_dilate=1x1 rhs_reversal=1x1}, dim_labels=b01f_01io->b01f, operand_precision={highest,highest}
  %k2 = f32[3,3,1,2]{3,2,1,0} constant({...})
  %o1 = f32[1]{0} constant({1})
  %bnt = (f32[1,8,8,1]{3,2,1,0}, f32[1]{0}, f32[1]{0}) batch-norm-training(%im, %o1, %o1), epsilon=0.001, feature_index=3
  %ag = f32[3,1]{1,0} gather(%a, %ii), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0,1}, index_vector_dim=1, slice_sizes={1,1}
  %dom = f32[8,8]{1,0} domain(%a), domain={kind="sharding", entry={maximal device=0}, exit={maximal device=1}}
  %n = s32[] constant(4)
  %sds = f32[<=8,8]{1,0} set-dimension-size(%a, %n), dimensions={0}
  %bi = s32[8,3,1]{2,1,0} constant({...})
  %gbd = f32[8,3]{1,0} gather(%a, %bi), offset_dims={}, collapsed_slice_dims={1}, start_index_map={1}, operand_batching_dims={0}, start_indices_batching_dims={0}, index_vector_dim=2, slice_sizes={1,1}
  %rwd = f32[8,8]{1,0} reduce-window(%a, %lo), window={size=1x3 pad=0_0x1_1}, to_apply=%add
  %b3 = f32[8,8,8]{2,1,0} broadcast(%a), dimensions={1,2}
  %dot = f32[8,8,8]{2,1,0} dot(%b3, %b3), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}
  %s4x = s4[8]{0:E(4)} constant({...})
  %sp = f32[8,8]{1,0:T(8,128)(2,1)S(1)} copy(%a)
  %dyn = f32[<=4]{0} broadcast(%lo), dimensions={}
  %sh1 = f32[8,8]{1,0} copy(%a), sharding={devices=[2,2,2]0,1,2,3,4,5,7,6 last_tile_dims={manual, replicated}}
  %sh2 = f32[8,8]{1,0} copy(%a), sharding={manual}
  %sh3 = f32[8,8]{1,0} copy(%a), sharding={maximal device=3}
  %sh4 = f32[8,8]{1,0} copy(%a), sharding={replicated metadata={op_name="x"}}
  %sh5 = f32[8,8]{1,0} copy(%a), sharding={unknown}
  %sh6 = f32[8,8]{1,0} copy(%a), sharding={devices=[4,2]<=[8] shard_as 1}
  %sh7 = f32[8,8]{1,0} copy(%a), sharding={devices=[2,1,4]<=[2,2,2]T(2,0,1) last_tile_dim_replicate}
  %org = f32[8,8]{1,0} copy(%a), origin={{"foo"}}
  %gs = s32[8]{0} constant({...})
  %rag = f32[8,8]{1,0} ragged-dot(%a, %b3, %gs), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}
  %erf = f32[8,8]{1,0} erf(%a)
  %ui = u32[8,8]{1,0} constant({...})
  %st2 = f32[8,8]{1,0} stochastic-convert(%a, %ui)
  %par = f32[8,8]{1,0} add(%a, %a), statistics={visualizing_index=1,stat-1=33,stat-2=44}
  ROOT %r = f32[8,8]{1,0} add(%sc, %ts)
}
"""

SNIPPETS["rare"] = r"""HloModule rare

%s (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %m = f32[] maximum(%x, %y)
}

ENTRY %e (l: f8e4m3fn[16,128], r: f8e5m2[32,128], ls: f8e8m0fnu[16,4], rs: f8e8m0fnu[32,4], n: s32[32], b: f32[2,8,4], i: s64[2]) -> f32[2,8,4] {
  %l = f8e4m3fn[16,128]{1,0} parameter(0)
  %r = f8e5m2[32,128]{1,0} parameter(1)
  %ls = f8e8m0fnu[16,4]{1,0} parameter(2)
  %rs = f8e8m0fnu[32,4]{1,0} parameter(3)
  %n = s32[32]{0} parameter(4)
  %b = f32[2,8,4]{2,1,0} parameter(5)
  %i = s64[2]{0} parameter(6)
  %sd = f32[16,32]{1,0} scaled-dot(%l, %r, %ls, %rs), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  %rh = s32[16,2]{1,0} reshape(%n), inferred_dimension=0
  %cl = f32[2]{0} custom-call(%n), custom_call_target="k", literal=f32[] 0.5
  %z = s32[] constant(0)
  %at = (s32[], s32[], s32[]) tuple(%z, %z, %z)
  %cp = f32[2,8,4]{2,1,0} collective-permute(%b, %b, %at, %at), channel_id=1, source_target_pairs={{0,1},{1,0}}, slice_sizes={{1,8,4}}
  %ra = f32[2,8,4]{2,1,0} ragged-all-to-all(%b, %cp, %i, %i, %i, %i), channel_id=2, replica_groups={{0,1}}
  %f = f32[4]{0} constant({1, 2, 3, 4})
  %bi = f32[2,8,4]{2,1,0} batch-norm-inference(%ra, %f, %f, %f, %f), epsilon=0.001, feature_index=2
  %bg = (f32[2,8,4]{2,1,0}, f32[4]{0}, f32[4]{0}) batch-norm-grad(%bi, %f, %f, %f, %bi), epsilon=0.001, feature_index=2
  %g = f32[2,8,4]{2,1,0} get-tuple-element(%bg), index=0
  %pc = s32[32]{0} popcnt(%n)
  %clz = s32[32]{0} count-leading-zeros(%pc)
  %sh = s32[32]{0} shift-right-arithmetic(%clz, %n)
  %rn = f32[2,8,4]{2,1,0} round-nearest-even(%g)
  %a2 = f32[2,8,4]{2,1,0} atan2(%rn, %bi)
  %if = pred[2,8,4]{2,1,0} is-finite(%a2)
  %lg = f32[2,8,4]{2,1,0} logistic(%a2)
  %sel = f32[2,8,4]{2,1,0} select(%if, %lg, %a2)
  %cb = f32[2,8,4]{2,1,0} cbrt(%sel)
  ROOT %rw = f32[2,8,4]{2,1,0} reduce-precision(%cb), exponent_bits=8, mantissa_bits=7, control-predecessors={%sh, %sd, %rh, %cl}
}
"""
