"""Applications that are built on Kafka's clients (Streams, Connect, MirrorMaker), from Maven Central, run against any cluster.

Each is a process that the test kills. What they write is read by another client, with `read_committed`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kraftlite.client.transactions import list_transactions
from kraftlite.local.client import cluster_at
from tests.clients.java import tools
from tests.clients.programs import Client, Ready, Run
from tests.harness.local import Cluster, wait_for

FOLDER: Final = Path(__file__).parent / "streams_and_connect"
COPIED_LIMIT_S: Final = 600.0
"""Until an application has caught up, after deaths and on a machine with a load of many times its cores."""


def jars() -> Path:
    """The folder with the jars of the applications. Raises tools.Missing."""
    return tools.resolved(FOLDER / "pom.xml", tools.kafka_version())


@dataclass(frozen=True)
class Totals:
    """Runs of the Streams application `Totals.java`. Runs with the same folder keep their state there, as a restart does."""

    cluster: Cluster
    application_id: str
    source: str
    target: str
    config: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def run(self, state: Path) -> Iterator[Run]:
        """Started, and killed at the end unless it was closed by `stop`."""
        jar = tools.compiled(FOLDER, jars())
        command = tools.java("Totals", heap_mb=512, more=[jar], of=jars())
        client = Client(name="Kafka Streams", version=tools.kafka_version, prepare=lambda: command)
        job = {"application_id": self.application_id, "source": self.source, "target": self.target, "config": dict(self.config)}
        with Ready(client, command, self.cluster.bootstrap).start(state_dir=str(state), **job) as run:
            yield run


class Committed:
    """Counts the records of a topic that are committed by now, for a test to wait for."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._topic = topic
        self._count = 0
        config = {"group.id": f"read-{topic}", "isolation.level": "read_committed", "enable.auto.commit": False}
        self._consumer: Any = Consumer(
            {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 500, "log_level": 0, **config}
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])

    def count(self) -> int:
        self._count += sum(it.error() is None for it in self._consumer.consume(1000, 0.1))
        return self._count

    def until(self, count: int) -> None:
        wait_for(
            f"{count} records of {self._topic} are committed",
            lambda: self.count() >= count,
            timeout_s=COPIED_LIMIT_S,
            every_s=0,
        )

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def committed(cluster: Cluster, topic: str, partitions: int) -> Iterator[Committed]:
    found = Committed(cluster.bootstrap, topic, partitions)
    try:
        yield found
    finally:
        found.close()


def transactional_ids(cluster: Cluster, prefix: str) -> list[str]:
    """Those that the coordinators know, in order."""
    with cluster_at(cluster.bootstrap) as client:
        return sorted(it.transactional_id for it in list_transactions(client) if it.transactional_id.startswith(prefix))
