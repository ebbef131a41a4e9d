"""A real ``jupyter lab`` (and Notebook) for browser tests, with the extension installed or built.

HLOSCOPE_PYTHON selects another environment's Python, such as one with the oldest JupyterLab.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from servers import free_port, running

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

REPO = Path(__file__).resolve().parents[2]
TOKEN = "t0ken"
SETTINGS = "hloscope:explorer"


@dataclass
class Server:
    """A running server that serves the files of ``root``."""

    url: str
    root: Path
    process: subprocess.Popen[bytes]
    log: Path

    def children(self) -> list[int]:
        """Its processes that read files: forks of keepers, which are forks of its warm process."""
        parents = {}
        for stat in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if b"hloscope.lab.child" in stat.read_bytes():
                    parent = (stat.parent / "stat").read_text().rsplit(")", 1)[1].split()[1]
                    parents[int(stat.parent.name)] = int(parent)
            except OSError:
                continue
        keepers = [p for p, warm in parents.items() if parents.get(warm) == self.process.pid]
        return [reader for reader, keeper in parents.items() if keeper in keepers]


def _python() -> str:
    return os.environ.get("HLOSCOPE_PYTHON") or sys.executable


def _built_extension() -> Path:
    """Path of the checkout's labextension/, built when a source is newer."""
    built = REPO / "labextension" / "package.json"
    folders = ("js", "src", "schema", "python/hloscope/hardware")
    newest = max(p.stat().st_mtime for f in folders for p in (REPO / f).rglob("*.*"))
    if not built.exists() or built.stat().st_mtime < newest:
        subprocess.run(["node", "build-lab.mjs"], cwd=REPO, check=True, capture_output=True)
    return built.parent


def _environment(home: Path, python: str) -> dict[str, str]:
    env = {**os.environ, "HOME": str(home), "JAX_PLATFORMS": "cpu"}
    env["PATH"] = str(Path(python).parent)
    assert shutil.which("node", path=env["PATH"]) is None, "Lab must need no Node"
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        env[name] = str(home / name.lower())
    where = (
        "import sys, importlib.util as u; print(sys.prefix); print(bool(u.find_spec('hloscope')))"
    )
    asked = subprocess.run(
        [python, "-P", "-c", where], capture_output=True, text=True, check=True, env=env
    )
    prefix, installed = asked.stdout.split()
    if installed != "True" or "PYTHONPATH" in env:
        env["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(REPO / "python"), env.get("PYTHONPATH")])
        )
    if not (Path(prefix) / "share/jupyter/labextensions/hloscope").exists():
        shared = home / "shared"
        (shared / "labextensions").mkdir(parents=True)
        (shared / "labextensions" / "hloscope").symlink_to(_built_extension())
        config = home / "etc" / "jupyter_server_config.d"
        shutil.copytree(REPO / "jupyter-config" / "server", config)
        env["JUPYTER_PATH"] = str(shared)
        env["JUPYTER_CONFIG_PATH"] = str(home / "etc")
    return env


@contextmanager
def serving(
    folder: Path, python: str | None = None, *, prefix: str = "", options: tuple[str, ...] = ()
) -> Iterator[Server]:
    """Run the server, with its files under ``folder/root`` and its settings under ``folder/home``.

    ``prefix``: URL path below which it serves, as behind a proxy: "/user/ann".
    """
    python = python or _python()
    root, home = folder / "root", folder / "home"
    root.mkdir()
    home.mkdir()
    port = free_port()
    log = folder / "server.log"
    command = [
        python, "-m", "jupyterlab", "--allow-root", "--no-browser", f"--port={port}",
        "--ServerApp.port_retries=0", f"--ServerApp.root_dir={root}",
        f"--IdentityProvider.token={TOKEN}", "--LabApp.expose_app_in_browser=True",
        "--LabApp.news_url=", "--JupyterNotebookApp.expose_app_in_browser=True",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabServerApp.news_url=", f"--ServerApp.base_url={prefix}/", *options,
    ]  # fmt: skip
    url = f"http://127.0.0.1:{port}{prefix}"
    ready = f"{url}/api/status?token={TOKEN}"
    with running(command, root, _environment(home, python), ready, log) as process:
        yield Server(url, root, process, log)


def emptied(server: Server) -> None:
    """End its kernels and delete its files and settings, as for a new user."""
    for kernel in _asked(server, "GET", "api/kernels"):
        _asked(server, "DELETE", f"api/kernels/{kernel['id']}")
    for path in server.root.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    _asked(server, "PUT", f"lab/api/settings/{SETTINGS}", {"raw": "{}"})


