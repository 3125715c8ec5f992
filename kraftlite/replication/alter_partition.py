"""Asking the controller for ISR changes: one request at a time per broker, all partitions in it (RP-22).

Source: KIP-497, KIP-841; RP-22, RP-23.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.messages.controller import AlterPartitionRequest, AlterPartitionResponse, AlterPartitionResult
from kraftlite.model.messages.methods import ALTER_PARTITION
from kraftlite.model.tuning import Tuning
from kraftlite.replication.config import ReplicationConfig
from kraftlite.replication.isr import PendingIsr
from kraftlite.replication.partition import Partition
from kraftlite.replication.ports import ControllerChannel
from kraftlite.runtime.ports import Clock, TransportError


class AlterPartitionCore:
    """The proposals that wait, those that are with the controller, and the meaning of its answers. Synchronous.

    A proposal that its partition has given up meanwhile (new metadata, lost leadership) is dropped before it is sent.
    """

    def __init__(self, config: ReplicationConfig, tuning: Tuning) -> None:
        self._config = config
        self._at_once = tuning.isr_changes_per_request
        self._waiting: dict[Partition, None] = {}
        self._sent: list[tuple[Partition, PendingIsr]] = []

    def submit(self, partition: Partition) -> None:
        """The partition has a pending proposal."""
        self._waiting[partition] = None

    @property
    def idle(self) -> bool:
        return not self._waiting

    def request(self, broker_epoch: int) -> AlterPartitionRequest | None:
        """The next request; None while one is with the controller, or when nothing waits."""
        if self._sent:
            return None
        for partition in list(self._waiting)[: self._at_once]:
            del self._waiting[partition]
            pending = partition.pending_isr
            if pending is not None:
                self._sent.append((partition, pending))
        if not self._sent:
            return None
        return AlterPartitionRequest(
            broker_id=self._config.broker_id,
            broker_epoch=broker_epoch,
            partitions=tuple(pending.item for _, pending in self._sent),
        )

    def handle_failure(self) -> None:
        """The request as a whole failed: all of it again, after a pause."""
        sent, self._sent = self._sent, []
        for partition, pending in sent:
            if partition.pending_isr is pending:
                self._waiting[partition] = None

    def handle_response(self, response: AlterPartitionResponse, now_ms: int) -> bool:
        """Hand every partition its answer, and return whether something must be sent again, after a pause."""
        sent, self._sent = self._sent, []
        results = {(result.topic_id, result.partition): result for result in response.partitions}
        retry = False
        for partition, pending in sent:
            key = (pending.item.topic_id, pending.item.partition)
            result = results.get(key) or AlterPartitionResult(
                topic_id=key[0], partition=key[1], error=ErrorCode.UNKNOWN_SERVER_ERROR
            )
            if partition.handle_alter_result(pending, result, now_ms):
                self._waiting[partition] = None
                retry = True
        return retry


class AlterPartitionDriver:
    """Runs the core against the controller until cancelled."""

    def __init__(
        self,
        config: ReplicationConfig,
        clock: Clock,
        controller: ControllerChannel,
        core: AlterPartitionCore,
        broker_epoch: Callable[[], int | None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._controller = controller
        self._core = core
        self._broker_epoch = broker_epoch
        self._wakeup: asyncio.Future[None] | None = None

    def submit(self, partition: Partition) -> None:
        self._core.submit(partition)
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    async def run(self) -> None:
        while True:
            if self._core.idle:
                self._wakeup = asyncio.get_running_loop().create_future()
                try:
                    await self._wakeup
                finally:
                    self._wakeup = None
            broker_epoch = self._broker_epoch()
            request = None if broker_epoch is None else self._core.request(broker_epoch)
            if broker_epoch is None or (request is not None and await self._exchange(request)):
                await self._clock.sleep(self._config.alter_partition_retry_ms)

    async def _exchange(self, request: AlterPartitionRequest) -> bool:
        """Ask the controller once, and return whether to pause before the next request."""
        try:
            response = await self._controller.call(ALTER_PARTITION, request, self._config.request_timeout_ms)
        except (ApiError, TransportError):
            self._core.handle_failure()
            return True
        return self._core.handle_response(response, self._clock.now_ms())
