"""Wall clocks that jump, or differ between coordinators, hold up no group of the consumer protocol."""

from __future__ import annotations

from tests.harness.consumer_world import ConsumerWorld


def test_an_assignment_of_the_future_does_not_hold_up_the_next() -> None:
    """The clock was set back, or that of the coordinator before this one was ahead: the interval says nothing then."""
    w = ConsumerWorld(consumer_assignment_interval_ms=1_000)
    a = w.enter("a")
    w.wall_ms -= 3_600_000
    w.fail_over()
    b = w.enter("b")
    w.settle()
    assert sorted(a.names + b.names) == ["t0", "t1", "t2", "t3"] and len(b.names) == 2


def test_matches_of_the_future_are_looked_up_again() -> None:
    """The clock was set back, or that of the coordinator before this one was ahead."""
    w = ConsumerWorld({"a": 1})
    m = w.enter("m", regex="a.*")
    w.wall_ms -= 3_600_000
    w.change_topics(ab=1)
    w.beat(m)
    assert m.names == ["a0", "ab0"]
    w.change_topics(ac=1)
    w.beat(m)
    assert m.names == ["a0", "ab0"], "they are of now by now"
