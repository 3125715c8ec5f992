"""Invariants 94 and 95: sessions end when they must and answers keep their order; who is let in deserves it (SE-10 to SE-16)."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from kraftlite.log.batch import parse_header
from kraftlite.metadata import records as r
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.principal import USER
from kraftlite.security.scram import NUMBERS
from kraftlite.security.tokens import token_hmac
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.log_files import wall_ms as wall_ms_of
from kraftlite.sim.checkers.model import MetadataState
from kraftlite.sim.checkers.views import Entry, NodeView
from kraftlite.sim.services.logins import LASTS_MS, LOGIN, PLAIN, LoginAnswer, LoginAsk
from kraftlite.sim.workloads.logins import AUTHENTICATE, CREATE, EXPIRE, HANDSHAKE, RENEW
from kraftlite.sim.workloads.security_settings import FIRST_USER, TOKENS, added_users
from kraftlite.simhost.network import AnyExchange

OVER: Final = "its session is over"
SECRET: Final = TOKENS["delegation.token.secret.key"]
EXPIRY_MS: Final = int(TOKENS["delegation.token.expiry.time.ms"])
LIFETIME_MS: Final = int(TOKENS["delegation.token.max.lifetime.ms"])
_LINGER_MS: Final = 1_000
"""A batch has the time of its first record, and gathers others for some milliseconds."""
SWEPT_WITHIN_MS: Final = int(TOKENS["delegation.token.expiry.check.interval.ms"]) + 5_000
_HEAD: Final = struct.Struct(">hhih")
_CORRELATION: Final = struct.Struct(">i")
_SCRAM_FIRST: Final = re.compile(rb"n,,n=([^,]+),r=[^,]+(,tokenauth=true)?")


class Exchanged(NamedTuple):
    """A request, and what came of it. `told`: its answer, decoded; None: there is none."""

    api: tuple[int, int]
    asked: Any
    told: Any
    taken_ms: int
    wall_ms: int
    knows: bool


class LoginIn(NamedTuple):
    """A login that went well, or was refused: by which mechanism, under which name, and whether this is the id of a token."""

    mechanism: str
    name: str
    is_token: bool


@dataclass(slots=True)
class Session:
    """The state of a connection as it was seen. `ends_ms`: by the broker's clock, when its session must be over; None: never."""

    who: str = ""
    """The principal; empty before it has proved who it is."""
    mechanism: str = ""
    first: bytes = b""
    """The first message of a SCRAM login that goes on."""
    has_token: bool = False
    """The token of that login was there and had not expired when the login began."""
    ends_ms: int | None = None


