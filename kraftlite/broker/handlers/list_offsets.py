"""ListOffsets and OffsetForLeaderEpoch. Source: CP-21, CP-22, RP-14; KIP-79, KIP-207, KIP-320, KIP-734, KIP-405."""

from __future__ import annotations

from typing import Final, NamedTuple

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.log.seek import SEEK_IN_PLACE, Seeker, Unfinished
from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition

DEBUG_CONSUMER: Final = -2
"""The `replica_id` of a tool that is told the end of the log, from any replica."""
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

_SINCE_VERSION: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


class OffsetQuery(NamedTuple):
    """`current_leader_epoch` None: not checked (CP-21)."""

    tp: TopicPartition
    timestamp: int
    """A time in milliseconds, or one of the special values above."""
    current_leader_epoch: int | None


class OffsetAnswer(NamedTuple):
    """-1 where there is no such offset, timestamp or epoch, as on the wire."""

    error: ErrorCode
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


def is_lookup(timestamp: int) -> bool:
    """Return whether records have to be looked at for it, which may take long."""
    return timestamp >= 0 or timestamp == MAX_TIMESTAMP


async def look_up(
    ctx: BrokerContext, query: OffsetQuery, *, version: int, read_committed: bool, debug: bool, duplicate: bool
) -> OffsetAnswer:
    """`list_offset`, of which what takes long is done off the loop."""
    seeker = Seeker(SEEK_IN_PLACE)
    while True:
        try:
            return list_offset(
                ctx, query, version=version, read_committed=read_committed, debug=debug, duplicate=duplicate, seeker=seeker
            )
        except Unfinished:
            await (ctx.off_loop.run(0, seeker.finish) if seeker.begun else ctx.turns.next())
            seeker.renew()


def list_offset(
    ctx: BrokerContext,
    query: OffsetQuery,
    *,
    version: int,
    read_committed: bool,
    debug: bool,
    duplicate: bool,
    seeker: Seeker | None = None,
) -> OffsetAnswer:
    """`duplicate`: the request names this partition more than once. `version`: of the request, for what it may ask."""
    if duplicate:
        return OffsetAnswer(ErrorCode.INVALID_REQUEST)
    if query.timestamp < 0 and version < _SINCE_VERSION.get(query.timestamp, 1 << 15):
        return OffsetAnswer(ErrorCode.UNSUPPORTED_VERSION)
    topic = ctx.metadata.topic(query.tp.topic)
    if topic is None or query.tp.partition not in topic.partitions:
        return OffsetAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    # Nothing is tiered here: the local log starts where the log starts, and no offset is in remote storage.
    tiered = query.timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
    timestamp = EARLIEST if tiered or query.timestamp == EARLIEST_LOCAL else query.timestamp
    found = ctx.replicas.list_offset(
        query.tp,
        topic.topic_id,
        timestamp,
        current_leader_epoch=query.current_leader_epoch,
        read_committed=read_committed,
        debug=debug,
        version5_plus=version >= 5,
        seeker=seeker,
    )
    if found.error is ErrorCode.INCONSISTENT_TOPIC_ID:  # the replica of the topic that had this name before
        return OffsetAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if found.error is not ErrorCode.NONE:
        return OffsetAnswer(found.error)
    if tiered:
        return OffsetAnswer(ErrorCode.NONE)
    return OffsetAnswer(ErrorCode.NONE, found.timestamp, found.offset, found.leader_epoch)


class EpochAnswer(NamedTuple):
    """The end of an epoch; -1 when it is not known."""

    error: ErrorCode
    leader_epoch: int = -1
    end_offset: int = -1


def offset_for_leader_epoch(
    ctx: BrokerContext, tp: TopicPartition, *, current_leader_epoch: int | None, leader_epoch: int
) -> EpochAnswer:
    if ctx.metadata.partition(*tp) is None:
        return EpochAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    error, epoch, end_offset = ctx.replicas.offset_for_leader_epoch(
        tp, current_leader_epoch=current_leader_epoch, leader_epoch=leader_epoch
    )
    return EpochAnswer(error) if error is not ErrorCode.NONE else EpochAnswer(error, epoch, end_offset)
