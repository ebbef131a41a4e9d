TRUTH = """
# detr_nnx — DETR train step (flax nnx), 8-way data parallel (NamedSharding + jit), layers unrolled in Python

train_step:
1. **model forward**
   - **backbone** { stem conv 7x7, 4 stages x 2 BasicBlocks (conv1, gn1, conv2, gn2, shortcut) } 192x192 -> 12x12, 256 ch; input_proj 1x1
   - **encoder: 6 layers (unrolled)** { self_attn (144 tokens), norm, ffn, norm }
   - **decoder: 6 layers (unrolled)** { self_attn (50 queries), cross_attn (50 x 144), ffn, norms }
   - heads: class_head, box_head on all 6 decoder outputs
2. **loss (per image x per decoder layer: 16 x 6, vmapped; 2 images per device)** { **match** { cost: class prob, L1, giou ; **hungarian_algorithm: loop over the 20 rows (for each: while loop augmenting path)** } , cross entropy, L1, giou }
3. **backward**: loss/heads, decoder (6), encoder (6), input_proj, backbone (stages reversed)
4. **gradient all-reduce** over 'batch' (8)
5. **optimiser**: clip_by_global_norm, adamw; state update

Loops: only hungarian: 20 turns > dynamic inner while (+ inner second while that follows the path). No loop over layers: "layer x6" by repetition only, forward and backward.
Collectives: all-reduce of gradients & loss. Danger: batched while in the hungarian with batch sharded: condition any() over the sharded batch -> all-reduce inside the inner loop (a tiny all-reduce per turn), and perhaps all-gathers of cost for its gather/scatter. 
Heaviest: backbone convolutions' backward (stem/first stage at 48x48..96x96; stage flops: stage1 48^2*32^2*9*4=85M MAC; stage2 24^2.. 64: 2.x; last stage 12^2 x 256^2*9*3.5=297M MAC) and so stage 4 backward; encoder 144 tokens x 0.44M params x 6 = 0.38G MAC is similar. 
Names: "backbone", "stage 1-4", "encoder layer x6", "decoder layer x6", "heads", "match (hungarian)", "set loss", "backward", "clip + adamw".
"""
"""DETR train step with Flax NNX: small ResNet backbone, 6+6 transformer, Hungarian matching, aux losses."""
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

NUM_CLASSES = 91
NUM_QUERIES = 50
MAX_BOXES = 20
DIM, HEADS, FFN = 192, 6, 768
BATCH, SIZE = 16, 192


class BasicBlock(nnx.Module):
    def __init__(self, cin, cout, stride, *, rngs):
        self.conv1 = nnx.Conv(cin, cout, (3, 3), strides=stride, use_bias=False, rngs=rngs)
        self.gn1 = nnx.GroupNorm(cout, num_groups=16, rngs=rngs)
        self.conv2 = nnx.Conv(cout, cout, (3, 3), use_bias=False, rngs=rngs)
        self.gn2 = nnx.GroupNorm(cout, num_groups=16, rngs=rngs)
        self.short = (
            nnx.Conv(cin, cout, (1, 1), strides=stride, use_bias=False, rngs=rngs)
            if (stride != 1 or cin != cout)
            else None
        )

    def __call__(self, x):
        y = nnx.relu(self.gn1(self.conv1(x)))
        y = self.gn2(self.conv2(y))
        return nnx.relu(y + (x if self.short is None else self.short(x)))


class Backbone(nnx.Module):
    def __init__(self, *, rngs):
        self.stem = nnx.Conv(3, 32, (7, 7), strides=2, use_bias=False, rngs=rngs)
        self.norm = nnx.GroupNorm(32, num_groups=16, rngs=rngs)
        self.stages = nnx.List(
            [
                nnx.List([BasicBlock(ci, co, s, rngs=rngs), BasicBlock(co, co, 1, rngs=rngs)])
                for ci, co, s in [(32, 32, 2), (32, 64, 2), (64, 128, 2), (128, 256, 1)]
            ]
        )

    def __call__(self, x):
        x = nnx.relu(self.norm(self.stem(x)))
        for stage in self.stages:
            for block in stage:
                x = block(x)
        return x


