"""How long partitions could not be written to, by the trace of the broker that leads them."""

from __future__ import annotations

from dataclasses import dataclass

from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.obs.outages import Outages
from kraftlite.runtime.trace.partition import (
    FollowerStarted,
    HwResumed,
    HwStalled,
    IsrCommitted,
    LeaderStarted,
    PartitionOffline,
    PartitionRemoved,
)

TP = TopicPartition("orders", 0)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


@dataclass
class Led:
    under_min_isr: bool
    tp: TopicPartition = TP


def isr(count: int) -> tuple[NodeId, ...]:
    return tuple(map(NodeId, range(4, 4 + count)))


def committed(count: int) -> IsrCommitted:
    return IsrCommitted(tp=TP, isr=isr(count), partition_epoch=1, min_isr=2, cause=None)


def leads(count: int) -> LeaderStarted:
    return LeaderStarted(
        tp=TP, leader_epoch=1, partition_epoch=1, isr=isr(count), min_isr=2, epoch_start_offset=0, hw=0, recovering=False
    )


def follows() -> FollowerStarted:
    return FollowerStarted(tp=TP, leader_id=None, leader_epoch=2, partition_epoch=2, leo=0, hw=0)


def stalled(ms: int) -> HwStalled:
    return HwStalled(tp=TP, hw=1, leo=2, stalled_ms=ms, held_by=())


def resumed(ms: int) -> HwResumed:
    return HwResumed(tp=TP, old=1, new=2, stalled_ms=ms, held_by=())


def test_c2_an_isr_below_the_minimum_counts_until_it_is_whole_again() -> None:
    clock = Clock()
    outages = Outages(clock)
    outages(leads(3))
    clock.now += 5_000
    assert outages.seconds(TP) == 0
    outages(committed(1))
    clock.now += 1_500
    assert outages.seconds(TP) == 1.5, "while it lasts, too"
    outages(committed(1))
    outages(committed(2))
    clock.now += 9_000
    assert outages.seconds(TP) == 1.5
    outages(leads(1))
    clock.now += 500
    assert outages.seconds(TP) == 2


def test_c2_a_high_watermark_that_stands_still_counts_from_when_it_stopped() -> None:
    clock = Clock()
    outages = Outages(clock)
    outages(stalled(600))
    assert (outages.seconds(TP), outages.stalled()) == (0.6, 1)
    clock.now += 400
    outages(resumed(1_000))
    clock.now += 400
    assert (outages.seconds(TP), outages.stalled()) == (1, 0)


def test_c2_two_reasons_at_once_are_one_time() -> None:
    clock = Clock()
    outages = Outages(clock)
    outages(stalled(600))
    outages(committed(1))
    clock.now += 1_000
    outages(resumed(1_600))
    clock.now += 1_000
    outages(committed(2))
    clock.now += 1_000
    assert outages.seconds(TP) == 2.6


def test_c2_who_does_not_lead_counts_nothing_and_what_is_gone_is_forgotten() -> None:
    for end in (follows(), PartitionOffline(tp=TP, reason="x"), None):
        clock = Clock()
        outages = Outages(clock)
        outages(stalled(600))
        outages(committed(1))
        clock.now += 400
        outages(PartitionRemoved(tp=TP) if end is None else end)
        clock.now += 5_000
        assert (outages.seconds(TP), outages.stalled()) == (0 if end is None else 1, 0)


def test_c2_another_minimum_is_seen_by_a_look() -> None:
    clock = Clock()
    outages = Outages(clock)
    outages(leads(2))
    outages.look([Led(under_min_isr=True)])
    clock.now += 2_000
    outages.look([Led(under_min_isr=False)])
    clock.now += 2_000
    assert outages.seconds(TP) == 2
