"""Record batches to Arrow: the columns that Spark's own Kafka source has, without one Python object per record.

Batches are decoded many at once, as far as rows and bytes allow (`kraftlite.columns.decoding`), whatever their size.

Source: LG-01, LG-02, KIP-98 (aborted transactions); Spark's KafkaRecordToRowConverter (columns, types, null headers).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from kraftlite.columns.decoding import ARROW_TYPES, CorruptBatch, Run, decode, starts_finder
from kraftlite.columns.scan import BAD_LENGTH, BAD_MAGIC, Scan, next_offsets, scan_batches
from kraftlite.log import codecs
from kraftlite.log.batch import CODEC_MASK, CONTROL_BIT, HEADER_BYTES, TRANSACTIONAL_BIT, iter_records
from kraftlite.log.control import ControlType, control_type
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import MAX_INT64, MIB

COLUMNS: Final = tuple(ARROW_TYPES)

MAX_RUN_BYTES: Final = 16 * MIB
"""Batches that lie within this many bytes are decoded together: a bound of one RecordBatch's memory. One batch may be larger."""
_MAX_OFFSET: Final = MAX_INT64 - 2**32


class _TopicPartition(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """`batches` have at least one and at most `max_rows` rows, in order of offset. `next_offset`: where to go on, never beyond
    the end that was asked for. `consumed_bytes`: those of the batches that were looked at."""

    batches: list[Any]
    next_offset: int
    consumed_bytes: int


def parse_records(
    data: bytes | bytearray | memoryview,
    *,
    tp: _TopicPartition,
    start: int,
    end: int,
    columns: Sequence[str] = COLUMNS,
    aborted: Iterable[tuple[int, int]] = (),
    read_committed: bool = False,
    check_crc: bool = True,
    max_rows: int = 10_000,
    parser: str = "auto",
    scan: Scan | None = None,
) -> Parsed:
    """The records with start <= offset < end, in `columns`. Nothing that is returned refers to `data`.

    `aborted`: (producer id, first offset) of transactions that overlap the data; without `read_committed` they count for nothing.
    Control batches give no rows. A batch of which the end is missing is left out. Records without headers have null headers.
    `parser`: "numba" (the extra `fast`), "numpy", or "auto": the faster one that is installed. `scan`: what `scan_batches` has
    found in `data`, or a part of it, when that is known.
    ApiError(CORRUPT_MESSAGE) naming the offset: bad CRC, or what is no batch; INVALID_TIMESTAMP: beyond Spark's range of µs.
    ValueError: unknown column, no column, max_rows < 1, or a parser that is unknown or not installed.
    """
    find = starts_finder(parser)
    if any(name not in ARROW_TYPES for name in columns) or not columns or max_rows < 1:
        raise ValueError(f"columns {list(columns)} of {list(COLUMNS)}, max_rows {max_rows} >= 1")
    view = memoryview(data).cast("B")
    scan = scan or scan_batches(view, check_crc=check_crc, end=end)
    headers = scan.headers
    _check_headers(scan, start)
    keep = (headers["attributes"] & CONTROL_BIT == 0) & (headers["count"] > 0) & (next_offsets(headers) > start)
    if read_committed:
        _drop_aborted(keep, view, headers, aborted)
    batches: list[Any] = []
    try:
        for run in _runs(view, headers, np.flatnonzero(keep), max_rows):
            batches += decode(run, (tp.topic, tp.partition), start, end, columns, max_rows, find)
    except CorruptBatch as error:
        _corrupt(error.offset, error.why)
    whole = scan.why == "" and scan.stopped_at < len(view)
    reached = end if whole else int(next_offsets(headers[-1:])[0]) if headers.size else start
    return Parsed(batches=batches, next_offset=max(start, min(end, reached)), consumed_bytes=scan.stopped_at)


def _corrupt(offset: int, why: str) -> NoReturn:
    raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"batch at offset {offset}: {why}")


