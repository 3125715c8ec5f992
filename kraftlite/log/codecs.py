"""Compression of record batches. Libraries are imported when a codec is first needed: a broker rarely opens a batch.

Source: LG-02; Kafka's framing of each codec (xerial blocks for snappy, independent blocks for lz4).
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import MIB

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
CODECS_BY_NAME: Final = {name: codec for codec, name in enumerate(CODEC_NAMES)} | {"uncompressed": NONE}

MAX_DECOMPRESSED_BYTES: Final = 256 * MIB
"""One batch may not unfold to more: a bound against decompression bombs, far above what a client can use."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK: Final = 32 * 1024


def compress(codec: int, data: bytes, level: int | None = None) -> bytes:
    """`level` as in Kafka's `compression.<codec>.level`; None: the codec's default. Raises ValueError for an unknown codec."""
    if codec == NONE:
        return data
    if codec == GZIP:
        packer = zlib.compressobj(level=-1 if level is None else level, wbits=31)
        return packer.compress(data) + packer.flush()
    if codec == SNAPPY:
        return _snappy_compress(data)
    if codec == LZ4:
        import lz4.frame

        found = lz4.frame.compress(data, compression_level=0 if level is None else level, block_linked=False, store_size=False)
        return bytes(found)
    if codec == ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)
    raise ValueError(f"unknown compression codec {codec}: 0 to 4 are known")


def decompress(codec: int, data: bytes | memoryview, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes | memoryview:
    """Raises ApiError(CORRUPT_MESSAGE) when `data` is not what `codec` makes, or unfolds beyond the bound."""
    if codec == NONE:
        return data
    try:
        plain = _decompress(codec, data, max_bytes)
    except (ValueError, RuntimeError, EOFError, zlib.error, struct.error) as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"records do not decompress with codec {codec}: {error}") from error
    if len(plain) > max_bytes:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"records decompress to more than {max_bytes} bytes")
    return plain


def _decompress(codec: int, data: bytes | memoryview, max_bytes: int) -> bytes:
    limit = max_bytes + 1
    if codec == GZIP:
        return _gunzip(data, limit)
    if codec == SNAPPY:
        return _snappy_decompress(data, max_bytes)
    if codec == LZ4:
        import lz4.frame

        return bytes(lz4.frame.LZ4FrameDecompressor().decompress(bytes(data), max_length=limit))
    if codec == ZSTD:
        import zstandard

        try:
            with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
                return bytes(reader.read(limit))
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from error
    raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"unknown compression codec {codec}: 0 to 4 are known")


def _gunzip(data: bytes | memoryview, limit: int) -> bytes:
    """All members of a gzip stream."""
    parts: list[bytes] = []
    rest: bytes = bytes(data)
    while rest and limit > 0:
        unpacker = zlib.decompressobj(wbits=31)
        parts.append(unpacker.decompress(rest, limit))
        limit -= len(parts[-1])
        if limit > 0 and not unpacker.eof:
            raise ValueError("truncated gzip stream")
        rest = unpacker.unused_data
    return b"".join(parts)


def _snappy_compress(data: bytes) -> bytes:
    import cramjam

    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        parts += (struct.pack(">i", len(block)), block)
    return b"".join(parts)


def _snappy_decompress(data: bytes | memoryview, max_bytes: int) -> bytes:
    """Xerial blocks, or one raw block as some clients send."""
    import cramjam

    raw = bytes(data)

    def unpack(block: bytes) -> bytes:
        try:
            if cramjam.snappy.decompress_raw_len(block) > max_bytes:
                raise ValueError("snappy block is too large")
            return bytes(cramjam.snappy.decompress_raw(block))
        except cramjam.DecompressionError as error:
            raise ValueError(str(error)) from error

    if not raw.startswith(_XERIAL_MAGIC):
        return unpack(raw)
    parts: list[bytes] = []
    position, total = len(_XERIAL_HEADER), 0
    while position < len(raw):
        (size,) = struct.unpack_from(">i", raw, position)
        position += 4
        if size < 0 or position + size > len(raw):
            raise ValueError("truncated snappy block")
        parts.append(unpack(raw[position : position + size]))
        total += len(parts[-1])
        if total > max_bytes:
            break
        position += size
    return b"".join(parts)
