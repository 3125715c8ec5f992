"""Copies of replicas that a former run has left are opened as replicas are: on a thread, as all of a copy is checked. JB-11."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from kraftlite.broker.log_dirs_state import FUTURE_SUFFIX
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import File
from tests.harness.broker_logs import Logs

A0 = TopicPartition("a", 0)
T = TypeVar("T")


async def moving(*, crash: bool) -> Logs:
    """A replica with a copy of all it has in the other directory, and the process that comes after."""
    logs = Logs("/d1", "/d2")
    await logs.load()
    logs.create(A0, *(f"v{number}" for number in range(20)))
    log = logs.dirs.get(A0)
    assert log is not None
    log.update_hw(log.leo)
    home = logs.dirs.directory_of(A0)
    logs.dirs.moves.alter(A0, "/d2" if home == "/d1" else "/d1")
    move = logs.dirs.log_moves.get(A0)
    assert move is not None
    while logs.dirs.log_moves.step(move):
        pass
    await move.copy.flush()
    await log.flush()
    logs.dirs.write_recovery_points()
    if not crash:
        await logs.dirs.close(broker_epoch=1)
    return logs.restart(crash=crash)


@pytest.mark.parametrize("crash", [True, False], ids=["crash", "clean"])
async def test_jb_11_a_copy_is_opened_off_the_loop(crash: bool) -> None:
    logs = await moving(crash=crash)
    blocking = False
    opened: list[bool] = []
    run, open_file = logs.bed.ports.tasks.run_blocking, logs.bed.disk.open

    async def run_blocking(function: Callable[[], T]) -> T:
        def marked() -> T:
            nonlocal blocking
            blocking = True
            try:
                return function()
            finally:
                blocking = False

        return await run(marked)

    def noted(path: str, *, create: bool = False) -> File:
        if FUTURE_SUFFIX in path:
            opened.append(blocking)
        return open_file(path, create=create)

    logs.bed.ports.tasks.run_blocking = run_blocking  # type: ignore[method-assign]
    logs.bed.disk.open = noted  # type: ignore[method-assign]
    await logs.load()
    move = logs.dirs.log_moves.get(A0)
    assert move is not None and move.copy.leo == 20
    assert opened and all(opened)


async def test_jb_11_a_directory_that_fails_while_a_copy_is_opened_ends_the_move_and_nothing_else() -> None:
    logs = await moving(crash=True)
    run = logs.bed.ports.tasks.run_blocking
    opener = logs.dirs.log_moves.opener

    async def run_blocking(function: Callable[[], T]) -> T:
        found = await run(function)
        if begun:
            logs.dirs.handle_failure(OSError(5, "no such disk"), A0)
        return found

    begun: list[object] = []

    def noted(*about: object) -> object:
        begun.append(about)
        return opener(*about)  # type: ignore[arg-type]

    logs.bed.ports.tasks.run_blocking = run_blocking  # type: ignore[method-assign]
    logs.dirs.log_moves.opener = noted  # type: ignore[assignment, method-assign]
    await logs.load()
    assert begun and logs.dirs.log_moves.get(A0) is None and len(logs.failed) == 1


@pytest.mark.parametrize("crash", [True, False], ids=["crash", "clean"])
async def test_jb_11_what_was_deleted_stays_deleted_where_a_copy_takes_its_place_at_a_start(crash: bool) -> None:
    logs = await moving(crash=False)
    await logs.load()
    log, move = logs.dirs.get(A0), logs.dirs.log_moves.get(A0)
    assert log is not None and move is not None and move.topic_id == log.topic_id
    log.update_hw(log.leo)
    log.increment_log_start(12, "DeleteRecords")
    while logs.dirs.log_moves.step(move):
        pass
    assert move.copy.log_start_offset == 12 and logs.dirs.log_moves.is_complete(move)
    await move.copy.flush()
    logs.dirs.write_log_starts()
    if not crash:
        await logs.dirs.close(broker_epoch=1)
    again = logs.restart(crash=crash)
    target = move.target.directory_id
    await again.dirs.load(lambda tp, topic_id: True, assigned=lambda tp: target)
    assert again.dirs.log_moves.get(A0) is None and again.dirs.directory_of(A0) == move.target.path
    found = again.dirs.get(A0)
    assert found is not None and (found.log_start_offset, found.leo) == (12, 20)
    assert found.epoch_entries[0][1] >= 12
