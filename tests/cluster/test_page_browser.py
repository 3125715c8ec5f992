"""The page in a real browser: a stranger kills the leader and reads why; nothing else on this machine may do it.

Needs playwright (pip) and a Chromium: KRAFTLITE_CHROMIUM, or `chromium` on the path (Debian: apt install chromium).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from kraftlite.local import faults
from kraftlite.local.ledger import read_faults
from kraftlite.ui import beside
from tests.harness.axe import violations
from tests.harness.browser import CHROMIUM, chromium, page_at
from tests.harness.local import Cluster, running, wait_for

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.xdist_group("shared-cluster"),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: set KRAFTLITE_CHROMIUM, or apt install chromium"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def links(cluster: Cluster) -> Iterator[dict[str, str]]:
    yield beside.start(cluster.data_dir)
    beside.stop(cluster.data_dir)


def test_a_stranger_kills_the_leader_and_reads_why(cluster: Cluster, topic: str, links: dict[str, str], browser: Any) -> None:
    """By keyboard alone, and without a request to anywhere else."""
    cluster.create_topic(topic, replication=3)
    assert not cluster.produce(topic, ["one"])
    name, old, complaints = f"{topic}-0", cluster.leader(topic), []
    page = page_at(browser, links["operator"], complaints)
    assert links["operator"].partition("#")[2] not in page.url, "the token leaves the address"
    page.wait_for_selector(f"th a:text-is('{name}')")
    page.get_by_role("button", name=f"Kill node {old}").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    assert f"kraftlite kill {old}" in dialog.inner_text() and "no leader that answers until" in dialog.inner_text()
    page.keyboard.press("Enter")
    page.wait_for_selector(f".headlines :text('broker {old} has no process, killed by')")
    new = cluster.wait_leader(topic, not_in=(old,))
    page.goto(f"{page.url.partition('#')[0]}#partition/{name}")
    page.wait_for_selector(f"b:text-is('leader {new}')")
    page.wait_for_selector(f".bars :text('{new} says: it has not fetched in epoch 1')")
    story = page.locator("summary", has_text=f"leader {old} → {new}")
    story.focus()
    page.keyboard.press("Enter")
    assert f"node {old} killed by" in page.locator("details[open] .chain").inner_text()
    assert f"{old} said last: I lead in epoch 0" in page.locator(".claims").inner_text()
    page.keyboard.press("f")
    page.wait_for_selector("h3:text-is('Ledger')")
    assert "(page)" in page.locator("section", has_text="Ledger").inner_text()
    page.wait_for_function("document.getElementById('live').textContent.includes('has no process')")
    assert complaints == []
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_every_view_fits_and_complains_of_nothing(
    cluster: Cluster, links: dict[str, str], browser: Any, scheme: str, width: int
) -> None:
    complaints: list[str] = []
    page = page_at(browser, links["viewer"], complaints, viewport={"width": width, "height": 844}, color_scheme=scheme)
    for view in ("overview", "partition", "timeline", "quorum", "faults", "clients"):
        page.evaluate("view => { location.hash = view; }", view)
        page.wait_for_selector(f".view.{view} h2")
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), view
        assert page.locator("main h2").count() >= 1 and page.locator("main").count() == 1
        assert page.get_by_role("button", name="Kill").count() == 0, "the viewer has no such button"
    assert complaints == []
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_axe_finds_nothing_wrong(cluster: Cluster, links: dict[str, str], browser: Any, scheme: str, width: int) -> None:
    """With all that an operator may do, and the question before it is done."""
    page = page_at(browser, links["operator"], [], viewport={"width": width, "height": 844}, color_scheme=scheme)
    for view in ("overview", "partition", "timeline", "quorum", "faults", "clients"):
        page.evaluate("view => { location.hash = view; }", view)
        page.wait_for_selector(f".view.{view} h2")
        assert violations(page) == [], view
    page.keyboard.press("o")
    page.wait_for_selector(".view.overview")
    page.get_by_role("button", name=f"Kill node {cluster.brokers[0]}").click()
    page.wait_for_selector("dialog[open]")
    assert violations(page) == []
    page.context.close()


_TRY = """async ([base, node]) => {
    const body = JSON.stringify({kind: "kill", node});
    const simple = {method: "POST", credentials: "include", mode: "no-cors", headers: {"Content-Type": "text/plain"}, body};
    const ours = {"Content-Type": "application/json", "X-Kraftlite": "1"};
    const tries = [
        ["api/v1/state", {credentials: "include"}],
        ["api/v1/faults", simple],
        ["api/v1/faults", {method: "POST", credentials: "include", headers: ours, body}],
    ];
    const found = [];
    for (const [path, options] of tries) {
        try {
            const answer = await fetch(base + path, options);
            found.push(answer.type === "opaque" ? "opaque" : `read ${answer.status}`);
        } catch (error) {
            found.push("refused");
        }
    }
    return found;
}"""


def test_a_link_is_cut_and_healed_by_the_form(browser: Any) -> None:
    """The ledger tells it, the nodes have it, and the command beside the button says the same."""
    complaints: list[str] = []
    with running(controllers=1, brokers=1, config={"kraftlite.faults.enable": "true"}) as small:
        page = page_at(browser, beside.start(small.data_dir)["operator"], complaints)
        try:
            page.keyboard.press("f")
            page.get_by_label("what", exact=True).select_option("slow")
            page.get_by_label("for (s)").fill("300")
            page.get_by_label("for (s)").press("Tab")
            page.wait_for_selector("code:text-is('kraftlite fault slow 2 1 250ms --for 300s')")
            page.get_by_role("button", name="Do it").click()
            page.wait_for_selector("td:text-is('node 2 and node 1: slow link (250 ms later)')")
            assert {(it.node, it.state.fault.amount) for it in faults.listed(small.data_dir)} == {(1, 250_000), (2, 250_000)}
            page.get_by_role("button", name="End the slow of node 2").click()
            wait_for("it has ended", lambda: not faults.listed(small.data_dir))
            page.wait_for_selector("td:has-text('end by')")
            page.get_by_label("what", exact=True).select_option("disk-full")
            page.wait_for_selector(".warn:has-text('all directories of node 2, that of its metadata log, too')")
            page.get_by_label("what", exact=True).select_option("api-error")
            page.wait_for_selector(".warn:has-text('that of its metadata log')", state="detached")
            page.get_by_label("code", exact=True).fill("NO_SUCH_CODE")
            page.get_by_label("code", exact=True).press("Tab")
            page.get_by_role("button", name="Do it").click()
            page.wait_for_selector("[role=alert]:has-text('allowed is a code of Kafka')")
            assert [it for it in complaints if "400" not in it] == []
        finally:
            page.context.close()
            beside.stop(small.data_dir)


class _Foreign(BaseHTTPRequestHandler):
    """A page of somebody else, at another port of this machine."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>foreign</title>")

    def log_message(self, format: str, *args: Any) -> None:
        return


def test_a_page_of_another_port_can_neither_look_nor_kill(cluster: Cluster, links: dict[str, str], browser: Any) -> None:
    """The browser sends the cookie to every port of this machine; the guard must not fall for it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Foreign)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        page = page_at(browser, links["operator"], [])
        base = links["operator"].partition("#")[0]
        before = len(read_faults(cluster.data_dir))
        page.goto(f"http://127.0.0.1:{server.server_address[1]}/")
        victim = cluster.brokers[0]
        assert page.evaluate(_TRY, [base, victim]) == ["refused"] * 3
        wait_for("the page still serves", lambda: beside.find(cluster.data_dir) is not None)
        assert len(read_faults(cluster.data_dir)) == before and cluster.node(victim).state == "running"
        page.context.close()
    finally:
        server.shutdown()
        server.server_close()
