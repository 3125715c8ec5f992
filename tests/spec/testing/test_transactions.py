"""Transactional ids of the embedded cluster: their state, fencing, and a coordinator that dies between two steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from kraftlite.testing import NOBODY, Cluster, ClusterError, SyncCluster, WaitTimeout, other_than


@pytest.fixture(scope="module")
def cluster() -> Iterator[SyncCluster]:
    with SyncCluster(controllers=1, brokers=3) as cluster:
        yield cluster


@pytest.fixture
def name(request: pytest.FixtureRequest, cluster: SyncCluster) -> str:
    """A topic, and an id of the same name."""
    name: str = request.node.name.partition("[")[0]
    if name not in cluster.topics():
        cluster.create_topic(name, 2)
    return name


def begun(cluster: SyncCluster | Cluster, name: str, value: bytes, **config: Any) -> Producer:
    """A producer whose transaction has written to both partitions."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name, "log_level": 0, **config},
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce(name, value, partition=partition)
    assert producer.flush(20) == 0
    return producer


def committed(cluster: SyncCluster, name: str) -> list[bytes]:
    """What is read to the end of both partitions by whoever reads committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found: list[bytes] = []
    ends: set[int] = set()
    try:
        consumer.subscribe([name])
        while len(ends) < 2:
            message = consumer.poll(20)
            assert message is not None, f"read so far: {found}"
            error = message.error()
            if error is None:
                found.append(message.value() or b"")
            else:
                assert error.code() == KafkaError._PARTITION_EOF
                ends.add(message.partition() or 0)
    finally:
        consumer.close()
    return sorted(found)


def test_an_id_as_its_coordinator_has_it(cluster: SyncCluster, name: str) -> None:
    with pytest.raises(ClusterError, match=f"no coordinator knows transactional id {name}"):
        cluster.transaction(name)
    producer = begun(cluster, name, b"v")
    view = cluster.transaction(name)
    assert view.state == "Ongoing" and view.partitions == ((name, 0), (name, 1))
    assert view.coordinator == cluster.transaction_coordinator(name)
    producer.commit_transaction(20)
    done = cluster.wait_for_transaction(name, state={"CompleteCommit", "CompleteAbort"})
    assert done.state == "CompleteCommit" and done.producer_id == view.producer_id


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_the_coordinator_dies_between_prepare_and_complete(cluster: SyncCluster, name: str, commit: bool) -> None:
    before = committed(cluster, name)
    producer = begun(cluster, name, b"decided" if commit else b"aborted")
    outcome = "Commit" if commit else "Abort"
    cluster.hold_markers()
    assert cluster.troubles() == ("the markers of transactions are held",)
    (producer.commit_transaction if commit else producer.abort_transaction)(20)
    decided = cluster.wait_for_transaction(name, state=f"Prepare{outcome}")
    assert len(decided.partitions) == 2, "no marker is written"
    old = decided.coordinator
    cluster.kill(old)
    taken = cluster.wait_for_transaction(name, state=f"Prepare{outcome}", coordinator=other_than(old))
    assert (taken.producer_id, taken.producer_epoch) == (decided.producer_id, decided.producer_epoch)
    cluster.restart(old)  # it holds its markers, too
    cluster.wait_for(brokers=cluster.brokers)
    assert cluster.transaction(name).state == f"Prepare{outcome}"
    cluster.release_markers()
    cluster.wait_for_transaction(name, state=f"Complete{outcome}")
    assert committed(cluster, name) == sorted(before + ([b"decided"] * 2 if commit else []))
    assert cluster.troubles() == ()


def test_who_is_fenced_cannot_commit(cluster: SyncCluster, name: str) -> None:
    producer = begun(cluster, name, b"zombie")
    before = cluster.transaction(name)
    producer_id, epoch = cluster.fence(name)
    assert producer_id == before.producer_id and epoch > before.producer_epoch
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(20)
    assert refused.value.args[0].code() == KafkaError._FENCED
    assert committed(cluster, name) == []


def test_healing_releases_the_markers(cluster: SyncCluster, name: str) -> None:
    producer = begun(cluster, name, b"v")
    cluster.hold_markers()
    producer.commit_transaction(20)
    with pytest.raises(WaitTimeout, match=r"wanted CompleteCommit, seen PrepareCommit; the markers of transactions are held"):
        cluster.wait_for_transaction(name, state="CompleteCommit", timeout=0.2)
    cluster.heal()
    cluster.wait_for_transaction(name, state="CompleteCommit")


async def test_the_face_for_asyncio() -> None:
    async with Cluster(controllers=1, brokers=1) as cluster:
        assert cluster.transaction_coordinator("payments") is None, "there is no topic yet"
        producer_id, epoch = await cluster.fence("payments")
        view = await cluster.wait_for_transaction("payments", state="Empty", coordinator=2)
        assert (view.producer_id, view.producer_epoch) == (producer_id, epoch)


@pytest.mark.parametrize(
    ("ask", "problem"),
    [
        (lambda c: c.wait_for_transaction("x"), "nothing to wait for"),
        (
            lambda c: c.wait_for_transaction("x", state="Committed"),
            "state 'Committed': allowed are Empty, Ongoing",
        ),
        (lambda c: c.wait_for_transaction("x", coordinator=NOBODY), "only a coordinator tells"),
        (lambda c: c.wait_for_transaction("x", coordinator=99), "there is no node 99"),
    ],
)
def test_what_makes_no_sense_is_refused(cluster: SyncCluster, ask: Callable[[SyncCluster], object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        ask(cluster)
