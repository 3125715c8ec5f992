"""The requests of simulated clients to a group coordinator: the production handlers of the group APIs, with domain types.

An error is part of the answer, as on the wire, so that whoever watches learns of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.coordinators import (
    GROUP,
    consumer_groups,
    consumer_heartbeat,
    find_coordinator,
    group_coordinator,
)
from kraftlite.broker.handlers.group_offsets import (
    NOBODY,
    GroupMember,
    PartitionCommit,
    TopicRef,
    commit_offsets,
    delete_offsets,
    fetch_offsets,
)
from kraftlite.coordinator.api import (
    CommitRequest,
    ConsumerHeartbeatRequest,
    FetchedOffset,
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    SyncRequest,
    SyncResult,
)
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.method import Method
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.node.build import Node
from kraftlite.runtime.ports import Handlers, route

CLIENT_LISTENER: Final = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class FindAsk:
    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitAsk:
    """An OffsetCommit: `base` has no offsets of its own."""

    base: CommitRequest
    commits: tuple[PartitionCommit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchAsk:
    """`partitions` None: all that is committed. `member`: who asks, as members of the consumer protocol say it."""

    group_id: str
    partitions: tuple[TopicPartition, ...] | None
    member: GroupMember = NOBODY
    require_stable: bool = True


@dataclass(frozen=True, slots=True)
class OffsetDeleteAsk:
    group_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class DescribeAsk:
    """`consumer`: as a group of the consumer protocol."""

    group_id: str
    consumer: bool


@dataclass(frozen=True, slots=True)
class ListAsk:
    pass


@dataclass(frozen=True, slots=True)
class DeleteAsk:
    group_id: str


@dataclass(frozen=True, slots=True)
class Told:
    """An answer. `result` None where `error` is that of the request as a whole."""

    error: ErrorCode
    result: Any = None


async def told(work: Callable[[], Awaitable[Any]]) -> Told:
    """Answer with the result, or with the error that it raises."""
    try:
        return Told(ErrorCode.NONE, await work())
    except ApiError as error:
        return Told(error.code)


FIND: Final = Method("Client", "FindCoordinator", FindAsk, Told)
JOIN: Final = Method("Client", "JoinGroup", JoinRequest, JoinResult)
SYNC: Final = Method("Client", "SyncGroup", SyncRequest, SyncResult)
HEARTBEAT: Final = Method("Client", "Heartbeat", HeartbeatRequest, Told)
LEAVE: Final = Method("Client", "LeaveGroup", LeaveRequest, Told)
BEAT: Final = Method("Client", "ConsumerGroupHeartbeat", ConsumerHeartbeatRequest, Told)
COMMIT: Final = Method("Client", "OffsetCommit", CommitAsk, Told)
OFFSET_FETCH: Final = Method("Client", "OffsetFetch", OffsetFetchAsk, Told)
OFFSET_DELETE: Final = Method("Client", "OffsetDelete", OffsetDeleteAsk, Told)
DESCRIBE: Final = Method("Client", "DescribeGroups", DescribeAsk, Told)
LIST: Final = Method("Client", "ListGroups", ListAsk, Told)
DELETE: Final = Method("Client", "DeleteGroups", DeleteAsk, Told)

HEARTBEAT_VERSION: Final = 1
"""The version of ConsumerGroupHeartbeat that members of these workloads speak: they make their ids themselves."""


def routes(node: Node) -> Handlers:
    assert node.broker is not None
    service = _Groups(node.broker.context)
    return dict(
        (
            route(FIND, service.find),
            route(JOIN, service.join),
            route(SYNC, service.sync),
            route(HEARTBEAT, service.heartbeat),
            route(LEAVE, service.leave),
            route(BEAT, service.beat),
            route(COMMIT, service.commit),
            route(OFFSET_FETCH, service.offset_fetch),
            route(OFFSET_DELETE, service.offset_delete),
            route(DESCRIBE, service.describe),
            route(LIST, service.overviews),
            route(DELETE, service.delete),
        )
    )


class _Groups:
    def __init__(self, context: BrokerContext) -> None:
        self._ctx = context
        self._groups = group_coordinator(context)

    async def find(self, ask: FindAsk) -> Told:
        """The result is a `BrokerEndpoint`."""
        found = find_coordinator(self._ctx, CLIENT_LISTENER, GROUP, ask.group_id)
        return Told(found.error, found.broker)

    async def join(self, request: JoinRequest) -> JoinResult:
        try:
            return await self._groups.join(request)
        except ApiError as error:
            return JoinResult(error=error.code, member_id=request.member_id)

    async def sync(self, request: SyncRequest) -> SyncResult:
        try:
            return await self._groups.sync(request)
        except ApiError as error:
            return SyncResult(error=error.code)

    async def heartbeat(self, request: HeartbeatRequest) -> Told:
        try:
            return Told(await self._groups.heartbeat(request))
        except ApiError as error:
            return Told(error.code)

    async def leave(self, request: LeaveRequest) -> Told:
        """The result has a pair (member, error) for each member."""
        return await told(lambda: self._groups.leave(request))

    async def beat(self, request: ConsumerHeartbeatRequest) -> Told:
        """The result is a `ConsumerHeartbeatResult`."""
        return await told(lambda: consumer_heartbeat(self._ctx, request, HEARTBEAT_VERSION))

    async def commit(self, ask: CommitAsk) -> Told:
        """The result has one error for each commit."""
        return await told(lambda: commit_offsets(self._ctx, ask.base, ask.commits))

    async def offset_fetch(self, ask: OffsetFetchAsk) -> Told:
        """The result has a `FetchedOffset` for each partition."""
        wanted = None if ask.partitions is None else [(TopicRef(it.topic, None), (it.partition,)) for it in ask.partitions]

        async def work() -> list[FetchedOffset]:
            found = await fetch_offsets(
                self._ctx, ask.group_id, wanted, require_stable=ask.require_stable, by_id=False, member=ask.member
            )
            return [offset for topic in found for offset in topic.partitions]

        return await told(work)

    async def offset_delete(self, ask: OffsetDeleteAsk) -> Told:
        """The result has one error for each partition."""
        return await told(lambda: delete_offsets(self._ctx, ask.group_id, ask.partitions))

    async def describe(self, ask: DescribeAsk) -> Told:
        """The result is a `GroupDescription`, None for a group that is not there, or a `ConsumerGroupDescription`."""

        async def work() -> Any:
            if ask.consumer:
                return consumer_groups(self._ctx).describe_consumers(ask.group_id)
            return self._groups.describe(ask.group_id)

        return await told(work)

    async def overviews(self, ask: ListAsk) -> Told:
        """The result has a `GroupOverview` for each group."""

        async def work() -> Any:
            return self._groups.list_groups()

        return await told(work)

    async def delete(self, ask: DeleteAsk) -> Told:
        return await told(lambda: self._groups.delete_group(ask.group_id))
