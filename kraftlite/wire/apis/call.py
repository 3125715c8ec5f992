"""One request on its way through an API, and the entry of an API in the table."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.model.acls import REFUSALS, Operation, ResourceType
from kraftlite.model.errors import ErrorCode, Fault
from kraftlite.model.limits import KIB
from kraftlite.model.messages.requester import RequesterInfo
from kraftlite.model.principal import Principal, Requester
from kraftlite.protocol.errors import ProtocolViolation
from kraftlite.protocol.primitives import response_head
from kraftlite.runtime.begun import begin
from kraftlite.runtime.trace.wire import RequestFailed
from kraftlite.security.gate import Rights
from kraftlite.wire.frames import Connection, Part, ResponseSlot
from kraftlite.wire.metering import Meter

T = TypeVar("T")

AT_ONCE_BYTES: Final = KIB
"""A request of up to this size is decoded where it arrives; a larger one waits for its turn."""
OFF_LOOP_BYTES: Final = 8 * KIB
"""A request that is larger still is decoded off the loop: the worst of this size costs some 20 ms."""
OFF_LOOP_ITEMS: Final = 400
"""A response of more entries and values of lists than this is encoded off the loop."""
STACK_FRAMES: Final = 30
COLD_ANSWER_NS: Final = 500_000
"""About what the answer of a cold API uses of the loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API: what is advertised is exactly `min_version` to `max_version` (CP-04).

    `handle` must have taken all it needs from the frame when it returns; it answers then or later through the call.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int
    """First version with a flexible header, one beyond `max_version` when there is none."""
    handle: Callable[[Call], None]
    needs: tuple[Need, ...] = ()
    """The operations that a client must be allowed (SE-40); a listener takes them from the table in `wire/rights`."""
    guard: Guard | None = None
    """Decides it for an API of `cold`; None: `handle` does, or the controller, or there is nothing to decide."""
    prepare: Prepare | None = None
    """Done with a request of `cold` before anything is decided or answered."""


class Need(NamedTuple):
    """One operation on one type of resource."""

    operation: Operation
    resource: ResourceType

    @property
    def refusal(self) -> ErrorCode:
        """Return the code that a client is told which lacks it."""
        return REFUSALS[self.resource]


