"""Attacks on the page through a real browser: what is written in the ledger and in traces, pages of somebody else, and names that
lead here."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from kraftlite.local.ledger import read_faults
from kraftlite.local.state import LocalCluster
from kraftlite.ui.hear import now_ms
from tests.harness.browser import CHROMIUM, page_at
from tests.harness.page_thread import serving
from tests.harness.ui import idle_cluster

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: set KRAFTLITE_CHROMIUM, or apt install chromium")

REBOUND = "rebound.example"
"""A foreign name that leads to this machine, as one whose owner has changed where it leads."""
MARKUP = "<img src=x onerror=window.hit=1><svg onload=window.hit=1></svg><script>window.hit=1</script>"
SCRIPT = "javascript:window.hit=1"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    rules = f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1"
    with api.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", rules])
        yield found
        found.close()


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalCluster:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return idle_cluster(tmp_path)


@contextmanager
def foreign(text: str) -> Iterator[tuple[str, list[str]]]:
    """The address of somebody else's page at another port, and what was asked of its server."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/", asked
    finally:
        server.shutdown()
        server.server_close()


def test_what_files_say_is_text(cluster: LocalCluster, browser: Any) -> None:
    """The ledger is written by whoever may write into the directory, and traces have what clients called themselves."""
    at, node = now_ms() - 5_000, cluster.nodes[-1]
    lines: list[dict[str, Any]] = []
    for number, kind in enumerate(("kill", "cut", "api-error", "{0.__class__}", MARKUP)):
        asked = {"ts": at + number, "node": node.id, "event": "fault.asked", "id": f"{MARKUP}{number}", "kind": kind}
        lines.append({**asked, "who": MARKUP, "door": MARKUP, "what": MARKUP, "other": 1, "for_ms": 60_000})
    lines.append({"ts": at + 9, "node": node.id, "event": "fault.failed", "id": f"{MARKUP}1", "why": MARKUP})
    (Path(cluster.data_dir) / "faults.ledger").write_text("".join(json.dumps(it) + "\n" for it in lines))
    told: list[dict[str, Any]] = [
        {"event": "node.starting", "roles": MARKUP, "cluster_id": MARKUP, "version": SCRIPT},
        {"event": "node.faulted", "where": MARKUP, "reason": MARKUP, "trace": MARKUP},
        {"event": "node.stopping", "reason": MARKUP},
        {"event": "partition.leader_started", "topic": MARKUP, "partition": 0, "leader_epoch": 1, "partition_epoch": 1},
        {"event": MARKUP, "reason": MARKUP},
    ]
    trace = "".join(json.dumps({"ts": at + number, "node": node.id, **it}) + "\n" for number, it in enumerate(told))
    node.trace_path.write_text(trace + MARKUP + "\n")
    with serving(Path(cluster.data_dir)) as link:
        complaints: list[str] = []
        page = page_at(browser, str(link.operator), complaints)
        for key in ("f", "o", "p", "t", "q", "c"):
            page.keyboard.press(key)
            page.wait_for_selector(".headlines li")
            assert page.locator("img, script:not([src]), svg[onload]").count() == 0, key
            assert page.locator("[onerror], [onload], a[href^=javascript]").count() == 0, key
        page.keyboard.press("f")
        page.wait_for_function("text => document.querySelector('main').innerText.includes(text)", arg=MARKUP)
        assert page.evaluate("window.hit") is None
        assert [it for it in complaints if "404 (Not Found)" not in it] == []
        page.context.close()


_TRIES = """async ([base, body]) => {
    const found = {};
    const settle = (name, value) => { found[name] = value; };
    const loads = (tag, url) => new Promise((done) => {
        const it = document.createElement(tag);
        it.onload = () => done("loaded");
        it.onerror = () => done("refused");
        it[tag === "link" ? "href" : "src"] = url;
        if (tag === "link") it.rel = "stylesheet";
        document.body.append(it);
    });
    settle("stream", await new Promise((done) => {
        const source = new EventSource(base + "api/v1/stream?q=", {withCredentials: true});
        source.onmessage = source.onopen = () => done("read");
        source.addEventListener("state", () => done("read"));
        source.onerror = () => { source.close(); done("refused"); };
    }));
    settle("script", await loads("script", base + "app.js"));
    settle("json as script", await loads("script", base + "api/v1/state"));
    settle("style", await loads("link", base + "style.css"));
    settle("image", await loads("img", base + "icon.svg"));
    for (const method of ["POST", "DELETE", "PUT"]) {
        const headers = {"Content-Type": "application/json", "X-Kraftlite": "1"};
        const write = fetch(base + "api/v1/faults", {method, credentials: "include", headers, body});
        settle(method, await write.then(() => "read", () => "refused"));
    }
    settle("beacon", navigator.sendBeacon(base + "api/v1/faults", body) ? "sent" : "refused");
    await new Promise((done) => {
        const frame = Object.assign(document.createElement("iframe"), {name: "sink", onload: done});
        const where = {method: "post", action: base + "api/v1/faults", target: "sink", enctype: "text/plain"};
        const form = Object.assign(document.createElement("form"), where);
        const field = Object.assign(document.createElement("input"), {name: body.slice(0, -1) + ', "x": "', value: '"}'});
        form.append(field);
        document.body.append(frame, form);
        form.submit();
        setTimeout(done, 3000);
    });
    const other = window.open(base);
    await new Promise((done) => setTimeout(done, 1000));
    const readable = () => { try { return Boolean(other && !other.closed && other.document); } catch { return false; } };
    settle("window", readable() ? "read" : "refused");
    return found;
}"""


