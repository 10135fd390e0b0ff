"""A headless Chromium, and what tests want to know of a page in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


def chromium_path() -> str:
    """Where Chromium is. Without it a test fails in CI, and is skipped where a user has none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        reason = "the dashboard's tests need chromium: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@contextmanager
def browser() -> Iterator[Any]:
    """A playwright Browser. While it is open, its thread runs an event loop, so tests cannot run their own."""
    path = chromium_path()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield opened
        finally:
            opened.close()


class WatchedPage:
    """A page whose complaints and requests are noted. timeline, blocks: what those canvases say they show."""

    def __init__(self, opened: Any, **settings: Any) -> None:
        self.page = opened.new_page(**settings)
        self.page.set_default_timeout(60_000)
        self.complaints: list[str] = []
        self.urls: list[str] = []
        self.page.on("console", lambda message: self._note(message.type, message.text))
        self.page.on("pageerror", lambda error: self._note("error", str(error)))
        self.page.on("request", lambda request: self.urls.append(request.url))

    def open(self, url: str, state: str = "live") -> None:
        self.page.goto(url)
        self.wait_for_state(state)

    def wait_for_state(self, state: str) -> None:
        self.page.wait_for_selector(f'#status[data-state="{state}"]')

    def wait_until(self, expression: str) -> None:
        """Wait until a JavaScript expression is true. (Looked at from outside: the page's own policy lets no text
        be run as a script, which is how playwright would wait.)
        """
        for _ in range(1200):
            if self.page.evaluate(expression):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"it never came to {expression}")

    def wait_for_kinds(self, *kinds: str) -> None:
        """Wait until the timeline shows cells of all these kinds."""
        for kind in kinds:
            self.wait_until(
                f"document.getElementById('timeline').dataset.kinds?.split(' ').includes('{kind}')"
            )

    def wait_for_plots(self) -> None:
        """Wait until plotly has drawn every plot."""
        self.wait_until("document.querySelectorAll('.plot .main-svg').length >= 6")

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)

    def data(self, canvas: str) -> dict[str, str]:
        return self.page.evaluate(f"({{...document.getElementById('{canvas}').dataset}})")

    def __enter__(self) -> WatchedPage:
        return self

    def __exit__(self, *_: object) -> None:
        self.page.close()

    def _note(self, kind: str, text: str) -> None:
        if kind not in ("log", "info", "debug"):
            self.complaints.append(f"{kind}: {text}")
