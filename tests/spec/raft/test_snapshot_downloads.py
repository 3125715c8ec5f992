"""RF-45: a downloaded snapshot is checked and made durable while it comes, so that its last chunk costs little."""

from __future__ import annotations

import pytest

from kraftlite.metadata.codec import MetadataSerde
from kraftlite.metadata.records import ConfigRecord
from kraftlite.model.errors import Fault
from kraftlite.model.limits import MIB
from kraftlite.model.messages.raft import OffsetAndEpoch
from kraftlite.raft.snapshots import PartialSnapshot, SnapshotBatches, SnapshotReader, SnapshotStore
from tests.harness.disk import MemDisk

SERDE = MetadataSerde()
AT = OffsetAndEpoch(epoch=1, offset=10)
CHUNK = 300_001
"""Bytes of a chunk, which ends anywhere in a batch."""


def snapshot_bytes() -> bytes:
    """Eleven megabytes in batches of a tenth of one."""
    record = ConfigRecord(resource_type=2, resource_name="t", name="n", value="x" * 90)
    encoded = SERDE.encode(record)
    batches = SnapshotBatches(AT, SERDE, 0)
    parts = [batches.header()]
    while sum(map(len, parts)) < 11 * MIB:
        parts += batches.add([record] * 10_000, [encoded] * 10_000)
    return b"".join([*parts, *batches.finish()])


def part_of(disk: MemDisk) -> PartialSnapshot:
    disk.makedirs("/m")
    return SnapshotStore(disk, "/m").create_part(AT)


def download(part: PartialSnapshot, data: bytes) -> int:
    """Take all chunks, and check all but the last; the bytes that are left to check then."""
    for start in range(0, len(data), CHUNK):
        part.append(data[start : start + CHUNK])
        if part.position < len(data):
            part.check_ahead(SERDE)
    return len(data) - part._checked


def test_rf_45_the_last_chunk_of_a_download_leaves_little_to_check() -> None:
    disk, data = MemDisk(), snapshot_bytes()
    part = part_of(disk)
    left = download(part, data)
    assert left < 2 * MIB + 2 * CHUNK
    part.verify(SERDE)
    part.complete()
    with SnapshotReader(disk, "/m/00000000000000000010-0000000001.checkpoint", SERDE) as reader:
        reader.verify()


@pytest.mark.parametrize("where", [100, 3 * MIB, 6 * MIB])
def test_rf_45_damage_is_found_while_the_download_goes_on(where: int) -> None:
    data = bytearray(snapshot_bytes())
    data[where] ^= 0x10
    with pytest.raises(Fault, match="is damaged"):
        download(part_of(MemDisk()), bytes(data))


@pytest.mark.parametrize("lost", ["footer", "a byte"])
def test_rf_45_an_end_that_is_missing_is_found_at_the_end(lost: str) -> None:
    data = snapshot_bytes()
    footer = len(b"".join(SnapshotBatches(AT, SERDE, 0).finish()))
    part = part_of(MemDisk())
    download(part, data[: -footer if lost == "footer" else -1])
    with pytest.raises(Fault, match="does not end with a snapshot footer" if lost == "footer" else "torn"):
        part.verify(SERDE)
