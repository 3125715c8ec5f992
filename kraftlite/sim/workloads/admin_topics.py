"""The simulated administrator's requests about topics and brokers, right and wrong: drawn here, sent elsewhere."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from kraftlite.model.ids import NodeId
from kraftlite.model.messages import controller as m
from kraftlite.sim.shape import TopicPlan
from kraftlite.sim.workloads.admin_values import OF_TOPICS, UNKNOWN_KEY

NAMES: Final = ("z1", "z2", "z3", "z.4", "z_4")
"""The names of all topics that the administrator creates: few, so that they come again; the last two collide (CM-15)."""
BAD_NAMES: Final = ("", ".", "..", "no/name", "x" * 250, "__cluster_metadata", "ä")
NOBODY: Final = NodeId(99)
"""A broker that does not exist."""
MOST_PARTITIONS: Final = 5
TIMEOUTS_MS: Final = (4_000,) * 10 + (0, -1, 1, 50, 2**31 - 1)


@dataclass(slots=True)
class Sight:
    """The administrator's knowledge. `counts`: partitions by topic; `ids`: every id that a topic ever had."""

    brokers: Sequence[NodeId]
    shape: Sequence[TopicPlan]
    counts: Mapping[str, int] = field(default_factory=dict)
    ids: dict[str, list[UUID]] = field(default_factory=dict)

    def own(self) -> list[str]:
        """The administrator's topics that are there, as far as it knows."""
        return [name for name in NAMES if name in self.counts]

    def plan(self, topic: str) -> TopicPlan | None:
        return next((it for it in self.shape if it.name == topic), None)


Drawn = tuple[str, Any]
"""A kind of request, and the request."""


def timeout_ms(rng: random.Random) -> int:
    return rng.choice(TIMEOUTS_MS)


def _replicas(rng: random.Random, sight: Sight, least: int = 1) -> tuple[NodeId, ...]:
    size = rng.randint(min(least, len(sight.brokers)), min(4, len(sight.brokers)))
    return tuple(rng.sample(list(sight.brokers), size))


def _bad_replicas(rng: random.Random, sight: Sight) -> tuple[NodeId, ...]:
    one = sight.brokers[0]
    return rng.choice(((), (NOBODY,), (one, one), (one, NOBODY), (NodeId(-1),)))


def create(rng: random.Random, sight: Sight) -> Drawn:
    topics = tuple(_creatable(rng, sight) for _ in range(rng.choice((1, 1, 2, 3))))
    return "create_topics", m.CreateTopicsRequest(topics=topics, validate_only=rng.randrange(6) == 0, timeout_ms=timeout_ms(rng))


def _creatable(rng: random.Random, sight: Sight) -> m.CreatableTopic:
    brokers = len(sight.brokers)
    name = rng.choice(BAD_NAMES) if rng.randrange(10) == 0 else rng.choice(NAMES)
    count, factor = rng.choice((1, 1, 2, 3, -1)), rng.choice((-1, *range(1, min(3, brokers) + 1)))
    assignments: tuple[m.ReplicaAssignment, ...] = ()
    odd = rng.randrange(12)
    if odd == 0:
        count = rng.choice((0, 0, -2, -(2**31), rng.choice((10_001, 2**31 - 1))))
    elif odd == 1:
        factor = rng.choice((0, -2, brokers + 1, 32_767))
    if rng.randrange(4) == 0:
        assignments = _assignments(rng, sight)
        if rng.randrange(6):
            count = factor = -1
    return m.CreatableTopic(
        name=name, num_partitions=count, replication_factor=factor, assignments=assignments, configs=_new_configs(rng)
    )


def _assignments(rng: random.Random, sight: Sight) -> tuple[m.ReplicaAssignment, ...]:
    size = rng.randint(1, min(3, len(sight.brokers)))
    numbers = rng.choice(((0,), (0, 1), (0, 1, 2), (1, 0), (1, 2), (0, 0), (-1, 0)))
    found = [m.ReplicaAssignment(partition=n, broker_ids=tuple(rng.sample(list(sight.brokers), size))) for n in numbers]
    if rng.randrange(4) == 0:
        found[-1] = m.ReplicaAssignment(partition=numbers[-1], broker_ids=_bad_replicas(rng, sight))
    return tuple(found)


def _new_configs(rng: random.Random) -> tuple[m.ConfigPair, ...]:
    pairs = []
    for key in rng.sample(sorted(OF_TOPICS), rng.choice((0, 0, 1, 2))):
        values = OF_TOPICS[key]
        bad = rng.randrange(8) == 0
        value = rng.choice((*values.bad, None)) if bad else rng.choice(values.good)
        pairs.append(m.ConfigPair(name=key, value=value))
    if rng.randrange(20) == 0:
        pairs.append(m.ConfigPair(name=UNKNOWN_KEY, value="1"))
    return tuple(pairs)


