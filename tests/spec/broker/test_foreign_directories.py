"""What somebody else has put beside the logs stays: a name that only ends as one of ours does is not one of ours. LG-33."""

from __future__ import annotations

import errno

import pytest

from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import FileStat
from tests.harness.broker_logs import Logs

A0 = TopicPartition("a", 0)
ID = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize("name", ["backup-future", "backup-delete", f"backup.{ID}-future", "a-0-future", "a-0-delete"])
async def test_lg_33_a_directory_of_somebody_else_is_reported_and_left(name: str) -> None:
    logs = Logs()
    await logs.load()
    logs.create(A0, "v")
    await logs.dirs.close(broker_epoch=1)
    disk = logs.bed.disk
    disk.makedirs(f"/d1/{name}")
    disk.write_file_atomically(f"/d1/{name}/precious", b"x")
    again = logs.restart()
    assert await again.load() == 1
    assert disk.read_file(f"/d1/{name}/precious") == b"x"
    assert [it.path for it in again.bed.events("broker.log_directory_ignored")] == [f"/d1/{name}"]


@pytest.mark.parametrize("name", [f"b-0.{ID}-delete", f"b-0.{ID}-future"])
async def test_lg_33_what_a_former_run_has_left_is_removed(name: str) -> None:
    logs = Logs()
    await logs.load()
    disk = logs.bed.disk
    disk.makedirs(f"/d1/{name}")
    again = logs.restart()
    await again.load()
    assert name not in disk.listdir("/d1")


async def test_lg_33_a_copy_that_may_not_be_read_costs_the_copy_and_not_its_directory() -> None:
    logs = Logs()
    await logs.load()
    logs.create(A0, "v")
    await logs.dirs.close(broker_epoch=1)
    name = f"b-0.{ID}-future"
    logs.bed.disk.makedirs(f"/d1/{name}")
    again = logs.restart()
    stat = again.bed.disk.stat

    def denied(path: str) -> FileStat | None:
        if path.startswith(f"/d1/{name}/"):
            raise PermissionError(errno.EACCES, "permission denied", path)
        return stat(path)

    again.bed.disk.stat = denied  # type: ignore[method-assign]
    assert await again.load() == 1 and not again.failed
    assert again.dirs.get(A0) is not None
