"""Record batches with a right CRC and wrong content, by family: what a client must not get into a log.

A `Poison` says what Apache Kafka 4.3.1 answers (`kafka`) and what kraftlite answers (`ours`); `tests.clients.compare` asks
both. Where they differ kraftlite refuses what Kafka takes, or names the refusal: docs/DIFFERENCES.md has each rule.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from kraftlite.log import codecs
from kraftlite.log.batch import HEADER, HEADER_BYTES, LOG_OVERHEAD, crc_of, write_varint

CODECS: Final = (codecs.NONE, codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD)
COMPRESSED: Final = CODECS[1:]
NOW: Final = 1_760_000_000_000
_FIELDS: Final = (
    "base_offset", "length", "epoch", "magic", "crc", "attributes", "last_offset_delta", "base_timestamp", "max_timestamp",
    "producer_id", "producer_epoch", "base_sequence", "count",
)  # fmt: skip


def varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def fields(
    offset: int | bytes = 0,
    *,
    attributes: int = 0,
    timestamp: int | bytes = 0,
    key: bytes = sized(b"k"),
    value: bytes = sized(b"value"),
    headers: bytes = varint(0),
) -> bytes:
    """The inside of a record; every part may be given as the bytes that stand there."""
    delta = timestamp if isinstance(timestamp, bytes) else varint(timestamp)
    place = offset if isinstance(offset, bytes) else varint(offset)
    return bytes([attributes]) + delta + place + key + value + headers


def record(inside: bytes, size: int | bytes | None = None) -> bytes:
    """`size`: what it says of its length; None: the truth."""
    if isinstance(size, bytes):
        return size + inside
    return varint(len(inside) if size is None else size) + inside


def batch_of(body: bytes, count: int, *, codec: int = codecs.NONE, packed: bytes | None = None, **header: int) -> bytearray:
    """A batch around `body`, its CRC right. `packed`: what stands there instead of the body in `codec`."""
    inside = packed if packed is not None else codecs.compress(codec, body)
    values: dict[str, int] = {
        "base_offset": 0,
        "length": HEADER_BYTES - LOG_OVERHEAD + len(inside),
        "epoch": -1,
        "magic": 2,
        "crc": 0,
        "attributes": codec,
        "last_offset_delta": count - 1,
        "base_timestamp": NOW,
        "max_timestamp": NOW,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "count": count,
        **header,
    }
    made = bytearray(HEADER_BYTES)
    HEADER.pack_into(made, 0, *(values[name] for name in _FIELDS))
    made += inside
    struct.pack_into(">I", made, 17, crc_of(made))
    return made


@dataclass(frozen=True)
class Poison:
    """`kafka`, `ours`: the error code's name, "none" where the batch is taken; then which records are named with it."""

    name: str
    batch: bytes
    kafka: str
    ours: str
    kafka_names: tuple[int, ...] = ()
    we_name: tuple[int, ...] = ()


def _zstd_frame_with_window(body: bytes, window_log: int) -> bytes:
    import zstandard

    params = zstandard.ZstdCompressionParameters.from_level(3, window_log=window_log)
    packer = zstandard.ZstdCompressor(compression_params=params).compressobj()
    return packer.compress(body) + packer.flush()


def _lz4(body: bytes, **options: Any) -> bytes:
    import lz4.frame

    return bytes(lz4.frame.compress(body, **{"block_linked": False, "store_size": False, **options}))


def _gzip(body: bytes) -> bytes:
    return codecs.compress(codecs.GZIP, body)


GOOD: Final = record(fields(0)) + record(fields(1)) + record(fields(2))


