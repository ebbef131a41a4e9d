"""``hs.search_shardings``: compiles ways to shard a function's arguments and ranks them.

arguments ─ space ─▶ candidates ─ strategy ─▶ running ─▶ compiling ─▶ figures
            groups,   mesh and    all, or      executor,  a process   of one compiled
            meshes    a spec per  what costs   store      per thread  program
                      group       suggest
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...api.capture import Capture
from ...hlo.mesh import mesh_axes
from ...processes.worker import close_all
from ..running.candidate_figures import COSTS, CandidateFigures, from_plain
from ..running.compiling import environment, evaluate
from ..running.options import SearchOptions
from ..running.running import Job, Runner, SearchCancelled
from ..running.store import key_of
from .constraints import Check, Constraint, checks
from .result import Candidate, MeasuredSeconds, Search
from .space import Selection, Space, make_space
from .strategy import explore

if TYPE_CHECKING:
    from ...capturing.planning.sharded import CaptureOptions


@dataclass(frozen=True, eq=False)
class Setting:
    """Everything that all candidates of a search share."""

    fn: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    space: Space
    compiled: CaptureOptions
    custom: Callable[[Capture], float] | None
    options: SearchOptions
    platform: str

    @cached_property
    def program(self) -> bytes:
        """Function, arguments (shapes) and cost, for other processes. Raises ``ValueError``."""
        import cloudpickle

        try:
            return bytes(cloudpickle.dumps((self.fn, self.args, self.kwargs, self.custom)))
        except Exception as error:
            first = (str(error).splitlines() or [""])[0][:200]
            raise ValueError(
                f"the function cannot be sent to another process ({first}); isolate=False "
                "compiles in this one"
            ) from None

    @cached_property
    def about(self) -> dict[str, Any]:
        """Everything that decides the results of all candidates, for the keys of the store."""
        import hashlib

        from ...capturing.planning import sharded

        digest = sharded.fingerprint(self.fn, self.args, self.kwargs, self.space.meshes[0])
        own = None
        if self.custom is not None:
            import cloudpickle

            own = hashlib.sha256(cloudpickle.dumps(self.custom)).hexdigest()
        return {
            "function": digest or hashlib.sha256(self.program).hexdigest(),
            "topology": self.compiled.topology,
            "platform": self.platform,
            "hardware": self.compiled.hardware,
            "donate": list(self.compiled.donate),
            "carry": self.compiled.carry,
            "compiler_options": self.compiled.compiler_options,
            "cost": own,
            "versions": sharded.versions(),
        }

    @cached_property
    def environment(self) -> dict[str, str]:
        """Environment of the compiling processes: devices enough for the largest mesh."""
        most = max(math.prod(m.values()) for m in self.space.meshes)
        return environment(self.platform, self.compiled.topology, most)

    def job(self, choice: Selection, want: str = "figures", **more: Any) -> dict[str, Any]:
        """The job of a child process."""
        return {
            "function": str(id(self)),
            "program": self.program,
            "axes": dict(self.space.meshes[choice.mesh]),
            "specs": self.space.leaf_specs(choice),
            "options": self.compiled,
            "want": want,
            **more,
        }

    def task(self, choice: Selection, want: str = "figures", **more: Any) -> dict[str, Any]:
        """The task that an executor runs."""
        return {
            "job": self.job(choice, want, **more),
            "isolate": self.options.isolate,
            "environment": self.environment,
            "path": [p for p in sys.path if p],
            "timeout": self.options.timeout,
            "memory_limit": self.options.memory_limit,
        }

    def store_job(self, choice: Selection) -> Job:
        """Key, what decides the answer, and task of a candidate."""
        mesh, specs = self.space.key(choice)
        leaf_specs = {
            str(leaf): spec
            for group, spec in zip(self.space.groups, specs, strict=True)
            for leaf in group.leaves
        }
        about = {**self.about, "mesh": mesh, "specs": leaf_specs}
        return key_of(about), about, self.task(choice)


def search_shardings(
    fn: Any,
    *args: Any,
    mesh: Any = None,
    topology: str | None = None,
    hardware: str | None = None,
    groups: Mapping[str, Any] | Sequence[str] | None = None,
    constraints: Sequence[Constraint] | Constraint = (),
    cost: str | Callable[[Capture], float] = "time",
    options: SearchOptions | None = None,
) -> Search:
    """Compiles ways to shard the arguments of ``fn`` and ranks them; nothing runs on devices.

    fn, args: as ``capture`` takes them; only shapes of arrays matter. A plain function, or a jitted
        one without ``in_shardings``.
    mesh: axis sizes, or a list of them to choose from: [{"data": 2, "model": 4}, {"data": 8}].
    topology: a TPU topology such as "v5e:2x4", without a TPU. hardware: the chip that time is
        modelled on.
    groups: path pattern → a list of PartitionSpecs (or tuples) to try, one of them that is fixed,
        or None to try all; or just patterns. "layers/*/wq" shards all layers' wq alike. An array
        that no pattern matches is a group of its own; of more than 12 such arrays, those of one
        shape whose paths differ only in numbers form one group. An optimizer's moments go with
        their parameters.
    constraints: "fits 16 GiB", "no all-to-all", "no all-gather over model", or functions of
        ``CandidateFigures``; candidates that break one are ranked last.
    cost: "time" (modelled on ``hardware``), "wire", "memory", "log" (the formula of an xmap
        search of 2021), or a function of the ``Capture``.
    options: budget, processes, store, measurements and more: see ``SearchOptions``.

    Raises ``ValueError`` and ``CaptureError`` for a search that cannot start. What is wrong with
    one candidate is in its ``error``.

        >>> found = hs.search_shardings(step, params, batch, mesh={"data": 2, "model": 4})
        >>> print(found.code())
    """
    start = time.monotonic()
    options = options or SearchOptions()
    name = cost if isinstance(cost, str) else "custom"
    if name not in COSTS or (name == "custom" and isinstance(cost, str)):
        known = ", ".join(k for k in COSTS if k != "custom")
        raise ValueError(f"there is no cost {cost!r}; there are {known}, or give a function")
    tests = checks(constraints)
    fn_args = _abstract(fn, args, options)
    space = make_space(_leaves(fn, *fn_args), _meshes(mesh, topology), groups)
    compiled = _capture_options(topology, hardware, options)
    custom = None if isinstance(cost, str) else cost
    setting = Setting(fn, *fn_args, space, compiled, custom, options, _platform())
    count = space.count()
    everything = options.method == "all" or (options.method == "auto" and count <= options.budget)
    runner = Runner(options)
    found: dict[Selection, Candidate] = {}

    def look(choices: Sequence[Selection]) -> list[tuple[float, ...]]:
        jobs = [setting.store_job(c) for c in choices]
        answers: Sequence[dict[str, Any] | None]
        try:
            answers = runner.run(jobs)
        except SearchCancelled:
            _keep(found, choices, runner.partial, setting, name, tests)
            raise
        _keep(found, choices, answers, setting, name, tests)
        return [_key(found[c]) for c in choices]

    cancelled = False
    try:
        if everything:
            look(list(space.every()))
        else:
            explore(space, look, options.budget)
    except SearchCancelled:
        cancelled = True
    finally:
        runner.close()
    ranked = sorted(found.values(), key=_key)
    if options.measure and not cancelled:
        ranked = _measured(setting, ranked, found)
    chips = {c.figures.hardware for c in ranked if c.figures is not None}
    return Search(
        candidates=tuple(ranked),
        space=count,
        cost=name,
        method="all" if everything else "search",
        hardware=next(iter(chips), ""),
        notes=(*space.notes, *_carried_note(setting)),
        cancelled=cancelled,
        seconds=time.monotonic() - start,
        compiled=runner.compiled,
        function=getattr(fn, "__name__", type(fn).__name__),
        _open=lambda c: _opened(setting, _choice(found, c)),
    )


def _carried_note(setting: Setting) -> list[str]:
    """Which results are held to an argument's sharding."""
    if not setting.options.carry:
        return []
    from ...capturing.planning import sharded

    pairs = sharded.carried(setting.fn, setting.args, setting.kwargs)
    known = sharded.leaves(setting.fn, setting.args, setting.kwargs)
    held = list(dict.fromkeys(known[i].path.partition("/")[0] for i in pairs.values()))
    return [f"results are sharded like the arguments they replace: {', '.join(held)}"] * bool(held)


