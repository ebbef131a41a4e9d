"""Takes the pictures of these pages: real programs, the real explorer, headless Chromium.

    python docs/pictures.py [FOLDER] [--only NAME ...] [--pages FOLDER]

The program is the training step of examples/start.ipynb, compiled for a TPU v5e:2x4 where
libtpu is installed and for eight CPU devices elsewhere. FOLDER is docs/pictures by default,
which git keeps: each picture takes at most MOST_BYTES. ``--pages`` keeps the compiled pages there
and uses those it finds. Chromium is the system's, or the one HLOSCOPE_CHROMIUM names.
"""

from __future__ import annotations

import argparse
import base64
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

REPOSITORY = Path(__file__).resolve().parents[1]
MOST_BYTES = 80_000  # of one picture: pages of the repository stay quick to open


def save(page: Page, file: Path) -> None:
    """A screenshot as WebP, which Chromium encodes, in the best quality within MOST_BYTES."""
    session = page.context.new_cdp_session(page)
    for quality in range(90, 0, -5):
        request = {"format": "webp", "quality": quality}
        data = base64.b64decode(session.send("Page.captureScreenshot", request)["data"])
        if len(data) <= MOST_BYTES:
            file.write_bytes(data)
            return
    raise ValueError(f"{file.name} takes over {MOST_BYTES} bytes in the lowest quality")


def _tab(name: str) -> Callable[[Page], None]:
    return lambda page: page.get_by_role("tab", name=name, exact=True).click()


def _find(page: Page, query: str) -> None:
    page.keyboard.press("/")
    page.keyboard.type(query)
    page.wait_for_timeout(300)


def _select(page: Page, query: str) -> None:
    """Selects the first result of a search, and leaves the search."""
    _find(page, query)
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    page.locator(".graph canvas").first.focus()
    page.wait_for_timeout(300)


def _color(page: Page, label: str) -> None:
    page.get_by_label("Colour", exact=False).first.select_option(label=label)


def _graph(page: Page) -> None:
    _select(page, "opcode:all-reduce")
    page.keyboard.press("n")


def _details(page: Page) -> None:
    _select(page, "opcode:fusion scope:mlp")
    _tab("Details")(page)


def _text(page: Page) -> None:
    _select(page, "opcode:fusion scope:mlp")
    _tab("Text")(page)


def _search(page: Page) -> None:
    _find(page, "opcode:fusion scope:attention")
    _tab("Search")(page)


def _devices(page: Page) -> None:
    _tab("Devices")(page)
    array = page.get_by_label("Array")
    labels = array.locator("option").all_inner_texts()
    array.select_option(label=next(x for x in labels if "w1" in x))


def _collectives(page: Page) -> None:
    _color(page, "Collectives by axes")
    _tab("Collectives")(page)
    page.get_by_label("Filter collectives").fill("mlp")
    page.locator(".collective-row[data-collective]").first.click()


def _cost(page: Page) -> None:
    _color(page, "Modelled time")
    _tab("Cost")(page)


def _passes(page: Page) -> None:
    _tab("Passes")(page)
    page.wait_for_selector(".pass-bar")
    page.locator(".pass-times summary").click()
    page.wait_for_timeout(500)


def _memory(page: Page) -> None:
    _color(page, "Live bytes at peak")
    _tab("Memory")(page)


def _source(page: Page) -> None:
    _tab("Source")(page)


def _code(page: Page) -> None:
    _tab("Code")(page)
    # The line number: it does not move when a long line is scrolled into view.
    page.locator('.code-stage[data-stage="source"] .code-line.linked .number').nth(2).click()
    page.wait_for_timeout(500)


def _measured(page: Page) -> None:
    _color(page, "Measured time")
    _tab("Measured")(page)


def _row(page: Page) -> None:
    page.locator("tbody tr").first.click()


@dataclass(frozen=True)
class Picture:
    """One screenshot: which page, how large, after which actions."""

    page: str
    act: Callable[[Page], None] = lambda page: None
    width: int = 1360
    height: int = 820
    dark: bool = False


