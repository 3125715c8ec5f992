"""The broker's log directories: start, crash, stop, strays, failures."""

from __future__ import annotations

import errno
import json
from uuid import UUID

import pytest

from kraftlite.log import checkpoints
from kraftlite.log.config import LogConfig
from kraftlite.model.errors import ApiError, ErrorCode, Fault, StorageFault
from kraftlite.model.topic_partition import TopicPartition
from tests.harness.broker_logs import ORDERS, PAYMENTS, Logs
from tests.harness.log_support import append

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


async def test_lg_07_checkpoints_are_text_of_version_count_and_entries() -> None:
    logs = Logs()
    await logs.load()
    logs.create(A0, "x", "y")
    logs.create(B0, "z", topic_id=PAYMENTS)
    logs.dirs.get(A0).flush_sync()  # type: ignore[union-attr]
    logs.dirs.write_recovery_points()
    assert logs.bed.disk.read_file("/d1/recovery-point-offset-checkpoint").decode() == "0\n2\na 0 2\nb 0 0\n"
    logs.dirs.write_hw_checkpoint({A0: 1})
    assert logs.bed.disk.read_file("/d1/replication-offset-checkpoint").decode() == "0\n1\na 0 1\n"


async def test_lg_08_the_marker_holds_the_broker_epoch_and_is_gone_after_boot() -> None:
    logs = Logs()
    await logs.load()
    logs.create(A0, "x")
    await logs.dirs.close(broker_epoch=77)
    assert json.loads(logs.bed.disk.read_file("/d1/.kafka_cleanshutdown")) == {"version": 0, "brokerEpoch": 77}
    again = logs.restart()
    assert again.dirs.read_markers() == 77
    assert again.bed.disk.stat("/d1/.kafka_cleanshutdown") is not None, "a start that fails before loading keeps it"
    await again.dirs.load(lambda tp, topic_id: True)
    assert again.bed.disk.stat("/d1/.kafka_cleanshutdown") is None


async def test_bl_10_a_clean_stop_makes_the_next_start_a_clean_one() -> None:
    logs = Logs()
    await logs.load()
    logs.create(A0, "x", "y", "z")
    await logs.dirs.close(broker_epoch=3)
    again = logs.restart(crash=True)
    assert await again.load() == 1
    assert again.dirs.get(A0).leo == 3  # type: ignore[union-attr]
    assert [event.clean for event in again.bed.events("log.opened")] == [True]


async def test_lg_26_a_crash_is_recovered_from_the_recovery_point() -> None:
    logs = Logs()
    await logs.load()
    logs.create(A0, "durable")
    logs.dirs.get(A0).flush_sync()  # type: ignore[union-attr]
    logs.dirs.write_recovery_points()
    append(logs.dirs.get(A0), "lost with the power")  # type: ignore[arg-type]
    again = logs.restart(crash=True)
    await again.load()
    assert again.dirs.get(A0).leo == 1  # type: ignore[union-attr]
    assert [(event.clean, event.recovery_point) for event in again.bed.events("log.opened")] == [(False, 1)]


async def test_bl_13_all_directories_must_agree_on_the_previous_epoch() -> None:
    logs = Logs("/d1", "/d2")
    await logs.load()
    await logs.dirs.close(broker_epoch=9)
    assert logs.restart().dirs.read_markers() == 9
    checkpoints.write_clean_shutdown(logs.bed.disk, "/d2", 8)
    assert logs.restart().dirs.read_markers() is None
    checkpoints.remove_clean_shutdown(logs.bed.disk, "/d2")
    assert logs.restart().dirs.read_markers() is None


async def test_bl_13_a_crash_has_no_previous_epoch() -> None:
    logs = Logs()
    await logs.load()
    assert logs.restart(crash=True).dirs.read_markers() is None


async def test_lg_31_recovery_points_and_log_starts_are_written_every_60_seconds() -> None:
    logs = Logs()
    await logs.load()
    logs.dirs.start_housekeeping()
    logs.create(A0, "x", "y")
    log = logs.dirs.get(A0)
    assert log is not None
    log.flush_sync()
    log.update_hw(2)
    log.increment_log_start(1, "test")
    await logs.bed.clock.run_for(59_000)
    assert logs.bed.disk.stat("/d1/recovery-point-offset-checkpoint") is None
    await logs.bed.clock.run_for(2_000)
    assert "a 0 2" in logs.bed.disk.read_file("/d1/recovery-point-offset-checkpoint").decode()
    assert "a 0 1" in logs.bed.disk.read_file("/d1/log-start-offset-checkpoint").decode()
    await logs.bed.tasks.cancel_all()


