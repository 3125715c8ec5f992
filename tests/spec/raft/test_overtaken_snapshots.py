"""RF-42 to RF-45: snapshots that come between: one that replaces a longer log, one that is overtaken while it is written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraftlite.model.messages.raft import OffsetAndEpoch
from kraftlite.raft.client import SnapshotWriter
from kraftlite.runtime.trace import raft as trace
from tests.harness.raft_cluster import RaftCluster, SimNode, run_now
from tests.harness.raft_voters import VoterCluster
from tests.spec.raft.test_snapshots import downloading, filled, snapshot_files


@pytest.mark.parametrize("lost", [3, 20], ids=["a shorter end", "a longer end"])
def test_rf_45_a_crash_before_the_truncation_keeps_nothing_that_was_never_committed(lost: int) -> None:
    """A deposed leader whose log is longer than the snapshot that replaces it. With that log it would be told by a leader without
    the snapshot to truncate, behind the snapshot's end too, and would forget who votes."""
    cluster = VoterCluster()
    old = cluster.elect(1)
    cluster.run(1_000)
    cluster.isolate(1)
    for i in range(lost):
        old.append(f"lost {i}")
        old.advance(25)
    assert cluster.run(20_000, until=lambda: any(node is not old for node in cluster.leaders))
    leader = next(node for node in cluster.leaders if node is not old)
    kept = [f"kept {i}" for i in range(6)]
    leader.append(*kept)
    assert cluster.run(1_000, until=lambda: leader.recorder.records == kept)
    end = leader.core.leo
    assert leader.snapshot(end, kept) == leader.core.metalog.end
    leader.core.metalog.log.increment_log_start(end, "test")
    old.core.metalog.log.truncate_fully_and_start_at = power_cut  # type: ignore[method-assign]
    cluster.heal()
    with pytest.raises(PowerCut):
        cluster.run(20_000)
    old.crash()
    leader.crash()  # the third controller has the whole log, and no snapshot
    cluster.network.clear()
    old.start()
    assert old.core.metalog.end == OffsetAndEpoch(epoch=2, offset=end)
    assert cluster.run(20_000, until=cluster.has_agreed)
    cluster.leader().append("the end")
    assert cluster.run(5_000, until=lambda: old.recorder.records == [*kept, "the end"])
    assert old.core.voters.ids == (1, 2, 3) and old.core.kraft_version == 1


class PowerCut(Exception):
    """The node ends here."""


def power_cut(offset: int) -> None:
    raise PowerCut(f"before the log is replaced by an empty one at offset {offset}")


def left_behind() -> tuple[RaftCluster, SimNode, SnapshotWriter]:
    """Node 3, whose log a downloaded snapshot of epoch 2 has replaced while its own of epoch 1 was being written."""
    cluster, leader = filled(4)
    node = cluster[3]
    writer = node.core.create_snapshot(OffsetAndEpoch(epoch=1, offset=3), 1)
    assert writer is not None
    cluster.isolate(3)
    leader.resign()
    leader = cluster.elect(2)
    leader.append("later")
    leader.advance(25)
    cluster.settle()
    end = leader.core.leo
    assert leader.snapshot(end, leader.recorder.records) == OffsetAndEpoch(epoch=2, offset=end)
    leader.core.metalog.log.increment_log_start(end, "test")
    cluster.heal()
    assert cluster.run(8_000, until=lambda: node.core.metalog.log_start_offset == end)
    return cluster, node, writer


def test_rf_42_a_snapshot_that_the_log_has_left_behind_is_given_up() -> None:
    """Beside the one that the log starts from it would have been taken for that one."""
    cluster, node, writer = left_behind()
    with pytest.raises(ValueError, match="ends before the log"):
        run_now(writer.freeze())
    writer.abandon()
    assert [name for name in snapshot_files(node) if "00003-" in name] == []
    wiped_voter_joins(cluster, node)


def test_rf_43_an_older_snapshot_is_not_the_one_that_the_log_starts_from() -> None:
    """A new replica that has just loaded the latest one was sent back to load it, without end and without a pause."""
    cluster, node, writer = left_behind()
    writer._is_wanted = lambda _: True  # type: ignore[attr-defined]
    run_now(writer.freeze())
    assert [snapshot.epoch for snapshot in node.core.metalog.snapshots.ids] == [1, 2]
    wiped_voter_joins(cluster, node)


def wiped_voter_joins(cluster: RaftCluster, leader: SimNode) -> None:
    for node_id in (1, 2):
        cluster[node_id].shut_down()
    cluster.network.clear()
    cluster[1].crash()
    cluster[1].wipe()
    cluster[1].start()
    cluster.elect(leader.id)
    assert cluster.run(8_000, until=lambda: cluster[1].core.leo == leader.core.leo)
    assert len(cluster.events_of(trace.SnapshotInstalled, 1)) == 1


def test_rf_45_a_snapshot_of_what_the_log_has_is_not_loaded_again() -> None:
    cluster, leader = filled()
    node = downloading(cluster, leader)
    cluster.run(3_000)
    latest = node.core.metalog.snapshots.latest
    leader.append("more")
    leader.advance(25)
    message = next(it for it in cluster.in_flight(1, 3) if it.method.name == "Fetch")
    message.body = replace(message.body, snapshot_id=latest, payload=b"")
    cluster.deliver(message)
    assert "and the log ends at" in cluster.events_of(trace.PeerRefused, 3)[-1].reason
    assert cluster.run(3_000, until=lambda: node.core.leo == leader.core.leo)
    assert len(cluster.events_of(trace.SnapshotInstalled, 3)) == 1
