"""Produce, Fetch and ListOffsets over a real socket. CP-16 to CP-23, CP-43, RP-01 to RP-10."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.messages.replica import EpochEndOffset
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import FetchResult, LeaderHint, OffsetResult, ProduceResult
from kraftlite.runtime.trace.wire import ConnectionClosed
from tests.harness.wire_fakes import Harness, RawClient, batch, broker, partition, topic_uuid, until

E = ErrorCode
EVENTS = TopicPartition("events", 0)


def produce(*items: tuple[str, int, bytes | None], acks: int = 1, transactional_id: str | None = None) -> dict[str, Any]:
    return {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout": 1500,
        "topic_data": [
            {"name": name, "topic_id": None, "partition_data": [{"index": index, "records": records}]}
            for name, index, records in items
        ],
    }


def results(answer: Any) -> list[tuple[Any, int, int, int]]:
    return [
        (getattr(topic, "name", None), one.index, one.error_code.value, one.base_offset)
        for topic in answer.responses
        for one in topic.partition_responses
    ]


def fetch(
    *items: tuple[Any, int, int],
    max_wait: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50_000_000,
    session: tuple[int, int] = (0, -1),
    forgotten: list[tuple[Any, list[int]]] | None = None,
    **more: Any,
) -> dict[str, Any]:
    key = {"topic": None, "topic_id": None}

    def named(name: Any) -> dict[str, Any]:
        return key | ({"topic": name} if isinstance(name, str) else {"topic_id": name})

    return {
        "replica_id": -1,
        "max_wait": max_wait,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": 0,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": [
            named(name)
            | {
                "partitions": [
                    {
                        "partition": index,
                        "current_leader_epoch": more.get("epoch", -1),
                        "fetch_offset": offset,
                        "partition_max_bytes": 1_000_000,
                    }
                ]
            }
            for name, index, offset in items
        ],
        "forgotten_topics_data": [named(name) | {"partitions": indexes} for name, indexes in forgotten or []],
        "rack_id": "",
    } | {name: value for name, value in more.items() if name != "epoch"}


def fetched(answer: Any) -> list[tuple[Any, int, int, int]]:
    return [
        (getattr(topic, "topic", None) or topic.topic_id, one.partition_index, one.error_code.value, len(one.records or b""))
        for topic in answer.responses
        for one in topic.partitions
    ]


async def fill(client: RawClient, topic: str = "events", index: int = 0, value: bytes = b"v") -> None:
    answer = await client.call(0, 9, produce((topic, index, bytes(batch(value)))))
    assert results(answer)[0][2] == 0


# --- Produce ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3, 14))
async def test_cp_16_errors_are_per_partition(version: int) -> None:
    topics = {"a": [partition([1]), partition([2])], "b": [partition([1])], "again": [partition([1])]}
    async with Harness(topics) as h:
        h.replicas.errors[TopicPartition("a", 1)] = E.NOT_LEADER_OR_FOLLOWER
        h.replicas.errors[TopicPartition("again", 0)] = E.INCONSISTENT_TOPIC_ID  # it was deleted and made again meanwhile
        data = bytes(batch(b"x"))
        values = produce(("a", 0, data), ("a", 1, data), ("a", 7, data), ("zz", 0, data), ("again", 0, data), ("b", 0, data))
        unknown = E.UNKNOWN_TOPIC_OR_PARTITION
        if version >= 13:
            for topic, number in zip(values["topic_data"], (0, 0, 0, 99, 1, 2), strict=True):
                topic["topic_id"] = topic_uuid(number)
            unknown = E.UNKNOWN_TOPIC_ID
        answer = await (await h.client()).call(0, version, values)
        assert [(index, error, base) for _name, index, error, base in results(answer)] == [
            (0, 0, 0),
            (1, E.NOT_LEADER_OR_FOLLOWER, -1),
            (7, E.UNKNOWN_TOPIC_OR_PARTITION, -1),
            (0, unknown, -1),
            (0, unknown, -1),
            (0, 0, 0),
        ]
        assert [tp for tp, _base, _acks in h.replicas.appended] == [TopicPartition("a", 0), TopicPartition("b", 0)]


async def test_cp_16_zstd_needs_a_version_that_carries_it() -> None:
    """What else a batch must be is the log's to say (tests/embedded/test_poison.py: by the same bytes on the wire)."""
    async with Harness() as h:
        client = await h.client()
        zstd = bytearray(batch(b"x"))
        zstd[22] |= 4
        assert results(await client.call(0, 6, produce(("events", 0, bytes(zstd)))))[0][2] == E.UNSUPPORTED_COMPRESSION_TYPE
        assert not h.replicas.appended
        assert results(await client.call(0, 7, produce(("events", 0, bytes(zstd)))))[0][2] == E.NONE


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "__share_group_state"])
async def test_cp_17_internal_topics_are_not_for_ordinary_clients(topic: str) -> None:
    async with Harness({topic: [partition([1])]}) as h:
        client = await h.client()
        values = produce((topic, 0, bytes(batch(b"x"))))
        assert results(await client.call(0, 9, values))[0][2] == E.INVALID_TOPIC_EXCEPTION
        assert results(await client.call(0, 9, values, client_id="__admin_client"))[0][2] == E.NONE


