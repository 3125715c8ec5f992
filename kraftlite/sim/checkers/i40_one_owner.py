"""Invariant 40: no partition has two owners, in the log or in the hands of members (KIP-848, CG-01; CP-30)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar
from uuid import UUID

from kraftlite.coordinator.api import ConsumerHeartbeatRequest, SyncRequest, SyncResult
from kraftlite.coordinator.consumer_protocol import CONSUMER, parse_assignment
from kraftlite.coordinator.modern.member import STATIC_LEAVE_EPOCH, Parts
from kraftlite.coordinator.modern.records import CurrentKey, CurrentValue, MemberKey, TargetKey
from kraftlite.coordinator.records import GroupKey, GroupValue
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.method import AnyMethod
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.group_log import Change, ConsumersInLog, GroupChecker, GroupLog
from kraftlite.sim.services.groups import BEAT, SYNC, Told

Place = tuple[UUID, int]


class OneOwner(GroupChecker):
    """In a group of the consumer protocol a partition is held by one member, which may use it or has yet to give it up, and
    aimed at one; a static member that is away holds nothing that it was to give up. A member that was told of a partition
    has it until it says that it has not, leaves, begins anew, or is removed by a committed record; until then nobody else
    is told of it. In a generation of the classic protocol each member is told what the leader of that generation assigned
    to it, and nothing is stored twice."""

    numbers: ClassVar[tuple[int, ...]] = (40,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._owned: dict[str, dict[str, dict[Place, None]]] = {}
        """By group and member, as the member knows it."""
        self._sent: dict[tuple[str, int], list[dict[str, bytes]]] = {}
        """By group and generation, what leaders have sent. A generation that was never stored may have several."""

    # --- the log

    def on_records(self, log: GroupLog, changes: Sequence[Change]) -> None:
        touched: dict[str, Change] = {}
        for change in changes:
            if isinstance(change.key, CurrentKey | TargetKey | MemberKey):
                touched[change.key.group_id] = change
            if isinstance(change.key, CurrentKey) and _holds_while_away(change.new):
                self.fail_in(log, change, f"has {change.key.member_id} keep what it was to give up, and away: {change.new}")
            if isinstance(change.key, MemberKey) and change.new is None:
                self._owned.get(change.key.group_id, {}).pop(change.key.member_id, None)
            elif isinstance(change.key, GroupKey) and change.new is not None:
                self._check_classic(log, change, change.new)
            elif isinstance(change.key, GroupKey):  # what begins as a classic group again may count its generations anew
                self._sent = {key: sent for key, sent in self._sent.items() if key[0] != change.key.group_id}
        for group_id, change in touched.items():
            group = log.consumers.get(group_id)
            if group is not None:
                self._check_held(log, change, group)

    def _check_held(self, log: GroupLog, change: Change, group: ConsumersInLog) -> None:
        for what, owners in (
            ("is held", ((it, (value.assigned, value.revoking)) for it, value in group.current.items())),
            ("is aimed at", ((it, (parts,)) for it, parts in group.target.items())),
        ):
            found: dict[Place, str] = {}
            for member_id, several in owners:
                for place in _places(several):
                    other = found.setdefault(place, member_id)
                    if other != member_id:
                        self.fail_in(
                            log,
                            change,
                            f"leaves group {change.key.group_id} where partition {place[1]} of topic {place[0]} {what} by "
                            f"{other} and by {member_id}",
                        )

    def _check_classic(self, log: GroupLog, change: Change, value: GroupValue) -> None:
        if value.protocol_type != CONSUMER:
            return
        owners: dict[tuple[str, int], str] = {}
        for member in value.members:
            found = parse_assignment(member.assignment)
            for topic, indexes in () if found is None else found.topics:
                for index in indexes:
                    other = owners.setdefault((topic, index), member.member_id)
                    if other != member.member_id:
                        self.fail_in(log, change, f"assigns {topic}-{index} to {other} and to {member.member_id}")

    # --- members

    def on_call(self, source: NodeId, target: NodeId, method: AnyMethod, request: object) -> None:
        if method is BEAT:
            assert isinstance(request, ConsumerHeartbeatRequest)
            mine = self._owned.get(request.group_id, {}).get(request.member_id)
            if mine is None:
                return
            if request.member_epoch <= 0:
                mine.clear()
            elif request.owned is not None:
                says = {(topic_id, index) for topic_id, indexes in request.owned for index in indexes}
                for place in [it for it in mine if it not in says]:
                    del mine[place]
        elif method is SYNC:
            assert isinstance(request, SyncRequest)
            if request.assignments:
                self._sent.setdefault((request.group_id, request.generation), []).append(dict(request.assignments))

    def on_answer(self, source: NodeId, target: NodeId, method: AnyMethod, request: object, response: object) -> None:
        if method is BEAT:
            assert isinstance(request, ConsumerHeartbeatRequest) and isinstance(response, Told)
            if response.error is ErrorCode.NONE and request.member_epoch >= 0 and response.result.assignment is not None:
                self._told(request.group_id, response.result.member_id, response.result.assignment)
        elif method is SYNC:
            assert isinstance(request, SyncRequest) and isinstance(response, SyncResult)
            if response.error is ErrorCode.NONE:
                self._synced(request, response)

    def _told(self, group_id: str, member_id: str, assignment: Iterable[tuple[UUID, Iterable[int]]]) -> None:
        log = self.groups.log_of(group_id)
        if log is None:
            return
        group = self._owned.setdefault(group_id, {})
        places = [(topic_id, index) for topic_id, indexes in assignment for index in indexes]
        for other, owned in group.items():
            if other == member_id:
                continue
            twice = next((it for it in places if it in owned), None)
            if twice is not None:
                self.fail(
                    f"group {group_id}: member {member_id} is told that it owns partition {twice[1]} of topic {twice[0]}, which "
                    f"{other} owns and has not given up"
                )
        if member_id in log.members(group_id):
            group.setdefault(member_id, {}).update(dict.fromkeys(places))

    def _synced(self, request: SyncRequest, response: SyncResult) -> None:
        """In a group of the consumer protocol the coordinator assigns; there, and after an upgrade, nobody has sent anything."""
        log = self.groups.log_of(request.group_id)
        if log is None or request.group_id not in log.classic:
            return
        sent = self._sent.get((request.group_id, request.generation), [])
        stored = log.classic[request.group_id]
        if not sent or stored.generation != request.generation:
            return
        possible = {assignments.get(it, b"") for assignments in sent for it in self._former(request, assignments)}
        if response.assignment not in possible:
            self.fail(
                f"group {request.group_id}: {request.member_id} got {response.assignment!r} in generation {request.generation}, "
                f"the leader has sent {sorted(possible)}"
            )

    def _former(self, request: SyncRequest, assignments: dict[str, bytes]) -> Iterator[str]:
        """The member, and as a static one, all that it may have been when the leader assigned."""
        yield request.member_id
        if request.instance_id is not None:
            yield from assignments


def _places(several: Iterable[Parts]) -> Iterator[Place]:
    for parts in several:
        for topic_id, indexes in parts.items():
            for index in sorted(indexes):
                yield topic_id, index


def _holds_while_away(value: CurrentValue | None) -> bool:
    return value is not None and value.epoch == STATIC_LEAVE_EPOCH and bool(value.revoking)
