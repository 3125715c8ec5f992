"""The quota that applies to a client. Source: KIP-55, KIP-546, KIP-612; QU-01, QU-09."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from kraftlite.model.addresses import canonical_address
from kraftlite.model.messages.security import QuotaEntityPart

PRODUCE: Final = "producer_byte_rate"
FETCH: Final = "consumer_byte_rate"
REQUEST: Final = "request_percentage"
MUTATION: Final = "controller_mutation_rate"
CONNECTION: Final = "connection_creation_rate"

LONGEST_KEPT: Final = 256
"""Characters of a user or client id that a scope keeps: a client may call itself by 32 KiB, and each time otherwise."""

QuotaEntity = tuple[QuotaEntityPart, ...]
_DEFAULT_USER: Final = QuotaEntityPart(type="user", name=None)
_DEFAULT_CLIENT: Final = QuotaEntityPart(type="client-id", name=None)
_DEFAULT_IP: Final = (QuotaEntityPart(type="ip", name=None),)


class Values(Protocol):
    """The quotas of one entity, as texts by key."""

    def get(self, key: str, /) -> str | None: ...


class Quotas(Protocol):
    """The quotas of all entities."""

    def get(self, entity: QuotaEntity, /) -> Values | None: ...


class Scope(NamedTuple):
    """Those who share a quota: all clients of a user (`client_id` ""), all users of a client id (`user` ""), or one client of one
    user. A long name is kept by its beginning and its digest."""

    user: str
    client_id: str

    def __str__(self) -> str:
        named = (("user", self.user), ("client-id", self.client_id))
        return ", ".join(f"{kind} {name}" for kind, name in named if name)


class Matched(NamedTuple):
    """The quota that applies, and those who share it."""

    scope: Scope
    bound: float


def matching(quotas: Quotas, key: str, user: str, client_id: str) -> Matched | None:
    """The first quota that is set for `key`, from the most to the least specific entity; None: the client is not bounded.

    An empty client id has no quotas of client ids, also not the default one, as in Kafka.
    """
    named_user = QuotaEntityPart(type="user", name=user)
    kept_user, kept_client = _kept(user), _kept(client_id)
    both, users, clients = Scope(kept_user, kept_client), Scope(kept_user, ""), Scope("", kept_client)
    if client_id:
        named_client = QuotaEntityPart(type="client-id", name=client_id)
        order: tuple[tuple[QuotaEntity, Scope], ...] = (
            ((named_client, named_user), both),
            ((_DEFAULT_CLIENT, named_user), both),
            ((named_user,), users),
            ((named_client, _DEFAULT_USER), both),
            ((_DEFAULT_CLIENT, _DEFAULT_USER), both),
            ((_DEFAULT_USER,), users),
            ((named_client,), clients),
            ((_DEFAULT_CLIENT,), clients),
        )
    else:
        order = (((named_user,), users), ((_DEFAULT_USER,), users))
    for entity, scope in order:
        bound = _value(quotas, entity, key)
        if bound is not None:
            return Matched(scope, bound)
    return None


class IpQuotas:
    """The connections per second that addresses may open (KIP-612). An address may be written in any of its forms."""

    def __init__(self, quotas: Mapping[QuotaEntity, Values]) -> None:
        self._default = _value(quotas, _DEFAULT_IP, CONNECTION)
        self._named: dict[str, float] = {}
        for entity in quotas:
            name = entity[0].name if len(entity) == 1 and entity[0].type == "ip" else None
            bound = None if name is None else _value(quotas, entity, CONNECTION)
            if name is not None and bound is not None:
                self._named[canonical_address(name)] = bound

    def of(self, address: str) -> float | None:
        """None: it is not bounded."""
        return self._named.get(address, self._default)


def _kept(name: str) -> str:
    if len(name) <= LONGEST_KEPT:
        return name
    return f"{name[:LONGEST_KEPT]}…{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()}"


def _value(quotas: Quotas, entity: QuotaEntity, key: str) -> float | None:
    values = quotas.get(entity)
    text = None if values is None else values.get(key)
    return None if text is None else float(text)