async def test_rp_01_acks_0_has_no_response_and_acks_1_does() -> None:
    async with Harness() as h:
        client = await h.client()
        for _ in range(3):
            client.send(0, 9, produce(("events", 0, bytes(batch(b"x"))), acks=0))
        answer = await client.call(0, 9, produce(("events", 0, bytes(batch(b"x"))), acks=1))
        assert results(answer)[0][3] == 3, "the first thing that comes back answers the fourth request"
        assert not h.tasks.spawned, "no task is made for a produce"


@pytest.mark.parametrize("topic", ["events", "unknown"])
async def test_rp_01_an_error_with_acks_0_closes_the_connection(topic: str) -> None:
    async with Harness() as h:
        h.replicas.errors[EVENTS] = E.NOT_LEADER_OR_FOLLOWER
        client = await h.client()
        client.send(0, 9, produce((topic, 0, bytes(batch(b"x"))), acks=0))
        assert await client.closed()
        await until(lambda: any(isinstance(event, ConnectionClosed) for event in h.tracer.events))


async def test_rp_01_acks_all_waits() -> None:
    async with Harness() as h:
        client = await h.client()
        correlation_id = client.send(0, 9, produce(("events", 0, bytes(batch(b"x"))), acks=-1))
        await until(lambda: bool(h.replicas.parked))
        with pytest.raises(TimeoutError):
            await client.read_frame(timeout=0.03)
        h.replicas.release()
        assert results(await client.receive(0, 9, correlation_id))[0][2] == E.NONE


async def test_rp_01_other_acks_are_refused() -> None:
    async with Harness() as h:
        client = await h.client()
        for acks in (2, -2):
            answer = await client.call(0, 9, produce(("events", 0, bytes(batch(b"x"))), acks=acks))
            assert results(answer)[0][2] == E.INVALID_REQUIRED_ACKS


async def test_rp_01_a_waiting_produce_of_a_lost_connection_is_forgotten() -> None:
    async with Harness() as h:
        client = await h.client()
        client.send(0, 9, produce(("events", 0, bytes(batch(b"x"))), acks=-1))
        await until(lambda: bool(h.replicas.parked))
        client.close()
        await until(lambda: h.listener.connection_count == 0)
        h.replicas.release()