class Call:
    """A request whose header is read: `frame[pos:]` is its body, valid only while `Api.handle` runs."""

    __slots__ = (
        "_client_id",
        "api",
        "connection",
        "correlation_id",
        "ctx",
        "frame",
        "listener",
        "meter",
        "pos",
        "slot",
        "version",
    )

    def __init__(
        self,
        ctx: BrokerContext,
        listener: str,
        connection: Connection,
        slot: ResponseSlot,
        api: Api,
        version: int,
        correlation_id: int,
        client_id: bytes | None,
        frame: memoryview,
        pos: int,
    ) -> None:
        self.ctx = ctx
        self.listener = listener
        self.connection = connection
        self.slot = slot
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self._client_id = client_id
        self.frame = frame
        self.pos = pos
        self.meter: Meter | None = None
        """None: no quota is set."""

    @property
    def client_id(self) -> str | None:
        return None if self._client_id is None else self._client_id.decode("utf-8", "replace")

    @property
    def principal(self) -> Principal:
        return self.connection.principal

    @property
    def requester(self) -> Requester:
        """The client that asks, as ACLs and quotas see it."""
        connection = self.connection
        return Requester(connection.principal, connection.peer_host.removeprefix("::ffff:"), self.client_id)

    @property
    def rights(self) -> Rights | None:
        """The client's rights in this request; None where there is no authorizer, and everybody may do everything."""
        gate = self.ctx.gate
        return None if gate is None else gate.rights(self.requester, self.api.name)

    @property
    def on_behalf(self) -> RequesterInfo:
        """The client, as the controller is told of it."""
        return RequesterInfo.of(self.requester)

    @property
    def is_large(self) -> bool:
        """True when decoding the request here and now could take too long: then `large` does it."""
        return len(self.frame) > AT_ONCE_BYTES

    def send(self, parts: Sequence[Part]) -> None:
        """Send a whole frame."""
        if self.meter is not None:
            parts = self.meter.answered(parts, self.version, 9 if self.version >= self.api.flexible_from else 8)
        self.slot.send(parts)

    def note_errors(self, errors: Counter[str]) -> None:
        """Count errors that the answer tells, by name, where somebody wants to know."""
        if errors and self.slot.timing is not None:
            self.slot.timing.refused(errors)

    def note_error(self, error: ErrorCode) -> None:
        """Do as `note_errors`, of one error; NONE is none. What is answered well does not call it, and pays nothing."""
        if error is not ErrorCode.NONE:
            self.note_errors(Counter((error.name,)))

    def send_body(self, body: bytes) -> None:
        """Send a response body behind its header."""
        self.send((response_head(self.correlation_id, len(body), self.version >= self.api.flexible_from), body))

    def throttle(self, wait_ms: int) -> None:
        """Read nothing more of this connection for so long; who answers says it."""
        if wait_ms > 0:
            self.connection.mute(wait_ms)
            if self.meter is not None:
                self.meter.waits(wait_ms)

    def spawn(self, answering: Callable[[], Awaitable[None]], name: str, *, will_use_ns: int = 0) -> None:
        """Answer here and now, or, if that has to wait for something, from a task of the connection. What goes wrong in it costs
        this request, unless it is a fault."""
        work = self._answer_guarded(answering)
        rest = begin(self.ctx.ports.tasks, work if self.meter is None else self.meter.timed(work), name=name)
        if rest is not None:
            self.connection.own(rest, will_use_ns=will_use_ns)

    async def _answer_guarded(self, answering: Callable[[], Awaitable[None]]) -> None:
        try:
            await answering()
        except Exception as error:  # noqa: BLE001 - the top of a request's task, see docs/adr/0005
            self.failed(error)
        finally:
            if not self.slot.done:
                self.slot.fail(f"{self.api.name} was not answered")

    def guarded(self, work: Callable[[], None]) -> Callable[[], None]:
        """Run what is done later, out of somebody else's turn: what goes wrong in it costs this request."""

        def run() -> None:
            if self.meter is not None:
                self.meter.enter()
            try:
                work()
            except Exception as error:  # noqa: BLE001 - see docs/adr/0005
                self.failed(error)
            if self.meter is not None:
                self.meter.leave()

        return run

    def failed(self, error: Exception) -> None:
        """Deal with a request that ended in an exception: a fault stops the node, a violation closes the connection, and
        anything else is a bug that costs this request alone (docs/adr/0005)."""
        if isinstance(error, Fault):
            self.ctx.ports.fault(error, f"wire.{self.api.name}")
            self.slot.fail(f"{self.api.name} failed")
            return
        if isinstance(error, ProtocolViolation):
            self.slot.fail(error.reason)
            return
        self.ctx.ports.tracer.emit(
            RequestFailed(
                listener=self.listener,
                peer=f"{self.connection.peer_host}:{self.connection.peer_port}",
                api=self.api.name,
                version=self.version,
                error=f"{type(error).__name__}: {error}"[:1000],
                trace="".join(traceback.format_exception(error, limit=-STACK_FRAMES)),
            )
        )
        if self.slot.done:
            return
        self.note_error(ErrorCode.UNKNOWN_SERVER_ERROR)
        body = refusal(self.api.key, self.version)
        if body is None:
            self.slot.fail(f"{self.api.name} failed: {type(error).__name__}")
        else:
            self.send_body(body)

    async def leased(
        self, parse: Callable[[memoryview, int, int], T], *, waits: bool, then: Callable[[T], Awaitable[None]]
    ) -> None:
        """Decode a large request in its turn, or off the loop, with its frame leased, and go on with `then`.

        The memory of all large requests that are worked on is bounded; what `waits` for others gives its place back first.
        """
        size = len(self.frame)
        place = None
        frame, self.frame = self.frame, memoryview(b"")
        try:
            try:
                place = await self.ctx.large_requests.enter(size)
                if size <= OFF_LOOP_BYTES:
                    await self.ctx.turns.next()
                    request = parse(frame, self.pos, self.version)
                else:
                    request = await self.ctx.off_loop.run(size, lambda: parse(frame, self.pos, self.version))
            finally:
                self.connection.return_frame()
            if waits:
                place.leave()
            await then(request)
        finally:
            if place is not None:
                place.leave()


def refusal(key: int, version: int) -> bytes | None:
    """The body of a response that says UNKNOWN_SERVER_ERROR and nothing else; None where one has no such place."""
    from kraftlite.protocol.kio_codec import refused_response

    return refused_response(key, version)