PICTURES: dict[str, Picture] = {
    "explorer.webp": Picture("step", width=1400, height=860),
    "layers.webp": Picture("unrolled", width=1120, height=780),
    "convolutions.webp": Picture("resnet", width=1120, height=700, dark=True),
    "findings.webp": Picture("step", _tab("Findings")),
    "graph.webp": Picture("step", _graph),
    "details.webp": Picture("step", _details),
    "text.webp": Picture("step", _text),
    "outline.webp": Picture("step", _tab("Outline")),
    "search.webp": Picture("step", _search),
    "devices.webp": Picture("step", _devices, height=1140),
    "collectives.webp": Picture("step", _collectives, height=1180),
    "cost.webp": Picture("step", _cost, height=1240),
    "timeline.webp": Picture("step", _tab("Timeline")),
    "passes.webp": Picture("passes", _passes, width=1500, height=900),
    "memory.webp": Picture("step", _memory, height=1000),
    "source.webp": Picture("step", _source),
    "code.webp": Picture("step", _code, width=1500, height=860),
    "measured.webp": Picture("measured", _measured, height=1000),
    "changes.webp": Picture("changes", _row, width=1200, height=860),
    "diff.webp": Picture("diff", width=1000, height=820),
    "sharding.webp": Picture("sharding", _row, width=1200, height=860),
    "stages.webp": Picture("stages", width=1200, height=900),
    "transformer.webp": Picture("transformer", width=1200, height=980),
    "watch.webp": Picture("watch", width=1200, height=560),
    "run.webp": Picture("run", width=1200, height=840),
    "live.webp": Picture("live", width=1200, height=780),
    "jupyterlab.webp": Picture("jupyterlab", width=1600, height=900),  # see picture_lab.py
}


# Programs. Each runs in a process that has not imported jax yet.


def _program(folder: Path, name: str, *changes: tuple[str, str]) -> Any:
    """The notebook's code up to the first ``%hlo``, as a module with source lines."""
    notebook = json.loads((REPOSITORY / "examples" / "start.ipynb").read_text("utf-8"))
    parts: list[str] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code":
            continue
        if "%hlo" in source:
            break
        parts.append("\n".join(x for x in source.splitlines() if not x.startswith("%")))
    text = "\n\n\n".join(parts) + "\n"
    for change in changes:
        assert change[0] in text, f"examples/start.ipynb has no {change[0]}"
        text = text.replace(*change)
    # Run by its bare name in its own folder, so that source lines show the bare name.
    os.chdir(folder)
    Path(f"{name}.py").write_text(text, "utf-8")
    module = types.ModuleType(name)
    exec(compile(text, f"{name}.py", "exec"), vars(module))
    return module


def _step(folder: Path, out: Path) -> None:
    import hloscope as hs

    train = _program(folder, "train")
    where: dict[str, Any] = {}
    if importlib.util.find_spec("libtpu") is not None:
        where = {"topology": "v5e:2x4", "mesh": {"data": 2, "model": 4}}
    cap = hs.capture(train.step, train.state, train.tokens, passes=True, **where)
    cap.to_html(out)
    cap.compile_time()
    cap.to_html(out.with_name("passes.html"), passes=True)


def _on_cpu(folder: Path, out: Path) -> None:
    """Two pages at once: measured times, and the step beside one with its MLP replicated."""
    import hloscope as hs
    import jax
    import jax.numpy as jnp

    small = ("HEADS, VOCAB = 6,", "HEADS, VOCAB = 2,")  # fewer layers, to save time
    train = _program(folder, "train", small)
    args = jax.tree.map(
        lambda s: jax.device_put(jnp.full(s.shape, 0.01).astype(s.dtype), s.sharding),
        (train.state, train.tokens),
    )
    step = hs.capture(jax.jit(train.train_step), *args, title="MLP sharded")
    change = ('"w1": P(None, "model"), "w2": P("model", None)', '"w1": P(), "w2": P()')
    other = _program(folder, "replicated", small, change)
    replicated = hs.capture(
        jax.jit(other.train_step), other.state, other.tokens, title="MLP replicated"
    )
    hs.diff(step, replicated).to_html(out.with_name("diff.html"))
    step.profile(*args, steps=3)
    step.to_html(out)