@pytest.mark.parametrize("version", range(8, 14))
async def test_rp_10_produce_says_who_leads(version: int) -> None:
    async with Harness({"events": [partition([2, 1], leader_epoch=7)]}, brokers=[broker(1), broker(2, rack="r")]) as h:
        h.replicas.errors[EVENTS] = E.NOT_LEADER_OR_FOLLOWER
        h.replicas.hints[EVENTS] = LeaderHint(leader_id=h.brokers[1].broker_id, leader_epoch=7)
        values = produce(("events", 0, bytes(batch(b"x"))))
        values["topic_data"][0]["topic_id"] = topic_uuid(0)
        answer = await (await h.client()).call(0, version, values)
        one = answer.responses[0].partition_responses[0]
        assert one.error_code.value == E.NOT_LEADER_OR_FOLLOWER
        if version >= 10:
            assert (one.current_leader.leader_id, one.current_leader.leader_epoch) == (2, 7)
            assert [(node.node_id, node.host, node.port, node.rack) for node in answer.node_endpoints] == [
                (2, "127.0.0.1", 9002, "r")
            ]


async def test_rp_10_the_replica_managers_hint_is_told() -> None:
    async with Harness({"events": [partition([2, 1], leader_epoch=7)]}) as h:
        hinted = ProduceResult(
            tp=EVENTS, error=E.NOT_LEADER_OR_FOLLOWER, leader=LeaderHint(leader_id=h.brokers[2].broker_id, leader_epoch=8)
        )
        h.replicas.append = lambda entries, *, acks, timeout_ms, on_done, lease, transaction: on_done([hinted])  # type: ignore[method-assign]
        answer = await (await h.client()).call(0, 12, produce(("events", 0, bytes(batch(b"x")))))
        leader = answer.responses[0].partition_responses[0].current_leader
        assert (leader.leader_id, leader.leader_epoch) == (3, 8)


@pytest.mark.parametrize("version", [12, 16, 17, 18])
@pytest.mark.parametrize("error", [E.NOT_LEADER_OR_FOLLOWER, E.FENCED_LEADER_EPOCH])
async def test_rp_10_fetch_says_who_leads(version: int, error: ErrorCode) -> None:
    async with Harness({"events": [partition([2, 1], leader_epoch=7)]}) as h:
        h.replicas.errors[EVENTS] = error
        h.replicas.hints[EVENTS] = LeaderHint(leader_id=h.brokers[1].broker_id, leader_epoch=7)
        name = topic_uuid(0) if version >= 13 else "events"
        answer = await (await h.client()).call(1, version, fetch((name, 0, 0)))
        one = answer.responses[0].partitions[0]
        assert one.error_code.value == error
        if version >= 16:
            assert (one.current_leader.leader_id, one.current_leader.leader_epoch) == (2, 7)
            assert [node.node_id for node in answer.node_endpoints] == [2]
        else:
            assert one.current_leader.leader_id == -1


# --- Fetch -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4, 19))
async def test_cp_18_data_is_returned_at_once(version: int) -> None:
    async with Harness() as h:
        client = await h.client()
        await fill(client)
        name = topic_uuid(0) if version >= 13 else "events"
        answer = await client.call(1, version, fetch((name, 0, 0), max_wait=60_000))
        ((_topic, index, error, size),) = fetched(answer)
        assert (index, error) == (0, 0)
        assert size == len(batch(b"v"))
        assert h.replicas.fetches[0][0].leader_only is (version < 11), "older clients cannot be sent to a follower"
        assert not h.tasks.spawned, "no task is made for a fetch that need not wait"


async def test_cp_18_it_waits_for_min_bytes_and_new_data_wakes_it() -> None:
    async with Harness() as h:
        consumer, producer = await h.client(), await h.client()
        correlation_id = consumer.send(1, 11, fetch(("events", 0, 0), max_wait=60_000))
        await until(lambda: h.replicas.waiting == 1)
        await fill(producer)
        answer = await consumer.receive(1, 11, correlation_id)
        assert fetched(answer)[0][3] > 0


async def test_cp_18_it_waits_no_longer_than_max_wait() -> None:
    async with Harness() as h:
        client = await h.client()
        correlation_id = client.send(1, 11, fetch(("events", 0, 0), max_wait=500))
        await until(lambda: h.replicas.waiting == 1)
        h.clock.advance(499)
        assert h.replicas.waiting == 1
        h.clock.advance(1)
        answer = await client.receive(1, 11, correlation_id)
        assert fetched(answer) == [("events", 0, 0, 0)]


