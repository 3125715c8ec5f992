"""Invariant 97 fails when it must: a broker that is not registered with its listeners is not settled."""

from __future__ import annotations

from kraftlite.metadata import records as r
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.checkers.i97_listeners import RegisteredListeners
from tests.harness.watched_cluster import watched

MAP = "listener.security.protocol.map"


def config(node_id: int, key: str, value: str | None) -> r.ConfigRecord:
    return r.ConfigRecord(resource_type=4, resource_name=str(node_id), name=key, value=value)


def test_a_broker_registers_what_its_configuration_names_and_is_not_settled_before() -> None:
    """CB-06. The text is written as another software may have written it: the broker applies it all the same."""
    with watched() as start:
        cluster = start(MetadataWatch, RegisteredListeners)
        (checker,) = [it for it in cluster.checkers if isinstance(it, RegisteredListeners)]
        cluster.go(1_000)
        assert checker.unsettled() is None
        broker = cluster.cluster.brokers[0]
        file, name = broker.config.values["listeners"], f"n{broker.node_id}"
        added = [
            config(broker.node_id, MAP, "ADDED:PLAINTEXT"),
            config(broker.node_id, "listeners", f"{file},ADDED://{name}:9300"),
        ]
        cluster.write(*added)
        cluster.until(lambda: checker.unsettled() is None, "the registration to follow")
        image = cluster.controller().state.cluster.brokers[broker.node_id]
        assert any((it.name, it.port) == ("ADDED", 9300) for it in image.listeners)

        assert broker.node is not None
        cluster.write(config(broker.node_id, "listeners", "nonsense"))
        cluster.go(1_000)
        live = broker.node.listeners.clients.live
        assert live.named("ADDED") is not None, "what cannot be read is told, and nothing changes"

        broker.node.listeners.clients.advertise = lambda _listeners: None
        cluster.write(config(broker.node_id, "listeners", f"{file},ADDED://{name}:9301"))
        cluster.go(3_000)
        told = checker.unsettled()
        assert told is not None and f"ADDED://{name}:9300" in told and f"ADDED://{name}:9301" in told
