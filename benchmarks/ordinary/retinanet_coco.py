TRUTH = """
One training step (train_step) of RetinaNet (ResNet-50, FPN) in flax linen, 16 images of 640 x 640, one device, 38 M parameters.

train_step
  assign_targets: vmap over images: iou of 76725 anchors with 100 boxes, best match, class and box targets (not differentiated)
  detection_loss (forward)
    RetinaNet
      backbone (ResNet50): stem 7x7, max pool; stage1 3, stage2 4, stage3 6, stage4 3 Bottleneck (16 in all), FrozenBatchNorm (constants, no batch statistics)
      fpn: lateral 1x1 on c3, c4, c5; top-down upsample-add; out 3x3 for p3, p4, p5; p6, p7 stride-2 convs
      class_head: 4 convs 3x3 256 with group norm, predict 9 x 80: applied to p3..p7 (5 times, same weights)
      box_head: likewise, predict 9 x 4, applied 5 times
    focal_loss, box_loss (smooth L1 on the positives), normalised by the number of positives
  backward
  optimiser: optax sgd with momentum, weight decay, warm-up schedule; ema of the weights

No loop of the person's own. 16 bottlenecks, 5 pyramid levels, 2 heads x 5 levels x 5 convs = 50 head convs.
Weight: heads on p3 (80 x 80) heaviest by level (three quarters of the heads' work; each further level a quarter): heads about 8 x 590 k x 8525 = 40 G MAC + class predict 14 G per image; backbone about 33 G MAC; fpn about 6-7.
False would be: 10 different heads (they share weights); batch-norm statistics updated; assign_targets as a network or having a backward; levels merged silently; loop.
First sight: backbone -> fpn -> two heads on five levels -> losses with targets from assign_targets; backward; sgd; ema.
Names true: assign_targets, backbone, stem, stage1_block1 .., fpn, class_head, box_head, focal_loss, box_loss, ema.
"""

"""RetinaNet on COCO, flax linen: ResNet-50 with frozen batch norm, FPN, shared class and box heads over five levels,
anchors matched on the device, focal loss, SGD and an exponential average of the weights."""
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

BATCH, SIZE, CLASSES, BOXES = 16, 640, 80, 100
STRIDES = (8, 16, 32, 64, 128)
ANCHORS_PER_CELL = 9
BF16 = jnp.bfloat16


class FrozenBatchNorm(nn.Module):
    """Statistics and affine folded into a constant scale and bias kept outside of the parameters."""

    @nn.compact
    def __call__(self, x):
        scale = self.variable("frozen", "scale", jnp.ones, (x.shape[-1],))
        bias = self.variable("frozen", "bias", jnp.zeros, (x.shape[-1],))
        return x * scale.value.astype(x.dtype) + bias.value.astype(x.dtype)


conv = partial(nn.Conv, use_bias=False, dtype=BF16)


class Bottleneck(nn.Module):
    width: int
    strides: int = 1

    @nn.compact
    def __call__(self, x):
        y = nn.relu(FrozenBatchNorm(name="bn1")(conv(self.width, (1, 1), name="conv1")(x)))
        y = nn.relu(
            FrozenBatchNorm(name="bn2")(conv(self.width, (3, 3), self.strides, name="conv2")(y))
        )
        y = FrozenBatchNorm(name="bn3")(conv(4 * self.width, (1, 1), name="conv3")(y))
        if x.shape != y.shape:
            x = FrozenBatchNorm(name="bn_skip")(
                conv(4 * self.width, (1, 1), self.strides, name="skip")(x)
            )
        return nn.relu(x + y)


class ResNet50(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(FrozenBatchNorm(name="stem_bn")(conv(64, (7, 7), 2, name="stem")(x)))
        x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
        features = []
        for stage, (width, blocks) in enumerate(zip((64, 128, 256, 512), (3, 4, 6, 3)), start=1):
            for block in range(1, blocks + 1):
                strides = 2 if stage > 1 and block == 1 else 1
                x = Bottleneck(width, strides, name=f"stage{stage}_block{block}")(x)
            features.append(x)
        return features[1:]


class FPN(nn.Module):
    @nn.compact
    def __call__(self, c3, c4, c5):
        layer = partial(nn.Conv, 256, dtype=BF16)
        up = lambda x: jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2)
        m5 = layer((1, 1), name="lateral5")(c5)
        m4 = layer((1, 1), name="lateral4")(c4) + up(m5)
        m3 = layer((1, 1), name="lateral3")(c3) + up(m4)
        p3, p4, p5 = (layer((3, 3), name=f"out{i}")(m) for i, m in zip((3, 4, 5), (m3, m4, m5)))
        p6 = layer((3, 3), strides=2, name="p6")(c5)
        p7 = layer((3, 3), strides=2, name="p7")(nn.relu(p6))
        return p3, p4, p5, p6, p7


class Head(nn.Module):
    outputs: int
    prior: float = 0.0

    def setup(self):
        self.convs = [nn.Conv(256, (3, 3), dtype=BF16) for _ in range(4)]
        self.norms = [nn.GroupNorm(32, dtype=BF16) for _ in range(4)]
        self.predict = nn.Conv(
            ANCHORS_PER_CELL * self.outputs,
            (3, 3),
            dtype=BF16,
            bias_init=nn.initializers.constant(self.prior),
        )

    def __call__(self, x):
        for layer, norm in zip(self.convs, self.norms):
            x = nn.relu(norm(layer(x)))
        y = self.predict(x).astype(jnp.float32)
        return y.reshape(y.shape[0], -1, self.outputs)


