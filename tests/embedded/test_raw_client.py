"""The client for raw batches against an embedded cluster that loses its leader, its controller, its topic.

Source: the contract in kraftlite/client/kafka_client.py; KIP-98, KIP-207, KIP-320.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest

from kraftlite.client.admin import list_offsets
from kraftlite.client.errors import ClientError, OffsetOutOfRange, UnknownTopic
from kraftlite.client.groups import delete_offsets
from kraftlite.client.kafka_client import KafkaClient, client_for
from kraftlite.client.settings import ClientSettings
from kraftlite.local.client import cluster_at
from kraftlite.log import codecs
from kraftlite.log.batch import Record, build_batch, iter_records, parse_header
from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.protocol.record_requests import ProduceResult
from kraftlite.testing import SyncCluster, other_than
from tests.harness import embedded
from tests.harness.spark_runs import run_all_again

pytestmark = [pytest.mark.clients]

_NUMBERS = count(1)


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[SyncCluster]:
    with SyncCluster(controllers=3, brokers=3) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: SyncCluster) -> Iterator[SyncCluster]:
    """Every node runs, before and after."""
    yield shared_cluster
    run_all_again(shared_cluster)


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_NUMBERS)}"


def settings_of(cluster: SyncCluster, **changes: Any) -> ClientSettings:
    bootstrap = tuple(cluster.bootstrap_servers.split(","))
    return ClientSettings(**{"bootstrap": bootstrap, "retry_timeout_ms": 60_000, "retry_backoff_ms": 20, **changes})


@pytest.fixture
def client(cluster: SyncCluster) -> Iterator[KafkaClient]:
    found = KafkaClient(settings_of(cluster))
    yield found
    found.close()


def batch(
    *values: str, codec: int = codecs.NONE, timestamp_ms: int = 1_000, producer: tuple[int, int] = (-1, -1), sequence: int = -1
) -> bytes:
    records = [Record(None, value.encode(), (), at, at) for at, value in enumerate(values)]
    return build_batch(
        records,
        timestamp_ms=timestamp_ms,
        codec=codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
    )


def values_of(data: memoryview | bytes, start: int) -> list[tuple[int, str]]:
    found = []
    for header, view in batches_of(data):
        for record in iter_records(view):
            offset = header.base_offset + record.offset_delta
            if offset >= start:
                found.append((offset, bytes(record.value or b"").decode()))
    return found


def batches_of(data: memoryview | bytes) -> Iterator[tuple[Any, bytes]]:
    """Whole batches only."""
    raw, at = bytes(data), 0
    while len(raw) - at >= 61:
        header = parse_header(raw, at)
        if at + header.size_bytes > len(raw):
            return
        yield header, raw[at : at + header.size_bytes]
        at += header.size_bytes


def read_all(
    client: KafkaClient, tp: TopicPartition, start: int = 0, end: int | None = None, **limits: Any
) -> list[tuple[int, str]]:
    """(offset, value) from `start` to `end`, or the end of now."""
    if end is None:
        end = client.list_offsets({tp: -1})[tp].offset
    found: list[tuple[int, str]] = []
    at = start
    while at < end:
        fetched = client.fetch(tp, at, **limits)
        new = values_of(fetched.records, at)
        assert new or not len(fetched.records), "a batch without a record that was asked for"
        found += new
        at = new[-1][0] + 1 if new else at
    return found


# --- metadata


def test_topics_are_described_with_their_ids_and_partitions(cluster: SyncCluster, client: KafkaClient, topic: str) -> None:
    cluster.create_topic(topic, 5)
    found = client.describe([topic, "nobody-made-this"])
    assert list(found) == [topic]
    assert found[topic].partitions == (0, 1, 2, 3, 4)
    assert found[topic].topic_id is not None
    assert not found[topic].internal
    everything = client.topics()
    assert everything[topic] == found[topic]
    assert everything["__consumer_offsets"].internal
    assert list(everything) == sorted(everything)
    assert client.partitions_for(topic) == (0, 1, 2, 3, 4)
    assert client.describe([]) == {}


def test_a_topic_that_is_not_there_is_said_to_be_unknown(cluster: SyncCluster, topic: str) -> None:
    client = KafkaClient(settings_of(cluster, retry_timeout_ms=500))
    cluster.create_topic(topic, 1)
    for call in (
        lambda: client.partitions_for("nobody-made-this"),
        lambda: client.fetch(TopicPartition("nobody-made-this", 0), 0),
        lambda: client.list_offsets({TopicPartition(topic, 0): -1, TopicPartition(topic, 7): -1}),
        lambda: client.produce([(TopicPartition("nobody-made-this", 0), batch("x"))], timeout_ms=500),
    ):
        with pytest.raises(UnknownTopic, match=r"the cluster has no (nobody-made-this|topic-\d+-7)") as caught:
            call()
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    client.close()


def test_a_topic_that_appears_in_time_is_found(cluster: SyncCluster, client: KafkaClient, topic: str) -> None:
    found: list[tuple[int, ...]] = []
    asking = threading.Thread(target=lambda: found.append(client.partitions_for(topic)))
    asking.start()
    cluster.create_topic(topic, 2)
    asking.join(20)
    assert found == [(0, 1)]


def test_nobody_there_is_an_error_that_names_everybody() -> None:
    client = KafkaClient(ClientSettings(bootstrap=("127.0.0.1:1", "127.0.0.1:2"), retry_timeout_ms=200))
    with pytest.raises(ClientError, match=r"no broker answered \(127.0.0.1:1: .*; 127.0.0.1:2: .*\)"):
        client.topics()


def test_one_dead_bootstrap_server_is_passed_over(cluster: SyncCluster, topic: str) -> None:
    cluster.create_topic(topic, 1)
    alive = cluster.bootstrap_servers.split(",")[0]
    client = KafkaClient(ClientSettings(bootstrap=("127.0.0.1:1", alive)))
    assert client.partitions_for(topic) == (0,)
    client.close()


# --- offsets


def test_offsets_by_time_and_at_both_ends(cluster: SyncCluster, client: KafkaClient, topic: str) -> None:
    cluster.create_topic(topic, 2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for at in (1_000, 2_000, 3_000):
        client.produce([(first, batch("a", "b", timestamp_ms=at))])
    found = client.list_offsets({first: -1, second: -1})
    assert (found[first].offset, found[second].offset) == (6, 0)
    assert client.list_offsets({first: -2})[first].offset == 0
    at = client.list_offsets({first: 2_000})[first]
    assert (at.offset, at.timestamp) == (2, 2_000)
    assert client.list_offsets({first: 2_001})[first].offset == 3
    assert client.list_offsets({first: 9_000, second: 0}) == {
        first: (-1, -1, -1),
        second: (-1, -1, -1),
    }
    assert client.list_offsets({first: 2**62})[first].offset == -1
    assert client.list_offsets({}) == {}


def test_a_groups_offsets_are_seen_by_others_and_theirs_by_us(cluster: SyncCluster, client: KafkaClient, topic: str) -> None:
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Partition

    cluster.create_topic(topic, 3)
    embedded.produce(cluster, topic, [str(it) for it in range(10)])
    tps = [TopicPartition(topic, it) for it in range(3)]
    assert client.committed_offsets("watched", tps) == dict.fromkeys(tps)
    client.commit_offsets("watched", {tps[0]: 7, tps[1]: 0}, metadata="from here")
    assert client.committed_offsets("watched", tps) == {tps[0]: 7, tps[1]: 0, tps[2]: None}
    assert client.committed_metadata("watched") == ("from here",)
    assert "watched" in client.list_groups()
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "watched", **embedded.QUICK})
    try:
        found = consumer.committed([Partition(topic, 0), Partition(topic, 2)], 20)
        assert [it.offset for it in found] == [7, -1001]
        consumer.commit(offsets=[Partition(topic, 2, 5)], asynchronous=False)
    finally:
        consumer.close()
    assert client.committed_offsets("watched", tps[2:]) == {tps[2]: 5}


# --- fetch


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_of_librdkafka_is_fetched(cluster: SyncCluster, client: KafkaClient, topic: str, codec: str) -> None:
    cluster.create_topic(topic, 1)
    wanted = [f"{codec}-{it}-{'x' * 100}" for it in range(2_000)]
    embedded.produce(cluster, topic, wanted, **{"compression.type": codec, "linger.ms": 50, "batch.size": 20_000})
    found = read_all(client, TopicPartition(topic, 0), max_bytes=30_000)
    assert found == list(enumerate(wanted))
    (first, _raw), *_rest = batches_of(client.fetch(TopicPartition(topic, 0), 0).records)
    assert codecs.CODEC_NAMES[first.attributes & 7] == codec


def test_a_fetch_begins_with_the_batch_that_holds_its_offset(cluster: SyncCluster, client: KafkaClient, topic: str) -> None:
    cluster.create_topic(topic, 1)
    tp = TopicPartition(topic, 0)
    client.produce([(tp, batch(*"abcd"))])
    client.produce([(tp, batch("e" * 5_000))])
    fetched = client.fetch(tp, 2)
    assert values_of(fetched.records, 0)[:4] == list(enumerate("abcd"))
    assert (fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset) == (5, 5, 0)
    assert values_of(client.fetch(tp, 4, max_bytes=100).records, 4) == [(4, "e" * 5_000)], "larger than what was asked for"
    assert len(client.fetch(tp, 5, max_wait_ms=0).records) == 0


def test_records_are_received_into_the_same_memory(cluster: SyncCluster, client: KafkaClient, topic: str) -> None:
    cluster.create_topic(topic, 1)
    tp = TopicPartition(topic, 0)
    client.produce([(tp, batch("a" * 100))])
    client.produce([(tp, batch("b" * 100))])
    first = client.fetch(tp, 0).records
    before = bytes(first)
    second = client.fetch(tp, 1).records
    assert first.obj is second.obj
    assert bytes(first) != before


def test_an_offset_that_is_not_there_is_out_of_range(cluster: SyncCluster, client: KafkaClient, topic: str) -> None:
    cluster.create_topic(topic, 1)
    tp = TopicPartition(topic, 0)
    client.produce([(tp, batch("a", "b"))])
    with pytest.raises(OffsetOutOfRange, match="OFFSET_OUT_OF_RANGE") as caught:
        client.fetch(tp, 99)
    assert (caught.value.tp, caught.value.offset, caught.value.code) == (tp, 99, ErrorCode.OFFSET_OUT_OF_RANGE)


def test_a_topic_deleted_under_a_reader_is_unknown(cluster: SyncCluster, topic: str) -> None:
    from confluent_kafka.admin import AdminClient

    cluster.create_topic(topic, 1)
    client = KafkaClient(settings_of(cluster, retry_timeout_ms=1_000))
    tp = TopicPartition(topic, 0)
    client.produce([(tp, batch("a"))])
    assert values_of(client.fetch(tp, 0).records, 0) == [(0, "a")]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(20)
    with pytest.raises(UnknownTopic):
        while True:
            client.fetch(tp, 1, max_wait_ms=10)
    client.close()


# --- produce


def test_many_partitions_are_written_at_once(cluster: SyncCluster, client: KafkaClient, topic: str) -> None:
    cluster.create_topic(topic, 12)
    tps = [TopicPartition(topic, it) for it in range(12)]
    assert client.produce([(tp, batch(f"first of {tp}")) for tp in tps]) == dict.fromkeys(tps, ProduceResult(0, 0))
    assert client.produce([(tp, batch("a", "b")) for tp in tps]) == dict.fromkeys(tps, ProduceResult(0, 1))
    for tp in tps:
        assert read_all(client, tp) == [(0, f"first of {tp}"), (1, "a"), (2, "b")]
    assert embedded.consume(cluster, topic, 3, partition=11) == [f"first of {topic}-11", "a", "b"]
    with pytest.raises(ValueError, match="more than one batch"):
        client.produce([(tps[0], batch("a")), (tps[0], batch("b"))])


def test_a_batch_with_a_sequence_is_written_once_however_often_it_is_sent(
    cluster: SyncCluster, client: KafkaClient, topic: str
) -> None:
    cluster.create_topic(topic, 1)
    tp = TopicPartition(topic, 0)
    producer = client.init_producer_id()
    assert producer != client.init_producer_id()
    first = batch("a", "b", producer=producer, sequence=0)
    for _ in range(3):
        assert client.produce([(tp, first)]) == {tp: ProduceResult(0, 0)}
    for at in range(2, 9):
        assert client.produce([(tp, batch("x", producer=producer, sequence=at))])[tp] == ProduceResult(0, at)
    late = client.produce([(tp, batch("y", producer=producer, sequence=20))])[tp]
    assert late.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [value for _, value in read_all(client, tp)] == ["a", "b", *"xxxxxxx"]


def test_what_cannot_be_retried_is_in_the_results(cluster: SyncCluster, client: KafkaClient, topic: str) -> None:
    cluster.create_topic(topic, 2, config={"max.message.bytes": 1_000})
    small, large = TopicPartition(topic, 0), TopicPartition(topic, 1)
    found = client.produce([(small, batch("a")), (large, batch("b" * 5_000))])
    assert found[small] == ProduceResult(0, 0)
    assert found[large][:2] == (ErrorCode.MESSAGE_TOO_LARGE, -1)
    assert "max.message.bytes" in found[large].message


@pytest.mark.parametrize("acks", [0, 1])
def test_fewer_acks(cluster: SyncCluster, client: KafkaClient, topic: str, acks: int) -> None:
    cluster.create_topic(topic, 1)
    tp = TopicPartition(topic, 0)
    assert client.produce([(tp, batch("a"))], acks=acks) == {tp: ProduceResult(0, -1 if acks == 0 else 0)}
    assert client.produce([(tp, batch("b"))], acks=acks)[tp].error_code == 0
    cluster.wait_for(topic=topic, hw=2)
    assert [value for _, value in read_all(client, tp)] == ["a", "b"]


# --- failures


def write_until(client: KafkaClient, tp: TopicPartition, done: Callable[[int], bool], sent: list[str]) -> None:
    """Idempotent batches of three, one behind the other."""
    producer = client.init_producer_id()
    sequence = 0
    while not done(len(sent)):
        values = [f"{sequence + at}" for at in range(3)]
        result = client.produce([(tp, batch(*values, producer=producer, sequence=sequence))])[tp]
        assert result.error_code == 0
        sent += values
        sequence += 3


@pytest.mark.parametrize("how", ["kill", "pause", "cut"])
def test_the_leader_goes_while_records_are_written(cluster: SyncCluster, client: KafkaClient, topic: str, how: str) -> None:
    """Nothing is lost, nothing is there twice, and the order is kept."""
    cluster.create_topic(topic, 1)
    tp = TopicPartition(topic, 0)
    old = cluster.leader(topic)
    assert old is not None
    sent: list[str] = []
    enough = [1 << 30]
    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(write_until, client, tp, lambda n: n >= enough[0], sent)
        try:
            cluster.wait_for(topic=topic, hw=30)
            if how == "cut":
                cluster.cut("clients", old)
                cluster.cut(old, [it for it in (*cluster.brokers, *cluster.controllers) if it != old])
            else:
                getattr(cluster, how)(old)
            cluster.wait_for(topic=topic, leader=other_than(old))
        finally:
            enough[0] = len(sent) + 30
        writing.result(60)
    assert [value for _, value in read_all(client, tp)] == sent == [str(it) for it in range(len(sent))]


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_the_leader_goes_while_records_are_read(cluster: SyncCluster, client: KafkaClient, topic: str, how: str) -> None:
    cluster.create_topic(topic, 1)
    tp = TopicPartition(topic, 0)
    wanted = [str(it) for it in range(300)]
    for at in range(0, 300, 3):
        client.produce([(tp, batch(*wanted[at : at + 3]))])
    found = read_all(client, tp, 0, 150, max_bytes=100)
    old = cluster.leader(topic)
    assert old is not None
    getattr(cluster, how)(old)
    started = time.monotonic()
    found += read_all(client, tp, found[-1][0] + 1, 300, max_bytes=100)
    assert found == list(enumerate(wanted))
    assert time.monotonic() - started < 25, "it waited for a broker that does not lead any more"
    assert cluster.leader(topic) != old


def test_without_its_controller_the_cluster_goes_on(cluster: SyncCluster, client: KafkaClient, topic: str) -> None:
    cluster.create_topic(topic, 3)
    tps = [TopicPartition(topic, it) for it in range(3)]
    client.produce([(tp, batch("a")) for tp in tps])
    active = cluster.controller()
    assert active is not None
    cluster.kill(active)
    client.produce([(tp, batch("b")) for tp in tps])
    assert client.init_producer_id()[0] >= 0
    client.commit_offsets("without-controller", {tps[0]: 1})
    assert [read_all(client, tp) for tp in tps] == [[(0, "a"), (1, "b")]] * 3
    cluster.wait_for(controller=other_than(active))


def test_the_groups_coordinator_goes(cluster: SyncCluster, client: KafkaClient, topic: str) -> None:
    cluster.create_topic(topic, 1)
    tp = TopicPartition(topic, 0)
    client.commit_offsets("survivor", {tp: 3})
    coordinator = client._coordinators["survivor"]
    node = next(it.id for it in cluster.nodes.values() if it.kafka == f"{coordinator[0]}:{coordinator[1]}")
    cluster.kill(node)
    assert client.committed_offsets("survivor", [tp]) == {tp: 3}
    client.commit_offsets("survivor", {tp: 4})
    assert client.committed_offsets("survivor", [tp]) == {tp: 4}
    assert client._coordinators["survivor"] != coordinator


@pytest.mark.parametrize("how", ["kill", pytest.param("pause", marks=pytest.mark.slow), "another"])
def test_an_administrators_request_follows_the_leader(cluster: SyncCluster, client: KafkaClient, topic: str, how: str) -> None:
    """The leader that was looked up is dead by the time it is asked, or never was one."""
    cluster.create_topic(topic, replication_factor=3, config={"min.insync.replicas": "2"})
    client.produce([(TopicPartition(topic, 0), batch("a", "b"))])
    with cluster_at(cluster.bootstrap_servers) as admin:
        leaders = admin.leaders([topic])
        leader = leaders[topic, 0]
        assert leader is not None
        if how != "another":
            admin.brokers()
            getattr(cluster, how)(leader)
        else:
            leaders[topic, 0] = next(it for it in cluster.brokers if it != leader)
        assert list_offsets(admin, {(topic, 0): -1}, leaders) == {(topic, 0): (ErrorCode.NONE, 2, -1)}


def test_an_administrators_request_follows_the_coordinator(cluster: SyncCluster, client: KafkaClient, topic: str) -> None:
    cluster.create_topic(topic)
    client.commit_offsets("moved", {TopicPartition(topic, 0): 0})
    with cluster_at(cluster.bootstrap_servers) as admin:
        right = client._coordinators["moved"]
        wrong = next(it for it in admin.brokers().values() if (it.host, it.port) != right)
        admin._coordinating["moved"] = wrong
        assert delete_offsets(admin, "moved", [(topic, 0)]) == {(topic, 0): ErrorCode.NONE}
        assert admin._coordinating["moved"].address == f"{right[0]}:{right[1]}"
    assert client.committed_offsets("moved", [TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): None}


# --- processes and threads


def test_a_fork_gets_connections_of_its_own(cluster: SyncCluster, topic: str) -> None:
    """The inherited client and `client_for` both begin anew, and the parent's connections go on."""
    cluster.create_topic(topic, 1)
    tp = TopicPartition(topic, 0)
    settings = settings_of(cluster)
    client = client_for(settings)
    assert client_for(settings) is client
    client.produce([(tp, batch("a"))])
    connections = dict(client._connections)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        told = "failed"
        try:
            fresh = client_for(settings)
            inherited = client.produce([(tp, batch("b"))])[tp].base_offset
            own = fresh.produce([(tp, batch("c"))])[tp].base_offset
            told = f"{fresh is not client} {inherited} {own}"
        finally:
            os.write(writing, told.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "True 1 2"
    os.waitpid(child, 0)
    assert client.produce([(tp, batch("d"))])[tp] == ProduceResult(0, 3)
    assert client._connections == connections
    assert [value for _, value in read_all(client, tp)] == list("abcd")


def test_every_thread_has_a_client_of_its_own(cluster: SyncCluster) -> None:
    found: list[KafkaClient] = []
    other = threading.Thread(target=lambda: found.append(client_for(settings_of(cluster))))
    other.start()
    other.join()
    assert found[0] is not client_for(settings_of(cluster))
