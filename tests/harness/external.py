"""A cluster that was there before (`--kafka-external`), in the place of one of our own: its nodes are not a test's to break."""

from __future__ import annotations

import pytest

from tests.harness import local
from tests.harness.embedded import EmbeddedNode, EmbeddedState


class External(local.Cluster):
    """For tests of clients that need no faults. What would break a node skips the test."""

    def __init__(self, bootstrap_servers: str) -> None:
        from confluent_kafka.admin import AdminClient

        super().__init__()
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        self._admins[bootstrap_servers] = admin
        found = admin.describe_cluster(request_timeout=30).result(35)
        nodes = tuple(
            EmbeddedNode(node.id, ("broker",), f"{node.host}:{node.port}", "running")
            for node in sorted(found.nodes, key=lambda node: node.id)
        )
        self._state = EmbeddedState(",".join(str(node.kafka) for node in nodes), found.cluster_id, nodes)

    @property
    def state(self) -> EmbeddedState:  # type: ignore[override]
        return self._state

    def _refuse(self, *_node_ids: int) -> None:
        pytest.skip("--kafka-external: the nodes of that cluster are not this test's to break")

    kill = terminate = pause = resume = restart = _refuse
