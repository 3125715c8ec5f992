"""OffsetCommit, OffsetFetch and OffsetDelete on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kraftlite.broker.handlers.group_offsets import (
    FetchedTopic,
    GroupMember,
    PartitionCommit,
    TopicRef,
    commit_offsets,
    delete_offsets,
    fetch_offsets,
)
from kraftlite.coordinator.api import CommitRequest, FetchedOffset
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import ZERO_UUID
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.protocol.primitives import milliseconds
from kraftlite.wire.apis.call import Call, changed, cold

TOPIC_IDS_FROM: Final = 10
"""The first version of both OffsetCommit and OffsetFetch that has topic ids."""
GROUPS_FROM: Final = 8
"""OffsetFetch asks for several groups at once from this version on."""
GROUP_ID_NOT_FOUND_FROM: Final = 9
MEMBER_EPOCH_FROM: Final = 9
"""The first version of both in which members of groups of the new protocol say their epoch."""


def _ref(topic: Any, version: int) -> TopicRef:
    return TopicRef(None, topic.topic_id or ZERO_UUID) if version >= TOPIC_IDS_FROM else TopicRef(topic.name, None)


# --- OffsetCommit --------------------------------------------------------------------------------------------------------


async def _offset_commit(call: Call, request: Any) -> Mapping[str, object]:
    retention = getattr(request, "retention_time", None)
    retention_ms = -1 if retention is None else milliseconds(retention)
    base = CommitRequest(
        group_id=request.group_id,
        generation=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        offsets=(),
        retention_ms=None if retention_ms < 0 else retention_ms,
        group_must_exist_error=(
            ErrorCode.GROUP_ID_NOT_FOUND if call.version >= GROUP_ID_NOT_FOUND_FROM else ErrorCode.ILLEGAL_GENERATION
        ),
        knows_member_epochs=call.version >= MEMBER_EPOCH_FROM,
    )
    commits = []
    async for topic in call.ctx.turns.each(request.topics):
        ref = _ref(topic, call.version)
        commits += [_commit(ref, partition) async for partition in call.ctx.turns.each(topic.partitions)]
    errors = iter(await commit_offsets(call.ctx, base, commits))
    topics = []
    async for topic in call.ctx.turns.each(request.topics):
        named = {"topic_id": topic.topic_id or ZERO_UUID} if call.version >= TOPIC_IDS_FROM else {"name": topic.name}
        partitions = [
            {"partition_index": partition.partition_index, "error_code": next(errors)} for partition in topic.partitions
        ]
        topics.append({**named, "partitions": partitions})
    return {"throttle_time": 0, "topics": topics}


def _commit(ref: TopicRef, partition: Any) -> PartitionCommit:
    leader_epoch = getattr(partition, "committed_leader_epoch", -1)
    return PartitionCommit(
        ref,
        partition.partition_index,
        partition.committed_offset,
        None if leader_epoch < 0 else leader_epoch,
        partition.committed_metadata or "",
    )


# --- OffsetFetch ---------------------------------------------------------------------------------------------------------


async def _fetched_once(call: Call, request: Any) -> Any:
    """The OffsetFetch with each group, topic and partition once. One that is named again would be told again, with its metadata
    of up to 4 kB: an answer of 600 MB to a request of 350 kB. What is asked of one group in several places is one question, and
    whatever it has committed another one."""
    groups = getattr(request, "groups", None)
    if groups is None:
        return changed(request, topics=await _topics_once(call, request.topics))
    named: dict[tuple[str, bool], list[Any]] = {}
    async for group in call.ctx.turns.each(groups):
        named.setdefault((group.group_id, group.topics is None), []).append(group)
    kept = []
    async for (_group_id, everything), same in call.ctx.turns.each(named.items()):
        topics = None if everything else [topic for group in same for topic in group.topics]
        kept.append(changed(same[0], topics=await _topics_once(call, topics)))
    return changed(request, groups=tuple(kept))


async def _topics_once(call: Call, topics: Sequence[Any] | None) -> tuple[Any, ...] | None:
    if topics is None:
        return None
    named: dict[object, tuple[Any, dict[int, None]]] = {}
    async for topic in call.ctx.turns.each(topics):
        _first, indexes = named.setdefault(_ref(topic, call.version), (topic, {}))
        indexes.update(dict.fromkeys(topic.partition_indexes))
    return tuple([changed(first, partition_indexes=tuple(indexes)) for first, indexes in named.values()])


async def _offset_fetch(call: Call, request: Any) -> Mapping[str, object]:
    stable = getattr(request, "require_stable", False)
    if call.version >= GROUPS_FROM:
        groups = [await _group(call, group, stable) async for group in call.ctx.turns.each(request.groups)]
        return {"throttle_time": 0, "groups": groups}
    error, topics = await _fetch(call, request.group_id, request.topics, stable, None, -1)
    if error is not ErrorCode.NONE and call.version < 2:  # there is no place for an error but in the partitions
        topics = _refused(request.topics or (), error)
    return {
        "throttle_time": 0,
        "error_code": error,
        "topics": [_topic(topic, call.version) async for topic in call.ctx.turns.each(topics)],
    }


async def _group(call: Call, group: Any, stable: bool) -> dict[str, object]:
    member_id = getattr(group, "member_id", None)
    error, topics = await _fetch(call, group.group_id, group.topics, stable, member_id, getattr(group, "member_epoch", -1))
    return {
        "group_id": group.group_id,
        "error_code": error,
        "topics": [_topic(topic, call.version) async for topic in call.ctx.turns.each(topics)],
    }


async def _fetch(
    call: Call, group_id: str, topics: Any, stable: bool, member_id: str | None, member_epoch: int
) -> tuple[ErrorCode, list[FetchedTopic]]:
    wanted = None if topics is None else [(_ref(topic, call.version), topic.partition_indexes) for topic in topics]
    by_id = call.version >= TOPIC_IDS_FROM
    try:
        member = GroupMember(member_id, member_epoch)
        found = await fetch_offsets(call.ctx, group_id, wanted, require_stable=stable, by_id=by_id, member=member)
        return ErrorCode.NONE, found
    except ApiError as error:
        return error.code, []


def _refused(topics: Sequence[Any], error: ErrorCode) -> list[FetchedTopic]:
    return [
        FetchedTopic(
            topic.name,
            ZERO_UUID,
            [FetchedOffset(TopicPartition(topic.name, index), error) for index in topic.partition_indexes],
        )
        for topic in topics
    ]


def _topic(topic: FetchedTopic, version: int) -> dict[str, object]:
    return {
        **({"topic_id": topic.topic_id} if version >= TOPIC_IDS_FROM else {"name": topic.name}),
        "partitions": [
            {
                "partition_index": offset.tp.partition,
                "committed_offset": offset.offset,
                "committed_leader_epoch": -1 if offset.leader_epoch is None else offset.leader_epoch,
                "metadata": offset.metadata,
                "error_code": offset.error,
            }
            for offset in topic.partitions
        ],
    }


# --- OffsetDelete --------------------------------------------------------------------------------------------------------


async def _offset_delete(call: Call, request: Any) -> Mapping[str, object]:
    partitions: list[TopicPartition] = []
    async for topic in call.ctx.turns.each(request.topics):
        partitions += [TopicPartition(topic.name, one.partition_index) for one in topic.partitions]
    try:
        errors = iter(await delete_offsets(call.ctx, request.group_id, partitions))
    except ApiError as error:
        return {"error_code": error.code, "throttle_time": 0, "topics": []}
    topics = [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": partition.partition_index, "error_code": next(errors)} for partition in topic.partitions
            ],
        }
        for topic in request.topics
    ]
    return {"error_code": ErrorCode.NONE, "throttle_time": 0, "topics": topics}


OFFSET_COMMIT = cold(8, "OffsetCommit", versions=(2, 10), flexible_from=8, adapt=_offset_commit)
OFFSET_FETCH = cold(9, "OffsetFetch", versions=(1, 10), flexible_from=6, adapt=_offset_fetch, prepare=_fetched_once)
OFFSET_DELETE = cold(47, "OffsetDelete", versions=(0, 0), flexible_from=1, adapt=_offset_delete)
