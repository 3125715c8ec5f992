"""The checks of a batch before a leader accepts it into its log.

Checking is apart from appending: a `BatchCheck` is a function of bytes, config and wall time alone, goes on in steps and may be
finished on another thread; its `Verdict` is handed to the append, which is short. Nothing of a batch is held but a chunk.

Source: LG-09 to LG-15; KIP-98, KIP-937 (timestamp bounds); Kafka's LogValidator. Where more is refused than Kafka does:
docs/DIFFERENCES.md, "Malformed record batches".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from kraftlite.log import codecs, scan
from kraftlite.log.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    check_crc,
    iter_records,
    parse_header,
    with_body,
)
from kraftlite.log.codecs import CODECS_BY_NAME, GZIP, LZ4, MAX_DECOMPRESSED_BYTES, ZSTD
from kraftlite.log.config import LogConfig
from kraftlite.log.control import EndTxnMarker, decode_control, plain_marker
from kraftlite.log.scan import BOUND_TIMES, NO_KEY, REFUSE_TIMES, TIME, RecordScanner
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import KIB, MAX_INT64, MIB

Batch = bytes | bytearray | memoryview
Chunks = Iterator[bytes | memoryview]

CHECK_IN_PLACE: Final = MIB
"""The work of one request that is done on the loop, in the unit of `BatchCheck.advance`: 10 ms at most."""
WORK_PER_BATCH: Final = 2 * KIB
WORK_PER_CHUNK: Final = 8 * KIB
"""The work that the smallest compressed chunk counts: the libraries take some µs to begin."""
MARKER_BYTES: Final = 78
"""The size of a transaction marker: a batch of one record. Were it refused, the transaction would never end."""
_PLAIN_DISCOUNT: Final = 8
_RECOMPRESSION: Final = 32
_WORK_PER_RECORD: Final = 512 if scan.IMPLEMENTATION == "python" else 0


class AppendOrigin(Enum):
    """The writer of a batch: it decides how far the batch is trusted."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    RAFT_LEADER = "raft_leader"
    REPLICATION = "replication"


