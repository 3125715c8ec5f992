"""DescribeProducers: who wrote to a partition of late, as its leader remembers. Source: CP-15; KIP-664."""

from __future__ import annotations

from typing import NamedTuple

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.log.log import ActiveProducer
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.topic_partition import TopicPartition


class PartitionProducers(NamedTuple):
    """`producers` is empty when `error` is not NONE."""

    partition: int
    error: ErrorCode
    message: str | None
    producers: tuple[ActiveProducer, ...]


def describe_producers(ctx: BrokerContext, tp: TopicPartition) -> PartitionProducers:
    """UNKNOWN_TOPIC_OR_PARTITION where the metadata knows none, NOT_LEADER_OR_FOLLOWER where another broker leads."""
    if ctx.metadata.partition(tp.topic, tp.partition) is None:
        error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {tp}")
        return PartitionProducers(tp.partition, error.code, error.message, ())
    try:
        return PartitionProducers(tp.partition, ErrorCode.NONE, None, ctx.replicas.active_producers(tp))
    except ApiError as error:
        return PartitionProducers(tp.partition, error.code, error.message, ())
