"""Delegation tokens: the code that proves a token, and who is who to one. Source: KIP-48; SE-16."""

from __future__ import annotations

import base64
import hmac
from typing import Protocol


class TokenRecord(Protocol):
    """The part of a token's record that its rules look at."""

    @property
    def owner(self) -> str: ...

    @property
    def requester(self) -> str: ...

    @property
    def renewers(self) -> tuple[str, ...]: ...

    @property
    def max_timestamp_ms(self) -> int: ...

    @property
    def expiration_timestamp_ms(self) -> int: ...


def token_hmac(secret: str, token_id: str) -> bytes:
    """The code of a token, which only those who have `delegation.token.secret.key` can compute."""
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


def token_password(secret: str, token_id: str) -> str:
    """The password with which a client logs in by SCRAM, under the token's id as its name."""
    return base64.b64encode(token_hmac(secret, token_id)).decode()


def has_expired(token: TokenRecord, wall_ms: int) -> bool:
    return token.max_timestamp_ms < wall_ms or token.expiration_timestamp_ms < wall_ms


def may_renew(token: TokenRecord, principal: str) -> bool:
    return principal == token.owner or principal in token.renewers


def concerns(token: TokenRecord, principal: str) -> bool:
    """Return whether it is this principal's business: its owner's, its requester's and its renewers'."""
    return principal in concerned(token)


def concerned(token: TokenRecord) -> tuple[str, ...]:
    """All whose business it is."""
    return (token.requester, token.owner, *token.renewers)
