"""One task of a query over segment files: the records of an offset range, or the batches of some files, as Arrow record batches.

Runs on the directories of running brokers too: a file that is gone is looked for anew, since compaction puts others in its place;
what retention has deleted is data loss, as it is with brokers. What is damaged is CORRUPT_MESSAGE with file and position, or is
skipped when the query may.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kraftlite.columns.records import parse_records
from kraftlite.columns.scan import Scan, next_offsets
from kraftlite.log.batch import CODEC_MASK, CONTROL_BIT, DELETE_HORIZON_BIT, TRANSACTIONAL_BIT
from kraftlite.log.codecs import CODEC_NAMES
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import MAX_INT64
from kraftlite.segments.directories import Replica, SegmentFiles, list_again
from kraftlite.segments.files import (
    Buffer,
    Headers,
    Hole,
    Stretch,
    begins,
    open_log,
    position_of,
    walk,
)
from kraftlite.spark.offsets import Range, log, report_loss
from kraftlite.spark.segments.planning import ATTEMPTS, Piece

BROKER: Final = "broker"
BATCH_TYPES: Final[dict[str, object]] = {
    "broker": pa.string(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "segment": pa.string(),
    "position": pa.int64(),
    "size": pa.int32(),
    "base_offset": pa.int64(),
    "last_offset": pa.int64(),
    "records": pa.int32(),
    "leader_epoch": pa.int32(),
    "producer_id": pa.int64(),
    "producer_epoch": pa.int32(),
    "base_sequence": pa.int32(),
    "first_timestamp": pa.timestamp("us", tz="UTC"),
    "max_timestamp": pa.timestamp("us", tz="UTC"),
    "compression": pa.string(),
    "transactional": pa.bool_(),
    "control": pa.bool_(),
    "crc": pa.int64(),
    "crc_ok": pa.bool_(),
}
"""The columns of `view=batches`. Spark compares types strictly. A time that a batch does not have is null, a producer -1."""
_PLAIN: Final = {
    "position": "position",
    "size": "size",
    "base_offset": "base_offset",
    "records": "count",
    "leader_epoch": "epoch",
    "producer_id": "producer_id",
    "producer_epoch": "producer_epoch",
    "base_sequence": "base_sequence",
    "crc": "crc",
}
_FLAGS: Final = {"transactional": TRANSACTIONAL_BIT, "control": CONTROL_BIT}
_CODECS: Final = pa.array([*CODEC_NAMES, *(f"unknown {it}" for it in range(len(CODEC_NAMES), CODEC_MASK + 1))])


def _damaged(path: str, position: int, what: str, fail: bool) -> None:
    where = f"{path} at byte {position}: {what}"
    if fail:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{where}. To skip it, set the option failOnDataLoss to false")
    log.warning("%s; it is skipped, since failOnDataLoss is false", where)


# records


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTask:
    """`replica` has the segments of the range. `columns` in the order in which Spark wants them; `broker` may be one."""

    range: Range
    replica: Replica
    columns: tuple[str, ...]
    fail_on_data_loss: bool
    parser: str = "auto"
    batch_rows: int = 10_000


def read_segments(task: SegmentTask) -> Iterator[pa.RecordBatch]:
    """Ends when the range is read. Raises DataLoss, ApiError(CORRUPT_MESSAGE, INVALID_TIMESTAMP), OSError."""
    plain = tuple(name for name in task.columns if name != BROKER) or ("partition",)
    rows = _Reading(task, plain).run()
    return rows if plain == task.columns else _with_broker(rows, task)


def _with_broker(batches: Iterable[pa.RecordBatch], task: SegmentTask) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        broker = pa.repeat(pa.scalar(task.replica.broker), batch.num_rows)
        columns = [broker if name == BROKER else batch.column(name) for name in task.columns]
        yield pa.RecordBatch.from_arrays(columns, names=list(task.columns))


class _Reading:
    def __init__(self, task: SegmentTask, columns: Sequence[str]) -> None:
        self._task = task
        self._columns = columns
        self._fail = task.fail_on_data_loss
        self._replica = task.replica
        self._buffer = Buffer()
        self._offset = task.range.start
        self._more = False
        """True if the segment that was read goes on behind the range."""

    def run(self) -> Iterator[pa.RecordBatch]:
        end = self._task.range.end
        missed = 0
        while self._offset < end:
            before = [it for it in self._replica.segments if it.base_offset <= self._offset]
            behind = [it.base_offset for it in self._replica.segments if it.base_offset > self._offset]
            if not before:
                self._lose(min([*behind, end]), f"there is no segment with it in {self._replica.directory} any more")
                continue
            try:
                with open_log(before[-1].log_path) as file:
                    missed = 0
                    yield from self._segment(before[-1], file)
            except FileNotFoundError:
                missed += 1
                self._list_again(missed)
                continue
            if self._offset < end:
                self._lose(min([*behind, end]), f"{before[-1].log_path} does not have them", gap=self._more or bool(behind))

    def _list_again(self, times: int) -> None:
        """A file is gone: what is there now?"""
        try:
            if times > ATTEMPTS:
                raise FileNotFoundError
            self._replica = list_again(self._replica)
        except FileNotFoundError:  # the whole directory
            self._replica = replace(self._replica, segments=())

    def _lose(self, upto: int, why: str, *, gap: bool = False) -> None:
        """Go on at `upto`; what is before it should be there, but for a `gap` in a log that is compacted."""
        if upto > self._offset and not (gap and self._replica.compacted):
            tp = self._task.range.tp
            report_loss(f"offsets {self._offset} to {upto - 1} of {tp} cannot be read: {why}", self._fail)
        self._offset = max(upto, self._offset)

    def _segment(self, segment: SegmentFiles, file: FileIO) -> Generator[pa.RecordBatch]:
        end = self._task.range.end
        position = position_of(file, self._buffer, segment, self._offset)
        began = False
        for it in walk(file, self._buffer, floor=segment.base_offset, position=position, end=end):
            if isinstance(it, Hole):
                _damaged(segment.log_path, it.position, f"{it.end - it.position} bytes are no batch ({it.reason})", self._fail)
                position = it.end
                continue
            position = it.position + len(it.data)
            headers = self._checked(it, segment, began)
            began = True
            if headers.size:
                yield from self._parsed(it, headers, segment)
                self._offset = min(max(self._offset, int(next_offsets(headers[-1:])[0])), end)
            if self._offset == end:
                return  # what comes then is not looked at
        self._more = position < os.fstat(file.fileno()).st_size

    def _checked(self, it: Stretch, segment: SegmentFiles, began: bool) -> Headers:
        """The batches that can be read: intact, and in order of offset without a hole. Others are told."""
        headers = it.headers
        sane = (headers["base_offset"] >= 0) & (headers["last_offset_delta"] >= 0) & (headers["count"] >= 0)
        good = headers["crc_ok"] & sane
        if not good.all():
            self._tell(it, segment, ~headers["crc_ok"], "the CRC of the batch at offset {} does not match")
            self._tell(it, segment, headers["crc_ok"] & ~sane, "the batch at offset {} has impossible numbers")
            headers = headers[good]
        if not headers.size:
            return headers
        base, following = headers["base_offset"], next_offsets(headers)
        first = self._offset if began else min(self._offset, int(base[0]))
        expected = np.concatenate(([first], np.maximum.accumulate(following)[:-1]))
        back = base < expected
        if back.any():
            self._tell(it._replace(headers=headers), segment, back, "the batch at offset {} comes behind later ones")
            headers, base, expected = headers[~back], base[~back], expected[~back]
        holes = np.flatnonzero(base > expected) if not self._replica.compacted else ()
        for index in holes:
            if index and headers["position"][index] != headers["position"][index - 1] + headers["size"][index - 1]:
                continue  # what was between them was told
            position = int(headers["position"][index])
            missing = f"offsets {expected[index]} to {base[index] - 1} of {self._task.range.tp} are not in the log"
            report_loss(f"{segment.log_path} at byte {position}: {missing}", self._fail)
        return headers

    def _tell(self, it: Stretch, segment: SegmentFiles, bad: Any, what: str) -> None:
        for header in it.headers[bad]:
            _damaged(segment.log_path, int(header["position"]), what.format(header["base_offset"]), self._fail)

    def _parsed(self, it: Stretch, headers: Headers, segment: SegmentFiles) -> list[pa.RecordBatch]:
        try:
            return self._parse(it, headers)
        except ApiError as error:
            if error.code != ErrorCode.CORRUPT_MESSAGE:
                raise
        found = []
        for index in range(headers.size):  # which one it is, and the others
            try:
                found += self._parse(it, headers[index : index + 1])
            except ApiError as error:
                _damaged(segment.log_path, int(headers["position"][index]), str(error.message), self._fail)
        return found

    def _parse(self, it: Stretch, headers: Headers) -> list[pa.RecordBatch]:
        task = self._task
        headers = headers.copy()
        headers["position"] -= it.position
        return parse_records(
            it.data,
            tp=task.range.tp,
            start=self._offset,
            end=task.range.end,
            columns=self._columns,
            parser=task.parser,
            max_rows=task.batch_rows,
            scan=Scan(headers=headers, stopped_at=len(it.data), why=""),
        ).batches


# batches


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchesTask:
    """`columns` of BATCH_TYPES, in the order in which Spark wants them."""

    pieces: tuple[Piece, ...]
    columns: tuple[str, ...]
    fail_on_data_loss: bool
    batch_rows: int = 10_000


def read_batches(task: BatchesTask) -> Iterator[pa.RecordBatch]:
    """A row per record batch, up to the last whole one: a torn end is no error. CRCs are computed when they are asked for.

    Raises DataLoss (a file is gone), ApiError(CORRUPT_MESSAGE) (bytes that are no batch, before others), OSError.
    """
    buffer = Buffer()
    crc = "crc_ok" in task.columns
    for piece in task.pieces:
        segment = piece.segment
        try:
            file = open_log(segment.log_path)
        except FileNotFoundError:
            report_loss(f"{segment.log_path} is gone", task.fail_on_data_loss)
            continue
        with file:
            if piece.start and not begins(file, segment, piece.start, MAX_INT64):
                report_loss(f"{segment.log_path} was replaced since the query was planned", task.fail_on_data_loss)
                continue
            held: list[Headers] = []
            rows = 0
            for it in walk(file, buffer, floor=segment.base_offset, position=piece.start, stop=piece.stop, crc=crc):
                if isinstance(it, Hole):
                    _told(it, segment, task.fail_on_data_loss)
                    continue
                held.append(it.headers)
                rows += len(it.headers)
                if rows >= task.batch_rows:
                    yield from _as_rows(np.concatenate(held), segment, task)
                    held, rows = [], 0
            if held:
                yield from _as_rows(np.concatenate(held), segment, task)


def _told(hole: Hole, segment: SegmentFiles, fail: bool) -> None:
    what = f"{hole.end - hole.position} bytes are no batch ({hole.reason})"
    if not hole.tail:
        _damaged(segment.log_path, hole.position, what, fail)
    elif not segment.last:
        log.warning("%s at byte %d: %s, up to its end", segment.log_path, hole.position, what)


def _as_rows(headers: Headers, segment: SegmentFiles, task: BatchesTask) -> Iterator[pa.RecordBatch]:
    for low in range(0, len(headers), task.batch_rows):
        part = headers[low : low + task.batch_rows]
        columns = [_column(name, part, segment) for name in task.columns]
        yield pa.RecordBatch.from_arrays(columns, names=list(task.columns))


def _column(name: str, headers: Headers, segment: SegmentFiles) -> pa.Array:
    kind = BATCH_TYPES[name]
    if name in _PLAIN:
        return pa.array(np.ascontiguousarray(headers[_PLAIN[name]])).cast(kind)
    if name in _FLAGS:
        return pa.array(headers["attributes"] & _FLAGS[name] != 0)
    match name:
        case "last_offset":
            return pa.array(next_offsets(headers) - 1, kind)
        case "crc_ok":
            return pa.array(np.ascontiguousarray(headers["crc_ok"]))
        case "compression":
            return _CODECS.take(pa.array(headers["attributes"] & CODEC_MASK))
        case "first_timestamp":
            return _times(headers["base_timestamp"], headers["attributes"] & DELETE_HORIZON_BIT != 0)
        case "max_timestamp":
            return _times(headers["max_timestamp"], np.False_)
        case _:
            constants = {"segment": Path(segment.log_path).name, "broker": segment.broker, "topic": segment.topic}
            return pa.repeat(pa.scalar(constants.get(name, segment.partition), kind), len(headers))


def _times(ms: Any, without: Any) -> pa.Array:
    """Null: none, or beyond what microseconds hold in 64 bits."""
    none = (ms < 0) | (ms > MAX_INT64 // 1000) | without
    return pa.array(np.where(none, 0, ms) * 1000, mask=none).cast(BATCH_TYPES["max_timestamp"])
