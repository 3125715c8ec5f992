"""Committed offsets: who may commit, what is committed, and when it is forgotten.

Source: CP-36 to CP-39; KIP-98 (transactional commits), KIP-211 (expiry), KIP-447 (stable fetches), KIP-496 (deletion).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from kraftlite.coordinator.api import (
    CommitRequest,
    DeleteGroupRequest,
    DeleteOffsetsRequest,
    EndRequest,
    FetchedOffset,
    OffsetToCommit,
)
from kraftlite.coordinator.classic.group import Group, GroupState
from kraftlite.coordinator.classic.groups import Groups, client_error
from kraftlite.coordinator.config import GroupConfig
from kraftlite.coordinator.consumer_protocol import CONSUMER
from kraftlite.coordinator.core.effects import Effects, Then, nothing
from kraftlite.coordinator.core.walks import by_pieces
from kraftlite.coordinator.modern.group import ConsumerGroup
from kraftlite.coordinator.modern.groups import ConsumerGroups
from kraftlite.coordinator.modern.journal import tombstones
from kraftlite.coordinator.pending_offsets import PendingOffset, PendingOffsets
from kraftlite.coordinator.records import CommittedOffset, CoordinatorRecord, group_tombstone, offset_record, offset_tombstone
from kraftlite.coordinator.tombstones import in_batches
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Tracer
from kraftlite.runtime.trace.group import GroupDeleted, OffsetsExpired

_NONE: Final = ErrorCode.NONE
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE})
"""The log's refusals of a producer's transaction, which no retry will change."""


class Offsets:
    """The offsets of one shard's groups. A commit counts once its record is committed in the log, and is answered then (CP-37);
    who was told before that it is late may find that it counts all the same.

    Offsets of a transaction count when it ends with a commit; until then they are pending. Raises ApiError before anything
    changed. Source: CP-36 to CP-40.
    """

    def __init__(self, config: GroupConfig, effects: Effects, groups: Groups, consumers: ConsumerGroups, tracer: Tracer) -> None:
        self._config = config
        self._effects = effects
        self._groups = groups
        self._consumers = consumers
        self._tracer = tracer
        self._committed: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self.pending = PendingOffsets()
        self._puts = 0
        self._deletions = 0
        self._recent: dict[tuple[str, TopicPartition], int] = {}
        """The order of what has come to count while the offsets of deleted topics are being removed."""

    def __len__(self) -> int:
        return sum(len(found) for found in self._committed.values())

    def group_ids(self) -> Iterable[str]:
        """Return the groups that have committed or pending offsets."""
        return dict.fromkeys(self._committed) | dict.fromkeys(self.pending.groups())

    # --- commit -------------------------------------------------------------------------------------------------------

    def commit(self, request_id: int, request: CommitRequest) -> None:
        """Commit offsets (CP-36). The answer is a tuple of `ErrorCode`, one per offset, in order."""
        self._check_commit(request)
        wall_ms = self._effects.wall_ms
        expire_ms = None if request.retention_ms is None else wall_ms + request.retention_ms
        results = [self._check_offset(offset) for offset in request.offsets]
        accepted = [
            (offset.tp, CommittedOffset(offset.offset, offset.leader_epoch, offset.metadata, wall_ms, expire_ms))
            for offset, result in zip(request.offsets, results, strict=True)
            if result is _NONE
        ]
        if not accepted:
            self._effects.answer(request_id, tuple(results))
            return
        group_id, producer = request.group_id, request.producer
        partitions = [tp for tp, _committed in accepted]
        self.pending.appended(group_id, partitions, in_transaction=producer is not None)

        def written(error: ErrorCode) -> None:
            self.pending.written(group_id, partitions, in_transaction=producer is not None)
            for tp, committed in accepted if error is _NONE else ():
                self._put(group_id, tp, committed, None if producer is None else producer.producer_id)

        def tell(error: ErrorCode) -> None:
            told = error if error in _FENCED else client_error(error, too_large=ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
            self._effects.answer(request_id, tuple(told if result is _NONE else result for result in results))

        records = [offset_record(group_id, tp, committed) for tp, committed in accepted]
        self._effects.append(records, written, tell, producer=producer, terms=request.terms)

    def _check_offset(self, offset: OffsetToCommit) -> ErrorCode:
        too_long = len(offset.metadata.encode("utf-8", "surrogatepass")) > self._config.offset_metadata_max_bytes
        return ErrorCode.OFFSET_METADATA_TOO_LARGE if too_long else _NONE

    def _check_commit(self, request: CommitRequest) -> None:
        """Raise ApiError when it may not commit. The group is made for a commit from outside of any group management."""
        consumers = self._consumers.by_id.get(request.group_id)
        if consumers is not None:
            self._check_consumer_commit(consumers, request)
            return
        group = self._groups.by_id.get(request.group_id)
        if group is None:
            if request.generation >= 0:
                code = ErrorCode.ILLEGAL_GENERATION if request.producer is not None else request.group_must_exist_error
                raise ApiError(code, f"group {request.group_id} does not exist")
            self._groups.obtain(request.group_id)
            return
        if group.state is GroupState.DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {group.group_id} is being deleted")
        if request.generation < 0 and group.state is GroupState.EMPTY:
            return
        if request.generation < 0 and not request.member_id and request.instance_id is None:
            if request.producer is not None:
                return
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.group_id} has members: a commit must come from one of them"
            )
        member = group.check_member(request.member_id, request.instance_id)
        if request.generation != group.generation:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"group {group.group_id} is in generation {group.generation}")
        if request.producer is not None:
            return
        if group.state is GroupState.COMPLETING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group.group_id} waits for its leader's assignment")
        self._groups.touch(group, member)

    def _check_consumer_commit(self, group: ConsumerGroup, request: CommitRequest) -> None:
        """Raise ApiError unless one may commit in a group of the new protocol: anybody while it is empty, else a member,
        in its epoch or in one since which it has had all these partitions (KIP-1251)."""
        if group.dead:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {group.group_id} is being deleted")
        if request.generation < 0 and not group.members:
            return
        anonymous = request.generation < 0 and not request.member_id and request.instance_id is None
        if request.producer is not None and anonymous:
            return
        member = group.member(request.member_id)
        if request.producer is None and member.classic is None and not request.knows_member_epochs:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                "members of the new protocol must use OffsetCommit version 9 or above",
            )
        epoch = request.generation
        if epoch == member.epoch:
            return
        plain = request.producer is None and member.classic is None
        code = ErrorCode.STALE_MEMBER_EPOCH if plain else ErrorCode.ILLEGAL_GENERATION
        if epoch > member.epoch:
            raise ApiError(code, f"Received member epoch {epoch} is newer than current member epoch {member.epoch}.")
        for offset in request.offsets:
            if self._check_offset(offset) is _NONE:
                topic = self._consumers.cluster.topics.topic(offset.tp.topic)
                since = None if topic is None else member.since_of(topic.topic_id, offset.tp.partition)
                if since is None:
                    raise ApiError(code, f"Partition {offset.tp} is not assigned or pending revocation for member.")
                if epoch < since:
                    raise ApiError(code, f"Received member epoch {epoch} is older than assignment epoch {since} of {offset.tp}.")

    def _put(self, group_id: str, tp: TopicPartition, committed: CommittedOffset, producer_id: int | None = None) -> None:
        """Called in the order of the records in the log. `producer_id`: of the transaction that they are in."""
        self._puts += 1
        if producer_id is None:
            self._count(group_id, tp, committed, self._puts)
        else:
            self.pending.put(group_id, tp, PendingOffset(self._puts, committed), producer_id)

    def _count(self, group_id: str, tp: TopicPartition, committed: CommittedOffset, order: int) -> None:
        """It is the group's offset now, and what open transactions wrote before it never will be: the last record counts, not the
        last end of a transaction. Source: Kafka's OffsetMetadataManager, which compares the offsets of the records."""
        self._committed.setdefault(group_id, {})[tp] = committed
        if self._deletions:
            self._recent[group_id, tp] = order
        self.pending.overtake(group_id, tp, order)

    # --- the ends of transactions -------------------------------------------------------------------------------------

    def end(self, request_id: int, request: EndRequest) -> None:
        """Write the marker that ends a transaction, behind all that is queued. The answer is an `ErrorCode`, once the marker is
        committed and the offsets are visible; a marker that could not be written has changed nothing (TG-10, TG-11), and one
        that is late may do so any time."""
        marker = request.marker

        def written(error: ErrorCode) -> None:
            if error is _NONE:
                self.end_transaction(marker.producer_id, committed=marker.commit)

        self._effects.mark(marker, written, lambda error: self._effects.answer(request_id, error))

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """The transaction's marker is committed: its offsets count now, or never did."""
        for group_id, tp, pending in self.pending.end(producer_id):
            if committed and pending.committed is not None:
                self._count(group_id, tp, pending.committed, pending.order)

    # --- fetch --------------------------------------------------------------------------------------------------------

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        """Raise ApiError for who says to be a member of a group of the new protocol, and is not, or in another epoch."""
        group = self._consumers.by_id.get(group_id)
        if group is not None and not (member_id is None and member_epoch < 0):
            _check_epoch(group, member_id or "", member_epoch)

    def fetch(
        self, group_id: str, partitions: Sequence[TopicPartition] | None, *, require_stable: bool
    ) -> tuple[FetchedOffset, ...]:
        """Return committed offsets (CP-38); for None all that the group has committed, in the order of names. With
        `require_stable` a partition with an offset in an open transaction is UNSTABLE_OFFSET_COMMIT."""
        committed = self._committed.get(group_id, {})
        wanted = sorted(committed) if partitions is None else partitions
        found = []
        for tp in wanted:
            offset = committed.get(tp)
            if require_stable and self.pending.is_pending(group_id, tp):
                found.append(FetchedOffset(tp, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            elif offset is None:
                found.append(FetchedOffset(tp, _NONE))
            else:
                found.append(FetchedOffset(tp, _NONE, offset.offset, offset.leader_epoch, offset.metadata))
        return tuple(found)

    def committed(self) -> Iterator[tuple[str, TopicPartition, int]]:
        """Every group, partition and offset. Only for one turn of the loop."""
        for group_id, offsets in self._committed.items():
            for tp, found in offsets.items():
                yield group_id, tp, found.offset

    # --- deletion -----------------------------------------------------------------------------------------------------

    def delete_group(self, request_id: int, request: DeleteGroupRequest) -> None:
        """Delete a group (CP-40). The answer is an `ErrorCode`."""
        consumers = self._consumers.by_id.get(request.group_id)
        if consumers is not None:
            if consumers.members:
                raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"group {consumers.group_id} is {consumers.state.value}")
            self._consumers.living(request.group_id)
            self._remove_consumers(consumers, "asked to", lambda error: self._effects.answer(request_id, client_error(error)))
            return
        group = self._existing(request.group_id)
        if group.state is not GroupState.EMPTY:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"group {group.group_id} is {group.state.value}")
        self._remove_group(group, "asked to", lambda error: self._effects.answer(request_id, client_error(error)))

    def _existing(self, group_id: str) -> Group:
        group = self._groups.by_id.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id} does not exist")
        return group

    def _remove_group(self, group: Group, reason: str, tell: Then = nothing) -> None:
        """Dead until its tombstones are committed, gone then; alive again when they could not be written."""
        group_id, since_ms = group.group_id, group.state_since_ms
        owed = self._consumers.owed.take(group_id)
        group.transition(GroupState.DEAD, self._effects.wall_ms)
        group.pending.clear()

        def gone(error: ErrorCode) -> None:
            if error is _NONE:
                self._drop_group(group_id)
                self._groups.by_id.pop(group_id, None)
                self._tracer.emit(GroupDeleted(group=group_id, reason=reason))
            else:
                self._consumers.owed.owe(group_id, owed)
                group.transition(GroupState.EMPTY, self._effects.wall_ms)
                group.state_since_ms = since_ms

        more = [group_tombstone(group_id)] if group.generation > 0 or group.protocol_type is not None else []
        self._bury(group_id, list(self._partitions_of(group_id)), [*owed, *more], gone, tell)

    def _partitions_of(self, group_id: str) -> dict[TopicPartition, None]:
        """The partitions that a group has offsets of, whether they count already, or will, or may (TG-06)."""
        return dict.fromkeys(self._committed.get(group_id, ())) | self.pending.partitions_of(group_id)

    def _drop_group(self, group_id: str) -> None:
        self._committed.pop(group_id, None)
        self.pending.drop_group(group_id)

    def _remove_consumers(self, group: ConsumerGroup, reason: str, tell: Then = nothing) -> None:
        """Remove an empty group of the new protocol, as `_remove_group` removes a classic one."""
        group_id = group.group_id
        owed = self._consumers.owed.take(group_id)

        def gone(error: ErrorCode) -> None:
            if error is _NONE:
                self._drop_group(group_id)
                self._consumers.dissolve(group)
                self._tracer.emit(GroupDeleted(group=group_id, reason=reason))
            else:
                self._consumers.owed.owe(group_id, owed)
                group.dead = False

        group.dead = True
        more = [*owed, *tombstones(group_id, self._consumers.journal.keys_of(group))]
        self._bury(group_id, list(self._partitions_of(group_id)), more, gone, tell)

    def _bury(
        self, group_id: str, partitions: Sequence[TopicPartition], more: list[CoordinatorRecord], then: Then, tell: Then
    ) -> None:
        """Append the tombstones of a group's offsets, and `more`, in batches of bounded size. The offsets of a batch are gone
        when it is committed, whatever becomes of the others. `then` gets the first error of any, after the last of them;
        `tell` is told that, or that one is late."""
        chunks = list(in_batches([*(offset_tombstone(group_id, tp) for tp in partitions), *more]))
        if not chunks:
            then(_NONE)
            tell(_NONE)
            return
        errors: list[ErrorCode] = []
        told: list[ErrorCode] = []

        def one(theirs: Sequence[TopicPartition], error: ErrorCode) -> None:
            if error is _NONE:
                self._drop(group_id, theirs)
            errors.append(error)
            if len(errors) == len(chunks):
                then(next((found for found in errors if found is not _NONE), _NONE))

        def tell_once(error: ErrorCode) -> None:
            if not told and (error is not _NONE or len(errors) == len(chunks)):
                told.append(error)
                tell(error)

        start = 0
        for chunk in chunks:
            self._effects.append(chunk, partial(one, partitions[start : start + len(chunk)]), tell_once)
            start += len(chunk)

    def delete_offsets(self, request_id: int, request: DeleteOffsetsRequest) -> None:
        """Delete offsets (CP-40). The answer is a tuple of `ErrorCode`, one per partition. A live consumer group keeps the
        offsets of what it reads."""
        group_id, subscribed = request.group_id, self._subscribed(request.group_id)
        read = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        results = [read if subscribed is None or tp.topic in subscribed else _NONE for tp in request.partitions]
        known = self._partitions_of(group_id)
        pairs = zip(request.partitions, results, strict=True)
        gone = [*dict.fromkeys(tp for tp, result in pairs if result is _NONE and tp in known)]

        def deleted(error: ErrorCode) -> None:
            told = client_error(error)
            self._effects.answer(request_id, tuple(told if result is _NONE else result for result in results))

        self._forget(group_id, gone, deleted)

    def _subscribed(self, group_id: str) -> frozenset[str] | None:
        """Return the topics that the members of a group read; None where consumers do not say: it may be any. ApiError when there
        is no such group, or when its members are no consumers."""
        if group_id in self._consumers.by_id:
            return frozenset(self._consumers.living(group_id).subscribed_topics())
        group = self._existing(group_id)
        if group.state is GroupState.EMPTY:
            return frozenset()
        if group.protocol_type != CONSUMER:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"group {group.group_id} is {group.state.value}")
        topics = group.subscribed_topics()
        return None if topics is None else frozenset(topics)

    def _forget(self, group_id: str, partitions: Sequence[TopicPartition], tell: Then = nothing) -> None:
        self._bury(group_id, partitions, [], nothing, tell)

    def _drop(self, group_id: str, partitions: Sequence[TopicPartition]) -> None:
        """Drop the offsets of partitions; what open transactions wrote before the tombstone goes with them."""
        for tp in partitions:
            self.pending.drop(group_id, tp)
        committed = self._committed.get(group_id)
        if committed is None:
            return
        for tp in partitions:
            committed.pop(tp, None)
        if not committed:
            del self._committed[group_id]

    def delete_topics(self, topics: frozenset[str]) -> Iterator[None]:
        """Remove the offsets of topics that were deleted, pending ones too (CP-39, TG-06). An offset whose record comes later is
        one of a topic of the same name that was made since."""
        since = self._puts
        self._deletions += 1
        try:
            yield from by_pieces([*self.group_ids()], lambda some: self._delete_topics(some, topics, since))
        finally:
            self._deletions -= 1
            if not self._deletions:
                self._recent.clear()

    def _delete_topics(self, group_ids: Sequence[str], topics: frozenset[str], since: int) -> None:
        for group_id in group_ids:
            known = self._partitions_of(group_id)
            gone = [tp for tp in known if tp.topic in topics and self._recent.get((group_id, tp), 0) <= since]
            if gone:
                self._forget(group_id, gone)

    # --- expiry -------------------------------------------------------------------------------------------------------

    def expire_classic(self, group_ids: Sequence[str]) -> None:
        """Forget what nobody has used for `offsets.retention.minutes`, and those of these groups that are empty and have nothing
        left (CP-39)."""
        for group_id in group_ids:
            group = self._groups.by_id.get(group_id)
            if group is None or group.state is GroupState.DEAD:
                continue
            expired = self._expired(group)
            idle = group.state is GroupState.EMPTY and not group.pending and not self.pending.has_any(group.group_id)
            if idle and len(expired) == len(self._committed.get(group.group_id, ())):
                self._tell_expired(group.group_id, expired)
                self._remove_group(group, "nothing left")
            else:
                self._expire_offsets(group.group_id, expired)

    def expire_consumers(self, group_ids: Sequence[str]) -> None:
        """Do the same to groups of the new protocol."""
        for group_id in group_ids:
            consumers = self._consumers.by_id.get(group_id)
            if consumers is None or consumers.dead:
                continue
            expired = self._past_retention(consumers.group_id, None, consumers.subscribed_topics())
            idle = not consumers.members and not self.pending.has_any(consumers.group_id)
            if idle and len(expired) == len(self._committed.get(consumers.group_id, ())):
                self._tell_expired(consumers.group_id, expired)
                self._remove_consumers(consumers, "nothing left")
            else:
                self._expire_offsets(consumers.group_id, expired)

    def _tell_expired(self, group_id: str, expired: Sequence[TopicPartition]) -> None:
        if expired:
            self._tracer.emit(OffsetsExpired(group=group_id, count=len(expired)))

    def _expire_offsets(self, group_id: str, expired: Sequence[TopicPartition]) -> None:
        self._tell_expired(group_id, expired)
        if expired:
            self._forget(group_id, expired)

    def _expired(self, group: Group) -> list[TopicPartition]:
        """KIP-211: since the group became empty; since the commit for groups without members ever, and for topics that a stable
        group of consumers does not subscribe to. An offset with a time of its own goes then."""
        since_ms: int | None = None
        kept: tuple[str, ...] = ()
        if group.protocol_type is not None and group.state is GroupState.EMPTY:
            since_ms = group.state_since_ms
        elif group.protocol_type is not None:
            topics = group.subscribed_topics() if group.state is GroupState.STABLE else None
            if topics is None:
                return []
            kept = topics
        return self._past_retention(group.group_id, since_ms, kept)

    def _past_retention(self, group_id: str, since_ms: int | None, read: Sequence[str]) -> list[TopicPartition]:
        """`since_ms` None: since each commit. `read`: topics whose offsets are kept."""
        pending, kept = self.pending, frozenset(read)
        return [
            tp
            for tp, offset in self._committed.get(group_id, {}).items()
            if self._is_due(offset, since_ms)
            and tp.topic not in kept
            and not pending.is_pending(group_id, tp)
            and not pending.is_unwritten(group_id, tp)
        ]

    def _is_due(self, offset: CommittedOffset, since_ms: int | None) -> bool:
        if offset.expire_ms is not None:
            return self._effects.wall_ms >= offset.expire_ms
        return self._effects.wall_ms - (offset.commit_ms if since_ms is None else since_ms) >= self._config.offsets_retention_ms

    # --- storage ------------------------------------------------------------------------------------------------------

    def replay(
        self, group_id: str, tp: TopicPartition, committed: CommittedOffset | None, producer_id: int | None = None
    ) -> None:
        """A record of the log; None: a tombstone. `producer_id`: of a transaction whose end is not known yet."""
        if committed is not None:
            self._put(group_id, tp, committed, producer_id)
        else:
            self._drop(group_id, (tp,))

    def settle(self, group_ids: Sequence[str]) -> None:
        """The log is read: who committed without ever having been a group is one now."""
        for group_id in group_ids:
            if group_id not in self._consumers.by_id:
                self._groups.obtain(group_id)


def _check_epoch(group: ConsumerGroup, member_id: str, epoch: int) -> None:
    member = group.member(member_id)
    if epoch != member.epoch:
        code = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
        raise ApiError(code, f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}.")
