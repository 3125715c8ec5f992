"""Who may come in: foreign pages, other names of this machine, no token, the viewer's token, and bodies that are too large."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")

from starlette.types import Receive, Scope, Send

from kraftlite.local.ledger import read_faults
from kraftlite.ui.app import MAX_BODY, Page
from kraftlite.ui.guard import Guard, Sessions, Tokens, WeakToken, answer
from kraftlite.ui.stream import MAX_STREAMS
from tests.harness.ui import Answer, ask, idle_page

HOST = {"Host": "127.0.0.1:8088"}
TOKENS = Tokens("operator-token", "viewer-token")
OPERATOR = {**HOST, "Authorization": "Bearer operator-token"}
VIEWER = {**HOST, "Authorization": "Bearer viewer-token"}
WRITE = {"Content-Type": "application/json", "X-Kraftlite": "1"}
KILL = json.dumps({"kind": "kill", "node": 2}).encode()


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Page:
    """The page of a cluster none of whose nodes runs."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return idle_page(tmp_path, TOKENS)


async def post(page: Page, headers: dict[str, str], body: bytes = KILL, path: str = "/api/v1/faults") -> Answer:
    return await ask(page.guard, path, method="POST", headers=headers, body=body)


def acted(page: Page) -> list[str]:
    return [fault.kind for fault in read_faults(Path(page.watcher.cluster.data_dir))]


async def session(page: Page, token: str = "operator-token", **headers: str) -> Answer:
    given = {**HOST, **WRITE, "Origin": "http://127.0.0.1:8088", **headers}
    return await post(page, given, json.dumps({"token": token}).encode(), "/api/v1/session")


@pytest.mark.parametrize("host", ["evil.example:8088", "127.0.0.1:8089", "127.0.0.1", "", "127.0.0.1.nip.io:8088"])
@pytest.mark.parametrize("path", ["/", "/app.js", "/api/v1/state", "/healthz"])
async def test_another_name_of_this_machine_is_refused(page: Page, host: str, path: str) -> None:
    """DNS rebinding: the browser believes that the foreign name is its own site."""
    found = await ask(page.guard, path, headers={**OPERATOR, "Host": host})
    assert found.status == 403


async def test_localhost_is_a_name_of_ours(page: Page) -> None:
    for host in ("localhost:8088", "LOCALHOST:8088", "[::1]:8088"):
        assert (await ask(page.guard, "/healthz", headers={"Host": host})).body == b"ok"


