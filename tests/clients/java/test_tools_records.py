"""The tools that write and read records, and those of consumer groups."""

from __future__ import annotations

import json

import pytest

from tests.clients.java.conftest import Kafka
from tests.harness.local import Cluster

pytestmark = [pytest.mark.clients, pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("clients")]
capability = pytest.mark.capability


def keyed(kafka: Kafka, topic: str, count: int) -> list[str]:
    lines = [f"k{n}:v{n}" for n in range(count)]
    properties = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    kafka("console-producer", "--topic", topic, *properties, stdin="".join(f"{line}\n" for line in lines))
    return lines


def consume(kafka: Kafka, *args: str) -> list[str]:
    return kafka("console-consumer", *args, "--timeout-ms", "20000").lines


@capability("kafka-console-producer, kafka-console-consumer")
def test_console(kafka: Kafka, cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    lines = [f"h:{n}\tk{n}\tv{n}" for n in range(10)]
    parse = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
    kafka("console-producer", "--topic", topic, *parse, stdin="\n".join([*lines, ""]))
    show = [word for it in ("key", "headers", "offset", "partition") for word in ("--formatter-property", f"print.{it}=true")]
    found = consume(kafka, "--topic", topic, "--from-beginning", "--max-messages", "10", *show)
    assert found == [f"Partition:0\tOffset:{n}\th:{n}\tk{n}\tv{n}" for n in range(10)]
    found = consume(kafka, "--topic", topic, "--partition", "0", "--offset", "7", "--max-messages", "3")
    assert found == ["v7", "v8", "v9"]


@capability("kafka-console-producer, kafka-console-consumer")
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_console_compressed(kafka: Kafka, cluster: Cluster, topic: str, codec: str) -> None:
    cluster.create_topic(topic)
    values = [f"{codec}-{n}-" + "y" * 80 for n in range(40)]
    kafka("console-producer", "--topic", topic, "--compression-codec", codec, stdin="\n".join([*values, ""]))
    assert cluster.consume(topic, at_least=40) == values


@capability("kafka-console-consumer in a group")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_console_group(kafka: Kafka, cluster: Cluster, topic: str, protocol: str) -> None:
    cluster.create_topic(topic, partitions=3)
    group = f"g-{topic}"
    lines = keyed(kafka, topic, 30)
    how = ("--group", group, "--command-property", f"group.protocol={protocol}")
    found = consume(kafka, "--include", topic, *how, "--from-beginning", "--max-messages", "30")
    assert sorted(found) == sorted(line.split(":")[1] for line in lines)
    rows = kafka.rows("consumer-groups", "--describe", "--group", group)
    assert sum(int(row["CURRENT-OFFSET"]) for row in rows) == 30
    assert {row["LAG"] for row in rows} == {"0"}
    cluster.produce(topic, ["later"])
    assert consume(kafka, "--topic", topic, *how, "--max-messages", "1") == ["later"]


@capability("kafka-consumer-groups")
def test_consumer_groups(kafka: Kafka, cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, partitions=2)
    group = f"g-{topic}"
    for partition in range(2):
        assert cluster.produce(topic, [f"v{n}" for n in range(10)], partition=partition) == []
    consume(kafka, "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "20")
    assert group in kafka("consumer-groups", "--list").lines
    assert [group, "Empty"] in [line.split() for line in kafka("consumer-groups", "--list", "--state").lines]
    assert [group, "Classic"] in [line.split() for line in kafka("consumer-groups", "--list", "--type").lines]
    assert [group, "Classic", "consumer"] in [line.split() for line in kafka("groups", "--list").lines]
    (state,) = kafka("consumer-groups", "--describe", "--group", group, "--state").lines[2:3]
    assert state.split()[-2:] == ["Empty", "0"]
    done = kafka("consumer-groups", "--describe", "--group", group, "--members", "--verbose")
    assert f"Consumer group '{group}' has no active members." in done.err

    def reset(*how: str) -> list[int]:
        rows = kafka.rows("consumer-groups", "--reset-offsets", "--group", group, "--topic", topic, *how)
        return [int(row["NEW-OFFSET"]) for row in sorted(rows, key=lambda row: row["PARTITION"])]

    assert reset("--to-earliest", "--dry-run") == [0, 0]
    assert reset("--to-offset", "7", "--execute") == [7, 7]
    assert reset("--shift-by", "-2", "--execute") == [5, 5]
    assert reset("--to-current", "--dry-run") == [5, 5]
    assert reset("--to-datetime", "2020-01-01T00:00:00.000", "--execute") == [0, 0]
    assert reset("--by-duration", "PT1H", "--execute") == [0, 0]
    assert reset("--to-latest", "--execute") == [10, 10]
    rows = kafka.rows("consumer-groups", "--describe", "--group", group, "--offsets")
    assert [row["CURRENT-OFFSET"] for row in rows] == ["10", "10"]
    told = kafka("consumer-groups", "--delete-offsets", "--group", group, "--topic", topic).out
    assert told.startswith(f"Request succeeded for deleting offsets from group {group}.")
    assert topic not in kafka("consumer-groups", "--describe", "--group", group).out
    told = kafka("consumer-groups", "--delete", "--group", group).out
    assert f"Deletion of requested consumer groups ('{group}') was successful." in told
    assert group not in kafka("consumer-groups", "--list").lines
    gone = kafka("consumer-groups", "--describe", "--group", group)
    assert f"GroupIdNotFoundException: Group {group} not found." in gone.out
    told = kafka("consumer-groups", "--delete", "--group", group).out
    assert f"Group '{group}' could not be deleted due to: org.apache.kafka.common.errors.GroupIdNotFoundException" in told


@capability("kafka-verifiable-producer, kafka-verifiable-consumer")
@pytest.mark.parametrize("acks", ["0", "1", "-1"])
def test_verifiable(kafka: Kafka, cluster: Cluster, topic: str, acks: str) -> None:
    cluster.create_topic(topic)
    told = kafka("verifiable-producer", "--topic", topic, "--max-messages", "20", "--acks", acks).lines
    events = [json.loads(line) for line in told]
    assert events[-1]["sent"] == events[-1]["acked"] == 20
    told = kafka("verifiable-consumer", "--topic", topic, "--group-id", f"g-{topic}", "--max-messages", "20", "--verbose").lines
    events = [json.loads(line) for line in told if line.startswith("{")]
    assert [it["value"] for it in events if it["name"] == "record_data"] == [str(n) for n in range(20)]
    assert all(it["success"] for it in events if it["name"] == "offsets_committed")


@capability("kafka-producer-perf-test, kafka-consumer-perf-test")
def test_performance_tools(kafka: Kafka, cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, partitions=3)
    size = ("--num-records", "3000", "--record-size", "100", "--throughput", "-1")
    zstd = ("--command-property", "compression.type=zstd")
    told = kafka("producer-perf-test", "--topic", topic, *size, *zstd).lines
    assert told[-1].startswith("3000 records sent, ")
    header, row = kafka("consumer-perf-test", "--topic", topic, "--num-records", "3000", "--timeout", "20000").lines[-2:]
    found = dict(zip(header.split(", "), row.split(", "), strict=True))
    assert found["data.consumed.in.nMsg"] == "3000"


@capability("kafka-e2e-latency")
def test_end_to_end_latency(kafka: Kafka, cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    how = ("--topic", topic, "--num-records", "5", "--producer-acks", "all", "--record-size", "50")
    assert "Avg latency: " in kafka("e2e-latency", *how).out
