"""The metrics page as a door: whatever comes in, memory and time are bounded, and who asks properly is answered."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kraftlite.obs.metrics import MAX_CONNECTIONS, Metrics, MetricsServer

GOOD = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def metrics() -> Metrics:
    made = Metrics({})
    made.gauge("kraftlite_things", "Things that there are.", lambda: 1)
    return made


@pytest.fixture
async def server(metrics: Metrics) -> AsyncIterator[tuple[MetricsServer, int]]:
    made = MetricsServer(metrics, request_timeout_s=0.5)
    endpoint = await made.start("127.0.0.1", 0)
    yield made, endpoint.port
    await made.stop()


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            if condition():
                return
            await asyncio.sleep(0.002)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


@pytest.mark.parametrize(
    ("request_bytes", "wanted"),
    [
        (GOOD, 200),
        (b"GET / HTTP/1.0\r\n\r\n", 200),
        (b"GET /metrics?name[]=x HTTP/1.1\r\n\r\n", 200),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", 200),
        (b"GET /metrics/ HTTP/1.1\r\n\r\n", 404),
        (b"GET /../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"GET http://x/metrics HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 405),
        (b"CONNECT x:1 HTTP/1.1\r\n\r\n", 405),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
        (b"\x00\x00\x00\x12\x00\x12\x00\x03\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 5_000, 431),
    ],
)
async def test_each_request_has_an_answer(server: tuple[MetricsServer, int], request_bytes: bytes, wanted: int) -> None:
    assert status(await ask(server[1], request_bytes)) == wanted
    assert status(await ask(server[1], GOOD)) == 200


async def test_head_has_the_length_and_no_body(server: tuple[MetricsServer, int]) -> None:
    whole, head = await ask(server[1], GOOD), await ask(server[1], GOOD.replace(b"GET", b"HEAD"))
    assert head.endswith(b"\r\n\r\n") and b"Content-Length: " in head
    assert whole.startswith(head)
    assert len(list(text_string_to_metric_families(whole.split(b"\r\n\r\n", 1)[1].decode()))) > 3


async def test_of_pipelined_requests_the_first_is_answered(server: tuple[MetricsServer, int]) -> None:
    assert (await ask(server[1], GOOD * 50)).count(b"HTTP/1.1 200") == 1


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\n", b"\x00" * 100])
async def test_who_says_nothing_more_is_let_go(server: tuple[MetricsServer, int], sent: bytes) -> None:
    began = time.monotonic()
    with contextlib.suppress(ConnectionError):
        assert await ask(server[1], sent) == b""
    assert time.monotonic() - began < 10
    assert server[0].connection_count == 0


async def test_many_silent_connections_do_not_keep_out_who_asks(server: tuple[MetricsServer, int]) -> None:
    made, port = server
    opened: list[asyncio.StreamWriter] = []
    for number in range(300):
        opened.append((await asyncio.open_connection("127.0.0.1", port))[1])
        assert made.connection_count <= MAX_CONNECTIONS
        if number % 50 == 49:
            assert status(await ask(port, GOOD)) == 200
    for writer in opened:
        writer.close()


class Pages(Metrics):
    """Any page, and how often it was made."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.content, self.made = page, 0

    async def page(self) -> bytes:
        self.made += 1
        return self.content


async def test_who_does_not_read_is_cut_off() -> None:
    made = MetricsServer(Pages(b"x" * 50_000_000), answer_timeout_s=0.3)
    endpoint = await made.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port, limit=1024)
    writer.write(GOOD)
    await until(lambda: made.connection_count == 1)
    await until(lambda: made.connection_count == 0)
    with contextlib.suppress(ConnectionError):
        assert len(await reader.read()) < 50_000_000
    await made.stop()


async def test_the_page_is_made_once_for_many_who_ask() -> None:
    pages = Pages(b"page\n")
    made = MetricsServer(pages, fresh_s=3600)
    endpoint = await made.start("127.0.0.1", 0)
    answers = await asyncio.gather(*(ask(endpoint.port, GOOD) for _ in range(25)))
    answers += [await ask(endpoint.port, GOOD) for _ in range(25)]
    assert {answer.rsplit(b"\r\n", 1)[1] for answer in answers} == {b"page\n"} and pages.made == 1
    await made.stop()


async def test_stopping_does_not_wait_for_anybody(metrics: Metrics) -> None:
    made = MetricsServer(metrics, request_timeout_s=3600)
    endpoint = await made.start("127.0.0.1", 0)
    opened = [await asyncio.open_connection("127.0.0.1", endpoint.port) for _ in range(5)]
    await until(lambda: made.connection_count == 5)
    async with asyncio.timeout(10):
        await made.stop()
    for _, writer in opened:
        writer.close()


async def test_a_page_of_many_series_leaves_the_loop_to_others_meanwhile() -> None:
    """Sixty families of a thousand series each take half a second to write; nobody else waits for that."""
    made = Metrics({})
    texts = [(f"topic-{number}", "0") for number in range(1000)]
    for number in range(60):
        made.samples(f"kraftlite_thing{number}", "Things.", ("topic", "partition"), lambda: ((text, 1) for text in texts))
    page = asyncio.ensure_future(made.page())
    turns = 0
    while not page.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 60
    assert page.result().count(b"\nkraftlite_thing59{") == 1000


async def test_a_name_that_a_client_chose_stays_within_its_label() -> None:
    made = Metrics({})
    made.samples("kraftlite_thing", "Things.", ("topic",), lambda: [(('a"} 7\nevil 1\\',), 1), ((None,), 2)], counter=True)
    page = (await made.page()).decode()
    [family] = [it for it in text_string_to_metric_families(page) if it.name == "kraftlite_thing"]
    found = {tuple(sample.labels.items()): sample.value for sample in family.samples}
    assert found == {(): 2, (("topic", 'a"} 7\nevil 1\\'),): 1}
    assert not any(line.startswith("evil") for line in page.splitlines())