@pytest.mark.parametrize(
    "foreign",
    [
        {"Origin": "http://127.0.0.1:18779"},
        {"Origin": "null"},
        {"Origin": "http://evil.example"},
        {"Origin": "https://127.0.0.1:8088"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:8088"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
async def test_a_foreign_page_is_refused_although_the_browser_sends_the_cookie(page: Page, foreign: dict[str, str]) -> None:
    cookie = (await session(page)).headers["set-cookie"].partition(";")[0]
    headers = {**HOST, **WRITE, "Cookie": cookie, **foreign}
    assert (await post(page, headers)).status == 403
    assert (await ask(page.guard, "/api/v1/state", headers={**HOST, "Cookie": cookie, **foreign})).status == 403
    assert acted(page) == []


async def test_a_link_may_be_followed_from_another_page(page: Page) -> None:
    """As from a terminal in a browser. It gets the bare page, and nothing else may be asked for in this way."""
    followed = {**HOST, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert (await ask(page.guard, "/", headers=followed)).status == 200
    for path in ("/app.js", "/api/v1/state"):
        assert (await ask(page.guard, path, headers={**OPERATOR, **followed})).status == 403
    assert (await ask(page.guard, "/", headers={**followed, "Sec-Fetch-Mode": "no-cors"})).status == 403


async def test_a_write_needs_what_no_foreign_form_can_send(page: Page) -> None:
    cookie = (await session(page)).headers["set-cookie"].partition(";")[0]
    ours = {**HOST, **WRITE, "Cookie": cookie, "Origin": "http://127.0.0.1:8088"}
    for missing in ("Origin", "X-Kraftlite", "Cookie", "Content-Type"):
        given = {name: value for name, value in ours.items() if name != missing}
        assert (await post(page, given)).status in (401, 403, 415), missing
    assert acted(page) == []
    assert (await post(page, ours)).status == 409, "it gets as far as the node, which does not run"
    assert acted(page) == ["kill"], "what was refused there is in the ledger"


@pytest.mark.parametrize(
    "headers", [HOST, {**HOST, "Authorization": "Bearer no"}, {**HOST, "Cookie": "kraftlite_8088=no"}, {**HOST, "Cookie": '"'}]
)
async def test_no_token_no_facts(page: Page, headers: dict[str, str]) -> None:
    for path in ("/api/v1/state", "/api/v1/cluster", "/api/v1/stream", "/api/v1/stories", "/api/v1/timeline", "/api/v1/anything"):
        assert (await ask(page.guard, path, headers=headers)).status == 401, path
    assert (await post(page, {**headers, **WRITE, "Origin": "http://127.0.0.1:8088"})).status == 401
    assert acted(page) == []


async def test_the_viewer_looks_and_does_nothing(page: Page) -> None:
    assert (await ask(page.guard, "/api/v1/state", headers=VIEWER)).status == 200
    assert (await ask(page.guard, "/api/v1/cluster", headers=VIEWER)).json["faults"] == []
    assert (await post(page, {**VIEWER, **WRITE})).status == 403
    cookie = (await session(page, "viewer-token")).headers["set-cookie"].partition(";")[0]
    assert (await post(page, {**HOST, **WRITE, "Cookie": cookie, "Origin": "http://127.0.0.1:8088"})).status == 403
    assert acted(page) == []


async def test_a_token_becomes_a_cookie_that_scripts_cannot_read(page: Page) -> None:
    found = await session(page)
    assert found.status == 200 and found.json == {"role": "operator"}
    words = {part.strip().lower() for part in found.headers["set-cookie"].split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} <= words
    assert found.headers["set-cookie"].startswith("kraftlite_8088=") and "operator-token" not in found.headers["set-cookie"]
    assert (await session(page, "wrong")).status == 401
    assert (await session(page, Origin="http://evil.example")).status == 403


@pytest.mark.parametrize("foreign", ['theme={"a": 1}', "a[b]=1", "flag", "name=J\xf6rg", "x=a b", "path=/", "kraftlite_8088=old"])
async def test_cookies_of_other_servers_of_this_machine_do_not_end_the_session(page: Page, foreign: str) -> None:
    """A browser sends them all: cookies know no ports."""
    ours = (await session(page)).headers["set-cookie"].partition(";")[0]
    for cookie in (f"{foreign}; {ours}", f"{ours}; {foreign}", f"{foreign};{ours}"):
        assert (await ask(page.guard, "/api/v1/state", headers={**HOST, "Cookie": cookie})).status == 200, cookie


async def test_a_browser_does_not_name_the_port_of_http() -> None:
    async def inside(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, 200, {"role": scope["role"]})

    guard = Guard(inside, port=80, tokens=TOKENS, sessions=Sessions())
    for host in ("127.0.0.1", "localhost", "127.0.0.1:80"):
        given = {**WRITE, "Host": host, "Origin": f"http://{host}", "Authorization": "Bearer operator-token"}
        assert (await ask(guard, "/api/v1/faults", method="POST", headers=given)).json == {"role": "operator"}
    assert (await ask(guard, "/api/v1/state", headers=OPERATOR)).status == 403, "8088 is another port"


async def test_sessions_are_bounded(page: Page) -> None:
    first = (await session(page)).headers["set-cookie"].partition(";")[0]
    for _ in range(64):
        await session(page)
    assert (await ask(page.guard, "/api/v1/state", headers={**HOST, "Cookie": first})).status == 401


@pytest.mark.parametrize("header", ["Host", "Origin", "Cookie", "Authorization"])
async def test_a_header_that_comes_twice_is_refused(page: Page, header: str) -> None:
    value = {**OPERATOR, "Origin": "http://127.0.0.1:8088", "Cookie": "a=b"}[header]
    headers = [*OPERATOR.items(), (header, value), (header, value)]
    assert (await ask(page.guard, "/api/v1/state", headers=headers)).status == 400


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"x" * (MAX_BODY + 1), 413),
        (b"", 400),
        (b"[]", 400),
        (b"[" * 60_000, 400),
        (b"{}", 400),
        (b'{"kind": "explode", "node": 2}', 400),
        (b'{"kind": ["kill"], "node": 2}', 400),
        (b'{"kind": "kill", "node": true}', 400),
        (b'{"kind": "kill", "node": "2"}', 400),
        (b'{"kind": "kill", "node": 7}', 409),
        (b'{"kind": "cut", "node": 2}', 400),
        (b'{"kind": "cut", "node": 2, "other": 1}', 400),
        (b'{"kind": "cut", "node": 2, "other": "1", "for_ms": 5}', 400),
        (b'{"kind": "cut", "node": 2, "other": 1, "for_ms": 600001}', 400),
        (b'{"kind": "cut", "node": 2, "other": 1, "for_ms": true}', 400),
        (b'{"kind": "disk-slow", "node": 2, "for_ms": 5, "amount": 1}', 400),
        (b'{"kind": "api-error", "node": 2, "for_ms": 5, "api": "Produce", "error": "NO_SUCH"}', 400),
        (b'{"kind": "api-error", "node": 2, "for_ms": 5, "api": "Produce", "error": 6}', 400),
        (b'{"kind": "cut", "node": 9, "other": 1, "for_ms": 5}', 409),
        (b'{"kind": "end", "id": 7}', 400),
        (b'{"kind": "end", "id": ""}', 400),
    ],
)
async def test_bodies_that_are_no_fault(page: Page, body: bytes, status: int) -> None:
    found = await post(page, {**OPERATOR, **WRITE}, body)
    assert found.status == status and found.json["error"]
    assert acted(page) == []


async def test_a_fault_of_a_node_that_does_not_run_is_refused_and_in_the_ledger(page: Page) -> None:
    body = b'{"kind": "slow", "node": 2, "other": 1, "for_ms": 5000, "amount": 250000}'
    found = await post(page, {**OPERATOR, **WRITE}, body)
    assert (found.status, found.json["error"]) == (409, "node 2 and node 1 is not running")
    fault = read_faults(Path(page.watcher.cluster.data_dir))[-1]
    assert (fault.kind, fault.node, fault.other, fault.for_ms, fault.by.door) == ("slow", 2, 1, 5_000, "api")
    assert fault.failed == "node 2 and node 1 is not running"


async def test_a_viewer_ends_no_fault_and_an_operator_may(page: Page) -> None:
    assert (await post(page, {**VIEWER, **WRITE}, b'{"kind": "end"}')).status == 403
    assert (await post(page, {**OPERATOR, **WRITE}, b'{"kind": "end"}')).status == 202


async def test_faults_have_a_pace(page: Page) -> None:
    found = await asyncio.gather(*(post(page, {**OPERATOR, **WRITE}) for _ in range(5)))
    assert sorted(it.status for it in found) == [409, 429, 429, 429, 429]


@pytest.mark.parametrize("path", ["/", "/app.js", "/style.css", "/api/v1/state", "/nothing"])
async def test_every_answer_forbids_what_the_page_does_not_need(page: Page, path: str) -> None:
    found = await ask(page.guard, path, headers=OPERATOR)
    policy = found.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert found.headers["x-content-type-options"] == "nosniff" and found.headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in found.headers


@pytest.mark.parametrize("path", ["/../pyproject.toml", "/static/app.js", "/%2e%2e/app.py", "/app.py", "//etc/passwd"])
async def test_no_other_file_is_served(page: Page, path: str) -> None:
    assert (await ask(page.guard, path, headers=OPERATOR)).status == 404


@pytest.mark.parametrize(
    "query", ["kind=partition", "kind=node&name=x", "kind=bomb", "kind=partition&name=no-0", "since=99999999999999999999"]
)
async def test_questions_that_make_no_sense(page: Page, query: str) -> None:
    assert (await ask(page.guard, "/api/v1/stories", headers=OPERATOR, query=query)).status in (200, 400, 404)


class Reader:
    """A reader of the stream, who takes what comes only while `taking` is set."""

    def __init__(self, page: Page) -> None:
        self.taking = asyncio.Event()
        self.taking.set()
        self.got: list[bytes] = []
        self.status = 0
        self.gone = asyncio.Event()
        self.task = asyncio.create_task(self._read(page))

    async def _read(self, page: Page) -> None:
        scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "path": "/api/v1/stream",
            "root_path": "",
            "query_string": b"",
            "headers": [(name.lower().encode(), value.encode()) for name, value in OPERATOR.items()],
        }

        async def receive() -> dict[str, Any]:
            await self.gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            await self.taking.wait()
            self.status = message.get("status", self.status)
            self.got.append(message.get("body", b""))

        await page.guard(scope, receive, send)  # type: ignore[arg-type]


