"""The saved page, from ``file://``, in a real browser: what a user sees, clicks and types."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

REPO = Path(__file__).resolve().parents[2]
OpenPage = Callable[..., "Page"]

# Markup for every place where a program can carry text; a page must not execute it.
HOSTILE = "<img src=x onerror=window.pwned=1>"
CLOSING = "</script><script>window.pwned=2</script>"


def program(layers: int = 3) -> str:
    """Text of a module like a training step: per layer a matmul, a fusion and an all-reduce."""
    lines = [
        "HloModule jit_step, is_scheduled=true, num_partitions=4",
        "",
        "%sum (a: f32[], b: f32[]) -> f32[] {",
        "  %a = f32[] parameter(0)",
        "  %b = f32[] parameter(1)",
        "  ROOT %add.9 = f32[] add(%a, %b)",
        "}",
        "",
    ]
    for k in range(layers):
        lines += [
            f"%fused.{k} (p: f32[8,8]) -> f32[8,8] {{",
            "  %p = f32[8,8]{1,0} parameter(0)",
            f"  %tanh.{k} = f32[8,8]{{1,0}} tanh(%p), "
            f'metadata={{op_name="jit(step)/layer_{k}/tanh" source_file="train.py" '
            f"source_line={20 + k}}}",
            f"  ROOT %neg.{k} = f32[8,8]{{1,0}} negate(%tanh.{k})",
            "}",
            "",
        ]
    lines += [
        "ENTRY %main (x: f32[8,8], w: f32[8,8]) -> f32[8,8] {",
        "  %x = f32[8,8]{1,0} parameter(0), sharding={devices=[2,2]<=[4]}",
        f"  %w = f32[8,8]{{1,0}} parameter(1), metadata={{op_name=\"params['{HOSTILE}']\"}}",
    ]
    value = "x"
    for k in range(layers):
        scope = f"jit(step)/layer_{k}"
        at = f'source_file="train.py" source_line={20 + k}'
        lines += [
            f"  %dot.{k} = f32[8,8]{{1,0}} dot(%{value}, %w), lhs_contracting_dims={{1}}, "
            f'rhs_contracting_dims={{0}}, metadata={{op_name="{scope}/dot_general" {at}}}',
            f"  %fusion.{k} = f32[8,8]{{1,0}} fusion(%dot.{k}), kind=kLoop, calls=%fused.{k}, "
            f'metadata={{op_name="{scope}/tanh" {at}}}',
            f"  %all-reduce.{k} = f32[8,8]{{1,0}} all-reduce(%fusion.{k}), channel_id={k + 1}, "
            f"replica_groups={{{{0,1}},{{2,3}}}}, to_apply=%sum, "
            f'metadata={{op_name="{scope}/psum" {at}}}',
        ]
        value = f"all-reduce.{k}"
    lines += [
        f"  ROOT %out = f32[8,8]{{1,0}} copy(%{value}), "
        f'frontend_attributes={{note="{HOSTILE}{CLOSING}"}}, '
        f'metadata={{op_name="jit(step)/{CLOSING}/{HOSTILE}" '
        f'source_file="{HOSTILE}.py" source_line=7}}',
        "}",
        "",
    ]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def snapshot(renderer: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """URL of the page of ``program()``, in a file with a hostile name."""
    import hloscope as hs

    folder = tmp_path_factory.mktemp("snapshot")
    source = folder / "<img src=x onerror=window.pwned=3>.hlo"
    source.write_text(program())
    return Path(hs.read(source).to_html(folder / "step.html")).as_uri()


@pytest.fixture
def page(open_page: OpenPage, snapshot: str) -> Page:
    return ready(open_page(snapshot))


def ready(page: Page) -> Page:
    page.wait_for_selector(".toolbar")
    page.wait_for_function(f"() => {HANDLE}.pane.stats().boxes > 0")
    # the analyses arrive after the picture and redraw the panels
    page.get_by_role("tab", name="Memory", exact=True).wait_for()
    return page


HANDLE = "document.getElementById('hloscope').shadowRoot.querySelector('.root').hloscope"


def selection(page: Page) -> tuple[str, str]:
    """(kind, name) of the selection."""
    found: list[str] = page.evaluate(
        f"""() => {{ const {{store, model}} = {HANDLE}; const s = store.get('selection');
        const name = s.kind === 'instruction' ? model.name(s.index)
          : s.kind === 'group' ? model.groupLabel(s.index) : '';
        return [s.kind, name]; }}"""
    )
    return found[0], found[1]


def index_of(page: Page, name: str) -> int:
    found: int = page.evaluate(
        f"""(name) => {{ const {{model}} = {HANDLE};
        for (let i = 0; i < model.instruction.count; i++) if (model.name(i) === name) return i;
        return -1; }}""",
        name,
    )
    assert found >= 0, name
    return found


def place(page: Page, kind: str, index: int) -> tuple[float, float]:
    """Middle of the item's box, in page coordinates."""
    rect = page.evaluate(
        f"""([kind, index]) => {{ const {{pane}} = {HANDLE};
        const r = pane.locate({{kind, index}}); if (!r) return null;
        const box = document.getElementById('hloscope').shadowRoot
          .querySelector('.graph').getBoundingClientRect();
        return [box.x + r.x + r.width / 2, box.y + r.y + r.height / 2]; }}""",
        [kind, index],
    )
    assert rect is not None, f"{kind} {index} is not in the picture"
    return rect[0], rect[1]


