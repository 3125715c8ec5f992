"""The image and docker-compose.yml with a real engine: `make containers`."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BOOTSTRAP = "localhost:29092,localhost:39092,localhost:49092"
PROJECT = "kraftlite-test"

pytestmark = pytest.mark.containers


def compose(*args: str, timeout: float = 900) -> str:
    command = ["docker-compose"] if shutil.which("docker-compose") else ["docker", "compose"]
    done = subprocess.run(
        [*command, "-p", PROJECT, *args],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=dict(os.environ),
    )
    assert done.returncode == 0, f"compose {' '.join(args)}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def docker(*args: str) -> str:
    done = subprocess.run(["docker", *args], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"docker {' '.join(args)}:\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


def eventually(what: str, check: Callable[[], bool], timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while not check():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what}\n{compose('logs', '--tail', '30')}")
        time.sleep(0.5)  # an engine offers nothing to wait on


@pytest.fixture(scope="module")
def stack() -> Iterator[None]:
    if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no Docker engine answers")
    compose("down", "-v")
    try:
        compose("build")
        compose("up", "-d")
        for name in ("controller-1", "controller-2", "controller-3", "kafka-1", "kafka-2", "kafka-3"):
            eventually(f"{name} healthy", lambda n=name: docker("inspect", "-f", "{{.State.Health.Status}}", n) == "healthy")
        yield
    finally:
        compose("down", "-v", "-t", "20")


def produce(count: int, start: int) -> None:
    from confluent_kafka import Producer

    failed: list[object] = []
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "acks": "all", "enable.idempotence": True})
    for i in range(start, start + count):
        producer.produce("orders", value=str(i).encode(), on_delivery=lambda err, _msg: failed.append(err) if err else None)
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


def isr_sizes() -> list[int]:
    from confluent_kafka.admin import AdminClient

    topic = AdminClient({"bootstrap.servers": BOOTSTRAP}).list_topics("orders", timeout=20).topics["orders"]
    return [len(partition.isrs) for partition in topic.partitions.values()]


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
