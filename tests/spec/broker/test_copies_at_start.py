"""Copies of replicas that a former run has left are opened as replicas are: on a thread, as all of a copy is checked. JB-11."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

import pytest

from kraftlite.broker.log_dirs_state import FUTURE_SUFFIX
from kraftlite.log.statements import STATEMENTS
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import File
from tests.harness.broker_logs import ORDERS, Logs

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


class Killed(BaseException):
    """The process ends here."""


def kill_before(logs: Logs, number: int) -> None:
    """Have the process end before the change numbered so that it makes to names in the file system, or to a file's writes."""
    disk, count = logs.bed.disk, 0

    def dying(call: Callable[..., object]) -> Callable[..., object]:
        def called(*arguments: object, **options: object) -> object:
            nonlocal count
            count += 1
            if count == number:
                raise Killed
            return call(*arguments, **options)

        return called

    for name in ("rename", "sync_dir", "write_file_atomically"):
        setattr(disk, name, dying(getattr(disk, name)))


def revive(logs: Logs) -> None:
    for name in ("rename", "sync_dir", "write_file_atomically"):
        logs.bed.disk.__dict__.pop(name)


@pytest.mark.parametrize("power", [True, False], ids=["power", "kill"])
@pytest.mark.parametrize("number", range(1, 16))
async def test_jb_11_what_was_deleted_stays_deleted_wherever_a_process_dies_that_ends_a_move(number: int, power: bool) -> None:
    logs = await moving(crash=False)
    await logs.load()
    log, move = logs.dirs.get(A0), logs.dirs.log_moves.get(A0)
    assert log is not None and move is not None
    log.update_hw(log.leo)
    log.increment_log_start(12, "DeleteRecords")
    logs.dirs.write_log_starts()
    while logs.dirs.log_moves.step(move):
        pass
    assert logs.dirs.log_moves.is_complete(move)
    await move.copy.flush()
    move.said = True
    kill_before(logs, number)
    with contextlib.suppress(Killed):
        logs.dirs.log_moves.promote(move, lambda tp, state: None)
    revive(logs)
    if not power:
        logs.bed.disk.kill()
    again = logs.restart(crash=power)
    target = move.target.directory_id
    again.dirs.read_markers()
    hosted = {A0: ORDERS}
    await again.dirs.load(lambda tp, topic_id: True, lambda tp: None, lambda tp: True, hosted, lambda tp: target)
    found = again.dirs.get(A0)
    assert found is not None and again.dirs.directory_of(A0) == move.target.path
    assert (found.log_start_offset, found.leo) == (12, 20)


async def test_jb_11_a_log_with_a_hole_that_a_person_accepted_keeps_it_where_it_is_moved() -> None:
    """Without the word about the hole a start after a crash would take it for damage."""
    logs = await moving(crash=False)
    await logs.load()
    log, move = logs.dirs.get(A0), logs.dirs.log_moves.get(A0)
    assert log is not None and move is not None
    assert move.source.statements is not None
    move.source.statements.note({(ORDERS, 0): log.statement(gaps_below=20)})
    move.said = True
    logs.dirs.log_moves.promote(move, lambda tp, state: None)
    stated = move.target.stated((ORDERS, 0))
    assert stated is not None and stated.gaps_below == 20


@pytest.mark.parametrize("offline", [False, True], ids=["gone", "offline"])
async def test_jb_11_a_copy_that_is_stated_and_has_not_its_name_yet_is_no_log_that_has_lost_records(offline: bool) -> None:
    """The process dies between the two; then the replica's directory is not there any more. Nobody else has what the copy has."""
    logs = await moving(crash=False)
    await logs.load()
    log, move = logs.dirs.get(A0), logs.dirs.log_moves.get(A0)
    assert log is not None and move is not None
    kill_before(logs, 1)
    with contextlib.suppress(Killed):
        logs.dirs.log_moves.promote(move, lambda tp, state: None)
    revive(logs)
    assert move.target.stated((ORDERS, 0)) is not None
    logs.bed.disk.crash()
    logs.bed.disk.rmtree(f"{move.source.path}/{A0}")
    logs.bed.disk.unlink(f"{move.source.path}/{STATEMENTS}")
    again = logs.restart()
    if offline:
        source = next(state for state in again.dirs._dirs if state.path == move.source.path)
        again.dirs._fail(source, OSError(5, "gone"))
    target = move.target.directory_id
    await again.dirs.load(lambda tp, topic_id: True, lambda tp: None, lambda tp: True, {A0: ORDERS}, lambda tp: target)
    state = next(state for state in again.dirs._dirs if state.path == move.target.path)
    assert not state.refused and not again.bed.events("broker.damaged_log_set_aside")
    found = again.dirs.get(A0)
    if offline:
        assert found is None and any(name.endswith(FUTURE_SUFFIX) for name in again.bed.disk.listdir(move.target.path))
    else:
        assert found is not None and found.leo == 20
