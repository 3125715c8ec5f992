"""DescribeProducers: who wrote to a partition of late, as a replica remembers. Source: CP-15; KIP-664."""

from __future__ import annotations

from typing import NamedTuple

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.metadata import valid_topic_name
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
    """Describe producers: INVALID_TOPIC_EXCEPTION for what is no name, UNKNOWN_TOPIC_OR_PARTITION where the metadata knows
    none, NOT_LEADER_OR_FOLLOWER where no replica of it is."""
    if not valid_topic_name(tp.topic):
        return PartitionProducers(tp.partition, ErrorCode.INVALID_TOPIC_EXCEPTION, f"{tp.topic!r} is no topic's name", ())
    if ctx.metadata.partition(tp.topic, tp.partition) is None:
        known = ctx.metadata.topic(tp.topic) is not None
        message = None if known else "This server does not host this topic-partition."
        return PartitionProducers(tp.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message, ())
    try:
        return PartitionProducers(tp.partition, ErrorCode.NONE, None, ctx.replicas.active_producers(tp))
    except ApiError as error:
        return PartitionProducers(tp.partition, error.code, error.message, ())
