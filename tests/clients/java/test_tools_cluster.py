"""The tools that describe and configure a cluster: configs, quorum, features, log directories, versions."""

from __future__ import annotations

import json

import pytest

from tests.clients.java.conftest import Kafka
from tests.harness.local import Cluster, wait_for

pytestmark = [pytest.mark.clients, pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("clients")]
capability = pytest.mark.capability


def describe(kafka: Kafka, kind: str, *name: str) -> str:
    return kafka("configs", "--describe", "--entity-type", kind, *name).out


def alter(kafka: Kafka, kind: str, name: str, what: str, *, code: int = 0) -> str:
    action = ("--delete-config", what[1:]) if what.startswith("-") else ("--add-config", what)
    where = ("--entity-name", name) if name else ("--entity-default",)
    done = kafka("configs", "--alter", "--entity-type", kind, *where, *action, code=code)
    return done.out + done.err


@capability("kafka-configs: topics")
def test_configs_of_a_topic(kafka: Kafka, cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, config={"segment.ms": "1000000"})
    name = ("--entity-name", topic)
    line = "  segment.ms=1000000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:segment.ms=1000000}"
    assert line in describe(kafka, "topics", *name).splitlines()
    everything = describe(kafka, "topics", *name, "--all")
    assert line in everything.splitlines()
    assert "  cleanup.policy=delete sensitive=false synonyms={DEFAULT_CONFIG:log.cleanup.policy=delete}" in everything
    assert (
        alter(kafka, "topics", topic, "flush.ms=100,cleanup.policy=[compact,delete]")
        == f"Completed updating config for topic {topic}.\n"
    )
    wait_for("the change is seen", lambda: "cleanup.policy=compact,delete" in describe(kafka, "topics", *name))
    alter(kafka, "topics", topic, "-segment.ms")
    wait_for("the change is seen", lambda: "segment.ms" not in describe(kafka, "topics", *name))
    assert "InvalidConfigurationException: Unknown topic config name: nope" in alter(kafka, "topics", topic, "nope=1", code=1)
    told = alter(kafka, "topics", topic, "segment.ms=-1", code=1)
    assert "Invalid value -1 for configuration segment.ms: Value must be at least 1" in told
    assert "UnknownTopicOrPartitionException: The topic 'nope' does not exist." in alter(
        kafka, "topics", "nope", "segment.ms=5", code=1
    )
    assert (
        describe(kafka, "topics", "--entity-name", "nope") == "The topic 'nope' doesn't exist and doesn't have dynamic config.\n"
    )


@capability("kafka-configs: brokers")
def test_configs_of_brokers(kafka: Kafka, cluster: Cluster) -> None:
    broker = str(cluster.brokers[0])
    name = ("--entity-name", broker)
    alter(kafka, "brokers", broker, "log.cleaner.threads=2")
    alter(kafka, "brokers", "", "log.retention.ms=100000000")
    wait_for("both are seen", lambda: "log.retention.ms=100000000" in describe(kafka, "brokers", *name, "--all"))
    told = describe(kafka, "brokers", *name)
    assert f"Dynamic configs for broker {broker} are:" in told
    want = "DYNAMIC_BROKER_CONFIG:log.cleaner.threads=2, DEFAULT_CONFIG:log.cleaner.threads=1"
    want = f"log.cleaner.threads=2 sensitive=false synonyms={{{want}}}"
    assert want in told
    assert "synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=100000000" in describe(kafka, "brokers", "--entity-default")
    refused = alter(kafka, "brokers", broker, "node.id=3", code=1)
    assert "InvalidRequestException: Cannot update these configs dynamically: [node.id]" in refused
    refused = alter(kafka, "brokers", broker, "log.retention.ms=abc", code=1)
    assert "InvalidRequestException: Invalid value abc for configuration log.retention.ms: Not a number of type LONG" in refused
    alter(kafka, "brokers", broker, "-log.cleaner.threads")
    alter(kafka, "brokers", "", "-log.retention.ms")
    wait_for("they are gone", lambda: "log.cleaner.threads" not in describe(kafka, "brokers", *name))


@capability("kafka-configs: groups")
def test_configs_of_a_group(kafka: Kafka, topic: str) -> None:
    group = f"g-{topic}"
    name = ("--entity-name", group)
    alter(kafka, "groups", group, "consumer.session.timeout.ms=50000")
    want = "consumer.session.timeout.ms=50000 sensitive=false synonyms={DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000"
    wait_for("the change is seen", lambda: want in describe(kafka, "groups", *name))
    assert "Unknown group config name: nope" in alter(kafka, "groups", group, "nope=1", code=1)
    alter(kafka, "groups", group, "-consumer.session.timeout.ms")
    wait_for("the change is seen", lambda: want not in describe(kafka, "groups", *name))


