"""A whole cluster in one process breaks, and what its nodes recorded tells why: every change of leader has its record."""

from __future__ import annotations

import json
from pathlib import Path

from kraftlite.model.errors import ErrorCode
from kraftlite.obs.explain import Explanation, Story, Subject, explain
from tests.harness.node_cluster import MemCluster


def told(cluster: MemCluster, kind: str, name: str | None = None, *, since_ms: int = 0) -> Explanation:
    return explain(cluster.recorded, Subject.parse(kind, name), since_ms=since_ms)


def only(explanation: Explanation, kind: str) -> Story:
    (story,) = [story for story in explanation.stories if story.kind == kind]
    return story


def record(cluster: MemCluster, kind: str, words: str, *, since_ms: int) -> int:
    """The offset of the one record of this kind with these words in its detail."""
    (offset,) = [
        event.get("offset")
        for event in cluster.recorded
        if event.event == "controller.record_appended"
        and event.ms >= since_ms
        and event.get("record") == kind
        and words in event.get("detail")
    ]
    return int(offset)


async def test_a_crashed_leader_is_traced_to_the_records_that_replaced_it(tmp_path: Path) -> None:
    cluster = MemCluster(tmp_path, controllers=1, brokers=3)
    await cluster.up()
    await cluster.create_topic("orders", replicas=3)
    assert await cluster.produce("orders", "one") is ErrorCode.NONE
    old = cluster.leader("orders")
    assert old is not None
    crashed_ms = cluster.clock.now_ms()
    await old.crash()
    await cluster.until(lambda: cluster.leader("orders"), "another leader")
    new = cluster.leader("orders")
    assert new is not None and new is not old
    assert await cluster.produce("orders", "two") is ErrorCode.NONE
    fence = record(cluster, "BrokerRegistrationChange", f"broker_id={old.node_id}", since_ms=crashed_ms)
    change = record(cluster, "PartitionChange", f"leader={new.node_id}", since_ms=crashed_ms)

    found = told(cluster, "partition", "orders-0", since_ms=crashed_ms)
    story = only(found, "leader_changed")
    assert (story.facts["old_leader"], story.facts["leader"], story.facts["record"]) == (old.node_id, new.node_id, change)
    assert (story.facts["old_leader_epoch"], story.facts["leader_epoch"]) == (0, 1)
    briefs = [step.brief or "" for step in story.steps if step.brief]
    assert briefs[0].startswith(f"broker {old.node_id} missed heartbeats from ")
    assert briefs[1] == f"FENCE @{fence}"
    assert briefs[2].startswith(f"PARTITION_CHANGE @{change} leader {old.node_id}→{new.node_id} epoch 0→1 ")
    assert briefs[3].startswith(f"broker {new.node_id} led from ") and briefs[4].startswith("first produce acknowledged ")
    assert crashed_ms - 500 <= story.steps[0].ms <= crashed_ms, "the last heartbeat was within one interval of the crash"
    assert all(step.because is not None and step.because < step.number for step in story.steps[1:]), (
        "each follows from an earlier"
    )
    assert [step.record for step in story.steps if step.event == "partition.leader_started"] == [change], "it names its record"
    gap = only(found, "not_writable")
    assert story.steps[0].ms <= gap.from_ms <= crashed_ms, "it served until it crashed, whenever its last heartbeat was"
    assert gap.until_ms is not None and gap.until_ms - gap.from_ms > 2_500
    assert story.chain in found.text()
    assert json.loads(json.dumps(found.to_dict()))["stories"]

    # The records tell the same from their side.
    assert told(cluster, "record", str(change)).stories[0].chain == story.chain
    fencing = only(told(cluster, "record", str(fence)), "fenced")
    assert fencing.facts["node"] == old.node_id and "1 leader moved" in fencing.chain
    assert only(told(cluster, "node", str(old.node_id)), "fenced").chain == fencing.chain


