"""The world of `compare_connector`: one cluster with topics of every kind, one session of Spark, and two formats that read and
write them. What a query did is reduced to an `Outcome`, which both formats must have in common."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kraftlite.testing import SyncCluster
from tests.bench.bench_spark import _connector
from tests.clients.java.apache import SMALL, apache_kafka

FORMATS: Final = ("kafka", "kraftlite")
WAIT_S: Final = 60
CLUSTER: Final = {
    "auto.create.topics.enable": "false",
    "log.cleaner.backoff.ms": "200",
    "log.retention.check.interval.ms": "3600000",
}
_ERROR: Final = re.compile(r"([A-Za-z_][\w.]*(?:Exception|Error|Loss|UnknownTopic|OffsetOutOfRange))\b(?:\([^)]*\))?: *([^\n]*)")


@dataclass
class Outcome:
    """`seen` is what must be equal; of an error that there is one, and the words that the case asks for. `told`: the error."""

    seen: Any
    told: str = ""


class Different(Exception):
    """What a case itself finds to be wrong with one format."""


@dataclass
class World:
    """`apache`: the cluster is Apache Kafka, and has transactions."""

    spark: Any
    bootstrap: str
    folder: Path
    apache: bool
    _count: int = field(default=0)

    def __post_init__(self) -> None:
        from confluent_kafka.admin import AdminClient

        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def place(self) -> Path:
        self._count += 1
        return self.folder / str(self._count)

    def topic(self, name: str, partitions: int = 1, **config: object) -> str:
        from confluent_kafka.admin import NewTopic

        named = {key.replace("_", "."): str(it) for key, it in config.items()}
        new = NewTopic(name, partitions, 1, config={"retention.ms": "-1", **named})
        for it in self.admin.create_topics([new]).values():
            it.result(20)
        self.until(f"{name} is led", lambda: self._led(name, partitions))
        return name

    def _led(self, name: str, partitions: int) -> bool:
        found = self.admin.list_topics(name, timeout=10).topics[name]
        return len(found.partitions) == partitions and all(it.leader >= 0 for it in found.partitions.values())

    def delete(self, name: str) -> None:
        for it in self.admin.delete_topics([name]).values():
            it.result(20)
        self.until(f"{name} is gone", lambda: name not in self.admin.list_topics(timeout=10).topics)

    def grow(self, name: str, partitions: int) -> None:
        from confluent_kafka.admin import NewPartitions

        for it in self.admin.create_partitions([NewPartitions(name, partitions)]).values():
            it.result(20)
        self.until(f"{name} has grown", lambda: self._led(name, partitions))

    def truncate(self, name: str, partition: int, before: int) -> None:
        from confluent_kafka import TopicPartition

        for it in self.admin.delete_records([TopicPartition(name, partition, before)]).values():
            it.result(20)

    def send(self, topic: str, records: Sequence[Mapping[str, Any]], **config: object) -> None:
        """Records as confluent_kafka takes them."""
        from confluent_kafka import Producer

        errors: list[Any] = []
        named = {key.replace("_", "."): it for key, it in config.items()}
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "linger.ms": 5, "log_level": 0, **named})
        for it in records:
            producer.produce(topic, **it, on_delivery=lambda error, _: errors.append(error) if error else None)
        assert producer.flush(30) == 0 and not errors, errors

    def fill(self, topic: str, partition: int, count: int, first: int = 0, **config: object) -> None:
        """Records with the values v0, v1, …; record n is n seconds behind `T0`."""
        self.send(topic, [numbered(partition, it) for it in range(first, first + count)], **config)

    def consume(self, topic: str) -> list[tuple[Any, ...]]:
        """Everything in it, as (partition, key, value, headers), in the order of partitions and offsets."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        reader = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "compare", "enable.partition.eof": True})
        partitions = sorted(self.admin.list_topics(topic, timeout=10).topics[topic].partitions)
        reader.assign([TopicPartition(topic, it, OFFSET_BEGINNING) for it in partitions])
        found, ended = [], set[int]()
        try:
            while len(ended) < len(partitions):
                message = reader.poll(20)
                assert message is not None, f"{topic} cannot be read"
                if message.error() is not None:
                    ended.add(message.partition())
                    continue
                headers = [it for it in message.headers() or [] if it[0] != "kraftlite.batch"]
                found.append((message.partition(), message.offset(), message.key(), message.value(), headers))
        finally:
            reader.close()
        return [(it[0], *it[2:]) for it in sorted(found, key=lambda it: it[:2])]

    def until(self, what: str, probe: Callable[[], Any]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not probe():
            if time.monotonic() > deadline:
                raise RuntimeError(f"not within {WAIT_S} s: {what}")
            time.sleep(0.05)


T0: Final = 1_700_000_000_000


def numbered(partition: int, number: int) -> dict[str, Any]:
    key, value = f"k{number}".encode(), f"v{number}".encode()
    return {"key": key, "value": value, "partition": partition, "timestamp": T0 + number * 1000}


# --- what a query did


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    """All columns, in the order of topic, partition and offset; times in microseconds, headers as they came."""
    names = [f"unix_micros({it}) as {it}" if it == "timestamp" else it for it in frame.columns]
    found = [tuple(_plain(it) for it in row) for row in frame.selectExpr(*names).collect()]
    return sorted(found, key=lambda it: it[2:5])


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [tuple(_plain(it) for it in row) for row in value]
    return value


def tasks_of(frame: Any) -> list[tuple[Any, ...]]:
    """(topic, partition, first offset, rows) of every Spark partition that has rows."""
    from pyspark.sql import functions as F

    grouped = frame.groupBy(F.spark_partition_id(), "topic", "partition").agg(F.min("offset"), F.count("*"))
    return sorted(tuple(row)[1:] for row in grouped.collect())


def told_by(error: Exception) -> str:
    """Classes and messages that an error of Spark consists of, the innermost last."""
    text = str(error)
    java = getattr(error, "_origin", None)
    while java is not None and hasattr(java, "getCause") and java.getCause() is not None:
        java = java.getCause()
        text += f"\n{java.toString()}"
    found = list(dict.fromkeys(f"{it[1].rpartition('.')[2]}: {it[2].strip()}" for it in _ERROR.finditer(text)))
    return " | ".join(it[:300] for it in found[-4:]) or f"{type(error).__name__}: {text.strip().splitlines()[0][:300]}"


def attempt(work: Callable[[], Any], *words: str) -> Outcome:
    """What it returns, or the error that it ends with, in which `words` are to be found."""
    try:
        return Outcome(seen=work())
    except Different:
        raise
    except Exception as error:  # noqa: BLE001 - whatever Spark raises is what is compared
        told = told_by(error)
        text = f"{error} {told}".lower()
        return Outcome(seen=["error", *(it for it in words if it.lower() in text)], told=told)


@dataclass
class Batch:
    rows: list[tuple[Any, ...]]
    tasks: list[tuple[Any, ...]]


@dataclass
class Stream:
    """A query of one format with a checkpoint of its own. What a batch has is in `batches`, from all its runs."""

    world: World
    form: str
    options: Mapping[str, Any]
    tasks: bool = False

    def __post_init__(self) -> None:
        self.checkpoint = self.world.place()
        self.batches: list[Batch] = []

    def start(self, *, available_now: bool = True, interval: str = "100 milliseconds", **more: Any) -> Any:
        options = {"kafka.bootstrap.servers": self.world.bootstrap, **self.options, **more}
        reader = self.world.spark.readStream.format(self.form).options(**{name: str(it) for name, it in options.items()})

        def keep(batch: Any, _number: int) -> None:
            kept = batch.persist()
            self.batches.append(Batch(rows_of(kept), tasks_of(kept) if self.tasks else []))
            kept.unpersist()

        writer = reader.load().writeStream.foreachBatch(keep).option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime=interval)).start()

    def run(self, **more: Any) -> Stream:
        query = self.start(**more)
        if not query.awaitTermination(WAIT_S):
            query.stop()
            raise Different(f"{self.form} does not end")
        return self

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted((row for batch in self.batches for row in batch.rows), key=lambda it: it[2:5])

    def values(self) -> list[Any]:
        return [row[1] for row in self.rows()]

    def sizes(self) -> list[dict[str, int]]:
        """How many rows of each partition a batch had; without batches that had none."""
        found = []
        for batch in self.batches:
            counts: dict[str, int] = {}
            for row in batch.rows:
                counts[f"{row[2]}-{row[3]}"] = counts.get(f"{row[2]}-{row[3]}", 0) + 1
            found += [counts] if counts else []
        return found


