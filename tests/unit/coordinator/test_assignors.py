"""What assignors promise, for whatever members, topics and history. Source: KIP-848; Kafka's UniformAssignor, RangeAssignor."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kraftlite.coordinator.modern.assignors import Subscriber, Subscribers, range_, uniform
from kraftlite.coordinator.modern.member import Parts

T, U, V = (UUID(int=number) for number in (1, 2, 3))
Assignment = dict[str, Parts]


def group(topics: Mapping[str, tuple[UUID, ...]], previous: Mapping[str, Parts] | None = None) -> Subscribers:
    return {member: Subscriber(topics[member], (previous or {}).get(member, {})) for member in topics}


def count(parts: Parts) -> int:
    return sum(map(len, parts.values()))


def kept(before: Assignment, after: Assignment) -> int:
    return sum(
        len(indexes & after.get(member, {}).get(topic, frozenset()))
        for member, parts in before.items()
        for topic, indexes in parts.items()
    )


def check_complete(members: Subscribers, sizes: Mapping[UUID, int], found: Assignment) -> None:
    """Every partition of a subscribed topic has one owner, who subscribes to it; nothing else is assigned."""
    owners: dict[tuple[UUID, int], str] = {}
    for member, parts in found.items():
        for topic, indexes in parts.items():
            assert topic in members[member].topics
            assert indexes
            for index in indexes:
                assert (topic, index) not in owners
                owners[topic, index] = member
    subscribed = {topic for subscriber in members.values() for topic in subscriber.topics}
    assert set(owners) == {(topic, index) for topic in subscribed for index in range(sizes[topic])}


sizes_of = st.fixed_dictionaries({T: st.integers(0, 9), U: st.integers(0, 5), V: st.integers(1, 3)})
choices = st.sampled_from([(T,), (U,), (T, U), (T, U, V), (V,), ()])
ids = st.integers(1, 7)


@given(ids, sizes_of, st.lists(st.integers(0, 6), max_size=3), st.integers(0, 3), sizes_of)
def test_uniform_with_equal_subscriptions(
    size: int, sizes: dict[UUID, int], leave: list[int], join: int, later: dict[UUID, int]
) -> None:
    """Sizes differ by one at most, and of what members have nothing moves that need not."""
    names = [f"m{number}" for number in range(size)]
    first = uniform(group(dict.fromkeys(names, (T, U))), sizes)
    stayed = [name for name in names if int(name[1:]) not in leave] or names
    now = [*stayed, *(f"n{number}" for number in range(join))]
    members = group(dict.fromkeys(now, (T, U)), first)
    second = uniform(members, later)
    for found, of, topics in ((first, names, sizes), (second, now, later)):
        check_complete(group(dict.fromkeys(of, (T, U))), topics, found)
        loads = [count(found[name]) for name in of]
        assert max(loads) - min(loads) <= 1
    quota, extra = divmod(later[T] + later[U], len(now))
    had = sorted(
        (sum(sum(index < later[topic] for index in indexes) for topic, indexes in first[name].items()) for name in stayed),
        reverse=True,
    )
    most = sum(min(own, quota + (1 if rank < extra else 0)) for rank, own in enumerate(had))
    assert kept({name: first[name] for name in stayed}, second) == most


@given(st.lists(choices, min_size=1, max_size=6), sizes_of)
def test_uniform_with_different_subscriptions(topics: list[tuple[UUID, ...]], sizes: dict[UUID, int]) -> None:
    """No single move evens out any further, and the same question has the same answer."""
    members = group({f"m{number}": chosen for number, chosen in enumerate(topics)})
    found = uniform(members, sizes)
    check_complete(members, sizes, found)
    for parts in found.values():
        for topic in parts:
            for other, subscriber in members.items():
                if topic in subscriber.topics:
                    assert count(parts) <= count(found[other]) + 1
    again = {member: Subscriber(subscriber.topics, found[member]) for member, subscriber in members.items()}
    assert uniform(again, sizes) == found


@given(st.lists(choices, min_size=1, max_size=6), sizes_of)
def test_range_cuts_every_topic_evenly(topics: list[tuple[UUID, ...]], sizes: dict[UUID, int]) -> None:
    members = group({f"m{number}": chosen for number, chosen in enumerate(topics)})
    found = range_(members, sizes)
    check_complete(members, sizes, found)
    for topic, size in sizes.items():
        takers = [member for member, subscriber in members.items() if topic in subscriber.topics]
        loads = [len(found[member].get(topic, ())) for member in takers]
        assert not loads or max(loads) - min(loads) <= 1
        for member in takers:
            mine = sorted(found[member].get(topic, ()))
            assert not mine or mine == list(range(mine[0], mine[-1] + 1)), "a range"
        assert sum(loads) == (size if takers else 0)
    again = {member: Subscriber(subscriber.topics, found[member]) for member, subscriber in members.items()}
    assert range_(again, sizes) == found


def test_range_puts_equal_partitions_together() -> None:
    found = range_(group({"a": (T, U), "b": (T, U)}), {T: 3, U: 3})
    assert found == {"a": {T: frozenset({0, 1}), U: frozenset({0, 1})}, "b": {T: frozenset({2}), U: frozenset({2})}}


def test_cg_09_range_cuts_a_topic_that_comes_later_as_the_others() -> None:
    """Whatever members had, as in Kafka 4: a member that came first in the order after the topic was shared out gets the same
    partitions of both topics."""
    before = {"b": {T: frozenset({0, 1})}}
    second = range_(group({"a": (T,), "b": (T,)}, before), {T: 2})
    third = range_(group({"a": (T, U), "b": (T, U)}, second), {T: 2, U: 2})
    assert third == {"a": {T: frozenset({0}), U: frozenset({0})}, "b": {T: frozenset({1}), U: frozenset({1})}}


@given(st.lists(choices, min_size=1, max_size=6), st.lists(choices, min_size=6, max_size=6), sizes_of)
def test_cg_09_range_does_not_look_back(
    topics: list[tuple[UUID, ...]], former: list[tuple[UUID, ...]], sizes: dict[UUID, int]
) -> None:
    names = [f"m{number}" for number in range(len(topics))]
    before = range_(group(dict(zip(names, former, strict=False))), sizes)
    now = dict(zip(names, topics, strict=True))
    assert range_(group(now, before), sizes) == range_(group(now), sizes)


def test_nobody_and_nothing() -> None:
    assert uniform({}, {}) == {}
    assert range_({}, {}) == {}
    assert uniform(group({"a": ()}), {}) == {"a": {}}
    assert range_(group({"a": ()}), {}) == {"a": {}}
