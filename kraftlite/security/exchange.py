"""The server's side of a SASL exchange, whatever the mechanism is. Source: RFC 4422; SE-10."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from kraftlite.model.limits import KIB
from kraftlite.model.principal import Principal

MAX_MESSAGE_BYTES: Final = 64 * KIB
"""The longest message of a mechanism that is looked at; real ones have at most a few kilobytes."""


class Authenticated(NamedTuple):
    """The end of an exchange that went well. `expires_ms`: when the credential ends, in epoch milliseconds; None: never."""

    principal: Principal
    expires_ms: int | None = None


class Reply(NamedTuple):
    """The bytes that go back to the client; with `outcome` the exchange is over."""

    token: bytes
    outcome: Authenticated | None = None


class SaslRefused(Exception):
    """The client is not let in. `told`: what it may be told; None: nothing but that its credentials are not valid, because the
    reason would tell whether a user exists. The text of the exception is for the log, and never has a secret."""

    def __init__(self, reason: str, told: str | None = None) -> None:
        super().__init__(reason)
        self.told = told


class ServerExchange(Protocol):
    """One authentication of one client."""

    def evaluate(self, token: bytes, now_ms: int) -> Reply:
        """Answer the client's next message. Raises SaslRefused."""
        ...


def check_name(name: str) -> None:
    """Raise SaslRefused for a name that is no text: half a pair of surrogates, as JSON can have it, cannot be sent or written."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise SaslRefused("the name is not UTF-8") from None


def check_size(token: bytes) -> None:
    """Raise SaslRefused for a message that is too long to be one."""
    if len(token) > MAX_MESSAGE_BYTES:
        raise SaslRefused(f"a message of {len(token)} bytes: allowed are {MAX_MESSAGE_BYTES}")


def refused_openly(text: str) -> SaslRefused:
    """A refusal whose reason the client may know."""
    return SaslRefused(text, text)