class RecordsRejected(ApiError):
    """A refusal that names records: (index in the batch, why), for produce responses from version 8 on."""

    def __init__(self, code: ErrorCode, message: str, record_errors: tuple[tuple[int, str], ...]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class Verdict(NamedTuple):
    """The result of a check. With a `refusal` the rest means nothing."""

    refusal: ApiError | None
    header: BatchHeader
    max_timestamp: int = -1
    """The highest of its records' timestamps, whatever its header says; -1 when they have none."""
    recompressed: bytearray | None = None
    """The batch in the topic's codec, when that is another one than the producer's (LG-13)."""


_CLIENT = AppendOrigin.CLIENT
_RAFT_LEADER = AppendOrigin.RAFT_LEADER
_MIN_INT64: Final = -MAX_INT64 - 1
_NO_HEADER: Final = BatchHeader(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


class BatchCheck:
    """The check of one batch of a client. `verdict` is None until it is done. For one thread at a time."""

    __slots__ = ("_batch", "_config", "_max_bytes", "_scanner", "_steps", "_wall_ms", "verdict")

    def __init__(
        self,
        batch: Batch,
        config: LogConfig,
        wall_ms: int,
        *,
        scanner: type[RecordScanner] = scan.Scanner,
        max_bytes: int = MAX_DECOMPRESSED_BYTES,
    ) -> None:
        """`max_bytes`: what it may unfold to."""
        self._batch = batch
        self._config = config
        self._wall_ms = wall_ms
        self._scanner = scanner
        self._max_bytes = max_bytes
        self._steps: Iterator[int] | None = None
        self.verdict: Verdict | None = None

    def advance(self, work: int) -> int:
        """Go on for about so much work, or to the end; returns what was used. A unit is a byte that is decompressed: some ns."""
        used = 0
        if self._steps is None:
            self._steps = self._check()
        try:
            for step in self._steps:
                used += step
                if used > work:
                    break
        except ApiError as refusal:
            self.verdict = Verdict(refusal, _NO_HEADER)
        return used

    def finish(self) -> Verdict:
        """Run the check to its end, however long it takes."""
        while self.verdict is None:
            self.advance(MAX_INT64)
        return self.verdict

    def _check(self) -> Iterator[int]:
        """Yields the work of a step, before it or behind it; large ones before."""
        batch, config = self._batch, self._config
        yield len(batch) // (2 * _PLAIN_DISCOUNT)
        header = check_leader_batch(batch, config, _CLIENT)
        body = memoryview(batch)[HEADER_BYTES:]
        scanner = _new_scanner(self._scanner, header, config, self._wall_ms)
        chunks = _unpacked(header, body, self._max_bytes)
        target = CODECS_BY_NAME.get(config.compression_type, header.codec)
        if target != header.codec:
            packed = bytearray()
            yield from _scan_and_pack(scanner, chunks, config, target, packed)
            _judge(scanner, header, config, self._wall_ms)
            rebuilt = with_body(header, packed, codec=target, max_timestamp=scanner.max_timestamp)
            self.verdict = Verdict(None, header, scanner.max_timestamp, rebuilt)
            return
        yield from _scan_compressed(scanner, chunks) if header.codec else _scan_plain(scanner, body)
        _judge(scanner, header, config, self._wall_ms)
        self.verdict = Verdict(None, header, scanner.max_timestamp)


def finish_all(checks: Iterable[BatchCheck]) -> None:
    for check in checks:
        check.finish()


def check_batch(batch: Batch, config: LogConfig, wall_ms: int) -> Verdict:
    """The whole check, here and now."""
    return check_at_once(batch, config, wall_ms) or BatchCheck(batch, config, wall_ms).finish()


def work_at_once(batch: Batch) -> int:
    """The work of `check_at_once`, in the unit of `BatchCheck.advance`."""
    return WORK_PER_BATCH + len(batch) // _PLAIN_DISCOUNT


def check_at_once(batch: Batch, config: LogConfig, wall_ms: int, kind: type[RecordScanner] = scan.Scanner) -> Verdict | None:
    """The same as a check in steps for what is one short step, without an object for it; None: it is not one."""
    if len(batch) > scan.BYTES_PER_STEP or config.compression_type != "producer":
        return None
    try:
        header = check_leader_batch(batch, config, _CLIENT)
        if header.attributes & CODEC_MASK:
            return None
        scanner = _new_scanner(kind, header, config, wall_ms)
        if scanner.feed(memoryview(batch)[HEADER_BYTES:]) or scanner.finish() or scanner.refused:
            _judge(scanner, header, config, wall_ms)
    except ApiError as refusal:
        return Verdict(refusal, _NO_HEADER)
    return Verdict(None, header, scanner.max_timestamp)


def check_leader_batch(batch: Batch, config: LogConfig, origin: AppendOrigin) -> BatchHeader:
    """Exactly one v2 batch that fits, by its header; returns that. Raises ApiError, mutates nothing."""
    size = len(batch)
    if size < HEADER_BYTES:
        raise _not_one_batch(batch)
    header = parse_header(batch)
    if header.magic != MAGIC or header.size_bytes != size:
        raise _not_one_batch(batch)
    if origin is _CLIENT and header.base_offset != 0:
        raise _invalid(f"base offset is {header.base_offset}, expected 0")
    check_size(size, config, origin)
    if not check_crc(batch, header):
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"batch of {size} bytes: the CRC does not match")
    if header.count <= 0 or header.last_offset_delta != header.count - 1:
        raise _invalid(f"{header.count} records with a last offset delta of {header.last_offset_delta}")
    if origin is _CLIENT:
        _check_client_header(header)
    return header


def check_size(size: int, config: LogConfig, origin: AppendOrigin) -> None:
    """Check that a batch of this size may be in the log. A topic that takes no message of a marker's size takes markers."""
    if size > config.max_message_bytes and origin is not _RAFT_LEADER and (origin is _CLIENT or size > MARKER_BYTES):
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"batch of {size} bytes, max.message.bytes allows {config.max_message_bytes}")
    if size > config.segment_bytes:
        raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, f"batch of {size} bytes, segment.bytes is {config.segment_bytes}")


def _check_client_header(header: BatchHeader) -> None:
    attributes = header.attributes
    if attributes & CONTROL_BIT:
        raise _invalid("clients may not write control batches")
    if header.producer_id >= 0:
        if header.base_sequence < 0 or header.producer_epoch < 0:
            raise _invalid(
                f"producer {header.producer_id} with epoch {header.producer_epoch} and sequence {header.base_sequence}:"
                " both must be >= 0"
            )
    elif attributes & TRANSACTIONAL_BIT:
        raise _invalid("a transactional batch needs a producer id")
    if attributes & CODEC_MASK > ZSTD:
        raise _invalid(f"compression codec {header.codec}: 0 to 4 are known")


# the records


def _bounds(config: LogConfig, wall_ms: int) -> tuple[int, int]:
    """Return the bounds of a record's timestamp, where the producer sets it."""
    low, high = wall_ms - config.message_timestamp_before_max_ms, wall_ms + config.message_timestamp_after_max_ms
    return (max(low, _MIN_INT64)), (min(high, MAX_INT64))


def _new_scanner(kind: type[RecordScanner], header: BatchHeader, config: LogConfig, wall_ms: int) -> RecordScanner:
    flags = config.check_flags
    if header.attributes & TIMESTAMP_TYPE_BIT:
        flags = flags & ~BOUND_TIMES | REFUSE_TIMES
    low, high = _bounds(config, wall_ms) if flags & BOUND_TIMES else (0, 0)
    return kind(header.count, header.base_timestamp, low, high, flags)


