"""ADR 7: logs with records of leader epochs that the metadata does not know."""

from __future__ import annotations

import pytest

from kraftlite.model.errors import StorageFault
from kraftlite.model.topic_partition import TopicPartition
from tests.harness.broker_logs import ORDERS, Logs
from tests.harness.disk import MemDisk
from tests.harness.log_support import append, values

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def segments(disk: MemDisk) -> dict[str, bytes]:
    return {path: disk.read_file(path) for path in disk.tree("/d1") if path.endswith(".log") and path.startswith("/d1/a-0")}


@pytest.mark.parametrize("sole", [True, False])
@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("known", [0, 1])
async def test_lg_54_a_log_that_is_ahead_of_the_metadata_is_kept_whoever_else_has_it(known: int, clean: bool, sole: bool) -> None:
    """The files of all controllers were put back from a copy: every replica of every partition is ahead, and none may be lost."""
    logs = Logs()
    await logs.load()
    logs.create(A1, "neighbour")
    logs.create(A0)
    log = logs.dirs.get(A0)
    assert log is not None
    for number in range(24):
        append(log, f"v{number}", epoch=number // 8)
    await logs.bed.clock.settle()
    if clean:
        await logs.dirs.close(broker_epoch=1)
    before = segments(logs.bed.disk)
    for _ in range(2):
        logs = logs.restart()
        assert await logs.load_assigned(A0, A1, sole=sole, leader_epoch=known) == 1
        with pytest.raises(StorageFault, match=r"older than this log.*newer files.*accept-data-loss"):
            logs.dirs.get_or_create(A0, ORDERS)
        assert segments(logs.bed.disk) == before and not logs.bed.events("broker.damaged_log_set_aside")
        await logs.dirs.close(broker_epoch=2)
    logs = logs.restart()
    assert await logs.load_assigned(A0, A1, sole=sole, leader_epoch=2) == 2, "the controllers have their files again"
    found = logs.dirs.get(A0)
    assert found is not None
    assert [value for _, value in values(found)] == [f"v{number}".encode() for number in range(24)]
