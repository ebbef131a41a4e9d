"""Cost, memory and source in saved page and widget: a click updates everything at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hloscope as hs
import pytest
from hloscope.hlo import Target
from test_widget import widget

if TYPE_CHECKING:
    from playwright.sync_api import Page

OpenPage = Callable[..., "Page"]

SOURCE = "import jax\n\ndef step(x, w):\n    h = jnp.tanh(x @ w)\n    return jax.lax.psum(h)\n"
TEXT = """HloModule jit_step, is_scheduled=true, num_partitions=4

%body (c: (s32[], f32[64,64])) -> (s32[], f32[64,64]) {
  %c = (s32[], f32[64,64]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  %v = f32[64,64]{1,0} get-tuple-element(%c), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %looped = f32[64,64]{1,0} dot(%v, %v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %t = (s32[], f32[64,64]{1,0}) tuple(%next, %looped)
}

%cond (d: (s32[], f32[64,64])) -> pred[] {
  %d = (s32[], f32[64,64]{1,0}) parameter(0)
  %j = s32[] get-tuple-element(%d), index=0
  %limit = s32[] custom-call(%j), custom_call_target="Pin"
  ROOT %less = pred[] compare(%j, %limit), direction=LT
}

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %ab = f32[] add(%a, %b)
}

ENTRY %main (x: f32[512,512], w: f32[512,512], s: (s32[], f32[64,64])) -> f32[512,512] {
  %x = f32[512,512]{1,0} parameter(0)
  %w = f32[512,512]{1,0} parameter(1)
  %s = (s32[], f32[64,64]{1,0}) parameter(2)
  %loop = (s32[], f32[64,64]{1,0}) while(%s), condition=%cond, body=%body
  %dot.1 = f32[512,512]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(step)/dot_general" source_file="/home/me/train.py" source_line=4}
  %tanh.1 = f32[512,512]{1,0} tanh(%dot.1), metadata={op_name="jit(step)/tanh" source_file="/home/me/train.py" source_line=4}
  ROOT %all-reduce.1 = f32[512,512]{1,0} all-reduce(%tanh.1), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=%sum, metadata={op_name="jit(step)/psum" source_file="/home/me/train.py" source_line=5}
}
"""  # noqa: E501


@pytest.fixture(scope="module")
def cap() -> Any:
    read = hs.read(TEXT)
    return hs.Capture(read.module, Target(sources={"/home/me/train.py": SOURCE}))


# What only reads the View is the same code in every host, and is tested in one. Figures on another
# chip, or with numbers set by hand, come from the host.
SNAPSHOT = pytest.mark.parametrize("page", ["snapshot"], indirect=True)


@pytest.fixture(params=["snapshot", "widget"])
def page(
    request: pytest.FixtureRequest, cap: Any, renderer: Path, open_page: OpenPage, tmp_path: Path
) -> Page:
    """The same capture as a saved page and as the notebook's widget."""
    if request.param == "widget":
        blank = open_page("about:blank", width=1500, height=950)
        opened = widget(blank, renderer, cap, "{height: 900}")
    else:
        path = cap.to_html(tmp_path / "step.html")
        opened = open_page(path.as_uri(), width=1500, height=950)
    opened.get_by_role("tab", name="Cost", exact=True).wait_for()
    return opened


ROOT = """[...document.querySelectorAll('*')].map((e) => e.shadowRoot?.querySelector('.root'))
  .find((root) => root?.hloscope)"""


def selected(page: Page) -> str:
    """Name of the selection, once the graph shows its box."""
    page.wait_for_function(
        f"""() => {{ const root = {ROOT}; const {{store, pane}} = root.hloscope;
        const box = root.querySelector('.graph').getBoundingClientRect();
        const at = pane.locate(store.get('selection'));
        return at && at.x >= 0 && at.y >= 0 && at.x < box.width && at.y < box.height; }}"""
    )
    found: str = page.evaluate(
        f"""() => {{ const {{store, model}} = {ROOT}.hloscope;
        const s = store.get('selection'); return s.kind === 'instruction' ? model.name(s.index)
          : s.kind === 'group' ? model.groupLabel(s.index) : s.kind; }}"""
    )
    return found


def lit(page: Page) -> set[str]:
    """Names of the instructions that are lit in the graph."""
    found: list[str] = page.evaluate(
        f"""() => {{ const {{store, model}} = {ROOT}.hloscope; const h = store.get('highlight');
        return h ? [...h.instructions].map((i) => model.name(i)) : []; }}"""
    )
    return set(found)


def amount(text: str) -> float:
    """ "5.2 µs", "269 MFLOP", "4 MiB" as a number of s, FLOP or B."""
    number, prefix, _ = re.fullmatch(
        r"([\d.,]+) ?([nµmkMGT]?i?)(s|B|FLOP)\b.*", text.strip(), re.S
    ).groups()
    scale = {"n": 1e-9, "µ": 1e-6, "m": 1e-3, "": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
    binary = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
    return float(number.replace(",", "")) * (binary.get(prefix) or scale[prefix])


def fact(page: Page, name: str) -> float:
    value = page.locator(".totals dt", has_text=name).first.locator("+ dd")
    return amount(value.inner_text())


def choose(page: Page, chip: str) -> None:
    page.get_by_label("Chip").select_option(chip)
    label = page.get_by_label("Chip").locator(f"option[value={chip}]").inner_text()
    page.locator(".chip-choice", has_text=label.split(" (")[0]).wait_for()


def cost_tab(page: Page) -> None:
    page.get_by_role("tab", name="Cost", exact=True).click()


def operations(page: Page) -> dict[str, dict[str, str]]:
    """Cells of the table of operations, by operation name and column."""
    table = page.get_by_role("region", name="Operations by cost")
    heads = table.locator("thead th").all_inner_texts()
    rows = [r.locator("th, td").all_inner_texts() for r in table.locator("tbody tr").all()]
    return {row[0].split()[0]: dict(zip(heads[1:], row[1:], strict=True)) for row in rows}


def test_another_chip_changes_every_figure_to_what_python_models(
    cap: Any, page: Page, page_errors: list[str]
) -> None:
    cost_tab(page)
    index = {i.name: i.index for i in cap.module.instructions}
    seen = set()
    for chip in ("h100", "tpu-v5e", "tpu-v5p", "cpu"):
        choose(page, chip)
        cost = cap.cost(chip)
        model = cost.roofline
        assert fact(page, "Modelled time") == pytest.approx(model.total_seconds, rel=6e-3)
        assert fact(page, "FLOPs") == pytest.approx(cost.total_flops, rel=6e-3)
        parts = {
            row.locator(".bar-label").inner_text(): amount(
                row.locator(".bar-text").inner_text().split("·")[0]
            )
            for row in page.locator(".cost .bars").first.locator(".bar").all()
        }
        assert parts["compute"] == pytest.approx(model.compute_seconds, rel=6e-3)
        assert parts["memory"] == pytest.approx(model.memory_seconds, rel=6e-3)
        assert parts["exposed communication"] == pytest.approx(model.exposed_seconds, rel=6e-3)
        rows = operations(page)
        assert {"dot.1", "tanh.1", "all-reduce.1", "looped"} <= set(rows)
        for name, row in rows.items():
            want = model.step_seconds[index[name]]
            assert amount(row["Time"]) == pytest.approx(want, rel=6e-3), (chip, name)
            assert row["Bound"] == model.bound(index[name])
        seen.add(fact(page, "Modelled time"))
    assert len(seen) == 4
    assert page_errors == []


def test_the_chip_of_the_capture_is_the_pages(
    cap: Any, renderer: Path, open_page: OpenPage, tmp_path: Path
) -> None:
    other = hs.Capture(cap.module, cap.target)
    other.hardware = "h100"
    page = open_page(other.to_html(tmp_path / "chip.html").as_uri(), width=1500, height=950)
    page.get_by_role("tab", name="Cost", exact=True).click()
    assert page.get_by_label("Chip").input_value() == "h100"
    assert fact(page, "Modelled time") == pytest.approx(
        other.summary["modelled_seconds"]["total"], rel=6e-3
    )
    # as a host does when its settings change: the open panel updates
    told = "document.querySelector('#hloscope').shadowRoot.querySelector('.root').hloscope.store"
    page.evaluate(f"{told}.setOptions({{hardware: 'tpu-v5e'}})")
    page.locator(".chip-choice", has_text="TPU v5e").wait_for()
    assert page.get_by_label("Chip").input_value() == "tpu-v5e"
    assert fact(page, "Modelled time") == pytest.approx(
        cap.cost("tpu-v5e").roofline.total_seconds, rel=6e-3
    )
    choose(page, "a100")
    assert page.evaluate(f"{told}.get('options').hardware") == "a100"
    page.evaluate(f"{told}.setOptions({{hardware: 'abacus'}})")
    page.get_by_text("Unknown chip abacus; time is modelled on NVIDIA A100").wait_for()
    page.evaluate(f"{told}.setOptions({{hardware: null}})")
    page.locator(".chip-choice", has_text="NVIDIA H100").wait_for()
    assert page.get_by_label("Chip").input_value() == "h100"


def test_a_panel_that_was_asked_for_opens_once_there_are_figures(
    cap: Any, renderer: Path, open_page: OpenPage, tmp_path: Path
) -> None:
    asked = hs.Capture(cap.module, cap.target)
    asked.display["panel"] = "collectives"
    page = open_page(asked.to_html(tmp_path / "panel.html").as_uri(), width=1500, height=950)
    page.get_by_role("tab", name="Collectives", exact=True, selected=True).wait_for()
    assert page.locator(".collective-table").is_visible()
    assert page.get_by_role("heading", name="Overview").count() == 0


def test_a_number_and_a_trip_count_can_be_changed(
    cap: Any, page: Page, page_errors: list[str], shots: Path
) -> None:
    cost_tab(page)
    choose(page, "h100")
    before = fact(page, "Modelled time")
    dot = amount(operations(page)["dot.1"]["Time"])
    page.get_by_text("Its numbers").click()
    page.get_by_label("nvlink, a link").fill("1")
    page.keyboard.press("Tab")
    assert fact(page, "Modelled time") > 10 * before
    memory = page.get_by_label(re.compile("^memory"))
    memory.fill(str(float(memory.input_value()) / 10))
    page.keyboard.press("Tab")
    assert amount(operations(page)["dot.1"]["Time"]) == pytest.approx(10 * dot, rel=1e-2)
    page.get_by_role("button", name="as published").click()
    assert fact(page, "Modelled time") == before
    page.get_by_label("Trips of %loop").fill("1000")
    page.keyboard.press("Tab")
    want = cap.cost("h100", trips={"loop": 1000})
    assert fact(page, "FLOPs") == pytest.approx(want.total_flops, rel=6e-3)
    assert fact(page, "Modelled time") == pytest.approx(want.roofline.total_seconds, rel=6e-3)
    page.screenshot(path=str(shots / "cost.png"))
    assert page_errors == []


@SNAPSHOT
def test_the_treemap_by_scope_selects_by_pointer_and_by_key(
    page: Page, page_errors: list[str]
) -> None:
    cost_tab(page)
    page.get_by_role("button", name="By scope", exact=True).click()
    map_ = page.locator(".treemap canvas")
    map_.scroll_into_view_if_needed()
    assert "FLOPs by scope" in (map_.get_attribute("aria-label") or "")
    choose(page, "h100")
    assert "modelled on" in (map_.get_attribute("aria-label") or "")
    map_.hover(position={"x": 8, "y": 8})
    tip = page.locator(".treemap .tip")
    first = page.locator(".treemap .bar").first
    largest = first.locator(".bar-label").inner_text()
    assert tip.inner_text().startswith(largest)
    assert "%" in tip.inner_text()
    map_.click(position={"x": 8, "y": 8})
    assert selected(page) == "all-reduce.1"
    second = page.locator(".treemap .bar").nth(1)
    second.focus()
    page.keyboard.press("Enter")
    assert selected(page) == "dot.1"
    assert page_errors == []


@SNAPSHOT
def test_a_dot_of_the_roofline_selects_its_operation_in_the_graph(page: Page) -> None:
    cost_tab(page)
    choose(page, "h100")
    names: dict[str, int] = page.evaluate(
        f"""() => {{ const {{model}} = {ROOT}.hloscope; const out = {{}};
        for (let i = 0; i < model.instruction.count; i++) out[model.name(i)] = i;
        return out; }}"""
    )
    page.get_by_role("button", name="Roofline", exact=True).click()
    page.locator(".roofline svg").scroll_into_view_if_needed()
    for name in ("dot.1", "looped"):
        page.locator(f'circle.dot[data-instruction="{names[name]}"]').click()
        assert selected(page) == name
    page.get_by_role("button", name="Slowest", exact=True).click()
    page.get_by_role("region", name="Operations by cost").get_by_role(
        "button", name="all-reduce.1"
    ).click()
    assert selected(page) == "all-reduce.1"


@SNAPSHOT
def test_the_memory_timeline_is_walked_and_leads_to_the_graph(
    cap: Any, page: Page, shots: Path, page_errors: list[str]
) -> None:
    page.get_by_role("tab", name="Memory", exact=True).click()
    assert page.get_by_text(f"{cap.memory.peak_bytes:,} B").is_visible()
    assert page.get_by_role("heading", name="Live at the peak").is_visible()
    values = page.get_by_role("region", name="Live values")
    at_peak = {v.name for v in cap.memory.live_at_peak}
    assert set(values.locator("tbody th").all_inner_texts()) == at_peak
    slider = page.get_by_label("Position in the schedule")
    slider.focus()
    page.keyboard.press("Home")
    assert page.get_by_role("heading", name="Live here").is_visible()
    # a click at the right end of the picture goes to the end of the schedule
    plot = page.locator(".timeline svg")
    box = plot.bounding_box()
    assert box is not None
    plot.click(position={"x": box["width"] - 2, "y": box["height"] / 2})
    last = len(cap.memory.schedule) - 1
    assert slider.input_value() == str(last)
    live = {v.name for v in cap.memory.live_at(last)}
    assert set(values.locator("tbody th").all_inner_texts()) == live
    page.get_by_role("button", name="go to the peak").click()
    assert page.get_by_role("heading", name="Live at the peak").is_visible()
    # a click on a value selects it in the graph
    values.get_by_role("button", name="tanh.1").click()
    assert selected(page) == "tanh.1"
    page.screenshot(path=str(shots / "memory.png"))
    assert page_errors == []


@SNAPSHOT
def test_source_lines_are_heated_and_light_their_operations(
    page: Page, shots: Path, page_errors: list[str]
) -> None:
    page.get_by_role("tab", name="Source", exact=True).click()
    line = page.get_by_role("button", name=re.compile(r"h = jnp\.tanh\(x @ w\)"))
    assert "FLOP" in line.inner_text()
    line.click()
    assert lit(page) == {"dot.1", "tanh.1"}
    assert page.get_by_text("train.py:4").first.is_visible()
    page.screenshot(path=str(shots / "source.png"))
    page.get_by_role("button", name=re.compile(r"jax\.lax\.psum")).click()
    assert lit(page) == {"all-reduce.1"}
    assert page_errors == []


@SNAPSHOT
def test_source_follows_the_selection(page: Page, page_errors: list[str]) -> None:
    def select(name: str) -> None:
        page.evaluate(
            f"""(name) => {{ const {{store, model}} = {ROOT}.hloscope;
            for (let i = 0; i < model.instruction.count; i++)
              if (model.name(i) === name) store.selectInstruction(i); }}""",
            name,
        )

    def marked() -> list[str | None]:
        rows = page.locator(".source-line.of-selection[aria-current=true]")
        return [row.get_attribute("data-line") for row in rows.all()]

    select("dot.1")
    page.get_by_role("tab", name="Source", exact=True).click()
    page.locator(".source-line").first.wait_for()
    assert marked() == ["4"]
    select("all-reduce.1")
    assert marked() == ["5"]
    page.keyboard.press("Escape")
    assert page_errors == []


def test_boxes_are_coloured_by_cost_and_tell_0_from_unknown(
    page: Page, page_errors: list[str]
) -> None:
    colour = page.get_by_label("Colour by", exact=True)
    key = page.locator(".legend")
    colour.select_option(label="Modelled time")
    assert "no known values" in key.inner_text()
    for name in ("FLOPs", "Bytes accessed", "Live bytes at peak"):
        colour.select_option(label=name)
        assert key.locator(".ramp").count() == 1
    cost_tab(page)
    choose(page, "a100")
    colour.select_option(label="Modelled time")
    assert key.locator(".key").first.inner_text().startswith("0 s")
    ramp = key.locator(".ramp").inner_text()
    choose(page, "tpu-v5e")
    assert key.locator(".ramp").inner_text() != ramp
    assert page_errors == []
