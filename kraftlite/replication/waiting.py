"""The requests that wait for a partition, and those that watch it. Source: RP-01, RP-09."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition


class Parked(Protocol):
    """A produce request of which this partition is one entry."""

    def complete(self, index: int, error: ErrorCode) -> None: ...

    def outlasts(self, error: ErrorCode) -> bool:
        """Return whether it goes on waiting when it is completed with this error."""
        ...

    @property
    def done(self) -> bool: ...


class WaitingProduces:
    """The produces that wait for a partition's HW, by the HW that each requires. Source: RP-01, RP-09."""

    __slots__ = ("queue",)

    def __init__(self) -> None:
        self.queue: deque[tuple[int, Parked, int]] | None = None
        """(required hw, produce, index in it), ascending by required hw. None until the first: most partitions of many never
        have one, and an empty deque takes 760 bytes."""

    def park(self, required_hw: int, parked: Parked, index: int) -> None:
        """Complete `parked` when the HW reaches `required_hw`, or when that cannot happen any more."""
        queue = self.queue
        if queue is None:
            queue = self.queue = deque()
        if not queue or queue[-1][0] <= required_hw:
            queue.append((required_hw, parked, index))
            return
        later = []
        while queue and queue[-1][0] > required_hw:
            later.append(queue.pop())
        queue.append((required_hw, parked, index))
        queue.extend(reversed(later))

    def reached(self, hw: int) -> None:
        """Complete those that required no more."""
        queue = self.queue
        while queue and queue[0][0] <= hw:
            _, parked, index = queue.popleft()
            parked.complete(index, ErrorCode.NONE)

    def forget_done(self) -> None:
        """Let go of produces that timed out; those time out in the order in which they came."""
        while self.queue and self.queue[0][1].done:
            self.queue.popleft()

    def fail(self, error: ErrorCode) -> None:
        """Complete all with an error; one that is parked meanwhile waits for the next leadership. Those stay that the error is
        not the last word for."""
        queue, self.queue = self.queue, None
        stay = []
        for required_hw, parked, index in queue or ():
            if parked.outlasts(error):
                stay.append((required_hw, parked, index))
            parked.complete(index, error)
        for required_hw, parked, index in stay:
            self.park(required_hw, parked, index)

    def check(self, tp: TopicPartition, hw: int | None) -> None:
        """Raise AssertionError when an invariant does not hold. `hw` None: nobody leads."""
        required = [it[0] for it in self.queue or ()]
        if hw is None:
            assert not required, f"{tp}: produces wait for the HWs {required}, and nobody leads"
            return
        assert required == sorted(required), f"{tp}: produces wait for the HWs {required}, out of order"
        assert not required or required[0] > hw, f"{tp}: a produce waits for the HW {required[0]}, it is {hw}"


class Observer(Protocol):
    """A follower's fetch session, which must know what it has not sent yet."""

    def on_append(self, old_leo: int) -> None: ...

    def on_change(self) -> None:
        """The HW, the log start, or the role has changed: tell with the next answer."""
        ...

    def on_doubt(self) -> None:
        """The leader may know less of the follower than the session said: the next fetch counts as if it named this."""
        ...

    def on_moved(self) -> None:
        """The role or the leader epoch changed: whoever waits must be answered at once."""
        ...


def doubt_all(observers: Sequence[Observer]) -> None:
    """Have followers say again where they are: a fetch names only what is new, and a late one may have said less than is so."""
    for observer in observers:
        observer.on_doubt()


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
    if not waiters:
        return
    woken = list(waiters)
    waiters.clear()
    for waiter in woken:
        waiter.wake()
