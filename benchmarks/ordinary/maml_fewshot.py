TRUTH = """
# maml_fewshot — second-order MAML, conv4, 5 inner steps; 16 tasks over 8 devices (shard_map + vmap over 2 tasks each)

outer_step:
1. **meta loss forward** (vmapped over the device's 2 tasks)
   - **adapt: loop x5 (inner SGD)** { conv4 forward on support (25 images 84x84) , cross entropy, conv4 backward (the inner gradient), SGD update with learned rates }
   - **query**: conv4 forward with adapted weights on 75 images, loss, accuracy
2. **meta backward**
   - query backward (conv4)
   - **adapt backward: loop x5** { recompute inner forward+backward (checkpoint), then gradient through both: second order }
3. **pmean** of gradient, loss, accuracy, inner losses over 'task' (all-reduce, once, at the end)
4. clip to +-10, **adam**, apply

conv4 = 4 x { conv 3x3, batchnorm, relu, maxpool } + head (unrolled, not loop). Convolutions under vmap with per-task weights: in the first inner step weights shared... but in scan carry they are batched -> grouped convolution (feature_group_count=2) / batch_group.
Loops: 5 forward, 5 backward (on the optimised text may be unrolled? no, kept as while).
Collectives: all-reduce x1 (combined) or several.
Heaviest: adapt backward loop (5 x about 4-5 conv passes x 25 images), first conv layers at 84x84 (conv 2 at 42x42 with 32->32 channels is the largest in FLOPs; conv 1 84x84x3x32).
Names: "inner loop x5", "inner gradient", "query loss", "meta-gradient", "adapt backward x5", "pmean", "adam".
"""
#!/usr/bin/env python
# MAML, 5-way 5-shot, second order, conv4 backbone. Tasks are spread over 8 devices with shard_map,
# each device vmaps over its tasks.
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

N_WAY, K_SHOT, Q = 5, 5, 15
TASKS = 16
INNER_STEPS = 5
INNER_LR = 0.01
C = 32


def conv(x, w, b):
    dn = lax.conv_dimension_numbers(x.shape, w.shape, ("NHWC", "HWIO", "NHWC"))
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=dn) + b


def batchnorm(x, scale, bias):
    mean = x.mean((0, 1, 2))
    var = ((x - mean) ** 2).mean((0, 1, 2))
    return (x - mean) * lax.rsqrt(var + 1e-5) * scale + bias


def maxpool(x):
    n, h, w, c = x.shape
    x = x[:, : h // 2 * 2, : w // 2 * 2]
    return x.reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))


def net(params, x):
    for p in params["conv"]:
        x = conv(x, p["w"], p["b"])
        x = batchnorm(x, p["scale"], p["bias"])
        x = maxpool(jax.nn.relu(x))
    x = x.reshape(x.shape[0], -1)
    return x @ params["head"]["w"] + params["head"]["b"]


def loss_acc(params, x, y):
    logits = net(params, x)
    l = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
    return l, (logits.argmax(-1) == y).mean()


def adapt(params, lrs, x, y):
    """INNER_STEPS of SGD on the support set with learned per-tensor rates"""

    def sgd(p, _):
        (l, _), g = jax.value_and_grad(loss_acc, has_aux=True)(p, x, y)
        return jax.tree.map(lambda a, lr, b: a - lr * b, p, lrs, g), l

    return lax.scan(jax.checkpoint(sgd), params, None, length=INNER_STEPS)


def task_loss(meta, sx, sy, qx, qy):
    fast, inner = adapt(meta["net"], meta["lr"], sx, sy)
    l, acc = loss_acc(fast, qx, qy)
    return l, (acc, inner)


def meta_loss(meta, batch):
    l, (acc, inner) = jax.vmap(task_loss, in_axes=(None, 0, 0, 0, 0))(
        meta, batch["sx"], batch["sy"], batch["qx"], batch["qy"]
    )
    return l.mean(), (acc.mean(), inner.mean(0))


meta_opt = optax.adam(1e-3)


def outer_step(meta, opt_state, batch):
    # the gradient must be of the local loss; we average ourselves
    (l, (acc, inner)), g = jax.value_and_grad(meta_loss, has_aux=True)(meta, batch)
    g, l, acc, inner = lax.pmean((g, l, acc, inner), "task")
    g = jax.tree.map(lambda x: jnp.clip(x, -10, 10), g)
    upd, opt_state = meta_opt.update(g, opt_state)
    return optax.apply_updates(meta, upd), opt_state, (l, acc, inner)


def init(key):
    ks = jax.random.split(key, 5)
    he = jax.nn.initializers.he_normal()
    convs, cin = [], 3
    for i in range(4):
        convs.append(
            dict(w=he(ks[i], (3, 3, cin, C)), b=jnp.zeros(C), scale=jnp.ones(C), bias=jnp.zeros(C))
        )
        cin = C
    p = dict(conv=convs, head=dict(w=jnp.zeros((5 * 5 * C, N_WAY)), b=jnp.zeros(N_WAY)))
    return dict(net=p, lr=jax.tree.map(lambda a: jnp.full((), INNER_LR), p))


def build(devices=None):
    devices = np.array(jax.devices() if devices is None else devices)[:8]
    mesh = Mesh(devices, ("task",))
    f = jax.jit(
        jax.shard_map(
            outer_step, mesh=mesh, in_specs=(P(), P(), P("task")), out_specs=P(), check_vma=False
        )
    )
    meta = jax.eval_shape(init, jax.ShapeDtypeStruct((2,), jnp.uint32))
    opt = jax.eval_shape(meta_opt.init, meta)
    S = lambda s, d: jax.ShapeDtypeStruct(s, d)
    n, m = N_WAY * K_SHOT, N_WAY * Q
    batch = dict(
        sx=S((TASKS, n, 84, 84, 3), jnp.float32),
        sy=S((TASKS, n), jnp.int32),
        qx=S((TASKS, m, 84, 84, 3), jnp.float32),
        qy=S((TASKS, m), jnp.int32),
    )
    put = lambda spec: (
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(mesh, spec))
    )
    return f, (*jax.tree.map(put(P()), (meta, opt)), jax.tree.map(put(P("task")), batch))


MESH = {"device": 8}


def make(mesh):
    return build(list(mesh.devices.flat))
