"""Fetch: sessions, limits and topic ids around the replica manager's reads.

Source: KIP-227, KIP-320, KIP-516, KIP-951; CP-18 to CP-21, CP-23.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    SessionKey,
    SessionPartition,
)
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import ZERO_UUID
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import FetchEntry, FetchParams, FetchResult, LeaderHint

CONSUMER: Final = -1
DEBUG_CONSUMER: Final = -2
"""As `replica_id`: an ordinary consumer, and a tool that may read up to the leo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchCall:
    """A request. `partitions` and `forgotten` as the client named them."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
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


class FetchedItem(NamedTuple):
    """One partition of an answer, under the key by which the client asked."""

    key: SessionKey
    result: FetchResult


@dataclass(slots=True, kw_only=True)
class FetchPlan:
    """What a request asks for once its session is known. `refused` are answered without a read."""

    session: FetchSession | None
    full: bool
    params: FetchParams
    asked: list[SessionPartition]
    entries: list[FetchEntry]
    refused: dict[SessionKey, FetchResult]
    error: ErrorCode = ErrorCode.NONE


class FetchAnswer(NamedTuple):
    """A response. `error` is one of the session; the items then are empty."""

    error: ErrorCode
    session_id: int
    items: list[FetchedItem]


def plan(ctx: BrokerContext, call: FetchCall) -> FetchPlan:
    """Open, resume or end the session, and resolve names. A session error ends up in `error`, with nothing to read."""
    max_bytes = min(call.max_bytes, ctx.settings.fetch_max_bytes)
    params = FetchParams(
        max_wait_ms=max(call.max_wait_ms, 0),
        min_bytes=min(call.min_bytes, max_bytes),
        max_bytes=max_bytes,
        read_committed=call.read_committed,
        rack_id=call.rack_id or None,
        is_debug=call.replica_id == DEBUG_CONSUMER,
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
    found = FetchPlan(session=session, full=full or session is None, params=params, asked=asked, entries=[], refused={})
    for partition in asked:
        _resolve(ctx, call, found, partition)
    return found


def _resolve(ctx: BrokerContext, call: FetchCall, found: FetchPlan, partition: SessionPartition) -> None:
    key = partition.key
    if key.name is None:
        topic = ctx.metadata.topic_by_id(key.topic_id or ZERO_UUID)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic = ctx.metadata.topic(key.name)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    tp = TopicPartition(key.name or "" if topic is None else topic.name, key.partition)
    if topic is None:
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
    return FetchResult(tp=tp, error=error, hw=-1, last_stable_offset=-1, log_start_offset=-1, records=b"")


def must_wait(found: FetchPlan, results: Sequence[FetchResult]) -> bool:
    """CP-18: an answer waits only when it has too few bytes and nothing urgent to say."""
    params = found.params
    if params.max_wait_ms <= 0 or not found.entries or found.refused:
        return False
    size = 0
    for result in results:
        if result.error is not ErrorCode.NONE or result.diverging is not None or result.preferred_read_replica is not None:
            return False
        size += len(result.records)
    return size < params.min_bytes


def answer(ctx: BrokerContext, found: FetchPlan, results: Sequence[FetchResult]) -> FetchAnswer:
    """Everything in a full response; in an incremental one only what the client does not know yet."""
    session = found.session
    items: list[FetchedItem] = []
    read = iter(results)
    for partition in found.asked:
        result = found.refused.get(partition.key)
        if result is None:
            result = next(read)
            if result.error in _HINTED and result.leader is None:
                result = _with_hint(ctx, result)
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
    return FetchAnswer(found.error, NO_SESSION if session is None else session.session_id, items)


_HINTED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def _with_hint(ctx: BrokerContext, result: FetchResult) -> FetchResult:
    known = ctx.metadata.leader_of(*result.tp)
    if known is None:
        return result
    return FetchResult(
        tp=result.tp,
        error=result.error,
        hw=result.hw,
        last_stable_offset=result.last_stable_offset,
        log_start_offset=result.log_start_offset,
        records=result.records,
        aborted=result.aborted,
        diverging=result.diverging,
        leader=LeaderHint(leader_id=known[0], leader_epoch=known[1]),
        preferred_read_replica=result.preferred_read_replica,
    )
