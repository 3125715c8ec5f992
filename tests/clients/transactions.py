"""The tests of transactions that every client is put through; `Capabilities` has them, and what they need of a client."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kraftlite.client.errors import ClientError
from kraftlite.client.transactions import describe_transactions
from kraftlite.coordinator.core.placement import partition_for
from kraftlite.local.client import cluster_at
from tests.clients.programs import Ready, Refused, told_results
from tests.harness.local import Cluster, wait_for

RECORDS = 50
"""In each step of a transaction."""
SLOWLY_S = 300.0
"""For a hundred transactions one after the other, on a machine with a load of many times its cores."""


def capability(name: str) -> pytest.MarkDecorator:
    return pytest.mark.capability(name)


class Transactions:
    @capability("transactions")
    def test_transactions(self, ready: Ready, cluster: Cluster, topic: str) -> None:
        """What is committed is read, what is aborted is not."""
        cluster.create_topic(topic)
        begin, commit = {"do": "begin"}, {"do": "commit"}
        steps = [begin, sent("a"), commit, begin, sent("b"), {"do": "abort"}, begin, sent("c"), commit]
        assert ready.transact(topic, *steps) == [None] * len(steps)
        assert values_of(cluster, topic) == texts("a") + texts("c")

    @capability("transactions: fenced")
    def test_fenced(self, ready: Ready, cluster: Cluster, topic: str) -> None:
        """A second producer of the same id takes over; what the first has open is aborted, and it cannot commit."""
        cluster.create_topic(topic)
        begin, commit = {"do": "begin"}, {"do": "commit"}
        job = {"op": "transact", "topic": topic, "transactional_id": topic}
        with ready.start(**job, steps=[begin, sent("old"), {"do": "wait"}, commit]) as first:
            first.until("it has written", lambda: len(first.of("result")) == 2)
            assert ready.transact(topic, begin, sent("new"), commit) == [None] * 3
            events = first.stop()
        *_, verdict = told_results(events)
        assert isinstance(verdict, Refused) and ("fenced" in verdict.lower() or "epoch" in verdict.lower()), verdict
        assert values_of(cluster, topic) == texts("new")

    @capability("transactions: timed out")
    def test_timed_out(self, ready: Ready, cluster: Cluster, topic: str) -> None:
        """A transaction that is open for too long is aborted. Its end is refused in the words that the client has for it with
        Apache Kafka; nothing that the producer does then brings any of it back, and a new producer can work."""
        cluster.create_topic(topic)
        begin, commit = {"do": "begin"}, {"do": "commit"}
        steps = [begin, sent("late"), {"do": "wait"}, commit, {"do": "abort"}, begin, sent("after"), commit]
        job = {"op": "transact", "topic": topic, "transactional_id": topic, "timeout_ms": 1000}
        with ready.start(**job, steps=steps) as writer:
            writer.until("it has written", lambda: len(writer.of("result")) == 2)
            wait_for("the transaction is aborted", lambda: state(cluster, topic) == "CompleteAbort", timeout_s=90)
            told = told_results(writer.stop())
        refused = told[3]
        assert isinstance(refused, Refused) and self.client.timed_out in refused, told
        goes_on = told[5:] == [None] * 3
        assert ready.transact(topic, begin, sent("new"), commit) == [None] * 3
        assert values_of(cluster, topic) == (texts("after") if goes_on else []) + texts("new")

    @capability("transactions: copy with offsets")
    def test_copy(self, ready: Ready, cluster: Cluster, topic: str) -> None:
        """What a copier aborts its successor reads again, and what it commits not."""
        source = f"{topic}-source"
        for name in (source, topic):
            cluster.create_topic(name)
        assert cluster.produce(source, texts("v"), partition=0) == []
        begin = {"do": "begin"}
        copy = {"do": "copy", "source": source, "count": RECORDS}
        job = {"group": f"g-{topic}"}
        for end in ("abort", "commit"):
            assert ready.transact(topic, begin, copy, {"do": end}, **job) == [None] * 3
        assert values_of(cluster, topic) == texts("v")
        assert cluster.produce(source, ["last"], partition=0) == []
        assert ready.transact(topic, begin, {**copy, "count": 1}, {"do": "commit"}, **job) == [None] * 3
        assert values_of(cluster, topic) == [*texts("v"), "last"]

    @capability("transactions: brokers are killed")
    def test_transactions_while_brokers_are_killed(
        self, request: pytest.FixtureRequest, breakable: Cluster, command: list[str], topic: str
    ) -> None:
        """The coordinator dies, then the leader of a partition: every transaction is there once, whole and in order."""
        self.check(request)
        cluster = breakable
        ready = Ready(self.client, command, cluster.bootstrap)
        cluster.create_topic(topic, partitions=2)
        values = [f"v{n}" for n in range(120)]
        job = {"op": "transact", "topic": topic, "transactional_id": topic, "steps": transactions_of(values)}
        with ready.start(**job) as writer:
            for after, coordinates in ((30, True), (150, False)):
                writer.until("some are committed", partial(lambda least: len(writer.of("result")) >= least, after), SLOWLY_S)
                dead = coordinator(cluster, topic) if coordinates else cluster.leader(topic)
                cluster.kill(dead)
                cluster.wait_leader(topic, 0, not_in=(dead,))
                cluster.restart(dead)
            events = writer.done(SLOWLY_S)
        assert [it for it in told_results(events) if it is not None] == []
        for partition in (0, 1):
            assert [value for _key, value in keyed(cluster, topic, partition)] == values


def transactions_of(values: list[str]) -> list[dict[str, Any]]:
    """The steps of one transaction for each value, which is written to both partitions."""
    steps: list[dict[str, Any]] = []
    for value in values:
        records = [{"partition": partition, "key": "k", "value": value} for partition in (0, 1)]
        steps += [{"do": "begin"}, {"do": "send", "records": records}, {"do": "commit"}]
    return steps


def coordinator(cluster: Cluster, transactional_id: str) -> int:
    """The broker that leads the id's partition of `__transaction_state`, of which embedded clusters have three."""
    return cluster.leader("__transaction_state", partition_for(transactional_id, 3))


def state(cluster: Cluster, transactional_id: str) -> str:
    """What its coordinator says of it."""
    with cluster_at(cluster.bootstrap) as client:
        found = describe_transactions(client, [transactional_id])[transactional_id]
    assert not isinstance(found, ClientError), found
    return found.state


def texts(name: str) -> list[str]:
    return [f"{name}{n}" for n in range(RECORDS)]


def sent(name: str) -> dict[str, Any]:
    """The step that writes the texts to partition 0."""
    return {"do": "send", "records": [{"partition": 0, "key": "k", "value": it} for it in texts(name)]}


def values_of(cluster: Cluster, topic: str) -> list[str]:
    """What is committed in partition 0, read by another client."""
    return [value for _key, value in keyed(cluster, topic, 0)]


def keyed(cluster: Cluster, topic: str, partition: int) -> list[tuple[str, str]]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "verdict",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "log_level": 0,
        }
    )
    found: list[tuple[str, str]] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            message = consumer.poll(30)
            assert message is not None, f"{topic}-{partition} cannot be read to its end"
            if message.error() is not None:
                return found
            found.append(((message.key() or b"").decode(), message.value().decode()))
    finally:
        consumer.close()
