"""Compression of record batches, in bounded steps. Libraries are imported when a codec is first needed.

What is packed was chosen by a stranger: a few bytes may unfold to gigabytes, or be cut into a million empty parts. Unpacking is
a generator whose steps each take about a millisecond at most; who runs it decides how far and where. The end of the bytes must be
the end of the stream: what is missing or left over is refused, also where Kafka's own reader does not look.

Source: LG-02; Kafka's framing of each codec (members of gzip; xerial blocks or one raw block for snappy; one frame of independent
blocks for lz4; frames of zstd, RFC 8878).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any, Final, Protocol

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import KIB, MIB

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
CODECS_BY_NAME: Final = {name: codec for codec, name in enumerate(CODEC_NAMES)} | {"uncompressed": NONE}

MAX_DECOMPRESSED_BYTES: Final = 256 * MIB
"""One batch may not unfold to more: a bound against decompression bombs, far above what a client can use."""

CHUNK_BYTES: Final = 64 * KIB
INPUT_BYTES: Final = 16 * KIB
"""The bytes that are handed to a library at a time: what it leaves it hands back as a copy."""
MAX_PARTS: Final = 100_000
"""Members, frames and blocks of one batch: far above what a client makes."""
ZSTD_MAX_WINDOW_BYTES: Final = 128 * MIB
"""The window of its highest level, as in Kafka. A reader keeps so much of the content."""
SNAPPY_MAX_RATIO: Final = 22
"""Three bytes stand for at most 64: what claims to hold more is not believed, before memory is taken for it."""

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE: Final = 0x184D2A50
_LITTLE: Final = struct.Struct("<I")
_BLOCK_SIZE: Final = struct.Struct(">i")
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
        return _XERIAL_HEADER + _snappy_blocks(data)
    if codec == LZ4:
        import lz4.frame

        found = lz4.frame.compress(data, compression_level=0 if level is None else level, block_linked=False, store_size=False)
        return bytes(found)
    if codec == ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)
    raise ValueError(f"unknown compression codec {codec}: 0 to 4 are known")


def decompress(codec: int, data: bytes | memoryview, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes | memoryview:
    """All at once. Raises ApiError(CORRUPT_MESSAGE) when `data` is not what `codec` makes, or unfolds beyond the bound."""
    return data if codec == NONE else b"".join(unpacked(codec, data, max_bytes))


def unpacked(codec: int, data: bytes | memoryview, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Iterator[bytes | memoryview]:
    """The content in chunks of at most `CHUNK_BYTES` (a block of snappy may be larger); errors as of `decompress`.

    A chunk may be empty: then the step was work without an outcome, or the next one is as large as a chunk for every empty one
    before it. So each step is worth at most `CHUNK_BYTES` to whoever counts them.
    """
    unpack = _UNPACKERS.get(codec)
    if unpack is None:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"unknown compression codec {codec}: 0 to 4 are known")
    size = 0
    try:
        for chunk in unpack(memoryview(data)):
            size += len(chunk)
            if size > max_bytes:
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"records decompress to more than {max_bytes} bytes")
            yield chunk
    except (ValueError, RuntimeError, EOFError, zlib.error, struct.error) as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"records do not decompress as {CODEC_NAMES[codec]}: {error}") from error


def _plain(data: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(data), CHUNK_BYTES):
        yield data[start : start + CHUNK_BYTES]


def _gunzip(data: memoryview) -> Iterator[bytes]:
    """All members of a gzip stream."""
    position = members = 0
    while position < len(data) or not members:
        members = _counted(members)
        unpacker = zlib.decompressobj(wbits=31)
        given = b""
        while not unpacker.eof:
            if not given:
                given = bytes(data[position : position + INPUT_BYTES])
                position += len(given)
                if not given:
                    raise ValueError("the stream ends too early")
            yield unpacker.decompress(given, CHUNK_BYTES)
            given = unpacker.unconsumed_tail
        position -= len(unpacker.unused_data)


def _lz4_decompress(data: memoryview) -> Iterator[bytes]:
    """One frame, of the kind that Kafka's reader takes: without a dictionary, blocks independent of each other."""
    import lz4.frame

    if len(data) < 7:
        raise ValueError("the stream ends too early")
    if bytes(data[:4]) != _LZ4_MAGIC:
        raise ValueError("the stream is not an lz4 frame")
    flags = data[4]
    if flags >> 6 != 1 or flags & 0x03 or not flags & 0x20:
        raise ValueError(f"lz4 frame with flags {flags:#04x}: version 1, independent blocks and no dictionary are expected")
    unpacker = lz4.frame.LZ4FrameDecompressor()
    position = 0
    given = b""
    while not unpacker.eof:
        if unpacker.needs_input:
            given = bytes(data[position : position + INPUT_BYTES])
            position += len(given)
            if not given:
                raise ValueError("the stream ends too early")
        yield unpacker.decompress(given, max_length=CHUNK_BYTES)
        given = b""
    if position < len(data) or unpacker.unused_data:
        raise ValueError("there are bytes behind the lz4 frame")


def _zstd_decompress(data: memoryview) -> Iterator[bytes]:
    import zstandard

    yield from _walk_zstd(data)
    unpacker = zstandard.ZstdDecompressor(max_window_size=ZSTD_MAX_WINDOW_BYTES)
    try:
        with unpacker.stream_reader(data, read_across_frames=True) as reader:
            while chunk := reader.read(CHUNK_BYTES):
                yield chunk
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error


