"""Log directories of brokers as kraftlite writes them, made by its own segments, for tests that then damage them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kraftlite.host.disk import HostDisk
from kraftlite.log import checkpoints
from kraftlite.log.batch import Record, build_batch, crc_of, iter_headers, parse_header
from kraftlite.log.config import LogConfig
from kraftlite.log.segment import Appended, Segment
from kraftlite.model.topic_partition import TopicPartition

TP = TopicPartition("orders", 0)
START_MS = 1_700_000_000_000
RECORDS = 5
"""Of one batch."""
END = 120
"""Of the log that `make_cluster` makes unless told otherwise."""


def record_batch(base: int, epoch: int, *, producer: int = 7) -> bytes:
    """Five records, `k<offset>` = `value-<offset>` with some padding."""
    records = [Record(f"k{base + i}".encode(), f"value-{base + i}".encode() + b"." * 40, (), i) for i in range(RECORDS)]
    return build_batch(
        records,
        base_offset=base,
        leader_epoch=epoch,
        timestamp_ms=START_MS + base * 10,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=base,
    )


@dataclass(frozen=True)
class Broker:
    """One broker's directory. `segments`: paths of the log files of `orders-0`, in order."""

    name: str
    path: Path

    @property
    def directory(self) -> Path:
        return self.path / str(TP)

    @property
    def segments(self) -> list[Path]:
        return sorted(self.directory.glob("*.log"))

    def crash(self) -> None:
        """It did not shut down in order."""
        (self.path / checkpoints.CLEAN_SHUTDOWN).unlink()

    def set_offsets(self, name: str, value: int) -> None:
        checkpoints.write_offset_checkpoint(HostDisk(), str(self.path / name), {TP: value})

    def batches(self, segment: int) -> list[bytes]:
        data = self.segments[segment].read_bytes()
        return [data[position : position + header.size_bytes] for position, header in iter_headers(data)]

    def rewrite(self, segment: int, change: Callable[[list[bytes]], Sequence[bytes]]) -> None:
        """Replace a segment's batches, its indexes being left as they are."""
        self.segments[segment].write_bytes(b"".join(change(self.batches(segment))))


def make_cluster(
    root: Path, *, brokers: int = 3, segments: int = 3, per_segment: int = 8, interval: int = 200
) -> dict[str, Broker]:
    """Brokers b1… that shut down in order, each with the same log: epochs 0 and 2, everything committed."""
    made = {}
    for number in range(1, brokers + 1):
        broker = Broker(f"b{number}", root / f"node-{number}" / "data")
        broker.directory.mkdir(parents=True)
        _write(broker, segments, per_segment, interval)
        made[broker.name] = broker
    return made


def _write(broker: Broker, segments: int, per_segment: int, interval: int) -> None:
    disk, config = HostDisk(), LogConfig(index_interval_bytes=interval)
    offset, turn = 0, segments * per_segment * RECORDS // 2 // RECORDS * RECORDS
    for number in range(segments):
        segment = Segment.create(disk, str(broker.directory), offset, config, created_ms=START_MS, jitter_ms=0)
        for _ in range(per_segment):
            data = record_batch(offset, 0 if offset < turn else 2)
            header = parse_header(data)
            segment.append(data, [Appended(header.last_offset, header.size_bytes, header.max_timestamp)])
            offset += RECORDS
        if number + 1 < segments:
            segment.seal()
        else:
            segment.sync_indexes()
        segment.close()
    (broker.directory / checkpoints.LEADER_EPOCH_CHECKPOINT).write_bytes(checkpoints.format_epochs([(0, 0), (2, turn)]))
    for name in (checkpoints.HW_CHECKPOINT, checkpoints.RECOVERY_POINT_CHECKPOINT):
        checkpoints.write_offset_checkpoint(disk, str(broker.path / name), {TP: offset})
    checkpoints.write_offset_checkpoint(disk, str(broker.path / checkpoints.LOG_START_CHECKPOINT), {})
    checkpoints.write_clean_shutdown(disk, str(broker.path), 1)


def flip(path: Path, position: int, bit: int = 1) -> None:
    """One bit of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= bit
    path.write_bytes(data)


def with_crc(batch: bytes | bytearray) -> bytes:
    """The batch with the CRC that its bytes have now."""
    found = bytearray(batch)
    struct.pack_into(">I", found, 17, crc_of(found))
    return bytes(found)


def acked(offset: int, **more: object) -> dict[str, object]:
    """The line of a history about the record at `offset`."""
    value = f"value-{offset}" + "." * 40
    return {
        "topic": TP.topic,
        "partition": TP.partition,
        "offset": offset,
        "key": f"k{offset}",
        "value": value,
        "seq": offset,
        **more,
    }


def acked_lines(end: int) -> list[dict[str, object]]:
    return [acked(offset) for offset in range(end)]
