"""Looking at a page as a person would, and noticing whatever goes wrong in it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page

WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
VIEWS = ("overview", "hosts", "dead", "skipped", "pages", "items", "controls")
PATIENCE_S = 15.0
GO = """hash => new Promise(routed => {
    const before = location.href;
    addEventListener("hashchange", () => routed(), { once: true });
    location.hash = hash;
    if (location.href === before) routed();
})"""


class Watched:
    """One page in a browser of its own. No error, no dialog, and no request to anybody else is allowed."""

    def __init__(self, browser: Browser, url: str, options: Mapping[str, Any]) -> None:
        self._options = {"viewport": WIDE, "locale": "en-GB"} | dict(options)
        self._browser = browser
        self._url = url
        self._context: BrowserContext | None = None
        self.trouble: list[str] = []

    def __enter__(self) -> Page:
        self._context = self._browser.new_context(**self._options)
        page = self._context.new_page()
        page.set_default_timeout(PATIENCE_S * 1000)
        page.on("console", lambda said: self._hear(said.type, said.text))
        page.on("pageerror", lambda error: self.trouble.append(str(error)))
        page.on("dialog", self._refuse)
        page.on("request", lambda asked: self._own(asked.url))
        page.goto(self._url)
        return page

    def _hear(self, kind: str, text: str) -> None:
        """The browser tells of a refusal (400) as well, which the page says to people."""
        if kind in ("error", "warning") and not text.endswith("with a status of 400 (Bad Request)"):
            self.trouble.append(text)

    def _refuse(self, dialog: Any) -> None:
        self.trouble.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def _own(self, url: str) -> None:
        if url.split("/")[2] != self._url.split("/")[2]:
            self.trouble.append(f"a request to {url}")

    def __exit__(self, kind: object, *_: object) -> None:
        assert self._context is not None
        self._context.close()
        if kind is None:
            assert self.trouble == []


def comes(page: Page, expression: str, arg: Any = None) -> Any:
    """Wait until this JavaScript is true: Playwright's own way needs eval, which the page forbids."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := page.evaluate(expression, arg)):
        assert time.monotonic() < deadline, f"not in time: {expression}"
        page.wait_for_timeout(30)
    return found


def shown(page: Page, name: str) -> Page:
    """The page with this view open and filled."""
    comes(page, "() => document.querySelector('nav [aria-current]')")
    page.evaluate(GO, f"#{name}")
    comes(page, "() => document.querySelector('main h1') && !document.querySelector('main[aria-busy]')")
    return page


def notice(page: Page, text: str) -> None:
    """Wait until the page says this."""
    page.wait_for_selector(f".notice:has-text({text!r})")