def settle(page: Page) -> None:
    """Wait for animations to end: the picture is unchanged for three polls."""
    page.wait_for_function(
        f"""() => {{ const {{pane}} = {HANDLE}; const s = JSON.stringify([pane.stats().scale,
          pane.stats().worldHeight, pane.stats().frames]);
        const same = window.lastLook === s ? (window.looks ?? 0) + 1 : 0;
        window.lastLook = s; window.looks = same; return same >= 3; }}""",
        polling=120,
    )


def reveal(page: Page, name: str) -> None:
    page.evaluate(f"(i) => {HANDLE}.pane.reveal(i)", index_of(page, name))
    settle(page)


def test_draws_without_errors_or_network(
    open_page: OpenPage, snapshot: str, page_errors: list[str]
) -> None:
    requests: list[str] = []
    page = open_page("about:blank")
    page.on("request", lambda r: requests.append(r.url))
    page.goto(snapshot)
    ready(page)
    settle(page)
    colors = page.evaluate(
        """() => { const c = document.getElementById('hloscope').shadowRoot
          .querySelector('.graph canvas'); const g = c.getContext('2d');
        const d = g.getImageData(0, 0, c.width, c.height).data; const seen = new Set();
        for (let k = 0; k < d.length; k += 64) seen.add(d[k] << 16 | d[k + 1] << 8 | d[k + 2]);
        return seen.size; }"""
    )
    assert colors > 8, "the canvas is blank"
    text = page.locator(".header").inner_text()
    assert "jit_step" in text
    assert "4 partitions" in text
    assert "3 all-reduce" in text
    assert [u for u in requests if not u.startswith(("file:", "blob:", "data:"))] == []
    assert page_errors == []


def test_has_a_title_a_heading_and_a_summary_for_those_without_scripts(
    open_page: OpenPage, snapshot: str
) -> None:
    page = open_page(snapshot, java_script_enabled=False)
    assert page.title().startswith("jit_step")
    assert page.locator("main h1").inner_text() == "jit_step"
    assert "instructions" in page.locator("main pre").inner_text()


def test_search_finds_and_enter_walks(page: Page, page_errors: list[str]) -> None:
    page.keyboard.press("/")
    page.keyboard.type("opcode:all-reduce file:train.py:21")
    page.get_by_text("1 match", exact=True).wait_for()
    assert page.locator(".result").count() == 1
    page.keyboard.press("Enter")
    assert selection(page) == ("instruction", "all-reduce.1")
    lit = page.evaluate(f"() => {HANDLE}.store.get('highlight').instructions.size")
    assert lit == 1
    page.keyboard.press("Escape")
    assert page.evaluate(f"() => {HANDLE}.store.get('highlight')") is None
    page.keyboard.press("/")
    page.keyboard.type("no-such-thing")
    page.get_by_text("Nothing matches").wait_for()
    assert page_errors == []


def test_a_click_selects_and_a_double_click_opens(page: Page) -> None:
    i = index_of(page, "fusion.1")
    target = f"{{kind: 'instruction', index: {i}}}"
    reveal(page, "fusion.1")
    page.evaluate(f"() => {HANDLE}.pane.close({target})")
    settle(page)
    page.mouse.click(*place(page, "instruction", i))
    assert selection(page) == ("instruction", "fusion.1")
    assert "%fusion.1" in page.locator(".panel").inner_text()
    before = page.evaluate(f"() => {HANDLE}.pane.stats().boxes")
    page.mouse.dblclick(*place(page, "instruction", i))
    page.wait_for_function(f"(n) => {HANDLE}.pane.stats().boxes > n", arg=before)
    assert page.evaluate(f"() => {HANDLE}.pane.isOpen({target})")
    settle(page)
    page.mouse.click(*place(page, "instruction", index_of(page, "tanh.1")))
    assert selection(page) == ("instruction", "tanh.1")
    page.keyboard.press("[")
    page.keyboard.press("Enter")
    assert not page.evaluate(f"() => {HANDLE}.pane.isOpen({target})")


