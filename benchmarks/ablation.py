"""Which rules earn their place: each is switched off alone, on real programs; prints a table.

    python benchmarks/ablation.py FOLDER … [--families grouping why] [--limit 20000]

FOLDER holds dumps and what tests keep, as for ``behaviour.py``. A rule is a function that is
replaced by one that does nothing (``RULES``). Each program's changes are written to stderr at once,
a line of JSON; ``--lines FILE`` prints the table of such lines. Of each rule the table has its
lines with the helpers that only it uses, how many programs and how many outcomes change without
it, and, where the truth is known, how many outcomes become right or wrong without it:

    grouping   outcome: the group of an instruction, a group, a fold; truth: layer_truth.py
    names      the rules of grouping again; outcome: the names around an instruction; truth: its
               own frames (picture_truth.py), in thousandths of a program: how much of the calls
               above an instruction is named around it, and for how many every name is true
    phases     outcome: the phase of an instruction; truth: what its op_name states, where that
               name was hidden from the analysis (every seventh)
    identity   outcome: the operations an instruction is inferred to come from; truth: the marks
    why        outcome: the card of a collective; known or unknown, no independent truth
    findings   outcome: a finding; truth: programs made to be ill, of which a rule must speak
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import json
import multiprocessing
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "python"), str(REPO / "benchmarks")]

import numpy as np  # noqa: E402

Outcome = dict[str, str]
ANALYSIS = "hloscope.analysis."


# ---------------------------------------------------------------- stand-ins: what a rule becomes


def returns(value: Any) -> Callable[..., Any]:
    """Always the same; containers are copied."""
    return lambda *_, **__: value.copy() if isinstance(value, list | dict | set) else value


def argument(n: int) -> Callable[..., Any]:
    """The n-th argument, unchanged; methods count ``self``."""
    return lambda *given, **_: given[n]


def no_rows(n: int) -> Callable[..., Any]:
    """A mask like the n-th argument in which no row is set."""
    return lambda *given, **_: np.zeros(len(given[n]), bool)


def none_each(n: int, value: Any) -> Callable[..., Any]:
    """A list with ``value`` for each of the n-th argument."""
    return lambda *given, **_: [value for _ in given[n]]


NOTHING, FALSE, TRUE, EMPTY = returns(None), returns(False), returns(True), returns([])


class Never:
    """A pattern that matches nowhere."""

    def search(self, text: str) -> None:
        return None

    match = fullmatch = search

    def sub(self, replacement: str, text: str) -> str:
        return text


@dataclass(frozen=True)
class Rule:
    """``place`` is "module:attribute" or "module:Class.attribute", where it is *used*."""

    family: str
    place: str
    off: Any

    @property
    def name(self) -> str:
        module, _, attribute = self.place.partition(":")
        return f"{module.rpartition('.')[2]}: {attribute}"


def _rules(family: str, folder: str, table: dict[str, Any]) -> tuple[Rule, ...]:
    return tuple(Rule(family, f"{folder}.{place}", off) for place, off in table.items())


GROUPING = _rules("grouping", "grouping", {
    "outline:call_tree": returns(None),
    "outline:layers": lambda module: _no_layers(module),
    "outline:runs_once": lambda *_: _no_code(),
    "outline:_Composer._numbered_parts": NOTHING,
    "outline:_Composer._optimizers": NOTHING,
    "outline:_Composer._serves_updates": argument(1),
    "outline:_Composer._to_its_pass": NOTHING,
    "outline:_Composer._gradients": NOTHING,
    "outline:_Composer._tell_calls_apart": NOTHING,
    "outline:_Composer._sections": NOTHING,
    "outline:_Composer._to_numbered": NOTHING,
    "outline:move_inside_calls": NOTHING,
    "outline:_Composer._runs_once": FALSE,
    "outline:_Composer._run_once": FALSE,
    "outline:_Composer._serves_several": FALSE,
    "call_tree:NO_OPTIMIZER": frozenset(),
    "call_tree:_with_class": lambda scope, stack, *_: (scope, stack),
    "call_tree:_Level._are_alike": TRUE,
    "call_tree:_Level._is_deeper": FALSE,
    "call_tree:_Builder._without_others": NOTHING,
    "call_tree:_Builder._traced_elsewhere": NOTHING,
    "call_tree:_Builder._whole": argument(1),
    "call_tree:_Builder._within_definers": argument(1),
    "call_tree:_Builder._split": lambda self, tops, *rest: dict.fromkeys(tops, False),
    "groups:tell_apart": NOTHING,
    "groups:tell_twins_apart": NOTHING,
    "groups:gather_library_calls": NOTHING,
    "groups:_TreeBuilder._function_of": argument(4),
    "folds:_stages": lambda members, contents: [members],
    "folds:_without_products": returns([]),
    "groups:gather_minor": NOTHING,
    "groups:gather_flat": NOTHING,
    "loose:CROWDED": 1 << 30,
    "groups:_TreeBuilder._without_others": lambda self, found, whole: len(whole),
    "call_arguments:DEEPEST": 1,
    "groups:cut_wide": NOTHING,
    "groups:loop_names": returns({}),
    "groups:loop_label": returns(""),
    "groups:_TreeBuilder._mean_index": lambda self, parent: np.zeros(len(parent), np.int64),
    "group_nodes:_is_part": FALSE,
    "group_nodes:FAMILY": 1 << 30,
    "folds:_inside": returns(""),
    "folds:_far": returns(0.0),
    "components:_names": lambda models, t, quiet: ["part" for _ in models],
    "components:cut_sections": NOTHING,
    "functions:own_calls": lambda module: np.full(len(module.instructions), -1, np.int64),
    "loop_names:_Namer._is_loop": FALSE,
    "loop_names:_Namer._turn": returns(""),
    "loop_names:_Namer._holds_loops": FALSE,
    "loop_names:_Namer._scope": returns(""),
    "loop_names:_Namer._scope_around": returns(""),
    "loop_names:_Namer._told_apart": NOTHING,
    "loop_names:loop_label": returns(""),
    "scopes:_in_full": argument(0),
    "scopes:_before_loops": NOTHING,
    "scopes:_early_ones": NOTHING,
    "scopes:_early_inherited": NOTHING,
    "scopes:hoist": NOTHING,
    "scopes:sink": NOTHING,
    "outline:hoist": NOTHING,
    "outline:_Composer._levels": EMPTY,
    "outline:sink": NOTHING,
    "scopes:_from_callees": argument(1),
    "layers.layers:by_weights": NOTHING,
    "layers.layers:of_other_computation": NOTHING,
    "layers.layers:free_lookups": NOTHING,
    "layers.layers:to_gradients": NOTHING,
    "layers.layers:with_their_gradient": NOTHING,
    "layers.layers:free_products": NOTHING,
    "layers.layers:optimiser_name": returns(""),
    "layers.layers:after_updates": no_rows(1),
    "layers.layers:only_for": no_rows(2),
    "layers.layers:of_loops": no_rows(2),
    "layers.layers:of_gradients": none_each(2, False),
    "layers.layers:looks_up": FALSE,
    "layers.layers:_Finder._told": returns({}),
    "layers.layers:_Finder._loops": returns(()),
    "layers.layers:_Finder._apart": returns(frozenset()),
    "layers.layers:_Finder._held_by_scopes": EMPTY,
    "layers.layers:_Finder._unlike": argument(2),
    "layers.layers:_Finder._of_one_name": returns(set()),
    "layers.layers:_Finder._name_rest": NOTHING,
    "layers.layers:_Finder._name_optimiser": NOTHING,
    "layers.layers:_Finder._in_a_pass": FALSE,
    "layers.names:LayerNames.of_model": returns({}),
    "layers.names:LayerNames._called_once": returns(99),
    "layers.names:LayerNames._beside": FALSE,
    "layers.names:told_apart": EMPTY,
    "layers.placing:_told": returns({}),
    "layers.placing:_served": returns(set()),
    "layers.placing:_sides": returns((set(), set())),
    "layers.placing:_joined": lambda t, g, own, who: [False] * g.size,
    "layers.repeats:_by_arguments": none_each(0, []),
    "layers.repeats:_by_shape": EMPTY,
    "layers.repeats:_whole": argument(0),
    "layers.repeats:_once_a_layer": argument(0),
    "layers.repeats:_Needs.beside": FALSE,
    "layers.repeats:_Needs.alternates": FALSE,
    "layers.repeats:AGREE": {},
    "layers.layers:find": returns(()),
    "layers.gradients:_pieces": returns({}),
    "layers.gradients:_passes": returns({}),
    "layers.gradients:_usual": argument(1),
    "layers.gradients:_holes": FALSE,
    "layers.witness:_updated": EMPTY,
    "layers.witness:_stages": FALSE,
    "code_words:BoxNames.groups": returns({}),
    "code_words:BoxNames.instructions": returns({}),
    "code_words:BoxNames._of_some": NOTHING,
    "code_words:BoxNames._which": property(returns({})),
    "code_words:BoxNames._outside": argument(1),
    "code_words:BoxNames.loops": returns({}),
    "code_words:BoxNames._products": property(lambda names: [Counter() for _ in names.t.first]),
    "code_words:BoxNames._collectives": returns({}),
    "code_words:BoxNames._without_calls": argument(1),
    "outline:_Composer._in_libraries": argument(1),
    "instances:_times_of_kinds": lambda lines, first: (1, lines),
    "instances:Steady.times": returns((0, False)),
    "instances:Instances._of_forward": returns({}),
    "outline:_Composer._open_repeated": returns(set()),
    "outline:_Composer._calls_made_once": EMPTY,
    "outline:_Composer._recomputed_apart": EMPTY,
    "program_order:ProgramOrder.of": EMPTY,
    "call_tree:of_first_callers": argument(2),
    "instances:Steady.loops": FALSE,
    "instances:PAIR": 1 << 30,
    "outline:MOST_OF_STATE": 1 << 30,
    "work:is_expanded": FALSE,
    "groups:FLAT_CALLS": 12,
    "call_tree:_Builder._without_gaps": argument(1),
    "call_tree:_Builder._by_flow": argument(1),
    "call_tree:_completed": argument(0),
    "outline:_Composer._parts_of_calls": FALSE,
    "loop_names:_Namer._library": returns(""),
    "outline:_Composer._casts": property(lambda c: np.zeros(len(c.t.computation), bool)),
    "instances:_function": argument(0),
    "loose:Parts.is_misplaced": FALSE,
    "groups:_TreeBuilder._name_pieces": NOTHING,
    "in_turn:put_in_turn": NOTHING,
    "groups:gather_statements": NOTHING,
    "statements:_Statements._move": lambda *a: False,
})  # fmt: skip

PHASES = _rules("phases", "base.phases", {
    "edges:summed_together": lambda t: (np.zeros(0, np.int64), np.zeros(0, np.int64)),
    "phases:_from_caller": NOTHING,
    "phases:held_to_flow": argument(1),
    "phases:_XLA_REMAT": Never(),
    "phases:_OPTIMISER": Never(),
    "phases:_from_context": NOTHING,
    "phases:_between": NOTHING,
    "phases:_holding_both": no_rows(1),
    "phases:serve_optimiser": no_rows(1),
    "phases:beside_model": no_rows(1),
    "phases:used_as": lambda t, out: out[t.operands.rows].copy(),
    "phases:_unmarked_bodies": lambda t, out: np.zeros(len(t.first), bool),
    "phases:_as_their_loop": NOTHING,
    "phases:_named_inside": no_rows(1),
    "phases:_with_what_they_fuse": NOTHING,
    "phases:_from_inside": NOTHING,
    "phases:_inherit": NOTHING,
    "flow:_with_what_is_fused": argument(2),
})  # fmt: skip

IDENTITY = _rules("identity", "passes.identity", {
    "resolve:copied_from": returns({}),
    "resolve:Pairs": lambda *_: _Empty(),
    "resolve:identify_nameless": NOTHING,
    "resolve:_Decisions._by_owners": NOTHING,
    "resolve:_Decisions._only_candidates": NOTHING,
    "resolve:_Decisions._in_order": NOTHING,
    "resolve:_Decisions._based_on": lambda self, node, name, family: _neighbours(),
    "owners:Owners._inlined_from": returns({}),
    "owners:Owners.is_undecided": FALSE,
    "owners:Wholes": lambda *_: _Empty(),
    "parts:Wholes._element": returns(-1),
    "parts:Wholes._inside": returns(-1),
    "families:Families._called_as": EMPTY,
    "evidence:Evidence.score": returns(0.0),
    "evidence:Evidence._by_name": returns(0.0),
    "evidence:Evidence._by_pairs": returns(0.0),
    "evidence:Evidence._by_operands": returns(0.0),
    "evidence:Evidence._by_users": returns(0.0),
    "evidence:Evidence._around": returns({}),
    "walk:IdentityWalk._helped": NOTHING,
})  # fmt: skip

WHY = _rules("why", "why", {
    "joining:Joining._is_told_by_flow": FALSE,
    "joining:Joining._by_size": EMPTY,
    "joining:Joining._of_one_line": EMPTY,
    "joining:Joining._is_step": FALSE,
    "joining:Joining._whole_of": EMPTY,
    "joining:Joining._step": EMPTY,
    "joining:Joining._beside": returns(set()),
    "joining:Joining._permute": EMPTY,
    "joining:Joining._moving": argument(2),
    "joining:Joining._combined": EMPTY,
    "joining:Joining._crossing": returns(set()),
    "joining_slices:Exchanges.has_row_behind": FALSE,
    "joining_slices:Exchanges._inside": returns(0),
    "joining_slices:_collectives_behind": EMPTY,
    "partitioned:Partitioned._windowed": EMPTY,
    "partitioned:Partitioned._reduction": EMPTY,
    "partitioned:Partitioned._where_summed": EMPTY,
    "partitioned:Partitioned._move": EMPTY,
    "partitioned:Partitioned._is_own": FALSE,
    "partitioned:Partitioned._needed": EMPTY,
    "partitioned:Partitioned._carried": EMPTY,
    "partitioned:Partitioned._output": EMPTY,
    "partitioned:Partitioned._returned": EMPTY,
    "partitioned:Partitioned._cut": returns(frozenset()),
    "partitioned:Partitioned._is_annotated": FALSE,
    "alignment:Alignment._windowed": NOTHING,
    "alignment:Alignment._alike": NOTHING,
    "alignment:Alignment._element": NOTHING,
    "by_metadata:ByMetadata.causes": returns(([], "switched off")),
    "by_metadata:ByMetadata.argument": NOTHING,
    "provenance:Provenance._contradicts": FALSE,
    "provenance:Provenance._merged": lambda self, cards: cards[0],
    "provenance:_telling": lambda origins: tuple(origins),
    "cards:_beside_row": argument(0),
    "provenance:_of_axes": argument(0),
    "provenance_causes:Causes._reductions": EMPTY,
    "provenance_causes:Causes._moves": EMPTY,
    "provenance_causes:Causes._moved_operands": EMPTY,
    "provenance_causes:Causes.reshards": EMPTY,
    "provenance_causes:Causes._gathered": NOTHING,
    "provenance_origins:callers_of": returns(()),
})  # fmt: skip


class _Empty:
    """In place of ``Pairs`` and ``Wholes`` of identity."""

    def __init__(self) -> None:
        self.of: Any = _EmptyOf()


class _EmptyOf(dict[int, Any]):
    def __call__(self, *_: Any) -> int:
        return -1


def _neighbours() -> Any:
    from hloscope.analysis.passes.identity.how import How

    return How.NEIGHBOURS


def _no_code() -> Any:
    from hloscope.analysis.grouping.runs_once import Once

    return Once()


def _no_layers(module: Any) -> Any:
    from hloscope.analysis.grouping.layers.layers import Layers
    from hloscope.analysis.grouping.scopes import scopes

    n = len(module.instructions)
    return Layers((), np.full(n, -1, np.int64), np.zeros(n, bool), scopes(module))


def findings_rules() -> tuple[Rule, ...]:
    """One for each row of the list of findings."""
    from hloscope.analysis.findings import rules

    return tuple(Rule("findings", f"findings.rules:{row[0]}", row[0]) for row in rules.RULES)


# ---------------------------------------------------------------- switching off


@contextmanager
def without(rule: Rule) -> Iterator[None]:
    """The analyses without one rule. Raises ``AttributeError`` if it does not exist."""
    module, _, attribute = rule.place.partition(":")
    owner: Any = importlib.import_module(ANALYSIS + module)
    replaced = rule.off
    if rule.family == "findings":
        attribute, name = "RULES", attribute
        replaced = tuple(row for row in owner.RULES if row[0] != name)
    for part in attribute.split(".")[:-1]:
        owner = getattr(owner, part)
    name = attribute.rpartition(".")[2]
    own = name in vars(owner)
    before = vars(owner)[name] if own else getattr(owner, name)
    setattr(owner, name, replaced)
    try:
        yield
    finally:
        if own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


def lines_of(rule: Rule) -> int:
    """Lines of a rule and of the helpers of its file that only it uses, directly or through them.

    Of a rule that is imported, those of its own file.
    """
    found = _resolved(rule)
    if not callable(found):
        return 1
    found = inspect.unwrap(found)
    source = inspect.getsourcefile(found)
    if source is None:
        return 0
    tree = ast.parse(Path(source).read_text())
    sizes: dict[str, int] = {}
    uses: dict[str, set[str]] = defaultdict(set)
    whole: set[str] = set()
    for node in tree.body:
        parts = [node]
        if isinstance(node, ast.ClassDef):
            parts += [n for n in node.body if isinstance(n, ast.FunctionDef)]
            whole.add(node.name)
        for part in parts:
            if not isinstance(part, ast.FunctionDef | ast.ClassDef):
                continue
            sizes[part.name] = (part.end_lineno or 0) - part.lineno + 1 + len(part.decorator_list)
            for inner in ast.walk(part):
                if isinstance(inner, ast.Name):
                    uses[part.name].add(inner.id)
                elif isinstance(inner, ast.Attribute):
                    uses[part.name].add(inner.attr)
    mine = {getattr(found, "__name__", "")}
    while True:
        called = {u for m in mine for u in uses[m] if u in sizes} - mine
        private = {
            c for c in called
            if c.startswith("_") and c not in whole
            and all(user in mine or user in whole or user == c
                    for user, names in uses.items() if c in names)
        }  # fmt: skip
        if not private:
            return sum(sizes.get(m, 0) for m in mine)
        mine |= private


def _resolved(rule: Rule) -> Any:
    module, _, attribute = rule.place.partition(":")
    found: Any = importlib.import_module(ANALYSIS + module)
    if rule.family == "findings":
        return next(row[1] for row in found.RULES if row[0] == attribute)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found


# ---------------------------------------------------------------- programs and outcomes


class Program:
    """One program; analyses are made anew after ``forget``."""

    def __init__(self, name: str, cap: Any) -> None:
        self.name, self.cap = name, cap

    def forget(self, family: str) -> None:
        """Drops what a family of rules had a part in."""
        kept = ("hloscope.analysis.base.table", "hloscope.analysis.base.structure")
        if family == "grouping":
            kept += ("hloscope.analysis.base.",)
        made = vars(self.cap.module).get("_made", {})
        for key in [k for k in made if not getattr(k, "__module__", "").startswith(kept)]:
            del made[key]
        self.cap.for_hosts.answers.clear()

    @cached_property
    def hidden(self) -> Any:
        """The same program with every seventh op_name that states a phase taken away, and those."""
        import hloscope as hs

        states = re.compile(r'op_name="[^"]*(?:jvp\(|transpose\(|rematted_computation)[^"]*"')
        count = 0

        def hide(found: re.Match[str]) -> str:
            nonlocal count
            count += 1
            return 'op_name=""' if count % 7 == 0 else found[0]

        text = "\n".join(
            states.sub(hide, line) if "transpose(jvp(" in line or "jvp(" in line else line
            for line in self.cap.text.split("\n")
        )
        cap = hs.read(text)
        rows = [
            n for n, (a, b) in enumerate(
                zip(self.cap.module.instructions, cap.module.instructions, strict=True))
            if a.op_name and not b.op_name
        ]  # fmt: skip
        return cap, rows


def grouping(program: Program) -> tuple[Outcome, set[str]]:
    """Groups, what they hold, and folds; right are the stacks that layer_truth.py says so of."""
    from behaviour import _folds, _groups, _paths, decode
    from hloscope.analysis.grouping.folds import folds
    from hloscope.analysis.grouping.groups import group_tree
    from hloscope.view import build_view
    from layer_truth import judge, stacks

    cap = program.cap
    _, columns = decode(build_view(cap.module, cap.target))
    paths = _paths(columns)
    names = [columns["strings"][n] for n in columns["instruction.name"]]
    out = {f"in {n}": paths[g] for n, g in zip(names, columns["instruction.group"], strict=True)}
    groups = _groups(columns, paths, names)
    out |= {f"group {k}": v.partition(" holds=")[0] for k, v in groups.items()}
    out |= {f"fold {k}": v for k, v in _folds(columns, paths).items()}
    tree = group_tree(cap.module, cap.target)
    folded = folds(cap.module, tree)
    right = {
        f"{n} {s.name}" for n, s in enumerate(stacks(cap.module))
        if not judge(cap.module, s, tree, folded)
    }  # fmt: skip
    return out, right


def names(program: Program) -> tuple[Outcome, dict[str, float]]:
    """Names around instructions; how much of them is named and true."""
    from hloscope.view.context import Context
    from picture_truth import Oracle, paths, truth_of_names

    cap = program.cap
    context = Context(cap.module, cap.target)
    if "flops" not in vars(program):
        vars(program)["flops"] = {
            r.instruction.index: r.flops for r in cap.cost() if r.flops is not None and r.flops > 0
        }
        vars(program)["oracle"] = Oracle(cap.module, vars(program)["flops"])
    oracle, tree, shown = vars(program)["oracle"], context.groups, context.group_labels
    around = paths(tree, shown)
    out = {i.name: around[g] for i, g in zip(cap.module.instructions, tree.group, strict=True)}
    named = zip(context.folds.folds, context.fold_labels, strict=True)
    out |= {f"fold {n}": f"{label} {fold.members}" for n, (fold, label) in enumerate(named)}
    out |= {f"code {n}": text for n, text in context.instruction_code.items()}
    known = vars(program).setdefault("known", (around, truth_of_names(oracle, tree, shown)))
    return out, known[1] if around == known[0] else truth_of_names(oracle, tree, shown)


def phases_of(program: Program) -> tuple[Outcome, set[str]]:
    """Phases; right are those of instructions whose name was hidden and is known."""
    from hloscope.analysis.base.phases import phases as file

    cap, rows = program.hidden
    vars(cap.module).get("_made", {}).clear()
    found = file.phases(program.cap.module)
    instructions = program.cap.module.instructions
    blind = file.phases(cap.module)
    right = {
        str(r) for r in rows
        if blind[r] == file.name_phase(instructions[r].op_name) != file.UNKNOWN
    }  # fmt: skip
    return {i.name: str(p) for i, p in zip(instructions, found.tolist(), strict=True)}, right


def identity(program: Program) -> tuple[Outcome, set[str]]:
    """Origins that are inferred without marks; right are those that the marks have too."""
    from hloscope.analysis.passes.passes import passes
    from hloscope.analysis.provenance.inferred import infer
    from hloscope.readers import read_modules

    snapshots = program.cap.for_hosts.record
    known = vars(program).setdefault("known", passes(*snapshots()))
    first, last = known.module(0), known.module(len(known) - 1)
    found = infer(known)
    plain = vars(program).setdefault("plain", read_modules(known.text(0))[0])
    of_first = found.origins(plain, 0).of
    means: dict[int, set[int]] = {}
    for origins, i in zip(of_first, first.instructions, strict=True):
        for o in origins:
            means[o.operation] = {x.operation for x in i.origins}
    out, right = {}, set()
    inferred = found.origins(last).of
    for i in last.instructions:
        exact = {o.operation for o in i.origins}
        said = {n for o in inferred[i.index] for n in means.get(o.operation, {-1})}
        out[i.name] = " ".join(map(str, sorted(said)))
        if exact and exact == said:
            right.add(i.name)
    return out, right


def why(program: Program) -> tuple[Outcome, set[str]]:
    """Cards; right are those that know a reason."""
    cap = program.cap
    cards = {c.name: cap.why(c) for c in cap.collectives}
    return {n: str(card) for n, card in cards.items()}, {n for n, c in cards.items() if c.is_known}


def findings(program: Program) -> tuple[Outcome, set[str]]:
    found = program.cap.findings
    out = {f"{f.rule} {n}": str(f) for n, f in enumerate(found)}
    return out, {f.rule for f in found} if program.name.startswith("finds_") else set()


FAMILIES: dict[str, Callable[[Program], tuple[Outcome, set[str] | dict[str, float]]]] = {
    "grouping": grouping,
    "names": names,
    "phases": phases_of,
    "identity": identity,
    "why": why,
    "findings": findings,
}


def belongs(family: str, cap: Any) -> bool:
    """Whether a program can show anything of a family."""
    if getattr(cap, "module", None) is None or cap.module.dialect != "hlo":
        return False
    if family == "identity":
        return cap.has_passes and cap.module.origins is not None
    if cap.has_passes:
        return False
    if family == "why":
        return cap.target.before_partitioning is not None
    return cap.module.entry is not None


# ---------------------------------------------------------------- measuring


def measure(
    family: str, name: str, read: Callable[[Path], Any], limit: int, only: str = ""
) -> list[Any]:
    """For each rule that changes something: (rule, changed outcomes, become right, become wrong).

    The first row says how many outcomes there are and how many are right as it is.
    """
    of = "grouping" if family == "names" else family
    rules = [r for r in all_rules() if r.family == of and re.search(only, r.place)]
    with tempfile.TemporaryDirectory() as folder:
        cap = read(Path(folder))
        if not belongs(family, cap) or len(cap.module.instructions) > limit:
            return []
        if cap.hardware is None:
            cap.hardware = "tpu-v5e"
        program, outcome = Program(name, cap), FAMILIES[family]
        program.forget(of)
        whole, right = outcome(program)
        rows: list[Any] = [("", len(whole), len(right), 0, as_weights(right))]
        for rule in rules:
            program.forget(of)
            try:
                with without(rule):
                    less, still = outcome(program)
            except AttributeError as error:
                if rule.place.rpartition(".")[2] in str(error):
                    continue  # does not exist any more
                less, still = {"failed": str(error)}, set()
            except Exception as error:
                less, still = {"failed": str(error)}, set()
            changed = sum(whole.get(k) != less.get(k) for k in whole.keys() | less.keys())
            if changed or still != right:
                before, after = as_weights(right), as_weights(still)
                both = {k: after.get(k, 0.0) - before.get(k, 0.0) for k in before | after}
                better = sum(v for v in both.values() if v > 0)
                worse = -sum(v for v in both.values() if v < 0)
                each = {k: round(v, 2) for k, v in both.items()} if family == "names" else {}
                rows.append((rule.place, changed, round(better, 2), round(worse, 2), each))
    return rows


def as_weights(right: set[str] | dict[str, float]) -> dict[str, float]:
    return right if isinstance(right, dict) else dict.fromkeys(right, 1.0)


def all_rules() -> tuple[Rule, ...]:
    return (*GROUPING, *PHASES, *IDENTITY, *WHY, *findings_rules())


def _child(family: str, name: str, read: Any, given: argparse.Namespace, out: Path) -> None:
    out.write_text(json.dumps(measure(family, name, read, given.limit, given.only)))


def main() -> None:
    from behaviour import DUMPS, KEPT, programs

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="*", type=Path)
    parser.add_argument("--lines", type=Path, help="stderr of an earlier run")
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=FAMILIES)
    parser.add_argument("--only", default="", help="rules whose place this expression finds")
    parser.add_argument("--limit", type=int, default=20_000, help="instructions of a program")
    parser.add_argument("--seconds", type=int, default=600, help="that a program may take")
    given = parser.parse_args()
    if given.lines:
        rows = [
            json.loads(line) for line in given.lines.read_text().splitlines() if line[:1] == "["
        ]
        for family in given.families:
            show(family, [(name, found) for of, name, found in rows if of == family])
        return
    import hloscope  # noqa: F401  (once, before forking)

    fork = multiprocessing.get_context("fork")
    files = sorted(
        p for f in given.folder for p in (f.iterdir() if f.is_dir() else [f])
        if p.name.endswith(DUMPS + KEPT)
    )  # fmt: skip
    for family in given.families:
        results: list[tuple[str, list[Any]]] = []
        for path in files:
            if path.name.endswith(".dump.xz") or path.name.endswith(".marked.xz") != (
                family == "identity"
            ):
                continue
            for name, read in programs(path):
                with tempfile.TemporaryDirectory() as folder:
                    out = Path(folder) / "rows.json"
                    child = fork.Process(target=_child, args=(family, name, read, given, out))
                    child.start()
                    child.join(given.seconds)
                    child.kill()
                    child.join()
                    rows = json.loads(out.read_text()) if out.exists() else []
                if rows:
                    results.append((name, rows))
                    said = json.dumps([family, name, rows])
                    print(said, file=sys.stderr, flush=True)
        show(family, results)


def show(family: str, results: list[tuple[str, list[Any]]]) -> None:
    """One line per rule, those that change least first."""
    of = "grouping" if family == "names" else family
    parts = ("calls by FLOPs", "true by FLOPs", "calls", "true") if family == "names" else ()
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    programs, changed = Counter[str](), Counter[str]()
    better, worse = Counter[str](), Counter[str]()
    example: dict[str, str] = {}
    for name, rows in results:
        for place, count, right, wrong, each in rows[1:]:
            sums[place].update(each)
            programs[place] += 1
            changed[place] += count
            better[place] += right
            worse[place] += wrong
            example.setdefault(place, name)
    outcomes = sum(rows[0][1] for _, rows in results)
    known = sum(rows[0][2] for _, rows in results)
    print(f"\n{family}: {len(results)} programs, {outcomes:,} outcomes, {known:,} right\n")
    heads = " | ".join(["become right", "become wrong", *parts])
    print(f"| rule | lines | programs | outcomes | {heads} | for example |")
    print("|---|---:|---:|---:|" + "---:|" * (2 + len(parts)) + "---|")
    rules = [r for r in all_rules() if r.family == of]
    for rule in sorted(rules, key=lambda r: (programs[r.place], changed[r.place])):
        try:
            lines = lines_of(rule)
        except (AttributeError, StopIteration, ImportError):
            continue  # does not exist any more
        p = rule.place
        figures = [better[p], worse[p], *(sums[p][part] for part in parts)]
        print(f"| {rule.name} | {lines} | {programs[p]} | {changed[p]:,} | "
              f"{' | '.join(f'{v:,.0f}' for v in figures)} | {example.get(p, '')} |")  # fmt: skip
    sys.stdout.flush()


if __name__ == "__main__":
    main()
