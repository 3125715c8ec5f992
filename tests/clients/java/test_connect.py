"""Kafka Connect and MirrorMaker 2 with exactly-once sources: no record is lost or there twice, whoever is killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.clients.clusters import Start
from tests.clients.java.applications import Committed, committed, transactional_ids
from tests.clients.java.connect import CONNECT, MIRROR_MAKER, configure, mirror, started, wait_running, worker
from tests.clients.transactions import coordinator, keyed
from tests.harness.local import Cluster

pytestmark = [pytest.mark.clients, pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("clients")]


@pytest.fixture
def breakable(java: None, start: Start) -> Iterator[Cluster]:
    with start({"min.insync.replicas": "2", "group.min.session.timeout.ms": "1000"}) as cluster:
        yield cluster


class Lines:
    """A file that grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written: list[str] = []
        path.touch()

    def add(self, count: int, copied: Committed) -> None:
        """Some at a time, so that many transactions are needed to copy them."""
        for _ in range(count // 20):
            more = [f"line {len(self.written) + n}" for n in range(20)]
            with self.path.open("a") as file:
                file.write("".join(f"{it}\n" for it in more))
            self.written += more
            copied.count()


def file_source(lines: Lines, topic: str) -> dict[str, str]:
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(lines.path),
        "topic": topic,
        "exactly.once.support": "required",
    }


@pytest.mark.capability("Kafka Connect, exactly-once source")
def test_each_line_of_a_file_is_there_once(breakable: Cluster, topic: str, tmp_path: Path) -> None:
    """Workers and brokers are killed while the file grows; another worker takes the task over, and the first comes back."""
    cluster, lines = breakable, Lines(tmp_path / "lines")
    cluster.create_topic(topic)
    name = f"connect-{topic}"
    with committed(cluster, topic, 1) as copied, ExitStack() as stack:
        settings = worker(cluster.bootstrap, name)
        first, second = (stack.enter_context(started(CONNECT, tmp_path / it, settings)) for it in ("first", "second"))
        lines.add(200, copied)
        configure(first, "file", file_source(lines, topic))
        copied.until(200)
        for victim, witness in ((first, second), (second, first), (first, second)):
            lines.add(400, copied)
            victim.kill()
            lines.add(200, copied)
            wait_running(witness, "file")
            lines.add(400, copied)
            dead = coordinator(cluster, transactional_ids(cluster, name)[0])
            cluster.kill(dead)
            cluster.wait_leader(topic, not_in=(dead,))
            lines.add(200, copied)
            copied.until(len(lines.written))
            cluster.restart(dead)
            victim.start()
            cluster.wait_whole(topic)
        copied.until(len(lines.written))
        first.kill()
        second.kill()
    assert [value for _key, value in keyed(cluster, topic, 0)] == lines.written


@pytest.mark.capability("MirrorMaker 2, exactly-once source")
def test_mirrored_transactions_are_there_once(breakable: Cluster, start: Start, topic: str, tmp_path: Path) -> None:
    """What is committed here is there, and what is aborted not, when nodes of MirrorMaker and brokers of both clusters die."""
    source = breakable
    source.create_topic(topic, partitions=2)
    with start({"min.insync.replicas": "2", "group.min.session.timeout.ms": "1000"}) as target, ExitStack() as stack:
        settings = mirror(source.bootstrap, target.bootstrap, topic)
        nodes = [stack.enter_context(started(MIRROR_MAKER, tmp_path / str(n), settings)) for n in range(2)]
        feed, there = Transactions(source, topic), f"a.{topic}"
        feed.write(20)
        target.wait_topic(there, timeout_s=180)
        copied = stack.enter_context(committed(target, there, 2))
        copied.until(feed.count)
        for victim, cluster in ((0, target), (1, source), (0, target)):
            feed.write(20)
            nodes[victim].kill()
            feed.write(20)
            copied.until(feed.count)
            feed.write(20)
            dead = cluster.leader(topic if cluster is source else there)
            cluster.kill(dead)
            feed.write(20)
            copied.until(feed.count)
            cluster.restart(dead)
            nodes[victim].start()
            cluster.wait_whole(topic if cluster is source else there)
        feed.close()
        for node in nodes:
            node.check_alive()
            node.kill()
        for partition in (0, 1):
            assert [value for _key, value in keyed(target, there, partition)] == feed.committed[partition]
            assert [value for _key, value in keyed(source, topic, partition)] == feed.committed[partition]


class Transactions:
    """A producer each third of whose transactions is aborted, and which writes to two partitions."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.committed: tuple[list[str], list[str]] = ([], [])
        self._written = 0
        self._topic = topic
        self._producer: Any = cluster.producer(**{"transactional.id": f"feed-{topic}"})
        self._producer.init_transactions(60)

    @property
    def count(self) -> int:
        return sum(map(len, self.committed))

    def write(self, transactions: int) -> None:
        for _ in range(transactions):
            self._written += 1
            values = [f"{self._written}.{n}" for n in range(6)]
            self._producer.begin_transaction()
            for n, value in enumerate(values):
                self._producer.produce(self._topic, value.encode(), partition=n % 2)
            assert self._producer.flush(60) == 0
            if self._written % 3:
                self._producer.commit_transaction(60)
                for partition in (0, 1):
                    self.committed[partition].extend(values[partition::2])
            else:
                self._producer.abort_transaction(60)

    def close(self) -> None:
        assert self._producer.flush(60) == 0
