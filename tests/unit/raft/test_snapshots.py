from __future__ import annotations

import pytest

from kraftlite.log.batch import Record, build_batch
from kraftlite.log.control import KRaftVersion, KRaftVoters, SnapshotFooter, control_batch
from kraftlite.model.errors import ApiError, Fault
from kraftlite.model.messages.raft import OffsetAndEpoch
from kraftlite.raft.membership import Membership
from kraftlite.raft.snapshots import (
    BOOTSTRAP_SNAPSHOT_ID,
    SnapshotReader,
    SnapshotStore,
    parse_snapshot_name,
    read_snapshot_file,
    snapshot_name,
    write_snapshot_file,
)
from kraftlite.raft.voters import VoterSet
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


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 1, 48, 2**31 - 1])
def test_a_length_that_no_batch_has_is_a_fault(disk: MemDisk, length: int) -> None:
    path = write_snapshot_file(disk, "/m", ID, [["a", "b"]], TextSerde(), 1)
    disk.overwrite(path, 8, length.to_bytes(4, "big", signed=True))
    for read in (SnapshotReader.verify, lambda it: list(it.batches()), SnapshotReader.controls):
        with pytest.raises(Fault, match=r"0007\.checkpoint is damaged: it is torn at byte 0 of"):
            read(read_snapshot_file(disk, path, TextSerde()))


@pytest.mark.parametrize(
    "records",
    [[], [Record(b"", b"")], [Record(b"\0\0\0\3", b"\0")], [Record(b"\0\0\0\x63", b"")]],
    ids=["no record", "no type", "a short value", "a type of newer software"],
)
def test_a_first_batch_that_is_no_header_is_a_fault_though_its_crc_fits(disk: MemDisk, records: list[Record]) -> None:
    path = f"/m/{snapshot_name(ID)}"
    footer = control_batch([SnapshotFooter()], timestamp_ms=1, base_offset=1)
    disk.write_file_atomically(path, build_batch(records, timestamp_ms=1, control=True) + footer)
    for read in (SnapshotReader.verify, lambda it: list(it.batches()), SnapshotReader.controls):
        with pytest.raises(Fault, match="is damaged"):
            read(read_snapshot_file(disk, path, TextSerde()))


def test_what_a_snapshot_says_twice_of_the_voters_is_refused() -> None:
    voters = KRaftVoters(voters=())
    for controls in ((voters, voters), (KRaftVersion(kraft_version=1), voters, KRaftVersion(kraft_version=1))):
        with pytest.raises(ApiError, match="there are two KRaftV"):
            Membership(VoterSet(())).load(controls, 9)


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
