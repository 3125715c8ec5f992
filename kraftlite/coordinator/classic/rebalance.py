"""The life of a rebalance: prepare, complete the join, hand the assignment out; and who is dropped on the way.

Source: CP-28 to CP-33; KIP-62 (rebalance timeout), KIP-134 (initial delay), KIP-345, KIP-394; KAFKA-10284, KAFKA-13435.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from kraftlite.coordinator.api import JoinResult, SyncResult
from kraftlite.coordinator.classic.group import Group, GroupState, Member
from kraftlite.coordinator.config import GroupConfig
from kraftlite.coordinator.core.deadlines import Deadlines
from kraftlite.coordinator.core.effects import Effects
from kraftlite.coordinator.owed import OwedTombstones
from kraftlite.coordinator.records import group_record
from kraftlite.model.errors import ErrorCode
from kraftlite.runtime.ports import Tracer
from kraftlite.runtime.trace.group import GroupMemberRemoved, GroupStateChanged

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""The time that a member that never completed a join may wait for its first one; Kafka's constant."""


class Timer(Enum):
    """The subject of a deadline. SESSION and PENDING are per member; JOIN and SYNC per group; EXPIRE is the shard's.

    The others are per member of a group of the new protocol, REJOIN and RESYNC of one that speaks the classic protocol.
    """

    SESSION = "session"
    PENDING = "pending"
    JOIN = "join"
    SYNC = "sync"
    EXPIRE = "expire"
    MEMBER_SESSION = "member_session"
    REVOCATION = "revocation"
    REJOIN = "rejoin"
    RESYNC = "resync"


DeadlineKey = tuple[Timer, str, str]


