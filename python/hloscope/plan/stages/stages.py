"""``hs.plan_stages``: cuts a model into pipeline stages, each compiled on each submesh.

layers ─▶ spans ─┐
submeshes ───────┼─▶ candidate stages ─ running ─▶ figures ─▶ choices ─ solver ─▶ StagePlan
shardings ───────┘   (forward; both passes)
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..running.candidate_figures import from_plain
from ..running.compiling import environment
from ..running.options import StageOptions
from ..running.running import Job, Runner, SearchCancelled
from ..running.store import key_of
from ..search.space import Spec, divides
from .choices import Choice, exactly
from .plan import StagePlan, make_plan

if TYPE_CHECKING:
    from ...capturing.planning.sharded import CaptureOptions


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    start: int
    end: int
    submesh: tuple[int, ...]
    axes: Mapping[str, int]
    option: str


def plan_stages(
    model: Any,
    *args: Any,
    devices: int | None = None,
    microbatches: int,
    submeshes: Sequence[int | Sequence[int]] | None = None,
    topology: str | None = None,
    hardware: str | None = None,
    memory: float | str | None = "chip",
    options: StageOptions | None = None,
) -> StagePlan:
    """The stages with the least modelled step time, Σt + (B−1)·max t, exactly.

    model, args: a list of ``(function, params)`` layers, each ``function(params, *values)``, with
        the values of one microbatch as arguments; or one function of ``(params, *values)`` with
        marks ``jax.ad_checkpoint.checkpoint_name(x, "stage")`` between layers, with its
        arguments. Only shapes of arrays matter; nothing runs.
    devices: of the pipeline; microbatches: B, how many a step has.
    submeshes: sizes of a stage's devices to try, powers of two up to all by default. Each is tried
        with the batch over all of them, with parameters over all of them (widening layers by
        columns, narrowing by rows), and with every split between.
    topology: compiles for that TPU's chips. hardware: the chip that time is modelled on.
    memory: bytes per device that a stage may use, "chip" for the chip's, None for no limit.
    options: the longest stage, the optimizer's share, processes, store and more: see
        ``StageOptions``.

    Forward time is that of the forward program, backward time what both passes take more. Memory is
    parameters, gradients and optimizer state throughout, and XLA's temporaries of both passes for
    each microbatch in flight (an upper bound: working buffers are counted with what is kept).

    Stages that do not compile are left out and listed in ``failed``, and so are those that were not
    compiled when ``progress`` or Ctrl+C cancelled. Raises ``ValueError`` and
    ``CaptureError`` for what cannot start.
    """
    from ...capturing.planning import layers as cutting
    from ...capturing.planning import sharded
    from ...hardware import find

    options = options or StageOptions()
    if not isinstance(devices, int) or devices < 1:
        raise ValueError("give devices=, the number of devices of the pipeline")
    if microbatches < 1:
        raise ValueError(f"a step has at least one microbatch, not {microbatches}")
    compiled = sharded.CaptureOptions(
        topology, find(hardware).id if hardware is not None else None, carry=False
    )
    pieces = (
        cutting.from_marks(model, args) if callable(model) else cutting.from_functions(model, args)
    )
    if not pieces:
        raise ValueError("the model has no layers")
    candidates = [
        _Candidate(a, b, mesh, axes, option)
        for a in range(len(pieces))
        for b in range(a, min(len(pieces), a + (options.longest or len(pieces))))
        for mesh in _submeshes(submeshes, devices)
        for axes, option in _splits(mesh)
    ]
    surroundings = environment(sharded.platform_wanted(), topology, devices)
    jobs: dict[tuple[_Candidate, str], Job] = {}
    programs: dict[tuple[int, int], tuple[Any, ...]] = {}
    for c in candidates:
        span = (c.start, c.end)
        if span not in programs:
            forward, f_args, both, b_args = cutting.programs(pieces[c.start : c.end + 1])
            programs[span] = (_program(forward, f_args), _program(both, b_args))
        for which, found in zip(("forward", "both"), programs[span], strict=True):
            jobs[c, which] = _job(found, c, compiled, surroundings, options)
    runner = Runner(options)
    try:
        # layers that are alike make stages that are alike: each is compiled once
        distinct = {job[0]: job for job in jobs.values()}
        found_answers: Sequence[dict[str, Any] | None] = runner.run(list(distinct.values()))
    except SearchCancelled:
        found_answers = runner.partial
    finally:
        runner.close()
    answers = dict(zip(distinct, found_answers, strict=True))
    choices, failed, chip = [], [], ""
    for c in candidates:
        one = answers[jobs[c, "forward"][0]] or {"error": "cancelled"}
        two = answers[jobs[c, "both"][0]] or {"error": "cancelled"}
        error = one.get("error") or two.get("error")
        made = None if error else _choice(c, pieces, one, two, options.optimizer_share)
        if made is None:
            spelled = f"layers {c.start}–{c.end} on {'×'.join(map(str, c.submesh))}, {c.option}"
            failed.append(f"{spelled}: {error or 'its time cannot be modelled: give hardware='}")
            continue
        chip = one["figures"]["hardware"]
        choices.append(made)
    limit = memory
    if limit == "chip":
        limit = find(chip).memory_bytes if chip else None
    if isinstance(limit, str):
        raise ValueError(f'memory is {memory!r}; give bytes, "chip" or None')
    return make_plan(
        choices, [p.name for p in pieces], devices, microbatches, memory_bytes=limit,
        failed=tuple(failed), origin=f"modelled on {chip}" if chip else "modelled",
        all_devices=options.all_devices,
    )  # fmt: skip


def _submeshes(given: Sequence[int | Sequence[int]] | None, devices: int) -> list[tuple[int, ...]]:
    if given is None:
        return [(2**k,) for k in range(devices.bit_length()) if 2**k <= devices]
    out = [(m,) if isinstance(m, int) else tuple(int(n) for n in m) for m in given]
    for mesh in out:
        if not 1 <= math.prod(mesh) <= devices:
            raise ValueError(f"a submesh {mesh} does not fit {devices} devices")
    return out


def _splits(mesh: tuple[int, ...]) -> list[tuple[dict[str, int], str]]:
    """Every split of a submesh's devices between batch and parameters."""
    n = math.prod(mesh)
    out = []
    for data in (d for d in range(n, 0, -1) if n % d == 0):
        axes = {"data": data, "model": n // data}
        named = [f"{a} {k}" for a, k in axes.items() if k > 1]
        out.append((axes, " × ".join(named)))
    return out


def _program(fn: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...], bytes, str]:
    """(function, arguments, pickled, digest)."""
    import hashlib

    import cloudpickle

    from ...capturing.planning import sharded

    data = bytes(cloudpickle.dumps((fn, args, {}, None)))
    digest = sharded.fingerprint(fn, args, {}, {"data": 1, "model": 1})
    return fn, args, data, digest or hashlib.sha256(data).hexdigest()


