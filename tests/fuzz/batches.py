"""Record batches: sound ones, and ones whose CRC is right and whose content is wrong.

`BROKEN` names what is refused, each with what makes it: all that Kafka refuses (LogValidator, DefaultRecordBatch; asked of a
running one with `tests.fuzz.asking`), and wrong record lengths in batches that are not compressed, which Kafka does not look at.
What is drawn beside it (`batch`) may be anything.
"""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from crc32c import crc32c

from kraftlite.log import codecs
from tests.fuzz import values
from tests.fuzz.mutate import damage
from tests.fuzz.values import pack, uvarint, varint

NOW_MS: Final = 1_760_000_000_000
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS: Final = (NONE, NONE, GZIP, SNAPPY, LZ4, ZSTD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rec:
    """One record as it is written: each number may be a lie."""

    offset_delta: int
    timestamp_delta: int = 0
    attributes: int = 0
    key: bytes | None = b"k"
    value: bytes | None = b"value"
    headers: tuple[tuple[bytes | None, bytes | None], ...] = ()
    length: int | None = None
    key_length: int | None = None
    value_length: int | None = None
    header_count: int | None = None
    tail: bytes = b""

    def encode(self) -> bytes:
        body = pack("b", self.attributes) + varint(self.timestamp_delta) + varint(self.offset_delta)
        body += _blob(self.key, self.key_length) + _blob(self.value, self.value_length)
        body += varint(len(self.headers) if self.header_count is None else self.header_count)
        body += b"".join(_blob(key) + _blob(value) for key, value in self.headers) + self.tail
        return varint(len(body) if self.length is None else self.length) + body


def _blob(data: bytes | None, length: int | None = None) -> bytes:
    if data is None:
        return varint(-1 if length is None else length)
    return varint(len(data) if length is None else length) + data


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch as it is written. What is None is what it ought to be."""

    records: tuple[Rec, ...]
    codec: int = NONE
    attributes: int = 0
    base_offset: int = 0
    length: int | None = None
    leader_epoch: int = -1
    magic: int = 2
    crc: int | None = None
    last_offset_delta: int | None = None
    base_timestamp: int = NOW_MS
    max_timestamp: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    count: int | None = None
    payload: bytes | None = None
    """What is behind the header, instead of the records."""

    def encode(self) -> bytes:
        payload = self.payload
        if payload is None:
            payload = codecs.compress(self.codec, self.plain()) if self.codec else self.plain()
        number = len(self.records)
        latest = max((it.timestamp_delta for it in self.records), default=0)
        covered = pack("h", self.attributes | self.codec)
        covered += pack("i", number - 1 if self.last_offset_delta is None else self.last_offset_delta)
        covered += pack("q", self.base_timestamp)
        covered += pack("q", self.base_timestamp + latest if self.max_timestamp is None else self.max_timestamp)
        covered += pack("q", self.producer_id) + pack("h", self.producer_epoch) + pack("i", self.base_sequence)
        covered += pack("i", number if self.count is None else self.count) + payload
        crc = crc32c(covered) if self.crc is None else self.crc
        rest = pack("i", self.leader_epoch) + pack("b", self.magic) + struct.pack(">I", crc & 0xFFFFFFFF) + covered
        return pack("q", self.base_offset) + pack("i", len(rest) if self.length is None else self.length) + rest

    def plain(self) -> bytes:
        return b"".join(it.encode() for it in self.records)


def sound(rng: random.Random, *, count: int | None = None, codec: int | None = None) -> Batch:
    number = rng.choice((1, 1, 2, 3, 10)) if count is None else count
    records = tuple(Rec(offset_delta=n, timestamp_delta=n, value=b"v%d" % n) for n in range(number))
    return Batch(records=records, codec=rng.choice(CODECS) if codec is None else codec)


def coordinator_records(rng: random.Random) -> Batch:
    """States of transactional ids as `__transaction_state` has them: whole, with fields at the ends of their ranges, damaged, and
    of later versions. In the topic of groups they are records of a kind that is newer, or broken."""
    records = tuple(
        Rec(offset_delta=n, key=_state_key(rng), value=_state_value(rng) if rng.randrange(8) else None)
        for n in range(rng.choice((1, 1, 3)))
    )
    transactional = (
        {"attributes": 0x10, "producer_id": 1, "producer_epoch": 0, "base_sequence": 0} if rng.randrange(8) == 0 else {}
    )
    return Batch(records=records, codec=rng.choice(CODECS), **transactional)


def _state_key(rng: random.Random) -> bytes | None:
    name = rng.choice(values.TRANSACTIONS).encode()
    key = pack("h", rng.choice((0, 0, 0, 1, 3, -1, 32767))) + pack("h", len(name)) + name
    return damage(key, rng) if rng.randrange(8) == 0 else rng.choice((key, key, key, key, b"", None))


def _state_value(rng: random.Random) -> bytes:
    version = rng.choice((0, 0, 1, 1, 2, -1))
    flexible = version >= 1

    def text(name: bytes) -> bytes:
        return (uvarint(len(name) + 1) if flexible else pack("h", len(name))) + name

    def count(number: int) -> bytes:
        return uvarint(number + 1) if flexible else pack("i", number)

    topics = [
        (rng.choice(values.TOPICS).encode(), [values.integer(rng, 32) for _ in range(rng.randrange(3))])
        for _ in range(rng.randrange(3))
    ]
    end = b"\x00" if flexible else b""
    parts = b"".join(text(name) + count(len(found)) + b"".join(pack("i", it) for it in found) + end for name, found in topics)
    tags = (
        b""
        if not flexible
        else rng.choice(
            (b"\x00", b"\x01\x02\x02\x00\x02", b"\x03\x00\x08" + bytes(8) + b"\x01\x08" + b"\xff" * 8 + b"\x02\x02\x7f\xff")
        )
    )
    value = (
        pack("h", version)
        + pack("q", values.integer(rng, 64))
        + pack("h", values.integer(rng, 16))
        + pack("i", values.integer(rng, 32))
        + pack("b", rng.choice((0, 1, 2, 3, 4, 5, 6, 7, 8, -1)) if rng.randrange(4) == 0 else rng.choice((0, 1, 2, 3, 4, 5)))
        + (count(-1) if rng.randrange(4) == 0 else count(len(topics)) + parts)
        + pack("q", values.integer(rng, 64))
        + pack("q", values.integer(rng, 64))
        + tags
    )
    return damage(value, rng) if rng.randrange(5) == 0 else value


Make = Callable[[random.Random], Batch]


def _with(**changes: Any) -> Make:
    return lambda rng: replace(sound(rng, count=3), **changes)


def _plain(**changes: Any) -> Make:
    """Uncompressed, so that the header alone can show it."""
    return lambda rng: replace(sound(rng, count=3, codec=NONE), **changes)


def _record(**changes: Any) -> Make:
    """The middle one of three records is changed."""

    def make(rng: random.Random) -> Batch:
        batch = sound(rng, count=3)
        first, middle, last = batch.records
        return replace(batch, records=(first, replace(middle, **changes), last))

    return make


def _payload(codec: int, data: bytes) -> Make:
    return lambda rng: replace(sound(rng, count=3, codec=codec), payload=data)


def _cut(rng: random.Random) -> Batch:
    batch = sound(rng, count=3, codec=NONE)
    return replace(batch, payload=batch.plain()[:-3])


def _left_over(rng: random.Random) -> Batch:
    batch = sound(rng, count=3, codec=NONE)
    return replace(batch, payload=batch.plain() + Rec(offset_delta=3).encode())


def _compressed_left_over(rng: random.Random) -> Batch:
    batch = sound(rng, count=3, codec=NONE)
    data = batch.plain() + Rec(offset_delta=3).encode()
    codec = rng.choice((GZIP, SNAPPY, LZ4, ZSTD))
    return replace(batch, codec=codec, payload=codecs.compress(codec, data))


def _compressed_delta(rng: random.Random) -> Batch:
    batch = sound(rng, count=3, codec=rng.choice((GZIP, LZ4, ZSTD)))
    first, middle, last = batch.records
    return replace(batch, records=(first, replace(middle, offset_delta=rng.choice((0, 2, 7, -1))), last))


_BAD_VARINT: Final = b"\xff" * 11

BROKEN: Final[dict[str, Make]] = {
    "count-huge": _with(count=2**31 - 1, last_offset_delta=2**31 - 2),
    "count-more-than-records": _with(count=5, last_offset_delta=4),
    "count-less-than-records": _with(count=2, last_offset_delta=1),
    "count-zero": _with(count=0),
    "count-negative": _with(count=-1),
    "count-not-of-range": _with(count=2),
    "last-delta-negative": _with(last_offset_delta=-1),
    "last-delta-huge": _with(last_offset_delta=2**31 - 1),
    "last-delta-one-more": _with(last_offset_delta=3),
    "no-records": lambda rng: Batch(records=(), count=0, last_offset_delta=0),
    "control": _with(attributes=0x20),
    "record-length-negative": _record(length=-50),
    "record-length-zero": _record(length=0),
    "record-length-one-more": _record(length=18),
    "record-length-huge": _record(length=2**31 - 1),
    "key-length-huge": _record(key_length=2**31 - 1),
    "value-length-beyond": _record(value_length=10_000),
    "header-count-huge": _record(header_count=2**31 - 1),
    "header-count-negative": _record(header_count=-1),
    "header-key-null": _record(headers=((None, b"v"),)),
    "varint-broken": _payload(NONE, _BAD_VARINT * 3),
    "varint-cut": _payload(NONE, b"\x80"),
    "payload-empty": _payload(NONE, b""),
    "payload-zeros": _payload(NONE, bytes(40)),
    "payload-cut": _cut,
    "payload-left-over": _left_over,
    "compressed-left-over": _compressed_left_over,
    "compressed-delta-wrong": _compressed_delta,
    "codec-gzip-not-gzip": _payload(GZIP, b"not gzip at all"),
    "codec-snappy-not-snappy": _payload(SNAPPY, b"\xff\xff\xff\xff\x0fnot"),
    "codec-lz4-not-lz4": _payload(LZ4, b"\x04\x22\x4d\x18nope"),
    "codec-zstd-not-zstd": _payload(ZSTD, b"\x28\xb5\x2f\xfdnope"),
    "codec-gzip-empty": _payload(GZIP, gzip.compress(b"")),
    "codec-unknown-5": _payload(5, b"x"),
    "codec-unknown-7": _payload(7, b""),
    "magic-3": _with(magic=3),
    "magic-negative": _with(magic=-1),
    "crc-wrong": _with(crc=1),
    "length-zero": _with(length=0),
    "length-negative": _with(length=-1),
    "length-beyond": _with(length=2**31 - 1),
    "sequence-missing": _with(producer_id=5, producer_epoch=0, base_sequence=-1),
}
"""What is refused: never acknowledged, appended or served."""

ODD: Final[dict[str, Make]] = {
    "delta-two-alike": _record(offset_delta=0),
    "delta-beyond": _record(offset_delta=2**31 - 1),
    "delta-negative": _record(offset_delta=-5),
    "timestamp-delta-huge": _record(timestamp_delta=2**62),
    "timestamp-delta-negative": _record(timestamp_delta=-(2**62)),
    "max-timestamp-huge": _with(max_timestamp=2**62),
    "max-timestamp-negative": _with(max_timestamp=-(2**63)),
    "base-timestamp-huge": _with(base_timestamp=2**63 - 1),
    "base-timestamp-negative": _with(base_timestamp=-(2**63)),
    "record-attributes": _record(attributes=-1),
    "transactional": _with(attributes=0x10, producer_id=5, producer_epoch=0, base_sequence=0),
    "delete-horizon": _with(attributes=0x40),
    "attributes-unused": _with(attributes=0x7F80),
    "append-time": _with(attributes=0x08),
    "producer-id-negative": _with(producer_id=-7, producer_epoch=-7, base_sequence=-7),
    "producer-epoch-negative": _with(producer_id=5, producer_epoch=-7, base_sequence=0),
    "sequence-wraps": _with(producer_id=2**63 - 1, producer_epoch=2**15 - 1, base_sequence=2**31 - 1),
    "base-offset-huge": _with(base_offset=2**63 - 1),
    "base-offset-negative": _with(base_offset=-(2**63)),
    "leader-epoch-huge": _with(leader_epoch=2**31 - 1),
    "header-key-not-text": _record(headers=((b"\xff\xfe", b"v"),)),
    "headers-many": _record(headers=tuple((b"h", b"") for _ in range(2000))),
    "key-null": _record(key=None),
    "value-null": _record(value=None),
}
"""What may be taken, if what is served afterwards is sound."""


def _bomb(rng: random.Random) -> bytes:
    """Much in little: decompressed it is far beyond any limit."""
    codec = rng.choice((GZIP, ZSTD, SNAPPY, LZ4))
    size = rng.choice((1 << 20, 8 << 20, 64 << 20))
    data = codecs.compress(codec, bytes(size))
    if codec == GZIP and rng.randrange(2):
        data = gzip.compress(b"\x00") * 500
    return replace(sound(rng, count=3, codec=codec), payload=data).encode()


def _many_empty(rng: random.Random) -> bytes:
    """As many records as can be: the cost is per record."""
    number = rng.choice((10_000, 60_000))
    record = Rec(offset_delta=0, key=None, value=None).encode()
    codec = rng.choice((NONE, GZIP, ZSTD))
    payload = record * number
    batch = Batch(records=(), count=number, last_offset_delta=number - 1, codec=codec)
    return replace(batch, payload=codecs.compress(codec, payload) if codec else payload).encode()


def _fuzzed_header(rng: random.Random) -> bytes:
    name, bits = rng.choice(
        (
            ("last_offset_delta", 32),
            ("count", 32),
            ("base_timestamp", 64),
            ("max_timestamp", 64),
            ("producer_id", 64),
            ("producer_epoch", 16),
            ("base_sequence", 32),
            ("attributes", 16),
            ("length", 32),
            ("magic", 8),
            ("base_offset", 64),
            ("leader_epoch", 32),
        )
    )
    return replace(sound(rng), **{name: values.integer(rng, bits)}).encode()


def _fuzzed_record(rng: random.Random) -> bytes:
    name = rng.choice(("length", "key_length", "value_length", "header_count", "offset_delta", "timestamp_delta"))
    bits = 64 if name == "timestamp_delta" else 32
    return _record(**{name: values.integer(rng, bits)})(rng).encode()


def _fuzzed_payload(rng: random.Random) -> bytes:
    batch = sound(rng, count=3)
    plain = damage(batch.plain(), rng)
    if batch.codec == NONE:
        return replace(batch, payload=plain).encode()
    if rng.randrange(2):
        return replace(batch, payload=codecs.compress(batch.codec, plain)).encode()
    return replace(batch, payload=damage(codecs.compress(batch.codec, batch.plain()), rng)).encode()


def batch(rng: random.Random) -> bytes:
    """Any record data for a Produce request."""
    kind = rng.randrange(16)
    if kind < 4:
        return sound(rng).encode()
    if kind < 7:
        return rng.choice(list(BROKEN.values()))(rng).encode()
    if kind < 9:
        return rng.choice(list(ODD.values()))(rng).encode()
    if kind == 9:
        return _fuzzed_header(rng)
    if kind == 10:
        return _fuzzed_record(rng)
    if kind == 11:
        return _fuzzed_payload(rng)
    if kind == 12:
        return sound(rng).encode() + rng.choice((sound(rng).encode(), b"\x00", values.junk(rng)))
    if kind == 13:
        return damage(sound(rng).encode(), rng)
    if kind == 14:
        return rng.choice((_bomb, _many_empty))(rng) if rng.randrange(8) == 0 else _old_format(rng)
    return values.junk(rng)


def _old_format(rng: random.Random) -> bytes:
    """A message set of magic 0 or 1, as clients before 0.11 sent it."""
    magic = rng.choice((0, 1))
    body = pack("b", magic) + pack("b", rng.choice((0, 0, 1, 2, 3))) + (pack("q", NOW_MS) if magic else b"")
    body += pack("i", -1) + pack("i", 5) + b"value"
    return pack("q", 0) + pack("i", len(body) + 4) + pack("i", rng.getrandbits(32)) + body


__all__ = ["BROKEN", "ODD", "Batch", "Rec", "batch", "sound", "uvarint"]
