"""Clients prove who they are before anything else is served to them.

The order is Kafka's: ApiVersions if they like, SaslHandshake, then the messages of the mechanism, in SaslAuthenticate or, after
a SaslHandshake v0, as bare tokens. When a session has an end, a client begins again with SaslHandshake on the same connection
before that end, between its requests.

Source: KIP-43, KIP-152, KIP-306, KIP-368; Kafka's SaslServerAuthenticator for the codes and texts; SE-10, SE-15.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kraftlite.model.errors import ErrorCode
from kraftlite.model.principal import Principal
from kraftlite.model.shown import shown
from kraftlite.protocol.api_keys import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kraftlite.protocol.errors import ProtocolViolation
from kraftlite.protocol.primitives import INT32, response_head, skip_tags
from kraftlite.runtime.ports import Ports
from kraftlite.security.exchange import Authenticated, SaslRefused, ServerExchange
from kraftlite.security.listener_sasl import ListenerSasl
from kraftlite.security.oauthbearer import OAuthBearerServer, Unsecured, Validator
from kraftlite.security.plain import PlainServer
from kraftlite.security.scram import NUMBERS, ScramCredential, ScramIdentity, ScramServer, user_identity
from kraftlite.security.signed_tokens import Signed, SignedRules
from kraftlite.security.unknown_users import UnknownUsers
from kraftlite.wire.budgets import ReceiveBudget
from kraftlite.wire.frames import Connection
from kraftlite.wire.jwks_driver import SigningKeys
from kraftlite.wire.slots import ConnectionLimits, ConnectionOwner, RequestHandler, ResponseSlot
from kraftlite.wire.token_credentials import CredentialPending, TokenCredentials

if TYPE_CHECKING:
    from kraftlite.wire.apis import KafkaApis

AUTHENTICATION_MS: Final = 30_000
"""The time in which a client must have proved who it is."""
REAUTHENTICATION_PAUSE_MS: Final = 1_000
"""The least time between the beginnings of two re-authentications of a connection."""
LONGEST_TOLD: Final = 4_096
"""The longest request in the middle of an authentication that is answered before its connection is closed. To answer means to
read all that it names, and whoever has not proved anything yet must not have the loop for that."""
HANDSHAKE_VERSIONS: Final = (0, 1)
AUTHENTICATE_VERSIONS: Final = (0, 2)
_AUTHENTICATE_FLEXIBLE: Final = 2
_HEADER: Final = struct.Struct(">hhih")
_KEY: Final = struct.Struct(">h")


class _Head(NamedTuple):
    key: int
    version: int
    correlation_id: int
    pos: int
    """The end of the client id."""


class AuthenticationCounts:
    """The outcomes of authentication at a listener, counted since its start. Source: KIP-188, KIP-368."""

    def __init__(self) -> None:
        self.successful = 0
        self.failed = 0
        self.successful_again = 0
        self.failed_again = 0
        self.successful_old_clients = 0
        """Those of clients that cannot authenticate again: their SaslAuthenticate is v0, or bare."""
        self.expired_killed = 0
        """Connections that were closed because their session was over."""


class SaslGate:
    """Authentication at one listener: what the connections that wait there share. On the node's loop."""

    def __init__(self, ports: Ports, sasl: ListenerSasl, apis: KafkaApis, limits: ConnectionLimits, most_files: int) -> None:
        """`limits` hold for clients that are authenticated. `most_files`: the file descriptors that clients may have."""
        self.ports = ports
        self.sasl = sasl
        self.apis = apis
        self.limits = limits
        self.counts = AuthenticationCounts()
        self._first_limits = ConnectionLimits(max_request_bytes=sasl.max_receive_bytes, max_in_flight=limits.max_in_flight)
        self._memory = ReceiveBudget(sasl.unauthenticated_bytes, ports.clock.now_ms)
        self._most = max(1, min(sasl.most_unauthenticated, most_files // 2))
        self._waiting: dict[Connection, int] = {}
        self._tokens = TokenCredentials()
        self._nobody = UnknownUsers()
        self._keys: SigningKeys | None = None
        self._validator: Validator | None = None
        if isinstance(sasl.oauth, SignedRules):
            self._keys = SigningKeys(ports, apis.listener_name, sasl.oauth)
            self._validator = Signed(sasl.oauth, self._keys.current, self._keys.unknown)
        elif sasl.oauth is not None:
            self._validator = Unsecured(sasl.oauth)

    def start(self) -> None:
        if self._keys is not None:
            self._keys.start()

    def stop(self) -> None:
        if self._keys is not None:
            self._keys.stop()

    @property
    def unauthenticated(self) -> int:
        return len(self._waiting)

    def connection(self, owner: ConnectionOwner[Connection]) -> Connection:
        return Connection(owner, SaslSession(self).handle, self._first_limits, self._memory)

    def opened(self, connection: Connection) -> None:
        if len(self._waiting) >= self._most:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.abandon(f"more than {self._most} connections have not authenticated")
        self._waiting[connection] = self.ports.clock.now_ms()

    def closed(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)

    def sweep(self) -> None:
        most_ms = AUTHENTICATION_MS + self.sasl.failure_delay_ms
        latest_ms = self.ports.clock.now_ms() - most_ms
        for connection in [it for it, since_ms in self._waiting.items() if since_ms <= latest_ms]:
            del self._waiting[connection]
            connection.abandon(f"not authenticated within {most_ms} ms")
        self._memory.sweep()

    def authenticated(self, connection: Connection, handle: RequestHandler[Connection]) -> None:
        self._waiting.pop(connection, None)
        connection.admit(handle, self.limits)

    def exchange(self, mechanism: str) -> ServerExchange:
        if mechanism == "PLAIN":
            return PlainServer(self.sasl.plain_users)
        if mechanism == "OAUTHBEARER":
            assert self._validator is not None
            return OAuthBearerServer(self._validator)
        number = NUMBERS[mechanism]
        return ScramServer(mechanism, lambda name, token: self._identity(name, number, token), nonce=secrets.token_urlsafe(24))

    def _identity(self, name: str, mechanism: int, is_token: bool) -> ScramIdentity | None:
        if is_token:
            return self._tokens.identity(self.apis.context, name, mechanism)
        credentials = self.apis.context.metadata.image.scram.credentials
        found = credentials.get((name, mechanism))
        if found is None:
            return self._nobody.identity(credentials, name, mechanism)
        return user_identity(name, ScramCredential(found.salt, found.stored_key, found.server_key, found.iterations))


class SaslSession:
    """The authentication of one connection: `handle` takes its requests until it is through, and, when the session has an end,
    afterwards as well."""

    def __init__(self, gate: SaslGate) -> None:
        self._gate = gate
        self._step: Callable[[Connection, memoryview], None] = self._before_handshake
        self._greeted = False
        self._mechanism = ""
        self._bare = False
        """Tokens come without a header, as after a SaslHandshake v0."""
        self._exchange: ServerExchange | None = None
        self._proved: Principal | None = None
        """Set once the client has authenticated for the first time."""
        self._ends_ms: int | None = None
        self._began_again_ms: int | None = None
        self._bad_mechanism = ""

    def handle(self, connection: Connection, frame: memoryview) -> None:
        self._step(connection, frame)

    # --- before the handshake

    def _before_handshake(self, connection: Connection, frame: memoryview) -> None:
        head = _head(frame)
        apis = self._gate.apis
        if head.key == API_VERSIONS and not self._greeted:
            # A version that is not known is answered with those that are, and the client may ask again.
            self._greeted = apis.offers(API_VERSIONS, head.version)
            apis.handle_request(connection, frame)
            return
        if head.key != SASL_HANDSHAKE:
            raise ProtocolViolation(f"request of api key {head.key} where SaslHandshake is expected")
        self._handshake(connection, frame, head)

    def _handshake(self, connection: Connection, frame: memoryview, head: _Head) -> None:
        from kraftlite.protocol.kio_codec import decode_request, encode_response

        _check_version("SaslHandshake", head.version, HANDSHAKE_VERSIONS)
        gate = self._gate
        gate.apis.requests["SaslHandshake"] += 1
        asked: str = decode_request(SASL_HANDSHAKE, head.version, frame, head.pos).mechanism
        known = asked in gate.sasl.mechanisms
        code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        body = encode_response(SASL_HANDSHAKE, head.version, {"error_code": code, "mechanisms": list(gate.sasl.mechanisms)})
        answer = response_head(head.correlation_id, len(body), False) + body
        slot = connection.open_slot()
        if not known:
            self._fail(connection, slot, answer, f"Unsupported SASL mechanism {shown(asked)}")
            return
        slot.send((answer,))
        self._bare = head.version == 0
        if self._proved is not None and asked != self._mechanism:
            self._bad_mechanism = (
                f"SASL mechanism '{asked}' requested by client is not supported for re-authentication of mechanism "
                f"'{self._mechanism}'"
            )
            self._step = self._after_bad_mechanism
            return
        self._mechanism = asked
        self._exchange = gate.exchange(asked)
        self._step = self._token

    def _after_bad_mechanism(self, connection: Connection, frame: memoryview) -> None:
        self._fail(connection, connection.open_slot(), None, self._bad_mechanism)

    # --- the messages of the mechanism

    def _token(self, connection: Connection, frame: memoryview) -> None:
        if self._bare:
            self._evaluate(connection, connection.open_slot(), None, bytes(frame))
            return
        from kraftlite.protocol.kio_codec import decode_request

        head = _head(frame)
        if head.key != SASL_AUTHENTICATE:
            self._unexpected(connection, frame, head)
            return
        _check_version("SaslAuthenticate", head.version, AUTHENTICATE_VERSIONS)
        if len(frame) > self._gate.sasl.max_receive_bytes:
            raise ProtocolViolation(f"a message of {len(frame)} bytes to authenticate: see sasl.server.max.receive.size")
        self._gate.apis.requests["SaslAuthenticate"] += 1
        pos = head.pos
        if head.version >= _AUTHENTICATE_FLEXIBLE:
            pos = _after_tags(frame, pos)
        token = bytes(decode_request(SASL_AUTHENTICATE, head.version, frame, pos).auth_bytes)
        self._evaluate(connection, connection.open_slot(), head, token)

    def _unexpected(self, connection: Connection, frame: memoryview, head: _Head) -> None:
        """Answer a request that comes in the middle of an authentication with ILLEGAL_SASL_STATE, where its API has a place for
        that, and it is not long."""
        from kraftlite.protocol.kio_codec import api_name
        from kraftlite.wire.apis import refusals

        body = None
        flexible = self._gate.apis.flexible_at(head.key, head.version)
        if flexible is not None and len(frame) <= LONGEST_TOLD:
            pos = _after_tags(frame, head.pos) if flexible else head.pos
            body = refusals.answer(api_name(head.key), head.key, head.version, frame, pos, ErrorCode.ILLEGAL_SASL_STATE)
        answer = None if body is None else response_head(head.correlation_id, len(body), bool(flexible)) + body
        slot = connection.open_slot()
        self._fail(connection, slot, answer, f"Unexpected Kafka request of api key {head.key} during SASL authentication.")

    def _evaluate(self, connection: Connection, slot: ResponseSlot, head: _Head | None, token: bytes) -> None:
        """`head` None: the message came bare, and is answered so."""
        exchange = self._exchange
        assert exchange is not None
        clock = self._gate.ports.clock
        try:
            reply = exchange.evaluate(token, clock.wall_ms())
        except CredentialPending as pending:
            self._derive(connection, slot, head, token, pending)
            return
        except SaslRefused as refused:
            self._refuse(connection, slot, head, refused)
            return
        try:
            if reply.outcome is not None:
                self._check_unchanged(reply.outcome.principal)
        except SaslRefused as refused:
            self._refuse(connection, slot, head, refused)
            return
        lifetime_ms = 0
        if reply.outcome is not None:
            lifetime_ms = self._complete(connection, reply.outcome, can_again=head is not None and head.version > 0)
        if head is None:
            slot.send((INT32.pack(len(reply.token)) + reply.token,))
        else:
            slot.send((_authenticate_answer(head, {"auth_bytes": reply.token, "session_lifetime": lifetime_ms}),))

    def _derive(
        self, connection: Connection, slot: ResponseSlot, head: _Head | None, token: bytes, pending: CredentialPending
    ) -> None:
        """Compute a token's credential off the loop, and evaluate the message again. Meanwhile the client has to wait."""
        tasks = self._gate.ports.tasks

        async def derive() -> None:
            pending.keep(await tasks.run_blocking(pending.compute))
            if self._step == _too_early and not connection.lost:
                self._step = self._token
                self._evaluate(connection, slot, head, token)

        self._step = _too_early
        connection.own(tasks.spawn(derive(), name="token-credential"))

    def _refuse(self, connection: Connection, slot: ResponseSlot, head: _Head | None, refused: SaslRefused) -> None:
        again = "authentication" if self._proved is None else "re-authentication"
        told = refused.told or (
            f"Authentication failed during {again} due to invalid credentials with SASL mechanism {self._mechanism}"
        )
        answer = None if head is None else _authenticate_answer(head, {"error_message": told}, failed=True)
        self._fail(connection, slot, answer, f"{self._mechanism}: {refused}")

    def _check_unchanged(self, found: Principal) -> None:
        before = self._proved
        if before is not None and (before.kind, before.name) != (found.kind, found.name):
            text = f"Cannot change principals during re-authentication from {_dotted(before)}: {_dotted(found)}"
            raise SaslRefused(text, text)

    def _complete(self, connection: Connection, outcome: Authenticated, *, can_again: bool) -> int:
        """Let the client in. Returns how long its session lasts, in milliseconds; 0: as long as the connection."""
        gate, clock = self._gate, self._gate.ports.clock
        counts = gate.counts
        if self._proved is not None:
            counts.successful_again += 1
        else:
            counts.successful += 1
            counts.successful_old_clients += not can_again
        self._exchange = None
        self._proved = connection.principal = outcome.principal
        most_ms = gate.sasl.max_reauth_ms.get(self._mechanism, 0)
        bounds = [most_ms] if most_ms > 0 else []
        if outcome.expires_ms is not None:
            bounds.append(max(0, outcome.expires_ms - clock.wall_ms()))
        if not bounds:
            self._ends_ms = None
            gate.authenticated(connection, gate.apis.handle_request)
            return 0
        self._ends_ms = clock.now_ms() + min(bounds)
        self._step = self._while_it_lasts
        gate.authenticated(connection, self.handle)
        return min(bounds)

    # --- afterwards

    def _while_it_lasts(self, connection: Connection, frame: memoryview) -> None:
        gate = self._gate
        now_ms = gate.ports.clock.now_ms()
        if len(frame) >= _KEY.size and _KEY.unpack_from(frame)[0] == SASL_HANDSHAKE and self._may_begin_again(now_ms):
            if len(frame) > gate.sasl.max_receive_bytes:
                raise ProtocolViolation(f"a message of {len(frame)} bytes to authenticate: see sasl.server.max.receive.size")
            self._began_again_ms = now_ms
            self._step = self._before_handshake
            self._greeted = True
            self._before_handshake(connection, frame)
            return
        assert self._ends_ms is not None
        if now_ms > self._ends_ms:
            gate.counts.expired_killed += 1
            connection.abandon("its session is over, and it did not authenticate again")
            return
        gate.apis.handle_request(connection, frame)

    def _may_begin_again(self, now_ms: int) -> bool:
        return self._began_again_ms is None or now_ms - self._began_again_ms >= REAUTHENTICATION_PAUSE_MS

    # --- failures

    def _fail(self, connection: Connection, slot: ResponseSlot, answer: bytes | None, reason: str) -> None:
        """Tell the client and close, after the delay that slows down whoever guesses (KIP-306)."""
        gate = self._gate
        if self._proved is None:
            gate.counts.failed += 1
        else:
            gate.counts.failed_again += 1
        self._step = _nothing_more
        connection.stop_accepting()

        def tell() -> None:
            if answer is None:
                slot.skip()
            else:
                slot.send((answer,))
            connection.fail(f"authentication failed: {reason}")

        gate.ports.clock.call_later(gate.sasl.failure_delay_ms, tell)


def _too_early(connection: Connection, frame: memoryview) -> None:
    raise ProtocolViolation("a request before the answer to the last message of the authentication")


def _nothing_more(connection: Connection, frame: memoryview) -> None:
    raise ProtocolViolation("a request after authentication has failed")


def _head(frame: memoryview) -> _Head:
    """The beginning of a request; ProtocolViolation for what has none."""
    try:
        key, version, correlation_id, size = _HEADER.unpack_from(frame)
    except struct.error as error:
        raise ProtocolViolation(f"a request of {len(frame)} bytes has no header") from error
    pos = _HEADER.size + max(0, size)
    if size < -1 or pos > len(frame):
        raise ProtocolViolation(f"a client id of {size} bytes")
    return _Head(key, version, correlation_id, pos)


def _after_tags(frame: memoryview, pos: int) -> int:
    """The end of a flexible header, whose tags are at `pos`."""
    try:
        return skip_tags(frame, pos)
    except (IndexError, struct.error) as error:
        raise ProtocolViolation("the frame ends in its header") from error


def _check_version(name: str, version: int, allowed: tuple[int, int]) -> None:
    if not allowed[0] <= version <= allowed[1]:
        raise ProtocolViolation(f"{name} v{version}: offered is v{allowed[0]} to v{allowed[1]}")


def _authenticate_answer(head: _Head, values: Mapping[str, object], *, failed: bool = False) -> bytes:
    from kraftlite.protocol.kio_codec import encode_response

    usual = {"error_code": ErrorCode.NONE, "error_message": None, "auth_bytes": b"", "session_lifetime": 0}
    if failed:
        usual["error_code"] = ErrorCode.SASL_AUTHENTICATION_FAILED
    body = encode_response(SASL_AUTHENTICATE, head.version, {**usual, **values})
    return response_head(head.correlation_id, len(body), head.version >= _AUTHENTICATE_FLEXIBLE) + body


def _dotted(principal: Principal) -> str:
    return f"{principal.kind}.{shown(principal.name)}"
