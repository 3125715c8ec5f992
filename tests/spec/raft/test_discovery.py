"""How an observer finds the leader of the quorum, and the next one."""

from __future__ import annotations

import pytest

from kraftlite.raft.following import DISCOVERY_PATIENCE_MS
from tests.harness.raft_cluster import RaftCluster


def test_rf_17_an_observer_of_a_dead_leader_knows_the_next_one_at_once() -> None:
    cluster = RaftCluster(observers=(4,))
    old = cluster.leader()
    cluster.run(500)
    old.crash()  # its connections are refused from now on
    assert cluster.run(10_000, until=lambda: cluster.has_leader() and cluster.leader().id != old.id)
    assert cluster.run(50, until=lambda: cluster[4].core.leader == cluster.leader().core.leader)


def test_rf_17_an_observer_of_a_silent_leader_goes_on_asking_those_who_still_name_it() -> None:
    cluster = RaftCluster(observers=(4,))
    old = cluster.leader()
    cluster.run(500)
    voters = [n for n in cluster.voter_ids if n != old.id]
    cluster.cut(old.id, 4)  # the others do not miss it yet
    cluster.run(3_000)
    assert cluster[4].core.leader.leader_id == old.id and cluster[4].core.state.fetch_timed_out  # type: ignore[union-attr]
    asked = [m.target for m in cluster.sent if m.source == 4 and m.method.name == "Fetch" and m.kind == "req"][-10:]
    assert set(asked) == set(voters), "it asks both of the others, again and again"
    cluster.isolate(old.id)
    assert cluster.run(10_000, until=lambda: any(node.id != old.id for node in cluster.leaders))
    new = next(node for node in cluster.leaders if node.id != old.id)
    assert cluster.run(50, until=lambda: cluster[4].core.leader == new.core.leader)


@pytest.mark.parametrize("seed", range(8))
def test_rf_17_an_observer_without_a_leader_asks_another_voter_than_the_one_that_is_silent(seed: int) -> None:
    cluster = RaftCluster(observers=(4,), seed=seed)
    old = cluster.leader()
    cluster.run(500)
    cluster.isolate(old.id)  # it may be the first one that is asked in the next epoch, whose leader is not known yet
    assert cluster.run(10_000, until=lambda: any(node.id != old.id for node in cluster.leaders))
    new = next(node for node in cluster.leaders if node.id != old.id)
    assert cluster.run(2 * DISCOVERY_PATIENCE_MS + 50, until=lambda: cluster[4].core.leader == new.core.leader)
