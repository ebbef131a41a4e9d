TRUTH = """
TOP-LEVEL, IN ORDER
- train_step: teacher forwards (`vit_teacher`, `resnet_teacher`, no gradient) -> student forward (`student`, MobileNet-like) -> `distill_loss` (cross entropy + 2 temperature-KLs weighted by teacher confidence + feature hint) -> student backward -> SGD momentum (nesterov) -> student's batch norm statistics updated
- vit_teacher: patch conv, 6 transformer blocks, mean pool, head
- resnet_teacher: stem conv, 4 stages of 2 residual blocks (BatchNorm with running averages), mean pool, fc
- student: stem, 7 inverted residual blocks (expand 1x1, depthwise 3x3, project 1x1), final 1x1 conv, pool, classifier; plus `hint` linear that maps student features to the ViT's feature width
COUNTS
- 6 ViT blocks, 8 ResNet blocks, 7 student blocks, all unrolled; no layer loop anywhere
- 3 forwards, exactly ONE backward (student only)
INDEPENDENT
- the two teachers and the student forward are mutually independent (three parallel branches) and meet in distill_loss
COMMUNICATION
- data parallel on 8 devices, weights replicated; all-reduces: gradients, and BatchNorm statistics of the student (global batch mean/var); none in the teachers
SHARES
- teachers do most of the FLOPs: ResNet the largest (~55%), ViT second (~33%), student (fwd + bwd) the smallest (~11%)
- optimizer ~0
MUST NOT BE SHOWN
- no teacher backward, no teacher optimizer/EMA, no mutual learning, no augmentation, no dropout, no layer loop
"""
"""Distillation of a ViT and a ResNet teacher into a small MobileNet student. Flax NNX, data parallel."""
import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 8}
NUM_CLASSES = 100
IMG = 96


class Attention(nnx.Module):
    def __init__(self, dim, heads, rngs):
        self.heads = heads
        self.qkv = nnx.Linear(dim, 3 * dim, rngs=rngs)
        self.out = nnx.Linear(dim, dim, rngs=rngs)

    def __call__(self, x):
        b, n, d = x.shape
        q, k, v = jnp.split(self.qkv(x).reshape(b, n, self.heads, -1), 3, axis=-1)
        return self.out(jax.nn.dot_product_attention(q, k, v).reshape(b, n, d))


