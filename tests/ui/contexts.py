"""Browser contexts that tests use one after another: what a test leaves in one is removed.

A new context, window or page costs the browser half a second of work, and a page that has shown
the explorer or JupyterLab before shows it again for two thirds of that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
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
NOWHERE = -10  # where a pointer is over nothing


class Contexts:
    """Contexts of one browser, each with a page. A test that takes two gets two that share nothing.

    ``tidied``: whether a page was made such that the next test may find it as it is; otherwise it
    goes to about:blank.
    """

    def __init__(
        self, browser: Browser, tidied: Callable[[Page], bool] = lambda page: False
    ) -> None:
        self._browser = browser
        self._tidied = tidied
        self._free: dict[str, list[BrowserContext]] = defaultdict(list)
        self._taken: list[tuple[str, BrowserContext]] = []

    def page(
        self, width: int, height: int, *, scheme: str = "light", script: str = "", **options: Any
    ) -> Page:
        """A page of a context with these options, the test's until ``give_back``.

        ``script`` runs in it before its own scripts.
        """
        key = repr((script, sorted(options.items())))
        if not self._free[key]:
            made = self._browser.new_context(**options)
            made.add_init_script(script)
            made.new_page()
            self._free[key].append(made)
        context = self._free[key].pop()
        self._taken.append((key, context))
        (page,) = context.pages
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.set_default_timeout(30_000)
        return page

    def give_back(self) -> None:
        """Clean all contexts that were taken; close those that do not answer as they should."""
        from playwright.sync_api import Error

        taken, self._taken = self._taken, []
        for key, context in taken:
            try:
                usable = self._clean(context)
            except Error:
                usable = False
            if usable:
                self._free[key].append(context)
            else:
                context.close()

    def _clean(self, context: BrowserContext) -> bool:
        """Whether it has a page that the next test may use."""
        first, *others = context.pages or [None]
        for page in others:
            page.evaluate(FORGET)
            page.close()
        if first is None:
            return False
        context.unroute_all()
        first.unroute_all()
        if not self._tidied(first):
            first.evaluate(FORGET)
            first.goto("about:blank")
        first.mouse.move(NOWHERE, NOWHERE)
        context.clear_cookies()
        context.clear_permissions()
        return True
