"""Members that speak the classic protocol in a group of the new one: to them every change is a rebalance of their own.

Source: KIP-848, "Consumer Groups Migration"; `GroupMetadataManager.classicGroup*ToConsumerGroup` of Kafka 4.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from kraftlite.coordinator.api import (
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    LeavingMember,
    Protocol,
    SyncRequest,
    SyncResult,
)
from kraftlite.coordinator.classic.groups import client_error
from kraftlite.coordinator.classic.rebalance import Timer
from kraftlite.coordinator.config import GroupConfig
from kraftlite.coordinator.consumer_protocol import CONSUMER, build_assignment
from kraftlite.coordinator.core.effects import Effects
from kraftlite.coordinator.modern.group import ConsumerGroup
from kraftlite.coordinator.modern.groups import ConsumerGroups
from kraftlite.coordinator.modern.journal import Change
from kraftlite.coordinator.modern.member import ClassicMetadata, Member, MemberState
from kraftlite.coordinator.modern.migrate import by_name, can_downgrade, classic_subscription, parts_by_name
from kraftlite.model.errors import ApiError, ErrorCode


class ClassicMembers:
    """JoinGroup, SyncGroup, Heartbeat and LeaveGroup where the group is one of the new protocol and has members.

    The coordinator assigns, so nobody leads; a member epoch is its generation. ApiError as in the classic protocol.
    """

    def __init__(self, config: GroupConfig, effects: Effects, entropy: random.Random, groups: ConsumerGroups) -> None:
        self._config = config
        self._effects = effects
        self._entropy = entropy
        self._groups = groups

    # --- join ---------------------------------------------------------------------------------------------------------

    def join(self, request_id: int, request: JoinRequest) -> None:
        """Answers a `JoinResult`, when the member's place is stored; at once, for there is nobody to wait for. As in Kafka a
        refusal does not say the member's id again, other than that of a classic group."""
        try:
            self._join(request_id, request)
        except ApiError as error:
            self._effects.answer(request_id, JoinResult(error=error.code, member_id=""))

    def _join(self, request_id: int, request: JoinRequest) -> None:
        group = self._living(request.group_id)
        self._groups.check_room(group, request.member_id)
        _check_protocols(group, request.protocol_type, request.protocols)
        member_id = request.member_id or str(UUID(int=self._entropy.getrandbits(128), version=4))
        if not request.member_id and request.require_known_member_id and request.instance_id is None:
            self._effects.answer(request_id, JoinResult(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
            return
        subscription = classic_subscription(request.protocols)
        before, former = _find(group, request, member_id)
        after = replace(
            before,
            instance_id=before.instance_id if request.instance_id is None else request.instance_id,
            rack_id=subscription.rack_id or before.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            server_assignor=before.server_assignor,
            topics=tuple(sorted(set(subscription.topics))),
            regex="",
            client_id=request.client_id,
            client_host=request.client_host,
            classic=ClassicMetadata(session_timeout_ms=request.session_timeout_ms, protocols=request.protocols),
        )
        owned = parts_by_name(subscription.owned, self._groups.cluster.topics)
        change, epoch = Change(group), group.epoch
        last_of_the_new = request.instance_id is not None and before.classic is None and group.static_member(request.instance_id)
        self._groups.replace_member(change, before, former)
        after = self._groups.steps.update(change, before, after, owned, request.sees)
        result = JoinResult(
            error=ErrorCode.NONE,
            member_id=after.member_id,
            generation=after.epoch,
            protocol_type=CONSUMER,
            protocol_name=request.protocols[0].name,
        )

        def then(error: ErrorCode) -> None:
            failed = JoinResult(error=client_error(error), member_id=request.member_id)
            self._effects.answer(request_id, result if error is ErrorCode.NONE else failed)

        if last_of_the_new and can_downgrade(group, (), self._config):
            reason = f"static member {request.instance_id} came back"
            self._groups.downgrade(change, (), reason, then, rebalance=group.epoch != epoch)
            return
        self._groups.schedule(group, after)
        self._groups.came(Timer.REJOIN, group, after.member_id)
        self._groups.expect(Timer.RESYNC, group, after.member_id, request.rebalance_timeout_ms)
        self._groups.commit(change, "join", then)

    # --- sync, heartbeat ----------------------------------------------------------------------------------------------

    def sync(self, request_id: int, request: SyncRequest) -> None:
        """Answers a `SyncResult`: what the member may use in its epoch."""
        group = self._living(request.group_id)
        member, metadata = _classic(_known(group, request.member_id, request.instance_id))
        _check_epoch(member, request.generation)
        protocol = metadata.protocols[0]
        if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, protocol.name):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"group {group.group_id} uses {CONSUMER}/{protocol.name}")
        if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._groups.expect(Timer.REJOIN, group, member.member_id, member.rebalance_timeout_ms, anew=False)
            raise ApiError(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"A new rebalance is triggered in group {group.group_id}: member {member.member_id} should rejoin.",
            )
        self._groups.came(Timer.RESYNC, group, member.member_id)
        self._groups.schedule(group, member)
        version = classic_subscription(metadata.protocols).version
        result = SyncResult(
            error=ErrorCode.NONE,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=build_assignment(version, by_name(member.assigned, self._groups.cluster.topics)),
        )
        self._groups.journal.write(Change(group), self._groups.answering(request_id, lambda: result))

    def heartbeat(self, request_id: int, request: HeartbeatRequest) -> None:
        """Answers an `ErrorCode`: REBALANCE_IN_PROGRESS when the member should come for another assignment, give partitions up,
        or get those that are free now."""
        group = self._living(request.group_id)
        member, _ = _classic(_known(group, request.member_id, request.instance_id))
        _check_epoch(member, request.generation)
        self._groups.schedule(group, member)
        ready = member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member)
        error = ErrorCode.NONE
        if member.epoch < group.epoch or member.state is MemberState.UNREVOKED_PARTITIONS or ready:
            error = ErrorCode.REBALANCE_IN_PROGRESS
            self._groups.expect(Timer.REJOIN, group, member.member_id, member.rebalance_timeout_ms, anew=False)
        self._groups.journal.write(Change(group), self._groups.answering(request_id, lambda: error))

    # --- leave --------------------------------------------------------------------------------------------------------

    def leave(self, request_id: int, request: LeaveRequest) -> None:
        """Answers a tuple of (member, ErrorCode) in the order of the request. Members of either protocol may be named."""
        group = self._living(request.group_id)
        gone: dict[str, Member] = {}
        results: list[tuple[LeavingMember, ErrorCode]] = []
        for leaving in request.members:
            error = ErrorCode.NONE
            try:
                member = _leaving(group, leaving)
                gone[member.member_id] = member
            except ApiError as refused:
                error = refused.code
            results.append((leaving, error))
        then = self._groups.answering(request_id, lambda: tuple(results))
        self._groups.drop(group, list(gone.values()), "left", then)

    def _living(self, group_id: str) -> ConsumerGroup:
        return self._groups.living(group_id)


