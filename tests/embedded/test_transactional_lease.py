"""A produce that waits for its transaction's coordinator lies in the buffer of its connection: what comes behind it neither
overtakes nor overwrites it. The wire, the leader, its gate and the coordinator are those of a node. Source: TP-03; CP-01."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from kraftlite.log.batch import Record, build_batch
from kraftlite.testing import SyncCluster
from tests.fuzz.client import Client, fetch, values_of
from tests.harness.local import wait_for
from tests.harness.wire_fakes import decode_response, request_bytes

PRODUCE, FIND, INIT, END = 0, 10, 22, 26
NAME = "payer"
CONFIG = {
    "transaction.state.log.num.partitions": "1",
    "add.partitions.to.txn.retry.backoff.ms": "5",
    "add.partitions.to.txn.retry.backoff.max.ms": "20000",
}
LARGE = 200_000
"""Bytes: more than the buffer of a connection that has nothing to do."""


@pytest.fixture
def cluster() -> Iterator[SyncCluster]:
    with SyncCluster(controllers=1, brokers=1, combined=True, config=CONFIG) as found:
        found.create_topic("t", partitions=1)
        yield found


def produce(batch: bytes, transactional_id: str | None) -> dict[str, Any]:
    part = {"index": 0, "records": batch}
    topic = {"name": "t", "partition_data": [part]}
    return {"transactional_id": transactional_id, "acks": -1, "timeout": 20_000, "topic_data": [topic]}


def test_tp_03_a_waiting_produce_is_neither_overtaken_nor_overwritten(cluster: SyncCluster) -> None:
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    client = Client((host, int(port)))
    wait_for("a coordinator", lambda: int(client.call(FIND, 3, {"key": NAME, "key_type": 1}).error_code) == 0)
    asked = {"transactional_id": NAME, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    tries: list[Any] = []

    def producer() -> Any:
        tries.append(client.call(INIT, 4, asked))
        return not int(tries[-1].error_code) and tries[-1]

    began = wait_for("a producer id", producer)

    def batch(value: bytes, epoch: int) -> bytes:
        identity = {"producer_id": began.producer_id, "producer_epoch": epoch, "base_sequence": 0}
        return bytes(build_batch([Record(None, value)], timestamp_ms=1, transactional=True, **identity))

    first = client.call(PRODUCE, 11, produce(batch(b"first", began.producer_epoch), NAME))
    assert int(first.responses[0].partition_responses[0].error_code) != 0, "version 11 adds no partition by itself"
    answer = client.call(PRODUCE, 12, produce(batch(b"first", began.producer_epoch), NAME))
    assert int(answer.responses[0].partition_responses[0].error_code) == 0
    cluster.hold_markers()
    ended = {"transactional_id": NAME, "producer_id": began.producer_id, "producer_epoch": began.producer_epoch}
    assert int(client.call(END, 5, {**ended, "committed": True}).error_code) == 0

    wanted = b"w" * LARGE
    behind = bytes(build_batch([Record(None, b"b" * LARGE)], timestamp_ms=1))
    frames = [
        request_bytes(PRODUCE, 12, produce(batch(wanted, began.producer_epoch + 1), NAME), 1),
        request_bytes(PRODUCE, 12, produce(behind, None), 2),
        request_bytes(FIND, 3, {"key": NAME, "key_type": 1}, 3),
    ]
    with socket.create_connection((host, int(port)), timeout=30) as sock, sock.makefile("rb") as answers:
        sock.sendall(b"".join(struct.pack(">i", len(it)) + it for it in frames))
        sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            sock.recv(1)
        assert values_of(fetch(client, "t", 0, 0)[1]) == [b"first"], "what came behind waits, too"
        cluster.release_markers()
        sock.settimeout(30)
        found = [answers.read(struct.unpack(">i", answers.read(4))[0]) for _ in frames]
    assert [struct.unpack(">i", it[:4])[0] for it in found] == [1, 2, 3]
    errors = [int(decode_response(PRODUCE, 12, it).responses[0].partition_responses[0].error_code) for it in found[:2]]
    assert errors == [0, 0]
    records = values_of(fetch(client, "t", 0, 2)[1])
    assert [it[:1] for it in records] == [b"w", b"b"] and records == [wanted, b"b" * LARGE]
    client.close()
