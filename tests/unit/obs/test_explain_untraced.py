"""Changes whose records are not traced, because an operation wrote many: what brokers made of them tells as much."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlite.model.ids import NodeId
from kraftlite.runtime.trace import controller, log, partition
from tests.unit.obs.test_explain import TP, C, Trace, ids

MANY = 400
"""Records of one operation; those of orders-0 are in the middle."""
_SILENT = "broker={} silent_ms=9000"


def wrote_many(trace: Trace, at_s: float, last: int, operation: str, why: str) -> None:
    event = controller.RecordsAppended(operation=operation, count=MANY, last_offset=last, cause=f"operation:{operation} {why}")
    trace.say(at_s, C, event)


def fenced(trace: Trace, at_s: float, last: int, *brokers: int) -> None:
    for broker in brokers:
        wrote_many(trace, at_s, last, "maybe_fence_stale_broker", _SILENT.format(broker))


def committed(trace: Trace, at_s: float, where: int, isr: tuple[int, ...], epoch: int, cause: str | None) -> None:
    event = partition.IsrCommitted(tp=TP, isr=ids(*isr), partition_epoch=epoch, min_isr=1, cause=cause)
    trace.say(at_s, where, event)


def led(trace: Trace, at_s: float, where: int, *, epoch: int, partition_epoch: int, record: int, recovering: bool) -> None:
    event = partition.LeaderStarted(
        tp=TP,
        leader_epoch=epoch,
        partition_epoch=partition_epoch,
        isr=ids(where),
        min_isr=1,
        epoch_start_offset=100,
        hw=100,
        recovering=recovering,
        cause=f"record@{record}",
    )
    trace.say(at_s, where, event)


def alone(by: str) -> Trace:
    """orders-0, of which only broker 2, its leader, is still in sync."""
    trace = Trace()
    trace.created()
    if by == "fencing":
        fenced(trace, 12.0, 900, 3, 4)
        committed(trace, 12.1, 2, (2,), 2, "record@700")
    else:
        wrote_many(trace, 12.0, 900, "alter_partition", "broker=2")
        committed(trace, 12.1, 2, (2,), 1, "request:alter_partition")
    return trace


@pytest.mark.parametrize("follower_first", [True, False])
@pytest.mark.parametrize("by", ["fencing", "alter_partition"])
def test_what_an_unclean_election_among_many_lost_is_told(by: str, follower_first: bool) -> None:
    """A cluster with many partitions: neither the fencings nor the election that follows them are traced record by record."""
    trace = alone(by)
    fenced(trace, 21.0, 2000, 2)
    wrote_many(trace, 22.0, 3000, "broker_heartbeat", "broker=3 old=fenced new=unfenced")
    new: dict[str, Any] = {"epoch": 6, "partition_epoch": 4, "record": 2800}
    if follower_first:
        trace.follows(22.1, 4, 3, **new)
    led(trace, 22.2, 3, recovering=True, **new)
    trace.follows(30.0, 2, 3, **new, hw=0)
    trace.say(30.1, 2, log.LogTruncated(tp=TP, offset=100, old_leo=120, leo=100, hw=0))
    assert trace.story("truncated").title.endswith("offsets 100 to 119 were committed: 20 records are lost")
    [moved] = [story for story in trace.about().stories if story.kind == "leader_changed"]
    assert moved.title == "orders-0: leader 2 → 3, an unclean election" and moved.at_ms == 22_000


def test_the_last_one_in_sync_may_be_eligible_when_the_election_is_one_of_many() -> None:
    trace = alone("fencing")
    event = controller.PartitionRecordAppended(
        record="PartitionChange",
        offset=950,
        detail=str(TP),
        first_offset=950,
        tp=TP,
        old_leader=NodeId(2),
        leader=None,
        old_leader_epoch=4,
        leader_epoch=5,
        old_isr=ids(2),
        isr=(),
        elr=ids(2),
        partition_epoch=3,
        cause="operation:maybe_fence_stale_broker broker=2 silent_ms=9000",
    )
    trace.say(21.0, C, event)
    wrote_many(trace, 22.0, 3000, "broker_heartbeat", "broker=3 old=fenced new=unfenced")
    led(trace, 22.2, 3, epoch=6, partition_epoch=4, record=2800, recovering=True)
    trace.follows(30.0, 2, 3, epoch=6, partition_epoch=4, record=2800, hw=0)
    trace.say(30.1, 2, log.LogTruncated(tp=TP, offset=100, old_leo=120, leo=100, hw=0))
    assert trace.story("truncated").title.endswith("offsets 100 to 119 were committed: 20 records are lost")


def test_a_clean_election_among_many_is_told_as_clean() -> None:
    trace = Trace()
    trace.created()
    fenced(trace, 21.0, 2000, 2)
    led(trace, 21.2, 3, epoch=5, partition_epoch=1, record=1800, recovering=False)
    trace.follows(30.0, 2, 3, epoch=5, partition_epoch=1, record=1800, hw=100)
    trace.say(30.1, 2, log.LogTruncated(tp=TP, offset=100, old_leo=120, leo=100, hw=100))
    assert trace.story("truncated").title == "orders-0: broker 2 truncated its log from 120 to 100"
    assert trace.story("leader_changed").title == "orders-0: leader 2 → 3"


def test_who_left_the_isr_is_told_when_its_record_is_one_of_many() -> None:
    trace = alone("fencing")
    story = trace.story("isr_shrunk")
    assert story.title == "orders-0: 3,4 left the ISR" and story.at_ms == 12_000
    assert "PARTITION_CHANGE @700 ISR 2,3,4→2" in story.chain


def test_an_isr_that_is_traced_is_told_once() -> None:
    """The leader's clock is behind that of the controller, so its word seems to come before the record."""
    trace = Trace()
    trace.created()
    committed(trace, 11.9, 2, (2, 3), 1, "request:alter_partition")
    trace.change(12.0, 45, "alter_partition broker=2", leader=(2, 2), epoch=(4, 4), isr=((2, 3, 4), (2, 3)), partition_epoch=1)
    assert trace.story("isr_shrunk").facts["record"] == 45
