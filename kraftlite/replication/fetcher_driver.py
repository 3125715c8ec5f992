"""The driver of one fetcher, of which there is one per (leader broker, fetcher number). Source: RP-33, RP-37, RP-39."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from kraftlite.model.errors import ApiError
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages.methods import REPLICA_FETCH, REPLICA_OFFSETS
from kraftlite.replication.config import ReplicationConfig
from kraftlite.replication.fetcher_core import FetcherCore
from kraftlite.runtime.ports import Ports, TransportError


class FetcherDriver:
    """Sends what the core asks for and hands it the answers. Owned by `FetcherManager`.

    A long poll does not hold up a partition that was added meanwhile: the next request of the session goes out behind it and
    makes the leader answer both. So at most two are in flight, and their answers are taken in the order of sending.
    """

    def __init__(
        self,
        ports: Ports,
        config: ReplicationConfig,
        core: FetcherCore,
        endpoint: Callable[[NodeId], Endpoint | None],
        broker_epoch: Callable[[], int | None],
    ) -> None:
        self.core = core
        self.requests = 0
        """Fetches that were sent."""
        self._ports = ports
        self._config = config
        self._endpoint = endpoint
        self._broker_epoch = broker_epoch
        self._calls: deque[asyncio.Future[Any]] = deque()
        self._wakeup: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """There is something new to ask for."""
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    async def run(self) -> None:
        try:
            while True:
                if not self._calls and not self._send():
                    await self._pause(self._idle_ms())
                elif self._calls:
                    await self._answer()
        finally:
            await self._drop_calls()

    def _idle_ms(self) -> int | None:
        """Return how long to wait; None: for nothing but news."""
        if self._endpoint(self.core.leader_id) is None or self._broker_epoch() is None:
            return self._config.fetch_backoff_ms
        due = self.core.next_deadline_ms()
        return None if due is None else max(0, due - self._ports.clock.now_ms())

    def _send(self) -> bool:
        endpoint, broker_epoch = self._endpoint(self.core.leader_id), self._broker_epoch()
        if endpoint is None or broker_epoch is None:
            return False
        request = self.core.request(broker_epoch, self._ports.clock.now_ms())
        if request is None:
            return False
        call = self._ports.transport.call(endpoint, REPLICA_FETCH, request, self._config.socket_timeout_ms)
        self._calls.append(asyncio.ensure_future(call))
        self.requests += 1
        return True

    async def _answer(self) -> None:
        """Wait for the oldest answer, sending one more request meanwhile if there is something to say."""
        first = self._calls[0]
        if not first.done():
            if len(self._calls) == 1 and self.core.has_news:
                self._send()
            self._wakeup = asyncio.get_running_loop().create_future()
            try:
                await asyncio.wait((first, self._wakeup), return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._wakeup = None
            if not first.done():
                return
        self._calls.popleft()
        clock = self._ports.clock
        try:
            response = first.result()
        except (TransportError, ApiError) as error:
            self.core.handle_failure(str(error))
            await self._drop_calls()
            await self._pause(self._config.fetch_backoff_ms)
            return
        if not self.core.handle_response(response, clock.now_ms(), clock.wall_ms()):
            await self._drop_calls()
            await self._pause(self._config.fetch_backoff_ms)
        elif self.core.offsets_request() is not None:
            await self._ask_offsets()

    async def _ask_offsets(self) -> None:
        request, endpoint = self.core.offsets_request(), self._endpoint(self.core.leader_id)
        answers: tuple[Any, ...] = ()
        if request is not None and endpoint is not None:
            try:
                response = await self._ports.transport.call(endpoint, REPLICA_OFFSETS, request, self._config.socket_timeout_ms)
                answers = response.partitions
            except (TransportError, ApiError) as error:
                self.core.handle_failure(str(error))
        self.core.handle_offsets(answers, self._ports.clock.now_ms())

    async def _drop_calls(self) -> None:
        """Give up what is in flight: the session that it belongs to is over."""
        calls, self._calls = list(self._calls), deque()
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls)
        for call in calls:
            if not call.cancelled():
                call.exception()  # taken note of: it does not matter any more

    async def _pause(self, delay_ms: int | None) -> None:
        wakeup = self._wakeup = asyncio.get_running_loop().create_future()
        timer = None if delay_ms is None else self._ports.clock.call_later(delay_ms, self.wake)
        try:
            await wakeup
        finally:
            self._wakeup = None
            if timer is not None:
                timer.cancel()
