"""Kafka Streams with `exactly_once_v2`: what it writes is the computation of its input, exactly once, whoever is killed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.clients.clusters import Start
from tests.clients.java.applications import Totals, committed, transactional_ids
from tests.clients.programs import Run
from tests.clients.transactions import coordinator, keyed
from tests.harness.local import Cluster

pytestmark = [pytest.mark.clients, pytest.mark.jvm, pytest.mark.xdist_group("clients")]
PARTITIONS = 4
GROUPS = 20
SETTINGS = {
    "replication.factor": "3",
    "num.stream.threads": "2",
    "commit.interval.ms": "50",
    "consumer.session.timeout.ms": "6000",
    "consumer.heartbeat.interval.ms": "300",
    "topic.segment.bytes": "1048576",
}


@pytest.fixture
def breakable(java: None, start: Start) -> Iterator[Cluster]:
    config = {"min.insync.replicas": "2", "group.min.session.timeout.ms": "1000"}
    with start(config) as cluster:
        yield cluster


class Feed:
    """The input: values "group:number", written to all partitions in turn."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.numbers: dict[str, list[int]] = {}
        self.written = 0
        self._random = random.Random(1)
        self._topic = topic
        self._producer = cluster.producer(**{"enable.idempotence": True})

    def write(self, count: int) -> None:
        """Returns when all are acknowledged; they are there once each."""
        errors: list[str] = []
        for n in range(count):
            group, number = f"g{self._random.randrange(GROUPS)}", self._random.randrange(-1000, 1000)
            self.numbers.setdefault(group, []).append(number)
            told = lambda error, _message: errors.append(error.name()) if error else None  # noqa: E731
            self._producer.produce(self._topic, f"{group}:{number}".encode(), partition=n % PARTITIONS, on_delivery=told)
        assert self._producer.flush(60) == 0
        assert errors == []
        self.written += count


def check(cluster: Cluster, target: str, feed: Feed) -> None:
    """For each group a result of each of its records, in the order of its counts, and no other; each number is added once."""
    found: dict[str, list[tuple[int, int]]] = {}
    for partition in range(PARTITIONS):
        for key, value in keyed(cluster, target, partition):
            count, total = map(int, value.split(":"))
            found.setdefault(key, []).append((count, total))
    assert sorted(found) == sorted(feed.numbers)
    for group, numbers in feed.numbers.items():
        counts = [count for count, _ in found[group]]
        assert counts == list(range(1, len(numbers) + 1)), f"results of {group} are lost or there twice"
        totals = [total for _, total in found[group]]
        added = [after - before for before, after in zip([0, *totals], totals, strict=False)]
        assert sorted(added) == sorted(numbers), f"the totals of {group} are not those of its records"


def closed(run: Run) -> None:
    run.stop()
    assert run.of("error") == []


def totals_of(cluster: Cluster, topic: str, **settings: str) -> tuple[Totals, Feed]:
    source = f"{topic}-source"
    for name in (source, topic):
        cluster.create_topic(name, partitions=PARTITIONS)
    return Totals(cluster, f"app-{topic}", source, topic, {**SETTINGS, **settings}), Feed(cluster, source)


def killed(cluster: Cluster, topic: str, broker: int) -> None:
    """SIGKILL, and restarted when others have taken over."""
    cluster.kill(broker)
    for partition in range(PARTITIONS):
        cluster.wait_leader(topic, partition, not_in=(broker,))


@pytest.mark.capability("Kafka Streams, exactly_once_v2")
def test_results_are_there_once_when_brokers_and_the_application_are_killed(
    breakable: Cluster, topic: str, tmp_path: Path
) -> None:
    """The coordinator of its transactions dies, then the process itself, then who leads its changelog."""
    cluster = breakable
    app, feed = totals_of(cluster, topic)
    with committed(cluster, topic, PARTITIONS) as results:
        feed.write(400)
        with app.run(tmp_path) as first:
            results.until(100)
            dead = coordinator(cluster, transactional_ids(cluster, app.application_id)[0])
            killed(cluster, topic, dead)
            feed.write(400)
            results.until(600)
            cluster.restart(dead)
            feed.write(1000)
            assert first.of("error") == []
        with app.run(tmp_path) as second:  # the state is thrown away, and restored from the changelog
            results.until(feed.written)
            feed.write(400)
            changelog = f"{app.application_id}-totals-changelog"
            killed(cluster, changelog, cluster.leader(changelog, 1))
            results.until(feed.written)
            closed(second)
    check(cluster, topic, feed)


@pytest.mark.slow
@pytest.mark.capability("Kafka Streams, exactly_once_v2")
def test_two_processes_with_standbys_under_a_long_series_of_kills(breakable: Cluster, topic: str, tmp_path: Path) -> None:
    """One process after the other is killed and comes back, and each broker in turn, while input comes in."""
    cluster = breakable
    app, feed = totals_of(cluster, topic, **{"num.standby.replicas": "1"})
    with committed(cluster, topic, PARTITIONS) as results, ExitStack() as stack:
        runs = [stack.enter_context(app.run(tmp_path / str(n))) for n in range(2)]
        for turn in range(6):
            feed.write(500)
            results.until(feed.written - 300)
            broker, victim = cluster.brokers[turn % 3], turn % 2
            killed(cluster, topic, broker)
            feed.write(300)
            runs[victim].kill()
            feed.write(200)
            results.until(feed.written - 400)
            cluster.restart(broker)
            assert runs[1 - victim].pump()
            assert runs[1 - victim].of("error") == []
            runs[victim] = stack.enter_context(app.run(tmp_path / str(victim)))
            cluster.wait_whole(topic)
        results.until(feed.written)
        for run in runs:
            closed(run)
    check(cluster, topic, feed)
