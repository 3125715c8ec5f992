"""The group coordinator of a broker: follows who leads `__consumer_offsets`, routes requests to the partition of their group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any, Final
from uuid import UUID

from kraftlite.coordinator.api import (
    CommitRequest,
    ConsumerGroupDescription,
    ConsumerHeartbeatRequest,
    ConsumerHeartbeatResult,
    DeleteGroupRequest,
    DeleteOffsetsRequest,
    EndRequest,
    FetchedOffset,
    GroupDescription,
    GroupOverview,
    GroupRequest,
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from kraftlite.coordinator.config import GroupConfig
from kraftlite.coordinator.core.keys import check_room
from kraftlite.coordinator.core.led_partitions import LedPartitions
from kraftlite.coordinator.core.load_times import LoadTimes
from kraftlite.coordinator.core.placement import OFFSETS_TOPIC, partition_for
from kraftlite.coordinator.core.ports import CoordinatorLog
from kraftlite.coordinator.core.shard_driver import ShardDriver
from kraftlite.coordinator.core.shards import ShardSettings
from kraftlite.coordinator.shard_core import GroupShard, MetadataChanged, TopicsDeleted
from kraftlite.log.guards import TransactionTerms
from kraftlite.metadata.image import MetadataImage
from kraftlite.metadata.topics_delta import TopicDelta, TopicsDelta
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.limits import MAX_COORDINATED_BYTES, MAX_STRING_BYTES
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import MarkerEntry
from kraftlite.runtime.ports import Ports, Tracer
from kraftlite.runtime.trace.group import GroupsLoaded, GroupsLoadFailed, GroupsLoading, GroupsUnloaded
from kraftlite.runtime.turns import Turns

MAX_NAME_BYTES: Final = MAX_STRING_BYTES - 37
"""The longest name that, with a dash and a UUID behind it, is still a string."""


GroupDriver = ShardDriver[GroupShard]
Enrol = Callable[[TopicPartition], Awaitable[TransactionTerms | None]]
"""Asks whether a transaction may write to a partition, and under which terms. Raises ApiError."""

_MAKES_GROUPS: Final = (JoinRequest, CommitRequest, ConsumerHeartbeatRequest)
_NOT_COORDINATING: Final = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)
"""Errors of groups that the senders of markers do not know."""


class GroupCoordinator:
    """Coordinates the groups whose partition of `__consumer_offsets` this broker leads. All methods on the node's loop.

    Requests raise ApiError: INVALID_GROUP_ID; COORDINATOR_NOT_AVAILABLE while the topic does not exist; NOT_COORDINATOR where
    another broker leads; COORDINATOR_LOAD_IN_PROGRESS while the partition is read; POLICY_VIOLATION for a new group when there
    are too many. Answers that need the log come when it has
    them, at the latest after `offsets.commit.timeout.ms`; a join or sync waits for the other members.
    Source: Kafka's GroupCoordinatorService; ML-22, CP-25 to CP-41.
    """

    def __init__(self, ports: Ports, node_id: NodeId, config: GroupConfig, log: CoordinatorLog) -> None:
        self._ports = ports
        self.config = config
        self._node_id = node_id
        self._log = log
        self._image = MetadataImage.EMPTY
        self.load_times = LoadTimes(ports.clock)
        self._trace = _GroupTrace(ports.tracer, self.load_times)
        self._turns = Turns(ports.clock)
        self.most_bytes = MAX_COORDINATED_BYTES
        self._settings = ShardSettings(
            load_buffer_bytes=config.load_buffer_bytes,
            compression_codec=config.compression_codec,
            append_timeout_ms=config.commit_timeout_ms,
        )
        self.led: LedPartitions[GroupShard] = LedPartitions(OFFSETS_TOPIC, "group", node_id, self._begin)

    def _begin(self, tp: TopicPartition, topic_id: UUID, leader_epoch: int) -> GroupDriver:
        shard = GroupShard(self.config, self._ports.tracer, self._ports.entropy, self._image, self._node_id)
        return ShardDriver(self._ports, self._settings, self._log, self._trace, tp, topic_id, leader_epoch, shard, self._turns)

    # --- metadata -----------------------------------------------------------------------------------------------------

    def replicas_applied(self, delta: TopicsDelta, image: MetadataImage) -> None:
        """Called for every change of topics, after the local replicas have followed it (ML-21)."""
        self._image = image
        self.led.apply(delta, image.topics.topic(OFFSETS_TOPIC))
        deleted = frozenset(topic.name for topic in delta.deleted.values())
        if deleted:
            self.led.tell(TopicsDeleted(topics=deleted))
        self._tell_metadata(delta)

    def configs_applied(self, image: MetadataImage) -> None:
        """Called for every change of configs: some may be of groups."""
        self._image = image
        self.led.tell(MetadataChanged(image=image, topics=(), created=False))

    def _tell_metadata(self, delta: TopicsDelta) -> None:
        """Tell the shards about changes that assignments depend on: a change of leaders or of an ISR is none."""
        changed = [topic for topic in delta.changed.values() if _resized(topic)]
        if not changed and not delta.deleted:
            return
        names = tuple(topic.name for topic in changed) + tuple(topic.name for topic in delta.deleted.values())
        created = any(not topic.image.partitions for topic in changed)
        self.led.tell(MetadataChanged(image=self._image, topics=names, created=created))

    def close(self) -> None:
        """Everybody who waits gets NOT_COORDINATOR."""
        self.led.close()

    # --- routing ------------------------------------------------------------------------------------------------------

    async def _ask(self, request: GroupRequest, *, nameless: bool = False) -> Any:
        """`nameless`: the empty group id is allowed, which old clients commit under."""
        if not request.group_id and not nameless:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        driver = self.led.of(request.group_id)
        if isinstance(request, _MAKES_GROUPS):
            self._check_room(driver, request.group_id)
        return await driver.ask(request)

    def _check_room(self, driver: GroupDriver, group_id: str) -> None:
        """Raise ApiError(POLICY_VIOLATION) for a new group when there are too many."""
        if driver.loaded and not driver.shard.knows(group_id):
            keyed = (found for shard in self.led.loaded() for found in (shard.groups.by_id, shard.consumers.by_id))
            check_room(keyed, self.most_bytes, "group ids")

    # --- members ------------------------------------------------------------------------------------------------------

    async def join(self, request: JoinRequest) -> JoinResult:
        low, high = self.config.min_session_timeout_ms, self.config.max_session_timeout_ms
        if request.group_id and not low <= request.session_timeout_ms <= high:
            raise ApiError(
                ErrorCode.INVALID_SESSION_TIMEOUT, f"session timeout {request.session_timeout_ms} ms: allowed is {low} to {high}"
            )
        _check_names(request.client_id, request.instance_id)
        result: JoinResult = await self._ask(request)
        return result

    async def sync(self, request: SyncRequest) -> SyncResult:
        """While the group is loaded it has lost what it was about: the member joins again."""
        try:
            result: SyncResult = await self._ask(request)
        except ApiError as error:
            if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, error.message) from error
            raise
        return result

    async def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Take a heartbeat. While the group is loaded every heartbeat is fine."""
        try:
            result: ErrorCode = await self._ask(request)
        except ApiError as error:
            if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return ErrorCode.NONE
            raise
        return result

    async def leave(self, request: LeaveRequest) -> tuple[tuple[LeavingMember, ErrorCode], ...]:
        result: tuple[tuple[LeavingMember, ErrorCode], ...] = await self._ask(request)
        return result

    async def consumer_heartbeat(self, request: ConsumerHeartbeatRequest) -> ConsumerHeartbeatResult:
        """Take a heartbeat of KIP-848. The request is well-formed (`modern/validate`)."""
        _check_names(request.client_id, request.instance_id)
        result: ConsumerHeartbeatResult = await self._ask(request)
        return result

    # --- offsets ------------------------------------------------------------------------------------------------------

    async def commit(self, request: CommitRequest) -> tuple[ErrorCode, ...]:
        """One error per offset, in order."""
        result: tuple[ErrorCode, ...] = await self._ask(request, nameless=True)
        return result

    def partition_of(self, group_id: str) -> TopicPartition:
        """The partition of the offsets topic that a group belongs to, wherever it is led, and also before the topic exists."""
        topic = self.led.topic
        count = self.config.topic_partitions if topic is None else len(topic.partitions)
        return TopicPartition(OFFSETS_TOPIC, partition_for(group_id, count))

    async def commit_in_transaction(self, request: CommitRequest, enrol: Enrol) -> tuple[ErrorCode, ...]:
        """Commit offsets that count when their transaction does. `enrol` finds out whether the transaction may write to a
        partition that is led here, under which terms, and raises ApiError (TG-01). One error per offset, in order."""
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        driver = self.led.of(request.group_id)
        driver.shard  # noqa: B018 - raises unless it is loaded
        self._check_room(driver, request.group_id)
        terms = await enrol(driver.tp)
        result: tuple[ErrorCode, ...] = await driver.ask(replace(request, terms=terms))
        return result

    async def complete_transaction(self, tp: TopicPartition, marker: MarkerEntry) -> ErrorCode:
        """End a producer's transaction in a partition of the offsets topic: NONE once its marker is committed and its offsets
        are visible. NOT_LEADER_OR_FOLLOWER where another broker leads, and while the partition is read (TG-10, TP-26)."""
        driver = self.led.get(tp.partition) if tp.topic == OFFSETS_TOPIC else None
        if driver is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        try:
            error: ErrorCode = await driver.ask(EndRequest(marker=marker))
        except ApiError as refused:
            error = refused.code
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if error in _NOT_COORDINATING else error

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition] | None,
        *,
        require_stable: bool,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> tuple[FetchedOffset, ...]:
        """Return committed offsets; None: all of them. `member_id`: who asks, when that is said."""
        shard = self.led.of(group_id).shard
        return shard.fetch_offsets(
            group_id, partitions, require_stable=require_stable, member_id=member_id, member_epoch=member_epoch
        )

    async def delete_offsets(self, group_id: str, partitions: tuple[TopicPartition, ...]) -> tuple[ErrorCode, ...]:
        """One error per partition, in order."""
        request = DeleteOffsetsRequest(group_id=group_id, partitions=partitions)
        result: tuple[ErrorCode, ...] = await self._ask(request)
        return result

    # --- groups -------------------------------------------------------------------------------------------------------

    def describe(self, group_id: str) -> GroupDescription | None:
        """None: there is no such group. ApiError(GROUP_ID_NOT_FOUND): it is one of the new protocol."""
        shard = self.led.of(group_id).shard
        if group_id in shard.consumers.by_id:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a classic group.")
        return shard.describe(group_id)

    def describe_consumers(self, group_id: str) -> ConsumerGroupDescription:
        """Raises ApiError(GROUP_ID_NOT_FOUND) when there is no such group of the new protocol."""
        return self.led.of(group_id).shard.describe_consumers(group_id)

    def list_groups(self) -> tuple[GroupOverview, ...]:
        """The groups coordinated here, by id. Raises as `overviews` does."""
        return tuple(sorted(chain.from_iterable(self.overviews())))

    def overviews(self) -> Iterator[list[GroupOverview]]:
        """The groups coordinated here, some at a time, partition by partition. ApiError while one of the partitions is loaded:
        the list would lack some."""
        for shard in self.led.all_shards():
            yield from shard.overviews()

    async def delete_group(self, group_id: str) -> None:
        error: ErrorCode = await self._ask(DeleteGroupRequest(group_id=group_id), nameless=True)
        if error is not ErrorCode.NONE:
            raise ApiError(error, f"group {group_id} could not be deleted")

    def group_count(self) -> int:
        return sum(shard.group_count for shard in self.led.loaded())

    def group_states(self) -> Counter[str]:
        """Count the groups by state, in Kafka's names. Those of partitions that are being loaded are not in it."""
        return Counter(group.state for shard in self.led.loaded() for some in shard.overviews() for group in some)

    def committed_offsets(self, most: int) -> list[tuple[str, TopicPartition, int]]:
        """Group, partition and offset, of the groups coordinated here that are loaded: those that have been there for longest."""
        return list(islice(chain.from_iterable(shard.offsets.committed() for shard in self.led.loaded()), most))

    def offset_count(self) -> int:
        return sum(shard.offset_count for shard in self.led.loaded())


