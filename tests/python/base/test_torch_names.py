"""Programs of PyTorch/XLA open as forward, backward and optimiser, their modules as scopes."""

from __future__ import annotations

from hloscope.analysis.base.phases.phases import PHASES, phases
from hloscope.analysis.base.table import table
from hloscope.analysis.grouping.folds import folds
from hloscope.analysis.grouping.groups import group_tree
from hloscope.analysis.grouping.worth import worth_opening
from hloscope.hlo import Module
from hloscope.readers import read_modules

_DIMS = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
_LINEAR = ' source_file="/site/torch/nn/modules/linear.py" source_line=114'
_SGD = ' source_file="/site/torch/optim/sgd.py" source_line=9'
_PARTS = ("query", "up", "down")


def step(layers: int) -> Module:
    """A training step; metadata as PyTorch/XLA writes it, with the hierarchy of modules."""
    rows = ["  x = f32[8,8]{1,0} parameter(0)"]
    rows += [f"  w{k} = f32[8,8]{{1,0}} parameter({k + 1})" for k in range(layers)]
    at, new = "x", []

    def row(name: str, what: str, op: str, where: str = "", line: str = "") -> str:
        said = f'metadata={{op_type="{op}" op_name="{where}{op}"{line}}}'
        rows.append(f"  {name} = f32[8,8]{{1,0}} {what}, {said}")
        return name

    for k in range(layers):
        for part in _PARTS:
            where = f"Llama[model]/Layer[layers.{k}]/Linear[{part}]/"
            dot = row(f"{part}{k}", f"dot({at}, w{k}), {_DIMS}", "aten__mm", where, _LINEAR)
            at = row(f"{part}_{k}", f"tanh({dot})", "aten__tanh", where, _LINEAR)
    for k in reversed(range(layers)):
        back = row(f"b{k}", f"multiply({at}, down_{k})", "aten__tanh_backward")
        gradient = row(f"g{k}", f"dot({back}, up_{k}), {_DIMS}", "aten__mm")
        at = row(f"c{k}", f"dot({back}, w{k}), {_DIMS}", "aten__mm")
        row(f"m{k}", f"dot({gradient}, {gradient}), {_DIMS}", "aten__mm", line=_SGD)
        new.append(row(f"u{k}", f"subtract(w{k}, m{k})", "aten__sub", line=_SGD))
    shapes = ", ".join(["f32[8,8]{1,0}"] * layers)
    rows.append(f"  ROOT r = ({shapes}) tuple({', '.join(new)})")
    (module,) = read_modules("\n".join(["HloModule Sync", "", "ENTRY e {", *rows, "}", ""]))
    return module


def test_passes_are_told_by_what_autograd_and_the_optimiser_write() -> None:
    module = step(5)
    found = {i.name: PHASES[p] for i, p in zip(module.instructions, phases(module), strict=True)}
    assert {found[n] for n in ("query0", "down_4")} == {"forward"}
    assert {found[n] for n in ("b4", "g0", "c2")} == {"backward"}
    assert {found[n] for n in ("m0", "u3")} == {"optimiser"}


def test_modules_of_a_model_are_scopes_and_layers_one_fold() -> None:
    module = step(5)
    tree = group_tree(module)
    assert "optimizer · sgd" in tree.label
    assert not [label for label in tree.label if "aten" in label]
    assert any(
        [tree.label[g] for g in f.members] == [f"layers.{k}" for k in range(5)]
        for f in folds(module, tree).folds
    )


def test_what_the_file_says_is_shown_as_it_says_it() -> None:
    module = step(2)
    assert "Llama[model]/Layer[layers.1]/Linear[up]/aten__mm" in table(module).op_names
    assert module.instructions[3].op_name == "Llama[model]/Layer[layers.0]/Linear[query]/aten__mm"


def test_an_optimiser_that_multiplies_stays_closed_and_the_model_opens() -> None:
    module = step(2)
    tree = group_tree(module)
    worth = dict(zip(tree.label, worth_opening(module, tree).tolist(), strict=True))
    assert worth["optimizer · sgd"] == 0 < worth["backward"] < worth["forward/model"] <= 1
