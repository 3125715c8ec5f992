"""The requests of this node that are under way.

One per peer and method. A response is accepted once, and only while its request is still wanted: after its timeout, or when
this node has changed its role since, it finds no entry here and is dropped (RF-24).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kraftlite.model.ids import NodeId
from kraftlite.model.messages.raft import RaftRequest
from kraftlite.model.method import AnyMethod


@dataclass(slots=True, kw_only=True)
class Outstanding:
    correlation_id: int
    peer_id: NodeId
    method: AnyMethod
    request: RaftRequest
    deadline_ms: int
    role: object
    """The state of the node that asked."""


class RequestTracker:
    """Correlation ids, timeouts, and the pause after a failure. Times are monotonic milliseconds."""

    def __init__(self, *, timeout_ms: int, backoff_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._backoff_ms = backoff_ms
        self._next_correlation_id = 1
        self._by_id: dict[int, Outstanding] = {}
        self._not_before: dict[tuple[NodeId, str], int] = {}

    def open(self, peer_id: NodeId, method: AnyMethod, request: RaftRequest, now_ms: int, role: object) -> Outstanding:
        entry = Outstanding(
            correlation_id=self._next_correlation_id,
            peer_id=peer_id,
            method=method,
            request=request,
            deadline_ms=now_ms + self.timeout_ms,
            role=role,
        )
        self._next_correlation_id += 1
        self._by_id[entry.correlation_id] = entry
        return entry

    def close(self, correlation_id: int) -> Outstanding | None:
        """The request that this response belongs to; None when nobody waits for it any more."""
        return self._by_id.pop(correlation_id, None)

    def clear(self) -> None:
        """Forget everything: responses to earlier requests no longer matter, and a new role may ask at once."""
        self._by_id.clear()
        self._not_before.clear()

    def check(self, role: object) -> None:
        """Raise AssertionError when a request of an earlier role counts: its answer would be taken for one to this role."""
        for entry in self._by_id.values():
            assert entry.role is role, (
                f"{entry.method} to node {entry.peer_id} was asked in an earlier role, and its answer counts"
            )

    def is_outstanding(self, method: AnyMethod, peer_id: NodeId | None = None) -> bool:
        """Return whether a request of this kind is under way to `peer_id`, or to anybody."""
        return any(entry.method is method and (peer_id is None or entry.peer_id == peer_id) for entry in self._by_id.values())

    def last_sent_ms(self, method: AnyMethod, peer_ids: Collection[NodeId]) -> int | None:
        """Return when the youngest request of this kind that is under way to one of these was sent."""
        sent = [e.deadline_ms - self.timeout_ms for e in self._by_id.values() if e.method is method and e.peer_id in peer_ids]
        return max(sent, default=None)

    def may_send(self, peer_id: NodeId, method: AnyMethod, now_ms: int) -> bool:
        return not self.is_backing_off(peer_id, method, now_ms) and not self.is_outstanding(method, peer_id)

    def is_backing_off(self, peer_id: NodeId, method: AnyMethod, now_ms: int) -> bool:
        """Return whether the last request of this kind to that peer failed so recently that the next one must wait."""
        return self._not_before.get((peer_id, method.name), now_ms) > now_ms

    def back_off(self, peer_id: NodeId, method: AnyMethod, now_ms: int) -> None:
        self._not_before[(peer_id, method.name)] = now_ms + self._backoff_ms

    def expire(self, now_ms: int) -> list[Outstanding]:
        """Remove and return what has been waiting too long."""
        late = [entry for entry in self._by_id.values() if entry.deadline_ms <= now_ms]
        for entry in late:
            del self._by_id[entry.correlation_id]
        return late

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """The earliest timeout or end of a pause after `now_ms`."""
        times = [entry.deadline_ms for entry in self._by_id.values()]
        if self._not_before:
            times += [time for time in self._not_before.values() if time > now_ms]
        return min(times) if times else None