def _abstract(
    fn: Any, args: tuple[Any, ...], options: SearchOptions
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments and keywords with shapes in place of arrays. Raises ``ValueError``."""
    from ...capturing.planning import sharded

    if not callable(fn):
        raise ValueError(f"a search needs a function, not a {type(fn).__name__}")
    return sharded.abstract(args, dict(options.kwargs or {}))


def _leaves(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
    from ...capturing.planning import sharded

    return sharded.leaves(fn, args, kwargs)


def _capture_options(
    topology: str | None, hardware: str | None, options: SearchOptions
) -> CaptureOptions:
    from ...capturing.planning.sharded import CaptureOptions
    from ...hardware import find

    return CaptureOptions(
        topology,
        find(hardware).id if hardware is not None else None,
        tuple(options.donate_argnums),
        options.carry,
        dict(options.compiler_options) if options.compiler_options else None,
    )


def _platform() -> str:
    from ...capturing.planning import sharded

    return sharded.platform_wanted()


def _meshes(mesh: Any, topology: str | None) -> list[dict[str, int]]:
    if mesh is None:
        raise ValueError('give the mesh to shard over: mesh={"data": 2, "model": 4}')
    given = list(mesh) if isinstance(mesh, (list, tuple)) else [mesh]
    out = []
    for one in given:
        if isinstance(one, str):
            one = mesh_axes(one)
        axes = one if isinstance(one, Mapping) else getattr(one, "shape", None)
        if not isinstance(axes, Mapping) or not axes:
            raise ValueError(f'a mesh is axis sizes such as {{"data": 8}}, not {one!r}')
        for axis, n in axes.items():
            if not isinstance(n, int) or isinstance(n, bool) or n < 1:
                raise ValueError(
                    f"mesh axis {axis!r} has size {n!r}; sizes are whole numbers of at least 1"
                )
        out.append({str(a): int(n) for a, n in axes.items()})
    return out


def _keep(
    found: dict[Selection, Candidate],
    choices: Sequence[Selection],
    answers: Sequence[dict[str, Any] | None],
    setting: Setting,
    cost: str,
    tests: Sequence[Check],
) -> None:
    """Answers as candidates, numbered in the order of asking."""
    for choice, answer in zip(choices, answers, strict=False):
        if answer is None:
            continue
        figures: CandidateFigures | None = None
        error = str(answer.get("error", ""))
        if not error:
            figures = from_plain(answer["figures"])
        found[choice] = Candidate(
            number=len(found),
            mesh=setting.space.meshes[choice.mesh],
            specs=setting.space.specs(choice),
            leaf_specs=setting.space.leaf_specs(choice),
            cost=math.inf if figures is None else figures.cost(cost),
            figures=figures,
            error=error,
            broken=tuple(trouble for t in tests if figures and (trouble := t(figures)) is not None),
            compile_seconds=answer.get("compile_seconds"),
            from_store=bool(answer.get("from_store")),
        )


def _key(c: Candidate) -> tuple[float, ...]:
    """Sorts candidates: errors last, then broken constraints, cost, time, peak, number."""
    time_, peak = (c.figures.cost("time"), c.figures.peak_bytes) if c.figures else (0.0, 0.0)
    return (float(bool(c.error)), float(len(c.broken)), c.cost, time_, peak, float(c.number))


def _choice(found: Mapping[Selection, Candidate], c: Candidate) -> Selection:
    return next(choice for choice, other in found.items() if other.number == c.number)


def _opened(setting: Setting, choice: Selection) -> Capture:
    """A candidate captured: here where there are enough devices, else in another process."""
    from ...capturing.planning import sharded
    from ...readers import read_modules

    axes = setting.space.meshes[choice.mesh]
    enough = setting.compiled.topology is not None
    enough = enough or sharded.local_devices()[1] >= math.prod(axes.values())
    if enough:
        return sharded.capture_sharded(
            setting.fn, setting.args, setting.kwargs, axes, setting.space.leaf_specs(choice),
            replace(setting.compiled, provenance=True),
        )  # fmt: skip
    task = {**setting.task(choice, "capture"), "isolate": True}
    answer = evaluate(task)
    close_all()
    if "error" in answer:
        raise ValueError(answer["error"])
    return Capture(read_modules(answer["text"])[0], answer["target"], title=answer["title"])


def _measured(
    setting: Setting,
    ranked: Sequence[Candidate],
    found: Mapping[Selection, Candidate],
) -> list[Candidate]:
    """The first few with wall times, one after another; the ranking stays as it was."""
    from ...capturing.planning import sharded

    count, runs, topology = setting.options.measure, setting.options.runs, setting.compiled.topology
    if topology is not None:
        raise ValueError(f"measure= runs programs, and {topology} has no devices")
    out = list(ranked)
    for n, c in enumerate(out[:count]):
        if c.error:
            continue
        choice = _choice(found, c)
        platform, devices = sharded.local_devices()
        here = platform != "cpu" or devices >= math.prod(c.mesh.values())
        if here:
            taken = sharded.measure(_opened(setting, choice), runs)
        else:
            answer = evaluate({**setting.task(choice, "measure", runs=runs), "isolate": True})
            if "error" in answer:
                out[n] = replace(c, broken=(*c.broken, f"not measured: {answer['error']}"))
                continue
            taken = answer["seconds"]
        out[n] = replace(c, measured=MeasuredSeconds(tuple(taken)))
    close_all()
    return out
