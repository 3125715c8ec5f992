"""A secure embedded cluster: clients log in over TLS, and may do what ACLs allow."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from kraftlite.testing import ClusterError, SyncCluster


def produced(config: dict[str, str], topic: str) -> KafkaError | None:
    told: list[KafkaError | None] = []
    producer = Producer({**config, "message.timeout.ms": 20_000, "log_level": 0})
    producer.produce(topic, b"x", on_delivery=lambda error, _: told.append(error))
    producer.flush(30)
    return told[0]


def test_a_test_can_learn_what_a_user_without_rights_is_told() -> None:
    with SyncCluster(controllers=1, brokers=1, secure=True) as cluster:
        cluster.create_topic("orders")
        refused = produced(cluster.client_config("alice"), "orders")
        assert refused is not None and refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        admin = AdminClient(cluster.client_config())
        grant = AclBinding(
            ResourceType.TOPIC,
            "orders",
            ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            AclOperation.WRITE,
            AclPermissionType.ALLOW,
        )
        for future in admin.create_acls([grant]).values():
            future.result(30)
        assert produced(cluster.client_config("alice"), "orders") is None
        assert produced(cluster.client_config("bob"), "orders") is not None
        cluster.restart(2)
        assert produced(cluster.client_config("alice"), "orders") is None, "the grant outlives the broker"
        with pytest.raises(KafkaException):
            AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}).list_topics(timeout=3)
        with pytest.raises(ClusterError, match="not one of admin, alice, bob"):
            cluster.client_config("eve")


def test_an_open_cluster_has_the_same_call_for_its_clients() -> None:
    with SyncCluster(controllers=1, brokers=1) as cluster:
        assert cluster.client_config() == {"bootstrap.servers": cluster.bootstrap_servers}