class _GroupTrace:
    """Tells of shards of groups."""

    def __init__(self, tracer: Tracer, load_times: LoadTimes) -> None:
        self._tracer = tracer
        self._load_times = load_times

    def loading(self, tp: TopicPartition, leader_epoch: int) -> None:
        self._tracer.emit(GroupsLoading(tp=tp, leader_epoch=leader_epoch))

    def loaded(self, tp: TopicPartition, leader_epoch: int, shard: GroupShard, *, end_offset: int, elapsed_ms: int) -> None:
        self._load_times.took(elapsed_ms)
        self._tracer.emit(
            GroupsLoaded(
                tp=tp,
                leader_epoch=leader_epoch,
                end_offset=end_offset,
                groups=shard.group_count,
                offsets=shard.offset_count,
                elapsed_ms=elapsed_ms,
            )
        )

    def failed(self, tp: TopicPartition, leader_epoch: int, reason: str) -> None:
        self._tracer.emit(GroupsLoadFailed(tp=tp, leader_epoch=leader_epoch, reason=reason))

    def unloaded(self, tp: TopicPartition, leader_epoch: int, shard: GroupShard) -> None:
        self._tracer.emit(GroupsUnloaded(tp=tp, leader_epoch=leader_epoch, groups=shard.group_count))


def _check_names(client_id: str, instance_id: str | None) -> None:
    """Raise ApiError(INVALID_REQUEST) for what no record could hold: a member's id is one of these and a UUID, and a client id
    that is no UTF-8 is longer in a record than it was on the wire."""
    for what, name in (("client id", client_id), ("group instance id", instance_id or "")):
        if len(name) > MAX_NAME_BYTES // 3 and len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"a {what} of {len(name)} characters: allowed are {MAX_NAME_BYTES} bytes")


def _resized(changed: TopicDelta) -> bool:
    before = changed.image.partitions
    return bool(changed.removed_partitions) or any(index not in before for index in changed.partition_changes)
