"""The door for clients whose requests are bytes: authenticated connections, with the production table of APIs behind them.

The other services call a broker's handlers. Rights and quotas are enforced in front of those, so whoever tries them comes through
here: what is decoded, allowed, charged and muted is decided by `kraftlite.wire`. Of a connection only the socket is simulated.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from kraftlite.model.method import Method
from kraftlite.model.principal import Principal
from kraftlite.node.build import Node
from kraftlite.protocol.errors import ProtocolViolation
from kraftlite.runtime.ports import Clock, Handlers, route

if TYPE_CHECKING:
    from kraftlite.wire.apis import KafkaApis

LISTENER: Final = "PLAINTEXT"
PORT: Final = 40_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorAsk:
    """One request. `connection` names the client's connection; `kind` and `name` say what it is and about which resource, and
    `token` is a text of its own that is in whatever it changes."""

    connection: str
    principal: Principal
    host: str
    client_id: str
    kind: str
    name: str
    token: str
    api_key: int
    version: int
    body: bytes

    @property
    def frame(self) -> bytes:
        client_id = self.client_id.encode()
        head = struct.pack(">hhih", self.api_key, self.version, 1, len(client_id))
        return head + client_id + b"\x00" + self.body


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorAnswer:
    """`response`: the whole frame behind its size; empty when the connection was closed, for the reason `closed`. The broker had
    the image of `first` when it took the request, at `taken_ms` of its clock, and that of `last` when it answered. It mutes the
    connection for `muted_ms`."""

    response: bytes
    closed: str
    first: int
    last: int
    taken_ms: int
    muted_ms: int


DOOR: Final = Method("Client", "Door", DoorAsk, DoorAnswer)


class DoorConnection:
    """The face of `wire.frames.Connection` to those who answer a request: one request at a time, none while it is muted."""

    def __init__(self, clock: Clock, principal: Principal, host: str) -> None:
        self._clock = clock
        self.principal = principal
        self.peer_host, self.peer_port = host, PORT
        self.turn = asyncio.Lock()
        self.muted_until_ms = 0
        self._slot: Any = None
        self._answered: asyncio.Future[tuple[bytes, str]] | None = None

    async def unmuted(self) -> None:
        while (wait_ms := self.muted_until_ms - self._clock.now_ms()) > 0:
            await self._clock.sleep(wait_ms)

    async def exchange(self, apis: KafkaApis, frame: bytes) -> tuple[bytes, str]:
        """The answer and "", or nothing and the reason for which the connection was closed."""
        self._answered = asyncio.get_running_loop().create_future()
        try:
            apis.handle_request(cast(Any, self), memoryview(bytearray(frame)))
        except ProtocolViolation as violation:
            self.fail(violation.reason)
        return await self._answered

    # --- for the APIs and their slots

    def open_slot(self) -> Any:
        from kraftlite.wire.slots import ResponseSlot

        self._slot = ResponseSlot(self)
        return self._slot

    def slot_filled(self, size: int) -> None:
        self._end(b"".join(bytes(part) for part in self._slot.parts or ())[4:], "")

    def fail(self, reason: str) -> None:
        self._end(b"", reason)

    def _end(self, response: bytes, closed: str) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result((response, closed))

    def mute(self, delay_ms: int) -> None:
        self.muted_until_ms = max(self.muted_until_ms, self._clock.now_ms() + delay_ms)

    def own(self, rest: object, *, will_use_ns: int = 0) -> None:
        """The process that ends takes the tasks of its connections with it."""

    def soon(self, work: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(work)

    def lease_frame(self) -> None:
        """Nothing is received into the frame of a request."""

    return_frame = lease_frame


def error_codes(ask: DoorAsk, answer: DoorAnswer) -> list[str]:
    """The names of all error codes in an answer."""
    from kraftlite.protocol.kio_codec import decode_response

    if not answer.response:
        return []
    return [*_codes(decode_response(ask.api_key, ask.version, memoryview(answer.response)))]


def _codes(found: Any) -> list[str]:
    if isinstance(found, tuple | list):
        return [code for one in found for code in _codes(one)]
    codes: list[str] = []
    for name in getattr(type(found), "__dataclass_fields__", ()):
        if name.startswith("__"):
            continue
        value = getattr(found, name)
        codes += [value.name.upper()] if name == "error_code" else _codes(value)
    return codes


def routes(node: Node) -> Handlers:
    assert node.broker is not None
    ctx, connections = node.broker.context, dict[str, DoorConnection]()
    apis: list[KafkaApis] = []

    async def door(ask: DoorAsk) -> DoorAnswer:
        if not apis:
            from kraftlite.wire.apis import KafkaApis

            apis.append(KafkaApis(ctx, LISTENER))
        connection = connections.get(ask.connection)
        if connection is None:
            connection = connections[ask.connection] = DoorConnection(ctx.ports.clock, ask.principal, ask.host)
        async with connection.turn:
            await connection.unmuted()
            first, taken_ms = node.loader.image.offset, ctx.ports.clock.now_ms()
            response, closed = await connection.exchange(apis[0], ask.frame)
            if closed:
                connections.pop(ask.connection, None)
            return DoorAnswer(
                response=response,
                closed=closed,
                first=first,
                last=node.loader.image.offset,
                taken_ms=taken_ms,
                muted_ms=max(0, connection.muted_until_ms - ctx.ports.clock.now_ms()),
            )

    return dict((route(DOOR, door),))