def delete(rng: random.Random, sight: Sight) -> Drawn:
    selectors = tuple(_selector(rng, sight) for _ in range(rng.choice((1, 1, 1, 2))))
    return "delete_topics", m.DeleteTopicsRequest(topics=selectors, timeout_ms=timeout_ms(rng))


def _selector(rng: random.Random, sight: Sight) -> m.TopicSelector:
    name = rng.choice(NAMES)
    ids = sight.ids.get(name, [])
    at = rng.randrange(10)
    if at < 5 or not ids:
        return m.TopicSelector(name=name, topic_id=None)
    if at < 8:
        return m.TopicSelector(name=None, topic_id=rng.choice(ids))  # also one that is gone already
    if at == 8:
        return m.TopicSelector(name=name, topic_id=ids[-1])
    return rng.choice((m.TopicSelector(name=None, topic_id=None), m.TopicSelector(name="never-there", topic_id=None)))


def grow(rng: random.Random, sight: Sight) -> Drawn:
    topics = tuple(_growing(rng, sight) for _ in range(rng.choice((1, 1, 2))))
    return "create_partitions", m.CreatePartitionsRequest(
        topics=topics, validate_only=rng.randrange(6) == 0, timeout_ms=timeout_ms(rng)
    )


def _growing(rng: random.Random, sight: Sight) -> m.CreatePartitionsTopic:
    known = sorted(sight.counts)
    name = rng.choice(known) if known and rng.randrange(8) else rng.choice((*NAMES, "never-there"))
    present = sight.counts.get(name, 1)
    more = rng.choice((1, 1, 2))
    count = min(present + more, MOST_PARTITIONS) if rng.randrange(6) else rng.choice((0, -1, present, present - 1, 20_000))
    assignments = None
    if rng.randrange(4) == 0:
        size = rng.choice((1, 2, 3))
        placed = [_replicas(rng, sight) if rng.randrange(5) else _bad_replicas(rng, sight) for _ in range(size)]
        assignments = tuple(m.ReplicaAssignment(partition=present + n, broker_ids=it) for n, it in enumerate(placed))
    return m.CreatePartitionsTopic(name=name, count=count, assignments=assignments)


def reassign(rng: random.Random, sight: Sight) -> Drawn:
    moves = tuple(_move(rng, sight) for _ in range(rng.choice((1, 1, 2, 3))))
    return "alter_reassignments", m.AlterPartitionReassignmentsRequest(
        partitions=moves, allow_replication_factor_change=rng.randrange(4) > 0, timeout_ms=timeout_ms(rng)
    )


def _partition(rng: random.Random, sight: Sight) -> tuple[str, int]:
    known = sorted(sight.counts)
    if not known or rng.randrange(12) == 0:
        return rng.choice((*NAMES, "never-there")), rng.choice((0, 7, -1))
    name = rng.choice(known)
    return name, rng.randrange(sight.counts[name])


def _move(rng: random.Random, sight: Sight) -> m.ReassignablePartition:
    topic, index = _partition(rng, sight)
    plan = sight.plan(topic)
    replicas: tuple[NodeId, ...] | None = _replicas(rng, sight, 1 if plan is None else plan.replication)
    at = rng.randrange(10)
    if at < 3:
        replicas = None
    elif at == 3:
        replicas = _bad_replicas(rng, sight)
    return m.ReassignablePartition(topic=topic, partition=index, replicas=replicas)


def list_moves(rng: random.Random, sight: Sight) -> Drawn:
    some = tuple(m.PartitionName(topic=topic, partition=index) for topic, index in (_partition(rng, sight) for _ in range(3)))
    return "list_reassignments", m.ListPartitionReassignmentsRequest(
        partitions=rng.choice((None, None, some)), timeout_ms=timeout_ms(rng)
    )


def elect(rng: random.Random, sight: Sight) -> Drawn:
    """Unclean elections only of the administrator's own topics: those of others must not lose anything."""
    kind = rng.choice((m.ElectionType.PREFERRED, m.ElectionType.PREFERRED, m.ElectionType.UNCLEAN, 7))
    names = [_partition(rng, sight) for _ in range(rng.choice((1, 2, 3)))]
    if kind == m.ElectionType.UNCLEAN:
        names = [(topic, index) for topic, index in names if sight.plan(topic) is None]
    partitions = tuple(m.PartitionName(topic=topic, partition=index) for topic, index in names)
    everything = kind == m.ElectionType.PREFERRED and rng.randrange(4) == 0
    return "elect_leaders", m.ElectLeadersRequest(
        election_type=int(kind), partitions=None if everything else partitions, timeout_ms=timeout_ms(rng)
    )


TOPIC_DRAWS: Final[tuple[Callable[[random.Random, Sight], Drawn], ...]] = (
    *(create, create, create, delete, delete, grow, grow, reassign, reassign, reassign, list_moves, elect, elect),
)
