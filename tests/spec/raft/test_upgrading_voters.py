"""DQ-40: the voters of a configured quorum come into its log, and can be changed from then on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kraftlite.log.control import KRaftVersion, KRaftVoters
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.runtime.trace import raft as trace
from tests.harness.raft_changes import Call, add, remove, update
from tests.harness.raft_cluster import SimNode
from tests.harness.raft_voters import ConfiguredCluster, controls, directory_of, voter_set

TIMEOUT_MS = 2_000


def configured(**options: Any) -> tuple[ConfiguredCluster, SimNode]:
    """Three configured voters, of which 1 leads and has heard of the two others, and the broker 5."""
    cluster = ConfiguredCluster(brokers=(5,), **options)
    leader = cluster.elect(1)
    assert cluster.run(3 * TIMEOUT_MS, until=lambda: all(told(cluster, it) for it in (2, 3)))
    return cluster, leader


def told(cluster: ConfiguredCluster, node_id: int) -> bool:
    return getattr(cluster[node_id].core.state, "told_leader", False)


def upgrade(node: SimNode, level: int = 1, *, epoch: int | None = None, validate_only: bool = False) -> None:
    node.core.upgrade_kraft_version(
        node.core.epoch if epoch is None else epoch,
        level,
        validate_only=validate_only,
        now_ms=node.now_ms,
        wall_ms=node.wall_ms,
    )
    node.append("behind the upgrade")


def asked(cluster: ConfiguredCluster) -> int:
    return len([it for it in cluster.sent if it.kind == "req" and it.method.name == "UpdateVoter"])


def test_dq_37_a_configured_voter_tells_each_leader_once() -> None:
    cluster, _ = configured()
    cluster.run(5 * TIMEOUT_MS)
    assert asked(cluster) == 2
    cluster[1].resign()
    cluster.run(10 * TIMEOUT_MS, until=cluster.has_leader)
    cluster.run(5 * TIMEOUT_MS)
    assert asked(cluster) == 4, "and the next leader once more; the broker has nothing to tell"


def test_dq_40_the_voters_come_into_the_log_and_can_be_changed() -> None:
    cluster, leader = configured()
    upgrade(leader)
    assert cluster.run(TIMEOUT_MS, until=lambda: leader.core.high_watermark == leader.core.leo)
    said = [it for _, it in controls(leader) if isinstance(it, KRaftVersion | KRaftVoters)]
    assert said == [KRaftVersion(kraft_version=1), voter_set(1, 2, 3).to_record()]
    assert cluster.run(TIMEOUT_MS, until=lambda: all(it.core.kraft_version == 1 for it in cluster.nodes.values()))
    assert {it.core.voters for it in cluster.nodes.values()} == {voter_set(1, 2, 3)}
    assert Call(cluster, leader, remove(3)).wait().error is ErrorCode.NONE
    assert leader.core.voters == voter_set(1, 2)


def test_dq_40_a_restarted_node_without_configured_voters_finds_them_in_the_log() -> None:
    cluster, leader = configured()
    upgrade(leader)
    assert cluster.run(TIMEOUT_MS, until=lambda: all(it.core.kraft_version == 1 for it in cluster.nodes.values()))
    for node_id in (2, 3, 1):
        cluster[node_id].crash()
        cluster[node_id].config = replace(cluster[node_id].config, voters=(), must_be_voter=None)
        cluster[node_id].start()
        cluster.run(10 * TIMEOUT_MS, until=cluster.has_agreed)
    assert {it.core.voters for it in cluster.nodes.values()} == {voter_set(1, 2, 3)}
    cluster.leader().append("still here")
    assert cluster.run(TIMEOUT_MS, until=lambda: cluster[2].recorder.records[-1:] == ["still here"])


@pytest.mark.parametrize("late", [5, 3], ids=["a broker", "a configured voter"])
@pytest.mark.parametrize("by_snapshot", [False, True], ids=["by the log", "by a snapshot"])
def test_dq_16_a_new_disk_with_the_old_configuration_finds_a_leader_that_was_added(late: int, by_snapshot: bool) -> None:
    """It knows the configured voters alone until it has read the log, and they say who leads, and where. The leader's snapshot
    comes from nobody else, and says no more where it is."""
    cluster, leader = configured(spares=(4,))
    upgrade(leader)
    assert cluster.run(TIMEOUT_MS, until=lambda: all(it.core.kraft_version == 1 for it in cluster.nodes.values()))
    for change in (add(4), remove(2), remove(3), remove(1)):
        assert Call(cluster, leader, change).wait().error is ErrorCode.NONE
    assert cluster.run(10 * TIMEOUT_MS, until=cluster.has_agreed)
    leader = cluster.leader()
    assert leader is cluster[4]
    if by_snapshot:
        assert leader.snapshot(leader.core.committed_offset or 0, ["a"]) is not None
    cluster[late].crash()
    cluster[late].wipe()
    cluster[late].start()
    leader.append("of the added one")
    assert cluster.run(10 * TIMEOUT_MS, until=lambda: cluster[late].recorder.records[-1:] == ["of the added one"])
    assert cluster[late].core.state.leader_id == 4
    assert bool(cluster[late].recorder.snapshots) is by_snapshot


def test_dq_40_it_waits_for_every_voter() -> None:
    cluster = ConfiguredCluster()
    cluster.isolate(3)
    leader = cluster.elect(1)
    assert cluster.run(3 * TIMEOUT_MS, until=lambda: told(cluster, 2))
    with pytest.raises(ApiError, match="not all of the voters support it") as refused:
        upgrade(leader)
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert not [it for _, it in controls(leader) if isinstance(it, KRaftVersion)]
    cluster.heal()
    assert cluster.run(5 * TIMEOUT_MS, until=lambda: told(cluster, 3))
    upgrade(cluster.leader())


def test_dq_40_a_voter_of_older_software_holds_it_up() -> None:
    cluster, leader = configured()
    answered = Call(cluster, leader, update(leader.core.epoch, 3, versions=(0, 0))).wait()
    assert answered.error is ErrorCode.NONE
    with pytest.raises(ApiError, match="not all of the voters support it"):
        upgrade(leader)


def test_dq_40_a_new_leader_asks_afresh() -> None:
    cluster, leader = configured()
    leader.resign()
    cluster.run(10 * TIMEOUT_MS, until=cluster.has_leader)
    (successor,) = cluster.leaders
    with pytest.raises(ApiError, match="not all of the voters support it"):
        upgrade(successor)
    cluster.run(5 * TIMEOUT_MS)
    upgrade(cluster.leader())
    assert cluster.run(TIMEOUT_MS, until=lambda: all(it.core.kraft_version == 1 for it in cluster.nodes.values()))


def test_dq_40_there_is_no_way_back_and_the_same_level_writes_nothing() -> None:
    cluster, leader = configured()
    upgrade(leader, 0)
    upgrade(leader, 1, validate_only=True)
    assert not [it for _, it in controls(leader) if isinstance(it, KRaftVersion)]
    upgrade(leader)
    upgrade(leader)
    cluster.run(TIMEOUT_MS)
    assert len([it for _, it in controls(leader) if isinstance(it, KRaftVersion)]) == 1
    with pytest.raises(ApiError, match="is a downgrade") as refused:
        upgrade(leader, 0)
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
    for node, epoch in ((leader, leader.core.epoch - 1), (cluster[2], None)):
        with pytest.raises(ApiError) as refused:
            upgrade(node, epoch=epoch)
        assert refused.value.code is ErrorCode.NOT_CONTROLLER


def test_dq_40_rc_07_an_upgrade_that_only_its_leader_has_is_truncated_with_it() -> None:
    cluster, leader = configured()
    cluster.isolate(1)
    upgrade(leader)
    assert leader.core.kraft_version == 1, "it counts from the append on"
    assert cluster.run(10 * TIMEOUT_MS, until=lambda: any(it.id != 1 for it in cluster.leaders))
    cluster.heal()
    assert cluster.run(5 * TIMEOUT_MS, until=lambda: leader.core.state.name == "follower" and leader.core.kraft_version == 0)
    assert cluster.events_of(trace.LogTruncated, NodeId(1))
    (led_by,) = cluster.leaders
    assert cluster.run(5 * TIMEOUT_MS, until=lambda: all(told(cluster, it) for it in {1, 2, 3} - {led_by.id}))
    upgrade(led_by)
    assert cluster.run(TIMEOUT_MS, until=lambda: all(it.core.kraft_version == 1 for it in cluster.nodes.values()))


def test_dq_40_rc_07_it_commits_with_a_majority_while_a_voter_is_down() -> None:
    cluster, leader = configured()
    cluster[3].crash()
    upgrade(leader)
    assert cluster.run(TIMEOUT_MS, until=lambda: leader.core.high_watermark == leader.core.leo)
    cluster[3].start()
    assert cluster.run(5 * TIMEOUT_MS, until=lambda: cluster[3].core.kraft_version == 1)
    assert cluster[3].core.voters == voter_set(1, 2, 3)


def test_dq_36_a_configured_quorum_takes_updates_of_its_voters_alone_and_no_changes() -> None:
    cluster, leader = configured()
    epoch = leader.core.epoch
    assert Call(cluster, leader, update(epoch, 4)).wait().error is ErrorCode.VOTER_NOT_FOUND
    assert Call(cluster, leader, update(epoch, 3, directory=directory_of(3, disk=2))).wait().error is ErrorCode.NONE
    for request, what in ((add(4), "adding"), (remove(3), "removing")):
        answered = Call(cluster, leader, request).wait()
        assert answered.error is ErrorCode.UNSUPPORTED_VERSION
        assert answered.message == f"Cluster doesn't support {what} voter because the kraft.version feature is 0"
