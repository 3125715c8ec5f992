"""One client connection: bytes in, framed requests out, responses back in the order of their requests.

The receive buffer is the connection's own: requests are parsed in place and record batches reach the log as views into it, so no
view of a frame may be kept beyond the call that delivered it.

Source: docs/PERFORMANCE.md, "Sockets"; CP-01, CP-02, CP-06.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import cast

from kraftlite.log.stored import RecordsGone
from kraftlite.model.principal import ANONYMOUS, Principal
from kraftlite.protocol.errors import ProtocolViolation
from kraftlite.wire.bounds import LINGER_MS, MAX_TASKS, READY_HIGH_BYTES, RUN_NS, RUN_REQUESTS, SHRINK_AFTER_MS
from kraftlite.wire.budgets import SMALL_BUFFER_BYTES, ReceiveBudget
from kraftlite.wire.inbound import IDLE_BUFFER_BYTES, ReceiveBuffer
from kraftlite.wire.muting import Mute
from kraftlite.wire.outbound import PUMP_BYTES, SLICE_BYTES, TIGHT_SLICE_BYTES, Buffer, Outbound, Part, write_all
from kraftlite.wire.slots import ConnectionLimits, ConnectionOwner, Owned, RequestHandler, ResponseSlot

__all__ = ["Buffer", "Connection", "ConnectionLimits", "ConnectionOwner", "Owned", "Part", "RequestHandler", "ResponseSlot"]


class Connection(asyncio.BufferedProtocol):
    """One client connection. Runs on the node's loop; nothing here awaits.

    Invariants: responses leave in request order (CP-01); at most `max_in_flight` requests are unanswered, and no request is taken
    while the socket does not take what was answered, or while more than `READY_HIGH_BYTES` of answers wait for an earlier one
    (then the socket is not read); an answer that nobody reads costs a slice of it and what is not in a file; a bad frame closes
    only this connection. When requests are worked on, says `Turns`; how much of a frame may be here, says `ReceiveBudget`.
    """

    def __init__(
        self,
        owner: ConnectionOwner[Connection],
        handle: RequestHandler[Connection],
        limits: ConnectionLimits,
        receive_budget: ReceiveBudget | None = None,
    ) -> None:
        """`receive_budget`: the memory that it uses until it is admitted; None: the node's."""
        self._owner, self._handle, self._limits = owner, handle, limits
        self._turns = owner.share.turns
        self._receive_budget = owner.share.receive if receive_budget is None else receive_budget
        self._response_budget = owner.share.responses
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._gathers = False
        self._in = ReceiveBuffer()
        self._slots: deque[ResponseSlot] = deque()
        self._ready_bytes = 0  # of responses that are still in their slots
        self._out = Outbound()
        self._held_bytes = 0  # of answers, as the node's budget knows it
        self._due: deque[Callable[[], None]] = deque()
        self._tasks: list[Owned] = []
        self._corked = self._flush_scheduled = False
        self._reading = self._writable = self._accepting = True
        self._closing = self._ended = False
        self._requests_held = self._responses_held = self._leased = self._waits_for_memory = False
        self._mute = Mute()
        self._reason: str | None = None
        self.peer_host, self.peer_port = "", 0
        self.software = ("unknown", "unknown")  # name and version, as ApiVersions tells them
        self.principal: Principal = ANONYMOUS
        """Set once the client has proved who it is: by a certificate before the connection is made."""
        self.file_number = -1
        self.last_active_ms = 0
        self.lost = False
        # Worker, Receiver and Sender
        self.used_ns = self.window_ns = self.queued_ns = self.waited_ns = 0
        self.queued = False
        self.received = self.sent_ms = 0

    # --- transport callbacks -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's are not subclasses
        self._transport = transport
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple) and len(peer) >= 2:
            self.peer_host, self.peer_port = str(peer[0]), int(peer[1])
        sock = transport.get_extra_info("socket")
        self.file_number = -1 if sock is None else sock.fileno()
        self._gathers = type(transport).__module__.startswith("uvloop")
        self.principal = transport.get_extra_info("principal", ANONYMOUS)
        # Told as soon as the socket does not take everything: what is not handed over stays in its file.
        transport.set_write_buffer_limits(high=0)
        self.last_active_ms = self._owner.now_ms()
        self._turns.welcome()
        if not self._owner.opened(self):
            self._accepting = False
            transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._in.target()

    def buffer_updated(self, nbytes: int) -> None:
        received = self._in
        self.received += nbytes
        received.added(nbytes)
        self.last_active_ms = self._owner.now_ms()
        if received.has_frame():
            self._turns.serve(self)
        elif received.announced <= 4:
            self._learn_size()
        if received.filled or received.capacity > SMALL_BUFFER_BYTES:
            self._make_room()

    def eof_received(self) -> bool:
        """Go on with the requests that have come whole: their sender may want no answer."""
        self._ended = self._accepting and self._in.has_frame()
        return self._ended

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self.sent_ms = self.last_active_ms = self._owner.now_ms()
        self._account()
        self._turns.serve(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._accepting = False
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        self._mute.end()
        self._let_go()
        self._in.drop()
        self._receive_budget.gone(self)
        self._owner.closed(self, self._reason)

    # --- requests ------------------------------------------------------------------------------------------------------

    def open_slot(self) -> ResponseSlot:
        """Claim the next place in the order of responses."""
        slot = ResponseSlot(self)
        self._slots.append(slot)
        return slot

    def own(self, task: Owned, *, will_use_ns: int = 0) -> None:
        """Cancel `task` when the connection goes. `will_use_ns`: about what it will use of the loop by itself."""
        if will_use_ns:
            self._turns.used(self, will_use_ns)
        if self.lost:
            task.cancel()
            return
        self._tasks = [known for known in self._tasks if not known.done()]
        self._tasks.append(task)

    def soon(self, work: Callable[[], None]) -> None:
        """Do this when it is this connection's turn. `work` must not raise. Forgotten when the connection goes."""
        if not self.lost:
            self._due.append(work)
            self._turns.later(self)

    @property
    def in_flight(self) -> int:
        return len(self._slots)

    @property
    def held_bytes(self) -> int:
        """The bytes of answers that the client has not taken."""
        return self._held_bytes

    def fail(self, reason: str) -> None:
        """Close this connection because of `reason`; what is already answered in order is still sent."""
        if self._reason is None and not self.lost:
            self._reason = reason
            self.close()

    def abandon(self, reason: str) -> None:
        """Close it because of `reason`; what it has not taken yet is dropped."""
        if self._reason is None:
            self._reason = reason
        self._let_go()
        self.abort()

    def close(self) -> None:
        """Close after what is answered in order has been sent; the rest after `LINGER_MS` (see `sweep`)."""
        self._accepting = False
        if self._transport is None or self.lost:
            return
        self._closing = True
        self.sent_ms = self._owner.now_ms()
        self._pause_reading()
        self._write_ready()

    def abort(self) -> None:
        self._accepting = False
        if self._transport is not None:
            self._transport.abort()

    def _let_go(self) -> None:
        self._due.clear()
        self._slots.clear()
        self._out.clear()
        self._ready_bytes = 0
        if self._held_bytes:
            self._held_bytes = 0
            self._response_budget.holds(self, 0)

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

    def admit(self, handle: RequestHandler[Connection], limits: ConnectionLimits) -> None:
        """Go on with this handler and these limits: the client has proved who it is."""
        self._handle, self._limits = handle, limits
        before, self._receive_budget = self._receive_budget, self._owner.share.receive
        if before is not self._receive_budget:
            before.gone(self)
            self._receive_budget.holds(self, self._in.capacity)

    def mute(self, delay_ms: int) -> None:
        """Take no request for so long, and do not read; those in flight are still answered (KIP-219)."""
        if not self.lost and self._mute.extend(self._owner, delay_ms, self.unmute):
            self._pause_reading()

    def unmute(self) -> None:
        self._mute.end()
        self.last_active_ms = self._owner.now_ms()
        self._resume()

    def lease_frame(self) -> None:
        """Keep the frame of the request that is being handled: until `return_frame` its bytes stay as they are, and nothing
        else is received or taken from this connection. For work that is done off the loop. The view may outlive the
        connection."""
        self._leased = True
        self._pause_reading()

    def return_frame(self) -> None:
        """Take the leased frame back: no view of it is in use any more."""
        self._leased = False
        if not self.lost:
            self._loop.call_soon(self._resume)

    def sweep(self, now_ms: int, max_idle_ms: int) -> None:
        """Now and then. `max_idle_ms` < 0: it may idle for ever. A connection is active when bytes come, and when its socket
        takes some; with a request in flight it is not idle, unless it does not take its answers."""
        if self._closing:
            if now_ms - self.sent_ms >= LINGER_MS:
                self.abort()
            return
        quiet_ms = now_ms - self.last_active_ms
        if quiet_ms >= SHRINK_AFTER_MS and self._in.start == self._in.end:
            self._shrink_to(IDLE_BUFFER_BYTES)
        if 0 <= max_idle_ms < quiet_ms and not self._waits_for_memory and not self._mute.active:
            if not self._writable:
                self.abandon(f"idle for more than {max_idle_ms} ms with answers that it does not read")
            elif not self._slots:
                self.fail(f"idle for more than {max_idle_ms} ms")

    # --- Worker --------------------------------------------------------------------------------------------------------

    def wants_much(self) -> bool:
        asked = len(self._slots)
        return bool(self._out) or asked > 1 or (asked == 1 and self._in.has_frame()) or self._in.has_two()

    def work(self, until_ns: int) -> bool:
        """Send what is answered, do what is due, take requests, until the time is over. Returns whether there is more to do."""
        if self.lost:
            return False
        self._corked, frames = True, True
        try:
            if self._out and not self._responses_held:
                self._pump()
            while self._due:
                self._due.popleft()()
                if perf_counter_ns() >= until_ns:
                    break
            else:
                frames = self._take_requests(until_ns)
        except ProtocolViolation as violation:
            self.fail(violation.reason)
        finally:
            self._corked = False
        if self.lost:
            return False
        self._write_ready()
        if frames and not self._may_take():
            self._pause_reading()
            frames = False
        elif not frames and self._ended:
            self.close()
        if not self._reading:
            self._make_room()
            self._resume_reading()
        return frames or bool(self._due) or (bool(self._out) and self._writable)

    def _take_requests(self, until_ns: int) -> bool:
        """Hand over whole frames in the buffer, as time and room allow. Returns whether there are more."""
        received, taken = self._in, 0
        while self._may_take():
            frame = received.next_frame(self._limits.max_request_bytes)
            if frame is None:
                return False
            self._handle(self, frame)
            if received.start == received.end:
                received.start = received.end = 0
                return False
            taken += 1
            now = perf_counter_ns()
            if now >= until_ns and (taken >= RUN_REQUESTS or now >= until_ns + RUN_NS):
                break
        return received.has_frame()

    def _may_take(self) -> bool:
        """Return whether the next request may be taken: not while too much is unanswered or unwritten."""
        if not self._accepting or self._leased or self._requests_held or self._out or self._mute.active:
            return False
        if self._has_room():
            return True
        self._write_ready()  # what is answered at the head is not in flight
        return not self._out and self._has_room()

    def _has_room(self) -> bool:
        if not self._writable or self._ready_bytes > READY_HIGH_BYTES or len(self._slots) >= self._limits.max_in_flight:
            return False
        if self._held_bytes > SMALL_BUFFER_BYTES and self._response_budget.tight:
            return False
        if len(self._tasks) >= MAX_TASKS:
            self._tasks = [known for known in self._tasks if not known.done()]
            return len(self._tasks) < MAX_TASKS
        return True

    def _pause_reading(self) -> None:
        if self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()

    def _resume(self) -> None:
        """Go on when something that held up requests has gone."""
        if not self.lost and self._in.has_frame():
            self._turns.serve(self)
        self._resume_reading()

    def _resume_reading(self) -> None:
        """Reads go on while there is room for bytes; whole frames may wait in the buffer."""
        if self._reading or not self._accepting or self.lost or self._requests_held or self._leased or self._ended:
            return
        no_room = self._in.full or self._waits_for_memory or self._mute.active
        if no_room or self._transport is None or self._transport.is_closing():
            return
        if len(self._slots) > self._limits.max_in_flight // 2 or (self._in.has_frame() and not self._may_take()):
            return
        self._reading = True
        self._transport.resume_reading()

    # --- memory for requests -------------------------------------------------------------------------------------------

    def _learn_size(self) -> None:
        """Check the size of a frame that has only begun to come."""
        try:
            self._in.next_frame(self._limits.max_request_bytes)
        except ProtocolViolation as violation:
            self.fail(violation.reason)

    def _make_room(self) -> None:
        """Make room before more is received: larger for a frame that fills the buffer, or for speed; else the socket waits."""
        received = self._in
        if received.full:
            if received.has_frame():
                self._pause_reading()
            else:
                self._grow(received.greater(), wait=True)
        elif received.start == received.end and received.capacity > SMALL_BUFFER_BYTES and self._receive_budget.pressed():
            self.shrink()
        elif not self.queued and not self._leased and not received.has_frame() and (faster := received.faster()):
            self._grow(faster, wait=False)

    def _grow(self, capacity: int, *, wait: bool) -> None:
        if self._leased:
            self._pause_reading()
            return
        self._waits_for_memory = wait
        if capacity <= SMALL_BUFFER_BYTES or self._receive_budget.may_hold(self, capacity, wait=wait):
            self._waits_for_memory = False
            if self._in.capacity < capacity:
                self._in.resize(capacity)
        elif wait:
            self._pause_reading()

    def granted(self) -> None:
        self._waits_for_memory = False
        if self.lost:
            return
        self._in.resize(self._in.greater())
        self._loop.call_soon(self._resume_reading)

    def shrink(self) -> None:
        if self._in.length <= SMALL_BUFFER_BYTES // 2 and not self._waits_for_memory:
            self._shrink_to(SMALL_BUFFER_BYTES)

    def _shrink_to(self, capacity: int) -> None:
        if self._in.capacity > capacity and not self.lost and not self._leased:
            self._in.resize(capacity)
            self._receive_budget.holds(self, capacity)

    # --- responses -----------------------------------------------------------------------------------------------------

    def slot_filled(self, size: int) -> None:
        self._ready_bytes += size
        if not self._corked and not self._flush_scheduled and not self.lost:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Write what got answered outside of the connection's turn."""
        self._flush_scheduled = False
        if self._corked or self.lost:
            return
        self._write_ready()
        if self._out and self._writable:
            self._turns.later(self)
        elif not self._reading or self._in.has_frame():
            self._resume()

    def _write_ready(self) -> None:
        """Hand the answers at the head to the socket, as far as it takes them."""
        slots = self._slots
        if slots and slots[0].done and not self._responses_held:
            at_once: list[Buffer] = []
            timed = []
            while slots and slots[0].done:
                slot = slots.popleft()
                self._ready_bytes -= slot.size
                if slot.timing is not None:
                    slot.timing.leave()
                    timed.append(slot.timing)
                if slot.parts is None:
                    continue
                if slot.stored or self._out or not self._writable:
                    self._out.extend(at_once)
                    at_once = []
                    self._out.extend(slot.parts)
                else:
                    at_once.extend(slot.parts)  # type: ignore[arg-type]
            transport = self._transport
            if at_once and transport is not None and not transport.is_closing():
                self.last_active_ms = self._owner.now_ms()
                write_all(transport, at_once, self._gathers)
                if not self._writable:
                    self._account()
            elif self._out:
                self._pump()
            for timing in timed:
                timing.sent()
        if self._held_bytes or self._ready_bytes > SMALL_BUFFER_BYTES:
            self._account()
        if self._closing:
            self._close_when_sent()

    def _close_when_sent(self) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing() and (not self._out or self._responses_held):
            transport.close()

    def _pump(self) -> None:
        """Hand to the socket what it takes, slice by slice, at most about `PUMP_BYTES`."""
        transport, left = self._transport, PUMP_BYTES
        if transport is None or transport.is_closing():
            self._out.clear()
            return
        size = TIGHT_SLICE_BYTES if self._response_budget.tight else SLICE_BYTES
        try:
            while self._out and self._writable and left > 0:
                write_all(transport, self._out.take(size), self._gathers)
                left -= size
        except (OSError, RecordsGone) as error:
            self.abandon(f"what it fetched cannot be read: {error}")
            return
        self.last_active_ms = self._owner.now_ms()
        if self._out or not self._writable:
            self._account()

    def _account(self) -> None:
        """Tell the node's budget what is held for this connection."""
        transport = self._transport
        held = self._ready_bytes + self._out.in_memory()
        if transport is not None and not self._writable:
            held += transport.get_write_buffer_size()
        if held != self._held_bytes and not self.lost:
            self._held_bytes = held
            self._response_budget.holds(self, held)
