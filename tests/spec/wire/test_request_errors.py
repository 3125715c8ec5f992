"""The errors in answers to clients are counted by API and by name, where a node has a metrics page. CE-30."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.wire.apis.call import errors_in
from kraftlite.wire.request_times import RequestTimes
from tests.harness.wire_fakes import Harness, batch, partition, topic_uuid, until
from tests.spec.wire.test_produce_fetch import fetch, produce

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_FOR_LEADER_EPOCH, INIT_PRODUCER_ID = 0, 1, 2, 3, 23, 22
DATA = bytes(batch(b"x"))
NOTHING: Counter[str] = Counter()


def offsets(*partitions: tuple[str, int], isolation_level: int = 0) -> dict[str, Any]:
    asked = [
        {"name": name, "partitions": [{"partition_index": index, "current_leader_epoch": -1, "timestamp": -1}]}
        for name, index in partitions
    ]
    return {"replica_id": -1, "isolation_level": isolation_level, "topics": asked}


def metadata(*names: str) -> dict[str, Any]:
    topics = [{"topic_id": None, "name": name} for name in names]
    return {
        "topics": topics, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False,
    }  # fmt: skip


def epochs(*names: str) -> dict[str, Any]:
    one = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    return {"replica_id": -1, "topics": [{"topic": name, "partitions": [one]} for name in names]}


UNKNOWN = "UNKNOWN_TOPIC_OR_PARTITION"


@pytest.mark.parametrize(
    ("key", "version", "values", "api", "wanted"),
    [
        (PRODUCE, 9, produce(("events", 0, DATA)), "Produce", {}),
        (PRODUCE, 9, produce(("events", 0, DATA), ("none", 0, DATA), ("events", 7, DATA)), "Produce", {UNKNOWN: 2}),
        (FETCH, 12, fetch(("events", 0, 0)), "Fetch", {}),
        (FETCH, 12, fetch(("none", 0, 0), ("events", 0, 0)), "Fetch", {UNKNOWN: 1}),
        (FETCH, 13, fetch((topic_uuid(99), 0, 0)), "Fetch", {"UNKNOWN_TOPIC_ID": 1}),
        (FETCH, 12, fetch(session=(7, 3)), "Fetch", {"FETCH_SESSION_ID_NOT_FOUND": 1}),
        (LIST_OFFSETS, 7, offsets(("events", 0)), "ListOffsets", {}),
        (LIST_OFFSETS, 7, offsets(("events", 0), isolation_level=9), "ListOffsets", {"UNKNOWN_SERVER_ERROR": 1}),
        (METADATA, 12, metadata("events", "none", "other"), "Metadata", {UNKNOWN: 2}),
        (METADATA, 12, metadata("events"), "Metadata", {}),
        (OFFSET_FOR_LEADER_EPOCH, 4, epochs("events"), "OffsetForLeaderEpoch", None),
    ],
)
async def test_ce_30_what_an_answer_says_is_counted(
    key: int, version: int, values: dict[str, Any], api: str, wanted: dict[str, int] | None
) -> None:
    async with Harness({"events": [partition([1])]}) as h:
        h.apis.times = times = RequestTimes()
        answer = await (await h.client()).call(key, version, values)
        if wanted is None:  # of an API whose answer goes through the general codec: as many as the answer itself has
            codes = Counter(one.error_code.name.upper() for topic in answer.topics for one in topic.partitions)
            codes.pop("NONE", None)
            wanted = dict(codes)
        assert times.kinds[api].errors == wanted


async def test_ce_30_a_bug_is_an_error_too() -> None:
    async with Harness() as h:
        h.apis.times = times = RequestTimes()

        def broken(*_args: Any) -> Any:
            raise AssertionError("a bug")

        h.context.producer_ids.next_id = broken  # type: ignore[method-assign]
        wanted = {"transactional_id": None, "transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}
        await (await h.client()).call(INIT_PRODUCER_ID, 4, wanted)
        assert times.kinds["InitProducerId"].errors == {"UNKNOWN_SERVER_ERROR": 1}
        h.tracer.events.clear()


async def test_ce_30_an_unanswered_produce_counts_its_error() -> None:
    async with Harness() as h:
        h.apis.times = times = RequestTimes()
        h.replicas.errors[TopicPartition("events", 0)] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        client = await h.client()
        client.send(PRODUCE, 9, produce(("events", 0, DATA), acks=0))
        await until(lambda: "Produce" in times.kinds and times.kinds["Produce"].errors.total() == 1)
        assert times.kinds["Produce"].errors == {"NOT_LEADER_OR_FOLLOWER": 1}


async def test_ce_30_without_a_metrics_page_nothing_is_counted() -> None:
    async with Harness() as h:
        answer = await (await h.client()).call(PRODUCE, 9, produce(("none", 0, DATA)))
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert h.apis.times is None


def test_ce_30_errors_are_found_at_every_depth_of_an_answer() -> None:
    inner = {"partitions": [{"error_code": ErrorCode.NONE}, {"error_code": ErrorCode.OFFSET_OUT_OF_RANGE}]}
    values = {"error_code": -1, "topics": [inner, ({"error_code": 1},)], "name": "error_code", "more": {"error_code": 3}}
    assert errors_in(values) == {"UNKNOWN_SERVER_ERROR": 1, "OFFSET_OUT_OF_RANGE": 2, UNKNOWN: 1}
    assert errors_in({"error_code": 0, "topics": []}) == NOTHING
