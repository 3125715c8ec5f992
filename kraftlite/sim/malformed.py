"""Record batches that no client library would send: a right CRC over wrong content, made from a sound batch.

A broker that validates as Kafka does refuses each (LG-09 to LG-11). Nothing of them may be acknowledged, appended or served.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

from kraftlite.log.batch import CONTROL_BIT, HEADER, HEADER_BYTES, Record, build_batch, crc_of, parse_header
from kraftlite.log.codecs import GZIP, LZ4, SNAPPY, ZSTD

RECORDS: Final = 3
_CRC_AT: Final = 17
_NAMES: Final = (
    *("base_offset", "length", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta", "base_timestamp"),
    *("max_timestamp", "producer_id", "producer_epoch", "base_sequence", "count"),
)

Spoil = Callable[[bytes], bytes]


def _header(**changes: int) -> Spoil:
    """The batch with other values in its header, and a CRC that fits."""

    def spoil(batch: bytes) -> bytes:
        values = dict(zip(_NAMES, HEADER.unpack_from(batch), strict=True))
        return _sealed(HEADER.pack(*{**values, **changes}.values()) + batch[HEADER_BYTES:])

    return spoil


def _body(change: Callable[[bytes], bytes]) -> Spoil:
    """The batch with other bytes behind its header; its length and CRC fit."""

    def spoil(batch: bytes) -> bytes:
        body = change(batch[HEADER_BYTES:])
        values = list(HEADER.unpack_from(batch))
        values[1] = HEADER_BYTES - 12 + len(body)
        return _sealed(HEADER.pack(*values) + body)

    return spoil


def _sealed(changed: bytes) -> bytes:
    out = bytearray(changed)
    out[_CRC_AT : _CRC_AT + 4] = crc_of(out).to_bytes(4, "big")
    return bytes(out)


def _wrong_crc(batch: bytes) -> bytes:
    return batch[:_CRC_AT] + bytes(it ^ 0xFF for it in batch[_CRC_AT : _CRC_AT + 4]) + batch[_CRC_AT + 4 :]


BY_ITS_HEADER: Final[Mapping[str, Spoil]] = {
    "count-zero": _header(count=0),
    "count-negative": _header(count=-1),
    "count-not-of-its-range": _header(count=RECORDS - 1),
    "last-delta-negative": _header(last_offset_delta=-1),
    "last-delta-one-more": _header(last_offset_delta=RECORDS),
    "control": _header(attributes=CONTROL_BIT),
    "magic-1": _header(magic=1),
    "magic-3": _header(magic=3),
    "base-offset": _header(base_offset=7),
    "unknown-codec": _header(attributes=5),
    "no-sequence": _header(producer_id=1, producer_epoch=0, base_sequence=-1),
    "wrong-crc": _wrong_crc,
    "cut": lambda batch: batch[:-5],
    "longer": lambda batch: batch + b"\x00" * 5,
    "two-batches": lambda batch: batch + batch,
    "nothing": lambda batch: b"",
}
BY_ITS_RECORDS: Final[Mapping[str, Spoil]] = {
    "more-than-its-records": _header(count=RECORDS + 2, last_offset_delta=RECORDS + 1),
    "fewer-than-its-records": _header(count=RECORDS - 1, last_offset_delta=RECORDS - 2),
    "count-huge": _header(count=2**31 - 1, last_offset_delta=2**31 - 2),
    "record-length-negative": _body(lambda body: b"\x63" + body[1:]),
    "record-length-zero": _body(lambda body: b"\x00" + body[1:]),
    "varint-broken": _body(lambda body: b"\xff" * 30),
    "delta-two-alike": _body(lambda body: body[:3] + b"\x02" + body[4:]),
    "left-over": _body(lambda body: body + b"\x00"),
    "not-gzip": _header(attributes=GZIP),
    "not-snappy": _header(attributes=SNAPPY),
    "not-lz4": _header(attributes=LZ4),
    "not-zstd": _header(attributes=ZSTD),
}


def kinds() -> Mapping[str, Spoil]:
    """The kinds from which one is drawn."""
    return {**BY_ITS_HEADER, **BY_ITS_RECORDS}


def malformed(rng: random.Random, value: bytes, stamp_ms: int) -> tuple[str, bytes]:
    """(kind, a batch whose records have this value)."""
    found = kinds()
    kind = rng.choice(sorted(found))
    sound = bytes(build_batch([Record(key=None, value=value)] * RECORDS, timestamp_ms=stamp_ms))
    assert parse_header(sound).count == RECORDS
    return kind, found[kind](sound)
