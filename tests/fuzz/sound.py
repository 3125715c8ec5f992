"""Whether record batches are what a client may be served: a second reader, which shares no code with the node's."""

from __future__ import annotations

import gzip
import struct
from typing import Final

import cramjam
from crc32c import crc32c

LIMIT: Final = 128 << 20


class Flaw(Exception):
    """What is wrong, in words."""


def flaw(data: bytes, offset: int, *, dense: bool) -> tuple[int, str | None]:
    """Batches as they were fetched from `offset`: (the offset behind the last whole one, what is wrong). `dense`: no offset is
    left out between them."""
    at = 0
    while len(data) - at >= 12:
        base, length = struct.unpack_from(">qi", data, at)
        if length < 49:
            return offset, f"a batch of length {length} at {offset}"
        if at + 12 + length > len(data):
            break
        try:
            following = _batch(data[at : at + 12 + length])
            if base > offset and dense:
                raise Flaw(f"a gap: offset {offset} is followed by {base}")
            if following <= offset:
                raise Flaw(f"the batch at {base} ends at {following}, before {offset}")
        except Flaw as wrong:
            return offset, f"batch at offset {base}: {wrong}"
        offset, at = following, at + 12 + length
    return offset, None


def _batch(raw: bytes) -> int:
    """The offset behind it."""
    (base,) = struct.unpack_from(">q", raw)
    magic, crc = struct.unpack_from(">bI", raw, 16)
    attributes, last_delta = struct.unpack_from(">hi", raw, 21)
    (count,) = struct.unpack_from(">i", raw, 57)
    if magic != 2:
        raise Flaw(f"magic {magic}")
    if crc32c(raw[21:]) != crc:
        raise Flaw("its CRC is another")
    if count < 1 or count != last_delta + 1:
        raise Flaw(f"count {count}, last offset delta {last_delta}")
    _records(_inflate(attributes & 7, raw[61:]), count)
    return int(base + last_delta + 1)


def _inflate(codec: int, data: bytes) -> bytes:
    try:
        if codec == 0:
            return data
        if codec == 1:
            return gzip.decompress(data)
        if codec == 2:
            return _snappy(data)
        if codec == 3:
            return bytes(cramjam.lz4.decompress(data))
        if codec == 4:
            return bytes(cramjam.zstd.decompress(data))
    except Flaw:
        raise
    except Exception as error:
        raise Flaw(f"codec {codec}: {type(error).__name__}: {error}") from error
    raise Flaw(f"codec {codec} does not exist")


def _snappy(data: bytes) -> bytes:
    """As a Java client frames it, or one raw block."""
    if data[:8] != b"\x82SNAPPY\x00":
        return bytes(cramjam.snappy.decompress_raw(data))
    out, at = b"", 16
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        if size < 0 or at + 4 + size > len(data):
            raise Flaw(f"a snappy block of {size} bytes")
        out += bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size]))
        at += 4 + size
    return out


def _records(data: bytes, count: int) -> None:
    at = 0
    for index in range(count):
        length, at = _varint(data, at)
        end = at + length
        if length < 6 or end > len(data):
            raise Flaw(f"record {index} of {length} bytes, {len(data) - at} are left")
        _stamp, here = _varint(data, at + 1)
        delta, here = _varint(data, here)
        if delta != index:
            raise Flaw(f"record {index} has offset delta {delta}")
        here = _blob(_blob(here, data, end, index, True), data, end, index, True)
        headers, here = _varint(data, here)
        if not 0 <= headers <= length:
            raise Flaw(f"record {index} has {headers} headers")
        for _ in range(headers):
            here = _blob(_blob(here, data, end, index, False), data, end, index, True)
        if here != end:
            raise Flaw(f"record {index} announces {length} bytes and has {here - at}")
        at = end
    if at != len(data):
        raise Flaw(f"{len(data) - at} bytes behind the last record")


def _blob(at: int, data: bytes, end: int, index: int, nullable: bool) -> int:
    length, at = _varint(data, at)
    if length < (-1 if nullable else 0) or at + length > end:
        raise Flaw(f"record {index} has a part of {length} bytes")
    return at + max(length, 0)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise Flaw(f"a broken varint at byte {at}")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
