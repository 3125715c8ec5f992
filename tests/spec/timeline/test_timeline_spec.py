"""TL-01 to TL-12."""

from __future__ import annotations

import gc
import time
import tracemalloc

import pytest

from kraftlite.controller.deferred import DeferredQueue
from kraftlite.timeline.collections import TimelineMap, TimelineSet, TimelineValue
from kraftlite.timeline.registry import LATEST, TimelineRegistry


def test_tl_01_read_at_an_epoch_is_unmoved_by_later_changes() -> None:
    registry = TimelineRegistry()
    mapping: TimelineMap[int, str] = TimelineMap(registry)
    mapping[1], mapping[2] = "one", "two"
    registry.get_or_create_snapshot(10)
    mapping[1] = "uno"
    del mapping[2]
    for number in range(3, 500):
        mapping[number] = "grown"
    assert (mapping.get(1, 10), mapping.get(2, 10), mapping.get(3, 10)) == ("one", "two", None)
    assert (mapping.get(1), mapping.get(2), mapping.get(3)) == ("uno", None, "grown")


def test_tl_02_epochs_do_not_go_back_and_the_latest_is_returned_again() -> None:
    registry = TimelineRegistry()
    first = registry.get_or_create_snapshot(5)
    assert registry.get_or_create_snapshot(5) is first
    registry.get_or_create_snapshot(9)
    with pytest.raises(ValueError, match="epoch 7: there are 5, 9"):
        registry.get_or_create_snapshot(7)


def test_tl_03_revert_restores_all_structures_of_the_registry() -> None:
    registry = TimelineRegistry()
    mapping: TimelineMap[str, int] = TimelineMap(registry)
    members: TimelineSet[str] = TimelineSet(registry)
    value: TimelineValue[int] = TimelineValue(registry, 7)
    mapping["kept"] = 1
    members.add("kept")
    registry.get_or_create_snapshot(1)
    mapping["new"] = 2
    members.discard("kept")
    registry.get_or_create_snapshot(2)
    del mapping["kept"]
    value.set(8)
    registry.revert_to(1)
    assert dict(mapping.items()) == {"kept": 1}
    assert list(members) == ["kept"]
    assert value.get() == 7
    assert registry.epochs == (1,)


def test_tl_04_deleting_folds_deltas_and_keeps_the_named_epoch() -> None:
    registry = TimelineRegistry()
    mapping: TimelineMap[str, int] = TimelineMap(registry)
    for epoch in (1, 2, 3):
        mapping["x"] = epoch
        registry.get_or_create_snapshot(epoch)
    mapping["x"] = 4
    registry.delete_snapshot(2)
    assert [mapping.get("x", epoch) for epoch in (1, 3, LATEST)] == [1, 3, 4]
    registry.delete_snapshots_up_to(3)
    assert registry.epochs == (3,)
    assert mapping.get("x", 3) == 3


def test_tl_05_missing_epoch_raises_and_latest_reads_live_state() -> None:
    registry = TimelineRegistry()
    mapping: TimelineMap[str, int] = TimelineMap(registry)
    mapping["x"] = 1
    for act in (lambda: registry.revert_to(3), lambda: mapping.get("x", 3), lambda: mapping.items(3)):
        with pytest.raises(ValueError, match="no timeline snapshot at epoch 3"):
            act()
    assert LATEST == 2**63 - 1
    assert mapping.get("x", LATEST) == 1


def test_tl_06_reset_empties_everything() -> None:
    registry = TimelineRegistry()
    mapping: TimelineMap[str, int] = TimelineMap(registry)
    value: TimelineValue[int] = TimelineValue(registry, 3)
    registry.get_or_create_snapshot(1)
    mapping["x"] = 1
    value.set(4)
    registry.reset()
    assert len(mapping) == 0
    assert value.get() == 3
    assert registry.epochs == ()
    registry.get_or_create_snapshot(0)