async def test_a_returning_broker_and_what_its_log_lost(tmp_path: Path) -> None:
    cluster = MemCluster(tmp_path, controllers=1, brokers=2)
    await cluster.up()
    await cluster.create_topic("orders", replicas=2)
    assert await cluster.produce("orders", "one") is ErrorCode.NONE
    old = cluster.leader("orders")
    assert old is not None
    await old.crash()
    await cluster.until(lambda: cluster.leader("orders"), "another leader")
    assert await cluster.produce("orders", "two") is ErrorCode.NONE
    returned_ms = cluster.clock.now_ms()
    old.boot()
    await cluster.until(lambda: cluster.isr("orders") == (2, 3), "both in sync")
    story = only(told(cluster, "partition", "orders-0", since_ms=returned_ms), "isr_expanded")
    assert story.facts["added"] == [old.node_id]
    assert story.chain.startswith(f"node {old.node_id} started at ") and "UNFENCE @" in story.chain
    assert "killed or crashed" in story.steps[0].what
    started = [s for s in told(cluster, "node", str(old.node_id), since_ms=returned_ms).stories if s.kind == "started"]
    assert len(started) == 1 and "UNFENCE @" in started[0].chain
    assert [s.kind for s in told(cluster, "node", str(old.node_id)).stories].count("died") == 1


async def test_a_controlled_shutdown_moves_leaders_before_it_fences(tmp_path: Path) -> None:
    cluster = MemCluster(tmp_path, controllers=1, brokers=2)
    await cluster.up()
    await cluster.create_topic("orders", replicas=2)
    old = cluster.leader("orders")
    assert old is not None
    begun_ms = cluster.clock.now_ms()
    await old.stop()
    await cluster.until(lambda: cluster.leader("orders"), "another leader")
    story = only(told(cluster, "partition", "orders-0", since_ms=begun_ms), "leader_changed")
    intent = record(cluster, "BrokerRegistrationChange", "in_controlled_shutdown=true", since_ms=begun_ms)
    assert story.chain.startswith(f"broker {old.node_id} began a controlled shutdown at ")
    assert f"CONTROLLED_SHUTDOWN @{intent} ▸ PARTITION_CHANGE @" in story.chain
    stopped = only(told(cluster, "node", str(old.node_id), since_ms=begun_ms), "stopped")
    assert stopped.title == f"node {old.node_id} stopped in good order" and "1 leader moved" in stopped.chain


async def test_an_election_is_traced_to_who_missed_the_controller(tmp_path: Path) -> None:
    cluster = MemCluster(tmp_path, controllers=3)
    await cluster.up()

    def active() -> int | None:
        up = [n for n, it in cluster.nodes.items() if it.node is not None and it.node.status().active_controller]
        return up[0] if up else None

    old = await cluster.until(active, "an active controller")
    crashed_ms = cluster.clock.now_ms()
    await cluster.nodes[old].crash()
    new = await cluster.until(active, "another active controller")
    found = told(cluster, "controller", since_ms=crashed_ms)
    story = only(found, "elected")
    assert (story.facts["old_leader"], story.facts["leader"], story.facts["raft_epoch"]) == (old, new, 2)
    assert str(story.facts["cause"]) == f"timer:fetch leader={old}"
    assert story.chain.startswith(f"controller {old} answered nobody from ") and f"node {new} elected in epoch 2" in story.chain
    assert story.from_ms <= crashed_ms < story.at_ms
    assert found.standing == f"node {new} is the active controller, raft epoch 2"


async def test_a_pause_is_told_by_the_node_that_had_it(tmp_path: Path) -> None:
    cluster = MemCluster(tmp_path, controllers=1, brokers=1)
    await cluster.up()
    cluster.clock.stall(7_000)
    await cluster.until(lambda: len([e for e in cluster.recorded if e.event == "node.stalled"]) == 2, "both to notice the pause")
    await cluster.clock.run_for(5_000)
    for node in (1, 2):
        # Known from a timer that was up to a fetch timeout away: it says "at least".
        (story,) = [story for story in told(cluster, "node", str(node)).stories if story.kind == "paused"]
        assert 4_900 <= story.facts["stalled_ms"] <= 7_000
