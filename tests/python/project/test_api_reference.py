"""The API reference is complete: every public name, and every class one can reach from there."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from typing import Any

import hloscope
import pytest

# Working parts of an analysis that a result carries along; figures are in the result itself.
INTERNAL = {"CallGraph", "Captured", "ForHosts", "Levels", "Steps", "Values"}
# Errors that never leave: other code of ours catches them.
CAUGHT = {
    "BadFrame",
    "LimitReached",
    "Cancelled",
    "SearchCancelled",
    "CommandError",
    "Spent",
    "StageLogGiven",
    "TimeIsOver",
    "TooLarge",
    "TooMuchMemory",
}
PUBLIC = r"hloscope(\.(results(\.planning)?|hlo|hardware|pytest_plugin|plan))?\.\w+"
ROOMS = ("hlo", "hardware", "readers", "analysis", "capturing", "api", "plan", "pytest_plugin")


@pytest.fixture(scope="module")
def listed(repo: Path) -> list[str]:
    return re.findall(r"^::: (\S+)$", (repo / "docs" / "api.md").read_text(), re.M)


def found(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@pytest.fixture(scope="module")
def classes() -> dict[str, type]:
    out: dict[str, type] = {}
    for info in pkgutil.walk_packages(hloscope.__path__, "hloscope."):
        if info.name.split(".")[1] not in ROOMS or info.name.endswith("stablehlo.child"):
            continue
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            if inspect.isclass(value) and value.__module__ == module.__name__:
                out.setdefault(name, value)
    return out


def annotations(cls: type) -> list[tuple[str, str]]:
    """(public member, what it is or returns)."""
    out = [(k, str(v)) for k, v in vars(cls).get("__annotations__", {}).items()]
    for name, value in vars(cls).items():
        function = value.fget if isinstance(value, property) else getattr(value, "func", value)
        notes = getattr(function, "__annotations__", None)
        if notes and not inspect.isclass(value):
            out.append((name, str(notes.get("return", ""))))
    shown = ("__iter__", "__getitem__")
    return [(k, v) for k, v in out if k in shown or not k.startswith("_")]


def test_every_name_exists_once_and_says_what_it_is(listed: list[str]) -> None:
    assert len(set(listed)) == len(listed)
    for path in listed:
        value = found(path)
        text = inspect.getdoc(getattr(value, "__pytest_wrapped__", value)) or ""
        obj = getattr(value, "__wrapped__", value)
        assert text or inspect.getdoc(obj), path


def test_every_public_name_is_there(listed: list[str]) -> None:
    there = [found(path) for path in listed]
    for name in set(hloscope.__all__) - {"results"}:
        assert getattr(hloscope, name) in there, name


def test_every_class_that_can_be_reached_is_there(
    listed: list[str], classes: dict[str, type]
) -> None:
    names = {path.rpartition(".")[2] for path in listed}
    missing: dict[str, str] = {}
    for path in listed:
        value = found(path)
        for member, note in annotations(value) if inspect.isclass(value) else []:
            for word in re.findall(r"\b[A-Z]\w+", note):
                if word in classes and word not in names | INTERNAL:
                    missing.setdefault(word, f"{path}.{member}")
    assert not missing


def test_every_public_member_of_a_capture_says_what_it_is() -> None:
    for name, value in vars(hloscope.Capture).items():
        if name.startswith("_") or not (callable(value) or hasattr(value, "__get__")):
            continue
        assert inspect.getdoc(value) or inspect.getdoc(getattr(value, "func", value)), name


def test_tab_shows_the_public_names_and_no_others() -> None:
    shown = [name for name in dir(hloscope) if not name.startswith("__")]
    assert shown == sorted(hloscope.__all__)
    for name in shown:
        assert getattr(hloscope, name) is not None


def test_every_error_that_is_raised_is_public() -> None:
    missing = []
    for info in pkgutil.walk_packages(hloscope.__path__, "hloscope."):
        if info.name.endswith(("stablehlo.child", "__main__", "routes")):
            continue
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            ours = inspect.isclass(value) and value.__module__ == info.name
            if not ours or not issubclass(value, Exception) or name.startswith("_"):
                continue
            if name not in CAUGHT and getattr(hloscope, name, None) is not value:
                missing.append(f"{info.name}.{name}")
    assert missing == []


def test_the_reference_names_no_deep_module(listed: list[str]) -> None:
    assert [path for path in listed if not re.fullmatch(PUBLIC, path)] == []


def test_results_are_all_in_one_place(listed: list[str]) -> None:
    from hloscope import plan, results
    from hloscope.results import planning

    for module in (results, planning, plan):
        paths = [path.rpartition(".") for path in listed]
        told = [name for where, _, name in paths if where == module.__name__]
        assert sorted(told) == sorted(module.__all__), module.__name__
        assert all(getattr(module, name) is not None for name in told)


def test_a_class_has_one_public_path() -> None:
    from hloscope import hardware, hlo, results
    from hloscope.results import planning

    places: dict[type, list[str]] = {}
    for module in (hloscope, results, planning, hlo, hardware):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value):
                places.setdefault(value, []).append(f"{module.__name__}.{name}")
    assert {c: p for c, p in places.items() if len(p) > 1} == {}
