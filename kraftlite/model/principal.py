"""The identity of a client, as its connection has proved it.

Source: Kafka's KafkaPrincipal; KIP-48 for tokens; SE-04, SE-31.
"""

from __future__ import annotations

from typing import Final, NamedTuple

USER: Final = "User"
"""The only kind of principal that Kafka's own authenticators know."""


class Principal(NamedTuple):
    """`User:alice`. `token_authenticated`: a delegation token proved it (KIP-48); two principals that differ in this alone are
    the same one for ACLs and quotas."""

    kind: str
    name: str
    token_authenticated: bool = False

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Read `KIND:NAME`; blanks around it do not count (KAFKA-14962). Raises ValueError when it is not of this form."""
        kind, colon, name = text.strip().partition(":")
        if not colon or not kind or not name:
            raise ValueError(f"a principal is written as User:NAME, not as {text!r}")
        return cls(kind, name)

    @classmethod
    def written(cls, text: str) -> Principal:
        """Read what `str` has written, whatever kind and name are: without a name, or with blanks at its ends."""
        kind, _, name = text.partition(":")
        return cls(kind, name)


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""A client of a listener that does not authenticate, and one that showed no certificate where none is required."""


class Requester(NamedTuple):
    """The client that asks. `host`: its address as text, IPv4 also where a socket takes both; `client_id`: what it calls
    itself."""

    principal: Principal
    host: str
    client_id: str | None
