"""Writing metadata snapshots: ML-10, ML-19, ML-20."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from kraftlite.metadata.delta import MetadataDelta
from kraftlite.metadata.image import MetadataImage
from kraftlite.metadata.publisher import Manifest
from kraftlite.metadata.records import FeatureLevelRecord, PartitionChangeRecord
from kraftlite.metadata.snapshotter import SnapshotGenerator
from tests.harness.metadata_support import FakeRaft, MetadataWorld, image_of, nodes, provenance, topic


class Generating:
    def __init__(self, **options: Any) -> None:
        self.world = MetadataWorld()
        self.raft = FakeRaft()
        self.generator = SnapshotGenerator(self.world.ports, self.raft, **options)  # type: ignore[arg-type]
        self.image = image_of(topic("t", 1, 3))

    def update(self, num_bytes: int, *, kind: str = "log", aligned: bool = True) -> None:
        position = provenance(self.image.offset + 1)
        if not aligned:
            from dataclasses import replace

            position = replace(position, is_offset_batch_aligned=False)
        delta = MetadataDelta(self.image)
        self.image = delta.apply(position)
        manifest = Manifest(kind=kind, provenance=position, num_batches=1, num_bytes=num_bytes)  # type: ignore[arg-type]
        self.generator.on_metadata_update(delta, self.image, manifest)

    async def settle(self, ms: int = 0) -> None:
        await self.world.clock.run_for(ms)

    def written(self) -> list[int]:
        return [writer.snapshot_id.offset for writer in self.raft.writers if writer.state == "frozen"]


async def test_ml_19_a_snapshot_follows_enough_bytes_and_the_count_starts_again() -> None:
    it = Generating(max_bytes_between=100, max_interval_ms=0)
    it.update(60)
    await it.settle()
    assert it.written() == []
    it.update(60)
    wanted: MetadataImage = it.image
    await it.settle()
    assert it.written() == [wanted.offset + 1]
    assert it.raft.writers[0].records == list(wanted.write())
    assert it.raft.writers[0].snapshot_id == wanted.provenance.snapshot_id
    it.update(60)
    await it.settle()
    assert len(it.written()) == 1


async def test_ml_19_a_snapshot_follows_enough_time_unless_that_is_off() -> None:
    timed, untimed = Generating(max_interval_ms=1000), Generating(max_interval_ms=0)
    for it in (timed, untimed):
        await it.settle(999)
        it.update(1)
        await it.settle()
        assert it.written() == []
        await it.settle(1)
        it.update(1)
        await it.settle()
    assert len(timed.written()) == 1 and untimed.written() == []


async def test_ml_19_one_at_a_time() -> None:
    it = Generating(max_bytes_between=10)
    it.raft.hold_freeze = asyncio.Event()
    it.update(10)
    await it.settle()
    it.update(10)
    await it.settle()
    assert len(it.raft.writers) == 1
    it.raft.hold_freeze.set()
    await it.settle()
    it.update(1)  # the bytes that came meanwhile still count
    await it.settle()
    assert len(it.written()) == 2


async def test_ml_19_loading_a_snapshot_starts_the_counters_again() -> None:
    it = Generating(max_bytes_between=100, max_interval_ms=1000)
    it.update(90)
    await it.settle(900)
    it.update(5000, kind="snapshot")
    await it.settle(200)
    it.update(90)
    await it.settle()
    assert it.raft.writers == []


async def test_ml_10_an_image_that_ends_inside_a_batch_is_not_written() -> None:
    it = Generating(max_bytes_between=100)
    it.update(200, aligned=False)
    await it.settle()
    assert it.raft.writers == []
    it.update(1)
    await it.settle()
    assert it.written() == [it.image.offset + 1]


async def test_ml_20_a_failed_write_is_reported_abandoned_and_tried_again_later() -> None:
    it = Generating(max_bytes_between=100, max_interval_ms=0, retry_backoff_ms=500)
    it.raft.freeze_error = OSError(30, "Read-only file system")
    it.update(100)
    await it.settle()
    assert [writer.state for writer in it.raft.writers] == ["abandoned"]
    (failed,) = it.world.events("metadata.snapshot_failed")
    assert "Read-only file system" in failed.error
    assert it.world.faults == [] and it.world.tasks.faults == []
    it.raft.freeze_error = None
    await it.settle(499)
    it.update(1)
    await it.settle()
    assert it.written() == []
    await it.settle(1)
    it.update(1)
    await it.settle()
    assert it.written() == [it.image.offset + 1]


async def test_ml_13_what_the_level_of_the_image_cannot_hold_fails_the_snapshot_by_name() -> None:
    it = Generating(max_bytes_between=100, max_interval_ms=0)
    level = FeatureLevelRecord(name="metadata.version", level=22)
    it.image = image_of([level, *topic("t", 1, 1), PartitionChangeRecord(topic_id=UUID(int=1), partition=0, elr=nodes(3))])
    it.update(100)
    await it.settle()
    assert [writer.state for writer in it.raft.writers] == ["abandoned"]
    (failed,) = it.world.events("metadata.snapshot_failed")
    assert "the elr of a PartitionRecord needs metadata.version 4.0-IV1 (23), but the level is 4.0-IV0 (22)" in failed.error


async def test_ml_19_a_snapshot_follows_damage_of_the_latest_one() -> None:
    it = Generating(max_interval_ms=0)
    it.update(1)
    await it.settle()
    assert it.written() == []
    it.raft.latest_is_damaged = True
    it.update(1)
    await it.settle()
    assert it.written() == [it.image.offset + 1]
