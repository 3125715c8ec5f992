"""The settings by which a client reaches a cluster: one frozen value. `properties` makes it of Kafka's own option names."""

from __future__ import annotations

from dataclasses import dataclass, field

from kraftlite.model.limits import MIB
from kraftlite.model.numbers import whole


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Locations are read where the client runs; texts travel with the settings. The kind of a store is PEM, or anything else for
    PKCS12. `suites` have the names of Java."""

    trust_location: str | None = None
    trust_certificates: str | None = None
    key_location: str | None = None
    """One file with the certificate chain and its private key."""
    key_chain: str | None = None
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    check_host: bool = True
    trust_kind: str = "PEM"
    trust_password: str | None = field(default=None, repr=False)
    key_kind: str = "PEM"
    key_store_password: str | None = field(default=None, repr=False)
    versions: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslSettings:
    """`mechanism` is one of `MECHANISMS`. `token`: name and password are those of a delegation token. For OAUTHBEARER either
    `claims`, of which a token is made that nobody has signed, or `token_file`, which is read whenever the client logs in."""

    mechanism: str
    username: str
    password: str = field(repr=False)
    token: bool = False
    claims: tuple[tuple[str, str], ...] = ()
    lifetime_s: int = 3600
    token_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Everything that a `KafkaClient` needs to know. Hashable, and picklable: it is part of every input partition.

    `retry_timeout_ms` bounds how long a call tries again, `delivery_timeout_ms` the same for produce; `request_timeout_ms` bounds
    one request, `connect_timeout_ms` one connection, TLS and SASL included. `unreachable_timeout_ms` bounds how long a call tries
    again while no broker gives it a connection; None: no sooner than otherwise. `bootstrap`: (host:port, …), not empty.
    """

    bootstrap: tuple[str, ...]
    client_id: str = "kraftlite"
    security_protocol: str = "PLAINTEXT"
    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None
    request_timeout_ms: int = 30_000
    retry_timeout_ms: int = 120_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    connect_timeout_ms: int = 10_000
    unreachable_timeout_ms: int | None = None
    fetch_bytes: int = MIB
    """The bytes that `fetch` asks for unless told."""
    read_committed: bool = False
    """Unless told by the call."""
    acks: int = -1
    idempotent: bool = True
    compression: str = "none"
    max_request_bytes: int = MIB
    """The most bytes of one record batch that is produced."""
    delivery_timeout_ms: int = 120_000

    def __post_init__(self) -> None:
        if not self.bootstrap:
            raise ValueError("bootstrap: at least one host:port must be given")
        for address in self.bootstrap:
            split_address(address)


def split_address(address: str) -> tuple[str, int]:
    """(host, port) of host:port or [v6]:port. Raises ValueError."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not whole(port, 65_535):
        raise ValueError(f"bootstrap.servers={address!r}: allowed is host:port, several separated by commas")
    return host, int(port)