def load(world: World, form: str, options: Mapping[str, Any]) -> Any:
    given = {"kafka.bootstrap.servers": world.bootstrap, **options}
    return world.spark.read.format(form).options(**{name: str(it) for name, it in given.items()}).load()


def schema_of(frame: Any) -> Any:
    return json.loads(frame.schema.json())


# --- the world itself


@contextmanager
def world(*, apache: bool) -> Iterator[World]:
    from kraftlite.spark.session import session

    jars = _connector()
    if jars is None:
        raise RuntimeError("without Spark's Kafka connector there is nothing to compare with")
    folder = Path(tempfile.mkdtemp(prefix="kraftlite-compare-"))
    with _cluster(apache=apache) as bootstrap:
        spark = session("test", master="local[2]", config={"spark.jars": jars, "spark.driver.memory": "1g"}, log_level="OFF")
        try:
            yield World(spark, bootstrap, folder, apache)
        finally:
            spark.stop()
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _cluster(*, apache: bool) -> Iterator[str]:
    if apache:
        with apache_kafka(config={**SMALL, **CLUSTER}) as kafka:
            yield kafka.bootstrap_servers
    else:
        with SyncCluster(controllers=1, brokers=1, combined=True, config=CLUSTER) as ours:
            yield ours.bootstrap_servers
