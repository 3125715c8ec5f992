"""LG-53: the place of a segment is taken by one of another partition, as a person does who puts the wrong file back.

Its CRCs are right. What tells is that the log does not reach as far as was flushed; then nothing of it is kept where it cannot be
known to be this log's.
"""

from __future__ import annotations

import dataclasses

import pytest

from kraftlite.log.batch import stamp
from kraftlite.log.config import LogConfig
from kraftlite.log.promises import MAX_DAMAGED_COPIES
from kraftlite.model.topic_partition import TopicPartition
from tests.harness.broker_logs import PAYMENTS
from tests.harness.log_support import append, values
from tests.spec.broker.test_damaged_logs import A0, A1, COUNT, SMALL, again, filled, flip, names, opened, put

COMPACTED = dataclasses.replace(SMALL, cleanup_policy=("compact",))


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize(
    ("config", "first"),
    [(COMPACTED, 0), (COMPACTED, 11), (SMALL, 0), (SMALL, 11)],
    ids=["compacted", "compacted-later", "plain", "plain-later"],
)
async def test_lg_53_a_foreign_segment_is_not_kept_as_the_beginning_of_a_log(config: LogConfig, first: int, clean: bool) -> None:
    """A coordinator that led with it had lost its transactions, and could not load what was not its own."""
    logs = await filled(clean=False, config=config)
    foreign = TopicPartition("foreign", 0)
    logs.create(foreign, "foreign", topic_id=PAYMENTS)
    data = bytearray(logs.bed.disk.read_file(f"/d1/foreign-0/{0:020d}.log"))
    stamp(data, first, 0)
    await logs.bed.clock.settle()
    if clean:
        await logs.dirs.close(broker_epoch=1)
    for path in names(logs.bed.disk, ".log")[1:]:
        logs.bed.disk.unlink(path)
    put(logs.bed.disk, names(logs.bed.disk, ".log")[0], bytes(data))
    logs = again(logs, config)
    await logs.load_assigned(A0, A1, sole=False, leader_epoch=2)
    log = logs.dirs.get(A0)
    assert log is None or b"foreign" not in [value for _, value in values(log)], "it was kept"
    assert log is None or log.leo in (0, 2 * COUNT)
    if log is not None and log.leo == 0:
        (kept,) = names(logs.bed.disk, "-damaged")
        assert b"foreign" in logs.bed.disk.read_file(kept), "nothing is thrown away that a person could put back"


async def test_lg_53_a_segment_is_set_aside_with_all_that_is_in_it_also_behind_what_is_damaged() -> None:
    logs = await filled(clean=True)
    disk = logs.bed.disk
    last = names(disk, ".log")[-1]
    flip(disk, last, 100)
    flip(disk, last, -3)
    before = disk.read_file(last)
    logs = again(logs)
    await logs.load_assigned(A0, A1, sole=False, leader_epoch=2)
    assert opened(logs, A0).leo == int(last.rpartition("/")[2][:20])
    assert opened(logs, A0).latest_epoch is not None
    opened(logs, A0).check(producers=True)
    (kept,) = names(disk, "-damaged")
    assert disk.read_file(kept) == before


async def test_lg_53_a_segment_that_is_set_aside_again_replaces_none_of_the_copies_before_and_the_newest_ones_stay() -> None:
    logs = await filled(clean=True)
    disk = logs.bed.disk
    last = names(disk, ".log")[-1]
    damaged = []
    for number in range(MAX_DAMAGED_COPIES + 2):
        flip(disk, last, -3)
        damaged.append(disk.read_file(last))
        logs = again(logs)
        await logs.load_assigned(A0, A1, sole=False, leader_epoch=2)
        log = opened(logs, A0)
        assert log.leo == int(last.rpartition("/")[2][:20])
        kept = sorted(names(disk, "-damaged"), key=lambda name: int(name.split(".")[-1].removesuffix("-damaged")))
        assert [disk.read_file(name) for name in kept] == damaged[-MAX_DAMAGED_COPIES:]
        append(log, "x" * 60, f"again{number}", epoch=2)
        await logs.dirs.close(broker_epoch=1)
