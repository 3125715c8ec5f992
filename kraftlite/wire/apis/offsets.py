"""ListOffsets and OffsetForLeaderEpoch on the wire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, TypedDict

from kraftlite.broker.handlers.list_offsets import (
    DEBUG_CONSUMER,
    OffsetAnswer,
    OffsetQuery,
    is_lookup,
    list_offset,
    look_up,
    offset_for_leader_epoch,
)
from kraftlite.model.acls import Operation
from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.security.gate import Rights
from kraftlite.wire.apis.call import Api, Call, cold
from kraftlite.wire.list_offsets_codec import (
    LIST_OFFSETS_FLEXIBLE,
    LIST_OFFSETS_MAX,
    LIST_OFFSETS_MIN,
    ListedOffset,
    ListOffsetsPartition,
    ListOffsetsRequest,
    encode_list_offsets,
    parse_list_offsets,
)

LISTED_AT_ONCE: Final = 16
"""Partitions of which the ends are told here and now."""


def _epoch(value: int) -> int | None:
    return None if value < 0 else value


def _list_offsets(call: Call) -> None:
    if call.is_large:
        call.connection.lease_frame()
        call.spawn(
            lambda: call.leased(parse_list_offsets, waits=False, then=lambda it: _list_in_turns(call, it)), "kafka-ListOffsets"
        )
        return
    request = parse_list_offsets(call.frame, call.pos, call.version)
    call.frame = memoryview(b"")
    count = len(request.topics) + sum(len(partitions) for _, partitions in request.topics)
    if count > LISTED_AT_ONCE or any(is_lookup(one.timestamp) for _, partitions in request.topics for one in partitions):
        call.spawn(lambda: _list_in_turns(call, request), "kafka-ListOffsets")
        return
    rights = call.rights
    times = Counter((name, partition.partition) for name, partitions in request.topics for partition in partitions)

    def listed(name: str, one: ListOffsetsPartition) -> ListedOffset:
        asked = _asked(call, rights, request, name, one, times)
        return asked if isinstance(asked, ListedOffset) else _told(call, one, list_offset(call.ctx, asked[0], **asked[1]))

    topics = [(name, [listed(name, one) for one in partitions]) for name, partitions in request.topics]
    call.send((encode_list_offsets(call.correlation_id, call.version, topics),))


async def _list_in_turns(call: Call, request: ListOffsetsRequest) -> None:
    each, rights = call.ctx.turns.each, call.rights
    times: Counter[tuple[str, int]] = Counter()
    count = 0
    async for name, partitions in each(request.topics):
        count += 1 + len(partitions)
        async for one in each(partitions):
            times[name, one.partition] += 1

    async def listed(name: str, one: ListOffsetsPartition) -> ListedOffset:
        asked = _asked(call, rights, request, name, one, times)
        return asked if isinstance(asked, ListedOffset) else _told(call, one, await look_up(call.ctx, asked[0], **asked[1]))

    topics: list[tuple[str, list[ListedOffset]]] = []
    for name, partitions in request.topics:
        topics.append((name, [await listed(name, one) async for one in each(partitions)]))
        await call.ctx.turns.next()

    def encode() -> bytes:
        return encode_list_offsets(call.correlation_id, call.version, topics)

    call.send((encode() if count <= LISTED_AT_ONCE else await call.ctx.off_loop.run(count, encode),))


def _asked(
    call: Call,
    rights: Rights | None,
    request: ListOffsetsRequest,
    name: str,
    one: ListOffsetsPartition,
    times: Counter[tuple[str, int]],
) -> ListedOffset | tuple[OffsetQuery, _How]:
    """The refusal, or what is to be found, and how."""
    refused = _refusal(call, rights, request, name, one)
    return refused or (_query(name, one), _how(call, request, times[name, one.partition]))


def _refusal(
    call: Call, rights: Rights | None, request: ListOffsetsRequest, name: str, one: ListOffsetsPartition
) -> ListedOffset | None:
    if request.isolation_level not in (0, 1):
        return _not_listed(call, one.partition, ErrorCode.UNKNOWN_SERVER_ERROR)
    if rights is not None and not rights.topic(Operation.DESCRIBE, name):
        return _not_listed(call, one.partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return None


def _query(name: str, one: ListOffsetsPartition) -> OffsetQuery:
    return OffsetQuery(TopicPartition(name, one.partition), one.timestamp, _epoch(one.current_leader_epoch))


class _How(TypedDict):
    version: int
    read_committed: bool
    debug: bool
    duplicate: bool


def _how(call: Call, request: ListOffsetsRequest, named: int) -> _How:
    """`named`: so many times the request names the partition."""
    return _How(
        version=call.version,
        read_committed=request.isolation_level == 1,
        debug=request.replica_id == DEBUG_CONSUMER,
        duplicate=named > 1,
    )


def _told(call: Call, one: ListOffsetsPartition, found: OffsetAnswer) -> ListedOffset:
    if found.error is not ErrorCode.NONE:
        call.note_error(found.error)
    return ListedOffset(one.partition, found.error, found.timestamp, found.offset, found.leader_epoch)


def _not_listed(call: Call, partition: int, error: ErrorCode) -> ListedOffset:
    call.note_error(error)
    return ListedOffset(partition, error, -1, -1, -1)


async def _offset_for_leader_epoch(call: Call, request: Any) -> Mapping[str, object]:
    topics = []
    async for topic in call.ctx.turns.each(request.topics):
        partitions = []
        async for partition in call.ctx.turns.each(topic.partitions):
            found = offset_for_leader_epoch(
                call.ctx,
                TopicPartition(topic.topic, partition.partition),
                current_leader_epoch=_epoch(partition.current_leader_epoch),
                leader_epoch=partition.leader_epoch,
            )
            partitions.append(
                {
                    "error_code": found.error,
                    "partition": partition.partition,
                    "leader_epoch": found.leader_epoch,
                    "end_offset": found.end_offset,
                }
            )
        topics.append({"topic": topic.topic, "partitions": partitions})
    return {"throttle_time": 0, "topics": topics}


LIST_OFFSETS = Api(
    key=2,
    name="ListOffsets",
    min_version=LIST_OFFSETS_MIN,
    max_version=LIST_OFFSETS_MAX,
    flexible_from=LIST_OFFSETS_FLEXIBLE,
    handle=_list_offsets,
)
OFFSET_FOR_LEADER_EPOCH = cold(23, "OffsetForLeaderEpoch", versions=(2, 4), flexible_from=4, adapt=_offset_for_leader_epoch)
