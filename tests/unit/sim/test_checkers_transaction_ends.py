"""The checker of ends that are asked for again, and of what is no part of a transaction, finds what is wrong, and no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from kraftlite.coordinator.transactions.states import LAST_EPOCH, Transaction, TransactionState
from kraftlite.log.batch import Record, build_batch
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicIdPartition
from kraftlite.sim.checkers.base import Violation
from kraftlite.sim.checkers.coordinator_memory import Remembered
from kraftlite.sim.checkers.replica_views import Batch, Truth
from kraftlite.sim.checkers.transaction_ends import TransactionEnds
from kraftlite.sim.checkers.transaction_log import InLog
from kraftlite.sim.services.groups import Told
from kraftlite.sim.services.transactions import END, INIT, EndAsk, InitAsk
from kraftlite.simhost.network import Exchange
from tests.unit.sim.test_checkers_transaction_memory import BROKER, A, Place

S = TransactionState
P = Producer(1001, 3)
CASES: list[tuple[Callable[[Place], Any], str]] = []


def breaks(words: str) -> Callable[[Callable[[Place], Any]], Callable[[Place], Any]]:
    def note(function: Callable[[Place], Any]) -> Callable[[Place], Any]:
        CASES.append((function, words))
        return function

    return note


def end(place: Place, state: Transaction, told: Told, *, commit: bool = True, producer: Producer = P, version: int = 2) -> None:
    here = Remembered(place.ids, state)
    place.checker._in_memory = lambda exchange: here
    exchange = Exchange(NodeId(3), BROKER, END, EndAsk("x", producer, commit, version), place.loop.create_future())
    place.checker.on_arrival(exchange)
    place.checker.on_served(exchange, told)


@breaks("answers PRODUCER_FENCED to the commit of x .*: it has ended so, and was to succeed again")
def the_end_is_not_told_again(place: Place) -> None:
    end(place, place.value(S.COMPLETE_COMMIT, 4), Told(ErrorCode.PRODUCER_FENCED))


@breaks("answers NONE to the abort of x .*: it has ended otherwise")
def the_other_end_succeeds(place: Place) -> None:
    end(place, place.value(S.COMPLETE_COMMIT, 4), Told(ErrorCode.NONE, Producer(1001, 4)), commit=False)


@breaks(r"and the producer \(1001, 3\) to go on with: it is \(1001, 4\)")
def the_end_gives_the_former_producer(place: Place) -> None:
    end(place, place.value(S.COMPLETE_COMMIT, 4), Told(ErrorCode.NONE, P))


@breaks("answers NONE to the commit of x .*: nothing has ended by it")
def nothing_is_ended(place: Place) -> None:
    end(place, place.value(S.EMPTY, 3), Told(ErrorCode.NONE, P))


def begin(place: Place, state: Transaction, told: Told, expected: Producer | None) -> None:
    here = Remembered(place.ids, state)
    place.checker._in_memory = lambda exchange: here
    ask = InitAsk(transactional_id="x", timeout_ms=1, expected=expected)
    exchange = Exchange(NodeId(3), BROKER, INIT, ask, place.loop.create_future())
    place.checker.on_arrival(exchange)
    place.checker.on_served(exchange, told)


@breaks("fences who has nothing yet at its InitProducerId of x")
def a_new_instance_is_fenced(place: Place) -> None:
    begin(place, place.value(S.PREPARE_COMMIT, 4), Told(ErrorCode.PRODUCER_FENCED), None)


@breaks(r"fences \(1001, 3\) at its InitProducerId of x")
def a_lost_answer_fences(place: Place) -> None:
    begin(place, place.value(S.EMPTY, 4, last_epoch=3), Told(ErrorCode.PRODUCER_FENCED), P)


def test_who_was_replaced_is_fenced() -> None:
    place = Place(TransactionEnds)
    begin(place, place.value(S.EMPTY, 5, last_epoch=4), Told(ErrorCode.PRODUCER_FENCED), P)
    begin(place, place.value(S.EMPTY, 3), Told(ErrorCode.NONE, Producer(1001, 4)), P)


@breaks("is in no transaction, and its producer has one open there")
def a_batch_comes_outside_of_a_transaction(place: Place) -> None:
    place.state(place.value(S.ONGOING, 3))
    key = TopicIdPartition(UUID(int=3), 0)
    first, second = Batch(5, 6, 0, 5, 1, 1001, 3, 0, 0, False), Batch(6, 7, 0, 6, 1, 1001, 3, 1, 1, False)
    truth = Truth(key, A)
    truth.before[second] = first
    place.facts.appended(InLog(key, A, first, None, None))
    plain = build_batch([Record(key=None, value=b"x")], timestamp_ms=1, producer_id=1001, producer_epoch=3, base_sequence=1)
    place.checker.on_batch(truth, second, memoryview(plain))


def test_an_end_may_be_told_again_and_by_others_refused() -> None:
    place = Place(TransactionEnds)
    complete = place.value(S.COMPLETE_COMMIT, 4)
    end(place, complete, Told(ErrorCode.NONE, Producer(1001, 4)))
    end(place, complete, Told(ErrorCode.INVALID_TXN_STATE), commit=False)
    end(place, place.value(S.PREPARE_COMMIT, 4), Told(ErrorCode.CONCURRENT_TRANSACTIONS))
    end(place, complete, Told(ErrorCode.PRODUCER_FENCED), producer=Producer(1001, 2))
    end(place, place.value(S.COMPLETE_COMMIT, 3, version=0), Told(ErrorCode.NONE, P), version=0)
    over = place.value(S.COMPLETE_COMMIT, 0, producer_id=1002, previous_producer_id=1001)
    end(place, over, Told(ErrorCode.NONE, Producer(1002, 0)), producer=Producer(1001, LAST_EPOCH))
    assert place.checker.judged == 4


@pytest.mark.parametrize(("violate", "words"), CASES, ids=[it[0].__name__ for it in CASES])
def test_a_violation_is_found(violate: Callable[[Place], Any], words: str) -> None:
    with pytest.raises(Violation, match=words):
        violate(Place(TransactionEnds))