async def test_lg_31_truncation_below_the_recovery_point_rewrites_the_checkpoint_first() -> None:
    logs = Logs()
    await logs.load()
    for value in ("x", "y", "z"):
        logs.create(A0, value)
    log = logs.dirs.get(A0)
    assert log is not None
    log.flush_sync()
    logs.dirs.write_recovery_points()
    log.truncate_to(1)
    assert "a 0 1" in logs.bed.disk.read_file("/d1/recovery-point-offset-checkpoint").decode()


async def test_lg_04_a_roll_is_flushed_in_the_background() -> None:
    logs = Logs()
    logs.log_configs["a"] = LogConfig(segment_bytes=200)
    await logs.load()
    for number in range(6):
        logs.create(A0, f"value-{number}" * 5)
    log = logs.dirs.get(A0)
    assert log is not None and len(log.segments) > 1 and log.recovery_point == 0
    await logs.bed.clock.settle()
    assert log.recovery_point == log.active_base_offset


async def test_ml_23_a_log_that_is_not_ours_any_more_is_set_aside() -> None:
    logs = Logs()
    await logs.load()
    logs.create(A0, "keep")
    logs.create(B0, "stray", topic_id=PAYMENTS)
    await logs.dirs.close(None)
    again = logs.restart()
    assert await again.load(B0) == 1
    assert again.dirs.get(B0) is None
    names = again.bed.disk.listdir("/d1")
    assert "b-0" not in names
    (stray,) = [name for name in names if name.endswith("-stray")]
    assert stray.startswith("b-0.") and again.bed.disk.tree(f"/d1/{stray}")
    assert again.bed.events("broker.stray_log_set_aside")[0].partition == "b-0"
    third = again.restart()
    assert await third.load() == 1, "what was set aside is never loaded again"


async def test_ml_23_the_metadata_decides_by_topic_id() -> None:
    logs = Logs()
    await logs.load()
    logs.create(A0, "old topic")
    await logs.dirs.close(None)
    again = logs.restart()
    again.dirs.read_markers()
    asked: list[tuple[TopicPartition, UUID]] = []

    def is_ours(tp: TopicPartition, topic_id: UUID) -> bool:
        asked.append((tp, topic_id))
        return topic_id == PAYMENTS

    assert await again.dirs.load(is_ours) == 0
    assert asked == [(A0, ORDERS)]


async def test_ml_23_a_log_without_topic_id_never_had_data_and_is_set_aside() -> None:
    logs = Logs()
    logs.bed.disk.makedirs("/d1/a-0")
    assert await logs.load() == 0
    assert [name for name in logs.bed.disk.listdir("/d1") if name.endswith("-stray")]


async def test_lg_29_directories_on_their_way_out_are_removed_at_start() -> None:
    logs = Logs()
    await logs.load()
    logs.create(A0, "x")
    logs.dirs.delete(A0)
    (name,) = logs.bed.disk.listdir("/d1")[:1]
    again = logs.restart()
    assert await again.load() == 0
    assert not [name for name in again.bed.disk.listdir("/d1") if name.endswith("-delete")]
    assert name.startswith("a-0.")


async def test_lg_38_a_deleted_log_is_renamed_now_and_removed_after_the_delay() -> None:
    logs = Logs()
    await logs.load()
    logs.create(A0, "x")
    logs.dirs.write_hw_checkpoint({A0: 1})
    logs.dirs.delete(A0)
    assert logs.dirs.get(A0) is None and logs.dirs.checkpointed_hw(A0) == 0
    assert [name for name in logs.bed.disk.listdir("/d1") if name.endswith("-delete")]
    logs.create(A0, "a new topic of that name", topic_id=PAYMENTS)
    await logs.bed.clock.run_for(60_001)
    assert not [name for name in logs.bed.disk.listdir("/d1") if name.endswith("-delete")]
    assert logs.dirs.get(A0).leo == 1  # type: ignore[union-attr]
    assert not logs.bed.faults


