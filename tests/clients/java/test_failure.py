"""What only the Java client asks for, and its tools, on a cluster of which a broker is dead."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.clients.java import test_capabilities, tools
from tests.clients.java.conftest import Kafka
from tests.clients.programs import Ready
from tests.harness.embedded import Embedded, embedded
from tests.harness.local import Cluster, wait_for

pytestmark = [pytest.mark.clients, pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("clients")]
capability = pytest.mark.capability


@pytest.fixture
def breakable(java: None) -> Iterator[Embedded]:
    with embedded(controllers=1, brokers=3, config={"auto.leader.rebalance.enable": "false"}) as cluster:
        yield cluster


def client_of(cluster: Cluster) -> Ready:
    return Ready(test_capabilities.TestJava.client, tools.program(), cluster.bootstrap)


@capability("AdminClient")
def test_administration_while_a_broker_is_dead(breakable: Embedded) -> None:
    cluster, java = breakable, client_of(breakable)
    a, b, c = cluster.brokers
    cluster.create_topic("t", assignment=[[a, b], [b, c], [c, a]])
    assert cluster.produce("t", ["v"] * 30, partition=0, **{"enable.idempotence": True}) == []
    cluster.kill(a)
    cluster.wait_leader("t", not_in=(a,))
    cluster.wait_isr("t", {b})
    layout, producers, fenced, resources, dirs, described = java.admin(
        {"do": "layout", "topic": "t"},
        {"do": "describe_producers", "topic": "t"},
        {"do": "fenced_brokers"},
        {"do": "config_resources", "type": "TOPIC"},
        {"do": "log_dirs", "brokers": [b, c]},
        {"do": "describe_cluster"},
    )
    assert [it["leader"] for it in layout] == [b, b, c]
    assert [it["isr"] for it in layout] == [[b], [b, c], [c]]
    assert producers == [29]
    assert fenced == [a]
    assert described["brokers"] == [b, c]
    assert "t" in resources or resources == [], "Kafka lists topics with configs only"
    assert [it for it in dirs[str(c)] if it.startswith("t-")] == ["t-1", "t-2"]
    (more, taken, elected, unclean) = java.admin(
        {"do": "create_partitions", "topic": "t", "partitions": 4},
        {"do": "create_topic", "topic": "u", "partitions": 1, "replication_factor": 3},
        {"do": "elect", "type": "preferred", "topic": "t", "partition": 1},
        {"do": "elect", "type": "unclean", "topic": "t", "partition": 0},
    )
    assert more is None
    assert taken is None, "fenced brokers get replicas, too"
    assert elected == {"t-1": "ELECTION_NOT_NEEDED"} or "ELECTION_NOT_NEEDED" in elected["t-1"]
    assert "ELECTION_NOT_NEEDED" in unclean["t-0"]
    quorum, features, controller = java.admin({"do": "quorum"}, {"do": "features"}, {"do": "controller"})
    assert quorum["leader"] in quorum["voters"] and quorum["high_watermark"] > 0
    assert features["metadata.version"] >= 25
    assert controller in (b, c), "clients are sent to a broker that lives"
    cluster.restart(a)
    cluster.wait_whole("t")
    assert java.admin({"do": "elect", "type": "preferred", "topic": "t", "partition": 0}) == [{"t-0": "elected"}]
    assert cluster.wait_leader("t", not_in=(b,)) == a


@capability("AdminClient")
def test_reassignment_and_farewell(breakable: Embedded) -> None:
    cluster, java = breakable, client_of(breakable)
    a, b, c = cluster.brokers
    cluster.create_topic("t", assignment=[[a, b]])
    assert cluster.produce("t", [f"v{n}" for n in range(30)]) == []
    cluster.kill(c)
    wait_for("it is fenced", lambda: java.admin({"do": "fenced_brokers"}) == [[c]])
    moved, under_way = java.admin({"do": "reassign", "topic": "t", "replicas": [b, c]}, {"do": "reassignments"})
    assert moved is None
    assert under_way == {"t-0": {"adding": [c], "removing": [a]}}, "it waits for the dead broker"
    assert java.admin({"do": "reassign", "topic": "t", "replicas": []}, {"do": "reassignments"}) == [None, {}], "cancelled"
    (nothing,) = java.admin({"do": "reassign", "topic": "t", "replicas": []})
    assert nothing.startswith("NO_REASSIGNMENT_IN_PROGRESS")
    assert java.admin({"do": "reassign", "topic": "t", "replicas": [b, c]}) == [None]
    cluster.restart(c)
    wait_for("it has moved", lambda: set(cluster.partitions("t")[0].replicas) == {b, c})
    wait_for("it is done", lambda: java.admin({"do": "reassignments"}) == [{}])
    assert cluster.consume("t", at_least=30) == [f"v{n}" for n in range(30)]
    cluster.kill(a)
    wait_for("it is fenced", lambda: java.admin({"do": "fenced_brokers"}) == [[a]])
    assert java.admin({"do": "unregister", "broker": a}) == [None]
    wait_for("it is forgotten", lambda: java.admin({"do": "fenced_brokers"}) == [[]])


@capability("kafka-verifiable-producer, kafka-verifiable-consumer")
def test_the_verifiable_tools_survive_a_broker(breakable: Embedded) -> None:
    """The producer, which never tries again, is told of each record what became of it; what is acknowledged is read in order."""
    cluster = breakable
    cluster.create_topic("t", config={"min.insync.replicas": "2"})
    total = 1500
    writing = [*tools.java("kafka-verifiable-producer"), "--bootstrap-server", cluster.bootstrap, "--topic", "t", "--acks", "-1"]
    writing += ["--max-messages", str(total), "--throughput", "300"]
    with subprocess.Popen(writing, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as writer:
        try:
            assert writer.stdout is not None
            told = [json.loads(next(writer.stdout)) for _ in range(300)]
            dead = cluster.leader("t")
            cluster.kill(dead)
            told += [json.loads(next(writer.stdout)) for _ in range(400)]
            cluster.restart(dead)
            told += [json.loads(line) for line in writer.stdout]
        finally:
            writer.kill()
    sent, failed = ([it["value"] for it in told if it["name"] == f"producer_send_{verdict}"] for verdict in ("success", "error"))
    assert sorted([*sent, *failed], key=int) == [str(n) for n in range(total)]
    assert len(failed) < 400, "the others took over"
    kafka, there = Kafka(cluster.bootstrap), str(cluster.cluster.hw("t"))  # of what failed some may be there, and some not
    reader = kafka("verifiable-consumer", "--group-id", "g", "--topic", "t", "--max-messages", there, "--verbose")
    read = [json.loads(line)["value"] for line in reader.lines if '"record_data"' in line]
    assert sorted(read, key=int) == read and len(set(read)) == len(read), "in order, and each once"
    assert set(sent) <= set(read) <= {*sent, *failed}


@capability("kafka-topics")
def test_reports_of_trouble_while_a_broker_is_dead(breakable: Embedded) -> None:
    cluster, kafka = breakable, Kafka(breakable.bootstrap)
    a, b, _c = cluster.brokers
    cluster.create_topic("two", assignment=[[a, b]], config={"min.insync.replicas": "2"})
    cluster.create_topic("one", assignment=[[a]])
    cluster.kill(a)
    cluster.wait_leaderless("one")
    cluster.wait_isr("two", {b})

    def reported(flag: str) -> list[str]:
        lines = kafka("topics", "--describe", flag, "--exclude-internal").lines
        return sorted(line.split("\t")[1] for line in lines if line.startswith("\t"))

    # KIP-966: the last member of an ISR leaves it, too.
    assert reported("--under-replicated-partitions") == ["Topic: one", "Topic: two"]
    assert reported("--unavailable-partitions") == ["Topic: one"]
    assert reported("--under-min-isr-partitions") == ["Topic: one", "Topic: two"]
    assert "Leader: none" in kafka("topics", "--describe", "--topic", "one").out
