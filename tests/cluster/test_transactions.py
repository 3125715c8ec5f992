"""Transactions of a real client on real processes: committed, aborted, fenced, with offsets, and under SIGKILL.

librdkafka follows transaction.version 1: it adds its partitions itself, and keeps its epoch from one transaction to the next.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kraftlite.client.transactions import (
    Abort,
    TransactionDescription,
    abort_transaction,
    describe_producers,
    describe_transactions,
    fence_producer,
    list_transactions,
)
from kraftlite.local.client import cluster_at
from tests.harness.local import CALM, Cluster, running, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

CONFIG = {
    **CALM,
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}
STEP_S = 60.0
"""For one call of a client, which tries again by itself."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running(controllers=1, brokers=3, config=CONFIG) as found:
        yield found


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, partitions=2)
    return name


def producer(cluster: Cluster, transactional_id: str, **config: object) -> Any:
    """Initialized: whoever had the id before is fenced."""
    made = cluster.producer(**{"transactional.id": transactional_id, "transaction.timeout.ms": 60_000, "log_level": 0, **config})
    made.init_transactions(STEP_S)
    return made


def write(made: Any, topic: str, *values: str) -> None:
    """Begin a transaction, and write to both partitions. Nothing is committed."""
    made.begin_transaction()
    for at, value in enumerate(values):
        made.produce(topic, value.encode(), partition=at % 2)
    assert made.flush(STEP_S) == 0


def read(cluster: Cluster, topic: str, *, committed: bool = True) -> list[str]:
    """All that there is for such a reader, up to the end that it is told of, in the order of partitions."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    level = "read_committed" if committed else "read_uncommitted"
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": level,
            "log_level": 0,
        }
    )
    values: dict[int, list[str]] = {0: [], 1: []}
    ended: set[int] = set()
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in values])

    def more() -> bool:
        message = consumer.poll(0.2)
        if message is None:
            return False
        error = message.error()
        if error is None:
            values[message.partition()].append(message.value().decode())
        elif error.name() == "_PARTITION_EOF":
            ended.add(message.partition())
        return len(ended) == len(values)

    try:
        wait_for(f"{topic} is read to its end", more, every_s=0)
    finally:
        consumer.close()
    return values[0] + values[1]


def error_of(call: Callable[[], object]) -> Any:
    """The KafkaError with which a call fails."""
    from confluent_kafka import KafkaException

    with pytest.raises(KafkaException) as caught:
        call()
    return caught.value.args[0]


def described(cluster: Cluster, transactional_id: str) -> TransactionDescription:
    """Asked until there is an answer: its coordinator may have gone, and the next one be on its way."""

    def asked() -> TransactionDescription | None:
        with cluster_at(cluster.bootstrap) as admin:
            found = describe_transactions(admin, [transactional_id])[transactional_id]
        return found if isinstance(found, TransactionDescription) else None

    found: TransactionDescription = wait_for(f"{transactional_id} is described", asked)
    return found


# --- commit, abort, fencing ----------------------------------------------------------------------------------------------


def test_tx_40_committed_and_aborted(cluster: Cluster, topic: str) -> None:
    made = producer(cluster, "simple")
    write(made, topic, "a", "b")
    assert read(cluster, topic) == [], "nothing is committed yet"
    assert read(cluster, topic, committed=False) == ["a", "b"]
    made.commit_transaction(STEP_S)
    wait_for("both are readable", lambda: read(cluster, topic) == ["a", "b"])
    write(made, topic, "c", "d")
    made.abort_transaction(STEP_S)
    write(made, topic, "e", "f")
    made.commit_transaction(STEP_S)
    wait_for("the third, and not the second", lambda: read(cluster, topic) == ["a", "e", "b", "f"])
    assert read(cluster, topic, committed=False) == ["a", "c", "e", "b", "d", "f"]


def test_tx_13_a_second_producer_fences_the_first(cluster: Cluster, topic: str) -> None:
    first = producer(cluster, "shared")
    write(first, topic, "a", "b")
    second = producer(cluster, "shared")
    failed = error_of(lambda: first.commit_transaction(STEP_S))
    assert failed.fatal() and failed.name() in ("_FENCED", "INVALID_PRODUCER_EPOCH"), failed
    write(second, topic, "c", "d")
    second.commit_transaction(STEP_S)
    wait_for("the second's alone", lambda: read(cluster, topic) == ["c", "d"])


def test_tx_62_a_transaction_that_takes_too_long_is_aborted(cluster: Cluster, topic: str) -> None:
    made = producer(cluster, "slow", **{"transaction.timeout.ms": 1_000})
    write(made, topic, "a", "b")
    wait_for("it is aborted", lambda: described(cluster, "slow").state == "CompleteAbort")
    assert read(cluster, topic) == []
    assert error_of(lambda: made.commit_transaction(STEP_S)).fatal()
    write(later := producer(cluster, "slow"), topic, "c", "d")
    later.commit_transaction(STEP_S)
    wait_for("the next one's", lambda: read(cluster, topic) == ["c", "d"])


# --- offsets in transactions ---------------------------------------------------------------------------------------------


class Copier:
    """Reads one topic and writes another, with its offsets in the same transaction (KIP-447)."""

    def __init__(self, cluster: Cluster, source: str, group: str, transactional_id: str) -> None:
        from confluent_kafka import Consumer

        self.consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": 30_000,
                "log_level": 0,
            }
        )
        self.consumer.subscribe([source])
        self.producer = producer(cluster, transactional_id)

    def copy(self, target: str, count: int) -> None:
        """In a transaction that is left open; the offsets are sent."""
        self.producer.begin_transaction()
        taken: list[Any] = []

        def more() -> bool:
            message = self.consumer.poll(0.2)
            if message is not None and message.error() is None:
                taken.append(message)
                self.producer.produce(target, message.value(), partition=message.partition())
            return len(taken) == count

        wait_for(f"{count} records are read", more, every_s=0)
        positions = self.consumer.position(self.consumer.assignment())
        self.producer.send_offsets_to_transaction(
            [it for it in positions if it.offset >= 0], self.consumer.consumer_group_metadata(), STEP_S
        )

    def committed(self, topic: str) -> list[int]:
        from confluent_kafka import TopicPartition

        found = self.consumer.committed([TopicPartition(topic, index) for index in range(2)], timeout=STEP_S)
        return [it.offset for it in found]


def fill(cluster: Cluster, topic: str, *values: str) -> None:
    for at, value in enumerate(values):
        assert cluster.produce(topic, [value], partition=at % 2) == []


def test_tg_08_offsets_are_committed_with_their_transaction(cluster: Cluster, topic: str) -> None:
    """TG-12: after an abort the next consumer begins at what is committed, and the broker knows no other position."""
    target = f"{topic}-out"
    cluster.create_topic(target, partitions=2)
    fill(cluster, topic, "a", "b", "c", "d")
    copier = Copier(cluster, topic, f"{topic}-group", f"{topic}-copier")
    copier.copy(target, 4)
    other = cluster.admin()
    assert plain_offsets(other, f"{topic}-group", topic) == {}, "they are pending"
    copier.producer.commit_transaction(STEP_S)
    wait_for("they are committed", lambda: plain_offsets(other, f"{topic}-group", topic) == {0: 2, 1: 2})
    assert copier.committed(topic) == [2, 2], "a stable fetch waits for what is open"
    assert read(cluster, target) == ["a", "c", "b", "d"]

    fill(cluster, topic, "e", "f")
    copier.copy(target, 2)
    copier.producer.abort_transaction(STEP_S)
    assert copier.committed(topic) == [2, 2], "the offsets of an aborted transaction never were"
    assert read(cluster, target) == ["a", "c", "b", "d"]
    copier.consumer.close()
    again = Copier(cluster, topic, f"{topic}-group", f"{topic}-copier")
    again.copy(target, 2)
    again.producer.commit_transaction(STEP_S)
    assert again.committed(topic) == [3, 3]
    wait_for("each was copied once", lambda: read(cluster, target) == ["a", "c", "e", "b", "d", "f"])
    again.consumer.close()


def plain_offsets(admin: Any, group: str, topic: str) -> dict[int, int]:
    """What is committed, without a wait for what is open."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=STEP_S)
    found = asked[group].result(STEP_S).topic_partitions
    return {it.partition: it.offset for it in found if it.topic == topic and it.offset >= 0}


