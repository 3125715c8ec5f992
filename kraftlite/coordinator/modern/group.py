"""One consumer group: what its records say, and what can be read off it.

Its state is changed by `replay` alone, while the log is read and when a record is written: both lead to the same group.
Source: KIP-848; `ConsumerGroup` of Kafka 4.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import Enum
from typing import Final
from uuid import UUID

from kraftlite.coordinator.api import AssignedTopic, ConsumerGroupDescription, ConsumerMemberDescription, GroupOverview
from kraftlite.coordinator.consumer_protocol import CONSUMER
from kraftlite.coordinator.modern.member import LEAVE_EPOCH, NO_EPOCHS, NO_PARTS, Member, MemberState, Parts, united
from kraftlite.coordinator.modern.records import (
    ConsumerKey,
    ConsumerValue,
    CurrentKey,
    CurrentValue,
    EpochKey,
    EpochValue,
    Ignored,
    MemberKey,
    MemberValue,
    PartitionMetadataKey,
    RegexKey,
    RegexValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetValue,
    current_value,
    member_value,
)
from kraftlite.metadata.image import TopicsImage
from kraftlite.model.errors import ApiError, ErrorCode

GROUP_TYPE: Final = "consumer"
INITIAL_EPOCH: Final = 1
"""The epoch of a group that nobody has joined yet, and of its target assignment, which is empty; 0 is no epoch for a member to
be in."""


class GroupState(Enum):
    """Kafka's names, as clients see them. ASSIGNING: there is no target for this epoch yet; RECONCILING: not all have it."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup:
    """A group of the new protocol. Members in the order in which they came.

    `epoch` grows with every change that wants another assignment; the target assignment is that of `target_epoch` ≤ `epoch`.
    A partition has one holder at most: whoever is assigned it or has yet to give it up. `metadata_stale_at_ms`: monotonic time
    from which the topics are to be looked at anew; 0: at the next chance. `dead`: it is being deleted.
    `told_state`: the last that was traced.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}
        """Instance id → member id."""
        self.target_epoch = 0
        self.target_ms = 0
        """Wall clock, when the target assignment was made."""
        self.target: dict[str, Parts] = {}
        self.regexes: dict[str, RegexValue] = {}
        self.has_partition_metadata = False
        self.metadata_stale_at_ms = 0
        self.dead = False
        self.told_state = GroupState.EMPTY
        self._holders: dict[tuple[UUID, int], str] = {}

    @classmethod
    def new(cls, group_id: str) -> ConsumerGroup:
        """One that a member is about to join."""
        group = cls(group_id)
        group.epoch = group.target_epoch = INITIAL_EPOCH
        return group

    # --- replay -------------------------------------------------------------------------------------------------------

    def replay(self, key: ConsumerKey, value: ConsumerValue | None) -> None:
        """One record; None: a tombstone. That of the group itself is for who holds the groups."""
        if isinstance(key, MemberKey):
            self._replay_member(key.member_id, value)
        elif isinstance(key, CurrentKey):
            self._replay_current(key.member_id, value)
        elif isinstance(key, TargetKey):
            if isinstance(value, TargetValue):
                self.target[key.member_id] = value.partitions
            else:
                self.target.pop(key.member_id, None)
        elif isinstance(key, EpochKey):
            if isinstance(value, EpochValue):
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
        elif isinstance(key, TargetEpochKey):
            made = value if isinstance(value, TargetEpochValue) else TargetEpochValue(LEAVE_EPOCH)
            self.target_epoch, self.target_ms = made.epoch, made.made_ms
        elif isinstance(key, RegexKey):
            if isinstance(value, RegexValue):
                self.regexes[key.regex] = value
            else:
                self.regexes.pop(key.regex, None)
        else:
            self.has_partition_metadata = value is not None

    def _replay_member(self, member_id: str, value: ConsumerValue | None) -> None:
        member = self.members.get(member_id)
        if isinstance(value, MemberValue):
            self._put(
                replace(
                    Member(member_id=member_id) if member is None else member,
                    instance_id=value.instance_id,
                    rack_id=value.rack_id,
                    client_id=value.client_id,
                    client_host=value.client_host,
                    topics=value.topics,
                    regex=value.regex,
                    rebalance_timeout_ms=value.rebalance_timeout_ms,
                    server_assignor=value.server_assignor,
                    classic=value.classic,
                )
            )
        elif member is not None:
            self._release(member)
            del self.members[member_id]
            if member.instance_id is not None and self.static.get(member.instance_id) == member_id:
                del self.static[member.instance_id]

    def _replay_current(self, member_id: str, value: ConsumerValue | None) -> None:
        member = self.members.get(member_id)
        if isinstance(value, CurrentValue):
            self._put(
                replace(
                    Member(member_id=member_id) if member is None else member,
                    epoch=value.epoch,
                    previous_epoch=value.previous_epoch,
                    state=value.state,
                    assigned=value.assigned,
                    revoking=value.revoking,
                    since=value.since,
                )
            )
        elif member is not None:
            self._put(
                replace(
                    member,
                    epoch=LEAVE_EPOCH,
                    previous_epoch=LEAVE_EPOCH,
                    state=MemberState.STABLE,
                    assigned=NO_PARTS,
                    revoking=NO_PARTS,
                    since=NO_EPOCHS,
                )
            )

    def _put(self, member: Member) -> None:
        former = self.members.get(member.member_id)
        if former is not None:
            self._release(former)
            if former.instance_id is not None and self.static.get(former.instance_id) == member.member_id:
                del self.static[former.instance_id]
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        for place in _places(member):
            self._holders[place] = member.member_id

    def _release(self, member: Member) -> None:
        for place in _places(member):
            if self._holders.get(place) == member.member_id:
                del self._holders[place]

    # --- records ------------------------------------------------------------------------------------------------------

    def value_of(self, key: ConsumerKey) -> ConsumerValue | None:
        """Return the present value of the record with this key; None: there is none."""
        if isinstance(key, EpochKey):
            return None if self.dead else EpochValue(self.epoch, self.metadata_hash)
        if isinstance(key, PartitionMetadataKey):
            return Ignored() if self.has_partition_metadata else None
        if isinstance(key, TargetEpochKey):
            return TargetEpochValue(self.target_epoch, self.target_ms) if self.target_epoch > 0 else None
        if isinstance(key, RegexKey):
            return self.regexes.get(key.regex)
        if isinstance(key, TargetKey):
            target = self.target.get(key.member_id)
            return None if target is None else TargetValue(target)
        member = self.members.get(key.member_id)
        if member is None:
            return None
        return member_value(member) if isinstance(key, MemberKey) else current_value(member)

    def record_keys(self) -> Iterator[ConsumerKey]:
        """Return the keys of all records of the group, in the order in which they are to be deleted: the group last."""
        yield from (CurrentKey(self.group_id, member_id) for member_id in self.members)
        yield from (TargetKey(self.group_id, member_id) for member_id in self.target)
        yield TargetEpochKey(self.group_id)
        yield from (MemberKey(self.group_id, member_id) for member_id in self.members)
        yield from (RegexKey(self.group_id, regex) for regex in self.regexes)
        if self.has_partition_metadata:
            yield PartitionMetadataKey(self.group_id)
        yield EpochKey(self.group_id)

    # --- reading ------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> GroupState:
        if self.dead:
            return GroupState.DEAD
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def check(self) -> None:
        """Raise AssertionError when what is kept for looking up does not say what the members say."""
        name = f"consumer group {self.group_id}"
        for instance_id, member_id in self.static.items():
            member = self.members.get(member_id)
            assert member is not None and member.instance_id == instance_id, f"{name}: instance {instance_id} is not {member_id}"
        for place, member_id in self._holders.items():
            member = self.members.get(member_id)
            assert member is not None and place in _places(member), f"{name}: {member_id} does not hold {place}"

    def check_assignment(self) -> None:
        """Raise AssertionError when an assignment is not what this software makes; a log that lost records may hold others."""
        name = f"consumer group {self.group_id}"
        assert self.target_epoch <= self.epoch, f"{name}: target epoch {self.target_epoch}, group epoch {self.epoch}"
        held: dict[tuple[UUID, int], str] = {}
        for member_id, member in self.members.items():
            assert member.epoch <= self.epoch, f"{name}: member {member_id} is in epoch {member.epoch}, the group in {self.epoch}"
            for place in _places(member):
                assert held.setdefault(place, member_id) == member_id, f"{name}: {held[place]} and {member_id} hold {place}"
        assert held == self._holders, f"{name}: the holders are {self._holders}, the members hold {held}"
        aimed: dict[tuple[UUID, int], str] = {}
        for member_id, parts in self.target.items():
            for place in ((topic_id, index) for topic_id, indexes in parts.items() for index in indexes):
                assert aimed.setdefault(place, member_id) == member_id, (
                    f"{name}: {aimed[place]} and {member_id} are to get {place}"
                )

    def is_held(self, topic_id: UUID, partition: int) -> bool:
        return (topic_id, partition) in self._holders

    def member(self, member_id: str) -> Member:
        """Raises ApiError(UNKNOWN_MEMBER_ID) when there is none."""
        found = self.members.get(member_id)
        if found is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}.")
        return found

    def static_member(self, instance_id: str) -> Member | None:
        member_id = self.static.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def known_static_member(self, instance_id: str, member_id: str) -> Member:
        """Raises ApiError(UNKNOWN_MEMBER_ID) when nobody has the instance id, ApiError(FENCED_INSTANCE_ID) when another one
        has."""
        found = self.static_member(instance_id)
        if found is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if found.member_id != member_id:
            raise ApiError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {found.member_id}.",
            )
        return found

    def subscribers_of(self, regex: str) -> int:
        return sum(member.regex == regex for member in self.members.values())

    def subscribed_regexes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(member.regex for member in self.members.values() if member.regex))

    def topics_of(self, member: Member) -> tuple[str, ...]:
        """Named and matched, sorted. An expression that is not looked up yet matches nothing."""
        found = self.regexes.get(member.regex)
        return member.topics if found is None else tuple(sorted({*member.topics, *found.topics}))

    def subscribed_topics(self) -> tuple[str, ...]:
        """The topics to which any member subscribes, sorted; whether they exist or not."""
        found: dict[str, None] = {}
        for member in self.members.values():
            found.update(dict.fromkeys(self.topics_of(member)))
        return tuple(sorted(found))

    def hash_of(self, topics: TopicsImage) -> int:
        """Hash the subscribed topics that exist: a change of their ids or partition counts changes the hash. 0 for none.

        Departs: Kafka's is xxh3 and includes racks, which no assignor looks at; nobody compares the two.
        """
        digest = hashlib.blake2b(digest_size=8)
        found = False
        for name in self.subscribed_topics():
            topic = topics.topic(name)
            if topic is not None:
                found = True
                digest.update(f"{topic.topic_id.hex}:{len(topic.partitions)}:{name}\n".encode("utf-8", "surrogatepass"))
        return int.from_bytes(digest.digest(), "big", signed=True) if found else 0

    def assignor(self, default: str) -> str:
        """The one that most members of the new protocol ask for; the first of those if several are, the default if none is."""
        votes = Counter(m.server_assignor for m in self.members.values() if m.server_assignor is not None and m.classic is None)
        return votes.most_common(1)[0][0] if votes else default

    def waits_for_others(self, member: Member) -> bool:
        """Return whether another member still holds a partition that this member is to get."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            index not in member.assigned.get(topic_id, ()) and self.is_held(topic_id, index)
            for topic_id, indexes in self.target.get(member.member_id, NO_PARTS).items()
            for index in indexes
        )

    # --- views --------------------------------------------------------------------------------------------------------

    def overview(self) -> GroupOverview:
        return GroupOverview(self.group_id, CONSUMER, self.state.value, GROUP_TYPE)

    def describe(self, topics: TopicsImage, default_assignor: str) -> ConsumerGroupDescription:
        """Describe the group. Topics that are gone are left out."""
        return ConsumerGroupDescription(
            group_id=self.group_id,
            state=self.state.value,
            epoch=self.epoch,
            assignment_epoch=max(self.target_epoch, 0),
            assignor=self.assignor(default_assignor),
            members=tuple(
                ConsumerMemberDescription(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    rack_id=member.rack_id,
                    member_epoch=member.epoch,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    topics=member.topics,
                    regex=member.regex,
                    assignment=named(united(member.assigned, member.revoking), topics),
                    target=named(self.target.get(member.member_id, NO_PARTS), topics),
                    classic=member.classic is not None,
                )
                for member in self.members.values()
            ),
        )


def named(parts: Parts, topics: TopicsImage) -> tuple[AssignedTopic, ...]:
    found = [
        AssignedTopic(topic_id, topic.name, tuple(sorted(indexes)))
        for topic_id, indexes in parts.items()
        if (topic := topics.topic_by_id(topic_id)) is not None
    ]
    return tuple(sorted(found, key=lambda one: one.topic))


def topic_ids(names: tuple[str, ...], topics: TopicsImage) -> Mapping[UUID, int]:
    """Return the ids of those topics that exist, in the order of names, with their number of partitions."""
    found = (topics.topic(name) for name in names)
    return {topic.topic_id: len(topic.partitions) for topic in found if topic is not None}


def _places(member: Member) -> Iterator[tuple[UUID, int]]:
    for parts in (member.assigned, member.revoking):
        for topic_id, indexes in parts.items():
            for index in indexes:
                yield topic_id, index
