"""Damaged pages in Chromium: the tab lives, nothing is asked of the network, no error is uncaught.

    python benchmarks/damaged_pages.py [-n 2000] [--seed 1] [--keep FOLDER]
    python benchmarks/damaged_pages.py --opened 200     # undamaged pages: what stays in memory

Pages of programs, comparisons, passes and plans, and those in saved notebooks, are damaged: a
figure or a whole column of a block, a value anywhere in a header or in a plan, bytes; or opened at
an address that is damaged.
In each, keys are pressed and buttons, rows, sliders and the graph clicked. Printed are what failed,
with the page in FOLDER, and the longest time between two frames.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import os
import random
import re
import shutil
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

os.environ.setdefault("JAX_PLATFORMS", "cpu")
REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / p) for p in ("python", "tests", "tests/python/helpers", "tests/ui")]

# No frame may take longer, in milliseconds.
LONGEST_FRAME = 5000
HOSTILE = (
    "<img src=x onerror=window.pwned=1>", "javascript:window.pwned=1", "__proto__", "constructor",
    "\u202e", "9" * 400, "-1", "1e999", "null", "[]", "{}", "a" * 5000, "http://nowhere.test/x", "",
)  # fmt: skip
ODD = (
    0, -1, 1, 0.5, 2**31, 2**53, 1e9, 1e300, -1e300, None, "", [], {}, True, [[]], [None],
    "__proto__", "x" * 300,
)  # fmt: skip
KEYS = ("open", "selection", "panel", "camera", "search", "color", "diff", "theme", "fold", "pass")
STRUCT = {"u8": "B", "u16": "H", "u32": "I", "i32": "i", "f32": "f", "f64": "d"}
# The data of a page; its code, whose hash the page knows, is no data.
DATA = re.compile(
    r'<script type="application/[^"]*" id="(hloscope-(?!code)[\w-]+)"[^>]*>(.*?)</script>', re.S
)
# An output of a saved notebook: the page is in a frame.
NOTEBOOK = "notebook: "
FRAMED = re.compile(r'(<iframe [^>]*srcdoc=")([^"]*)(")')
CLICKED = ("[role=tab]", "button", "summary", "tbody tr", "select", "input")
CLICK = """(element) => {
  const said = (name) => element.dispatchEvent(new Event(name, { bubbles: true }));
  if (element.matches("select")) element.selectedIndex = element.options.length - 1;
  else if (element.matches("input")) element.value = element.max || "7";
  else return element.click();
  said("input");
  said("change");
}"""
WATCH = """() => {
  let last = performance.now();
  window.longestFrame = 0;
  const frame = () => {
    window.longestFrame = Math.max(window.longestFrame, performance.now() - last);
    last = performance.now();
    requestAnimationFrame(frame);
  };
  frame();
}"""
STATE = """() => new Promise((done) => requestAnimationFrame(() => setTimeout(() => done({
  frame: window.longestFrame,
  executed: window.pwned ?? 0,
  letters: document.body.innerText.length + [...document.querySelectorAll("*")]
    .reduce((n, e) => n + (e.shadowRoot?.textContent.length ?? 0), 0),
}))))"""


def pages() -> dict[str, str]:
    """One page of each kind."""
    import hloscope as hs
    from corpus.by_hand import write_passes
    from hloscope.plan.stages.choices import Choice, exactly
    from hloscope.plan.stages.plan import make_plan
    from hloscope.show.html import frame
    from hloscope.show.pages.page import mimebundle, page
    from test_plan import candidates

    golden = REPO / "tests" / "golden"
    step = hs.read(golden / "programs" / "cnn_step.hlo.gz")
    sharded = hs.read(golden / "blocks" / "sharded.hlo.gz")
    sharded.hardware = "tpu-v5e"
    other = hs.read(step.text.replace("add(", "subtract(", 3))
    choices = [
        Choice(a, b, (n,), exactly((b - a + 1) / n), exactly(2 * (b - a + 1) / n), "", 2**30, 2**28)
        for a, b, n in ((0, 0, 1), (0, 1, 2), (1, 1, 1), (0, 1, 4), (1, 1, 2))
    ]
    model = hs.transformer(
        batch=8, seq=512, embed=512, heads=8, depth=4, mesh={"tensor": 2}, hardware="h100"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written = {
            "passes": hs.read(write_passes(folder / "dump")).to_html(
                folder / "passes.html", passes=True
            ),
            "comparison": hs.diff(step, other).to_html(folder / "diff.html"),
            "stages": make_plan(choices, ["a", "b"], 4, 8).to_html(folder / "stages.html"),
            "model": model.explore(batch=[8, 16], chips=[2, 4]).to_html(folder / "model.html"),
        }
        made = {name: Path(path).read_text("utf-8") for name, path in written.items()}
    search = page("search", candidates(), "text")
    saved = {
        f"{NOTEBOOK}program": frame(step),
        f"{NOTEBOOK}search": mimebundle("search", candidates(), "text")[0]["text/html"],
        f"{NOTEBOOK}comparison": hs.diff(step, other)._repr_mimebundle_()["text/html"],
    }
    return {"program": step.html(), "sharded": sharded.html(), "search": search, **made, **saved}


def taken_out(name: str, output: str) -> str:
    """The page that a notebook's output holds; others are pages themselves."""
    return unescape(FRAMED.search(output)[2]) if name.startswith(NOTEBOOK) else output  # type: ignore[index]


