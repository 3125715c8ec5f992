"""What a consumer is given and what a topic does to batches, through real clients and raw requests.

Source: RP-41 (KIP-392), LG-09 to LG-15, LG-50, CP-20, CP-22; KIP-110, KIP-390, KIP-734, KIP-937.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kraftlite.client.admin import list_offsets
from kraftlite.client.connection import code_of
from kraftlite.local.client import cluster_at
from kraftlite.log import codecs
from kraftlite.log.batch import Record, build_batch, iter_records, parse_header
from kraftlite.model.errors import ErrorCode
from tests.harness.embedded import QUICK, embedded
from tests.harness.local import Cluster, wait_for

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("embedded")]

E = ErrorCode
RACKS = ("a", "b", "c")


@pytest.fixture(scope="module")
def racked() -> Iterator[Cluster]:
    config = {
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "group.initial.rebalance.delay.ms": "0",
    }
    with embedded(controllers=1, brokers=3, config=config, racks=RACKS) as cluster:
        yield cluster


def made(*values: bytes, timestamp_ms: int | None = None, codec: int = codecs.NONE, deltas: tuple[int, ...] = ()) -> bytes:
    records = [Record(None, value, (), deltas[at] if deltas else 0, at) for at, value in enumerate(values)]
    now = int(time.time() * 1000)
    return build_batch(records, timestamp_ms=now if timestamp_ms is None else timestamp_ms, codec=codec)


def produce(cluster: Cluster, topic: str, records: bytes, *, version: int = 9) -> Any:
    """The partition's answer, from the leader of partition 0."""
    client = cluster_at(cluster.bootstrap)
    values = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 10_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": records}]}],
    }
    answer = client.call(0, version, values, broker=cluster.leader(topic))
    return answer.responses[0].partition_responses[0]


def fetch(
    cluster: Cluster,
    topic: str,
    offset: int,
    *,
    broker: int | None = None,
    rack: str = "",
    max_bytes: int = 1 << 20,
    partition_bytes: int = 1 << 20,
    version: int = 11,
) -> Any:
    client = cluster_at(cluster.bootstrap)
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": partition_bytes,
    }
    values = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": max_bytes,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": rack,
    }
    node = cluster.leader(topic) if broker is None else broker
    return client.call(1, version, values, broker=node).responses[0].partitions[0]


def offsets_at(cluster: Cluster, topic: str, timestamp: int) -> tuple[ErrorCode, int, int]:
    client = cluster_at(cluster.bootstrap)
    return list_offsets(client, {(topic, 0): timestamp}, client.leaders([topic]))[topic, 0]


# --- KIP-392


def test_rp_41_a_consumer_reads_from_the_replica_in_its_rack(racked: Cluster, topic: str) -> None:
    """The leader names the closest replica and sends nothing; that one serves below its HW, and real clients follow."""
    racked.create_topic(topic, assignment=[racked.brokers])
    leader = racked.wait_leader(topic)
    assert racked.produce(topic, ["1", "2", "3"]) == []
    closest = next(node for node in racked.brokers if node != leader)
    rack = RACKS[racked.brokers.index(closest)]
    wait_for("the leader knows that it caught up", lambda: fetch(racked, topic, 3, rack=rack).preferred_read_replica == closest)
    sent = fetch(racked, topic, 0, rack=rack)
    assert (sent.preferred_read_replica, sent.records) == (closest, b"")
    own = RACKS[racked.brokers.index(leader)]
    for where in (own, "nowhere", ""):
        here = fetch(racked, topic, 0, rack=where)
        assert here.preferred_read_replica == -1 and here.records, where
    served = wait_for("its HW has come", lambda: (it := fetch(racked, topic, 0, broker=closest, rack=rack)).records and it)
    assert (served.error_code.value, served.preferred_read_replica) == (0, -1)
    beyond = fetch(racked, topic, 99, broker=closest, rack=rack)
    assert code_of(beyond) is E.OFFSET_OUT_OF_RANGE
    assert code_of(fetch(racked, topic, 0, broker=closest, version=10)) is E.NOT_LEADER_OR_FOLLOWER
    assert racked.consume(topic, at_least=3, **{"client.rack": rack}) == ["1", "2", "3"]


def test_rp_41_the_leader_serves_when_the_closest_replica_is_gone(racked: Cluster, topic: str) -> None:
    racked.create_topic(topic, assignment=[racked.brokers])
    leader = racked.wait_leader(topic)
    assert racked.produce(topic, ["1"]) == []
    gone = next(node for node in racked.brokers if node != leader)
    rack = RACKS[racked.brokers.index(gone)]
    racked.kill(gone)
    try:
        racked.wait_isr(topic, set(racked.brokers) - {gone})
        here = fetch(racked, topic, 0, rack=rack)
        assert here.preferred_read_replica == -1 and here.records
    finally:
        racked.restart(gone)
        racked.wait_whole(topic)


# --- limits