class MHA(nnx.Module):
    def __init__(self, *, rngs):
        mk = lambda: nnx.Linear(DIM, DIM, rngs=rngs)
        self.q, self.k, self.v, self.o = mk(), mk(), mk(), mk()

    def __call__(self, q, k, v):
        sp = lambda z: z.reshape(z.shape[0], z.shape[1], HEADS, -1)
        q, k, v = sp(self.q(q)), sp(self.k(k)), sp(self.v(v))
        a = nnx.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1]))
        y = jnp.einsum("bhqk,bkhd->bqhd", a, v)
        return self.o(y.reshape(y.shape[0], y.shape[1], DIM))


class FFNBlock(nnx.Module):
    def __init__(self, *, rngs):
        self.lin1 = nnx.Linear(DIM, FFN, rngs=rngs)
        self.lin2 = nnx.Linear(FFN, DIM, rngs=rngs)

    def __call__(self, x):
        return self.lin2(nnx.relu(self.lin1(x)))


class EncoderLayer(nnx.Module):
    def __init__(self, *, rngs):
        self.self_attn, self.ffn = MHA(rngs=rngs), FFNBlock(rngs=rngs)
        self.n1, self.n2 = nnx.LayerNorm(DIM, rngs=rngs), nnx.LayerNorm(DIM, rngs=rngs)

    def __call__(self, x, pos):
        x = self.n1(x + self.self_attn(x + pos, x + pos, x))
        return self.n2(x + self.ffn(x))


class DecoderLayer(nnx.Module):
    def __init__(self, *, rngs):
        self.self_attn, self.cross_attn, self.ffn = (
            MHA(rngs=rngs),
            MHA(rngs=rngs),
            FFNBlock(rngs=rngs),
        )
        self.n1, self.n2, self.n3 = (nnx.LayerNorm(DIM, rngs=rngs) for _ in range(3))

    def __call__(self, t, mem, pos, qpos):
        t = self.n1(t + self.self_attn(t + qpos, t + qpos, t))
        t = self.n2(t + self.cross_attn(t + qpos, mem + pos, mem))
        return self.n3(t + self.ffn(t))


