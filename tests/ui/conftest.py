"""Fixtures of the browser tests: one Chromium, the built renderer, pages that report errors."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lab_server
import pytest
from contexts import Contexts

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests"))
import quickly  # noqa: E402

os.environ.setdefault("JAX_PLATFORMS", "cpu")
quickly.set_flags()
if importlib.util.find_spec("hloscope") is None:
    sys.path.insert(0, str(REPO / "python"))

CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--js-flags=--no-opt",  # a page lives for seconds: less than compiling it for speed gains
]


# What runs together on one worker, the longest first: a Jupyter server starts in as much time as
# five of its tests take, and a page that has shown JupyterLab is shown again.
LAB = "lab"
OF_LAB = {"test_lab_captures.py", "test_lab_code.py", "test_lab_files.py", "test_lab_notebook.py",
          "test_lab_passes.py", "test_notebooks.py", "test_plan_live.py", "test_results.py",
          "test_watch.py"}  # fmt: skip
LONGEST = (LAB, "test_docs_site.py", "test_pictures.py", "test_code.py", "test_oldest_lab.py")


def _together(file: Path) -> str:
    return LAB if file.name in OF_LAB else file.name


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    from turns import in_turn

    with in_turn(Path(__file__).parent):
        return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from together import Together

    return Together(config, log, _together)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: k for k, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(_together(item.path), len(order)))


@pytest.fixture(scope="session")
def renderer() -> Path:
    """Folder of the bundles, built when a source is newer. Fails when node is missing."""
    static = REPO / "python" / "hloscope" / "static"
    sources = [*(REPO / "js").rglob("*.ts"), *(REPO / "js").rglob("*.css"), REPO / "build.mjs"]
    built = [static / "explorer.js", static / "plan.js"]
    newest = max(p.stat().st_mtime for p in sources)
    if not all(p.exists() and p.stat().st_mtime >= newest for p in built):
        subprocess.run(["node", "build.mjs"], cwd=REPO, check=True, capture_output=True)
    return static


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The system's Chromium, or the one that HLOSCOPE_CHROMIUM names."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = os.environ.get("HLOSCOPE_CHROMIUM") or shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium on this machine (set HLOSCOPE_CHROMIUM)")
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        yield made
        made.close()


@pytest.fixture
def page_errors() -> list[str]:
    """Console errors and warnings, and exceptions, of pages opened with ``open_page``."""
    return []


@pytest.fixture(scope="session")
def contexts(browser: Browser) -> Contexts:
    """Contexts of ``open_page``."""
    return Contexts(browser)


@pytest.fixture(scope="session")
def lab_contexts(browser: Browser) -> Contexts:
    """Contexts of ``new_page``, in which JupyterLab stays open."""
    return Contexts(browser, lab_server.tidied)


@pytest.fixture
def open_page(contexts: Contexts, page_errors: list[str]) -> Iterator[Callable[..., Page]]:
    """Open a URL in a page of its own: ``open_page(url, color_scheme="dark", width=1280)``.

    Pages of a test share nothing, and nothing that another test left.
    """
    heard: list[tuple[Page, str, Callable[..., None]]] = []

    def open_(
        url: str,
        *,
        color_scheme: str = "light",
        width: int = 1280,
        height: int = 800,
        script: str = "",  # runs in the page before its own scripts
        **more: Any,
    ) -> Page:
        page = contexts.page(width, height, scheme=color_scheme, script=script, **more)
        for event, hear in (("pageerror", thrown), ("console", said)):
            page.on(event, hear)  # type: ignore[call-overload]
            heard.append((page, event, hear))
        page.goto(url)
        return page

    def thrown(error: Exception) -> None:
        page_errors.append(f"thrown: {error}")

    def said(message: ConsoleMessage) -> None:
        if _is_bad(message):
            page_errors.append(f"console: {message.text}")

    yield open_
    for page, event, hear in heard:
        page.remove_listener(event, hear)
    contexts.give_back()


# JupyterLab says so of any plugin on a machine that is busy with something else.
_SLOW = re.compile(r"Plugin \S+ .*took [\d.]+ms to activate")


def _is_bad(message: ConsoleMessage) -> bool:
    return message.type in ("error", "warning") and not _SLOW.match(message.text)


@pytest.fixture
def new_page(
    lab_contexts: Contexts, request: pytest.FixtureRequest
) -> Iterator[Callable[[], Page]]:
    """Pages for ``open_lab``, of the test module's ``VIEWPORT``, that share nothing."""

    def make() -> Page:
        page = lab_contexts.page(**request.module.VIEWPORT)
        page.set_default_timeout(45_000)
        return page

    yield make
    lab_contexts.give_back()


@pytest.fixture(scope="session")
def jupyter_server(
    renderer: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[lab_server.Server]:
    """One Jupyter server of all tests of a run: see ``server``."""
    pytest.importorskip("jupyterlab", reason="jupyterlab is not installed")
    with lab_server.serving(tmp_path_factory.mktemp("jupyter")) as made:
        yield made


@pytest.fixture(scope="module")
def server(jupyter_server: lab_server.Server) -> lab_server.Server:
    """A Jupyter server without files, kernels and settings of another module."""
    lab_server.emptied(jupyter_server)
    return jupyter_server


@pytest.fixture(scope="session")
def shots() -> Path:
    """Folder of screenshots, for people to look at; ignored by git."""
    folder = REPO / "tests" / "ui" / "shots"
    folder.mkdir(exist_ok=True)
    return folder
