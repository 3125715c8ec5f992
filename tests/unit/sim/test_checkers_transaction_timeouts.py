"""The checker of overdue transactions finds one that is left open, and waits where a coordinator may take its time."""

from __future__ import annotations

import pytest

from kraftlite.coordinator.transactions.states import Transaction, TransactionState
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.checkers.base import Violation
from kraftlite.sim.checkers.i73_transaction_timeouts import TransactionTimeouts
from tests.unit.sim.test_checkers_transaction_memory import A, Place

WALL_MS = 5_000


def overdue(timeout_ms: int = 1_000, state: TransactionState = TransactionState.ONGOING) -> Place:
    place = Place(TransactionTimeouts)
    partitions = frozenset[TopicPartition]({A})
    open_ = Transaction(
        producer_id=1, producer_epoch=0, timeout_ms=timeout_ms, state=state, partitions=partitions, start_ms=1, updated_ms=1
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
