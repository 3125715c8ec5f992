"""The checker of lists of transactions finds what is wrong in them, and no more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlite.coordinator.transactions.api import TransactionListing, TransactionOverview
from kraftlite.coordinator.transactions.states import Transaction, TransactionState
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.sim.checkers.base import Violation
from kraftlite.sim.checkers.transaction_listings import ListingsComplete, _Seen
from kraftlite.sim.services.groups import Told
from kraftlite.sim.services.transactions import LIST, ListAsk
from kraftlite.sim.workloads.transaction_listing import NO_PATTERN, NO_STATE
from kraftlite.simhost.network import Exchange
from tests.unit.sim.test_checkers_transaction_memory import BROKER, Place

S = TransactionState
ALL = ListAsk((), (), -1, None)
NOW_MS = 10_000
OPEN = Transaction(
    producer_id=7, producer_epoch=0, timeout_ms=1, state=S.ONGOING, partitions=frozenset(), start_ms=NOW_MS - 900, updated_ms=1
)
DONE = replace(OPEN, producer_id=8, state=S.COMPLETE_COMMIT, start_ms=-1)
SHOWN_OPEN, SHOWN_DONE = TransactionOverview("x0", 7, S.ONGOING), TransactionOverview("x1", 8, S.COMPLETE_COMMIT)
HERE = _Seen((1,), NOW_MS, {"x0": OPEN, "x1": DONE})


def judge(place: Place, told: Told, ask: ListAsk = ALL, was: _Seen = HERE, now: _Seen = HERE, waited_us: int = 0) -> None:
    checker = place.checker
    checker._see = lambda node: now
    checker._arrivals = SimpleNamespace(
        of=lambda exchange: SimpleNamespace(seen=was), forget=lambda exchange: None, waited_us=lambda *_: waited_us
    )
    checker.on_served(Exchange(NodeId(3), BROKER, LIST, ask, place.loop.create_future()), told)


def listed(*shown: TransactionOverview, unknown: tuple[str, ...] = ()) -> Told:
    return Told(ErrorCode.NONE, TransactionListing(transactions=shown, unknown_states=unknown))


WRONG: list[tuple[str, Callable[[Place], Any]]] = [
    ("x1 is not listed, and is", lambda it: judge(it, listed(SHOWN_OPEN))),
    ("x1.* is filtered out", lambda it: judge(it, listed(SHOWN_OPEN, SHOWN_DONE), ListAsk(("Ongoing",), (), -1, None))),
    ("x0.* is filtered out", lambda it: judge(it, listed(SHOWN_OPEN, SHOWN_DONE), ListAsk((), (8,), -1, None))),
    ("x1.* is filtered out", lambda it: judge(it, listed(SHOWN_OPEN, SHOWN_DONE), ListAsk((), (), -1, "x0"))),
    ("x0 is listed, and is .* 900", lambda it: judge(it, listed(SHOWN_OPEN, SHOWN_DONE), ListAsk((), (), 2_000, None))),
    ("is not coordinated there", lambda it: judge(it, listed(SHOWN_OPEN), was=_Seen((1,), 1, {}), now=_Seen((1,), 1, {}))),
    ("an id is listed twice", lambda it: judge(it, listed(SHOWN_OPEN, SHOWN_OPEN, SHOWN_DONE))),
    ("the unknown states are", lambda it: judge(it, listed(), ListAsk((NO_STATE,), (), -1, None))),
    ("with NONE", lambda it: judge(it, listed(), ListAsk((), (), -1, NO_PATTERN))),
    ("with INVALID_REGULAR_EXPRESSION", lambda it: judge(it, Told(ErrorCode.INVALID_REGULAR_EXPRESSION))),
]


@pytest.mark.parametrize(("words", "violate"), WRONG)
def test_a_list_that_is_wrong_is_found(words: str, violate: Callable[[Place], Any]) -> None:
    with pytest.raises(Violation, match=words):
        violate(Place(ListingsComplete))


def test_lists_that_are_right_are_no_violation() -> None:
    place = Place(ListingsComplete)
    judge(place, listed(SHOWN_OPEN, SHOWN_DONE))
    judge(place, listed(SHOWN_DONE), ListAsk((), (), 2_000, "x.*"))
    judge(place, listed(SHOWN_OPEN, unknown=(NO_STATE,)), ListAsk((NO_STATE, "Ongoing"), (), -1, ""))
    judge(place, Told(ErrorCode.INVALID_REGULAR_EXPRESSION), ListAsk((), (), -1, NO_PATTERN))
    judge(place, Told(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert (place.checker.judged, place.checker.listed) == (3, 4)


def test_what_changes_meanwhile_may_be_listed_or_not() -> None:
    place = Place(ListingsComplete)
    ended = replace(HERE, ids={"x0": replace(OPEN, state=S.PREPARE_COMMIT), "x1": DONE})
    judge(place, listed(SHOWN_OPEN), ListAsk(("Ongoing",), (), -1, None), now=ended)
    judge(place, listed(), ListAsk(("Ongoing",), (), -1, None), now=ended)
    judge(place, listed(SHOWN_DONE), ListAsk((), (), 1_000, None), now=replace(HERE, wall_ms=NOW_MS + 500))
    assert place.checker.judged == 3
    judge(place, listed(), was=replace(HERE, drivers=(2,)))
    judge(place, listed(), waited_us=1_000_000)
    assert place.checker.judged == 3, "other coordinators, or too long"
