"""Following who leads `__transaction_state`: loading, serving, handing over, and what is refused before a shard is asked.
Source: TX-01, TX-10, TX-60 to TX-65, TA-01, TA-02."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kraftlite.coordinator.core.placement import TRANSACTION_TOPIC, partition_for
from kraftlite.coordinator.transactions.states import Transaction, TransactionState
from kraftlite.log.batch import CODEC_MASK, Record, build_batch, parse_header
from kraftlite.log.validation import AppendOrigin
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.producer import Producer
from tests.harness.transaction_broker import A, B, Coordinating, code
from tests.harness.wire_fakes import partition

S = TransactionState
E = ErrorCode


@pytest.fixture
async def c() -> AsyncIterator[Coordinating]:
    found = Coordinating()
    await found.apply()
    yield found
    await found.close()


def state(**fields: Any) -> Transaction:
    usual = {"producer_id": 7, "producer_epoch": 3, "timeout_ms": 60_000, "state": S.EMPTY, "updated_ms": 1}
    return Transaction(**{**usual, **fields})


# --- what is refused before


async def test_tx_15_a_producer_below_zero_is_fenced_and_may_take_a_new_id(c: Coordinating) -> None:
    had = await c.init()
    for odd in (Producer(-2, 0), Producer(0, -2), Producer(-(2**63), -32768), Producer(had.producer_id, -7)):
        assert await code(c.init(expected=odd)) is E.PRODUCER_FENCED
    assert (await c.init("new", expected=Producer(-5, -5))).producer_epoch == 0


async def test_tx_10_what_is_looked_at_before_the_coordinator() -> None:
    c = Coordinating({"transaction.max.timeout.ms": "5000"})
    assert await code(c.init("", timeout_ms=0)) is E.INVALID_REQUEST
    for timeout_ms in (0, -1, 5_001):
        assert await code(c.init(timeout_ms=timeout_ms)) is E.INVALID_TRANSACTION_TIMEOUT
    for expected in (Producer(5, -1), Producer(-1, 5)):
        assert await code(c.init(timeout_ms=5_000, expected=expected)) is E.INVALID_REQUEST
    assert await code(c.init(timeout_ms=5_000)) is E.COORDINATOR_NOT_AVAILABLE, "there is no topic yet"
    assert await code(c.init("x" * 40_000, timeout_ms=5_000)) is E.INVALID_REQUEST, "no record could hold it"
    assert await code(c.init("\ud800", timeout_ms=5_000)) is E.INVALID_REQUEST
    await c.close()


async def test_tx_30_an_empty_id_is_an_invalid_request(c: Coordinating) -> None:
    producer = Producer(1, 0)
    for asked in (
        c.coordinator.add_partitions("", producer, frozenset({A}), version=0),
        c.coordinator.verify_partitions("", producer, frozenset({A})),
        c.coordinator.end("", producer, commit=True, version=0),
    ):
        assert await code(asked) is E.INVALID_REQUEST
    for asked in (
        c.coordinator.add_partitions("u", producer, frozenset({A}), version=0),
        c.coordinator.end("u", producer, commit=True, version=0),
    ):
        assert await code(asked) is E.INVALID_PRODUCER_ID_MAPPING


async def test_tx_11_the_first_id_waits_for_a_block(c: Coordinating) -> None:
    c.ids.empty = True
    assert await c.init() == Producer(101, 0)
    c.ids.empty = True
    assert await code(c.init("u")) is E.COORDINATOR_LOAD_IN_PROGRESS
    assert await c.init() == Producer(101, 1), "a known id needs none"


async def test_tx_48_each_code_is_of_the_class_that_clients_act_by(c: Coordinating) -> None:
    """What a producer tries again must be retriable for it, and what ends it must not."""
    producer = await c.begun(A)
    c.log.automatic = False
    ending = asyncio.ensure_future(c.coordinator.end("t", producer, commit=True, version=2))
    await c.run()
    with pytest.raises(ApiError, match="CONCURRENT_TRANSACTIONS") as busy:
        await c.init()
    c.log.fail(0, E.NOT_ENOUGH_REPLICAS)
    with pytest.raises(ApiError, match="COORDINATOR_NOT_AVAILABLE") as failed:
        await ending
    c.log.automatic = True
    c.log.advance(0)
    other = producer._replace(producer_epoch=9)
    with pytest.raises(ApiError, match="PRODUCER_FENCED") as fenced:
        await c.coordinator.end("t", other, commit=True, version=2)
    with pytest.raises(ApiError, match="INVALID_PRODUCER_ID_MAPPING") as unknown:
        await c.coordinator.end("t", Producer(1, 0), commit=True, version=2)
    assert [it.value.code.retriable for it in (busy, failed, fenced, unknown)] == [True, True, False, False]


# --- placement


async def test_tx_01_ids_are_where_their_hash_says() -> None:
    c = Coordinating(partitions=5)
    c.topics[TRANSACTION_TOPIC] = [partition([2, 1] if index == 3 else [1, 2]) for index in range(5)]
    assert await code(c.init()) is E.COORDINATOR_NOT_AVAILABLE
    await c.apply()
    for number in range(50):
        name = f"id-{number}"
        index = partition_for(name, 5)
        assert c.coordinator.partition_of(name) == index
        if index == 3:
            assert await code(c.init(name)) is E.NOT_COORDINATOR
        else:
            await c.init(name)
            assert parse_header(c.log.at(index).batches[-1]).count == 1
    await c.close()


async def test_tx_64_ids_do_not_move_when_partitions_are_added(c: Coordinating) -> None:
    await c.init()
    await c.apply({**c.topics, TRANSACTION_TOPIC: [partition([1, 2])] * 3})
    names = [f"id-{number}" for number in range(20)]
    assert {c.coordinator.partition_of(name) for name in names} == {0}
    for name in names:
        await c.init(name)
    assert {index.partition for index, it in c.log.partitions.items() if it.batches} == {0}
    assert len(c.bed.events("transaction.load_failed")) == 2
    await c.apply({**c.topics, TRANSACTION_TOPIC: [partition([1, 2], leader_epoch=1)] * 3})
    assert await code(c.init()) is E.NOT_COORDINATOR, "elected while the number is another one"
    (reason,) = {event.reason for event in c.bed.events("transaction.load_failed")}
    assert reason == "__transaction_state has 3 partitions now, and had 1 when this broker began"


# --- loading and handing over


async def test_tx_60_nothing_is_served_that_an_election_could_take_back() -> None:
    c = Coordinating(automatic=False)
    c.store("t", state(state=S.PREPARE_COMMIT, partitions=frozenset({A, B})))
    await c.apply()
    for asked in (
        c.init(),
        c.coordinator.verify_partitions("t", Producer(7, 3), frozenset({A})),
    ):
        assert await code(asked) is E.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(ApiError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        c.coordinator.describe("t")
    with pytest.raises(ApiError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        await c.coordinator.listed(states=(), producer_ids=(), min_duration_ms=-1, pattern=None)
    assert c.local.written == []
    c.log.automatic = True
    c.log.advance(0)
    await c.run(1)
    assert {(it.tp, it.producer_epoch, it.commit) for it in c.local.written} == {(A, 3, True), (B, 3, True)}
    assert {it.coordinator_epoch for it in c.local.written} == {0}
    assert c.coordinator.describe("t").state is S.COMPLETE_COMMIT
    (loaded,) = c.bed.events("transaction.loaded")
    assert (loaded.ids, loaded.decided) == (1, 1)
    await c.close()


async def test_tx_60_an_older_load_that_ends_later_is_discarded() -> None:
    c = Coordinating(automatic=False)
    c.store("t", state())
    await c.apply()
    c.store("t", state(producer_epoch=4))
    await c.apply({**c.topics, TRANSACTION_TOPIC: [partition([1, 2], leader_epoch=1)]})
    c.log.automatic = True
    c.log.advance(0)
    await c.run(1)
    assert c.coordinator.describe("t").producer == Producer(7, 4)
    assert len(c.bed.events("transaction.loaded")) == 1
    await c.close()


async def test_tx_60_a_record_that_cannot_be_read_leaves_the_partition_without_a_coordinator() -> None:
    c = Coordinating()
    c.log.write(0, build_batch([Record(b"\x00\x00\x00\x01t", b"\x00\x01junk")], timestamp_ms=1))
    c.log.advance(0)
    await c.apply()
    assert await code(c.init()) is E.NOT_COORDINATOR
    assert len(c.bed.events("transaction.load_failed")) == 1
    await c.close()


async def test_tx_61_who_waits_is_told_to_look_elsewhere() -> None:
    """TX-08: what was appended in the old leader epoch changes nothing in a later one."""
    c = Coordinating()
    await c.apply()
    producer = await c.begun(A)
    c.log.automatic = False
    ending = asyncio.ensure_future(c.coordinator.end("t", producer, commit=True, version=2))
    await c.run()
    lost = c.log.at(0).batches.pop()
    parked, c.log.at(0).parked = c.log.at(0).parked, []
    await c.apply({**c.topics, TRANSACTION_TOPIC: [partition([2, 1], leader_epoch=1)]})
    assert await code(ending) is E.NOT_COORDINATOR
    assert await code(c.init()) is E.NOT_COORDINATOR
    c.log.automatic = True
    c.log.advance(0)
    await c.apply({**c.topics, TRANSACTION_TOPIC: [partition([1, 2], leader_epoch=2)]})
    for _, done, _ in parked:
        done(E.NONE)
    await c.run(1)
    assert lost and c.coordinator.describe("t").state is S.ONGOING, "the outcome was lost with the old leader"
    assert c.local.written == []
    await c.close()


async def test_tx_65_a_broker_that_stops_is_not_available(c: Coordinating) -> None:
    await c.begun(A)
    c.coordinator.close()
    assert await code(c.init()) is E.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(ApiError, match="COORDINATOR_NOT_AVAILABLE"):
        c.coordinator.describe("t")


async def test_tx_03_batches_are_the_coordinators_and_not_compressed(c: Coordinating) -> None:
    await c.begun(A)
    assert c.log.origins == [AppendOrigin.COORDINATOR] * 2
    assert {parse_header(batch).attributes & CODEC_MASK for batch in c.log.at(0).batches} == {0}


# --- looking


async def test_ta_01_describing(c: Coordinating) -> None:
    with pytest.raises(ApiError, match="TRANSACTIONAL_ID_NOT_FOUND"):
        c.coordinator.describe("t")
    with pytest.raises(ApiError, match="INVALID_REQUEST"):
        c.coordinator.describe("")
    producer = await c.begun(A, B)
    found = c.coordinator.describe("t")
    assert (found.state.title, found.producer, found.partitions) == ("Ongoing", producer, frozenset({A, B}))
    assert (found.timeout_ms, found.start_ms) == (60_000, c.bed.clock.wall_ms())


async def test_ta_02_listing(c: Coordinating) -> None:
    first = await c.begun(A, name="copy-1")
    await c.run(5_000)
    second = await c.begun(A, name="copy-2")
    third = await c.init("other")

    async def names(**filters: Any) -> set[str]:
        usual = {"states": (), "producer_ids": (), "min_duration_ms": -1, "pattern": None}
        return {it.transactional_id for it in (await c.coordinator.listed(**{**usual, **filters})).transactions}

    assert await names() == {"copy-1", "copy-2", "other"}
    assert await names(states=("Ongoing",)) == {"copy-1", "copy-2"}
    assert await names(states=("Empty", "Nonsense")) == {"other"}
    assert await names(states=("Nonsense",)) == set()
    assert await names(producer_ids=(first.producer_id, third.producer_id)) == {"copy-1", "other"}
    assert await names(states=("Ongoing",), min_duration_ms=4_999) == {"copy-1"}
    assert await names(states=("Ongoing",), min_duration_ms=5_000) == set()
    assert (
        await names(pattern="copy-.") == {"copy-1", "copy-2"}
        and await names(pattern="copy") == set()
        and await names(pattern="") == await names()
    )
    found = await c.coordinator.listed(states=("Nonsense", "Dead", "Nonsense"), producer_ids=(), min_duration_ms=-1, pattern=None)
    assert found.unknown_states == ("Nonsense",) and second
    with pytest.raises(ApiError, match="INVALID_REGULAR_EXPRESSION"):
        await names(pattern="(")


async def test_tx_67_how_long_loads_took_in_the_last_minute() -> None:
    c = Coordinating(automatic=False, partitions=2)
    times = c.coordinator.load_times
    assert (times.max_ms(), times.avg_ms()) == (None, None)
    for index in (0, 1):
        c.store(f"t-{index}", state(), index)
    await c.apply()
    for index, waits_ms in ((0, 30), (1, 50)):
        await c.run(waits_ms)
        c.log.advance(index)
        await c.run()
    assert times.max_ms() is not None and times.avg_ms() is not None
    assert (round(times.max_ms() or 0, -1), round(times.avg_ms() or 0, -1)) == (80, 60)
    await c.run(59_000)
    assert times.max_ms() is not None
    await c.run(2_000)
    assert (times.max_ms(), times.avg_ms()) == (None, None)
    await c.close()


async def test_tx_67_what_the_gauges_count(c: Coordinating) -> None:
    producer = await c.begun(A)
    assert (c.coordinator.open_count(), c.coordinator.decided_count()) == (1, 0)
    c.topics["a"] = [partition([1, 2], leader=None)] * 3
    await c.coordinator.end("t", producer, commit=True, version=2)
    await c.run(1)
    assert (c.coordinator.id_count(), c.coordinator.markers.waiting, c.coordinator.write_again_count()) == (1, 1, 0)
    assert (c.coordinator.open_count(), c.coordinator.decided_count()) == (0, 1)
    c.log.at(0).error = E.NOT_ENOUGH_REPLICAS
    c.topics["a"] = [partition([1, 2])] * 3
    await c.apply()
    assert (c.coordinator.markers.waiting, c.coordinator.write_again_count()) == (0, 1)