def _models(folder: Path, out: Path) -> None:
    """Two pages: a Llama step of eight unrolled layers and a ResNet's, as in the benchmarks."""
    import hloscope as hs
    import jax

    sys.path.append(str(REPOSITORY / "benchmarks"))
    from people import PROGRAMS

    found = importlib.util.find_spec("libtpu") is not None
    where = {"topology": "v5e:2x4"} if found else {}
    for name, program in (("unrolled", "llama_unrolled"), ("resnet", "resnet")):
        function, arguments = PROGRAMS[program][0]()
        cap = hs.capture(jax.jit(function), *arguments, title=program, **where)
        cap.to_html(out.with_name(f"{name}.html"))


def _planning(folder: Path, out: Path) -> None:
    """Three pages: the results of the planning notebooks."""
    for name, shown in (("sharding", "found"), ("stages", "plan"), ("transformer", "model")):
        cells = json.loads((REPOSITORY / "examples" / f"{name}.ipynb").read_text("utf-8"))["cells"]
        known: dict[str, Any] = {}
        for cell in cells:
            source = "".join(cell["source"])
            if cell["cell_type"] != "code":
                continue
            lines = [x for x in source.splitlines() if not x.startswith("%")]
            exec("\n".join(lines), known)
            if shown in known:
                break
        known[shown].to_html(out.with_name(f"{name}.html"))


def _changes(folder: Path, out: Path) -> None:
    """The policies of the notebook on changes, whose function needs a file."""
    cells = json.loads((REPOSITORY / "examples" / "changes.ipynb").read_text("utf-8"))["cells"]
    program = next(c["source"] for c in cells if any("def block" in x for x in c["source"]))
    file = folder / "changes.py"
    file.write_text("".join(x for x in program if not x.startswith(("%", "print"))), "utf-8")
    known: dict[str, Any] = {}
    exec(compile(file.read_text("utf-8"), str(file), "exec"), known)
    known["cap"].remat_options("block").to_html(out)


