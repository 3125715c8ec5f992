"""Fetch and ListOffsets over a real socket: who may read what, and what takes long. CP-19, CP-22, RP-13."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from kraftlite.log.seek import SEEK_IN_PLACE, Steps
from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import OffsetResult
from tests.harness.wire_fakes import Harness, topic_uuid
from tests.spec.wire.test_produce_fetch import fetch, fetched, list_offsets

E = ErrorCode
EVENTS = TopicPartition("events", 0)


async def test_cp_19_who_is_no_broker_is_a_consumer() -> None:
    """RP-13: also the tools that call themselves -2 read below the high watermark alone, as in Kafka."""
    async with Harness() as h:
        client = await h.client()
        for replica_id in (-1, -2, -3):
            await client.call(1, 11, fetch(("events", 0, 0), replica_id=replica_id, isolation_level=1))
        first, *others = (params for params, _ in h.replicas.fetches)
        assert others == [first, first] and first.read_committed


@pytest.mark.parametrize("version", [4, 11, 12, 13, 17])
async def test_cp_19_a_topic_that_was_made_again_and_whose_new_replica_is_not_here_yet(version: int) -> None:
    """By name a client knows no topic ids, and the clients of that time no such code: the topic is unknown to them. By id it is
    inconsistent, as in Kafka."""
    async with Harness() as h:
        h.replicas.errors[EVENTS] = E.INCONSISTENT_TOPIC_ID
        name = topic_uuid(0) if version >= 13 else "events"
        answer = await (await h.client()).call(1, version, fetch((name, 0, 0)))
        ((_name, _index, error, _size),) = fetched(answer)
        assert error == (E.INCONSISTENT_TOPIC_ID if version >= 13 else E.UNKNOWN_TOPIC_OR_PARTITION)


async def test_cp_22_what_takes_long_to_look_up_is_looked_up_off_the_loop() -> None:
    """A batch of a client may unfold to a million records: others are served meanwhile."""
    async with Harness() as h:
        told, asked = h.replicas.list_offset, 0
        h.replicas.offsets[EVENTS, 1234] = OffsetResult(error=E.NONE, offset=5, timestamp=1235, leader_epoch=1)

        def list_offset(tp: TopicPartition, topic_id: UUID | None, timestamp: int, **how: Any) -> OffsetResult:
            nonlocal asked
            asked += 1

            def steps() -> Steps[None]:
                yield SEEK_IN_PLACE + 1
                assert h.tasks.spawned, "on the loop"

            how["seeker"].get(timestamp, steps)
            return told(tp, topic_id, timestamp, **how)

        h.replicas.list_offset = list_offset  # type: ignore[method-assign]
        async with asyncio.timeout(5):
            answer = await (await h.client()).call(2, 7, list_offsets(("events", 0, 1234)))
        (one,) = answer.topics[0].partitions
        assert (one.error_code.value, one.offset, one.timestamp, asked) == (0, 5, 1235, 2)