def put_back(name: str, output: str, page: str) -> str:
    """The output with another page in it."""
    if not name.startswith(NOTEBOOK):
        return page
    inside = page.replace("&", "&amp;").replace('"', "&quot;")
    return "<!doctype html>" + FRAMED.sub(lambda m: m[1] + inside + m[3], output)


class Damage:
    """What is done to a page; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def page(self, page: str) -> tuple[str, str]:
        """A page with one or two of its blocks damaged, and what was done."""
        found = {m[1]: m for m in DATA.finditer(page)}
        names = self.random.sample(sorted(found), min(len(found), self.random.choice((1, 1, 2))))
        done = []
        for name in sorted(names, key=lambda n: -found[n].start(2)):
            how, data = self.data(found[name][2], name == "hloscope-plan")
            page = page[: found[name].start(2)] + data + page[found[name].end(2) :]
            done.append(f"{name}: {how}")
        return page, ", ".join(done)

    def data(self, text: str, is_json: bool) -> tuple[str, str]:
        if is_json:
            return "a value", self.json(text).replace("<", "\\u003c")
        raw = base64.b64decode(text)
        is_packed = raw[:2] == b"\x1f\x8b"
        how, raw = self.block(gzip.decompress(raw) if is_packed else raw)
        return how, base64.b64encode(gzip.compress(raw, 1) if is_packed else raw).decode()

    def block(self, data: bytes) -> tuple[str, bytes]:
        how = self.random.choice(("a column", "a column", "a header", "a header", "bytes"))
        if how == "bytes" or data[:3] != b"HLO":
            return "bytes", self.bytes(bytearray(data))
        size = struct.unpack("<I", data[8:12])[0]
        start = -(-(12 + size) // 8) * 8
        header, body = data[12 : 12 + size].decode(), data[start:]
        if how == "a header":
            header = self.json(header)
        else:
            body = self.column(json.loads(header)["columns"], bytearray(body))
        text = header.encode()
        return how, data[:8] + struct.pack("<I", len(text)) + text + b"\0" * (
            -(12 + len(text)) % 8
        ) + body

    def json(self, text: str) -> str:
        value = json.loads(text)
        pick = self.random
        for _ in range(pick.choice((1, 1, 1, 2, 4))):
            places = list(_places(value))
            if not places:
                break
            inside, key = pick.choice(places)
            how = pick.random()
            if how < 0.15:
                del inside[key]
            elif how < 0.3 and isinstance(inside, list):
                inside.extend([inside[key]] * pick.choice((1, 50, 3000)))
            elif how < 0.45:
                inside[key] = pick.choice(HOSTILE)
            elif how < 0.6 and isinstance(inside[key], (int, float)):
                inside[key] *= pick.choice((-1, 0, 1e3, 1e6, 1e12, 1e200))
            else:
                inside[key] = deepcopy(pick.choice(ODD))
        return json.dumps(value).replace("NaN", "null").replace("Infinity", "1e400")

    def column(self, columns: dict[str, Any], body: bytearray) -> bytes:
        pick = self.random
        for _ in range(pick.choice((1, 1, 3, 8))):
            spec = columns[pick.choice(sorted(columns))]
            length, code = spec["length"], STRUCT[spec["dtype"]]
            if not length:
                continue
            width = struct.calcsize(f"<{code}")
            new: Any = pick.choice((0, 1, 2, 255, length - 1, length, -1, 1e9, 1e-300, 1e300))
            if code not in "fd":
                low, high = (-(2**31), 2**31) if code == "i" else (0, 2 ** (8 * width))
                new = max(low, min(high - 1, int(new)))
            elif code == "f":
                new = min(new, 3e38)
            rows = [pick.randrange(length)] if pick.random() < 0.6 else range(length)
            for row in rows:
                struct.pack_into(f"<{code}", body, spec["offset"] + width * row, new)
        return bytes(body)

    def bytes(self, data: bytearray) -> bytes:
        pick = self.random
        for _ in range(pick.choice((1, 1, 2, 5))):
            at = pick.randrange(len(data))
            how = pick.choice(("bit", "byte", "cut", "again"))
            if how == "bit":
                data[at] ^= 1 << pick.randrange(8)
            elif how == "byte":
                data[at] = pick.randrange(256)
            elif how == "again":
                data[at:at] = data[at : at + 64]
            else:
                del data[max(1, at) :]
        return bytes(data)

    def address(self) -> str:
        pick = self.random
        one = f"{pick.choice(KEYS)}={pick.choice(HOSTILE)}"
        return pick.choice((
            one, quote(one), one * 200, "%" * pick.randrange(1, 50),
            "".join(chr(pick.randrange(33, 0x2FF)) for _ in range(pick.randrange(1, 200))),
            "&".join(f"{k}={pick.randrange(-9, 10**10)}" for k in KEYS),
        ))  # fmt: skip


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of every value inside, of the first 40 of each list."""
    keys = list(value) if isinstance(value, dict) else range(min(len(value), 40))
    for key in keys:
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _places(value[key])


