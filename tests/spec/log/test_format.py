"""LG-01 to LG-08: what is on disk."""

from __future__ import annotations

import itertools
import struct

import pytest
from crc32c import crc32c

from kraftlite.log import checkpoints
from kraftlite.log.batch import Record, build_batch, check_crc, iter_records, parse_header
from kraftlite.log.config import LogConfig
from kraftlite.model.ids import uuid_to_str
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace import ListTracer
from kraftlite.runtime.trace.log import LogRolled
from tests.harness.disk import MemDisk
from tests.harness.log_support import DIR, NOW, TOPIC_ID, append, batch, end_txn, everything, open_log, values


def log_bytes(disk: MemDisk, base: int = 0) -> bytes:
    return disk.read_file(f"{DIR}/{base:020d}.log")


def test_lg_01_header_is_61_bytes_big_endian_and_crc_covers_attributes_on() -> None:
    disk = MemDisk()
    log = open_log(disk)
    append(log, "skipped", epoch=6)
    append(log, "a", "bb", epoch=7, pid=42, pepoch=3, seq=9, deltas=(0, 5))
    raw = log_bytes(disk)[len(batch("skipped")) :]
    fields = struct.unpack(">qiibIhiqqqhii", raw[:61])
    assert fields[0] == 1 and fields[1] == len(raw) - 12 and fields[2] == 7 and fields[3] == 2
    assert fields[4] == crc32c(raw[21:])
    assert fields[5:] == (0, 1, NOW, NOW + 5, 42, 3, 9, 2)


@pytest.mark.parametrize("codec", range(5))
def test_lg_02_records_round_trip_with_every_codec(codec: int) -> None:
    records = [
        Record(b"k", b"v" * 40_000, (("h", b"1"), ("empty", None)), 0, 0),
        Record(None, b"", (), 70_000, 1),
        Record(b"", None, (), -3, 2),
    ]
    made = build_batch(records, timestamp_ms=NOW, codec=codec)
    header = parse_header(made)
    assert (header.codec, header.count, header.max_timestamp) == (codec, 3, NOW + 70_000)
    assert check_crc(made) and list(iter_records(made)) == records


def test_lg_02_attribute_bits() -> None:
    plain, txn = build_batch([Record(None, b"")], timestamp_ms=0), batch("x", pid=1, txn=True)
    assert parse_header(plain).attributes == 0
    assert parse_header(txn).attributes == 0x10 and parse_header(txn).is_transactional
    control = build_batch([Record(None, b"")], timestamp_ms=0, control=True)
    assert parse_header(control).attributes == 0x20 and parse_header(control).is_control


def test_lg_03_files_of_a_partition() -> None:
    disk = MemDisk()
    log = open_log(disk, LogConfig(segment_bytes=200))
    assert disk.syncs == 0, "an empty log has nothing to lose: thousands may be created at once"
    # Durable before the first byte of data: a power cut during the first append keeps the topic id.
    disk.inject("pwritev", path=".log")
    with pytest.raises(OSError):
        append(log, "x")
    disk.crash()
    assert checkpoints.read_partition_metadata(disk, DIR) == TOPIC_ID
    assert disk.read_file(f"{DIR}/partition.metadata").decode() == f"version: 0\ntopic_id: {uuid_to_str(TOPIC_ID)}"
    log = open_log(disk, LogConfig(segment_bytes=200))
    for number in range(4):
        append(log, "x" * 60, pid=1, seq=number)
    log.close()
    names = {path.rpartition("/")[2] for path in disk.tree(DIR)}
    assert {"00000000000000000000.log", "00000000000000000000.index", "00000000000000000000.timeindex"} <= names
    assert "leader-epoch-checkpoint" in names and f"{log.leo:020d}.snapshot" in names
    assert f"{log.active_base_offset:020d}.log" in names and log.active_base_offset > 0