@pytest.mark.parametrize(
    "values",
    [
        fetch(("events", 0, 0), max_wait=0),
        fetch(max_wait=60_000),
        fetch(("events", 0, 0), max_wait=60_000, min_bytes=0),
        fetch(("events", 0, 0), ("unknown", 0, 0), max_wait=60_000),
        fetch(("events", 0, 0), ("events", 99, 0), max_wait=60_000),
        fetch(("events", 0, 0), ("broken", 0, 0), max_wait=60_000),
    ],
    ids=["no wait", "no partitions", "no minimum", "unknown topic", "unknown partition", "error"],
)
async def test_cp_18_what_does_not_wait(values: dict[str, Any]) -> None:
    async with Harness({"events": [partition([1])], "broken": [partition([1])]}) as h:
        h.replicas.errors[TopicPartition("broken", 0)] = E.OFFSET_OUT_OF_RANGE
        await (await h.client()).call(1, 11, values)
        assert not h.tasks.spawned


async def test_cp_18_a_divergence_does_not_wait() -> None:
    async with Harness() as h:
        h.replicas.results[EVENTS] = FetchResult(
            tp=EVENTS,
            error=E.NONE,
            hw=9,
            last_stable_offset=9,
            log_start_offset=0,
            records=b"",
            aborted=None,
            diverging=EpochEndOffset(leader_epoch=3, end_offset=17),
            leader=None,
            preferred_read_replica=None,
        )
        answer = await (await h.client()).call(1, 12, fetch(("events", 0, 0), max_wait=60_000))
        diverging = answer.responses[0].partitions[0].diverging_epoch
        assert (diverging.epoch, diverging.end_offset) == (3, 17)


@pytest.mark.parametrize("version", [4, 11, 12, 17])
async def test_cp_19_what_a_fetch_says(version: int) -> None:
    async with Harness() as h:
        h.replicas.results[EVENTS] = FetchResult(
            tp=EVENTS,
            error=E.NONE,
            hw=50,
            last_stable_offset=40,
            log_start_offset=10,
            records=b"r" * 100,
            aborted=((7, 33),),
            diverging=None,
            leader=None,
            preferred_read_replica=None,
        )
        name = topic_uuid(0) if version >= 13 else "events"
        answer = await (await h.client()).call(1, version, fetch((name, 0, 10), isolation_level=1))
        one = answer.responses[0].partitions[0]
        assert (one.high_watermark, one.last_stable_offset, one.records) == (50, 40, b"r" * 100)
        assert version < 5 or one.log_start_offset == 10
        assert [(tx.producer_id, tx.first_offset) for tx in one.aborted_transactions] == [(7, 33)]
        assert h.replicas.fetches[0][0].read_committed is True


async def test_cp_19_no_aborted_list_for_read_uncommitted() -> None:
    async with Harness() as h:
        client = await h.client()
        await fill(client)
        answer = await client.call(1, 11, fetch(("events", 0, 0)))
        assert answer.responses[0].partitions[0].aborted_transactions is None
        answer = await client.call(1, 11, fetch(("events", 0, 0), isolation_level=1))
        assert answer.responses[0].partitions[0].aborted_transactions == ()


async def test_cp_19_topic_ids_from_v13() -> None:
    async with Harness({"a": [partition([1])], "b": [partition([1])]}) as h:
        client = await h.client()
        await fill(client, "b")
        answer = await client.call(1, 13, fetch((topic_uuid(1), 0, 0), (topic_uuid(8), 0, 0)))
        assert [(key, error) for key, _index, error, _size in fetched(answer)] == [
            (topic_uuid(1), 0),
            (topic_uuid(8), E.UNKNOWN_TOPIC_ID),
        ]


