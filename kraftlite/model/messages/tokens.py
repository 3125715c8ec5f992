"""Messages of the controller service about delegation tokens. Source: KIP-48, KIP-900; SE-16.

Principals are texts such as `User:alice`. The code of a token (`hmac`) lets in whoever has it, and is in no text of these.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDelegationTokenRequest:
    """`owner` is `requester` unless the token is for somebody else. `max_lifetime_ms` below 1: as long as may be."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    max_lifetime_ms: int
    timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDelegationTokenResponse:
    issued_ms: int
    expiry_ms: int
    max_ms: int
    token_id: str
    hmac: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewDelegationTokenRequest:
    """`period_ms` below 1: as long as is usual."""

    requester: str
    hmac: bytes = field(repr=False)
    period_ms: int
    timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireDelegationTokenRequest:
    """`period_ms` below 0: at once."""

    requester: str
    hmac: bytes = field(repr=False)
    period_ms: int
    timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedDelegationTokenResponse:
    expiry_ms: int