async def until(what: Any) -> None:
    async with asyncio.timeout(20):
        while True:
            if what():
                return
            await asyncio.sleep(0.01)


async def test_a_slow_reader_is_dropped_and_costs_nobody_else(page: Page) -> None:
    page.streams.stalled_s, page.streams.every_s, page.streams.calm_s, page.streams.quiet_s = 3.0, 0.02, 0.02, 0.02
    quick, slow = Reader(page), Reader(page)
    await until(lambda: len(slow.got) > 2)
    slow.taking.clear()
    before = len(quick.got)
    await until(lambda: len(quick.got) > before + 3)
    assert not slow.task.done(), "the other went on meanwhile"
    await until(lambda: slow.task.done())
    assert page.streams.dropped == 1 and page.streams.count == 1
    assert not quick.task.done()
    quick.gone.set()
    await until(lambda: quick.task.done())
    assert page.streams.count == 0 and not page.watcher.watched


async def test_readers_are_bounded(page: Page) -> None:
    readers = [Reader(page) for _ in range(MAX_STREAMS)]
    await until(lambda: page.streams.count == MAX_STREAMS)
    assert (await ask(page.guard, "/api/v1/stream", headers=OPERATOR)).status == 503
    page.streams.close()
    await until(lambda: all(reader.task.done() for reader in readers))