async def test_cp_19_followers_do_not_fetch_here() -> None:
    async with Harness() as h:
        client = await h.client()
        await fill(client)
        answer = await client.call(1, 11, fetch(("events", 0, 0)) | {"replica_id": 2})
        assert fetched(answer) == [("events", 0, E.TOPIC_AUTHORIZATION_FAILED, 0)]
        answer = await client.call(1, 17, fetch((topic_uuid(0), 0, 0)) | {"replica_state": {"replica_id": 2, "replica_epoch": 4}})
        assert fetched(answer)[0][2] == E.TOPIC_AUTHORIZATION_FAILED


async def test_cp_20_an_incremental_fetch_returns_only_what_changed() -> None:
    async with Harness({"a": [partition([1])], "b": [partition([1])]}) as h:
        client = await h.client()
        await fill(client, "a")
        full = await client.call(1, 11, fetch(("a", 0, 0), ("b", 0, 0), session=(0, 0)))
        assert full.session_id > 0
        assert [key for key, *_ in fetched(full)] == ["a", "b"]
        session = full.session_id
        one = await client.call(1, 11, fetch(("a", 0, 1), session=(session, 1)))
        assert (one.error_code.value, one.session_id, fetched(one)) == (0, session, [])
        await fill(client, "b")
        two = await client.call(1, 11, fetch(session=(session, 2)))
        assert [(key, size > 0) for key, _i, _e, size in fetched(two)] == [("b", True)]
        three = await client.call(1, 11, fetch(("b", 0, 1), session=(session, 3)))
        assert fetched(three) == []


async def test_cp_20_an_error_is_told_each_time_and_recovery_too() -> None:
    async with Harness({"a": [partition([1])]}) as h:
        client = await h.client()
        session = (await client.call(1, 11, fetch(("a", 0, 0), session=(0, 0)))).session_id
        h.replicas.errors[TopicPartition("a", 0)] = E.KAFKA_STORAGE_ERROR
        for epoch in (1, 2):
            answer = await client.call(1, 11, fetch(session=(session, epoch)))
            assert [error for _k, _i, error, _s in fetched(answer)] == [E.KAFKA_STORAGE_ERROR]
        del h.replicas.errors[TopicPartition("a", 0)]
        assert [error for _k, _i, error, _s in fetched(await client.call(1, 11, fetch(session=(session, 3))))] == [0]
        assert fetched(await client.call(1, 11, fetch(session=(session, 4)))) == []


async def test_cp_20_forgotten_partitions_and_the_end_of_a_session() -> None:
    async with Harness({"a": [partition([1])], "b": [partition([1])]}) as h:
        client = await h.client()
        session = (await client.call(1, 11, fetch(("a", 0, 0), ("b", 0, 0), session=(0, 0)))).session_id
        await client.call(1, 11, fetch(session=(session, 1), forgotten=[("a", [0])]))
        await fill(client, "a")
        assert fetched(await client.call(1, 11, fetch(session=(session, 2)))) == []
        await client.call(1, 11, fetch(session=(session, -1)))
        answer = await client.call(1, 11, fetch(session=(session, 3)))
        assert answer.error_code.value == E.FETCH_SESSION_ID_NOT_FOUND


async def test_cp_20_session_errors() -> None:
    async with Harness() as h:
        client = await h.client()
        answer = await client.call(1, 11, fetch(session=(4711, 1)))
        assert (answer.error_code.value, answer.session_id) == (E.FETCH_SESSION_ID_NOT_FOUND, 0)
        session = (await client.call(1, 11, fetch(("events", 0, 0), session=(0, 0)))).session_id
        answer = await client.call(1, 11, fetch(session=(session, 5)))
        assert answer.error_code.value == E.INVALID_FETCH_SESSION_EPOCH
        answer = await client.call(1, 13, fetch(session=(session, 1)))
        assert answer.error_code.value == E.FETCH_SESSION_TOPIC_ID_ERROR
        answer = await client.call(1, 11, fetch(session=(session, 1)))
        assert answer.error_code.value == 0, "errors leave the session as it was"


