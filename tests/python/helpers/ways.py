"""Small programs in each way that people write JAX: one function per way, for eight devices.

Each returns a function, its arguments, the mesh context it is called under (or None), and options
of ``hs.capture``. ``LIBRARIES`` names those that need a package beside jax.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


class Way(NamedTuple):
    function: Any
    arguments: tuple[Any, ...] = ()
    context: Callable[[], Any] | None = None
    options: Mapping[str, Any] = MappingProxyType({})


WAYS: dict[str, Callable[[], Way]] = {}
LIBRARIES: dict[str, str] = {}


def way(library: str = "") -> Callable[[Callable[[], Way]], Callable[[], Way]]:
    def keep(make: Callable[[], Way]) -> Callable[[], Way]:
        WAYS[make.__name__] = make
        if library:
            LIBRARIES[make.__name__] = library
        return make

    return keep


@functools.cache
def mesh_of(*kinds: AxisType) -> Mesh:
    return jax.make_mesh((2, 4), ("data", "model"), axis_types=kinds)


def automatic() -> Mesh:
    return mesh_of(AxisType.Auto, AxisType.Auto)


def explicit() -> Mesh:
    return mesh_of(AxisType.Explicit, AxisType.Explicit)


def shaped(rows: int, columns: int, mesh: Mesh, *spec: Any) -> jax.ShapeDtypeStruct:
    sharding = NamedSharding(mesh, P(*spec))
    return jax.ShapeDtypeStruct((rows, columns), jnp.float32, sharding=sharding)


def sharded_product(mesh: Mesh) -> tuple[Any, Any]:
    return shaped(32, 64, mesh, "data"), shaped(64, 64, mesh, None, "model")


def plain_product() -> tuple[Any, Any]:
    return jnp.ones((32, 64)), jnp.ones((64, 64))


# -- jax.jit -------------------------------------------------------------------------


@way()
def plain() -> Way:
    return Way(jax.grad(lambda x, w: jnp.tanh(x @ w).sum(), 1), sharded_product(automatic()))


@way()
def jit_with_shardings() -> Way:
    mesh = automatic()
    places = NamedSharding(mesh, P("data")), NamedSharding(mesh, P(None, "model"))
    out = NamedSharding(mesh, P())
    jitted = jax.jit(lambda x, w: jnp.tanh(x @ w), in_shardings=places, out_shardings=out)
    return Way(jitted, plain_product())


@way()
def jitted_method() -> Way:
    class Trainer:
        @functools.partial(jax.jit, static_argnums=0)
        def step(self, x: Any, w: Any) -> Any:
            return x @ w

    return Way(Trainer().step, plain_product())


@way()
def partial_of_a_jit() -> Way:
    jitted = jax.jit(lambda scale, x, w: scale * (x @ w), static_argnums=0)
    return Way(functools.partial(jitted, 3), plain_product())


@way()
def under_a_mesh() -> Way:
    def step(x: Any, w: Any) -> Any:
        return jax.lax.with_sharding_constraint(x @ w, P("data", "model"))

    return Way(step, sharded_product(automatic()), automatic)


@way()
def axes_as_text() -> Way:
    options = {"mesh": "data=2,model=4", "in_shardings": (P("data"), P(None, "model"))}
    return Way(lambda x, w: jnp.tanh(x @ w), plain_product(), None, options)


@way()
def pmap() -> Way:
    return Way(jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i"), (jnp.ones((8, 64)),))


# -- a mesh of their own inside --------------------------------------------------------


@way()
def own_mesh_in_a_constraint() -> Way:
    def step(x: Any, w: Any) -> Any:
        place = NamedSharding(automatic(), P("data", "model"))
        return jax.lax.with_sharding_constraint(x @ w, place).sum(0)

    return Way(jax.jit(step), sharded_product(automatic()))


@way()
def own_mesh_and_plain_arrays() -> Way:
    return own_mesh_in_a_constraint()._replace(arguments=plain_product())


@way()
def own_mesh_in_a_scan() -> Way:
    def layer(x: Any, w: Any) -> tuple[Any, None]:
        place = NamedSharding(automatic(), P("data"))
        return jax.lax.with_sharding_constraint(jnp.tanh(x @ w), place), None

    def loss(ws: Any, x: Any) -> Any:
        return jax.lax.scan(jax.checkpoint(layer), x, ws)[0].sum()

    place = NamedSharding(automatic(), P(None, None, "model"))
    weights = jax.ShapeDtypeStruct((3, 64, 64), jnp.float32, sharding=place)
    return Way(jax.jit(jax.grad(loss)), (weights, shaped(32, 64, automatic(), "data")))


@way()
def own_mesh_in_an_inner_jit() -> Way:
    places = [NamedSharding(automatic(), P(*s)) for s in (("data",), (None, "model"))]
    inner = jax.jit(lambda x: x * 2, in_shardings=places[0], out_shardings=places[1])
    return Way(lambda x, w: inner(x @ w), sharded_product(automatic()))


@way()
def own_mesh_in_a_device_put() -> Way:
    def step(x: Any, w: Any) -> Any:
        return jax.device_put(x @ w, NamedSharding(automatic(), P("data", "model")))

    return Way(step, sharded_product(automatic()))


def _summed(x: Any, w: Any) -> Any:
    return jax.lax.psum(x @ w, "model")


def _split_products() -> tuple[Any, Any]:
    return shaped(32, 64, automatic(), "data", "model"), shaped(64, 64, automatic(), "model")


@way()
def own_mesh_in_a_shard_map() -> Way:
    body = jax.shard_map(
        _summed, mesh=automatic(), in_specs=(P("data", "model"), P("model", None)),
        out_specs=P("data", None),
    )  # fmt: skip
    return Way(jax.jit(lambda x, w: jnp.tanh(body(x, w))), _split_products())


@way()
def shard_map_of_one_axis() -> Way:
    body = jax.shard_map(
        _summed, mesh=automatic(), in_specs=(P(None, "model"), P("model", None)),
        out_specs=P(), axis_names={"model"},
    )  # fmt: skip
    return Way(lambda x, w: jnp.tanh(body(x, w)), _split_products())


@way()
def shard_map_of_the_current_mesh() -> Way:
    body = jax.shard_map(
        _summed, in_specs=(P("data", "model"), P("model", None)), out_specs=P("data", None)
    )
    return Way(lambda x, w: body(x, w), _split_products(), lambda: jax.set_mesh(automatic()))


# -- explicit axes -----------------------------------------------------------------------


def _explicit_step(x: Any, w: Any) -> Any:
    y = jnp.einsum("bd,df->bf", x, w, out_sharding=P("data", None))
    return jax.sharding.reshard(jnp.tanh(y), P(None, "model"))


def _explicit_arguments() -> tuple[Any, Any]:
    return shaped(32, 64, explicit(), "data", "model"), shaped(64, 64, explicit(), "model")


@way()
def explicit_under_set_mesh() -> Way:
    return Way(_explicit_step, _explicit_arguments(), lambda: jax.set_mesh(explicit()))


@way()
def explicit_mesh_given() -> Way:
    return Way(_explicit_step, _explicit_arguments(), None, {"mesh": explicit()})


@way()
def explicit_axes_as_text() -> Way:
    return Way(_explicit_step, _explicit_arguments(), None, {"mesh": "data=2,model=4"})


@way()
def explicit_abstract_mesh() -> Way:
    return Way(_explicit_step, _explicit_arguments(), None, {"mesh": explicit().abstract_mesh})


@way()
def explicit_arrays() -> Way:
    arrays = [np.ones(a.shape, np.float32) for a in _explicit_arguments()]
    placed = [
        jax.device_put(x, a.sharding) for x, a in zip(arrays, _explicit_arguments(), strict=True)
    ]
    return Way(jax.jit(_explicit_step), tuple(placed), lambda: jax.set_mesh(explicit()))


@way()
def explicit_gradient() -> Way:
    def loss(x: Any, w: Any) -> Any:
        return jnp.tanh(jnp.einsum("bd,df->bf", x, w, out_sharding=P("data", "model"))).sum()

    arguments = shaped(32, 64, explicit(), "data"), shaped(64, 64, explicit(), None, "model")
    gradient = jax.jit(jax.grad(loss, 1), donate_argnums=1)
    return Way(gradient, arguments, lambda: jax.set_mesh(explicit()))


@way()
def explicit_unreduced() -> Way:
    def step(x: Any, w: Any) -> Any:
        y = jnp.einsum("bd,df->bf", x, w, out_sharding=P(None, None, unreduced={"model"}))
        return jax.sharding.reshard(y + y, P(None, None))

    arguments = shaped(32, 64, explicit(), None, "model"), shaped(64, 64, explicit(), "model")
    return Way(step, arguments, lambda: jax.set_mesh(explicit()))


@way()
def explicit_reduced() -> Way:
    def loss(w: Any, x: Any) -> Any:
        w = jax.sharding.reshard(w, P(None, None, reduced={"data"}))
        return jnp.tanh(jnp.einsum("bd,df->bf", x, w, out_sharding=P("data", None))).sum()

    arguments = shaped(64, 64, explicit()), shaped(32, 64, explicit(), "data")
    return Way(jax.grad(loss), arguments, lambda: jax.set_mesh(explicit()))


@way()
def mixed_axes() -> Way:
    mesh = mesh_of(AxisType.Explicit, AxisType.Auto)

    def step(x: Any, w: Any) -> Any:
        y = jnp.einsum("bd,df->bf", x, w, out_sharding=P("data", None))
        return jax.lax.with_sharding_constraint(jnp.tanh(y), P(None, "model"))

    arguments = shaped(32, 64, mesh, "data"), shaped(64, 64, mesh)
    return Way(step, arguments, lambda: jax.set_mesh(mesh))


@way()
def automatic_inside_explicit() -> Way:
    def step(x: Any, w: Any) -> Any:
        inner = jax.sharding.auto_axes(
            lambda x, w: jnp.tanh(x @ w), axes="model", out_sharding=P("data", None)
        )
        return inner(x, w)

    arguments = shaped(32, 64, explicit(), "data"), shaped(64, 64, explicit(), None, "model")
    return Way(step, arguments, lambda: jax.set_mesh(explicit()))


@way()
def shard_map_inside_explicit() -> Way:
    body = jax.shard_map(
        _summed, mesh=explicit(), in_specs=(P(None, "model"), P("model", None)),
        out_specs=P(), axis_names={"model"},
    )  # fmt: skip
    return Way(
        lambda x, w: jnp.tanh(body(x, w)), _explicit_arguments(), lambda: jax.set_mesh(explicit())
    )


# -- jax.export ---------------------------------------------------------------------------


def _exported(arguments: tuple[Any, ...], *platforms: str) -> Any:
    from jax import export

    shapes = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=getattr(a, "sharding", None)),
        arguments,
    )
    return export.export(jax.jit(_named_step), platforms=platforms or None)(*shapes)


def _named_step(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w)


@way()
def exported_for_cpu() -> Way:
    return Way(_exported(tuple(np.ones(s, np.float32) for s in ((32, 64), (64, 64)))))


@way()
def exported_for_both() -> Way:
    arguments = tuple(np.ones(s, np.float32) for s in ((32, 64), (64, 64)))
    return Way(_exported(arguments, "cpu", "tpu"))


@way()
def exported_sharded() -> Way:
    return Way(_exported(sharded_product(automatic())))


# -- libraries ----------------------------------------------------------------------------


def _nnx_step() -> tuple[Any, tuple[Any, ...]]:
    import optax
    from flax import nnx

    class Model(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.linear = nnx.Linear(64, 64, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.linear(x)

    @nnx.jit
    def step(model: Any, optimizer: Any, x: Any) -> Any:
        loss, gradient = nnx.value_and_grad(lambda m: jnp.mean(m(x) ** 2))(model)
        optimizer.update(model, gradient)
        return loss

    model = Model(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    return step, (model, optimizer, jnp.ones((8, 64)))


@way("flax")
def nnx_jit() -> Way:
    return Way(*_nnx_step())


@way("flax")
def nnx_lowered() -> Way:
    step, arguments = _nnx_step()
    return Way(step.lower(*arguments))


@way("flax")
def nnx_compiled() -> Way:
    step, arguments = _nnx_step()
    return Way(step.lower(*arguments).compile())


@way("flax")
def nnx_sharded() -> Way:
    from flax import nnx

    class Model(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            split = nnx.with_partitioning(nnx.initializers.lecun_normal(), (None, "model"))
            self.linear = nnx.Linear(64, 64, rngs=rngs, kernel_init=split)

        def __call__(self, x: Any) -> Any:
            return jnp.tanh(self.linear(x))

    with jax.set_mesh(automatic()):
        model = nnx.jit(lambda: Model(nnx.Rngs(0)))()
    step = nnx.jit(lambda model, x: nnx.grad(lambda m: jnp.mean(m(x) ** 2))(model))
    return Way(step, (model, shaped(8, 64, automatic(), "data")))


@way("flax")
def linen() -> Way:
    from flax import linen as nn

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            split = nn.with_partitioning(nn.initializers.lecun_normal(), (None, "model"))
            return nn.Dense(64, kernel_init=split)(x)

    model = Model()
    x = jnp.ones((8, 64))
    variables = model.init(jax.random.key(0), x)
    loss = jax.jit(jax.grad(lambda variables, x: jnp.mean(model.apply(variables, x) ** 2)))
    return Way(loss, (variables, x))


def _equinox_step(**options: Any) -> tuple[Any, tuple[Any, ...]]:
    import equinox

    @equinox.filter_jit(**options)
    def step(model: Any, x: Any) -> Any:
        return equinox.filter_grad(lambda m: jnp.mean(jax.vmap(m)(x) ** 2))(model)

    model = equinox.nn.MLP(64, 64, 64, 2, key=jax.random.key(0))
    return step, (model, jnp.ones((8, 64)))


@way("equinox")
def equinox_jit() -> Way:
    return Way(*_equinox_step())


@way("equinox")
def equinox_donating() -> Way:
    return Way(*_equinox_step(donate="all-except-first"))


@way("equinox")
def equinox_lowered() -> Way:
    step, arguments = _equinox_step()
    return Way(step.lower(*arguments))


@way("equinox")
def equinox_compiled() -> Way:
    step, arguments = _equinox_step()
    return Way(step.lower(*arguments).compile())


@way("haiku")
def haiku() -> Way:
    import haiku as hk

    model = hk.transform(lambda x: hk.nets.MLP([64, 64])(x))
    x = jnp.ones((8, 64))
    parameters = model.init(jax.random.key(0), x)
    loss = jax.grad(lambda parameters, x: jnp.mean(model.apply(parameters, None, x) ** 2))
    return Way(jax.jit(loss), (parameters, x))
