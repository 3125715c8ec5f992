"""Fetch: sessions, limits and topic ids around the replica manager's reads.

Source: KIP-227, KIP-320, KIP-516, KIP-951; CP-18 to CP-21, CP-23.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from kraftlite.broker.handlers.context import BrokerContext, Waiting
from kraftlite.broker.handlers.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    SessionKey,
    SessionPartition,
)
from kraftlite.model.acls import Operation
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import ZERO_UUID
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import FetchEntry, FetchParams, FetchResult
from kraftlite.replication.consume import may_wait
from kraftlite.security.gate import Rights

CONSUMER: Final = -1
"""The `replica_id` of who is no broker. Others below 0 are consumers, too, as in Kafka."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchCall:
    """A request. `partitions` and `forgotten` as the client named them."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    read_committed: bool
    session_id: int
    session_epoch: int
    uses_topic_ids: bool
    partitions: Sequence[SessionPartition]
    forgotten: Sequence[SessionKey]
    rack_id: str | None
    leader_only: bool = False
    """The client is too old to be sent to a follower (before v11), so it must not be served by one."""
    zstd_allowed: bool = True
    """False before v10: topics whose `compression.type` is zstd are refused (KIP-110, LG-13)."""
    rights: Rights | None = None
    """The client's rights; None: it may do everything."""


class FetchedItem(NamedTuple):
    """One partition of an answer, under the key by which the client asked."""

    key: SessionKey
    result: FetchResult


@dataclass(slots=True, kw_only=True)
class FetchPlan:
    """The partitions that a request asks for once its session is known. `refused` are answered without a read."""

    session: FetchSession | None
    full: bool
    params: FetchParams
    asked: list[SessionPartition]
    entries: list[FetchEntry]
    refused: dict[SessionKey, FetchResult]
    error: ErrorCode = ErrorCode.NONE

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.session_id


class FetchAnswer(NamedTuple):
    """A response. `error` is one of the session; the items then are empty."""

    error: ErrorCode
    session_id: int
    items: list[FetchedItem]


def plan(ctx: BrokerContext, call: FetchCall) -> FetchPlan:
    """Open, resume or end the session, and resolve names. A session error ends up in `error`, with nothing to read."""
    found = begin(ctx, call)
    resolve(ctx, call, found, found.asked)
    return found


def begin(ctx: BrokerContext, call: FetchCall) -> FetchPlan:
    """The first half of `plan`: what is asked is known, what of it is there is left to `resolve`."""
    max_bytes = min(call.max_bytes, ctx.settings.fetch_max_bytes)
    params = FetchParams(
        max_wait_ms=max(call.max_wait_ms, 0),
        min_bytes=min(call.min_bytes, max_bytes),
        max_bytes=max_bytes,
        read_committed=call.read_committed,
        rack_id=call.rack_id or None,
        leader_only=call.leader_only,
    )
    session: FetchSession | None = None
    asked = list(call.partitions)
    full = call.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)
    if full:
        if call.session_id != NO_SESSION:
            ctx.fetch_sessions.close(call.session_id)
        if call.session_epoch == INITIAL_EPOCH and asked and call.replica_id < 0:
            session = ctx.fetch_sessions.create(asked, uses_topic_ids=call.uses_topic_ids, now_ms=ctx.clock.now_ms())
    else:
        try:
            session = ctx.fetch_sessions.resume(
                call.session_id,
                call.session_epoch,
                asked,
                call.forgotten,
                uses_topic_ids=call.uses_topic_ids,
                now_ms=ctx.clock.now_ms(),
            )
        except ApiError as error:
            return FetchPlan(session=None, full=True, params=params, asked=[], entries=[], refused={}, error=error.code)
        if session is not None:
            asked = list(session.partitions.values())
    return FetchPlan(session=session, full=full or session is None, params=params, asked=asked, entries=[], refused={})


def resolve(ctx: BrokerContext, call: FetchCall, found: FetchPlan, partitions: Sequence[SessionPartition]) -> None:
    """The second half of `plan`, for the next of the partitions that are asked for."""
    for partition in partitions:
        _resolve(ctx, call, found, partition)


