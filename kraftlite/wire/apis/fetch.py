"""Fetch on the wire: answered at once where possible, from a task of its connection when it must wait. Source: CP-18 to CP-21."""

from __future__ import annotations

from collections.abc import Sequence

from kraftlite.broker.handlers.fetch import FetchAnswer, FetchCall, FetchedItem, FetchPlan, answer, must_wait, plan
from kraftlite.broker.handlers.fetch_sessions import SessionKey, SessionPartition
from kraftlite.model.errors import ErrorCode
from kraftlite.model.limits import KIB
from kraftlite.wire.apis.call import Api, Call
from kraftlite.wire.apis.produce import hint
from kraftlite.wire.fetch_codec import (
    FETCH_FLEXIBLE,
    FETCH_LEADER_HINTS,
    FETCH_MAX,
    FETCH_MIN,
    FETCH_TOPIC_IDS,
    FetchedPartition,
    FetchedTopic,
    FetchRequest,
    encode_fetch,
    parse_fetch,
)
from kraftlite.wire.hot_codec import Node

READ_COMMITTED = 1
ISOLATION_LEVELS = (0, READ_COMMITTED)
FOLLOWER_FETCH_FROM = 11
FETCH_ZSTD_FROM = 10
PARSED_AT_ONCE_BYTES = 32 * KIB
"""A thousand partitions, in 2 ms."""
_HINTED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def _handle(call: Call) -> None:
    if len(call.frame) > PARSED_AT_ONCE_BYTES:
        call.connection.lease_frame()
        call.spawn(lambda: call.leased(parse_fetch, waits=True, then=lambda it: _later(call, it)), "kafka-large-fetch")
        return
    request = parse_fetch(call.frame, call.pos, call.version)
    call.frame = memoryview(b"")
    waiting = _begin(call, request)
    if waiting is not None:
        call.spawn(lambda: _wait(call, waiting), "kafka-fetch")


async def _later(call: Call, request: FetchRequest) -> None:
    waiting = _begin(call, request)
    if waiting is not None:
        await _wait(call, waiting)


def _begin(call: Call, request: FetchRequest) -> FetchPlan | None:
    """Answer what can be answered now; returns what must wait."""
    found = plan(call.ctx, _domain(call, request))
    if found.entries and request.isolation_level not in ISOLATION_LEVELS:
        _refuse(call, request)
        return None
    results = call.ctx.replicas.fetch_now(found.params, found.entries) if found.entries else []
    if must_wait(found, results):
        return found
    _send(call, answer(call.ctx, found, results))
    return None


async def _wait(call: Call, found: FetchPlan) -> None:
    results = await call.ctx.replicas.fetch(found.params, found.entries)
    _send(call, answer(call.ctx, found, results))


def _domain(call: Call, request: FetchRequest) -> FetchCall:
    return FetchCall(
        replica_id=request.replica_id,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        read_committed=request.isolation_level == READ_COMMITTED,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        uses_topic_ids=call.version >= FETCH_TOPIC_IDS,
        partitions=[
            SessionPartition(
                SessionKey(topic.name, topic.topic_id, partition.partition),
                partition.current_leader_epoch,
                partition.fetch_offset,
                partition.last_fetched_epoch,
                partition.max_bytes,
            )
            for topic in request.topics
            for partition in topic.partitions
        ],
        forgotten=[
            SessionKey(topic.name, topic.topic_id, partition) for topic in request.forgotten for partition in topic.partitions
        ],
        rack_id=request.rack_id,
        leader_only=call.version < FOLLOWER_FETCH_FROM,
        zstd_allowed=call.version >= FETCH_ZSTD_FROM,
    )


def _refuse(call: Call, request: FetchRequest) -> None:
    """What Kafka answers to a request that makes no sense to it."""
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    topics = [
        FetchedTopic(
            topic.name,
            topic.topic_id,
            [FetchedPartition(it.partition, error, -1, -1, -1, None, -1, b"", None, None) for it in topic.partitions],
        )
        for topic in request.topics
    ]
    call.send(encode_fetch(call.correlation_id, call.version, topics, error=error, session_id=0, nodes=()))


def _send(call: Call, found: FetchAnswer) -> None:
    hints = call.version >= FETCH_LEADER_HINTS
    nodes: dict[int, Node] = {}
    topics: list[FetchedTopic] = []
    partitions: list[FetchedPartition] = []
    current: tuple[object, object] | None = None
    for item in found.items:
        key = item.key
        if current is None or current != (key.name, key.topic_id):
            current = (key.name, key.topic_id)
            partitions = []
            topics.append(FetchedTopic(key.name, key.topic_id, partitions))
        partitions.append(_partition(call, item, nodes if hints else None))
    call.send(
        encode_fetch(
            call.correlation_id,
            call.version,
            topics,
            error=found.error,
            session_id=found.session_id,
            nodes=nodes.values(),
        )
    )


def _partition(call: Call, item: FetchedItem, nodes: dict[int, Node] | None) -> FetchedPartition:
    result = item.result
    leader = None
    if nodes is not None and result.leader is not None and result.error in _HINTED:
        leader = hint(call.ctx, call.listener, result.leader, nodes)
    diverging = result.diverging
    aborted: Sequence[tuple[int, int]] | None = result.aborted
    return FetchedPartition(
        item.key.partition,
        result.error,
        result.hw,
        result.last_stable_offset,
        result.log_start_offset,
        aborted,
        -1 if result.preferred_read_replica is None else result.preferred_read_replica,
        result.records,
        None if diverging is None else (diverging.leader_epoch, diverging.end_offset),
        leader,
    )


FETCH = Api(key=1, name="Fetch", min_version=FETCH_MIN, max_version=FETCH_MAX, flexible_from=FETCH_FLEXIBLE, handle=_handle)
