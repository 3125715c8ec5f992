"""Poisoned batches, sent to both clusters: the same code, the same records named, the same end of the partition.

Where kraftlite is stricter on purpose `tests.harness.poison` has both answers, and docs/DIFFERENCES.md explains it under
"Malformed record batches".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tests.clients import compare_batches
from tests.clients.compare_sides import Side
from tests.harness.poison import GOOD, Poison, batch_of, compacted_poisons, poisons

PATIENCE_MS: Final = 20_000


def produce(side: Side, topic: str, records: bytes) -> Any:
    body = {
        "transactional_id": None,
        "acks": -1,
        "timeout": PATIENCE_MS,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": records}]}],
    }
    return side.call(0, 9, body, node=side.leader(topic))


def _asked(side: Side, topic: str, families: Iterator[Poison]) -> Mapping[str, Any]:
    """For each: the code, the records that are named, and how far the one before it has moved the end."""
    found = {}
    last = 0
    for it in families:
        (one,) = (of for told in produce(side, topic, it.batch)["responses"] for of in told["partition_responses"])
        moved, last = (one["base_offset"] - last, one["base_offset"]) if one["error_code"] == "none" else (0, last)
        found[it.name] = [one["error_code"], [error["batch_index"] for error in one["record_errors"]], moved]
    return found


def offset_at(side: Side, topic: str, timestamp: int) -> Any:
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    body = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": [partition]}]}
    (one,) = (of for told in side.call(2, 7, body, node=side.leader(topic))["topics"] for of in told["partitions"])
    return [one["error_code"], one["timestamp"], one["offset"]]


def plain_topic(side: Side) -> Any:
    side.create("poison", [[1, 2, 3]])
    both = [it for it in poisons() if (it.kafka == "none") == (it.ours == "none")]
    found = {"both": _asked(side, "poison", iter(both)), "highest": offset_at(side, "poison", -3)}
    found["after them"] = offset_at(side, "poison", 2**61)
    side.create("poison-stricter", [[1, 2, 3]])
    one = [it for it in poisons() if (it.kafka == "none") != (it.ours == "none")]
    return {**found, "stricter": {name: it[:2] for name, it in _asked(side, "poison-stricter", iter(one)).items()}}


def compacted_topic(side: Side) -> Any:
    side.create("poison-compacted", [[1, 2, 3]], cleanup_policy="compact")
    return _asked(side, "poison-compacted", compacted_poisons())


def append_time(side: Side) -> Any:
    side.create("poison-append-time", [[1, 2, 3]], message_timestamp_type="LogAppendTime")
    topic = "poison-append-time"
    found = {}
    for name, header in (
        ("fine", {}),
        ("highest timestamp 2^62", {"max_timestamp": 2**62}),
        ("base timestamp 2^62", {"base_timestamp": 2**62}),
        ("says LogAppendTime", {"attributes": 8}),
    ):
        (one,) = (
            of
            for told in produce(side, topic, bytes(batch_of(GOOD, 3, **header)))["responses"]
            for of in told["partition_responses"]
        )
        found[name] = [one["error_code"], [error["batch_index"] for error in one["record_errors"]], one["base_offset"]]
    return found


def duplicates(side: Side) -> Any:
    """Content comes before sequences."""
    side.create("poison-twice", [[1, 2, 3]])
    numbered = {"producer_id": 4_000_000, "producer_epoch": 0, "base_sequence": 0}
    found = {}
    for name, body, more in (
        ("first", GOOD, {}),
        ("again", GOOD, {}),
        ("again, poisoned", GOOD[:-1], {}),
        ("out of order, poisoned", GOOD[:-1], {"base_sequence": 50}),
        ("out of order", GOOD, {"base_sequence": 50}),
    ):
        answer = produce(side, "poison-twice", bytes(batch_of(body, 3, **{**numbered, **more})))
        (one,) = (of for told in answer["responses"] for of in told["partition_responses"])
        found[name] = [one["error_code"], one["base_offset"]]
    return found


STORIES: Final[Mapping[str, Callable[[Side], Any]]] = {
    "poison": plain_topic,
    "poison, compacted": compacted_topic,
    "poison, append time": append_time,
    "poison, duplicates": duplicates,
    **compare_batches.STORIES,
}