class RetinaNet(nn.Module):
    def setup(self):
        self.backbone = ResNet50()
        self.fpn = FPN()
        self.class_head = Head(CLASSES, prior=-float(np.log(99.0)))
        self.box_head = Head(4)

    def __call__(self, images):
        levels = self.fpn(*self.backbone(images.astype(BF16)))
        classes = jnp.concatenate([self.class_head(p) for p in levels], axis=1)
        boxes = jnp.concatenate([self.box_head(p) for p in levels], axis=1)
        return classes, boxes


def make_anchors():
    out = []
    for stride in STRIDES:
        n = int(np.ceil(SIZE / stride))
        centre = (np.arange(n) + 0.5) * stride
        y, x = np.meshgrid(centre, centre, indexing="ij")
        for scale in (1, 2 ** (1 / 3), 2 ** (2 / 3)):
            for ratio in (0.5, 1.0, 2.0):
                h, w = 4 * stride * scale * np.sqrt(ratio), 4 * stride * scale / np.sqrt(ratio)
                out.append(
                    np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], -1).reshape(-1, 1, 4)
                )
    per_level = [np.concatenate(out[i : i + 9], 1).reshape(-1, 4) for i in range(0, 45, 9)]
    return np.concatenate(per_level).astype(np.float32)


def iou(a, b):
    top = jnp.maximum(a[:, None, :2], b[None, :, :2])
    bottom = jnp.minimum(a[:, None, 2:], b[None, :, 2:])
    inter = jnp.prod(jnp.maximum(bottom - top, 0.0), -1)
    area = lambda c: jnp.prod(c[:, 2:] - c[:, :2], -1)
    return inter / (area(a)[:, None] + area(b)[None] - inter + 1e-6)


def encode(anchors, boxes):
    size, target = anchors[:, 2:] - anchors[:, :2], jnp.maximum(boxes[:, 2:] - boxes[:, :2], 1.0)
    shift = (boxes[:, :2] + boxes[:, 2:] - anchors[:, :2] - anchors[:, 2:]) / 2 / size
    return jnp.concatenate([shift / 0.1, jnp.log(target / size) / 0.2], -1)


def assign_targets(anchors, boxes, labels):
    """One image: for every anchor its class (-2 ignored, -1 background) and encoded box."""
    overlap = jnp.where(labels[None] >= 0, iou(anchors, boxes), -1.0)
    best, which = overlap.max(1), overlap.argmax(1)
    cls = jnp.where(best >= 0.5, labels[which], jnp.where(best < 0.4, -1, -2))
    forced = overlap.argmax(0)
    cls = cls.at[forced].max(jnp.where(labels >= 0, labels, -2))
    return cls, encode(anchors, boxes[which])


def focal_loss(logits, classes, alpha=0.25, gamma=2.0):
    target = jax.nn.one_hot(classes, CLASSES)
    p = jax.nn.sigmoid(logits)
    ce = optax.sigmoid_binary_cross_entropy(logits, target)
    pt = p * target + (1 - p) * (1 - target)
    weight = (alpha * target + (1 - alpha) * (1 - target)) * (1 - pt) ** gamma
    return jnp.sum(weight * ce * (classes != -2)[..., None])


def box_loss(predicted, target, classes):
    return jnp.sum(optax.huber_loss(predicted, target, delta=0.1).sum(-1) * (classes >= 0))


def make():
    model = RetinaNet()
    anchors = make_anchors()
    schedule = optax.join_schedules(
        [
            optax.linear_schedule(0.0, 0.01, 1000),
            optax.piecewise_constant_schedule(0.01, {60_000: 0.1, 80_000: 0.1}),
        ],
        [1000],
    )
    optimizer = optax.chain(
        optax.clip_by_global_norm(10.0),
        optax.add_decayed_weights(1e-4),
        optax.sgd(schedule, momentum=0.9),
    )

    def detection_loss(params, frozen, images, targets):
        classes, boxes = model.apply({"params": params, "frozen": frozen}, images)
        cls, box = targets
        positives = jnp.maximum(jnp.sum(cls >= 0), 1).astype(jnp.float32)
        parts = {
            "class": focal_loss(classes, cls) / positives,
            "box": box_loss(boxes, box, cls) / positives,
        }
        return parts["class"] + parts["box"], parts

    @partial(jax.jit, donate_argnums=(0, 2, 3))
    def train_step(params, frozen, ema, opt_state, batch):
        targets = jax.vmap(assign_targets, in_axes=(None, 0, 0))(
            jnp.asarray(anchors), batch["boxes"], batch["labels"]
        )
        mean, std = jnp.array([0.485, 0.456, 0.406]), jnp.array([0.229, 0.224, 0.225])
        images = (batch["images"].astype(jnp.float32) / 255.0 - mean) / std
        (loss, parts), grads = jax.value_and_grad(detection_loss, has_aux=True)(
            params, frozen, images, targets
        )
        updates, opt_state = optimizer.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        with jax.named_scope("ema"):
            ema = jax.tree.map(lambda e, p: 0.9998 * e + 0.0002 * p, ema, params)
        return params, ema, opt_state, {"loss": loss, **parts}

    S = jax.ShapeDtypeStruct
    variables = jax.eval_shape(model.init, jax.random.key(0), S((1, SIZE, SIZE, 3), jnp.float32))
    params, frozen = variables["params"], variables["frozen"]
    batch = {
        "images": S((BATCH, SIZE, SIZE, 3), jnp.uint8),
        "boxes": S((BATCH, BOXES, 4), jnp.float32),
        "labels": S((BATCH, BOXES), jnp.int32),
    }
    return train_step, (params, frozen, params, jax.eval_shape(optimizer.init, params), batch)