@capability("kafka-client-metrics")
def test_client_metrics(kafka: Kafka, topic: str) -> None:
    name = f"m-{topic}"
    kafka("client-metrics", "--alter", "--name", name, "--interval", "1000", "--metrics", "org.apache.kafka.producer.")
    wait_for("it is listed", lambda: name in kafka("client-metrics", "--list").lines)
    told = kafka("client-metrics", "--describe", "--name", name).out
    assert "  interval.ms=1000\n" in told
    assert "  metrics=org.apache.kafka.producer.\n" in told
    assert "interval.ms=1000" in describe(kafka, "client-metrics", "--entity-name", name)
    refused = alter(kafka, "client-metrics", name, "match=[foo=bar]", code=1)
    assert "InvalidConfigurationException: Illegal client matching pattern: foo=bar" in refused
    kafka("client-metrics", "--delete", "--name", name)
    wait_for("it is gone", lambda: name not in kafka("client-metrics", "--list").lines)


@capability("kafka-metadata-quorum")
def test_quorum(kafka: Kafka, cluster: Cluster) -> None:
    status = dict(line.split(":", 1) for line in kafka("metadata-quorum", "describe", "--status").lines)
    assert status["ClusterId"].strip() == cluster.state.cluster_id
    voters = [it["id"] for it in json.loads(status["CurrentVoters"])]
    assert int(status["LeaderId"]) in voters
    assert int(status["HighWatermark"]) > 0
    rows = kafka("metadata-quorum", "describe", "--replication").lines
    assert rows[0].split("\t")[0].strip() == "NodeId"
    found = {int(row.split()[0]): row.split()[-1] for row in rows[1:]}
    assert set(found) == {*voters, *cluster.brokers}
    assert found[int(status["LeaderId"])] == "Leader"
    assert {role for node, role in found.items() if node != int(status["LeaderId"])} <= {"Follower", "Observer"}
    assert "ms ago" in kafka("metadata-quorum", "describe", "--replication", "--human-readable").out


@capability("kafka-features")
def test_features(kafka: Kafka) -> None:
    found = {line.split()[1]: line for line in kafka("features", "describe").lines}
    assert "SupportedMinVersion: 3.3-IV3" in found["metadata.version"]
    assert "kraft.version" in found
    refused = kafka("features", "upgrade", "--feature", "metadata.version=999", code=1)
    assert "Could not upgrade metadata.version to 999." in refused.out
    assert "only supports versions 7-" in refused.out
    refused = kafka("features", "upgrade", "--feature", "nope=2", code=1)
    assert "Invalid update version 2 for feature nope." in refused.out


@capability("kafka-log-dirs")
def test_log_dirs(kafka: Kafka, cluster: Cluster, topic: str) -> None:
    a, b, c = cluster.brokers
    cluster.create_topic(topic, assignment=[[a, b]])
    assert cluster.produce(topic, ["v"] * 10) == []
    told = kafka("log-dirs", "--describe", "--topic-list", topic).lines
    assert told[:2] == [
        "Querying brokers for log directories information",
        f"Received log directory information from brokers {a},{b},{c}",
    ]
    found = {it["broker"]: it["logDirs"] for it in json.loads(told[2])["brokers"]}
    held = {broker: [p["partition"] for one in dirs for p in one["partitions"]] for broker, dirs in found.items()}
    assert held == {a: [f"{topic}-0"], b: [f"{topic}-0"], c: []}
    assert all(one["error"] is None for dirs in found.values() for one in dirs)
    assert found[a][0]["partitions"][0]["size"] > 0
    refused = kafka("log-dirs", "--describe", "--broker-list", "77", code=1)
    assert "The given brokers do not exist from --broker-list: 77." in refused.err


@capability("kafka-broker-api-versions")
def test_broker_api_versions(kafka: Kafka, cluster: Cluster) -> None:
    told = kafka("broker-api-versions").out
    for broker in cluster.brokers:
        assert f"(id: {broker} rack: null isFenced: false) -> (" in told
    for api in ("Produce(0): 0 to 13", "Fetch(1): 4 to", "ApiVersions(18): 0 to", "DescribeTopicPartitions(75): 0"):
        assert told.count(api) == 3, api


@capability("kafka-cluster")
def test_cluster(kafka: Kafka, cluster: Cluster) -> None:
    done = kafka.run("cluster", "cluster-id", "--bootstrap-server", cluster.bootstrap)
    assert done.lines == [f"Cluster ID: {cluster.state.cluster_id}"]
    told = kafka.run("cluster", "list-endpoints", "--bootstrap-server", cluster.bootstrap).lines
    assert [line.split()[0] for line in told] == ["ID", *map(str, cluster.brokers)]
    told = kafka.run("cluster", "list-endpoints", "--bootstrap-server", cluster.bootstrap, "--include-fenced-brokers").lines
    assert [" unfenced " in line for line in told[1:]] == [True] * 3


@capability("kafka-transactions")
def test_describe_producers(kafka: Kafka, cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    assert cluster.produce(topic, ["v"] * 4, **{"enable.idempotence": True}) == []
    (row,) = kafka("transactions", "describe-producers", "--topic", topic, "--partition", "0").lines[1:]
    assert row.split()[3] == "3", "the last sequence number"
    follower = next(it for it in cluster.brokers if it != cluster.leader(topic))
    where = ("--topic", topic, "--partition", "0", "--broker-id", str(follower))
    assert len(kafka("transactions", "describe-producers", *where).lines) == 2, "followers know their producers, too"
