"""The groups and offsets of one partition of `__consumer_offsets`: the core that the driver steps."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from kraftlite.coordinator.api import (
    CommitRequest,
    ConsumerGroupDescription,
    ConsumerHeartbeatRequest,
    DeleteGroupRequest,
    DeleteOffsetsRequest,
    EndRequest,
    FetchedOffset,
    GroupDescription,
    GroupOverview,
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    Request,
    SyncRequest,
)
from kraftlite.coordinator.classic.group import GroupState
from kraftlite.coordinator.classic.groups import Groups
from kraftlite.coordinator.classic.rebalance import Timer
from kraftlite.coordinator.config import GroupConfig
from kraftlite.coordinator.core.effects import Effects, Output
from kraftlite.coordinator.core.shards import Asked, GoOn, Late, Tick, Written
from kraftlite.coordinator.core.walks import AT_ONCE, Walks, by_pieces, pieces
from kraftlite.coordinator.modern import records as modern_records
from kraftlite.coordinator.modern.classic_members import ClassicMembers
from kraftlite.coordinator.modern.cluster import Cluster
from kraftlite.coordinator.modern.groups import MEMBER_TIMERS, ConsumerGroups
from kraftlite.coordinator.offsets import Offsets
from kraftlite.coordinator.owed import OwedTombstones
from kraftlite.coordinator.records import GroupKey, OffsetKey, decode_group, decode_key, decode_offset
from kraftlite.metadata.image import MetadataImage
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Tracer


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsDeleted:
    topics: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataChanged:
    """Newer metadata. `topics`: the names of those that were created, deleted or got partitions. `created`: some are new."""

    image: MetadataImage
    topics: tuple[str, ...]
    created: bool


Event = Asked[Request] | Written | Late | TopicsDeleted | MetadataChanged | Tick | GoOn

_EXPIRE: Final = (Timer.EXPIRE, "", "")


class GroupShard:
    """A deterministic state machine: `step(event, now_ms, wall_ms) -> Output`, to be stepped at `next_deadline_ms` at the latest.

    Filled by `replay` in log order, then `settle` and `loaded`, then stepped. What is to be done to all groups is done in pieces
    (`Walks`): they may be hundreds of thousands. Never waits, reads no clock, draws member ids from the `Random`
    it is given. What a request is refused with is an ApiError in its answer. `resign` ends it: whoever waits is told.
    Source: CP-25 to CP-41, ML-22; KIP-848.
    """

    def __init__(
        self,
        config: GroupConfig,
        tracer: Tracer,
        entropy: random.Random,
        image: MetadataImage = MetadataImage.EMPTY,
        node_id: NodeId | None = None,
    ) -> None:
        self._config = config
        self._effects = Effects()
        self._cluster = Cluster(config, image, node_id)
        owed = OwedTombstones(self._effects)
        self.groups = Groups(config, self._effects, tracer, entropy, owed)
        self.consumers = ConsumerGroups(config, self._effects, tracer, entropy, self.groups, self._cluster, owed)
        self._classic_members = ClassicMembers(config, self._effects, entropy, self.consumers)
        self.offsets = Offsets(config, self._effects, self.groups, self.consumers, tracer)
        self._walks = Walks()
        self._topic_walks = 0
        self._behind = False
        """More is due than one step looks at: `GoOn` does, and no step between."""

    # --- loading ------------------------------------------------------------------------------------------------------

    def replay(self, key: bytes | None, value: bytes | None, *, producer_id: int | None = None, wall_ms: int) -> None:
        """One record of the log. `producer_id`: of the transaction it is in. ApiError(CORRUPT_MESSAGE) when it cannot be read."""
        self._effects.wall_ms = wall_ms
        if key is None:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, "a record of __consumer_offsets without a key")
        modern = modern_records.decode_key(key)
        if modern is not None:
            self.consumers.replay(modern, None if value is None else modern_records.decode_value(modern, value))
            return
        decoded = decode_key(key)
        if isinstance(decoded, OffsetKey):
            offset = None if value is None else decode_offset(value)
            self.offsets.replay(decoded.group_id, decoded.tp, offset, producer_id)
        elif isinstance(decoded, GroupKey):
            if value is not None:  # the tombstones of the empty group before it may be missing, as of older releases
                self.consumers.by_id.pop(decoded.group_id, None)
            self.groups.replay(decoded.group_id, None if value is None else decode_group(value))

    def replay_end(self, producer_id: int, *, committed: bool) -> None:
        """A transaction marker of the log."""
        self.offsets.end_transaction(producer_id, committed=committed)

    def settle(self, now_ms: int, wall_ms: int) -> Iterator[None]:
        """Whoever has committed is a group, and every session begins; nothing that was read is against an invariant."""
        self._effects.now_ms, self._effects.wall_ms = now_ms, wall_ms
        yield from by_pieces([*self.offsets.group_ids()], self.offsets.settle)
        yield from by_pieces([*self.groups.by_id], self._settle_classic)
        yield from by_pieces([*self.consumers.by_id], self._settle_consumers)

    def _settle_classic(self, group_ids: Sequence[str]) -> None:
        self.groups.settle(group_ids)
        self.groups.check(group_ids)

    def _settle_consumers(self, group_ids: Sequence[str]) -> None:
        self.consumers.settle(group_ids)
        self._check_consumers(group_ids)

    def loaded(self, now_ms: int, wall_ms: int) -> Output:
        self._effects.now_ms, self._effects.wall_ms = now_ms, wall_ms
        self.groups.deadlines.set(_EXPIRE, now_ms + self._config.retention_check_interval_ms)
        return self._effects.take()

    def check(self, *, assignments: bool = False) -> None:
        """Raise AssertionError when an invariant does not hold between two steps.

        `assignments`: also that those of the new protocol are what this software makes, not only what the log says.
        """
        self.groups.check(self.groups.by_id)
        self._check_consumers(self.consumers.by_id)
        if assignments:
            for group in self.consumers.by_id.values():
                group.check_assignment()
        for group in self.consumers.by_id.values():
            self.consumers.check_times(group)

    def _check_consumers(self, group_ids: Iterable[str]) -> None:
        for group_id in group_ids:
            group = self.consumers.by_id[group_id]
            assert group_id not in self.groups.by_id, f"group {group_id} is of both protocols"
            assert group_id == group.group_id, f"consumer group {group.group_id} is known as {group_id}"
            group.check()

    # --- stepping -----------------------------------------------------------------------------------------------------

    def step(self, event: Event, now_ms: int, wall_ms: int) -> Output:
        self._effects.now_ms, self._effects.wall_ms = now_ms, wall_ms
        if isinstance(event, Asked):
            self._ask(event.request_id, event.request)
        elif isinstance(event, Written):
            self._effects.written(event.token, event.error)
        elif isinstance(event, Late):
            self._effects.late(event.token, event.error)
        elif isinstance(event, TopicsDeleted):
            self._walks.begin(self._walk_of_topics(), self.offsets.delete_topics(event.topics))
        elif isinstance(event, MetadataChanged):
            self._metadata_changed(event)
        elif isinstance(event, GoOn):
            self._walks.go_on()
        deadlines = self.groups.deadlines
        for key in () if self._behind and not isinstance(event, GoOn) else deadlines.due(now_ms):
            if key == _EXPIRE:
                deadlines.set(_EXPIRE, now_ms + self._config.retention_check_interval_ms)
                self._walks.begin("expire", self._expire())
            elif key[0] in MEMBER_TIMERS:
                self.consumers.time_is_up(key)
            else:
                self.groups.time_is_up(key)
        self._behind = deadlines.is_due(now_ms)
        self._effects.more = bool(self._walks) or self._behind
        return self._effects.take()

    def _expire(self) -> Iterator[None]:
        yield from by_pieces([*self.groups.by_id], self.offsets.expire_classic)
        yield from by_pieces([*self.consumers.by_id], self.offsets.expire_consumers)

    def _walk_of_topics(self) -> str:
        """A name for a walk over what has changed: each is about topics of its own."""
        self._topic_walks += 1
        return f"topics {self._topic_walks}"

    def _metadata_changed(self, event: MetadataChanged) -> None:
        self._cluster.image = event.image
        if event.created:
            self._cluster.topics_created_at = event.image.offset
        changed = frozenset(event.topics)
        self._walks.begin(
            self._walk_of_topics(), by_pieces([*self.consumers.by_id], lambda some: self.consumers.topics_changed(some, changed))
        )

    def next_deadline_ms(self) -> int | None:
        """Return when to step at the latest (monotonic), maybe earlier than anything is really due."""
        return self.groups.deadlines.next_ms()

    def resign(self, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> Output:
        self.groups.check(islice(self.groups.by_id, AT_ONCE))
        self._check_consumers(islice(self.consumers.by_id, AT_ONCE))
        self._walks.clear()
        self.groups.resign(error)
        return self._effects.take()

    def _ask(self, request_id: int, request: Request) -> None:
        try:
            self._dispatch(request_id, request)
        except ApiError as error:
            if isinstance(request, JoinRequest):
                full = error.code is ErrorCode.GROUP_MAX_SIZE_REACHED
                member_id = "" if full else request.member_id
                self._effects.answer(request_id, JoinResult(error=error.code, member_id=member_id))
            else:
                self._effects.answer(request_id, error)

    def _dispatch(self, request_id: int, request: Request) -> None:
        if isinstance(request, ConsumerHeartbeatRequest):
            self.consumers.heartbeat(request_id, request)
        elif isinstance(request, CommitRequest):
            self.offsets.commit(request_id, request)
        elif isinstance(request, DeleteGroupRequest):
            self.offsets.delete_group(request_id, request)
        elif isinstance(request, DeleteOffsetsRequest):
            self.offsets.delete_offsets(request_id, request)
        elif isinstance(request, EndRequest):
            self.offsets.end(request_id, request)
        else:
            self._dispatch_classic(request_id, request)

    def _dispatch_classic(self, request_id: int, request: JoinRequest | SyncRequest | HeartbeatRequest | LeaveRequest) -> None:
        """Pass a request to the classic group, or to one of the new protocol that members of the classic one are in, or want
        to be."""
        group = self.consumers.by_id.get(request.group_id)
        if group is not None and not group.members and not group.dead and isinstance(request, JoinRequest):
            self.consumers.make_way(group)
            group = None
        members = self.groups if group is None else self._classic_members
        if isinstance(request, HeartbeatRequest):
            members.heartbeat(request_id, request)
        elif isinstance(request, JoinRequest):
            members.join(request_id, request)
        elif isinstance(request, SyncRequest):
            members.sync(request_id, request)
        else:
            members.leave(request_id, request)

    # --- looking ------------------------------------------------------------------------------------------------------

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition] | None,
        *,
        require_stable: bool,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> tuple[FetchedOffset, ...]:
        """Return committed offsets. An unknown group has none committed, which is no error (CP-38). In a group of the new
        protocol a member that says who it is must be one, in its epoch: ApiError(UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH)."""
        self.offsets.check_fetch(group_id, member_id, member_epoch)
        return self.offsets.fetch(group_id, partitions, require_stable=require_stable)

    def knows(self, group_id: str) -> bool:
        return group_id in self.groups.by_id or group_id in self.consumers.by_id

    def describe(self, group_id: str) -> GroupDescription | None:
        """Describe a group; None: there is no such group."""
        group = self.groups.by_id.get(group_id)
        return None if group is None or group.state is GroupState.DEAD else group.describe()

    def describe_consumers(self, group_id: str) -> ConsumerGroupDescription:
        """Raises ApiError(GROUP_ID_NOT_FOUND) when there is no such group of the new protocol."""
        return self.consumers.describe(group_id)

    def overviews(self) -> Iterator[list[GroupOverview]]:
        """All groups, in pieces. Those that come and go between two of them may be missing."""
        for some in pieces([*self.consumers.by_id]):
            consumers = (self.consumers.by_id.get(group_id) for group_id in some)
            yield [group.overview() for group in consumers if group is not None and not group.dead]
        for some in pieces([*self.groups.by_id]):
            classic = (self.groups.by_id.get(group_id) for group_id in some)
            yield [group.overview() for group in classic if group is not None and group.state is not GroupState.DEAD]

    @property
    def group_count(self) -> int:
        return len(self.groups.by_id) + len(self.consumers.by_id)

    @property
    def offset_count(self) -> int:
        return len(self.offsets)
