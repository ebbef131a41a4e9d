"""Planning pages in a browser: plot, table, heatmap, schedules, sliders; no errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hloscope as hs
import pytest
from hloscope.plan.stages.choices import Choice, exactly
from hloscope.plan.stages.plan import StagePlan, make_plan
from hloscope.show.pages.page import page as planning_page

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.usefixtures("renderer")
OpenPage = Callable[..., "Page"]


@pytest.fixture(scope="module")
def plan() -> StagePlan:
    choices = [
        Choice(a, b, (n,), exactly((b - a + 1) / n), exactly(2 * (b - a + 1) / n), "", 2**30, 2**28)
        for a in range(2)
        for b in range(a, 2)
        for n in (1, 2, 4)
    ]
    return make_plan(choices, ["embed", "<b>head</b>"], 4, 8)


def candidates() -> dict[str, Any]:
    """The page of a search, without compiling: three candidates, named like markup."""
    points = [
        {"id": n, "x": 1.0 + n, "y": 3.0 - n, "label": f"<i>{n}</i>", "front": n != 1}
        for n in range(3)
    ]
    return {
        "title": "Shardings of <script>step</script>",
        "sections": [
            {
                "type": "scatter", "title": "Time against memory",
                "x": {"name": "time", "unit": "s"}, "y": {"name": "memory", "unit": "B"},
                "points": points,
            },
            {
                "type": "table", "title": "Candidates, best first",
                "columns": [{"name": "specs"}, {"name": "time", "unit": "s"}],
                "rows": [["<b>w</b>", 1.0], ["v", None], ["u", 0.5]],
                "ids": [0, 1, 2], "marked": [0], "code": ["P(0)", "P(1)", "P(2)"],
                "links": ["a.html", None, None],
            },
        ],
    }  # fmt: skip


def test_a_search(open_page: OpenPage, page_errors: list[str], tmp_path: Path) -> None:
    file = tmp_path / "search.html"
    file.write_text(planning_page("search", candidates(), "text"), "utf-8")
    page = open_page(Path(file).as_uri())
    assert page.get_by_role("heading", level=2).inner_text() == "Shardings of <script>step</script>"
    assert page.locator("tbody tr").first.inner_text().startswith("<b>w</b>")
    # a click on a dot selects its row and shows its code
    page.locator("circle").nth(2).click()
    assert page.locator("tr[aria-selected=true]").count() == 1
    assert page.locator("section pre").inner_text().startswith("P(")
    page.locator("tbody tr").nth(1).focus()
    page.keyboard.press("Enter")
    assert page.locator("tr[aria-selected=true]").count() == 2
    # sorting keeps unknown values last
    page.get_by_role("button", name="time", exact=True).click()
    assert page.locator("tbody tr").first.inner_text().startswith("u")
    assert page.locator("tbody tr").last.inner_text().endswith("unknown")
    assert page.get_by_role("link").get_attribute("href") == "a.html"
    # a saved page has no kernel to ask
    assert page.get_by_role("button", name="Open the capture").count() == 0
    assert page_errors == []


DAMAGED: dict[str, tuple[Callable[[str], str], str]] = {
    "cut off": (lambda text: text[:200], "The page is damaged: its data is not an object."),
    "no sections": (lambda text: text.replace('"sections":[', '"sections":7,"x":['), "not a list"),
    "a row of text": (
        lambda text: text.replace('["v",null]', '"v"'),
        "This part could not be shown: rows[1] is not a list",
    ),
    "a row too short": (
        lambda text: text.replace('["v",null]', '["v"]'),
        "This part could not be shown: a row has not one cell for each column",
    ),
    "an unknown part": (
        lambda text: text.replace('"scatter"', '"constructor"'),
        "nothing here draws constructor",
    ),
    "figures that no step changes": (
        lambda text: text.replace('"x":1.0', '"x":1e16').replace('"x":2.0', '"x":1e16')
        .replace('"x":3.0', '"x":10000000000000002'),
        "Candidates, best first",
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_page_says_what_is_wrong(
    open_page: OpenPage, page_errors: list[str], tmp_path: Path, how: str
) -> None:
    damage, said = DAMAGED[how]
    head, mark, rest = planning_page("search", candidates(), "text").partition('"hloscope-plan">')
    data, end, tail = rest.partition("</script>")
    assert damage(data) != data
    file = tmp_path / "damaged.html"
    file.write_text(head + mark + damage(data) + end + tail, "utf-8")
    page = open_page(file.as_uri())
    page.get_by_text(said).wait_for()


def luminance(colour: str) -> float:
    """Of "rgb(20, 24, 29)": 0 is black, 1 white."""
    parts = [int(n) for n in re.findall(r"\d+", colour)[:3]]
    return sum(parts) / 765


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_points_have_names_and_axes_ticks_in_both_themes(
    open_page: OpenPage, page_errors: list[str], tmp_path: Path, scheme: str
) -> None:
    times = {"as is": 1.06e-3, "remat dots": 1.94e-3, "donated": 1.061e-3, "bf16": 1.5e-3}
    points = [
        {"id": n, "x": x, "y": 2.0**30 + n, "label": name, "front": n < 2}
        for n, (name, x) in enumerate(times.items())
    ]
    data = candidates()
    data["sections"][0]["points"] = points
    file = tmp_path / "compare.html"
    file.write_text(planning_page("compare", data, "text"), "utf-8")
    page = open_page(Path(file).as_uri(), color_scheme=scheme)
    texts = page.locator("svg text").all_text_contents()
    assert set(times) <= set(texts)
    ticks = [t for t in texts if t.endswith("ms")]
    assert 2 <= len(ticks) == len(set(ticks))
    boxes = [page.locator("svg text", has_text=name).first.bounding_box() for name in times]
    for k, a in enumerate(boxes):
        for b in boxes[:k]:
            assert a is not None
            assert b is not None
            apart = a["x"] + a["width"] <= b["x"] or b["x"] + b["width"] <= a["x"]
            assert apart or abs(a["y"] - b["y"]) > 8
    colour = "e => getComputedStyle(e)"
    ink = luminance(page.locator("svg text").last.evaluate(f"{colour}.fill"))
    paper = luminance(page.locator(".plan").evaluate(f"{colour}.backgroundColor"))
    assert (ink > 0.7 and paper < 0.2) if scheme == "dark" else (ink < 0.3 and paper > 0.9)
    assert page_errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_stages(
    open_page: OpenPage, page_errors: list[str], plan: StagePlan, tmp_path: Path, scheme: str
) -> None:
    page = open_page(Path(plan.to_html(tmp_path / "plan.html")).as_uri(), color_scheme=scheme)
    assert page.get_by_text("<b>head</b>").count() >= 1
    page.get_by_label("schedule", exact=True).select_option("gpipe")
    assert "devices idle" in page.locator("section p[role=status]").inner_text()
    page.get_by_label("microbatches", exact=True).select_option("32")
    assert page.locator(".picture svg").get_attribute("aria-label").startswith("gpipe, 32")
    page.get_by_label("figure", exact=True).select_option(label="memory at rest")
    assert "1 GiB" in page.locator("table.heat").inner_text()
    assert page.locator("td.marked").count() >= 1
    assert page.locator(".edit").count() == 0
    assert page.get_by_role("alert").count() == 0
    shots = Path(__file__).parent / "shots"
    shots.mkdir(exist_ok=True)
    page.screenshot(path=shots / f"plan-stages-{scheme}.png", full_page=True)
    assert page_errors == []


def test_the_explorer_of_a_model(
    open_page: OpenPage, page_errors: list[str], tmp_path: Path
) -> None:
    model = hs.transformer(
        batch=8, seq=512, embed=512, heads=8, depth=4, mesh={"tensor": 2}, hardware="h100"
    )
    explorer = model.explore(batch=[8, 16], chips=[2, 4])
    page = open_page(Path(explorer.to_html(tmp_path / "model.html")).as_uri())
    assert page.get_by_role("alert").count() == 0
    chips = page.get_by_label("chips")
    before = page.locator("tbody").first.inner_text()
    chips.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("tbody").first.inner_text() != before
    row = page.locator("tbody").first.locator("tr").nth(1)
    wanted = row.locator("td").first.inner_text()
    row.click()
    assert page.get_by_role("heading", level=3).nth(1).inner_text().endswith(wanted)
    assert page_errors == []


def test_a_page_works_without_its_script(
    open_page: OpenPage, plan: StagePlan, tmp_path: Path
) -> None:
    file = Path(plan.to_html(tmp_path / "plan.html")).as_uri()
    page = open_page(file, java_script_enabled=False)
    assert "2 layers on 4 devices" in page.locator("pre").first.inner_text()
