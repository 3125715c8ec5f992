"""Names of partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID


class TopicPartition(NamedTuple):
    """A partition by topic name. Prints as its directory is called: `orders-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(tps: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Group partitions by the names of their topics, in the order given."""
    found: dict[str, list[TopicPartition]] = {}
    for tp in tps:
        found.setdefault(tp.topic, []).append(tp)
    return found


class TopicIdPartition(NamedTuple):
    """A partition by topic id: survives deletion and re-creation of a topic under the same name as a different one."""

    topic_id: UUID
    partition: int
