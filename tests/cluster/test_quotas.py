"""Quotas as real clients meet them. QU-01 to QU-07."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from kraftlite.cli.main import cli
from kraftlite.client.admin import alter_configs, alter_quotas
from kraftlite.local.client import cluster_at
from kraftlite.model.messages.controller import AlterConfigOp, ConfigResourceType
from tests.harness.embedded import QUICK
from tests.harness.local import CALM, Cluster, running, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.xdist_group("quotas")]

BOUND = 250_000
"""Bytes a second."""
LEAST = 0.3
"""The share of it that a client gets on a machine that is busy with other work."""
WINDOWS = {"quota.window.num": "3", "controller.quota.window.num": "3"}
"""Short ones: a client may use what two seconds allow at once, and then gets what is allowed."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running(controllers=1, brokers=2, config={**CALM, **WINDOWS, "kraftlite.metrics.port": "0"}) as cluster:
        cluster.create_topic("events", partitions=2, replication=1)
        yield cluster


def limit(cluster: Cluster, client_id: str, **ops: float | None) -> None:
    with cluster_at(cluster.bootstrap) as client:
        alter_quotas(client, {"client-id": client_id}, ops)


def usage(cluster: Cluster) -> list[dict[str, Any]]:
    """What `kraftlite quota describe --usage` says."""
    found = CliRunner().invoke(
        cli, ["quota", "describe", "--usage", "--output", "json"], env={"KRAFTLITE_DATA_DIR": str(cluster.data_dir)}
    )
    assert found.exit_code == 0, found.output
    rows: list[dict[str, Any]] = json.loads(found.output)
    return rows


class Sending:
    """A librdkafka producer that sends as fast as it may, and what it was told."""

    def __init__(self, cluster: Cluster, client_id: str, partition: int, **config: Any) -> None:
        from confluent_kafka import Producer

        self.delivered: list[tuple[float, int]] = []
        self.throttled_ms: list[float] = []
        self.stats: list[dict[str, Any]] = []
        self._partition = partition
        self._client = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "client.id": client_id,
                "linger.ms": 5,
                "batch.size": 20_000,
                "statistics.interval.ms": 500,
                "throttle_cb": lambda event: self.throttled_ms.append(event.throttle_time),
                "stats_cb": lambda text: self.stats.append(json.loads(text)),
                **QUICK,
                **config,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        value = b"x" * 5_000
        outstanding = 0

        def done(error: object, _message: object) -> None:
            nonlocal outstanding
            outstanding -= 1
            assert error is None, error
            self.delivered.append((time.monotonic(), len(value)))

        while not self._stop.is_set():
            while outstanding < 40:
                self._client.produce("events", value, partition=self._partition, on_delivery=done)
                outstanding += 1
            self._client.poll(0.01)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._client.purge()

    def rate(self, begin: float, end: float) -> float:
        return sum(size for when, size in self.delivered if begin <= when < end) / (end - begin)


def test_qu_04_a_producer_gets_what_it_is_allowed_and_another_one_is_not_slowed_down(cluster: Cluster) -> None:
    limit(cluster, "bounded", producer_byte_rate=BOUND)
    bounded, free = Sending(cluster, "bounded", 0), Sending(cluster, "free", 1)
    try:
        begin = time.monotonic() + 4
        time.sleep(13)  # three windows of 3 s behind the first burst: what is measured is time
        (shown,) = usage(cluster)
    finally:
        bounded.stop()
        free.stop()
    assert shown["quota"] == "producer_byte_rate" and shown["client_id"] == "bounded" and shown["bound"] == BOUND
    assert shown["throttled_ms"] > 0
    # A busy machine gives less, and never more.
    assert LEAST * BOUND < bounded.rate(begin, begin + 9) < 1.1 * BOUND
    assert free.rate(begin, begin + 9) > 2 * bounded.rate(begin, begin + 9)
    assert max(bounded.throttled_ms) > 0
    assert free.throttled_ms == []
    told = [broker["throttle"]["max"] for broker in bounded.stats[-1]["brokers"].values()]
    assert max(told) > 0
    limit(cluster, "bounded", producer_byte_rate=None)