def structures() -> Iterator[tuple[str, bytes, int, dict[str, int]]]:
    """(name, body, how many records the header counts, other header fields): for every codec."""
    one = record(fields(0))
    yield "count above the records", GOOD, 4, {}
    yield "count below the records", GOOD, 2, {}
    yield "count of 2^31-1", one, 2**31 - 1, {}
    yield "count 0", GOOD, 0, {}
    yield "count -1", GOOD, -1, {}
    yield "count 0, last offset delta 2", GOOD, 0, {"last_offset_delta": 2}
    yield "no records, count 1", b"", 1, {}
    yield "last offset delta above the count", GOOD, 3, {"last_offset_delta": 5}
    yield "last offset delta below the count", GOOD, 3, {"last_offset_delta": 1}
    yield "last offset delta 2^31-1, count -2^31", GOOD, -(2**31), {"last_offset_delta": 2**31 - 1}
    yield "a byte behind the records", GOOD + b"\0", 3, {}
    yield "a record behind the records", GOOD + record(fields(3)), 3, {}
    yield "offset delta twice", one + record(fields(0)) + record(fields(2)), 3, {}
    yield "offset delta with a gap", one + record(fields(5)) + record(fields(6)), 3, {}
    yield "offset delta beyond the batch", record(fields(7)), 1, {}
    yield "offset delta negative", record(fields(-1)), 1, {}
    yield "record length -50", record(fields(0), -50), 1, {}
    yield "record length 0", record(fields(0), 0), 1, {}
    yield "record length one too much", record(fields(0), len(fields(0)) + 1) + record(fields(1)), 2, {}
    yield "record length one too little", record(fields(0), len(fields(0)) - 1) + record(fields(1)), 2, {}
    yield "record length 2^31-1", record(fields(0), 2**31 - 1), 1, {}
    yield "record length of six bytes", record(fields(0), b"\x94\x80\x80\x80\x80\x00"), 1, {}
    yield (
        "record length beyond 32 bits",
        record(fields(0), bytes([0x80 | len(fields(0)) << 1 & 0x7F, 0x80, 0x80, 0x80, 0x10])),
        1,
        {},
    )
    yield "record cut off", one[:-3], 1, {}
    yield "timestamp delta of eleven bytes", record(fields(0, timestamp=b"\x80" * 10 + b"\0")), 1, {}
    yield "timestamp delta beyond 64 bits", record(fields(0, timestamp=b"\x80" * 9 + b"\x02")), 1, {}
    yield "offset delta of six bytes", record(fields(b"\x80" * 5 + b"\0")), 1, {}
    yield "key length -2", record(fields(0, key=varint(-2))), 1, {}
    yield "key length beyond the record", record(fields(0, key=varint(5000) + b"k")), 1, {}
    yield "key length -2^31", record(fields(0, key=varint(-(2**31)))), 1, {}
    yield "value length -2", record(fields(0, value=varint(-2))), 1, {}
    yield "value length beyond the record", record(fields(0, value=varint(2**31 - 1) + b"v")), 1, {}
    yield "header count -1", record(fields(0, headers=varint(-1))), 1, {}
    yield "header count 2^31-1", record(fields(0, headers=varint(2**31 - 1))), 1, {}
    yield "header count one too much", record(fields(0, headers=varint(2) + sized(b"a") + sized(b"b"))), 1, {}
    yield "header count one too little", record(fields(0, headers=varint(1) + (sized(b"a") + sized(b"b")) * 2)), 1, {}
    yield "header key null", record(fields(0, headers=varint(1) + sized(None) + sized(b"b"))), 1, {}
    yield "header key length -2", record(fields(0, headers=varint(1) + varint(-2) + sized(b"b"))), 1, {}
    yield "header value length -2", record(fields(0, headers=varint(1) + sized(b"a") + varint(-2))), 1, {}
    yield "header value beyond the record", record(fields(0, headers=varint(1) + sized(b"a") + varint(9999))), 1, {}
    yield "base offset 3", GOOD, 3, {"base_offset": 3}
    yield "producer id without a sequence", GOOD, 3, {"producer_id": 7, "producer_epoch": 0}
    yield "producer id without an epoch", GOOD, 3, {"producer_id": 7, "base_sequence": 0}


def fine() -> Iterator[tuple[str, bytes, int, dict[str, int]]]:
    """What looks odd and is good."""
    yield "good", GOOD, 3, {}
    yield "null value, empty key", record(fields(0, key=sized(b""), value=sized(None))), 1, {}
    yield "header with an empty key and a null value", record(fields(0, headers=varint(1) + sized(b"") + sized(None))), 1, {}
    yield "header key that is not UTF-8", record(fields(0, headers=varint(1) + sized(b"\xff\xfe") + sized(b"b"))), 1, {}
    yield "record attributes", record(fields(0, attributes=0xFF)), 1, {}
    yield "varint longer than it need be", record(fields(b"\x80\x80\x80\x80\x00")), 1, {}
    yield "leader epoch of a client", GOOD, 3, {"epoch": 2**31 - 1}
    yield "negative time", record(fields(0, timestamp=-NOW - 500)), 1, {}
    yield "sequence without a producer id", GOOD, 3, {"base_sequence": 5}