def _watched(folder: Path, out: Path) -> None:
    """Two functions compiled several times, with a persistent cache."""
    import hloscope as hs
    import jax

    jax.config.update("jax_compilation_cache_dir", str(folder / "cache"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    known: dict[str, Any] = {}
    os.chdir(folder)
    for name, source in (("serve.py", _SERVE), ("again.py", _AGAIN)):
        (folder / name).write_text(source, "utf-8")
    with hs.watch() as session:
        for name, source in (("serve.py", _SERVE), ("again.py", _AGAIN)):
            exec(compile(source, name, "exec"), known)
    session.to_html(out)


def _results(folder: Path, out: Path) -> None:
    """Two pages: runs of a small step, and what its training loop leaves on the devices."""
    import hloscope as hs

    known: dict[str, Any] = {}
    os.chdir(folder)
    (folder / "train.py").write_text(_TRAIN, "utf-8")
    exec(compile(_TRAIN, "train.py", "exec"), known)
    arguments = known["params"], known["x"]
    hs.run(known["step"], *arguments, runs=30).to_html(out.with_name("run.html"))
    names = ("params", "params_old", "losses", "batches")
    frame = {"hs": hs, **{n: known[n] for n in names}}  # the names of the program alone
    eval("hs.live()", frame).to_html(out.with_name("live.html"))


_TRAIN = """import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((8,), ("data",))

def init(layers):
    return jax.device_put(jnp.ones((layers, 256, 256)) * 0.01, NamedSharding(mesh, P(None, "data")))

def loss(params, x):
    y, _ = jax.lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, params)
    return jnp.mean(y**2)

@jax.jit
def step(params, x):
    value, grads = jax.value_and_grad(loss)(params, x)
    return params - 1e-3 * grads, value

params = init(12)
params_old = init(12)
batches = [jax.device_put(jnp.ones((512, 256)), NamedSharding(mesh, P("data"))) for _ in range(6)]
x = batches[0]
losses = []
for batch in batches:
    params, value = step(params, batch)
    losses.append(value)
"""

_SERVE = """import jax, jax.numpy as jnp

@jax.jit
def predict(w, x):
    return jnp.tanh(x @ w) @ w.T

@jax.jit
def loss(w, x, y):
    return jnp.mean((predict(w, x) - y) ** 2)

w = jnp.ones((256, 512))
for rows in (32, 32, 17):
    predict(w, jnp.ones((rows, 256)))
    loss(w, jnp.ones((rows, 256)), jnp.ones((rows, 256)))
predict(w, jnp.ones((17, 256), jnp.bfloat16))
"""
_AGAIN = """jax.clear_caches()
predict(w, jnp.ones((32, 256)))
"""

# What js/plan/ draws: no toolbar, no tabs.
PLANNING = ("sharding", "stages", "transformer", "changes", "watch", "run", "live")
_PAGES = {
    "step": _step,
    "measured": _on_cpu,
    "models": _models,
    "planning": _planning,
    "changes": _changes,
    "watch": _watched,
    "results": _results,
}
_MADE_WITH = {
    "step": "step",
    "passes": "step",
    "measured": "measured",
    "diff": "measured",
    "unrolled": "models",
    "resnet": "models",
    "jupyterlab": "",
}
_MADE_WITH |= dict.fromkeys(PLANNING, "planning") | {
    "changes": "changes",
    "watch": "watch",
    "run": "results",
    "live": "results",
}
_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


def make_pages(folder: Path, wanted: set[str]) -> None:
    """Writes ``step.html``, ``measured.html``, ``diff.html``: those wanted and missing."""
    missing = {_MADE_WITH[name] for name in wanted if not (folder / f"{name}.html").exists()} - {""}
    running = [
        subprocess.Popen(
            [sys.executable, __file__, "--make", name, str(folder)],
            env={**os.environ, **_ENVIRONMENT},
        )
        for name in sorted(missing)
    ]
    if any([child.wait() for child in running]):
        raise SystemExit("a program could not be compiled")


def take(folder: Path, names: list[str], pages: Path, browser: Any) -> list[str]:
    """Takes the pictures into ``folder``; returns what the pages wrote to their consoles."""
    folder.mkdir(parents=True, exist_ok=True)
    make_pages(pages, {PICTURES[name].page for name in names})
    said: list[str] = []
    for name in names:
        picture = PICTURES[name]
        if picture.page == "jupyterlab":
            sys.path.append(str(REPOSITORY / "docs"))
            import picture_lab

            picture_lab.take(
                lambda page, name=name: save(page, folder / name),
                picture.width,
                picture.height,
                browser,
            )
            continue
        size: Any = {"width": picture.width, "height": picture.height}
        context = browser.new_context(
            viewport=size, color_scheme="dark" if picture.dark else "light", offline=True
        )
        page = context.new_page()
        page.on("pageerror", lambda e, name=name: said.append(f"{name}: {e}"))
        page.on(
            "console",
            lambda m, name=name: (
                said.append(f"{name}: {m.text}") if m.type in ("error", "warning") else None
            ),
        )
        page.goto((pages / f"{picture.page}.html").as_uri())
        if picture.page in PLANNING:
            page.wait_for_selector(".plan section")
        elif picture.page != "diff":
            page.wait_for_selector(".toolbar")
            page.get_by_role("tab", name="Cost", exact=True).wait_for()
        picture.act(page)
        page.wait_for_timeout(600)  # until animations end
        save(page, folder / name)
        context.close()
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=REPOSITORY / "docs" / "pictures")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=list(PICTURES))
    parser.add_argument("--pages", type=Path, help="keep and reuse the compiled pages here")
    parser.add_argument("--make", choices=_PAGES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if importlib.util.find_spec("hloscope") is None:
        sys.path.insert(0, str(REPOSITORY / "python"))
    if options.make:
        with tempfile.TemporaryDirectory() as scratch:
            out = options.folder.resolve() / f"{options.make}.html"
            _PAGES[options.make](Path(scratch), out)
        return
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("HLOSCOPE_CHROMIUM") or shutil.which("chromium")
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        pages = options.pages or Path(scratch)
        pages.mkdir(parents=True, exist_ok=True)
        browser = playwright.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        for line in take(options.folder, options.only, pages, browser):
            print(line, file=sys.stderr)
        browser.close()


if __name__ == "__main__":
    main()