def test_tl_07_iteration_of_a_snapshot_survives_changes() -> None:
    registry = TimelineRegistry()
    mapping: TimelineMap[int, int] = TimelineMap(registry)
    for number in range(50):
        mapping[number] = number
    registry.get_or_create_snapshot(1)
    seen = []
    for key, value in mapping.items(1):
        seen.append((key, value))
        mapping[key + 1_000] = 0
        mapping.pop(key + 1)
    assert sorted(seen) == [(number, number) for number in range(50)]
    for key in mapping:
        mapping.pop(key)
    assert len(mapping) == 0
    assert len(mapping.items(1)) == 50


def test_tl_08_none_is_rejected_equality_is_by_content_size_per_epoch() -> None:
    registry = TimelineRegistry()
    one: TimelineMap[object, object] = TimelineMap(registry)
    two: TimelineMap[object, object] = TimelineMap(TimelineRegistry())
    for key, value in ((None, 1), ("x", None)):
        with pytest.raises(ValueError, match="None"):
            one[key] = value
    with pytest.raises(ValueError, match="None"):
        TimelineSet(registry).add(None)
    one["x"] = two["x"] = 1
    assert one == two
    assert hash(one) == hash(two)
    registry.get_or_create_snapshot(1)
    one["y"] = 2
    assert one != two
    assert (len(one.items(1)), len(one)) == (1, 2)


def test_tl_09_scalars_keep_only_changed_tiers() -> None:
    registry = TimelineRegistry()
    value: TimelineValue[str | None] = TimelineValue(registry, None)
    for epoch in range(5):
        registry.get_or_create_snapshot(epoch)
        if epoch == 2:
            value.set("two")
        else:
            value.set(value.get())
    assert [value.get(epoch) for epoch in range(5)] == [None, None, None, "two", "two"]
    assert len(value._tiers) == 1
    registry.revert_to(1)
    assert value.get() is None


def test_tl_10_a_write_costs_what_it_changes() -> None:
    registry = TimelineRegistry()
    mapping: TimelineMap[int, int] = TimelineMap(registry)
    for number in range(100_000):
        mapping[number] = number
    tracemalloc.start()
    began = time.thread_time()
    for epoch in range(10_000):
        registry.get_or_create_snapshot(epoch)
        mapping[epoch] = -1
        if epoch >= 100:
            registry.delete_snapshots_up_to(epoch - 100)
    seconds = time.thread_time() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Cloning the map once per batch would be 10 000 x some milliseconds and megabytes.
    assert seconds < 5
    assert peak < 5_000_000


def test_tl_11_unreachable_structures_are_let_go() -> None:
    registry = TimelineRegistry()
    kept: TimelineMap[int, int] = TimelineMap(registry)
    lost: TimelineMap[int, int] = TimelineMap(registry)
    registry.get_or_create_snapshot(1)
    kept[1] = lost[1] = 1
    assert registry.member_count == 2
    del lost
    gc.collect()
    assert registry.member_count == 1
    registry.revert_to(1)
    assert len(kept) == 0


class Recorder:
    def __init__(self, name: str, log: list[tuple[str, str | None]]) -> None:
        self.name, self.log = name, log

    def complete(self, error: BaseException | None) -> None:
        self.log.append((self.name, None if error is None else str(error)))


def test_tl_12_deferred_queue_orders_and_completes_inclusively() -> None:
    queue, log = DeferredQueue(), []  # type: tuple[DeferredQueue, list[tuple[str, str | None]]]
    for name, offset in (("a", 3), ("b", 5), ("c", 5), ("d", 9)):
        queue.add(offset, Recorder(name, log))
    with pytest.raises(ValueError, match="offset 8 is lower than the highest pending offset 9"):
        queue.add(8, Recorder("late", log))
    assert queue.complete_up_to(4) == 1
    assert queue.complete_up_to(5) == 2
    assert log == [("a", None), ("b", None), ("c", None)]
    queue.add(9, Recorder("e", log))
    assert queue.highest_pending_offset == 9
    assert queue.fail_all(RuntimeError("gone")) == 2
    assert log[3:] == [("d", "gone"), ("e", "gone")]
    assert queue.highest_pending_offset is None
