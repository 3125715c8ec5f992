"""The image and docker-compose.yml with a real engine: `make containers`."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.containers.engine import cluster, compose, docker, eventually

BOOTSTRAP = "localhost:29092,localhost:39092,localhost:49092"

pytestmark = pytest.mark.containers


@pytest.fixture(scope="module")
def stack() -> Iterator[None]:
    with cluster():
        yield


def produce(count: int, start: int, topic: str = "orders") -> None:
    from confluent_kafka import Producer

    failed: list[object] = []
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "acks": "all", "enable.idempotence": True})
    for i in range(start, start + count):
        producer.produce(topic, value=str(i).encode(), on_delivery=lambda err, _msg: failed.append(err) if err else None)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failed


def consume_all(expected: int) -> list[int]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition("orders", p, 0) for p in range(3)])
    values: list[int] = []
    deadline = time.monotonic() + 60
    while len(values) < expected and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            values.append(int(message.value()))
    consumer.close()
    return values


def consume_values(topic: str) -> list[bytes]:
    """Of partition 0, to its end."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "reader", "enable.auto.commit": False})
    end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)[1]
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = [message.value() for message in consumer.consume(end, timeout=60) if message.error() is None]
    consumer.close()
    return found


def isr_sizes() -> list[int]:
    from confluent_kafka.admin import AdminClient

    topic = AdminClient({"bootstrap.servers": BOOTSTRAP}).list_topics("orders", timeout=20).topics["orders"]
    return [len(partition.isrs) for partition in topic.partitions.values()]


def asked(path: str) -> Any:
    """What Prometheus answers; None before it does."""
    try:
        with urllib.request.urlopen(f"http://localhost:9090/api/v1/{path}", timeout=10) as answer:
            return json.load(answer)["data"]
    except OSError:
        return None


def test_prometheus_sees_every_node_and_a_dead_broker_sets_off_alerts(stack: None) -> None:
    compose("--profile", "observe", "build", "prometheus")
    compose("--profile", "observe", "up", "-d", "prometheus")

    def dead() -> set[str]:
        targets = (asked("targets?state=active") or {"activeTargets": []})["activeTargets"]
        assert len(targets) in (0, 6)
        return {it["labels"]["instance"] for it in targets if it["health"] != "up"} if targets else {"all"}

    def firing() -> set[str]:
        found = asked("alerts") or {"alerts": []}
        return {it["labels"]["alertname"] for it in found["alerts"] if it["state"] == "firing"}

    eventually("all six answer", lambda: dead() == set())
    assert not firing()
    docker("kill", "kafka-3")
    eventually("one of them does not", lambda: dead() == {"kafka-3:9404"})
    eventually("it is told", lambda: {"NodeDown", "FencedBrokers"} <= firing(), timeout_s=180)
    compose("start", "kafka-3")
    eventually("all is well", lambda: not dead() and not firing(), timeout_s=180)


def test_a_broker_is_killed_and_comes_back(stack: None) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    admin.create_topics([NewTopic("orders", 3, 3, config={"min.insync.replicas": "2"})])["orders"].result(30)
    produce(1000, 0)
    docker("kill", "kafka-2")
    produce(1000, 1000)
    eventually("ISR of two everywhere", lambda: isr_sizes() == [2, 2, 2])
    compose("start", "kafka-2")
    eventually("ISR whole again", lambda: isr_sizes() == [3, 3, 3])
    docker("kill", "controller-1")
    produce(1000, 2000)
    compose("start", "controller-1")
    assert sorted(consume_all(3000)) == list(range(3000))


def test_runs_as_an_ordinary_user(stack: None) -> None:
    assert docker("exec", "kafka-1", "id", "-u") == "1000"


SPARK = ("spark-master", "spark-worker-1", "spark-worker-2")
ROWS = """
import pyarrow.dataset as ds
rows = ds.dataset("/data/lake", ignore_prefixes=["_", "."]).to_table(columns=["value"])
print(sorted(int(value) for value in rows["value"].to_pylist()) == list(range({count})), rows.num_rows)
"""


@pytest.fixture
def spark_stack(stack: None) -> None:
    compose("--profile", "spark", "build", "spark-master", timeout=1800)
    compose("--profile", "spark", "up", "-d")
    for name in SPARK:
        eventually(f"{name} healthy", lambda n=name: docker("inspect", "-f", "{{.State.Health.Status}}", n) == "healthy")
    eventually("both workers registered", lambda: alive_workers() == 2)


def alive_workers() -> int:
    """Those that the master tells of; 0 also while its page is not there yet: Spark listens first, and adds its pages then."""
    try:
        with urllib.request.urlopen(f"http://localhost:{os.environ.get('SPARK_UI_PORT', '8080')}/json/", timeout=10) as answer:
            return int(json.load(answer)["aliveworkers"])
    except OSError:
        return 0


def pipeline(job: str, *args: str) -> Any:
    """The report of a job that the workers run."""
    common = ("--master", "spark://spark-master:7077", "--bootstrap-server", "kafka-1:19092,kafka-2:19092,kafka-3:19092")
    done = docker("exec", "spark-master", "kraftlite", "pipeline", job, *common, "-o", "json", *args, timeout=300)
    return json.loads(done)


def test_spark_on_a_cluster_of_its_own(spark_stack: None) -> None:
    """Ingested by two workers, and by the one that is left: every record once. Results go back into a topic."""
    from confluent_kafka.admin import AdminClient, NewTopic

    topics = AdminClient({"bootstrap.servers": BOOTSTRAP})
    made = topics.create_topics(
        [NewTopic("events", 4, 3, config={"min.insync.replicas": "2"}), NewTopic("totals", 1, 3), NewTopic("results", 1, 3)]
    )
    for topic in made.values():
        topic.result(30)
    ingest = ("--topics", "events", "--out", "/data/lake", "--checkpoint", "/data/checkpoint", "--max-offsets", "500")
    produce(2000, 0, "events")
    assert pipeline("ingest", *ingest)["rows"] == 2000
    docker("kill", "spark-worker-2")
    docker("kill", "kafka-2")
    produce(1000, 2000, "events")
    assert pipeline("ingest", *ingest)["rows"] == 1000
    assert docker("exec", "spark-master", "python", "-c", ROWS.format(count=3000)) == "True 3000"
    compose("start", "kafka-2")
    produce(10, 0, "totals")
    windows = ("--format", "csv", "--schema", "number bigint", "--group-by", "_topic", "--value", "number", "--mode", "update")
    found = pipeline(
        "aggregate",
        "--topics",
        "totals",
        *windows,
        "--result-topic",
        "results",
        "--checkpoint",
        "/data/windows",
        "--window",
        "1 day",
    )
    assert (found["rows"], found["results"]) == (10, 1)
    (result,) = [json.loads(it) for it in consume_values("results")]
    assert (result["rows"], result["sum"], result["_topic"]) == (10, 45.0, "totals")