def test_lg_03_a_partition_without_records_is_a_directory_that_says_whose_it_is() -> None:
    disk = MemDisk()
    log = open_log(disk)
    log.assign_epoch_start(3, 0)
    assert disk.tree() == [f"{DIR}/partition.metadata"], "thousands may be created at once"
    assert log.epoch_entries == ((3, 0),) and log.read(0, 100, up_to=0) == b"" and log.offset_for_timestamp(0, up_to=0) is None
    log.close()
    for clean in (True, False):
        again = open_log(disk, clean=clean)
        assert (again.log_start_offset, again.leo, again.segment_base_offsets) == (0, 0, (0,))
        again.close()
    assert disk.tree() == [f"{DIR}/partition.metadata"]
    again = open_log(disk)
    again.assign_epoch_start(3, 0)
    append(again, "a", epoch=3)
    assert disk.tree() == [f"{DIR}/{0:020d}.log", f"{DIR}/leader-epoch-checkpoint", f"{DIR}/partition.metadata"]
    assert disk.read_file(f"{DIR}/leader-epoch-checkpoint") == b"0\n1\n3 0\n"
    again.flush_sync()
    disk.crash()
    after = open_log(disk, recovery_point=1)
    assert values(after) == [(0, b"a")] and after.epoch_entries == ((3, 0),) and after.topic_id == TOPIC_ID


def test_lg_03_partitions_of_one_topic_share_the_file_that_says_whose_they_are() -> None:
    disk = MemDisk()
    open_log(disk, directory="/data/orders-0")
    second = open_log(disk, directory="/data/orders-1", sibling="/data/orders-0")
    append(second, "x")
    disk.crash()
    assert checkpoints.read_partition_metadata(disk, "/data/orders-1") == TOPIC_ID, "durable before the first data, as one's own"
    assert checkpoints.read_partition_metadata(disk, "/data/orders-0") is None, "a log without records may be lost"
    disk.inject("link")
    append(open_log(disk, directory="/data/orders-2", sibling="/data/orders-1"), "y")
    append(open_log(disk, directory="/data/orders-3", sibling="/data/gone"), "z")
    disk.crash()
    for name in ("orders-2", "orders-3"):
        assert checkpoints.read_partition_metadata(disk, f"/data/{name}") == TOPIC_ID, "a file of its own, as there is no link"


def test_lg_04_rolls_by_size_with_snapshot_and_flush_wanted() -> None:
    disk, tracer = MemDisk(), ListTracer()
    log = open_log(disk, LogConfig(segment_bytes=1000), tracer=tracer)
    wanted: list[int] = []
    log.on_roll = lambda rolled: wanted.append(rolled.active_base_offset)
    size = len(batch("x" * 100))
    for number in range(12):
        append(log, "x" * 100, pid=1, seq=number)
    assert len(log.segments) > 1 and wanted == list(log.segment_base_offsets[1:])
    for base in log.segment_base_offsets[1:]:
        assert len(log_bytes(disk, log.segment_base_offsets[0])) + size > 1000
        assert disk.stat(f"{DIR}/{base:020d}.snapshot") is not None
    assert [event.base_offset for event in tracer.events if isinstance(event, LogRolled)] == wanted


def test_lg_04_rolls_by_time_of_the_first_batch_minus_jitter() -> None:
    log = open_log(config=LogConfig(segment_ms=1000))
    append(log, "a", ts=NOW)
    append(log, "b", ts=NOW + 1000)
    assert len(log.segments) == 1
    append(log, "c", ts=NOW + 1001)
    assert log.segment_base_offsets == (0, 2)
    assert not log.maybe_roll(NOW + 2001)
    assert log.maybe_roll(NOW + 2002) and log.segment_base_offsets == (0, 2, 3)


def test_lg_04_rolls_when_the_index_is_full_or_the_offset_does_not_fit() -> None:
    log = open_log(config=LogConfig(segment_index_bytes=24, index_interval_bytes=0))
    for number in range(8):
        append(log, "x", ts=NOW + number)
    assert len(log.segments) > 2
    far = open_log(config=LogConfig(cleanup_policy=("compact",)))
    far.append_as_follower(batch("a", base_offset=0, epoch=0))
    far.append_as_follower(batch("b", base_offset=2**31 + 5, epoch=0))
    assert far.segment_base_offsets == (0, 2**31 + 5) and far.leo == 2**31 + 6