def _resolve(ctx: BrokerContext, call: FetchCall, found: FetchPlan, partition: SessionPartition) -> None:
    key = partition.key
    if key.name is None:
        topic = ctx.metadata.topic_by_id(key.topic_id or ZERO_UUID)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic = ctx.metadata.topic(key.name)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    tp = TopicPartition(key.name or "" if topic is None else topic.name, key.partition)
    if topic is None and key.name is None:
        found.refused[key] = refused(tp, unknown)
    elif call.rights is not None and not call.rights.topic(Operation.READ, tp.topic):
        found.refused[key] = refused(tp, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    elif topic is None:
        found.refused[key] = refused(tp, unknown)
    elif key.partition not in topic.partitions:
        found.refused[key] = refused(tp, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    elif call.replica_id >= 0:
        # Followers fetch over their own RPC; whoever claims to be one here is not authorised for it.
        found.refused[key] = refused(tp, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    elif not call.zstd_allowed and ctx.log_config_for(topic.name).compression_type == "zstd":
        found.refused[key] = refused(tp, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    else:
        found.entries.append(
            FetchEntry(
                tp=tp,
                topic_id=topic.topic_id,
                fetch_offset=partition.fetch_offset,
                current_leader_epoch=None if partition.current_leader_epoch < 0 else partition.current_leader_epoch,
                last_fetched_epoch=None if partition.last_fetched_epoch < 0 else partition.last_fetched_epoch,
                max_bytes=partition.max_bytes,
            )
        )


def refused(tp: TopicPartition, error: ErrorCode) -> FetchResult:
    return FetchResult(tp=tp, error=error, hw=-1, last_stable_offset=-1, log_start_offset=-1, records=b"", aborted=())


def must_wait(found: FetchPlan, results: Sequence[FetchResult]) -> bool:
    """CP-18: an answer waits only when it has too few bytes and nothing urgent to say."""
    return bool(found.entries) and not found.refused and may_wait(found.params, results)


def wait(
    ctx: BrokerContext, found: FetchPlan, soon: Callable[[Callable[[], None]], None], done: Callable[[FetchAnswer], None]
) -> Waiting:
    """Wait on behalf of a fetch that `must_wait`. `done` has the answer once there is enough or the time is over; who waits
    looks for that in turns that it asks `soon` for. `cancel` what is returned when nobody wants the answer any more."""

    def look() -> None:
        results = ctx.replicas.fetch_now(found.params, found.entries)
        if not waiting.expired and must_wait(found, results):
            waiting.watch(found.entries)
            return
        waiting.cancel()
        done(answer(ctx, found, results))

    waiting = ctx.replicas.fetch_wait(found.params, lambda: soon(look))
    waiting.watch(found.entries)
    return waiting


def answer(ctx: BrokerContext, found: FetchPlan, results: Sequence[FetchResult]) -> FetchAnswer:
    """Everything in a full response; in an incremental one only what the client does not know yet."""
    return FetchAnswer(found.error, found.session_id, answer_some(ctx, found, found.asked, iter(results)))


def answer_some(
    ctx: BrokerContext, found: FetchPlan, asked: Sequence[SessionPartition], read: Iterator[FetchResult]
) -> list[FetchedItem]:
    """Answer the next partitions of a fetch whose answer is made in parts."""
    session = found.session
    items: list[FetchedItem] = []
    for partition in asked:
        result = found.refused.get(partition.key)
        if result is None:
            result = next(read)
            if result.error is not ErrorCode.NONE:
                result = _told(partition.key, result)
        tell = True
        if session is not None:
            tell = session.must_tell(
                partition,
                hw=result.hw,
                log_start_offset=result.log_start_offset,
                size=len(result.records),
                error=result.error is not ErrorCode.NONE or result.diverging is not None,
            )
        if tell or found.full or result.preferred_read_replica is not None:
            items.append(FetchedItem(partition.key, result))
    return items


def untold(ctx: BrokerContext, found: FetchPlan, items: Sequence[FetchedItem]) -> None:
    """Take back what the session remembers of an answer that is not sent: its client is told again. A session that this request
    opened ends, for the client does not learn of it."""
    session = found.session
    if session is None:
        return
    if found.full:
        ctx.fetch_sessions.close(session.session_id)
        found.session = None
    for item in items:
        partition = session.partitions.get(item.key)
        if partition is not None:
            partition.hw = -1


def _told(key: SessionKey, result: FetchResult) -> FetchResult:
    """A client that names its topic, which was deleted and made again a moment before, hears that it is not known: by name nobody
    can mean another topic of it."""
    if result.error is ErrorCode.INCONSISTENT_TOPIC_ID and key.name is not None:
        return replace(result, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return result
