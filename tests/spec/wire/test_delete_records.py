"""DeleteRecords over a real socket. LG-40; KIP-107."""

from __future__ import annotations

import pytest

from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from tests.harness.wire_fakes import Harness, partition


def request(*asked: tuple[str, int, int], timeout_ms: int = 1500) -> dict[str, object]:
    topics: dict[str, list[dict[str, int]]] = {}
    for name, index, offset in asked:
        topics.setdefault(name, []).append({"partition_index": index, "offset": offset})
    return {"topics": [{"name": name, "partitions": found} for name, found in topics.items()], "timeout": timeout_ms}


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_lg_40_every_partition_gets_its_verdict(version: int) -> None:
    topics = {"events": [partition([1]), partition([1])], "kept": [partition([1])], "__consumer_offsets": [partition([1])]}
    async with Harness(topics) as h:
        h.replicas.errors[TopicPartition("kept", 0)] = ErrorCode.POLICY_VIOLATION
        client = await h.client()
        values = request(("events", 0, 7), ("events", 1, 0), ("kept", 0, -1), ("absent", 0, 1), ("__consumer_offsets", 0, 1))
        answer = await client.call(21, version, values)
        found = {
            (topic.name, one.partition_index): (ErrorCode(one.error_code.value), one.low_watermark)
            for topic in answer.topics
            for one in topic.partitions
        }
        assert found == {
            ("events", 0): (ErrorCode.NONE, 7),
            ("events", 1): (ErrorCode.NONE, 0),
            ("kept", 0): (ErrorCode.POLICY_VIOLATION, -1),
            ("absent", 0): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
            ("__consumer_offsets", 0): (ErrorCode.INVALID_TOPIC_EXCEPTION, -1),
        }
        events, kept = TopicPartition("events", 0), TopicPartition("kept", 0)
        assert h.replicas.deletions == [({events: 7, events._replace(partition=1): 0, kept: -1}, 1500)]
