"""Metadata snapshots whose bytes are no longer what was written: they are neither handed on nor become all there is."""

from __future__ import annotations

import pytest

from kraftlite.log.config import LogConfig
from kraftlite.model.errors import ErrorCode, Fault
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.raft import OffsetAndEpoch
from kraftlite.raft import metalog
from kraftlite.raft.config import QuorumConfig
from kraftlite.raft.snapshots import snapshot_name
from kraftlite.runtime.trace import raft as trace
from tests.harness.raft_cluster import DIRECTORY, RaftCluster, SimNode
from tests.harness.raft_requests import ask, fetch, fetch_snapshot

SMALL = LogConfig(segment_bytes=300, max_message_bytes=8 << 20)
MANY = [f"record number {i}" for i in range(3_000)]


def filled() -> tuple[RaftCluster, SimNode]:
    cluster = RaftCluster(log_config=SMALL)
    leader = cluster.elect(1)
    for i in range(10):
        leader.append(f"r{i}")
        leader.advance(25)
        cluster.settle()
    return cluster, leader


def begin_log_with_latest(node: SimNode) -> None:
    """Let cleaning give up all snapshots but the latest, and the log before it."""
    log = node.core.metalog
    log._config = QuorumConfig(
        node_id=NodeId(node.id), cluster_id="c", voters=node.config.voters, metadata_dir=DIRECTORY, max_retention_bytes=1
    )
    log.unlink(log.clean(node.wall_ms, None))


def damage(node: SimNode, snapshot_id: OffsetAndEpoch, at: float = 0.9) -> None:
    """Turn a bit of a snapshot while its node runs; at 0 cut all of it, at 1 the end."""
    path = f"{DIRECTORY}/{snapshot_name(snapshot_id)}"
    data = bytearray(node.disk.read_file(path))
    if 0 < at < 1:
        data[int(len(data) * at)] ^= 4
    node.disk.write_file_atomically(path, bytes(data[: int((len(data) - 10) * at)] if at in {0, 1} else data))


def wiped(cluster: RaftCluster, node_id: int) -> SimNode:
    node = cluster[node_id]
    node.crash()
    node.wipe()
    cluster.network.clear()
    node.start()
    return node


@pytest.mark.parametrize("at", [0, 0.1, 0.9, 1])
def test_rf_44_damage_is_not_handed_on_and_the_log_serves_where_it_goes_back(at: float) -> None:
    cluster, leader = filled()
    latest = leader.snapshot(9, MANY)
    assert latest is not None
    damage(leader, latest, at)
    node = wiped(cluster, 3)
    cluster.run(5_000)
    assert node.recorder.records == [f"r{i}" for i in range(10)] and not node.recorder.snapshots
    assert [event.end_offset for event in cluster.events_of(trace.SnapshotDamaged, 1)] == [9]
    assert not cluster.events_of(trace.PeerRefused, 3), "nothing damaged was sent"


def test_rf_44_an_older_snapshot_serves_when_the_latest_is_damaged() -> None:
    cluster, leader = filled()
    leader.snapshot(4, leader.recorder.records[:3])
    begin_log_with_latest(leader)
    latest = leader.snapshot(9, leader.recorder.records[:8])
    assert latest is not None
    damage(leader, latest)
    node = wiped(cluster, 3)
    cluster.run(5_000)
    assert node.recorder.records == [f"r{i}" for i in range(10)] and [it.offset for it in node.recorder.snapshots] == [4]


def only_damaged() -> tuple[RaftCluster, SimNode, OffsetAndEpoch]:
    cluster, leader = filled()
    leader.snapshot(4, ["s"])
    latest = leader.snapshot(9, MANY)
    assert latest is not None
    begin_log_with_latest(leader)
    assert leader.core.metalog.log_start_offset == 9
    damage(leader, latest)
    return cluster, leader, latest


