"""What is in the directories of a version: written through clients, and read back through them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

LIMIT_S = 60.0
QUIET: dict[str, Any] = {"log_level": 0}
GROUP = "billing"
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_MS = 1_700_000_000_000
TOPICS = {
    "orders": (2, {"retention.ms": "-1", "max.message.bytes": "200000", "min.insync.replicas": "1"}),
    "trimmed": (1, {"retention.ms": "-1", "cleanup.policy": "delete", "segment.bytes": "1048576"}),
}
TRIMMED_BEFORE = 3
COMMITTED = {0: (4, "half of it"), 1: (1, "")}
BROKER_DEFAULT = ("message.max.bytes", "1500000")


def records(topic: str, partition: int, part: int) -> list[dict[str, Any]]:
    """`part` 0, 1, …: what is written before the first stop of the broker, after it, and so on."""
    found: list[dict[str, Any]] = []
    for number, compression in enumerate(COMPRESSIONS):
        key = None if number == 1 else f"key-{topic}-{partition}-{number}"
        value = None if number == 2 else f"part {part} of {topic}-{partition}, {compression}: " + "abc" * number * 10
        found.append(
            {
                "compression": compression,
                "key": key,
                "value": value,
                "timestamp": FIRST_MS + 1000 * part + number,
                "headers": [["trace", f"{part}.{number}"], ["empty", None]] if number % 2 else [],
            }
        )
    return found


def write(bootstrap: str, part: int) -> None:
    """A batch with each compression to each partition, from idempotent producers."""
    for number, compression in enumerate(COMPRESSIONS):
        producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": compression, "linger.ms": 0, **QUIET}
        )
        errors: list[str] = []

        def report(error: KafkaError | None, _: object, errors: list[str] = errors) -> None:
            if error is not None:
                errors.append(str(error))

        for topic, (partitions, _) in TOPICS.items():
            for partition in range(partitions):
                it = records(topic, partition, part)[number]
                headers = [(name, None if text is None else text.encode()) for name, text in it["headers"]]
                producer.produce(
                    topic,
                    value=it["value"],
                    key=it["key"],
                    partition=partition,
                    timestamp=it["timestamp"],
                    headers=headers,
                    on_delivery=report,
                )
        assert producer.flush(LIMIT_S) == 0 and not errors, errors


def check_written(bootstrap: str, parts: int) -> None:
    """AssertionError unless a client reads exactly what was written, and what deleted records leave of it."""
    for topic, (partitions, _) in TOPICS.items():
        for partition in range(partitions):
            wanted = [it for part in range(parts) for it in records(topic, partition, part)]
            low = TRIMMED_BEFORE if topic == "trimmed" else 0
            with _consumer(bootstrap) as consumer:
                found = _read_partition(consumer, topic, partition)
            assert found["low"] == low and found["high"] == len(wanted)
            for offset, (was, it) in enumerate(zip(wanted[low:], found["records"], strict=True), low):
                assert it["offset"] == offset
                assert all(it[name] == was[name] for name in ("key", "value", "timestamp", "headers")), (was, it)


def commit(bootstrap: str) -> None:
    with _consumer(bootstrap) as consumer:
        offsets = [TopicPartition("orders", it, offset, metadata) for it, (offset, metadata) in COMMITTED.items()]
        found = consumer.commit(offsets=offsets, asynchronous=False)
        assert found is not None and not [it.error for it in found if it.error is not None]


def read(bootstrap: str) -> dict[str, Any]:
    """Every record, the first and last offsets, and the group's offsets, as clients see them."""
    _wait_led(bootstrap)
    with _consumer(bootstrap) as consumer:
        found: dict[str, Any] = {"partitions": {}, "committed": {}}
        for topic, (partitions, _) in TOPICS.items():
            for partition in range(partitions):
                found["partitions"][f"{topic}-{partition}"] = _read_partition(consumer, topic, partition)
        for it in consumer.committed([TopicPartition("orders", partition) for partition in COMMITTED], timeout=LIMIT_S):
            assert it.error is None
            found["committed"][f"orders-{it.partition}"] = [it.offset, it.metadata or ""]
    return found


def _wait_led(bootstrap: str) -> None:
    """Return when the broker tells a leader of every partition: it says that it is started before it has read who leads."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    end_s = time.monotonic() + LIMIT_S
    while True:
        topics = admin.list_topics(timeout=LIMIT_S).topics
        led = {name: sum(it.leader >= 0 for it in topics[name].partitions.values()) for name in TOPICS if name in topics}
        if led == {name: partitions for name, (partitions, _) in TOPICS.items()}:
            return
        assert time.monotonic() < end_s, f"partitions with a leader within {LIMIT_S:g} s: {led}"
        time.sleep(0.05)


def _read_partition(consumer: Consumer, topic: str, partition: int) -> dict[str, Any]:
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=LIMIT_S)
    consumer.assign([TopicPartition(topic, partition, low)])
    found: list[dict[str, Any]] = []
    while len(found) < high - low:
        message = consumer.poll(LIMIT_S)
        assert message is not None, f"{topic}-{partition}: {len(found)} of {high - low} records"
        assert message.error() is None, message.error()
        value, key = message.value(), message.key()
        found.append(
            {
                "offset": message.offset(),
                "leader_epoch": message.leader_epoch(),
                "timestamp": message.timestamp()[1],
                "key": None if key is None else key.decode(),
                "value": None if value is None else value.decode(),
                "headers": [[name, None if it is None else it.decode()] for name, it in message.headers() or []],
            }
        )
    return {"low": low, "high": high, "records": found}


@contextlib.contextmanager
def _consumer(bootstrap: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            **QUIET,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def configs(bootstrap: str) -> dict[str, dict[str, str]]:
    """The values that somebody set: of each topic, and of all brokers."""
    from confluent_kafka.admin import ConfigResource

    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    wanted = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in TOPICS]
    wanted.append(ConfigResource(ConfigResource.Type.BROKER, "2"))
    found = {}
    dynamic = (1, 3)  # of the topic; a default of all brokers
    for resource, future in admin.describe_configs(wanted, request_timeout=LIMIT_S).items():
        entries = future.result(LIMIT_S).values()
        found[resource.name] = {it.name: it.value for it in entries if int(it.source) in dynamic}
    return found