def _check_headers(scan: Scan, start: int) -> None:
    headers = scan.headers
    base = headers["base_offset"]
    for bad, why in (
        (~headers["crc_ok"], "its CRC does not match"),
        ((base < 0) | (base > _MAX_OFFSET), "impossible offset"),
        ((headers["last_offset_delta"] < 0) | (headers["count"] < 0), "impossible number of records"),
    ):
        if bad.any():
            _corrupt(int(base[np.argmax(bad)]), why)
    following = next_offsets(headers)
    back = base[1:] < following[:-1]
    if back.any():
        at = int(np.argmax(back))
        _corrupt(int(base[at + 1]), f"an offset >= {int(following[at])} was expected")
    if scan.why in (BAD_LENGTH, BAD_MAGIC):
        _corrupt(int(following[-1]) if following.size else start, f"{scan.why} at byte {scan.stopped_at}")


def _drop_aborted(
    keep: npt.NDArray[np.bool_], view: memoryview, headers: npt.NDArray[np.void], aborted: Iterable[tuple[int, int]]
) -> None:
    """Clear `keep` of the batches of aborted transactions: of those that began before the batch ends and have no marker yet."""
    coming = sorted(aborted, key=lambda entry: entry[1], reverse=True)
    current: set[int] = set()
    last = (next_offsets(headers) - 1).tolist()
    for index in np.flatnonzero(headers["attributes"] & (TRANSACTIONAL_BIT | CONTROL_BIT)).tolist():
        while coming and coming[-1][1] <= last[index]:
            current.add(coming.pop()[0])
        header = headers[index]
        producer_id = int(header["producer_id"])
        if producer_id not in current:
            continue
        if not header["attributes"] & CONTROL_BIT:
            keep[index] = False
        elif _is_abort(view, header):
            current.discard(producer_id)


def _is_abort(view: memoryview, header: Any) -> bool:
    position = int(header["position"])
    try:
        first = next(iter_records(view[position : position + int(header["size"])]), None)
        return first is not None and control_type(first.key) == ControlType.ABORT
    except ApiError as error:
        _corrupt(int(header["base_offset"]), str(error.message))


def _runs(view: memoryview, headers: npt.NDArray[np.void], wanted: npt.NDArray[np.intp], max_rows: int) -> Iterator[Run]:
    """These batches in runs of at most `max_rows` records: where they lie in `view`, compressed ones in bytes of their own.

    Only a batch with more records than that is alone in its run.
    """
    chosen = headers[wanted]
    facts = [chosen[name].tolist() for name in ("position", "size", "count", "attributes")]
    began = rows = 0
    packed = False
    bases: list[int] = []
    sizes: list[int] = []
    bodies: list[bytes | memoryview] = []

    def run(upto: int) -> Run:
        return Run(b"".join(bodies) if packed else view, chosen[began:upto], np.array(bases), np.array(sizes))

    for index, (position, size, count, attributes) in enumerate(zip(*facts, strict=True)):
        base, length, codec = position + HEADER_BYTES, size - HEADER_BYTES, attributes & CODEC_MASK
        body = view[base : position + size] if codec else view
        if codec:
            try:
                body = memoryview(codecs.decompress(codec, body))
            except ApiError as error:
                _corrupt(int(chosen[index]["base_offset"]), str(error.message))
            length = len(body)
        if bases:
            used = (bases[-1] + sizes[-1] if packed else base) - bases[0] + length
            if rows + count > max_rows or used > MAX_RUN_BYTES or packed != (codec > 0):
                yield run(index)
                began, rows, bases, sizes, bodies = index, 0, [], [], []
        packed = codec > 0
        if packed:
            base = bases[-1] + sizes[-1] if bases else 0
            bodies.append(body)
        bases.append(base)
        sizes.append(length)
        rows += count
    if bases:
        yield run(len(chosen))
