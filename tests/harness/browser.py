"""A Chromium for tests of pages: KRAFTLITE_CHROMIUM, or `chromium` on the path (Debian: apt install chromium)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

CHROMIUM: Final = os.environ.get("KRAFTLITE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; skips the test, with the reason, where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: set KRAFTLITE_CHROMIUM, or apt install chromium")
    with api.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield found
        finally:
            found.close()


def page_at(browser: Any, address: str, complaints: list[str], **context: Any) -> Any:
    """The page at an address that begins with its own base. Errors, warnings and requests to elsewhere are `complaints`."""
    page = browser.new_context(**context).new_page()
    page.set_default_timeout(60_000)
    page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    page.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
    base = address.partition("#")[0]
    page.on("request", lambda request: None if request.url.startswith(base) else complaints.append(f"foreign: {request.url}"))
    page.goto(address)
    page.wait_for_selector(".headlines li")
    return page