async def test_rp_16_the_hw_checkpoint_survives_a_restart() -> None:
    logs = Logs("/d1", "/d2")
    await logs.load()
    logs.create(A0, "x", "y")
    logs.create(A1, "z")
    logs.dirs.write_hw_checkpoint({A0: 2, A1: 1})
    await logs.dirs.close(None)
    again = logs.restart()
    await again.load()
    assert (again.dirs.checkpointed_hw(A0), again.dirs.checkpointed_hw(A1), again.dirs.checkpointed_hw(B0)) == (2, 1, 0)


@pytest.mark.parametrize("it_ends_before_that", [True, False])
async def test_rp_16_a_topic_of_the_same_name_inherits_no_hw(it_ends_before_that: bool) -> None:
    """Its broker ends before the next checkpoint is due, and finds records that nobody has committed."""
    logs = Logs()
    await logs.load()
    logs.create(A0, "x")
    logs.dirs.write_hw_checkpoint({A0: 1})
    logs.dirs.delete(A0)
    if it_ends_before_that:
        logs = logs.restart(crash=True)
        await logs.load()
    logs.create(A0, "of another topic", topic_id=PAYMENTS)
    logs.dirs.get(A0).flush_sync()  # type: ignore[union-attr]
    await logs.bed.clock.run_for(1)
    again = logs.restart(crash=True)
    await again.load()
    assert again.dirs.get(A0).leo == 1  # type: ignore[union-attr]
    assert again.dirs.checkpointed_hw(A0) == 0


async def test_bl_18_a_new_log_goes_where_the_fewest_are() -> None:
    logs = Logs("/d1", "/d2")
    await logs.load()
    for partition in range(4):
        logs.create(TopicPartition("a", partition))
    homes = [logs.dirs.directory_of(TopicPartition("a", partition)) for partition in range(4)]
    assert sorted(homes) == ["/d1", "/d1", "/d2", "/d2"]  # type: ignore[type-var]


async def test_lg_32_a_directory_that_fails_to_load_does_not_fail_the_others() -> None:
    logs = Logs("/d1", "/d2")
    await logs.load()
    logs.create(A0, "x")
    logs.create(A1, "y")
    await logs.dirs.close(5)
    again = logs.restart()
    again.bed.disk.inject(op="open", path="/d1/a-", code=errno.EIO)
    assert await again.load() == 1
    assert again.dirs.offline_directories() == ("/d1",) and not again.bed.faults
    assert again.failed[0][0] == UUID(int=1000)
    again.bed.disk.heal()
    await again.dirs.close(6)
    markers = [again.bed.disk.stat(f"{path}/.kafka_cleanshutdown") is not None for path in ("/d1", "/d2")]
    assert markers == [False, True], "no marker where not all logs were loaded"


async def test_lg_32_logs_are_loaded_by_several_workers_at_a_time() -> None:
    logs = Logs(values={"num.recovery.threads.per.data.dir": "3"})
    await logs.load()
    for partition in range(6):
        logs.create(TopicPartition("a", partition), "x")
    await logs.dirs.close(None)
    again = logs.restart()
    running = most = 0
    plain = again.bed.tasks.run_blocking

    async def counted(function):  # type: ignore[no-untyped-def]
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            return await plain(function)
        finally:
            running -= 1

    again.bed.tasks.run_blocking = counted  # type: ignore[method-assign]
    assert await again.load() == 6
    assert most == 3


async def test_lg_33_one_partition_in_two_directories_is_refused() -> None:
    logs = Logs("/d1", "/d2")
    await logs.load()
    logs.create(A0, "x")
    await logs.dirs.close(None)
    disk = logs.bed.disk
    disk.makedirs("/d2/a-0")
    checkpoints.write_partition_metadata(disk, "/d2/a-0", ORDERS)
    with pytest.raises(Fault, match="/d1/a-0 and /d2/a-0"):
        await logs.restart().load()


async def test_lg_33_unknown_directories_are_reported_and_left_alone() -> None:
    logs = Logs()
    logs.bed.disk.makedirs("/d1/lost+found")
    logs.bed.disk.makedirs("/d1/__cluster_metadata-0")
    assert await logs.load() == 0
    assert [event.path for event in logs.bed.events("broker.log_directory_ignored")] == ["/d1/lost+found"]
    assert logs.bed.disk.stat("/d1/lost+found") is not None


