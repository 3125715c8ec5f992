"""Stories from events made by hand. The events are the typed ones, so that a renamed fact breaks a test and not a story."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.obs.explain import (
    Explanation,
    Recorded,
    SecondsClock,
    Story,
    Subject,
    UnknownSubject,
    WallClock,
    explain,
    from_line,
    from_trace,
)
from kraftlite.obs.explain_events import words
from kraftlite.runtime.trace import TraceEvent, broker, controller, node, partition, raft

TP = TopicPartition("orders", 0)
C = 1
"""The active controller; brokers are 2, 3 and 4."""


def ids(*members: int) -> tuple[NodeId, ...]:
    return tuple(NodeId(member) for member in members)


class Trace:
    """Events in the order in which they happened; times in seconds."""

    def __init__(self) -> None:
        self.events: list[Recorded] = []
        self._offset = 0

    def say(self, at_s: float, where: int, *events: TraceEvent) -> None:
        self.events += [from_trace(int(at_s * 1000), where, event) for event in events]

    def record(
        self, at_s: float, offset: int, kind: str, detail: str, cause: str, *, first: int | None = None, by: int = C
    ) -> None:
        event = controller.RecordAppended(
            record=kind, offset=offset, detail=detail, first_offset=first or offset, cause=f"operation:{cause}"
        )
        self.say(at_s, by, event)

    def change(
        self,
        at_s: float,
        offset: int,
        cause: str,
        *,
        leader: tuple[int | None, int | None],
        epoch: tuple[int, int],
        isr: tuple[tuple[int, ...], tuple[int, ...]],
        partition_epoch: int,
        first: int | None = None,
        tp: TopicPartition = TP,
    ) -> None:
        who = [None if leader_id is None else NodeId(leader_id) for leader_id in leader]
        event = controller.PartitionRecordAppended(
            record="PartitionChange",
            offset=offset,
            detail=str(tp),
            first_offset=first or offset,
            tp=tp,
            old_leader=who[0],
            leader=who[1],
            old_leader_epoch=epoch[0],
            leader_epoch=epoch[1],
            old_isr=ids(*isr[0]),
            isr=ids(*isr[1]),
            partition_epoch=partition_epoch,
            cause=f"operation:{cause}",
        )
        self.say(at_s, C, event)

    def created(self, at_s: float = 1.0) -> None:
        """orders-0 on 2, 3 and 4, led by 2, in records 10 and 11."""
        self.record(at_s, 10, "Topic", "name=orders", "create_topics")
        event = controller.PartitionRecordAppended(
            record="Partition",
            offset=11,
            detail="orders-0",
            first_offset=10,
            tp=TP,
            old_leader=None,
            leader=NodeId(2),
            old_leader_epoch=None,
            leader_epoch=4,
            old_isr=None,
            isr=ids(2, 3, 4),
            partition_epoch=0,
            cause="operation:create_topics",
        )
        self.say(at_s, C, event)
        self.leads(at_s + 0.1, 2, epoch=4, partition_epoch=0, isr=(2, 3, 4), record=11)

    def leads(
        self, at_s: float, where: int, *, epoch: int, partition_epoch: int, isr: tuple[int, ...], record: int, min_isr: int = 1
    ) -> None:
        event = partition.LeaderStarted(
            tp=TP,
            leader_epoch=epoch,
            partition_epoch=partition_epoch,
            isr=ids(*isr),
            min_isr=min_isr,
            epoch_start_offset=100,
            hw=90,
            recovering=False,
            cause=f"record@{record}",
        )
        self.say(at_s, where, event)

    def follows(
        self, at_s: float, where: int, leader: int, *, epoch: int, partition_epoch: int, record: int, hw: int = 90
    ) -> None:
        event = partition.FollowerStarted(
            tp=TP,
            leader_id=NodeId(leader),
            leader_epoch=epoch,
            partition_epoch=partition_epoch,
            leo=120,
            hw=hw,
            cause=f"record@{record}",
        )
        self.say(at_s, where, event)

    def first_produce(self, at_s: float, where: int, *, epoch: int, waited_ms: int = 10) -> None:
        event = partition.FirstProduceAcknowledged(tp=TP, leader_epoch=epoch, offset=100, hw=101, waited_ms=waited_ms)
        self.say(at_s, where, event)

    def fenced(self, at_s: float = 21.4) -> None:
        """Broker 2, silent for nine seconds: its leadership goes to 3 in record 1841, its fencing is record 1842."""
        cause = "maybe_fence_stale_broker broker=2 silent_ms=9000"
        self.say(at_s, C, controller.BrokerSessionExpired(broker_id=NodeId(2), broker_epoch=5, silent_ms=9000))
        self.change(at_s, 1841, cause, leader=(2, 3), epoch=(4, 5), isr=((2, 3, 4), (3, 4)), partition_epoch=1)
        self.record(at_s, 1842, "BrokerRegistrationChange", "broker_id=2 broker_epoch=5 fenced=true", cause, first=1841)

    def about(self, kind: str = "partition", name: str | None = "orders-0", **span: Any) -> Explanation:
        return explain(self.events, Subject.parse(kind, name), **span)

    def story(self, kind: str, of: str = "partition", name: str | None = "orders-0") -> Story:
        found = [story for story in self.about(of, name).stories if story.kind == kind]
        assert len(found) == 1, [story.title for story in self.about(of, name).stories]
        return found[0]


# --- a partition's leaders


def test_a_killed_leader() -> None:
    trace = Trace()
    trace.created()
    trace.first_produce(1.5, 2, epoch=4)
    trace.fenced()
    trace.leads(21.6, 3, epoch=5, partition_epoch=1, isr=(3, 4), record=1841)
    trace.follows(21.7, 4, 3, epoch=5, partition_epoch=1, record=1841)
    trace.first_produce(21.9, 3, epoch=5)
    trace.say(30.0, 2, node.NodeStarting(roles="broker", cluster_id="c", version="1"))
    story = trace.story("leader_changed")
    assert story.chain == (
        "broker 2 missed heartbeats from 12.4 s ▸ FENCE @1842 ▸ PARTITION_CHANGE @1841 leader 2→3 epoch 4→5 ISR 2,3,4→3,4 "
        "▸ broker 3 led from 21.6 s ▸ first produce acknowledged 21.9 s"
    )
    assert "it ended without a word, killed or crashed, and was started again at 30.0 s" in story.steps[0].what
    assert [(step.node, step.because, step.record) for step in story.steps] == [
        (2, None, None),
        (C, 1, None),
        (C, 2, 1842),
        (C, 3, 1841),
        (3, 4, 1841),
        (3, 5, None),
        (4, 4, 1841),
    ]
    gap = trace.story("not_writable")
    assert (gap.from_ms, gap.until_ms, gap.facts["reason"]) == (12_400, 21_900, "no leader")
    assert gap.title == "orders-0: not writable for 9.5 s from 12.4 s"
    assert trace.about().standing == "led by 3 in leader epoch 5, ISR 3,4 (record @1841)"


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([(25.0, node.NodeStalled(stalled_ms=11_000))], "it was paused or starved, at least 11.0 s until 25.0 s"),
        ([(15.0, broker.BrokerHeartbeatFailed(reason="cut"))], "it ran, but could not reach the controller (cut)"),
        ([(25.0, broker.BrokerFenced(fenced=True))], "it was paused or cut off, and went on at 25.0 s"),
        ([(12.5, node.NodeFaulted(where="log", reason="disk"))], "it had failed"),
        (
            [(13.0, node.NodeStopped()), (14.0, node.NodeStarting(roles="b", cluster_id="c", version="1"))],
            "it was stopped, and started",
        ),
        ([], "nothing more is recorded of it: killed, crashed, paused or cut off"),
    ],
    ids=["paused", "cut-off-and-says-so", "silent-and-back", "failed", "stopped", "gone"],
)
def test_why_a_broker_was_silent(events: list[tuple[float, TraceEvent]], why: str) -> None:
    trace = Trace()
    trace.created()
    trace.fenced()
    for at_s, event in events:
        trace.say(at_s, 2, event)
    steps = trace.story("leader_changed").steps
    silence = next(step for step in steps if step.brief is not None and "missed heartbeats" in step.brief)
    assert why in silence.what


def test_a_fault_begins_the_chain() -> None:
    trace = Trace()
    trace.created()
    trace.say(12.5, 2, node.NodeFaulted(where="log", reason="disk full"))
    trace.fenced()
    assert trace.story("leader_changed").chain.startswith("node 2 failed ▸ broker 2 missed heartbeats from 12.4 s ▸ FENCE @1842")


def test_a_controlled_shutdown() -> None:
    trace = Trace()
    trace.created()
    trace.say(20.0, 2, node.NodeStopping(reason="signal", graceful=True))
    cause = "broker_heartbeat broker=2 old=unfenced new=controlled_shutdown"
    trace.record(20.1, 30, "BrokerRegistrationChange", "broker_id=2 broker_epoch=5 in_controlled_shutdown=true", cause)
    trace.change(20.1, 31, cause, leader=(2, 3), epoch=(4, 5), isr=((2, 3, 4), (3, 4)), partition_epoch=1, first=30)
    trace.leads(20.2, 3, epoch=5, partition_epoch=1, isr=(3, 4), record=31)
    assert trace.story("leader_changed").chain == (
        "broker 2 began a controlled shutdown at 20.0 s ▸ CONTROLLED_SHUTDOWN @30 "
        "▸ PARTITION_CHANGE @31 leader 2→3 epoch 4→5 ISR 2,3,4→3,4 ▸ broker 3 led from 20.2 s"
    )
    gap = trace.story("not_writable")
    assert (gap.from_ms, gap.until_ms) == (20_100, 20_200) and "no acknowledged produce is recorded since" in gap.title
    trace.record(
        20.5,
        32,
        "BrokerRegistrationChange",
        "broker_id=2 broker_epoch=5 fenced=true",
        "broker_heartbeat broker=2 new=shutdown_now",
    )
    trace.say(20.6, 2, node.NodeStopped())
    stopped = trace.story("stopped", "node", "2")
    assert stopped.chain.endswith("CONTROLLED_SHUTDOWN @30 ▸ 1 leader moved ▸ FENCE @32 ▸ stopped 20.6 s")
    assert stopped.title == "node 2 stopped in good order"


@pytest.mark.parametrize(
    ("cause", "brief"),
    [
        ("elect_leaders type=preferred", "preferred election asked for"),
        ("elect_leaders type=unclean", "unclean election asked for"),
        ("elect_preferred", "leaders balanced"),
        ("elect_unclean", "unclean election"),
        ("unregister_broker broker=3", "broker 3 unregistered"),
    ],
)
def test_elections_by_request_and_by_the_clock(cause: str, brief: str) -> None:
    trace = Trace()
    trace.created()
    trace.change(20.0, 40, cause, leader=(3, 2), epoch=(5, 6), isr=((2, 3, 4), (2, 3, 4)), partition_epoch=2)
    assert trace.story("leader_changed").chain == f"{brief} ▸ PARTITION_CHANGE @40 leader 3→2 epoch 5→6"


def test_a_partition_without_a_leader_until_its_broker_is_back() -> None:
    trace = Trace()
    trace.created()
    cause = "maybe_fence_stale_broker broker=2 silent_ms=9000"
    trace.change(20.0, 40, cause, leader=(2, None), epoch=(4, 5), isr=((2,), (2,)), partition_epoch=1)
    trace.record(20.0, 41, "BrokerRegistrationChange", "broker_id=2 broker_epoch=5 fenced=true", cause, first=40)
    trace.say(29.0, 2, node.NodeStarting(roles="broker", cluster_id="c", version="1"))
    back = "broker_heartbeat broker=2 old=fenced new=unfenced"
    trace.record(30.0, 42, "BrokerRegistrationChange", "broker_id=2 broker_epoch=9 fenced=false", back)
    trace.change(30.0, 43, back, leader=(None, 2), epoch=(5, 6), isr=((2,), (2,)), partition_epoch=2, first=42)
    trace.leads(30.1, 2, epoch=6, partition_epoch=2, isr=(2,), record=43)
    trace.first_produce(30.5, 2, epoch=6)
    chains = [story.chain for story in trace.about().stories if story.kind == "leader_changed"]
    assert chains[0].endswith("FENCE @41 ▸ PARTITION_CHANGE @40 leader 2→none epoch 4→5")
    assert chains[1].startswith("node 2 started at 29.0 s ▸ UNFENCE @42 ▸ PARTITION_CHANGE @43 leader none→2 epoch 5→6")
    gap = trace.story("not_writable")
    assert (gap.from_ms, gap.until_ms) == (11_000, 30_500), "one gap, over both changes"


def test_an_idle_partition_is_not_called_unwritable_for_as_long_as_nobody_wrote() -> None:
    trace = Trace()
    trace.created()
    trace.fenced()
    trace.leads(21.6, 3, epoch=5, partition_epoch=1, isr=(3, 4), record=1841)
    trace.first_produce(500.0, 3, epoch=5)
    gap = trace.story("not_writable")
    assert gap.until_ms == 21_600 and gap.title.endswith("the first produce came long after")


def test_a_leader_that_served_after_its_last_heartbeat_was_lost_later() -> None:
    trace = Trace()
    trace.created()
    trace.first_produce(13.5, 2, epoch=4)
    trace.fenced()
    trace.leads(21.6, 3, epoch=5, partition_epoch=1, isr=(3, 4), record=1841)
    assert trace.story("not_writable").from_ms == 13_500
    trace.say(14.0, 2, broker.BrokerHeartbeatFailed(reason="cut off"))
    assert trace.story("not_writable").from_ms == 12_400, (
        "it ran on alone: since when clients could not write is not known better"
    )


def test_a_leader_that_is_replaced_by_its_next_incarnation() -> None:
    trace = Trace()
    trace.say(0.5, 2, node.NodeStarting(roles="broker", cluster_id="c", version="1"))
    trace.created()
    trace.first_produce(3.0, 2, epoch=4)
    trace.say(7.0, 2, node.NodeStarting(roles="broker", cluster_id="c", version="1"))
    cause = "register_broker broker=2 replaces=5"
    trace.change(7.5, 30, cause, leader=(2, 3), epoch=(4, 5), isr=((2, 3, 4), (3, 4)), partition_epoch=1)
    trace.record(7.5, 31, "RegisterBroker", "broker_id=2 broker_epoch=31 fenced=true", cause, first=30)
    story = trace.story("leader_changed")
    assert story.chain == "node 2 started at 7.0 s ▸ REGISTER @31 ▸ PARTITION_CHANGE @30 leader 2→3 epoch 4→5 ISR 2,3,4→3,4"
    assert "killed or crashed" in story.steps[0].what and "replaces its incarnation of epoch 5" in story.steps[2].what
    assert trace.story("not_writable").from_ms == 3_000, "lost with the process, not with the record"


def test_a_change_that_was_one_of_many_is_known_from_the_brokers() -> None:
    trace = Trace()
    trace.created()
    cause = "operation:maybe_fence_stale_broker broker=2 silent_ms=9000"
    trace.say(
        20.0, C, controller.RecordsAppended(operation="maybe_fence_stale_broker", count=5000, last_offset=6000, cause=cause)
    )
    trace.leads(20.3, 3, epoch=5, partition_epoch=1, isr=(3, 4), record=4321)
    story = trace.story("leader_changed")
    assert story.facts["record"] == 4321 and story.at_ms == 20_000
    assert "broker 2 missed heartbeats from 11.0 s ▸ PARTITION_CHANGE @4321 leader 2→3 epoch 4→5" in story.chain
    assert "one of the 5000 records up to @6000" in trace.story("record", "record", "4321").steps[-2].what


def test_records_that_were_lost_with_their_controller_are_no_changes() -> None:
    trace = Trace()
    trace.created()
    trace.fenced()
    trace.say(22.0, 5, _elected(5, 2, start=1841, cause="timer:fetch leader=1"))
    trace.change(
        25.0, 1842, "elect_leaders type=preferred", leader=(2, 4), epoch=(4, 5), isr=((2, 3, 4), (2, 3, 4)), partition_epoch=1
    )
    assert [s.facts["leader"] for s in trace.about().stories if s.kind == "leader_changed"] == [4]
    with pytest.raises(UnknownSubject, match="nothing is recorded of record 1841; recorded are @10 to @1842"):
        trace.about("record", "1841")


# --- in-sync replicas and the high watermark


def test_a_follower_that_lags_is_dropped_and_comes_back() -> None:
    trace = Trace()
    trace.created()
    proposed = partition.IsrShrinkProposed(
        tp=TP,
        out=ids(4),
        maximal_isr=ids(2, 3, 4),
        fetched_ago_ms=(30_500,),
        caught_up_ago_ms=(31_000,),
        behind=(17,),
    )
    trace.say(60.0, 2, proposed)
    trace.change(60.1, 50, "alter_partition broker=2", leader=(2, 2), epoch=(4, 4), isr=((2, 3, 4), (2, 3)), partition_epoch=1)
    trace.say(60.2, 2, partition.IsrCommitted(tp=TP, isr=ids(2, 3), partition_epoch=1, min_isr=1, cause="record@50"))
    trace.say(70.0, 4, node.NodeStalled(stalled_ms=39_000))
    trace.say(71.0, 2, partition.IsrExpandProposed(tp=TP, added=ids(4), maximal_isr=ids(2, 3, 4)))
    trace.change(71.1, 51, "alter_partition broker=2", leader=(2, 2), epoch=(4, 4), isr=((2, 3), (2, 3, 4)), partition_epoch=2)
    shrunk = trace.story("isr_shrunk")
    assert shrunk.chain == (
        "broker 4 fetched nothing from 29.5 s ▸ broker 2 proposed to drop 4 ▸ PARTITION_CHANGE @50 ISR 2,3,4→2,3"
    )
    assert "paused or starved" in shrunk.steps[0].what
    assert "4 fetched last 30.5 s ago, was caught up 31.0 s ago, lacks 17 records" in shrunk.steps[1].what
    assert shrunk.facts["out"] == [4] and shrunk.steps[-1].what == "broker 2, which leads, goes on with ISR 2,3"
    assert trace.story("isr_expanded").chain == "4 caught up ▸ PARTITION_CHANGE @51 ISR 2,3→2,3,4"


def test_a_broker_that_was_fenced_while_paused_is_heard_of_again() -> None:
    trace = Trace()
    trace.say(0.5, 4, node.NodeStarting(roles="broker", cluster_id="c", version="1"))
    trace.created()
    cause = "maybe_fence_stale_broker broker=4 silent_ms=9000"
    trace.change(20.0, 40, cause, leader=(2, 2), epoch=(4, 4), isr=((2, 3, 4), (2, 3)), partition_epoch=1)
    trace.record(20.0, 41, "BrokerRegistrationChange", "broker_id=4 broker_epoch=5 fenced=true", cause, first=40)
    back = "broker_heartbeat broker=4 old=fenced new=unfenced"
    trace.record(25.0, 42, "BrokerRegistrationChange", "broker_id=4 broker_epoch=5 fenced=false", back)
    trace.change(25.2, 43, "alter_partition broker=2", leader=(2, 2), epoch=(4, 4), isr=((2, 3), (2, 3, 4)), partition_epoch=2)
    assert trace.story("isr_shrunk").chain == (
        "broker 4 missed heartbeats from 11.0 s ▸ FENCE @41 ▸ PARTITION_CHANGE @40 ISR 2,3,4→2,3"
    )
    assert trace.story("isr_expanded").chain == (
        "broker 4 was heard of again ▸ UNFENCE @42 ▸ 4 caught up ▸ PARTITION_CHANGE @43 ISR 2,3→2,3,4"
    )
    assert trace.story("unfenced", "node", "4").chain == "broker 4 was heard of again ▸ UNFENCE @42"


def test_a_high_watermark_that_stood_still_until_the_isr_shrank() -> None:
    trace = Trace()
    trace.created()
    trace.say(15.0, 2, partition.HwStalled(tp=TP, hw=90, leo=95, stalled_ms=3_000, held_by=ids(4), cause="fetch"))
    trace.change(
        21.0,
        50,
        "maybe_fence_stale_broker broker=4 silent_ms=9000",
        leader=(2, 2),
        epoch=(4, 4),
        isr=((2, 3, 4), (2, 3)),
        partition_epoch=1,
    )
    trace.say(21.1, 2, partition.HwResumed(tp=TP, old=90, new=95, stalled_ms=9_100, held_by=ids(4), cause="isr"))
    story = trace.story("hw_stalled")
    assert (story.from_ms, story.until_ms, story.facts["hw"], story.facts["held_by"]) == (12_000, 21_100, 90, [4])
    assert story.chain.startswith("HW stood at 90 from 12.0 s ▸ broker 4 missed heartbeats from 12.0 s")
    assert story.chain.endswith("PARTITION_CHANGE @50 ISR 2,3,4→2,3 ▸ HW 95 at 21.1 s")


def test_a_high_watermark_that_still_stands() -> None:
    trace = Trace()
    trace.created()
    trace.say(15.0, 2, partition.HwStalled(tp=TP, hw=90, leo=95, stalled_ms=3_000, held_by=(), cause="min.insync.replicas=2"))
    story = trace.story("hw_stalled")
    assert story.until_ms is None and story.title.endswith("and does so still")
    assert story.steps[-1].what == "too few replicas are in sync: min.insync.replicas=2"


def test_a_stall_ends_with_the_leader_that_had_it() -> None:
    trace = Trace()
    trace.created()
    trace.say(15.0, 2, partition.HwStalled(tp=TP, hw=90, leo=95, stalled_ms=3_000, held_by=ids(4), cause="fetch"))
    trace.fenced()
    trace.leads(21.6, 3, epoch=5, partition_epoch=1, isr=(3, 4), record=1841)
    story = trace.story("hw_stalled")
    assert (story.from_ms, story.until_ms) == (12_000, 21_600) and story.chain.endswith(
        "HW stood at 90 from 12.0 s ▸ broker 3 led from 21.6 s"
    )


def test_below_min_isr_nobody_writes_with_acks_all() -> None:
    trace = Trace()
    trace.created()
    trace.change(20.0, 50, "alter_partition broker=2", leader=(2, 2), epoch=(4, 4), isr=((2, 3, 4), (2,)), partition_epoch=1)
    trace.say(20.1, 2, partition.IsrCommitted(tp=TP, isr=ids(2), partition_epoch=1, min_isr=2, cause="record@50"))
    trace.say(30.1, 2, partition.IsrCommitted(tp=TP, isr=ids(2, 3), partition_epoch=2, min_isr=2, cause="record@51"))
    story = trace.story("not_writable")
    assert (story.from_ms, story.until_ms, story.facts["reason"]) == (20_100, 30_100, "min.insync.replicas")
    assert story.facts["record"] == 50
    assert "ISR 2 is below min.insync.replicas=2 from 20.1 s ▸ enough at 30.1 s" in story.chain


# --- nodes and the quorum


def test_a_node_from_start_to_fault() -> None:
    trace = Trace()
    trace.say(1.0, 2, node.NodeStarting(roles="broker", cluster_id="c", version="1"))
    trace.say(1.2, 2, broker.BrokerRegistered(broker_epoch=5, incarnation_id="i"))
    trace.record(
        1.3, 20, "BrokerRegistrationChange", "broker_id=2 broker_epoch=5 fenced=false", "broker_heartbeat broker=2 new=unfenced"
    )
    trace.say(1.4, 2, node.NodeStarted(roles="broker"))
    trace.say(5.0, 2, node.NodeStalled(stalled_ms=2_500))
    trace.say(9.0, 2, broker.LogDirFailed(log_dir="/d", directory_id="x", reason="EIO"))
    trace.say(9.1, 2, node.NodeFaulted(where="log", reason="all log directories failed"))
    stories = {story.kind: story for story in trace.about("node", "2").stories}
    assert stories["started"].chain == "node 2 started at 1.0 s ▸ registered ▸ UNFENCE @20 ▸ serves"
    assert stories["started"].title == "node 2 started within 400 ms"
    assert (stories["paused"].from_ms, stories["paused"].until_ms) == (2_500, 5_000)
    assert stories["log_dir_failed"].chain == "/d failed" and stories["faulted"].chain == "all log directories failed"
    assert trace.about("node", "2").standing == "the last it recorded is node.faulted, unfenced since record @20"


def _elected(leader: int, epoch: int, *, start: int, cause: str) -> TraceEvent:
    return raft.LeaderElected(
        leader_id=NodeId(leader), raft_epoch=epoch, epoch_start_offset=start, granting_voters=ids(leader, 7), cause=cause
    )


def test_an_election_after_a_silent_controller() -> None:
    trace = Trace()
    trace.say(1.0, C, _elected(C, 1, start=0, cause="timer:election"))
    for at_s, where in ((9.0, 9), (20.0, 5), (20.1, 7)):
        trace.say(at_s, where, raft.FetchTimedOut(leader_id=NodeId(C), raft_epoch=1, silent_ms=2_000))
    trace.say(20.0, 5, raft.StateChanged(state="prospective", raft_epoch=1, cause="timer:fetch leader=1"))
    trace.say(20.2, 7, raft.VoteAnswered(candidate_id=NodeId(5), raft_epoch=1, pre_vote=True, granted=True))
    trace.say(20.2, 7, raft.ElectionLost(raft_epoch=1, pre_vote=True, reason="refused"))
    trace.say(20.3, 5, raft.StateChanged(state="candidate", raft_epoch=2, cause="timer:fetch leader=1"))
    trace.say(20.4, 5, _elected(5, 2, start=100, cause="timer:fetch leader=1"))
    trace.say(20.5, 5, controller.ControllerClaimed(raft_epoch=2, write_offset=101, stable_offset=99))
    trace.record(21.0, 101, "Topic", "name=t", "create_topics", by=5)
    stories = trace.about("controller", None).stories
    assert [story.title for story in stories] == [
        "raft epoch 1: active controller none → 1",
        "raft epoch 2: active controller 1 → 5",
    ]
    assert stories[1].chain == (
        "controller 1 answered nobody from 18.0 s ▸ node 5 timed out 20.0 s ▸ node 5 elected in epoch 2 20.4 s "
        "▸ active 20.5 s ▸ first write @101 21.0 s"
    )
    whats = [step.what for step in stories[1].steps]
    assert "node 5 did not hear from the leader within the fetch timeout, and asks whether it would win" in whats
    assert "node 7 loses the pre-vote of epoch 1: refused" in whats
    assert not any(step.node == 9 for step in stories[1].steps), "an observer's timeout elects nobody"
    assert trace.about("controller", None).standing == "node 5 is the active controller, raft epoch 2"
    assert trace.about("node", "1").stories[-1].kind == "elected"


def test_a_controller_that_resigns() -> None:
    trace = Trace()
    trace.say(1.0, C, _elected(C, 1, start=0, cause="timer:election"))
    trace.say(9.9, C, node.NodeStopping(reason="signal", graceful=True))
    trace.say(10.0, C, raft.LeaderResigned(raft_epoch=1, reason="shutting down", preferred_successors=ids(5)))
    trace.say(10.1, 5, raft.StateChanged(state="prospective", raft_epoch=1, cause="request:end_quorum_epoch leader=1"))
    trace.say(10.3, 5, _elected(5, 2, start=100, cause="request:end_quorum_epoch leader=1"))
    stories = trace.about("controller", None).stories
    assert [story.kind for story in stories] == ["elected", "resigned", "elected"]
    assert stories[1].chain == "node 1 is stopping ▸ node 1 resigned from epoch 1 ▸ node 5 elected 10.3 s"
    assert stories[2].chain == "node 1 resigned 10.0 s (shutting down) ▸ node 5 elected in epoch 2 10.3 s"


# --- ranges, subjects, forms


def test_the_range_takes_what_touches_it() -> None:
    trace = Trace()
    trace.created()
    trace.fenced()
    trace.leads(21.6, 3, epoch=5, partition_epoch=1, isr=(3, 4), record=1841)
    trace.first_produce(21.9, 3, epoch=5)
    assert [s.kind for s in trace.about(until_ms=5_000).stories] == ["created"]
    assert [s.kind for s in trace.about(since_ms=13_000, until_ms=14_000).stories] == ["not_writable", "leader_changed"]
    quiet = trace.about(since_ms=30_000, until_ms=31_000)
    assert quiet.lines() == [
        "partition orders-0, 30.0 s to 31.0 s: led by 3 in leader epoch 5, ISR 3,4 (record @1841)",
        "  nothing that changed it is recorded in this time",
    ]
    assert trace.about(until_ms=500).standing == "nothing of it is recorded before the end of this time"


def test_text_and_json() -> None:
    trace = Trace()
    trace.created()
    trace.change(20.0, 40, "elect_preferred", leader=(3, 2), epoch=(5, 6), isr=((2, 3, 4), (2, 3, 4)), partition_epoch=2)
    found = trace.about(since_ms=19_000)
    assert found.lines()[1:] == [
        "",
        "20.0 s  orders-0: leader 3 → 2",
        "  leaders balanced ▸ PARTITION_CHANGE @40 leader 3→2 epoch 5→6",
        "       when      where   because  what",
        "    1  20.000 s  node 1           auto.leader.rebalance.enable: the preferred leader is to lead again",
        "    2  20.000 s  node 1  of 1     orders-0: leader 3→2, epoch 5→6 (partition epoch 2)",
        "",
        "20.0 s  orders-0: not writable from 20.0 s; nobody leads it since, as far as is recorded",
        "  leader 3 lost 20.0 s",
        "       when      where   because  what",
        "    1  20.000 s  node 1           broker 3 no longer leads",
    ]
    value = json.loads(json.dumps(found.to_dict()))
    assert value["subject"] == "partition orders-0" and value["stories"][0]["record"] == 40
    assert value["stories"][0]["steps"][1]["because"] == 1 and value["stories"][1]["until_ms"] is None


def test_subjects() -> None:
    assert str(Subject.parse("record", "@1841")) == "record 1841" and str(Subject.parse("controller")) == "controller"
    for kind, name, problem in (
        ("broker", "2", "broker: allowed are partition, topic, node, controller, cluster, transaction, record"),
        ("node", "two", "node two: allowed is a number"),
        ("partition", None, "partition needs a name: partition orders-0"),
        ("cluster", "c", "cluster takes no name, not c: there is only one"),
    ):
        with pytest.raises(ValueError, match=problem):
            Subject.parse(kind, name)


def test_unknown_subjects_say_what_there_is() -> None:
    with pytest.raises(UnknownSubject, match=r"nothing is recorded$"):
        explain([], Subject.parse("node", "1"))
    trace = Trace()
    trace.created()
    trace.fenced()
    for kind, name, problem in (
        ("partition", "orders-1", "nothing is recorded of partition orders-1; there are: orders-0"),
        ("topic", "order", "nothing is recorded of topic order; there are: orders"),
        ("node", "9", "nothing is recorded of node 9; there are: 1, 2"),
        ("record", "7", "nothing is recorded of record 7; recorded are @10 to @1842"),
    ):
        with pytest.raises(UnknownSubject, match=problem):
            trace.about(kind, name)


def test_events_of_a_file_and_of_a_trace_are_the_same() -> None:
    event = partition.IsrCommitted(tp=TP, isr=ids(2, 3), partition_epoch=1, min_isr=1, cause="record@50")
    typed = from_trace(1500, 2, event)
    line = {"ts": 1500, "node": 2, "event": "partition.isr_committed", "tp": ["orders", 0], "isr": [2, 3], "cause": "record@50"}
    read = from_line(line)
    assert read is not None
    for found in (typed, read):
        assert (found.ms, found.node, found.partition, found.caused_by_record) == (1500, 2, "orders-0", 50)
        assert tuple(found.get("isr")) == (2, 3)
    assert from_line({"ts": "x", "event": "e"}) is None
    assert words("orders-0 isr=(1,2) leader=none fenced=true rack=a-b n=()") == {
        "isr": (1, 2),
        "leader": None,
        "fenced": True,
        "rack": "a-b",
        "n": (),
    }


def test_clocks() -> None:
    assert (SecondsClock().short(12_456), SecondsClock().exact(12_456)) == ("12.5 s", "12.456 s")
    stamp = WallClock().stamp(1_700_000_000_123)
    assert stamp.startswith("2023-11-1") and stamp.endswith(".12") and WallClock().exact(1_700_000_000_123).endswith(".123")