class LoginChecker(MetadataChecker):
    """Follows every connection of `services.logins`."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._sessions: dict[tuple[NodeId, int, str], tuple[int, Session]] = {}
        """By (broker, its incarnation) and client: the number of the newest connection, and that."""
        self.facts.watch_served(LOGIN, self._served)

    def _served(self, exchange: AnyExchange, answer: LoginAnswer) -> None:
        view = self.facts.views.get(exchange.target)
        if view is None:
            return
        ask: LoginAsk = exchange.request
        key = (*view.author, ask.client)
        number, session = self._sessions.get(key, (-1, Session()))
        if number > ask.connection:
            return
        if number < ask.connection:
            session = Session()
            self._sessions[key] = ask.connection, session
        where = f"node {exchange.target} at {ask.client}, connection {ask.connection}"
        if len(answer.answers) > len(answer.taken):
            self.fail(f"{where}: {len(answer.answers)} answers to {len(answer.taken)} requests")
            return
        for index, (now_ms, wall_ms) in enumerate(answer.taken):
            told = answer.answers[index] if index < len(answer.answers) else None
            found = self._exchanged(ask, index, told, where)._replace(taken_ms=now_ms, wall_ms=wall_ms)
            self.judge(session, found, answer, where)
            _follow(session, found)
        self.judge_end(session, answer, where)

    def _exchanged(self, ask: LoginAsk, index: int, told: bytes | None, where: str) -> Exchanged:
        from kraftlite.protocol.errors import ProtocolViolation
        from kraftlite.protocol.kio_codec import decode_request, decode_response, is_flexible

        frame = ask.frames[index]
        key, version, number, size = _HEAD.unpack_from(frame)
        pos = _HEAD.size + size + is_flexible(key, version)
        asked = decode_request(key, version, memoryview(frame), pos)
        decoded = None
        if told is not None:
            found = _CORRELATION.unpack_from(told)[0]
            try:
                decoded = decode_response(key, version, memoryview(told))
            except ProtocolViolation as violation:
                self.misread(f"{where}: the answer to request {number} of api key {key} cannot be read: {violation.reason}")
            if found != number:
                self.misread(f"{where}: request {number} of api key {key} is answered under the number {found}")
        return Exchanged((key, version), asked, decoded, 0, 0, ask.knows)

    # hooks

    def judge(self, session: Session, found: Exchanged, answer: LoginAnswer, where: str) -> None:
        """One request, before `session` knows of it."""

    def judge_end(self, session: Session, answer: LoginAnswer, where: str) -> None:
        """All requests were judged, and `session` knows of them."""

    def misread(self, text: str) -> None:
        """An answer is not that to its request."""


def _follow(session: Session, found: Exchanged) -> None:
    told = found.told
    if told is None or found.api not in (HANDSHAKE, AUTHENTICATE) or told.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        return
    if found.api == HANDSHAKE:
        session.mechanism, session.first = found.asked.mechanism, b""
        return
    message = bytes(found.asked.auth_bytes)
    done = login_in(session, found)
    if done is None:
        session.first = message
    elif told.error_code == ErrorCode.NONE:
        session.first = b""
        session.ends_ms = _ends_ms(session, found, done)
        session.who = done.name if not done.is_token else f"token {done.name}"


def login_in(session: Session, found: Exchanged) -> LoginIn | None:
    """The login that this message of authentication ends, well or not; None: it goes on."""
    message = bytes(found.asked.auth_bytes)
    if session.mechanism == PLAIN:
        return LoginIn(PLAIN, message.decode().split("\0")[1], False)
    if not session.first and found.told.error_code == ErrorCode.NONE:
        return None
    first = _SCRAM_FIRST.match(session.first or message)
    assert first is not None, "the messages of the workload's clients"
    return LoginIn(session.mechanism, first[1].decode(), first[2] is not None)


def _ends_ms(session: Session, found: Exchanged, done: LoginIn) -> int | None:
    """By the settings alone. The end of a token is known to `SessionsEnd`, which has the metadata."""
    lasts_ms = LASTS_MS[done.mechanism]
    return found.taken_ms + lasts_ms if lasts_ms else None


class SessionsEnd(LoginChecker):
    """A session ends after the longest time of its mechanism, and with its token, whichever is first: no request that was taken
    later is answered, unless it begins a new authentication. None is cut before. Before a client has proved who it is nothing is
    answered but that. Every answer is that to its request, in the order of requests, also around an authentication."""

    numbers: ClassVar[tuple[int, ...]] = (94,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.judged = {"in time": 0, "too late": 0, "again": 0}

    def misread(self, text: str) -> None:
        self.fail(text)

    def judge(self, session: Session, found: Exchanged, answer: LoginAnswer, where: str) -> None:
        if found.api in (HANDSHAKE, AUTHENTICATE):
            self._authentication(session, found, answer)
            return
        if not session.who:
            if found.told is not None:
                self.fail(f"{where}: api key {found.api[0]} is answered to a client that has not said who it is")
            return
        late_ms = None if session.ends_ms is None else found.taken_ms - session.ends_ms
        if late_ms is None or late_ms <= 0:
            self.judged["in time"] += 1
        elif found.told is not None:
            self.fail(f"{where}: api key {found.api[0]} of {session.who} is answered {late_ms} ms after the end of its session")

    def _authentication(self, session: Session, found: Exchanged, answer: LoginAnswer) -> None:
        """A token bounds its session by the latest end that it had while this was decided."""
        if found.told is None or found.api != AUTHENTICATE or found.told.error_code != ErrorCode.NONE:
            return  # the rest of it ends no session, and begins none
        done = login_in(session, found)
        if done is None:
            return
        self.judged["again"] += bool(session.who)
        _follow(session, found)
        if done.is_token:
            known = [state.tokens[done.name] for state in self._states(answer) if done.name in state.tokens]
            lasts_ms = [max(0, it.expiration_timestamp_ms - found.wall_ms) for it in known]
            if lasts_ms:
                ends_ms = found.taken_ms + max(lasts_ms)
                session.ends_ms = ends_ms if session.ends_ms is None else min(session.ends_ms, ends_ms)

    def _states(self, answer: LoginAnswer) -> list[MetadataState]:
        history = self.facts.history
        return [history.visible(answer.first), *history.between(answer.first, answer.last)]

    def judge_end(self, session: Session, answer: LoginAnswer, where: str) -> None:
        if not answer.closed.startswith(OVER):
            return
        self.judged["too late"] += 1
        now_ms, _wall_ms = answer.taken[-1]
        if session.ends_ms is None or now_ms <= _earliest(session):
            self.fail(f"{where}: the session of {session.who} is cut at {now_ms} ms; its end is {session.ends_ms}")


def _earliest(session: Session) -> int:
    """A token's end may be sooner than is known: it could be changed while it logged in."""
    assert session.ends_ms is not None
    return session.ends_ms if not session.who.startswith("token ") else -1


