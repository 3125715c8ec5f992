"""The words of the nodes: what each one said last, and when it was heard. Nothing is merged here. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kraftlite.model.messages.introspection import GoneReplica, NodeStatusResponse, ReplicaState

ALIVE, SILENT, PAUSED, DEAD, UNKNOWN = "alive", "silent", "paused", "dead", "unknown"
SILENT_MS: Final = 1_000
"""The least age of a node's last words from which on it counts as silent."""
MAX_REPLICAS: Final = 20_000
"""Replicas of one node that are kept; what is more is counted in `cut`."""

Key = tuple[str, int]
"""Topic and partition."""


def _stands(status: NodeStatusResponse) -> object:
    """All of it but the offsets."""
    return (
        status.broker_state,
        status.broker_epoch,
        status.raft_state,
        status.raft_epoch,
        status.leader_id,
        status.active_controller,
    )


def _leads(replica: ReplicaState) -> object:
    return replica.topic_id, replica.is_leader, replica.leader_id, replica.leader_epoch, replica.partition_epoch, replica.isr


@dataclass(slots=True, kw_only=True)
class NodeWords:
    """One node: where it is, what the operating system says of its process, and its last words. Times are wall milliseconds.

    `process`: running, paused, stopped, or unknown where the node is not on this machine. `status` and `replicas` stay as they
    were said last, however long ago that is: `heard_ms` says when.
    """

    id: int
    roles: tuple[str, ...]
    kafka: str | None = None
    grpc: str | None = None
    process: str = UNKNOWN
    every_ms: int = 250
    heard_ms: int | None = None
    rtt_ms: int | None = None
    error: str | None = None
    polled: str | None = None
    """The reason why it is asked again and again instead of watched; None: it is watched, or was not heard yet."""
    status: NodeStatusResponse | None = None
    replicas: dict[Key, ReplicaState] = field(default_factory=dict)
    replicas_ms: int | None = None
    cut: int = 0
    version: int = 0
    """Counts the changes of `replicas`."""
    _coming: dict[Key, ReplicaState] | None = None
    """The words of a stream that has not told all yet; None: it has."""

    def life(self, now_ms: int) -> str:
        """The process is what the operating system says. A node that does not answer may be paused, cut off or slow: silent."""
        if self.process == "stopped":
            return DEAD
        if self.process == "paused":
            return PAUSED
        if self.heard_ms is None:
            return UNKNOWN
        return SILENT if now_ms - self.heard_ms > max(SILENT_MS, 3 * self.every_ms) else ALIVE

    def hear_status(self, status: NodeStatusResponse, now_ms: int, rtt_ms: int) -> bool:
        """Returns whether it says something that cannot wait: more than that it has gone on."""
        urgent = self.error is not None or self.status is None or _stands(self.status) != _stands(status)
        self.status, self.heard_ms, self.rtt_ms, self.error = status, now_ms, rtt_ms, None
        return urgent

    def hear_replicas(self, replicas: Iterable[ReplicaState], now_ms: int) -> None:
        found = list(replicas)
        self.cut = max(0, len(found) - MAX_REPLICAS)
        said = {(it.topic, it.partition): it for it in found[:MAX_REPLICAS]}
        self.replicas_ms = now_ms
        if said != self.replicas:
            self.replicas = said
            self.version += 1

    def begin(self) -> None:
        """A stream begins, which tells everything anew: until it has, the last words stay."""
        self._coming = {}

    def hear_news(self, changed: Iterable[ReplicaState], gone: Sequence[GoneReplica], looked_ms: int | None, count: int) -> bool:
        """Take what has changed. `looked_ms`: each replica was looked at after that; None: not all were told yet. Returns whether
        it cannot wait: whether more has changed than offsets."""
        said = self._coming if self._coming is not None else dict(self.replicas)
        urgent = self._coming is not None or bool(gone)
        for lost in gone:
            said.pop((lost.topic, lost.partition), None)
        for it in changed:
            before = said.get((it.topic, it.partition))
            urgent = urgent or before is None or _leads(before) != _leads(it)
            if before is not None or len(said) < MAX_REPLICAS:
                said[it.topic, it.partition] = it
        if looked_ms is None:
            self._coming = said
            return False
        self._coming, self.cut, self.replicas_ms = None, max(0, count - len(said)), looked_ms
        if said != self.replicas:
            self.replicas = said
            self.version += 1
        return urgent

    def fail(self, error: str) -> None:
        """It was asked and did not answer; its last words stay."""
        self.error = error
