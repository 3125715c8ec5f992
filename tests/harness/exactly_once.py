"""What readers of committed records see of a topic, through librdkafka: the judge of everything that writes exactly once."""

from __future__ import annotations

from typing import NamedTuple

from tests.harness.embedded import QUICK

STAMP = "kraftlite.batch"


class Seen(NamedTuple):
    """A committed record."""

    partition: int
    key: bytes | None
    value: bytes | None
    stamp: str | None
    """<query>/<batch>/<task>/<index>."""


def committed(bootstrap: str, topic: str) -> list[Seen]:
    """Every committed record below the last stable offset, by partition in order."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **QUICK,
        }
    )
    found: list[Seen] = []
    ended: set[int] = set()
    try:
        partitions = sorted(reader.list_topics(topic, 20).topics[topic].partitions)
        reader.assign([TopicPartition(topic, it, OFFSET_BEGINNING) for it in partitions])
        while len(ended) < len(partitions):
            message = reader.poll(20)
            assert message is not None, f"{topic} cannot be read to its end"
            if message.error() is not None:
                ended.add(message.partition())
                continue
            headers = dict(message.headers() or [])
            stamp = headers.get(STAMP)
            found.append(
                Seen(message.partition(), message.key(), message.value(), stamp.decode() if isinstance(stamp, bytes) else None)
            )
    finally:
        reader.close()
    return sorted(found, key=lambda it: it.partition)


def values(bootstrap: str, topic: str) -> list[str]:
    """The committed values, sorted."""
    return sorted((it.value or b"").decode() for it in committed(bootstrap, topic))
