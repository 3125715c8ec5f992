"""What is lost of a broker's files, and where it would be beyond what anybody can notice."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from kraftlite.log.batch import Record, build_batch
from kraftlite.model.ids import METADATA_TOPIC
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.damage import KINDS, damage_files
from kraftlite.sim.rot import damage_latest_snapshot
from kraftlite.simhost.disk import MemDisk

TP = TopicPartition("t", 0)
SEGMENTS = ("00000000000000000000.log", "00000000000000000007.log", "00000000000000000009.log")


def _disk() -> MemDisk:
    disk = MemDisk()
    disk.makedirs(f"/data/{TP}")
    for name in SEGMENTS:
        disk.write_file_atomically(f"/data/{TP}/{name}", b"records")
    return disk


def _lost(*, gaps: bool) -> dict[str, set[str]]:
    """The segments that are gone, by the kind of damage."""
    found: dict[str, set[str]] = {}
    for seed in range(200):
        disk = _disk()
        kind = damage_files(disk, "/data", TP, random.Random(seed), gaps=gaps)
        left = disk.listdir(f"/data/{TP}") if disk.stat(f"/data/{TP}") is not None else []
        found[kind] = set(SEGMENTS) - set(left)
    return found


def test_no_segment_between_others_is_lost_where_compaction_leaves_gaps() -> None:
    dense, sparse = _lost(gaps=False), _lost(gaps=True)
    assert set(dense) == set(KINDS)
    assert dense["second segment lost"] == {SEGMENTS[1]}
    assert all(SEGMENTS[1] not in lost or lost == set(SEGMENTS) for lost in sparse.values())
    assert set(sparse) == set(KINDS) - {"second segment lost"}


def test_an_end_is_lost_between_two_batches() -> None:
    disk, batch = _disk(), bytes(build_batch([Record(key=None, value=b"v")], timestamp_ms=1))
    disk.write_file_atomically(f"/data/{TP}/{SEGMENTS[-1]}", batch * 4)
    KINDS["end lost"](disk, "/data", TP)
    assert disk.read_file(f"/data/{TP}/{SEGMENTS[-1]}") == batch * 2


def test_of_metadata_snapshots_the_newest_goes_bad() -> None:
    disk, node = MemDisk(), SimpleNamespace(metadata_log_dir="/data")
    config: Any = node
    assert damage_latest_snapshot(disk, config, random.Random(1)) is None
    old, new = (f"/data/{METADATA_TOPIC}-0/{offset:020d}-0000000001.checkpoint" for offset in (9, 10))
    disk.makedirs(f"/data/{METADATA_TOPIC}-0")
    for path in (old, new):
        disk.write_file_atomically(path, b"a snapshot")
    found = damage_latest_snapshot(disk, config, random.Random(1))
    assert found is not None and found[0] == new and found[2] == b"a snapshot"
    assert disk.read_file(old) == b"a snapshot" != disk.read_file(new)
