"""What readers of committed records see of a topic, through librdkafka: the judge of everything that writes exactly once."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

from kraftlite.client.cluster import ClusterClient
from kraftlite.client.errors import ClientError, RequestRefused
from kraftlite.client.kafka_client import KafkaClient
from kraftlite.client.settings import ClientSettings
from kraftlite.client.transactions import TransactionDescription, describe_transactions, list_transactions
from kraftlite.coordinator.core.placement import TRANSACTION_TOPIC, partition_for
from kraftlite.exactly_once.driver import KafkaCluster
from kraftlite.exactly_once.protocol_core import Staging, commit
from kraftlite.exactly_once.records import STATE_TOPIC, Decision, Entry
from kraftlite.log.batch import Record, build_batch
from kraftlite.model.errors import ErrorCode, error_code
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from tests.harness.embedded import QUICK

STAMP = "kraftlite.batch"
SETTLED_S = 30.0


class Seen(NamedTuple):
    """A committed record."""

    partition: int
    key: bytes | None
    value: bytes | None
    stamp: str | None
    """<query>/<batch>/<task>/<index>."""


def committed(bootstrap: str, topic: str) -> list[Seen]:
    """Every committed record below the last stable offset, by partition in order, when no outcome that was decided is on its way
    to a partition any more."""
    settle(bootstrap)
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            **QUICK,
        }
    )
    found: list[Seen] = []
    ended: set[int] = set()
    try:
        partitions = sorted(reader.list_topics(topic, 20).topics[topic].partitions)
        reader.assign([TopicPartition(topic, it, OFFSET_BEGINNING) for it in partitions])
        while len(ended) < len(partitions):
            message = reader.poll(20)
            assert message is not None, f"{topic} cannot be read to its end"
            if message.error() is not None:
                ended.add(message.partition() or 0)
                continue
            headers = dict(message.headers() or [])
            stamp = headers.get(STAMP)
            found.append(
                Seen(
                    message.partition() or 0, message.key(), message.value(), stamp.decode() if isinstance(stamp, bytes) else None
                )
            )
    finally:
        reader.close()
    return sorted(found, key=lambda it: it.partition)


def settle(bootstrap: str) -> None:
    """A coordinator answers when an outcome is decided, and writes the markers behind that. Of a partition that has no
    coordinator just now nothing would be listed, so each must have one."""
    deadline = time.monotonic() + SETTLED_S
    settings = ClientSettings(bootstrap=tuple(bootstrap.split(",")), retry_backoff_ms=20, retry_timeout_ms=int(SETTLED_S * 1000))
    with ClusterClient(settings) as cluster:
        probes = _an_id_of_each(len(cluster.leaders([TRANSACTION_TOPIC])))
        for name, found in describe_transactions(cluster, probes).items():
            known = isinstance(found, RequestRefused) and found.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            assert known or isinstance(found, TransactionDescription), f"nobody coordinates {name}: {found}"
        while waiting := list_transactions(cluster, states=("PrepareCommit", "PrepareAbort")):
            assert time.monotonic() < deadline, f"outcomes are not carried out: {waiting}"
            time.sleep(0.01)


def _an_id_of_each(partitions: int) -> list[str]:
    """A transactional id for each partition of the coordinators' topic."""
    found: dict[int, str] = {}
    for number in count():
        if len(found) == partitions:
            return list(found.values())
        found.setdefault(partition_for(f"probe-{number}", partitions), f"probe-{number}")
    raise AssertionError("unreachable")


def values(bootstrap: str, topic: str) -> list[str]:
    """The committed values, sorted."""
    return sorted((it.value or b"").decode() for it in committed(bootstrap, topic))


# --- runs of the protocol over a real cluster, without Spark


class Died(Exception):
    """The driver, where the test wants it to."""


class Dying:
    """A cluster that a driver dies beside: before its call number `at`, or behind it."""

    def __init__(
        self, cluster: KafkaCluster, at: int = 1_000, *, after: bool = False, then: Callable[[str], None] | None = None
    ) -> None:
        self._cluster, self._at, self._after, self._then = cluster, at, after, then
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._cluster, name)

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls.append(name)
            here = len(self.calls) - 1 == self._at
            if here and self._then is not None:
                self._then(name)
            elif here and not self._after:
                raise Died(name)
            answer = method(*arguments, **named)
            if here and self._then is None:
                raise Died(name)
            return answer

        return call


class Driver:
    """One run of a batch: a client of its own, and the rows that its tasks have."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        query: str,
        *,
        batch: int = 0,
        run: str = "r",
        timeout_ms: int = 60_000,
        partitions: int = 2,
    ) -> None:
        self.topic, self.query, self.batch, self.run, self.partitions = topic, query, batch, run, partitions
        settings = ClientSettings(bootstrap=tuple(bootstrap.split(",")), retry_backoff_ms=20, retry_timeout_ms=60_000)
        self.client = KafkaClient(settings)
        self.cluster = KafkaCluster(self.client, STATE_TOPIC, timeout_ms)
        self.since = self.cluster.decisions_end()

    def staging(self, task: int) -> Staging:
        named = {"prefix": "p", "query": self.query, "run": self.run}
        return Staging(self.cluster, **named, batch=self.batch, since=self.since, task=task)

    def write(self, staging: Staging, producer: Producer, rows: Sequence[str]) -> None:
        """Each partition's rows in one batch. Raises ClientError."""
        by_partition: dict[TopicPartition, list[Record]] = {}
        for row in rows:
            tp = TopicPartition(self.topic, sum(row.encode()) % self.partitions)
            by_partition.setdefault(tp, []).append(Record(None, row.encode()))
        self.client.add_partitions(staging.transactional_id, producer, by_partition)
        batches = [
            (
                tp,
                build_batch(
                    records,
                    timestamp_ms=time.time_ns() // 1_000_000,  # an older one would be for retention
                    transactional=True,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    base_sequence=0,
                ),
            )
            for tp, records in by_partition.items()
        ]
        for result in self.client.produce(batches, transactional_id=staging.transactional_id).values():
            if result.error_code:
                raise ClientError(result.message, error_code(result.error_code))

    def stage(self, task: int, rows: Sequence[str]) -> Entry:
        staging = self.staging(task)
        self.write(staging, staging.begin(), rows)
        return staging.mark(len(rows), f"{sum(zlib.crc32(it.encode()) for it in rows):032x}")

    def stage_all(self, split: Sequence[Sequence[str]]) -> list[Entry]:
        return [self.stage(task, rows) for task, rows in enumerate(split)]

    def commit(self, staged: Sequence[Entry], cluster: Any = None) -> Decision | None:
        return commit(
            self.cluster if cluster is None else cluster,
            prefix="p",
            query=self.query,
            batch=self.batch,
            run=self.run,
            staged=staged,
        )
