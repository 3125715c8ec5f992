"""A running cluster lets go of records: on request, by age, and of all but the newest of each key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kraftlite.cli.main import cli
from kraftlite.testing import SyncCluster, other_than
from tests.harness.embedded import QUICK, produce, producer
from tests.harness.local import wait_for


def admin(c: SyncCluster) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": c.bootstrap_servers})


def watermarks(c: SyncCluster, topic: str) -> tuple[int, int]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": c.bootstrap_servers, "group.id": "test"})
    try:
        found: tuple[int, int] = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
        return found
    finally:
        consumer.close()


def to_the_end(c: SyncCluster, topic: str) -> list[tuple[str, int]]:
    """(key, number) of every record that is left, in order."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    options = {"group.id": "test", "enable.auto.commit": False, "enable.partition.eof": True, "check.crcs": True, **QUICK}
    consumer = Consumer({"bootstrap.servers": c.bootstrap_servers, **options})
    found = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(20)
            assert message is not None
            if message.error() is None:
                found.append((message.key().decode(), int(message.value().split(b"-")[0])))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return found
    finally:
        consumer.close()


def test_lg_40_librdkafka_and_the_command_line_delete_records(tmp_path: Path) -> None:
    from confluent_kafka import KafkaException, TopicPartition

    with SyncCluster() as c:
        c.create_topic("orders")
        c.create_topic("keyed", config={"cleanup.policy": "compact"})
        produce(c, "orders", [str(number) for number in range(20)])
        client = admin(c)
        (future,) = client.delete_records([TopicPartition("orders", 0, 12)]).values()
        assert future.result(20).low_watermark == 12
        assert watermarks(c, "orders") == (12, 20)
        for _ in range(2):
            victim = c.leader("orders")
            assert victim is not None
            c.kill(victim)
            c.restart(victim)
            c.wait_for(topic="orders", isr=c.brokers)
        assert watermarks(c, "orders") == (12, 20), "they stay deleted, whoever leads"
        for topic, offset, error in (("keyed", 0, "POLICY_VIOLATION"), ("orders", 21, "OFFSET_OUT_OF_RANGE")):
            (future,) = client.delete_records([TopicPartition(topic, 0, offset)]).values()
            with pytest.raises(KafkaException, match=error):
                future.result(20)

        def run(*args: str) -> Any:
            return CliRunner().invoke(cli, ["records", "delete", *args, "--bootstrap-server", c.bootstrap_servers])

        assert run("orders", "--before", "15").output == "partition: orders-0\tlow_watermark: 15\n"
        path = tmp_path / "offsets.json"
        rows = [{"topic": "orders", "partition": 0, "offset": -1}, {"topic": "keyed", "partition": 0, "offset": 0}]
        path.write_text(json.dumps({"partitions": rows, "version": 1}))
        found = run("--offset-json-file", str(path))
        assert found.exit_code == 1 and "partition: orders-0\tlow_watermark: 20\n" in found.output
        assert "partition: keyed-0\terror: POLICY_VIOLATION" in found.output
        assert run("orders").exit_code == 2
        produce(c, "orders", ["after"])
        assert watermarks(c, "orders") == (20, 21)


def test_lg_42_of_a_compacted_topic_the_newest_values_are_left() -> None:
    with SyncCluster(config={"log.cleaner.backoff.ms": "100"}) as c:
        c.create_topic("keyed", config={"cleanup.policy": "compact", "segment.bytes": "20000"})
        client = producer(c, **{"batch.num.messages": 10})
        for number in range(3_000):
            client.produce("keyed", key=f"key-{number % 20}", value=f"{number}-" + "x" * 50, partition=0)
        assert client.flush(20) == 0

        wait_for("the log is compacted", lambda: len(to_the_end(c, "keyed")) < 1_000)
        for _ in range(3):
            leader = c.leader("keyed")
            assert leader is not None
            c.kill(leader)
            c.wait_for(topic="keyed", leader=other_than(leader))
            found = to_the_end(c, "keyed")
            assert dict(found) == {f"key-{n % 20}": n for n in range(2_980, 3_000)}
            assert [number for _, number in found] == sorted(number for _, number in found)
            c.restart(leader)
            c.wait_for(topic="keyed", isr=c.brokers)
