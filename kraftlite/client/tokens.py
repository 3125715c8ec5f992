"""Requests about delegation tokens, on a `ClusterClient`. Source: KIP-48. All raise ClientError."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kraftlite.client.cluster import ClusterClient, check
from kraftlite.model.principal import Principal

_LONGEST_MS: Final = 10**15
"""Thirty thousand years."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    token_id: str
    hmac: bytes = field(repr=False)
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expiry_ms: int
    max_ms: int


def create_token(cluster: ClusterClient, owner: Principal | None, renewers: Sequence[Principal], max_lifetime_ms: int) -> Token:
    """`owner` None: who asks. `max_lifetime_ms` -1: as long as may be."""
    values = {
        "owner_principal_type": None if owner is None else owner.kind,
        "owner_principal_name": None if owner is None else owner.name,
        "renewers": [{"principal_type": it.kind, "principal_name": it.name} for it in renewers],
        "max_lifetime": _period(max_lifetime_ms),
    }
    return _token(check(cluster.call(38, 3, values)), tuple(renewers))


def renew_token(cluster: ClusterClient, code: bytes, period_ms: int) -> int:
    """Returns when it expires now. `period_ms` -1: as long as is usual."""
    return _ms(check(cluster.call(39, 2, {"hmac": code, "renew_period": _period(period_ms)})).expiry_timestamp)


def expire_token(cluster: ClusterClient, code: bytes, period_ms: int) -> int:
    """Returns when it expires now. A negative period ends it at once."""
    return _ms(check(cluster.call(40, 2, {"hmac": code, "expiry_time_period": _period(period_ms)})).expiry_timestamp)


def describe_tokens(cluster: ClusterClient, owners: Sequence[Principal] | None) -> list[Token]:
    """The tokens of these owners, or for None all that who asks may see."""
    values = {"owners": None if owners is None else [{"principal_type": it.kind, "principal_name": it.name} for it in owners]}
    return [
        _token(it, tuple(Principal(one.principal_type, one.principal_name) for one in it.renewers))
        for it in check(cluster.call(41, 3, values)).tokens
    ]


def _token(found: Any, renewers: tuple[Principal, ...]) -> Token:
    return Token(
        token_id=found.token_id,
        hmac=bytes(found.hmac),
        owner=Principal(found.principal_type, found.principal_name),
        requester=Principal(found.token_requester_principal_type, found.token_requester_principal_name),
        renewers=renewers,
        issued_ms=_ms(found.issue_timestamp),
        expiry_ms=_ms(found.expiry_timestamp),
        max_ms=_ms(found.max_timestamp),
    )


def _period(ms: int) -> int:
    """Cut a period to what can be sent: a token's greatest age cuts it anyway."""
    return max(-_LONGEST_MS, min(_LONGEST_MS, ms))


def _ms(moment: Any) -> int:
    """kio has moments as ints where the kraftlite codec reads them."""
    return int(moment)
