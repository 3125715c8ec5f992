"""Many transactional ids: each step is about a few of them, and requests wait for a step instead of coming again.
Source: TX-30, TX-61, TX-68."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Any, Final

import pytest

from kraftlite.coordinator.core.shards import Asked, GoOn
from kraftlite.coordinator.core.walks import AT_ONCE
from kraftlite.coordinator.transactions.events import Add
from kraftlite.coordinator.transactions.held import MOST_HELD
from kraftlite.coordinator.transactions.records import record_of
from kraftlite.coordinator.transactions.states import Transaction, TransactionState
from kraftlite.host.clock import HostClock
from kraftlite.log.batch import Record, build_batch
from kraftlite.model.errors import ErrorCode
from kraftlite.model.producer import Producer
from tests.harness.transaction_broker import A, Coordinating
from tests.harness.transaction_world import B, Logged, TransactionWorld, world

S = TransactionState
E = ErrorCode
LONGEST_MS: Final = 250
"""Of CPU. A batch of 500 records takes 30, and three times that where the processor is shared; a hundred thousand ids at once a
second and more."""
MANY: Final = 3 * AT_ONCE + 1


def state(found: TransactionState, **fields: Any) -> Transaction:
    partitions = frozenset({A}) if found in (S.ONGOING, S.PREPARE_COMMIT) else frozenset()
    usual = {"producer_id": 7, "producer_epoch": 3, "timeout_ms": 1_000, "start_ms": 1, "updated_ms": 1}
    return Transaction(**{**usual, "state": found, "partitions": partitions, **fields})


def filled(found: TransactionState, count: int = MANY, **config: int) -> TransactionWorld:
    """A coordinator that finds so many ids, and is not told to go on with what its steps leave."""
    w = world(**config)
    w.goes_on = False
    w.log += [Logged((record_of(f"t-{n}", state(found), transaction_version=2),), None) for n in range(count)]
    w.fail_over(len(w.log))
    return w


# --- a step is about a few ids --------------------------------------------------------------------------------------------


def test_tx_68_what_is_decided_is_marked_piece_by_piece() -> None:
    w = filled(S.PREPARE_COMMIT)
    for done in (AT_ONCE, 2 * AT_ONCE, 3 * AT_ONCE, MANY, MANY):
        assert len(w.sent) == done
        assert w.answer(w.init("t-300")) is E.CONCURRENT_TRANSACTIONS, "decided, and its markers are sent or will be"
        w.step(GoOn())
    w.settle()
    assert {it.current.state for it in w.shard.by_id.values()} == {S.COMPLETE_COMMIT}


def test_tx_68_who_resigns_half_way_leaves_the_rest_to_the_next_one() -> None:
    w = filled(S.PREPARE_COMMIT)
    w.goes_on = True
    w.fail_over()
    w.settle()
    assert {it.current.state for it in w.shard.by_id.values()} == {S.COMPLETE_COMMIT}


def test_tx_68_those_that_timed_out_are_aborted_piece_by_piece() -> None:
    w = filled(S.ONGOING, timeouts_interval_ms=10_000)
    w.pass_time(10_000)
    before = len(w.log) - AT_ONCE
    ended = w.end(Producer(7, 3), name="t-300")
    w.step(GoOn())
    w.commit()
    assert w.answer(ended) == Producer(7, 4), "it ends by itself before its turn comes"
    for _ in range(3):
        w.step(GoOn())
    w.settle()
    found = {name: it.current.state for name, it in w.shard.by_id.items()}
    assert found.pop("t-300") is S.COMPLETE_COMMIT and set(found.values()) == {S.COMPLETE_ABORT}
    assert sum(len(batch.records) for batch in w.log[before:]) == 2 * MANY, "each is written twice, and none more often"


def test_tx_68_those_that_expired_are_forgotten_piece_by_piece() -> None:
    w = filled(S.COMPLETE_COMMIT, expiry_interval_ms=1_000)
    w.pass_time(1_000)
    assert [len(batch.records) for batch in w.log[MANY:]] == [AT_ONCE]
    used = w.init("t-300")
    for _ in range(3):
        w.step(GoOn())
    w.commit()
    assert list(w.shard.by_id) == ["t-300"] and w.answer(used) == Producer(7, 4)
    w.pass_time(1_000)
    assert list(w.shard.by_id) == ["t-300"]


def test_tx_68_a_list_goes_on_while_ids_come_and_go() -> None:
    w = filled(S.COMPLETE_COMMIT, expiry_interval_ms=1_000)
    pieces = w.shard.listed()
    found = [next(pieces)]
    w.goes_on = True
    w.pass_time(1_000)
    w.now(w.init("new"))
    assert set(w.shard.by_id) == {"new"}
    found += pieces
    assert len(dict(chain.from_iterable(found))) == AT_ONCE


# --- with a hundred thousand ----------------------------------------------------------------------------------------------


async def longest_turn_ms(until: Callable[[], bool]) -> float:
    """CPU of the longest pass of the loop until then."""
    longest = 0.0
    while not until():
        began = time.thread_time()
        await asyncio.sleep(0)
        longest = max(longest, time.thread_time() - began)
    return longest * 1000


def broker_with(found: Transaction, count: int, **config: str) -> Coordinating:
    c = Coordinating()
    c.make(replace(c.bed.ports, clock=HostClock()), {key.replace("_", "."): value for key, value in config.items()})
    records = [record_of(f"id-{n}", found, transaction_version=2) for n in range(count)]
    for first in range(0, count, 500):
        batch = build_batch([Record(it.key, it.value) for it in records[first : first + 500]], timestamp_ms=1)
        c.log.write(0, batch)
    c.log.advance(0)
    return c


@pytest.mark.usefixtures("uncollected")
async def test_tx_68_no_turn_is_long_while_many_ids_are_loaded_listed_and_let_go() -> None:
    count = 100_000
    c = broker_with(state(S.EMPTY), count)
    await c.apply()
    assert await longest_turn_ms(lambda: c.coordinator.id_count() == count) < LONGEST_MS
    everything: dict[str, Any] = {"states": (), "producer_ids": (), "min_duration_ms": -1, "pattern": None}
    listing = asyncio.ensure_future(c.coordinator.listed(**everything))
    assert await longest_turn_ms(listing.done) < LONGEST_MS
    assert len(listing.result().transactions) == count
    nobody = list(range(10**9, 10**9 + 4_000))
    nothing = {**everything, "producer_ids": nobody, "pattern": "(a|i|d|-|[0-9])+"}
    listing = asyncio.ensure_future(c.coordinator.listed(**nothing))
    assert await longest_turn_ms(listing.done) < LONGEST_MS
    assert listing.result().transactions == ()
    began = time.thread_time()
    c.coordinator.led.resign([0])
    assert (time.thread_time() - began) * 1000 < LONGEST_MS
    await c.close()


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize(
    ("found", "config"),
    [
        (S.EMPTY, {"transaction_remove_expired_transaction_cleanup_interval_ms": "1"}),
        (S.ONGOING, {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "1"}),
        (S.PREPARE_COMMIT, {}),
    ],
    ids=["expired", "timed out", "decided"],
)
async def test_tx_68_no_turn_is_long_while_many_ids_are_forgotten_aborted_or_carried_out(
    found: TransactionState, config: dict[str, str]
) -> None:
    count = 20_000
    c = broker_with(state(found), count, **config)
    await c.apply()

    def settled() -> bool:
        led = c.coordinator.led.get(0)
        if led is None or not led.loaded or len(c.log.at(0).batches) <= count // 500:
            return False
        return not led.shard.by_id if found is S.EMPTY else not (led.shard.to_carry_out or led.shard.open_count)

    assert await longest_turn_ms(settled) < LONGEST_MS
    assert c.coordinator.id_count() == (0 if found is S.EMPTY else count)
    await c.close()


# --- waiting instead of coming again --------------------------------------------------------------------------------------


def held(w: TransactionWorld, producer: Producer, *, wait_ms: int = 100, name: str = "t") -> int:
    """A request to add partition B that waits."""
    w.asked += 1
    add = Add(transactional_id=name, producer=producer, partitions=frozenset({B}), version=w.version, wait_ms=wait_ms)
    w.step(Asked(request_id=w.asked, request=add))
    return w.asked


def test_tx_30_the_next_transaction_begins_when_the_one_before_is_complete() -> None:
    w = world()
    producer = w.begun(A)
    nxt = w.now(w.end(producer))
    waits = held(w, nxt)
    w.deliver_all()
    assert waits not in w.answers, "Complete is not below the high watermark yet"
    w.commit()
    assert w.answer(waits) == nxt and w.current().partitions == frozenset({B})
    assert w.shard.next_deadline_ms() == 10_000, "nothing is left that would end it"


def test_tx_30_who_waits_too_long_is_told_to_come_again() -> None:
    w = world()
    nxt = w.now(w.end(w.begun(A)))
    short, long = held(w, nxt, wait_ms=20), held(w, nxt, wait_ms=100)
    w.pass_time(19)
    assert short not in w.answers
    w.pass_time(1)
    assert w.answer(short) is E.CONCURRENT_TRANSACTIONS and long not in w.answers
    w.pass_time(80)
    assert w.answer(long) is E.CONCURRENT_TRANSACTIONS
    w.settle()
    assert w.current().state is S.COMPLETE_COMMIT, "what was refused is not added later"


def test_tx_30_so_many_wait_and_one_after_the_other_comes_in() -> None:
    w = world()
    nxt = w.now(w.end(w.begun(A)))
    waiting = [held(w, nxt) for _ in range(MOST_HELD)]
    assert w.answer(held(w, nxt)) is E.CONCURRENT_TRANSACTIONS
    w.settle()
    assert [w.answer(it) for it in waiting] == [nxt] * MOST_HELD


def test_tx_30_who_waited_is_judged_by_what_has_become_of_the_id() -> None:
    w = world()
    producer = w.now(w.init())
    w.init()
    waits = held(w, producer)
    w.commit()
    assert w.answer(waits) is E.PRODUCER_FENCED
    w.no_ids = True
    busy = w.now(w.init("u"))
    assert busy is E.COORDINATOR_LOAD_IN_PROGRESS


def test_tx_61_who_waits_is_not_added_behind_a_resignation() -> None:
    w = world()
    nxt = w.now(w.end(w.begun(A)))
    waits = held(w, nxt)
    w.fail_over()
    assert w.answer(waits) is E.NOT_COORDINATOR
    w.settle()
    assert w.current().state is S.COMPLETE_COMMIT