def test_rf_44_nothing_is_handed_on_until_there_is_another_snapshot() -> None:
    cluster, leader, latest = only_damaged()
    node = wiped(cluster, 3)
    assert not leader.core.metalog.latest_is_damaged
    begin = len(cluster.sent)
    cluster.run(2_000)
    assert node.core.leo == 0 and leader.core.metalog.latest_is_damaged and leader.core.state_name == "leader"
    asked = [it for it in cluster.sent[begin:] if it.source == 3 and it.method.name == "FetchSnapshot" and it.kind == "req"]
    assert 2 <= len(asked) <= 200, "it pauses before it asks again"
    assert ask(leader, fetch_snapshot(leader.core.epoch, latest)).error is ErrorCode.SNAPSHOT_NOT_FOUND
    assert len(cluster.events_of(trace.SnapshotDamaged, 1)) == 1
    # what a state machine has in memory is written anew
    assert leader.snapshot(11, leader.recorder.records) is not None
    assert not leader.core.metalog.latest_is_damaged
    cluster.run(5_000)
    assert node.recorder.records == [f"r{i}" for i in range(10)]
    begin_log_with_latest(leader)
    assert leader.core.metalog.snapshots.ids == (OffsetAndEpoch(epoch=leader.core.epoch, offset=11),)
    assert not leader.core.metalog.snapshots.damaged


def test_rf_44_damage_in_a_part_that_was_not_asked_for_hinders_nobody() -> None:
    _, leader, latest = only_damaged()
    answer = ask(leader, fetch_snapshot(leader.core.epoch, latest, 0, max_bytes=100))
    assert answer.error is ErrorCode.NONE and len(answer.payload) == 100
    assert ask(leader, fetch(leader.core.epoch, 0, 0)).snapshot_id == latest


@pytest.mark.parametrize("per_turn", [100, 1 << 20])
def test_rf_47_a_damaged_snapshot_does_not_become_all_there_is(per_turn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(metalog.__dict__, "_PROVEN_PER_TURN_BYTES", per_turn)
    cluster, leader = filled()
    leader.snapshot(4, leader.recorder.records[:3])
    latest = leader.snapshot(9, MANY)
    assert latest is not None
    damage(leader, latest)
    begin_log_with_latest(leader)
    leader.advance(62_000)
    assert [it.offset for it in leader.core.metalog.snapshots.ids] == [4]
    assert leader.core.metalog.log_start_offset <= 4
    leader.disk.sync_dir(DIRECTORY)
    leader.crash()
    leader.start()
    cluster.run(3_000)
    assert leader.recorder.records == [f"r{i}" for i in range(10)]


def test_rf_47_a_large_snapshot_is_checked_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(metalog.__dict__, "_PROVEN_PER_TURN_BYTES", 10_000)
    _, leader = filled()
    leader.snapshot(4, ["s"])
    leader.snapshot(9, MANY)
    begin_log_with_latest(leader)
    assert leader.core.metalog.cleaning and len(leader.core.metalog.snapshots.ids) == 2
    leader.core._clean_deadline_ms = leader.now_ms
    leader.advance(30)
    assert [it.offset for it in leader.core.metalog.snapshots.ids] == [9] and not leader.core.metalog.cleaning


def test_rf_46_a_snapshot_that_is_damaged_after_the_start_is_not_loaded() -> None:
    cluster, leader = filled()
    latest = leader.snapshot(9, MANY)
    assert latest is not None
    leader.disk.sync_dir(DIRECTORY)
    for node in cluster.nodes.values():
        node.crash()
    leader.start()
    damage(leader, latest)
    for node_id in (2, 3):
        cluster[node_id].start()
    cluster.run(10_000)
    assert leader.recorder.records == [f"r{i}" for i in range(10)] and not leader.recorder.snapshots


def test_rf_46_one_that_is_damaged_and_has_what_nothing_else_has_stops_the_node() -> None:
    cluster, leader, latest = only_damaged()
    path = f"{DIRECTORY}/{snapshot_name(latest)}"
    bad = leader.disk.read_file(path)
    damage(leader, latest)  # back to what it was
    for node in cluster.nodes.values():
        node.disk.sync_dir(DIRECTORY)
        node.crash()
    leader.start()
    leader.disk.write_file_atomically(path, bad)
    cluster[2].start()
    cluster[3].start()
    with pytest.raises(Fault, match="is damaged"):
        cluster.run(10_000)
