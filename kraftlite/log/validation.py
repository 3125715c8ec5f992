"""What a leader accepts into its log.

Source: LG-09 to LG-15; KIP-98, KIP-937 (timestamp bounds).
"""

from __future__ import annotations

from enum import Enum

from kraftlite.log.batch import (
    HEADER_BYTES,
    MAGIC,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    BatchHeader,
    check_crc,
    iter_records,
    parse_header,
    rebuild_batch,
    record_timestamp,
)
from kraftlite.log.codecs import CODECS_BY_NAME, GZIP, LZ4, ZSTD
from kraftlite.log.config import LogConfig
from kraftlite.log.control import EndTxnMarker, decode_control
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import MAX_INT64


class AppendOrigin(Enum):
    """Who wrote the batch: how far it is trusted."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    RAFT_LEADER = "raft_leader"
    REPLICATION = "replication"


class RecordsRejected(ApiError):
    """A refusal that names records: (index in the batch, why), for produce responses from version 8 on."""

    def __init__(self, code: ErrorCode, message: str, record_errors: tuple[tuple[int, str], ...]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


_CLIENT = AppendOrigin.CLIENT
_RAFT_LEADER = AppendOrigin.RAFT_LEADER


def check_leader_batch(batch: bytes | bytearray | memoryview, config: LogConfig, origin: AppendOrigin) -> BatchHeader:
    """Exactly one well-formed v2 batch that fits; returns its header. Raises ApiError, mutates nothing."""
    size = len(batch)
    if size < HEADER_BYTES:
        raise _not_a_batch(batch)
    header = parse_header(batch)
    if header.magic != MAGIC or header.size_bytes != size:
        raise _not_one_batch(header, size)
    if size > config.max_message_bytes and origin is not _RAFT_LEADER:
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"batch of {size} bytes, max.message.bytes allows {config.max_message_bytes}")
    if size > config.segment_bytes:
        raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, f"batch of {size} bytes, segment.bytes is {config.segment_bytes}")
    if not check_crc(batch, header):
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"batch of {size} bytes: the CRC does not match")
    if header.count <= 0 or header.last_offset_delta != header.count - 1:
        raise _invalid(f"{header.count} records with a last offset delta of {header.last_offset_delta}")
    if origin is _CLIENT:
        _check_client_header(header)
    return header


def _check_client_header(header: BatchHeader) -> None:
    if header.is_control:
        raise _invalid("clients may not write control batches")
    if header.base_offset != 0:
        raise _invalid(f"base offset is {header.base_offset}, expected 0")
    if header.producer_id >= 0:
        if header.base_sequence < 0 or header.producer_epoch < 0:
            raise _invalid(
                f"producer {header.producer_id} with epoch {header.producer_epoch} and sequence {header.base_sequence}:"
                " both must be >= 0"
            )
    elif header.is_transactional:
        raise _invalid("a transactional batch needs a producer id")
    if header.codec > ZSTD:
        raise _invalid(f"compression codec {header.codec}: 0 to 4 are known")


def check_records(batch: bytes | bytearray | memoryview, header: BatchHeader, config: LogConfig, wall_ms: int) -> None:
    """The checks of a client's batch that need its records; opens the batch only if the config asks for it."""
    bounded = not config.log_append_time and _timestamps_suspect(header, config, wall_ms)
    if not bounded and not config.compacted:
        return
    null_keys: list[tuple[int, str]] = []
    bad_times: list[tuple[int, str]] = []
    low, high = wall_ms - config.message_timestamp_before_max_ms, wall_ms + config.message_timestamp_after_max_ms
    for index, record in enumerate(iter_records(batch)):
        if config.compacted and record.key is None:
            null_keys.append((index, "records of a compacted topic need a key"))
        timestamp = record_timestamp(header, record)
        if bounded and timestamp != NO_TIMESTAMP and not low <= timestamp <= high:
            bad_times.append((index, f"timestamp {timestamp} is outside [{low}, {high}]"))
    if null_keys:
        message = f"{len(null_keys)} records without a key in a compacted topic"
        raise RecordsRejected(ErrorCode.INVALID_RECORD, message, tuple(null_keys))
    if bad_times:
        message = f"{len(bad_times)} timestamps outside [{low}, {high}]"
        raise RecordsRejected(ErrorCode.INVALID_TIMESTAMP, message, tuple(bad_times))


def _timestamps_suspect(header: BatchHeader, config: LogConfig, wall_ms: int) -> bool:
    """Whether some record could be out of bounds. Only the upper bound can be ruled out by the header."""
    if header.is_log_append_time:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, "clients may not set the timestamp type LogAppendTime")
    if config.message_timestamp_before_max_ms < MAX_INT64:
        return True
    return header.max_timestamp - wall_ms > config.message_timestamp_after_max_ms


def recompressed(batch: bytes | bytearray | memoryview, header: BatchHeader, config: LogConfig) -> bytearray | None:
    """The batch in the topic's codec; None when it is already, or the producer's choice stands (LG-13)."""
    codec = CODECS_BY_NAME.get(config.compression_type)
    if codec is None or codec == header.codec:
        return None
    level = {GZIP: config.compression_gzip_level, LZ4: config.compression_lz4_level, ZSTD: config.compression_zstd_level}.get(
        codec
    )
    rebuilt = rebuild_batch(header, list(iter_records(batch)), codec=codec, level=level)
    if len(rebuilt) > config.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch of {len(rebuilt)} bytes as {config.compression_type}, max.message.bytes allows {config.max_message_bytes}",
        )
    return rebuilt


def marker_of(batch: bytes | bytearray | memoryview) -> EndTxnMarker | None:
    """The transaction marker in a control batch; None when it holds another kind of control record."""
    for record in iter_records(batch):
        control = decode_control(record)
        return control if isinstance(control, EndTxnMarker) else None
    return None


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, message)


def _not_a_batch(batch: bytes | bytearray | memoryview) -> ApiError:
    if len(batch) > MAGIC_POSITION and batch[MAGIC_POSITION] < MAGIC:
        return _invalid(f"message format {batch[MAGIC_POSITION]}: only record batches of format 2 are stored")
    if not len(batch):
        return _invalid("no record batch")
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"{len(batch)} bytes are too few for a record batch")


def _not_one_batch(header: BatchHeader, size: int) -> ApiError:
    if 0 <= header.magic < MAGIC:
        return _invalid(f"message format {header.magic}: only record batches of format 2 are stored")
    if header.magic != MAGIC or not HEADER_BYTES <= header.size_bytes <= size:
        return ApiError(
            ErrorCode.CORRUPT_MESSAGE,
            f"batch says {header.size_bytes} bytes and format {header.magic}, {size} bytes of format 2 were expected",
        )
    return _invalid("exactly one record batch per partition is allowed")
