"""Configuration of the transaction coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from kraftlite.model.broker_configs import value_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """Kafka's keys; times in milliseconds, sizes in bytes. `topic_*` are of `__transaction_state` when it is created.
    `request_timeout_ms`: the time for which one attempt to write markers waits. `add_wait_ms`: the time for which a client that
    adds partitions waits until the transaction before is complete; `enrol_wait_ms`: the same for a partition's leader."""

    max_timeout_ms: int = 900_000
    expiration_ms: int = 604_800_000
    timeouts_interval_ms: int = 10_000
    expiry_interval_ms: int = 3_600_000
    load_buffer_bytes: int = 5_242_880
    request_timeout_ms: int = 30_000
    add_wait_ms: int = 20
    enrol_wait_ms: int = 100
    topic_partitions: int = 50
    topic_replication_factor: int = 3
    topic_min_isr: int = 2
    topic_segment_bytes: int = 104_857_600

    @classmethod
    def from_values(cls, values: Mapping[str, str]) -> TransactionConfig:
        """Raises ValueError for a bad value."""

        typed = partial(value_of, values)
        return cls(
            max_timeout_ms=typed("transaction.max.timeout.ms"),
            expiration_ms=typed("transactional.id.expiration.ms"),
            timeouts_interval_ms=typed("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            expiry_interval_ms=typed("transaction.remove.expired.transaction.cleanup.interval.ms"),
            load_buffer_bytes=typed("transaction.state.log.load.buffer.size"),
            request_timeout_ms=typed("request.timeout.ms"),
            add_wait_ms=typed("add.partitions.to.txn.retry.backoff.ms"),
            enrol_wait_ms=typed("add.partitions.to.txn.retry.backoff.max.ms"),
            topic_partitions=typed("transaction.state.log.num.partitions"),
            topic_replication_factor=typed("transaction.state.log.replication.factor"),
            topic_min_isr=typed("transaction.state.log.min.isr"),
            topic_segment_bytes=typed("transaction.state.log.segment.bytes"),
        )
