"""AlphaZero self-play move for 64 parallel games of Connect Four. haiku network, MCTS written for one game and vmapped."""

TRUTH = """
IN ORDER
- `selfplay_move`: root evaluation by the network -> Dirichlet noise on root prior -> search loop of 48 simulations
  -> visit counts -> sample a move -> play it on the board (returns policy target, root value, next boards)
- one simulation = `select` (walk down by PUCT, data-dependent while loop) -> `expand_or_end` (play the move, network on the new board,
  write the node) -> `backup` (walk up to the root, while loop)
- network (`PolicyValueNet`): stem conv, 6 residual blocks (2 convs of 128 ch.), policy head, value head. BN-free (LayerNorm)
COUNTS
- loop x48 (simulations), with two inner while loops of unknown trip count (tree depth); network body stands twice in the program: root and in loop
- 13 3x3 convolutions per evaluation + 1x1's of the heads; unrolled
ORDER / INDEPENDENCE
- simulations are strictly serial; inside: select -> network -> backup; policy and value head are independent
- the 64 games are independent of each other (batched by vmap)
HEAVY
- the network inside the loop: 48/49 of all the FLOPs; select/backup are small gathers and scatters but many serial steps (latency)
- no training: no loss, no backward, no optimiser
PERFORMANCE (deliberate flaw)
- `lax.cond(terminal, ...)` under vmap turns into select: the network is evaluated for finished leaves as well, and *each array of the tree*
  is selected (old vs. new copy) as a whole in each simulation, instead of updating one row: tree copies 48 times
- vmapped while loops run until the deepest of the 64 games is ready, with selects over their whole carry
"""
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

GAMES, SIMS, A, H, W = 64, 48, 7, 6, 7
N = SIMS + 1


class Tree(NamedTuple):
    board: jax.Array  # [N, H, W] from the view of who moves
    prior: jax.Array  # [N, A]
    child: jax.Array  # [N, A] index or -1
    visits: jax.Array  # [N]
    total: jax.Array  # [N] sum of values, from the view of who moves at the node
    parent: jax.Array  # [N]
    terminal: jax.Array  # [N] bool


class PolicyValueNet(hk.Module):
    def __call__(self, board):
        norm = lambda x: hk.LayerNorm(-1, True, True)(x)
        x = jnp.stack([board > 0, board < 0, board == 0], -1).astype(jnp.float32)
        x = jax.nn.relu(norm(hk.Conv2D(128, 3, name="stem")(x)))
        for i in range(6):
            y = jax.nn.relu(norm(hk.Conv2D(128, 3, name=f"res{i}_a")(x)))
            y = norm(hk.Conv2D(128, 3, name=f"res{i}_b")(y))
            x = jax.nn.relu(x + y)
        p = jax.nn.relu(norm(hk.Conv2D(32, 1, name="policy_conv")(x)))
        v = jax.nn.relu(norm(hk.Conv2D(8, 1, name="value_conv")(x)))
        logits = hk.Linear(A, name="policy_head")(p.reshape(p.shape[0], -1))
        v = jax.nn.relu(hk.Linear(256, name="value_fc")(v.reshape(v.shape[0], -1)))
        return logits, jnp.tanh(hk.Linear(1, name="value_head")(v))[:, 0]


net = hk.without_apply_rng(hk.transform(lambda b: PolicyValueNet()(b)))


def wins(stones):
    s = jnp.pad(stones, 3)
    hit = False
    for dy, dx in ((0, 1), (1, 0), (1, 1), (1, -1)):
        run = s
        for k in range(1, 4):
            run = run & jnp.roll(s, (-k * dy, -k * dx), (0, 1))
        hit = hit | run.any()
    return hit


def play(board, action):
    """Drops a stone of the mover in the column; returns the board seen by the other one, and (won, full)."""
    row = H - 1 - jnp.sum(board[:, action] != 0)
    board = board.at[row, action].set(1)
    return -board, wins(board == 1), jnp.all(board != 0)


