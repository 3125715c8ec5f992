"""Classic groups: joining, syncing, heartbeats, leaving. One instance per partition of `__consumer_offsets`.

Source: CP-26 to CP-35, CP-40; KIP-62, KIP-345, KIP-394, KIP-559, KIP-814.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from kraftlite.coordinator.api import (
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from kraftlite.coordinator.classic.group import Group, GroupState, Member
from kraftlite.coordinator.classic.rebalance import DeadlineKey, Rebalances, Timer
from kraftlite.coordinator.config import GroupConfig
from kraftlite.coordinator.core.deadlines import Deadlines
from kraftlite.coordinator.core.effects import Effects
from kraftlite.coordinator.core.keys import Keyed
from kraftlite.coordinator.owed import OwedTombstones
from kraftlite.coordinator.records import GroupValue, group_record
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.runtime.ports import Tracer
from kraftlite.runtime.trace.group import StaticMemberReplaced

_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE})
_NOT_HERE: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NOT_COORDINATOR,
    }
)


def client_error(error: ErrorCode, *, too_large: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR) -> ErrorCode:
    """Translate a failed write for a client (CP-31, CP-37): ask again, or ask who coordinates now."""
    if error is ErrorCode.NONE:
        return error
    if error in _NOT_HERE:
        return ErrorCode.NOT_COORDINATOR
    return too_large if error in _TOO_LARGE else ErrorCode.COORDINATOR_NOT_AVAILABLE


class Groups:
    """The groups of one shard, and all that members ask. Every request is answered through `Effects`, exactly once.

    Raises ApiError for what is refused at once, before anything changed but that a full group drops who finds no place.
    Generations only grow; a member id, once removed, is never a member again.
    """

    def __init__(
        self, config: GroupConfig, effects: Effects, tracer: Tracer, entropy: random.Random, owed: OwedTombstones
    ) -> None:
        self._config = config
        self._effects = effects
        self._owed = owed
        self._tracer = tracer
        self._entropy = entropy
        self.deadlines: Deadlines[DeadlineKey] = Deadlines()
        self.rebalances = Rebalances(config, effects, self.deadlines, tracer, owed)
        self.by_id: Keyed[Group] = Keyed()

    def check(self, group_ids: Iterable[str]) -> None:
        """Raise AssertionError when an invariant of one of these groups does not hold, or when nothing would ever end its
        waiting."""
        for group_id in group_ids:
            group = self.by_id[group_id]
            group.check()
            assert group_id == group.group_id, f"group {group.group_id} is known as {group_id}"
            due = [timer for timer in (Timer.JOIN, Timer.SYNC) if self.deadlines.get((timer, group_id, "")) is not None]
            preparing = group.state is GroupState.PREPARING_REBALANCE
            assert not preparing or Timer.JOIN in due, f"group {group_id} prepares a rebalance without a deadline"
            assert preparing or not group.unsynced or Timer.SYNC in due, (
                f"group {group_id} waits for {list(group.unsynced)} for ever"
            )
            for member_id, member in group.members.items():
                waits = member.waiting_join is not None or member.waiting_sync is not None
                session = self.deadlines.get((Timer.SESSION, group_id, member_id))
                assert waits or session is not None, f"group {group_id}: member {member_id} has no session that could expire"

    def obtain(self, group_id: str) -> Group:
        """The group, made if there is none."""
        group = self.by_id.get(group_id)
        if group is None:
            group = self.by_id[group_id] = Group(group_id, self._effects.wall_ms)
        return group

    # --- join ---------------------------------------------------------------------------------------------------------

    def join(self, request_id: int, request: JoinRequest) -> None:
        """Take a member's join (CP-26 to CP-28, CP-34, CP-35). The answer is a `JoinResult`."""
        group = self.by_id.get(request.group_id)
        if group is None:
            if request.member_id:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {request.group_id} does not exist")
            if not request.protocol_type or not request.protocols:
                raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "a member needs a protocol type and a protocol")
            group = self.obtain(request.group_id)
        if group.state is GroupState.DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {group.group_id} is being deleted")
        if not group.accepts(request.member_id, self._config.max_size):
            self._turn_away(group, request.member_id)
            raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"group {group.group_id} has {self._config.max_size} members")
        if not group.supports(request.protocol_type, request.protocols):
            raise ApiError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {group.group_id} is of type {group.protocol_type}; no protocol is common to all its members",
            )
        if request.member_id:
            self._join_known(group, request, request_id)
        else:
            self._join_unknown(group, request, request_id)

    def _turn_away(self, group: Group, member_id: str) -> None:
        """The size was lowered: who finds no place in the next generation is no member any more."""
        if member_id in group.members:
            self.rebalances.remove_member(group, member_id, "the group is full", ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif member_id in group.pending:
            self.rebalances.forget_pending(group, member_id)

    def _join_unknown(self, group: Group, request: JoinRequest, request_id: int) -> None:
        member_id = self._new_member_id(request)
        if request.instance_id is not None and request.instance_id in group.static:
            self._replace_static(group, request, member_id, request_id)
        elif request.instance_id is None and request.require_known_member_id:
            self.rebalances.expect_pending(group, member_id, request.session_timeout_ms)
            self._effects.answer(request_id, JoinResult(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
        else:
            self._add(group, request, member_id, request_id)

    def _new_member_id(self, request: JoinRequest) -> str:
        unique = UUID(int=self._entropy.getrandbits(128), version=4)
        return f"{request.instance_id or request.client_id}-{unique}"

    def _add(self, group: Group, request: JoinRequest, member_id: str, request_id: int) -> None:
        member = Member(
            member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=request.protocols,
        )
        self.rebalances.add_and_rebalance(group, member, request.protocol_type, request_id)

    def _join_known(self, group: Group, request: JoinRequest, request_id: int) -> None:
        if request.member_id in group.pending and request.instance_id is None:
            self._add(group, request, request.member_id, request_id)
            return
        member = group.check_member(request.member_id, request.instance_id)
        rebalances = self.rebalances
        unchanged = member.protocols == request.protocols
        if group.state is GroupState.PREPARING_REBALANCE:
            _update(member, request)
            rebalances.rejoin_and_rebalance(group, member, request_id, "")
        elif group.state is GroupState.COMPLETING_REBALANCE and unchanged:
            # It may not have got the answer to its first request.
            self._effects.answer(request_id, rebalances.joined(group, member))
        elif group.state is GroupState.STABLE and unchanged and not group.is_leader(member.member_id):
            self._effects.answer(request_id, rebalances.joined(group, member))
        else:
            # A leader that joins again wants a rebalance for what is not in its metadata, such as more partitions.
            reason = "leader" if group.is_leader(member.member_id) else "changed metadata of"
            _update(member, request)
            rebalances.rejoin_and_rebalance(group, member, request_id, f"{reason} {member.member_id} rejoined")

    def _replace_static(self, group: Group, request: JoinRequest, member_id: str, request_id: int) -> None:
        """A static member is back without its member id: its place is kept, its former self is fenced (CP-34)."""
        assert request.instance_id is not None
        old_id = group.static[request.instance_id]
        former = group.members[old_id]
        rebalances = self.rebalances
        rebalances.answer_join(former, JoinResult(error=ErrorCode.FENCED_INSTANCE_ID, member_id=old_id))
        rebalances.answer_sync(former, SyncResult(error=ErrorCode.FENCED_INSTANCE_ID))
        rebalances.stop_session(group, old_id)
        old_leader = group.leader_id
        member = group.replace_static(old_id, member_id)
        before = (member.protocols, member.session_timeout_ms, member.rebalance_timeout_ms)
        _update(member, request)
        self._tracer.emit(StaticMemberReplaced(group=group.group_id, instance=request.instance_id, old=old_id, new=member_id))
        if group.state is not GroupState.STABLE or group.select_protocol() != group.protocol_name:
            rebalances.rejoin_and_rebalance(group, member, request_id, f"static member {request.instance_id} rejoined")
            return
        member.waiting_join = request_id
        rebalances.expect_heartbeat(group, member)
        generation = group.generation

        def stands() -> bool:
            """Otherwise it was answered by what happened meanwhile."""
            current = group.members.get(member_id)
            return current is member and group.state is GroupState.STABLE and group.generation == generation

        def stored(error: ErrorCode) -> None:
            if error is ErrorCode.NONE or not stands():
                return
            rebalances.answer_join(member, JoinResult(error=client_error(error), member_id=""))
            rebalances.stop_session(group, member_id)
            group.replace_static(member_id, old_id)
            member.protocols, member.session_timeout_ms, member.rebalance_timeout_ms = before
            rebalances.expect_heartbeat(group, member)

        def told(error: ErrorCode) -> None:
            if not stands():
                return
            result = self._replaced(group, member, old_leader, request.can_skip_assignment)
            failed = JoinResult(error=client_error(error), member_id="")
            if rebalances.answer_join(member, result if error is ErrorCode.NONE else failed):
                rebalances.expect_heartbeat(group, member)

        self._owed.append(group.group_id, [group_record(group.group_id, group.value())], stored, told)

    def _replaced(self, group: Group, member: Member, old_leader: str | None, can_skip: bool) -> JoinResult:
        """A leader that comes back must not assign: nobody would hear of it. It is told so, or, where it cannot be told (before
        v9), that somebody else leads."""
        leads = group.is_leader(member.member_id)
        return JoinResult(
            error=ErrorCode.NONE,
            member_id=member.member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader_id=((group.leader_id if can_skip else old_leader) or ""),
            members=group.joined_members() if leads and can_skip else (),
            skip_assignment=leads and can_skip,
        )

    # --- sync ---------------------------------------------------------------------------------------------------------

    def sync(self, request_id: int, request: SyncRequest) -> None:
        """Take a member's sync (CP-30, CP-31). The answer is a `SyncResult`, when the leader's assignment is stored."""
        group = self._group_of_member(request.group_id)
        member = group.check_member(request.member_id, request.instance_id)
        _check_generation(group, request.generation)
        if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol_name):
            raise ApiError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {group.group_id} uses {group.protocol_type}/{group.protocol_name}",
            )
        if group.state is GroupState.PREPARING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group.group_id} prepares a rebalance")
        rebalances = self.rebalances
        rebalances.mark_synced(group, member.member_id)
        if group.state is GroupState.STABLE:
            rebalances.expect_heartbeat(group, member)
            self._effects.answer(request_id, rebalances.synced(group, member))
            return
        assert group.state is GroupState.COMPLETING_REBALANCE, f"a member in state {group.state.value}"
        rebalances.answer_sync(member, SyncResult(error=ErrorCode.REBALANCE_IN_PROGRESS))
        member.waiting_sync = request_id
        rebalances.stop_session(group, member.member_id)
        if group.is_leader(member.member_id) and not group.writing_assignment:
            self._store_assignment(group, dict(request.assignments))

    def _store_assignment(self, group: Group, assignments: dict[str, bytes]) -> None:
        generation = group.generation
        group.writing_assignment = True

        def told(error: ErrorCode) -> None:
            if group.state is not GroupState.COMPLETING_REBALANCE or group.generation != generation:
                return  # another rebalance has begun, and all that waited are answered
            group.writing_assignment = False
            if error is ErrorCode.NONE:
                self.rebalances.assign(group, assignments)
            else:
                self.rebalances.fail_assignment(group, client_error(error))
                self.rebalances.prepare(group, f"the assignment could not be stored: {error.name}")

        self._owed.append(group.group_id, [group_record(group.group_id, group.value(assignments))], tell=told)

    # --- heartbeat and leave ------------------------------------------------------------------------------------------

    def heartbeat(self, request_id: int, request: HeartbeatRequest) -> None:
        """Take a member's heartbeat (CP-32). The answer is an `ErrorCode`."""
        group = self._group_of_member(request.group_id)
        member = group.check_member(request.member_id, request.instance_id)
        _check_generation(group, request.generation)
        self.touch(group, member)
        preparing = group.state is GroupState.PREPARING_REBALANCE
        self._effects.answer(request_id, ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE)

    def touch(self, group: Group, member: Member) -> None:
        """The member lives. One that waits for an answer has no session to renew."""
        if member.waiting_join is None and member.waiting_sync is None:
            self.rebalances.expect_heartbeat(group, member)

    def leave(self, request_id: int, request: LeaveRequest) -> None:
        """Let members leave (CP-33). The answer is a tuple of (member, ErrorCode) in the order of the request."""
        group = self.by_id.get(request.group_id)
        if group is None:
            unknown = tuple((member, ErrorCode.UNKNOWN_MEMBER_ID) for member in request.members)
            self._effects.answer(request_id, unknown)
            return
        if group.state is GroupState.DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {group.group_id} is being deleted")
        self._effects.answer(request_id, tuple((member, self._leave(group, member)) for member in request.members))

    def _leave(self, group: Group, leaving: LeavingMember) -> ErrorCode:
        reason = "left" if leaving.reason is None else f"left: {leaving.reason}"
        if leaving.instance_id is None and leaving.member_id in group.pending:
            self.rebalances.forget_pending(group, leaving.member_id)
            return ErrorCode.NONE
        member_id = leaving.member_id
        if leaving.instance_id is not None and not member_id:
            member_id = group.static.get(leaving.instance_id, "")
        try:
            group.check_member(member_id, leaving.instance_id)
        except ApiError as error:
            return error.code
        self.rebalances.remove_member(group, member_id, reason)
        return ErrorCode.NONE

    def _group_of_member(self, group_id: str) -> Group:
        group = self.by_id.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group_id} does not exist")
        if group.state is GroupState.DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {group_id} is being deleted")
        return group

    # --- time ---------------------------------------------------------------------------------------------------------

    def time_is_up(self, key: DeadlineKey) -> None:
        """A deadline of a group or of one of its members has come."""
        timer, group_id, member_id = key
        group = self.by_id.get(group_id)
        if group is None:
            return
        if timer is Timer.SESSION:
            self.rebalances.session_expired(group, member_id)
        elif timer is Timer.PENDING:
            self.rebalances.forget_pending(group, member_id)
        elif timer is Timer.JOIN:
            self.rebalances.join_time_is_up(group)
        elif timer is Timer.SYNC:
            self.rebalances.sync_time_is_up(group)

    # --- migration ----------------------------------------------------------------------------------------------------

    def dissolve(self, group_id: str, error: ErrorCode) -> None:
        """The group is no longer one of the classic protocol: who waits in it is told `error`, and nothing of it is left."""
        group = self.by_id.pop(group_id)
        group.state = GroupState.DEAD
        for member in group.members.values():
            self.rebalances.answer_join(member, JoinResult(error=error, member_id=member.member_id))
            self.rebalances.answer_sync(member, SyncResult(error=error))
            self.rebalances.stop_session(group, member.member_id)
        for member_id in group.pending:
            self.deadlines.cancel((Timer.PENDING, group_id, member_id))
        for timer in (Timer.JOIN, Timer.SYNC):
            self.deadlines.cancel((timer, group_id, ""))

    def install(self, group: Group) -> None:
        """A group that was one of the new protocol: everybody's session begins."""
        self.by_id[group.group_id] = group
        for member in group.members.values():
            self.rebalances.expect_heartbeat(group, member)

    # --- storage ------------------------------------------------------------------------------------------------------

    def replay(self, group_id: str, value: GroupValue | None) -> None:
        """A record of the log; only before `loaded`."""
        if value is None:
            self.by_id.pop(group_id, None)
        else:
            self.by_id[group_id] = Group.from_value(group_id, value, self._effects.wall_ms)

    def settle(self, group_ids: Sequence[str]) -> None:
        """The log is read: everybody has a full session to find the way here."""
        for group in (self.by_id[group_id] for group_id in group_ids):
            for member in group.members.values():
                self.rebalances.expect_heartbeat(group, member)
            if len(group.members) > self._config.max_size:
                self.rebalances.prepare(group, f"more than {self._config.max_size} members")

    def resign(self, error: ErrorCode) -> None:
        """Another broker takes over: who waits is sent there."""
        for group in self.by_id.values():
            for member in group.members.values():
                if member.waiting_join is not None:
                    self.rebalances.answer_join(member, JoinResult(error=error, member_id=member.member_id))
                if member.waiting_sync is not None:
                    self.rebalances.answer_sync(member, SyncResult(error=error))


def _update(member: Member, request: JoinRequest) -> None:
    member.protocols = request.protocols
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.client_id, member.client_host = request.client_id, request.client_host


def _check_generation(group: Group, generation: int) -> None:
    if generation != group.generation:
        raise ApiError(
            ErrorCode.ILLEGAL_GENERATION, f"group {group.group_id} is in generation {group.generation}, not {generation}"
        )


def _differs(asked: str | None, actual: str | None) -> bool:
    return asked is not None and asked != actual
