"""The documentation as a site: built without network access, every page opened from its file.

Its pictures are in the repository; two are taken anew here, from real programs, to see that
docs/pictures.py can take them.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from some import some_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

OpenPage = Callable[..., "Page"]

REPO = Path(__file__).resolve().parents[2]
VIEWS = (
    "findings", "graph", "details", "collectives", "devices", "cost", "timeline", "memory",
    "source", "measured", "diff", "jupyterlab", "sharding", "transformer", "stages", "code",
    "compiler", "changes", "live",
)  # fmt: skip


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_pictures", REPO / "docs" / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(
    pictures: ModuleType,
    renderer: Path,
    browser: Browser,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Folder of the site, built from a copy of docs with two pictures taken anew."""
    pytest.importorskip("jax", reason="jax is not installed")
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    folder = tmp_path_factory.mktemp("docs")
    shutil.copytree(REPO / "docs", folder / "docs")
    shutil.copytree(REPO / "python" / "hloscope", folder / "python" / "hloscope")
    shutil.copytree(REPO / "scripts", folder / "scripts")
    shutil.copy(REPO / "mkdocs.yml", folder)
    pages = folder / "pages"
    pages.mkdir()
    anew = ["changes.webp", "watch.webp"]  # of programs that compile quickly
    said = pictures.take(folder / "docs" / "pictures", anew, pages, browser)
    assert said == []
    # a proxy that does not exist: any network access fails
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"],
        cwd=folder,
        env={**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1"},
        text=True,
        capture_output=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "site"


def test_every_page_is_built(site: Path) -> None:
    for page in (REPO / "docs").glob("*.md"):
        assert (site / f"{page.stem}.html").is_file(), page.name
    assert not list(site.rglob("*.py")), "programs are no part of the site"


def test_every_view_has_its_picture(site: Path, pictures: ModuleType, open_page: OpenPage) -> None:
    page = open_page("about:blank")
    shown = set()
    for name in VIEWS:
        html = (site / f"{name}.html").read_text("utf-8")
        found = set(re.findall(r'<img[^>]+src="pictures/([^"]+)"', html))
        assert found, f"{name} shows no picture"
        shown |= found
    assert shown | {"explorer.webp", "layers.webp", "convolutions.webp"} == set(pictures.PICTURES)
    for name, picture in pictures.PICTURES.items():
        page.goto((site / "pictures" / name).as_uri())
        width, height, colors, busy = page.evaluate(LOOK)
        assert (width, height) == (picture.width, picture.height), name
        assert colors > 20, f"{name} has {colors} colours: is it blank?"
        assert busy > 0.01, f"{name} is all background"


# size of a picture, number of its colours, and the share that is not the commonest colour, of every
# seventh pixel
LOOK = """() => {
  const image = document.images[0];
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
  const context = canvas.getContext('2d');
  context.drawImage(image, 0, 0);
  const {data} = context.getImageData(0, 0, canvas.width, canvas.height);
  const counts = new Map();
  const colors = new Uint32Array(data.buffer);
  for (let k = 0; k < colors.length; k += 7)
    counts.set(colors[k], (counts.get(colors[k]) ?? 0) + 1);
  const most = Math.max(...counts.values());
  return [canvas.width, canvas.height, counts.size, 1 - 7 * most / colors.length];
}"""


def test_pages_need_nothing_from_outside(
    site: Path, open_page: OpenPage, page_errors: list[str], shots: Path
) -> None:
    page = open_page("about:blank", width=1300, height=900)
    asked: list[str] = []
    failed: list[str] = []
    page.on("request", lambda r: asked.append(r.url) if r.url.startswith("http") else None)
    # leaving a page aborts what is still on its way, such as its icon: no fault of the page
    aborted = "net::ERR_ABORTED"
    page.on(
        "requestfailed",
        lambda r: failed.append(f"{r.url}: {r.failure}") if r.failure != aborted else None,
    )
    there = sorted(p.stem for p in site.glob("*.html"))
    there.remove("404")  # its links start at the root of a server
    for name in {*some_of(there, 16, __name__), "index", "collectives", "api"}:
        path = site / f"{name}.html"
        page.goto(path.as_uri())
        assert page.locator("h1").first.is_visible(), path.name
        broken: Any = page.evaluate(
            "[...document.images].filter((i) => !(i.complete && i.naturalWidth)).map((i) => i.src)"
        )
        assert broken == [], path.name
        if path.stem in ("index", "collectives", "api"):
            page.screenshot(path=shots / f"docs_{path.stem}.png")
    assert asked == []
    assert failed == []
    assert page_errors == []


def test_the_reference_names_every_public_name(site: Path) -> None:
    import hloscope

    text = (site / "api.html").read_text("utf-8")
    for name in hloscope.__all__:
        if inspect.ismodule(getattr(hloscope, name)):
            continue  # its classes are listed individually
        assert re.search(rf'id="hloscope\.[\w.]*\b{name}"', text), f"api.md lacks {name}"
