"""ADR 7: where a log begins after a start, and what may be relied on for that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from kraftlite.log import checkpoints
from kraftlite.log.log import Log
from kraftlite.log.statements import STATEMENTS, Statements
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.model.tuning import Tuning
from tests.harness.broker_logs import Logs
from tests.harness.disk import MemDisk
from tests.harness.log_support import append, values

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
COUNT = 24
STARTS = f"/d1/{checkpoints.LOG_START_CHECKPOINT}"
POINTS = f"/d1/{checkpoints.RECOVERY_POINT_CHECKPOINT}"


async def filled() -> Logs:
    """a-0 with a segment of many records, a-1 with one."""
    logs = Logs()
    await logs.load()
    logs.create(A1, "neighbour")
    logs.create(A0, *(f"v{number}" for number in range(COUNT)))
    return logs


def opened(logs: Logs, tp: TopicPartition) -> Log:
    log = logs.dirs.get(tp)
    assert log is not None
    return log


def delete_below(log: Log, offset: int) -> None:
    log.update_hw(log.leo)
    assert log.increment_log_start(offset, "DeleteRecords")


def stated_on(disk: MemDisk) -> Statements:
    statements = Statements(disk, f"/d1/{STATEMENTS}")
    statements.load()
    assert statements.known
    return statements


@pytest.mark.parametrize("crash", [False, True])
async def test_rp_28_the_epochs_reach_down_to_the_log_start_that_a_crash_leaves(crash: bool) -> None:
    """The file of the epochs was written when the log start moved, and the log start was not: it moved back. Found by a simulated
    broker whose directory failed behind a deletion."""
    logs = await filled()
    log = opened(logs, A0)
    log.roll()
    append(log, "in another segment", epoch=0)
    delete_below(log, 5)
    await log.flush()
    logs.dirs.write_log_starts()
    ((epoch, _),) = log.epoch_entries
    delete_below(log, 10)
    assert log.epoch_entries == ((epoch, 10),)
    logs = logs.restart(crash=crash)
    assert await logs.load_assigned(A0, A1, sole=True)
    log = opened(logs, A0)
    assert log.log_start_offset == 5 and log.epoch_entries == ((epoch, 5),)


@pytest.mark.parametrize("start", [7, 20, 999])
async def test_lg_53_a_log_start_without_a_statement_is_not_believed(start: int) -> None:
    """The records were flushed, and a power cut took the line of `log-statements`. Believed, a damaged checkpoint would make a
    loss look like a deletion: followers would delete as much."""
    logs = await filled()
    await opened(logs, A0).flush()
    logs = logs.restart(crash=True)
    assert not dict(stated_on(logs.bed.disk).items())
    checkpoints.write_offset_checkpoint(logs.bed.disk, STARTS, {A0: start})
    assert await logs.load_assigned(A0, sole=True) == 1
    log = opened(logs, A0)
    assert (log.log_start_offset, log.leo) == (0, COUNT)
    assert values(log) == [(number, b"v%d" % number) for number in range(COUNT)]


async def stop(logs: Logs) -> None:
    await logs.dirs.close(broker_epoch=1)


async def delete_the_neighbour(logs: Logs) -> None:
    logs.dirs.delete(A1)
    await logs.bed.clock.run_for(1)


@pytest.mark.parametrize("act", [stop, delete_the_neighbour])
async def test_lg_53_a_checkpointed_log_start_is_stated_already(act: Callable[[Logs], Awaitable[None]]) -> None:
    """The machine loses power right behind the checkpoint. Its start counts, for it has a statement."""
    logs = await filled()
    log, disk = opened(logs, A0), logs.bed.disk
    await log.flush()
    logs.dirs.write_log_starts()
    delete_below(log, 10)
    write = disk.write_file_atomically

    def write_and_fail(path: str, data: bytes) -> None:
        write(path, data)
        if path == STARTS:
            disk.inject(times=None)

    disk.write_file_atomically = write_and_fail  # type: ignore[method-assign]
    await act(logs)
    assert logs.failed
    await logs.bed.tasks.cancel_all()
    disk.write_file_atomically = write  # type: ignore[method-assign]
    disk.heal()
    logs = logs.restart(crash=True)
    assert checkpoints.read_offset_checkpoint(disk, STARTS) == {A0: 10}
    assert await logs.load_assigned(A0, A1, sole=True)
    assert opened(logs, A0).log_start_offset == 10


async def test_lg_55_checkpoints_that_contradict_the_statements_are_written_anew_at_the_start() -> None:
    """Else they would count as soon as the statements are lost, too. Those that are right are left alone."""
    logs = await filled()
    delete_below(opened(logs, A0), 10)
    await stop(logs)
    disk = logs.bed.disk
    right = {path: disk.read_file(path) for path in (STARTS, POINTS)}
    checkpoints.write_offset_checkpoint(disk, STARTS, {A0: 20, A1: 1})
    checkpoints.write_offset_checkpoint(disk, POINTS, {A0: 1 << 40, A1: 1 << 40})
    logs = logs.restart()
    assert await logs.load_assigned(A0, A1, sole=True) == 2
    assert {path: disk.read_file(path) for path in right} == right
    await stop(logs)
    written = count_writes(disk)
    assert await logs.restart().load_assigned(A0, A1, sole=True) == 2
    assert set(written).isdisjoint(right)


def count_writes(disk: MemDisk) -> list[str]:
    paths: list[str] = []
    write = disk.write_file_atomically

    def noted(path: str, data: bytes) -> None:
        paths.append(path)
        write(path, data)

    disk.write_file_atomically = noted  # type: ignore[method-assign]
    return paths


@pytest.mark.parametrize("loading", [False, True])
async def test_lg_31_a_stop_before_the_logs_are_loaded_leaves_the_checkpoints_alone(loading: bool) -> None:
    """In the directories of a version without statements nothing else knows where a log starts; what is not loaded yet has no
    line, and its absence would say that it starts with its first segment."""
    logs = await filled()
    delete_below(opened(logs, A0), 10)
    delete_below(opened(logs, A1), 1)
    await stop(logs)
    logs.bed.disk.unlink(f"/d1/{STATEMENTS}")
    logs.values = {"num.recovery.threads.per.data.dir": "1"}
    logs = logs.restart()
    logs.dirs._ports = replace(logs.bed.ports, tuning=Tuning(logs_per_turn=1))
    logs.dirs.read_markers()
    if loading:
        task = logs.bed.tasks.spawn(logs.load(), name="load")
        for _ in range(100):
            if not logs.bed.events("log.opened"):
                await asyncio.sleep(0)
        task.cancel()
        assert len(logs.bed.events("log.opened")) == 1
    await stop(logs)
    await logs.bed.tasks.cancel_all()
    logs = logs.restart()
    assert await logs.load_assigned(A0, A1, sole=True) == 2
    assert (opened(logs, A0).log_start_offset, opened(logs, A1).log_start_offset) == (10, 1)
