"""The server on real sockets: this machine alone, and connections that say nothing take nobody's place."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from kraftlite.local.state import LocalCluster
from kraftlite.obs.recording_reader import ClientSaid, read_bytes
from kraftlite.ui import serve
from kraftlite.ui.serve import HOST, MAX_CONNECTIONS, Link, listen
from kraftlite.ui.whom import InDirectory
from tests.harness.ui import client_report, idle_cluster


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalCluster:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return idle_cluster(tmp_path)


@asynccontextmanager
async def serving(
    cluster: LocalCluster, patience_s: float = 5.0, record: Callable[[bytes], object] | None = None
) -> AsyncIterator[Link]:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[Link] = loop.create_future()
    with listen(0) as sock:
        task = asyncio.create_task(
            serve.serve(InDirectory(Path(cluster.data_dir)), sock, ready.set_result, patience_s=patience_s, record=record)
        )
        try:
            yield await asyncio.wait_for(ready, 20)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def port_of(link: Link) -> int:
    return int(link.address.rstrip("/").rpartition(":")[2])


async def request(link: Link, text: str, *, until: bytes = b"") -> bytes:
    reader, writer = await asyncio.open_connection(HOST, port_of(link))
    writer.write(text.replace("\n", "\r\n").encode())
    try:
        async with asyncio.timeout(20):
            return await (reader.readuntil(until) if until else reader.read())
    finally:
        writer.close()


def get(link: Link, path: str) -> str:
    token = str(link.operator).partition("#")[2]
    return f"GET {path} HTTP/1.1\nHost: {HOST}:{port_of(link)}\nAuthorization: Bearer {token}\nConnection: close\n\n"


async def test_the_state_and_the_stream(cluster: LocalCluster) -> None:
    async with serving(cluster) as link:
        assert str(link.operator).startswith(f"http://{HOST}:") and link.operator != link.viewer
        answer = await request(link, get(link, "/api/v1/state"))
        assert answer.startswith(b"HTTP/1.1 200") and b"\r\nserver:" not in answer.lower()
        assert [node["life"] for node in json.loads(answer.partition(b"\r\n\r\n")[2])["nodes"]] == ["dead", "dead"]
        assert b'"t":' in await request(link, get(link, "/api/v1/stream"), until=b"event: partitions")
        assert (await request(link, get(link, "/"))).endswith(b"</html>\n")


async def _until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while True:
            if what():
                return
            await asyncio.sleep(0.02)


async def test_what_clients_report_to_the_page_is_in_its_recording(cluster: LocalCluster) -> None:
    lines: list[bytes] = []
    async with serving(cluster, record=lines.append) as link:
        for at_ms in (3_000, 4_000):
            body = json.dumps({"kind": "report", **client_report("a test", at=at_ms)})
            head = get(link, "/api/v1/clients").replace("GET", "POST").rstrip("\n")
            head += f"\nX-Kraftlite: 1\nContent-Type: application/json\nContent-Length: {len(body)}\n\n"
            assert (await request(link, head + body)).startswith(b"HTTP/1.1 202")
            await _until(lambda: f'"at":{at_ms}'.encode() in b"".join(lines))  # noqa: B023 it is called at once
    said = [it.report for it in read_bytes(b"".join(lines)) if isinstance(it, ClientSaid)]
    assert [(it["client"], it["at"], len(it["gaps"])) for it in said] == [("a test", 3_000, 1), ("a test", 4_000, 0)]
    assert said[0]["errors"] == {"NOT_ENOUGH_REPLICAS": 1}


async def test_who_says_nothing_is_cut_off_and_the_others_are_served(cluster: LocalCluster) -> None:
    async with serving(cluster, patience_s=0.3) as link:
        silent = [await asyncio.open_connection(HOST, port_of(link)) for _ in range(MAX_CONNECTIONS + 10)]
        for _, writer in silent[::2]:
            writer.write(b"GET /api/v1/state HTTP/1.1\r\nHost: ")
        async with asyncio.timeout(20):
            for reader, _ in silent:
                with contextlib.suppress(ConnectionError):
                    await reader.read()
        assert (await request(link, get(link, "/healthz"))).startswith(b"HTTP/1.1 200")
        for _, writer in silent:
            writer.close()


async def test_headers_are_bounded(cluster: LocalCluster) -> None:
    async with serving(cluster) as link:
        answer = b""
        with contextlib.suppress(ConnectionError):
            answer = await request(link, f"GET / HTTP/1.1\nX: {'x' * (1 << 20)}")
        assert not answer or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431"))
        assert (await request(link, get(link, "/healthz"))).startswith(b"HTTP/1.1 200")


def test_the_page_is_for_this_machine_alone() -> None:
    with listen(0) as sock:
        assert sock.getsockname()[0] == "127.0.0.1"
    with listen(0, published=True) as sock:
        assert sock.getsockname()[0] == "0.0.0.0", "the port of a container, of which the machine sees what is published"


def test_a_port_that_is_taken() -> None:
    with listen(0) as sock:
        with pytest.raises(OSError, match="in use"):
            listen(sock.getsockname()[1])
        with listen(None) as other:
            assert other.getsockname()[1] != sock.getsockname()[1]


async def test_the_page_of_a_recording() -> None:
    """Its links are served like those of the live page, and nothing but the recording is behind them."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[Link] = loop.create_future()
    tape = {"cluster": {"cluster_id": "c", "recording": {"title": "seed 3"}}, "frames": []}
    with listen(0) as sock:
        task = asyncio.create_task(serve.serve_tape(tape, sock, ready.set_result))
        try:
            link = await asyncio.wait_for(ready, 20)
            answer = await request(link, get(link, "/api/v1/tape"))
            assert answer.startswith(b"HTTP/1.1 200") and json.loads(answer.partition(b"\r\n\r\n")[2]) == tape
            assert (await request(link, get(link, "/api/v1/stream"))).startswith(b"HTTP/1.1 404")
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
