"""The periodic tasks of the active controller.

Source: Kafka's PeriodicTaskControlManager; CE-24, CE-27 to CE-29.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kraftlite.controller.events import Event
from kraftlite.controller.queue import EventQueue
from kraftlite.controller.results import ControllerResult
from kraftlite.controller.turns import Steps

AGAIN_MS: Final = 10
"""Delay of a task that has more to do at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicTask:
    """`run(now_ms)` returns records, and whether it wants to run again at once. `due_ms` tells from when on there is something to
    do, where that is known before the period is over."""

    name: str
    period_ms: int
    run: Callable[[int], ControllerResult[bool] | Steps[ControllerResult[bool]]]
    due_ms: Callable[[], int | None] = lambda: None


class PeriodicTasks:
    """Keeps each task scheduled as a deferred event while active."""

    def __init__(self, queue: EventQueue[Event], make_event: Callable[[PeriodicTask], Event]) -> None:
        self._queue = queue
        self._make_event = make_event
        self._tasks: dict[str, PeriodicTask] = {}
        self.active = False

    def register(self, task: PeriodicTask) -> None:
        assert task.name not in self._tasks, f"periodic task {task.name} is registered twice"
        self._tasks[task.name] = task

    def activate(self, now_ms: int) -> None:
        self.active = True
        for task in self._tasks.values():
            self.schedule(task, now_ms, again=False)

    def deactivate(self) -> None:
        self.active = False
        for name in self._tasks:
            self._queue.cancel_deferred(name)

    def schedule(self, task: PeriodicTask, now_ms: int, *, again: bool) -> None:
        if self.active and not self._queue.closed:
            due_ms = now_ms + (AGAIN_MS if again else task.period_ms)
            if not again and (known_ms := task.due_ms()) is not None:
                due_ms = min(due_ms, max(now_ms + 1, known_ms))
            self._queue.schedule_deferred(task.name, self._make_event(task), due_ms, now_ms)
