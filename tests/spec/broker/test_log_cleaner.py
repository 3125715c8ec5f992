"""LG-43, LG-46 to LG-48 as a broker sees them: which log is compacted when, and what becomes of errors."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from kraftlite.log import checkpoints
from kraftlite.log.batch import Record, build_batch
from kraftlite.log.cleaner import look
from kraftlite.log.config import LogConfig
from kraftlite.log.log import AppendOrigin, Log
from kraftlite.model.topic_partition import TopicPartition
from tests.harness.broker_logs import ORDERS, PAYMENTS, Logs
from tests.harness.cleaning import keyed

A0, B0 = TopicPartition("a", 0), TopicPartition("b", 0)
COMPACT = LogConfig(cleanup_policy=("compact",), segment_bytes=2_000, index_interval_bytes=500)


def write(log: Log, count: int, *, keys: int = 5) -> None:
    for number in range(count):
        made = bytearray(build_batch([Record(b"k%d" % (number % keys), b"v" * 50)], timestamp_ms=1_700_000_000_000))
        log.append_as_leader(made, leader_epoch=0, wall_ms=1_700_000_000_000, origin=AppendOrigin.CLIENT)
    log.update_hw(log.leo)


async def opened(logs: Logs, *topics: tuple[TopicPartition, Any]) -> list[Log]:
    for tp, _ in topics:
        logs.log_configs.setdefault(tp.topic, COMPACT)
    await logs.load()
    return [logs.dirs.get_or_create(tp, topic_id) for tp, topic_id in topics]


def cleaned(logs: Logs) -> list[TopicPartition]:
    return [event.tp for event in logs.bed.events("log.cleaned")]


async def test_lg_43_the_dirtiest_log_is_first_and_there_is_a_pause_when_none_is_due() -> None:
    logs = Logs()
    a, b = await opened(logs, (A0, ORDERS), (B0, PAYMENTS))
    write(a, 100)
    write(b, 200)
    a.clean_offset = a.segment_base_offsets[1]
    logs.dirs.start_housekeeping()
    await logs.bed.clock.run_for(1_000, settle=400)
    assert cleaned(logs) == [B0, A0], "all of b is dirty, of a not quite"
    assert len(keyed(a)) < 40 and len(keyed(b)) < 40
    write(a, 200)
    await logs.bed.clock.run_for(13_000, settle=400)
    assert len(cleaned(logs)) == 2
    await logs.bed.clock.run_for(2_000, settle=400)
    assert cleaned(logs) == [B0, A0, A0]
    await logs.bed.tasks.cancel_all()


async def test_lg_43_progress_is_in_the_checkpoint_and_survives_a_restart() -> None:
    logs = Logs()
    a, _ = await opened(logs, (A0, ORDERS), (B0, PAYMENTS))
    write(a, 100)
    logs.dirs.start_housekeeping()
    await logs.bed.clock.run_for(1_000, settle=400)
    progress = a.clean_offset
    assert progress == a.active_base_offset
    assert logs.bed.disk.read_file("/d1/cleaner-offset-checkpoint").decode() == f"0\n1\na 0 {progress}\n"
    await logs.bed.tasks.cancel_all()
    again = logs.restart(crash=True)
    again.log_configs["a"] = COMPACT
    await again.load()
    found = again.dirs.get(A0)
    assert found is not None and found.clean_offset == progress
    found.truncate_to(3, allow_below_hw=True)
    assert again.bed.disk.read_file("/d1/cleaner-offset-checkpoint").decode() == f"0\n1\na 0 {found.leo}\n"


async def test_lg_46_the_recovery_point_is_on_disk_before_a_segment_is_replaced() -> None:
    """Else a crash, and a policy that does not compact any more, would take the holes for damage."""
    logs = Logs()
    (a,) = await opened(logs, (A0, ORDERS))
    write(a, 100)
    logs.dirs.start_housekeeping()
    await logs.bed.clock.run_for(1_000, settle=400)
    expected, leo = [row for row in keyed(a) if row[0] < a.active_base_offset], a.active_base_offset
    await logs.bed.tasks.cancel_all()
    again = logs.restart(crash=True)
    again.log_configs["a"] = LogConfig(segment_bytes=2_000)
    await again.load()
    found = again.dirs.get(A0)
    assert found is not None and found.leo >= leo
    assert [row for row in keyed(found) if row[0] < leo] == expected


@pytest.mark.parametrize("setting", [{"log.cleaner.enable": "false"}, {}])
async def test_lg_43_the_cleaner_can_be_switched_off(setting: dict[str, str]) -> None:
    logs = Logs(values=setting)
    (a,) = await opened(logs, (A0, ORDERS))
    write(a, 100)
    logs.dirs.start_housekeeping()
    await logs.bed.clock.run_for(20_000, settle=100)
    assert bool(cleaned(logs)) is (not setting)
    await logs.bed.tasks.cancel_all()


async def test_lg_47_a_log_that_cannot_be_read_is_left_alone_and_the_others_go_on() -> None:
    logs = Logs()
    a, b = await opened(logs, (A0, ORDERS), (B0, PAYMENTS))
    write(a, 200)
    write(b, 100)
    logs.bed.disk.overwrite(a.segments[2].path, 100, b"\xff\xff\xff")
    logs.dirs.start_housekeeping()
    await logs.bed.clock.run_for(40_000, settle=200)
    assert cleaned(logs) == [B0]
    assert [event.tp for event in logs.bed.events("log.uncleanable")] == [A0], "said once"
    assert not logs.failed and not logs.bed.faults
    await logs.bed.tasks.cancel_all()


@pytest.mark.parametrize("operation", ["pwritev", "sync", "rename", "sync_dir"])
async def test_lg_34_a_failing_disk_takes_its_directory_offline(operation: str) -> None:
    logs = Logs("/d1", "/d2")
    a, b = await opened(logs, (A0, ORDERS), (B0, PAYMENTS))
    write(a, 200)
    write(b, 100)
    a.flush_sync()
    logs.bed.disk.inject(operation, path="/d1/a-0", code=errno.ENOSPC)
    logs.dirs.start_housekeeping()
    await logs.bed.clock.run_for(30_000, settle=200)
    assert logs.dirs.offline_directories() == ("/d1",) and cleaned(logs) == [B0]
    assert not logs.bed.faults
    await logs.bed.tasks.cancel_all()


def at_step(logs: Logs, number: int, act: Callable[[], None]) -> None:
    """Before the cleaner's `number`-th step."""
    plain, count = logs.bed.tasks.run_blocking, 0

    async def counted(function: Callable[[], Any]) -> Any:
        nonlocal count
        count += 1
        if count == number:
            act()
        return await plain(function)

    logs.bed.tasks.run_blocking = counted  # type: ignore[method-assign]


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("change", ["deleted", "truncated", "emptied"])
async def test_lg_47_a_log_that_changes_under_the_cleaner_aborts_it(step: int, change: str) -> None:
    logs = Logs()
    a, b = await opened(logs, (A0, ORDERS), (B0, PAYMENTS))
    write(a, 300)
    write(b, 100)
    b.clean_offset = b.segment_base_offsets[1]
    acts = {
        "deleted": lambda: logs.dirs.delete(A0),
        "truncated": lambda: a.truncate_to(a.segment_base_offsets[1] + 1, allow_below_hw=True),
        "emptied": lambda: a.truncate_fully_and_start_at(500),
    }
    at_step(logs, step, acts[change])
    logs.dirs.start_housekeeping()
    await logs.bed.clock.run_for(40_000, settle=300)
    assert [event.tp for event in logs.bed.events("log.cleaning_aborted")] == [A0]
    assert B0 in cleaned(logs)
    assert not logs.failed and not logs.bed.faults and not logs.bed.events("log.uncleanable")
    if change != "deleted":
        write(a, 100)
        assert keyed(a)
    await logs.bed.tasks.cancel_all()