class LoginsDeserved(LoginChecker):
    """Everybody who is let in has the password, or a token that there is and that has not expired by the broker's clock. Both are
    looked at when the login begins: where the token expires before its end, the session is over at once. The user with whom the
    cluster was formatted is in the metadata from the first records on, and is let in by every broker that has them. A token is
    renewed or ended by its owner and its renewers alone, and lasts no longer than its longest life, and from each change on no
    longer than the configured time. One that has expired is removed soon."""

    numbers: ClassVar[tuple[int, ...]] = (95,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.judged = {"in": 0, "refused": 0, "tokens": 0}
        self._adds_users = bool(added_users(world.cluster.theme))

    def judge(self, session: Session, found: Exchanged, answer: LoginAnswer, where: str) -> None:
        told = found.told
        if told is None:
            return
        states = [self.facts.history.visible(answer.first), *self.facts.history.between(answer.first, answer.last)]
        if found.api == AUTHENTICATE:
            done = None if told.error_code == ErrorCode.ILLEGAL_SASL_STATE else login_in(session, found)
            if done is not None:
                self._login(session, done, told.error_code == ErrorCode.NONE, states, found, where)
            elif (first := _SCRAM_FIRST.match(bytes(found.asked.auth_bytes))) is not None:
                session.has_token = _has_token(states, first[1].decode(), found.wall_ms)
        elif found.api in (RENEW, EXPIRE) and told.error_code == ErrorCode.NONE:
            self._changed(session, bytes(found.asked.hmac), where)
        elif found.api == CREATE and told.error_code == ErrorCode.NONE and session.who.startswith("token "):
            self.fail(f"{where}: {session.who} has got another token")

    def _login(
        self, session: Session, done: LoginIn, let_in: bool, states: list[MetadataState], found: Exchanged, where: str
    ) -> None:
        self.judged["in" if let_in else "refused"] += 1
        of = f"{where}, of {session.who or 'nobody'}"
        if let_in and not found.knows:
            self.fail(f"{of}: {done.name} is let in by {done.mechanism} with a wrong password")
        if done.is_token:
            if let_in and not (session.has_token if session.first else _has_token(states, done.name, found.wall_ms)):
                self.fail(f"{of}: token {done.name} is let in, and there is none that has not expired")
        elif not session.who.startswith("token "):
            can = [done.mechanism == PLAIN or (done.name, NUMBERS[done.mechanism]) in it.credentials for it in states]
            same = session.who in ("", done.name)
            if (let_in and not (same and any(can))) or (not let_in and found.knows and same and all(can)):
                self.fail(f"{of}: {done.name} is {'let in' if let_in else 'refused'} by {done.mechanism}")

    def _changed(self, session: Session, code: bytes, where: str) -> None:
        """By the record of the token, which may be gone by now, and whose owner and renewers never change."""
        self.judged["tokens"] += 1
        who = f"{USER}:{session.who}"
        for token in self._known:
            if token_hmac(SECRET, token.token_id) == code and who != token.owner and who not in token.renewers:
                self.fail(f"{where}: {who} has renewed or ended a token of {token.owner} with the renewers {token.renewers}")

    _known: tuple[r.DelegationTokenRecord, ...] = ()

    def on_record(self, entry: Entry, offset: int, record: r.MetadataRecord, before: MetadataState, after: MetadataState) -> None:
        if not isinstance(record, r.DelegationTokenRecord):
            return
        if record.token_id not in before.tokens:
            self._known = (*self._known, record)
        if record.expiration_timestamp_ms > record.max_timestamp_ms:
            self.fail(f"offset {offset}: token {record.token_id} lasts longer than its longest life")
        life_ms = record.max_timestamp_ms - record.issue_timestamp_ms
        if life_ms > LIFETIME_MS:
            self.fail(f"offset {offset}: token {record.token_id} may live for {life_ms} ms, configured are {LIFETIME_MS}")
        left_ms = record.expiration_timestamp_ms - parse_header(entry.raw).max_timestamp
        if left_ms > EXPIRY_MS + _LINGER_MS:
            self.fail(f"offset {offset}: token {record.token_id} lasts {left_ms} ms from now on, configured are {EXPIRY_MS}")

    def unsettled(self) -> str | None:
        now_ms = min((wall_ms_of(node) for node in self.world.nodes.values() if node.now is not None), default=0)
        over = [it for it in self.facts.history.latest.tokens.values() if not _lasts(it, now_ms - SWEPT_WITHIN_MS)]
        return f"token {over[0].token_id} is still there, and has expired at {over[0].expiration_timestamp_ms}" if over else None

    def on_image(self, view: NodeView, image: Any) -> None:
        if not self._adds_users or image.features.metadata_version is None:
            return
        for mechanism, number in NUMBERS.items():
            if (FIRST_USER, number) not in image.scram.credentials:
                self.fail(f"node {view.node_id} has the image of offset {image.offset}, and {FIRST_USER} has no {mechanism}")


def _has_token(states: Iterable[MetadataState], token_id: str, wall_ms: int) -> bool:
    known = [state.tokens.get(token_id) for state in states]
    return any(it is not None and _lasts(it, wall_ms) for it in known)


def _lasts(token: r.DelegationTokenRecord, wall_ms: int) -> bool:
    return min(token.max_timestamp_ms, token.expiration_timestamp_ms) >= wall_ms
