"""Nodes that are known by their addresses alone: who they are is what they say, and nothing is done to them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.rpc.transport import GrpcTransport
from kraftlite.ui import serve
from kraftlite.ui.acts import Acts
from kraftlite.ui.app import Page
from kraftlite.ui.guard import Tokens, WeakToken
from kraftlite.ui.hear import now_ms
from kraftlite.ui.serve import Link, listen
from kraftlite.ui.watch import Watcher, watching
from kraftlite.ui.whom import MAX_ADDRESSES, AtAddresses, addresses_of
from kraftlite.ui.words import ALIVE
from tests.harness.ui import ask
from tests.unit.rpc.test_watch import ANY, World
from tests.unit.ui.test_hear import until
from tests.unit.ui.test_serve import request

GIVEN = "abcdefghijklmnopqrstuv"


class Node:
    """One that answers at an address of its own."""

    def __init__(self, node_id: int, *roles: str, cluster: str = "c") -> None:
        self.world = World()
        self.say(node_id, *roles, cluster=cluster)
        self.endpoint = ANY
        self._server: GrpcTransport | None = None

    def say(self, node_id: int, *roles: str, cluster: str = "c") -> None:
        status = self.world.status
        self.world.status = replace(status, node_id=NodeId(node_id), roles=roles or ("broker",), cluster_id=cluster)

    async def start(self) -> None:
        self._server = GrpcTransport(tracer=self.world)
        self.endpoint = await self._server.serve(self.endpoint, dict(self.world.introspection.handlers()))

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.close()
        self._server = None


@asynccontextmanager
async def answering(*nodes: Node) -> AsyncIterator[None]:
    try:
        for node in nodes:
            await node.start()
        yield
    finally:
        for node in nodes:
            await node.stop()


@asynccontextmanager
async def watched(addresses: Sequence[Endpoint], traces: Sequence[Path] = ()) -> AsyncIterator[Watcher]:
    async with watching(AtAddresses(addresses, traces=traces)) as watcher:
        task = asyncio.create_task(watcher.run())
        try:
            yield watcher
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_who_answers_is_shown_by_its_own_words() -> None:
    one, four = Node(1, "controller"), Node(4)
    four.world.add(0, 1)
    async with answering(one, four), watched([one.endpoint, four.endpoint]) as watcher:
        await until(lambda: all(it.life(now_ms()) == ALIVE for it in watcher.nodes.values()) and len(watcher.nodes) == 2)
        await until(lambda: len(watcher.nodes[4].replicas) == 2)
        assert watcher.nodes[1].roles == ("controller",) and watcher.nodes[4].process == "unknown"
        assert (watcher.cluster.cluster_id, watcher.cluster.controllers, watcher.cluster.brokers) == ("c", 1, 1)
        state = watcher.state()
        assert state["gone"] is None and [node["kafka"] for node in state["nodes"]] == [None, None]
        await four.stop()
        await until(lambda: watcher.nodes[4].life(now_ms()) == "silent")
        assert len(watcher.nodes[4].replicas) == 2, "its last words stay"


async def test_who_does_not_answer_is_told_until_it_does() -> None:
    one, late = Node(1, "controller"), Node(2, "controller")
    async with answering(one, late):
        await late.stop()
        async with watched([one.endpoint, late.endpoint]) as watcher:
            await until(lambda: set(watcher.nodes) == {1} and "has not answered yet: " in str(watcher.state()["gone"]))
            assert str(watcher.state()["gone"]).startswith(f"{late.endpoint} has not")
            await late.start()
            await until(lambda: set(watcher.nodes) == {1, 2})
            await until(lambda: watcher.state()["gone"] is None)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (Node(5, cluster="d\x1b"), "belongs to another cluster, d\\x1b"),
        (Node(4), "is node 4, as "),
        (Node(5, "<b>"), "says of itself what no node says"),
    ],
)
async def test_who_does_not_belong_to_it_is_told_and_not_shown(other: Node, why: str) -> None:
    four = Node(4)
    async with answering(four):
        whom = AtAddresses([four.endpoint])
        async with whom.connect() as transport:
            await whom.find(transport)
            async with answering(other):
                await whom._ask(transport, other.endpoint)
        assert [node.id for node in whom.look().nodes] == [4]
        assert str(whom.unheard).startswith(f"{other.endpoint} {why}")


async def test_another_node_at_the_address_of_one_is_not_taken_for_it() -> None:
    four = Node(4)
    async with answering(four), watched([four.endpoint]) as watcher:
        await until(lambda: 4 in watcher.nodes and watcher.nodes[4].status)
        heard = watcher.nodes[4].status
        await four.stop()
        four.say(9)
        four.world.add(3)
        await four.start()
        await until(lambda: "node 9 answers there" in str(watcher.nodes[4].error))
        assert watcher.nodes[4].status == heard and not watcher.nodes[4].replicas


async def test_traces_that_are_given_tell_the_stories(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    event = {"ts": now_ms(), "node": 4, "event": "node.started", "incarnation": "a", "roles": "broker", "version": "1"}
    trace.write_text(json.dumps(event) + "\n")
    async with watched([Endpoint("127.0.0.1", 1)], [trace]) as watcher:
        await until(lambda: watcher.record.version)
        assert watcher.whom.traces and watcher.record.unread is None
        assert not AtAddresses([ANY]).traces


async def test_nobody_may_do_anything_to_them() -> None:
    """Neither by the page's one link, nor if there were another."""
    async with watching(AtAddresses([Endpoint("127.0.0.1", 1)])) as watcher:
        page = Page(watcher, Acts(None), Tokens(GIVEN, "viewer-token"), 8088)
        headers = {"Host": "127.0.0.1:8088", "X-Kraftlite": "1", "Content-Type": "application/json"}
        for path, body in (("faults", {"kind": "kill", "node": 4}), ("clients", {"kind": "start", "topic": "t", "rate": 1})):
            for token, status in ((GIVEN, 409), ("viewer-token", 403)):
                given = {**headers, "Authorization": f"Bearer {token}"}
                found = await ask(page.guard, f"/api/v1/{path}", method="POST", headers=given, body=json.dumps(body).encode())
                assert found.status == status, (path, found.json)
        given = {**headers, "Authorization": "Bearer viewer-token"}
        image = await ask(page.guard, "/api/v1/image", headers=given)
        assert image.status == 404 and "not at their files" in image.json["error"]
        about = (await ask(page.guard, "/api/v1/cluster", headers=given)).json
        assert about["traces"] is False and about["faults"] == [] and set(about["timings_ms"].values()) == {None}