def test_a_page_of_somebody_else_reads_nothing_and_does_nothing(cluster: LocalCluster, browser: Any) -> None:
    """At another port of this machine, for which the browser sends the same cookies, by every means that a page has."""
    with serving(Path(cluster.data_dir)) as link, foreign("<!doctype html><title>foreign</title><body>") as (address, _):
        page = page_at(browser, str(link.operator), [])
        assert any(it["name"].startswith("kraftlite_") for it in page.context.cookies(link.address))
        page.goto(address)
        body = json.dumps({"kind": "kill", "node": cluster.nodes[-1].id})
        found = page.evaluate(_TRIES, [link.address, body])
        assert found.pop("beacon") == "sent", "it is sent, and refused there"
        assert set(found.values()) == {"refused"}, found
        assert read_faults(Path(cluster.data_dir)) == [], "none of them came as far as the gate"
        page.goto(link.address)
        page.wait_for_selector(".headlines li")
        page.context.close()


def test_it_cannot_be_put_into_a_frame(cluster: LocalCluster, browser: Any) -> None:
    """A frame over which somebody else draws would let one press a button unawares."""
    with (
        serving(Path(cluster.data_dir)) as link,
        foreign(f"<!doctype html><title>f</title><iframe id=f src='{link.address}'></iframe>") as (address, _),
    ):
        page = page_at(browser, str(link.operator), [])
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.goto(address)
        frame = page.query_selector("#f").content_frame()
        assert frame.query_selector("main") is None
        assert any("frame-ancestors" in it or "403" in it for it in said), said
        page.context.close()


def test_a_name_that_leads_here_is_not_ours(cluster: LocalCluster, browser: Any) -> None:
    """DNS rebinding: to the browser the foreign name and this server are one site, and its page may read what it gets."""
    with serving(Path(cluster.data_dir)) as link:
        page = browser.new_context().new_page()
        port = link.address.rstrip("/").rpartition(":")[2]
        base, token = f"http://{REBOUND}:{port}", str(link.operator).partition("#")[2]
        answer = page.goto(f"{base}/")
        assert answer.status == 403 and "the Host of the request is another one" in page.content()
        read = """async ([path, options]) => { const it = await fetch(path, options); return [it.status, await it.text()]; }"""
        write = {"Content-Type": "application/json", "X-Kraftlite": "1"}
        for path, options in (
            ("/api/v1/state", {}),
            ("/api/v1/state", {"headers": {"Authorization": f"Bearer {token}"}}),
            ("/api/v1/session", {"method": "POST", "headers": write, "body": json.dumps({"token": token})}),
            ("/healthz", {}),
        ):
            status, text = page.evaluate(read, [path, options])
            assert status == 403 and "nodes" not in text, path
        assert page.context.cookies() == []
        page.context.close()


def test_the_token_goes_nowhere(cluster: LocalCluster, browser: Any) -> None:
    """Not into the address that is left, nor the history, a Referer, or what scripts can read of cookies and stores."""
    with serving(Path(cluster.data_dir)) as link, foreign("<!doctype html><title>foreign</title>") as (address, asked):
        context = browser.new_context()
        page = context.new_page()
        requests: list[Any] = []

        def collect(request: Any) -> None:
            requests.append(request)

        page.on("request", collect)
        page.goto(str(link.operator))
        page.wait_for_selector(".headlines li")
        token = str(link.operator).partition("#")[2]
        with_token = [it for it in requests if token in it.url or token in str(it.all_headers())]
        assert with_token == [], [it.url for it in with_token]
        left = page.evaluate(
            "[location.href, document.cookie, JSON.stringify(localStorage), JSON.stringify(sessionStorage)].join()"
        )
        assert token not in left and "kraftlite_" not in left
        page.evaluate("address => { location.href = address; }", address)
        page.wait_for_url(address)
        assert page.evaluate("document.referrer") == "" and token not in "".join(asked)
        page.go_back()
        page.wait_for_selector(".headlines li")
        assert token not in page.url
        context.close()
