"""What if, in a real browser: by keyboard, with both runs side by side, and nothing wrong with it by axe."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from tests.harness.axe import violations
from tests.harness.browser import chromium, page_at
from tests.harness.recordings import split

_SEEK = """ms => { const it = document.getElementById("scrubber"); it.value = ms; it.dispatchEvent(new Event("input")); }"""


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    path = tmp_path_factory.mktemp("seed") / "seed.kljsonl"
    path.write_bytes(split()[0])
    with _serving(path) as found:
        yield found


@contextlib.contextmanager
def _serving(path: Path) -> Iterator[dict[str, str]]:
    command = [sys.executable, "-m", "kraftlite", "ui", str(path), "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield json.loads(server.stdout.readline())
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(60)


@pytest.fixture(scope="module")
def browser(links: dict[str, str]) -> Iterator[Any]:
    with chromium() as found:
        yield found


def test_a_shorter_cut_by_keyboard(browser: Any, links: dict[str, str]) -> None:
    complaints: list[str] = []
    page = page_at(browser, links["operator"], complaints)
    page.keyboard.press("w")
    page.wait_for_selector(".view.whatif h2")
    assert page.locator("#run-again").is_disabled(), "nothing is changed yet"
    page.get_by_label("Fault 1", exact=True).focus()
    page.keyboard.press("Control+a")
    page.keyboard.type("3000 isolate controller for 1000")
    assert "--what-if '1=3000 isolate controller for 1000'" in page.locator(".view.whatif code").inner_text()
    page.locator("#run-again").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#h-part", timeout=240_000)
    said = page.locator(".view.whatif [role=status]").inner_text()
    assert said.startswith("Both runs have ended. Both are the same until ")
    rows = dict(row.split("\t", 1) for row in page.locator(".view.whatif tbody tr").all_inner_texts())
    assert rows["two active controllers at once"] == "1.0 s\tnever"
    page.evaluate(_SEEK, 6800)
    first, second = page.locator(".side .headlines").all_inner_texts()
    assert "1 and 2 each say that they lead the quorum" in first and "each say" not in second
    assert page.locator(".side svg.chart").count() == 2
    page.get_by_role("button", name="what if").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("o")
    page.wait_for_selector(".view.overview")
    assert page.locator(".star").count() == 1, "the other views show the changed run"
    page.keyboard.press("w")
    page.get_by_label("A new fault").fill("1 dance 4")
    page.locator("#run-again").click()
    page.wait_for_selector("[role=alert]:has-text(\"unknown fault 'dance'\")")
    assert [it for it in complaints if "400" not in it] == []
    for scheme in ("light", "dark"):
        for width in (1440, 390):
            page.set_viewport_size({"width": width, "height": 844})
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), width
            assert violations(page) == []
    page.context.close()


def test_who_may_only_look_has_no_button(browser: Any, links: dict[str, str]) -> None:
    page = page_at(browser, links["viewer"], [])
    page.keyboard.press("w")
    page.wait_for_selector(".view.whatif :text('for looking only')")
    assert page.locator("#run-again").count() == 0
    page.context.close()