async def test_cp_20_a_full_cache_answers_session_0() -> None:
    async with Harness(config={"max.incremental.fetch.session.cache.slots": "2"}) as h:
        client = await h.client()
        first = await client.call(1, 11, fetch(("events", 0, 0), session=(0, 0)))
        second = await client.call(1, 11, fetch(("events", 0, 0), session=(0, 0)))
        third = await client.call(1, 11, fetch(("events", 0, 0), session=(0, 0)))
        assert first.session_id > 0
        assert second.session_id > 0
        assert (third.session_id, third.error_code.value, len(fetched(third))) == (0, 0, 1)
        h.clock.advance(120_001)
        await client.call(1, 11, fetch(session=(second.session_id, 1)))  # this one is used
        fourth = await client.call(1, 11, fetch(("events", 0, 0), session=(0, 0)))
        assert fourth.session_id > 0
        gone = await client.call(1, 11, fetch(session=(first.session_id, 1)))
        assert gone.error_code.value == E.FETCH_SESSION_ID_NOT_FOUND


async def test_cp_21_the_leader_epoch_goes_to_the_replica_manager_and_minus_1_skips() -> None:
    async with Harness() as h:
        client = await h.client()
        await client.call(1, 11, fetch(("events", 0, 0), epoch=5))
        await client.call(1, 11, fetch(("events", 0, 0)))
        assert [entries[0].current_leader_epoch for _params, entries in h.replicas.fetches] == [5, None]
        for error in (E.FENCED_LEADER_EPOCH, E.UNKNOWN_LEADER_EPOCH):
            h.replicas.errors[EVENTS] = error
            assert fetched(await client.call(1, 11, fetch(("events", 0, 0), epoch=5)))[0][2] == error


async def test_cp_23_the_broker_caps_a_response() -> None:
    async with Harness(config={"fetch.max.bytes": "2048"}) as h:
        client = await h.client()
        await client.call(1, 11, fetch(("events", 0, 0), max_bytes=2**31 - 1, min_bytes=100_000))
        params = h.replicas.fetches[0][0]
        assert (params.max_bytes, params.min_bytes) == (2048, 2048)


async def test_cp_23_the_default_cap_is_55_mib() -> None:
    async with Harness() as h:
        await (await h.client()).call(1, 11, fetch(("events", 0, 0), max_bytes=2**31 - 1))
        assert h.replicas.fetches[0][0].max_bytes == 55 * 1024 * 1024


# --- ListOffsets and others ------------------------------------------------------------------------------------------------


def list_offsets(*items: tuple[str, int, int], replica_id: int = -1, isolation: int = 0, epoch: int = -1) -> dict[str, Any]:
    return {
        "replica_id": replica_id,
        "isolation_level": isolation,
        "topics": [
            {"name": name, "partitions": [{"partition_index": index, "current_leader_epoch": epoch, "timestamp": at}]}
            for name, index, at in items
        ],
        "timeout": 100,
    }


@pytest.mark.parametrize("version", range(1, 12))
async def test_cp_22_list_offsets(version: int) -> None:
    async with Harness() as h:
        h.replicas.offsets[EVENTS, -1] = OffsetResult(error=E.NONE, offset=42, timestamp=-1, leader_epoch=3)
        h.replicas.offsets[EVENTS, 1000] = OffsetResult(error=E.NONE, offset=7, timestamp=1005, leader_epoch=2)
        client = await h.client()
        values = list_offsets(("events", 0, -1), isolation=1, epoch=6)
        answer = await client.call(2, version, values)
        one = answer.topics[0].partitions[0]
        assert (one.error_code.value, one.offset, one.timestamp) == (0, 42, -1)
        assert version < 4 or one.leader_epoch == 3
        asked = h.replicas.offset_calls[0]
        assert asked["read_committed"] is (version >= 2)
        assert asked["epoch"] == (6 if version >= 4 else None)
        assert asked["version5_plus"] is (version >= 5)
        one = (await client.call(2, version, list_offsets(("events", 0, 1000)))).topics[0].partitions[0]
        assert (one.offset, one.timestamp) == (7, 1005)


