"""LG-55: a directory where a file beside the logs belongs. It is kept under another name, and the file is written again."""

from __future__ import annotations

import pytest

from kraftlite.log import checkpoints
from kraftlite.log.statements import STATEMENTS
from kraftlite.model.topic_partition import TopicPartition
from tests.harness.broker_logs import Logs
from tests.harness.disk import MemDisk
from tests.harness.log_support import append, values

A0 = TopicPartition("a", 0)
NAMES = (
    checkpoints.RECOVERY_POINT_CHECKPOINT,
    checkpoints.LOG_START_CHECKPOINT,
    checkpoints.HW_CHECKPOINT,
    checkpoints.CLEANER_CHECKPOINT,
    STATEMENTS,
)


def replace(disk: MemDisk, path: str) -> None:
    if disk.stat(path) is not None:
        disk.unlink(path)
    disk.makedirs(path)
    disk.write_file_atomically(f"{path}/somebody's", b"file")


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("name", NAMES)
async def test_lg_55_a_directory_makes_room_for_the_file(name: str, clean: bool) -> None:
    logs = Logs()
    for turn in (1, 2):
        await logs.load()
        if turn == 1:
            logs.create(A0, "x", "y")
        log = logs.dirs.get(A0)
        assert log is not None
        append(log, f"turn {turn}")
        expected = values(log)
        await logs.bed.clock.settle()
        if clean:
            await logs.dirs.close(broker_epoch=turn)
        replace(logs.bed.disk, f"/d1/{name}")
        logs = logs.restart()
    await logs.load()
    found = logs.dirs.get(A0)
    assert found is not None and values(found) == expected
    assert [it for it in logs.bed.disk.listdir("/d1") if it.startswith(f"{name}.")] == [f"{name}.1-damaged", f"{name}.2-damaged"]
    assert logs.bed.disk.read_file(f"/d1/{name}.2-damaged/somebody's") == b"file"
    await logs.dirs.close(broker_epoch=3)
    stat = logs.bed.disk.stat(f"/d1/{name}")
    assert stat is None or not stat.is_dir
    assert not logs.failed
