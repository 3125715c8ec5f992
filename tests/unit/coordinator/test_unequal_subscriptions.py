"""The uniform assignor where members subscribe to different topics: what it makes, and how long it takes."""

from __future__ import annotations

import random
import time
from uuid import UUID

import pytest

from kraftlite.coordinator.modern.assignors import Place, Subscriber, uniform

TOPICS = tuple(UUID(int=number) for number in range(1, 6))


def modelled(members: dict[str, Subscriber], sizes: dict[UUID, int]) -> dict[str, set[Place]]:
    """It looks at every subscriber for every partition."""
    owned: dict[str, set[Place]] = {name: set() for name in members}
    owner: dict[Place, str] = {}
    for name, one in members.items():
        for topic_id in one.topics:
            for index in sorted(one.previous.get(topic_id, ())):
                if index < sizes[topic_id] and (topic_id, index) not in owner:
                    owned[name].add((topic_id, index))
                    owner[topic_id, index] = name
    takers = {topic_id: [name for name, one in members.items() if topic_id in one.topics] for topic_id in TOPICS}
    seen = dict.fromkeys(topic_id for one in members.values() for topic_id in one.topics)
    places = [(topic_id, index) for topic_id in seen for index in range(sizes[topic_id])]
    places.sort(key=lambda place: (len(takers[place[0]]), place[1]))
    for place in [place for place in places if place not in owner]:
        owner[place] = min(takers[place[0]], key=lambda name: len(owned[name]))
        owned[owner[place]].add(place)
    moved = True
    while moved:
        moved = False
        for place in places:
            poorest = min(takers[place[0]], key=lambda name: len(owned[name]))
            if len(owned[owner[place]]) > len(owned[poorest]) + 1:
                owned[owner[place]].remove(place)
                owned[poorest].add(place)
                owner[place] = poorest
                moved = True
    return owned


@pytest.mark.parametrize("seed", range(200))
def test_it_is_what_the_model_makes(seed: int) -> None:
    rng = random.Random(seed)
    sizes = {topic_id: rng.randrange(10) for topic_id in TOPICS}
    members = {
        f"m{number}": Subscriber(
            tuple(topic_id for topic_id in TOPICS if rng.random() < 0.6),
            {topic_id: frozenset(index for index in range(12) if rng.random() < 0.2) for topic_id in TOPICS},
        )
        for number in range(2, 9)
    }
    members["m1"], members["m9"] = Subscriber(TOPICS[:1], {}), Subscriber(TOPICS[1:], {})
    made = uniform(members, sizes)
    found = {
        name: {(topic_id, index) for topic_id, indexes in parts.items() for index in indexes} for name, parts in made.items()
    }
    assert found == modelled(members, sizes)


def test_many_members_and_partitions_do_not_hold_the_loop() -> None:
    """As in a rolling upgrade that adds a topic. Whoever joins or leaves makes it anew, and the broker does nothing else then."""
    old, new = TOPICS[:2]
    sizes = {old: 5_000, new: 5_000}
    members = {f"m{number}": Subscriber((old,) if number % 2 else (old, new), {}) for number in range(1_000)}
    began = time.process_time()
    made = uniform(members, sizes)
    assert time.process_time() - began < 1.5
    assert {sum(map(len, parts.values())) for parts in made.values()} == {10}