class ViTBlock(nnx.Module):
    def __init__(self, dim, heads, rngs):
        self.ln1, self.ln2 = nnx.LayerNorm(dim, rngs=rngs), nnx.LayerNorm(dim, rngs=rngs)
        self.attn = Attention(dim, heads, rngs)
        self.fc1, self.fc2 = (
            nnx.Linear(dim, 4 * dim, rngs=rngs),
            nnx.Linear(4 * dim, dim, rngs=rngs),
        )

    def __call__(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.fc2(nnx.gelu(self.fc1(self.ln2(x))))


class ViT(nnx.Module):
    def __init__(self, rngs, dim=256, depth=6, heads=4, patch=8):
        n = (IMG // patch) ** 2
        self.patch_embed = nnx.Conv(
            3, dim, (patch, patch), strides=(patch, patch), padding="VALID", rngs=rngs
        )
        self.pos = nnx.Param(0.02 * jax.random.normal(rngs.params(), (1, n, dim)))
        self.blocks = nnx.List([ViTBlock(dim, heads, rngs) for _ in range(depth)])
        self.norm, self.head = (
            nnx.LayerNorm(dim, rngs=rngs),
            nnx.Linear(dim, NUM_CLASSES, rngs=rngs),
        )

    def __call__(self, x):
        x = self.patch_embed(x)
        x = x.reshape(x.shape[0], -1, x.shape[-1]) + self.pos[...]
        for blk in self.blocks:
            x = blk(x)
        feat = self.norm(x).mean(1)
        return self.head(feat), feat


class ConvBN(nnx.Module):
    def __init__(self, cin, cout, k, stride, rngs, groups=1):
        self.conv = nnx.Conv(
            cin,
            cout,
            (k, k),
            strides=(stride, stride),
            feature_group_count=groups,
            use_bias=False,
            rngs=rngs,
        )
        self.bn = nnx.BatchNorm(cout, momentum=0.9, rngs=rngs)

    def __call__(self, x):
        return self.bn(self.conv(x))


class BasicBlock(nnx.Module):
    def __init__(self, cin, cout, stride, rngs):
        self.conv1, self.conv2 = ConvBN(cin, cout, 3, stride, rngs), ConvBN(cout, cout, 3, 1, rngs)
        self.short = ConvBN(cin, cout, 1, stride, rngs) if stride != 1 or cin != cout else None

    def __call__(self, x):
        y = self.conv2(nnx.relu(self.conv1(x)))
        return nnx.relu(y + (self.short(x) if self.short is not None else x))


class ResNet(nnx.Module):
    def __init__(self, rngs, widths=(64, 128, 256, 512)):
        self.stem = ConvBN(3, widths[0], 3, 1, rngs)
        blocks, cin = [], widths[0]
        for s, w in enumerate(widths):
            for i in range(2):
                blocks.append(BasicBlock(cin, w, 2 if i == 0 and s > 0 else 1, rngs))
                cin = w
        self.blocks = nnx.List(blocks)
        self.fc = nnx.Linear(cin, NUM_CLASSES, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.stem(x))
        x = nnx.max_pool(x, (2, 2), strides=(2, 2))
        for b in self.blocks:
            x = b(x)
        return self.fc(x.mean((1, 2)))


class InvertedResidual(nnx.Module):
    def __init__(self, cin, cout, stride, expand, rngs):
        mid = cin * expand
        self.expand, self.project = ConvBN(cin, mid, 1, 1, rngs), ConvBN(mid, cout, 1, 1, rngs)
        self.depthwise = ConvBN(mid, mid, 3, stride, rngs, groups=mid)
        self.residual = stride == 1 and cin == cout

    def __call__(self, x):
        y = nnx.relu6(self.expand(x))
        y = nnx.relu6(self.depthwise(y))
        y = self.project(y)
        return x + y if self.residual else y


class MobileNet(nnx.Module):
    def __init__(self, rngs):
        self.stem = ConvBN(3, 32, 3, 2, rngs)
        cfg = [
            (32, 48, 2),
            (48, 48, 1),
            (48, 64, 2),
            (64, 64, 1),
            (64, 128, 2),
            (128, 128, 1),
            (128, 160, 1),
        ]
        self.blocks = nnx.List([InvertedResidual(i, o, s, 6, rngs) for i, o, s in cfg])
        self.last = ConvBN(160, 480, 1, 1, rngs)
        self.classifier = nnx.Linear(480, NUM_CLASSES, rngs=rngs)
        self.hint = nnx.Linear(480, 256, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu6(self.stem(x))
        for b in self.blocks:
            x = b(x)
        feat = nnx.relu6(self.last(x)).mean((1, 2))
        return self.classifier(feat), self.hint(feat)


def kl_with_temperature(student_logits, teacher_logits, tau):
    t = jax.nn.log_softmax(teacher_logits / tau)
    s = jax.nn.log_softmax(student_logits / tau)
    return tau**2 * jnp.sum(jnp.exp(t) * (t - s), axis=-1)


def distill_loss(student, images, labels, logits_a, feat_a, logits_b, tau=4.0):
    logits, hint = student(images)
    ce = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    # the teacher which is surer of the right class gets more weight
    conf = jnp.stack(
        [-optax.softmax_cross_entropy_with_integer_labels(l, labels) for l in (logits_a, logits_b)]
    )
    w = jax.nn.softmax(conf, axis=0)
    kd = w[0] * kl_with_temperature(logits, logits_a, tau) + w[1] * kl_with_temperature(
        logits, logits_b, tau
    )
    hint_loss = jnp.mean((hint - feat_a) ** 2, -1)
    loss = jnp.mean(0.3 * ce + 0.7 * kd + 0.05 * hint_loss)
    return loss, {"ce": ce.mean(), "kd": kd.mean(), "acc": (logits.argmax(-1) == labels).mean()}


def make(mesh):
    def build():
        student, vit, resnet = MobileNet(nnx.Rngs(0)), ViT(nnx.Rngs(1)), ResNet(nnx.Rngs(2))
        student.train()
        vit.eval()
        resnet.eval()
        tx = optax.chain(
            optax.add_decayed_weights(1e-4),
            optax.sgd(optax.cosine_decay_schedule(0.1, 100_000), momentum=0.9, nesterov=True),
        )
        return (student, nnx.Optimizer(student, tx, wrt=nnx.Param)), (vit, resnet)

    trainable, teachers = nnx.eval_shape(build)
    sdef, sstate = nnx.split(trainable)
    tdef, tstate = nnx.split(teachers)

    def train_step(sstate, tstate, images, labels):
        student, optimizer = nnx.merge(sdef, sstate)
        vit_teacher, resnet_teacher = nnx.merge(tdef, tstate)
        logits_a, feat_a = vit_teacher(images)
        logits_b = resnet_teacher(images)
        logits_a, feat_a, logits_b = jax.lax.stop_gradient((logits_a, feat_a, logits_b))
        (loss, metrics), grads = nnx.value_and_grad(distill_loss, has_aux=True)(
            student, images, labels, logits_a, feat_a, logits_b
        )
        optimizer.update(student, grads)
        return nnx.state((student, optimizer)), {"loss": loss, **metrics}

    rep, dp = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    place = lambda t: jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rep), t
    )
    return train_step, (
        place(sstate),
        place(tstate),
        jax.ShapeDtypeStruct((64, IMG, IMG, 3), jnp.float32, sharding=dp),
        jax.ShapeDtypeStruct((64,), jnp.int32, sharding=dp),
    )