def evaluate(params, board):
    logits, value = net.apply(params, board[None])
    logits = jnp.where(board[0] == 0, logits[0], -1e9)
    return jax.nn.softmax(logits), value[0]


def puct(tree, node):
    kids = tree.child[node]
    n = jnp.where(kids >= 0, tree.visits[kids], 0)
    q = jnp.where(n > 0, -tree.total[kids] / jnp.maximum(n, 1), 0.0)
    u = 1.5 * tree.prior[node] * jnp.sqrt(1.0 + tree.visits[node]) / (1 + n)
    return jnp.argmax(jnp.where(tree.board[node, 0] == 0, q + u, -jnp.inf))


def select(tree):
    def go_on(s):
        node, action = s
        return (tree.child[node, action] >= 0) & ~tree.terminal[tree.child[node, action]]

    def descend(s):
        nxt = tree.child[s[0], s[1]]
        return nxt, puct(tree, nxt)

    return jax.lax.while_loop(go_on, descend, (jnp.int32(0), puct(tree, 0)))


def expand_or_end(params, tree, node, action, new):
    board, won, full = play(tree.board[node], action)

    def ended(tree):
        v = jnp.where(won, -1.0, 0.0)
        return tree._replace(terminal=tree.terminal.at[new].set(True)), v

    def expand(tree):
        prior, v = evaluate(params, board)
        return tree._replace(prior=tree.prior.at[new].set(prior)), v

    tree = tree._replace(
        board=tree.board.at[new].set(board),
        child=tree.child.at[node, action].set(new),
        parent=tree.parent.at[new].set(node),
    )
    return jax.lax.cond(won | full, ended, expand, tree)


def backup(tree, leaf, value):
    def step(s):
        tree, node, v = s
        tree = tree._replace(visits=tree.visits.at[node].add(1), total=tree.total.at[node].add(v))
        return tree, tree.parent[node], -v

    return jax.lax.while_loop(lambda s: s[1] >= 0, step, (tree, leaf, value))[0]


def search(params, board, key):
    prior, value = evaluate(params, board)
    noise = jax.random.dirichlet(key, jnp.full(A, 0.8))
    tree = Tree(
        jnp.zeros((N, H, W), jnp.int32).at[0].set(board),
        jnp.zeros((N, A)).at[0].set(0.75 * prior + 0.25 * noise),
        jnp.full((N, A), -1),
        jnp.zeros(N).at[0].set(1),
        jnp.zeros(N).at[0].set(value),
        jnp.full(N, -1),
        jnp.zeros(N, bool),
    )

    def simulate(i, tree):
        node, action = select(tree)
        tree, v = expand_or_end(params, tree, node, action, i + 1)
        return backup(tree, i + 1, v)

    tree = jax.lax.fori_loop(0, SIMS, simulate, tree)
    counts = jnp.where(tree.child[0] >= 0, tree.visits[tree.child[0]], 0)
    return counts / counts.sum(), tree.total[0] / tree.visits[0]


def selfplay_move(params, boards, key):
    k1, k2 = jax.random.split(key)
    policy, value = jax.vmap(search, (None, 0, 0))(params, boards, jax.random.split(k1, GAMES))
    action = jax.random.categorical(k2, jnp.log(policy + 1e-9))
    nxt, won, full = jax.vmap(play)(boards, action)
    nxt = jnp.where((won | full)[:, None, None], 0, nxt)
    return {"policy": policy, "value": value, "action": action, "won": won, "boards": nxt}


def make():
    boards = jax.ShapeDtypeStruct((GAMES, H, W), jnp.int32)
    key = jax.eval_shape(lambda: jax.random.PRNGKey(0))
    params = jax.eval_shape(net.init, key, jax.ShapeDtypeStruct((1, H, W), jnp.int32))
    return jax.jit(selfplay_move), (params, boards, key)
