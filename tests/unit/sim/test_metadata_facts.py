"""The facts that checkers share follow the committed log, and no checker of the metadata objects where all is well."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kraftlite.model.ids import NodeId
from kraftlite.model.messages.raft import OffsetAndEpoch
from kraftlite.sim.checkers.base import Violation
from kraftlite.sim.checkers.catalog_metadata import RAFT_AND_METADATA
from kraftlite.sim.checkers.i11_snapshot_at_log_start import SnapshotAtLogStart
from tests.harness.watched_cluster import WatchedCluster, watched

Make = Callable[..., WatchedCluster]


@pytest.fixture
def make() -> Iterator[Make]:
    with watched() as start:
        yield start


def test_no_violation_where_all_is_well(make: Make) -> None:
    cluster = make(*RAFT_AND_METADATA[1:])
    cluster.create_topic("one")
    leader = cluster.leader_id()
    cluster.kill(leader)
    cluster.until(lambda: cluster.leader_id() not in (0, leader))
    cluster.boot(leader)
    cluster.kill(4)
    cluster.go(5_000)
    cluster.boot(4)
    cluster.create_topic("two")
    node = cluster.node(5).node
    assert node is not None
    image = node.loader.image

    async def snapshot() -> None:
        writer = node.raft.create_snapshot(image.provenance.snapshot_id, 0)
        assert writer is not None
        writer.append(list(image.write()))
        await writer.freeze()

    cluster.do(snapshot())
    cluster.go(2_000)
    cluster.at_end()
    facts = cluster.world.notes["metadata facts"]
    assert facts.committed_end > 20 and len(facts.elected) > 1 and not cluster.failures


def test_the_facts_follow_the_committed_log(make: Make) -> None:
    cluster = make()
    facts = cluster.world.notes["metadata facts"]
    assert facts.committed_end == max(cluster.core(it.node_id).committed_offset or 0 for it in cluster.cluster.controllers)
    assert facts.history.latest.brokers.keys() == {NodeId(4), NodeId(5)}


def test_snapshot_ids_are_compared_with_the_log(make: Make) -> None:
    cluster = make(SnapshotAtLogStart)
    metalog = cluster.core(cluster.follower_ids()[0]).metalog
    metalog.snapshots.add(OffsetAndEpoch(epoch=9, offset=1))
    with pytest.raises(Violation, match="which a power cut would take"):
        cluster.go(600)
