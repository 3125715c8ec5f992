"""AddPartitionsToTxn and EndTxn by hand against kio, byte for byte, for every version that is read and written so."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kraftlite.protocol.errors import ProtocolViolation
from kraftlite.protocol.kio_codec import decode_request, encode_request, encode_response
from kraftlite.wire import transactions_codec as codec

ADD, END = 24, 26
ADD_VERSIONS = range(codec.ADD_PARTITIONS_UP_TO + 1)
END_VERSIONS = range(codec.END_TXN_UP_TO + 1)
SEEDS = range(6)


def view(body: bytes) -> memoryview:
    """As a connection holds it, with other bytes before."""
    return memoryview(bytearray(b"????" + body))


def adding(rng: random.Random) -> dict[str, object]:
    topics = [
        {
            "name": f"topic-{'é' * rng.randrange(80)}{index}",
            "partitions": [rng.randrange(1 << 31) for _ in range(rng.randrange(4))],
        }
        for index in range(rng.randrange(4))
    ]
    return {
        "v3_and_below_transactional_id": "t" * rng.choice((0, 1, 200)),
        "v3_and_below_producer_id": rng.randrange(1 << 62),
        "v3_and_below_producer_epoch": rng.randrange(-1, 1 << 15),
        "v3_and_below_topics": topics,
    }


def ending(rng: random.Random) -> dict[str, object]:
    return {
        "transactional_id": "t" * rng.choice((0, 1, 200)),
        "producer_id": rng.randrange(1 << 62),
        "producer_epoch": rng.randrange(-1, 1 << 15),
        "committed": rng.random() < 0.5,
    }


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("version", ADD_VERSIONS)
def test_add_partitions(version: int, seed: int) -> None:
    rng = random.Random(seed)
    asked = adding(rng)
    body = encode_request(ADD, version, asked)
    found, read = codec.parse_add_partitions(view(body), 4, version), decode_request(ADD, version, view(body), 4)
    assert found[:3] == (
        read.v3_and_below_transactional_id,
        read.v3_and_below_producer_id,
        read.v3_and_below_producer_epoch,
    )
    assert [(it.name, tuple(it.partitions)) for it in found.v3_and_below_topics] == [
        (it.name, tuple(it.partitions)) for it in read.v3_and_below_topics
    ]
    results: list[Any] = [
        {
            "name": it.name,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": rng.choice((0, 51, 90))} for index in it.partitions
            ],
        }
        for it in read.v3_and_below_topics
    ]
    values = {"throttle_time": 0, "results_by_topic_v3_and_below": results}
    assert codec.encode_add_partitions(version, values) == encode_response(ADD, version, values)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("version", END_VERSIONS)
def test_end_txn(version: int, seed: int) -> None:
    rng = random.Random(seed)
    body = encode_request(END, version, ending(rng))
    found, read = codec.parse_end_txn(view(body), 4, version), decode_request(END, version, view(body), 4)
    assert found == (read.transactional_id, read.producer_id, read.producer_epoch, read.committed)
    values = {
        "throttle_time": 0,
        "error_code": rng.choice((0, 51, 90)),
        "producer_id": rng.randrange(-1, 99),
        "producer_epoch": 7,
    }
    assert codec.encode_end_txn(version, values) == encode_response(END, version, values)


@pytest.mark.parametrize("version", ADD_VERSIONS)
def test_every_truncation_of_an_add_is_a_violation(version: int) -> None:
    body = encode_request(ADD, version, adding(random.Random(3)))
    for size in range(len(body)):
        with pytest.raises(ProtocolViolation):
            codec.parse_add_partitions(view(body[:size]), 4, version)


@pytest.mark.parametrize("version", END_VERSIONS)
def test_every_truncation_of_an_end_is_a_violation(version: int) -> None:
    body = encode_request(END, version, ending(random.Random(3)))
    for size in range(len(body)):
        with pytest.raises(ProtocolViolation):
            codec.parse_end_txn(view(body[:size]), 4, version)


def test_unknown_tagged_fields_are_passed_over() -> None:
    body = encode_request(END, 5, ending(random.Random(3)))
    assert body[-1:] == b"\x00"
    assert codec.parse_end_txn(view(body[:-1] + b"\x01\x63\x02ab"), 4, 5) == codec.parse_end_txn(view(body), 4, 5)
