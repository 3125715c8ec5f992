"""What the answers to a change of the voters mean, and who may leave."""

from __future__ import annotations

import pytest

from kraftlite.client.voters import Change, cannot_leave
from kraftlite.model.errors import ErrorCode


def test_dq_32_what_is_there_already_was_carried_out_only_behind_an_answer_that_left_it_open() -> None:
    change = Change.adding()
    assert not change.is_done(ErrorCode.DUPLICATE_VOTER) and not change.goes_on(ErrorCode.DUPLICATE_VOTER)
    assert change.goes_on(ErrorCode.REQUEST_TIMED_OUT)
    assert change.is_done(ErrorCode.DUPLICATE_VOTER) and not change.is_done(ErrorCode.VOTER_NOT_FOUND)
    change = Change.removing()
    change.lost()
    assert change.is_done(ErrorCode.VOTER_NOT_FOUND) and not change.is_done(ErrorCode.INVALID_REQUEST)
    assert not change.goes_on(ErrorCode.UNSUPPORTED_VERSION) and change.goes_on(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert Change.adding().is_done(ErrorCode.NONE)


@pytest.mark.parametrize(
    ("voters", "leaving", "running", "why"),
    [
        ((1, 2, 3), 3, (1, 2), None),
        ((1, 2, 3), 3, (1, 3, 4), "of the voters 1, 2 only 1 run"),
        ((1, 2), 2, (1, 2), None),
        ((1, 2, 3, 4), 4, (1, 2), None),
        ((1,), 1, (1,), "it is the only voter"),
        ((1, 2), 7, (), None),
    ],
)
def test_dq_33_a_voter_that_the_others_need_stays(
    voters: tuple[int, ...], leaving: int, running: tuple[int, ...], why: str | None
) -> None:
    assert cannot_leave(voters, leaving, running) == (None if why is None else f"controller {leaving} cannot leave: {why}")
