"""A recording in a real browser: one file, opened without a server, rewound and played."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftlite.ui.export import html_of
from tests.harness.axe import violations
from tests.harness.browser import chromium, page_at
from tests.harness.local import wait_for
from tests.harness.recordings import hostile, outage, split


@pytest.fixture(scope="module")
def browser(file: Path) -> Iterator[Any]:
    """Started behind the run of the file: both have a loop of this thread."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("html") / "page.html"
    path.write_text(html_of(split()[1]))
    return path


_SEEK = """ms => { const it = document.getElementById("scrubber"); it.value = ms; it.dispatchEvent(new Event("input")); }"""


def seconds(page: Any) -> float:
    """The moment that is shown."""
    return float(page.locator(".moment").inner_text().removesuffix(" s"))


def times(chart: Any) -> tuple[float, float]:
    """What the timeline shows, in seconds."""
    first, last = re.findall(r"([\d.]+) s", chart.get_attribute("aria-label"))
    return float(first), float(last)


def test_a_seed_is_rewound_in_the_browser(browser: Any, file: Path) -> None:
    complaints: list[str] = []
    page = page_at(browser, file.as_uri(), complaints)
    page.evaluate(_SEEK, 6800)
    page.wait_for_selector(".headlines :text('1 and 2 each say that they lead the quorum')")
    assert page.locator(".star").all_inner_texts() == ["★ active", "★ active"]
    page.keyboard.press("q")
    page.wait_for_selector(".view.quorum tbody tr")
    rows = [row.split("\t") for row in page.locator(".view.quorum tbody tr").all_inner_texts()]
    assert [row[2:4] for row in rows[:3]] == [["★ active", "1"], ["★ active", "2"], ["follower", "2"]]
    page.evaluate(_SEEK, 7400)
    page.wait_for_selector(".headlines :text('everybody')")
    page.keyboard.press("t")
    page.wait_for_selector("svg.chart title", state="attached")
    titles = page.locator("svg.chart title").all_text_contents()
    spans = [re.search(r"active, epoch \d, ([\d.]+) s – (?:([\d.]+) s|now)", it) for it in titles if it.startswith("quorum")]
    assert spans[0] and spans[1] and round(float(spans[0][2]) - float(spans[1][1]), 3) == 0.999
    shown = page.locator("svg.chart")
    first, last = times(shown)
    for key in "++d":
        page.keyboard.press(key)
    began, ended = times(shown)
    assert first < began < ended < last and ended - began < 0.3 * (last - first), "closer, and later"
    page.get_by_role("button", name="all", exact=True).click()
    page.evaluate("document.activeElement.blur()")
    assert times(shown) == (first, last)
    page.keyboard.press("Home")
    page.wait_for_selector(".moment:text-is('0.000 s')")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".moment:not(:text-is('0.000 s'))")
    page.keyboard.press("]")
    page.keyboard.press(" ")
    wait_for("it plays", lambda: seconds(page) > 0.5)
    page.keyboard.press("f")
    page.keyboard.press("End")
    page.wait_for_selector("li:has-text('all faults end')")
    page.keyboard.press("o")
    page.locator(".stories summary", has_text="1 → 2").click()
    page.get_by_role("button", name="Go to step 1").first.click()
    wait_for("the moment of the step", lambda: 4 < seconds(page) < 7)
    assert complaints == []
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_every_view_of_a_recording_fits(browser: Any, file: Path, scheme: str, width: int) -> None:
    complaints: list[str] = []
    page = page_at(browser, file.as_uri(), complaints, viewport={"width": width, "height": 844}, color_scheme=scheme)
    for view in ("overview", "partition", "timeline", "quorum", "faults"):
        page.evaluate("view => { location.hash = view; }", view)
        page.wait_for_selector(f".view.{view} h2")
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), view
    assert page.get_by_role("button", name="Kill").count() == 0
    assert complaints == []
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_axe_finds_nothing_wrong(browser: Any, file: Path, scheme: str, width: int) -> None:
    """At a moment at which two lead, in all views, with a story open, and in the help."""
    page = page_at(browser, file.as_uri(), [], viewport={"width": width, "height": 844}, color_scheme=scheme)
    page.evaluate(_SEEK, 6800)
    page.locator(".stories summary").first.click()
    for view in ("overview", "partition", "timeline", "quorum", "faults"):
        page.evaluate("view => { location.hash = view; }", view)
        page.wait_for_selector(f".view.{view} h2")
        assert violations(page) == [], view
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    assert violations(page) == []
    page.context.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])
def test_the_view_of_a_client_is_rewound(browser: Any, tmp_path: Path, scheme: str, width: int) -> None:
    """While it misses an acknowledgement its outage lasts, and before nothing is told of it."""
    path, complaints = tmp_path / "outage.html", list[str]()
    path.write_text(html_of(outage()))
    page = page_at(browser, path.as_uri(), complaints, viewport={"width": width, "height": 844}, color_scheme=scheme)
    page.keyboard.press("c")
    page.evaluate(_SEEK, 2_000)
    page.wait_for_selector(".view.clients :text('None: every acknowledgement')")
    page.evaluate(_SEEK, 5_000)
    page.wait_for_selector(".headlines :text('the client test has no acknowledgement from orders-0')")
    row = page.locator(".view.clients tbody tr").inner_text()
    assert "– now" in row and "2.0 s" in row, "it is told as it was then"
    page.keyboard.press("End")
    page.wait_for_selector(".view.clients tbody tr :text('3.5 s')")
    assert "– now" not in page.locator(".view.clients tbody tr").inner_text()
    assert page.locator(".view.clients").get_by_role("button").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert violations(page) == [] and complaints == []
    page.context.close()


def test_a_step_leads_to_its_record_and_a_vote_is_told(browser: Any, file: Path) -> None:
    complaints: list[str] = []
    page = page_at(browser, file.as_uri(), complaints)
    page.keyboard.press("End")
    page.locator(".stories summary", has_text="broker").first.click()
    link = page.locator("details[open] td a").first
    offset = link.inner_text()
    link.click()
    page.wait_for_selector(f".view.quorum tr.here th:has-text('{offset}')")
    told = page.locator("section", has=page.locator("#h-votes")).inner_text()
    assert "node 2" in told and "3 ✔ yes" in told
    assert "itself in 2" in page.locator(".view.quorum table").first.inner_text()
    page.evaluate(_SEEK, 0)
    page.wait_for_function("!document.getElementById('h-votes')")
    assert complaints == []
    page.context.close()


def test_axe_finds_what_is_wrong(browser: Any, file: Path) -> None:
    page = page_at(browser, file.as_uri(), [])
    page.evaluate("document.getElementById('scrubber').removeAttribute('aria-label')")
    assert [it.partition(":")[0] for it in violations(page)] == ["label"]
    page.context.close()


def test_hostile_words_are_words(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "hostile.html"
    path.write_text(html_of(hostile()))
    complaints: list[str] = []
    page = page_at(browser, path.as_uri(), complaints)
    page.keyboard.press("End")
    assert page.locator("th a").inner_text() == "<img src=x onerror=alert(1)>-0" and page.locator("img").count() == 0
    page.keyboard.press("c")
    page.wait_for_selector(".view.clients h3:text-is('<img src=x onerror=alert(1)> → </script><b>')")
    assert page.locator("img, .view.clients b b, .view.clients i").count() == 0
    assert complaints == []
    page.context.close()