def test_tg_02_a_member_that_was_left_behind_commits_nothing(cluster: Cluster, topic: str) -> None:
    target = f"{topic}-out"
    cluster.create_topic(target, partitions=2)
    fill(cluster, topic, "a", "b")
    old = Copier(cluster, topic, f"{topic}-group", f"{topic}-old")
    old.copy(target, 2)
    metadata = old.consumer.consumer_group_metadata()
    old.producer.abort_transaction(STEP_S)
    positions = old.consumer.position(old.consumer.assignment())
    old.consumer.close()
    old.producer.begin_transaction()
    old.producer.produce(target, b"late", partition=0)
    failed = error_of(lambda: old.producer.send_offsets_to_transaction(positions, metadata, STEP_S))
    assert failed.txn_requires_abort() and failed.name() in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"), failed
    old.producer.abort_transaction(STEP_S)
    assert plain_offsets(cluster.admin(), f"{topic}-group", topic) == {}
    assert read(cluster, target) == []


# --- administrators ------------------------------------------------------------------------------------------------------


def test_ta_01_ta_03_an_open_transaction_is_seen(cluster: Cluster, topic: str) -> None:
    made = producer(cluster, f"{topic}-seen")
    write(made, topic, "a", "b")
    found = described(cluster, f"{topic}-seen")
    assert found.state == "Ongoing" and found.start_ms is not None
    assert set(found.partitions) == {(topic, 0), (topic, 1)}
    with cluster_at(cluster.bootstrap) as admin:
        listed = {it.transactional_id: it for it in list_transactions(admin, states=["Ongoing"], pattern=f"{topic}-.*")}
        assert listed[f"{topic}-seen"].producer_id == found.producer_id
        assert listed[f"{topic}-seen"].coordinator == found.coordinator
        for broker in (None, *cluster.brokers):

            def seen(broker: int | None = broker) -> Any:
                states = describe_producers(admin, [(topic, 0)], broker=broker)[topic, 0]
                return isinstance(states, list) and [(it.producer_id, it.start_offset) for it in states]

            wait_for("every replica knows it", lambda: seen() == [(found.producer_id, 0)])
    made.commit_transaction(STEP_S)
    wait_for("it is over", lambda: described(cluster, f"{topic}-seen").state == "CompleteCommit")