def test_text_and_graph_agree(page: Page) -> None:
    page.get_by_role("tab", name="Text").click()
    line = page.locator(".text-line", has_text="%all-reduce.2 =")
    line.locator(".number").click()
    assert selection(page) == ("instruction", "all-reduce.2")
    page.locator(".text-line", has_text="%fusion.0 =").locator(".jump", has_text="%dot.0").click()
    assert selection(page) == ("instruction", "dot.0")
    assert "%dot.0 =" in page.locator(".text-line.chosen").inner_text()
    reveal(page, "all-reduce.1")
    page.mouse.click(*place(page, "instruction", index_of(page, "all-reduce.1")))
    assert "%all-reduce.1 =" in page.locator(".text-line.chosen").inner_text()
    page.get_by_label("Find in text").fill("kind=kLoop")
    page.get_by_text("3 lines").wait_for()
    page.keyboard.press("Enter")
    assert selection(page)[1].startswith("fusion.")


def test_a_long_text_begins_at_entry(open_page: OpenPage, renderer: Path, tmp_path: Path) -> None:
    import hloscope as hs

    source = tmp_path / "long.hlo"
    source.write_text(program(30))
    page = ready(open_page(Path(hs.read(source).to_html(tmp_path / "long.html")).as_uri()))
    page.get_by_role("tab", name="Text").click()
    line = page.locator(".text-line", has_text="ENTRY %main")
    line.wait_for()
    settle(page)
    list_, found = page.locator(".virtual.text").bounding_box(), line.bounding_box()
    assert list_ is not None
    assert found is not None
    assert list_["y"] <= found["y"] <= list_["y"] + 40
    # a selection takes precedence
    page.get_by_role("tab", name="Details").click()
    page.evaluate(f"(i) => {HANDLE}.store.selectInstruction(i)", index_of(page, "tanh.1"))
    page.get_by_role("tab", name="Text").click()
    assert page.locator(".text-line.chosen", has_text="%tanh.1 =").is_visible()


def test_a_graph_with_nothing_to_draw_says_so(
    open_page: OpenPage, renderer: Path, tmp_path: Path, page_errors: list[str]
) -> None:
    import hloscope as hs

    empty = hs.read("HloModule m\n\nENTRY %main {\n  ROOT %x = f32[8] parameter(0)\n}\n")
    page = open_page(Path(empty.to_html(tmp_path / "empty.html")).as_uri())
    page.get_by_text("Nothing is computed here").wait_for()
    for tab in page.get_by_role("tab").all():
        tab.click()
    assert page_errors == []


def test_details_show_where_it_comes_from_and_goes(page: Page) -> None:
    page.evaluate(f"(i) => {HANDLE}.store.selectInstruction(i)", index_of(page, "fusion.1"))
    panel = page.locator(".panel")
    panel.get_by_text("train.py:21").first.wait_for()
    panel.get_by_text("kLoop").first.wait_for()
    panel.get_by_role("button", name="all-reduce.1", exact=True).click()
    assert selection(page) == ("instruction", "all-reduce.1")
    panel.get_by_role("button", name="sum", exact=True).click()
    assert selection(page)[0] == "computation"
    page.evaluate(f"(i) => {HANDLE}.store.selectInstruction(i)", index_of(page, "x"))
    panel.get_by_text("{devices=[2,2]<=[4]}").first.wait_for()


def test_outline_and_tabs_by_keyboard(page: Page, page_errors: list[str]) -> None:
    tabs = page.get_by_role("tab")
    outline = page.get_by_role("tab", name="Outline")
    tabs.first.focus()
    for _ in range(tabs.count()):
        if outline.get_attribute("aria-selected") == "true":
            break
        page.keyboard.press("ArrowRight")
    assert outline.get_attribute("aria-selected") == "true"
    assert outline.evaluate("(e) => e.getRootNode().activeElement === e")
    page.get_by_role("tree").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    kind, name = selection(page)
    assert kind in ("group", "none")  # a fold has a label of its own
    row = page.locator(".tree-row.focus")
    assert row.get_attribute("aria-level") == "2"
    assert name in row.inner_text()
    assert page_errors == []


