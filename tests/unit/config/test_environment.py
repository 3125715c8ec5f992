from __future__ import annotations

import pytest

from kraftlite.config.environment import cluster_id_from_environment, key_of_variable, keys_from_environment


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KAFKA_NODE_ID", "node.id"),
        ("KAFKA_LISTENER_NAME_CLIENT__HOST_SSL_KEYSTORE_LOCATION", "listener.name.client_host.ssl.keystore.location"),
        ("KAFKA_LISTENER_NAME_SASL___PLAIN_X", "listener.name.sasl-plain.x"),
        ("KAFKA_CFG_NODE_ID", "node.id"),
        ("KAFKA_KRAFTLITE_METRICS_PORT", "kraftlite.metrics.port"),
        ("KAFKA_HEAP_OPTS", None),
        ("KAFKA_CLUSTER_ID", None),
        ("KAFKA_", None),
        ("PATH", None),
    ],
)
def test_variables_and_keys(variable: str, key: str | None) -> None:
    assert key_of_variable(variable) == key


def test_the_official_prefix_wins_over_the_alias() -> None:
    env = {"KAFKA_CFG_NODE_ID": "7", "KAFKA_NODE_ID": "8", "KAFKA_CFG_LOG_DIRS": "/x"}
    assert keys_from_environment(env) == {"node.id": ("8", "KAFKA_NODE_ID"), "log.dirs": ("/x", "KAFKA_CFG_LOG_DIRS")}


def test_cluster_id() -> None:
    assert cluster_id_from_environment({"CLUSTER_ID": "a", "KAFKA_KRAFT_CLUSTER_ID": "b"}) == "a"
    assert cluster_id_from_environment({"KAFKA_KRAFT_CLUSTER_ID": "b"}) == "b"
    assert cluster_id_from_environment({"CLUSTER_ID": ""}) is None
