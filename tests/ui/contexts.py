"""Browser contexts that tests use one after another: what a test leaves in one is removed.

A new context or window costs the browser half a second of work, and JupyterLab in a new page
costs twice what it does where it ran before.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

FORGET = """() => {
  try {
    localStorage.clear();
    sessionStorage.clear();
  } catch {} // a page without an origin has neither
  window.name = '';
}"""


class Contexts:
    """Contexts of one browser. A test that takes two gets two that share nothing.

    The first page of each stays, at about:blank. With ``same_page`` it is the one that tests get,
    otherwise it keeps the window open in which each test gets a page of its own.
    """

    def __init__(self, browser: Browser, *, same_page: bool = False) -> None:
        self._browser = browser
        self._same_page = same_page
        self._free: dict[str, list[BrowserContext]] = defaultdict(list)
        self._taken: list[tuple[str, BrowserContext]] = []

    def page(self, width: int, height: int, **options: Any) -> Page:
        """A blank page of a context with these options, the test's until ``give_back``."""
        key = repr(sorted(options.items()))
        if not self._free[key]:
            made = self._browser.new_context(**options)
            made.new_page()
            self._free[key].append(made)
        context = self._free[key].pop()
        self._taken.append((key, context))
        page = context.pages[0] if self._same_page else context.new_page()
        page.set_viewport_size({"width": width, "height": height})
        return page

    def give_back(self) -> None:
        """Clean all contexts that were taken; close those that do not answer as they should."""
        from playwright.sync_api import Error

        taken, self._taken = self._taken, []
        for key, context in taken:
            try:
                self._clean(context)
            except Error:
                context.close()
            else:
                self._free[key].append(context)

    def _clean(self, context: BrowserContext) -> None:
        first, *others = context.pages
        for page in others:
            page.evaluate(FORGET)
            page.close()
        if self._same_page:
            first.evaluate(FORGET)
            first.goto("about:blank")
        context.unroute_all()
        context.clear_cookies()
        context.clear_permissions()
