"""The assignors of simulated classic consumers: the leader of a generation deals the partitions out (KIP-62, KIP-429)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kraftlite.coordinator.api import JoinedMember
from kraftlite.coordinator.consumer_protocol import Subscription, TopicParts, parse_subscription
from kraftlite.model.topic_partition import TopicPartition

Sizes = Mapping[str, int]
"""The number of partitions of each topic, as the leader knows them."""
Dealt = dict[str, dict[TopicPartition, None]]


def deal(members: Sequence[JoinedMember], sizes: Sizes, *, cooperative: bool) -> Dealt:
    """Every partition of a subscribed topic to one of its subscribers. Cooperative: who has a partition keeps it if that is fair,
    and what must move goes to nobody until its owner has given it up."""
    wants: dict[str, Subscription] = {}
    for member in members:
        found = parse_subscription(member.metadata)
        assert found is not None, "simulated members write readable subscriptions"
        wants[member.member_id] = found
    claims = _claims(wants, sizes) if cooperative else {}
    dealt: Dealt = {member_id: {} for member_id in sorted(wants)}
    places = _places(wants, sizes)
    limit = -(-len(places) // max(1, len(wants)))
    for tp in places:
        owners = claims.get(tp, [])
        if len(owners) == 1 and len(dealt[owners[0]]) < limit:
            dealt[owners[0]][tp] = None
    kept = {tp for mine in dealt.values() for tp in mine}
    for tp in places:
        if tp in kept:
            continue
        takers = [member_id for member_id in dealt if tp.topic in wants[member_id].topics]
        taker = min(takers, key=lambda it: (len(dealt[it]), it))
        dealt[taker][tp] = None
    for member_id, mine in dealt.items():
        for tp in [it for it in mine if any(owner != member_id for owner in claims.get(it, ()))]:
            del mine[tp]
    return dealt


def _places(wants: Mapping[str, Subscription], sizes: Sizes) -> list[TopicPartition]:
    topics = sorted({topic for it in wants.values() for topic in it.topics})
    return [TopicPartition(topic, index) for topic in topics for index in range(sizes.get(topic, 0))]


def _claims(wants: Mapping[str, Subscription], sizes: Sizes) -> dict[TopicPartition, list[str]]:
    found: dict[TopicPartition, list[str]] = {}
    for member_id, subscription in wants.items():
        for topic, indexes in subscription.owned:
            for index in indexes:
                if topic in subscription.topics and index < sizes.get(topic, 0):
                    found.setdefault(TopicPartition(topic, index), []).append(member_id)
    return found


def by_topic(partitions: Sequence[TopicPartition]) -> tuple[TopicParts, ...]:
    found: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        found.setdefault(tp.topic, []).append(tp.partition)
    return tuple((topic, tuple(indexes)) for topic, indexes in found.items())
