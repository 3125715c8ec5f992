"""Configuration of the group coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kraftlite.model.broker_configs import BROKER_CONFIGS


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """What Kafka's keys say, times in milliseconds, sizes in bytes; `topic_*` are of `__consumer_offsets` when it is created."""

    min_session_timeout_ms: int
    max_session_timeout_ms: int
    initial_rebalance_delay_ms: int
    max_size: int
    offset_metadata_max_bytes: int
    offsets_retention_ms: int
    retention_check_interval_ms: int
    commit_timeout_ms: int
    load_buffer_bytes: int
    compression_codec: int
    topic_partitions: int
    topic_replication_factor: int
    topic_segment_bytes: int

    @classmethod
    def from_values(cls, values: Mapping[str, str]) -> GroupConfig:
        """Raises ValueError for a bad value."""

        def typed(name: str) -> Any:
            key = BROKER_CONFIGS[name]
            return key.parse(values.get(name, key.default or ""))

        return cls(
            min_session_timeout_ms=typed("group.min.session.timeout.ms"),
            max_session_timeout_ms=typed("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=typed("group.initial.rebalance.delay.ms"),
            max_size=typed("group.max.size"),
            offset_metadata_max_bytes=typed("offset.metadata.max.bytes"),
            offsets_retention_ms=typed("offsets.retention.minutes") * 60_000,
            retention_check_interval_ms=typed("offsets.retention.check.interval.ms"),
            commit_timeout_ms=typed("offsets.commit.timeout.ms"),
            load_buffer_bytes=typed("offsets.load.buffer.size"),
            compression_codec=typed("offsets.topic.compression.codec"),
            topic_partitions=typed("offsets.topic.num.partitions"),
            topic_replication_factor=typed("offsets.topic.replication.factor"),
            topic_segment_bytes=typed("offsets.topic.segment.bytes"),
        )
