from __future__ import annotations

import pytest

from kraftlite.model.errors import Fault
from kraftlite.model.messages.raft import OffsetAndEpoch
from kraftlite.raft.snapshots import (
    BOOTSTRAP_SNAPSHOT_ID,
    SnapshotStore,
    parse_snapshot_name,
    read_snapshot_file,
    snapshot_name,
    write_snapshot_file,
)
from tests.harness.disk import MemDisk
from tests.harness.raft_cluster import TextSerde

ID = OffsetAndEpoch(epoch=7, offset=42)


@pytest.fixture
def disk() -> MemDisk:
    disk = MemDisk()
    disk.makedirs("/m")
    return disk


def test_names() -> None:
    assert snapshot_name(ID) == "00000000000000000042-0000000007.checkpoint"
    assert parse_snapshot_name(snapshot_name(ID) + ".part") == (ID, ".part")
    assert parse_snapshot_name("00000000000000000042.log") is None
    assert snapshot_name(BOOTSTRAP_SNAPSHOT_ID) == "00000000000000000000-0000000000.checkpoint"


def test_round_trip_survives_a_crash(disk: MemDisk) -> None:
    records = [f"r{i}" for i in range(2_500)]
    path = write_snapshot_file(disk, "/m", ID, [records[:7], records[7:]], TextSerde(), 1234)
    disk.crash()
    reader = read_snapshot_file(disk, path, TextSerde())
    assert reader.snapshot_id == ID and reader.last_contained_timestamp_ms == 1234
    batches = list(reader.batches())
    assert [record for batch in batches for record in batch] == records
    assert max(map(len, batches)) <= 1_000


@pytest.mark.parametrize("cut", [1, 60, 100])
def test_a_torn_file_is_a_fault(disk: MemDisk, cut: int) -> None:
    path = write_snapshot_file(disk, "/m", ID, [["a", "b"]], TextSerde(), 1)
    file = disk.open(path)
    file.truncate(file.size() - cut)
    with pytest.raises(Fault):
        list(read_snapshot_file(disk, path, TextSerde()).batches())


def test_a_flipped_bit_is_a_fault(disk: MemDisk) -> None:
    path = write_snapshot_file(disk, "/m", ID, [["a", "b"]], TextSerde(), 1)
    size = disk.open(path).size()
    disk.overwrite(path, size - 1, b"\x7f")
    with pytest.raises(Fault, match="CRC"):
        list(read_snapshot_file(disk, path, TextSerde()).batches())


def test_the_store_lists_by_epoch_and_offset_without_the_bootstrap(disk: MemDisk) -> None:
    for snapshot_id in (ID, OffsetAndEpoch(epoch=2, offset=9), BOOTSTRAP_SNAPSHOT_ID):
        write_snapshot_file(disk, "/m", snapshot_id, [["x"]], TextSerde(), 1)
    store = SnapshotStore(disk, "/m")
    store.load()
    assert store.ids == (OffsetAndEpoch(epoch=2, offset=9), ID)
    assert store.latest == ID and store.earliest == OffsetAndEpoch(epoch=2, offset=9)
    assert not store.contains(BOOTSTRAP_SNAPSHOT_ID)
