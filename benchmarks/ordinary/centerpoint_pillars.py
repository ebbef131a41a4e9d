TRUTH = """
One training step (train_step) of a LiDAR detector, CenterPoint on pillars, data parallel on 8 devices, batch 16 (2 scenes per device).

train_step
  loss_fn (forward)
    CenterPoint
      pfn (PillarFeatureNet): linear 10->64 on 20000 x 20 points, bn, relu, max over points
      scatter_to_bev: scatter of 20000 pillars into 512x512x64 (vmap over scenes)
      rpn (RPN): stage0 (down + 3 convs, 256x256x64), stage1 (down + 5 convs, 128x128x128), stage2 (down + 5 convs, 64x64x256); up0, up1, up2 to 128x128x128 each; concat 384
      shared_conv 384->64 at 128x128
      6 heads (SepHead): head_car, head_truck, head_bus, head_barrier, head_motorcycle, head_pedestrian
        each 6 branches: reg, height, dim, rot, vel, heatmap = conv 64->64 + bn + relu, conv 64->few  (36 branches in all)
    losses: gaussian_focal_loss x6, box_loss x6 (gather at 200 objects)
  backward of all (about twice), convolution gradients
  batch-norm statistics: all-reduce over the 8 devices (many, small), forward and backward; gradient all-reduce
  apply_gradients: clip_by_global_norm, adamw, apply; batch_stats moving averages

No loop of the person's own anywhere: everything is written out. (16 backbone convs + 3 ups + shared + 72 head convs.)
Weight: the rpn convs and the 36 head convs (64->64, 3x3 at 128x128: 36 x 1.2 Gflop x 2 per scene = 43 Gmac... the heads together are of
the order of the rpn); shared_conv 3.6 Gmac; pfn tiny in flops but large in memory; scatter no flops.
First sight: pfn -> scatter -> rpn (stage0, stage1, stage2, ups) -> shared_conv -> six heads (alike, x6, differing only in number of classes) -> losses; backward; optimiser.
Names true: pfn, rpn, stageI_convJ, shared_conv, head_<first class>, heatmap_conv etc.
False would be: a loop; heads merged into rpn; pfn missing since small; the all-reduces of the batch norm shown as gradient exchange; scatter called a matmul.
"""

"""CenterPoint with a PointPillars backbone on nuScenes, flax linen. Data parallel, synchronised batch norm."""
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training import train_state
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 8}
BATCH, PILLARS, POINTS, FEATS = 16, 20000, 20, 10
GRID, MAX_OBJ = 512, 200
OUT = GRID // 4
TASKS = (
    ("car",),
    ("truck", "construction_vehicle"),
    ("bus", "trailer"),
    ("barrier",),
    ("motorcycle", "bicycle"),
    ("pedestrian", "traffic_cone"),
)
BRANCHES = (("reg", 2), ("height", 1), ("dim", 3), ("rot", 2), ("vel", 2))
DT = jnp.bfloat16


class PillarFeatureNet(nn.Module):
    @nn.compact
    def __call__(self, points, mask, train):
        x = nn.Dense(64, use_bias=False, dtype=DT, name="linear")(points)
        x = nn.BatchNorm(not train, momentum=0.99, dtype=DT, name="bn")(x)
        x = jnp.where(mask[..., None], nn.relu(x), 0)
        return x.max(axis=2)


def scatter_to_bev(features, coords):
    """(P, 64) pillars to their cells of the (GRID, GRID, 64) bird's eye view."""
    canvas = jnp.zeros((GRID * GRID, features.shape[-1]), features.dtype)
    flat = coords[:, 0] * GRID + coords[:, 1]
    return canvas.at[flat].set(features, mode="drop").reshape(GRID, GRID, -1)


class ConvBNReLU(nn.Module):
    features: int
    stride: int = 1
    kernel: int = 3

    @nn.compact
    def __call__(self, x, train):
        x = nn.Conv(self.features, (self.kernel,) * 2, self.stride, use_bias=False, dtype=DT)(x)
        x = nn.BatchNorm(not train, momentum=0.99, dtype=DT)(x)
        return nn.relu(x)


class RPN(nn.Module):
    """SECOND backbone: three stages, each brought to stride 4 and concatenated."""

    @nn.compact
    def __call__(self, x, train):
        ups = []
        for i, (width, depth) in enumerate(((64, 4), (128, 6), (256, 6))):
            x = ConvBNReLU(width, 2, name=f"stage{i}_down")(x, train)
            for j in range(depth - 1):
                x = ConvBNReLU(width, name=f"stage{i}_conv{j}")(x, train)
            if i == 0:
                u = ConvBNReLU(128, 2, 2, name="up0")(x, train)
            elif i == 1:
                u = ConvBNReLU(128, 1, 1, name="up1")(x, train)
            else:
                u = nn.ConvTranspose(128, (2, 2), (2, 2), use_bias=False, dtype=DT, name="up2")(x)
                u = nn.relu(nn.BatchNorm(not train, momentum=0.99, dtype=DT, name="up2_bn")(u))
            ups.append(u)
        return jnp.concatenate(ups, -1)


