"""The Findings panel opens first, says what a finding costs, and leads to its boxes and line."""

from __future__ import annotations

import base64
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hloscope as hs
import pytest
from hloscope.hlo import Target
from hloscope.show import blocks
from hloscope.show.notebook.proof_job import ProofJobs
from test_cost_memory import ROOT, SOURCE
from test_widget import widget

if TYPE_CHECKING:
    from playwright.sync_api import Page

OpenPage = Callable[..., "Page"]

CALLS = """HloModule jit_step, is_scheduled=true

ENTRY %main (x: f32[512,512]) -> f32[512,512] {
  %x = f32[512,512]{1,0} parameter(0)
  %sine = f32[512,512]{1,0} sine(%x), metadata={op_name="jit(step)/sin" source_file="/home/me/train.py" source_line=4}
  %print.1 = (f32[]) custom-call(%sine), custom_call_target="xla_ffi_python_cpu_callback", custom_call_has_side_effect=true, metadata={op_name="jit(step)/<img src=x onerror=alert(1)>" source_file="/home/me/train.py" source_line=5}
  ROOT %cosine = f32[512,512]{1,0} cosine(%sine), metadata={op_name="jit(step)/cos" source_file="/home/me/train.py" source_line=4}
}
"""  # noqa: E501


def opened(text: str, renderer: Path, open_page: OpenPage, path: Path) -> Page:
    read = hs.read(text)
    cap = hs.Capture(read.module, Target(sources={"/home/me/train.py": SOURCE}))
    page = open_page(cap.to_html(path).as_uri(), width=1500, height=950)
    page.get_by_role("tab", name="Findings", exact=True).wait_for()
    return page


def test_findings_open_first_and_lead_to_the_boxes_and_the_line(renderer, open_page, tmp_path):
    page = opened(CALLS, renderer, open_page, tmp_path / "step.html")
    tab = page.get_by_role("tab", name="Findings", exact=True)
    assert tab.get_attribute("aria-selected") == "true"
    card = page.locator(".finding").first
    assert "The step calls back into the host 1 times" in card.inner_text()
    assert card.locator("details").first.get_attribute("open") is not None
    assert "return jax.lax.psum(h)" in card.inner_text()
    card.locator("button.finding-title").click()
    lit = page.evaluate(f"[...({ROOT}).hloscope.store.get('highlight').instructions]")
    names = page.evaluate(f"(rows) => rows.map((i) => ({ROOT}).hloscope.model.name(i))", lit)
    assert names == ["print.1"]
    card.get_by_role("button", name="train.py:5").click()
    assert page.get_by_role("tab", name="Source").get_attribute("aria-selected") == "true"


def test_a_click_in_the_graph_shows_details_until_a_panel_is_chosen(renderer, open_page, tmp_path):
    page = opened(CALLS, renderer, open_page, tmp_path / "step.html")
    page.evaluate(f"({ROOT}).hloscope.store.select({{kind: 'instruction', index: 1}})")
    details = page.get_by_role("tab", name="Details", exact=True)
    assert details.get_attribute("aria-selected") == "true"
    findings = page.get_by_role("tab", name="Findings", exact=True)
    findings.click()
    page.evaluate(f"({ROOT}).hloscope.store.select({{kind: 'instruction', index: 2}})")
    assert findings.get_attribute("aria-selected") == "true"


def test_nothing_to_report_is_said(renderer, open_page, tmp_path):
    quiet = "\n".join(x for x in CALLS.splitlines() if "custom-call" not in x)
    page = opened(quiet, renderer, open_page, tmp_path / "step.html")
    assert page.locator(".finding").count() == 0
    assert "Nothing to report" in page.locator(".panel").inner_text()


# An optimiser whose old state is kept beside the new.
STEP = """
import jax, jax.numpy as jnp


def step(params, mean, x):
    grads = jax.grad(lambda p: (jnp.tanh(x @ p) ** 2).sum())(params)
    mean = 0.9 * mean + grads
    return params - 0.1 * mean / (1e-6 + jnp.abs(mean)), mean
"""
PROVED = "proved: params, mean donated: peak"