def sine_pos(h, w):
    f = 10000 ** (-np.arange(DIM // 4) / (DIM // 4))
    yy, xx = np.arange(h)[:, None] * f, np.arange(w)[:, None] * f
    ey = np.concatenate([np.sin(yy), np.cos(yy)], -1)[:, None].repeat(w, 1)
    ex = np.concatenate([np.sin(xx), np.cos(xx)], -1)[None].repeat(h, 0)
    return jnp.asarray(np.concatenate([ey, ex], -1).reshape(1, h * w, DIM), jnp.float32)


class DETR(nnx.Module):
    def __init__(self, *, rngs):
        self.backbone = Backbone(rngs=rngs)
        self.input_proj = nnx.Conv(256, DIM, (1, 1), rngs=rngs)
        self.encoder = nnx.List([EncoderLayer(rngs=rngs) for _ in range(6)])
        self.decoder = nnx.List([DecoderLayer(rngs=rngs) for _ in range(6)])
        self.query_embed = nnx.Param(jax.random.normal(rngs.params(), (1, NUM_QUERIES, DIM)))
        self.class_head = nnx.Linear(DIM, NUM_CLASSES + 1, rngs=rngs)
        self.box_head = nnx.List([nnx.Linear(DIM, DIM, rngs=rngs), nnx.Linear(DIM, 4, rngs=rngs)])

    def __call__(self, images):
        f = self.input_proj(self.backbone(images))
        b, h, w, _ = f.shape
        pos, x = sine_pos(h, w), f.reshape(b, h * w, DIM)
        for layer in self.encoder:
            x = layer(x, pos)
        q = jnp.broadcast_to(self.query_embed[...], (b, NUM_QUERIES, DIM))
        t, outs = jnp.zeros_like(q), []
        for layer in self.decoder:
            t = layer(t, x, pos, q)
            outs.append(t)
        hs = jnp.stack(outs)
        boxes = nnx.sigmoid(self.box_head[1](nnx.relu(self.box_head[0](hs))))
        return self.class_head(hs), boxes


def to_xyxy(b):
    c, s = b[..., :2], b[..., 2:]
    return jnp.concatenate([c - s / 2, c + s / 2], -1)


def giou(a, b):
    a, b = to_xyxy(a), to_xyxy(b)
    area = lambda z: jnp.prod(jnp.maximum(z[..., 2:] - z[..., :2], 0), -1)
    inter = jnp.prod(
        jnp.maximum(jnp.minimum(a[..., 2:], b[..., 2:]) - jnp.maximum(a[..., :2], b[..., :2]), 0),
        -1,
    )
    union = area(a) + area(b) - inter
    hull = jnp.prod(jnp.maximum(a[..., 2:], b[..., 2:]) - jnp.minimum(a[..., :2], b[..., :2]), -1)
    return inter / (union + 1e-6) - (hull - union) / (hull + 1e-6)


def match(logits, boxes, labels, gt, valid):
    """one image: which query goes with which ground-truth box"""
    p = jax.nn.softmax(logits)[:, labels]
    l1 = jnp.abs(boxes[:, None] - gt[None]).sum(-1)
    cost = -p + 5 * l1 - 2 * giou(boxes[:, None], gt[None])
    cost = jnp.where(valid[None], cost, 0.0)
    i, j = optax.assignment.hungarian_algorithm(jax.lax.stop_gradient(cost.T))
    return j[jnp.argsort(i)]


def set_loss(logits, boxes, labels, gt, valid):
    q = match(logits, boxes, labels, gt, valid)
    tgt = jnp.full((NUM_QUERIES,), NUM_CLASSES).at[q].set(jnp.where(valid, labels, NUM_CLASSES))
    w = jnp.where(tgt == NUM_CLASSES, 0.1, 1.0)
    ce = jnp.sum(w * optax.softmax_cross_entropy_with_integer_labels(logits, tgt)) / w.sum()
    n = jnp.maximum(valid.sum(), 1)
    l1 = jnp.sum(valid * jnp.abs(boxes[q] - gt).sum(-1)) / n
    gi = jnp.sum(valid * (1 - giou(boxes[q], gt))) / n
    return ce + 5 * l1 + 2 * gi


def loss_fn(model, batch):
    logits, boxes = model(batch["image"])
    per_image = jax.vmap(set_loss)
    per_layer = jax.vmap(per_image, in_axes=(0, 0, None, None, None))
    return per_layer(logits, boxes, batch["labels"], batch["boxes"], batch["valid"]).sum(0).mean()


def build(devices=None):
    devices = np.array(jax.devices() if devices is None else devices)[:8]
    mesh = Mesh(devices, ("batch",))
    tx = optax.chain(optax.clip_by_global_norm(0.1), optax.adamw(1e-4, weight_decay=1e-4))

    def create():
        m = DETR(rngs=nnx.Rngs(0))
        return nnx.split((m, nnx.Optimizer(m, tx, wrt=nnx.Param)))

    hold = {}

    def shapes():
        hold["graph"], st = create()
        return st

    state = jax.eval_shape(shapes)

    def train_step(state, batch):
        model, opt = nnx.merge(hold["graph"], state)
        loss, grads = nnx.value_and_grad(loss_fn)(model, batch)
        opt.update(model, grads)
        return nnx.state((model, opt)), loss

    put = lambda spec: (
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(mesh, spec))
    )
    S = jax.ShapeDtypeStruct
    batch = dict(
        image=S((BATCH, SIZE, SIZE, 3), jnp.float32),
        labels=S((BATCH, MAX_BOXES), jnp.int32),
        boxes=S((BATCH, MAX_BOXES, 4), jnp.float32),
        valid=S((BATCH, MAX_BOXES), jnp.bool_),
    )
    return jax.jit(train_step, donate_argnums=0), (
        jax.tree.map(put(P()), state),
        jax.tree.map(put(P("batch")), batch),
    )


MESH = {"device": 8}


def make(mesh):
    return build(list(mesh.devices.flat))
