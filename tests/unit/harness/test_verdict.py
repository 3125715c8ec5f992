"""The judge of chaos runs finds what must not be, and lets clients be as they are."""

from __future__ import annotations

import pytest

from tests.harness.verdict import check_acknowledged, check_order

ONE, NEXT, OTHER = (7, 0), (7, 1), (8, 1)


@pytest.mark.parametrize(
    ("numbers", "sessions", "fine"),
    [
        ([0, 1, 2], [ONE, ONE, ONE], True),
        ([0, 1, 1], [ONE, ONE, ONE], False),
        ([0, 2, 1], [ONE, ONE, ONE], False),
        ([0, 1, 1, 2], [ONE, ONE, NEXT, NEXT], True),
        ([0, 1, 1, 1], [ONE, ONE, NEXT, NEXT], False),
        ([0, 1, 1], [ONE, ONE, OTHER], False),
    ],
)
def test_numbers_go_back_only_where_a_producer_begins_an_epoch(
    numbers: list[int], sessions: list[tuple[int, int]], fine: bool
) -> None:
    found = list(check_order("w", list(enumerate(numbers)), dict(enumerate(sessions))))
    assert (not found) == fine, found


@pytest.mark.parametrize(
    ("acked", "problem"),
    [
        ({0: 0, 2: 1}, None),
        ({-1: 0, -2: 1}, None),
        ({1: 1}, "written again"),
        ({0: 1}, "not there"),
        ({-6: 5}, "not there"),
    ],
)
def test_what_was_acknowledged_is_there_and_was_not_sent_again(acked: dict[int, int], problem: str | None) -> None:
    found = list(check_acknowledged("w", [(0, 0), (1, 1), (2, 1)], acked))
    assert (not found) if problem is None else (problem in found[0]), found