def test_ta_05_an_administrator_aborts_it_in_one_partition(cluster: Cluster, topic: str) -> None:
    """Its readers go on, although no coordinator was asked."""
    made = producer(cluster, f"{topic}-aborted")
    write(made, topic, "a", "b")
    found = described(cluster, f"{topic}-aborted")
    with cluster_at(cluster.bootstrap) as admin:
        abort_transaction(admin, Abort((topic, 0), found.producer_id, found.producer_epoch, 0))
    fill(cluster, topic, "plain")
    wait_for("its readers go on", lambda: read(cluster, topic) == ["plain"])
    made.abort_transaction(STEP_S)


def test_ta_06_an_administrator_fences_it(cluster: Cluster, topic: str) -> None:
    made = producer(cluster, f"{topic}-fenced")
    write(made, topic, "a", "b")
    with cluster_at(cluster.bootstrap) as admin:
        _producer_id, epoch = fence_producer(admin, f"{topic}-fenced")
        assert epoch > 0
    assert error_of(lambda: made.commit_transaction(STEP_S)).fatal()
    assert read(cluster, topic) == []


# --- failures ------------------------------------------------------------------------------------------------------------


def test_tx_60_the_coordinator_is_killed_between_write_and_commit(cluster: Cluster, topic: str) -> None:
    made = producer(cluster, f"{topic}-orphan")
    write(made, topic, "a", "b")
    for outcome in ("commit", "abort", "commit"):
        coordinator = described(cluster, f"{topic}-orphan").coordinator
        cluster.kill(coordinator)
        (made.commit_transaction if outcome == "commit" else made.abort_transaction)(STEP_S)
        cluster.restart(coordinator)
        cluster.wait_brokers()
        cluster.wait_whole(topic)
        cluster.wait_whole("__transaction_state")
        if outcome == "commit":
            wait_for("what was committed is there", lambda: read(cluster, topic) and not_open(cluster, topic))
        write(made, topic, f"after-{outcome}-0", f"after-{outcome}-1")
    made.commit_transaction(STEP_S)
    expected = ["a", "after-abort-0", "after-commit-0", "b", "after-abort-1", "after-commit-1"]
    wait_for("the second was aborted, the others not", lambda: read(cluster, topic) == expected)


def not_open(cluster: Cluster, topic: str) -> bool:
    with cluster_at(cluster.bootstrap) as admin:
        found = describe_producers(admin, [(topic, 0), (topic, 1)])
    return all(isinstance(them, list) and all(it.start_offset is None for it in them) for them in found.values())


def test_tg_09_the_groups_coordinator_is_killed_between_offsets_and_commit(cluster: Cluster, topic: str) -> None:
    target = f"{topic}-out"
    cluster.create_topic(target, partitions=2)
    fill(cluster, topic, "a", "b")
    copier = Copier(cluster, topic, f"{topic}-group", f"{topic}-copier")
    copier.copy(target, 2)
    group = cluster.admin().describe_consumer_groups([f"{topic}-group"], request_timeout=STEP_S)[f"{topic}-group"].result(STEP_S)
    cluster.kill(group.coordinator.id)
    copier.producer.commit_transaction(STEP_S)
    cluster.restart(group.coordinator.id)
    cluster.wait_brokers()
    wait_for("the offsets are committed", lambda: plain_offsets(cluster.admin(), f"{topic}-group", topic) == {0: 1, 1: 1})
    wait_for("and the records", lambda: read(cluster, target) == ["a", "b"])
    copier.consumer.close()


def test_tx_60_every_broker_is_killed_with_transactions_open(cluster: Cluster, topic: str) -> None:
    made = [producer(cluster, f"{topic}-{number}") for number in range(4)]
    for number, one in enumerate(made):
        write(one, topic, f"{number}-0", f"{number}-1")
    cluster.kill(*cluster.brokers)
    cluster.restart(*cluster.brokers)
    cluster.wait_brokers()
    for number, one in enumerate(made):
        (one.commit_transaction if number % 2 == 0 else one.abort_transaction)(STEP_S)
    wait_for("two were committed", lambda: sorted(read(cluster, topic)) == ["0-0", "0-1", "2-0", "2-1"])
    wait_for("none is open", lambda: not_open(cluster, topic))
