"""Configuration of data replication."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kraftlite.model.broker_configs import value_of
from kraftlite.model.ids import NodeId
from kraftlite.model.limits import MIB
from kraftlite.quotas.rates import QuotaWindows

RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The one value of `replica.selector.class` that has a meaning here: send consumers to a replica in their rack (RP-41)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig:
    """The configuration that leaders and followers of one broker need. Times in milliseconds, sizes in bytes; defaults are
    Kafka's."""

    broker_id: NodeId
    cluster_id: str
    inter_broker_listener_name: str
    lag_time_max_ms: int = 30_000
    fetch_wait_max_ms: int = 500
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = MIB
    """Per partition; a single larger batch is sent nevertheless (RP-39)."""
    fetch_response_max_bytes: int = 10 * MIB
    fetch_backoff_ms: int = 1_000
    socket_timeout_ms: int = 30_000
    hw_checkpoint_interval_ms: int = 5_000
    num_fetchers: int = 1
    """Fetchers, and with them sessions, per source broker."""
    alter_partition_retry_ms: int = 50
    request_timeout_ms: int = 30_000
    replica_selector: str | None = None
    verification_enabled: bool = True
    """`transaction.partition.verification.enable` when the broker starts; `Enroller.verifies` is what it is now."""
    enrol_backoff_ms: int = 20
    enrol_retry_max_ms: int = 100
    transaction_max_timeout_ms: int = 900_000
    throttle_windows: QuotaWindows = field(default_factory=QuotaWindows)
    """`replication.quota.window.*`."""
    move_windows: QuotaWindows = field(default_factory=QuotaWindows)
    """`alter.log.dirs.replication.quota.window.*`."""

    @property
    def rack_aware(self) -> bool:
        return self.replica_selector == RACK_AWARE_SELECTOR

    @classmethod
    def from_values(
        cls, values: Mapping[str, str], *, broker_id: NodeId, cluster_id: str, inter_broker_listener_name: str
    ) -> ReplicationConfig:
        """Make a config of Kafka's broker keys; a missing one takes its default. Raises ValueError naming key, value and what
        is allowed."""

        typed = partial(value_of, values)
        return cls(
            broker_id=broker_id,
            cluster_id=cluster_id,
            inter_broker_listener_name=inter_broker_listener_name,
            lag_time_max_ms=typed("replica.lag.time.max.ms"),
            fetch_wait_max_ms=typed("replica.fetch.wait.max.ms"),
            fetch_min_bytes=typed("replica.fetch.min.bytes"),
            fetch_max_bytes=typed("replica.fetch.max.bytes"),
            fetch_response_max_bytes=typed("replica.fetch.response.max.bytes"),
            fetch_backoff_ms=typed("replica.fetch.backoff.ms"),
            socket_timeout_ms=typed("replica.socket.timeout.ms"),
            hw_checkpoint_interval_ms=typed("replica.high.watermark.checkpoint.interval.ms"),
            num_fetchers=typed("num.replica.fetchers"),
            request_timeout_ms=typed("request.timeout.ms"),
            replica_selector=typed("replica.selector.class") or None,
            verification_enabled=typed("transaction.partition.verification.enable"),
            enrol_backoff_ms=typed("add.partitions.to.txn.retry.backoff.ms"),
            enrol_retry_max_ms=typed("add.partitions.to.txn.retry.backoff.max.ms"),
            transaction_max_timeout_ms=typed("transaction.max.timeout.ms"),
            throttle_windows=QuotaWindows(
                typed("replication.quota.window.num"), typed("replication.quota.window.size.seconds") * 1_000
            ),
            move_windows=QuotaWindows(
                typed("alter.log.dirs.replication.quota.window.num"),
                typed("alter.log.dirs.replication.quota.window.size.seconds") * 1_000,
            ),
        )