async def test_lg_34_bl_16_an_io_error_takes_its_directory_offline_and_no_other() -> None:
    logs = Logs("/d1", "/d2")
    await logs.load()
    logs.create(A0, "x")
    logs.create(A1, "y")
    logs.dirs.handle_failure(OSError(errno.ENOSPC, "no space"), A0)
    assert logs.failed == [(UUID(int=1000), (A0,))]
    assert logs.dirs.get(A0) is None and logs.dirs.get(A1) is not None
    with pytest.raises(StorageFault, match="/d1"):
        logs.dirs.get_or_create(A0, ORDERS)
    logs.create(B0, topic_id=PAYMENTS)
    assert logs.dirs.directory_of(B0) == "/d2"
    assert not logs.bed.faults


async def test_bl_17_with_the_last_directory_the_node_stops() -> None:
    logs = Logs("/d1", "/d2")
    await logs.load()
    logs.create(A0, "x")
    logs.create(A1, "y")
    logs.dirs.handle_failure(OSError(errno.EIO, "gone"), A0)
    logs.dirs.handle_failure(OSError(errno.EIO, "gone"), A1)
    ((fault, _),) = logs.bed.faults
    assert isinstance(fault, StorageFault)


async def test_rp_38_a_new_partition_says_whose_it_is_whatever_was_created_before_it() -> None:
    logs = Logs("/d1", "/d2")
    await logs.load()
    for index in range(4):
        logs.create(TopicPartition("a", index))
        logs.create(TopicPartition("b", index), topic_id=PAYMENTS)
    logs.dirs.delete(TopicPartition("b", 3))
    logs.create(TopicPartition("b", 4), topic_id=PAYMENTS)
    logs.create(TopicPartition("b", 3), topic_id=ORDERS)
    logs.create(TopicPartition("b", 5), topic_id=ORDERS)
    disk = logs.bed.disk
    folders = [path.rpartition("/")[0] for path in disk.tree() if path.endswith("/partition.metadata") and "-delete/" not in path]
    assert {folder.split("/")[2]: checkpoints.read_partition_metadata(disk, folder) for folder in folders} == {
        **{f"a-{index}": ORDERS for index in range(4)},
        **{f"b-{index}": PAYMENTS for index in (0, 1, 2, 4)},
        **{f"b-{index}": ORDERS for index in (3, 5)},
    }


async def test_another_topic_of_the_same_name_is_refused_while_the_old_log_is_open() -> None:
    logs = Logs()
    await logs.load()
    logs.create(A0, "x")
    with pytest.raises(ApiError) as caught:
        logs.dirs.get_or_create(A0, PAYMENTS)
    assert caught.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


async def test_lg_08_a_marker_that_cannot_be_read_is_none() -> None:
    for text in (b"", b"\xff\x00", b"[]", b'{"version": 0}', b'{"brokerEpoch": "9"}'):
        logs = Logs()
        await logs.load()
        logs.create(A0, "x")
        await logs.dirs.close(broker_epoch=9)
        logs.bed.disk.write_file_atomically("/d1/.kafka_cleanshutdown", text)
        again = logs.restart()
        assert again.dirs.read_markers() is None
        assert await again.dirs.load(lambda tp, topic_id: True) == 1
        assert [event.clean for event in again.bed.events("log.opened")] == [False]


async def test_lg_36_retention_runs_after_30_seconds_and_then_at_its_interval() -> None:
    logs = Logs(values={"log.retention.check.interval.ms": "40000"})
    logs.log_configs["a"] = LogConfig(retention_ms=1_000)
    await logs.load()
    logs.create(A0, "old")
    log = logs.dirs.get(A0)
    assert log is not None
    log.update_hw(1)
    moved: list[TopicPartition] = []
    logs.dirs.retention.on_log_start = moved.append
    logs.dirs.start_housekeeping()
    await logs.bed.clock.run_for(29_900)
    assert log.log_start_offset == 0 and not moved
    await logs.bed.clock.run_for(200)
    assert (log.log_start_offset, log.leo) == (1, 1) and moved == [A0]
    append(log, "later", ts=logs.bed.clock.wall_ms())
    log.update_hw(2)
    await logs.bed.clock.run_for(39_800)
    assert log.log_start_offset == 1
    await logs.bed.clock.run_for(200)
    assert log.log_start_offset == 2
    await logs.bed.tasks.cancel_all()