def test_keys(page: Page) -> None:
    page.evaluate(f"(i) => {HANDLE}.store.selectInstruction(i)", index_of(page, "dot.1"))
    page.evaluate(f"(i) => {HANDLE}.store.selectInstruction(i)", index_of(page, "all-reduce.1"))
    page.keyboard.press("[")
    assert selection(page)[1] == "dot.1"
    page.keyboard.press("]")
    assert selection(page)[1] == "all-reduce.1"
    page.keyboard.press("p")
    lit = page.evaluate(
        f"() => {{ const {{store, model}} = {HANDLE}; const h = store.get('highlight');"
        "return h ? [...h.instructions].map((i) => model.name(i)) : []; }"
    )
    assert "fusion.1" in lit
    page.keyboard.press("t")
    assert page.get_by_role("tab", name="Text").get_attribute("aria-selected") == "true"
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog").count() == 0
    for _ in range(3):
        page.keyboard.press("Escape")
    assert selection(page)[0] == "none"
    scale = page.evaluate(f"() => {HANDLE}.pane.stats().scale")
    page.keyboard.press("+")
    settle(page)
    assert page.evaluate(f"() => {HANDLE}.pane.stats().scale") > scale


def test_colours_change_with_their_legend(page: Page) -> None:
    assert "matmul" in page.locator(".legend").inner_text()
    page.get_by_label("Colour by").select_option("bytes")
    legend = page.locator(".legend").inner_text()
    assert "Output bytes" in legend
    assert "256 B" in legend
    assert page.locator(".legend .ramp").count() == 1


def test_the_schedule_strip_selects_and_lights_a_range(page: Page) -> None:
    track = page.get_by_role("slider", name="schedule of ENTRY")
    box = track.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.click(box["x"] + box["width"] * 0.05, y)
    assert selection(page) == ("instruction", "dot.0")
    page.mouse.move(box["x"] + box["width"] * 0.2, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.8, y, steps=4)
    page.mouse.up()
    lit = page.evaluate(f"() => {HANDLE}.store.get('highlight').instructions.size")
    assert 4 <= lit <= 8
    assert "schedule" in page.locator(".chip-note").inner_text()