async def test_a_state_is_told_whole_and_partitions_only_when_they_change(page: Page) -> None:
    page.streams.every_s = page.streams.calm_s = page.streams.quiet_s = 0.01
    reader = Reader(page)
    await until(lambda: len(reader.got) > 5)
    reader.gone.set()
    await until(lambda: reader.task.done())
    text = b"".join(reader.got).decode()
    assert text.count("event: state\n") > 3 and text.count("event: partitions\n") == 1
    state = json.loads(text.split("data: ", 1)[1].split("\n", 1)[0])
    assert [node["life"] for node in state["nodes"]] == ["dead", "dead"] and state["partitions"]["total"] is None


def test_a_token_may_be_given_and_must_be_strong() -> None:
    given = "abcdefghijklmnopqrstuv"
    tokens = Tokens.of({"KRAFTLITE_UI_TOKEN": given})
    assert tokens.role(given) == "operator" and tokens.viewer != given
    assert Tokens.of({}) != Tokens.of({"KRAFTLITE_UI_TOKEN": ""})
    for weak in (given[:-1], "x" * 129, f"{given} ", f"{given}\n", "ü" * 22, "<" * 22):
        with pytest.raises(WeakToken, match="KRAFTLITE_UI_TOKEN: allowed are 22 to 128 letters"):
            Tokens.of({"KRAFTLITE_UI_TOKEN": weak})
