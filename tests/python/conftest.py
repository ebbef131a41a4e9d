"""Shared by all Python tests: the environment that jax needs, seeds, and the compiled corpus.

The variables are set before anything imports jax: 8 CPU devices, and those with which libtpu
compiles without a TPU.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from corpus.build import Built

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests"))
import quickly  # noqa: E402

quickly.set_flags(devices=8)
if importlib.util.find_spec("hloscope") is None:
    sys.path.insert(0, str(REPO / "python"))
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(REPO / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
    )


# What runs together on one worker, the longest first: each program of the corpus, of the findings'
# cases and of their advice is compiled once per run, each file's fixtures are made once.
CORPUS = "corpus"
FINDINGS = "findings"
OF_FINDINGS = {"test_advice_followed.py", "test_findings.py", "test_findings_bytes.py",
               "test_findings_judged.py"}  # fmt: skip
LONGEST = (CORPUS, FINDINGS, "test_docs.py", "test_oldest_jax.py", "test_magic_notebooks.py",
           "test_python_calls.py", "test_plan_search.py", "test_remat_policies.py",
           "test_changed_programs.py", "test_server.py", "test_bounded.py")  # fmt: skip


_TAKES_CORPUS = re.compile(r"^def test_\w+\([^)]*\bcompiled\b", re.MULTILINE)


@cache
def _together(file: Path) -> str:
    if file.name in OF_FINDINGS:
        return FINDINGS
    return CORPUS if _TAKES_CORPUS.search(file.read_text()) else file.name


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    from turns import in_turn

    with in_turn(Path(__file__).parent):
        return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from together import Together

    return Together(config, log, _together)


def _take_some(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out cases of tests marked ``some``, unless one is asked for by its name."""
    from some import chosen

    if any("[" in argument for argument in config.args):
        return
    cases: dict[str, dict[str, set[Any]]] = defaultdict(dict)
    counts: dict[str, int] = {}
    for item in items:
        mark = item.get_closest_marker("some")
        if mark is not None:
            test = item.nodeid.partition("[")[0]
            counts[test] = mark.args[0]
            cases[test][item.nodeid] = set(item.callspec.indices.items())  # type: ignore[attr-defined]
    taken = {node for test, nodes in cases.items() for node in chosen(nodes, counts[test])}
    left_out = [i for i in items if i.get_closest_marker("some") and i.nodeid not in taken]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [i for i in items if i not in gone]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "some(count): a run takes so many of the cases")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _take_some(config, items)
    order = {name: k for k, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(_together(item.path), len(order)))


def pytest_collection_finish() -> None:
    """What is imported and collected stays: the garbage collector need not look at it again and
    again, which took a tenth of the tests' time. It is not frozen: functions that are changed in
    place are found among what the collector knows."""
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def contract() -> None:
    """Every View that a test makes is checked against its declaration."""
    import contract

    contract.install()


@pytest.fixture(scope="session")
def repo() -> Path:
    """The root of the checkout."""
    return REPO


@pytest.fixture(scope="session")
def seeds() -> Path:
    """The folder of real dumps, from HLOSCOPE_SEEDS or beside the checkout; skips without it."""
    folder = Path(os.environ.get("HLOSCOPE_SEEDS") or REPO.parent / "shared" / "seeds")
    if not folder.is_dir():
        pytest.skip(f"no seed dumps at {folder} (set HLOSCOPE_SEEDS)")
    return folder


@pytest.fixture(scope="session")
def real() -> Path:
    """The folder of other people's programs and traces beside the checkout; skips without it."""
    folder = Path(os.environ.get("HLOSCOPE_REAL") or REPO.parent / "shared" / "real")
    if not folder.is_dir():
        pytest.skip(f"no real programs at {folder} (set HLOSCOPE_REAL)")
    return folder


@pytest.fixture(scope="session")
def libtpu() -> None:
    """Skips if TPU programs cannot be compiled."""
    if importlib.util.find_spec("libtpu") is None:
        pytest.skip('libtpu is not installed (pip install "hloscope[tpu]")')


@pytest.fixture(scope="session")
def compiled() -> Callable[..., Built]:
    """``compiled("gpt_scan")`` or ``compiled("gpt_scan", "v5e:2x4")``: built once per session.

    The result has ``lowered``, ``compiled``, ``text``, ``proto``, ``capture``, ``module``,
    ``target``. With a topology it skips if libtpu is missing.
    """
    from corpus.build import build

    def get(name: str, topology: str | None = None) -> Any:
        if topology is not None and importlib.util.find_spec("libtpu") is None:
            pytest.skip('libtpu is not installed (pip install "hloscope[tpu]")')
        return build(name, topology)

    return get