@asynccontextmanager
async def _serving(tokens: Tokens, *addresses: Endpoint) -> AsyncIterator[Link]:
    ready: asyncio.Future[Link] = asyncio.get_running_loop().create_future()
    with listen(0) as sock:
        task = asyncio.create_task(serve.serve(AtAddresses(addresses), sock, ready.set_result, tokens=tokens))
        try:
            yield await asyncio.wait_for(ready, 20)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def test_a_page_for_looking_only_has_one_link() -> None:
    """The operator's does not exist: whatever is sent as a token is nobody's."""
    four = Node(4)
    tokens = Tokens.of({"KRAFTLITE_UI_TOKEN": GIVEN}, read_only=True)
    assert tokens == Tokens(None, GIVEN) and [tokens.role(it) for it in (GIVEN, "None", "")] == ["viewer", None, None]
    async with answering(four), _serving(tokens, four.endpoint) as link:
        assert link.operator is None and link.viewer == f"{link.address}#{GIVEN}"
        host = link.address.removeprefix("http://").rstrip("/")
        head = f"Host: {host}\nAuthorization: Bearer {GIVEN}\nConnection: close\n"
        about = await request(link, f"GET /api/v1/cluster HTTP/1.1\n{head}\n")
        assert json.loads(about.partition(b"\r\n\r\n")[2])["read_only"] is True
        body = '{"kind": "kill", "node": 4}'
        write = f"X-Kraftlite: 1\nContent-Type: application/json\nContent-Length: {len(body)}\n\n{body}"
        refused = await request(link, f"POST /api/v1/faults HTTP/1.1\n{head}{write}")
        assert refused.startswith(b"HTTP/1.1 403") and b"looking only" in refused


@pytest.mark.parametrize(
    "text", ["", "localhost", "localhost:0", "localhost:65536", "a:1,", ",a:1", "a b:1", "http://a:1", "a:1;b:2", "a:1_0", "-a:1"]
)
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="allowed is host:port, several with commas"):
        addresses_of(text)


def test_addresses_are_counted_once_and_are_bounded() -> None:
    assert addresses_of("a:1, [::1]:2,a:1") == [Endpoint("a", 1), Endpoint("::1", 2)]
    with pytest.raises(ValueError, match=f"allowed are {MAX_ADDRESSES}"):
        addresses_of(",".join(f"a:{port}" for port in range(1, MAX_ADDRESSES + 2)))


OTHER = "ABCDEFGHIJKLMNOPQRSTUV"


@pytest.mark.parametrize(
    ("text", "read_only", "found"),
    [
        (f"{GIVEN}\n", False, (GIVEN, None)),
        (f"{GIVEN}\n{OTHER}", False, (GIVEN, OTHER)),
        (f"\n{GIVEN}\r\n", True, (None, GIVEN)),
    ],
)
def test_tokens_come_from_a_file(tmp_path: Path, text: str, read_only: bool, found: tuple[Any, Any]) -> None:
    """Which counts more than the variable."""
    file = tmp_path / "tokens"
    file.write_text(text)
    file.chmod(0o600)
    tokens = Tokens.of({"KRAFTLITE_UI_TOKEN": "x" * 30}, file, read_only=read_only)
    assert tokens.operator == found[0] and found[1] in (None, tokens.viewer) and tokens.viewer != tokens.operator


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        (GIVEN, 0o640, "others may read it"),
        (GIVEN, 0o604, "others may read it"),
        ("", 0o600, "there is no token in it"),
        ("short", 0o600, "allowed are 22 to 128 letters"),
        (f"{GIVEN}\n{GIVEN}", 0o600, "another one for looking only"),
        (f"{GIVEN}\n{OTHER}\n{GIVEN}x", 0o600, "another one for looking only"),
        ("x" * 5000, 0o600, "there is no token in it"),
        ("\xe9" * 30, 0o600, "allowed are 22 to 128 letters"),
        (None, 0o600, "No such file"),
    ],
)
def test_a_file_of_tokens_that_cannot_be_trusted_is_refused(tmp_path: Path, text: str | None, mode: int, why: str) -> None:
    file = tmp_path / "tokens"
    if text is not None:
        file.write_text(text)
        file.chmod(mode)
    with pytest.raises(WeakToken, match=why):
        Tokens.of({}, file)


def test_of_two_tokens_none_is_for_a_page_that_is_for_looking_only(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{GIVEN}\n{OTHER}\n")
    file.chmod(0o600)
    with pytest.raises(WeakToken, match="allowed is one token"):
        Tokens.of({}, file, read_only=True)
