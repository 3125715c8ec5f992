"""Fetch on the wire: answered at once where possible, in a turn of its connection when it must wait, and step by step from a task
of its connection when it is about thousands of partitions.

Source: CP-18 to CP-21.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from kraftlite.broker.handlers.context import MOST_WAITING_PARTITIONS, Waiting
from kraftlite.broker.handlers.fetch import (
    FetchAnswer,
    FetchCall,
    FetchedItem,
    FetchPlan,
    answer,
    answer_some,
    begin,
    must_wait,
    resolve,
    untold,
    wait,
)
from kraftlite.broker.handlers.fetch_sessions import SessionKey, SessionPartition
from kraftlite.model.errors import ErrorCode
from kraftlite.model.limits import KIB
from kraftlite.replication.api import FetchResult
from kraftlite.replication.consume import FetchRoom
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
from kraftlite.wire.metering import Meter
from kraftlite.wire.outbound import Part

READ_COMMITTED = 1
ISOLATION_LEVELS = (0, READ_COMMITTED)
FOLLOWER_FETCH_FROM = 11
FETCH_ZSTD_FROM = 10
_HINTED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

LARGE_FRAME_BYTES = 32 * KIB
"""About a thousand partitions: a request of this size is decoded beside the loop."""
LARGE_FETCH_PARTITIONS = 1_000
STEP_PARTITIONS = 250
"""The part of a large fetch that is worked on before others have their turn: some milliseconds."""


def _handle(call: Call) -> None:
    if len(call.frame) > LARGE_FRAME_BYTES:
        call.connection.lease_frame()

        def parse(frame: memoryview, pos: int, version: int) -> FetchCall:
            return _domain(call, parse_fetch(frame, pos, version))

        call.spawn(lambda: call.leased(parse, waits=True, then=lambda it: _large(call, it, begin(call.ctx, it))), "kafka-fetch")
        return
    asked = _domain(call, parse_fetch(call.frame, call.pos, call.version))
    call.frame = memoryview(b"")
    found = begin(call.ctx, asked)
    if len(found.asked) > LARGE_FETCH_PARTITIONS:
        call.spawn(lambda: _large(call, asked, found), "kafka-fetch")
        return
    resolve(call.ctx, asked, found, found.asked)
    if found.entries and asked.isolation_level not in ISOLATION_LEVELS:
        _refuse(call, asked)
        return
    results = call.ctx.replicas.fetch_now(found.params, found.entries) if found.entries else []
    if must_wait(found, results):
        connection = call.connection
        connection.own(wait(call.ctx, found, lambda look: connection.soon(call.guarded(look)), lambda it: _send(call, found, it)))
    else:
        _send(call, found, answer(call.ctx, found, results))


async def _large(call: Call, asked: FetchCall, found: FetchPlan) -> None:
    """Answer a large fetch step by step, with turns of the others between the steps."""
    ctx, gate = call.ctx, call.ctx.large_fetches
    async with gate.turn:
        for step in _steps(found.asked):
            resolve(ctx, asked, found, step)
            await asyncio.sleep(0)
        if found.entries and asked.isolation_level not in ISOLATION_LEVELS:
            _refuse(call, asked)
            return
    waits = bool(found.entries) and not found.refused and found.params.max_wait_ms > 0
    if waits and gate.waiting_partitions + len(found.entries) <= MOST_WAITING_PARTITIONS:
        gate.waiting_partitions += len(found.entries)
        try:
            results = await _wait_large(call, found)
        finally:
            gate.waiting_partitions -= len(found.entries)
    else:
        async with gate.turn:
            results = await _read_large(call, found)
    async with gate.turn:
        await _send_large(call, found, results)


async def _read_large(call: Call, found: FetchPlan, waiting: Waiting | None = None) -> list[FetchResult]:
    """`waiting`: is to hear of what comes from now on, also to partitions that are read while others are yet to be."""
    room = FetchRoom(found.params)
    results: list[FetchResult] = []
    for step in _steps(found.entries):
        results += call.ctx.replicas.fetch_some(room, step)
        if waiting is not None:
            waiting.watch(step)
        await asyncio.sleep(0)
    return results


async def _wait_large(call: Call, found: FetchPlan) -> list[FetchResult]:
    woken = asyncio.Event()
    waiting = call.ctx.replicas.fetch_wait(found.params, woken.set)
    try:
        while True:
            async with call.ctx.large_fetches.turn:
                woken.clear()
                results = await _read_large(call, found, waiting)
            if waiting.expired or not must_wait(found, results):
                return results
            await woken.wait()
    finally:
        waiting.cancel()


async def _send_large(call: Call, found: FetchPlan, results: list[FetchResult]) -> None:
    read = iter(results)
    items: list[FetchedItem] = []
    for step in _steps(found.asked):
        items += answer_some(call.ctx, found, step, read)
        await asyncio.sleep(0)
    nodes: dict[int, Node] = {}
    topics: list[FetchedTopic] = []
    for some in _steps(items):
        _topics(call, some, nodes, topics)
        await asyncio.sleep(0)
    call.note_error(found.error)
    parts = await call.ctx.off_loop.run(
        len(items),
        lambda: encode_fetch(
            call.correlation_id, call.version, topics, error=found.error, session_id=found.session_id, nodes=nodes.values()
        ),
    )
    call.send(parts if call.meter is None else _metered(call, call.meter, found, items, parts))


T = TypeVar("T")


def _steps(things: list[T]) -> Iterator[list[T]]:
    return (things[at : at + STEP_PARTITIONS] for at in range(0, len(things), STEP_PARTITIONS))


def _domain(call: Call, request: FetchRequest) -> FetchCall:
    return FetchCall(
        replica_id=request.replica_id,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes if call.meter is None else call.meter.most_fetched(request.max_bytes),
        isolation_level=request.isolation_level,
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
        rights=call.rights,
    )


def _refuse(call: Call, asked: FetchCall) -> None:
    """Answer as Kafka does to a request that makes no sense to it."""
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    call.note_errors(Counter({error.name: 1 + len(asked.partitions)}))
    topics: list[FetchedTopic] = []
    for (name, topic_id), found in groupby(asked.partitions, key=lambda it: (it.key.name, it.key.topic_id)):
        partitions = [FetchedPartition(it.key.partition, error, -1, -1, -1, None, -1, b"", None, None) for it in found]
        topics.append(FetchedTopic(name, topic_id, partitions))
    call.send(encode_fetch(call.correlation_id, call.version, topics, error=error, session_id=0, nodes=()))


def _send(call: Call, found: FetchPlan, answered: FetchAnswer) -> None:
    nodes: dict[int, Node] = {}
    topics: list[FetchedTopic] = []
    _topics(call, answered.items, nodes, topics)
    if answered.error is not ErrorCode.NONE:
        call.note_error(answered.error)
    parts = encode_fetch(
        call.correlation_id,
        call.version,
        topics,
        error=answered.error,
        session_id=answered.session_id,
        nodes=nodes.values(),
    )
    call.send(parts if call.meter is None else _metered(call, call.meter, found, answered.items, parts))


def _metered(call: Call, meter: Meter, found: FetchPlan, items: Sequence[FetchedItem], parts: Sequence[Part]) -> Sequence[Part]:
    """The answer, or instead of it an empty one for a client that is over its quota: it is charged for what it gets (QU-05)."""
    head = 4 if call.version < FETCH_FLEXIBLE else 5
    throttle_ms = meter.fetched(sum(map(len, parts)) - head)
    if not throttle_ms:
        return parts
    untold(call.ctx, found, items)
    return encode_fetch(
        call.correlation_id, call.version, (), error=found.error, session_id=found.session_id, throttle_ms=throttle_ms
    )


def _topics(call: Call, items: Sequence[FetchedItem], nodes: dict[int, Node], topics: list[FetchedTopic]) -> None:
    """Append the next items to `topics`, and to `nodes` those that they hint at."""
    hints = nodes if call.version >= FETCH_LEADER_HINTS else None
    for item in items:
        key = item.key
        if not topics or (topics[-1].name, topics[-1].topic_id) != (key.name, key.topic_id):
            topics.append(FetchedTopic(key.name, key.topic_id, []))
        topics[-1].partitions.append(_partition(call, item, hints))


def _partition(call: Call, item: FetchedItem, nodes: dict[int, Node] | None) -> FetchedPartition:
    result = item.result
    leader = None
    if result.error is not ErrorCode.NONE:
        call.note_error(result.error)
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
