"""Batches that are odd as a whole, sent to both clusters in each version of Produce: what is said, and what is stored then.

`compare_records` has the batches that are odd inside. What is stored is read back: its header, and what its records say.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from kraftlite.log import codecs
from kraftlite.log.batch import DELETE_HORIZON_BIT, iter_records, parse_header
from tests.clients.compare_sides import Side
from tests.clients.compare_transactions import Talk, Who, add, prepared
from tests.harness.poison import CODECS, GOOD, NOW, batch_of, fields, record, sized, varint

PATIENCE_MS: Final = 20_000
VERSIONS: Final = (3, 6, 7, 9, 12)
HIGHEST_SEQUENCE: Final = 2**31 - 1
HIGHEST_EPOCH: Final = 2**15 - 1
FAR: Final = 2**63 - 1


def sent(
    side: Side, topic: str, records: bytes, *, version: int = 9, transactional_id: str | None = None, stored: bool = True
) -> Any:
    """The code, the records that are named, and what is stored of it."""
    body = {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout": PATIENCE_MS,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": records}]}],
    }
    answer = side.call(0, version, body, node=side.leader(topic))
    if "responses" not in answer:
        return answer
    (one,) = (of for told in answer["responses"] for of in told["partition_responses"])
    told = [one["error_code"], [it["batch_index"] for it in one.get("record_errors", ())]]
    if one["error_code"] == "none" and stored:
        told += _stored(side, topic, one["base_offset"])
    return told


def _stored(side: Side, topic: str, offset: int) -> list[Any]:
    row = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": offset, "last_fetched_epoch": -1, "log_start_offset": -1}
    limits = {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 100_000, "isolation_level": 0}
    session = {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": ""}
    topics = [{"topic": topic, "partitions": [{**row, "partition_max_bytes": 100_000}]}]
    answer = side.call(1, 12, {**limits, **session, "topics": topics}, node=side.leader(topic))
    (it,) = (it for one in answer["responses"] for it in one["partitions"])
    found = bytes.fromhex(it["records"] or "")
    header = parse_header(found)
    whole = found[: header.size_bytes]
    # who is younger than this century did not say so itself, but was given the time of the broker
    times = [at if at < NOW + 1000 or at > 2**60 else "now" for at in (header.base_timestamp, header.max_timestamp)]
    producer = [header.producer_id >= 0, header.producer_epoch, header.base_sequence]
    shape = [hex(header.attributes & 0xFFFF), header.last_offset_delta, header.count, header.partition_leader_epoch >= 0]
    if header.attributes & DELETE_HORIZON_BIT:
        times[0] = "a horizon"
    return [*shape, *times, *producer, [[*it] for it in iter_records(whole)]]


def _message(magic: int, *, attributes: int = 0, key: bytes | None = b"k", value: bytes | None = b"v", offset: int = 0) -> bytes:
    """A message of the formats before record batches."""
    times = struct.pack(">q", NOW) if magic else b""
    parts = b"".join(struct.pack(">i", -1 if it is None else len(it)) + (it or b"") for it in (key, value))
    inside = struct.pack(">bb", magic, attributes) + times + parts
    return struct.pack(">qiI", offset, len(inside) + 4, zlib.crc32(inside)) + inside


def _wholes() -> Iterator[tuple[str, bytes]]:
    """What stands in the place of one batch."""
    good, other = bytes(batch_of(GOOD, 3)), bytes(batch_of(record(fields(0)), 1))
    for magic in (0, 1):
        old = _message(magic)
        yield f"a message of format {magic}", old
        yield f"two messages of format {magic}", old + _message(magic, offset=1)
        yield f"a wrapped message of format {magic}", _message(magic, attributes=1, value=codecs.compress(codecs.GZIP, old))
        yield f"a batch, then a message of format {magic}", good + old
        yield f"a message of format {magic}, then a batch", old + good
    yield "two batches", good + other
    yield "two batches, the second corrupt", good + other[:-1] + b"\xff"
    yield "two batches, the second cut off", good + other[:-3]
    yield "a batch, then a byte", good + b"\0"
    yield "a batch, then zeros", good + bytes(100)
    yield "the header alone", good[:61]
    yield "sixty bytes", good[:60]
    inside = bytes(batch_of(GOOD, 3))
    for codec in CODECS[1:]:
        name = codecs.CODEC_NAMES[codec]
        twice = codecs.compress(codec, codecs.compress(codec, GOOD))
        yield f"{name} in {name}", bytes(batch_of(GOOD, 3, codec=codec, packed=twice))
        yield f"a batch in {name}", bytes(batch_of(inside, 3, codec=codec))
        yield f"no record in {name}", bytes(batch_of(b"", 0, codec=codec))
        yield f"control in {name}", bytes(batch_of(GOOD, 3, codec=codec, attributes=0x20 | codec))
    yield "no record", bytes(batch_of(b"", 0))


def wholes(side: Side) -> Any:
    """In each version; one that is of zstd, too."""
    side.create("odd-wholes", [[1, 2, 3]])
    found: dict[str, Any] = {}
    for name, whole in _wholes():
        for version in VERSIONS:
            found[f"{name}, v{version}"] = sent(side, "odd-wholes", whole, version=version)
    for version in range(3, 13):
        found[f"zstd, v{version}"] = sent(side, "odd-wholes", bytes(batch_of(GOOD, 3, codec=codecs.ZSTD)), version=version)
    poisoned = bytes(batch_of(GOOD[:-1], 3, codec=codecs.ZSTD))
    for version in (3, 6, 7):
        found[f"zstd and cut off, v{version}"] = sent(side, "odd-wholes", poisoned, version=version)
    return found


def _headers() -> Iterator[tuple[str, bytes, dict[str, int]]]:
    """(name, body of three records, header)."""
    for offset in (-1, 1, FAR, -FAR - 1):
        yield f"base offset {offset}", GOOD, {"base_offset": offset}
    for epoch in (-(2**31), -2, 0, 77):
        yield f"leader epoch {epoch}", GOOD, {"epoch": epoch}
    for bits in (0x40, 0x80, 0x4000, 0x8000 - 2**16, 0xFFC0 - 2**16):
        for highest in (NOW, 5):
            yield f"attributes {bits:#x}, highest timestamp {highest - NOW}", GOOD, {"attributes": bits, "max_timestamp": highest}
    for at in (-FAR - 1, -2, -1, 0, FAR):
        body = b"".join(record(fields(n)) for n in range(3))
        yield f"base timestamp {at}", body, {"base_timestamp": at, "max_timestamp": at}
        yield f"highest timestamp {at}", body, {"max_timestamp": at}
    for delta in (-FAR - 1, FAR, -NOW, -NOW - 1, -NOW - 2):
        yield f"timestamp delta {delta}", record(fields(0, timestamp=delta)) + GOOD[len(GOOD) // 3 :], {}
    falling = b"".join(record(fields(n, timestamp=-n * 10)) for n in range(3))
    yield "falling times", falling, {}
    longest = record(fields(0, headers=varint(3) + (sized(b"a") + sized(None)) * 3)) + GOOD[len(GOOD) // 3 :]
    yield "the same header thrice", longest, {}
    for who in (
        (-2, -1, -1),
        (-2, 0, 0),
        (-1, 5, -1),
        (-1, -1, 5),
        (-1, 0, 0),
        (7, -1, -1),
        (7, 0, -1),
        (7, -1, 0),
        (7, -2, 0),
        (7, 0, -2),
    ):
        producer = dict(zip(("producer_id", "producer_epoch", "base_sequence"), who, strict=True))
        yield f"producer {who}", GOOD, producer


def headers(side: Side) -> Any:
    """What a header says, in topics of each kind: what is stored of it."""
    found: dict[str, Any] = {}
    kinds: Mapping[str, Mapping[str, str]] = {
        "plain": {},
        "append time": {"message_timestamp_type": "LogAppendTime"},
        "any time": {"message_timestamp_after_max_ms": str(FAR), "message_timestamp_before_max_ms": str(FAR)},
        "not later": {"message_timestamp_after_max_ms": "0", "message_timestamp_before_max_ms": "0"},
        "uncompressed": {"compression_type": "uncompressed"},
        "zstd": {"compression_type": "zstd"},
        "compacted": {"cleanup_policy": "compact"},
    }
    for kind, configs in kinds.items():
        topic = f"odd-headers-{kind.replace(' ', '-')}"
        side.create(topic, [[1, 2, 3]], **configs)
        for name, body, header in _headers():
            for codec in (codecs.NONE, codecs.GZIP):
                told = {**header, "attributes": header.get("attributes", 0) | codec}
                where = f"{kind}, {codecs.CODEC_NAMES[codec]}: {name}"
                found[where] = sent(side, topic, bytes(batch_of(body, 3, codec=codec, packed=None, **told)))
    return found


def sequences(side: Side) -> Any:
    """At the ends of what a sequence and an epoch can be."""
    side.create("odd-sequences", [[1, 2, 3]])
    body = {count: b"".join(record(fields(n)) for n in range(count)) for count in (1, 2, 3, 5)}
    found: dict[str, Any] = {}
    for start in (HIGHEST_SEQUENCE, HIGHEST_SEQUENCE - 1, HIGHEST_SEQUENCE - 2, 0, 1):
        producer = 5_000_000 + HIGHEST_SEQUENCE - start
        steps = [(3, start), (3, start), (1, start), (3, (start + 3) & HIGHEST_SEQUENCE), (1, (start + 5) & HIGHEST_SEQUENCE)]
        steps += [(1, 0), (2, HIGHEST_SEQUENCE), (5, (start + 6) & HIGHEST_SEQUENCE)]
        for at, (count, sequence) in enumerate(steps):
            header = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
            found[f"from {start - HIGHEST_SEQUENCE}, step {at}"] = sent(
                side, "odd-sequences", bytes(batch_of(body[count], count, packed=None, **header))
            )
    for at, (epoch, sequence) in enumerate(
        ((0, 0), (HIGHEST_EPOCH, 1), (HIGHEST_EPOCH, 0), (HIGHEST_EPOCH, 1), (0, 2), (HIGHEST_EPOCH - 1, 0), (HIGHEST_EPOCH, 2))
    ):
        header = {"producer_id": FAR, "producer_epoch": epoch, "base_sequence": sequence}
        found[f"epochs, step {at}"] = sent(side, "odd-sequences", bytes(batch_of(body[1], 1, packed=None, **header)))
    return found


def _of_a_transaction(who: Who, *, bits: int, sequence: int = 0, epoch: int = 0, body: bytes = GOOD, count: int = 3) -> bytes:
    header = {"producer_id": who.producer_id, "producer_epoch": who.epoch + epoch, "base_sequence": sequence, "attributes": bits}
    return bytes(batch_of(body, count, packed=None, **header))


def transactional(side: Side) -> Any:
    """A control batch, or one that is half in a transaction, of a producer whose transaction is open, or is not."""
    prepared(side)
    talk = Talk(side)
    marker = record(fields(0, key=sized(bytes((0, 0, 0, 1))), value=sized(bytes(6))))
    found: dict[str, Any] = {}
    for is_open in (False, True):
        for version in (9, 11, 12):
            for name, bits, body, count in (
                ("control", 0x20, GOOD, 3),
                ("a marker", 0x30, marker, 1),
                ("a marker outside", 0x20, marker, 1),
                ("transactional", 0x10, GOOD, 3),
                ("not transactional", 0, GOOD, 3),
                ("append time", 0x18, GOOD, 3),
            ):
                for whose in ("its own", "none", "another", "empty"):
                    who = talk.begun(5)
                    if is_open:
                        add(3)(talk, who)
                    told = {"its own": who.name, "none": None, "another": "nobody", "empty": ""}[whose]
                    sends = _of_a_transaction(who, bits=bits, body=body, count=count)
                    where = f"{'open' if is_open else 'not open'}, v{version}, {name}, id: {whose}"
                    found[where] = sent(side, "in-transactions", sends, version=version, transactional_id=told)
    return found


STORIES: Final[Mapping[str, Callable[[Side], Any]]] = {
    "batches, odd wholes": wholes,
    "batches, odd headers": headers,
    "batches, odd sequences": sequences,
    "batches, odd transactions": transactional,
}
