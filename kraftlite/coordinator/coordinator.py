"""The group coordinator of a broker: follows who leads `__consumer_offsets`, routes requests to the partition of their group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final
from uuid import UUID

from kraftlite.coordinator.api import (
    CommitRequest,
    ConsumerGroupDescription,
    ConsumerHeartbeatRequest,
    ConsumerHeartbeatResult,
    DeleteGroupRequest,
    DeleteOffsetsRequest,
    FetchedOffset,
    GroupDescription,
    GroupOverview,
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    LeavingMember,
    Request,
    SyncRequest,
    SyncResult,
)
from kraftlite.coordinator.config import GroupConfig
from kraftlite.coordinator.placement import OFFSETS_TOPIC, partition_for
from kraftlite.coordinator.ports import OffsetsLog
from kraftlite.coordinator.shard_core import MetadataChanged, TopicsDeleted, TransactionEnded
from kraftlite.coordinator.shard_driver import ShardDriver
from kraftlite.metadata.image import MetadataImage, TopicImage
from kraftlite.metadata.topics_delta import TopicDelta, TopicsDelta
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.limits import MAX_STRING_BYTES
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Ports

MAX_NAME_BYTES: Final = MAX_STRING_BYTES - 37
"""The longest name that, with a dash and a UUID behind it, is still a string."""


class GroupCoordinator:
    """Coordinates the groups whose partition of `__consumer_offsets` this broker leads. All methods on the node's loop.

    Requests raise ApiError: INVALID_GROUP_ID; COORDINATOR_NOT_AVAILABLE while the topic does not exist; NOT_COORDINATOR where
    another broker leads; COORDINATOR_LOAD_IN_PROGRESS while the partition is read. Answers that need the log come when it has
    them, at the latest after `offsets.commit.timeout.ms`; a join or sync waits for the other members.
    Source: Kafka's GroupCoordinatorService; ML-22, CP-25 to CP-41.
    """

    def __init__(self, ports: Ports, node_id: NodeId, config: GroupConfig, log: OffsetsLog) -> None:
        self._ports = ports
        self._node_id = node_id
        self.config = config
        self._log = log
        self._image = MetadataImage.EMPTY
        self._partitions: dict[int, ShardDriver] = {}
        self._closed = False

    # --- metadata -----------------------------------------------------------------------------------------------------

    def replicas_applied(self, delta: TopicsDelta, image: MetadataImage) -> None:
        """Called for every change of topics, after the local replicas have followed it (ML-21)."""
        self._image = image
        if self._closed:
            return
        for topic in delta.deleted.values():
            if topic.name == OFFSETS_TOPIC:
                self.on_resign(topic.partitions)
        for changed in delta.changed.values():
            if changed.name == OFFSETS_TOPIC:
                self._classify(changed)
        deleted = frozenset(topic.name for topic in delta.deleted.values())
        if deleted:
            for index in sorted(self._partitions):
                self._partitions[index].tell(TopicsDeleted(topics=deleted))
        self._tell_metadata(delta)

    def configs_applied(self, image: MetadataImage) -> None:
        """Called for every change of configs: some may be of groups."""
        self._image = image
        for index in sorted(self._partitions):
            self._partitions[index].tell(MetadataChanged(image=image, topics=(), created=False))

    def _tell_metadata(self, delta: TopicsDelta) -> None:
        """Tell the shards about changes that assignments depend on: a change of leaders or of an ISR is none."""
        changed = [topic for topic in delta.changed.values() if _resized(topic)]
        if not changed and not delta.deleted:
            return
        names = tuple(topic.name for topic in changed) + tuple(topic.name for topic in delta.deleted.values())
        created = any(not topic.image.partitions for topic in changed)
        for index in sorted(self._partitions):
            self._partitions[index].tell(MetadataChanged(image=self._image, topics=names, created=created))

    def _classify(self, changed: TopicDelta) -> None:
        """A change of the ISR alone is neither an election nor a resignation."""
        elected: list[tuple[int, int]] = []
        resigned = list(changed.removed_partitions)
        for index, now in sorted(changed.partition_changes.items()):
            before = changed.image.partitions.get(index)
            if now.leader != self._node_id:
                resigned.append(index)
            elif before is None or before.leader_epoch != now.leader_epoch:
                elected.append((index, now.leader_epoch))
        self.on_resign(resigned)
        self.on_leader_change(changed.topic_id, elected)

    def on_resign(self, partitions: Iterable[int]) -> None:
        """Let go of partitions of the topic that this broker does not lead (any more)."""
        for index in partitions:
            found = self._partitions.pop(index, None)
            if found is not None:
                found.close()

    def on_leader_change(self, topic_id: UUID, elected: Iterable[tuple[int, int]]) -> None:
        """(partition, leader epoch) that this broker leads now. One that it led before is read anew: others may have written."""
        for index, leader_epoch in elected:
            self.on_resign((index,))
            tp = TopicPartition(OFFSETS_TOPIC, index)
            led = ShardDriver(self._ports, self.config, self._log, tp, topic_id, leader_epoch, self._image)
            self._partitions[index] = led
            led.start()

    def close(self) -> None:
        """Everybody who waits gets NOT_COORDINATOR."""
        self._closed = True
        self.on_resign(sorted(self._partitions))

    def end_transaction(self, partition: int, producer_id: int, *, committed: bool) -> None:
        """The marker of a transaction is committed in a partition of the topic that this broker leads (KIP-98)."""
        found = self._partitions.get(partition)
        if found is not None:
            found.tell(TransactionEnded(producer_id=producer_id, committed=committed))

    # --- routing ------------------------------------------------------------------------------------------------------

    def topic(self) -> TopicImage | None:
        """`__consumer_offsets`, if it exists yet."""
        return self._image.topics.topic(OFFSETS_TOPIC)

    def _partition_of(self, group_id: str) -> ShardDriver:
        if self._closed:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is stopping")
        topic = self.topic()
        if topic is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} does not exist yet")
        found = self._partitions.get(partition_for(group_id, len(topic.partitions)))
        if found is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"group {group_id} has its coordinator elsewhere")
        return found

    async def _ask(self, request: Request, *, nameless: bool = False) -> Any:
        """`nameless`: the empty group id is allowed, which old clients commit under."""
        if not request.group_id and not nameless:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        return await self._partition_of(request.group_id).ask(request)

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
        shard = self._partition_of(group_id).shard
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
        shard = self._partition_of(group_id).shard
        if group_id in shard.consumers.by_id:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a classic group.")
        return shard.describe(group_id)

    def describe_consumers(self, group_id: str) -> ConsumerGroupDescription:
        """Raises ApiError(GROUP_ID_NOT_FOUND) when there is no such group of the new protocol."""
        return self._partition_of(group_id).shard.describe_consumers(group_id)

    def list_groups(self) -> tuple[GroupOverview, ...]:
        """The groups coordinated here, by id. Raises as `overviews` does."""
        return tuple(sorted(chain.from_iterable(self.overviews())))

    def overviews(self) -> Iterator[list[GroupOverview]]:
        """The groups coordinated here, partition by partition. ApiError while one of the partitions is loaded: the list would
        lack some."""
        if self._closed:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is stopping")
        for index in sorted(self._partitions):
            partition = self._partitions.get(index)
            if partition is None:
                continue  # led elsewhere since
            if partition.loading:
                raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{partition.tp} is being loaded")
            try:
                yield list(partition.shard.overviews())
            except ApiError:
                continue  # its load failed: nobody coordinates them now

    async def delete_group(self, group_id: str) -> None:
        error: ErrorCode = await self._ask(DeleteGroupRequest(group_id=group_id), nameless=True)
        if error is not ErrorCode.NONE:
            raise ApiError(error, f"group {group_id} could not be deleted")

    def group_count(self) -> int:
        return sum(partition.shard.group_count for partition in self._partitions.values() if partition.loaded)


def _check_names(client_id: str, instance_id: str | None) -> None:
    """Raise ApiError(INVALID_REQUEST) for what no record could hold: a member's id is one of these and a UUID, and a client id
    that is no UTF-8 is longer in a record than it was on the wire."""
    for what, name in (("client id", client_id), ("group instance id", instance_id or "")):
        if len(name) > MAX_NAME_BYTES // 3 and len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"a {what} of {len(name)} characters: allowed are {MAX_NAME_BYTES} bytes")


def _resized(changed: TopicDelta) -> bool:
    before = changed.image.partitions
    return bool(changed.removed_partitions) or any(index not in before for index in changed.partition_changes)
