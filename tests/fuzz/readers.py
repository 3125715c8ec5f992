"""Whether real consumers come to the end of what the fuzzed topics hold."""

from __future__ import annotations

import time
from typing import Any, Final

from tests.fuzz import values

QUIET_S: Final = 20.0
"""Without any progress."""


def stuck(address: tuple[str, int]) -> str | None:
    """Which consumer stands still, and where; None when each reads to the end."""
    bootstrap = f"{address[0]}:{address[1]}"
    return _librdkafka(bootstrap) or _kafka_python(bootstrap)


def _librdkafka(bootstrap: str) -> str | None:
    from confluent_kafka import OFFSET_INVALID, Consumer, TopicPartition

    config = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, "check.crcs": True}
    consumer = Consumer({**config, "isolation.level": "read_uncommitted", "enable.partition.eof": True, "log_level": 0})
    try:
        for topic in values.TOPICS:
            for partition in range(values.PARTITIONS):
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=QUIET_S)
                consumer.assign([TopicPartition(topic, partition, low)])
                at, since = low, time.monotonic()
                while at < high:
                    message = consumer.poll(0.2)
                    (place,) = consumer.position([TopicPartition(topic, partition)])
                    if place.offset not in (at, OFFSET_INVALID):
                        at, since = place.offset, time.monotonic()
                    if message is not None and message.error() is not None and message.error().name() == "_PARTITION_EOF":
                        break
                    if time.monotonic() - since > QUIET_S:
                        error = None if message is None else message.error()
                        return f"librdkafka stands at offset {at} of {topic}-{partition}, which ends at {high} ({error})"
    finally:
        consumer.close()
    return None


def _kafka_python(bootstrap: str) -> str | None:
    from kafka import KafkaConsumer, TopicPartition
    from kafka.errors import UnsupportedCodecError

    consumer: Any = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False)
    try:
        for topic in values.TOPICS:
            for partition in range(values.PARTITIONS):
                tp = TopicPartition(topic, partition)
                consumer.assign([tp])
                consumer.seek_to_beginning(tp)
                high, at, since = consumer.end_offsets([tp])[tp], -1, time.monotonic()
                while consumer.position(tp) < high:
                    try:
                        consumer.poll(timeout_ms=200)
                    except UnsupportedCodecError:
                        break  # this installation has no library for it
                    except Exception as error:  # noqa: BLE001 - whatever stops the client is the finding
                        if "UnicodeDecodeError" in str(error):
                            # Kafka takes header keys that are not UTF-8, and this client stands still at them there, too.
                            consumer.seek(tp, consumer.position(tp) + 1)
                            continue
                        return (
                            f"kafka-python: {type(error).__name__}: {error} at {at} of {topic}-{partition}, which ends at {high}"
                        )
                    if consumer.position(tp) != at:
                        at, since = consumer.position(tp), time.monotonic()
                    if time.monotonic() - since > QUIET_S:
                        return f"kafka-python stands at offset {at} of {topic}-{partition}, which ends at {high}"
    finally:
        consumer.close()
    return None