async def test_lg_38_deleted_files_are_unlinked_after_the_delay() -> None:
    logs = Logs()
    logs.log_configs["a"] = LogConfig(retention_ms=1_000, file_delete_delay_ms=60_000)
    await logs.load()
    logs.create(A0, "old")
    log = logs.dirs.get(A0)
    assert log is not None
    log.update_hw(1)
    logs.dirs.start_housekeeping()
    await logs.bed.clock.run_for(31_000)

    def deleted() -> list[str]:
        return [name for name in logs.bed.disk.listdir("/d1/a-0") if name.endswith(".deleted")]

    assert f"{0:020d}.log.deleted" in deleted()
    await logs.bed.clock.run_for(58_000)
    assert deleted()
    await logs.bed.clock.run_for(2_000)
    assert not deleted() and not log.deleted
    await logs.bed.tasks.cancel_all()


async def test_lg_38_no_delay_is_no_delay() -> None:
    logs = Logs()
    logs.log_configs["a"] = LogConfig(retention_ms=1_000, file_delete_delay_ms=0)
    await logs.load()
    logs.create(A0, "old")
    logs.dirs.get(A0).update_hw(1)  # type: ignore[union-attr]
    logs.dirs.start_housekeeping()
    await logs.bed.clock.run_for(31_000)
    assert not [name for name in logs.bed.disk.listdir("/d1/a-0") if name.endswith(".deleted")]
    await logs.bed.tasks.cancel_all()


async def test_lg_38_a_topic_that_is_deleted_meanwhile_takes_its_files_along() -> None:
    logs = Logs()
    logs.log_configs["a"] = LogConfig(retention_ms=1_000, file_delete_delay_ms=60_000)
    await logs.load()
    logs.create(A0, "old")
    logs.dirs.get(A0).update_hw(1)  # type: ignore[union-attr]
    logs.dirs.start_housekeeping()
    await logs.bed.clock.run_for(31_000)
    logs.dirs.delete(A0)
    await logs.bed.clock.run_for(120_000)
    assert not [name for name in logs.bed.disk.tree("/d1") if "a-0" in name]
    assert not logs.bed.faults and not logs.failed
    await logs.bed.tasks.cancel_all()


async def test_lg_34_retention_on_a_failing_disk_takes_the_directory_offline() -> None:
    logs = Logs("/d1", "/d2")
    logs.log_configs["a"] = LogConfig(retention_ms=1_000)
    await logs.load()
    logs.create(A0, "old")
    logs.dirs.get(A0).update_hw(1)  # type: ignore[union-attr]
    logs.bed.disk.inject("rename", path="/d1/a-0", code=errno.EIO)
    logs.dirs.start_housekeeping()
    await logs.bed.clock.run_for(31_000)
    assert logs.dirs.offline_directories() == ("/d1",) and logs.dirs.online_directories() == ("/d2",)
    await logs.bed.tasks.cancel_all()


async def test_lg_07_high_watermarks_that_did_not_move_are_not_written_again() -> None:
    logs = Logs()
    await logs.load()
    logs.create(A0, "x", "y")
    logs.create(B0, "z", topic_id=PAYMENTS)
    path = "/d1/replication-offset-checkpoint"
    logs.dirs.write_hw_checkpoint({A0: 1, B0: 0})
    logs.bed.disk.unlink(path)
    logs.dirs.write_hw_checkpoint({A0: 1, B0: 0})
    assert logs.bed.disk.stat(path) is None
    logs.dirs.write_hw_checkpoint({A0: 2, B0: 0})
    assert logs.bed.disk.read_file(path).decode() == "0\n2\na 0 2\nb 0 0\n"
    logs.dirs.delete(B0)
    logs.dirs.write_hw_checkpoint({A0: 2})
    assert logs.bed.disk.read_file(path).decode() == "0\n1\na 0 2\n", "a topic of that name must not inherit it"


async def test_lg_32_logs_that_have_nothing_to_recover_share_the_trips_to_a_thread() -> None:
    logs = Logs(values={"num.recovery.threads.per.data.dir": "2"})
    await logs.load()
    for partition in range(64):
        logs.create(TopicPartition("a", partition), *(["x"] if partition < 4 else []))
    logs.dirs.write_recovery_points()
    again = logs.restart()
    trips = 0
    plain = again.bed.tasks.run_blocking

    async def counted(function):  # type: ignore[no-untyped-def]
        nonlocal trips
        trips += 1
        return await plain(function)

    again.bed.tasks.run_blocking = counted  # type: ignore[method-assign]
    assert await again.load() == 64
    assert 4 < trips < 24, "one for each that has records, and few for all others"
    trips = 0
    await again.dirs.close(7)
    assert trips == 4