def _find(group: ConsumerGroup, request: JoinRequest, member_id: str) -> tuple[Member, Member | None]:
    """The member as it is, made if it is new; and the former self whose place it takes as a static member."""
    if request.instance_id is None:
        return group.members.get(member_id) or Member(member_id=member_id), None
    if request.member_id:
        return group.known_static_member(request.instance_id, member_id), None
    former = group.static_member(request.instance_id)
    if former is None:
        return Member(member_id=member_id), None
    return replace(former, member_id=member_id, epoch=0, previous_epoch=0), former


def _leaving(group: ConsumerGroup, leaving: LeavingMember) -> Member:
    if leaving.instance_id is None:
        return group.member(leaving.member_id)
    if leaving.member_id:
        return group.known_static_member(leaving.instance_id, leaving.member_id)
    found = group.static_member(leaving.instance_id)
    if found is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {leaving.instance_id} is unknown.")
    return found


def _known(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    return group.member(member_id) if instance_id is None else group.known_static_member(instance_id, member_id)


def _classic(member: Member) -> tuple[Member, ClassicMetadata]:
    if member.classic is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member.member_id} does not use the classic protocol.")
    return member, member.classic


def _check_epoch(member: Member, generation: int) -> None:
    if member.epoch != generation:
        raise ApiError(
            ErrorCode.ILLEGAL_GENERATION,
            f"generation {generation} is not the member epoch {member.epoch} of member {member.member_id}",
        )


def _check_protocols(group: ConsumerGroup, protocol_type: str, protocols: Sequence[Protocol]) -> None:
    """One of them must be supported by all other members of the classic protocol."""
    others = [{one.name for one in m.classic.protocols} for m in group.members.values() if m.classic is not None]
    common = any(all(protocol.name in names for names in others) for protocol in protocols)
    if protocol_type != CONSUMER or not common:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"group {group.group_id} does not support the member's protocols")
