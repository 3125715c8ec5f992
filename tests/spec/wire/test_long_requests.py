"""No request keeps the loop for long, however much it asks for: the longest turn, in CPU time, over a table of greedy requests."""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kio.index import load_request_schema

from kraftlite.coordinator.placement import OFFSETS_TOPIC
from kraftlite.host.clock import HostClock
from kraftlite.runtime.turns import OffLoop, Turns
from tests.harness.extreme import KNOWN, NONE, Extreme, arrays, extreme_request
from tests.harness.offsets_log import GroupHarness
from tests.harness.turns import LongestTurn
from tests.harness.wire_fakes import LoopTasks, partition

LIMIT_MS = 100
ENTRIES = 30_000
PRODUCE, FETCH, API_VERSIONS = 0, 1, 18


class ThreadedTasks(LoopTasks):
    async def run_blocking(self, function: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, function)


@asynccontextmanager
async def greedy_harness(**options: Any) -> AsyncIterator[tuple[GroupHarness, LongestTurn]]:
    topics = {"events": [partition([1])], OFFSETS_TOPIC: [partition([1])]} | options.pop("topics", {})
    async with GroupHarness(topics, **options) as h:
        tasks = ThreadedTasks()
        h.context.turns = Turns(HostClock())
        h.context.off_loop = OffLoop(tasks)
        turns = LongestTurn()
        turns.start()
        yield h, turns
        turns.stop()
        assert not tasks.failures


def exchange(port: int, request: bytes) -> bytes | None:
    """From a thread of its own. None: the connection was closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        try:
            sock.sendall(struct.pack(">i", len(request)) + request)
            with sock.makefile("rb") as answers:
                head = answers.read(4)
                return answers.read(*struct.unpack(">i", head)) if len(head) == 4 else None
        except ConnectionError:
            return None


async def ask(h: GroupHarness, request: bytes) -> bytes | None:
    """The answer; time goes on while it is waited for."""
    assert h.listener.endpoint is not None
    asking = asyncio.ensure_future(asyncio.to_thread(exchange, h.listener.endpoint.port, request))
    while not asking.done():
        await asyncio.wait((asking,), timeout=0.2)
        h.clock.advance(100)
    return asking.result()


def names() -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"n{next(numbers)}"


def greedy(way: tuple[str, ...], *, known: bool) -> Extreme:
    return Extreme(
        name=".".join(way),
        number=lambda _: 0,
        text="events" if known else names(),
        data=b"",
        float64=1.0,
        flag=False,
        uuid=KNOWN if known else NONE,
        entries=ENTRIES,
        longest=way,
        tags=False,
    )


@pytest.mark.parametrize("known", [False, True], ids=["unknown", "known"])
async def test_the_longest_array_of_every_api_is_worked_on_in_turns(known: bool) -> None:
    async with greedy_harness() as (h, turns):
        slow: list[str] = []
        for one in h.apis.ranges:
            version = one.max_version
            if one.api_key in (PRODUCE, FETCH, API_VERSIONS):  # the first two have tests of their own
                continue
            for way in arrays(load_request_schema(one.api_key, version)):
                request = extreme_request(one.api_key, version, greedy(way, known=known), 5, b"greedy")
                await asyncio.sleep(0.01)  # what it took to write the request is in a turn that has ended
                turns.take()
                await ask(h, request)
                took = turns.take()
                if took > LIMIT_MS:
                    slow.append(f"{one.api_key} v{version} {'.'.join(way)}: {took:.0f} ms")
        assert not slow, "\n".join(slow)
