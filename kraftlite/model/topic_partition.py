"""Names of partitions."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID


class TopicPartition(NamedTuple):
    """A partition by topic name. Prints as its directory is called: `orders-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A partition by topic id: survives deletion and re-creation of a topic under the same name as a different one."""

    topic_id: UUID
    partition: int
