"""The checkers of timeouts find a transaction that is left open, one that began when it did not, and a timeout that nobody asked
for; and wait where a coordinator may take its time."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlite.coordinator.transactions.states import Transaction, TransactionState
from kraftlite.model.errors import ErrorCode
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.checkers.base import Violation
from kraftlite.sim.checkers.coordinator_memory import Remembered
from kraftlite.sim.checkers.i65_transaction_states import TransactionStates
from kraftlite.sim.checkers.i73_transaction_timeouts import TimeoutsAsked, TransactionTimeouts
from kraftlite.sim.services.groups import Told
from kraftlite.sim.services.transactions import INIT, InitAsk
from tests.unit.sim.test_checkers_transaction_memory import BROKER, FIRST, SECOND, A, Place

WALL_MS = 5_000
S = TransactionState


def overdue(timeout_ms: int = 1_000, state: TransactionState = TransactionState.ONGOING, epoch: int = 0) -> Place:
    place = Place(TransactionTimeouts)
    partitions = frozenset[TopicPartition]({A})
    open_ = Transaction(
        producer_id=1, producer_epoch=epoch, timeout_ms=timeout_ms, state=state, partitions=partitions, start_ms=1, updated_ms=1
    )
    place.remembers(open_)
    return place


def look(place: Place, now_us: int, *, afresh: bool = False) -> None:
    place.checker.look(place.node, place.ids, now_us, WALL_MS, afresh=afresh)


def test_an_overdue_transaction_that_stays_open_is_found() -> None:
    place = overdue()
    look(place, 0)
    with pytest.raises(Violation, match="leaves the transaction of x open, which was to end 3999 ms ago"):
        look(place, 60_000_000)


@pytest.mark.parametrize("place", [overdue(10_000), overdue(2**31 - 1), overdue(state=TransactionState.COMPLETE_ABORT)])
def test_one_that_is_not_overdue_or_not_open_may_stay(place: Place) -> None:
    look(place, 0)
    look(place, 60_000_000)


def test_a_coordinator_that_stood_still_has_its_time_again() -> None:
    place = overdue()
    look(place, 0)
    look(place, 60_000_000, afresh=True)
    look(place, 60_000_001)


def test_a_transaction_that_goes_on_from_the_beginning_of_the_one_before_it_is_found() -> None:
    place = Place(TransactionStates)
    place.state(place.value(S.EMPTY, 0, start_ms=-1))
    place.state(place.value(S.ONGOING, 0, start_ms=5, updated_ms=5))
    place.state(place.value(S.PREPARE_COMMIT, 1, start_ms=5, updated_ms=7))
    place.state(place.value(S.COMPLETE_COMMIT, 1, start_ms=5, updated_ms=8))
    with pytest.raises(Violation, match="says that the transaction began at 5, it began at 9"):
        place.state(place.value(S.ONGOING, 1, start_ms=5, updated_ms=9))


def test_a_transaction_whose_beginning_moves_is_found() -> None:
    place = Place(TransactionStates)
    place.state(place.value(S.EMPTY, 0, start_ms=-1))
    place.state(place.value(S.ONGOING, 0, start_ms=5, updated_ms=5))
    with pytest.raises(Violation, match="says that the transaction began at 6, it began at 5"):
        place.state(place.value(S.ONGOING, 0, start_ms=6, updated_ms=6, partitions=frozenset({A, TopicPartition("t", 1)})))


@pytest.mark.parametrize(
    ("memory", "answer", "found"),
    [
        ((S.EMPTY, FIRST, 1_000), Told(ErrorCode.NONE, FIRST), True),
        ((S.EMPTY, FIRST, 3_000), Told(ErrorCode.NONE, FIRST), False),
        ((S.EMPTY, SECOND, 1_000), Told(ErrorCode.NONE, FIRST), False),  # another instance has come behind it
        ((S.ONGOING, FIRST, 1_000), Told(ErrorCode.NONE, FIRST), False),  # of a late answer nothing can be told
        ((S.EMPTY, FIRST, 1_000), Told(ErrorCode.CONCURRENT_TRANSACTIONS), False),
    ],
)
def test_an_instance_with_another_timeout_than_it_asked_for_is_found(
    memory: tuple[TransactionState, Producer, int], answer: Told, found: bool
) -> None:
    place = Place(TimeoutsAsked)
    state, producer, timeout_ms = memory
    value = place.value(state, producer.producer_epoch, producer_id=producer.producer_id, timeout_ms=timeout_ms)
    place.checker._in_memory = lambda exchange: Remembered(place.ids, value)
    exchange: Any = SimpleNamespace(method=INIT, target=BROKER, request=InitAsk(transactional_id="x", timeout_ms=3_000))
    with pytest.raises(Violation, match="a timeout of 1000 ms, and is asked for 3000 ms") if found else nullcontext():
        place.checker.on_served(exchange, answer)


def test_an_id_whose_epochs_are_used_up_waits_for_another_id() -> None:
    place = overdue()
    place.checker.look(place.node, place.ids, 0, WALL_MS, afresh=False, short_of_ids=True)
    with pytest.raises(Violation, match="leaves the transaction of x open"):
        place.checker.look(place.node, place.ids, 60_000_000, WALL_MS, afresh=False, short_of_ids=True)
    place = overdue(epoch=32_766)
    place.checker.look(place.node, place.ids, 0, WALL_MS, afresh=False, short_of_ids=True)
    place.checker.look(place.node, place.ids, 60_000_000, WALL_MS, afresh=False, short_of_ids=True)
    place.checker.look(place.node, place.ids, 60_000_001, WALL_MS, afresh=False)