def test_lg_50_a_fetch_returns_at_least_one_batch(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    for _ in range(3):
        assert produce(cluster, topic, made(b"x" * 1000)).error_code.value == 0
    one = len(fetch(cluster, topic, 0, max_bytes=1, partition_bytes=1).records)
    assert one > 1000
    assert len(fetch(cluster, topic, 0, partition_bytes=2 * one).records) == 2 * one
    assert len(fetch(cluster, topic, 0).records) == 3 * one


def test_lg_09_max_message_bytes_of_the_topic(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, config={"max.message.bytes": "500"})
    assert code_of(produce(cluster, topic, made(b"x" * 600))) is E.MESSAGE_TOO_LARGE
    assert produce(cluster, topic, made(b"x" * 300)).base_offset == 0


@pytest.mark.parametrize("magic", [0, 1])
def test_lg_14_old_formats_are_refused(cluster: Cluster, topic: str, magic: int) -> None:
    cluster.create_topic(topic)
    old = bytearray(made(b"x"))
    old[16] = magic
    refused = produce(cluster, topic, bytes(old))
    assert code_of(refused) is E.INVALID_RECORD and f"magic {magic}" in refused.error_message
    assert offsets_at(cluster, topic, -1)[1] == 0


# --- time


def test_lg_11_log_append_time(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, config={"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    answer = produce(cluster, topic, made(b"a", b"b", timestamp_ms=5))
    assert answer.error_code.value == 0
    header = parse_header(fetch(cluster, topic, 0).records)
    # The wall clock of this machine may be set between the two looks at it.
    assert header.is_log_append_time and abs(header.max_timestamp - before) < 60_000
    assert offsets_at(cluster, topic, header.max_timestamp)[1] == 0
    assert offsets_at(cluster, topic, header.max_timestamp + 1)[1] == -1


def test_lg_12_timestamps_too_early_and_too_late(cluster: Cluster, topic: str) -> None:
    """By hours: the wall clock of this machine may be set meanwhile, and a busy machine stands still for a minute."""
    limits = {"message.timestamp.before.max.ms": "3600000", "message.timestamp.after.max.ms": "3600000"}
    cluster.create_topic(topic, config=limits)
    now = int(time.time() * 1000)
    for timestamp, bad in ((now - 11_000_000, [0, 1]), (now, [1])):
        refused = produce(cluster, topic, made(b"a", b"b", timestamp_ms=timestamp, deltas=(0, 7_200_000)))
        assert code_of(refused) is E.INVALID_TIMESTAMP
        assert [one.batch_index for one in refused.record_errors] == bad
    assert produce(cluster, topic, made(b"a", timestamp_ms=now)).base_offset == 0


def test_cp_22_offsets_by_time(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    now = int(time.time() * 1000)
    for timestamp in (now - 3000, now - 1000, now - 2000):
        assert produce(cluster, topic, made(b"x", timestamp_ms=timestamp)).error_code.value == 0
    assert offsets_at(cluster, topic, -1) == (E.NONE, 3, -1)
    assert offsets_at(cluster, topic, -2)[1] == 0
    assert offsets_at(cluster, topic, -4)[1] == 0, "earliest local: nothing is tiered"
    assert offsets_at(cluster, topic, -5)[1] == -1, "latest tiered: nothing is tiered"
    assert offsets_at(cluster, topic, -3) == (E.NONE, 1, now - 1000)
    assert offsets_at(cluster, topic, now - 2500) == (E.NONE, 1, now - 1000)
    assert offsets_at(cluster, topic, now) == (E.NONE, -1, -1)


# --- compression


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_lg_13_the_topic_decides_on_the_codec(cluster: Cluster, topic: str, name: str) -> None:
    """What is stored has the topic's codec, whatever the producer's, and librdkafka reads it."""
    cluster.create_topic(topic, config={"compression.type": name})
    value = "kraftlite " * 200
    for codec in ("none", "gzip"):
        assert cluster.produce(topic, [value], **{"compression.type": codec}) == []
    wanted = codecs.CODECS_BY_NAME[name]
    for offset in (0, 1):
        stored = fetch(cluster, topic, offset).records
        assert parse_header(stored).codec == wanted
        assert next(iter(iter_records(stored))).value == value.encode()
    assert cluster.consume(topic, at_least=2) == [value, value]


def test_lg_13_levels(cluster: Cluster, topic: str) -> None:
    sizes = {}
    value = b"".join(f"{at * 7919 % 10007:05d} some text that repeats; ".encode() for at in range(2000))
    for level in ("1", "9"):
        name = f"{topic}-{level}"
        cluster.create_topic(name, config={"compression.type": "gzip", "compression.gzip.level": level})
        assert produce(cluster, name, made(value)).error_code.value == 0
        sizes[level] = len(fetch(cluster, name, 0).records)
    assert sizes["9"] < sizes["1"], sizes
    assert abs(sizes["9"] - len(gzip.compress(value, 9))) < 200


def test_lg_13_zstd_needs_new_clients(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, config={"compression.type": "zstd"})
    assert code_of(produce(cluster, topic, made(b"x", codec=codecs.ZSTD), version=6)) is E.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(cluster, topic, made(b"x", codec=codecs.ZSTD), version=7).error_code.value == 0
    assert code_of(fetch(cluster, topic, 0, version=9)) is E.UNSUPPORTED_COMPRESSION_TYPE
    assert fetch(cluster, topic, 0, version=10).records


def test_a_consumer_of_the_rack_that_there_is_not(racked: Cluster, topic: str) -> None:
    """A client's rack that no broker has: the leader serves, through librdkafka."""
    racked.create_topic(topic, assignment=[racked.brokers])
    racked.wait_leader(topic)
    assert racked.produce(topic, ["1"]) == []
    assert racked.consume(topic, at_least=1, **{"client.rack": "elsewhere", **QUICK}) == ["1"]