@pytest.mark.parametrize("step", [1, 2, 3, 4])
async def test_lg_47_what_replaced_a_key_is_cut_off_while_the_cleaner_is_at_an_earlier_segment(step: int) -> None:
    """An unclean election cuts below the HW: the map knows of records that are not there any more, and the segments before them
    are as they were."""
    logs = Logs()
    (a,) = await opened(logs, (A0, ORDERS))
    keys = [
        b"alone",
        *(b"k%d" % (number % 3) for number in range(90)),
        b"alone",
        *(b"k%d" % (number % 3) for number in range(30)),
    ]
    for key in keys:
        made = bytearray(build_batch([Record(key, b"v" * 50)], timestamp_ms=1_700_000_000_000))
        a.append_as_leader(made, leader_epoch=0, wall_ms=1_700_000_000_000, origin=AppendOrigin.CLIENT)
    a.update_hw(a.leo)
    assert len(a.segment_base_offsets) > 3

    def cut() -> None:
        assert a.log_start_offset == 0 and a.segments[0].size > 1_500, "no segment has been replaced yet"
        a.truncate_to(60, allow_below_hw=True)

    at_step(logs, step, cut)
    logs.dirs.start_housekeeping()
    await logs.bed.clock.run_for(1_000, settle=400)
    assert a.leo == 60 and (0, b"alone") in [row[:2] for row in keyed(a)]
    await logs.bed.tasks.cancel_all()


