"""The protocol's cluster: a client's transactions, and the state topic.

Source: SX-01, SX-02; KIP-98.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from kraftlite.client.errors import ClientError
from kraftlite.client.kafka_client import KafkaClient
from kraftlite.exactly_once.protocol_core import Fate
from kraftlite.exactly_once.reading import DecisionReader, as_record, fate_of, is_decided
from kraftlite.exactly_once.records import DECISIONS_PARTITION, Decision, Entry, Marker, marker_partition
from kraftlite.exactly_once.state_topic import broker_limit, ensure_state_topic
from kraftlite.log.batch import Record, build_batch
from kraftlite.model.errors import ErrorCode, error_code
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.protocol.record_requests import LATEST

DRIVER_TIMEOUT_MS: Final = 60_000
"""The longest that a driver's transaction may be open: it writes one record."""


@dataclass(slots=True)
class KafkaCluster:
    """A cluster as a client reaches it. `timeout_ms`: how long the transaction of a task may be open. Everything raises
    ClientError."""

    client: KafkaClient
    topic: str
    timeout_ms: int
    reader: DecisionReader | None = None
    """Kept by whoever decides about several batches of one query."""

    def decisions_end(self) -> int:
        """The offset at which the decisions end: what is decided from now on is there, or behind it. The topic is made, if it is
        not known: a broker that is behind does not know all topics."""
        if self.topic not in self.client.describe([self.topic]):
            ensure_state_topic(self.client, self.topic)
        tp = TopicPartition(self.topic, DECISIONS_PARTITION)
        return self.client.list_offsets({tp: LATEST}, read_committed=False)[tp].offset

    def take_over(self, transactional_id: str) -> Producer:
        return self._take_over(transactional_id, self.timeout_ms if "/" in transactional_id else self._driver_timeout_ms())

    def mark(self, transactional_id: str, producer: Producer, marker: Marker) -> tuple[int, int]:
        partitions = len(ensure_state_topic(self.client, self.topic))
        tp = TopicPartition(self.topic, marker_partition(marker.query, marker.task, partitions))
        return tp.partition, self._write(transactional_id, producer, tp, as_record(marker))

    def decided(self, query: str, batch: int, since: int) -> bool:
        ensure_state_topic(self.client, self.topic)
        return is_decided(self.client, self.topic, query, batch, since)

    def last_decision(self, query: str) -> Decision | None:
        ensure_state_topic(self.client, self.topic)
        reader = self.reader
        if reader is None or reader.query != query:
            reader = DecisionReader(query)
        return reader.read(self.client, self.topic)

    def record(self, transactional_id: str, producer: Producer, decision: Decision) -> None:
        self._write(transactional_id, producer, TopicPartition(self.topic, DECISIONS_PARTITION), as_record(decision))
        if not self.client.end_transaction(transactional_id, producer, commit=True):
            raise ClientError(f"batch {decision.batch} of {decision.query}: another driver has taken the query over")

    def end(self, transactional_id: str, producer: Producer, *, commit: bool) -> bool:
        return self.client.end_transaction(transactional_id, producer, commit=commit)

    def fate(self, query: str, batch: int, entry: Entry) -> Fate:
        return fate_of(self.client, self.topic, query, batch, entry)

    def _driver_timeout_ms(self) -> int:
        return min(self.timeout_ms, DRIVER_TIMEOUT_MS)

    def _take_over(self, transactional_id: str, timeout_ms: int) -> Producer:
        try:
            return self.client.init_transactions(transactional_id, timeout_ms)
        except ClientError as error:
            if error.code is not ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise
            limit = broker_limit(self.client)
            most = f"at most {limit}" if limit else "no longer"
            raise ClientError(
                f"kafka.transaction.timeout.ms={timeout_ms}: the brokers allow {most} (their transaction.max.timeout.ms)",
                error.code,
            ) from error

    def _write(self, transactional_id: str, producer: Producer, tp: TopicPartition, record: Record) -> int:
        """The offset of a record, the transaction's only one in its partition."""
        self.client.add_partitions(transactional_id, producer, [tp])
        batch = build_batch(
            [record],
            timestamp_ms=time.time_ns() // 1_000_000,
            transactional=True,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
        )
        result = self.client.produce([(tp, batch)], transactional_id=transactional_id)[tp]
        if result.error_code != ErrorCode.NONE or result.base_offset < 0:
            code = error_code(result.error_code)
            raise ClientError(f"{tp}: {transactional_id}: {code.name}{f', {result.message}' if result.message else ''}", code)
        return result.base_offset
