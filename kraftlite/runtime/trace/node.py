"""Events of the process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kraftlite.runtime.trace import TraceEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStarting(TraceEvent):
    event: ClassVar[str] = "node.starting"
    roles: str
    cluster_id: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStarted(TraceEvent):
    event: ClassVar[str] = "node.started"
    roles: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerOpened(TraceEvent):
    event: ClassVar[str] = "node.listener_opened"
    listener: str
    endpoint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStalled(TraceEvent):
    """Nothing ran on this node for at least `stalled_ms` until now: it was paused, starved or suspended."""

    event: ClassVar[str] = "node.stalled"
    level: ClassVar[str] = "warning"
    stalled_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStopping(TraceEvent):
    event: ClassVar[str] = "node.stopping"
    reason: str
    graceful: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStopped(TraceEvent):
    event: ClassVar[str] = "node.stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFaulted(TraceEvent):
    """Something happened that this node cannot go on with; the process exits with status 1."""

    event: ClassVar[str] = "node.faulted"
    level: ClassVar[str] = "error"
    where: str
    reason: str
    trace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultInjected(TraceEvent):
    """Somebody has told this node to cause a fault to itself; it has begun."""

    event: ClassVar[str] = "node.fault_injected"
    level: ClassVar[str] = "warning"
    id: str
    kind: str
    what: str
    for_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedFaultEnded(TraceEvent):
    """`how`: its time was over, it was used up, it was ended, or the node stopped. `hits`: what it has hit."""

    event: ClassVar[str] = "node.fault_ended"
    level: ClassVar[str] = "warning"
    id: str
    kind: str
    how: str
    hits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRegistrationSent(TraceEvent):
    event: ClassVar[str] = "node.controller_registration_sent"
    incarnation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRegistrationFailed(TraceEvent):
    event: ClassVar[str] = "node.controller_registration_failed"
    level: ClassVar[str] = "warning"
    reason: str
    retry_in_ms: int
