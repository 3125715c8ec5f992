"""Blocks of producer ids. Source: Kafka's ProducerIdControlManager; KIP-730; CM-55."""

from __future__ import annotations

from kraftlite.controller.cluster_control import ClusterControl
from kraftlite.controller.results import ControllerResult
from kraftlite.metadata.records import ProducerIdsRecord
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import MAX_INT64
from kraftlite.model.messages.controller import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from kraftlite.timeline.collections import TimelineValue
from kraftlite.timeline.registry import TimelineRegistry


class ProducerIdControl:
    """`next_producer_id`: all ids below it have been handed out. Blocks never overlap (invariant 23)."""

    def __init__(self, registry: TimelineRegistry, cluster: ClusterControl, block_size: int) -> None:
        self._block_size = block_size
        self._cluster = cluster
        self.next_producer_id: TimelineValue[int] = TimelineValue(registry, 0)

    def allocate(self, request: AllocateProducerIdsRequest) -> ControllerResult[AllocateProducerIdsResponse]:
        self._cluster.check_epoch(request.broker_id, request.broker_epoch)
        first = self.next_producer_id.get()
        if first > MAX_INT64 - self._block_size:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "Exhausted all producerIds as the next block's end exceeds 2^63-1")
        record = ProducerIdsRecord(
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            next_producer_id=first + self._block_size,
        )
        response = AllocateProducerIdsResponse(first_producer_id=first, count=self._block_size)
        return ControllerResult(records=[record], response=response, atomic=True)

    def replay(self, record: ProducerIdsRecord) -> None:
        current = self.next_producer_id.get()
        if record.next_producer_id <= current:
            raise ValueError(f"next producer id {record.next_producer_id} does not advance the present one, {current}")
        self.next_producer_id.set(record.next_producer_id)
