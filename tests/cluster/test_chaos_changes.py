"""Voters that come, go and lose their disks, log directories that go, replicas that move and levels that change, while nodes are
killed: nothing acknowledged is lost, nothing aborted is read, every ISR becomes whole, and no node ends by itself.

`KRAFTLITE_CHANGES_SEEDS=7,20-29 pytest -m slow tests/cluster/test_chaos_changes.py`: each seed takes about four minutes.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.harness import changing
from tests.harness.cluster import Client, ended
from tests.harness.seeds import seeds_in

SECONDS = 150


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds_in("KRAFTLITE_CHANGES_SEEDS", "1"))
def test_a_cluster_that_is_changed_while_its_nodes_are_killed_loses_nothing(seed: int, tmp_path: Path) -> None:
    """DQ-30, DQ-33, JB-07, CM-42."""
    cluster, voters = changing.create(tmp_path, changing.LEVELS[seed % len(changing.LEVELS)])
    with ended(cluster):
        for node in (*cluster.brokers, *(cluster.nodes[id] for id in sorted(voters))):
            node.start(wait=False)
        for node in cluster.brokers:
            node.wait_started()
        for name, count in changing.TOPICS.items():
            Client(cluster.bootstrap).create_topic(name, partitions=count, replicas=3)
        changes = changing.Changes(cluster, voters, seed)
        changes.wait_whole()
        writers = [
            changing.Writer(name, cluster.bootstrap, topic, transactional=topic == "transactions")
            for name, topic in (("p1", "plain"), ("p2", "plain"), ("x1", "transactions"), ("x2", "transactions"))
        ]
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            changes.once()
        changes.wait_whole()
        for writer in writers:
            writer.stop()
        problems = changing.verdict(cluster.bootstrap, writers) + changing.stop(cluster, voters)
        assert not problems, "\n".join([*problems, *changes.story])
        assert all(sum(map(len, writer.acked.values())) > 100 for writer in writers), "little was written"
        print("\n".join(changes.story))
