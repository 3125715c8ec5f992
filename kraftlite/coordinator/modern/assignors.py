"""Server-side assignors: who gets which partitions. Pure functions, deterministic in the order of members and topics given.

Source: KIP-848, "Server Side Assignors"; `UniformAssignor` and `RangeAssignor` of Kafka 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import Final
from uuid import UUID

from kraftlite.coordinator.modern.member import Parts

UNIFORM: Final = "uniform"
RANGE: Final = "range"

Place = tuple[UUID, int]


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member as an assignor sees it: the ids of existing topics, in a stable order, and what it was meant to have so far."""

    topics: tuple[UUID, ...]
    previous: Parts


Subscribers = Mapping[str, Subscriber]
Sizes = Mapping[UUID, int]
"""Partitions of every subscribed topic."""
Assignor = Callable[[Subscribers, Sizes], dict[str, Parts]]


def uniform(members: Subscribers, sizes: Sizes) -> dict[str, Parts]:
    """Every partition of a subscribed topic to one subscriber; as equal as subscriptions allow, then as little moved as possible.

    With equal subscriptions sizes differ by one at most.
    """
    if not members:
        return {}
    shares = _Shares(members, sizes)
    subscriptions = [subscriber.topics for subscriber in members.values()]
    if all(topics == subscriptions[0] for topics in subscriptions):
        _share_equally(shares)
    else:
        _share_fairly(shares)
    return shares.result()


class _Shares:
    """An assignment under construction, which begins with what members have and may keep."""

    def __init__(self, members: Subscribers, sizes: Sizes) -> None:
        self.members = members
        self.sizes = sizes
        self.subscribers: dict[UUID, list[str]] = {}
        for member, subscriber in members.items():
            for topic_id in subscriber.topics:
                self.subscribers.setdefault(topic_id, []).append(member)
        self.owned: dict[str, dict[Place, None]] = {member: {} for member in members}
        self.owner: dict[Place, str] = {}
        for member, subscriber in members.items():
            for topic_id in subscriber.topics:
                for index in sorted(subscriber.previous.get(topic_id, ())):
                    if index < sizes[topic_id] and (topic_id, index) not in self.owner:
                        self.give(member, (topic_id, index))

    def give(self, member: str, place: Place) -> None:
        former = self.owner.get(place)
        if former is not None:
            del self.owned[former][place]
        self.owner[place] = member
        self.owned[member][place] = None

    def take(self, member: str) -> Place:
        """The last that it got."""
        place = next(reversed(self.owned[member]))
        del self.owned[member][place]
        del self.owner[place]
        return place

    def load(self, member: str) -> int:
        return len(self.owned[member])

    def places(self) -> list[Place]:
        return [(topic_id, index) for topic_id in self.subscribers for index in range(self.sizes[topic_id])]

    def free(self) -> list[Place]:
        return [place for place in self.places() if place not in self.owner]

    def result(self) -> dict[str, Parts]:
        found: dict[str, Parts] = {}
        for member, places in self.owned.items():
            parts: dict[UUID, set[int]] = {}
            for topic_id, index in places:
                parts.setdefault(topic_id, set()).add(index)
            found[member] = {topic_id: frozenset(indexes) for topic_id, indexes in parts.items()}
        return found


def _share_equally(shares: _Shares) -> None:
    """Everybody has the same choice: a quota each, and one more for as many as the division leaves; those who have it keep it."""
    quota, extra = divmod(len(shares.places()), len(shares.members))
    limits: dict[str, int] = {}
    for member in shares.members:
        if shares.load(member) > quota and extra:
            limits[member] = quota + 1
            extra -= 1
    for member in shares.members:
        if member not in limits:
            limits[member] = quota + (1 if extra else 0)
            extra -= 1 if extra else 0
    for member, limit in limits.items():
        while shares.load(member) > limit:
            shares.take(member)
    free = iter(shares.free())
    for member, limit in limits.items():
        while shares.load(member) < limit:
            shares.give(member, next(free))


def _share_fairly(shares: _Shares) -> None:
    """Different choices: free partitions to whoever has least, those with few takers first; then moves while they even out."""
    rank = {member: position for position, member in enumerate(shares.members)}

    def contested(place: Place) -> tuple[int, int]:
        return (len(shares.subscribers[place[0]]), place[1])

    takers = {
        topic_id: [(shares.load(member), rank[member], member) for member in members]
        for topic_id, members in shares.subscribers.items()
    }
    for heap in takers.values():
        heapify(heap)
    for place in sorted(shares.free(), key=contested):
        shares.give(_poorest(takers[place[0]], shares), place)
    least: dict[UUID, str] = {}  # of each topic, until a partition moves
    moved = True
    while moved:
        moved = False
        for place in sorted(shares.places(), key=contested):
            if place[0] not in least:
                least[place[0]] = min(shares.subscribers[place[0]], key=lambda member: (shares.load(member), rank[member]))
            poorest = least[place[0]]
            if shares.load(shares.owner[place]) > shares.load(poorest) + 1:
                shares.give(poorest, place)
                least.clear()
                moved = True


def _poorest(heap: list[tuple[int, int, str]], shares: _Shares) -> str:
    """Return the member that has least. Nobody loses anything meanwhile: an entry that is out of date is put right when it comes
    up."""
    while True:
        load, rank, member = heap[0]
        now = shares.load(member)
        if now == load:
            return member
        heapreplace(heap, (now, rank, member))


def range_(members: Subscribers, sizes: Sizes) -> dict[str, Parts]:
    """Assign per topic: ranges of partitions, equal but for one, in the order of members.

    Topics with as many partitions and the same subscribers are cut alike, so that equal keys meet at one member. For that nobody
    keeps what it had, as in Kafka 4: who kept a part of one topic would get another part of a topic that comes later.
    """
    subscribers: dict[UUID, list[str]] = {}
    for member, subscriber in members.items():
        for topic_id in subscriber.topics:
            subscribers.setdefault(topic_id, []).append(member)
    found: dict[str, dict[UUID, frozenset[int]]] = {member: {} for member in members}
    for topic_id, takers in subscribers.items():
        quota, extra = divmod(sizes[topic_id], len(takers))
        begin = 0
        for position, member in enumerate(takers):
            end = begin + quota + (position < extra)
            if begin < end:
                found[member][topic_id] = frozenset(range(begin, end))
            begin = end
    return dict(found)


ASSIGNORS: Final[Mapping[str, Assignor]] = {UNIFORM: uniform, RANGE: range_}
