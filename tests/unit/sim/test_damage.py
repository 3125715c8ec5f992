"""What is lost of a broker's files, and where it would be beyond what anybody can notice."""

from __future__ import annotations

import random

from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.damage import KINDS, damage_files
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