class SepHead(nn.Module):
    classes: int

    @nn.compact
    def __call__(self, x, train):
        out = {}
        for name, channels in BRANCHES + (("heatmap", self.classes),):
            h = ConvBNReLU(64, name=f"{name}_conv")(x, train)
            bias = nn.initializers.constant(-2.19) if name == "heatmap" else nn.initializers.zeros
            out[name] = nn.Conv(channels, (3, 3), bias_init=bias, name=f"{name}_out")(h)
        return out


class CenterPoint(nn.Module):
    @nn.compact
    def __call__(self, batch, train=True):
        pillars = PillarFeatureNet(name="pfn")(batch["points"], batch["mask"], train)
        bev = jax.vmap(scatter_to_bev)(pillars, batch["coords"])
        neck = RPN(name="rpn")(bev, train)
        shared = ConvBNReLU(64, name="shared_conv")(neck, train)
        return [SepHead(len(names), name="head_" + names[0])(shared, train) for names in TASKS]


def gaussian_focal_loss(logits, target):
    p = jnp.clip(jax.nn.sigmoid(logits.astype(jnp.float32)), 1e-4, 1 - 1e-4)
    pos = target == 1
    pos_loss = jnp.where(pos, jnp.log(p) * (1 - p) ** 2, 0).sum()
    neg_loss = jnp.where(pos, 0, jnp.log(1 - p) * p**2 * (1 - target) ** 4).sum()
    return -(pos_loss + neg_loss) / jnp.maximum(pos.sum(), 1)


def box_loss(pred, t):
    boxes = jnp.concatenate([pred[n] for n, _ in BRANCHES], -1).reshape(
        pred["reg"].shape[0], OUT * OUT, -1
    )
    at = jax.vmap(lambda m, i: m[i])(boxes, t["index"])
    weight = jnp.array([1, 1, 1, 1, 1, 1, 1, 1, 0.2, 0.2])
    l1 = jnp.abs(at.astype(jnp.float32) - t["box"]) * t["valid"][..., None] * weight
    return l1.sum() / jnp.maximum(t["valid"].sum(), 1)


class TrainState(train_state.TrainState):
    batch_stats: dict


@partial(jax.jit, donate_argnums=0)
def train_step(state, batch):
    def loss_fn(params):
        preds, new = state.apply_fn(
            {"params": params, "batch_stats": state.batch_stats}, batch, mutable=["batch_stats"]
        )
        heat = sum(
            gaussian_focal_loss(p["heatmap"], t["heatmap"]) for p, t in zip(preds, batch["targets"])
        )
        box = sum(box_loss(p, t) for p, t in zip(preds, batch["targets"]))
        return heat + 0.25 * box, (new["batch_stats"], heat, box)

    (loss, (stats, heat, box)), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    state = state.apply_gradients(grads=grads, batch_stats=stats)
    return state, {"loss": loss, "heat": heat, "box": box}


def make(mesh):
    S = jax.ShapeDtypeStruct
    dp, rep = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    s = lambda shape, dt=jnp.float32: S((BATCH,) + shape, dt, sharding=dp)
    batch = {
        "points": s((PILLARS, POINTS, FEATS)),
        "mask": s((PILLARS, POINTS), jnp.bool_),
        "coords": s((PILLARS, 2), jnp.int32),
        "targets": [
            {
                "heatmap": s((OUT, OUT, len(n))),
                "index": s((MAX_OBJ,), jnp.int32),
                "box": s((MAX_OBJ, 10)),
                "valid": s((MAX_OBJ,)),
            }
            for n in TASKS
        ],
    }
    model = CenterPoint()
    tx = optax.chain(
        optax.clip_by_global_norm(35.0),
        optax.adamw(optax.cosine_onecycle_schedule(140_000, 1e-3), weight_decay=0.01),
    )

    def create(b):
        v = model.init(jax.random.PRNGKey(0), b)
        return TrainState.create(
            apply_fn=model.apply, params=v["params"], tx=tx, batch_stats=v["batch_stats"]
        )

    state = jax.eval_shape(create, jax.tree.map(lambda x: S(x.shape, x.dtype), batch))
    state = jax.tree.map(lambda x: S(x.shape, x.dtype, sharding=rep), state)
    return train_step, (state, batch)
