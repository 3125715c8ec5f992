"""Records simulated hosts: what each of them would say if it were asked now, while it runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kraftlite.model.ids import NodeId
from kraftlite.obs.recording import Recorder
from kraftlite.runtime.trace import TraceEvent
from kraftlite.simhost.host import SimHost

EVERY_MS: Final = 50
_BELIEFS: Final = frozenset(
    {"controller.claimed", "controller.renounced", "raft.state_changed", "raft.leader_elected"}
    | {"partition.leader_started", "partition.follower_started", "partition.removed"}
)
"""The events after which a node believes something else about who leads: it is looked at without waiting for the turn."""


class HostRecorder:
    """Looks at all hosts every EVERY_MS, and at one whose belief has changed at the end of its step. Changes nothing of them."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._looked_ms = -EVERY_MS
        self._changed: set[NodeId] = set()
        self._processes: dict[NodeId, str] = {}

    def event(self, now_ms: int, node: SimHost, event: TraceEvent) -> None:
        self.recorder.event(now_ms, int(node.node_id), event.event, event.facts())
        if event.event in _BELIEFS:
            self._changed.add(node.node_id)

    @property
    def pending(self) -> bool:
        """Some host believes something else than when it was looked at."""
        return bool(self._changed)

    def step(self, now_ms: int, hosts: Iterable[SimHost]) -> None:
        """A host has run: look at all when it is time, and at those that believe something else, were paused, ended or began."""
        if now_ms - self._looked_ms >= EVERY_MS:
            self.look(now_ms, hosts)
            return
        for host in hosts:
            if host.node_id in self._changed or self._processes.get(host.node_id) != _process(host):
                self._look(now_ms, host)

    def look(self, now_ms: int, hosts: Iterable[SimHost]) -> None:
        self._looked_ms = now_ms
        for host in hosts:
            self._look(now_ms, host)
        self.recorder.turn(now_ms)

    def _look(self, now_ms: int, host: SimHost) -> None:
        self._changed.discard(host.node_id)
        node_id, built = int(host.node_id), host.node
        process = self._processes[host.node_id] = _process(host)
        self.recorder.node(now_ms, node_id, host.config.roles, process)
        if built is None or host.paused:
            return
        self.recorder.status(now_ms, node_id, now_ms, 0, built.status())
        if built.broker is not None:
            self.recorder.replicas(now_ms, node_id, now_ms, built.broker.replica_states(None))


def _process(host: SimHost) -> str:
    return "stopped" if host.now is None else "paused" if host.now.paused else "running"
