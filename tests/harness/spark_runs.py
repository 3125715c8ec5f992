"""Spark over a cluster: records in, rows and progress out. Nothing here needs pyspark to be imported."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from kraftlite.testing import SyncCluster
from tests.harness import embedded

PARTITIONS = 3


class Sent(NamedTuple):
    """A record as it was produced, with what the cluster made of it."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    offset: int = -1


def run_all_again(cluster: SyncCluster) -> None:
    """Whatever a test has done to the nodes."""
    cluster.heal()
    for node in cluster.nodes.values():
        if node.state == "paused":
            cluster.resume(node.id)
        elif node.state != "running":
            cluster.restart(node.id)
    cluster.wait_for(brokers=cluster.brokers)


def why_not() -> str | None:
    """Why Spark cannot run here; None when it can."""
    if find_spec("pyspark") is None:
        return "pyspark is not installed: pip install 'kraftlite[spark]'"
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None or subprocess.run([java, "-version"], capture_output=True, check=False).returncode != 0:
        return "there is no Java"
    return None


def create(cluster: SyncCluster, topic: str, partitions: int = PARTITIONS) -> None:
    """Kept for ever: the records of tests have times of their own, which are long ago."""
    cluster.create_topic(topic, partitions=partitions, replication_factor=3, config={"retention.ms": -1})


def numbered(count: int, first: int = 0, partitions: int = PARTITIONS) -> list[Sent]:
    """Records with the values v0, v1, …, in turn over the partitions."""
    return [
        Sent(it % partitions, f"k{it}".encode(), f"v{it}".encode(), timestamp_ms=1_700_000_000_000 + it)
        for it in range(first, first + count)
    ]


def fill(cluster: SyncCluster, topic: str, records: Iterable[Sent], **config: object) -> list[Sent]:
    """Acknowledged by the whole ISR when it returns; the same records with their offsets."""
    client = embedded.producer(cluster, **{"linger.ms": 1, **config})
    wanted, found = list(records), dict[int, int]()
    errors: list[str] = []

    def told(index: int) -> Callable[[Any, Any], None]:
        def tell(error: Any, message: Any) -> None:
            if error is not None:
                errors.append(error.name())
            else:
                found[index] = message.offset()

        return tell

    for index, it in enumerate(wanted):
        client.produce(
            topic,
            it.value,
            it.key,
            partition=it.partition,
            headers=list(it.headers),
            timestamp=it.timestamp_ms or 0,
            on_delivery=told(index),
        )
    assert client.flush(30) == 0, "records without a verdict"
    assert errors == []
    return [it._replace(offset=found[index]) for index, it in enumerate(wanted)]


def options_of(cluster: SyncCluster, topic: str, options: Mapping[str, object]) -> dict[str, str]:
    strategy = {"subscribe", "subscribePattern", "assign"} & set(options)
    own = {} if strategy else {"subscribe": topic}
    return {"kafka.bootstrap.servers": cluster.bootstrap_servers, **own, **{name: str(it) for name, it in options.items()}}


def read(spark: Any, cluster: SyncCluster, topic: str = "", schema: str | None = None, **options: object) -> Any:
    reader = spark.read.format("kraftlite").options(**options_of(cluster, topic, options))
    return (reader if schema is None else reader.schema(schema)).load()


def stream(spark: Any, cluster: SyncCluster, topic: str = "", **options: object) -> Any:
    return spark.readStream.format("kraftlite").options(**options_of(cluster, topic, options)).load()


class Lane:
    """A query to Parquet with a checkpoint of its own, run piece by piece: each `run` reads what there is and ends."""

    def __init__(self, spark: Any, cluster: SyncCluster, topic: str, at: Path, **options: object) -> None:
        self._spark, self._cluster, self._topic, self._options = spark, cluster, topic, options
        self.out, self.checkpoint = at / "out", at / "checkpoint"

    def start(self, *, available_now: bool = True, **more: object) -> Any:
        rows = stream(self._spark, self._cluster, self._topic, **{**self._options, **more})
        writer = rows.writeStream.format("parquet").option("path", str(self.out))
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    def run(self, **more: object) -> list[Any]:
        """Spark's progress of the batches that did something; the StreamingQueryException of a query that failed."""
        query = self.start(**more)
        query.awaitTermination()
        return batches_of(query)

    def values(self) -> list[str]:
        """What Spark reads, sorted as numbers."""
        return values_of(self._spark.read.parquet(str(self.out)))

    def ends(self) -> list[str]:
        """The end of each batch as the checkpoint has it."""
        files = sorted((self.checkpoint / "offsets").glob("[0-9]*"), key=lambda it: int(it.name))
        return [it.read_text().splitlines()[2] for it in files]


def batches_of(query: Any) -> list[Any]:
    return [it for it in query.recentProgress if "addBatch" in it.durationMs]


def values_of(rows: Any) -> list[str]:
    found = [bytes(row[0]).decode() for row in rows.select("value").collect()]
    return sorted(found, key=lambda it: int(it[1:]))


def values(*ranges: range) -> list[str]:
    return [f"v{it}" for one in ranges for it in one]
