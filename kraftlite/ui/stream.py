"""The stream of states by server-sent events: a bounded number of readers, none of whom can hold up another.

A reader has no queue. It gets the state as it is when there are news and it can take one, so whoever is slow skips what was
between. A reader that takes nothing for `stalled_s` is dropped.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import parse_qs

from starlette.types import Receive, Scope, Send

from kraftlite.ui.fold import page_of
from kraftlite.ui.guard import answer
from kraftlite.ui.watch import NEWS_MS, News, Watcher

MAX_STREAMS: Final = 12
STALLED_S: Final = 10.0
MAX_FILTER: Final = 100
CALM_S: Final = 0.2
"""The least time between two states of which the second one tells of offsets alone: a log that grows is news all the while."""
QUIET_S: Final = 0.5
"""The time after which a page without news gets the state again: the page counts on its server to be heard."""
BYTES_A_SECOND: Final = 500_000
"""The most that one page gets, roughly: the states of a cluster with many partitions come less often."""
MOST_WORK: Final = 0.1
"""The share of the time in which states may be made for one page."""
_HEADERS: Final = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]


class Streams:
    """ASGI application of `/api/v1/stream`. While anybody reads, the nodes are asked more often."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self.every_s = NEWS_MS / 1000
        """The least time between two states."""
        self.calm_s = CALM_S
        self.quiet_s = QUIET_S
        self.stalled_s = STALLED_S
        self.count = 0
        self.dropped = 0
        """Readers that took nothing for too long."""
        self._closing = asyncio.Event()

    def close(self) -> None:
        """End all streams: the server would wait for them."""
        self._closing.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.count >= MAX_STREAMS:
            await answer(send, 503, {"error": f"{MAX_STREAMS} pages watch already: close one of them"})
            return
        query = parse_qs(scope["query_string"].decode("latin-1")[:1000], max_num_fields=8)
        wanted = query.get("q", [""])[0][:MAX_FILTER]
        self.count += 1
        self._watcher.watched = True
        news = News()
        self._watcher.readers.add(news)
        leaving = asyncio.create_task(_left(receive))
        ending = asyncio.create_task(self._closing.wait())
        try:
            await self._serve(send, wanted, news, lambda: leaving.done() or ending.done(), leaving, ending)
        except TimeoutError:
            self.dropped += 1  # the answer is not completed, so the server closes the connection
        finally:
            self.count -= 1
            self._watcher.readers.discard(news)
            self._watcher.watched = self.count > 0
            for task in (leaving, ending):
                task.cancel()

    async def _serve(self, send: Send, wanted: str, news: News, over: Callable[[], bool], *tasks: asyncio.Task[Any]) -> None:
        async with asyncio.timeout(self.stalled_s):
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        version = -1
        while not over():
            news.clear()
            began = time.monotonic()
            state = self._watcher.state()
            state["self"]["pages"] = self.count
            lines = [_event("state", state)]
            if version != self._watcher.judge.version:
                version = self._watcher.judge.version
                lines.append(_event("partitions", page_of(self._watcher.partitions(state["t"])["rows"], wanted)))
            body = b"".join(lines)
            pause_s = max(self.every_s, (time.monotonic() - began) / MOST_WORK, len(body) / BYTES_A_SECOND)
            async with asyncio.timeout(self.stalled_s):
                await send({"type": "http.response.body", "body": body, "more_body": True})
            await self._wait(tasks, news, pause_s)
        async with asyncio.timeout(self.stalled_s):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _wait(self, tasks: Sequence[asyncio.Task[Any]], news: News, pause_s: float) -> None:
        """For the pause; then until there are news, or one of the tasks is done. News of offsets alone wait a little longer."""
        some, urgent = asyncio.create_task(news.some.wait()), asyncio.create_task(news.urgent.wait())
        try:
            for waits, timeout_s in ((), pause_s), ((urgent,), self.calm_s - pause_s), ((some,), self.quiet_s):
                awaited = (*tasks, *waits)
                if timeout_s > 0:
                    await asyncio.wait(awaited, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
                if any(task.done() for task in awaited):
                    return
        finally:
            some.cancel()
            urgent.cancel()


def _event(name: str, value: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
