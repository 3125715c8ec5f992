"""LG-53: the place of a segment is taken by one of another partition, as a person does who puts the wrong file back.

Its CRCs are right. What tells is that the log does not reach as far as was flushed; then nothing of it is kept where it cannot be
known to be this log's.
"""

from __future__ import annotations

import dataclasses

import pytest

from kraftlite.log.batch import stamp
from kraftlite.log.config import LogConfig
from kraftlite.model.topic_partition import TopicPartition
from tests.harness.broker_logs import PAYMENTS
from tests.harness.log_support import values
from tests.spec.broker.test_damaged_logs import A0, A1, COUNT, SMALL, again, filled, names, put

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
        (kept,) = names(logs.bed.disk, ".log-damaged")
        assert b"foreign" in logs.bed.disk.read_file(kept), "nothing is thrown away that a person could put back"