@pytest.fixture
def trained(tmp_path: Path) -> hs.Capture:
    import jax

    path = tmp_path / "train.py"
    path.write_text(STEP)
    spec = importlib.util.spec_from_file_location("train", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shapes = [jax.ShapeDtypeStruct(s, "float32") for s in ((1024, 1024), (1024, 1024), (64, 1024))]
    return hs.capture(module.step, *shapes, hardware="tpu-v5e")


def card_of(page: Page) -> Any:
    return page.locator(".finding", has_text="not donated").first


def test_try_it_says_how_far_it_is_and_what_was_gained(
    renderer: Path, open_page: OpenPage, trained: hs.Capture, page_errors: list[str], shots: Path
) -> None:
    page = widget(
        open_page("about:blank", width=1500, height=900), renderer, trained,
        "{height: 850, panel: 'findings'}", "state._proves = true;",
    )  # fmt: skip
    button = card_of(page).get_by_role("button", name="Try it")
    assert card_of(page).locator(".finding-try").inner_text() == "Try it\nparams, mean donated"
    button.click()
    last = "() => sent[sent.length - 1]"
    asked = page.evaluate(last)
    (finding,) = trained.findings.of("not-donated")
    assert asked["kind"] == "prove"
    assert (asked["rule"], asked["title"]) == (finding.rule, finding.title)
    say = "(m) => say('msg:custom', m)"
    page.evaluate(say, {"kind": "progress", "id": asked["id"], "words": "Compiled 0 of 1"})
    card_of(page).get_by_text("Compiled 0 of 1").wait_for()
    card_of(page).get_by_role("button", name="Cancel").click()
    assert page.evaluate(last) == {"kind": "cancel", "id": asked["id"]}
    card_of(page).get_by_text("Not tried: cancelled").wait_for()
    card_of(page).get_by_role("button", name="Try it").click()
    trained.findings.prove()
    found = blocks.findings(trained)
    again = page.evaluate(last)["id"]
    page.evaluate(say, {"kind": "proved", "id": again, "findings": found})
    card_of(page).get_by_text(PROVED).wait_for()
    assert "donate_argnames=" in card_of(page).locator(".proofs pre").inner_text()
    card_of(page).get_by_role("button", name="Try again").wait_for()
    page.screenshot(path=shots / "findings-proved.png")
    assert page.evaluate("() => listening()") > 0
    assert page_errors == []


def test_a_change_that_was_tried_opens_as_a_page_and_beside_the_program(
    renderer: Path, open_page: OpenPage, trained: hs.Capture, page_errors: list[str], shots: Path
) -> None:
    trained.findings.prove()
    page = widget(
        open_page("about:blank", width=1500, height=900), renderer, trained,
        "{height: 850, panel: 'findings'}", "state._proves = true;",
    )  # fmt: skip
    (finding,) = trained.findings.of("not-donated")
    pages = ProofJobs(trained, lambda content, buffers=(): sent.append((content, buffers)), list)
    last = "() => sent[sent.length - 1]"
    for button, shown_as in (("Open", "program"), ("Diff", "diff")):
        card_of(page).get_by_role("button", name=button, exact=True).click()
        asked = page.evaluate(last)
        assert {k: asked[k] for k in ("kind", "rule", "title", "way", "as")} == {
            "kind": "tried", "rule": finding.rule, "title": finding.title, "way": 0, "as": shown_as,
        }  # fmt: skip
        sent: list[Any] = []
        pages.open(asked["id"], asked["rule"], asked["title"], asked["way"], asked["as"]).join()
        ((content, (made,)),) = sent
        with page.expect_popup() as opened:
            page.evaluate(
                "([m, data]) => say('msg:custom', m, [bytes(data)])",
                [content, base64.b64encode(made).decode()],
            )
        tab = opened.value
        tab.wait_for_selector(".toolbar" if shown_as == "program" else ".pictures .toolbar")
        if shown_as == "diff":
            assert tab.locator(".toolbar").count() == 2
            card_of(page).get_by_text("What differs").click()
            card_of(page).get_by_text("donated only in b: params, mean").wait_for()
        else:  # what it opens is the program with the change
            assert "not donated" not in tab.locator(".panel").inner_text()
        tab.screenshot(path=shots / f"findings-tried-{shown_as}.png")
        tab.close()
        card_of(page).get_by_role("link").wait_for()
    page.screenshot(path=shots / "findings-tried.png")
    page.emulate_media(color_scheme="dark")
    page.screenshot(path=shots / "findings-tried-dark.png")
    card_of(page).get_by_role("button", name="Open", exact=True).click()
    failed = {"kind": "error", "id": page.evaluate(last)["id"], "message": "ValueError: no"}
    page.evaluate("(m) => say('msg:custom', m)", failed)
    card_of(page).get_by_text("Not opened: ValueError: no").wait_for()
    card_of(page).get_by_role("button", name="Diff", exact=True).click()
    card_of(page).get_by_role("button", name="Cancel").click()
    assert page.evaluate(last)["kind"] == "cancel"
    assert page_errors == []


def test_proofs_stay_in_a_page_without_a_kernel(
    renderer: Path, open_page: OpenPage, trained: hs.Capture, tmp_path: Path, shots: Path
) -> None:
    trained.findings.prove()
    page = open_page(trained.to_html(tmp_path / "step.html").as_uri(), width=1500, height=950)
    card_of(page).get_by_text(PROVED).wait_for()
    assert 'donate_argnames=("params", "mean")' in card_of(page).locator("pre").inner_text()
    for name in ("Try", "Open", "Diff"):
        assert card_of(page).get_by_role("button", name=name).count() == 0
    page.emulate_media(color_scheme="dark")
    page.screenshot(path=shots / "findings-proved-dark.png")
