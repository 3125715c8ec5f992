"""The loader and its publishers: ML-02 to ML-11."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from kraftlite.metadata.image import MetadataImage
from kraftlite.metadata.loader import MetadataLoader
from kraftlite.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    RemoveTopicRecord,
)
from kraftlite.model.errors import Fault
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.raft import OffsetAndEpoch
from kraftlite.raft.client import LeaderAndEpoch
from tests.harness.metadata_support import FakeRaft, FakeSnapshot, MetadataWorld, RecordingPublisher, broker, image_of, topic

BEGIN, END, ABORT, NOOP = BeginTransactionRecord(), EndTransactionRecord(), AbortTransactionRecord(reason="no"), NoOpRecord()


class Loaded:
    def __init__(self) -> None:
        self.world = MetadataWorld()
        self.raft = FakeRaft()
        self.loader = MetadataLoader(self.world.ports, self.raft)  # type: ignore[arg-type]

    async def settle(self, ms: int = 0) -> None:
        await self.world.clock.run_for(ms)


@asynccontextmanager
async def running(*publishers: RecordingPublisher, caught_up: bool = False) -> AsyncIterator[Loaded]:
    loaded = Loaded()
    loaded.loader.start()
    loaded.loader.install_publishers(publishers)
    if caught_up:
        loaded.raft.commit(NOOP)
    await loaded.settle()
    yield loaded
    await loaded.loader.stop()
    await loaded.world.tasks.cancel_all()


def offsets(publisher: RecordingPublisher) -> list[int]:
    return [image.offset for _, image, _ in publisher.updates]


async def test_ml_02_nothing_is_published_before_hw_is_known_and_reached_and_a_record_seen() -> None:
    publisher = RecordingPublisher("p")
    async with running(publisher) as it:
        raft = it.raft
        raft.deliver(raft.batch(broker(1)))  # HW unknown
        await it.settle(200)
        raft.hw = 5
        raft.deliver(raft.batch(broker(2)))  # HW known, but we are at 1 < 4
        await it.settle(200)
        assert publisher.updates == [] and it.loader.last_applied_offset() == -1
        raft.deliver(raft.batch(NOOP, NOOP, NOOP))
        await it.settle()
        assert offsets(publisher) == [4] and it.loader.last_applied_offset() == 4
        raft.hw = 1000  # the gate never closes again
        raft.deliver(raft.batch(NOOP))
        await it.settle()
        assert offsets(publisher) == [4, 5]


async def test_ml_02_control_batches_alone_do_not_open_the_gate() -> None:
    publisher = RecordingPublisher("p")
    async with running(publisher) as it:
        it.raft.commit()
        await it.settle(300)
        assert it.loader.image.offset == 0 and publisher.updates == []
        it.raft.commit(NOOP)
        await it.settle()
        assert offsets(publisher) == [1]


async def test_ml_03_the_loaders_image_advances_while_gated_and_the_first_publish_shows_the_end() -> None:
    publisher = RecordingPublisher("p")
    async with running(publisher) as it:
        it.raft.hw = 4
        it.raft.deliver(it.raft.batch(*topic("t", 1)))
        await it.settle()
        assert it.loader.image.topics.topic("t") is not None
        it.raft.deliver(it.raft.batch(RemoveTopicRecord(topic_id=it.loader.image.topics.by_name["t"].topic_id), broker(1)))
        await it.settle()
        ((delta, image, manifest),) = publisher.updates
        assert not len(image.topics) and 1 in image.cluster.brokers
        assert manifest.kind == "snapshot"
        assert delta.topics is None or not (delta.topics.changed or delta.topics.deleted)


async def test_ml_04_a_new_publisher_is_tried_every_100_ms_and_then_gets_everything_once_and_the_leader() -> None:
    publisher = RecordingPublisher("p")
    async with running(publisher) as it:
        it.raft.deliver(it.raft.batch(broker(1), *topic("t", 1)))
        it.raft.listener.handle_leader_change(LeaderAndEpoch(leader_id=NodeId(3), epoch=4))
        await it.settle(99)
        it.raft.hw = 3  # becomes known without a further delivery
        await it.settle()
        assert publisher.updates == []
        await it.settle(100)
        ((delta, image, manifest),) = publisher.updates
        assert delta.image == MetadataImage.EMPTY and delta.apply(image.provenance) == image == it.loader.image
        assert manifest.kind == "snapshot"
        assert publisher.leaders == [LeaderAndEpoch(leader_id=NodeId(3), epoch=4)]
        await it.settle(1000)
        assert len(publisher.updates) == 1


async def test_ml_04_a_later_publisher_gets_the_whole_image_and_the_earlier_ones_nothing() -> None:
    first, second = RecordingPublisher("first"), RecordingPublisher("second")
    async with running(first, caught_up=True) as it:
        it.raft.commit(broker(1))
        await it.settle()
        it.loader.install_publishers([second])
        await it.settle()
        assert offsets(first) == [0, 1] and offsets(second) == [1]
        delta, image, _ = second.updates[0]
        assert delta.apply(image.provenance) == image and 1 in image.cluster.brokers


async def test_ml_05_publishers_hear_in_order_of_installation_each_update_before_the_next() -> None:
    log: list[tuple[str, str]] = []
    names = ("c", "a", "b")
    async with running(*[RecordingPublisher(name, log) for name in names], caught_up=True) as it:
        log.clear()
        it.raft.commit(NOOP)
        it.raft.commit(NOOP)
        it.raft.listener.handle_leader_change(LeaderAndEpoch(leader_id=NodeId(2), epoch=2))
        await it.settle()
        assert log == [(name, what) for what in ("image@1", "image@2", "leader=2") for name in names]


async def test_ml_06_a_name_installed_twice_is_a_fault_and_changes_nothing() -> None:
    first = RecordingPublisher("p")
    async with running(first, caught_up=True) as it:
        other, twin = RecordingPublisher("other"), RecordingPublisher("p")
        it.loader.install_publishers([other, twin])
        it.loader.install_publishers([RecordingPublisher("x"), RecordingPublisher("x")])
        await it.settle(200)
        assert [str(error) for error, _ in it.world.faults] == [
            "metadata publishers p are installed already",
            "metadata publishers x are installed already",
        ]
        assert other.updates == twin.updates == [] and len(first.updates) == 1


async def test_ml_06_a_removed_publisher_is_closed_and_hears_nothing_more() -> None:
    gone, stays = RecordingPublisher("gone"), RecordingPublisher("stays")
    async with running(gone, stays, caught_up=True) as it:
        it.loader.remove_publisher(gone)
        it.raft.commit(NOOP)
        await it.settle()
        assert gone.closed and offsets(gone) == [0] and offsets(stays) == [0, 1]
        it.loader.install_publishers([RecordingPublisher("gone")])  # the name is free again
        assert it.world.faults == []
    assert stays.closed


async def test_ml_07_a_failing_publisher_is_reported_and_stops_nobody() -> None:
    bad, good = RecordingPublisher("bad", error=RuntimeError("boom")), RecordingPublisher("good")
    async with running(bad, good, caught_up=True) as it:
        it.raft.commit(NOOP)
        await it.settle()
        assert offsets(bad) == offsets(good) == [0, 1]
        assert [(str(error), where) for error, where in it.world.faults] == [("boom", "metadata-publisher bad")] * 2
        assert it.world.tasks.faults == []


async def test_ml_08_all_batches_of_one_delivery_are_one_publish() -> None:
    publisher = RecordingPublisher("p")
    async with running(publisher, caught_up=True) as it:
        raft = it.raft
        raft.deliver(raft.batch(broker(1)), raft.batch(), raft.batch(broker(2), broker(3), size_bytes=50))
        await it.settle()
        _, image, manifest = publisher.updates[1]
        assert len(publisher.updates) == 2 and sorted(image.cluster.brokers) == [1, 2, 3]
        assert (manifest.kind, manifest.num_batches, manifest.num_bytes) == ("log", 3, 250)
        assert manifest.provenance == image.provenance and image.offset == 4 and image.provenance.is_offset_batch_aligned


async def test_ml_09_a_transaction_is_published_whole_at_its_end() -> None:
    publisher = RecordingPublisher("p")
    async with running(publisher, caught_up=True) as it:
        it.raft.commit(BEGIN, broker(1))
        it.raft.commit(broker(2))
        await it.settle()
        assert offsets(publisher) == [0] and it.loader.image.offset == 0
        it.raft.commit(broker(3), END)
        await it.settle()
        assert offsets(publisher) == [0, 5]
        assert sorted(publisher.updates[1][1].cluster.brokers) == [1, 2, 3]


async def test_ml_09_an_aborted_transaction_leaves_the_image_and_publishes_an_empty_delta() -> None:
    publisher = RecordingPublisher("p")
    async with running(publisher, caught_up=True) as it:
        it.raft.commit(broker(1))
        await it.settle()
        before = it.loader.image
        it.raft.commit(BEGIN, broker(2))
        it.raft.commit(ABORT)
        await it.settle()
        delta, image, _ = publisher.updates[2]
        assert delta.topics is None and delta.cluster is None and image.cluster is before.cluster and image.offset == 4
        it.raft.commit(broker(3))  # what follows is applied to the image from before
        await it.settle()
        assert sorted(it.loader.image.cluster.brokers) == [1, 3]
        assert [event.reason for event in it.world.events("metadata.transaction_aborted")] == ["no"]


async def test_ml_09_an_abort_in_the_middle_of_a_delivery_drops_only_the_transaction() -> None:
    publisher = RecordingPublisher("p")
    async with running(publisher, caught_up=True) as it:
        raft = it.raft
        raft.deliver(raft.batch(BEGIN, broker(1), ABORT, broker(2)), raft.batch(BEGIN, broker(3), END))
        await it.settle()
        assert sorted(it.loader.image.cluster.brokers) == [2, 3]


async def test_ml_10_begin_in_the_middle_of_a_batch_publishes_what_preceded_it_as_not_aligned() -> None:
    publisher = RecordingPublisher("p")
    async with running(publisher, caught_up=True) as it:
        it.raft.commit(broker(1), BEGIN, broker(2))
        await it.settle()
        assert offsets(publisher) == [0, 1]
        image = publisher.updates[1][1]
        assert sorted(image.cluster.brokers) == [1] and not image.provenance.is_offset_batch_aligned
        it.raft.commit(END)
        await it.settle()
        assert offsets(publisher) == [0, 1, 4]
        assert publisher.updates[2][1].provenance.is_offset_batch_aligned


async def test_ml_10_begin_at_the_start_of_a_batch_publishes_the_batches_before_it_as_aligned() -> None:
    publisher = RecordingPublisher("p")
    async with running(publisher, caught_up=True) as it:
        it.raft.deliver(it.raft.batch(broker(1)), it.raft.batch(BEGIN, broker(2)))
        await it.settle()
        assert offsets(publisher) == [0, 1] and publisher.updates[1][1].provenance.is_offset_batch_aligned


async def test_ml_11_transactions_that_do_not_nest_are_faults_that_stop_the_loader() -> None:
    for records, message in (
        ((BEGIN, BEGIN), "at offset 2 begins a transaction inside an open one"),
        ((END,), "at offset 1 ends a transaction, but none is open"),
        ((ABORT,), "at offset 1 aborts a transaction, but none is open"),
    ):
        async with running(caught_up=True) as it:
            it.raft.commit(*records)
            await it.settle()
            ((error, where),) = it.world.tasks.faults
            assert isinstance(error, Fault) and message in str(error) and where == "metadata-loader"


async def test_ml_12_a_loaded_snapshot_replaces_the_image_and_is_published() -> None:
    publisher = RecordingPublisher("p")
    async with running(publisher, caught_up=True) as it:
        it.raft.commit(broker(1), *topic("t", 1))
        await it.settle()
        wanted = image_of([broker(2), *topic("u", 2, 5)])
        it.raft.listener.handle_load_snapshot(FakeSnapshot(OffsetAndEpoch(3, 50), list(wanted.write())))
        it.raft.next_offset = 50
        it.raft.commit(broker(3))
        await it.settle()
        delta, image, manifest = publisher.updates[2]
        assert manifest.kind == "snapshot" and image.offset == 49 and image.provenance.last_contained_epoch == 3
        assert image.topics == wanted.topics and image.cluster == wanted.cluster
        assert delta.topics is not None and [t.name for t in delta.topics.deleted.values()] == ["t"]
        assert sorted(it.loader.image.cluster.brokers) == [2, 3]


async def test_ml_12_a_snapshot_opens_the_gate_and_ends_an_open_transaction() -> None:
    publisher = RecordingPublisher("p")
    async with running(publisher) as it:
        it.raft.hw = 50
        it.raft.deliver(it.raft.batch(BEGIN, broker(1)))
        it.raft.listener.handle_load_snapshot(FakeSnapshot(OffsetAndEpoch(3, 50), [broker(2)]))
        await it.settle()
        assert offsets(publisher) == [49] and sorted(it.loader.image.cluster.brokers) == [2]
        it.raft.next_offset = 50
        it.raft.commit(broker(3))
        await it.settle()
        assert offsets(publisher) == [49, 50]


async def test_ml_26_an_unknown_metadata_version_stops_the_loader_with_its_offset() -> None:
    async with running(caught_up=True) as it:
        it.raft.commit(FeatureLevelRecord(name="metadata.version", level=99))
        await it.settle()
        ((error, _),) = it.world.tasks.faults
        assert isinstance(error, Fault) and "record at offset 1" in str(error) and "level 99" in str(error)


async def test_a_long_replay_gives_the_loop_its_turns() -> None:
    publisher = RecordingPublisher("p")
    async with running(publisher) as it:
        it.raft.hw = 5000
        batches = [it.raft.batch(*[NOOP] * 500) for _ in range(10)]
        it.raft.deliver(*batches)
        turns = 0
        while it.loader.image.offset < 4999:
            await it.world.clock.settle(3)
            it.world.clock.advance(0)  # each pause of the replay waits for this
            turns += 1
            assert turns < 100
        assert turns >= 4


class CountedRecords(tuple[Any, ...]):
    """Records that count how many of them were taken."""

    taken = 0

    def __iter__(self) -> Iterator[Any]:
        for record in super().__iter__():
            CountedRecords.taken += 1
            yield record


async def test_a_single_large_batch_gives_the_loop_its_turns_too() -> None:
    publisher = RecordingPublisher("p")
    async with running(publisher) as it:
        it.raft.hw = 5000
        it.raft.deliver(replace(it.raft.batch(*[NOOP] * 5000), records=CountedRecords([NOOP] * 5000)))
        CountedRecords.taken = before = most = 0
        for _ in range(100):
            await it.world.clock.settle(3)
            it.world.clock.advance(0)
            most, before = max(most, CountedRecords.taken - before), CountedRecords.taken
        assert it.loader.image.offset == 4999 and CountedRecords.taken == 5000
        assert 0 < most <= 1_001  # the one that the next turn begins with may have been taken


async def test_metadata_waits_while_new_leaders_are_left_and_comes_in_its_order_then() -> None:
    publisher = RecordingPublisher("p")
    seen_at_each_turn: list[list[int]] = []

    def left() -> bool:
        seen_at_each_turn.append(offsets(publisher))
        return len(seen_at_each_turn) < 10

    async with running(publisher, caught_up=True) as it:
        assert not it.loader.holds_back()
        before = offsets(publisher)
        it.loader.elections_left = left
        it.raft.commit(NOOP)
        it.raft.commit(NOOP)
        await it.settle()
        assert seen_at_each_turn[:10] == [before] * 10
        assert offsets(publisher) == [*before, before[-1] + 1, before[-1] + 2]
