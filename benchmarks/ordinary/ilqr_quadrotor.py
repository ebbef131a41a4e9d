TRUTH = """
# ilqr_quadrotor - closed-loop MPC by iLQR with a hybrid (rigid body + neural residual) model, 32 scenarios vmapped; equinox, one device

1. Order: **control steps: loop x30** { first rollout of the warm-started controls: **loop x50** -> **iLQR: loop x5** { linearise: Jacobians of the RK4 step for all 50 knots at once (forward mode, 10 tangents) ; quadratise the cost (gradient and Hessian) ; **Riccati backward pass: loop x50, reversed** ; **line search: 8 step sizes at once, rollout loop x50** ; costs, pick the best, accept if better } -> apply first control to the true plant (4 Euler steps, no neural net), noise -> shift controls }.
2. Work ~1.29 TF, nearly all in the residual MLP (10 -> 128 -> 128 -> 128 -> 8), evaluated 4 times per step (RK4): linearise 57%, line-search rollouts 42%, first rollout 1%, Riccati 0.1% (sequential, though: small latency-bound matrices).
3. First picture: x30 { rollout x50 -> x5 { linearise -> Riccati x50 -> line search x50 } -> plant step }.
4. Arrows: xs, us around the x5 loop; A, B, cost expansions -> Riccati; gains k, K -> line search; us[0] -> plant; x, us around x30; goals and keys per control step.
5. Planning, not learning: no parameter gradients, no optimizer, weights constant. The "backward" is Riccati's recursion in time, not backpropagation.
6. Should not stand out: trigonometry of the rigid body, 2 x 2 inverse, softplus, random noise, argmin/gather.
7. Misleading: three x50 loops are different things; 8 alphas and 32 scenarios are batch; RK4's four stages are not layers.
"""

"""Receding-horizon iLQR for a planar quadrotor with a swinging load and a learned residual."""
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

NX, NU = 8, 2
HORIZON, CONTROL_STEPS, ITERATIONS = 50, 30, 5
ALPHAS = 8
SCENARIOS = 32
DT = 0.04


class Rigid(eqx.Module):
    """x = (px, pz, tilt, vx, vz, rate, swing, swing rate)"""

    mass: Array
    inertia: Array
    arm: Array
    rope: Array
    load: Array

    def __call__(self, x, u):
        _, _, th, vx, vz, w, phi, dphi = x
        thrust, torque = u[0] + u[1], (u[0] - u[1]) * self.arm
        total = self.mass + self.load
        tension = self.load * (9.81 * jnp.cos(phi) + self.rope * dphi**2)
        ax = (-thrust * jnp.sin(th) + tension * jnp.sin(phi)) / total
        az = (thrust * jnp.cos(th) - tension * jnp.cos(phi)) / total - 9.81 * self.mass / total
        ddphi = -(9.81 * jnp.sin(phi) + ax * jnp.cos(phi)) / self.rope - 0.05 * dphi
        return jnp.stack([vx, vz, w, ax, az, torque / self.inertia, dphi, ddphi])


class HybridDynamics(eqx.Module):
    rigid: Rigid
    residual: eqx.nn.MLP

    def __init__(self, key: PRNGKeyArray):
        self.rigid = Rigid(*jnp.array([1.2, 0.02, 0.17, 0.6, 0.3]))
        self.residual = eqx.nn.MLP(NX + NU, NX, 128, 3, jax.nn.softplus, key=key)

    def derivative(self, x, u):
        return self.rigid(x, u) + 0.1 * self.residual(jnp.concatenate([x, u]))

    def __call__(self, x: Float[Array, " nx"], u: Float[Array, " nu"]):
        k1 = self.derivative(x, u)
        k2 = self.derivative(x + 0.5 * DT * k1, u)
        k3 = self.derivative(x + 0.5 * DT * k2, u)
        k4 = self.derivative(x + DT * k3, u)
        return x + DT / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


class Cost(eqx.Module):
    q: Array
    r: Array
    q_final: Array

    def stage(self, x, u, goal):
        e = x - goal
        return 0.5 * (e @ (self.q * e) + u @ (self.r * u)) + 2.0 * jax.nn.softplus(
            10 * (0.2 - x[1])
        )

    def final(self, x, goal):
        e = x - goal
        return 0.5 * e @ (self.q_final * e)


