"""The request that creates a topic as it is planned."""

from __future__ import annotations

from typing import Final

from kraftlite.model.messages.controller import ConfigPair, CreatableTopic, CreateTopicsRequest
from kraftlite.sim.shape import TopicPlan

TIMEOUT_MS: Final = 4_000


def create(topic: TopicPlan) -> CreateTopicsRequest:
    creatable = CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication,
        assignments=(),
        configs=tuple(ConfigPair(name=key, value=value) for key, value in sorted(topic.config.items())),
    )
    return CreateTopicsRequest(topics=(creatable,), validate_only=False, timeout_ms=TIMEOUT_MS)