class Tab:
    """A tab, and what went wrong in it since ``open``."""

    def __init__(self, browser: Any) -> None:
        self.page = browser.new_context().new_page()
        self.page.set_default_timeout(15_000)
        self.wrong: list[str] = []
        self.longest = 0.0
        self.page.on("request", self._asked)
        self.page.on("crash", lambda *_: self.wrong.append("the tab crashed"))
        self.page.on("pageerror", lambda e: self.wrong.append(f"uncaught: {e}"))
        self.page.on("dialog", lambda d: (self.wrong.append("executed"), d.dismiss()))

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(("file:", "blob:", "data:", "about:")):
            self.wrong.append(f"asked for {request.url[:100]}")

    def open(self, url: str, pick: random.Random) -> list[str]:
        """What went wrong while the page was opened and used."""
        self.wrong = []
        try:
            self.page.goto("about:blank")
            self.page.goto(url, timeout=20_000)
            inside = self.page.frames[-1]  # of a notebook's output; else the page's own
            inside.evaluate(WATCH)
            self.page.wait_for_timeout(pick.choice((60, 150, 300)))
            self._use(inside, pick)
            state = inside.evaluate(STATE)
        except Exception as error:
            self.wrong.append(f"no answer: {str(error)[:200]}")
            return self.wrong
        self.longest = max(self.longest, state["frame"])
        if state["frame"] > LONGEST_FRAME:
            self.wrong.append(f"a frame of {state['frame']:.0f} ms")
        if state["executed"]:
            self.wrong.append("executed")
        if not state["letters"]:
            self.wrong.append("shows nothing")
        return self.wrong

    def stays(self) -> tuple[float, int]:
        """MB of heap and documents that are left when the page is closed."""
        self.page.goto("about:blank")
        ask = self.page.context.new_cdp_session(self.page).send
        for _ in range(2):  # what the first one ends is free for the second
            ask("HeapProfiler.collectGarbage")
        used: float = ask("Runtime.getHeapUsage")["usedSize"]
        return used / 1e6, ask("Memory.getDOMCounters")["documents"]

    def _use(self, inside: Any, pick: random.Random) -> None:
        inside.evaluate("() => window.focus()")
        for key in ("Control+f", "2", "f", "/", "Escape", "ArrowRight", "Enter", "e", "c"):
            if pick.random() < 0.2:
                self.page.keyboard.press(key)
        for selector in CLICKED:
            # handles: what another click removes meanwhile is still an element
            if pick.random() < 0.35 and (found := inside.locator(selector).element_handles()):
                pick.choice(found).evaluate(CLICK)
        canvas = inside.locator("canvas")
        if pick.random() < 0.3 and canvas.count() and (box := canvas.first.bounding_box()):
            x, y = box["x"] + box["width"] * pick.random(), box["y"] + box["height"] * pick.random()
            self.page.mouse.click(x, y)
            self.page.mouse.dblclick(x, y)
            self.page.mouse.wheel(0, pick.choice((-400, 400)))


def main() -> int:
    from conftest import CHROMIUM_FLAGS
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--opened", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()))
    given = parser.parse_args()
    damage, whole = Damage(given.seed), pages()
    found: Counter[str] = Counter()
    longest = 0.0
    chromium = os.environ.get("HLOSCOPE_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        tab = Tab(browser)
        for n in range(given.opened):
            name = sorted(whole)[n % len(whole)]
            file = Path(folder) / f"{name.partition(' ')[2] or name}.html"
            file.write_text(whole[name], "utf-8")
            found.update(tab.open(file.as_uri(), damage.random))
            if n in (0, 9) or n == given.opened - 1:
                mb, documents = tab.stays()
                print(f"after {n + 1} pages: {mb:.1f} MB of heap, {documents} documents")
        if given.opened:
            print(f"{given.opened} pages opened, {sum(found.values())} failed")
            return bool(found)
        for n in range(given.n):
            name = damage.random.choice(sorted(whole))
            page, done, address = taken_out(name, whole[name]), "", ""
            if not name.startswith(NOTEBOOK) and damage.random.random() < 0.2:
                address = f"#{damage.address()}"
            else:
                page, done = damage.page(page)
            page = put_back(name, whole[name], page)
            file = Path(folder) / "page.html"
            file.write_text(page, "utf-8", errors="replace")
            wrong = tab.open(file.as_uri() + address, damage.random)
            longest = max(longest, tab.longest)
            if wrong:
                found[wrong[0][:80]] += 1
                kept = given.keep / f"damaged-{given.seed}-{n}.html"
                kept.write_text(page, "utf-8", errors="replace")
                print(f"{n} {name} {done}{address[:80]}: {wrong[0]}; {kept}", flush=True)
            if wrong or n % 300 == 299:
                tab.page.context.close()
                tab = Tab(browser)
    print(f"{given.n} pages, {sum(found.values())} failed; the longest frame took {longest:.0f} ms")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
