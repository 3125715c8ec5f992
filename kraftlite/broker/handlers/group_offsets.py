"""Offsets of groups, by topic name or id: what the metadata refuses, and the rest from the group's coordinator.

Source: CP-36, CP-38, CP-40; KIP-516 (topic ids), KIP-709 (several groups).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.coordinators import group_coordinator
from kraftlite.coordinator.api import CommitRequest, FetchedOffset, OffsetToCommit
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import ZERO_UUID
from kraftlite.model.topic_partition import TopicPartition

COMMITTED_AT_ONCE: Final = 1_000
"""Offsets in one batch of records: some 20 ms of the coordinator. A request with more is committed in parts."""
FETCHED_AT_ONCE: Final = 500


class TopicRef(NamedTuple):
    """A topic, named by id when that is not None, else by name."""

    name: str | None
    topic_id: UUID | None


class PartitionCommit(NamedTuple):
    """A partition of an OffsetCommit."""

    topic: TopicRef
    partition: int
    offset: int
    leader_epoch: int | None
    metadata: str


async def commit_offsets(ctx: BrokerContext, base: CommitRequest, commits: Sequence[PartitionCommit]) -> list[ErrorCode]:
    """`base` without its offsets; one error per commit, in order. A refusal as a whole is everybody's error."""
    results: list[ErrorCode | None] = []
    offsets: list[OffsetToCommit] = []
    async for commit in ctx.turns.each(commits):
        tp, error = _known(ctx, commit.topic, commit.partition)
        results.append(None if error is ErrorCode.NONE else error)
        if error is ErrorCode.NONE:
            offsets.append(OffsetToCommit(tp, commit.offset, commit.leader_epoch, commit.metadata))
    found: list[ErrorCode] = []
    async for first in ctx.turns.each(range(0, len(offsets), COMMITTED_AT_ONCE)):
        part = tuple(offsets[first : first + COMMITTED_AT_ONCE])
        try:
            found += await group_coordinator(ctx).commit(replace(base, offsets=part))
        except ApiError as error:
            found += [error.code] * len(part)
    answers = iter(found)
    return [next(answers) if result is None else result for result in results]


def _known(ctx: BrokerContext, ref: TopicRef, partition: int) -> tuple[TopicPartition, ErrorCode]:
    if ref.topic_id is not None:
        topic = ctx.metadata.topic_by_id(ref.topic_id)
        if topic is None:
            return TopicPartition("", partition), ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic = ctx.metadata.topic(ref.name or "")
    if topic is None or partition not in topic.partitions:
        return TopicPartition(ref.name or "", partition), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return TopicPartition(topic.name, partition), ErrorCode.NONE


class FetchedTopic(NamedTuple):
    """A topic of an OffsetFetch answer; `topic_id` is ZERO where names are used."""

    name: str
    topic_id: UUID
    partitions: list[FetchedOffset]


class GroupMember(NamedTuple):
    """The member that asks for offsets; None and -1: the request does not name one."""

    member_id: str | None
    member_epoch: int


NOBODY: Final = GroupMember(None, -1)


async def fetch_offsets(
    ctx: BrokerContext,
    group_id: str,
    topics: Sequence[tuple[TopicRef, Sequence[int]]] | None,
    *,
    require_stable: bool,
    by_id: bool,
    member: GroupMember = NOBODY,
) -> list[FetchedTopic]:
    """Raises ApiError when the group has its coordinator elsewhere, or when `member` is none of it (KIP-848). None for topics:
    all that is committed, by id of topics that exist.

    An unknown topic id is the error of its partitions; an unknown name is not, its offsets may still be there.
    """
    coordinator = group_coordinator(ctx)

    def committed(wanted: Sequence[TopicPartition] | None) -> Sequence[FetchedOffset]:
        return coordinator.fetch_offsets(
            group_id, wanted, require_stable=require_stable, member_id=member.member_id, member_epoch=member.member_epoch
        )

    if topics is None:
        return await _grouped(ctx, committed(None), by_id=by_id)
    found: list[FetchedTopic] = []
    async for ref, partitions in ctx.turns.each(topics):
        name, topic_id = ref.name or "", ref.topic_id or ZERO_UUID
        if ref.topic_id is not None:
            topic = ctx.metadata.topic_by_id(ref.topic_id)
            if topic is None:
                unknown = [FetchedOffset(TopicPartition("", index), ErrorCode.UNKNOWN_TOPIC_ID) for index in partitions]
                found.append(FetchedTopic("", topic_id, unknown))
                continue
            name = topic.name
        offsets: list[FetchedOffset] = []
        async for first in ctx.turns.each(range(0, len(partitions), FETCHED_AT_ONCE)):
            some = partitions[first : first + FETCHED_AT_ONCE]
            offsets += committed([TopicPartition(name, index) for index in some])
        found.append(FetchedTopic(name, topic_id, offsets))
    if not any(offsets.partitions for offsets in found):
        committed(())
    return found


async def _grouped(ctx: BrokerContext, offsets: Sequence[FetchedOffset], *, by_id: bool) -> list[FetchedTopic]:
    topics: dict[str, FetchedTopic] = {}
    async for offset in ctx.turns.each(offsets):
        name = offset.tp.topic
        if name not in topics:
            topic = ctx.metadata.topic(name)
            if topic is None and by_id:
                continue
            topics[name] = FetchedTopic(name, ZERO_UUID if topic is None else topic.topic_id, [])
        topics[name].partitions.append(offset)
    return list(topics.values())


async def delete_offsets(ctx: BrokerContext, group_id: str, partitions: Sequence[TopicPartition]) -> list[ErrorCode]:
    """One error per partition, in order. ApiError when the group as a whole refuses. Topics that are gone have no offsets.

    A partition that is named again is one, and many are deleted in parts.
    """
    found: dict[TopicPartition, ErrorCode] = {}
    async for tp in ctx.turns.each(partitions):
        if tp not in found:
            found[tp] = _known(ctx, TopicRef(tp.topic, None), tp.partition)[1]
    wanted = [tp for tp, error in found.items() if error is ErrorCode.NONE]
    async for first in ctx.turns.each(range(0, max(1, len(wanted)), COMMITTED_AT_ONCE)):
        part = tuple(wanted[first : first + COMMITTED_AT_ONCE])
        try:
            found.update(zip(part, await group_coordinator(ctx).delete_offsets(group_id, part), strict=True))
        except ApiError as error:
            if first == 0:
                raise
            found.update(dict.fromkeys(part, error.code))
    return [found[tp] async for tp in ctx.turns.each(partitions)]
