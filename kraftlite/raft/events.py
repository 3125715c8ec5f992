"""The events that go into the core and the output that comes out of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages.raft import RaftRequest, RaftResponse
from kraftlite.model.method import AnyMethod


@dataclass(slots=True, kw_only=True)
class RequestReceived:
    """A peer asks. The answer is a `Reply` with the same `request_id`, in this step's output or in a later one."""

    request_id: int
    request: RaftRequest


@dataclass(slots=True, kw_only=True)
class ResponseReceived:
    correlation_id: int
    response: RaftResponse


@dataclass(slots=True, kw_only=True)
class RequestFailed:
    """No answer came, or it was not one of the protocol: the peer may or may not have acted."""

    correlation_id: int


@dataclass(slots=True, kw_only=True)
class LogFlushed:
    """Everything below `leo` is durable."""

    leo: int


@dataclass(slots=True, kw_only=True)
class AppendScheduled:
    """The prepared records may go out (RF-36)."""


@dataclass(slots=True, kw_only=True)
class ResignRequested:
    epoch: int
    reason: str = "asked to resign"


@dataclass(slots=True, kw_only=True)
class ShutdownRequested:
    """Hand over leadership and campaign no more (RF-19). `RaftCore.shutdown_complete` tells when it is done."""


@dataclass(slots=True, kw_only=True)
class Tick:
    """Time has passed; `next_deadline_ms` was reached."""


Event = (
    RequestReceived | ResponseReceived | RequestFailed | LogFlushed | AppendScheduled | ResignRequested | ShutdownRequested | Tick
)


@dataclass(slots=True, kw_only=True)
class OutboundRequest:
    """Ask `peer`. Exactly one ResponseReceived or RequestFailed with this correlation id may follow; a late one is ignored."""

    correlation_id: int
    peer_id: NodeId
    peer: Endpoint
    method: AnyMethod
    request: RaftRequest
    timeout_ms: int


@dataclass(slots=True, kw_only=True)
class Reply:
    request_id: int
    response: RaftResponse


@dataclass(slots=True, kw_only=True)
class Output:
    """The work of the driver after a step, in the order of the fields.

    Votes and the log are already written when `step` returns: votes durably, the log to the page cache. So requests and
    replies may leave at once; what must wait for durability (a follower's next fetch, the leader's own count) is not in
    this output but follows a LogFlushed.
    """

    requests: list[OutboundRequest] = field(default_factory=list)
    flush: bool = False
    """Make the log durable (`Log.flush`), then step LogFlushed. One flush at a time covers all that was asked before it began."""
    replies: list[Reply] = field(default_factory=list)
    deliver: bool = False
    """The high watermark, the leader or the set of snapshots changed: run the deliveries to the state machines."""
