"""The checker of stable fetches finds an offset that is unstable without reason."""

from __future__ import annotations

import pytest

from kraftlite.model.errors import ErrorCode
from kraftlite.sim.checkers.base import Violation
from kraftlite.sim.checkers.i70_stable_fetches import StableFetches
from tests.unit.sim.test_checkers_transaction_memory import FIRST, Place

UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


def quiet() -> Place:
    """All that is in the log is committed."""
    place = Place(StableFetches)
    place.checker._quiet_end = lambda exchange, group_id: place.log.end
    return place


def test_an_offset_that_no_open_transaction_moves_is_not_unstable() -> None:
    place = quiet()
    place.commit_in_transaction(7)
    place.fetch(-1, UNSTABLE)
    place.end()
    place.log.end_transaction(FIRST.producer_id, commit=True)
    with pytest.raises(Violation, match="answers UNSTABLE_OFFSET_COMMIT for t-0 of group g, and no transaction is open"):
        place.fetch(-1, UNSTABLE)


def test_what_is_not_committed_yet_may_be_unstable() -> None:
    place = Place(StableFetches)
    place.commit(4)
    place.checker._quiet_end = lambda exchange, group_id: None
    place.fetch(-1, UNSTABLE)
    ends = iter((place.log.end, place.log.end + 1))
    place.checker._quiet_end = lambda exchange, group_id: next(ends)
    place.fetch(-1, UNSTABLE)  # something has come and gone meanwhile