def test_hostile_names_do_nothing(page: Page, page_errors: list[str]) -> None:
    for name in ("w", "out"):
        page.evaluate(f"(i) => {HANDLE}.store.selectInstruction(i)", index_of(page, name))
        for tab in ("Details", "Text", "Outline", "Search"):
            page.get_by_role("tab", name=tab).click()
            page.wait_for_timeout(100)
        page.get_by_label("Search instructions").fill("img")
        page.wait_for_selector(".result")
    page.get_by_role("tab", name="Details").click()
    shown = page.locator(".panel").inner_text()
    assert HOSTILE in shown, "names are shown as they are"
    svg = page.evaluate(f"() => {HANDLE}.pane.exportSvg()")
    assert "<img" not in svg
    assert "<script" not in svg
    inside = page.evaluate(
        "() => document.getElementById('hloscope').shadowRoot"
        ".querySelectorAll('img, script, iframe, style, [onerror]').length"
    )
    assert inside == 0
    assert page.locator("img").count() == 0
    assert page.evaluate("() => window.pwned") is None
    assert page_errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_accessibility_violation(
    open_page: OpenPage, snapshot: str, shots: Path, scheme: str
) -> None:
    axe = (REPO / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    page = ready(open_page(snapshot, color_scheme=scheme, bypass_csp=True))
    settle(page)
    page.screenshot(path=shots / f"snapshot-{scheme}.png")
    page.evaluate(axe)
    page.evaluate(f"(i) => {HANDLE}.store.selectInstruction(i)", index_of(page, "fusion.1"))
    bad: list[dict[str, Any]] = []
    for tab in ("Details", "Text", "Outline", "Search", "menu", "keys"):
        if tab == "menu":
            page.get_by_role("button", name="Save or copy").click()
        elif tab == "keys":
            page.get_by_role("button", name="Keys and gestures").click()
        else:
            page.get_by_role("tab", name=tab).click()
        if tab == "Search":
            page.get_by_label("Search instructions").fill("dot")
            page.wait_for_selector(".result")
        result = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
        bad += [
            {"tab": tab, "rule": v["id"], "nodes": [n["html"][:160] for n in v["nodes"][:3]]}
            for v in result["violations"]
            if v["impact"] in ("serious", "critical")
        ]
    assert bad == [], json.dumps(bad, indent=1)


def test_narrow_pages_put_the_panel_below(open_page: OpenPage, snapshot: str, shots: Path) -> None:
    page = ready(open_page(snapshot, width=480, height=760))
    settle(page)
    page.screenshot(path=shots / "snapshot-narrow.png")
    graph = page.locator(".graph").bounding_box()
    side = page.locator(".side").bounding_box()
    assert graph is not None
    assert side is not None
    assert side["y"] >= graph["y"] + graph["height"]
    assert side["width"] > 400
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


def test_small_explorers_begin_with_the_panel_folded_to_its_rail(
    open_page: OpenPage, snapshot: str
) -> None:
    page = ready(open_page(snapshot, width=860, height=640))
    settle(page)
    panel = page.locator(".panel")
    assert panel.is_hidden()
    graph = page.locator(".graph").bounding_box()
    assert graph is not None
    assert graph["width"] > 0.88 * 860
    for tab in page.get_by_role("tab").all():
        assert tab.is_visible()
    page.get_by_role("tab", name="Text").click()
    assert panel.is_visible()
    page.get_by_role("button", name="Hide the panel").click()
    assert panel.is_hidden()
    page.get_by_role("button", name="Show the panel").press("Enter")
    assert panel.is_visible()
    # A larger window does not undo the user's choice.
    page.get_by_role("button", name="Hide the panel").click()
    page.set_viewport_size({"width": 1300, "height": 800})
    settle(page)
    assert panel.is_hidden()


def test_a_search_without_results_dims_nothing(page: Page) -> None:
    page.get_by_label("Search instructions").fill("no such thing")
    page.get_by_text("Nothing matches").wait_for()
    assert page.evaluate(f"() => {HANDLE}.store.get('highlight')") is None


def test_theme_follows_the_system_and_can_be_chosen(page: Page) -> None:
    dark = (
        "() => document.getElementById('hloscope').shadowRoot"
        ".querySelector('.root').classList.contains('dark')"
    )
    assert page.evaluate(dark) is False
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(dark)
    page.get_by_label("Theme: auto").click()
    page.wait_for_function(f"() => !({dark})()")
    page.get_by_label("Theme: light").click()
    page.emulate_media(color_scheme="light")
    page.wait_for_function(dark)


def test_a_panel_that_fails_says_so_and_the_others_go_on(
    page: Page, page_errors: list[str]
) -> None:
    page.evaluate(
        f"""() => Object.defineProperty({HANDLE}.model, 'users',
        {{ get() {{ throw new Error('broken part'); }} }})"""
    )
    page.evaluate(f"(i) => {HANDLE}.store.selectInstruction(i)", index_of(page, "dot.1"))
    page.get_by_text("This panel failed: broken part").wait_for()
    page.get_by_role("tab", name="Text").click()
    page.locator(".text-line.chosen", has_text="%dot.1 =").wait_for()
    page.get_by_role("tab", name="Details").click()
    page.get_by_text("This panel failed: broken part").wait_for()
    assert page_errors
    assert all("details failed" in e or "graph" in e for e in page_errors), page_errors


def test_a_damaged_page_says_what_is_wrong(
    open_page: OpenPage, snapshot: str, tmp_path: Path
) -> None:
    from urllib.parse import unquote, urlparse

    text = Path(unquote(urlparse(snapshot).path)).read_text()
    begin = text.index('id="hloscope-view">') + len('id="hloscope-view">')
    end = text.index("</script>", begin)
    cut = tmp_path / "cut.html"
    cut.write_text(text[:begin] + text[end:])
    page = open_page(cut.as_uri())
    page.get_by_role("alert").wait_for()
    assert "has no data" in page.get_by_role("alert").inner_text()
    assert page.get_by_role("button", name="Try again").is_visible()


def test_a_page_without_text_says_so(
    open_page: OpenPage, renderer: Path, tmp_path: Path, page_errors: list[str]
) -> None:
    import hloscope as hs
    from hloscope.show.html import page as make

    source = tmp_path / "step.hlo"
    source.write_text(program())
    target = tmp_path / "small.html"
    target.write_text(make(hs.read(source), text_limit_bytes=100))
    page = ready(open_page(target.as_uri()))
    page.get_by_role("tab", name="Text").click()
    page.get_by_text("over this page's limit").wait_for()
    page.get_by_role("tab", name="Details").click()
    page.evaluate(f"(i) => {HANDLE}.store.selectInstruction(i)", index_of(page, "dot.1"))
    page.get_by_text("Attributes and text are missing").wait_for()
    assert page_errors == []
