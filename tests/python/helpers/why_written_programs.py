"""Programs written out by hand for ``test_why_written.py``: before, and after, partitioning."""

# ruff: noqa: E501

STEP = """
  %x = f32[16,64] parameter(0), sharding=D_  # =x
  %w = f32[64,128] parameter(1), sharding=_M  # =w
  %v = f32[128,64] parameter(2), sharding=M_  # =v
  %u = f32[64,32] parameter(3), sharding=_M  # =u
  %up = f32[16,128] dot(%x, %w), MATMUL, sharding=DM  # 8 dot_general
  %act = f32[16,128] tanh(%up), sharding=DM  # 8 tanh
  %down = f32[16,64] dot(%act, %v), MATMUL, sharding=D_  # 9 dot_general
  %pin.0 = f32[16,64] copy(%down), sharding=D_  # 10 sharding_constraint
  %sin = f32[16,64] sine(%pin.0), sharding=DM  # 11 sin
  %pin.1 = f32[16,64] copy(%sin), sharding=DM  # 12 sharding_constraint
  %pin.2 = f32[16,64] copy(%pin.1), sharding=D_  # 13 sharding_constraint
  %cos = f32[16,64] cosine(%pin.2), sharding=D_  # 14 cos
  %out = f32[16,32] dot(%cos, %u), MATMUL, sharding=_M  # 15 dot_general
  %zero = f32[] constant(0)
  %total = f32[64] reduce(%pin.0, %zero), dimensions={0}, to_apply=%sum  # 16 reduce_sum
  %pin.3 = f32[16,64] copy(%sin), sharding=MD  # 17 sharding_constraint
  %flip = f32[16,64] negate(%pin.3), sharding=MD  # 18 neg
  %exp = f32[16,64] exponential(%cos), sharding=D_  # 19 exp
  ROOT %t = (f32[16,32], f32[64], f32[16,64], f32[16,64]) tuple(%out, %total, %flip, %exp), sharding=_M,R,MD,_M
"""
STEP_LOCAL = """
  %x.1 = f32[8,64] parameter(0), sharding=D_  # =x
  %w.1 = f32[64,32] parameter(1), sharding=_M  # =w
  %v.1 = f32[32,64] parameter(2), sharding=M_  # =v
  %u.1 = f32[64,8] parameter(3), sharding=_M  # =u
  %up.1 = f32[8,32] dot(%x.1, %w.1), MATMUL  # 8 dot_general
  %act.1 = f32[8,32] tanh(%up.1)  # 8 tanh
  %down.1 = f32[8,64] dot(%act.1, %v.1), MATMUL  # 9 dot_general
  %sum.1 = f32[8,64] all-reduce(%down.1), channel_id=1, ALONG_MODEL, to_apply=%sum  # 9 dot_general
  %pin.3 = f32[8,64] copy(%sum.1)  # 10 sharding_constraint
  %cut = f32[8,16] slice(%pin.3), slice={[0:8],[0:16]}  # 11 sin
  %sin.1 = f32[8,16] sine(%cut)  # 11 sin
  %pin.4 = f32[8,16] copy(%sin.1)  # 12 sharding_constraint
  %gather.1 = f32[8,64] all-gather(%pin.4), channel_id=2, ALONG_MODEL, dimensions={1}  # 13 sharding_constraint
  %pin.5 = f32[8,64] copy(%gather.1)  # 13 sharding_constraint
  %cos.1 = f32[8,64] cosine(%pin.5)  # 14 cos
  %gather.2 = f32[16,64] all-gather(%cos.1), channel_id=3, ALONG_DATA, dimensions={0}  # 15 dot_general
  %out.1 = f32[16,8] dot(%gather.2, %u.1), MATMUL  # 15 dot_general
  %zero.1 = f32[] constant(0)
  %part = f32[64] reduce(%pin.3, %zero.1), dimensions={0}, to_apply=%sum  # 16 reduce_sum
  %sum.2 = f32[64] all-reduce(%part), channel_id=4, ALONG_DATA, to_apply=%sum  # 16 reduce_sum
  %swap = f32[8,16] all-to-all(%sin.1), channel_id=5, EVERYWHERE, dimensions={0}  # 17 sharding_constraint
  %pieces = f32[4,32] reshape(%swap)  # 17 sharding_constraint
  %turned = f32[4,32] copy(%pieces)  # 17 sharding_constraint
  %flip.1 = f32[4,32] negate(%turned)  # 18 neg
  %exp.1 = f32[8,64] exponential(%cos.1)  # 19 exp
  %other = f32[8,64] all-to-all(%exp.1), channel_id=6, EVERYWHERE, dimensions={0}  # 19 exp
  %back = f32[16,16] reshape(%other)  # 19 exp
  ROOT %t.1 = (f32[16,8], f32[64], f32[4,32], f32[16,16]) tuple(%out.1, %sum.2, %flip.1, %back)
"""
LOOP = """
%body (p: (s32[], f32[16,64], f32[3,64,64])) -> (s32[], f32[16,64], f32[3,64,64]) {
  %p = (s32[], f32[16,64], f32[3,64,64]) parameter(0), sharding=R,D_,_M_
  %k = s32[] get-tuple-element(%p), index=0, sharding=R
  %c = f32[16,64] get-tuple-element(%p), index=1, sharding=D_
  %ws = f32[3,64,64] get-tuple-element(%p), index=2, sharding=_M_
  %one = s32[] constant(1)
  %zero = s32[] constant(0)
  %w1 = f32[1,64,64] dynamic-slice(%ws, %k, %zero, %zero), dynamic_slice_sizes={1,64,64}, sharding=_M_  # 5 while/body/dynamic_slice
  %w2 = f32[64,64] reshape(%w1), sharding=M_  # 5 while/body/squeeze
  %cm = f32[16,64] copy(%c), sharding=DM  # 6 while/body/sharding_constraint
  %d = f32[16,64] dot(%cm, %w2), MATMUL, sharding=D_  # 7 while/body/dot_general
  %th = f32[16,64] tanh(%d), sharding=DM  # 8 while/body/tanh
  %next = s32[] add(%k, %one)  # 5 while/body/add
  ROOT %r = (s32[], f32[16,64], f32[3,64,64]) tuple(%next, %th, %ws), sharding=R,D_,_M_
}
%cond (q: (s32[], f32[16,64], f32[3,64,64])) -> pred[] {
  %q = (s32[], f32[16,64], f32[3,64,64]) parameter(0)
  %kk = s32[] get-tuple-element(%q), index=0
  %three = s32[] constant(3)
  ROOT %less = pred[] compare(%kk, %three), direction=LT
}
ENTRY %main (x: f32[16,64], w: f32[3,64,64]) -> f32[16,64] {
  %x = f32[16,64] parameter(0), sharding=D_  # =x
  %w = f32[3,64,64] parameter(1), sharding=_M_  # =w
  %n = s32[] constant(0)
  %init = (s32[], f32[16,64], f32[3,64,64]) tuple(%n, %x, %w), sharding=R,D_,_M_
  %loop = (s32[], f32[16,64], f32[3,64,64]) while(%init), condition=%cond, body=%body, sharding=R,D_,_M_  # 5 while
  ROOT %o = f32[16,64] get-tuple-element(%loop), index=1, sharding=D_
}
"""
LOOP_LOCAL = """
%body_spmd (p: (s32[], f32[8,64], f32[3,16,64])) -> (s32[], f32[8,64], f32[3,16,64]) {
  %p.1 = (s32[], f32[8,64], f32[3,16,64]) parameter(0)
  %k.1 = s32[] get-tuple-element(%p.1), index=0
  %c.1 = f32[8,64] get-tuple-element(%p.1), index=1
  %ws.1 = f32[3,16,64] get-tuple-element(%p.1), index=2
  %one.1 = s32[] constant(1)
  %zero.1 = s32[] constant(0)
  %w1.1 = f32[1,16,64] dynamic-slice(%ws.1, %k.1, %zero.1, %zero.1), dynamic_slice_sizes={1,16,64}  # 5 while/body/dynamic_slice
  %w2.1 = f32[16,64] reshape(%w1.1)  # 5 while/body/squeeze
  %cut = f32[8,16] slice(%c.1), slice={[0:8],[0:16]}  # 6 while/body/sharding_constraint
  %cm.1 = f32[8,16] copy(%cut)  # 6 while/body/sharding_constraint
  %d.1 = f32[8,64] dot(%cm.1, %w2.1), MATMUL  # 7 while/body/dot_general
  %ar = f32[8,64] all-reduce(%d.1), channel_id=1, ALONG_MODEL, to_apply=%sum  # 7 while/body/dot_general
  %cut2 = f32[8,16] slice(%ar), slice={[0:8],[0:16]}  # 8 while/body/tanh
  %th.1 = f32[8,16] tanh(%cut2)  # 8 while/body/tanh
  %ag = f32[8,64] all-gather(%th.1), channel_id=2, ALONG_MODEL, dimensions={1}  # 8 while/body/tanh
  %next.1 = s32[] add(%k.1, %one.1)  # 5 while/body/add
  ROOT %r.1 = (s32[], f32[8,64], f32[3,16,64]) tuple(%next.1, %ag, %ws.1)
}
%cond_spmd (q: (s32[], f32[8,64], f32[3,16,64])) -> pred[] {
  %q = (s32[], f32[8,64], f32[3,16,64]) parameter(0)
  %kk = s32[] get-tuple-element(%q), index=0
  %three = s32[] constant(3)
  ROOT %less = pred[] compare(%kk, %three), direction=LT
}
ENTRY %main_spmd (x: f32[8,64], w: f32[3,16,64]) -> f32[8,64] {
  %x.1 = f32[8,64] parameter(0), sharding=D_  # =x
  %w.1 = f32[3,16,64] parameter(1), sharding=_M_  # =w
  %n.1 = s32[] constant(0)
  %init.1 = (s32[], f32[8,64], f32[3,16,64]) tuple(%n.1, %x.1, %w.1)
  %loop.1 = (s32[], f32[8,64], f32[3,16,64]) while(%init.1), condition=%cond_spmd, body=%body_spmd  # 5 while
  ROOT %o.1 = f32[8,64] get-tuple-element(%loop.1), index=1
}
"""
WINDOWED = """
  %x = f32[16,64] parameter(0), sharding=M_  # =x
  %w = f32[64,128] parameter(1), sharding=_M  # =w
  ROOT %y = f32[16,128] dot(%x, %w), MATMUL, sharding=_M  # 5 dot_general
"""
WINDOWED_LOCAL = """
%window (p: (f32[4,64], f32[64,32], f32[16,32], u32[])) -> (f32[4,64], f32[64,32], f32[16,32], u32[]) {
  %p = (f32[4,64], f32[64,32], f32[16,32], u32[]) parameter(0)
  %a = f32[4,64] get-tuple-element(%p), index=0
  %b = f32[64,32] get-tuple-element(%p), index=1
  %o = f32[16,32] get-tuple-element(%p), index=2
  %k = u32[] get-tuple-element(%p), index=3
  %part = f32[4,32] dot(%a, %b), MATMUL  # 5 dot_general
  %zero = u32[] constant(0)
  %put = f32[16,32] dynamic-update-slice(%o, %part, %k, %zero)  # 5 dot_general
  %go = f32[4,64] collective-permute(%a), channel_id=1, source_target_pairs={{0,3},{1,0},{2,1},{3,2},{4,7},{5,4},{6,5},{7,6}}  # 5 dot_general
  %one = u32[] constant(1)
  %k.1 = u32[] add(%k, %one)
  ROOT %t = (f32[4,64], f32[64,32], f32[16,32], u32[]) tuple(%go, %b, %put, %k.1)
}
%wcond (q: (f32[4,64], f32[64,32], f32[16,32], u32[])) -> pred[] {
  %q = (f32[4,64], f32[64,32], f32[16,32], u32[]) parameter(0)
  %kk = u32[] get-tuple-element(%q), index=3
  %four = u32[] constant(4)
  ROOT %less = pred[] compare(%kk, %four), direction=LT
}
ENTRY %main_spmd (x: f32[4,64], w: f32[64,32]) -> f32[16,32] {
  %x.1 = f32[4,64] parameter(0), sharding=M_  # =x
  %w.1 = f32[64,32] parameter(1), sharding=_M  # =w
  %z = f32[] constant(0)
  %buf = f32[16,32] broadcast(%z), dimensions={}
  %zu = u32[] constant(0)
  %init = (f32[4,64], f32[64,32], f32[16,32], u32[]) tuple(%x.1, %w.1, %buf, %zu)
  %loop = (f32[4,64], f32[64,32], f32[16,32], u32[]) while(%init), condition=%wcond, body=%window  # 5 dot_general
  ROOT %y.1 = f32[16,32] get-tuple-element(%loop), index=2
}
"""
SUMS = """
  %x = f32[16,64] parameter(0), sharding=D_  # =x
  %w = f32[64,128] parameter(1), sharding=_M  # =w
  %v = f32[128,64] parameter(2), sharding=M_  # =v
  %u = f32[128,64] parameter(3), sharding=M_  # =u
  %h = f32[16,128] dot(%x, %w), MATMUL, sharding=DM  # 5 dot_general
  %a = f32[16,64] dot(%h, %v), MATMUL, sharding=D_  # 6 dot_general
  %g = f32[16,64] dot(%h, %u), MATMUL, sharding=D_  # 7 dot_general
  %ga = f32[64,64] dot(%x, %a), COLUMNS  # 8 transpose(jvp())/dot_general
  %gb = f32[64,64] dot(%x, %g), COLUMNS  # 9 transpose(jvp())/dot_general
  ROOT %t = (f32[64,64], f32[64,64], f32[16,64]) tuple(%ga, %gb, %a), sharding=R,R,D_
"""
SUMS_LOCAL = """
  %x.1 = f32[8,64] parameter(0), sharding=D_  # =x
  %w.1 = f32[64,32] parameter(1), sharding=_M  # =w
  %v.1 = f32[32,64] parameter(2), sharding=M_  # =v
  %u.1 = f32[32,64] parameter(3), sharding=M_  # =u
  %h.1 = f32[8,32] dot(%x.1, %w.1), MATMUL  # 5 dot_general
  %a.1 = f32[8,64] dot(%h.1, %v.1), MATMUL  # 6 dot_general
  %sa = f32[8,64] all-reduce(%a.1), channel_id=1, ALONG_MODEL, to_apply=%sum  # 6 dot_general
  %g.1 = f32[8,64] dot(%h.1, %u.1), MATMUL  # 7 dot_general
  %sg = f32[8,64] all-reduce(%g.1), channel_id=2, ALONG_MODEL, to_apply=%sum  # 7 dot_general
  %ga.1 = f32[64,64] dot(%x.1, %sa), COLUMNS  # 8 transpose(jvp())/dot_general
  %sga = f32[64,64] all-reduce(%ga.1), channel_id=3, ALONG_DATA, to_apply=%sum  # 8 transpose(jvp())/dot_general
  %gb.1 = f32[64,64] dot(%x.1, %sg), COLUMNS  # 9 transpose(jvp())/dot_general
  %sgb = f32[64,64] all-reduce(%gb.1), channel_id=4, ALONG_DATA, to_apply=%sum  # 9 transpose(jvp())/dot_general
  ROOT %t.1 = (f32[64,64], f32[64,64], f32[8,64]) tuple(%sga, %sgb, %sa)
"""
SUMS_COMBINED = """
  %x.2 = f32[8,64] parameter(0), sharding=D_  # =x
  %w.2 = f32[64,32] parameter(1), sharding=_M  # =w
  %v.2 = f32[32,64] parameter(2), sharding=M_  # =v
  %u.2 = f32[32,64] parameter(3), sharding=M_  # =u
  %h.2 = f32[8,32] dot(%x.2, %w.2), MATMUL  # 5 dot_general
  %a.2 = f32[8,64] dot(%h.2, %v.2), MATMUL  # 6 dot_general
  %g.2 = f32[8,64] dot(%h.2, %u.2), MATMUL  # 7 dot_general
  %both = (f32[8,64], f32[8,64]) all-reduce(%g.2, %a.2), channel_id=1, ALONG_MODEL, to_apply=%sum  # 6 dot_general
  %sg.2 = f32[8,64] get-tuple-element(%both), index=0
  %sa.2 = f32[8,64] get-tuple-element(%both), index=1
  %ga.2 = f32[64,64] dot(%x.2, %sa.2), COLUMNS  # 8 transpose(jvp())/dot_general
  %sga.2 = f32[64,64] all-reduce(%ga.2), channel_id=9, ALONG_DATA, to_apply=%sumNAME
  %gb.2 = f32[64,64] dot(%x.2, %sg.2), COLUMNS  # 9 transpose(jvp())/dot_general
  %sgb.2 = f32[64,64] all-reduce(%gb.2), channel_id=8, ALONG_DATA, to_apply=%sum  # 9 transpose(jvp())/dot_general
  ROOT %t.2 = (f32[64,64], f32[64,64], f32[8,64]) tuple(%sga.2, %sgb.2, %sa.2)
"""
OWN = """
  %x = f32[16,64] parameter(0), sharding=D_  # =x
  %n = f32[16,64] negate(%x), sharding=R  # 4 neg
  %e = f32[16,64] exponential(%n), sharding=R  # 5 exp
  ROOT %m = f32[16,64] multiply(%e, %n), sharding=R  # 6 mul
"""
OWN_LOCAL = """
  %x.1 = f32[8,64] parameter(0), sharding=D_  # =x
  %n.1 = f32[8,64] negate(%x.1)  # 4 neg
  %g = f32[16,64] all-gather(%n.1), channel_id=1, ALONG_DATA, dimensions={0}  # 4 neg
  %e.1 = f32[16,64] exponential(%g)  # 5 exp
  ROOT %m.1 = f32[16,64] multiply(%e.1, %g)  # 6 mul
"""
MINE = """
  %x.1 = f32[8,16] parameter(0), sharding=DM  # =x
  %n.1 = f32[8,16] negate(%x.1)  # 4 neg
  %p = f32[8,16] all-reduce(%n.1), channel_id=1, ALONG_MODEL, to_apply=%sum  # 5 shard_map/psum
  %q = f32[8,16] all-reduce(%p), channel_id=2, ALONG_MODEL, to_apply=%sum  # 6 transpose(jvp())/shard_map/psum
  ROOT %m = f32[8,16] multiply(%p, %q)  # 7 mul
"""
MINE_COMBINED = """
  %x.1 = f32[8,16] parameter(0), sharding=DM  # =x
  %n.1 = f32[8,16] negate(%x.1)  # 4 neg
  %k.1 = f32[8,16] exponential(%x.1)  # 4 exp
  %pq = (f32[8,16], f32[8,16]) all-reduce(%n.1, %k.1), channel_id=1, ALONG_MODEL, to_apply=%sum  # 5 shard_map/psum
  %p = f32[8,16] get-tuple-element(%pq), index=0
  %q = f32[8,16] get-tuple-element(%pq), index=1
  ROOT %m = f32[8,16] multiply(%p, %q)  # 7 mul
"""
TABLE = """
  %table = f32[32,16] parameter(0), sharding=D_  # =table
  %tokens = s32[8,4] parameter(1), sharding=D_  # =tokens
  %rows = f32[8,4,16] gather(%table, %tokens), offset_dims={2}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=2, slice_sizes={1,16}, sharding=D__  # 5 gather
  ROOT %sin = f32[8,4,16] sine(%rows), sharding=D__  # 6 sin
"""
TABLE_LOCAL = """
  %table.1 = f32[16,16] parameter(0), sharding=D_  # =table
  %tokens.1 = s32[4,4] parameter(1), sharding=D_  # =tokens
  %whole = f32[32,16] all-gather(%table.1), channel_id=1, ALONG_DATA, dimensions={0}  # 5 gather
  %rows.1 = f32[4,4,16] gather(%whole, %tokens.1), offset_dims={2}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=2, slice_sizes={1,16}  # 5 gather
  ROOT %sin.1 = f32[4,4,16] sine(%rows.1)  # 6 sin
"""
STEP_SHARDY = """
module @jit_f {
  sdy.mesh @mesh = <["data"=2, "model"=4]>
  func.func @main(%arg0: tensor<16x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>, sdy.sharding_origins = {data = "self"}}, %arg1: tensor<64x128xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>, sdy.sharding_origins = {model = "self"}}, %arg2: tensor<128x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>, sdy.sharding_origins = {model = "self"}}, %arg3: tensor<64x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>, sdy.sharding_origins = {model = "self"}}) -> (tensor<16x32xf32>) {
    %0 = stablehlo.dot %arg0, %arg1 {sdy.propagation_edges = #sdy.propagation_edges<[{step-6 = [{"data" = operand-0 -> [result-0]}, {"model" = operand-1 -> [result-0]}]}]>, sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"data"}, {"model"}]>]>, sdy.sharding_origins = [{data = "input: 0", model = "input: 1"}]} : (tensor<16x64xf32>, tensor<64x128xf32>) -> tensor<16x128xf32>
    %1 = stablehlo.tanh %0 {sdy.propagation_edges = #sdy.propagation_edges<[{step-7 = [{"data" = operand-0 -> [result-0]}, {"model" = operand-0 -> [result-0]}]}]>, sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"data"}, {"model"}]>]>, sdy.sharding_origins = [{data = "input: 0", model = "input: 1"}]} : tensor<16x128xf32>
    %2 = stablehlo.dot %1, %arg2 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"data"}, {}]>]>, sdy.sharding_origins = [{data = "constraint_0"}]} : (tensor<16x128xf32>, tensor<128x64xf32>) -> tensor<16x64xf32>
    %3 = sdy.reshard %2 <@mesh, [{"data"}, {}]> {sdy.propagation_edges = #sdy.propagation_edges<[{step-0 = [{"data" = result-0 -> [operand-0]}]}]>, sdy.sharding_origin_name = "constraint_0", sdy.sharding_origins = {data = "self"}} : tensor<16x64xf32>
    %4 = stablehlo.sine %3 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"data"}, {"model"}]>]>, sdy.sharding_origins = [{data = "constraint_1", model = "constraint_1"}]} : tensor<16x64xf32>
    %5 = sdy.reshard %4 <@mesh, [{"data"}, {"model"}]> {sdy.propagation_edges = #sdy.propagation_edges<[{step-1 = [{"data" = result-0 -> [operand-0]}, {"model" = result-0 -> [operand-0]}]}]>, sdy.sharding_origin_name = "constraint_1", sdy.sharding_origins = {data = "self", model = "self"}} : tensor<16x64xf32>
    %6 = sdy.reshard %5 <@mesh, [{"data"}, {}]> {sdy.sharding_origin_name = "constraint_2", sdy.sharding_origins = {data = "self"}} : tensor<16x64xf32>
    %7 = stablehlo.cosine %6 {sdy.propagation_edges = #sdy.propagation_edges<[{step-3 = [{"data" = operand-0 -> [result-0]}]}]>, sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"data"}, {}]>]>, sdy.sharding_origins = [{data = "constraint_2"}]} : tensor<16x64xf32>
    %8 = sdy.reshard %4 <@mesh, [{"model"}, {"data"}]> {sdy.sharding_origin_name = "constraint_3", sdy.sharding_origins = {model = "self", data = "self"}} : tensor<16x64xf32>
    %9 = stablehlo.dot %7, %arg3 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {"model"}]>]>, sdy.sharding_origins = [{model = "input: 3"}]} : (tensor<16x64xf32>, tensor<64x32xf32>) -> tensor<16x32xf32>
    %10 = sdy.constant dense<0.000000e+00> : tensor<f32>
    %11 = stablehlo.reduce(%3 init: %10) applies stablehlo.add across dimensions = [0] : (tensor<16x64xf32>, tensor<f32>) -> tensor<64xf32>
    %12 = stablehlo.negate %8 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"model"}, {"data"}]>]>, sdy.sharding_origins = [{data = "constraint_3", model = "constraint_3"}]} : tensor<16x64xf32>
    %13 = stablehlo.exponential %7 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"data"}, {}]>]>, sdy.sharding_origins = [{data = "constraint_2"}]} : tensor<16x64xf32>
    return %9, %11, %12, %13 : tensor<16x32xf32>, tensor<64xf32>, tensor<16x64xf32>, tensor<16x64xf32>
  }
}
"""
