"""The files of a log, read by the checkers themselves: neither its indexes nor its memory of itself is asked."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from kraftlite.log.batch import BatchHeader, iter_batches, iter_records, record_timestamp
from kraftlite.log.log import Log
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.simhost.host import SimHost

OFFSET_ENTRY: Final = struct.Struct(">ii")
TIME_ENTRY: Final = struct.Struct(">qi")


class Rec(NamedTuple):
    """A record as it is stored."""

    offset: int
    epoch: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...]

    def __repr__(self) -> str:
        value = "no value" if self.value is None else f"{len(self.value)} bytes"
        return f"{self.offset}@{self.epoch} {(self.key or b'')[:12]!r}: {value}, time {self.timestamp}"


class Stored(NamedTuple):
    """A batch with its records, as a file has it."""

    header: BatchHeader
    records: tuple[Rec, ...]


def stored(header: BatchHeader, raw: bytes | memoryview) -> Stored:
    if header.is_control:
        return Stored(header, ())
    epoch = header.partition_leader_epoch
    return Stored(
        header,
        tuple(
            Rec(
                header.base_offset + it.offset_delta,
                epoch,
                it.key,
                it.value,
                record_timestamp(header, it),
                it.headers,
            )
            for it in iter_records(raw)
        ),
    )


def files_of(node: SimHost, directory: str, suffix: str = ".log") -> list[tuple[int, bytes]]:
    """(base offset, content) of each file with this suffix, in order."""
    with node.disk.undisturbed():
        names = sorted(it for it in node.disk.listdir(directory) if it.endswith(suffix) and it[:20].isdecimal())
        return [(int(it[:20]), node.disk.read_file(f"{directory}/{it}")) for it in names if it[20:] == suffix]


def batches_in(data: bytes) -> Iterator[Stored]:
    for header, raw in iter_batches(data):
        yield stored(header, raw)


def records_of(node: SimHost, log: Log, up_to: int | None = None) -> Iterator[Rec]:
    """The records of a running log from its start up to this offset, its HW if none is given."""
    end = log.hw if up_to is None else up_to
    for _base, data in files_of(node, log.directory):
        for header, raw in iter_batches(data):
            if header.next_offset <= log.log_start_offset or header.base_offset >= end:
                continue
            for it in stored(header, raw).records:
                if log.log_start_offset <= it.offset < end:
                    yield it


def running_log(node: SimHost, tp: TopicPartition) -> Log | None:
    broker = None if node.node is None else node.node.broker
    return None if broker is None else broker.log_dirs.get(tp)


def wall_ms(node: SimHost) -> int:
    """The time by the clock of the node itself."""
    assert node.now is not None
    return node.now.clock.wall_ms()
