"""Embedded clusters for tests: records through librdkafka, and one in the place of a cluster of processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kraftlite.testing import Cluster, SyncCluster
from tests.harness import local

QUICK = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20, "log_level": 0}
"""librdkafka waits for seconds between its attempts unless told."""


def producer(cluster: Cluster | SyncCluster, **config: object) -> Any:
    from confluent_kafka import Producer

    return Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", **QUICK, **config})


def produce(cluster: Cluster | SyncCluster, topic: str, values: list[str], *, partition: int = 0, **config: object) -> None:
    """Returns when all are acknowledged by the whole ISR."""
    client = producer(cluster, **config)
    errors: list[str] = []
    for value in values:
        client.produce(
            topic,
            value.encode(),
            partition=partition,
            on_delivery=lambda error, _: errors.append(error.name()) if error else None,
        )
    assert client.flush(20) == 0, "records without a verdict"
    assert errors == []


def consume(cluster: Cluster | SyncCluster, topic: str, count: int, *, partition: int = 0) -> list[str]:
    """The partition's first `count` values, and what follows them within its HW."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "test",
            "enable.auto.commit": False,
            "check.crcs": True,
            **QUICK,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        values: list[str] = []
        while len(values) < max(count, cluster.hw(topic, partition) or 0):
            message = consumer.poll(20)
            assert message is not None, f"{len(values)} of {count} records of {topic}-{partition}"
            if message.error() is None:
                values.append((message.value() or b"").decode())
        return values
    finally:
        consumer.close()


@dataclass(frozen=True)
class EmbeddedNode:
    """What `LocalNode` tells, of a node without a process."""

    id: int
    roles: tuple[str, ...]
    kafka: str | None
    state: str

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles


@dataclass(frozen=True)
class EmbeddedState:
    """What `LocalCluster` tells."""

    bootstrap_servers: str
    cluster_id: str
    nodes: tuple[EmbeddedNode, ...]

    def node(self, node_id: int) -> EmbeddedNode:
        return next(node for node in self.nodes if node.id == node_id)


class Embedded(local.Cluster):
    """For tests that were written for a cluster of processes and need neither their files nor their pids."""

    def __init__(self, cluster: SyncCluster) -> None:
        super().__init__()
        self.cluster = cluster

    @property
    def state(self) -> EmbeddedState:  # type: ignore[override]
        nodes = tuple(EmbeddedNode(it.id, it.roles, it.kafka, it.state) for it in self.cluster.nodes.values())
        return EmbeddedState(self.cluster.bootstrap_servers, self.cluster.cluster_id, nodes)

    def kill(self, *node_ids: int) -> None:
        self.cluster.kill(*node_ids)

    def terminate(self, node_id: int) -> None:
        self.cluster.stop(node_id)

    def pause(self, *node_ids: int) -> None:
        self.cluster.pause(*node_ids)

    def resume(self, *node_ids: int) -> None:
        if node_ids:
            self.cluster.resume(*node_ids)

    def restart(self, *node_ids: int) -> None:
        self.cluster.restart(*node_ids)
        self._admins.clear()

    def producer(self, **config: object) -> Any:
        return super().producer(**{**QUICK, **config})

    def consume(self, topic: str, **config: Any) -> list[str]:
        return super().consume(topic, **{**QUICK, **config})


@contextmanager
def embedded(
    *,
    controllers: int = 3,
    brokers: int = 3,
    combined: bool = False,
    config: Mapping[str, str] | None = None,
    racks: Sequence[str] = (),
) -> Iterator[Embedded]:
    with SyncCluster(controllers=controllers, brokers=brokers, combined=combined, config=config, racks=racks) as cluster:
        yield Embedded(cluster)
