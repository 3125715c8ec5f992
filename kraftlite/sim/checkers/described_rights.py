"""Descriptions of entries and delegation tokens say what the metadata says, and no more than may be seen (SE-16, SE-35)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kraftlite.metadata import records as r
from kraftlite.model.acls import Operation, PatternType, ResourceType
from kraftlite.model.errors import ErrorCode
from kraftlite.model.principal import USER, Principal
from kraftlite.security.tokens import token_hmac
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.i90_rights import Rules
from kraftlite.sim.checkers.i94_sessions import SECRET, Exchanged, LoginChecker, Session
from kraftlite.sim.checkers.model import MetadataState
from kraftlite.sim.checkers.views import Entry
from kraftlite.sim.services.doors import DOOR, DoorAnswer, DoorAsk
from kraftlite.sim.services.logins import LoginAnswer
from kraftlite.sim.workloads.logins import CREATE, DESCRIBE
from kraftlite.sim.workloads.security import LIST, TWICE
from kraftlite.simhost.network import AnyExchange

_ANY: Final = 1
_HOST: Final = "10.0.0.9"
"""That of all connections of `services.logins`."""


class EntriesDescribed(MetadataChecker):
    """An equal entry is there once. A user who may see the entries is told those that the filter matches, each once. A topic that
    is named twice in a request for more partitions gets none, and this is told once, whoever asks."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.judged = {LIST: 0, TWICE: 0}
        self.facts.watch_served(DOOR, self._served)

    def on_record(self, entry: Entry, offset: int, record: r.MetadataRecord, before: MetadataState, after: MetadataState) -> None:
        if isinstance(record, r.AccessControlEntryRecord):
            fields = _fields(record)
            if any(_fields(it) == fields for it in before.acls.values()):
                self.fail(f"offset {offset} of the metadata log has {record}, which was there already")

    def _served(self, exchange: AnyExchange, answer: DoorAnswer) -> None:
        ask: DoorAsk = exchange.request
        if ask.kind not in self.judged or not answer.response:
            return
        from kraftlite.protocol.kio_codec import decode_request, decode_response

        asked = decode_request(ask.api_key, ask.version, memoryview(ask.body), 0)
        told = decode_response(ask.api_key, ask.version, memoryview(answer.response))
        where = f"node {exchange.target} answers {asked} of {ask.principal}"
        if ask.kind == TWICE:
            self.judged[TWICE] += 1
            if [(it.name, it.error_code) for it in told.results] != [(ask.name, ErrorCode.INVALID_REQUEST)]:
                self.fail(f"{where} with {told.results}")
        elif told.error_code == ErrorCode.NONE:
            self.judged[LIST] += 1
            found = sorted(_told(told))
            states = [self.facts.history.visible(answer.first), *self.facts.history.between(answer.first, answer.last)]
            if not any(found == sorted(_fields(it) for it in state.acls.values() if _matches(asked, it)) for state in states):
                entries = [str(it) for it in states[-1].acls.values()]
                self.fail(f"{where} by offset {answer.first} with {found}; there are {entries}")


def _fields(it: r.AccessControlEntryRecord) -> tuple[Any, ...]:
    kind, operation, permission = int(it.resource_type), int(it.operation), int(it.permission_type)
    return kind, it.resource_name, int(it.pattern_type), it.principal, it.host, operation, permission


def _told(told: Any) -> Iterator[tuple[Any, ...]]:
    for resource in told.resources:
        for it in resource.acls:
            of = int(resource.resource_type), str(resource.resource_name), int(resource.pattern_type)
            yield *of, it.principal, it.host, int(it.operation), int(it.permission_type)