def test_qu_05_a_consumer_gets_what_it_is_allowed(cluster: Cluster) -> None:
    from confluent_kafka import Consumer, TopicPartition

    limit(cluster, "reader", consumer_byte_rate=BOUND)
    source = Sending(cluster, "source", 1)
    throttled: list[float] = []
    config: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "quota",
        "client.id": "reader",
        "auto.offset.reset": "earliest",
        "fetch.message.max.bytes": 50_000,
        "throttle_cb": lambda event: throttled.append(event.throttle_time),
    }
    consumer = Consumer({**config, **QUICK})
    got: list[tuple[float, int]] = []
    try:
        consumer.assign([TopicPartition("events", 1, 0)])
        first, end = time.monotonic(), time.monotonic() + 14
        while time.monotonic() < end:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                got.append((time.monotonic() - first, len(message.value() or b"")))
    finally:
        consumer.close()
        source.stop()
    assert max(throttled) > 0
    assert LEAST * BOUND < sum(size for when, size in got if 4 <= when < 13) / 9 < 1.15 * BOUND
    limit(cluster, "reader", consumer_byte_rate=None)


def test_qu_06_a_share_of_the_loop_slows_down_whoever_asks_for_much(cluster: Cluster) -> None:
    from confluent_kafka.admin import AdminClient

    limit(cluster, "asker", request_percentage=0.1)
    throttled: list[float] = []
    config: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap,
        "client.id": "asker",
        "throttle_cb": lambda event: throttled.append(event.throttle_time),
    }
    admin = AdminClient({**config, **QUICK})
    deadline = time.monotonic() + 60
    while not throttled and time.monotonic() < deadline:
        admin.list_topics(timeout=20)
        admin.describe_cluster().result(20)
        admin.poll(0)
    assert 0 < max(throttled) <= 1.0
    limit(cluster, "asker", request_percentage=None)


def test_qu_07_changes_of_topics_are_refused_beyond_the_rate(cluster: Cluster) -> None:
    """Three windows of one partition a second: ten partitions leave -7, so the next topic waits for seven seconds."""
    topic = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    with cluster_at(cluster.bootstrap) as client:
        alter_quotas(client, {"client-id": None}, {"controller_mutation_rate": 1})

        def create(name: str, partitions: int) -> Any:
            topics = [{**topic, "name": name, "num_partitions": partitions}]
            return client.call(19, 7, {"topics": topics, "timeout": 20_000, "validate_only": False})

        assert create("q-large", 10).topics[0].error_code.value == 0
        refused = create("q-next", 1)
        assert refused.topics[0].error_code.value == 89
        assert 5 < refused.throttle_time.total_seconds() <= 7
        alter_quotas(client, {"client-id": None}, {"controller_mutation_rate": None})
        wait_for("it is let in", lambda: create("q-next", 1).topics[0].error_code.value == 0)


def test_qu_10_a_throttled_move_takes_its_time_and_nothing_else_does(cluster: Cluster) -> None:
    """QU-10: six megabytes at one megabyte a second, while a partition that is not listed is moved at once."""
    for name in ("moved", "free"):
        cluster.create_topic(name, partitions=1, replication=1)
        assert cluster.produce(name, ["x" * 10_000] * 600) == []
    brokers = cluster.brokers
    with cluster_at(cluster.bootstrap) as client:

        def configure(kind: ConfigResourceType, resource: str, name: str, value: str | None) -> None:
            operation = AlterConfigOp.DELETE if value is None else AlterConfigOp.SET
            alter_configs(client, kind, resource, [(name, operation, value)])

        def move(name: str) -> float:
            """How long the other broker takes until it is in sync."""
            begin, leader = time.monotonic(), cluster.leader(name)
            replicas = [leader, *(broker for broker in brokers if broker != leader)]
            entry = {"name": name, "partitions": [{"partition_index": 0, "replicas": replicas}]}
            client.call(45, 0, {"timeout_ms": 30_000, "topics": [entry]})
            cluster.wait_isr(name, set(brokers))
            return time.monotonic() - begin

        configure(ConfigResourceType.TOPIC, "moved", "leader.replication.throttled.replicas", "*")
        for broker in brokers:
            configure(ConfigResourceType.BROKER, str(broker), "leader.replication.throttled.rate", "1000000")
        throttled = []
        mover = threading.Thread(target=lambda: throttled.append(move("moved")))
        mover.start()
        free = move("free")
        mover.join()
        assert throttled[0] > 3.5 and free < throttled[0] / 2
        for broker in brokers:
            configure(ConfigResourceType.BROKER, str(broker), "leader.replication.throttled.rate", None)
