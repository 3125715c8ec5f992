"""The arguments with which a connection is made, and the places of its answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kraftlite.log.stored import StoredRecords
from kraftlite.model.limits import MAX_IN_FLIGHT_PER_CONNECTION
from kraftlite.runtime.ports import TimerHandle
from kraftlite.wire.outbound import Part, memory_of
from kraftlite.wire.request_times import Timing
from kraftlite.wire.share import NodeShare

C = TypeVar("C", contravariant=True)
"""The connection, as those see it who answer its requests (`kraftlite.wire.frames`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    max_request_bytes: int
    max_in_flight: int = MAX_IN_FLIGHT_PER_CONNECTION


class Owned(Protocol):
    """A resource that ends with its connection."""

    def cancel(self) -> object: ...

    def done(self) -> bool: ...


class RequestHandler(Protocol[C]):
    """The part that answers the requests of a connection."""

    def __call__(self, connection: C, frame: memoryview) -> None:
        """One request, without its size prefix. Raises ProtocolViolation to have the connection closed. Must not keep `frame`."""
        ...


class ConnectionOwner(Protocol[C]):
    """The part that holds the connections of a listener."""

    def opened(self, connection: C) -> bool:
        """Take a new connection. False: it is one too many, and is closed at once."""
        ...

    def closed(self, connection: C, reason: str | None) -> None:
        """`reason` is None when the peer went or the node is stopping."""
        ...

    def now_ms(self) -> int: ...

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> TimerHandle: ...

    @property
    def share(self) -> NodeShare:
        """The resources that its connections share with all others of the node."""
        ...


class SlotOwner(Protocol):
    """The part that sends what is in the slots, in their order."""

    def slot_filled(self, size: int) -> None:
        """`size`: how many bytes of the answer are in memory."""
        ...

    def fail(self, reason: str) -> None: ...


class ResponseSlot:
    """The place of one response in the order of its connection. Filled once: `send`, `skip`, or `fail`."""

    __slots__ = ("_connection", "done", "parts", "size", "stored", "timing")

    def __init__(self, connection: SlotOwner) -> None:
        self._connection = connection
        self.parts: Sequence[Part] | None = None
        self.done = False
        self.size = 0
        """Bytes of the answer that are in memory."""
        self.stored = False
        """True when some of it is still in files."""
        self.timing: Timing | None = None
        """None: nobody wants to know."""

    def send(self, parts: Sequence[Part]) -> None:
        """The whole frame, size prefix included. The parts must not change afterwards. Ignored when the connection has gone."""
        self.parts = parts
        self.done = True
        if self.timing is not None:
            self.timing.answered()
        if len(parts) == 1:
            self.size = len(parts[0])  # records never come alone
        else:
            self.size = memory_of(parts)
            self.stored = any(isinstance(part, StoredRecords) for part in parts)
        self._connection.slot_filled(self.size)

    def skip(self) -> None:
        """The request has no response (RP-01)."""
        self.done = True
        if self.timing is not None:
            self.timing.answered()
        self._connection.slot_filled(0)

    def fail(self, reason: str) -> None:
        """The request cannot be answered: close the connection."""
        self.done = True
        self._connection.fail(reason)