class Rebalances:
    """Moves groups through their states. Synchronous; the time is that of the step (`Effects`).

    A member is answered exactly once per request; one that waits for a join or an assignment cannot lose its session.
    """

    def __init__(
        self,
        config: GroupConfig,
        effects: Effects,
        deadlines: Deadlines[DeadlineKey],
        tracer: Tracer,
        owed: OwedTombstones,
    ) -> None:
        self._config = config
        self._effects = effects
        self._owed = owed
        self._deadlines = deadlines
        self._tracer = tracer

    # --- sessions -----------------------------------------------------------------------------------------------------

    def expect_heartbeat(self, group: Group, member: Member) -> None:
        """The session begins anew."""
        key = (Timer.SESSION, group.group_id, member.member_id)
        self._deadlines.set(key, self._effects.now_ms + member.session_timeout_ms)

    def stop_session(self, group: Group, member_id: str) -> None:
        self._deadlines.cancel((Timer.SESSION, group.group_id, member_id))

    def session_expired(self, group: Group, member_id: str) -> None:
        """Remove a member whose session is over (CP-32). A member that waits for us is not expected to send anything, unless
        it has been new for too long."""
        member = group.members.get(member_id)
        if member is not None and (member.is_new or (member.waiting_join is None and member.waiting_sync is None)):
            self.remove_member(group, member_id, "session expired")

    def expect_pending(self, group: Group, member_id: str, session_timeout_ms: int) -> None:
        """A member id was given out; it counts as long as a session would (CP-27)."""
        group.pending[member_id] = None
        self._deadlines.set((Timer.PENDING, group.group_id, member_id), self._effects.now_ms + session_timeout_ms)

    def forget_pending(self, group: Group, member_id: str) -> None:
        group.pending.pop(member_id, None)
        self._deadlines.cancel((Timer.PENDING, group.group_id, member_id))
        self.maybe_complete_join(group)

    # --- members ------------------------------------------------------------------------------------------------------

    def add_and_rebalance(self, group: Group, member: Member, protocol_type: str, request_id: int) -> None:
        """A member joins for the first time."""
        member.is_new = True
        member.waiting_join = request_id
        self._deadlines.cancel((Timer.PENDING, group.group_id, member.member_id))
        group.add(member, protocol_type)
        if group.state is GroupState.PREPARING_REBALANCE and group.first_round:
            group.joined_lately = True
        key = (Timer.SESSION, group.group_id, member.member_id)
        self._deadlines.set(key, self._effects.now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self.prepare(group, f"member {member.member_id} joined")

    def rejoin_and_rebalance(self, group: Group, member: Member, request_id: int, reason: str) -> None:
        self.wait_for_join(group, member, request_id)
        self.prepare(group, reason)

    def wait_for_join(self, group: Group, member: Member, request_id: int) -> None:
        """The member's join is answered when the join completes; a request that it repeats takes the place of the first."""
        if member.waiting_join is not None:
            self._effects.answer(
                member.waiting_join, JoinResult(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
            )
        member.waiting_join = request_id
        if not member.is_new:
            self.stop_session(group, member.member_id)

    def remove_member(self, group: Group, member_id: str, reason: str, error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
        """Drop a member, answer what it waits for, and rebalance among the others."""
        self._drop(group, member_id, reason, error)
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.prepare(group, f"member {member_id}: {reason}")
        else:
            self.maybe_complete_join(group)

    def _drop(self, group: Group, member_id: str, reason: str, error: ErrorCode) -> None:
        member = group.remove(member_id)
        self.stop_session(group, member_id)
        self._tracer.emit(GroupMemberRemoved(group=group.group_id, member=member_id, instance=member.instance_id, reason=reason))
        self.answer_join(member, JoinResult(error=error, member_id=member_id))
        self.answer_sync(member, SyncResult(error=error))

    def answer_join(self, member: Member, result: JoinResult) -> bool:
        """Answer the member's join, and return whether it waited for one."""
        request_id, member.waiting_join = member.waiting_join, None
        if request_id is not None:
            self._effects.answer(request_id, result)
        return request_id is not None

    def answer_sync(self, member: Member, result: SyncResult) -> bool:
        request_id, member.waiting_sync = member.waiting_sync, None
        if request_id is not None:
            self._effects.answer(request_id, result)
        return request_id is not None

    # --- joining ------------------------------------------------------------------------------------------------------

    def prepare(self, group: Group, reason: str) -> None:
        """Begin a rebalance unless one is being prepared, and end its join phase if everybody is there already.

        A group that was empty waits `group.initial.rebalance.delay.ms`, and longer while members keep coming (CP-28).
        """
        if group.state is not GroupState.PREPARING_REBALANCE:
            if group.state is GroupState.COMPLETING_REBALANCE:
                self.fail_assignment(group, ErrorCode.REBALANCE_IN_PROGRESS)
            self._deadlines.cancel((Timer.SYNC, group.group_id, ""))
            group.writing_assignment = False
            group.first_round = group.state is GroupState.EMPTY
            patience_ms = group.rebalance_timeout_ms
            if group.first_round:
                delay_ms = self._config.initial_rebalance_delay_ms
                group.patience_left_ms = max(patience_ms - delay_ms, 0)
                group.joined_lately = False
                patience_ms = delay_ms
            self._transition(group, GroupState.PREPARING_REBALANCE, reason)
            self._wait_for_members(group, patience_ms)
        self.maybe_complete_join(group)

    def _wait_for_members(self, group: Group, patience_ms: int) -> None:
        self._deadlines.set((Timer.JOIN, group.group_id, ""), self._effects.now_ms + patience_ms)

    def maybe_complete_join(self, group: Group) -> None:
        """Nobody waits for latecomers once all known members are there; the first round always lasts its time, unless all left or
        there is no delay at all."""
        if group.state is not GroupState.PREPARING_REBALANCE or not group.all_joined:
            return
        if not group.first_round or not group.members or not self._config.initial_rebalance_delay_ms:
            self._complete_join(group)

    def join_time_is_up(self, group: Group) -> None:
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        if group.first_round and group.joined_lately and group.patience_left_ms > 0:
            delay_ms = min(self._config.initial_rebalance_delay_ms, group.patience_left_ms)
            group.patience_left_ms -= delay_ms
            group.joined_lately = False
            self._wait_for_members(group, delay_ms)
            return
        self._complete_join(group)

    def _complete_join(self, group: Group) -> None:
        """Drop the dynamic members that did not rejoin, and begin the next generation with the others."""
        for member in list(group.members.values()):
            if member.waiting_join is None and member.instance_id is None:
                self._drop(group, member.member_id, "did not rejoin in time", ErrorCode.UNKNOWN_MEMBER_ID)
        if group.members and not group.elect_joined_leader():
            self._wait_for_members(group, group.rebalance_timeout_ms)  # static members only, and none is back
            return
        self._deadlines.cancel((Timer.JOIN, group.group_id, ""))
        previous = group.state
        group.next_generation(self._effects.wall_ms)
        self._tell(group, previous, "all members joined" if group.members else "the last member left")
        if not group.members:
            self._owed.append(group.group_id, [group_record(group.group_id, group.value())], _written_or_lost)
            return
        self._deadlines.set((Timer.SYNC, group.group_id, ""), self._effects.now_ms + group.rebalance_timeout_ms)
        for member in list(group.members.values()):
            member.is_new = False
            group.unsynced[member.member_id] = None
            if self.answer_join(member, self.joined(group, member)):
                self.expect_heartbeat(group, member)

    def joined(self, group: Group, member: Member) -> JoinResult:
        """The answer to a member's join in this generation; the leader learns of all members (CP-29)."""
        return JoinResult(
            error=ErrorCode.NONE,
            member_id=member.member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader_id=group.leader_id or "",
            members=group.joined_members() if group.is_leader(member.member_id) else (),
        )

    # --- syncing ------------------------------------------------------------------------------------------------------

    def assign(self, group: Group, assignments: Mapping[str, bytes]) -> None:
        """The assignment is stored: everybody gets theirs, and the group is stable."""
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self._transition(group, GroupState.STABLE, "assignment stored")
        for member in group.members.values():
            if self.answer_sync(member, self.synced(group, member)):
                self.expect_heartbeat(group, member)

    def synced(self, group: Group, member: Member) -> SyncResult:
        return SyncResult(
            error=ErrorCode.NONE,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            assignment=member.assignment,
        )

    def mark_synced(self, group: Group, member_id: str) -> None:
        """The member asked for its assignment; when it gets it is another matter."""
        group.unsynced.pop(member_id, None)
        if not group.unsynced:
            self._deadlines.cancel((Timer.SYNC, group.group_id, ""))

    def fail_assignment(self, group: Group, error: ErrorCode) -> None:
        for member in group.members.values():
            member.assignment = b""
            if self.answer_sync(member, SyncResult(error=error)):
                self.expect_heartbeat(group, member)

    def sync_time_is_up(self, group: Group) -> None:
        """Drop the members that have not asked for their assignment (CP-30)."""
        if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) or not group.unsynced:
            return
        late = list(group.unsynced)
        for member_id in late:
            self._drop(group, member_id, "did not sync in time", ErrorCode.UNKNOWN_MEMBER_ID)
        self.prepare(group, f"{len(late)} members did not sync in time")

    # --- trace --------------------------------------------------------------------------------------------------------

    def _transition(self, group: Group, state: GroupState, reason: str) -> None:
        previous = group.state
        group.transition(state, self._effects.wall_ms)
        self._tell(group, previous, reason)

    def _tell(self, group: Group, previous: GroupState, reason: str) -> None:
        self._tracer.emit(
            GroupStateChanged(
                group=group.group_id,
                previous=previous.value,
                state=group.state.value,
                generation=group.generation,
                members=len(group.members),
                reason=reason,
            )
        )


def _written_or_lost(error: ErrorCode) -> None:
    """An empty group need not be stored: at worst the next coordinator finds the last members, and drops them in a session."""
