"""LG-46 to LG-48: when a pass is given up, what a swap that is cut off leaves, and the holes that stay."""

from __future__ import annotations

import pytest

from kraftlite.log.cleaner import Cleaning, look
from kraftlite.log.config import LogConfig
from kraftlite.log.log import Log
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.runtime.trace import ListTracer
from kraftlite.runtime.trace.log import LogDoubted
from tests.harness.cleaning import clean, commit_all, filled, fresh, keyed, put
from tests.harness.disk import MemDisk
from tests.harness.log_support import DIR, NOW, append, open_log, values


def begun(log: Log, disk: MemDisk) -> Cleaning:
    log.flush_sync()
    cleaning = Cleaning(look(log, NOW), disk, map_bytes=1 << 20, wall_ms=NOW)
    for _ in cleaning.index():
        pass
    for _ in cleaning.rewrite(cleaning.groups()[0]):
        pass
    return cleaning


def test_lg_47_a_log_that_was_cut_or_emptied_or_moved_is_not_swapped() -> None:
    for change in ("cut", "deeper", "emptied", "moved", "retention"):
        disk, log = filled(6)
        cleaning = begun(log, disk)
        assert cleaning.intact()
        match change:
            case "cut":
                log.truncate_to(3, allow_below_hw=True)
            case "deeper":
                log.truncate_to(1, allow_below_hw=True)
            case "emptied":
                log.truncate_fully_and_start_at(6)
            case "moved":
                log.rename_directory("/data/orders-0.x-delete")
            case "retention":
                log.delete_segments_before(2)
        assert not cleaning.intact() and cleaning.disturbed(), change
        cleaning.give_up()
        if change != "moved":
            assert not [name for name in disk.listdir(DIR) if name.endswith(".cleaned")]


def test_lg_47_a_segment_that_was_cut_and_grew_to_its_old_size_is_another() -> None:
    """An unclean election cuts below the HW, and the new leader's records are often as long as those that they replace."""
    disk, log = fresh()
    for value in ("old0", "old1"):
        put(log, "k", value)
    put(log, "j", "old2")
    log.roll()
    commit_all(log)
    cleaning = begun(log, disk)
    assert cleaning.intact()
    log.truncate_to(1, allow_below_hw=True)
    put(log, "i", "new1")
    put(log, "j", "new2")
    log.roll()
    commit_all(log)
    log.flush_sync()
    assert [segment.size for segment in log.segments[:-1]] == [cleaning.todo.dirty_bytes]
    assert not cleaning.intact() and cleaning.disturbed()
    cleaning.give_up()


def test_lg_47_appends_and_rolls_do_not_disturb() -> None:
    disk, log = filled(6)
    cleaning = begun(log, disk)
    put(log, "k", "meanwhile")
    log.roll()
    put(log, "k", "and more")
    assert cleaning.intact()
    cleaning.swap(cleaning.groups()[0])
    assert [row[0] for row in keyed(log)] == [5, 6, 7]


def test_lg_47_a_damaged_batch_is_found() -> None:
    disk, log = filled(6)
    disk.overwrite(log.segments[2].path, 70, b"\xff\xff")
    with pytest.raises(ApiError) as caught:
        clean(log, disk)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert not [name for name in disk.listdir(DIR) if name.endswith(".swap")]


@pytest.mark.parametrize("ended", ["clean", "killed", "power cut"])
def test_lg_48_holes_stay_no_damage_when_the_topic_is_no_longer_compacted(ended: str) -> None:
    disk, log = fresh(LogConfig(cleanup_policy=("compact",), segment_bytes=600, index_interval_bytes=100))
    for number in range(60):
        put(log, f"k{number % 4}", f"v{number}")
    log.roll()
    for number in range(4):
        put(log, "always the same", f"v{number}")
    log.roll()
    commit_all(log)
    clean(log, disk)
    expected = keyed(log)
    checkpoint = log.recovery_point
    log.update_config(LogConfig(segment_bytes=600))
    append(log, "later")
    if ended == "clean":
        log.close()
        checkpoint = log.recovery_point
    elif ended == "power cut":
        disk.crash()
    tracer = ListTracer()
    config = LogConfig(segment_bytes=600, index_interval_bytes=100)
    again = open_log(disk, config, clean=ended == "clean", recovery_point=checkpoint, tracer=tracer)
    assert [row for row in keyed(again) if row[1] != b"k"] == expected
    assert not [event for event in tracer.events if isinstance(event, LogDoubted)]
    append(again, "and on")
    assert values(again)[-1] == (again.leo - 1, b"and on")


def test_lg_46_what_an_earlier_attempt_left_does_not_undo_a_swap() -> None:
    """Beside a `.cleaned` a start takes a `.swap` for unfinished, though what it replaces may be gone already."""
    disk, log = fresh(LogConfig(cleanup_policy=("compact",), segment_bytes=300))
    for number in range(40):
        put(log, f"k{number if number % 2 else 0}", f"v{number}" * 5)
    commit_all(log)
    expected = {key: value for _, key, value in keyed(log)}
    disk.open(f"{DIR}/{0:020d}.log.cleaned", create=True).pwritev([b"junk"], 0)
    log.flush_sync()
    cleaning = Cleaning(look(log, NOW), disk, map_bytes=1 << 20, wall_ms=NOW)
    assert list(cleaning.index())
    second = cleaning.groups()[1]
    assert list(cleaning.rewrite(second))
    disk.inject("rename", path=".log.swap")
    with pytest.raises(OSError):
        cleaning.swap(second)
    disk.kill()
    again = open_log(disk, log.config, recovery_point=log.recovery_point)
    assert again.leo == log.leo and {key: value for _, key, value in keyed(again)} == expected


def test_lg_48_beyond_the_recovery_point_a_hole_still_ends_the_log() -> None:
    disk, log = fresh(LogConfig())
    for number in range(6):
        append(log, f"v{number}")
    size = log.size_bytes // 6
    path = log.segments[0].path
    log.flush_sync()
    data = disk.read_file(path)
    disk.write_file_atomically(path, data[: 3 * size] + data[4 * size :])
    assert open_log(disk, LogConfig(), recovery_point=2).leo == 3


def test_rp_36_a_follower_takes_the_holes_of_a_topic_that_was_compacted_once() -> None:
    disk, log = filled(6)
    clean(log, disk)
    put(log, "k", "live")
    commit_all(log)
    _, follower = fresh(LogConfig(), MemDisk())
    while follower.leo < log.leo:
        data = log.read(follower.leo, 1 << 20, up_to=log.leo)
        assert follower.append_as_follower(data, gaps_below=log.hw) is not None
    assert keyed(follower) == keyed(log)
