"""The ten usual questions: each is answered in at most two presses, without scrolling.

A press is a click, or a query typed into the search box. The answer must be visible in a
window of 1500×1000 pixels.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hloscope as hs
import pytest
import quickly

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

# Before jax starts: the program compiled here is sharded over eight devices.
quickly.set_flags(devices=8)

OpenPage = Callable[..., "Page"]
REPO = Path(__file__).resolve().parents[2]
NAMES = ("compiled here", "a dump for TPU", "a dump of 2021")


def folder(variable: str, name: str) -> Path:
    """Folder of real dumps, set by a variable or else beside the checkout; skips without it."""
    found = Path(os.environ.get(variable) or REPO.parent / "shared" / name)
    if not found.is_dir():
        pytest.skip(f"no dumps at {found} (set {variable})")
    return found


def compiled_here() -> hs.Capture:
    """Capture a sharded training step of four rematerialised layers, on the first eight devices."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    devices = np.array(jax.devices()[:8])
    if len(devices) < 8:
        pytest.skip("needs 8 devices: XLA_FLAGS=--xla_force_host_platform_device_count=8")
    mesh = Mesh(devices.reshape(2, 4), ("data", "model"))

    def shaped(dims: tuple[int, ...], *spec: str | None) -> Any:
        return jax.ShapeDtypeStruct(dims, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    @jax.checkpoint
    def block(x: Any, layer: Any) -> Any:
        hidden = jax.nn.gelu(x @ layer["up"])
        return x + hidden @ layer["down"]

    def loss(params: Any, x: Any) -> Any:
        x, _ = jax.lax.scan(lambda x, layer: (block(x, layer), None), x, params["layers"])
        return jnp.mean(jnp.einsum("bd,vd->bv", x, params["head"]) ** 2)

    def step(params: Any, x: Any) -> Any:
        grads = jax.grad(loss)(params, x)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    params = {
        "layers": {
            "up": shaped((4, 512, 2048), None, None, "model"),
            "down": shaped((4, 2048, 512), None, "model", None),
        },
        "head": shaped((1024, 512), "model", None),
    }
    return hs.capture(jax.jit(step, donate_argnums=0), params, shaped((256, 512), "data", None))


def program(name: str) -> hs.Capture:
    if name == "compiled here":
        cap = compiled_here()
    elif name == "a dump for TPU":
        cap = hs.read(folder("HLOSCOPE_REAL", "real") / "models" / "llama_tpu.hlo.gz")
    else:
        cap = hs.read(next(folder("HLOSCOPE_SEEDS", "seeds").glob("004_*")))
    cap.hardware = "h100" if name == "a dump of 2021" else "tpu-v5e"
    return cap


@pytest.fixture(scope="module", params=NAMES)
def case(
    request: pytest.FixtureRequest, renderer: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[hs.Capture, Path]:
    cap = program(request.param)
    path = tmp_path_factory.mktemp("ten") / "page.html"
    cap.to_html(path)
    return cap, path


class Asking:
    """A page and the number of presses so far."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.presses = 0

    def press(self, what: Locator) -> None:
        assert in_sight(self.page, what), "what is pressed must be in sight"
        what.click()
        self.presses += 1

    def tab(self, name: str) -> None:
        self.press(self.page.get_by_role("tab", name=name, exact=True))

    def part(self, name: str) -> None:
        self.press(self.page.locator(".chapters").get_by_role("button", name=name, exact=True))

    def told(self, what: Locator) -> str:
        """Text of an answer, which must be visible after at most two presses."""
        what.wait_for(timeout=20_000)
        assert self.presses <= 2
        assert in_sight(self.page, what)
        return what.inner_text()


def in_sight(page: Page, what: Locator) -> bool:
    """Whether its first line is inside the window and inside everything that clips it."""
    inside: bool = what.evaluate(
        """(e) => {
          const { top, left } = e.getBoundingClientRect();
          const at = { x: left + 2, y: top + 2 };
          if (at.x < 0 || at.y < 0 || at.x > innerWidth || at.y + 12 > innerHeight) return false;
          for (let p = e.parentElement; p; p = p.parentElement) {
            const style = getComputedStyle(p);
            if (!/auto|scroll|hidden/.test(style.overflow + style.overflowY)) continue;
            const box = p.getBoundingClientRect();
            if (p.scrollTop > 0 || at.y < box.top - 1 || at.y + 10 > box.bottom) return false;
            if (at.x < box.left - 1 || at.x > box.right) return false;
          }
          return true;
        }"""
    )
    return inside


@pytest.fixture
def asking(
    case: tuple[hs.Capture, Path], open_page: OpenPage, page_errors: list[str]
) -> Iterator[Asking]:
    page = open_page(case[1].as_uri(), width=1500, height=1000)
    page.get_by_role("tab", name="Cost", exact=True).wait_for(timeout=30_000)
    yield Asking(page)
    assert page_errors == []


def test_which_collectives_from_which_line_and_why(asking: Asking) -> None:
    asking.tab("Collectives")
    row = asking.page.locator(".collective-row[data-collective]").first
    said = asking.told(row)
    assert "all-" in said
    assert ".py:" in said
    why = asking.page.locator(".card section").first
    words = asking.told(why)
    assert words.startswith("Why")
    assert len(words) > len("Why\nUnknown")
    assert "iB" in asking.told(asking.page.locator(".card .facts", has_text="Payload"))


def test_what_is_at_the_peak(case: Any, asking: Asking) -> None:
    asking.tab("Memory")
    assert "the peak" in asking.told(asking.page.get_by_text(", the peak").first)
    values = asking.page.get_by_role("region", name="Live values").locator("tbody tr")
    first = asking.told(values.first)
    assert case[0].memory.live_at_peak[0].name in first
    assert "iB" in first


def test_which_operation_dominates(asking: Asking) -> None:
    asking.tab("Cost")
    row = asking.page.get_by_role("region", name="Operations by cost").locator("tbody tr").first
    said = asking.told(row)
    assert "%" in said
    assert re.search(r"\d [mµn]?s\b", said)


def test_which_layer_dominates(asking: Asking) -> None:
    asking.tab("Cost")
    asking.part("By scope")
    assert "%" in asking.told(asking.page.locator(".treemap .bar").first)


def test_what_overlaps(asking: Asking) -> None:
    asking.tab("Collectives")
    said = asking.told(asking.page.locator(".collective-sum"))
    assert "exposed" in said
    assert "hidden" in said


def test_which_device_holds_what(asking: Asking) -> None:
    asking.tab("Devices")
    asking.told(asking.page.locator(".panel canvas").first)
    assert "iB" in asking.told(asking.page.get_by_text("parameter bytes:").first)


def test_what_is_donated(asking: Asking) -> None:
    asking.tab("Memory")
    asking.part("Donation")
    said = asking.told(asking.page.locator(".chapter section, .chapter .note").first)
    assert "donat" in said.lower() or "aliased" in said


def test_what_is_rematerialised(case: Any, asking: Asking) -> None:
    asking.tab("Memory")
    asking.part("Recomputing")
    said = asking.told(asking.page.locator(".chapter section, .chapter .note").first)
    if "rematerialised" in case[0].text or "rematted" in case[0].text:
        assert "FLOPs repeated" in said
    else:
        assert "Stored" in said or "recomput" in said.lower()


def test_what_is_in_a_fusion_in_python(asking: Asking) -> None:
    asking.tab("Cost")
    row = asking.page.get_by_role("region", name="Operations by cost").locator(
        "tbody tr", has_text="fusion"
    )
    asking.press(row.first.locator(".link").first)
    said = asking.told(asking.page.locator(".told section"))
    assert "In Python" in said
    assert ".py:" in said


def test_why_a_copy_or_transpose_is_there(case: Any, asking: Asking) -> None:
    cap = case[0]
    box = asking.page.get_by_role("searchbox").first
    opcodes = {i.opcode for i in cap.module.instructions}
    box.fill("opcode:transpose" if "transpose" in opcodes else "opcode:copy")
    asking.presses += 1
    asking.page.keyboard.press("Enter")
    result = asking.page.locator(".result").first
    said = asking.told(result)
    assert ".py:" in said or "inferred" in said


def test_what_changed_between_two_versions(
    case: Any, open_page: OpenPage, tmp_path: Path, page_errors: list[str]
) -> None:
    cap = case[0]
    text = cap.text
    other = hs.read(
        text.replace(" tanh(", " cosine(")
        .replace(" exponential(", " sine(")
        .replace(" maximum(", " minimum(")
    )
    base = hs.read(text)
    base.hardware = other.hardware = "tpu-v5e"
    found = hs.diff(base, other)
    assert found
    page = open_page(Path(found.to_html(tmp_path / "diff.html")).as_uri(), width=1500, height=1000)
    asking = Asking(page)
    for side in ("hloscope", "hloscope-second"):
        page.locator(f"#{side}").get_by_role("tab", name="Details").wait_for(timeout=30_000)
    assert "changed" in asking.told(page.locator("main p").first)
    # The costliest change is selected on both sides, and coloured.
    chosen = (
        "(id) => { const e = document.getElementById(id);"
        " const x = e.shadowRoot.querySelector('.root').hloscope;"
        " const s = x.store.get('selection'); return s.kind === 'instruction' &&"
        " x.model.column('diff.of')[s.index]; }"
    )
    for side in ("hloscope", "hloscope-second"):
        page.wait_for_function(f"() => ({chosen})('{side}') > 0", timeout=30_000)
    assert page_errors == []