class ILQR(eqx.Module):
    dynamics: HybridDynamics
    cost: Cost

    def rollout(self, x0, policy: Callable, inputs):
        """policy(x, input) -> u"""

        def f(x, inp):
            u = policy(x, inp)
            return self.dynamics(x, u), (x, u)

        x_end, (xs, us) = jax.lax.scan(f, x0, inputs)
        return jnp.concatenate([xs, x_end[None]]), us

    def total_cost(self, xs, us, goal):
        return jax.vmap(self.cost.stage, (0, 0, None))(xs[:-1], us, goal).sum() + self.cost.final(
            xs[-1], goal
        )

    def linearise(self, xs, us):
        return jax.vmap(jax.jacfwd(self.dynamics, (0, 1)))(xs[:-1], us)

    def quadratise(self, xs, us, goal):
        stage = lambda z: self.cost.stage(z[:NX], z[NX:], goal)
        z = jnp.concatenate([xs[:-1], us], -1)
        return jax.vmap(jax.grad(stage))(z), jax.vmap(jax.hessian(stage))(z)

    def riccati(self, A, B, g, H, vx, vxx):
        def step(carry, inp):
            vx, vxx = carry
            A, B, g, H = inp
            qx, qu = g[:NX] + A.T @ vx, g[NX:] + B.T @ vx
            qxx = H[:NX, :NX] + A.T @ vxx @ A
            quu = H[NX:, NX:] + B.T @ vxx @ B + 1e-3 * jnp.eye(NU)
            qux = H[NX:, :NX] + B.T @ vxx @ A
            det = quu[0, 0] * quu[1, 1] - quu[0, 1] * quu[1, 0]
            inv = jnp.array([[quu[1, 1], -quu[0, 1]], [-quu[1, 0], quu[0, 0]]]) / det
            k, K = -inv @ qu, -inv @ qux
            vx = qx + K.T @ quu @ k + K.T @ qu + qux.T @ k
            vxx = qxx + K.T @ quu @ K + K.T @ qux + qux.T @ K
            return (vx, 0.5 * (vxx + vxx.T)), (k, K)

        return jax.lax.scan(step, (vx, vxx), (A, B, g, H), reverse=True)[1]

    def line_search(self, x0, xs, us, k, K, goal):
        def candidate(alpha):
            policy = lambda x, i: jnp.clip(i[1] + alpha * i[2] + i[3] @ (x - i[0]), 0.0, 12.0)
            new_xs, new_us = self.rollout(x0, policy, (xs[:-1], us, k, K))
            return self.total_cost(new_xs, new_us, goal), new_xs, new_us

        costs, all_xs, all_us = jax.vmap(candidate)(0.6 ** jnp.arange(ALPHAS))
        best = jnp.argmin(costs)
        return all_xs[best], all_us[best], costs[best]

    def solve(self, x0, us, goal):
        xs, us = self.rollout(x0, lambda x, u: u, us)
        cost = self.total_cost(xs, us, goal)

        def iteration(carry, _):
            xs, us, cost = carry
            A, B = self.linearise(xs, us)
            g, H = self.quadratise(xs, us, goal)
            vx = jax.grad(self.cost.final)(xs[-1], goal)
            k, K = self.riccati(A, B, g, H, vx, jnp.diag(self.cost.q_final))
            new_xs, new_us, new_cost = self.line_search(x0, xs, us, k, K, goal)
            better = new_cost < cost
            xs, us = jnp.where(better, new_xs, xs), jnp.where(better, new_us, us)
            return (xs, us, jnp.minimum(cost, new_cost)), new_cost

        (xs, us, cost), trace = jax.lax.scan(iteration, (xs, us, cost), None, length=ITERATIONS)
        return us, cost, trace


def fly(solver: ILQR, plant: Rigid, x0, us, goals, key):
    """one scenario, closed loop"""

    def control_step(carry, inp):
        x, us = carry
        goal, key = inp
        us, cost, _ = solver.solve(x, us, goal)
        u = us[0]
        for _ in range(4):  # the true plant, finer Euler steps
            x = x + DT / 4 * plant(x, u)
        x = x + 0.01 * jax.random.normal(key, x.shape)
        return (x, jnp.concatenate([us[1:], us[-1:]])), (x, u, cost)

    _, log = jax.lax.scan(control_step, (x0, us), (goals, jax.random.split(key, CONTROL_STEPS)))
    return log


def make():
    key = jax.random.PRNGKey(0)
    solver = eqx.filter_eval_shape(
        lambda k: ILQR(HybridDynamics(k), Cost(jnp.ones(NX), jnp.ones(NU), jnp.ones(NX))), key
    )
    plant = eqx.filter_eval_shape(lambda: Rigid(*jnp.ones(5)))
    arrays, static = eqx.partition((solver, plant), lambda x: isinstance(x, jax.ShapeDtypeStruct))

    def run(arrays, x0, us, goals, keys):
        solver, plant = eqx.combine(arrays, static)
        xs, us, costs = jax.vmap(fly, (None, None, 0, 0, 0, 0))(solver, plant, x0, us, goals, keys)
        return xs, us, costs.mean(0)

    S = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32)
    return jax.jit(run), (
        arrays,
        S(SCENARIOS, NX),
        S(SCENARIOS, HORIZON, NU),
        S(SCENARIOS, CONTROL_STEPS, NX),
        jax.ShapeDtypeStruct((SCENARIOS, 2), jnp.uint32),
    )