async def test_cp_22_special_timestamps_by_version() -> None:
    async with Harness() as h:
        client = await h.client()
        first = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11, -7: 99}
        for timestamp, since in first.items():
            for version in (1, 6, 7, 8, 9, 10, 11):
                answer = await client.call(2, version, list_offsets(("events", 0, timestamp)))
                expected = E.NONE if version >= since else E.UNSUPPORTED_VERSION
                assert answer.topics[0].partitions[0].error_code.value == expected, (timestamp, version)


async def test_cp_22_nothing_is_tiered() -> None:
    async with Harness() as h:
        h.replicas.offsets[EVENTS, -2] = OffsetResult(error=E.NONE, offset=5, timestamp=-1, leader_epoch=1)
        client = await h.client()
        found = {}
        for timestamp in (-4, -5, -6):
            answer = await client.call(2, 11, list_offsets(("events", 0, timestamp)))
            found[timestamp] = answer.topics[0].partitions[0].offset
        assert found == {-4: 5, -5: -1, -6: -1}


async def test_cp_22_duplicates_unknown_partitions_and_the_debug_replica() -> None:
    async with Harness() as h:
        client = await h.client()
        answer = await client.call(2, 5, list_offsets(("events", 0, -1), ("events", 0, -2), ("nope", 0, -1), ("events", 4, -1)))
        errors = [one.error_code.value for topic in answer.topics for one in topic.partitions]
        unknown = E.UNKNOWN_TOPIC_OR_PARTITION
        assert errors == [E.INVALID_REQUEST, E.INVALID_REQUEST, unknown, unknown]
        await client.call(2, 5, list_offsets(("events", 0, -1), replica_id=-2))
        assert [one["debug"] for one in h.replicas.offset_calls] == [True]
        h.replicas.offsets[EVENTS, -1] = OffsetResult(error=E.INCONSISTENT_TOPIC_ID)  # the replica of an older topic
        answer = await client.call(2, 5, list_offsets(("events", 0, -1)))
        assert answer.topics[0].partitions[0].error_code.value == unknown


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_cp_65_offset_for_leader_epoch(version: int) -> None:
    async with Harness() as h:
        h.replicas.epochs[EVENTS] = (E.NONE, 4, 99)
        values = {
            "replica_id": -1,
            "topics": [
                {"topic": name, "partitions": [{"partition": 0, "current_leader_epoch": 5, "leader_epoch": 4}]}
                for name in ("events", "nope")
            ],
        }
        answer = await (await h.client()).call(23, version, values)
        known, unknown = (topic.partitions[0] for topic in answer.topics)
        assert (known.error_code.value, known.leader_epoch, known.end_offset) == (0, 4, 99)
        assert (unknown.error_code.value, unknown.end_offset) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1)


@pytest.mark.parametrize("version", range(6))
async def test_cp_43_init_producer_id(version: int) -> None:
    async with Harness() as h:
        client = await h.client()

        async def init(**values: Any) -> tuple[int, int, int]:
            answer = await client.call(22, version, {"transactional_id": None, "transaction_timeout": 1000} | values)
            return answer.error_code.value, answer.producer_id, answer.producer_epoch

        assert await init() == (0, 4000, 0)
        assert await init() == (0, 4001, 0)
        assert await init(transactional_id="") == (E.INVALID_REQUEST, -1, -1)
        for timeout in (0, 900_001):
            assert (await init(transactional_id="t", transaction_timeout=timeout))[0] == E.INVALID_TRANSACTION_TIMEOUT
        assert (await init(transactional_id="t"))[0] == E.NOT_COORDINATOR, "there is no topic to coordinate by"
        h.producer_ids.error = ApiError(E.COORDINATOR_LOAD_IN_PROGRESS)
        assert await init() == (E.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
        if version >= 3:
            assert (await init(producer_id=5, producer_epoch=-1))[0] == E.INVALID_REQUEST
