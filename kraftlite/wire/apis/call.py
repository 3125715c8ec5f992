"""One request on its way through an API, and the entry of an API in the table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.wire.frames import Connection, Part, ResponseSlot
from kraftlite.wire.primitives import response_head

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


class Call:
    """A request whose header is read: `frame[pos:]` is its body, valid only while `Api.handle` runs."""

    __slots__ = ("_client_id", "api", "connection", "correlation_id", "ctx", "frame", "listener", "pos", "slot", "version")

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

    @property
    def client_id(self) -> str | None:
        return None if self._client_id is None else self._client_id.decode("utf-8", "replace")

    def send(self, parts: Sequence[Part]) -> None:
        self.slot.send(parts)

    def guarded(self, work: Callable[[], None]) -> Callable[[], None]:
        """For what is done later in the connection's turn: a bug in it goes to the node, as one in `Api.handle` does."""

        def run() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - a bug, handed to the node
                self.ctx.ports.fault(error, f"wire.{self.api.name}")
                self.slot.fail(f"{self.api.name} failed: {type(error).__name__}")

        return run

    def send_body(self, body: bytes) -> None:
        """Send a response body behind its header."""
        self.slot.send((response_head(self.correlation_id, len(body), self.version >= self.api.flexible_from), body))


class Adapter(Protocol):
    """Turns a decoded request into the values of its response (see `cold_codec.encode_response`)."""

    def __call__(self, call: Call, request: Any) -> Awaitable[Mapping[str, Any]]: ...


def cold(key: int, name: str, *, versions: tuple[int, int], flexible_from: int, adapt: Adapter) -> Api:
    """An API whose messages go through kio. It is decoded at once and answered from a task of its connection."""

    def handle(call: Call) -> None:
        from kraftlite.wire.cold_codec import decode_request

        request = decode_request(key, call.version, call.frame, call.pos)
        call.frame = memoryview(b"")
        task = call.ctx.ports.tasks.spawn(_answer(call, request, adapt), name=f"kafka-{name}")
        call.connection.own(task, will_use_ns=COLD_ANSWER_NS)

    return Api(key=key, name=name, min_version=versions[0], max_version=versions[1], flexible_from=flexible_from, handle=handle)


async def _answer(call: Call, request: Any, adapt: Adapter) -> None:
    from kraftlite.wire.cold_codec import encode_response

    try:
        values = await adapt(call, request)
        call.send_body(encode_response(call.api.key, call.version, values))
    finally:
        if not call.slot.done:
            call.slot.fail(f"{call.api.name} was not answered")
