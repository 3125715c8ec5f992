"""Producer ids, taken in blocks from the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from kraftlite.model.messages.methods import ALLOCATE_PRODUCER_IDS
from kraftlite.replication.ports import ControllerChannel
from kraftlite.runtime.ports import Ports, TaskHandle
from kraftlite.runtime.trace.broker import ProducerIdBlockReceived

REQUEST_TIMEOUT_MS: Final = 5_000
PATIENCE_MS: Final = 1_000
PREFETCH_PERCENT: Final = 90


class ProducerIdManager:
    """Hands out ids of this broker's current block and asks for the next one when 90 % are gone.

    `take` gives an id or None, at once. `next_id` waits at most `PATIENCE_MS` for a block that is on its way, then raises
    COORDINATOR_LOAD_IN_PROGRESS, which clients retry. No id is handed out twice, whatever the controller's answers cross with: a
    block is used only once, in arrival order.
    Source: KIP-730; CM-55. Departs: Kafka refuses at once instead of waiting a moment, which costs each first client a retry.
    """

    def __init__(self, ports: Ports, node_id: NodeId, channel: ControllerChannel, broker_epoch: Callable[[], int | None]) -> None:
        self._ports = ports
        self._node_id = node_id
        self._channel = channel
        self._broker_epoch = broker_epoch
        self._next = 0
        self._end = 0
        self._prefetch_at = 0
        self._following: AllocateProducerIdsResponse | None = None
        self._request: TaskHandle | None = None
        self._waiters: list[asyncio.Future[None]] = []

    async def next_id(self) -> int:
        deadline_ms = self._ports.clock.now_ms() + PATIENCE_MS
        while True:
            producer_id = self.take()
            if producer_id is not None:
                return producer_id
            remaining = deadline_ms - self._ports.clock.now_ms()
            if remaining <= 0 or not await self._arrival(remaining):
                raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "waiting for a block of producer ids from the controller")

    async def arrival(self) -> bool:
        """Wait at most `PATIENCE_MS` for ids; False when none came."""
        if self._next < self._end or self._following is not None:
            return True
        if self._request is None:
            self._request = self._ports.tasks.spawn(self._fetch(), name="producer-id-block")
        return await self._arrival(PATIENCE_MS)

    def take(self) -> int | None:
        """A fresh id of the block at hand; None while there is none, and the next block is asked for."""
        if self._next >= self._end and self._following is not None:
            self._use(self._following)
            self._following = None
        producer_id: int | None = None
        if self._next < self._end:
            producer_id = self._next
            self._next += 1
        if self._next >= self._prefetch_at and self._following is None and self._request is None:
            self._request = self._ports.tasks.spawn(self._fetch(), name="producer-id-block")
        return producer_id

    def _use(self, block: AllocateProducerIdsResponse) -> None:
        self._next = block.first_producer_id
        self._end = block.first_producer_id + block.count
        self._prefetch_at = block.first_producer_id + block.count * PREFETCH_PERCENT // 100

    async def _arrival(self, timeout_ms: int) -> bool:
        """Wait for a block; False when the request failed or took too long."""
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(arrived)

        def give_up() -> None:
            arrived.cancel()

        timer = self._ports.clock.call_later(timeout_ms, give_up)
        try:
            await asyncio.wait((arrived,))
            return not arrived.cancelled()
        finally:
            timer.cancel()
            if arrived in self._waiters:
                self._waiters.remove(arrived)

    async def _fetch(self) -> None:
        try:
            epoch = self._broker_epoch()
            if epoch is None:
                return
            request = AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=epoch)
            try:
                block = await self._channel.call(ALLOCATE_PRODUCER_IDS, request, REQUEST_TIMEOUT_MS)
            except ApiError:
                return  # the next caller asks again
            self._ports.tracer.emit(ProducerIdBlockReceived(first_producer_id=block.first_producer_id, count=block.count))
            self._following = block
        finally:
            self._request = None
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if waiter.done():
                    continue
                if self._following is None:
                    waiter.cancel()
                else:
                    waiter.set_result(None)