def _scan_plain(scanner: RecordScanner, body: memoryview) -> Iterator[int]:
    size = scan.BYTES_PER_STEP
    for start in range(0, len(body), size):
        before = scanner.records
        if scanner.feed(body[start : start + size]):
            return
        yield size // _PLAIN_DISCOUNT + (scanner.records - before) * _WORK_PER_RECORD


def _scan_compressed(scanner: RecordScanner, chunks: Chunks) -> Iterator[int]:
    for chunk in chunks:
        before = scanner.records
        if chunk and scanner.feed(chunk):
            return
        yield max(len(chunk), WORK_PER_CHUNK) + (scanner.records - before) * _WORK_PER_RECORD


def _scan_and_pack(scanner: RecordScanner, chunks: Chunks, config: LogConfig, target: int, packed: bytearray) -> Iterator[int]:
    levels = {GZIP: config.compression_gzip_level, LZ4: config.compression_lz4_level, ZSTD: config.compression_zstd_level}
    yield WORK_PER_CHUNK * _RECOMPRESSION
    packer = codecs.packer(target, levels.get(target))
    most = config.max_message_bytes - HEADER_BYTES
    for chunk in chunks:
        if chunk and scanner.feed(chunk):
            return
        packed += packer.compress(chunk)
        if len(packed) > most:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"batch of more than {len(packed)} bytes as {config.compression_type},"
                f" max.message.bytes allows {config.max_message_bytes}",
            )
        yield max(len(chunk), WORK_PER_CHUNK) * _RECOMPRESSION
    packed += packer.flush()


def _unpacked(header: BatchHeader, body: memoryview, max_bytes: int) -> Chunks:
    """The chunks of the body. What does not unpack never will: CORRUPT_MESSAGE would have the producer try again."""
    try:
        yield from codecs.unpacked(header.codec, body, max_bytes)
    except ApiError as error:
        raise _invalid(error.message or "records do not decompress") from error


def _judge(scanner: RecordScanner, header: BatchHeader, config: LogConfig, wall_ms: int) -> None:
    """The end of the records, or the fault they have."""
    fault = scanner.finish()
    if fault:
        raise _invalid(f"record {scanner.records} of {header.count} {scan.FAULTS[fault]}")
    if not scanner.refused:
        return
    low, high = _bounds(config, wall_ms)

    def why(kind: int, timestamp: int) -> str:
        if kind == NO_KEY:
            return "records of a compacted topic need a key"
        if kind == TIME:
            return f"timestamp {timestamp} is outside [{low}, {high}]"
        return "clients may not set the timestamp type LogAppendTime"

    named = scanner.errors
    times = any(kind != NO_KEY for _, kind, _ in named)
    what = f"timestamps outside [{low}, {high}]" if times else "a compacted topic needs keys"
    if header.is_log_append_time:
        what = "clients may not set the timestamp type LogAppendTime"
    raise RecordsRejected(
        ErrorCode.INVALID_TIMESTAMP if times else ErrorCode.INVALID_RECORD,
        f"{scanner.refused} of {header.count} records are refused: {what}",
        tuple((index, why(kind, timestamp)) for index, kind, timestamp in named),
    )


def marker_of(batch: Batch) -> EndTxnMarker | None:
    """The transaction marker in a control batch; None when it holds another kind of control record."""
    plain = plain_marker(batch)
    if plain is not None:
        return plain
    for record in iter_records(batch):
        control = decode_control(record)
        return control if isinstance(control, EndTxnMarker) else None
    return None


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, message)


def _not_one_batch(batch: Batch) -> ApiError:
    """Kafka's order: what cannot be cut into batches is no batch, whatever else is wrong with it."""
    size = len(batch)
    if size < MAGIC_POSITION + 1:
        return _invalid("no record batch" if not size else f"{size} bytes are too few for a record batch")
    said, magic = int.from_bytes(batch[8:12], "big", signed=True) + LOG_OVERHEAD, batch[MAGIC_POSITION]
    if said <= LOG_OVERHEAD or magic > MAGIC:
        return ApiError(ErrorCode.CORRUPT_MESSAGE, f"batch says {said} bytes and format {magic}; format {MAGIC} was expected")
    if said > size:
        return _invalid(f"batch says {said} bytes, {size} are there")
    if magic < MAGIC:
        return _invalid(f"magic {magic}: only record batches of format {MAGIC} are stored")
    if said < HEADER_BYTES:
        return ApiError(ErrorCode.CORRUPT_MESSAGE, f"batch says {said} bytes, its header has {HEADER_BYTES}")
    if size - said >= HEADER_BYTES and int.from_bytes(batch[said + 8 : said + 12], "big", signed=True) <= 0:
        return ApiError(ErrorCode.CORRUPT_MESSAGE, f"what stands behind a batch of {said} bytes is no other one")
    return _invalid("exactly one record batch per partition is allowed")
