"""The nodes of a shape as a fault names them, and the periods that the times of a scene depend on."""

from __future__ import annotations

import random

from kraftlite.sim.shape import Shape


def node_ids(shape: Shape, role: str) -> list[str]:
    """The nodes that are a `broker` or a `controller`, or are both."""
    return [str(number) for number, roles in enumerate(shape.roles, 1) if role in roles]


def any_node(rng: random.Random, shape: Shape) -> str:
    """A node by its role, or any."""
    at = rng.randrange(4)
    if at == 0:
        return "controller"
    if at == 1 and shape.topics:
        topic = rng.choice(shape.topics)
        return f"leader {topic.name}-{rng.randrange(topic.partitions)}"
    return str(rng.randint(1, len(shape.roles)))


def leader_with_followers(rng: random.Random, shape: Shape) -> str | None:
    """The leader of a partition that has several replicas; None when no partition has."""
    topics = [it for it in shape.topics if it.replication > 1]
    if not topics:
        return None
    topic = rng.choice(topics)
    return f"leader {topic.name}-{rng.randrange(topic.partitions)}"


def period_ms(shape: Shape, key: str, default: int) -> int:
    """The value of a key in milliseconds: that of the shape, or `default`, which is the key's own default."""
    return int(shape.config.get(key, default))
