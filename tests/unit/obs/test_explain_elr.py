"""Elections from the eligible leader replicas, and restarts that were not clean, are told as that (KIP-966)."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlite.model.ids import NodeId
from kraftlite.runtime.trace import controller, log, partition
from tests.unit.obs.test_explain import TP, C, Trace


def change(trace: Trace, at_s: float, offset: int, cause: str, leader: tuple[int | None, int | None], **more: Any) -> None:
    """A change of orders-0 into the next leader epoch, which the offset names as well."""
    old, new = (None if it is None else NodeId(it) for it in leader)
    event = controller.PartitionRecordAppended(
        record="PartitionChange",
        offset=offset,
        detail=str(TP),
        first_offset=offset,
        tp=TP,
        old_leader=old,
        leader=new,
        old_leader_epoch=offset,
        leader_epoch=offset + 1,
        partition_epoch=offset,
        cause=f"operation:{cause}",
        **more,
    )
    trace.say(at_s, C, event)


def ids(*nodes: int) -> tuple[NodeId, ...]:
    return tuple(NodeId(it) for it in nodes)


def test_leaders_from_the_elr_and_unclean_ones_say_so() -> None:
    trace = Trace()
    trace.created()
    fenced, back = "maybe_fence_stale_broker broker=2 silent_ms=9000", "broker_heartbeat broker=3 old=fenced new=unfenced"
    change(trace, 21.0, 50, fenced, (2, None), old_isr=ids(2), isr=(), old_elr=ids(3), elr=ids(2, 3))
    change(trace, 22.0, 52, back, (None, 3), old_isr=(), isr=ids(3), old_elr=ids(2, 3), elr=ids(2))
    change(trace, 33.0, 60, fenced, (3, 4), old_isr=ids(3), isr=ids(4), unclean=True)
    stories = [story for story in trace.about().stories if story.kind == "leader_changed"]
    gone, elected, _ = (story.chain for story in stories)
    assert "nobody in sync, eligible to lead: 2,3" in gone
    assert "leader none→3 epoch 52→53" in elected and "elected from the eligible leader replicas" in elected
    assert [story.title.endswith("an unclean election") for story in stories] == [False, False, True]


def test_an_unclean_restart_says_so() -> None:
    trace = Trace()
    trace.created()
    cause = "register_broker broker=2 replaces=5 clean=false"
    change(trace, 7.5, 30, cause, (2, 3), old_isr=ids(2, 3, 4), isr=ids(3, 4))
    trace.record(7.5, 31, "RegisterBroker", "broker_id=2 broker_epoch=31 fenced=true", cause, first=30)
    assert any("did not stop cleanly" in step.what for step in trace.story("leader_changed").steps)


@pytest.mark.parametrize("fenced_first", [True, False])
def test_what_the_last_one_in_sync_had_is_told_as_lost(fenced_first: bool) -> None:
    """Its log was committed to the end, whether the next leader is elected at its fencing, or when another one is back."""
    trace = Trace()
    trace.created()
    trace.say(12.0, 2, partition.IsrCommitted(tp=TP, isr=ids(2), partition_epoch=3, min_isr=1, cause="record@45"))
    fenced, back = "maybe_fence_stale_broker broker=2 silent_ms=9000", "broker_heartbeat broker=3 old=fenced new=unfenced"
    if fenced_first:
        change(trace, 21.0, 50, fenced, (2, None), old_isr=ids(2), isr=(), old_elr=(), elr=ids(2))
        change(trace, 22.0, 52, back, (None, 3), old_isr=(), isr=ids(3), old_elr=ids(2), elr=(), unclean=True)
    else:
        change(trace, 22.0, 52, fenced, (2, 3), old_isr=ids(2), isr=ids(3), unclean=True)
    trace.follows(30.0, 2, 3, epoch=53, partition_epoch=52, record=52, hw=100)
    trace.say(30.1, 2, log.LogTruncated(tp=TP, offset=100, old_leo=120, leo=100, hw=100))
    assert trace.story("truncated").title.endswith("offsets 100 to 119 were committed: 20 records are lost")
