"""The door for clients that have to prove who they are: connections of bytes with the production authentication in front of the
production table of APIs (`kraftlite.wire.auth`).

Unlike at `doors`, several requests may be under way on a connection, and their answers leave in order, as on a socket. Of a
connection only the socket is simulated. Source: SE-10 to SE-16.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from kraftlite.model.method import Method
from kraftlite.model.principal import ANONYMOUS
from kraftlite.node.build import Node
from kraftlite.protocol.errors import ProtocolViolation
from kraftlite.runtime.ports import Clock, Handlers, route
from kraftlite.security.listener_sasl import ListenerSasl
from kraftlite.sim.services.doors import LISTENER, DoorConnection

if TYPE_CHECKING:
    from kraftlite.wire.auth import SaslGate

PLAIN: Final = "PLAIN"
SCRAM_256: Final = "SCRAM-SHA-256"
SCRAM_512: Final = "SCRAM-SHA-512"
PASSWORDS: Final[Mapping[str, str]] = {"dora": "dora-hunter2", "emil": "emil-hunter2"}
"""Those of PLAIN."""
LASTS_MS: Final[Mapping[str, int]] = {PLAIN: 2_000, SCRAM_256: 5_000, SCRAM_512: 0}
"""The longest session of each mechanism; 0: it has no bound but that of its credential."""
MAX_BYTES: Final = 1 << 20
FILES: Final = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginAsk:
    """Requests that are written at once. `connection`: a client's newest; the one before it is closed. `knows`: the client has
    the password, if it logs in by these requests."""

    client: str
    connection: int
    frames: tuple[bytes, ...]
    knows: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginAnswer:
    """`answers`: whole frames behind their sizes, as they came. `taken`: when the broker took each request, by its clock, and by
    its wall clock; fewer than were sent when it closed the connection, for the reason `closed`. The broker had the image of
    `first` when it took the first request, and that of `last` when it had answered."""

    answers: tuple[bytes, ...]
    taken: tuple[tuple[int, int], ...]
    closed: str
    first: int
    last: int


LOGIN: Final = Method("Client", "Login", LoginAsk, LoginAnswer)


class LoginConnection(DoorConnection):
    """The face of `wire.frames.Connection` to those who authenticate and answer; answers wait for those before them."""

    def __init__(self, clock: Clock, gate: SaslGate) -> None:
        from kraftlite.wire.auth import SaslSession

        super().__init__(clock, ANONYMOUS, "10.0.0.9")
        self._handle: Any = SaslSession(gate).handle
        self._slots: deque[Any] = deque()
        self._changed = asyncio.Event()
        self._accepting = True
        self.answers: list[bytes] = []
        self.closed = ""
        self.lost = False

    async def take(self, frames: tuple[bytes, ...], taken: list[tuple[int, int]]) -> None:
        """Take the requests, and wait until all of them are answered, or the connection is closed."""
        for frame in frames:
            await self.unmuted()
            if self.lost or not self._accepting:
                break
            taken.append((self._clock.now_ms(), self._clock.wall_ms()))
            try:
                self._handle(cast(Any, self), memoryview(bytearray(frame)))
            except ProtocolViolation as violation:
                self.fail(violation.reason)
        while self._slots and not self.lost:
            self._changed.clear()
            await self._changed.wait()

    # --- for the authentication, the APIs and their slots

    def open_slot(self) -> Any:
        from kraftlite.wire.slots import ResponseSlot

        slot = ResponseSlot(self)
        self._slots.append(slot)
        return slot

    def slot_filled(self, size: int) -> None:
        while self._slots and self._slots[0].done and not self.lost:
            slot = self._slots.popleft()
            if slot.parts is not None:
                self.answers.append(b"".join(bytes(part) for part in slot.parts)[4:])
        self._changed.set()

    def admit(self, handle: Any, limits: object) -> None:
        self._handle = handle

    def stop_accepting(self) -> None:
        self._accepting = False

    def fail(self, reason: str) -> None:
        self.slot_filled(0)
        self.abandon(reason)

    def abandon(self, reason: str) -> None:
        if not self.lost:
            self.closed, self.lost = reason, True
        self._changed.set()


def routes(node: Node) -> Handlers:
    assert node.broker is not None
    ctx, connections = node.broker.context, dict[str, tuple[int, LoginConnection]]()
    gates: list[SaslGate] = []

    def connection_of(ask: LoginAsk) -> LoginConnection:
        if not gates:
            gates.append(_gate(node))
        number, connection = connections.get(ask.client, (-1, None))
        if connection is None or number < ask.connection:
            if connection is not None:
                connection.abandon("the client has gone")
            connection = LoginConnection(ctx.ports.clock, gates[0])
            connections[ask.client] = ask.connection, connection
        return connection

    async def login(ask: LoginAsk) -> LoginAnswer:
        connection = connection_of(ask)
        async with connection.turn:
            first, taken = node.loader.image.offset, list[tuple[int, int]]()
            connection.answers = []
            await connection.take(ask.frames, taken)
            return LoginAnswer(
                answers=tuple(connection.answers),
                taken=tuple(taken),
                closed=connection.closed,
                first=first,
                last=node.loader.image.offset,
            )

    return dict((route(LOGIN, login),))


def _gate(node: Node) -> SaslGate:
    from kraftlite.wire.apis import KafkaApis
    from kraftlite.wire.auth import SaslGate
    from kraftlite.wire.slots import ConnectionLimits

    assert node.broker is not None
    ctx = node.broker.context
    sasl = ListenerSasl(mechanisms=(PLAIN, SCRAM_256, SCRAM_512), plain_users=PASSWORDS, max_reauth_ms=LASTS_MS)
    return SaslGate(ctx.ports, sasl, KafkaApis(ctx, LISTENER), ConnectionLimits(max_request_bytes=MAX_BYTES), FILES)
