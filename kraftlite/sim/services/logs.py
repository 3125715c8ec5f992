"""Requests about the contents of logs: offsets by time and by name, ends of leader epochs, and deletion of the oldest records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.delete_records import delete_records
from kraftlite.broker.handlers.list_offsets import OffsetQuery, look_up, offset_for_leader_epoch
from kraftlite.model.errors import ErrorCode
from kraftlite.model.method import Method
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.node.build import Node
from kraftlite.replication.api import DeleteRecordsResult, OffsetResult
from kraftlite.runtime.ports import Handlers, route

VERSION: Final = 11
"""The version of ListOffsets that knows every special timestamp."""


@dataclass(frozen=True, slots=True)
class ListAsk:
    """`timestamp`: a time in milliseconds, or a special value as on the wire: -1 latest, -2 earliest, -3 of the largest
    timestamp, -4 earliest local, -5 latest tiered."""

    tp: TopicPartition
    timestamp: int
    leader_epoch: int | None
    read_committed: bool = False


@dataclass(frozen=True, slots=True)
class EpochEndAsk:
    """`leader_epoch`: the one whose end is asked for. `current`: the one that the client believes to be in force."""

    tp: TopicPartition
    leader_epoch: int
    current: int | None


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """-1 for epoch and offset where nothing is known."""

    error: ErrorCode
    leader_epoch: int = -1
    end_offset: int = -1


@dataclass(frozen=True, slots=True)
class DeleteAsk:
    """`offset` -1: up to the high watermark."""

    tp: TopicPartition
    offset: int
    timeout_ms: int


LIST: Final = Method("Client", "ListOffsets", ListAsk, OffsetResult)
EPOCH_END: Final = Method("Client", "OffsetForLeaderEpoch", EpochEndAsk, EpochEnd)
DELETE_RECORDS: Final = Method("Client", "DeleteRecords", DeleteAsk, DeleteRecordsResult)


def routes(node: Node) -> Handlers:
    assert node.broker is not None
    service = _Service(node.broker.context)
    return dict((route(LIST, service.list), route(EPOCH_END, service.epoch_end), route(DELETE_RECORDS, service.delete)))


class _Service:
    def __init__(self, context: BrokerContext) -> None:
        self._ctx = context

    async def list(self, ask: ListAsk) -> OffsetResult:
        query = OffsetQuery(ask.tp, ask.timestamp, ask.leader_epoch)
        found = await look_up(self._ctx, query, version=VERSION, read_committed=ask.read_committed, debug=False, duplicate=False)
        return OffsetResult(error=found.error, offset=found.offset, timestamp=found.timestamp, leader_epoch=found.leader_epoch)

    async def epoch_end(self, ask: EpochEndAsk) -> EpochEnd:
        found = offset_for_leader_epoch(self._ctx, ask.tp, current_leader_epoch=ask.current, leader_epoch=ask.leader_epoch)
        return EpochEnd(found.error, found.leader_epoch, found.end_offset)

    async def delete(self, ask: DeleteAsk) -> DeleteRecordsResult:
        return (await delete_records(self._ctx, {ask.tp: ask.offset}, timeout_ms=ask.timeout_ms))[ask.tp]
