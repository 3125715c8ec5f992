"""Groups of the new protocol: joining, heartbeats, leaving, and who is dropped. One instance per partition of
`__consumer_offsets`.

Source: KIP-848; `GroupMetadataManager` of Kafka 4; CG-01 to CG-07, CG-09.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from kraftlite.coordinator.api import ConsumerGroupDescription, ConsumerHeartbeatRequest, ConsumerHeartbeatResult
from kraftlite.coordinator.classic.group import GroupState as ClassicState
from kraftlite.coordinator.classic.groups import Groups, client_error
from kraftlite.coordinator.classic.rebalance import DeadlineKey, Timer
from kraftlite.coordinator.config import GroupConfig
from kraftlite.coordinator.core.effects import Effects, Then
from kraftlite.coordinator.core.keys import Keyed
from kraftlite.coordinator.modern.cluster import Cluster
from kraftlite.coordinator.modern.group import ConsumerGroup
from kraftlite.coordinator.modern.journal import Change, Journal, tombstones
from kraftlite.coordinator.modern.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NO_PARTS,
    STATIC_LEAVE_EPOCH,
    Member,
    MemberState,
    Parts,
    epochs_of,
    parts_of,
)
from kraftlite.coordinator.modern.migrate import can_downgrade, downgraded, stored, upgraded
from kraftlite.coordinator.modern.records import (
    ConsumerKey,
    ConsumerValue,
    CurrentKey,
    EpochKey,
    MemberKey,
    RegexKey,
    TargetKey,
    TargetValue,
    current_value,
    member_value,
)
from kraftlite.coordinator.modern.regex import check
from kraftlite.coordinator.modern.steps import Steps
from kraftlite.coordinator.owed import OwedTombstones
from kraftlite.coordinator.records import group_record
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.runtime.ports import Tracer
from kraftlite.runtime.trace.group import GroupMemberRemoved, GroupStateChanged, GroupTypeChanged

MEMBER_TIMERS: Final = (Timer.MEMBER_SESSION, Timer.REVOCATION, Timer.REJOIN, Timer.RESYNC)


class ConsumerGroups:
    """The groups of one shard that speak the new protocol, and what their members ask. Every request is answered through
    `Effects`, exactly once, when all that the group has written until then is committed.

    ApiError for what is refused, before anything changed. A group id is in `by_id` here or among the classic ones, never both.
    Departs: Kafka looks regular expressions up in the background; here the heartbeat that brings one does.
    """

    def __init__(
        self,
        config: GroupConfig,
        effects: Effects,
        tracer: Tracer,
        entropy: random.Random,
        classic: Groups,
        cluster: Cluster,
        owed: OwedTombstones,
    ) -> None:
        self._config = config
        self._effects = effects
        self._tracer = tracer
        self._entropy = entropy
        self._classic = classic
        self.cluster = cluster
        self.owed = owed
        self.journal = Journal(owed)
        self.steps = Steps(config, effects, cluster)
        self.by_id: Keyed[ConsumerGroup] = Keyed()

    # --- finding ------------------------------------------------------------------------------------------------------

    def living(self, group_id: str) -> ConsumerGroup:
        """Raises ApiError(GROUP_ID_NOT_FOUND) when there is none of this protocol, COORDINATOR_NOT_AVAILABLE while it is
        deleted."""
        group = self.by_id.get(group_id)
        if group is None:
            known = group_id in self._classic.by_id
            what = f"Group {group_id} is not a consumer group." if known else f"Group {group_id} not found."
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, what)
        if group.dead:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {group_id} is being deleted")
        return group

    def _joined(self, group_id: str) -> tuple[ConsumerGroup, list[tuple[ConsumerKey, ConsumerValue]] | None]:
        """The group that a member joins: there, new, or made of a classic one, of which its records are returned then."""
        classic = self._classic.by_id.get(group_id)
        if classic is None:
            return (self.living(group_id) if group_id in self.by_id else ConsumerGroup.new(group_id)), None
        if classic.state is ClassicState.DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {group_id} is being deleted")
        if not classic.members:
            return ConsumerGroup.new(group_id), []
        group = ConsumerGroup(group_id)
        records = upgraded(classic, self.cluster.topics, self._config)
        for key, value in records:
            group.replay(key, value)
        return group, records

    # --- heartbeat ----------------------------------------------------------------------------------------------------

    def heartbeat(self, request_id: int, request: ConsumerHeartbeatRequest) -> None:
        """Answers a `ConsumerHeartbeatResult`."""
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            self._leave(request_id, request)
            return
        joins = request.member_epoch == JOIN_EPOCH
        group, converted = self._joined(request.group_id) if joins else (self.living(request.group_id), None)
        self.check_room(group, request.member_id)
        member_id = request.member_id or str(UUID(int=self._entropy.getrandbits(128), version=4))
        owned = None if request.owned is None else parts_of(request.owned)
        before, replaced = self._find(group, request, member_id, owned)
        before.check_state(owned)
        after = _updated(before, request)
        if after.regex and after.regex != before.regex and not group.subscribers_of(after.regex):
            check(after.regex)
        change = Change(group)
        if converted is not None:
            self._take_over(change, converted)
        self.replace_member(change, before, replaced)
        after = self.steps.update(change, before, after, owned, request.sees)
        self.schedule(group, after, revokes_anew=after.revoking != before.revoking)
        self.by_id[group.group_id] = group
        full = request.rebalance_timeout_ms is not None and owned is not None
        full = full and (request.topics is not None or request.regex is not None)
        told = joins or full or after.assigned != before.assigned
        result = ConsumerHeartbeatResult(
            member_id=after.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=self.cluster.heartbeat_interval_ms(group.group_id),
            assignment=sorted_parts(after.assigned) if told else None,
        )
        self.commit(change, "heartbeat", self.answering(request_id, lambda: result))

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        size = self._config.consumer_max_size
        if len(group.members) >= size and (not member_id or member_id not in group.members):
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED, f"The consumer group has reached its maximum capacity of {size} members."
            )

    def _find(
        self, group: ConsumerGroup, request: ConsumerHeartbeatRequest, member_id: str, owned: Parts | None
    ) -> tuple[Member, Member | None]:
        """The member as it is, made if it joins; and the former self whose place it takes as a static member."""
        joins = request.member_epoch == JOIN_EPOCH
        if request.instance_id is None:
            member = group.members.get(member_id) if joins else group.member(member_id)
            if member is not None:
                member.check_epoch(request.member_epoch, owned)
            return member or Member(member_id=member_id), None
        if not joins:
            member = group.known_static_member(request.instance_id, member_id)
            member.check_epoch(request.member_epoch, owned)
            return member, None
        former = group.static_member(request.instance_id)
        if former is None:
            return group.members.get(member_id) or Member(member_id=member_id), None
        if former.classic is None and former.epoch != STATIC_LEAVE_EPOCH:
            raise ApiError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {request.instance_id} cannot join the group because the instance id "
                f"is owned by {former.member_id} member.",
            )
        return replace(former, member_id=member_id, epoch=0, previous_epoch=0), former

    def _take_over(self, change: Change, records: Sequence[tuple[ConsumerKey, ConsumerValue]]) -> None:
        """The classic group is no more; its members are told to come again, those that wait now, the others at their next
        heartbeat."""
        group = change.group
        self._classic.dissolve(group.group_id, ErrorCode.REBALANCE_IN_PROGRESS)
        change.adopt(records)
        for member in group.members.values():
            self.schedule(group, member)
        if group.members:
            self._tell_type(group)

    def _tell_type(self, group: ConsumerGroup) -> None:
        changed = GroupTypeChanged(group=group.group_id, type="consumer", epoch=group.epoch, members=len(group.members))
        self._tracer.emit(changed)

    def replace_member(self, change: Change, member: Member, former: Member | None) -> None:
        """`member` takes the place of `former`, with all it has."""
        if former is None:
            return
        group = change.group
        target = group.target.get(former.member_id, NO_PARTS)
        self._remove_member(change, former)
        change.emit(MemberKey(group.group_id, member.member_id), member_value(member))
        change.emit(TargetKey(group.group_id, member.member_id), TargetValue(target))
        change.emit(CurrentKey(group.group_id, member.member_id), current_value(member))

    def _remove_member(self, change: Change, member: Member) -> None:
        group_id, member_id = change.group.group_id, member.member_id
        change.emit(CurrentKey(group_id, member_id), None)
        change.emit(TargetKey(group_id, member_id), None)
        change.emit(MemberKey(group_id, member_id), None)
        self._stop_timers(change.group, member_id)

    # --- leaving ------------------------------------------------------------------------------------------------------

    def _leave(self, request_id: int, request: ConsumerHeartbeatRequest) -> None:
        group = self.living(request.group_id)
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            member = group.known_static_member(request.instance_id, request.member_id)
        result = ConsumerHeartbeatResult(member_id=member.member_id, member_epoch=request.member_epoch)
        then = self.answering(request_id, lambda: result)
        if request.member_epoch != STATIC_LEAVE_EPOCH:
            self.drop(group, [member], "left", then)
            return
        change = Change(group)
        away = epochs_of((member.assigned,), STATIC_LEAVE_EPOCH)
        left = replace(member, epoch=STATIC_LEAVE_EPOCH, revoking=NO_PARTS, since=away)
        change.emit(CurrentKey(group.group_id, member.member_id), current_value(left))
        self.commit(change, "a static member left for a while", then)

    def drop(self, group: ConsumerGroup, members: Sequence[Member], reason: str, then: Then | None = None) -> None:
        """Members are no more: the others share what they had. A group that has classic members only then becomes classic."""
        then = _nothing if then is None else then
        if not members:
            self.journal.write(Change(group), then)
            return
        for member in members:
            self._tracer.emit(
                GroupMemberRemoved(group=group.group_id, member=member.member_id, instance=member.instance_id, reason=reason)
            )
        gone = {member.member_id for member in members}
        if can_downgrade(group, gone, self._config):
            self.downgrade(Change(group), gone, reason, then)
            return
        change = Change(group)
        for member in members:
            self._remove_member(change, member)
        for regex in dict.fromkeys(member.regex for member in members):
            if regex and not group.subscribers_of(regex):
                change.emit(RegexKey(group.group_id, regex), None)
        self.steps.bump_epoch(change)
        self.commit(change, reason, then)

    def downgrade(self, change: Change, gone: Collection[str], reason: str, then: Then, *, rebalance: bool = True) -> None:
        """The group, with what is in the change already, is a classic one from now on, unless that cannot be written."""
        group, group_id = change.group, change.group.group_id
        classic = downgraded(group, gone, self.cluster.topics, self._effects.wall_ms)
        for member_id in group.members:
            self._stop_timers(group, member_id)
        self.by_id.pop(group_id, None)
        self._classic.install(classic)
        self._tracer.emit(
            GroupTypeChanged(group=group_id, type="classic", epoch=classic.generation, members=len(classic.members))
        )

        def written(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self.journal.forget(group_id)
            elif self._classic.by_id.get(group_id) is classic:
                self._classic.dissolve(group_id, client_error(error))
                self.by_id[group_id] = group
                self._tell_type(group)
                self.journal.failed(group_id, change.records)
                for member in group.members.values():
                    self.schedule(group, member)

        gone_records = tombstones(group_id, self.journal.keys_of(group, change.records))
        value = stored(classic, group, self.cluster.topics, self.cluster.session_timeout_ms(group_id), gone)
        self.owed.append(group_id, [*gone_records, group_record(group_id, value)], written, then)
        if rebalance:
            self._classic.rebalances.prepare(classic, f"no member of the new protocol is left: {reason}")

    def _stop_timers(self, group: ConsumerGroup, member_id: str) -> None:
        for timer in MEMBER_TIMERS:
            self._classic.deadlines.cancel((timer, group.group_id, member_id))

    # --- deletion -----------------------------------------------------------------------------------------------------

    def make_way(self, group: ConsumerGroup) -> None:
        """A classic member joins where nobody is: the empty group of the new protocol is forgotten, its offsets are not."""
        gone = tombstones(group.group_id, self.journal.keys_of(group))
        self.dissolve(group)

        def written(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self.owed.owe(group.group_id, gone)

        self.owed.append(group.group_id, gone, written)

    def dissolve(self, group: ConsumerGroup) -> None:
        """Forget an empty group."""
        self.by_id.pop(group.group_id, None)
        self.journal.forget(group.group_id)

    # --- time ---------------------------------------------------------------------------------------------------------

    def schedule(self, group: ConsumerGroup, member: Member, *, revokes_anew: bool = False) -> None:
        """Begin the session of a member that lives anew. It must give up what it has to within its rebalance timeout."""
        deadlines, now_ms = self._classic.deadlines, self._effects.now_ms
        classic = member.classic
        session_ms = self.cluster.session_timeout_ms(group.group_id) if classic is None else classic.session_timeout_ms
        deadlines.set((Timer.MEMBER_SESSION, group.group_id, member.member_id), now_ms + session_ms)
        key = (Timer.REVOCATION, group.group_id, member.member_id)
        if member.state is not MemberState.UNREVOKED_PARTITIONS or classic is not None:
            deadlines.cancel(key)
        elif revokes_anew or deadlines.get(key) is None:
            deadlines.set(key, now_ms + member.rebalance_timeout_ms)

    def check_times(self, group: ConsumerGroup) -> None:
        """Raise AssertionError when a member may be silent, or keep what it is to give up, for ever."""
        deadlines, name = self._classic.deadlines, f"consumer group {group.group_id}"
        for member_id, member in group.members.items():
            session = deadlines.get((Timer.MEMBER_SESSION, group.group_id, member_id))
            assert session is not None, f"{name}: member {member_id} has no session that could expire"
            revokes = member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None
            if revokes and member.epoch != STATIC_LEAVE_EPOCH:
                until = deadlines.get((Timer.REVOCATION, group.group_id, member_id))
                assert until is not None, f"{name}: member {member_id} may keep {dict(member.revoking)} for ever"

    def expect(self, timer: Timer, group: ConsumerGroup, member_id: str, timeout_ms: int, *, anew: bool = True) -> None:
        """`anew`: also when it is expected already."""
        key = (timer, group.group_id, member_id)
        if anew or self._classic.deadlines.get(key) is None:
            self._classic.deadlines.set(key, self._effects.now_ms + timeout_ms)

    def came(self, timer: Timer, group: ConsumerGroup, member_id: str) -> None:
        self._classic.deadlines.cancel((timer, group.group_id, member_id))

    def time_is_up(self, key: DeadlineKey) -> None:
        timer, group_id, member_id = key
        group = self.by_id.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None or group.dead:
            return
        if timer is Timer.REVOCATION and (
            member.state is not MemberState.UNREVOKED_PARTITIONS or member.epoch == STATIC_LEAVE_EPOCH
        ):
            return
        self.drop(group, [member], _EXPIRED[timer])

    # --- writing ------------------------------------------------------------------------------------------------------

    def commit(self, change: Change, reason: str, then: Then) -> None:
        if change.records:
            self._tell(change.group, reason)
        self.journal.write(change, then)

    def _tell(self, group: ConsumerGroup, reason: str) -> None:
        previous, state = group.told_state, group.state
        if state is previous:
            return
        group.told_state = state
        self._tracer.emit(
            GroupStateChanged(
                group=group.group_id,
                previous=previous.value,
                state=state.value,
                generation=group.epoch,
                members=len(group.members),
                reason=reason,
            )
        )

    def answering(self, request_id: int, result: Callable[[], object]) -> Then:
        """Give the result once it is committed, else the error."""

        def then(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._effects.answer(request_id, result())
            else:
                self._effects.answer(request_id, ApiError(client_error(error), "the group's change could not be stored"))

        return then

    # --- storage and metadata -----------------------------------------------------------------------------------------

    def replay(self, key: ConsumerKey, value: ConsumerValue | None) -> None:
        """A record of the log; only before `loaded`. A tombstone of what is not there is nothing."""
        group = self.by_id.get(key.group_id)
        if group is None:
            if value is None:
                return
            group = self.by_id[key.group_id] = ConsumerGroup(key.group_id)
        if isinstance(key, EpochKey) and value is None:
            del self.by_id[key.group_id]
        else:
            group.replay(key, value)

    def settle(self, group_ids: Sequence[str]) -> None:
        """The log is read: everybody has a full session to find the way here."""
        for group in (self.by_id[group_id] for group_id in group_ids):
            group.told_state = group.state
            for member in group.members.values():
                self.schedule(group, member)

    def topics_changed(self, group_ids: Sequence[str], changed: Container[str]) -> None:
        """Those of these groups that subscribe to a changed topic look at them anew with the next heartbeat."""
        for group_id in group_ids:
            group = self.by_id.get(group_id)
            if group is not None and any(name in changed for name in group.subscribed_topics()):
                group.metadata_stale_at_ms = 0

    def describe(self, group_id: str) -> ConsumerGroupDescription:
        """Raises ApiError(GROUP_ID_NOT_FOUND) when there is none of this protocol."""
        return self.living(group_id).describe(self.cluster.topics, self._config.consumer_assignors[0])


_EXPIRED: Final = {
    Timer.MEMBER_SESSION: "session expired",
    Timer.REVOCATION: "did not give up its partitions in time",
    Timer.REJOIN: "did not rejoin in time",
    Timer.RESYNC: "did not sync in time",
}


def sorted_parts(parts: Parts) -> tuple[tuple[UUID, tuple[int, ...]], ...]:
    return tuple((topic_id, tuple(sorted(indexes))) for topic_id, indexes in sorted(parts.items()))


def _updated(member: Member, request: ConsumerHeartbeatRequest) -> Member:
    """Update the member with what the request says; it speaks the new protocol."""
    timeout_ms = member.rebalance_timeout_ms if request.rebalance_timeout_ms is None else request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=timeout_ms,
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        topics=member.topics if request.topics is None else tuple(sorted(set(request.topics))),
        regex=member.regex if request.regex is None else request.regex,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
    )


def _nothing(error: ErrorCode) -> None:
    """Nobody waits for it; what could not be written is written again with the next change."""
