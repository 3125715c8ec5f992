"""RF-23: what is told of peers that are not believed."""

from __future__ import annotations

from kraftlite.runtime.trace import raft as trace
from tests.harness.raft_cluster import RaftCluster
from tests.harness.raft_requests import ask, begin, end


def test_rf_23_what_a_peer_says_again_and_again_does_not_fill_the_log() -> None:
    cluster = RaftCluster(start=False)
    node = cluster[1]
    node.start()
    ask(node, begin(3, leader=3))

    def told() -> int:
        return len([event for _, event in cluster.events if isinstance(event, trace.PeerRefused)])

    for _ in range(100):
        ask(node, begin(3, leader=2))
        node.advance(10)
    assert told() == 1
    ask(node, end(3, leader=2))
    assert told() == 2, "it is another message"
    node.advance(10_000)
    ask(node, end(3, leader=2))
    assert told() == 3, "it still is so"
