"""The memory that the connections of a node may hold together: bytes that have come, and bytes that are to go (CP-69)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from kraftlite.model.limits import KIB, MIB

SMALL_BUFFER_BYTES: Final = 64 * KIB
"""A receive buffer of this size needs no leave: ordinary clients go on, whatever others hold."""
RECEIVE_BUDGET_BYTES: Final = 256 * MIB
"""The bound of the larger ones of a node together, where `queued.max.request.bytes` is not set."""
PATIENCE_MS: Final = 10_000
MIN_PROGRESS_BYTES: Final = 64 * KIB
MIN_PROGRESS_PART: Final = 32
"""While others wait for memory, a partial frame must get 64 KiB and a thirty-second of its buffer in 10 s."""
RESPONSE_BUDGET_BYTES: Final = 64 * MIB
"""The memory of the answers of a node that are made and not taken by their clients' sockets, before reading slows down."""
UNREAD_PATIENCE_MS: Final = 30_000


class Receiver(Protocol):
    """A connection, as its node's memory for requests sees it."""

    received: int

    def granted(self) -> None:
        """Called when the memory that it waits for is there: it takes what it needs now."""
        ...

    def shrink(self) -> None:
        """Give back what holds no bytes."""
        ...

    def fail(self, reason: str) -> None: ...


class _Held:
    __slots__ = ("bytes", "received", "since_ms")

    def __init__(self, since_ms: int) -> None:
        self.bytes = 0
        self.received = 0
        self.since_ms = since_ms


class ReceiveBudget:
    """Memory for requests that are only partly here. `limit` bounds all receive buffers beyond `SMALL_BUFFER_BYTES` together.

    Who needs more than is left waits, first come, first served, without reading its socket. The first that waits may always go on
    once nobody else is in that place, beyond the limit if need be: else frames that are all half here would wait for each other.
    So a node holds `limit` and one frame of the greatest size. While somebody waits, holders that do not fill what they hold
    (`MIN_PROGRESS_BYTES`, `MIN_PROGRESS_PART`) are closed, those whose bytes we do not read excepted.
    """

    def __init__(self, limit: int, now_ms: Callable[[], int]) -> None:
        self.limit = limit
        self._now_ms = now_ms
        self.held_bytes = 0
        self._holders: dict[Receiver, _Held] = {}
        self._waiting: dict[Receiver, int] = {}
        self._first: Receiver | None = None
        """The connection that may go beyond the limit."""

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def pressed(self) -> bool:
        """Return whether empty buffers should be given back now, and not when they have been idle for long."""
        return bool(self._waiting) or self._first is not None or 2 * self.held_bytes > self.limit

    def may_hold(self, receiver: Receiver, capacity: int, *, wait: bool) -> bool:
        """Take note that its buffer will have `capacity`, if there is room. With `wait` it is told when there is."""
        held = self._holders.get(receiver)
        extra = capacity - SMALL_BUFFER_BYTES - (0 if held is None else held.bytes)
        if extra <= 0 or receiver is self._first or (self.held_bytes + extra <= self.limit and not self._waiting):
            self.holds(receiver, capacity)
            return True
        if wait:
            if not self._waiting:
                self._reclaim()
            self._waiting[receiver] = extra
            self._serve_waiting()
            return receiver not in self._waiting
        return False

    def holds(self, receiver: Receiver, capacity: int) -> None:
        """Note that its buffer has `capacity` now; 0 when it is gone."""
        extra = max(0, capacity - SMALL_BUFFER_BYTES)
        held = self._holders.get(receiver)
        if held is None:
            if not extra:
                return
            held = self._holders[receiver] = _Held(self._now_ms())
            held.received = receiver.received
        fewer = extra < held.bytes
        self.held_bytes += extra - held.bytes
        held.bytes = extra
        if not extra:
            del self._holders[receiver]
            if receiver is self._first:
                self._first = None
        if fewer and self._waiting:
            self._serve_waiting()

    def gone(self, receiver: Receiver) -> None:
        self._waiting.pop(receiver, None)
        if receiver is self._first:
            self._first = None
        self.holds(receiver, 0)
        if self._waiting:
            self._serve_waiting()

    def sweep(self) -> None:
        """Now and then: whoever holds memory that others wait for, and does not use it, is closed."""
        now_ms = self._now_ms()
        for receiver, held in list(self._holders.items()):
            got = receiver.received - held.received
            if got >= max(MIN_PROGRESS_BYTES, held.bytes // MIN_PROGRESS_PART) or receiver in self._waiting or not self._waiting:
                held.since_ms, held.received = now_ms, receiver.received
            elif now_ms - held.since_ms >= PATIENCE_MS:
                receiver.fail(f"{got} bytes came in {now_ms - held.since_ms} ms for a frame that holds memory others wait for")
        if self._waiting:
            self._reclaim()

    def _reclaim(self) -> None:
        for receiver in list(self._holders):
            receiver.shrink()

    def _serve_waiting(self) -> None:
        while self._waiting:
            receiver, extra = next(iter(self._waiting.items()))
            if self.held_bytes + extra > self.limit:
                if self._first is not None:
                    return
                self._first = receiver
            del self._waiting[receiver]
            held = self._holders.get(receiver)
            self.holds(receiver, SMALL_BUFFER_BYTES + extra + (0 if held is None else held.bytes))
            receiver.granted()


class Sender(Protocol):
    """A connection, as its node's memory for answers sees it."""

    sent_ms: int
    """The time at which its socket last took something, or an answer was first held for it."""

    def abandon(self, reason: str) -> None:
        """Close it without sending the rest."""
        ...


class ResponseBudget:
    """Answers that are made and wait for their clients' sockets. Records in files cost nothing here, only the slice of them that
    was read.

    Above `limit` (`tight`) slices are small, no request is taken from a connection that holds more than `SMALL_BUFFER_BYTES`, and
    who has taken nothing for `UNREAD_PATIENCE_MS` is closed. Above twice the limit who has taken nothing for longest is closed
    at once, until it fits. Memory is given back in the same call.
    """

    def __init__(self, limit: int, now_ms: Callable[[], int]) -> None:
        self.limit = limit
        self._now_ms = now_ms
        self.held_bytes = 0
        self._holders: dict[Sender, int] = {}

    @property
    def tight(self) -> bool:
        return self.held_bytes > self.limit

    def holds(self, sender: Sender, size: int) -> None:
        """Note how much the connection has to send now."""
        before = self._holders.get(sender, 0)
        if size:
            if not before:
                sender.sent_ms = self._now_ms()
            self._holders[sender] = size
        elif before:
            del self._holders[sender]
        self.held_bytes += size - before
        if size > before and self.held_bytes > 2 * self.limit:
            self._shed(sorted(self._holders, key=lambda holder: holder.sent_ms), 2 * self.limit)

    def sweep(self) -> None:
        if self.tight:
            since = self._now_ms() - UNREAD_PATIENCE_MS
            late = [holder for holder in self._holders if holder.sent_ms <= since]
            self._shed(sorted(late, key=lambda holder: self._holders[holder], reverse=True), self.limit)

    def _shed(self, victims: list[Sender], limit: int) -> None:
        for victim in victims:
            if self.held_bytes <= limit:
                return
            held = self._holders.get(victim)
            if held is not None:
                victim.abandon(f"{held} bytes of answers are not read, and {self.held_bytes} are held for all connections")
