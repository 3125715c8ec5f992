"""What the exactly-once sink leaves in a cluster, written by librdkafka: stages, decisions and their ends, right or wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer

from kraftlite.client.cluster import ClusterClient
from kraftlite.client.errors import ClientError
from kraftlite.client.transactions import describe_transactions
from kraftlite.exactly_once.records import (
    DECISIONS_PARTITION,
    DEFAULT_PREFIX,
    STATE_TOPIC,
    Decision,
    Entry,
    Marker,
    driver_id,
    encode,
    marker_partition,
    task_id,
)
from kraftlite.local.client import cluster_at
from kraftlite.testing import SyncCluster

PARTITIONS = 3
STAMP = "kraftlite.batch"
FINGERPRINT = "0" * 32


@dataclass
class Stage:
    """An open transaction; `end` ends it."""

    entry: Entry
    producer: Any

    def end(self, *, commit: bool = True) -> None:
        if commit:
            self.producer.commit_transaction(30)
        else:
            self.producer.abort_transaction(30)


class SinkState:
    """One query over a cluster."""

    def __init__(self, cluster: SyncCluster, query: str, topic: str) -> None:
        self.servers = cluster.bootstrap_servers
        self.query, self.topic = query, topic
        self.client: ClusterClient = cluster_at(self.servers)
        if STATE_TOPIC not in cluster.topics():
            cluster.create_topic(STATE_TOPIC, partitions=PARTITIONS, config={"cleanup.policy": "compact"})

    def stage(
        self, batch: int, task: int, rows: Sequence[int], run: str = "r1", *, stamped: str | None = None, said: int | None = None
    ) -> Stage:
        """Rows with these indexes. Not what the sink would write: `stamped`, what their stamps begin with; `said`, how many rows
        the marker and the entry tell of."""
        count = len(rows) if said is None else said
        producer = self._begun(task_id(DEFAULT_PREFIX, self.query, task))
        stamp = f"{self.query}/{batch}/{task}" if stamped is None else stamped
        for index in rows:
            producer.produce(self.topic, f"v{index}", f"k{index}", headers=[(STAMP, f"{stamp}/{index}".encode())])
        marker = Marker(query=self.query, task=task, batch=batch, run=run, rows=count, fingerprint=FINGERPRINT)
        partition, offsets = marker_partition(self.query, task, PARTITIONS), []
        key, value = encode(marker)
        producer.produce(STATE_TOPIC, value, key, partition=partition, on_delivery=lambda _, it: offsets.append(it.offset()))
        assert producer.flush(30) == 0
        name = task_id(DEFAULT_PREFIX, self.query, task)
        at = describe_transactions(self.client, [name])[name]
        assert not isinstance(at, ClientError)
        entry = Entry(
            task=task,
            transactional_id=name,
            producer_id=at.producer_id,
            epoch=at.producer_epoch,
            rows=count,
            fingerprint=FINGERPRINT,
            marker_partition=partition,
            marker_offset=offsets[0],
        )
        return Stage(entry, producer)

    def decide(self, batch: int, stages: Iterable[Stage], run: str = "r1", *, commit: bool = True) -> Decision:
        found = Decision(query=self.query, batch=batch, run=run, entries=tuple(it.entry for it in stages))
        key, value = encode(found)
        producer = self._begun(driver_id(DEFAULT_PREFIX, self.query))
        producer.produce(STATE_TOPIC, value, key, partition=DECISIONS_PARTITION)
        Stage(Any, producer).end(commit=commit)  # type: ignore[arg-type]
        return found

    def whole_batch(self, batch: int, tasks: Sequence[Sequence[int]]) -> Decision:
        """Staged, decided and committed: rows of each task."""
        stages = [self.stage(batch, task, rows) for task, rows in enumerate(tasks)]
        found = self.decide(batch, stages)
        for it in stages:
            it.end()
        return found

    def _begun(self, name: str) -> Any:
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": name, "log_level": 0, "linger.ms": 0})
        producer.init_transactions(30)
        producer.begin_transaction()
        return producer
