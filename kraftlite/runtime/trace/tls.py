"""Events of TLS: handshakes that fail, at the side that is dialled and at the side that dials, and stores that change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kraftlite.runtime.trace import TraceEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsHandshakeFailed(TraceEvent):
    """A connection to a listener was closed before anything of it was served (SE-03)."""

    event: ClassVar[str] = "tls.handshake_failed"
    level: ClassVar[str] = "warning"
    listener: str
    peer: str
    reason: str
    left_out: int | None = None
    """The number of such events that were left out before this one, because too many came in one second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsPeerRefused(TraceEvent):
    """A node cannot be talked to: it is not trusted, or it does not trust this one (SE-06). Told once, until it succeeds or fails
    for another reason."""

    event: ClassVar[str] = "tls.peer_refused"
    level: ClassVar[str] = "warning"
    peer: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsStoresLoaded(TraceEvent):
    """The certificates for connections from now on (SE-05)."""

    event: ClassVar[str] = "tls.stores_loaded"
    listener: str
    subject: str
    expires: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsStoresRefused(TraceEvent):
    """Stores changed and cannot be used: what was loaded before stays in force (SE-05)."""

    event: ClassVar[str] = "tls.stores_refused"
    level: ClassVar[str] = "error"
    listener: str
    reason: str