def _asked(server: Server, method: str, what: str, said: object = None) -> Any:
    url = f"{server.url}/{what}?token={TOKEN}"
    body = None if said is None else json.dumps(said).encode()
    asked = urllib.request.Request(url, body, method=method)
    with urllib.request.urlopen(asked, timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text else None


# Closes what a test opened, without asking and without ending kernels, and shows the files.
_TIDY = """async () => {
  const app = window.jupyterapp;
  if (!window.isPlain) return false;
  if (document.querySelector('.jp-Dialog, .lm-Menu')) return false;
  for (const area of ['main', 'down'])
    for (const widget of [...app.shell.widgets(area)]) {
      if (widget.context) widget.context.model.dirty = false;
      widget.close();
    }
  await app.commands.execute('filebrowser:go-to-path', { path: '/' });
  await app.commands.execute('filebrowser:activate');
  document.activeElement?.blur();
  performance.clearResourceTimings();
  const left = () => [...app.shell.widgets('main')].filter((w) => w.context).length;
  for (let k = 0; k < 50 && left(); k++) await new Promise((done) => setTimeout(done, 20));
  return left() === 0;
}"""


def tidied(page: Page) -> bool:
    """Whether the page shows a JupyterLab in which nothing is open any more."""
    return "/lab/workspaces/" in page.url and bool(page.evaluate(_TIDY))


def open_lab(page: Page, server: Server, workspace: str) -> None:
    """Open JupyterLab in a fresh workspace, unless the page has one in which nothing is open."""
    if page.url.startswith(f"{server.url}/lab/workspaces/"):
        return
    load_lab(page, server, workspace)


def load_lab(page: Page, server: Server, workspace: str) -> None:
    """Load JupyterLab in a fresh workspace and wait until it is restored."""
    page.goto(f"{server.url}/lab/workspaces/{workspace}?token={TOKEN}&reset")
    page.wait_for_function("window.jupyterapp !== undefined", timeout=60_000)
    page.evaluate("window.jupyterapp.restored.then(() => undefined)")
    page.add_style_tag(content=".Toastify { display: none }")  # "official Jupyter news?"
    page.evaluate("() => { window.isPlain = true; }")  # until a test reloads it


def run_command(page: Page, command: str, args: dict[str, Any] | None = None) -> None:
    """Start a command, without waiting for what it opens."""
    page.evaluate(
        "([c, a]) => { void window.jupyterapp.commands.execute(c, a); }", [command, args or {}]
    )


# Saves settings as the editor of settings does: plugins hear of it at once.
_SET = """async ([id, settings]) => {
  const app = window.jupyterapp;
  const services = app.pluginRegistry?._services ?? app._services;
  const token = [...services.keys()].find((t) => t.name.endsWith(':ISettingRegistry'));
  const registry = await app.resolveRequiredService(token);
  await registry.upload(id, JSON.stringify(settings));
  window.isPlain = Object.keys(settings).length === 0;
}"""


def set_settings(page: Page, settings: dict[str, Any]) -> None:
    """Save settings of the extension. A test that leaves some leaves its page to no other test."""
    page.evaluate(_SET, [SETTINGS, settings])


def serious_violations(page: Page, selector: str) -> list[str]:
    """Violations that axe rates serious or critical inside an element and its shadow roots."""
    if not page.evaluate("'axe' in window"):
        page.add_script_tag(path=str(REPO / "node_modules" / "axe-core" / "axe.min.js"))
    found: list[str] = page.evaluate(
        """(selector) => axe.run(document.querySelector(selector)).then((r) => r.violations
        .filter((v) => ['serious', 'critical'].includes(v.impact))
        .map((v) => v.id + ': ' + v.nodes.map((n) => n.html).join(' | ')))""",
        selector,
    )
    return found


def wait_idle(page: Page) -> None:
    """Wait until the current notebook has an idle kernel."""
    page.wait_for_function(
        "window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
    )


def open_file(page: Page, path: str, factory: str | None = None) -> Locator:
    """Open a file and return the pane of its document."""
    run_command(page, "docmanager:open", {"path": path} | ({"factory": factory} if factory else {}))
    return page.locator(".jp-MainAreaWidget:not(.lm-mod-hidden) .hloscope-pane")


def notebook(*cells: dict[str, Any], kernel: str = "python3") -> str:
    """Text of a notebook file with these cells."""
    spec = {"name": kernel, "display_name": kernel, "language": "python"}
    return json.dumps(
        {"cells": list(cells), "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5}
    )


def code_cell(source: str, *outputs: dict[str, Any]) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "id": f"c{abs(hash((source, len(outputs)))) % 10**8}",
        "metadata": {},
        "execution_count": 1 if outputs else None,
        "source": source,
        "outputs": list(outputs),
    }


_CHANGED = """(id) => {
  const root = document.getElementById(id)?.shadowRoot?.querySelector('.root');
  const explorer = root?.hloscope;
  const chosen = explorer?.store.get('selection');
  if (chosen?.kind !== 'instruction') return null;
  return [explorer.model.name(chosen.index), explorer.model.column('diff.of')[chosen.index]];
}"""


def compared_pictures(page: Page) -> dict[str, str]:
    """Name of the changed instruction selected in each picture of a comparison in a Lab frame.

    Waits until both sides are drawn and have selected one that is coloured as changed.
    """
    page.locator("iframe.hloscope-page").wait_for()
    frame = next(f for f in page.frames if f.parent_frame is not None and f.query_selector("h1"))
    found = {}
    for side in ("hloscope", "hloscope-second"):
        frame.locator(f"#{side} canvas").first.wait_for()
        frame.wait_for_function(f"() => ({_CHANGED})('{side}')?.[1] > 0")
        found[side] = frame.evaluate(_CHANGED, side)[0]
    return found