class Adapter(Protocol):
    """Turns a decoded request into the values of its response (see `kio_codec.encode_response`)."""

    def __call__(self, call: Call, request: Any) -> Awaitable[Mapping[str, object]]: ...


Prepare: TypeAlias = "Callable[[Call, Any], Awaitable[Any]]"
"""Gives the request that is answered instead, of the same type."""
Guard: TypeAlias = "Callable[[Call, Rights, Any, Adapter], Awaitable[Mapping[str, object]]]"
"""Hands the part of a request that is allowed to the adapter, and puts the refusals into its answer."""


class HandCodec(NamedTuple):
    """Small messages that are read and written by hand up to a version; larger ones go through kio, which can do it elsewhere.
    What `parse` gives has kio's fields, and `encode` takes the values that kio takes."""

    up_to: int
    parse: Callable[[memoryview, int, int], Any]
    encode: Callable[[int, Mapping[str, Any]], bytes]


def cold(
    key: int,
    name: str,
    *,
    versions: tuple[int, int],
    flexible_from: int,
    adapt: Adapter,
    waits: bool = False,
    by_hand: HandCodec | None = None,
    prepare: Prepare | None = None,
) -> Api:
    """An API whose messages go through kio, or `by_hand`; answered at once, or from a task of its connection.

    `waits`: for other clients, as long as they please (`Call.leased`).
    """

    def parse(frame: memoryview, pos: int, version: int) -> Any:
        from kraftlite.protocol.kio_codec import decode_request

        return decode_request(key, version, frame, pos)

    def handle(call: Call) -> None:
        if call.is_large:
            call.connection.lease_frame()
            call.spawn(
                lambda: call.leased(parse, waits=waits, then=lambda it: _answer(call, it, adapt)),
                task_name,
                will_use_ns=COLD_ANSWER_NS,
            )
            return
        codec = by_hand if by_hand is not None and call.version <= by_hand.up_to else None
        request = (codec.parse if codec is not None else parse)(call.frame, call.pos, call.version)
        call.frame = memoryview(b"")
        call.spawn(lambda: _answer(call, request, adapt, codec), task_name, will_use_ns=COLD_ANSWER_NS)

    task_name = f"kafka-{name}"
    return Api(
        key=key,
        name=name,
        min_version=versions[0],
        max_version=versions[1],
        flexible_from=flexible_from,
        handle=handle,
        prepare=prepare,
    )


async def _answer(call: Call, request: Any, adapt: Adapter, codec: HandCodec | None = None) -> None:
    rights, guard, prepare = call.rights, call.api.guard, call.api.prepare
    if prepare is not None:
        request = await prepare(call, request)
    values = await (adapt(call, request) if rights is None or guard is None else guard(call, rights, request, adapt))
    counts = call.slot.timing is not None
    if codec is not None:
        if counts:
            call.note_errors(errors_in(values))
        call.send_body(codec.encode(call.version, values))
        return
    from kraftlite.protocol.kio_codec import encode_response, entries_in

    def encode() -> tuple[bytes, Counter[str]]:
        return encode_response(call.api.key, call.version, values), errors_in(values) if counts else Counter()

    entries = entries_in(values, OFF_LOOP_ITEMS)
    body, errors = encode() if entries < OFF_LOOP_ITEMS else await call.ctx.off_loop.run(entries, encode)
    call.note_errors(errors)
    call.send_body(body)


def errors_in(values: Mapping[str, object]) -> Counter[str]:
    """Count the errors that a response tells, by name: of itself, and of each entry of its lists."""
    found: Counter[str] = Counter()
    left: list[object] = [values]
    while left:
        value = left.pop()
        if isinstance(value, Mapping):
            code = value.get("error_code")
            if code:
                found[ErrorCode(code).name] += 1
            left.extend(inner for inner in value.values() if isinstance(inner, list | tuple | Mapping))
        elif isinstance(value, list | tuple):
            left.extend(inner for inner in value if isinstance(inner, list | tuple | Mapping))
    return found


def changed(request: Any, **values: object) -> Any:
    """The same request with other values; one that was read by hand is a tuple."""
    if is_dataclass(request) and not isinstance(request, type):
        return replace(request, **values)
    return request._replace(**values)