def _matches(asked: Any, it: r.AccessControlEntryRecord) -> bool:
    """KIP-140; KIP-290 for patterns, of which MATCH means all that cover a name."""
    name, pattern = asked.resource_name_filter, asked.pattern_type_filter
    if pattern == PatternType.MATCH:
        prefixed = it.pattern_type == PatternType.PREFIXED
        covers = name is None or (name.startswith(it.resource_name) if prefixed else it.resource_name in (name, "*"))
    else:
        covers = pattern in (_ANY, it.pattern_type) and name in (None, it.resource_name)
    return (
        covers
        and asked.resource_type_filter in (_ANY, it.resource_type)
        and asked.principal_filter in (None, it.principal)
        and asked.host_filter in (None, it.host)
        and asked.operation in (_ANY, it.operation)
        and asked.permission_type in (_ANY, it.permission_type)
    )


class TokensDescribed(LoginChecker):
    """A client is told of the tokens that are its own business, and of others that it may see; not at all in a session that it
    owes to a token. It gets a token for somebody else only where it has the right to."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._rules = Rules(world.cluster.shape.config)
        self.judged = {"described": 0, "for others": 0}

    def judge(self, session: Session, found: Exchanged, answer: LoginAnswer, where: str) -> None:
        if found.told is None or not session.who or found.api not in (CREATE, DESCRIBE):
            return
        states = [self.facts.history.visible(answer.first), *self.facts.history.between(answer.first, answer.last)]
        code = ErrorCode(found.told.error_code)
        if session.who.startswith("token "):
            if code is not ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED:
                self.fail(f"{where}: {session.who} asks for tokens, and hears {code.name}")
        elif found.api == DESCRIBE:
            self.judged["described"] += 1
            self._described(session, found, states, where)
        elif found.asked.owner_principal_name and found.asked.owner_principal_name != session.who:
            self.judged["for others"] += 1
            owner = f"{USER}:{found.asked.owner_principal_name}"
            denied = code is ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
            may = [self._may(state, session, Operation.CREATE_TOKENS, ResourceType.USER, owner) for state in states]
            if (not denied) not in may:
                self.fail(f"{where}: {session.who} asks for a token of {owner}, and hears {code.name}")

    def _may(self, state: MetadataState, session: Session, operation: Operation, kind: ResourceType, name: str) -> bool:
        return self._rules.allows(state.acls.values(), Principal(USER, session.who), _HOST, operation, kind, name)

    def _described(self, session: Session, found: Exchanged, states: list[MetadataState], where: str) -> None:
        told = {it.token_id: _shown(it) for it in found.told.tokens}
        code = ErrorCode(found.told.error_code)
        if code is not ErrorCode.NONE or len(told) < len(found.told.tokens):
            self.fail(f"{where}: {session.who} asks for tokens, and hears {code.name}, {list(told)}")
        if not any(told == self._wanted(state, session, found.asked) for state in states):
            wanted = [str(it) for it in states[-1].tokens.values()]
            self.fail(f"{where}: {session.who} asks for tokens of {found.asked.owners}, and hears of {told}; there are {wanted}")

    def _wanted(self, state: MetadataState, session: Session, asked: Any) -> dict[str, tuple[str, bytes, int, int]]:
        owners = None if asked.owners is None else {f"{it.principal_type}:{it.principal_name}" for it in asked.owners}
        found = {}
        for it in state.tokens.values():
            concerned = {it.owner, it.requester, *it.renewers}
            sees = (
                f"{USER}:{session.who}" in concerned
                or self._may(state, session, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, it.token_id)
                or self._may(state, session, Operation.DESCRIBE_TOKENS, ResourceType.USER, it.owner)
            )
            if sees and (owners is None or owners & concerned):
                code = token_hmac(SECRET, it.token_id)
                found[it.token_id] = (it.owner, code, it.expiration_timestamp_ms, it.max_timestamp_ms)
        return found


def _shown(it: Any) -> tuple[str, bytes, int, int]:
    return f"{it.principal_type}:{it.principal_name}", bytes(it.hmac), int(it.expiry_timestamp), int(it.max_timestamp)
