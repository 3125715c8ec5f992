"""Deadlines that move, in the order in which they fall due."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraftlite.coordinator.core.deadlines import Deadlines
from kraftlite.coordinator.core.walks import AT_ONCE


def drain(deadlines: Deadlines[str], now_ms: int) -> list[str]:
    found = []
    while deadlines.is_due(now_ms):
        found += deadlines.due(now_ms)
    return found


def test_no_more_at_a_time_than_a_piece() -> None:
    """Whether they are due, were moved, or are gone."""
    deadlines: Deadlines[str] = Deadlines()
    for number in range(5 * AT_ONCE):
        deadlines.set(str(number), 7)
    for number in range(AT_ONCE, 2 * AT_ONCE):
        deadlines.set(str(number), 8)
    for number in range(2 * AT_ONCE, 4 * AT_ONCE):
        deadlines.cancel(str(number))
    sizes = []
    while deadlines.is_due(7):
        sizes.append(len(list(deadlines.due(7))))
    assert sizes == [AT_ONCE, 0, 0, 0, AT_ONCE]
    assert deadlines.next_ms() == 8 and len(deadlines) == AT_ONCE
    for number in range(AT_ONCE, 2 * AT_ONCE):
        deadlines.cancel(str(number))
    assert deadlines.next_ms() is None


def test_one_that_is_cancelled_by_another_is_not_due() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for key in "abc":
        deadlines.set(key, 1)
    found = []
    for key in deadlines.due(1):
        deadlines.cancel("b")
        found.append(key)
    assert found == ["a", "c"]


def test_by_time_and_ties_by_who_was_first() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for key, at_ms in (("b", 5), ("c", 3), ("a", 5)):
        deadlines.set(key, at_ms)
    assert deadlines.next_ms() == 3
    assert drain(deadlines, 4) == ["c"]
    assert drain(deadlines, 5) == ["b", "a"]
    assert deadlines.next_ms() is None and len(deadlines) == 0


def test_moving_and_cancelling() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("later", 5)
    deadlines.set("later", 10)
    deadlines.set("sooner", 10)
    deadlines.set("sooner", 5)
    deadlines.set("gone", 1)
    deadlines.cancel("gone")
    deadlines.cancel("never was")
    assert deadlines.next_ms() == 5
    assert drain(deadlines, 9) == ["sooner"]
    assert deadlines.get("later") == 10
    assert drain(deadlines, 10) == ["later"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 20), st.integers(0, 3)), max_size=40))
def test_as_a_plain_dict_would(operations: list[tuple[str, int | None, int]]) -> None:
    deadlines: Deadlines[str] = Deadlines()
    model: dict[str, int] = {}
    now_ms = 0
    for key, delay, step in operations:
        if delay is None:
            deadlines.cancel(key)
            model.pop(key, None)
        else:
            deadlines.set(key, now_ms + delay)
            model[key] = now_ms + delay
        now_ms += step
        earliest = min(model.values(), default=None)
        following = deadlines.next_ms()
        assert (following is None) == (earliest is None)
        assert following is None or earliest is None or following <= earliest
        due = [found for found, at_ms in model.items() if at_ms <= now_ms]
        assert sorted(drain(deadlines, now_ms)) == sorted(due)
        for found in due:
            del model[found]