def tails() -> Iterator[tuple[str, bytes, int, bytes]]:
    """(name, codec's body, codec, what stands there)."""
    for codec in COMPRESSED:
        name, whole = codecs.CODEC_NAMES[codec], codecs.compress(codec, GOOD)
        yield f"{name}: another codec's bytes", GOOD, codec, codecs.compress(codec % 4 + 1, GOOD)
        yield f"{name}: not compressed at all", GOOD, codec, GOOD
        yield f"{name}: nothing", GOOD, codec, b""
        yield f"{name}: first half", GOOD, codec, whole[: len(whole) // 2]
        yield f"{name}: last byte missing", GOOD, codec, whole[:-1]
        yield f"{name}: a zero byte behind the end", GOOD, codec, whole + b"\0"
        yield f"{name}: rubbish behind the end", GOOD, codec, whole + b"rubbish that is behind the end of it all"
        yield f"{name}: in two parts", GOOD, codec, codecs.compress(codec, GOOD[:20]) + codecs.compress(codec, GOOD[20:])
    yield "gzip: wrong checksum", GOOD, codecs.GZIP, _gzip(GOOD)[:-8] + bytes(4) + _gzip(GOOD)[-4:]
    yield "gzip: a zlib stream", GOOD, codecs.GZIP, zlib.compress(GOOD)
    yield "lz4: linked blocks", GOOD, codecs.LZ4, _lz4(GOOD * 1, block_linked=True)
    yield "lz4: with its size", GOOD, codecs.LZ4, _lz4(GOOD, store_size=True)
    yield "lz4: with checksums", GOOD, codecs.LZ4, _lz4(GOOD, content_checksum=True, block_checksum=True)
    yield "lz4: wrong content checksum", GOOD, codecs.LZ4, _lz4(GOOD, content_checksum=True)[:-4] + bytes(4)
    yield "lz4: wrong header checksum", GOOD, codecs.LZ4, _lz4(GOOD)[:6] + bytes([_lz4(GOOD)[6] ^ 1]) + _lz4(GOOD)[7:]
    yield "lz4: a skippable frame first", GOOD, codecs.LZ4, struct.pack("<II", 0x184D2A50, 2) + b"ab" + _lz4(GOOD)
    yield "zstd: a skippable frame first", GOOD, codecs.ZSTD, struct.pack("<II", 0x184D2A50, 2) + b"ab" + codecs.compress(4, GOOD)
    yield "zstd: window of 128 MiB", GOOD, codecs.ZSTD, _zstd_frame_with_window(GOOD, 27)
    yield "zstd: window of 256 MiB", GOOD, codecs.ZSTD, _zstd_frame_with_window(GOOD, 28)
    raw = codecs.compress(codecs.SNAPPY, GOOD)[20:]
    yield "snappy: raw", GOOD, codecs.SNAPPY, raw
    yield "snappy: raw, a byte behind the end", GOOD, codecs.SNAPPY, raw + b"\0"
    yield "snappy: raw that says 2 GB", GOOD, codecs.SNAPPY, b"\xff\xff\xff\xff\x07" + raw[1:]
    yield "snappy: a block of 2 GB", GOOD, codecs.SNAPPY, codecs.compress(codecs.SNAPPY, GOOD)[:16] + b"\x7f\xff\xff\xff" + raw
    yield "snappy: a negative block", GOOD, codecs.SNAPPY, codecs.compress(codecs.SNAPPY, GOOD)[:16] + b"\xff\xff\xff\xff" + raw
    yield (
        "snappy: another version",
        GOOD,
        codecs.SNAPPY,
        b"\x82SNAPPY\x00" + struct.pack(">ii", 9, 9) + struct.pack(">i", len(raw)) + raw,
    )


_DELTAS: Final = ["offset delta twice", "offset delta with a gap", "offset delta beyond the batch", "offset delta negative"]
_LENGTHS: Final = [f"record length {it}" for it in ("-50", "0", "one too much", "one too little", "2^31-1")]
_TAKEN_BY_KAFKA: Final = [
    "record length beyond 32 bits",
    "timestamp delta beyond 64 bits",
    "key length -2",
    "key length -2^31",
    "value length -2",
    "header value length -2",
    "producer id without an epoch",
]


def _kafka_on(name: str, codec: int) -> str:
    """Its answer to a malformed structure."""
    plain = codec == codecs.NONE
    if name in _TAKEN_BY_KAFKA:
        return "none"
    if name in _DELTAS:
        return "none" if plain else "unknown_server_error"  # it wants to number them anew, and has skipped their keys
    if name in _LENGTHS:
        return "invalid_record" if plain else "none"  # compressed records are skipped through, their length is not looked at
    if name == "record length of six bytes":
        return "unknown_server_error" if plain else "invalid_record"
    return "invalid_record"


_TAILS_TAKEN: Final = [
    "gzip: in two parts",
    "snappy: in two parts",
    "zstd: in two parts",
    "lz4: linked blocks",  # of one block only
    "lz4: with its size",
    "lz4: with checksums",
    "zstd: a skippable frame first",
    "zstd: window of 128 MiB",
    "snappy: raw",
    "snappy: another version",
]
_TAILS_TAKEN_BY_KAFKA: Final = [
    *_TAILS_TAKEN,
    "gzip: a zero byte behind the end",
    "gzip: rubbish behind the end",
    "snappy: a zero byte behind the end",
    "lz4: a zero byte behind the end",
    "lz4: rubbish behind the end",
    "lz4: wrong content checksum",
]


def _headers() -> Iterator[Poison]:
    """What its header says."""
    all_three = (0, 1, 2)
    for codec in (codecs.NONE, codecs.ZSTD):
        where = f" ({codecs.CODEC_NAMES[codec]})"

        def made(codec: int = codec, **header: int) -> bytes:
            return bytes(batch_of(GOOD, 3, codec=codec, **header))

        stamped = 0x08 | codec
        refused = ("invalid_timestamp", all_three)
        yield Poison(f"says LogAppendTime{where}", made(attributes=stamped), "none", refused[0], (), all_three)
        for name, header in (
            ("says LogAppendTime of 2^62", {"attributes": stamped, "max_timestamp": 2**62}),
            ("says LogAppendTime of -1", {"attributes": stamped, "max_timestamp": -1}),
            ("base timestamp 2^62", {"base_timestamp": 2**62}),
        ):
            yield Poison(name + where, made(**header), refused[0], refused[0], all_three, all_three)
        yield Poison(f"control{where}", made(attributes=0x20 | codec), "invalid_record", "invalid_record")
        both = "transactional_id_authorization_failed"
        yield Poison(f"transactional{where}", made(attributes=0x10 | codec), both, both)
        for name, header in (
            ("highest timestamp 2^62", {"max_timestamp": 2**62}),
            ("highest timestamp -1", {"max_timestamp": -1}),
            ("highest timestamp 5", {"max_timestamp": 5}),
            ("base timestamp -1", {"base_timestamp": -1}),
            ("base timestamp -5", {"base_timestamp": -5}),
            ("delete horizon", {"attributes": 0x40 | codec}),
            ("attribute bit 7", {"attributes": 0x80 | codec}),
            ("attributes' other byte", {"attributes": 0x4100 | codec}),
        ):
            yield Poison(name + where, made(**header), "none", "none")
    for codec in (5, 6, 7):
        yield Poison(f"codec {codec}", bytes(batch_of(GOOD, 3, attributes=codec)), "unknown_server_error", "invalid_record")
    for magic, code in ((3, "corrupt_message"), (-1, "corrupt_message"), (1, "invalid_record"), (0, "invalid_record")):
        yield Poison(f"magic {magic}", bytes(batch_of(GOOD, 3, magic=magic)), code, code)
    for length, code in ((48, "corrupt_message"), (1049, "invalid_record"), (-1, "corrupt_message")):
        yield Poison(f"length {length}", bytes(batch_of(GOOD, 3, length=length)), code, code)
    yield Poison("length 2^31-1", bytes(batch_of(GOOD, 3, length=2**31 - 1)), "unknown_server_error", "invalid_record")
    times = [fields(0), fields(1, timestamp=10**13), fields(2, timestamp=2**62)]
    body = b"".join(map(record, times))
    yield Poison("two times of the future", bytes(batch_of(body, 3)), "invalid_timestamp", "invalid_timestamp", (1, 2), (1, 2))
    over = batch_of(record(fields(0, timestamp=2**62)), 1, base_timestamp=2**62)
    yield Poison("a time beyond 64 bits", bytes(over), "invalid_timestamp", "invalid_timestamp", (0,), (0,))


def poisons() -> Iterator[Poison]:
    """For a topic as it is created: every family in every codec, and what only looks odd."""
    for codec in CODECS:
        where = f" ({codecs.CODEC_NAMES[codec]})"
        for name, body, count, header in structures():
            made = bytes(batch_of(body, count, codec=codec, **header))
            yield Poison(name + where, made, _kafka_on(name, codec), "invalid_record")
        for name, body, count, header in fine():
            yield Poison(name + where, bytes(batch_of(body, count, codec=codec, **header)), "none", "none")
    for name, body, codec, packed in tails():
        kafka = "none" if name in _TAILS_TAKEN_BY_KAFKA else "unknown_server_error"
        if name in ("zstd: nothing", "lz4: in two parts"):
            kafka = "invalid_record"
        ours = "none" if name in _TAILS_TAKEN else "invalid_record"
        yield Poison(name, bytes(batch_of(body, 3, codec=codec, packed=packed)), kafka, ours)
    yield from _headers()


def compacted_poisons() -> Iterator[Poison]:
    """For a topic that is compacted."""
    null, key = sized(None), sized(b"k")
    for codec in CODECS:
        where = f" ({codecs.CODEC_NAMES[codec]})"
        body = record(fields(0, key=null)) + record(fields(1, key=key)) + record(fields(2, key=null))
        made = bytes(batch_of(body, 3, codec=codec))
        yield Poison(f"two null keys{where}", made, "invalid_record", "invalid_record", (0, 2), (0, 2))
        body = record(fields(0, key=null)) + record(fields(1, timestamp=10**13)) + record(fields(2))
        made = bytes(batch_of(body, 3, codec=codec))
        yield Poison(f"a null key and a future time{where}", made, "invalid_timestamp", "invalid_timestamp", (0, 1), (0, 1))