def _walk_zstd(data: memoryview) -> Iterator[bytes]:
    """Every frame is whole and the last one ends where the data ends: the library's reader does not say so."""
    position, end, parts = 0, len(data), 0
    if not end:
        raise ValueError("the stream ends too early")
    while position < end:
        if end - position < 8:
            raise ValueError("the stream ends within a zstd frame, or with other bytes behind one")
        (magic,) = _LITTLE.unpack_from(data, position)
        if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE:
            position += 8 + int(_LITTLE.unpack_from(data, position + 4)[0])
            last = True
        elif magic != _ZSTD_MAGIC:
            raise ValueError(f"no zstd frame at byte {position}")
        else:
            described = data[position + 4]
            single = described >> 5 & 1
            position += 5 + (1 - single) + (0, 1, 2, 4)[described & 3] + (single, 2, 4, 8)[described >> 6]
            last = False
        while not last:
            if position + 3 > end:
                raise ValueError("the stream ends within a zstd frame")
            head = data[position] | data[position + 1] << 8 | data[position + 2] << 16
            last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
            position += 3 + (1 if kind == 1 else size)
            parts = _counted(parts)
            if last and described & 4:
                position += 4  # a checksum
            if parts % 1000 == 0:
                yield b""
        parts = _counted(parts)
        if parts % 1000 == 0:
            yield b""
    if position != end:
        raise ValueError("the stream ends within a zstd frame")


def _counted(parts: int) -> int:
    if parts >= MAX_PARTS:
        raise ValueError(f"it has more than {MAX_PARTS} parts")
    return parts + 1


def _snappy_blocks(data: bytes) -> bytes:
    import cramjam

    parts: list[bytes] = []
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        parts += (_BLOCK_SIZE.pack(len(block)), block)
    return b"".join(parts)


def _snappy_decompress(data: memoryview) -> Iterator[bytes]:
    """Xerial blocks, or one raw block as some clients send. A stream of blocks may follow another one, with its own header."""
    if bytes(data[:8]) != _XERIAL_MAGIC:
        yield from _snappy_block(bytes(data))
        return
    position, end, parts = 0, len(data), 0
    while position < end:
        parts = _counted(parts)
        if bytes(data[position : position + 8]) == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            if position > end:
                raise ValueError("the stream ends too early")
            continue
        (size,) = _BLOCK_SIZE.unpack_from(data, position)
        position += 4
        if size < 0 or position + size > end:
            raise ValueError(f"a snappy block of {size} bytes, where {end - position} are left")
        yield from _snappy_block(bytes(data[position : position + size]))
        position += size


def _snappy_block(block: bytes) -> Iterator[bytes]:
    import cramjam

    try:
        size = int(cramjam.snappy.decompress_raw_len(block))
        if size > SNAPPY_MAX_RATIO * len(block):
            raise ValueError(f"a snappy block of {len(block)} bytes cannot hold {size}")
        for _ in range(size // CHUNK_BYTES):
            yield b""  # the block comes as one
        yield bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise ValueError(str(error)) from error


_UNPACKERS: Final[dict[int, Any]] = {
    NONE: _plain,
    GZIP: _gunzip,
    SNAPPY: _snappy_decompress,
    LZ4: _lz4_decompress,
    ZSTD: _zstd_decompress,
}


class Packer(Protocol):
    """Compresses what comes in chunks."""

    def compress(self, data: bytes | memoryview, /) -> bytes: ...

    def flush(self) -> bytes: ...


def packer(codec: int, level: int | None = None) -> Packer:
    """A new stream of `codec`; level as for `compress`."""
    if codec == GZIP:
        return zlib.compressobj(level=-1 if level is None else level, wbits=31)
    if codec == ZSTD:
        import zstandard

        # Sized for a batch: the highest levels would take a gigabyte for their tables.
        params = zstandard.ZstdCompressionParameters.from_level(3 if level is None else level, source_size=MIB)
        made: Packer = zstandard.ZstdCompressor(compression_params=params).compressobj()
        return made
    return _Lz4Packer(0 if level is None else level) if codec == LZ4 else _BlockPacker(codec == SNAPPY)


class _Lz4Packer:
    def __init__(self, level: int) -> None:
        import lz4.frame

        self._frame = lz4.frame.LZ4FrameCompressor(compression_level=level, block_linked=False)
        self._head = bytes(self._frame.begin())

    def compress(self, data: bytes | memoryview, /) -> bytes:
        head, self._head = self._head, b""
        return head + bytes(self._frame.compress(data))

    def flush(self) -> bytes:
        return self.compress(b"") + bytes(self._frame.flush())


class _BlockPacker:
    """Xerial blocks of snappy, or plain bytes."""

    def __init__(self, snappy: bool) -> None:
        self._snappy = snappy
        self._head = _XERIAL_HEADER if snappy else b""
        self._rest = b""

    def compress(self, data: bytes | memoryview, /) -> bytes:
        if not self._snappy:
            return bytes(data)
        head, self._head = self._head, b""
        whole = self._rest + data
        cut = len(whole) - len(whole) % _XERIAL_BLOCK
        self._rest = whole[cut:]
        return head + _snappy_blocks(whole[:cut])

    def flush(self) -> bytes:
        head, self._head = self._head, b""
        return head + _snappy_blocks(self._rest)