def _job(
    program: tuple[Any, tuple[Any, ...], bytes, str],
    c: _Candidate,
    compiled: CaptureOptions,
    surroundings: dict[str, str],
    options: StageOptions,
) -> Job:
    from ...capturing.planning import sharded

    fn, args, data, digest = program
    specs = {n: _spec(leaf, c.axes) for n, leaf in enumerate(sharded.leaves(fn, args, {}))}
    about = {
        "stage": digest, "axes": dict(c.axes), "specs": {str(n): s for n, s in specs.items()},
        "topology": compiled.topology, "hardware": compiled.hardware,
        "platform": surroundings["JAX_PLATFORMS"], "versions": sharded.versions(),
    }  # fmt: skip
    task = {
        "job": {
            "function": digest, "program": data, "axes": dict(c.axes), "specs": specs,
            "options": compiled, "want": "figures",
        },
        "isolate": options.isolate,
        "environment": surroundings,
        "path": [p for p in sys.path if p],
        "timeout": options.timeout,
        "memory_limit": options.memory_limit,
    }  # fmt: skip
    return key_of(about), about, task


def _spec(leaf: Any, axes: Mapping[str, int]) -> Spec:
    """Parameters over "model", values and gradients over "data"; whole if that does not divide."""
    if not leaf.shape:
        return ()
    if leaf.argument == 0:
        if len(leaf.shape) < 2:
            return ()
        narrow = leaf.shape[-2] > leaf.shape[-1]
        dim = len(leaf.shape) - (2 if narrow else 1)
        spec: Spec = (*(None,) * dim, "model")
    else:
        spec = ("data",)
    return spec if divides(spec, leaf.shape, axes) else ()


def _choice(
    c: _Candidate,
    pieces: Sequence[Any],
    forward: Mapping[str, Any],
    both: Mapping[str, Any],
    optimizer_share: float,
) -> Choice | None:
    one, two = from_plain(dict(forward["figures"])), from_plain(dict(both["figures"]))
    if one.seconds is None or two.seconds is None:
        return None
    held = sum(_local_bytes(p.params, c.axes) for p in pieces[c.start : c.end + 1])
    temp = two.temp_bytes
    return Choice(
        c.start, c.end, c.submesh, exactly(one.seconds),
        exactly(max(0.0, two.seconds - one.seconds)), c.option,
        fixed_bytes=held * (2 + optimizer_share), activation_bytes=temp,
    )  # fmt: skip


def _local_bytes(params: Any, axes: Mapping[str, int]) -> float:
    from ...capturing.planning import sharded

    total = 0.0
    for leaf in sharded.leaves(None, (params,), {}):
        spec = _spec(leaf, axes)
        parts = math.prod(axes.get(e, 1) for e in spec if e is not None)
        total += leaf.bytes / parts
    return total
