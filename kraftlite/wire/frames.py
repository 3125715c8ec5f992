"""One client connection: bytes in, framed requests out, responses back in the order of their requests.

The receive buffer is the connection's own: requests are parsed in place and record batches reach the log as views into it, so no
view of a frame may be kept beyond the call that delivered it.

Source: performance.md §1 and "Design recommendations" 1 and 3; CP-01, CP-02, CP-06.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, cast

from kraftlite.model.limits import KIB, MAX_IN_FLIGHT_PER_CONNECTION, MIB
from kraftlite.runtime.ports import TaskHandle
from kraftlite.wire.errors import ProtocolViolation
from kraftlite.wire.primitives import INT32

Buffer = bytes | bytearray | memoryview

IDLE_BUFFER_BYTES: Final = 16 * KIB
"""What a quiet connection holds."""
BUSY_BUFFER_BYTES: Final = 2 * MIB
"""How far the buffer grows for throughput alone; a larger frame takes what it needs, step by step as its bytes arrive."""
SHRINK_AFTER_MS: Final = 10_000
WRITE_HIGH_BYTES: Final = 8 * MIB
WRITE_LOW_BYTES: Final = 2 * MIB
LARGE_WRITE_BYTES: Final = 64 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    max_request_bytes: int
    max_in_flight: int = MAX_IN_FLIGHT_PER_CONNECTION


class RequestHandler(Protocol):
    """Who answers the requests of a connection."""

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        """One request, without its size prefix. Raises ProtocolViolation to have the connection closed. Must not keep `frame`."""
        ...


class ConnectionOwner(Protocol):
    """Who holds the connections of a listener."""

    def opened(self, connection: Connection) -> bool:
        """False: one connection too many, it is closed at once."""
        ...

    def closed(self, connection: Connection, reason: str | None) -> None:
        """`reason` is None when the peer went or the node is stopping."""
        ...

    def now_ms(self) -> int: ...


class ResponseSlot:
    """The place of one response in the order of its connection. Filled once: `send`, `skip`, or `fail`."""

    __slots__ = ("_connection", "done", "parts")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.parts: Sequence[Buffer] | None = None
        self.done = False

    def send(self, parts: Sequence[Buffer]) -> None:
        """The whole frame, size prefix included. The parts must not change afterwards. Ignored when the connection has gone."""
        self.parts = parts
        self.done = True
        self._connection.slot_filled(sum(map(len, parts)))

    def skip(self) -> None:
        """The request has no response (RP-01)."""
        self.done = True
        self._connection.slot_filled(0)

    def fail(self, reason: str) -> None:
        """The request cannot be answered: close the connection."""
        self.done = True
        self._connection.fail(reason)


class Connection(asyncio.BufferedProtocol):
    """One client connection. Runs on the node's loop; nothing here awaits.

    Invariants: responses leave in request order (CP-01); at most `max_in_flight` requests are unanswered, and no request is taken
    while more than `WRITE_HIGH_BYTES` of responses wait, for the socket or for an earlier response (then the socket is not read);
    a bad frame closes only this connection.
    """

    def __init__(self, owner: ConnectionOwner, handle: RequestHandler, limits: ConnectionLimits) -> None:
        self._owner = owner
        self._handle = handle
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._gathers = False
        self._buffer = memoryview(bytearray(IDLE_BUFFER_BYTES))
        self._start = 0
        self._end = 0
        self._frame_bytes = 0  # of the frame that is only partly here; 0 when its size is not known
        self._grow = False
        self._slots: deque[ResponseSlot] = deque()
        self._ready_bytes = 0  # of responses that are still in their slots
        self._tasks: list[TaskHandle] = []
        self._corked = False
        self._flush_scheduled = False
        self._reading = True
        self._writable = True
        self._accepting = True
        self._requests_held = False
        self._responses_held = False
        self._leased = False
        self._reason: str | None = None
        self.peer_host = ""
        self.peer_port = 0
        self.last_active_ms = 0
        self.lost = False

    # --- transport callbacks -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's are not subclasses
        self._transport = transport
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple) and len(peer) >= 2:
            self.peer_host, self.peer_port = str(peer[0]), int(peer[1])
        # uvloop gathers into one writev; asyncio joins (3.11), so there large parts are written by themselves.
        self._gathers = type(transport).__module__.startswith("uvloop")
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES, low=WRITE_LOW_BYTES)
        self.last_active_ms = self._owner.now_ms()
        if not self._owner.opened(self):
            self._accepting = False
            transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        needed = self._frame_bytes
        capacity = len(self._buffer)
        full = self._end - self._start == capacity
        if self._grow or full or capacity < min(needed, BUSY_BUFFER_BYTES):
            self._resize(self._next_capacity(capacity, needed))
        elif self._start and (self._start + needed > capacity or self._end == capacity):
            self._move_to(self._buffer)
        return self._buffer[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        if self._end == len(self._buffer) and self._end < BUSY_BUFFER_BYTES:
            self._grow = True
        self.last_active_ms = self._owner.now_ms()
        self._process()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._loop.call_soon(self._resume)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._accepting = False
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        self._slots.clear()
        self._buffer = memoryview(bytearray())
        self._owner.closed(self, self._reason)

    # --- requests ------------------------------------------------------------------------------------------------------

    def open_slot(self) -> ResponseSlot:
        """Claim the next place in the order of responses."""
        slot = ResponseSlot(self)
        self._slots.append(slot)
        return slot

    def own(self, task: TaskHandle) -> None:
        """Cancel `task` when the connection goes."""
        if self.lost:
            task.cancel()
            return
        self._tasks = [known for known in self._tasks if not known.done()]
        self._tasks.append(task)

    @property
    def in_flight(self) -> int:
        return len(self._slots)

    def fail(self, reason: str) -> None:
        """Close this connection because of `reason`; what is already answered in order is still sent."""
        if self._reason is None and not self.lost:
            self._reason = reason
            self.close()

    def close(self) -> None:
        self._accepting = False
        if self._transport is not None and not self.lost:
            self._write_ready()
            self._transport.close()

    def abort(self) -> None:
        self._accepting = False
        if self._transport is not None:
            self._transport.abort()

    def stop_accepting(self) -> None:
        """Take no further request; those in flight are still answered."""
        self._accepting = False
        self._pause_reading()

    def hold(self, *, requests: bool, responses: bool) -> None:
        """Do not read, or do not write, until told otherwise: as over a network that is cut. For the injection of faults."""
        self._requests_held, self._responses_held = requests, responses
        if requests:
            self._pause_reading()
        self._flush()

    def lease_frame(self) -> None:
        """Keep the frame of the request that is being handled: until `return_frame` its bytes stay as they are, and nothing
        else is received or taken from this connection. For work that is done off the loop. The view may outlive the
        connection."""
        self._leased = True
        self._pause_reading()

    def return_frame(self) -> None:
        """No view of the leased frame is in use any more."""
        self._leased = False
        if not self.lost:
            self._loop.call_soon(self._resume)

    def shrink_if_idle(self, now_ms: int) -> None:
        if self._leased:
            return
        idle = now_ms - self.last_active_ms >= SHRINK_AFTER_MS
        if idle and self._start == self._end and len(self._buffer) > IDLE_BUFFER_BYTES and not self.lost:
            self._resize(IDLE_BUFFER_BYTES)

    def _process(self) -> None:
        """Hand over every whole frame in the buffer, then write what got answered: one write per loop turn."""
        self._corked = True
        try:
            while self._accepting and not self._leased and self._may_take_request():
                frame = self._next_frame()
                if frame is None:
                    break
                self._handle(self, frame)
        except ProtocolViolation as violation:
            self.fail(violation.reason)
        finally:
            self._corked = False
        if self._start == self._end:
            self._start = self._end = 0
        self._flush()

    def _next_frame(self) -> memoryview | None:
        start, available = self._start, self._end - self._start
        if available < 4:
            self._frame_bytes = 4
            return None
        (size,) = INT32.unpack_from(self._buffer, start)
        if size < 0 or size > self._limits.max_request_bytes:
            raise ProtocolViolation(f"frame of {size} bytes: allowed is 0 to {self._limits.max_request_bytes}")
        if available < size + 4:
            self._frame_bytes = size + 4
            return None
        self._frame_bytes = 0
        self._start = end = start + 4 + size
        return self._buffer[start + 4 : end]

    def _may_take_request(self) -> bool:
        """Back-pressure: stop reading the socket while too much is unanswered or unwritten."""
        if self._requests_held:
            self._pause_reading()
            return False
        if self._has_room():
            return True
        self._write_ready()  # what is answered at the head is not in flight
        if self._has_room():
            return True
        self._pause_reading()
        return False

    def _has_room(self) -> bool:
        return self._writable and self._ready_bytes <= WRITE_HIGH_BYTES and len(self._slots) < self._limits.max_in_flight

    def _pause_reading(self) -> None:
        if self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._reading or not self._accepting or self.lost or not self._writable or self._requests_held or self._leased:
            return
        if self._transport is None or self._transport.is_closing():
            return
        if len(self._slots) > self._limits.max_in_flight // 2 or self._ready_bytes > WRITE_HIGH_BYTES:
            return
        self._reading = True
        self._transport.resume_reading()
        self._process()

    # --- buffer --------------------------------------------------------------------------------------------------------

    @staticmethod
    def _next_capacity(capacity: int, needed: int) -> int:
        """Double; up to the busy size at once for a frame that needs it; beyond, a frame's announced size is not trusted."""
        if needed > BUSY_BUFFER_BYTES:
            return min(needed, max(capacity * 2, BUSY_BUFFER_BYTES))
        return 1 << (max(capacity * 2, needed) - 1).bit_length()

    def _resize(self, capacity: int) -> None:
        self._grow = False
        self._move_to(memoryview(bytearray(max(capacity, self._end - self._start + 1))))

    def _move_to(self, target: memoryview) -> None:
        length = self._end - self._start
        target[:length] = self._buffer[self._start : self._end]
        self._buffer, self._start, self._end = target, 0, length

    # --- responses -----------------------------------------------------------------------------------------------------

    def slot_filled(self, size: int) -> None:
        self._ready_bytes += size
        if not self._corked and not self._flush_scheduled and not self.lost:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self._corked or self.lost:
            return
        self._write_ready()
        if not self._reading and self._accepting:
            self._resume()

    def _write_ready(self) -> None:
        if self._responses_held:
            return
        slots = self._slots
        out: list[Buffer] = []
        while slots and slots[0].done:
            parts = slots.popleft().parts
            if parts is not None:
                out.extend(parts)
        if not slots:
            self._ready_bytes = 0
        elif out:
            self._ready_bytes -= sum(map(len, out))
        transport = self._transport
        if not out or transport is None or transport.is_closing():
            return
        self.last_active_ms = self._owner.now_ms()
        if self._gathers:
            transport.writelines(out)
        else:
            write_gathered(transport.write, out)


def write_gathered(write: Callable[[Buffer], None], parts: Sequence[Buffer]) -> None:
    """Join what is small, write what is large by itself: no copy of records."""
    small: list[Buffer] = []
    for part in parts:
        if len(part) < LARGE_WRITE_BYTES:
            small.append(part)
            continue
        if small:
            write(b"".join(small))
            small = []
        write(part)
    if small:
        write(b"".join(small))
