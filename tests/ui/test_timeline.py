"""The timeline: lanes, zoom, a click that selects, and a selection that is brought into view."""

from __future__ import annotations

import hloscope as hs
from test_cost_memory import ROOT, TEXT


def test_the_timeline_zooms_selects_and_follows(renderer, open_page, tmp_path):
    cap = hs.read(TEXT)
    cap.hardware = "tpu-v5e"
    page = open_page(cap.to_html(tmp_path / "step.html").as_uri(), width=1500, height=950)
    tab = page.get_by_role("tab", name="Timeline", exact=True)
    tab.wait_for()
    tab.click()
    canvas = page.locator(".timeline-box canvas")
    canvas.wait_for()
    assert "modelled on TPU v5e" in page.locator(".panel").inner_text()
    box = canvas.bounding_box()
    # What the pointer is over is said, and a click selects it.
    said = page.locator(".panel p.note").first
    found = ""
    for x in range(10, int(box["width"]), 12):
        page.mouse.move(box["x"] + x, box["y"] + 48)
        if "dot.1" in said.inner_text():
            found = said.inner_text()
            page.mouse.click(box["x"] + x, box["y"] + 48)
            break
    assert "compute" in found
    selected = page.evaluate(
        f"(() => {{ const {{store, model}} = ({ROOT}).hloscope;"
        "return model.name(store.get('selection').index); })()"
    )
    assert selected == "dot.1"
    # Zoomed in at the beginning, a selection elsewhere brings its place into view.
    canvas.focus()
    page.keyboard.press("Home")
    for _ in range(20):
        page.keyboard.press("+")
    picture = canvas.evaluate("(c) => c.toDataURL()")
    index = page.evaluate(
        f"(() => {{ const {{model}} = ({ROOT}).hloscope; return [...Array(model.instruction.count)"
        ".keys()].find((i) => model.name(i) === 'all-reduce.1'); })()"
    )
    page.evaluate(f"(i) => ({ROOT}).hloscope.store.selectInstruction(i)", index)
    page.wait_for_timeout(200)
    assert canvas.evaluate("(c) => c.toDataURL()") != picture
    page.keyboard.press("0")
    page.wait_for_timeout(100)


def test_without_a_chip_there_is_no_timeline(renderer, open_page, tmp_path):
    page = open_page(hs.read(TEXT).to_html(tmp_path / "step.html").as_uri())
    page.get_by_role("tab", name="Cost", exact=True).wait_for()
    assert page.get_by_role("tab", name="Timeline", exact=True).count() == 0
