"""Events of the client listeners. Nothing here is emitted per request that goes well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kraftlite.runtime.trace import TraceEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerStarted(TraceEvent):
    event: ClassVar[str] = "wire.listener_started"
    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerStopped(TraceEvent):
    event: ClassVar[str] = "wire.listener_stopped"
    listener: str
    port: int
    unanswered: int
    """Requests in flight whose connections were cut when the grace was over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionClosed(TraceEvent):
    """The broker closed a connection because of what came over it, or did not (CP-02, CP-06, RP-01)."""

    event: ClassVar[str] = "wire.connection_closed"
    level: ClassVar[str] = "warning"
    listener: str
    peer: str
    reason: str
    left_out: int | None = None
    """The number of such events that were left out before this one, because too many came in one second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionRefused(TraceEvent):
    """One connection too many (CP-06)."""

    event: ClassVar[str] = "wire.connection_refused"
    level: ClassVar[str] = "warning"
    listener: str
    peer: str
    reason: str
    left_out: int | None = None
    """The number of such events that were left out before this one, because too many came in one second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKeysRead(TraceEvent):
    """The public keys that sign OAUTHBEARER tokens were read (SE-14)."""

    event: ClassVar[str] = "wire.signing_keys_read"
    listener: str
    keys: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKeysUnreadable(TraceEvent):
    """They could not be read; those that are there stay in force, and without any no token is taken (SE-14)."""

    event: ClassVar[str] = "wire.signing_keys_unreadable"
    level: ClassVar[str] = "warning"
    listener: str
    reason: str
    retry_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFailed(TraceEvent):
    """A bug: an exception that nobody expects ended one request. It was answered UNKNOWN_SERVER_ERROR, or its connection was
    closed; the node goes on (docs/adr/0005)."""

    event: ClassVar[str] = "wire.request_failed"
    level: ClassVar[str] = "error"
    listener: str
    peer: str
    api: str
    version: int
    error: str
    trace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoTopicCreationRequested(TraceEvent):
    event: ClassVar[str] = "wire.auto_topic_creation_requested"
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoTopicCreationFailed(TraceEvent):
    event: ClassVar[str] = "wire.auto_topic_creation_failed"
    level: ClassVar[str] = "warning"
    topics: tuple[str, ...]
    error: str
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientThrottled(TraceEvent):
    """A client went over a quota, and its connections are muted for a while (KIP-219). `user` or `client_id` "": whichever it is.
    Emitted once, until it has not been throttled for some seconds."""

    event: ClassVar[str] = "wire.client_throttled"
    level: ClassVar[str] = "warning"
    quota: str
    user: str
    client_id: str
    bound: float
    rate: float
    """In the units of `bound`, over the quota's windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientThrottlingEnded(TraceEvent):
    event: ClassVar[str] = "wire.client_throttling_ended"
    quota: str
    user: str
    client_id: str
    lasted_ms: int
    times: int
    """Its requests that were throttled since it is known."""
