"""Configuration of the group coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from kraftlite.model.broker_configs import value_of

_CLASS: Final = "org.apache.kafka.coordinator.group.assignor."
ASSIGNOR_CLASSES: Final = {f"{_CLASS}UniformAssignor": "uniform", f"{_CLASS}RangeAssignor": "range"}
"""Assignors may be named by Kafka's classes, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The configuration of groups: Kafka's keys, times in milliseconds, sizes in bytes. `topic_*` are of `__consumer_offsets`
    when it is created. `consumer_*` are of groups of the new protocol (KIP-848); the first of `consumer_assignors` is the
    default one."""

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
    protocols: tuple[str, ...]
    consumer_session_timeout_ms: int
    consumer_min_session_timeout_ms: int
    consumer_max_session_timeout_ms: int
    consumer_heartbeat_interval_ms: int
    consumer_min_heartbeat_interval_ms: int
    consumer_max_heartbeat_interval_ms: int
    consumer_assignment_interval_ms: int
    consumer_min_assignment_interval_ms: int
    consumer_max_assignment_interval_ms: int
    consumer_max_size: int
    consumer_assignors: tuple[str, ...]
    consumer_migration_policy: str
    consumer_regex_refresh_ms: int

    @property
    def allows_upgrade(self) -> bool:
        return self.consumer_migration_policy in ("upgrade", "bidirectional")

    @property
    def allows_downgrade(self) -> bool:
        return self.consumer_migration_policy in ("downgrade", "bidirectional")

    @classmethod
    def from_values(cls, values: Mapping[str, str]) -> GroupConfig:
        """Raises ValueError for a bad value."""

        typed = partial(value_of, values)
        for name in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"):
            low, value, high = (typed(f"group.consumer.{which}{name}") for which in ("min.", "", "max."))
            if not low <= value <= high:
                raise ValueError(f"group.consumer.{name}={value}: allowed is {low} to {high}, the min and max of that name")
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
            protocols=tuple(typed("group.coordinator.rebalance.protocols")),
            consumer_session_timeout_ms=typed("group.consumer.session.timeout.ms"),
            consumer_min_session_timeout_ms=typed("group.consumer.min.session.timeout.ms"),
            consumer_max_session_timeout_ms=typed("group.consumer.max.session.timeout.ms"),
            consumer_heartbeat_interval_ms=typed("group.consumer.heartbeat.interval.ms"),
            consumer_min_heartbeat_interval_ms=typed("group.consumer.min.heartbeat.interval.ms"),
            consumer_max_heartbeat_interval_ms=typed("group.consumer.max.heartbeat.interval.ms"),
            consumer_assignment_interval_ms=typed("group.consumer.assignment.interval.ms"),
            consumer_min_assignment_interval_ms=typed("group.consumer.min.assignment.interval.ms"),
            consumer_max_assignment_interval_ms=typed("group.consumer.max.assignment.interval.ms"),
            consumer_max_size=typed("group.consumer.max.size"),
            consumer_assignors=tuple(ASSIGNOR_CLASSES.get(name, name) for name in typed("group.consumer.assignors")),
            consumer_migration_policy=typed("group.consumer.migration.policy").lower(),
            consumer_regex_refresh_ms=typed("group.consumer.regex.refresh.interval.ms"),
        )