def test_lg_05_index_entries_and_lookup() -> None:
    disk = MemDisk()
    log = open_log(disk, LogConfig(index_interval_bytes=150))
    positions, position = {}, 0
    for number in range(20):
        append(log, "x" * 30, "y", ts=NOW + number)
        positions[log.leo - 1] = position
        position = len(log_bytes(disk))
    log.close()
    raw = disk.read_file(f"{DIR}/{0:020d}.index")
    entries = list(struct.iter_unpack(">ii", raw))
    assert 2 < len(entries) < 20 and entries == sorted(entries)
    assert all(positions[offset] == at for offset, at in entries), "an entry is the last offset of the batch at its position"
    gaps = [b[1] - a[1] for a, b in itertools.pairwise(entries)]
    assert min(gaps) > 150
    times = list(struct.iter_unpack(">qi", disk.read_file(f"{DIR}/{0:020d}.timeindex")))
    assert times == sorted(times) and times[-1] == (NOW + 19, 39)
    # A fresh reader has only the sparse index.
    again = open_log(disk, LogConfig(index_interval_bytes=150), clean=True)
    for offset in range(40):
        assert parse_header(again.read(offset, 1, up_to=40)).base_offset == offset // 2 * 2


def test_lg_06_transaction_index_has_34_byte_entries_of_aborted_transactions_only() -> None:
    disk = MemDisk()
    log = open_log(disk)
    append(log, "a", pid=1, txn=True)
    append(log, "b", pid=2, txn=True)
    append(log, "c", pid=3, txn=True)
    end_txn(log, 2, commit=True)
    end_txn(log, 3, commit=False)
    end_txn(log, 1, commit=False)
    log.close()
    raw = disk.read_file(f"{DIR}/{0:020d}.txnindex")
    assert len(raw) == 2 * 34
    # producer 3 ends while producer 1 is still open at offset 0: the LSO stays there.
    assert list(struct.iter_unpack(">hqqqq", raw)) == [(0, 3, 2, 4, 0), (0, 1, 0, 5, 6)]


def test_lg_07_checkpoint_files_are_text_with_version_and_count() -> None:
    disk = MemDisk()
    disk.makedirs("/data")
    path = f"/data/{checkpoints.HW_CHECKPOINT}"
    offsets = {TopicPartition("b", 1): 7, TopicPartition("a", 0): 5, TopicPartition("b", 0): 2**40}
    checkpoints.write_offset_checkpoint(disk, path, offsets)
    assert disk.read_file(path) == b"0\n3\na 0 5\nb 0 1099511627776\nb 1 7\n"
    assert checkpoints.read_offset_checkpoint(disk, path) == offsets
    for garbage in (b"", b"1\n0\n", b"0\n2\na 0 5\n", b"0\n1\na 0\n", b"0\n1\na x 5\n", b"\xff\xfe\n"):
        disk.write_file_atomically(path, garbage)
        assert checkpoints.read_offset_checkpoint(disk, path) == {}
    assert checkpoints.read_offset_checkpoint(disk, "/data/absent") == {}


def test_lg_07_epoch_checkpoint_file() -> None:
    disk = MemDisk()
    log = open_log(disk)
    append(log, "a", epoch=0)
    append(log, "b", "c", epoch=4)
    append(log, "d", epoch=5)
    assert disk.read_file(f"{DIR}/leader-epoch-checkpoint") == b"0\n3\n0 0\n4 1\n5 3\n"
    with pytest.raises(checkpoints.MalformedCheckpoint, match="does not increase"):
        checkpoints.parse_epochs("x", b"0\n2\n4 1\n3 5\n")
    with pytest.raises(checkpoints.MalformedCheckpoint, match="torn"):
        checkpoints.parse_epochs("x", b"0\n1\n9 1")


def test_lg_08_clean_shutdown_marker() -> None:
    disk = MemDisk()
    disk.makedirs("/data")
    assert checkpoints.read_clean_shutdown(disk, "/data") is None
    checkpoints.write_clean_shutdown(disk, "/data", 77)
    disk.crash()
    assert disk.read_file("/data/.kafka_cleanshutdown") == b'{"version": 0, "brokerEpoch": 77}'
    assert checkpoints.read_clean_shutdown(disk, "/data") == 77
    checkpoints.remove_clean_shutdown(disk, "/data")
    disk.crash()
    assert checkpoints.read_clean_shutdown(disk, "/data") is None


def test_rp_27_a_follower_stores_the_bytes_unmodified() -> None:
    leader, disk = open_log(), MemDisk()
    for number in range(5):
        append(leader, f"v{number}", epoch=number)
    follower = open_log(disk)
    assert follower.append_as_follower(everything(leader), leader_epoch=4) is not None
    assert log_bytes(disk) == everything(leader) and follower.epoch_entries == leader.epoch_entries
    assert values(follower) == values(leader)
