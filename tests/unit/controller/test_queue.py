"""The event queue by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kraftlite.controller.queue import EventQueue, QueueClosed, QueueTimeout


class Note:
    def __init__(self, name: str, log: list[str], *, error: Exception | None = None) -> None:
        self.name, self.log, self.error = name, log, error

    def run(self, now_ms: int) -> Iterator[None] | None:
        self.log.append(f"run {self.name}")
        if self.error is not None:
            raise self.error
        return None

    def fail(self, error: BaseException, now_ms: int) -> None:
        self.log.append(f"fail {self.name} {type(error).__name__}")


def queue_of_notes(**given: int) -> EventQueue[Note]:
    return EventQueue(lambda note, now_ms: note.run(now_ms), lambda note, error, now_ms: note.fail(error, now_ms), **given)


def drain(queue: EventQueue[Note], now_ms: int) -> None:
    while queue.run_one(now_ms):
        pass


def test_append_prepend_and_deferred_order() -> None:
    queue, log = queue_of_notes(), list[str]()
    queue.append(Note("tail", log), 0)
    queue.prepend(Note("head", log), 0)
    queue.schedule_deferred("t", Note("later", log), 10, 0)
    queue.schedule_deferred("u", Note("due", log), 5, 0)
    drain(queue, 5)
    assert log == ["run due", "run head", "run tail"]
    assert queue.next_deadline_ms() == 10
    drain(queue, 10)
    assert log[-1] == "run later"
    assert queue.next_deadline_ms() is None


def test_a_tag_replaces_its_predecessor_and_can_be_cancelled() -> None:
    queue, log = queue_of_notes(), list[str]()
    queue.schedule_deferred("t", Note("first", log), 5, 0)
    queue.schedule_deferred("t", Note("second", log), 8, 0)
    queue.schedule_deferred("t", Note("third", log), 9, 0, keep_earlier=True)
    drain(queue, 100)
    assert log == ["run second"]
    queue.schedule_deferred("t", Note("never", log), 5, 0)
    assert queue.cancel_deferred("t")
    assert not queue.cancel_deferred("t")
    drain(queue, 100)
    assert log == ["run second"]


def test_an_expired_event_fails_first_and_never_runs() -> None:
    queue, log = queue_of_notes(), list[str]()
    queue.append(Note("patient", log), 0, deadline_ms=100)
    queue.append(Note("hasty", log), 0, deadline_ms=10)
    drain(queue, 50)
    assert log == [f"fail hasty {QueueTimeout.__name__}", "run patient"]
    assert len(queue) == 0


def test_an_event_that_may_run_again_or_is_not_counted_breaks_the_check() -> None:
    queue, log = queue_of_notes(), list[str]()
    queue.append(Note("late", log), 0, deadline_ms=10)
    queue.append(Note("other", log), 0)
    queue.run_one(11)
    queue.check()
    queue._ready[0].done = False  # it has failed, and would run
    with pytest.raises(AssertionError, match="2 controller events wait, 1 are counted"):
        queue.check()


def test_an_error_goes_to_the_event_and_the_loop_goes_on() -> None:
    queue, log = queue_of_notes(), list[str]()
    queue.append(Note("bad", log, error=RuntimeError("x")), 0)
    queue.append(Note("good", log), 0)
    drain(queue, 0)
    assert log == ["run bad", "fail bad RuntimeError", "run good"]


def test_closing_rejects_deferred_and_later_events_but_runs_what_waits() -> None:
    queue, log = queue_of_notes(), list[str]()
    queue.append(Note("waiting", log), 0)
    queue.schedule_deferred("t", Note("deferred", log), 5, 0)
    queue.close(0)
    queue.append(Note("late", log), 0)
    drain(queue, 10)
    closed = QueueClosed.__name__
    assert log == [f"fail deferred {closed}", f"fail late {closed}", "run waiting"]


def test_a_full_queue_refuses_events_with_a_deadline_only() -> None:
    queue, log = queue_of_notes(limit=1), list[str]()
    queue.append(Note("one", log), 0, deadline_ms=5)
    queue.append(Note("two", log), 0, deadline_ms=5)
    queue.append(Note("internal", log), 0)
    drain(queue, 0)
    assert log == ["fail two QueueFull", "run one", "run internal"]


def test_the_time_in_the_queue_is_that_of_the_event_that_ran() -> None:
    """Not that of the one before it; an event that was deferred, or never ran, has none."""
    queue, log = queue_of_notes(), list[str]()
    queue.append(Note("waited", log), 0)
    assert queue.run_one(7) and queue.last_queue_time_ms == 7
    queue.schedule_deferred("t", Note("later", log), 10, 0)
    assert queue.run_one(50) and queue.last_queue_time_ms is None
    assert (queue.last_name, queue.last_delay_ms, queue.last_expired) == ("later", 40, False)
    queue.append(Note("too late", log), 0, deadline_ms=5)
    assert queue.run_one(60) and queue.last_queue_time_ms is None
    assert (queue.last_name, queue.last_delay_ms, queue.last_expired) == ("too late", None, True)
    assert not queue.run_one(70) and queue.last_queue_time_ms is None
    assert log == ["run waited", "run later", "fail too late QueueTimeout"]


class Long(Note):
    """An event of several turns."""

    def __init__(self, name: str, log: list[str], turns: int, *, error: Exception | None = None) -> None:
        super().__init__(name, log, error=error)
        self.turns = turns

    def run(self, now_ms: int) -> Iterator[None]:
        return self.work()

    def work(self) -> Iterator[None]:
        for turn in range(1, self.turns):
            self.log.append(f"turn {turn} of {self.name}")
            yield
        self.log.append(f"turn {self.turns} of {self.name}")
        if self.error is not None:
            raise self.error


def test_nothing_runs_between_the_turns_of_an_event() -> None:
    queue, log = queue_of_notes(), list[str]()
    queue.append(Long("long", log, 3), 0)
    queue.append(Note("hasty", log), 0, deadline_ms=1)
    queue.append(Note("tail", log), 0)
    assert queue.run_one(0) and queue.has_begun
    queue.prepend(Note("head", log), 0)
    queue.schedule_deferred("t", Note("due", log), 1, 0)
    drain(queue, 10)
    long = ["turn 1 of long", "turn 2 of long", "turn 3 of long"]
    assert log == [*long, f"fail hasty {QueueTimeout.__name__}", "run due", "run head", "run tail"]
    assert not queue.has_begun


def test_an_event_that_breaks_in_a_later_turn_fails_and_the_next_one_runs() -> None:
    queue, log = queue_of_notes(), list[str]()
    queue.append(Long("long", log, 2, error=ValueError("a bug")), 0)
    queue.append(Note("next", log), 0)
    drain(queue, 0)
    assert log == ["turn 1 of long", "turn 2 of long", "fail long ValueError", "run next"]


def test_what_has_begun_fails_when_the_queue_is_drained() -> None:
    queue, log = queue_of_notes(), list[str]()
    queue.append(Long("long", log, 2), 0)
    queue.append(Note("next", log), 0)
    assert queue.run_one(0)
    queue.close(0)
    queue.drain(0)
    assert log[1:] == [f"fail long {QueueClosed.__name__}", f"fail next {QueueClosed.__name__}"]
    assert not queue.run_one(1)
