"""Each invariant of a partition and of who leads it: broken, and seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kraftlite.log.guards import Guard
from kraftlite.model.ids import NodeId
from tests.harness.replication_cluster import StepCluster

Break = Callable[[Any], object]


def led() -> StepCluster:
    """1 leads 2 and 3 in epoch 3; two records, both replicated; a third one that waits for acks=all; 3 is about to join."""
    c = StepCluster()
    c.create((1, 2, 3), isr=(1, 2), leader_epoch=3, partition_epoch=5)
    c[1].produce(["a"], acks=1)
    c.replicate()
    c.fetch(2)
    assert c[1].alter_request() is not None, "3 has caught up"
    c[1].produce(["b"], acks=-1)
    partition = c[1].partition()
    partition.check(producers=True)
    assert partition.waiting.queue and partition.pending_isr is not None
    return c


def put(path: str, value: Any) -> Break:
    def change(partition: Any) -> None:
        *way, last = path.split(".")
        for name in way:
            partition = getattr(partition, name)
        setattr(partition, last, value)

    return change


def pending(**fields: Any) -> Break:
    return lambda p: setattr(p.leader.isr, "pending", replace(p.leader.isr.pending, **fields))


def wait_for(*required: int) -> Break:
    def change(partition: Any) -> None:
        (_, parked, index) = partition.waiting.queue.pop()
        partition.waiting.queue.extend((it, parked, index) for it in required)

    return change


LEADER: dict[str, tuple[Break, str]] = {
    "a log and a reason to be offline": (put("offline_reason", "the disk is gone"), r"offline because 'the disk is gone'"),
    "leads without a log": (
        lambda p: (put("log", None)(p), put("offline_reason", "gone")(p)),
        r"is led without a log",
    ),
    "the leader is another": (put("leader_id", NodeId(2)), r"is led here, its leader is 2"),
    "produces wait and nobody leads": (put("leader", None), r"produces wait for the HWs \[2\], and nobody leads"),
    "produces out of order": (wait_for(3, 2), r"produces wait for the HWs \[3, 2\], out of order"),
    "a produce waits for what is there": (wait_for(1), r"a produce waits for the HW 1, it is 1"),
    "another ISR than the controller's": (
        put("committed_isr", (NodeId(1),)),
        r"has the ISR \(1, 2\), the controller said \(1,\)",
    ),
    "a member twice": (put("leader.isr.maximal", (1, 2, 3, 3)), r"the maximal ISR \(1, 2, 3, 3\) has a member twice"),
    "an expansion that does not count": (
        put("leader.isr.maximal", (1, 2)),
        r"the maximal ISR is \(1, 2\), committed \(1, 2\), about",
    ),
    "adds a member": (pending(added=(NodeId(2),)), r"\(2,\) are to be added to the ISR \(1, 2\), which has them"),
    "removes a stranger": (pending(added=(), removed=(NodeId(3),)), r"\(3,\) are to be removed from the ISR \(1, 2\)"),
    "an older leader epoch": (put("leader.leader_epoch", 2), r"epoch 2 is led, the partition is in 3"),
    "the epoch starts behind the end": (
        put("leader.epoch_start_offset", 9),
        r"leader epoch 3 starts at 9, behind the log's end 2",
    ),
    "a proposal of another epoch": (put("partition_epoch", 6), r"the pending ISR is of .* \(3, 5\), the partition in \(3, 6\)"),
    "the leader is not in its ISR": (
        lambda p: (
            [put(name, (NodeId(2),))(p) for name in ("committed_isr", "leader.isr.committed")]
            + [put("leader.isr.maximal", (2, 3))(p)]
        ),
        r"leader 1 is not in its ISR \(2,\)",
    ),
    "a follower is forgotten": (
        lambda p: p.leader.followers.pop(NodeId(3)),
        r"the progress is of \{2\}, the followers are \{2, 3\}",
    ),
    "a follower is ahead": (
        lambda p: setattr(p.leader.followers[NodeId(2)], "leo", 3),
        r"follower 2 has confirmed 3, the leader ends at 2",
    ),
    "a guard of an earlier leadership": (
        lambda p: p.log._ctx.producers.guards.by_producer.update({7: Guard(2, 0, 0, 0, adds=True)}),
        r"producer 7 has a guard of leader epoch 2, now is 3",
    ),
    "the log is broken": (lambda p: setattr(p.log._ctx, "hw", 9), r"<= HW 9 <= LEO 2"),
}


@pytest.mark.parametrize("what", LEADER)
def test_a_broken_partition_is_seen(what: str) -> None:
    partition = led()[1].partition()
    change, told = LEADER[what]
    change(partition)
    with pytest.raises(AssertionError, match=told):
        partition.check()


def test_a_change_of_role_looks_at_the_partition() -> None:
    c = led()
    partition = c[1].partition()
    partition.fail_waiting = lambda error: None
    with pytest.raises(AssertionError, match="and nobody leads"):
        partition.become_follower(replace(c.controller.registration(), leader=NodeId(2), leader_epoch=4, partition_epoch=9))
