"""The requests that wait for a partition, and those that watch it. Source: RP-01, RP-09."""

from __future__ import annotations

import asyncio
from typing import Protocol

from kraftlite.model.errors import ErrorCode


class Parked(Protocol):
    """A produce request of which this partition is one entry."""

    def complete(self, index: int, error: ErrorCode) -> None: ...

    @property
    def done(self) -> bool: ...


class Observer(Protocol):
    """A follower's fetch session, which must know what it has not sent yet."""

    def on_append(self, old_leo: int) -> None: ...

    def on_change(self) -> None:
        """The HW, the log start, or the role has changed: tell with the next answer."""
        ...

    def on_moved(self) -> None:
        """The role or the leader epoch changed: whoever waits must be answered at once."""
        ...


class Waiter(Protocol):
    """A client's fetch that waits for the HW (or for the role to change)."""

    def wake(self) -> None: ...


class OneWake:
    """A task that waits: woken once, by a partition or by its deadline."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    expire = wake


def wake_all(waiters: dict[Waiter, None]) -> None:
    """Wake and forget them; whoever still has to wait comes back."""
    woken = list(waiters)
    waiters.clear()
    for waiter in woken:
        waiter.wake()
