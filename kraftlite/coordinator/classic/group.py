"""One classic group and its members: state, and what can be read off it. Who changes it is `rebalance` and `groups`.

Source: CP-28 to CP-35, CP-41; KIP-62, KIP-345, KIP-394, KIP-429.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import Enum
from typing import Final

from kraftlite.coordinator.api import DescribedMember, GroupDescription, GroupOverview, JoinedMember, Protocol
from kraftlite.coordinator.consumer_protocol import CONSUMER, subscribed_topics
from kraftlite.coordinator.records import GroupValue, MemberValue
from kraftlite.model.errors import ApiError, ErrorCode

CLASSIC: Final = "classic"


class GroupState(Enum):
    """Kafka's names, as clients see them (CP-41)."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_FROM: Final = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset({GroupState.EMPTY}),
}
"""The states from which each state is reached. Empty from Dead: the deletion could not be written."""

_COMPLETING, _STABLE = GroupState.COMPLETING_REBALANCE, GroupState.STABLE


class Member:
    """A member of a group. `waiting_join` and `waiting_sync`: the request that waits for an answer, if one does.

    `is_new`: it has not been through a completed join yet; until then nobody expects heartbeats of it.
    """

    __slots__ = (
        "assignment", "client_host", "client_id", "instance_id", "is_new", "member_id", "protocols",
        "rebalance_timeout_ms", "session_timeout_ms", "waiting_join", "waiting_sync",
    )  # fmt: skip

    def __init__(
        self,
        member_id: str,
        *,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: tuple[Protocol, ...],
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = b""
        self.waiting_join: int | None = None
        self.waiting_sync: int | None = None
        self.is_new = False

    def metadata(self, protocol_name: str) -> bytes:
        return next((protocol.metadata for protocol in self.protocols if protocol.name == protocol_name), b"")


class Group:
    """A group. Members are kept in the order in which they came; the generation grows with every completed join.

    What must hold at any time, `check` asserts. `state_since_ms`: wall clock, since when, for retention.
    """

    def __init__(self, group_id: str, wall_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_since_ms: int | None = wall_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}
        """Instance id → member id."""
        self.pending: dict[str, None] = {}
        """Member ids that were given out and are expected to join (KIP-394)."""
        self.unsynced: dict[str, None] = {}
        """Members of this generation that have not asked for their assignment yet."""
        self.first_round = False
        """True while the rebalance under way is the one of a group that was empty, which waits for latecomers."""
        self.joined_lately = False
        self.patience_left_ms = 0
        self.writing_assignment = False

    # --- state --------------------------------------------------------------------------------------------------------

    def transition(self, state: GroupState, wall_ms: int) -> None:
        assert self.state in _FROM[state], f"group {self.group_id} cannot go from {self.state.value} to {state.value}"
        self.state = state
        self.state_since_ms = wall_ms

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def waiting_to_join(self) -> int:
        return sum(member.waiting_join is not None for member in self.members.values())

    @property
    def all_joined(self) -> bool:
        return not self.pending and all(member.waiting_join is not None for member in self.members.values())

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def accepts(self, member_id: str, max_size: int) -> bool:
        """Return whether there is room for a member that joins. While a rebalance is prepared, members that have joined
        already come first."""
        member = self.members.get(member_id)
        if self.state is GroupState.PREPARING_REBALANCE:
            return (member is not None and member.waiting_join is not None) or self.waiting_to_join < max_size
        if self.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return member is not None or len(self.members) < max_size
        return True

    def check(self) -> None:
        """Raise AssertionError when an invariant does not hold."""
        name, state, members = f"group {self.group_id}, {self.state.value}", self.state, self.members
        leads = self.leader_id in members if members else self.leader_id is None
        assert leads, f"{name}: the leader is {self.leader_id}, the members are {list(members)}"
        static = {member.instance_id: member.member_id for member in members.values() if member.instance_id is not None}
        assert self.static == static, f"{name}: instances {self.static}, the members say {static}"
        wanted = {_COMPLETING: True, _STABLE: True, GroupState.EMPTY: False, GroupState.DEAD: False}.get(state, bool(members))
        assert bool(members) is wanted, f"{name}, with the members {list(members)}"
        assert not self.pending.keys() & members.keys(), f"{name}: members among those who are to join {list(self.pending)}"
        assert self.unsynced.keys() <= members.keys(), f"{name}: no members are {list(self.unsynced)}, who are to ask"
        syncing = [member.member_id for member in members.values() if member.waiting_sync is not None]
        assert not syncing or state is _COMPLETING, f"{name}: {syncing} wait for an assignment"

    # --- members ------------------------------------------------------------------------------------------------------

    def add(self, member: Member, protocol_type: str) -> None:
        assert member.member_id not in self.members, f"{member.member_id} is a member already"
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.pending.pop(member.member_id, None)

    def remove(self, member_id: str) -> Member:
        member = self.members.pop(member_id)
        if member.instance_id is not None:
            self.static.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.unsynced.pop(member_id, None)
        self.pending.pop(member_id, None)
        return member

    def replace_static(self, old_id: str, new_id: str) -> Member:
        """Give a static member another id in place; it stays leader if it was."""
        self.members = {new_id if key == old_id else key: member for key, member in self.members.items()}
        member = self.members[new_id]
        member.member_id = new_id
        assert member.instance_id is not None, f"{old_id} is not a static member"
        self.static[member.instance_id] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        if old_id in self.unsynced:
            del self.unsynced[old_id]
            self.unsynced[new_id] = None
        return member

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is one of those who have joined this time, and return whether there is such a member."""
        leader = None if self.leader_id is None else self.members.get(self.leader_id)
        if leader is not None and leader.waiting_join is not None:
            return True
        for member in self.members.values():
            if member.waiting_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member. ApiError(FENCED_INSTANCE_ID) when its instance id now belongs to another member id (CP-34), else
        ApiError(UNKNOWN_MEMBER_ID)."""
        if instance_id is not None:
            current = self.static.get(instance_id)
            if current is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {self.group_id} has no instance {instance_id}")
            if current != member_id:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID, f"instance {instance_id} of group {self.group_id} is now {current}")
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {self.group_id} has no member {member_id}")
        return member

    # --- protocols ----------------------------------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: Sequence[Protocol]) -> bool:
        """Return whether a member with these protocols fits: the same type, and one protocol that everybody supports."""
        if not protocol_type or not protocols:
            return False
        if not self.members or self.state is GroupState.EMPTY:
            return True
        if protocol_type != self.protocol_type:
            return False
        common = self._supported_by_all()
        return any(protocol.name in common for protocol in protocols)

    def _supported_by_all(self) -> set[str]:
        """The names of the protocols that all members support, in one walk over them: a member may have a thousand."""
        members = iter(self.members.values())
        found = {protocol.name for protocol in next(members).protocols}
        for member in members:
            found.intersection_update([protocol.name for protocol in member.protocols])
        return found

    def select_protocol(self) -> str:
        """Select the protocol by vote (CP-29): each member votes for the first of its protocols that all support. Ties go to
        the one voted first."""
        votes: Counter[str] = Counter()
        common = self._supported_by_all()
        for member in self.members.values():
            chosen = next((protocol.name for protocol in member.protocols if protocol.name in common), None)
            assert chosen is not None, f"group {self.group_id} has no common protocol"
            votes[chosen] += 1
        return votes.most_common(1)[0][0]

    def next_generation(self, wall_ms: int) -> None:
        """Complete a join: members choose a protocol and wait for the leader's assignment; without any the group is empty."""
        self.generation += 1
        self.first_round = False
        self.writing_assignment = False
        self.unsynced = {}
        if self.members:
            self.protocol_name = self.select_protocol()
            self.transition(GroupState.COMPLETING_REBALANCE, wall_ms)
        else:
            self.protocol_name = None
            self.transition(GroupState.EMPTY, wall_ms)

    def subscribed_topics(self) -> tuple[str, ...] | None:
        """The topics that the consumers of this group subscribe to; None when they are not known: other protocols, or
        unreadable metadata."""
        if self.protocol_type != CONSUMER or not self.members or self.protocol_name is None:
            return None
        found: dict[str, None] = {}
        for member in self.members.values():
            topics = subscribed_topics(member.metadata(self.protocol_name))
            if topics is None:
                return None
            found.update(dict.fromkeys(topics))
        return tuple(found)

    # --- views --------------------------------------------------------------------------------------------------------

    def joined_members(self) -> tuple[JoinedMember, ...]:
        name = self.protocol_name or ""
        return tuple(JoinedMember(m.member_id, m.instance_id, m.metadata(name)) for m in self.members.values())

    def describe(self) -> GroupDescription:
        stable = self.state is GroupState.STABLE
        name = self.protocol_name or ""
        return GroupDescription(
            group_id=self.group_id,
            state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol_name=name if stable else "",
            members=tuple(
                DescribedMember(
                    m.member_id,
                    m.instance_id,
                    m.client_id,
                    m.client_host,
                    m.metadata(name) if stable else b"",
                    m.assignment if stable else b"",
                )
                for m in self.members.values()
            ),
        )

    def overview(self) -> GroupOverview:
        return GroupOverview(self.group_id, self.protocol_type or "", self.state.value, CLASSIC)

    # --- storage ------------------------------------------------------------------------------------------------------

    def value(self, assignments: dict[str, bytes] | None = None) -> GroupValue:
        """The group as it is stored, with these assignments or with those that the members have."""
        name = self.protocol_name or ""
        return GroupValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol_name=self.protocol_name,
            leader_id=self.leader_id,
            state_since_ms=self.state_since_ms,
            members=tuple(
                MemberValue(
                    member_id=m.member_id,
                    instance_id=m.instance_id,
                    client_id=m.client_id,
                    client_host=m.client_host,
                    rebalance_timeout_ms=m.rebalance_timeout_ms,
                    session_timeout_ms=m.session_timeout_ms,
                    subscription=m.metadata(name),
                    assignment=m.assignment if assignments is None else assignments.get(m.member_id, b""),
                )
                for m in self.members.values()
            ),
        )

    @classmethod
    def from_value(cls, group_id: str, value: GroupValue, wall_ms: int) -> Group:
        """Make the group of its record: Stable with members, else Empty, for nothing else is ever stored."""
        group = cls(group_id, wall_ms)
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol_name
        group.state_since_ms = value.state_since_ms
        for stored in value.members:
            member = Member(
                stored.member_id,
                instance_id=stored.instance_id,
                client_id=stored.client_id,
                client_host=stored.client_host,
                rebalance_timeout_ms=stored.rebalance_timeout_ms,
                session_timeout_ms=stored.session_timeout_ms,
                protocols=(Protocol(value.protocol_name or "", stored.subscription),),
            )
            member.assignment = stored.assignment
            group.members[member.member_id] = member
            if member.instance_id is not None:
                group.static[member.instance_id] = member.member_id
        if group.members:
            group.state = GroupState.STABLE
            group.leader_id = value.leader_id if value.leader_id in group.members else next(iter(group.members))
        return group
