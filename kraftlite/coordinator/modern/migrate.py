"""Turning a classic group of consumers into a group of the new protocol and back, while its members go on.

Source: KIP-848, "Consumer Groups Migration"; `ConsumerGroup.fromClassicGroup`, `ClassicGroup.fromConsumerGroup` of Kafka 4;
CG-08.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from uuid import UUID

from kraftlite.coordinator.api import Protocol
from kraftlite.coordinator.classic.group import Group, GroupState
from kraftlite.coordinator.classic.group import Member as ClassicMember
from kraftlite.coordinator.config import GroupConfig
from kraftlite.coordinator.consumer_protocol import (
    CONSUMER,
    Subscription,
    TopicParts,
    build_assignment,
    build_subscription,
    parse_assignment,
    parse_subscription,
)
from kraftlite.coordinator.modern.group import ConsumerGroup, named
from kraftlite.coordinator.modern.member import NO_PARTS, ClassicMetadata, Member, MemberState, Parts, epochs_of, parts_of
from kraftlite.coordinator.modern.records import (
    ConsumerKey,
    ConsumerValue,
    CurrentKey,
    EpochKey,
    EpochValue,
    MemberKey,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetValue,
    current_value,
    member_value,
)
from kraftlite.coordinator.records import GroupValue, MemberValue
from kraftlite.metadata.image import TopicsImage
from kraftlite.model.errors import ApiError, ErrorCode


def parts_by_name(topics: tuple[TopicParts, ...], image: TopicsImage) -> Parts:
    """Turn assigned partitions by name into ids; topics that do not exist are left out."""
    found: list[tuple[UUID, tuple[int, ...]]] = []
    for name, indexes in topics:
        topic = image.topic(name)
        if topic is not None:
            found.append((topic.topic_id, indexes))
    return parts_of(found)


# --- upgrade -------------------------------------------------------------------------------------------------------------


def upgraded(classic: Group, topics: TopicsImage, config: GroupConfig) -> list[tuple[ConsumerKey, ConsumerValue]]:
    """The records of the group as one of the new protocol: everybody has what it was last assigned, in its generation.

    ApiError(GROUP_ID_NOT_FOUND) when the policy, the protocol, the size or what the members wrote does not allow it.
    """
    group_id = classic.group_id
    if not config.allows_upgrade:
        raise _not_upgraded(group_id, "because online upgrade is disabled.")
    if classic.protocol_type != CONSUMER:
        raise _not_upgraded(group_id, "because the group does not use the consumer embedded protocol.")
    if len(classic.members) > config.consumer_max_size:
        raise _not_upgraded(group_id, "because the group size exceeds the consumer group maximum size.")
    members = [_upgraded_member(classic, member, topics) for member in classic.members.values()]
    epoch = classic.generation
    records: list[tuple[ConsumerKey, ConsumerValue]] = []
    records += ((MemberKey(group_id, member.member_id), member_value(member)) for member in members)
    records.append((EpochKey(group_id), EpochValue(epoch)))
    records += ((TargetKey(group_id, member.member_id), TargetValue(member.assigned)) for member in members)
    records.append((TargetEpochKey(group_id), TargetEpochValue(epoch)))
    records += ((CurrentKey(group_id, member.member_id), current_value(member)) for member in members)
    return records


def _upgraded_member(classic: Group, member: ClassicMember, topics: TopicsImage) -> Member:
    metadata = member.metadata(classic.protocol_name) if classic.protocol_name else member.protocols[0].metadata
    subscription, assignment = parse_subscription(metadata), parse_assignment(member.assignment)
    if subscription is None or assignment is None:
        raise _not_upgraded(classic.group_id, "because the embedded consumer protocol is malformed.")
    if assignment.user_data:
        raise _not_upgraded(
            classic.group_id,
            "because an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor "
            "before re-attempting the upgrade.",
        )
    assigned = parts_by_name(assignment.topics, topics)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMetadata(session_timeout_ms=member.session_timeout_ms, protocols=member.protocols),
        epoch=classic.generation,
        previous_epoch=classic.generation,
        state=MemberState.STABLE,
        assigned=assigned,
        since=epochs_of((assigned,), classic.generation),
    )


def _not_upgraded(group_id: str, why: str) -> ApiError:
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {group_id} to consumer group {why}")


# --- downgrade -----------------------------------------------------------------------------------------------------------


def can_downgrade(group: ConsumerGroup, without: Collection[str], config: GroupConfig) -> bool:
    """Return whether only members of the classic protocol are left once these are gone."""
    left = [member for member in group.members.values() if member.member_id not in without]
    all_classic = bool(left) and all(member.classic is not None for member in left)
    return all_classic and config.allows_downgrade and len(left) <= config.max_size


def downgraded(group: ConsumerGroup, without: Collection[str], topics: TopicsImage, wall_ms: int) -> Group:
    """The classic group of its remaining members, stable in the group's epoch; its leader is the first of them."""
    classic = Group(group.group_id, wall_ms)
    classic.generation = group.epoch
    classic.protocol_type = CONSUMER
    left = [member for member in group.members.values() if member.member_id not in without]
    for member in left:
        assert member.classic is not None, f"{member.member_id} does not speak the classic protocol"
        now = ClassicMember(
            member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            session_timeout_ms=member.classic.session_timeout_ms,
            protocols=member.classic.protocols,
        )
        classic.add(now, CONSUMER)
    classic.state = GroupState.STABLE
    classic.protocol_name = classic.select_protocol()
    for member in left:
        target = group.target.get(member.member_id, NO_PARTS)
        version = _version(classic.members[member.member_id].metadata(classic.protocol_name))
        classic.members[member.member_id].assignment = build_assignment(version, by_name(target, topics))
    return classic


def stored(classic: Group, group: ConsumerGroup, topics: TopicsImage, gone_session_ms: int, gone: Collection[str]) -> GroupValue:
    """The classic group as it is stored: with the members that are gone, as a classic group's record has them until its next
    generation. So a coordinator that loads it before the rebalance has ended finds them silent, and rebalances.

    Departs: Kafka stores the others alone; a failover then leaves the partitions of who is gone to nobody.
    """
    departed = [
        MemberValue(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            session_timeout_ms=gone_session_ms,
            subscription=build_subscription(Subscription(1, group.topics_of(member))),
            assignment=build_assignment(1, by_name(group.target.get(member.member_id, NO_PARTS), topics)),
        )
        for member in group.members.values()
        if member.member_id in gone
    ]
    value = classic.value()
    return replace(value, members=(*value.members, *departed))


def _version(metadata: bytes) -> int:
    subscription = parse_subscription(metadata)
    return 0 if subscription is None else subscription.version


def by_name(parts: Parts, topics: TopicsImage) -> Iterator[TopicParts]:
    return ((topic.topic, topic.partitions) for topic in named(parts, topics))


def classic_subscription(protocols: tuple[Protocol, ...]) -> Subscription:
    """Return the subscription of a classic member: the same in all its protocols. ApiError(INCONSISTENT_GROUP_PROTOCOL)."""
    found = parse_subscription(protocols[0].metadata)
    if found is None:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the embedded consumer protocol is malformed")
    return found
