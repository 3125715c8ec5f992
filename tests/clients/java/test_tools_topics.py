"""kafka-topics, and the tools that move partitions, leaders and offsets."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.clients.java.conftest import Kafka
from tests.harness.local import Cluster, wait_for

pytestmark = [pytest.mark.clients, pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("clients")]
capability = pytest.mark.capability


def layout(kafka: Kafka, topic: str) -> list[dict[str, str]]:
    """What `kafka-topics --describe` says of every partition."""
    lines = kafka("topics", "--describe", "--topic", topic).lines
    partitions = [line for line in lines if line.startswith("\t")]
    return [dict(re.findall(r"(\w+): ?([^\t]*)", line)) for line in partitions]


@capability("kafka-topics")
def test_create_list_describe_delete(kafka: Kafka, cluster: Cluster, topic: str) -> None:
    config = ("--config", "retention.ms=1000000", "--config", "cleanup.policy=compact")
    made = kafka("topics", "--create", "--topic", topic, "--partitions", "3", "--replication-factor", "2", *config)
    assert made.lines[-1] == f"Created topic {topic}."
    cluster.wait_topic(topic)
    assert topic in kafka("topics", "--list").lines
    head = kafka("topics", "--describe", "--topic", topic).lines[0]
    assert "PartitionCount: 3\tReplicationFactor: 2\tConfigs: " in head
    assert "cleanup.policy=compact" in head and "retention.ms=1000000" in head
    found = layout(kafka, topic)
    assert [it["Partition"] for it in found] == ["0", "1", "2"]
    assert all(it["Replicas"] == it["Isr"] and it["Leader"] == it["Replicas"].split(",")[0] for it in found)
    topic_id = re.search(r"TopicId: (\S+)", head)
    assert topic_id is not None
    assert kafka("topics", "--describe", "--topic-id", topic_id[1]).lines[0] == head
    assert head in kafka("topics", "--describe", "--topics-with-overrides").lines
    kafka("topics", "--delete", "--topic", topic)
    cluster.wait_gone(topic)
    assert topic not in kafka("topics", "--list", "--exclude-internal").lines
    assert f"Topic '{topic}' does not exist as expected" in kafka("topics", "--delete", "--topic", topic, code=1).out
    kafka("topics", "--delete", "--topic", topic, "--if-exists")


@capability("kafka-topics")
@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("bad name!",), "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        (("..",), "Topic name is invalid: '..' is not allowed"),
        (("x" * 250,), "is longer than the max allowed length 249"),
        (("many", "--replication-factor", "9"), "The target replication factor of 9 cannot be reached because only 3 broker(s)"),
        (("odd", "--config", "nope=1"), "Unknown topic config name: nope"),
        (("lost", "--replica-assignment", "77"), "includes broker 77, but no such broker is registered."),
    ],
)
def test_what_cannot_be_created(kafka: Kafka, cluster: Cluster, args: tuple[str, ...], told: str) -> None:
    assert len(cluster.brokers) == 3
    assert told in kafka("topics", "--create", "--topic", *args, code=1).out


@capability("kafka-topics")
def test_create_twice_and_colliding_names(kafka: Kafka, cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    assert f"Topic '{topic}' already exists." in kafka("topics", "--create", "--topic", topic, code=1).out
    kafka("topics", "--create", "--topic", topic, "--if-not-exists")
    cluster.create_topic(f"{topic}.a")
    done = kafka("topics", "--create", "--topic", f"{topic}_a", code=1)
    assert f"Topic '{topic}_a' collides with existing topic: {topic}.a" in done.out


@capability("kafka-topics")
def test_alter_partitions(kafka: Kafka, cluster: Cluster, topic: str) -> None:
    a, b, c = cluster.brokers
    kafka("topics", "--create", "--topic", topic, "--replica-assignment", f"{a}:{b},{b}:{c}")
    cluster.wait_topic(topic)
    assigned = f"{a}:{b},{b}:{c},{c}:{a}"
    kafka("topics", "--alter", "--topic", topic, "--partitions", "3", "--replica-assignment", assigned)
    wait_for("three partitions", lambda: len(layout(kafka, topic)) == 3)
    assert [it["Replicas"] for it in layout(kafka, topic)] == assigned.replace(":", " ").replace(",", ";").replace(
        " ", ","
    ).split(";")
    done = kafka("topics", "--alter", "--topic", topic, "--partitions", "2", code=1)
    assert "currently has 3 partition(s); 2 would not be an increase." in done.out
    done = kafka("topics", "--alter", "--topic", topic, "--partitions", "3", code=1)
    assert "Topic already has 3 partition(s)." in done.out


@capability("kafka-topics")
def test_reports_of_trouble(kafka: Kafka, cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, replication=2, config={"min.insync.replicas": "2"})
    for flag, told in (
        ("--under-replicated-partitions", False),
        ("--unavailable-partitions", False),
        ("--under-min-isr-partitions", False),
        ("--at-min-isr-partitions", True),
    ):
        assert (f"Topic: {topic}\t" in kafka("topics", "--describe", flag).out) == told, flag


@capability("kafka-get-offsets")
def test_get_offsets(kafka: Kafka, cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, partitions=2)
    assert cluster.produce(topic, [f"v{n}" for n in range(7)], partition=0) == []

    def at(when: str, *more: str) -> list[str]:
        return kafka("get-offsets", "--topic", topic, "--time", when, *more).lines

    both, none = [f"{topic}:0:7", f"{topic}:1:0"], [f"{topic}:0:0", f"{topic}:1:0"]
    assert kafka("get-offsets", "--topic", topic).lines == both
    assert at("latest") == at("-1") == both
    assert at("earliest") == at("-2") == at("earliest-local") == at("-4") == none
    assert at("0") == none[:1], "an empty partition has no offset of a time"
    assert at("latest-tiered") == at("-5") == at("earliest-pending-upload") == []
    assert at(str(2**53)) == []
    assert at("latest", "--partitions", "1") == both[1:]
    assert kafka("get-offsets", "--topic-partitions", f"{topic}:0").lines == both[:1]
    assert f"{topic}:0:7" in kafka("get-offsets", "--exclude-internal-topics").lines
    assert "Could not match any topic-partitions" in kafka("get-offsets", "--topic", "nope", code=1).err


@capability("kafka-get-offsets")
def test_the_offset_of_the_newest_record(kafka: Kafka, cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    producer = cluster.producer(**{"linger.ms": 1000})
    for n, time_ms in enumerate((1000, 5000, 9000, 9000, 3000)):
        producer.produce(topic, f"v{n}".encode(), timestamp=1_000_000 + time_ms)
    assert producer.flush(60) == 0
    assert kafka("get-offsets", "--topic", topic, "--time", "max-timestamp").lines == [f"{topic}:0:2"]
    assert kafka("get-offsets", "--topic", topic, "--time", "1004000").lines == [f"{topic}:0:1"]


@capability("kafka-delete-records")
def test_delete_records(kafka: Kafka, cluster: Cluster, topic: str, plan: Path) -> None:
    cluster.create_topic(topic, partitions=3)
    for partition in range(3):
        assert cluster.produce(topic, [f"v{n}" for n in range(5)], partition=partition) == []
    wanted = [{"topic": topic, "partition": p, "offset": offset} for p, offset in enumerate((3, -1, 99))]
    plan.write_text(json.dumps({"version": 1, "partitions": wanted}))
    told = kafka("delete-records", "--offset-json-file", str(plan)).out
    assert f"partition: {topic}-0\tlow_watermark: 3" in told
    assert f"partition: {topic}-1\tlow_watermark: 5" in told
    assert f"partition: {topic}-2\terror: org.apache.kafka.common.errors.OffsetOutOfRangeException" in told
    earliest = kafka("get-offsets", "--topic", topic, "--time", "earliest").lines
    assert earliest == [f"{topic}:0:3", f"{topic}:1:5", f"{topic}:2:0"]


@capability("kafka-leader-election")
def test_preferred_election(kafka: Kafka, cluster: Cluster, topic: str, plan: Path) -> None:
    a, b, _c = cluster.brokers
    cluster.create_topic(topic, assignment=[[a, b]])
    wanted = ("--election-type", "preferred", "--topic", topic, "--partition")
    assert kafka("leader-election", *wanted, "0").lines == [f"Valid replica already elected for partitions {topic}-0"]
    done = kafka("leader-election", *wanted, "7", code=1)
    assert f"No such partition as {topic}-7" in done.out
    move(kafka, plan, topic, [b, a])
    wait_for("it has moved", lambda: layout(kafka, topic)[0]["Replicas"] == f"{b},{a}")
    told = kafka("leader-election", *wanted, "0").lines
    assert told in (
        [f"Successfully completed leader election (PREFERRED) for partitions {topic}-0"],
        [f"Valid replica already elected for partitions {topic}-0"],  # the mover of leaders was here
    )
    assert cluster.wait_leader(topic, not_in=(a,)) == b


def move(kafka: Kafka, plan: Path, topic: str, replicas: list[int], *more: str, code: int = 0) -> str:
    wanted = [{"topic": topic, "partition": 0, "replicas": replicas}]
    plan.write_text(json.dumps({"version": 1, "partitions": wanted}))
    return kafka("reassign-partitions", "--execute", "--reassignment-json-file", str(plan), *more, code=code).out


@capability("kafka-reassign-partitions")
def test_reassign(kafka: Kafka, cluster: Cluster, topic: str, plan: Path) -> None:
    a, b, c = cluster.brokers
    cluster.create_topic(topic, assignment=[[a, b]])
    assert cluster.produce(topic, [f"v{n}" for n in range(50)]) == []
    plan.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    brokers = ",".join(map(str, cluster.brokers))
    proposed = kafka("reassign-partitions", "--generate", "--topics-to-move-json-file", str(plan), "--broker-list", brokers).out
    assert f'"topic":"{topic}","partition":0,"replicas":[{a},{b}]' in proposed
    assert "Proposed partition reassignment configuration" in proposed
    assert f"Successfully started partition reassignment for {topic}-0" in move(
        kafka, plan, topic, [c, b], "--throttle", "9000000"
    )
    verify = ("--verify", "--reassignment-json-file", str(plan))
    wait_for("the move is complete", lambda: f"{topic}-0 is completed." in kafka("reassign-partitions", *verify).out)
    assert layout(kafka, topic)[0]["Replicas"] == f"{c},{b}"
    assert "throttled" not in kafka("configs", "--describe", "--entity-type", "topics", "--entity-name", topic).out
    assert kafka("reassign-partitions", "--list").lines == ["No partition reassignments found."]
    assert (
        "None of the specified partition reassignments are active." in kafka("reassign-partitions", "--cancel", *verify[1:]).out
    )
    assert cluster.consume(topic, at_least=50) == [f"v{n}" for n in range(50)]
    assert "Unknown broker id 77" in move(kafka, plan, topic, [77], code=1)
