"""The timeline: lanes, zoom, selecting by click, and bringing a selection into view."""

from __future__ import annotations

from dataclasses import replace

import hloscope as hs
import numpy as np
from boxes_program import program
from hloscope.analysis.measured.events import MeasuredEvents, MeasuredLane
from hloscope.analysis.measured.join import join
from hloscope.readers.xplane.xplane import OpTime
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
    # What is under the pointer is named, and a click selects it.
    said = page.locator(".panel p.note").first
    found = ""
    places = [(x, y) for y in (48, 71, 94, 117) for x in range(10, int(box["width"]), 12)]
    for x, y in places:
        page.mouse.move(box["x"] + x, box["y"] + y)
        if "dot.1" in said.inner_text():
            found = said.inner_text()
            page.mouse.click(box["x"] + x, box["y"] + y)
            break
    assert "compute" in found
    selected = page.evaluate(
        f"(() => {{ const {{store, model}} = ({ROOT}).hloscope;"
        "return model.name(store.get('selection').index); })()"
    )
    assert selected == "dot.1"
    # Zoomed in at the beginning, a selection elsewhere is brought into view.
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


TWO_DEVICES = """HloModule jit_f, is_scheduled=true
ENTRY main {
  x = f32[8]{0} parameter(0)
  dot.1 = f32[8]{0} negate(x)
  ROOT tanh.1 = f32[8]{0} tanh(dot.1)
}
"""


def traced_twice(runs: bool = False) -> hs.Capture:
    """Three runs on two GPUs; a copy that is not an operation of the program; one host event."""
    cap = hs.read(TWO_DEVICES)
    texts = ("dot.1", "tanh.1", "MemcpyD2H")
    of = np.array([cap.module.find(t).index for t in texts[:2]] * 3)
    begin = np.array([0.0, 4, 10, 14, 20, 24])
    lanes = []
    ops = []
    for device in range(2):
        name = f"GPU:{device}"
        text = np.array([0, 1] * 3)
        took = np.full(6, 3.0)
        lanes.append(
            MeasuredLane(device, name, "Stream #1(Kernel)", False, begin, begin + 3, took, of, text)
        )
        copy = np.array([8.0])
        late = np.array([9.5])
        none = np.array([-1])
        lanes.append(
            MeasuredLane(device, name, "Copies", False, copy, late, late - copy, none, none + 3)
        )
        ops += [OpTime("jit_f", t, device, 9.0, 3) for t in texts[:2]]
    ran = tuple((d, t, 7.0 + t) for d in range(2) for t in (0.0, 10.0, 20.0)) if runs else ()
    events = MeasuredEvents(tuple(lanes), texts, ran, {"on the host's threads": 1})
    cap.for_hosts.measured = replace(join(cap.module, ops), events=events)
    return cap


def test_a_trace_is_shown_event_by_event(renderer, open_page, tmp_path):
    page = open_page(traced_twice().to_html(tmp_path / "t.html").as_uri(), width=1500, height=950)
    page.get_by_role("tab", name="Timeline", exact=True).click()
    canvas = page.locator(".timeline-box canvas")
    canvas.wait_for()
    panel = page.locator(".panel")
    assert "7 events of GPU:0 drawn" in panel.inner_text()
    assert "1 event on the host's threads are not drawn" in panel.inner_text()
    said = page.locator(".panel p.note").first
    box = canvas.bounding_box()
    seen = set()
    for y in (45, 90):
        for x in range(2, int(box["width"]), 8):
            page.mouse.move(box["x"] + x, box["y"] + y)
            seen.add(said.inner_text().split(" · ")[0])
    assert {"%dot.1", "%tanh.1", "MemcpyD2H"} <= seen
    # A click selects; a selection elsewhere is ringed here.
    for x in range(2, int(box["width"]), 8):
        page.mouse.move(box["x"] + x, box["y"] + 45)
        if "tanh.1" in said.inner_text():
            page.mouse.click(box["x"] + x, box["y"] + 45)
            break
    assert (
        page.evaluate(
            f"(() => {{ const {{store, model}} = ({ROOT}).hloscope;"
            "return model.name(store.get('selection').index); })()"
        )
        == "tanh.1"
    )
    page.get_by_label("Device").select_option("all devices")
    assert "14 events of all devices drawn" in panel.inner_text()
    for _ in range(100):  # drawn with the next frame
        if canvas.bounding_box()["height"] > box["height"]:
            break
        page.wait_for_timeout(100)
    assert canvas.bounding_box()["height"] > box["height"]


def test_runs_of_a_trace_are_chosen(renderer, open_page, tmp_path):
    cap = traced_twice(runs=True)
    page = open_page(cap.to_html(tmp_path / "t.html").as_uri(), width=1500, height=950)
    page.get_by_role("tab", name="Timeline", exact=True).click()
    canvas = page.locator(".timeline-box canvas")
    canvas.wait_for()
    runs = page.get_by_label("Run")
    assert runs.locator("option").all_inner_texts() == [
        "the whole trace",
        "run 1 · 7 s",
        "run 2 · 17 s",
        "run 3 · 27 s",
    ]
    assert runs.input_value() == "1"  # its duration is the median
    first = canvas.evaluate("(c) => c.toDataURL()")
    runs.select_option("the whole trace")
    page.wait_for_timeout(200)
    assert canvas.evaluate("(c) => c.toDataURL()") != first


def test_rows_of_boxes_stand_above_the_lanes(renderer, open_page, tmp_path):
    """Two boxes one after the other: each is a span with its name, and a click selects it."""
    cap = hs.read(program(), hardware="tpu-v5e")
    page = open_page(cap.to_html(tmp_path / "f.html").as_uri(), width=1500, height=950)
    page.get_by_role("tab", name="Timeline", exact=True).click()
    box = page.locator(".timeline-box canvas").bounding_box()
    said = page.locator(".panel p.note").first
    page.mouse.move(box["x"] + 40, box["y"] + 30)
    assert said.inner_text().startswith("encoder · ")
    page.mouse.move(box["x"] + box["width"] - 60, box["y"] + 30)
    assert said.inner_text().startswith("decoder · ")
    page.mouse.click(box["x"] + box["width"] - 60, box["y"] + 30)
    name = "model.groupLabel(store.get('selection').index)"
    assert (
        page.evaluate(f"(() => {{ const {{store, model}} = ({ROOT}).hloscope; return {name}; }})()")
        == "decoder"
    )
    parts = page.locator(".timeline-parts .bar-label").all_inner_texts()
    assert {"encoder", "decoder"} == set(parts)
