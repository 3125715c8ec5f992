"""Faults of an embedded cluster as calls: they end with their `with` block, by themselves, and by `heal`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kraftlite.model.errors import ErrorCode
from kraftlite.testing import CLIENTS, SOMEBODY, Cluster, ClusterError, SyncCluster, other_than
from tests.harness.local import wait_for


@pytest.fixture(scope="module")
def cluster() -> Iterator[SyncCluster]:
    with SyncCluster(controllers=1, brokers=2) as found:
        found.create_topic("orders", partitions=1, assignment=[[2, 3]])
        yield found


@pytest.fixture(autouse=True)
def _healthy(cluster: SyncCluster) -> Iterator[None]:
    yield
    troubles = cluster.troubles()
    cluster.heal()
    assert not troubles


def send(cluster: SyncCluster, **config: Any) -> KafkaError | None:
    """The error with which a record is refused; None: it is acknowledged."""
    told: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, "linger.ms": 0, **config})
    producer.produce("orders", b"x", on_delivery=lambda error, _message: told.append(error))
    assert not producer.flush(30)
    return told[0]


def test_an_api_answers_with_a_code_so_many_times(cluster: SyncCluster) -> None:
    with cluster.fail_api("Produce", error="TOPIC_AUTHORIZATION_FAILED", count=1) as fault:
        refused = send(cluster)
        assert refused is not None
        assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert send(cluster) is None
        fault.end()
        assert not [it for it in cluster.troubles() if "api-error of node 2" in it]
    assert cluster.hw("orders") == 1


def test_a_client_that_retries_does_not_lose_its_record(cluster: SyncCluster) -> None:
    before = cluster.hw("orders") or 0
    with cluster.fail_api("Produce", error=ErrorCode.NOT_LEADER_OR_FOLLOWER, count=2):
        assert send(cluster, **{"retry.backoff.ms": 5}) is None
    assert cluster.hw("orders") == before + 1


def test_requests_without_an_answer_lose_their_connection(cluster: SyncCluster) -> None:
    before = cluster.hw("orders") or 0
    with cluster.fail_api("Produce", error=6):
        send(cluster, acks=0)
        assert cluster.partition("orders").leo == before


def test_an_admin_call_fails_with_the_code(cluster: SyncCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    fault = cluster.fail_api("CreateTopics", error=ErrorCode.POLICY_VIOLATION)
    with fault, pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        admin.create_topics([NewTopic("refused", 1)])["refused"].result()
    assert "refused" not in cluster.topics()
    admin.create_topics([NewTopic("refused", 1)])["refused"].result()


def test_an_api_that_is_slow_answers_late_and_rightly(cluster: SyncCluster) -> None:
    before = cluster.hw("orders") or 0
    with cluster.slow_api(60, api="Produce"):
        assert send(cluster) is None
    assert cluster.hw("orders") == before + 1
    with cluster.slow_api(20):
        assert send(cluster) is None


def test_refused_clients_come_back_when_it_ends(cluster: SyncCluster) -> None:
    with cluster.refuse(CLIENTS, cluster.brokers):
        refused = send(cluster, **{"message.timeout.ms": 300})
        assert refused is not None
        assert "cut from clients: 2, 3" in cluster.troubles()
    assert send(cluster, **{"reconnect.backoff.ms": 5, "reconnect.backoff.max.ms": 50}) is None


def test_a_cut_ends_by_itself(cluster: SyncCluster) -> None:
    cluster.cut(2, 3, for_s=2)
    assert "cut: 2 to 3, 3 to 2" in cluster.troubles()
    wait_for("the cut has ended", lambda: not cluster.troubles())
    cluster.wait_for(topic="orders", isr=[2, 3])


def test_cuts_that_overlap_end_one_by_one(cluster: SyncCluster) -> None:
    with cluster.cut(1, 2, one_way=True):
        with cluster.cut(2, 1):
            assert "cut: 1 to 2, 2 to 1" in cluster.troubles()
        assert "cut: 1 to 2" in cluster.troubles()


def test_links_that_refuse_or_lose_everything_separate_nodes(cluster: SyncCluster) -> None:
    for fault in (lambda: cluster.refuse(2, 3), lambda: cluster.lose(2, 3, 1.0)):
        with fault():
            assert send(cluster, acks=1) is None
            wait_for("one of them is alone", lambda: len(cluster.isr("orders")) == 1)
        cluster.wait_for(topic="orders", isr=[2, 3])


def test_a_disk_that_stalls_holds_the_quorum_until_it_flushes_again(cluster: SyncCluster) -> None:
    with cluster.stall_disk(1), pytest.raises(ClusterError):
        cluster.create_topic("late", timeout=0.5)
    cluster.wait_for(controller=SOMEBODY)
    cluster.create_topic("in-time")


def test_a_wall_clock_jumps_and_jumps_back(cluster: SyncCluster) -> None:
    nodes = cluster._nodes
    assert nodes is not None
    clock = nodes.hosts[2].now.clock  # type: ignore[union-attr]
    right = clock.wall_ms()
    with cluster.jump_clock(2, -3600):
        assert clock.wall_ms() < right - 3_500_000
    assert abs(clock.wall_ms() - right) < 60_000


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda c: c.fail_api("Prodce", error=6), "API 'Prodce': allowed are"),
        (lambda c: c.fail_api("ApiVersions", error=6), "allowed are"),
        (lambda c: c.fail_api("CreateAcls", error=6), "has no place for an error"),
        (lambda c: c.fail_api("Produce", error="NO_SUCH"), "allowed is a code of Kafka's protocol"),
        (lambda c: c.fail_api("Produce", error=0), "NONE"),
        (lambda c: c.fail_api("Produce", error=6, count=-1), "count -1"),
        (lambda c: c.fail_api("Produce", error=6, nodes=[1]), "node 1 is not a broker"),
        (lambda c: c.cut(2, 3, for_s=0), "allowed is 0.001 to 600 seconds"),
        (lambda c: c.cut(2, 3, for_s=601), "allowed is 0.001 to 600 seconds"),
        (lambda c: c.lose(2, 3, 2), "above 0 and up to 1"),
        (lambda c: c.slow_disk(9, 5), "there is no node 9"),
        (lambda c: c.slow_disk(2, 2_000), "allowed is 1000 to 1000000 us"),
    ],
)
def test_what_has_no_meaning_is_refused(cluster: SyncCluster, call: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        call(cluster)


async def test_in_a_cluster_for_asyncio_they_are_the_same() -> None:
    async with Cluster(controllers=1, brokers=2) as c:
        await c.create_topic("orders", assignment=[[2, 3]])
        async with c.fill_disk(2), c.cut(1, 3):
            assert {it.split(" of ")[0] for it in c.troubles()} == {"cut: 1 to 3, 3 to 1", "disk-full"}
        assert not c.troubles()
        with c.cut(2, [1, 3]):
            await c.wait_for(topic="orders", leader=other_than(2))
        await asyncio.sleep(0)
        c.kill(3)
        with pytest.raises(ClusterError, match="node 3 is not running"):
            c.jump_clock(3, 60)
        c.fail_api("Produce", error=6)
        await c.restart(2, 3)
        assert not c.troubles()