async def test_lg_52_reads_while_the_cleaner_works_never_go_back() -> None:
    logs = Logs()
    (a,) = await opened(logs, (A0, ORDERS))
    write(a, 300, keys=40)
    seen: list[list[int]] = []
    plain = logs.bed.tasks.run_blocking

    async def watched(function: Callable[[], Any]) -> Any:
        seen.append([row[0] for row in keyed(a)])
        write(a, 3, keys=40)
        return await plain(function)

    logs.bed.tasks.run_blocking = watched  # type: ignore[method-assign]
    logs.dirs.start_housekeeping()
    await logs.bed.clock.run_for(2_000, settle=500)
    assert A0 in cleaned(logs) and len(seen) > 5
    for offsets in seen:
        assert offsets == sorted(set(offsets))
    await logs.bed.tasks.cancel_all()


async def test_lg_43_a_pass_is_cut_into_short_steps() -> None:
    logs = Logs()
    logs.log_configs["a"] = LogConfig(cleanup_policy=("compact",), segment_bytes=2_000_000)
    (a,) = await opened(logs, (A0, ORDERS))
    records = [Record(b"k%d" % (number % 50), b"v" * 20) for number in range(2_000)]
    for _ in range(4):
        made = bytearray(build_batch(records, timestamp_ms=1_700_000_000_000))
        a.append_as_leader(made, leader_epoch=0, wall_ms=1_700_000_000_000, origin=AppendOrigin.CLIENT)
    a.roll()
    a.update_hw(a.leo)
    steps = 0
    plain = logs.bed.tasks.run_blocking

    async def counted(function: Callable[[], Any]) -> Any:
        nonlocal steps
        steps += 1
        return await plain(function)

    logs.bed.tasks.run_blocking = counted  # type: ignore[method-assign]
    logs.dirs.start_housekeeping()
    await logs.bed.clock.run_for(1_000, settle=500)
    assert cleaned(logs) == [A0] and len(keyed(a)) == 50
    assert steps >= 2 * 8_000 // 500
    await logs.bed.tasks.cancel_all()


async def test_lg_47_a_log_that_retention_empties_before_the_pass_aborts_it() -> None:
    """The pass flushes first, and what was to be compacted may be deleted meanwhile."""
    logs = Logs()
    (a,) = await opened(logs, (A0, ORDERS))
    write(a, 100)
    a.flush_sync()
    plain = a.flush

    async def flush(up_to: int | None = None) -> int:
        found = await plain(up_to)
        a.delete_segments_before(a.active_base_offset)
        return found

    a.flush = flush  # type: ignore[method-assign]
    logs.dirs.start_housekeeping()
    await logs.bed.clock.run_for(1_000, settle=400)
    assert [event.tp for event in logs.bed.events("log.cleaning_aborted")] == [A0]
    assert not logs.failed and not logs.bed.faults
    await logs.bed.tasks.cancel_all()


async def test_lg_48_a_topic_whose_policy_changes_is_treated_by_the_new_one() -> None:
    logs = Logs(values={"log.retention.check.interval.ms": "10000"})
    logs.log_configs["a"] = LogConfig(segment_bytes=2_000)
    (a,) = await opened(logs, (A0, ORDERS))
    write(a, 100)
    logs.dirs.start_housekeeping()
    await logs.bed.clock.run_for(20_000, settle=100)
    assert not cleaned(logs) and len(keyed(a)) == 100
    a.update_config(COMPACT)
    await logs.bed.clock.run_for(16_000, settle=400)
    assert cleaned(logs) == [A0] and len(keyed(a)) < 40
    a.update_config(LogConfig(cleanup_policy=("compact", "delete"), retention_ms=1))
    await logs.bed.clock.run_for(16_000, settle=100)
    assert a.log_start_offset == a.leo == 100
    await logs.bed.tasks.cancel_all()


async def test_lg_42_the_offsets_topic_stays_bounded() -> None:
    """A group that commits for ever takes the room of one commit, and of what is not yet compacted."""
    logs = Logs()
    (a,) = await opened(logs, (A0, ORDERS))
    logs.dirs.start_housekeeping()
    sizes = []
    for _ in range(12):
        write(a, 100)
        await logs.bed.clock.run_for(16_000, settle=300)
        sizes.append(a.size_bytes)
    assert max(sizes) < 3 * sizes[0], sizes
    assert a.leo == 1_200 and len(a.segments) <= 10
    await logs.bed.tasks.cancel_all()


async def test_lg_43_progress_beyond_the_end_that_a_start_finds_counts_for_nothing() -> None:
    """What was compacted is gone from the end of the log; what is written there next never was compacted."""
    logs = Logs()
    (a,) = await opened(logs, (A0, ORDERS))
    write(a, 100)
    await logs.dirs.close(1)
    checkpoints.write_offset_checkpoint(logs.bed.disk, "/d1/cleaner-offset-checkpoint", {A0: a.leo + 40})
    again = logs.restart()
    await again.load()
    found = again.dirs.get(A0)
    assert found is not None and found.clean_offset is None
    found.check()
    write(found, 100)
    assert look(found, 1_700_000_000_000).first_dirty == 0
